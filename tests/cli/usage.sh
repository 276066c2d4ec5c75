# Wrong commands and options: each says what to do instead.
try() { "$@"; echo "exit $?"; }
try ogive >/dev/null
try ogive rnu
try ogive 'sigmoid(x)'
try ogive frobnicate
try ogive --hlep
try ogive help foo
try ogive help expalin
try ogive run
try ogive run x --sed 1
try ogive run x --seed
try ogive run x --seed one
try ogive run x --json=1
try ogive run -q x
try ogive run -x+1 x=1
try ogive run x --threads 0 x=1
try ogive run x --cpu pentium x=1 2>&1 | sed 's/it has .*/it has LEVELS/'
try ogive run x --device cdua x=1
try ogive run x --device cuda:x x=1
try ogive run x --precision half x=1
try ogive run 'x @ x' --precision tf32 x=4x4
try ogive bench sigmoid --precision tf32
try ogive check sigmoid --precision strict
try ogive emit --pytorch x --precision tf32
try ogive info now
try ogive check sigmod
try ogive check sum
try ogive check --markdown --json
try ogive bench sgmoid
try ogive functions sofmax
try ogive functions --markdown --json
