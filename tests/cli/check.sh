ogive check sigmoid --quick | sed 's/ \+[0-9.]* ULP.* / NUMBERS /; s/CPU level.*/CPU LEVELS/'
ogive check sigmoid --quick --markdown | sed 's/| [0-9].*/| NUMBERS/'
ogive check sigmoid --quick --json | grep '"ok"'
