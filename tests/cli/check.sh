ogive check relu --quick | sed 's/CPU level.*/CPU LEVELS/'
ogive check relu --quick --markdown
ogive check relu --quick --json | grep '"ok"'
