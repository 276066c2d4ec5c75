/* SPDX-License-Identifier: MIT
 *
 * fuzz_request.c - plans for absurd tensors. Bytes are a formula, a newline, and numbers that
 * choose ranks, extents, strides, dtypes, devices and options. A plan is made or refused with a
 * message; one for the CPU that is small enough runs, on memory that is exactly as large as its
 * layouts say; of one for CUDA the source is written.
 */
#include "ogive.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUTS = 8, MOST_RESULTS = 4, MOST_BYTES = 1 << 20 };

typedef struct {
    const uint8_t *at, *end;
} numbers;

/* A tensor and where its memory begins, relative to its first element. */
typedef struct {
    DLTensor tensor;
    int64_t shape[10], strides[10];
    size_t before, bytes;
    void *memory;
} tensor;

static void require(bool condition)
{
    if (!condition)
        abort();
}

static unsigned next(numbers *from)
{
    return from->at < from->end ? *from->at++ : 0;
}

static void check_error(ogive_status status, const ogive_error *error)
{
    require(error->status == status && strlen(error->message) > 0);
    require(strlen(error->message) < sizeof error->message);
}

/* Without bytes: float32 (4, 4), contiguous. cuda: no extent that no GPU holds. */
static void make_tensor(numbers *from, bool cuda, tensor *out)
{
    static const int64_t extents[] = {4,
                                      4,
                                      1,
                                      2,
                                      3,
                                      5,
                                      8,
                                      0,
                                      17,
                                      64,
                                      257,
                                      1 << 16,
                                      1 << 20,
                                      INT64_C(1) << 31,
                                      INT64_C(1) << 62,
                                      INT64_MAX,
                                      -1,
                                      INT64_MIN};
    static const int64_t strides[] = {1,
                                      4,
                                      0,
                                      -1,
                                      2,
                                      3,
                                      8,
                                      16,
                                      -4,
                                      64,
                                      1 << 20,
                                      INT64_C(1) << 31,
                                      INT64_C(1) << 61,
                                      INT64_MAX,
                                      INT64_MIN};
    static const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
                                        {kDLFloat, 64, 1}, {kDLInt, 32, 1},   {kDLFloat, 32, 4}};
    unsigned kind = next(from), count = sizeof extents / sizeof *extents;
    DLTensor *to = &out->tensor;
    *out = (tensor){0};
    to->ndim = (kind & 15) == 0 ? 2 : (int32_t)(kind & 15) - 2;
    to->ndim = to->ndim > 9 ? INT32_MAX : to->ndim;
    to->dtype = dtypes[(kind >> 4) % 8 > 5 ? 0 : (kind >> 4) % 8];
    to->device = (DLDevice){cuda ? kDLCUDA : kDLCPU, 0};
    to->shape = kind == 255 ? NULL : out->shape;
    for (int32_t d = 0; d < to->ndim && d < 10; d++)
        out->shape[d] = extents[next(from) % (cuda ? 13 : count)];
    if (kind & 128 && kind != 255) {
        to->strides = out->strides;
        for (int32_t d = 0; d < to->ndim && d < 10; d++)
            out->strides[d] = strides[next(from) % (sizeof strides / sizeof *strides)];
    }
}

/* Finds the memory that a tensor reaches; false if it is much. */
static bool find_reach(tensor *of)
{
    const DLTensor *view = &of->tensor;
    int64_t low = 0, high = 0, step = 1, size = view->dtype.bits / 8;
    for (int32_t d = view->ndim - 1; d >= 0; d--) {
        int64_t extent = view->shape[d], stride = view->strides ? view->strides[d] : step;
        if (extent == 0)
            return true;
        if (extent > MOST_BYTES || (extent > 1 && llabs(stride) > MOST_BYTES))
            return false;
        *(stride < 0 ? &low : &high) += (extent - 1) * (extent > 1 ? stride : 0);
        step = step * extent > MOST_BYTES ? MOST_BYTES + 1 : step * extent;
    }
    of->before = (size_t)(-low * size);
    of->bytes = (size_t)((high - low + 1) * size);
    return of->bytes <= MOST_BYTES;
}

static bool allocate(tensor *of, numbers *from)
{
    if (!find_reach(of))
        return false;
    of->memory = malloc(of->bytes ? of->bytes : 1);
    require(of->memory);
    memset(of->memory, (int)next(from), of->bytes); /* numbers of all kinds, NaN too */
    of->tensor.data = (char *)of->memory + of->before;
    return true;
}

