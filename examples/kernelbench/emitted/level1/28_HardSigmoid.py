# SPDX-License-Identifier: MIT
# Made by `ogive emit --pytorch` 0.1.0 from
#
#     hardsigmoid(x)
#
# It needs PyTorch (2.3 or later) alone, and nvcc for tensors on a GPU, whose kernels are
# built when they are first needed (20 s; PyTorch keeps them for the next process).
#
# Tensors (sizes of one name must be equal; everything is checked at run time):
#   x            any shape
# float32, float16, bfloat16 (computed in float32, rounded once) or float64, one dtype
# for all; any strides. On a GPU always these kernels, on the tensors' device and its
# current stream; on the CPU plain PyTorch operations (_plain below).
#
# What is here, in this order (where home cannot be written to, set TORCH_EXTENSIONS_DIR):
#   HOST_*                      C++: checks tensors, binds them, chooses kernels
#   UNITS                       the formula and its derivative, kernel by kernel: each is
#                               built for the dtype and layout that it first meets;
#                               kernels() says what served
#   KERNELS                     Ogive's kernels and functions, which units include
#   _build, _Formula            what compiles them, and records gradients
#   _plain, _call, the module   the formula in PyTorch's operations; which of the two
#
# Kernels, and those of the gradient, which is computed from the inputs again:
#   Forward0   pointwise
#   Backward0   pointwise
import ctypes
import functools
import hashlib
import inspect
import math
import os
import re
import shutil

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.utils import cpp_extension

