# --gradient: of one input or of several, given or with grad=1 of its own.
try() { "$@"; echo "exit $?"; }
try ogive run 'sum(x * x)' x=2x3:float32 --gradient x
try ogive run 'x * y' x=3.0 y=5.0 --gradient y --gradient x
try ogive run 'x * y' x=3.0 y=5.0 grad=2.0 --gradient x
try ogive run 'sigmoid(x)' x=2x2 grad=2x2 --gradient x --json | grep -v seconds
try ogive run 'x, sum(x)' x=2x2 grad.0=2x2 --gradient x -o dx.npy
try ogive run 'x' x=dx.npy
try ogive explain 'softmax(x, 1)' x=64x64 grad=64x64 --gradient x --no-limit | grep '^\(kernel\|bytes\)'
# What is wrong is said.
try ogive run 'sigmoid(x)' x=2x2 --gradient x
try ogive run 'sigmoid(x)' x=2x2 grad=2x3 --gradient x
try ogive run 'sigmoid(weight)' weight=2x2 grad=2x2 --gradient wieght
try ogive run 'x * y' x=1.0 y=1.0 --gradient x --gradient x
try ogive run 'sigmoid(x)' x=2x2 grad=2x2
try ogive run 'x' --gradient
try ogive explain 'sigmoid(x)' x=2x2 --gradient x --no-limit
