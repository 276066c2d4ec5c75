/* SPDX-License-Identifier: MIT
 *
 * test_cuda_hopper_weights.c - convolutions' gradients by their weights, of float16 and bfloat16, on
 * Hopper's tensor cores: exact sums have the CPU's bits, others are within a bound of float64; what is
 * not finite is seen by the taps that see it. On the fake device cuda/shim_hopper.h multiplies.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"
#include "math/half.h"

#include <math.h>

static ogive_formula *make_gradient(const char *text)
{
    static const char *const names[] = {"w"};
    ogive_formula *gradient;
    ogive_error error;
    TEST_OK(ogive_formula_gradient(find_formula(text), names, 1, &gradient, &error), error);
    return gradient;
}

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[3];           /* of x, w and the gradient of the result */
    case_layout layouts[2], result; /* of x and of that gradient */
} exact[] = {
    /* channels side by side: fetched as they lie. Taps of a line share what is fetched */
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 12, 16), SHAPE(64, 64, 3, 3), SHAPE(2, 64, 12, 16)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w)",
     {SHAPE(8, 72, 9, 9), SHAPE(80, 72, 3, 3), SHAPE(8, 80, 7, 7)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CHANNELS_LAST},
    {"conv2d(x, w, stride=2, padding=1)",
     {SHAPE(2, 64, 16, 24), SHAPE(72, 64, 3, 3), SHAPE(2, 72, 8, 12)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w, padding=(2, 6), dilation=(2, 3))",
     {SHAPE(2, 64, 10, 24), SHAPE(32, 64, 3, 5), SHAPE(2, 32, 10, 24)},
     {CHANNELS_LAST, CHANNELS_LAST},
     STRIDED},
    {"conv2d(x, w, stride=2, dilation=3, padding=2)",
     {SHAPE(2, 64, 20, 20), SHAPE(32, 64, 4, 3), SHAPE(2, 32, 8, 9)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    /* places beyond the last, and several warps of filters */
    {"conv2d(x, w, padding=1)",
     {SHAPE(1, 40, 13, 19), SHAPE(130, 40, 3, 3), SHAPE(1, 130, 13, 19)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w)",
     {SHAPE(4, 264, 9, 12), SHAPE(40, 264, 1, 1), SHAPE(4, 40, 9, 12)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w, groups=2, padding=1)",
     {SHAPE(2, 96, 9, 15), SHAPE(64, 48, 3, 3), SHAPE(2, 64, 9, 15)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 8, 16), SHAPE(24, 64, 3, 3), SHAPE(2, 24, 8, 16)},
     {MISALIGNED_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1)",
     {SHAPE(1, 64, 8, 33), SHAPE(24, 64, 3, 3), SHAPE(1, 24, 8, 33)},
     {CHANNELS_LAST, MISALIGNED_LAST},
     CONTIGUOUS},
    {"conv3d(x, w, padding=1, stride=(1, 2, 1))",
     {SHAPE(1, 64, 5, 6, 20), SHAPE(32, 64, 3, 3, 3), SHAPE(1, 32, 5, 3, 20)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv_transpose2d(x, w, stride=2, padding=1)",
     {SHAPE(2, 64, 10, 12), SHAPE(64, 32, 4, 4), SHAPE(2, 32, 20, 24)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    /* places side by side, or neither: copied first */
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 12, 16), SHAPE(64, 64, 3, 3), SHAPE(2, 64, 12, 16)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w)",
     {SHAPE(3, 130, 10, 11), SHAPE(64, 130, 2, 3), SHAPE(3, 64, 9, 9)},
     {CONTIGUOUS, STRIDED},
     STRIDED},
    {"conv2d(x, w, groups=3)",
     {SHAPE(2, 90, 12, 12), SHAPE(102, 30, 2, 2), SHAPE(2, 102, 11, 11)},
     {CONTIGUOUS, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w)",
     {SHAPE(2, 256, 14, 14), SHAPE(64, 256, 1, 1), SHAPE(2, 64, 14, 14)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w, stride=2)",
     {SHAPE(2, 64, 31, 31), SHAPE(128, 64, 1, 1), SHAPE(2, 128, 16, 16)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv1d(x, w, padding=2, dilation=2)",
     {SHAPE(3, 64, 200), SHAPE(32, 64, 4), SHAPE(3, 32, 198)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv1d(x, w, stride=3)",
     {SHAPE(2, 48, 600), SHAPE(70, 48, 5), SHAPE(2, 70, 199)},
     {STILL_FIRST, PADDED},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1)",
     {SHAPE(64, 20, 20), SHAPE(32, 64, 3, 3), SHAPE(32, 20, 20)},
     {SLICED, CONTIGUOUS},
     CONTIGUOUS},
    /* few channels: taps along a line are channels, too */
    {"conv2d(x, w, stride=4, padding=2)",
     {SHAPE(2, 3, 64, 80), SHAPE(32, 3, 11, 11), SHAPE(2, 32, 15, 19)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 16, 12, 20), SHAPE(64, 16, 3, 3), SHAPE(2, 64, 12, 20)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CONTIGUOUS},
    {"conv2d(x, w, groups=2)",
     {SHAPE(2, 24, 12, 30), SHAPE(64, 12, 5, 3), SHAPE(2, 64, 8, 28)},
     {STRIDED, CONTIGUOUS},
     CONTIGUOUS},
    {"conv3d(x, w)",
     {SHAPE(2, 3, 5, 8, 20), SHAPE(48, 3, 3, 3, 3), SHAPE(2, 48, 3, 6, 18)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
};

static void check_exact(og_dtype dtype)
{
    test_random random = test_random_named("exact weights");
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(exact); i++) {
        formula_case c = {.text = exact[i].text, .formula = make_gradient(exact[i].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            const char *name = ogive_formula_input_name(c.formula, t);
            const int of = name[0] == 'x' ? 0 : name[0] == 'w' ? 1 : 2;
            const case_layout layout = of == 1 ? CONTIGUOUS : exact[i].layouts[of / 2];
            place_exact(&c.inputs[t], dtype, layout, &exact[i].shapes[of], &random);
        }
        run_placed(&c, exact[i].result, &random);
        ogive_formula_release(c.formula);
    }
    case_options.precision = OGIVE_STRICT;
    end_cases("exact weights");
}

static void test_exact_float16(void **unused)
{
    (void)unused;
    check_exact(OG_FLOAT16);
}

static void test_exact_bfloat16(void **unused)
{
    (void)unused;
    check_exact(OG_BFLOAT16);
}

static void test_exact_float32(void **unused)
{
    (void)unused;
    check_exact(OG_FLOAT32);
}

/* ---- random convolutions ----------------------------------------------------------------- */

/* A number from least to most. */
static int64_t pick(test_random *random, int64_t least, int64_t most)
{
    return least + (int64_t)test_random_below(random, (uint64_t)(most - least + 1));
}

/* Shapes of a convolution, transposed or not, whose gradient by the weight has 256 terms at least and
 * few enough for exact sums; its text. */
static void pick_convolution(test_random *random, char text[128], case_shape to[3])
{
    for (;;) {
        const int rank = (int)pick(random, 1, 3);
        const bool is_transposed = pick(random, 0, 3) == 0;
        const int64_t groups = pick(random, 1, 4) == 1 ? 2 : 1, batch = pick(random, 1, 9);
        const int64_t channels = groups * pick(random, 12, 80),
                      filters = groups * pick(random, 16, 80);
        const int64_t stride = pick(random, 1, 3), padding = pick(random, 0, 2);
        const int64_t dilation = pick(random, 1, 2);
        int64_t k = batch;
        bool fits = true;
        for (int t = 0; t < 3; t++)
            to[t].rank = 2 + rank;
        for (int i = 0; i < rank; i++) {
            const int64_t taps = pick(random, 1, 4), size = pick(random, 3, rank == 1 ? 300 : 24);
            const int64_t all = dilation * (taps - 1) + 1;
            const int64_t places = (size + 2 * padding - all) / stride + 1;
            const int64_t back = (size - 1) * stride - 2 * padding + all;
            to[0].shape[2 + i] = size;
            to[1].shape[2 + i] = taps;
            to[2].shape[2 + i] = is_transposed ? back : places;
            fits &= size + 2 * padding >= all && back > 0;
            k *= is_transposed ? size : places;
        }
        if (!fits || k < 256 || k > 3000)
            continue;
        memcpy(to[0].shape, (int64_t[]){batch, channels}, 2 * sizeof(int64_t));
        memcpy(to[2].shape, (int64_t[]){batch, filters}, 2 * sizeof(int64_t));
        memcpy(to[1].shape,
               is_transposed ? (int64_t[]){channels, filters / groups}
                             : (int64_t[]){filters, channels / groups},
               2 * sizeof(int64_t));
        snprintf(text, 128, "conv%s%dd(x, w, stride=%d, padding=%d, dilation=%d, groups=%d)",
                 is_transposed ? "_transpose" : "", rank, (int)stride, (int)padding, (int)dilation,
                 (int)groups);
        return;
    }
}

static void test_random_convolutions(void **unused)
{
    static const case_layout layouts[] = {CONTIGUOUS, CHANNELS_LAST, STRIDED, CHANNELS_LAST};
    const og_dtype of[] = {OG_FLOAT16, OG_BFLOAT16, OG_FLOAT32};
    const int count = test_full() ? 500 : 18;
    test_random random = test_random_named("random convolutions");
    (void)unused;
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (int i = 0; i < count; i++) {
        char text[128];
        case_shape shapes[3];
        pick_convolution(&random, text, shapes);
        formula_case c = {.text = text, .formula = make_gradient(text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < 3; t++)
            place_exact(&c.inputs[t], of[i % 3],
                        t == 1 ? CONTIGUOUS : layouts[test_random_below(&random, 4)], &shapes[t],
                        &random);
        run_placed(&c, layouts[test_random_below(&random, 3)], &random);
        ogive_formula_release(c.formula);
    }
    case_options.precision = OGIVE_STRICT;
    end_cases("random convolutions");
}

/* ---- other sums -------------------------------------------------------------------------- */

/* conv2d(x, w, padding=1) of 3 x 3 taps. */
typedef struct {
    int64_t batch, channels, filters, height, width;
    bool is_last; /* channels of both factors are side by side */
} images;

static double round_to(og_dtype dtype, double x)
{
    return dtype == OG_FLOAT32    ? (double)(float)x
           : dtype == OG_BFLOAT16 ? (double)og_f32_from_bf16(og_bf16_from_f32((float)x))
                                  : (double)og_f32_from_f16(og_f16_from_f32((float)x));
}

static double *new_numbers(int64_t count)
{
    double *to = calloc((size_t)count, sizeof *to);
    assert_non_null(to);
    return to;
}

/* The gradient by the weight, of numbers of dtype in contiguous order. */
static void run_images(const images *of, og_dtype dtype, const double *x, const double *g,
                       double *y)
{
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_FLOAT32};
    const int64_t places = of->height * of->width;
    const int64_t shapes[][4] = {{of->batch, of->channels, of->height, of->width},
                                 {of->filters, of->channels, 3, 3},
                                 {of->batch, of->filters, of->height, of->width},
                                 {of->filters, of->channels, 3, 3}};
    const double *host[] = {x, NULL, g, NULL};
    const size_t bytes = og_dtype_bytes(dtype);
    ogive_formula *gradient = make_gradient("conv2d(x, w, padding=1)");
    void *memory[4], *own[4];
    int64_t counts[4];
    test_tensor at[4];
    DLTensor *tensors[4];
    ogive_error error;
    for (int t = 0; t < 4; t++) {
        const int64_t c = shapes[t][1], strides[] = {c * places, 1, of->width * c, c};
        const bool is_last = host[t] && of->is_last;
        counts[t] = shapes[t][0] * c * shapes[t][2] * shapes[t][3];
        own[t] = calloc((size_t)counts[t], bytes);
        assert_non_null(own[t]);
        for (int64_t i = 0; host[t] && i < counts[t]; i++)
            reference_store(own[t], dtype,
                            is_last ? i / places / c * c * places + i % places * c + i / places % c
                                    : i,
                            host[t][i]);
        memory[t] = device_alloc((size_t)counts[t] * bytes);
        device_copy(memory[t], own[t], (size_t)counts[t] * bytes);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(dtype), 4, shapes[t],
                                      is_last ? strides : NULL);
        tensors[t]->device = cuda_device;
    }
    TEST_OK(device_run(gradient, tensors, 3, tensors + 3, 1, &options, &error), error);
    device_copy(own[3], memory[3], (size_t)counts[3] * bytes);
    for (int64_t i = 0; i < counts[3]; i++)
        y[i] = reference_load(own[3], dtype, i);
    for (int t = 0; t < 4; t++) {
        device_free(memory[t]);
        free(own[t]);
    }
    ogive_formula_release(gradient);
}

/* Result i in float64, and sum |x||w|. */
static void find_result(const images *of, const double *x, const double *g, int64_t i, double *sum,
                        double *scale)
{
    const int64_t places = of->height * of->width, tap = i % 9, c = i / 9 % of->channels;
    const int64_t filter = i / 9 / of->channels;
    *sum = *scale = 0;
    for (int64_t k = 0; k < of->batch * places; k++) {
        const int64_t b = k / places, h = k % places / of->width + tap / 3 - 1,
                      w = k % of->width + tap % 3 - 1;
        const bool sees = h >= 0 && h < of->height && w >= 0 && w < of->width;
        const double term = (sees ? x[(b * of->channels + c) * places + h * of->width + w] : 0.0) *
                            g[(b * of->filters + filter) * places + k % places];
        *sum += term;
        *scale += fabs(term);
    }
}

/* Of halves 16 k lose up to 10.5 units of 2^-24, all of k here, and the result is rounded; of float32 a
 * chain is up to 64 k, and the others are added up. */
static void check_error(const images *of, og_dtype dtype, const double *x, const double *g,
                        const double *y)
{
    const double k = (double)(of->batch * of->height * of->width);
    const double rounds = dtype == OG_FLOAT32 ? 0 : dtype == OG_BFLOAT16 ? 0x1p-8 : 0x1p-11;
    const double most = dtype == OG_FLOAT32 ? 60 + k / 16 : 11 * (k / 16 + 1);
    double worst = 0;
    for (int64_t i = 0; i < of->filters * of->channels * 9; i++) {
        double sum, scale;
        find_result(of, x, g, i, &sum, &scale);
        if (!isfinite(sum)) { /* as it is in any order */
            assert_true(isnan(sum) ? isnan(y[i]) : y[i] == sum);
            continue;
        }
        const double slack = fabs(y[i] - sum) - fabs(sum) * rounds;
        const double e = slack > 0 ? slack / scale * 0x1p24 : 0;
        worst = e > worst || y[i] != y[i] ? e : worst;
        assert_true(y[i] == y[i]);
    }
    printf("%s, %lld channels, %lld filters, k %.0f: %.3g * 2^-24 of sum |x||w|\n",
           og_dtype_name(dtype), (long long)of->channels, (long long)of->filters, k, worst);
    assert_true(worst <= most);
}

static const og_dtype dtypes[] = {OG_FLOAT16, OG_BFLOAT16, OG_FLOAT32};

/* Data that spreads over 2^-spread .. 2^spread, from one place to the next. */
static void fill_numbers(double *to, int64_t count, og_dtype dtype, int spread, test_random *random)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = round_to(dtype,
                         ldexp(test_random_range(random, -1, 1),
                               (int)test_random_below(random, 2 * (uint64_t)spread + 1) - spread));
}

static void check_images(const images *of, og_dtype dtype, int spread, int strangers,
                         test_random *random)
{
    static const double strange[] = {INFINITY, NAN, -INFINITY};
    const int64_t places = of->batch * of->height * of->width;
    double *x = new_numbers(of->channels * places), *g = new_numbers(of->filters * places);
    double *y = new_numbers(of->filters * of->channels * 9);
    fill_numbers(x, of->channels * places, dtype, spread, random);
    fill_numbers(g, of->filters * places, dtype, spread, random);
    for (int i = 0; i < strangers; i++) {
        x[test_random_below(random, (uint64_t)(of->channels * places))] = strange[i % 3];
        if (i == 0)
            g[test_random_below(random, (uint64_t)(of->filters * places))] = strange[i];
    }
    run_images(of, dtype, x, g, y);
    if (device_computes())
        check_error(of, dtype, x, g, y);
    free(x);
    free(g);
    free(y);
}

static const images shapes[] = {{3, 64, 64, 12, 16, true},
                                {2, 64, 32, 9, 18, true},
                                {1, 33, 70, 15, 19, false},
                                {8, 20, 24, 7, 7, true},
                                {2, 3, 64, 17, 20, false}};

static void test_accuracy(void **unused)
{
    test_random random = test_random_named("accuracy");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes) * TEST_COUNT(dtypes); i++) {
        const og_dtype dtype = dtypes[i / TEST_COUNT(shapes)];
        check_images(&shapes[i % TEST_COUNT(shapes)], dtype, 0, 0, &random);
        if (dtype == OG_FLOAT32) /* outliers need no scales */
            check_images(&shapes[i % TEST_COUNT(shapes)], dtype, 20, 0, &random);
    }
}

