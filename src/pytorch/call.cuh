/* SPDX-License-Identifier: MIT
 *
 * call.cuh - what a file's C++ hands to its kernels.
 */
#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* A kernel visits a space: `kept` dims, whose indices are rows, then `reduced` dims, the elements
 * of a row. Operands (inputs, results, and what one kernel keeps for the next) are read and written
 * by strides over these dims. */
constexpr int MAX_DIMS = 8, MAX_OPERANDS = 24, MAX_NUMBERS = 16;

struct Args {
    int kept, reduced;
    long long extent[MAX_DIMS]; /* kept dims, then reduced ones */
    void *data[MAX_OPERANDS];
    long long stride[MAX_OPERANDS][MAX_DIMS]; /* in elements; 0: broadcast */
    double number[MAX_NUMBERS];               /* scalars, and counts of elements */
    /* Of a product, whose factors are the last two operands. */
    int64_t k, k_stride[2];
    int multiprocessors;
    void *stream;
    void *scratch; /* NULL: nothing is launched; the answer is how many bytes it takes */
};
