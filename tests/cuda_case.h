/* SPDX-License-Identifier: MIT
 *
 * cuda_case.h - one formula, run on the CPU and on a CUDA device, compared bit by bit:
 * float64 within a bound, NaNs as NaNs. Inputs lie as asked for inside of memory of
 * their own; what lies between a result's elements must not change.
 *
 * The device is the fake one of tests/cuda, or a real one where OGIVE_LIBCUDA is not
 * set (see cuda_run.h).
 */
#ifndef OG_CUDA_CASE_H
#define OG_CUDA_CASE_H

#include "test.h"

#include "cuda_run.h"
#include "formula/functions.h"
#include "reference.h"

typedef enum {
    CONTIGUOUS,
    MISALIGNED,  /* one element past a multiple of anything */
    PADDED,      /* three elements between rows */
    SLICED,      /* every second element of the last dim */
    TRANSPOSED,  /* the first dim fastest */
    STILL_LAST,  /* stride 0 along the last dim; of inputs only */
    STILL_FIRST, /* ... along the first */
    STRIDED,     /* anything, at random */
    LAYOUT_COUNT,
    CHANNELS_LAST = LAYOUT_COUNT, /* of convolutions: dim 1 fastest, then as contiguous */
    MISALIGNED_LAST               /* ... one element past a multiple of anything */
} case_layout;

static const char *const layout_names[] = {
    "contiguous", "misaligned",  "padded",  "sliced",        "transposed",
    "still last", "still first", "strided", "channels last", "channels last, misaligned"};

typedef struct {
    og_dtype dtype;
    case_layout layout;
    int rank;
    int64_t shape[8], strides[8];
    int64_t first, elements, count; /* of its memory: where it begins, in all; of the tensor */
    char *memory, *other;           /* the CPU's; what came back from the device */
    void *on_device;
    test_tensor at, at_device;
} placed;

enum { CASE_TENSORS = 16 };

/* Around warps, blocks, lanes (512) and chunks (16384) of a reduction. */
static const int64_t sizes[] = {0,   1,   2,   31,   32,    33,    127,   128,   255,
                                511, 512, 513, 1000, 16383, 16384, 16385, 40001, 70000};

static struct {
    int cases, in_place, failed;
    int64_t elements;
} total;

/* Of this test's cases those that have their turn, a half or a third, are computed on the fake device,
 * which compiles most of their kernels for one case; others are planned, no more. */
static uint64_t case_share = 1;

/* A product has the CPU's bits if it is strict. */
static ogive_options case_options = {.size = sizeof(ogive_options), .precision = OGIVE_STRICT};

/* ---- layouts ------------------------------------------------------------------------ */

static inline DLDataType dlpack_of(og_dtype dtype)
{
    static const DLDataType types[OG_DTYPE_COUNT] = {[OG_FLOAT32] = {kDLFloat, 32, 1},
                                                     [OG_FLOAT16] = {kDLFloat, 16, 1},
                                                     [OG_BFLOAT16] = {kDLBfloat, 16, 1},
                                                     [OG_FLOAT64] = {kDLFloat, 64, 1}};
    return types[dtype];
}

static inline og_dtype dtype_of(DLDataType type)
{
    return type.code == kDLBfloat ? OG_BFLOAT16
           : type.bits == 64      ? OG_FLOAT64
           : type.bits == 32      ? OG_FLOAT32
                                  : OG_FLOAT16;
}

/* STRIDED: dims in any order, steps, gaps, backwards; zeros for inputs. */
static inline void draw_strides(placed *p, test_random *random, bool may_repeat)
{
    int order[8] = {0};
    for (int d = 0; d < p->rank; d++) {
        int other = (int)test_random_below(random, d + 1);
        order[d] = order[other];
        order[other] = d;
    }
    int64_t next = 1;
    for (int i = 0; i < p->rank; i++) {
        int d = order[i];
        int64_t extent = p->shape[d] > 1 ? p->shape[d] : 1;
        if (may_repeat && test_random_below(random, 10) == 0) {
            p->strides[d] = 0;
            continue;
        }
        p->strides[d] = next * (test_random_below(random, 5) ? 1 : 2);
        next = p->strides[d] * extent + (test_random_below(random, 5) ? 0 : 1);
        if (test_random_below(random, 10) == 0) {
            p->first += p->strides[d] * (extent - 1);
            p->strides[d] = -p->strides[d];
        }
    }
    int64_t before = test_random_below(random, 4);
    p->first += before;
    p->elements = next + before;
}