/* Infinity and NaN are seen by the taps that see them, and by no others: also where boxes have places
 * that are none. */
static void test_strangers(void **unused)
{
    test_random random = test_random_named("strangers");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes) * TEST_COUNT(dtypes); i++)
        check_images(&shapes[i % TEST_COUNT(shapes)], dtypes[i / TEST_COUNT(shapes)], 0, 3,
                     &random);
}

/* ---- what is planned --------------------------------------------------------------------- */

/* The plan of the gradient by the weight, of contiguous tensors. */
static ogive_plan *plan_weights(const char *text, const case_shape of[3], og_dtype dtype,
                                const char *arch)
{
    const ogive_options options = {.size = sizeof options, .cuda_arch = arch};
    ogive_formula *gradient = make_gradient(text);
    const DLTensor *inputs[3];
    test_tensor at[3];
    ogive_plan *plan;
    ogive_error error;
    for (int i = 0; i < 3; i++) {
        DLTensor *tensor =
            test_tensor_init(&at[i], NULL, dlpack_of(dtype), of[i].rank, of[i].shape, NULL);
        tensor->device = cuda_device;
        inputs[i] = tensor;
    }
    TEST_OK(ogive_plan_create(gradient, inputs, 3, NULL, 0, &options, &plan, &error), error);
    ogive_formula_release(gradient);
    return plan;
}

