echo 'x + 1  # one more' > formula.txt
ogive run -f formula.txt x=1.0
ogive run x=1.0 --file=formula.txt
ogive run -f - x=1.0 < formula.txt
ogive run x=1.0 -- '-x'
ogive run -- '-x' x=1.0
ogive run -f missing.txt x=1.0
echo "exit $?"
ogive run -f formula.txt 'sigmoid(x)' x=1.0
echo "exit $?"