# C++, of PyTorch's tensors.
HOST_SHARED = r'''
/* From PyTorch's tensors to kernel arguments. Everything runs on the tensors' device and its
 * current stream; errors are raised in Python. */
#include "pytorch/call.cuh"
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <pybind11/stl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

typedef at::Tensor Tensor;

static void check_tensor(const Tensor &t, const char *name, int64_t rank, const Tensor &first)
{
    TORCH_CHECK_TYPE(t.defined() && t.is_cuda() && t.layout() == at::kStrided, name,
                     " must be a dense CUDA tensor, as the other tensors are");
    TORCH_CHECK_VALUE(t.device() == first.device(), name, " is on ", t.device(),
                      ", another tensor on ", first.device(), ": expected one device");
    TORCH_CHECK_TYPE(t.scalar_type() == at::kFloat || t.scalar_type() == at::kHalf ||
                         t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kDouble,
                     name, " is ", t.scalar_type(),
                     ": expected float32, float16, bfloat16 or float64");
    TORCH_CHECK_TYPE(t.scalar_type() == first.scalar_type(), name, " is ", t.scalar_type(),
                     ", another tensor ", first.scalar_type(), ": expected one dtype");
    TORCH_CHECK_VALUE(t.dim() == rank, name, " has shape ", t.sizes(), ": this file was made for ",
                      rank, " dims");
}

static void check_size(const Tensor &t, const char *name, int64_t dim, int64_t expected)
{
    TORCH_CHECK_VALUE(t.size(dim) == expected, name, " has shape ", t.sizes(), ": expected size ",
                      expected, " in dim ", dim);
}

/* A result like the first of these that has its sizes and no holes, else contiguous. */
static Tensor new_result(at::IntArrayRef sizes, std::initializer_list<Tensor> likes,
                         const at::TensorOptions &options)
{
    for (const Tensor &like : likes)
        if (like.sizes() == sizes && like.is_non_overlapping_and_dense())
            return at::empty_strided(sizes, like.strides(), options);
    return at::empty(sizes, options);
}

static void bind_all(Args &a, int i, const Tensor &t)
{
    a.data[i] = t.data_ptr();
    std::copy(t.strides().begin(), t.strides().end(), a.stride[i]);
}

/* By which units know a dtype. */
static int dtype_number(at::ScalarType dtype)
{
    return dtype == at::kFloat ? 0 : dtype == at::kHalf ? 1 : dtype == at::kBFloat16 ? 2 : 3;
}

/* Units: a kernel compiled for some numbers (dtype, vectors, which operands move along which dim),
 * each a library of its own, built when it is first needed. */
typedef int64_t (*UnitRun)(const void *);
struct Unit {
    std::string name, numbers;
    UnitRun run;
};
static std::vector<Unit> units;
static std::vector<std::string> missing_unit; /* name and numbers of one that is to be built */
static std::map<std::string, std::string> served;

std::vector<std::string> missing() { return missing_unit; }

void add_unit(const std::string &name, const std::string &numbers, int64_t run)
{
    units.push_back({name, numbers, (UnitRun)run});
}

/* What served each kernel last. */
std::vector<std::string> kernels()
{
    std::vector<std::string> lines;
    for (const auto &one : served)
        lines.push_back(one.first + ": " + one.second);
    return lines;
}

/* Of the current device. */
static int attribute(cudaDeviceAttr which)
{
    int value = 0, device = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
    return value;
}

/* A unit, or NULL: it is missing. */
static UnitRun find_unit(const char *name, const std::string &numbers)
{
    for (const Unit &unit : units)
        if (unit.name == name && unit.numbers == numbers)
            return unit.run;
    missing_unit = {name, numbers};
    return NULL;
}

/* Kernels without products: the order of dims, which is part of a sum's definition; then the body,
 * and its numbers. */
#include "cuda/emit/cuda_reduce_shapes.h"
#include "cuda/emit/cuda_shapes.h"

enum Body { VECTORS = 1, ROWS, ROWS_SPLIT, COLUMNS, COLUMNS_TILES, COLUMNS_SPLIT };
enum Motion { STILL, UNIT, STRIDED };

/* What the formula says of a kernel. Bits are operands'. */
struct Facts {
    const char *name;
    int operands;
    unsigned results, stored; /* what the caller gets; and what is kept for other kernels, too */
    unsigned kept;            /* is of another kernel: float32, or float64 if tensors are */
    unsigned numbers;         /* is a number, and no tensor */
    bool is_costly;
    int wanted_blocks;
    og_reduced_facts reduced;
};

/* A unit's numbers, to be compared with those of other calls. */
struct Numbers {
    const Facts *facts;
    int body, dtype, bits, dims, kept, vector_dim, vector, threads;
    int more[9]; /* by name below, as the body has them */
    int along[2], ends_rows, combiners; /* of a product */
    unsigned char moves[MAX_OPERANDS], motion[MAX_OPERANDS];
    UnitRun run;
};

static const char *body_name(int body)
{
    static const char *const names[] = {"vectors",       "rows",          "rows_split",
                                        "columns",       "columns_tiles", "columns_split",
                                        "product_tiles", "mma_pairs",     "mma_halves"};
    return names[body - VECTORS];
}

static void add_number(std::string &text, const char *name, int value)
{
    text += std::string(name) + " " + std::to_string(value) + "\n";
}

/* The numbers that all bodies have. */
static std::string text_of_layout(const Numbers &k)
{
    static const char *const forms[] = {"og_float32", "og_float16", "og_bfloat16", "og_float64"};
    std::string moves, motions;
    for (int i = 0; i < k.facts->operands; i++) {
        moves += (i ? "," : "") + std::to_string(k.moves[i]);
        motions += (i ? "," : "") + std::to_string(k.motion[i]);
    }
    std::string text = std::string("OG_FORM ") + forms[k.dtype] + "\nOG_MOVES " + moves +
                       "\nOG_MOTIONS " + motions + "\n";
    text += std::string("BODY ") + body_name(k.body) + "\n";
    add_number(text, "OG_BODY", 1 << k.body);
    add_number(text, "OG_IS_DOUBLE", k.dtype == 3);
    add_number(text, "OG_INDEX_BITS", k.bits);
    add_number(text, "OG_DIMS", k.dims);
    add_number(text, "OG_KEPT_DIMS", k.kept);
    add_number(text, "OG_VECTOR_DIM", k.vector_dim);
    add_number(text, "OG_V", k.vector);
    add_number(text, "OG_THREADS", k.threads);
    return text;
}

static std::string text_of(const Numbers &k)
{
    static const char *const names[][9] = {
        {"OG_LEAD", "OG_OUTER", "OG_BATCH"},
        {"OG_GROUP", "OG_VECTORS", "OG_STEPS", "OG_FLIGHT", "OG_KEEPS", "OG_FLAT", "OG_WHOLE",
         "OG_COMBINERS", "OG_COMBINE_THREADS"},
        {"OG_X", "OG_Y", "OG_RUNS", "OG_FLIGHT", "OG_SHARED_BYTES", "OG_BLOCKS"}};
    const int list = k.body == VECTORS ? 0 : k.body <= ROWS_SPLIT ? 1 : 2;
    std::string text = text_of_layout(k);
    for (int i = 0; i < 9 && names[list][i]; i++)
        add_number(text, names[list][i], k.more[i]);
    return text;
}

static int64_t count_of(const Args &a, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= a.extent[d];
    return n;
}

static void swap_dims(const Facts &f, Args &a, int d, int e)
{
    std::swap(a.extent[d], a.extent[e]);
    for (int i = 0; i < f.operands; i++)
        std::swap(a.stride[i][d], a.stride[i][e]);
}

static void drop_dim(const Facts &f, Args &a, int d)
{
    const bool is_kept = d < a.kept;
    for (; d + 1 < a.kept + a.reduced; d++)
        swap_dims(f, a, d, d + 1);
    (is_kept ? a.kept : a.reduced)--;
}

/* The operand by whose memory dims are ordered: the largest that is read or kept of a kernel that
 * reduces, else the first result; or -1. */
static int find_lead(const Facts &f, const Args &a)
{
    int lead = -1;
    double most = 0;
    for (int i = 0; i < f.operands; i++) {
        const bool is_result = f.results >> i & 1;
        double touched = 1;
        if (!a.reduced && is_result)
            return i;
        for (int d = 0; d < a.kept + a.reduced; d++)
            touched *= a.stride[i][d] ? (double)a.extent[d] : 1;
        if (!is_result && (lead < 0 || touched > most)) {
            lead = i;
            most = touched;
        }
    }
    return lead;
}

/* In each group of dims those that the lead does not move along come first, then those of falling
 * stride. */
static void sort_dims(const Facts &f, Args &a, int lead, int from, int to)
{
    for (int d = from + 1; d < to; d++)
        for (int e = d; e > from; e--) {
            const int64_t step = std::abs(a.stride[lead][e]);
            const int64_t before = std::abs(a.stride[lead][e - 1]);
            if (!(before != 0 && (step == 0 || step > before)))
                break;
            swap_dims(f, a, e, e - 1);
        }
}

/* Neighbouring dims that every operand walks as one become one. */
static void join_dims(const Facts &f, Args &a)
{
    for (int d = a.kept + a.reduced - 2; d >= 0; d--) {
        bool joins = d + 1 != a.kept;
        for (int i = 0; i < f.operands; i++)
            joins = joins && a.stride[i][d] == a.stride[i][d + 1] * a.extent[d + 1];
        if (!joins)
            continue;
        a.extent[d + 1] *= a.extent[d];
        drop_dim(f, a, d);
    }
}

/* Brings dims into the order of Ogive's plans; is a row across memory? */
static bool order_dims(const Facts &f, Args &a)
{
    const bool reduces = a.reduced > 0;
    const int lead = find_lead(f, a);
    int64_t row_step = INT64_MAX, kept_step = INT64_MAX;
    for (int d = a.kept + a.reduced - 1; d >= 0; d--) {
        const int64_t step = lead < 0 ? 0 : std::abs(a.stride[lead][d]);
        int64_t &least = d < a.kept ? kept_step : row_step;
        if (a.extent[d] == 1)
            drop_dim(f, a, d);
        else if (step)
            least = std::min(least, step);
    }
    if (lead >= 0) {
        sort_dims(f, a, lead, 0, a.kept);
        sort_dims(f, a, lead, a.kept, a.kept + a.reduced);
    }
    if (reduces && (a.reduced == 0 || count_of(a, a.kept, a.kept + a.reduced) == 0)) {
        const int64_t n = a.reduced ? 0 : 1; /* one dim of one element, or of none */
        a.reduced = 1;
        a.extent[a.kept] = n;
        for (int i = 0; i < f.operands; i++)
            a.stride[i][a.kept] = 0;
    }
    join_dims(f, a);
    if (a.kept + a.reduced == 0) {
        a.kept = 1;
        a.extent[0] = 1;
    }
    return row_step > kept_step;
}

static int64_t bytes_of(const Facts &f, int dtype, int i)
{
    return dtype == 3 ? 8 : dtype == 0 || (f.kept >> i & 1) ? 4 : 2;
}

/* How far an operand reaches, and a little further. */
static double reach_of(const Args &a, int operand, int dims)
{
    double reach = 0;
    for (int d = 0; d < dims; d++)
        reach += std::abs((double)a.stride[operand][d]) * ((double)a.extent[d] + 256);
    return reach;
}

/* Which operands move along which dim, and how along the vectors' dim. */
static void see_layout(const Facts &f, const Args &a, Numbers &k)
{
    const double most = INT32_MAX / 4;
    double count = 1;
    k.dims = a.kept + a.reduced;
    k.kept = a.kept;
    k.bits = 32;
    for (int d = 0; d < k.dims; d++)
        count *= (double)a.extent[d] + 16;
    for (int i = 0; i < f.operands; i++) {
        const int64_t step = k.vector_dim < 0 ? 1 : a.stride[i][k.vector_dim];
        for (int d = 0; d < k.dims; d++)
            k.moves[i] |= (a.stride[i][d] != 0) << d;
        k.motion[i] = step == 0 ? STILL : step == 1 ? UNIT : STRIDED;
        if (reach_of(a, i, k.dims) > most || count > most)
            k.bits = 64;
    }
}

static void shape_vectors(const Facts &f, const Args &a, Numbers &k)
{
    enum { BIG_ROUNDS = 16 }; /* elements for each thread that a GPU holds: fewer are no batches */
    const int64_t n = a.extent[k.dims - 1];
    int64_t narrowest = 0;
    bool is_contiguous = k.dims == 1;
    int lead = -1;
    for (int i = 0; i < f.operands; i++) {
        if (f.numbers >> i & 1)
            continue;
        const int64_t bytes = bytes_of(f, k.dtype, i);
        is_contiguous = is_contiguous && k.motion[i] != STRIDED;
        if (k.motion[i] != STILL && (!narrowest || bytes < narrowest))
            narrowest = bytes;
        if (k.motion[i] == UNIT && (lead < 0 || ((f.stored >> i & 1) && !(f.stored >> lead & 1))))
            lead = i;
    }
    k.vector = (int)(16 / (narrowest ? narrowest : 8));
    k.threads = is_contiguous ? 128 : 256;
    k.more[0] = lead;
    k.more[1] = k.dims > 1;
    k.more[2] = 1;
    if (is_contiguous && f.is_costly &&
        n / BIG_ROUNDS >= (int64_t)attribute(cudaDevAttrMultiProcessorCount) *
                              attribute(cudaDevAttrMaxThreadsPerMultiProcessor))
        k.more[2] = k.vector < 8 ? 2 : 4;
}

/* The unit that has these numbers, or NULL: it is missing. text: of its numbers. */
template <class Text> static UnitRun find_any(const Numbers &k, Text text)
{
    static std::vector<Numbers> found;
    for (const Numbers &one : found)
        if (!memcmp(&one, &k, offsetof(Numbers, run)))
            return one.run;
    const UnitRun run = find_unit(k.facts->name, text());
    if (run) {
        found.push_back(k);
        found.back().run = run;
    }
    return run;
}

/* Runs the unit that has these numbers; false: it is missing. */
template <class Text>
static bool run_any(const Numbers &k, Args &a, const at::TensorOptions &options, Text text,
                    const char *name)
{
    const UnitRun run = find_any(k, text);
    if (!run)
        return false;
    a.stream = c10::cuda::getCurrentCUDAStream();
    const int64_t bytes = run(&a);
    const Tensor scratch = bytes ? at::empty({bytes}, options.dtype(at::kByte)) : Tensor();
    a.scratch = bytes ? scratch.data_ptr() : &a;
    C10_CUDA_CHECK((cudaError_t)run(&a));
    served[k.facts->name] = name;
    return true;
}

static Numbers start_numbers(const Facts &f, const at::TensorOptions &options)
{
    Numbers k;
    memset(&k, 0, sizeof k); /* the bytes between members, too: find_any() compares all */
    k.facts = &f;
    k.dtype = dtype_number(at::typeMetaToScalarType(options.dtype()));
    return k;
}

/* Runs a kernel that reduces nothing; false: its unit is missing. */
static bool run_vectors(const Facts &f, Args &a, const at::TensorOptions &options)
{
    if (count_of(a, 0, a.kept) == 0)
        return true;
    Numbers k = start_numbers(f, options);
    order_dims(f, a);
    k.body = VECTORS;
    k.vector_dim = a.kept - 1;
    see_layout(f, a, k);
    shape_vectors(f, a, k);
    return run_any(k, a, options, [&] { return text_of(k); }, body_name(k.body));
}
'''

