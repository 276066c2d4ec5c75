/* SPDX-License-Identifier: MIT */
/* Launches: from operands to grids, on the current device, without PyTorch. */
#include <cuda_runtime.h>
#include <stdlib.h>
#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

static void check_cuda(cudaError_t error)
{
    if (error != cudaSuccess)
        throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error));
}

static void swap_dims(Args &a, int operands, int d, int e)
{
    std::swap(a.extent[d], a.extent[e]);
    for (int i = 0; i < operands; i++)
        std::swap(a.stride[i][d], a.stride[i][e]);
}

static void drop_dim(Args &a, int operands, int d, int dims)
{
    for (; d + 1 < dims; d++)
        swap_dims(a, operands, d, d + 1);
}

/* Of dims [first, first + count), of all `dims`: those of size 1 go, neighbours that every
 * operand walks as one become one; lead >= 0: in the order of that operand's memory. Returns
 * how many are left. */
static int simplify(Args &a, int operands, int first, int count, int dims, int lead)
{
    for (int d = first + count - 1; d >= first; d--)
        if (a.extent[d] == 1) {
            drop_dim(a, operands, d, dims--);
            count--;
        }
    for (int d = first + 1; lead >= 0 && d < first + count; d++)
        for (int e = d; e > first && std::abs(a.stride[lead][e]) > std::abs(a.stride[lead][e - 1]);
             e--)
            swap_dims(a, operands, e, e - 1);
    for (int d = first + count - 2; d >= first; d--) {
        bool joins = true;
        for (int i = 0; i < operands; i++)
            joins = joins && a.stride[i][d] == a.stride[i][d + 1] * a.extent[d + 1];
        if (!joins)
            continue;
        a.extent[d + 1] *= a.extent[d];
        drop_dim(a, operands, d, dims--);
        count--;
    }
    return count;
}

static int64_t count_of(const Args &a, int first, int count)
{
    int64_t n = 1;
    for (int d = first; d < first + count; d++)
        n *= a.extent[d];
    return n;
}

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static unsigned grid_of(int64_t blocks)
{
    if (blocks >= INT64_C(1) << 31)
        throw std::invalid_argument("a tensor too large for one launch: " + std::to_string(blocks) +
                                    " blocks");
    return (unsigned)blocks;
}

/* Of the current device. */
static int attribute(cudaDeviceAttr which)
{
    int value = 0, device = 0;
    check_cuda(cudaGetDevice(&device));
    check_cuda(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

/* f(element of that dtype), for dtype_number(dtype) */
template <class F> static void by_dtype(int dtype, F f)
{
    if (dtype == 0)
        f(float());
    else if (dtype == 1)
        f(Float16());
    else if (dtype == 2)
        f(Bfloat16());
    else
        f(double());
}
