# How inputs can be missing, superfluous or misspelt.
try() { "$@"; echo "exit $?"; }
try ogive run 'x + y' x=1.0
try ogive run 'x + y' x=1.0 y=2.0 z=3.0
try ogive run 'x + scale' x=1.0 scael=2.0
try ogive run 'x.mean - x.shape' x=2x3
try ogive run 'x + y' x=1.0 x=2.0 y=1
try ogive run 'x + y' x=1.0 y=
try ogive run 'x' x=3:flaot32
try ogive run 'x' x=3x4:int4
try ogive run 'x' x=1x2x3x4:float32:rows_last
try ogive run 'x' x=2x3:float32:channels_last
try ogive run 'x' x=1x1x1x1x1x1x1x1x1:float32
try ogive run 'x' x=99999999999999999999:float32
try ogive run 'x' x=9999999999x9999999999:float32
try ogive run 'x' x=1e999
try ogive run 'x' in.npy
try ogive run x=1.0 'sigmoid(x)'
try ogive run 'x' x=missing.npy
try ogive run 'x' x=.
try ogive run 'x' missing.safetensors
for value in -3x4 3xx4 =3 1.2.3; do
    try ogive run 'x' x=$value
done
try ogive run 'x' x=./missing
# A number that may be meant as a shape.
ogive run 'mean(x * w)' x=8x16 w=16 >/dev/null
ogive run 'mean(x * w)' x=8x16 w=16:float32 >/dev/null
ogive run 'mean(x * w)' x=8x16 w=16.0 >/dev/null
ogive run 'mean(x * w)' x=8x16 w=17 >/dev/null
