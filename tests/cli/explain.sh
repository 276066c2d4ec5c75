ogive explain 'x * sigmoid(x) + y' x=64x64:float32 y=64:float32 --threads 1 --no-limit
ogive explain 'sum(x, dim=1)' x=64x64:float32 --threads 1 | sed 's/[0-9.]* GB/N GB/; s/^\(floor *\).*/\1TIME/; /fits into/d'
ogive explain 'x +' x=1
