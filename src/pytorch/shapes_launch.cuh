/* SPDX-License-Identifier: MIT
 *
 * shapes_launch.cuh - launches of a file that is made for some shapes: a kernel's parameter is known
 * but for addresses.
 */
#include "pytorch/launch.cuh"

template <size_t words> static og_args og_start(const uint64_t (&bytes)[words])
{
    og_args a = {};
    memcpy(&a, bytes, sizeof bytes < sizeof a ? sizeof bytes : sizeof a);
    return a;
}

/* Writes an address at a byte of the parameter. */
static void og_add_pointer(og_args &a, int at, const char *address)
{
    memcpy((char *)&a + at, &address, sizeof address);
}
