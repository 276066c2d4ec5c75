ogive run 'x + y' x=3:float32 y=4:float32
