# Written and read back; all floats NumPy has.
for dtype in float16 float32 float64; do
    ogive run 'x' x=2x3:$dtype -o a.npy
    ogive run 'x' x=a.npy -o b.npy
    cmp a.npy b.npy && od -An -c -N128 a.npy | tr -d ' \n' | cut -c1-90
    ogive run 'x' x=b.npy
done
# Fortran order is the same array.
{
    printf '\223NUMPY\001\000\066\000'
    printf '%-53s\n' "{'descr':'<f4','fortran_order':True,'shape':(2,3)}"
    printf '\000\000\200\077\000\000\000\100\000\000\100\100\000\000\200\100\000\000\240\100\000\000\300\100'
} > fortran.npy
ogive run 'x' x=fortran.npy
# Unaligned data, from a pipe.
{
    printf '\223NUMPY\001\000\065\000'
    printf '%-53s' "{'descr':'<f4','fortran_order':False,'shape':(2,)}"
    printf '\000\000\200\077\000\000\000\100'
} > unaligned.npy
ogive run 'x' x=unaligned.npy
ogive run 'x' x=<(cat unaligned.npy)
