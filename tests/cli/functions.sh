ogive functions sigmoid softmax
ogive functions sigmoid --markdown | head -n 4
ogive functions sigmoid --json | grep -c '"signature"'
