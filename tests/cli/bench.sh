ogive bench --list sigmoid-2^12 softmax
ogive bench sigmoid-2^12 one-element | sed 's/ [ 0-9.]* [mun]s .*/ MEASURED/'
ogive bench sigmoid-2^12 --json | grep -c '"seconds"'