static const struct {
    const char *text;
    case_shape shapes[3];
    bool is_narrow; /* of float32 CUDA cores are faster */
} planned[] = {
    {"conv2d(x, w, padding=1)",
     {SHAPE(64, 64, 56, 56), SHAPE(64, 64, 3, 3), SHAPE(64, 64, 56, 56)},
     false},
    {"conv2d(x, w, padding=1)",
     {SHAPE(64, 512, 7, 7), SHAPE(512, 512, 3, 3), SHAPE(64, 512, 7, 7)},
     false},
    {"conv2d(x, w)", {SHAPE(64, 256, 56, 56), SHAPE(64, 256, 1, 1), SHAPE(64, 64, 56, 56)}, true},
    {"conv2d(x, w, stride=2, padding=1)",
     {SHAPE(64, 128, 56, 56), SHAPE(128, 128, 3, 3), SHAPE(64, 128, 28, 28)},
     false},
    {"conv2d(x, w, stride=2, padding=3)",
     {SHAPE(64, 3, 224, 224), SHAPE(64, 3, 7, 7), SHAPE(64, 64, 112, 112)},
     true},
    {"conv1d(x, w)", {SHAPE(32, 64, 16384), SHAPE(128, 64, 3), SHAPE(32, 128, 16382)}, false},
    {"conv_transpose2d(x, w, stride=2, padding=1)",
     {SHAPE(32, 64, 128, 128), SHAPE(64, 64, 4, 4), SHAPE(32, 64, 256, 256)},
     false},
};

