# An output may be an input, a link's file is replaced, modes are kept.
ogive run 'x - x + 1' x=2:float32 -o x.npy
ogive run 'x + 1' x=x.npy -o x.npy
ogive run 'x' x=x.npy
ln -s x.npy link.npy
chmod 640 x.npy
ogive run 'x + 1' x=link.npy -o link.npy
ogive run 'x' x=x.npy
stat -c '%a %F' x.npy link.npy
ls -A
