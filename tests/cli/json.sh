ogive run 'x, x - x' x=2x2:float32 --json | sed 's/"seconds": .*/"seconds": SECONDS/'
ogive run '1 / (x - x)' x=1:float64 --json -o out.npy | sed 's/"seconds": .*/"seconds": SECONDS/'