/* Gives p strides for its layout, and memory. */
static inline void place(placed *p, test_random *random, bool is_input)
{
    p->count = 1;
    p->first = p->layout == MISALIGNED || p->layout == MISALIGNED_LAST;
    for (int d = 0; d < p->rank; d++)
        p->count *= p->shape[d];
    int64_t next = p->layout == SLICED ? 2 : 1;
    for (int i = 0; i < p->rank; i++) {
        int d = p->layout == TRANSPOSED ? i : p->rank - 1 - i;
        if (p->layout >= CHANNELS_LAST && p->rank > 2)
            d = i == 0 ? 1 : i + 1 < p->rank ? p->rank - i : 0;
        bool still = is_input && ((p->layout == STILL_LAST && d == p->rank - 1) ||
                                  (p->layout == STILL_FIRST && d == 0));
        p->strides[d] = still ? 0 : next;
        next *= still ? 1 : p->shape[d] > 1 ? p->shape[d] : 1;
        next += p->layout == PADDED && i == 0 ? 3 : 0;
    }
    p->elements = p->first + next;
    if (p->layout == STRIDED)
        draw_strides(p, random, is_input);
    size_t bytes = (size_t)p->elements * og_dtype_bytes(p->dtype);
    p->memory = malloc(bytes);
    p->other = malloc(bytes);
    assert_true(p->memory && p->other);
    memset(p->memory, 0x6b, bytes);
    p->on_device = device_alloc(bytes);
}

static inline void free_placed(placed *p)
{
    free(p->memory);
    free(p->other);
    device_free(p->on_device);
}

static inline DLTensor *tensor_on(test_tensor *at, const placed *p, void *data)
{
    DLTensor *tensor =
        test_tensor_init(at, data, dlpack_of(p->dtype), p->rank, p->shape, p->strides);
    tensor->byte_offset = (uint64_t)p->first * og_dtype_bytes(p->dtype);
    return tensor;
}

static inline DLTensor *host_tensor(placed *p)
{
    return tensor_on(&p->at, p, p->memory);
}

static inline DLTensor *device_tensor(placed *p)
{
    DLTensor *tensor = tensor_on(&p->at_device, p, p->on_device);
    tensor->device.device_type = kDLCUDA;
    return tensor;
}

/* ---- values -------------------------------------------------------------------------- */

/* MAGNITUDES: stretches of elements that are as large or small as float32 has them, or zeros. */
typedef enum { ORDINARY, SPECIAL, ANY_BITS, MAGNITUDES } case_values;

static inline void fill(placed *p, test_random *random, case_values values)
{
    static const double specials[] = {NAN,    INFINITY,  -INFINITY, 0.0,    -0.0, 0x1p-149, -1e-40,
                                      3.0e38, -3.4e38,   65504,     -65520, 6e-8, 1e-30,    88.7,
                                      -104,   0x1.8p127, 0x1p-126,  1,      -1,   0.5};
    static const int exponents[] = {-148, -130, -100, -80, -45, 0, 0, 55, 63, 80, 100, 118};
    static const int64_t stretches[] = {1, 7, 33, 1000, INT64_MAX};
    const int64_t stretch =
        stretches[values == MAGNITUDES ? test_random_below(random, TEST_COUNT(stretches)) : 0];
    double magnitude = 1;
    for (int64_t i = 0; i < p->elements; i++) {
        double value = test_random_range(random, -3, 3);
        if (values == MAGNITUDES && i % stretch == 0)
            magnitude = test_random_below(random, 8) == 0
                            ? 0
                            : ldexp(1, exponents[test_random_below(random, TEST_COUNT(exponents))]);
        value *= magnitude;
        if (values == SPECIAL && test_random_below(random, 8) == 0)
            value = specials[test_random_below(random, (int64_t)TEST_COUNT(specials))];
        else if (values == ANY_BITS)
            value = test_random_float(random);
        reference_store(p->memory, p->dtype, i, reference_round(value, p->dtype));
    }
}

