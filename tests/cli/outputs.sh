# What -o takes, checked before anything is computed.
try() { ogive "$@"; echo "exit $?"; }
try run 'x' x=2:float32 -o out.txt
try run 'x' x=2:float32 -o missing/out.npy
try run 'x' x=2:bfloat16 -o out.npy
try run 'x, x' x=2:float32 -o a.npy
try run 'x' x=2:float32 -o a.npy -o b.npy
try run 'x, x' x=2:float32 -o a.npy -o a.npy
try run 'x, x' x=2:float32 -o a.safetensors:k -o a.safetensors:k
try run 'x' x=2:float32 -o a.safetensors:
mkdir folder.npy
try run 'x' x=2:float32 -o folder.npy
ln -s nothing link.npy
try run 'x' x=2:float32 -o link.npy
ls -A
