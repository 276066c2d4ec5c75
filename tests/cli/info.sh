ogive info | sed 's/  .*//'
OMP_NUM_THREADS=1 ogive info --json | grep -c '"threads": 1'
OGIVE_CPU=garbage ogive info 2>&1 | sed 's/expected .*/expected LEVELS/'
echo "exit ${PIPESTATUS[0]}"