/* ---- comparing ------------------------------------------------------------------------ */

/* float64: order is free and a function may be 4 ULP off; values here are at most some
 * thousands, sums of some ten thousand. */
static inline bool is_same(og_dtype dtype, double got, double want)
{
    if (dtype != OG_FLOAT64 || isnan(want) || isinf(want))
        return test_same_f64(got, want);
    return fabs(got - want) <= 1e-9 * (1 + fabs(want));
}

static inline void print_tensor(const char *what, size_t i, const placed *p)
{
    fprintf(stderr, "  %s %zu: %s (", what, i, og_dtype_name(p->dtype));
    for (int d = 0; d < p->rank; d++)
        fprintf(stderr, "%s%" PRId64, d ? "," : "", p->shape[d]);
    fprintf(stderr, ") strides (");
    for (int d = 0; d < p->rank; d++)
        fprintf(stderr, "%s%" PRId64, d ? "," : "", p->strides[d]);
    fprintf(stderr, ") first %" PRId64 ", %s\n", p->first, layout_names[p->layout]);
}

typedef struct {
    const char *text;
    ogive_formula *formula;
    placed inputs[CASE_TENSORS], outputs[CASE_TENSORS];
    size_t input_count, output_count;
} formula_case;

static inline void report(const formula_case *c, const char *format, ...)
{
    total.failed++;
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n  %s\n", c->text);
    for (size_t i = 0; i < c->input_count; i++)
        print_tensor("input", i, &c->inputs[i]);
    for (size_t i = 0; i < c->output_count; i++)
        print_tensor("result", i, &c->outputs[i]);
}

/* Brings results back. Whole memories are compared, so what lies between elements is too. */
static inline void compare(const formula_case *c, const char *how)
{
    if (!device_computes())
        return;
    for (size_t r = 0; r < c->output_count; r++) {
        const placed *p = &c->outputs[r];
        size_t bytes = (size_t)p->elements * og_dtype_bytes(p->dtype);
        total.elements += p->count;
        device_copy(p->other, p->on_device, bytes);
        if (memcmp(p->memory, p->other, bytes) == 0)
            continue;
        for (int64_t i = 0; i < p->elements; i++) {
            double want = reference_load(p->memory, p->dtype, i);
            double got = reference_load(p->other, p->dtype, i);
            if (is_same(p->dtype, got, want))
                continue;
            report(c, "%sresult %zu, element %" PRId64 " of its memory: CUDA %s, CPU %s", how, r, i,
                   test_text_f64(got), test_text_f64(want));
            return;
        }
    }
}

/* ---- one case ------------------------------------------------------------------------- */

/* Shapes and dtypes of the results; false if the formula does not take the inputs. */
static inline bool find_results(formula_case *c, const DLTensor *const *inputs, case_layout layout,
                                test_random *random)
{
    ogive_error error;
    ogive_plan *plan;
    ogive_status status =
        ogive_plan_create(c->formula, inputs, c->input_count, NULL, 0, NULL, &plan, &error);
    if (status != OGIVE_OK) {
        report(c, "no plan: %s", error.message);
        return false;
    }
    c->output_count = ogive_formula_result_count(c->formula);
    assert_true(c->output_count <= CASE_TENSORS);
    for (size_t r = 0; r < c->output_count; r++) {
        const DLTensor *result = ogive_plan_result(plan, r);
        placed *p = &c->outputs[r];
        *p = (placed){.dtype = dtype_of(result->dtype), .layout = layout, .rank = result->ndim};
        for (int d = 0; d < p->rank; d++)
            p->shape[d] = result->shape[d];
        place(p, random, false);
    }
    ogive_plan_release(plan);
    return true;
}

