ogive explain 'linear(x, w, b)' x=512x1024 w=4096x1024 b=4096:float32 --no-limit --divide 8 | sed -n '/^divided/,$p'
ogive explain 'softmax(x, dim=1)' x=6x1024 --no-limit --divide 4 | sed -n '/^divided/,$p'
ogive explain 'softmax(x, dim=1)' x=6x1024 grad=6x1024 --gradient x --no-limit --divide 8 | sed -n '/^divided/,$p'
ogive explain 'x @ t(x)' x=6x1024 --no-limit --divide 1 | sed -n '/^divided/,$p'
ogive explain 'softmax(x, dim=1)' x=6x1024 --no-limit --divide 4 --json | sed -n '/"divisions"/,$p'
ogive explain 'x' x=6 --divide 0
