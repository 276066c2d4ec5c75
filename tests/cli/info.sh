ogive info | sed 's/  .*//'
OMP_NUM_THREADS=1 ogive info --json | grep -c '"threads": 1'