/* Result 0 over input 0, where that is legal: as if it were not. */
static inline void check_in_place(formula_case *c, DLTensor **inputs, DLTensor **outputs)
{
    placed *in = &c->inputs[0], *out = &c->outputs[0];
    size_t bytes = og_dtype_bytes(out->dtype);
    ogive_error error;
    if (!c->input_count || in->dtype != out->dtype || in->rank != out->rank ||
        in->elements != out->elements || in->first != out->first || in->layout > TRANSPOSED ||
        in->layout == PADDED || in->layout == SLICED ||
        memcmp(in->shape, out->shape, sizeof in->shape) != 0 ||
        memcmp(in->strides, out->strides, sizeof in->strides) != 0)
        return;
    void *both = device_alloc((size_t)in->elements * bytes), *own = out->on_device;
    device_copy(both, out->memory, (size_t)in->elements * bytes);
    device_copy((char *)both + (size_t)in->first * bytes, in->memory + (size_t)in->first * bytes,
                (size_t)in->count * bytes);
    inputs[0]->data = outputs[0]->data = out->on_device = both;
    ogive_status status = device_run(c->formula, inputs, c->input_count, outputs, c->output_count,
                                     &case_options, &error);
    if (status == OGIVE_OK) {
        total.in_place++;
        compare(c, "in place: ");
    } else if (status != OGIVE_ARGUMENT) {
        report(c, "in place on CUDA: %s", error.message);
    }
    device_free(both);
    out->on_device = own;
}

static inline void run_both(formula_case *c, const DLTensor *const *inputs)
{
    DLTensor *outputs[CASE_TENSORS], *device_inputs[CASE_TENSORS], *device_outputs[CASE_TENSORS];
    ogive_error error;
    for (size_t r = 0; r < c->output_count; r++) {
        placed *p = &c->outputs[r];
        size_t bytes = (size_t)p->elements * og_dtype_bytes(p->dtype);
        outputs[r] = host_tensor(p);
        device_outputs[r] = device_tensor(p);
        device_copy(p->on_device, p->memory, bytes);
    }
    for (size_t i = 0; i < c->input_count; i++) {
        placed *p = &c->inputs[i];
        device_inputs[i] = device_tensor(p);
        device_copy(p->on_device, p->memory, (size_t)p->elements * og_dtype_bytes(p->dtype));
    }
    if (device_computes() &&
        ogive_run(c->formula, inputs, c->input_count, (const DLTensor *const *)outputs,
                  c->output_count, NULL, &error) != OGIVE_OK) {
        report(c, "on the CPU: %s", error.message);
        return;
    }
    ogive_status status = device_run(c->formula, device_inputs, c->input_count, device_outputs,
                                     c->output_count, &case_options, &error);
    if (status != OGIVE_OK) {
        report(c, "on CUDA: %s: %s", ogive_status_name(status), error.message);
        return;
    }
    compare(c, "");
    check_in_place(c, device_inputs, device_outputs);
}

/* Inputs are placed and filled; results get that layout. */
static inline void run_placed(formula_case *c, case_layout result_layout, test_random *random)
{
    const DLTensor *inputs[CASE_TENSORS];
    bool is_run =
        !device_is_fake() || !device_computes() ||
        test_has_turn((uint64_t)total.cases, c->inputs[0].dtype, case_share * test_part());
    total.cases++;
    for (size_t i = 0; i < c->input_count; i++)
        inputs[i] = host_tensor(&c->inputs[i]);
    if (find_results(c, inputs, result_layout, random) && is_run)
        run_both(c, inputs);
    for (size_t i = 0; i < c->input_count; i++)
        free_placed(&c->inputs[i]);
    for (size_t i = 0; i < c->output_count; i++)
        free_placed(&c->outputs[i]);
}

