/* SPDX-License-Identifier: MIT
 *
 * hopper_call.cuh - what a file's C++ hands to the kernels of a product on Hopper, which are a
 * library of their own.
 */
#include "cuda/emit/cuda_shapes.h"

struct og_hopper_call {
    og_hopper_shape shape;
    const long long *extent;      /* of the space's dims */
    void *const *data;            /* operand i's first element, */
    const long long (*stride)[8]; /* and its strides over these dims */
    const double *number;
    const float *x, *w;
    const long long *x_stride;
    void *scratch; /* NULL: nothing is launched; the answer is how many bytes it takes */
    void *stream;
};
