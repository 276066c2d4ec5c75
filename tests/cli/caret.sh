# The caret is under the token: characters count, not bytes; tabs stay tabs.
ogive run 'x * sigmod(x) + y' x=1 y=1
echo "exit $?"
printf 'z = x; # caf\303\251\n\tz * sigmod(z)\n' > formula.txt
ogive run -f formula.txt x=1
printf 'x *\n  sigmod(x) + 1\n' | ogive run -f - x=1
ogive run 'x * "caf'$'\303\251''" * 2' x=1
ogive run 'x +' x=1
ogive run "x$(printf ' + 1%.0s' $(seq 40)) + sigmod(x)$(printf ' + x%.0s' $(seq 40))" x=1
