# An empty result of absurd extents is no reason to write 2^60 empty lists.
for shape in '1152921504606846976, 0' '2, 0, 5' '0, 1152921504606846976'; do
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' \
        "{'descr': '<f4', 'fortran_order': False, 'shape': ($shape), }" > x.npy
    timeout 10 ogive run 'x + 1' x=x.npy --json | grep -v seconds | tr -d ' \n'
    echo
done