HOST_FORWARD = r'''

std::vector<at::Tensor> forward(const at::Tensor & x_)
{
    check_tensor(x_, "x", x_.dim(), x_);
    TORCH_CHECK_VALUE(x_.dim() <= MAX_DIMS, "x has ", x_.dim(), " dims: expected at most 8");
    const c10::DeviceGuard guard(x_.device());
    const at::TensorOptions options = x_.options();
    Tensor result0;
    { /* Forward0: pointwise */
        result0 = new_result(x_.sizes(), {x_}, options);
        Args a = {};
        a.kept = (int)x_.dim();
        std::copy(x_.sizes().begin(), x_.sizes().end(), a.extent);
        bind_all(a, 0, x_);
        bind_all(a, 1, result0);
        static const Facts facts = {"Forward0", 2, 0x2, 0x2, 0x0, 0x0, 0, 0};
        if (!run_vectors(facts, a, options))
            return {};
    }
    return {result0};
}
'''

HOST_BACKWARD = r'''

std::vector<at::Tensor> backward(const at::Tensor & x_, const at::Tensor & grad0_, const std::vector<bool> &needs)
{
    check_tensor(x_, "x", x_.dim(), x_);
    check_tensor(grad0_, "grad", x_.dim(), x_);
    for (int64_t d = 0; d < x_.dim(); d++)
        check_size(grad0_, "grad", d, x_.size(d));
    TORCH_CHECK_VALUE(x_.dim() <= MAX_DIMS, "x has ", x_.dim(), " dims: expected at most 8");
    const c10::DeviceGuard guard(x_.device());
    const at::TensorOptions options = x_.options();
    Tensor result0;
    { /* Backward0: pointwise */
        result0 = new_result(x_.sizes(), {x_, grad0_}, options);
        Args a = {};
        a.kept = (int)x_.dim();
        std::copy(x_.sizes().begin(), x_.sizes().end(), a.extent);
        bind_all(a, 0, x_);
        bind_all(a, 1, grad0_);
        bind_all(a, 2, result0);
        static const Facts facts = {"Backward0", 3, 0x4, 0x4, 0x0, 0x0, 0, 0};
        if (!run_vectors(facts, a, options))
            return {};
    }
    return {result0};
}
'''

# The formula, kernel by kernel, and its derivative; below, the files that they include.
UNITS = {
    "Forward0": r'''
#define OG_KEPT_NUMBERS 0x0
#include "cuda/kernels/any_dtype.cuh"

struct og_args {
    void *p[2];
    og_index strides[2][OG_DIMS];
    og_divisor dims[OG_DIMS];
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_index full;
};

enum { OG_OPERANDS = 2, OG_WINDOWS = 0, OG_SEVERAL_ROWS = OG_VECTOR_DIM < OG_KEPT_DIMS, OG_BF16_BY_TWO = 0, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1> og_all_places;
#include "cuda/kernels/any_operands.cuh"

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
    og_seek_between<0, OG_KEPT_DIMS - 1>(a, index, at);
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    og_seek_between<OG_KEPT_DIMS - 1, OG_DIMS>(a, index, at);
}

/* Values of a row. */
struct og_row {
};

/* What is read or computed once for several passes. */
typedef og_indices<> og_kept_operands;

struct og_kept : og_loads<> {
};

#include "cuda/kernels/results.cuh"

struct og_values0 {
    og_real v1;
};

struct og_pass0 : og_results<og_values0, og_result<1, &og_values0::v1>> {
    typedef og_loads<0> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const og_real v0 = og_get<0>(x, i);
        const og_real v1 = OG_REAL(hardsigmoid)(v0);
        y.v1 = v1;
    }
};
typedef og_pass0::loads og_loads0;

#include "cuda/kernels/pointwise.cuh"

#include "pytorch/launch_any.cuh"

static void og_fill(og_args &a, const Args &c)
{
}
''',
    "Backward0": r'''
#define OG_KEPT_NUMBERS 0x0
#include "cuda/kernels/any_dtype.cuh"

struct og_args {
    void *p[3];
    og_index strides[3][OG_DIMS];
    og_divisor dims[OG_DIMS];
    og_real c0;
    og_real c1;
    og_real c2;
    og_real c3;
    og_index n;
    og_index vectors;
    og_divisor per_row;
    og_index full;
};

enum { OG_OPERANDS = 3, OG_WINDOWS = 0, OG_SEVERAL_ROWS = OG_VECTOR_DIM < OG_KEPT_DIMS, OG_BF16_BY_TWO = 0, OG_MENDS = 0, OG_WHOLE_IS_SEEN = 0 };
typedef og_indices<0, 1, 2> og_all_places;
#include "cuda/kernels/any_operands.cuh"

OG_FN void og_seek_outer(const og_args &a, og_index index, og_offsets &at)
{
    og_seek_between<0, OG_KEPT_DIMS - 1>(a, index, at);
}

OG_FN void og_step_inner(const og_args &a, og_index index, og_offsets &at)
{
    og_seek_between<OG_KEPT_DIMS - 1, OG_DIMS>(a, index, at);
}

/* Values of a row. */
struct og_row {
};

/* What is read or computed once for several passes. */
typedef og_indices<> og_kept_operands;

struct og_kept : og_loads<> {
};

#include "cuda/kernels/results.cuh"

struct og_values0 {
    og_real v10;
};

struct og_pass0 : og_results<og_values0, og_result<2, &og_values0::v10>> {
    typedef og_loads<0, 1> loads;

    OG_FN void compute(const og_args &a, const og_row &row, const og_kept &kept, const loads &x,
                       int i, og_values0 &y)
    {
        const og_real v0 = og_get<0>(x, i);
        const og_real v1 = og_get<1>(x, i);
        const og_real v2 = a.c0;
        const uint32_t v3 = OG_REAL(gt)(v0, v2);
        const og_real v4 = a.c1;
        const uint32_t v5 = OG_REAL(lt)(v0, v4);
        const og_real v6 = a.c2;
        const og_real v7 = v1 / v6;
        const og_real v8 = a.c3;
        const og_real v9 = OG_REAL(where)(v5, v7, v8);
        const og_real v10 = OG_REAL(where)(v3, v9, v8);
        y.v10 = v10;
    }
};
typedef og_pass0::loads og_loads0;

#include "cuda/kernels/pointwise.cuh"

#include "pytorch/launch_any.cuh"

static void og_fill(og_args &a, const Args &c)
{
    a.c0 = (og_real)-0x1.8p+1;
    a.c1 = (og_real)0x1.8p+1;
    a.c2 = (og_real)0x1.8p+2;
    a.c3 = (og_real)0x0p+0;
}
''',
}

