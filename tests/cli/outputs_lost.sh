# No result is lost without an error, and nothing else is left behind.
try() { ogive "$@" 2>&1; echo "exit $?"; }
try run 'x+1, x-1' x=2x3 -o a.npy -o ./a.npy
mkdir folder
ln -s folder link
try run 'x+1, x-1' x=2x3 -o folder/a.npy -o link/a.npy
try run 'x+1, x-1' x=2x3 -o b.safetensors:one -o folder/../b.safetensors:two
try run 'x+1' x=2x3 -o m.safetensors:__metadata__
echo "- over the limit of a file's size"
(ulimit -f 100; ogive run 'x+1' x=1000x1000 -o big.npy 2>&1; echo "exit $?")
ls -A . folder
echo "- a replaced file is trusted no more than its owner's other files"
: > s.npy
chmod 6755 s.npy
try run 'x+1' x=2 -o s.npy
stat -c %a s.npy
echo "- names as long as file systems take them"
long=$(printf '%0251d' 0).npy
try run 'x+1' x=2 -o "$long"
try run "y" y="$long"
rm "$long" s.npy
ls -A . folder