/* Formulas of one test, parsed once each, so that plans are found again. */
static inline ogive_formula *find_formula(const char *text)
{
    static struct {
        char *text;
        ogive_formula *formula;
    } known[512];
    ogive_error error;
    size_t i = 0;
    for (; i < TEST_COUNT(known) && known[i].text; i++)
        if (strcmp(known[i].text, text) == 0)
            return known[i].formula;
    assert_true(i < TEST_COUNT(known));
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &known[i].formula, &error), error);
    known[i].text = strdup(text);
    return known[i].formula;
}

typedef struct {
    int rank;
    int64_t shape[8];
} case_shape;

/* An input of this shape, with ordinary numbers. */
static inline void place_one(placed *p, const case_shape *shape, og_dtype dtype, case_layout layout,
                             test_random *random)
{
    *p = (placed){.dtype = dtype, .rank = shape->rank, .layout = layout};
    memcpy(p->shape, shape->shape, sizeof p->shape);
    place(p, random, true);
    fill(p, random, ORDINARY);
}

static inline int64_t multiprocessors(void)
{
    ogive_cuda_device_info info;
    ogive_error error;
    TEST_OK(ogive_cuda_device(0, &info, &error), error);
    return info.multiprocessors;
}

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                                 \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* An input of odd multiples of 1/32 below 2: sums of up to 4096 products are exact in float32, so
 * whoever adds must have the CPU's bits, and what comes after that, too. */
static inline void place_exact(placed *p, og_dtype dtype, case_layout layout,
                               const case_shape *shape, test_random *random)
{
    *p = (placed){.dtype = dtype, .layout = layout, .rank = shape->rank};
    memcpy(p->shape, shape->shape, sizeof p->shape);
    place(p, random, true);
    for (int64_t i = 0; i < p->elements; i++)
        reference_store(p->memory, p->dtype, i,
                        (double)(2 * test_random_below(random, 64) - 63) / 32);
}

/* A formula of such inputs; layouts: of the first two, the others are contiguous. */
static inline void check_exact_sums(const char *text, const case_shape *shapes,
                                    const case_layout layouts[2], og_dtype dtype,
                                    case_layout results, test_random *random)
{
    formula_case c = {.text = text, .formula = find_formula(text)};
    c.input_count = ogive_formula_input_count(c.formula);
    for (size_t t = 0; t < c.input_count; t++)
        place_exact(&c.inputs[t], dtype, t < 2 ? layouts[t] : CONTIGUOUS, &shapes[t], random);
    run_placed(&c, results, random);
}

/* A formula whose inputs all have one shape, dtype and layout. */
static inline void check_formula(const char *text, const case_shape *shape, og_dtype dtype,
                                 case_layout inputs, case_layout results, case_values values,
                                 test_random *random)
{
    formula_case c = {.text = text, .formula = find_formula(text)};
    c.input_count = ogive_formula_input_count(c.formula);
    assert_true(c.input_count <= CASE_TENSORS);
    for (size_t i = 0; i < c.input_count; i++) {
        placed *p = &c.inputs[i];
        *p = (placed){.dtype = dtype, .layout = inputs, .rank = shape->rank};
        memcpy(p->shape, shape->shape, sizeof p->shape);
        place(p, random, true);
        fill(p, random, values);
    }
    run_placed(&c, results, random);
}

/* After each test: fails it if a case did. */
static inline void end_cases(const char *name)
{
    fprintf(stderr, "%s: %d cases, %d of them in place too, %" PRId64 " elements%s\n", name,
            total.cases, total.in_place, total.elements,
            device_computes() ? "" : "; idle: nothing was computed or compared");
    int failed = total.failed;
    memset(&total, 0, sizeof total);
    case_share = 1;
    if (failed)
        fail_msg("%d cases failed", failed);
}

/* In main(argc, argv): all tests, or those whose names match the argument (* and ? as in
 * a shell). */
#define CASE_RUN(tests)                                                                            \
    (device_skip() ? (printf("skipped: %s\n", device_skip()), 0)                                   \
                   : (argc > 1 ? cmocka_set_test_filter(argv[1]) : (void)0, TEST_RUN(tests)))

#endif