KERNELS = {
    "cuda/kernels/any_dtype.cuh": r'''#include "math/scalar_base.h"

#include "math/half.h"

#include "math/scalar_f32.h"
#if OG_IS_DOUBLE
#include "math/scalar_f64.h"
typedef double og_real;
#define OG_REAL(name) og_##name##_f64
#define OG_ANY_PEAK OG_MOST
#else
typedef float og_real;
#define OG_REAL(name) og_##name##_f32
#define OG_ANY_PEAK OG_PEAK
#endif

#if OG_INDEX_BITS == 64
typedef int64_t og_index;
typedef uint64_t og_unsigned;
#else
typedef int32_t og_index;
typedef uint32_t og_unsigned;
#endif

#include "cuda/kernels/prologue.cuh"
''',
    "math/scalar_base.h": r'''#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

#ifndef __CUDACC_RTC__
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#define OG_FN static __device__ __forceinline__

OG_FN uint32_t og_bits_f32(float x)
{
    return (uint32_t)__float_as_int(x);
}

OG_FN float og_float_bits(uint32_t u)
{
    return __int_as_float((int)u);
}

OG_FN float og_reciprocal_normal_f32(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1.0f), y);
}

OG_FN float og_divide_normal_f32(float a, float b)
{
    float r = og_reciprocal_normal_f32(b);
    float y = a * r;
    y = __fmaf_rn(r, __fmaf_rn(-b, y, a), y);
    return __fmaf_rn(r, __fmaf_rn(-b, y, a), y);
}
''',
    "math/half.h": r'''#include "math/scalar_base.h"

OG_FN float og_f32_from_f16(uint16_t h)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
}

OG_FN uint16_t og_f16_from_f32(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

OG_FN float og_f32_from_bf16(uint16_t h)
{
    return og_float_bits((uint32_t)h << 16);
}

OG_FN uint16_t og_bf16_from_f32(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = og_bits_f32(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    r = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : r;
    return (uint16_t)r;
#endif
}

OG_FN float og_f32_odd_from_f64(double x)
{
    float f = (float)x;
    double back = (double)f;
    uint32_t u = og_bits_f32(f);
    double magnitude = x < 0.0 ? -x : x;
    double rounded = back < 0.0 ? -back : back;
    uint32_t above = rounded > magnitude ? 1u : 0u;
    uint32_t inexact = ((rounded > magnitude) | (rounded < magnitude)) ? 1u : 0u;
    return og_float_bits((u - above) | inexact);
}

OG_FN uint16_t og_f16_from_f64(double x)
{
    return og_f16_from_f32(og_f32_odd_from_f64(x));
}

OG_FN uint16_t og_bf16_from_f64(double x)
{
    return og_bf16_from_f32(og_f32_odd_from_f64(x));
}
''',
    "math/scalar_f32.h": r'''#include "math/scalar_base.h"

OG_FN uint32_t og_lt_f32(float a, float b)
{
    return a < b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_gt_f32(float a, float b)
{
    return a > b ? 0xffffffffu : 0u;
}

OG_FN float og_where_f32(uint32_t mask, float a, float b)
{
    return mask ? a : b;
}

/* A true division by six: PyTorch's CPU bits (its CUDA kernel multiplies). */
OG_FN float og_hardsigmoid_f32(float x)
{
    float y = x + 3.0f;
    y = y < 0.0f ? 0.0f : y;
    y = y > 6.0f ? 6.0f : y;
    return og_divide_normal_f32(y, 6.0f); /* y is 0 or at least 2^-22 */
}

#include "math/scalar_whole_f32.h"
''',
    "math/scalar_whole_f32.h": r'''#include "math/scalar_base.h"
''',
    "math/scalar_f64.h": r'''#include "math/scalar_base.h"

OG_FN uint32_t og_lt_f64(double a, double b)
{
    return a < b ? 0xffffffffu : 0u;
}

OG_FN uint32_t og_gt_f64(double a, double b)
{
    return a > b ? 0xffffffffu : 0u;
}

OG_FN double og_where_f64(uint32_t mask, double a, double b)
{
    return mask ? a : b;
}

OG_FN double og_hardsigmoid_f64(double x)
{
    double y = x + 3.0;
    y = y < 0.0 ? 0.0 : y;
    y = y > 6.0 ? 6.0 : y;
    return y / 6.0;
}
''',
    "cuda/kernels/prologue.cuh": r'''#define OG_KERNEL(name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)                                      \
        name(const __grid_constant__ og_args a)

#ifndef OG_CUDA_SHIM /* tests/cuda/shim_device.h has the same two functions for a CPU */

OG_FN void og_await_launch()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

OG_FN void og_admit_next()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif

typedef uint16_t og_half; /* bits of a float16 or a bfloat16 */

template <int... n> struct og_indices {};

struct og_divisor {
    og_index extent;
    og_unsigned magic;
    uint32_t shift;
};

OG_FN uint32_t og_multiply_high(uint32_t a, uint32_t b)
{
    return (uint32_t)(((uint64_t)a * b) >> 32);
}

OG_FN uint64_t og_multiply_high(uint64_t a, uint64_t b)
{
    return __umul64hi(a, b);
}

OG_FN og_index og_divide(og_index index, const og_divisor &by)
{
    og_unsigned quotient = og_multiply_high((og_unsigned)index, by.magic) >> by.shift;
    return by.magic ? (og_index)quotient : index;
}

/* og_uneven of plan.h. */
struct og_uneven {
    og_index bits, from, reach, width, count;
};

/* Elements [begin, end) of a vector are there. */
struct og_span {
    int begin, end;
};

/* The part of vector [at, at + OG_V) that lies in [0, n). */
OG_FN og_span og_span_of(og_index at, og_index n)
{
    og_span span;
    span.begin = at < 0 ? (int)-at : 0;
    span.end = n - at < OG_V ? (int)(n - at) : OG_V;
    return span;
}

OG_FN bool og_is_full(const og_span &span)
{
    return span.begin == 0 && span.end == OG_V;
}

/* OG_V neighbours in memory, moved by accesses of up to 16 bytes. */
template <class T> struct alignas(OG_V * sizeof(T) < 16 ? OG_V * sizeof(T) : 16) og_pack {
    T e[OG_V];
};

template <class T> OG_FN bool og_is_aligned(const T *p)
{
    return OG_V == 1 || (uint64_t)p % alignof(og_pack<T>) == 0;
}

OG_FN float og_f32_at_bf16(const og_pack<og_half> &x, int i)
{
    if constexpr (OG_V == 1) {
        return og_f32_from_bf16(x.e[0]);
    } else {
        uint32_t pair;
        memcpy(&pair, &x.e[i / 2 * 2], sizeof pair);
        return og_float_bits(i % 2 ? pair & 0xffff0000u : pair << 16);
    }
}

OG_FN void og_renew(og_pack<og_half> &x)
{
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (int i = 0; i + 1 < OG_V; i += 2) {
        uint32_t pair;
        memcpy(&pair, &x.e[i], sizeof pair);
        asm("" : "+r"(pair));
        memcpy(&x.e[i], &pair, sizeof pair);
    }
#endif
}

template <class T> OG_FN void og_renew(og_pack<T> &)
{
}

/* How many elements p is past a multiple of a vector. */
template <class T> OG_FN int og_elements_past(const T *p)
{
    return (int)((uint64_t)p / sizeof(T) % OG_V);
}

/* Words that one instruction moves. */
template <int bytes> struct og_word {
    typedef uint4 type;
};
template <> struct og_word<8> {
    typedef uint2 type;
};
template <> struct og_word<4> {
    typedef uint32_t type;
};
template <> struct og_word<2> {
    typedef uint16_t type;
};
template <> struct og_word<1> {
    typedef uint8_t type;
};

template <class T> union og_words {
    enum { bytes = alignof(og_pack<T>), count = sizeof(og_pack<T>) / bytes };
    typedef typename og_word<bytes>::type word;
    og_pack<T> pack;
    word words[count];
};

template <class W> OG_FN void og_store_word(W *p, const W &w)
{
    *p = w;
}
#if defined(__CUDA_ARCH__)
OG_FN void og_store_word(uint4 *p, const uint4 &w)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z),
                 "r"(w.w)
                 : "memory");
}

OG_FN void og_store_word(uint2 *p, const uint2 &w)
{
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w.x), "r"(w.y) : "memory");
}
#endif

template <class T> OG_FN og_pack<T> og_load_pack(const T *p)
{
    og_words<T> x;
#pragma unroll
    for (int w = 0; w < og_words<T>::count; w++)
        x.words[w] = ((const typename og_words<T>::word *)p)[w];
    return x.pack;
}

template <class T> OG_FN void og_store_pack(T *p, const og_pack<T> &pack)
{
    og_words<T> x;
    x.pack = pack;
#pragma unroll
    for (int w = 0; w < og_words<T>::count; w++)
        og_store_word((typename og_words<T>::word *)p + w, x.words[w]);
}

#if defined(__CUDA_ARCH__)
#define OG_AFTER_LOADS() asm volatile("" ::: "memory")
#else
#define OG_AFTER_LOADS()
#endif

/* Something that the compiler may rely on. */
#if defined(__CUDA_ARCH__)
#define OG_ASSUME(condition) __builtin_assume(condition)
#else
#define OG_ASSUME(condition)
#endif

/* OG_V elements that lie `stride` apart; missing ones are 0. */
template <class T> OG_FN og_pack<T> og_gather(const T *p, og_index stride, const og_span &span)
{
    og_pack<T> x;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x.e[i] = i >= span.begin && i < span.end ? p[i * stride] : (T)0;
    return x;
}

template <class T>
OG_FN void og_scatter(T *p, og_index stride, const og_span &span, const og_pack<T> &x)
{
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        if (i >= span.begin && i < span.end)
            p[i * stride] = x.e[i];
}
''',
    "cuda/kernels/any_operands.cuh": r'''#include "cuda/kernels/operands.cuh"

template <int... values> struct og_list {
    static constexpr int of[] = {values...};
};

typedef og_list<OG_MOVES> og_moves;
typedef og_list<OG_MOTIONS> og_motions;

template <bool is_number> struct og_form : OG_FORM {};
#if OG_IS_DOUBLE
template <> struct og_form<true> : og_float64 {};
#else
template <> struct og_form<true> : og_float32 {};
#endif

#ifdef OG_FIRST_WINDOWS
typedef og_list<OG_FIRST_WINDOWS> og_first_windows;
typedef og_list<OG_WINDOW_COUNTS> og_window_counts;
typedef og_list<OG_DIVIDES> og_divides;

/* Operands, then windows. */
template <int n> struct og_operand : og_form<(OG_KEPT_NUMBERS >> n & 1) != 0> {
    static constexpr int moves = og_moves::of[n], motion = og_motions::of[n];
    static constexpr int first_window = og_first_windows::of[n < OG_OPERANDS ? n : 0];
    static constexpr int windows = og_window_counts::of[n < OG_OPERANDS ? n : 0];
    static constexpr int divides = og_divides::of[n < OG_OPERANDS ? 0 : n - OG_OPERANDS];
    static constexpr int ones = 0, is_unit = 0; /* it depends on the tensor */
};
#else
template <int n> struct og_operand : og_form<(OG_KEPT_NUMBERS >> n & 1) != 0> {
    static constexpr int moves = og_moves::of[n], motion = og_motions::of[n];
};
#endif

/* Moves every operand by index over dims [from, to), the last fastest. */
template <int from, int to>
OG_FN void og_seek_between(const og_args &a, og_index index, og_offsets &at)
{
    if constexpr (to - from == 1) {
        og_move_all<from>(a, index, at, og_all_places());
    } else if constexpr (to > from) {
        const og_index rest = og_divide(index, a.dims[to - 1]);
        og_move_all<to - 1>(a, index - rest * a.dims[to - 1].extent, at, og_all_places());
        og_seek_between<from, to - 1>(a, rest, at);
    }
}
''',
    "cuda/kernels/operands.cuh": r'''#include "cuda/kernels/prologue.cuh"

#include "math/half.h"

enum { OG_STILL, OG_UNIT, OG_STRIDED, OG_SEEN, OG_NUMBERED };

/* A dtype: how it is stored, and as what numbers it is computed with. */
struct og_float32 {
    typedef float stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(float x)
    {
        return x;
    }
    template <class T> OG_FN float narrow(T x)
    {
        return x;
    }
};

struct og_float64 {
    typedef double stored;
    typedef double number;
    enum { is_bfloat16 = 0 };
    OG_FN double widen(double x)
    {
        return x;
    }
    template <class T> OG_FN double narrow(T x)
    {
        return x;
    }
};

struct og_float16 {
    typedef og_half stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(og_half x)
    {
        return og_f32_from_f16(x);
    }
    OG_FN og_half narrow(float x)
    {
        return og_f16_from_f32(x);
    }
    OG_FN og_half narrow(double x)
    {
        return og_f16_from_f64(x);
    }
};

struct og_bfloat16 {
    typedef og_half stored;
    typedef float number;
    enum { is_bfloat16 = 1 };
    OG_FN float widen(og_half x)
    {
        return og_f32_from_bf16(x);
    }
    OG_FN og_half narrow(float x)
    {
        return og_bf16_from_f32(x);
    }
    OG_FN og_half narrow(double x)
    {
        return og_bf16_from_f64(x);
    }
};

/* Integers, as numbers that hold all of them (but the largest of 64 bits); they are only read. */
template <class Stored, class Number> struct og_integer {
    typedef Stored stored;
    typedef Number number;
    enum { is_bfloat16 = 0 };
    OG_FN Number widen(Stored x)
    {
        return (Number)x;
    }
};

struct og_bool {
    typedef uint8_t stored;
    typedef float number;
    enum { is_bfloat16 = 0 };
    OG_FN float widen(uint8_t x)
    {
        return x ? 1.0f : 0.0f;
    }
    template <class T> OG_FN uint8_t narrow(T x)
    {
        return x != 0;
    }
};

template <int n> struct og_operand;

template <int n> using og_stored = typename og_operand<n>::stored;

struct og_offsets {
    og_index o[OG_OPERANDS + OG_WINDOWS];
};

OG_FN og_offsets og_start()
{
    og_offsets at;
#pragma unroll
    for (int n = 0; n < OG_OPERANDS + OG_WINDOWS; n++)
        at.o[n] = 0;
    return at;
}

template <int n> OG_FN og_stored<n> *og_address(const og_args &a, const og_offsets &at)
{
    return (og_stored<n> *)a.p[n] + at.o[n];
}

/* What place n moves by along dim d, where that is part of the source; 0: it is an argument. */
template <int n, int d> struct og_known_stride {
    enum { value = 0 };
};

/* Of a window: does it move by 1? */
template <int n, int d> OG_FN constexpr bool og_moves_by_one()
{
    if constexpr (n >= OG_OPERANDS)
        return og_operand<n>::ones >> d & 1;
    else
        return false;
}

template <int n, int d, class Args> OG_FN og_index og_stride(const Args &a)
{
    if constexpr (d == OG_VECTOR_DIM && og_operand<n>::motion == OG_UNIT)
        return 1;
    else if constexpr (og_moves_by_one<n, d>())
        return 1;
    else if constexpr (og_known_stride<n, d>::value != 0)
        return og_known_stride<n, d>::value;
    else
        return a.strides[n][d];
}

template <int n, int d> OG_FN void og_move_one(const og_args &a, og_index i, og_offsets &at)
{
    if constexpr (og_operand<n>::moves >> d & 1)
        at.o[n] += i * og_stride<n, d>(a);
}

template <int d, int... n>
OG_FN void og_move_all(const og_args &a, og_index i, og_offsets &at, og_indices<n...>)
{
    (og_move_one<n, d>(a, i, at), ...);
}

/* og_uneven_sees() of plan.h. */
OG_FN bool og_uneven_sees(const og_uneven &uneven, og_index rest)
{
    const og_index tap = rest & (((og_index)1 << uneven.bits) - 1), left = rest >> uneven.bits;
    const og_index number = uneven.from + uneven.reach * tap - left;
    return left < uneven.width && number >= 0 && number < uneven.count;
}

/* Does window w see an element, i further along the vector dim? Moves offset there. */
template <int w, class Args>
OG_FN bool og_look(const Args &a, const og_offsets &at, int i, og_index &offset)
{
    enum { place = OG_OPERANDS + w };
    og_index p = at.o[place] + a.windows[w].start;
    if constexpr (og_operand<place>::moves >> OG_VECTOR_DIM & 1)
        p += i * og_stride<place, OG_VECTOR_DIM>(a);
    og_index seen = p;
    if constexpr (og_operand<place>::divides)
        seen = og_divide(p, a.windows[w].divisor);
    offset += og_operand<place>::is_unit ? seen : seen * a.windows[w].stride;
    const bool sees = p >= 0 && seen < a.windows[w].extent;
    if constexpr (og_operand<place>::divides == 2)
        return sees && og_uneven_sees(a.uneven[w], p - seen * a.windows[w].divisor.extent);
    else if constexpr (og_operand<place>::divides)
        return sees && seen * a.windows[w].divisor.extent == p;
    else
        return sees;
}

template <int first, class Args, int... w>
OG_FN bool og_look_through(const Args &a, const og_offsets &at, int i, og_index &offset,
                           og_indices<w...>)
{
    return (true & ... & og_look<first + w>(a, at, i, offset));
}

template <int count> struct og_window_list;
template <> struct og_window_list<1> {
    typedef og_indices<0> all;
};
template <> struct og_window_list<2> {
    typedef og_indices<0, 1> all;
};
template <> struct og_window_list<3> {
    typedef og_indices<0, 1, 2> all;
};

template <int n, bool inside = false, class Args>
OG_FN og_stored<n> og_see(const Args &a, const og_offsets &at, int i)
{
    og_index offset = at.o[n];
    if constexpr (og_operand<n>::moves >> OG_VECTOR_DIM & 1)
        offset += i * og_stride<n, OG_VECTOR_DIM>(a);
    if constexpr (og_operand<n>::motion == OG_NUMBERED) {
        return (og_stored<n>)offset;
    } else {
        enum { first = og_operand<n>::first_window };
        typedef typename og_window_list<og_operand<n>::windows>::all all;
        if (og_look_through<first>(a, at, i, offset, all()) || inside)
            return __ldg((const og_stored<n> *)a.p[n] + offset);
        return og_operand<n>::narrow(a.windows[first].fill);
    }
}

template <int n, bool inside>
OG_FN og_pack<og_stored<n>> og_see_pack(const og_args &a, const og_offsets &at, const og_span &span)
{
    og_pack<og_stored<n>> x;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        x.e[i] = i >= span.begin && i < span.end ? og_see<n, inside>(a, at, i) : (og_stored<n>)0;
    return x;
}

/* What a thread reads of operand n at a time: a vector, or one element where it stands still. */
template <int n, int motion = og_operand<n>::motion> struct og_loaded {
    og_pack<og_stored<n>> x;
};

template <int n> struct og_loaded<n, OG_STILL> {
    og_stored<n> x;
};

/* Element i of it, as a number. */
template <int n>
OG_FN typename og_operand<n>::number og_get(const og_loaded<n> &loaded, int i)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        return og_operand<n>::widen(loaded.x);
    else if constexpr (OG_BF16_BY_TWO && og_operand<n>::is_bfloat16)
        return og_f32_at_bf16(loaded.x, i);
    else
        return og_operand<n>::widen(loaded.x.e[i]);
}

/* Is operand n where a whole vector can be moved, if it is one? */
template <int n> OG_FN bool og_is_in_place(const og_args &a, const og_offsets &at)
{
    if constexpr (og_operand<n>::motion == OG_UNIT)
        return og_is_aligned(og_address<n>(a, at));
    else
        return true;
}

template <int n, bool whole>
OG_FN void og_load_unit(const og_args &a, const og_offsets &at, const og_span &span,
                        og_loaded<n> &to)
{
    if constexpr (og_operand<n>::motion == OG_UNIT && whole)
        to.x = og_load_pack(og_address<n>(a, at));
    else if constexpr (og_operand<n>::motion == OG_UNIT)
        to.x = og_gather(og_address<n>(a, at), 1, span);
}

template <int n>
OG_FN void og_load_other(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                         og_loaded<n> &to)
{
    if constexpr (og_operand<n>::motion == OG_STILL)
        to.x = *og_address<n>(a, at);
    else if constexpr (og_operand<n>::motion == OG_STRIDED)
        to.x = og_gather(og_address<n>(a, at), og_stride<n, OG_VECTOR_DIM>(a), span);
    else if constexpr (og_operand<n>::motion >= OG_SEEN)
        to.x = OG_WHOLE_IS_SEEN && whole ? og_see_pack<n, true>(a, at, span)
                                         : og_see_pack<n, false>(a, at, span);
}

template <int n> OG_FN void og_renew_one(og_loaded<n> &of)
{
    if constexpr (sizeof(og_stored<n>) == 2 && og_operand<n>::motion != OG_STILL)
        og_renew(of.x);
}

/* A vector of each of these operands. */
template <int... n> struct og_loads : og_loaded<n>... {
    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return (true && ... && og_is_in_place<n>(a, at));
    }

    /* whole: vectors that are neighbours in memory are aligned, and all of span is there. */
    OG_FN void load(const og_args &a, const og_offsets &at, bool whole, const og_span &span,
                    og_loads &x)
    {
        if constexpr ((false || ... || (og_operand<n>::motion == OG_UNIT))) {
            if (whole)
                (og_load_unit<n, true>(a, at, span, x), ...);
            else
                (og_load_unit<n, false>(a, at, span, x), ...);
        }
        (og_load_other<n>(a, at, whole, span, x), ...);
    }

    /* og_renew() of all halves. */
    OG_FN void renew(og_loads &x)
    {
        (og_renew_one<n>(x), ...);
    }
};
''',
    "cuda/kernels/results.cuh": r'''#include "cuda/kernels/operands.cuh"

/* A value, an element's or its row's, by its member. */
template <class T, class Values>
OG_FN T og_take(const og_row *, const Values *y, int i, T Values::*member)
{
    return y[i].*member;
}

template <class T, class Values>
OG_FN T og_take(const og_row *row, const Values *, int i, T og_row::*member)
{
    return row[OG_SEVERAL_ROWS ? i : 0].*member;
}

/* Operand n becomes the value. */
template <int n, auto value> struct og_result {
    enum { is_unit = og_operand<n>::motion == OG_UNIT };
    typedef og_pack<og_stored<n>> pack;

    OG_FN og_stored<n> *place(const og_args &a, const og_offsets &at)
    {
        return og_address<n>(a, at);
    }

    template <class Values> OG_FN pack make(const og_row *row, const Values *y)
    {
        pack x;
#pragma unroll
        for (int i = 0; i < OG_V; i++)
            x.e[i] = og_operand<n>::narrow(og_take(row, y, i, value));
        return x;
    }

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return og_is_in_place<n>(a, at);
    }

    OG_FN void put_whole(const og_args &a, const og_offsets &at, const pack &x)
    {
        if constexpr (is_unit)
            og_store_pack(place(a, at), x);
    }

    OG_FN void put_part(const og_args &a, const og_offsets &at, const og_span &span, const pack &x)
    {
        if constexpr (is_unit)
            og_scatter(place(a, at), 1, span, x);
    }

    /* Along other dims than neighbours' elements go one by one. */
    OG_FN void put_apart(const og_args &a, const og_offsets &at, const og_span &span, const pack &x)
    {
        if constexpr (!is_unit)
            og_scatter(place(a, at), og_stride<n, OG_VECTOR_DIM>(a), span, x);
    }
};

template <class Values, class... Result> struct og_results {
    typedef Values values;

    OG_FN bool is_aligned(const og_args &a, const og_offsets &at)
    {
        return (true && ... && Result::is_aligned(a, at));
    }

    OG_FN void put(const og_args &a, const og_offsets &at, const og_span &span,
                   const typename Result::pack &...x)
    {
        if constexpr ((false || ... || Result::is_unit)) {
            if (is_aligned(a, at) && og_is_full(span))
                (Result::put_whole(a, at, x), ...);
            else
                (Result::put_part(a, at, span, x), ...);
        }
        (Result::put_apart(a, at, span, x), ...);
    }

    /* span of a vector, y[i] being element i. */
    OG_FN void store(const og_args &a, const og_offsets &at, const og_span &span, const og_row *row,
                     const Values *y)
    {
        put(a, at, span, Result::make(row, y)...);
    }

    OG_FN void put_all(const og_args &a, const og_offsets &at, const typename Result::pack &...x)
    {
        const og_span span = {0, OG_V};
        (Result::put_whole(a, at, x), ...);
        (Result::put_apart(a, at, span, x), ...);
    }

    /* store() of a full vector where is_aligned() was true, without branches. */
    OG_FN void store_whole(const og_args &a, const og_offsets &at, const og_row *row,
                           const Values *y)
    {
        put_all(a, at, Result::make(row, y)...);
    }
};
''',
    "cuda/kernels/pointwise.cuh": r'''#include "cuda/kernels/lead.cuh"

OG_FN void og_finish(const og_args &a, const og_offsets &at, const og_span &span,
                     const og_loads0 &x)
{
    og_pass0::values y[OG_V];
    og_kept kept;
    og_row row;
#pragma unroll
    for (int i = 0; i < OG_V; i++)
        og_pass0::compute(a, row, kept, x, i, y[i]);
    og_pass0::store(a, at, span, &row, y);
}

/* Whole vectors of a block, of aligned tensors: the usual case, in few instructions. */
OG_FN void og_apply_batch(const og_args &a)
{
    og_loads0 x[OG_BATCH];
    og_offsets at[OG_BATCH];
    const og_span span = {0, OG_V};
#pragma unroll
    for (int i = 0; i < OG_BATCH; i++) {
        at[i] = og_start();
        og_step_inner(a, (og_index)blockIdx.x * (OG_BATCH * OG_THREADS * OG_V), at[i]);
        og_step_inner(a, (i * OG_THREADS + (int)threadIdx.x) * OG_V, at[i]);
        og_loads0::load(a, at[i], true, span, x[i]);
    }
    OG_AFTER_LOADS();
#pragma unroll
    for (int i = 0; i < OG_BATCH; i++) {
        OG_ASSUME(og_lead_is_aligned(a, at[i]));
        og_finish(a, at[i], span, x[i]);
    }
}

/* Any vector. */
OG_FN void og_apply(const og_args &a, og_index vector)
{
    og_offsets at = og_start();
    og_index outer = OG_OUTER ? og_divide(vector, a.per_row) : 0;
    og_seek_outer(a, outer, at);
    og_index first = (vector - outer * a.per_row.extent) * OG_V - og_lead(a, at);
    og_span span = og_span_of(first, a.n);
    if (span.begin >= span.end)
        return;
    og_step_inner(a, first, at);
    og_loads0 x;
    og_loads0::load(a, at, og_is_full(span) && og_loads0::is_aligned(a, at), span, x);
    OG_AFTER_LOADS();
    og_finish(a, at, span, x);
}

OG_KERNEL(og_pointwise, OG_THREADS)
{
    if constexpr (!OG_OUTER) {
        const og_offsets start = og_start();
        if (blockIdx.x < (uint32_t)a.full && og_loads0::is_aligned(a, start) &&
            og_lead_is_aligned(a, start)) {
            og_apply_batch(a);
            return;
        }
    }
    og_index vector = (og_index)blockIdx.x * (OG_THREADS * OG_BATCH) + (og_index)threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < OG_BATCH && vector < a.vectors; i++, vector += OG_THREADS)
        og_apply(a, vector);
}
''',
    "cuda/kernels/lead.cuh": r'''#include "cuda/kernels/results.cuh"

/* By how many elements vectors are shifted. */
template <int n = OG_LEAD> OG_FN int og_lead(const og_args &a, const og_offsets &at)
{
    if constexpr (n < 0)
        return 0;
    else
        return og_elements_past(og_address<n>(a, at));
}

/* By none? */
template <int n = OG_LEAD> OG_FN bool og_lead_is_aligned(const og_args &a, const og_offsets &at)
{
    if constexpr (n < 0)
        return true;
    else
        return og_is_aligned(og_address<n>(a, at));
}
''',
    "pytorch/launch_any.cuh": r'''#include "pytorch/launch_fill.cuh"

/* Blocks that find parts, and those that combine them. */
struct og_grid {
    int64_t rows, partials; /* row values; sums of parts */
    int64_t parts, combines;
};

#if OG_BODY == 2 /* vectors */
static og_grid og_shape(og_args &a, const Args &c)
{
    const int64_t n = c.extent[OG_DIMS - 1], per_row = og_count_parts(n - 1, OG_V) + 1;
    const int64_t vectors = og_count_dims(c, 0, OG_DIMS - 1) * per_row;
    og_grid grid = {0, 0, og_count_parts(vectors, OG_THREADS * OG_BATCH), 0};
    a.n = (og_index)n;
    a.vectors = (og_index)vectors;
    a.per_row = og_make_divisor(OG_OUTER ? per_row : 1);
    a.full = (og_index)(n / OG_V / (OG_THREADS * OG_BATCH));
    return grid;
}
#elif OG_BODY == 4 || OG_BODY == 8 /* rows, whole or chunk by chunk */
static og_grid og_shape(og_args &a, const Args &c)
{
    og_grid grid = {};
    const int64_t n = og_count_dims(c, OG_KEPT_DIMS, OG_DIMS);
    grid.rows = og_count_dims(c, 0, OG_KEPT_DIMS);
    a.n = (og_index)n;
    a.rows = (og_index)grid.rows;
#if OG_BODY == 4
    grid.parts = og_count_parts(grid.rows, OG_THREADS / OG_GROUP);
#else
    const int64_t chunks = n > OG_CHUNK ? og_count_parts(n, OG_CHUNK) : 1;
    a.chunks = og_make_divisor(chunks);
    a.partials = (og_index)og_count_partials(chunks);
    grid.partials = grid.rows * og_count_partials(chunks);
    grid.parts = grid.rows * chunks;
    grid.combines = og_count_parts(grid.rows, OG_COMBINE_THREADS / OG_COMBINERS);
#endif
    return grid;
}
#else /* columns */
static og_grid og_shape(og_args &a, const Args &c)
{
    og_grid grid = {};
    const int64_t n = og_count_dims(c, OG_KEPT_DIMS, OG_DIMS), columns = c.extent[OG_KEPT_DIMS - 1];
    const int64_t per_row = og_count_parts(columns, OG_V);
    const int64_t vectors = per_row * og_count_dims(c, 0, OG_KEPT_DIMS - 1);
    const int64_t tiles = og_count_parts(n, OG_RUN * OG_RUN);
    a.n = (og_index)n;
    a.columns = (og_index)columns;
    a.vectors = (og_index)vectors;
    a.tiles = (og_index)tiles;
    a.per_row = og_make_divisor(per_row);
    grid.combines = grid.parts = og_count_parts(vectors, OG_X);
#if OG_BODY == 64 /* each tile by a block of its own */
    a.blocks = og_make_divisor(grid.combines);
    a.tiles_of_tiles = (og_index)og_count_parts(tiles, OG_RUN * OG_RUN);
    grid.rows = vectors * OG_V;
    grid.partials = tiles * grid.rows;
    grid.parts = tiles * grid.combines;
#endif
    return grid;
}
#endif

#if OG_BODY == 8 || OG_BODY == 64
#define OG_NEXT(kernel, blocks, threads, overlaps)                                                 \
    if (!error)                                                                                    \
        error = OG_LAUNCH(kernel, blocks, threads, 0, overlaps, stream, a);

static int64_t og_place(og_args &a, char *scratch, const og_grid &grid);
static int og_launch_all(og_args &a, const og_grid &grid, void *stream);
#else
#if OG_BODY == 2
#define OG_ENTRY og_pointwise
#elif OG_BODY == 4
#define OG_ENTRY og_rows
#else
#define OG_ENTRY og_columns
#endif

static int64_t og_place(og_args &, char *, const og_grid &)
{
    return 0;
}

static int og_launch_all(og_args &a, const og_grid &grid, void *stream)
{
    return OG_LAUNCH(OG_ENTRY, grid.parts, OG_THREADS, 0, false, stream, a);
}
#endif

/* A cudaError_t; or, without scratch, how many bytes of it there must be. */
extern "C" __attribute__((visibility("default"))) int64_t ogive_run(const Args *c)
{
    og_args a = og_bind(*c);
    const og_grid grid = og_shape(a, *c);
    const int64_t bytes = og_place(a, (char *)c->scratch, grid);
    return c->scratch ? og_launch_all(a, grid, c->stream) : bytes;
}
''',
    "pytorch/launch_fill.cuh": r'''#include "cuda/emit/cuda_shapes.h"
#include "pytorch/call.cuh"
#include "pytorch/launch.cuh"

static void og_fill(og_args &a, const Args &c);

static og_divisor og_make_divisor(int64_t extent)
{
    const og_division by = og_divide_by(extent, OG_INDEX_BITS - 1);
    og_divisor divisor;
    divisor.extent = (og_index)extent;
    divisor.magic = (og_unsigned)by.magic;
    divisor.shift = by.shift;
    return divisor;
}

/* What the call has for every body. */
static og_args og_bind(const Args &c)
{
    og_args a = {};
    for (int n = 0; n < OG_OPERANDS; n++) {
        a.p[n] = c.data[n];
        for (int d = 0; d < OG_DIMS; d++)
            a.strides[n][d] = (og_index)c.stride[n][d];
    }
    for (int d = 0; d < OG_DIMS; d++)
        a.dims[d] = og_make_divisor(c.extent[d]);
    og_fill(a, c);
    return a;
}

static int64_t og_count_dims(const Args &c, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= c.extent[d];
    return count;
}
''',
    "cuda/emit/cuda_shapes.h": r'''#ifndef __CUDACC_RTC__
#include <stdbool.h>
#include <stdint.h>
#endif

/* How many parts of so many elements n elements take. */
static inline int64_t og_count_parts(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

typedef struct {
    uint64_t magic;
    uint32_t shift;
} og_division;

static inline og_division og_divide_by(int64_t extent, int bits)
{
    og_division by = {0, 0};
    int k = 0;
    while ((uint64_t)extent > 1ull << k)
        k++;
    if (extent > 1)
        by.magic = (uint64_t)(((unsigned __int128)1 << (bits + k)) / (uint64_t)extent) + 1;
    by.shift = k ? (uint32_t)(k - 1) : 0;
    return by;
}

/* Sums of parts, of chunks of 16384 parts, and so on, of one row. */
static inline int64_t og_count_partials(int64_t parts)
{
    int64_t count = parts;
    while (parts > 1) {
        parts = og_count_parts(parts, 16384);
        count += parts;
    }
    return count;
}

typedef enum { OG_CUDA_ALONG, OG_CUDA_ACROSS, OG_CUDA_TURNED } og_cuda_fetch;
''',
    "pytorch/call.cuh": r'''#ifdef __CUDACC_RTC__
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

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
''',
    "pytorch/launch.cuh": r'''#include <cuda_runtime.h>

static bool og_can_overlap(const void *kernel)
{
    static int version = 0;
    static cudaFuncAttributes attributes;
    if (version == 0) {
        cudaFuncGetAttributes(&attributes, kernel);
        cudaDriverGetVersion(&version);
    }
    return version >= 12030 && attributes.binaryVersion >= 90;
}

static int og_launch(const void *kernel, int64_t blocks, int threads, int64_t shared_bytes,
                     bool overlaps, void *stream, og_args &a)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute overlap = {};
    void *arguments[] = {&a};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &overlap;
    config.numAttrs = overlaps && og_can_overlap(kernel);
    if (shared_bytes > 48 * 1024) {
        const int error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error)
            return error;
    }
    return cudaLaunchKernelExC(&config, kernel, arguments);
}
#define OG_LAUNCH(kernel, ...) og_launch((const void *)kernel, __VA_ARGS__)
''',
    "cuda/emit/cuda_reduce_shapes.h": r'''#ifndef __CUDACC_RTC__
#include <stdbool.h>
#include <stdint.h>
#endif

/* What a kernel does to an element of a row. */
typedef struct {
    int32_t kept;         /* registers of what is read in several traversals; 0: nothing is */
    bool keeps_halves;    /* all of that are halves */
    bool is_costly;       /* it computes costly functions, besides the terms of sumexp */
    bool has_terms;       /* there is a sumexp */
    bool loads_more;
    int32_t sum_bytes;
    int32_t all_bytes;    /* those of sums and terms together */
    int32_t loads;
    int32_t loads_beside; /* of those that are not kept */
} og_reduced_facts;
''',
}


