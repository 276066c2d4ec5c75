# The same seed gives the same numbers; another name or seed gives others.
ogive run 'x' x=5:float32
ogive run 'x' x=5:float32 --seed 0
ogive run 'x' x=5:float32 --seed 1
ogive run 'y' y=5:float32
