/* SPDX-License-Identifier: MIT */
#include <stdint.h>

constexpr int MAX_DIMS = 8, MAX_OPERANDS = 24, MAX_NUMBERS = 16;

struct Args {
    int dims;
    int64_t extent[MAX_DIMS], stride[MAX_OPERANDS][MAX_DIMS]; /* in elements */
    void *data[MAX_OPERANDS];                                 /* tensors, then results */
    double number[MAX_NUMBERS];                               /* that are no tensors */
    int64_t vectors, per_row; /* of 16 bytes: all, and of the last dim */
    int64_t whole_blocks; /* whose vectors are aligned and full */
};