static void test_planned(void **unused)
{
    static char text[1 << 16];
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(planned) * TEST_COUNT(dtypes); i++) {
        const size_t of = i / TEST_COUNT(dtypes);
        const og_dtype dtype = dtypes[i % TEST_COUNT(dtypes)];
        for (int is_old = 0; is_old < 2; is_old++) {
            ogive_plan *plan =
                plan_weights(planned[of].text, planned[of].shapes, dtype, is_old ? "80" : "90a");
            const bool refused = is_old || (planned[of].is_narrow && dtype == OG_FLOAT32);
            ogive_plan_explain(plan, text, sizeof text);
            if ((strstr(text, "gradient by a weight") == NULL) != refused)
                fail_msg("case %zu: not what was expected:\n%s", i, text);
            ogive_plan_release(plan);
        }
    }
}

static void test_compile(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(planned) * 2; i++) {
        const size_t of = i / 2;
        if ((i % 2 && planned[of].is_narrow) || !test_has_turn(of, i % 2, 3))
            continue;
        ogive_plan *plan = plan_weights(planned[of].text, planned[of].shapes,
                                        i % 2 ? OG_FLOAT32 : OG_BFLOAT16, "90a");
        size_t length = ogive_plan_source(plan, 0, NULL, 0);
        char *source = malloc(length + 1);
        assert_non_null(source);
        ogive_plan_source(plan, 0, source, length + 1);
        assert_non_null(strstr(source, "og_multiply_weights"));
        compile_source(planned[of].text, source, "90a", 0);
        free(source);
        ogive_plan_release(plan);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_float16), cmocka_unit_test(test_exact_bfloat16),
        cmocka_unit_test(test_exact_float32), cmocka_unit_test(test_random_convolutions),
        cmocka_unit_test(test_accuracy),      cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_planned),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
