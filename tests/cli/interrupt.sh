# An interrupt removes the temporary files. The pipe makes ogive wait.
set -m
mkfifo pipe.npy
ogive run 'x, x' x=2:float32 -o out.npy -o pipe.npy &
until ls -A | grep -q '^\.out\.npy\.'; do sleep 0.01; done
kill -INT $!
wait $!
echo "exit $?"
ls -A
