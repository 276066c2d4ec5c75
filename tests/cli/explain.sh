# The plan's own text is the library's and depends on the machine: left out.
ogive explain 'x * sigmoid(x) + y' x=64x64:float32 y=64:float32 --no-limit | grep '^bytes'
ogive explain 'sum(x, dim=1)' x=64x64:float32 --threads 1 |
    sed -n '/^bytes/p; /^memory/s/[0-9.]* GB/N GB/p; /^floor/s/[0-9].*/TIME/p'
ogive explain 'x' x=64x64:float32 --json | grep -E 'bytes_(read|written)|"dtype"' | sort -u
ogive explain 'x' x=4x4 --device cpu --arch 80
ogive explain 'x' x=4x4 --device cuda:x
ogive explain 'x +' x=1 --device cuda
ogive explain 'x +' x=1
