ogive bench --list sigmoid-2^12 softmax
ogive bench sigmoid-2^12 one-element | sed 's/ [ 0-9.]* [mun]s .*/ MEASURED/'
ogive bench sigmoid-2^12 --json | grep -c '"seconds"'
# A formula of one's own.
mask() { sed -E 's/ +[0-9.]+ [mun]s .*/ MEASURED/; s/at least .*/at least MEASURED/; s/limit: .*/limit: MEASURED/'; }
ogive bench 'softmax(x, 1)' x=64x64 | mask
ogive bench 'linear(x, w)' x=256x256 w=256x256 | mask
ogive bench 'softmax(x, 1)' x=64x64 --json | grep -cE '"(seconds|operations|floor_seconds)"'
ogive bench 'sigmod(x)' x=64x64
ogive bench 'x' x=64x64 --peer jax
ogive bench sigmoid-2^12 --peer torch
ogive bench 'x * y' x=64x64 y=64x64 --plot out.svg >/dev/null && grep -c '<polyline' out.svg
# PyTorch beside it: a stand-in that answers at once.
cat >python <<'END'
#!/bin/sh
grep -c '"shape": \[64, 64\]' "$2/cases.json" >&2
grep -q 'return x \* 2' "$2/formula.py" || exit 1
for i in 1 2 3 4; do echo '{"version": "9.9", "eager": 0.5, "compiled": 0.25}'; done
sleep 0.1
trap '' PIPE
echo || echo 'nobody reads to the end' >&2
END
chmod +x python
OGIVE_PYTHON=$PWD/python ogive bench 'x * 2' x=64x64 --peer torch --plot out.svg | mask
grep -c '<polyline' out.svg
OGIVE_PYTHON=/no/python ogive bench 'x * 2' x=64x64 --peer torch 2>&1 | grep error
