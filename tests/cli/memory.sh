# More than any machine has. (Under AddressSanitizer its warning is left out.)
export ASAN_OPTIONS=allocator_may_return_null=1
ogive run 'x' x=1000000x10000000:float32 2> errors
status=$?
grep '^error' errors >&2
exit $status
