# Never another device silently.
ogive run 'x' x=1.0 --device cpu
ogive run 'x' x=1.0 --device cuda
echo "exit $?"
ogive run 'x' x=1.0 --device cuda:1
ogive bench sigmoid-2^12 --device cuda
ogive check sigmoid --device cuda
echo "exit $?"
ogive run 'x' x=1.0 --device cuda:123456
