# Results are shown as NumPy shows them.
ogive run 'x' x=3x4:float32
ogive run 'x' x=40x50:float32
ogive run 'x' x=2x3x4:float16 --seed 7
ogive run 'x' x=3:bfloat16
ogive run 'x' x=2:float64
ogive run 'x' x=0x3:float32
ogive run 'x / 0 - x / 0' x=2x2:float32
ogive run '1 / (x - x)' x=2x3:float32
ogive run '1e6 * x' x=2x3:float32
ogive run 'x, -x' x=2:float32
