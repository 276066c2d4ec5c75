/* SPDX-License-Identifier: MIT
 *
 * workloads.c - what `ogive bench` measures; see workloads.h.
 *
 * Sizes: 2^12 elements are in L1, 2^16 in L2, 2^20 in L2 or L3, 2^26 in memory.
 * The linear ones are KernelBench's level 2, 56 and 70, at sizes for a CPU.
 */
#include "workloads.h"

#define FIVE "(x * y + x) * sigmoid(y) - 0.5"
#define LINEAR_INPUTS                                                                              \
    {                                                                                              \
        "x=1024x2048:float32", "w=2048x2048:float32", "b=2048:float32"                             \
    }

const workload workloads[] = {
    {"sigmoid-2^12", "sigmoid(x)", {"x=4096:float32"}, 0},
    {"sigmoid-2^16", "sigmoid(x)", {"x=65536:float32"}, 0},
    {"sigmoid-2^20", "sigmoid(x)", {"x=1048576:float32"}, 0},
    {"sigmoid-2^26", "sigmoid(x)", {"x=67108864:float32"}, 0},
    {"hardsigmoid-2^12", "hardsigmoid(x)", {"x=4096:float32"}, 0},
    {"hardsigmoid-2^16", "hardsigmoid(x)", {"x=65536:float32"}, 0},
    {"hardsigmoid-2^20", "hardsigmoid(x)", {"x=1048576:float32"}, 0},
    {"hardsigmoid-2^26", "hardsigmoid(x)", {"x=67108864:float32"}, 0},
    {"silu-add-2^20", "x * sigmoid(x) + y", {"x=1048576:float32", "y=1048576:float32"}, 0},
    {"silu-add-2^26", "x * sigmoid(x) + y", {"x=67108864:float32", "y=67108864:float32"}, 0},
    {"five-2^20", FIVE, {"x=1048576:float32", "y=1048576:float32"}, 0},
    {"five-2^26", FIVE, {"x=67108864:float32", "y=67108864:float32"}, 0},
    {"sigmoid-float16-2^20", "sigmoid(x)", {"x=1048576:float16"}, 0},
    {"sigmoid-bfloat16-2^20", "sigmoid(x)", {"x=1048576:bfloat16"}, 0},
    {"softmax", "softmax(x, dim=-1)", {"x=4096x4096:float32"}, 0},
    {"log_softmax", "log_softmax(x, dim=-1)", {"x=4096x4096:float32"}, 0},
    {"layer_norm",
     "layer_norm(x, (4096,), w, b)",
     {"x=4096x4096:float32", "w=4096:float32", "b=4096:float32"},
     0},
    {"sum-rows", "sum(x, dim=1)", {"x=8192x8192:float32"}, 0},
    {"sum-columns", "sum(x, dim=0)", {"x=8192x8192:float32"}, 0},
    {"linear-sigmoid-sum", "sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", LINEAR_INPUTS, 0},
    {"linear-residual", "z = linear(x, w, b); z + 2.0 * sigmoid(z)", LINEAR_INPUTS, 0},
    {"one-element", "x * sigmoid(x) + y", {"x=1:float32", "y=1:float32"}, WORKLOAD_CALL},
    {"text-to-result", "x * sigmoid(x) + y", {"x=1:float32", "y=1:float32"}, WORKLOAD_TEXT},
};
const size_t workload_count = sizeof(workloads) / sizeof(workloads[0]);