_extensions = []
_lean = {name: True for name in ("no_implicit_headers",)
         if name in inspect.signature(cpp_extension.load_inline).parameters}


def kernels():
    # What served each kernel last.
    return [line for extension in _extensions for line in extension.kernels()]


def _inline(text, seen):
    lines = []
    for line in text.splitlines():
        name = line[10:-1] if line.startswith('#include "') else None
        if name is None:
            lines.append(line)
        elif name in KERNELS and name not in seen:
            seen.add(name)
            lines.append(_inline(KERNELS[name], seen))
    return "\n".join(lines) + "\n"


def _source(name, numbers):
    # A unit whose numbers are these. Behind a line "#for ..." comes what some bodies have.
    values = dict(line.split() for line in numbers.splitlines())
    body, chosen, lines = values.get("BODY"), ("all",), []
    for line in UNITS[name].splitlines():
        if line.startswith("#for "):
            chosen = line.split()[1:]
        elif body in chosen or "all" in chosen:
            lines.append(line)
    text = re.sub(r"(?m)^#define (\w+) .*\n",
                  lambda define: "" if define[1] in values else define[0],
                  _inline("\n".join(lines), set()))
    return "".join(f"#define {name} {value}\n" for name, value in values.items()) + text


def _unit(name, numbers):
    # The address of what launches it. Nothing of PyTorch is compiled.
    source = _source(name, numbers)
    hopper = ["-gencode=arch=compute_90a,code=sm_90a"] if "OG_BODY" not in numbers else []
    path = cpp_extension.load_inline(
        name="ogive_" + hashlib.sha256(source.encode()).hexdigest()[:16], cpp_sources="",
        cuda_sources=source, is_python_module=False,
        extra_cuda_cflags=["-O3", "--fmad=false", "-diag-suppress=177", *hopper], **_lean)
    return ctypes.cast(ctypes.CDLL(path).ogive_run, ctypes.c_void_p).value


