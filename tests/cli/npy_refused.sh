# Hostile and foreign files: what, expected, got. The rest is in test_npy.c.
try() { printf "\\223NUMPY\\001\\000\\$(printf %o ${#1})\\000%s" "$1" > bad.npy; ogive run 'x' x=bad.npy; echo "exit $?"; }
try "{'descr':'>f4','fortran_order':False,'shape':(2,)}"
try "{'descr':'>i8','fortran_order':False,'shape':(2,)}"
try "{'descr':'|O','fortran_order':False,'shape':(2,)}"
try "{'descr':'<f4','fortran_order':False,'shape':(2,)}"
try "{'descr':'<f4','fortran_order':False,'shape':(-2,)}"
printf 'hello' > bad.npy
ogive run 'x' x=bad.npy
printf 'hello, world' > other.txt
ogive run 'x' x=other.txt
: > empty.npy
ogive run 'x' x=empty.npy
