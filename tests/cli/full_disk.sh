# What cannot be written is an error, and nothing is left behind.
ogive run 'x' x=2:float32 -o /dev/full
echo "exit $?"
ogive functions > /dev/full
echo "exit $?"
(ulimit -f 8; trap '' XFSZ; ogive run 'x' x=100000:float32 -o big.npy)
echo "exit $?"
ls -A
