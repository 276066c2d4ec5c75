# A drawing has a box a kernel (and one around all), inputs, results and what is kept by name.
ogive explain 'softmax(x @ y, 1) @ z' x=64x128 y=128x32 z=32x16 --no-limit --svg plan.svg | head -n 1
grep -c '<rect' plan.svg
grep -oE '>(x|y|z|output0|temporary[0-9]+|kernel [0-9]: [a-z]+|softmax[^<]*)' plan.svg | sort -u
ogive explain 'x < y & m' x=4x4 y=4x4 m=4x4:bool --svg - ; echo "exit $?"
ogive explain 'where(x < y, x, 0)' x=4x4 y=4x4 --svg - | grep -c '&#60;'
ogive explain 'x' x=4x4 --no-limit --svg no/such/folder.svg; echo "exit $?"