def _serve(extension, function):
    # Calls it; gives nothing back while a unit is missing.
    def call(*arguments):
        results = function(*arguments)
        while not results:
            name, numbers = extension.missing()
            extension.add_unit(name, numbers, _unit(name, numbers))
            results = function(*arguments)
        return results
    return call


def _build(host, function):
    home = cpp_extension.CUDA_HOME
    if home is None or shutil.which(os.path.join(home, "bin", "nvcc")) is None:
        raise RuntimeError(
            "tensors on a GPU need nvcc to build this file's kernels, and none was found: "
            "install the CUDA toolkit and set CUDA_HOME; on the CPU nothing is needed")
    cpp = _inline(HOST_SHARED + host, set())
    extension = cpp_extension.load_inline(
        name="ogive_" + hashlib.sha256((cpp + str(UNITS)).encode()).hexdigest()[:16],
        cpp_sources=cpp, with_cuda=True, extra_cflags=["-O1"],
        functions=[function, "missing", "add_unit", "kernels"], **_lean)
    _extensions.append(extension)
    return _serve(extension, getattr(extension, function))


@functools.lru_cache(maxsize=None)
def _forward():
    return _build(HOST_FORWARD, "forward")


@functools.lru_cache(maxsize=None)
def _backward():
    return _build(HOST_BACKWARD, "backward")


class _Formula(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        results = _forward()(x)
        return results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad0):
        x, = ctx.saved_tensors
        needs = [ctx.needs_input_grad[0]]
        grads = _backward()(x, grad0, needs)
        return (grads[0], )


def _plain(x):
    # The same formula in PyTorch's own operations: tensors on the CPU.
    return F.hardsigmoid(x)


def _call(x):
    if not (x.is_cuda):
        return _plain(x)
    if forward_ad._current_level >= 0 or torch.is_grad_enabled() and (
            x.requires_grad):
        return _Formula.apply(x)
    return _forward()(x)[0]


class ModelNew(nn.Module):
    def forward(self, x):
        return _call(x)
