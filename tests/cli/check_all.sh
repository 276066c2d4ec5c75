# Every function is within its bound and the same on every CPU level.
ogive check --quick >out
status=$?
grep FAILED out
tail -n 1 out | sed 's/^[0-9]* /N /; s/CPU level.*/CPU LEVELS/'
exit $status
