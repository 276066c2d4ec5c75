# Pipes, devices and standard output, whatever it is, are written to directly, as .npy.
ogive run 'x' x=3:float32 -o want.npy
ogive run 'x' x=3:float32 -o /dev/stdout | cmp - want.npy
ogive run 'x' x=3:float32 -o /dev/stdout > file
cmp file want.npy
(echo before; ogive run 'x' x=3:float32 -o /dev/stdout) > file
tail -n +2 file | cmp - want.npy
mkfifo pipe
ogive run 'x' x=3:float32 -o pipe &
cmp pipe want.npy
wait $!
echo "exit $?"
ogive run 'x' x=3:float32 -o /dev/null
echo "exit $?"
ogive run 'x' x=3:bfloat16 -o /dev/null
ogive run 'x, x' x=3:float32 -o /dev/null
ls -A
