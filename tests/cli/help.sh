ogive --help
for command in run explain functions check bench emit warm info; do
    echo "== $command"
    ogive $command --help
    ogive help $command | cmp - <(ogive $command -h)
done
