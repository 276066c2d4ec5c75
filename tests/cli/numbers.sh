# s=NUMBER is a 0-d float32 tensor.
for value in 2 2.5 -1e-3 +.5 inf -inf nan; do
    ogive run 'x' x=$value
done
ogive run 's * x' s=3 x=2x2:float64 --json | grep dtype
