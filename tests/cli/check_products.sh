ogive check products --quick | sed -n '1p; $p'
ogive check products --quick --markdown | sed -n '1,2p'
ogive check products --quick --json | grep -c '"ok": true'