/* Elements that the plan visits and how often it multiplies: no more than takes a while. */
static bool is_small(const ogive_plan *plan)
{
    ogive_error error;
    for (size_t k = 0; k < ogive_plan_kernel_count(plan); k++) {
        ogive_kernel_info info;
        require(ogive_plan_kernel(plan, k, &info, &error) == OGIVE_OK);
        require(info.elements >= 0 && info.bytes_read >= 0 && info.bytes_written >= 0);
        if (info.elements > 1 << 14 || info.bytes_read > 1 << 18)
            return false;
    }
    return ogive_plan_workspace(plan) <= 64 * MOST_BYTES;
}

static void run_plan(const ogive_plan *plan, tensor *inputs, size_t input_count,
                     size_t result_count, numbers *from)
{
    const void *in[MOST_INPUTS];
    void *out[MOST_RESULTS];
    tensor results[MOST_RESULTS] = {0};
    ogive_error error;
    bool fits = is_small(plan);
    for (size_t i = 0; i < input_count; i++) {
        fits = fits && allocate(&inputs[i], from);
        in[i] = inputs[i].tensor.data;
    }
    for (size_t i = 0; i < result_count; i++) {
        results[i].tensor = *ogive_plan_result(plan, i);
        fits = fits && allocate(&results[i], from);
        out[i] = results[i].tensor.data;
    }
    size_t bytes = ogive_plan_workspace(plan);
    void *workspace = fits ? aligned_alloc(64, (bytes + 64) & ~(size_t)63) : NULL;
    if (fits) {
        require(workspace);
        require(ogive_plan_run(plan, in, out, workspace, NULL, &error) == OGIVE_OK);
    }
    free(workspace);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].memory);
    for (size_t i = 0; i < result_count; i++)
        free(results[i].memory);
}

static void look_at(const ogive_plan *plan, bool cuda)
{
    char text[64];
    require(ogive_plan_explain(plan, text, sizeof text) > 0);
    for (size_t k = 0; cuda && k < ogive_plan_kernel_count(plan); k++)
        ogive_plan_source(plan, k, text, sizeof text);
}

static void plan_formula(const ogive_formula *formula, numbers *from)
{
    static const char *const levels[] = {NULL, "90a", "80", "100a", "75"};
    unsigned choice = next(from);
    bool cuda = choice % 8 >= 6;
    ogive_options options = {.size = sizeof options,
                             .threads = 1 + (int32_t)(choice >> 6),
                             .precision = choice & 32 ? OGIVE_STRICT : OGIVE_FLOAT32,
                             .cuda_arch = cuda ? levels[1 + next(from) % 4] : NULL};
    tensor inputs[MOST_INPUTS];
    const DLTensor *pointers[MOST_INPUTS];
    size_t count = ogive_formula_input_count(formula);
    size_t result_count = ogive_formula_result_count(formula);
    if (count > MOST_INPUTS || result_count > MOST_RESULTS)
        return;
    for (size_t i = 0; i < count; i++) {
        make_tensor(from, cuda, &inputs[i]);
        pointers[i] = &inputs[i].tensor;
    }
    ogive_plan *plan;
    ogive_error error;
    ogive_status status =
        ogive_plan_create(formula, pointers, count, NULL, 0, &options, &plan, &error);
    require((status == OGIVE_OK) == (plan != NULL));
    if (status) {
        check_error(status, &error);
        return;
    }
    look_at(plan, cuda);
    if (!cuda)
        run_plan(plan, inputs, count, result_count, from);
    ogive_plan_release(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = memchr(data, '\n', size);
    numbers from = {newline ? newline + 1 : data + size, data + size};
    ogive_formula *formula, *gradient;
    ogive_error error;
    size_t length = newline ? (size_t)(newline - data) : size;
    if (length > 300 || ogive_formula_create((const char *)data, length, &formula, &error))
        return 0;
    numbers again = from;
    plan_formula(formula, &from);
    const char *by[] = {ogive_formula_input_name(formula, 0)};
    if (ogive_formula_gradient(formula, by, 1, &gradient, &error) == OGIVE_OK) {
        plan_formula(gradient, &again);
        ogive_formula_release(gradient);
    }
    ogive_formula_release(formula);
    return 0;
}
