# Never another device silently.
ogive run 'x' x=1.0 --device cpu
ogive run 'x' x=1.0 --device cuda
echo "exit $?"
ogive explain 'x' x=1.0 --device cuda:1
