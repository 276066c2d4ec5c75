/* SPDX-License-Identifier: MIT
 *
 * test_cuda_mma_windows.c - convolutions on tensor cores by mma.sync: exact sums and their tails have
 * the CPU's bits, others float32's accuracy; what pairs of float16 cannot hold has plan.h's order; a
 * result depends on what its window sees and on its filter alone; which convolutions are taken.
 *
 * OGIVE_TEST_NVRTC=libnvrtc.so.13 has a real NVRTC compile them instead, without a GPU, and
 * checks that no register is spilt.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

#include <math.h>

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[3];
    case_layout layouts[2]; /* of x and w */
} exact[] = {
    /* tiles of 32, 64 and 128 filters; channels of a pitch, and one more; few */
    {"conv2d(x, w, padding=1)",
     {SHAPE(3, 16, 7, 7), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"relu(conv2d(x, w, b))",
     {SHAPE(2, 64, 11, 20), SHAPE(130, 64, 3, 3), SHAPE(130)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, b, padding=2)",
     {SHAPE(1, 21, 9, 18), SHAPE(40, 21, 5, 3), SHAPE(40)},
     {TRANSPOSED, TRANSPOSED}},
    {"tanh(conv2d(x, w, stride=4, padding=2))",
     {SHAPE(2, 3, 30, 41), SHAPE(70, 3, 11, 11)},
     {CONTIGUOUS, CONTIGUOUS}},
    /* strides, dilations, padding beyond the kernel; one tap */
    {"conv2d(x, w, stride=2)", {SHAPE(2, 32, 17, 36), SHAPE(64, 32, 3, 3)}, {CONTIGUOUS, STRIDED}},
    {"conv2d(x, w, stride=2)",
     {SHAPE(2, 64, 15, 35), SHAPE(32, 64, 1, 1)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=(2, 6), dilation=(2, 3))",
     {SHAPE(1, 32, 10, 24), SHAPE(32, 32, 3, 5)},
     {CONTIGUOUS, PADDED}},
    {"conv2d(x, w, padding=(4, 7), stride=2, dilation=2)",
     {SHAPE(1, 40, 5, 6), SHAPE(17, 40, 3, 2)},
     {MISALIGNED, MISALIGNED}},
    /* groups; tensors that lie oddly; no batch; another tensor in pass 0 */
    {"sigmoid(conv2d(x, w, groups=2, padding=1))",
     {SHAPE(2, 32, 9, 15), SHAPE(64, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, groups=3) * s",
     {SHAPE(2, 15, 9, 12), SHAPE(48, 5, 3, 3), SHAPE(2, 1, 7, 10)},
     {STRIDED, CONTIGUOUS}},
    {"conv2d(x, w)", {SHAPE(40, 12, 13), SHAPE(32, 40, 3, 3)}, {STRIDED, CONTIGUOUS}},
    {"conv2d(x, w, padding=1) + s",
     {SHAPE(2, 100, 8, 17), SHAPE(64, 100, 3, 3), SHAPE(2, 64, 8, 17)},
     {SLICED, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 16, 6, 9), SHAPE(32, 16, 3, 3)},
     {STILL_FIRST, CONTIGUOUS}},
    /* one dim and three */
    {"conv1d(x, w, b, 1, 2, 2)",
     {SHAPE(3, 16, 61), SHAPE(32, 16, 4), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv1d(x, w, stride=3)", {SHAPE(2, 48, 200), SHAPE(70, 48, 5)}, {STILL_LAST, CONTIGUOUS}},
    {"conv3d(x, w, padding=1)",
     {SHAPE(1, 16, 5, 6, 10), SHAPE(32, 16, 3, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv3d(x, w, stride=2)",
     {SHAPE(2, 3, 6, 7, 19), SHAPE(16, 3, 3, 4, 5)},
     {PADDED, CONTIGUOUS}},
    /* transposed: a kernel for each phase, some of which meet no tap */
    {"sigmoid(conv_transpose2d(x, w, b))",
     {SHAPE(2, 32, 9, 13), SHAPE(32, 48, 3, 3), SHAPE(48)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
     {SHAPE(2, 32, 6, 9), SHAPE(32, 32, 5, 5)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, b, stride=2, dilation=2, padding=1)",
     {SHAPE(1, 32, 6, 11), SHAPE(32, 32, 3, 3), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, groups=2)",
     {SHAPE(1, 64, 5, 9), SHAPE(64, 20, 3, 3)},
     {PADDED, CONTIGUOUS}},
    {"conv_transpose1d(x, w, padding=2, dilation=2)",
     {SHAPE(2, 64, 60), SHAPE(64, 33, 3)},
     {PADDED, CONTIGUOUS}},
    /* more than a group of k; nothing to see but zeros, and no image at all */
    {"conv2d(x, w, padding=1)",
     {SHAPE(1, 500, 3, 4), SHAPE(20, 500, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=3)",
     {SHAPE(2, 16, 1, 2), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)",
     {SHAPE(0, 16, 8, 9), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
};

/* Results contiguous or anyhow, or (is_last) with channels last, and images too where they may be. */
static void check_exact(og_dtype dtype, size_t step, bool is_last)
{
    test_random random = test_random_named("exact windows by mma");
    for (size_t i = 0; i < TEST_COUNT(exact); i += step) {
        formula_case c = {.text = exact[i].text, .formula = find_formula(exact[i].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            case_layout layout = t < 2 ? exact[i].layouts[t] : CONTIGUOUS;
            if (is_last && t == 0 && layout == CONTIGUOUS)
                layout = i % 2 ? MISALIGNED_LAST : CHANNELS_LAST;
            place_exact(&c.inputs[t], dtype, layout, &exact[i].shapes[t], &random);
        }
        run_placed(&c, is_last ? CHANNELS_LAST : i % 3 ? CONTIGUOUS : STRIDED, &random);
    }
}

static void test_exact(void **unused)
{
    (void)unused;
    case_options.precision = OGIVE_FLOAT32;
    check_exact(OG_FLOAT32, 1, false);
    check_exact(OG_FLOAT32, 4, true);
    check_exact(OG_BFLOAT16, 3, false);
    check_exact(OG_BFLOAT16, 1, true);
    check_exact(OG_FLOAT16, 4, true);
    case_options.precision = OGIVE_TF32;
    check_exact(OG_FLOAT32, 4, false);
    case_options.precision = OGIVE_STRICT;
    end_cases("exact windows by mma");
}

/* By the input, a convolution of its own, and by the weight, which stays on CUDA cores. */
static void test_gradient(void **unused)
{
    static const case_shape shapes[] = {SHAPE(2, 24, 9, 15), SHAPE(32, 24, 3, 3),
                                        SHAPE(2, 32, 9, 15)};
    static const char *const text = "conv2d(x, w, padding=1)", *const names[] = {"x", "w"};
    test_random random = test_random_named("gradient by mma");
    ogive_formula *gradient;
    ogive_error error;
    (void)unused;
    TEST_OK(ogive_formula_gradient(find_formula(text), names, 2, &gradient, &error), error);
    formula_case c = {.text = text, .formula = gradient};
    c.input_count = ogive_formula_input_count(gradient);
    case_options.precision = OGIVE_FLOAT32;
    for (size_t t = 0; t < c.input_count; t++)
        place_exact(&c.inputs[t], OG_FLOAT32, CONTIGUOUS, &shapes[t], &random);
    run_placed(&c, CONTIGUOUS, &random);
    case_options.precision = OGIVE_STRICT;
    ogive_formula_release(gradient);
    end_cases("gradient by mma");
}

/* Filters that no row of pairs holds: every sum is computed again, with the CPU's bits. */
static void test_again(void **unused)
{
    static const size_t cases[] = {0, 3, 8, 13, 16, 18, 22};
    test_random random = test_random_named("again by mma");
    (void)unused;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const size_t of = cases[i];
        formula_case c = {.text = exact[of].text, .formula = find_formula(exact[of].text)};
        c.input_count = ogive_formula_input_count(c.formula);
        for (size_t t = 0; t < c.input_count; t++) {
            placed *p = &c.inputs[t];
            place_one(p, &exact[of].shapes[t], OG_FLOAT32,
                      t < 2 ? exact[of].layouts[t] : CONTIGUOUS, &random);
            for (int64_t j = 0; t == 1 && j < p->elements; j++)
                ((float *)p->memory)[j] *= j % 3 ? 0x1p-140f : 0x1p-110f;
        }
        run_placed(&c, i % 3 ? CONTIGUOUS : CHANNELS_LAST, &random);
    }
    case_options.precision = OGIVE_STRICT;
    end_cases("again by mma");
}

/* ---- other sums -------------------------------------------------------------------------- */

/* conv2d(x, w, padding=1) of `batch` images, 3 x 3 taps. */
typedef struct {
    int64_t batch, channels, filters, height, width;
} images;

static int64_t count_x(const images *of)
{
    return of->batch * of->channels * of->height * of->width;
}

static int64_t count_w(const images *of)
{
    return of->filters * of->channels * 9;
}

static int64_t count_y(const images *of)
{
    return of->batch * of->filters * of->height * of->width;
}

/* y = x convolved, on the device. */
static void run_images(const images *of, ogive_precision precision, const float *x, const float *w,
                       float *y)
{
    const ogive_options options = {.size = sizeof options, .precision = precision};
    const int64_t shapes[][4] = {{of->batch, of->channels, of->height, of->width},
                                 {of->filters, of->channels, 3, 3},
                                 {of->batch, of->filters, of->height, of->width}};
    const int64_t counts[] = {count_x(of), count_w(of), count_y(of)};
    const float *host[] = {x, w, NULL};
    test_tensor at[3];
    DLTensor *tensors[3];
    void *memory[3];
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        const size_t bytes = (size_t)counts[t] * sizeof(float);
        memory[t] = device_alloc(bytes);
        if (host[t])
            device_copy(memory[t], host[t], bytes);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(OG_FLOAT32), 4, shapes[t], NULL);
        tensors[t]->device = cuda_device;
    }
    TEST_OK(device_run(find_formula("conv2d(x, w, padding=1)"), tensors, 2, tensors + 2, 1,
                       &options, &error),
            error);
    device_copy(y, memory[2], (size_t)counts[2] * sizeof(float));
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
}

static float *new_floats(int64_t count, test_random *random)
{
    float *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)test_random_range(random, -1, 1);
    return to;
}

/* The greatest error of y, of sum |x||w|. What is 0 must be. */
static double find_error(const images *of, const float *x, const float *w, const float *y)
{
    const int64_t places = of->height * of->width;
    double worst = 0;
    for (int64_t i = 0; i < count_y(of); i++) {
        const int64_t image = i / places / of->filters, filter = i / places % of->filters;
        const int64_t h = i % places / of->width, v = i % of->width;
        double sum = 0, scale = 0;
        for (int64_t c = 0; c < of->channels; c++)
            for (int64_t tap = 0; tap < 9; tap++) {
                const int64_t at_h = h + tap / 3 - 1, at_w = v + tap % 3 - 1;
                if (at_h < 0 || at_h >= of->height || at_w < 0 || at_w >= of->width)
                    continue;
                const double term =
                    (double)x[(image * of->channels + c) * places + at_h * of->width + at_w] *
                    w[(filter * of->channels + c) * 9 + tap];
                sum += term;
                scale += fabs(term);
            }
        const double e = y[i] == sum ? 0 : fabs(y[i] - sum) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

/* Of docs/accuracy.md, in 2^-24 of sum |x||w|: k is padded; chains of 64 k. */
static double bound_of(const images *of)
{
    return 87 + (double)((of->channels + 3) / 4 * 4 * 9 + 63) / 64;
}

/* Numbers that pairs hold, and such as need to be computed again: what they lose matters where it is all
 * of a sum. */
static void test_accuracy(void **unused)
{
    static const images shapes[] = {{2, 16, 32, 9, 10}, {1, 64, 130, 8, 9}, {1, 150, 64, 7, 11}};
    test_random random = test_random_named("accuracy by mma");
    (void)unused;
    for (size_t i = 0; i < 4 * TEST_COUNT(shapes); i++) {
        const images *of = &shapes[i / 4];
        float *x = new_floats(count_x(of), &random), *w = new_floats(count_w(of), &random);
        float *y = new_floats(count_y(of), &random);
        const int64_t places = of->height * of->width;
        for (int64_t j = 0; j < count_x(of) && i % 4; j++)
            x[j] *= i % 4 == 1   ? (j % 64 == 9 ? 0x1p12f : 1.0f)
                    : i % 4 == 2 ? (j / places % of->channels ? 0.0f : 1.0f)
                                 : (j / places % of->channels ? 1.0f : 0x1p30f);
        for (int64_t j = 0; j < count_w(of) && i % 4 > 1; j++)
            w[j] *= j / 9 % of->channels ? 1.0f : i % 4 == 2 ? 1e-12f : 0.0f;
        run_images(of, OGIVE_FLOAT32, x, w, y);
        const double worst = device_computes() ? find_error(of, x, w, y) : 0;
        printf("%lld channels, %lld filters, %zu: %.2f * 2^-24 of sum |x||w|\n",
               (long long)of->channels, (long long)of->filters, i % 4, worst * 0x1p24);
        assert_true(worst <= bound_of(of) * 0x1p-24);
        free(x);
        free(w);
        free(y);
    }
}

/* An image has the bits that it has alone, where a tile begins elsewhere; a filter has those that it has
 * among others, in tiles of another height. */
static void test_invariance(void **unused)
{
    static const images all = {5, 40, 70, 5, 7}, one = {1, 40, 70, 5, 7}, few = {1, 40, 20, 5, 7};
    test_random random = test_random_named("invariance by mma");
    float *x = new_floats(count_x(&all), &random), *w = new_floats(count_w(&all), &random);
    float *y = new_floats(count_y(&all), &random), *alone = new_floats(count_y(&one), &random);
    (void)unused;
    for (int64_t i = 0; i < count_x(&all); i += 37)
        x[i] *= 0x1p24f; /* some of its sums are computed again */
    run_images(&all, OGIVE_FLOAT32, x, w, y);
    for (int64_t b = 0; b < all.batch; b++) {
        run_images(&one, OGIVE_FLOAT32, x + b * count_x(&one), w, alone);
        assert_true(!device_computes() ||
                    memcmp(alone, y + b * count_y(&one), (size_t)count_y(&one) * sizeof *y) == 0);
    }
    run_images(&few, OGIVE_FLOAT32, x, w + 30 * 40 * 9, alone);
    assert_true(!device_computes() ||
                memcmp(alone, y + 30 * 35, (size_t)count_y(&few) * sizeof *y) == 0);
    float *const floats[] = {x, w, y, alone};
    for (size_t i = 0; i < TEST_COUNT(floats); i++)
        free(floats[i]);
}

/* Numbers that pairs cannot hold: results whose windows see them have the bits of the strict order or
 * those that they had; what is not finite is strict; all others are what they were. */
static void test_strangers(void **unused)
{
    static const images two = {2, 32, 40, 10, 20};
    static const float strange[] = {INFINITY, NAN, 3e38f, -INFINITY, 1e-42f};
    test_random random = test_random_named("strangers by mma");
    const int64_t places = two.height * two.width, image = two.channels * places;
    float *x = new_floats(count_x(&two), &random), *w = new_floats(count_w(&two), &random);
    float *plain = new_floats(count_y(&two), &random), *strict = new_floats(count_y(&two), &random);
    float *y = new_floats(count_y(&two), &random);
    bool seen[2 * 10 * 20] = {false};
    (void)unused;
    run_images(&two, OGIVE_FLOAT32, x, w, plain);
    for (size_t i = 0; i < TEST_COUNT(strange); i++) {
        const int64_t at = (int64_t)test_random_below(&random, (uint64_t)count_x(&two));
        x[at] = strange[i];
        for (int64_t h = -1; h <= 1; h++)
            for (int64_t v = -1; v <= 1; v++) {
                const int64_t line = at % places / two.width + h, place = at % two.width + v;
                if (line >= 0 && line < two.height && place >= 0 && place < two.width)
                    seen[(at / image * two.height + line) * two.width + place] = true;
            }
    }
    run_images(&two, OGIVE_FLOAT32, x, w, y);
    run_images(&two, OGIVE_STRICT, x, w, strict);
    for (int64_t i = 0; device_computes() && i < count_y(&two); i++) {
        const bool is_seen = seen[i / places / two.filters * places + i % places];
        if (!is_seen)
            assert_memory_equal(&y[i], &plain[i], sizeof *y);
        else if (!(fabsf(strict[i]) < 1e30f))
            assert_true(y[i] == strict[i] || (y[i] != y[i] && strict[i] != strict[i]));
        else
            assert_true(fabsf(y[i] - strict[i]) <= 1e-4f); /* what is tiny has not lost it */
    }
    float *const all[] = {x, w, plain, strict, y};
    for (size_t i = 0; i < TEST_COUNT(all); i++)
        free(all[i]);
}

/* ---- which are taken ----------------------------------------------------------------------- */

static const struct {
    const char *text;
    og_dtype dtype;
    case_shape shapes[2]; /* of x and w */
    const char *arch, *units, *explained;
} planned[] = {
#define IMAGES                                                                                     \
    {                                                                                              \
        SHAPE(2, 64, 12, 20), SHAPE(64, 64, 3, 3)                                                  \
    }
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "80", "",
     "convolution, float32 as pairs of float16 on tensor cores (mma.sync), tiles of 64 x 64"},
    {"conv2d(x, w)", OG_BFLOAT16, IMAGES, "89", "",
     "convolution on tensor cores (mma.sync), tiles of 64 x 64"},
    {"conv2d(x, w)",
     OG_FLOAT32,
     {SHAPE(64, 64, 58, 58), SHAPE(128, 64, 3, 3)},
     "80",
     "",
     "tiles of 128 x 128"},
    {"conv2d(x, w)", /* shared memory has no room for more */
     OG_FLOAT32,
     {SHAPE(64, 64, 58, 58), SHAPE(128, 64, 3, 3)},
     "89",
     "",
     "tiles of 128 x 64"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "100", "", "pairs of float16 on tensor cores (mma.sync)"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "90a", "mma", "tensor cores (mma.sync)"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "90a", "", "on tensor cores, tiles of"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "80", "sm90", "no tensor cores: OGIVE_PRODUCT=sm90"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "80", "cores", "no tensor cores: OGIVE_PRODUCT=cores"},
    {"conv2d(x, w)", OG_FLOAT32, IMAGES, "75", "", "no tensor cores: they are used from sm_80 on"},
    {"conv_transpose2d(x, w, stride=2)", OG_FLOAT32, IMAGES, "80", "", "tensor cores (mma.sync)"},
#undef IMAGES
    {"conv2d(x, w)",
     OG_FLOAT32,
     {SHAPE(2, 64, 12, 20), SHAPE(15, 64, 3, 3)},
     "80",
     "",
     "no tensor cores: too small for tensor cores"},
    {"conv2d(x, w)",
     OG_FLOAT16,
     {SHAPE(2, 2, 12, 20), SHAPE(64, 2, 3, 3)},
     "80",
     "",
     "no tensor cores: too small for tensor cores"},
};

static void test_plans(void **unused)
{
    static char text[1 << 16];
    ogive_options options = {.size = sizeof options};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(planned); i++) {
        test_tensor at[2];
        DLTensor *tensors[2];
        ogive_plan *plan;
        ogive_error error;
        for (int t = 0; t < 2; t++) {
            const case_shape *shape = &planned[i].shapes[t];
            tensors[t] = test_tensor_init(&at[t], NULL, dlpack_of(planned[i].dtype), shape->rank,
                                          shape->shape, NULL);
            tensors[t]->device = cuda_device;
        }
        options.cuda_arch = planned[i].arch;
        if (*planned[i].units)
            setenv("OGIVE_PRODUCT", planned[i].units, 1);
        else
            unsetenv("OGIVE_PRODUCT");
        TEST_OK(ogive_plan_create(find_formula(planned[i].text), (const DLTensor *const *)tensors,
                                  2, NULL, 0, &options, &plan, &error),
                error);
        ogive_plan_explain(plan, text, sizeof text);
        if (!strstr(text, planned[i].explained))
            fail_msg("case %zu: expected '%s' in\n%s", i, planned[i].explained, text);
        ogive_plan_release(plan);
    }
    setenv("OGIVE_PRODUCT", "mma", 1);
}

/* ---- what is compiled -------------------------------------------------------------------- */

static void test_compile(void **unused)
{
    static const char *const archs[] = {"80", "90a", "100"};
    static const struct {
        const char *text;
        case_shape shapes[2];
        og_dtype dtype;
    } kinds[] = {
        {"conv2d(x, w, padding=1)", {SHAPE(64, 64, 56, 56), SHAPE(64, 64, 3, 3)}, OG_FLOAT32},
        {"tanh(conv2d(x, w))", {SHAPE(16, 512, 57, 57), SHAPE(512, 512, 3, 3)}, OG_FLOAT32},
        {"conv3d(x, w)", {SHAPE(8, 48, 64, 64, 64), SHAPE(24, 48, 3, 3, 3)}, OG_FLOAT32},
        {"gelu(conv2d(x, w))", {SHAPE(2, 3, 90, 90), SHAPE(70, 3, 7, 7)}, OG_FLOAT32},
        {"conv1d(x, w)", {SHAPE(64, 512, 131072), SHAPE(128, 512, 3)}, OG_FLOAT32}, /* 64 bits */
        {"conv1d(x, w)", {SHAPE(64, 16, 4194304), SHAPE(128, 16, 3)}, OG_FLOAT32},
        {"conv2d(x, w)", {SHAPE(16, 96, 128, 128), SHAPE(32, 96, 3, 3)}, OG_FLOAT32},
        {"conv2d(x, w)", {SHAPE(16, 64, 128, 128), SHAPE(128, 64, 3, 3)}, OG_BFLOAT16},
        {"conv2d(x, w, stride=2)", {SHAPE(16, 3, 128, 128), SHAPE(64, 3, 7, 7)}, OG_FLOAT16},
        {"mish(conv2d(x, w))", {SHAPE(16, 64, 128, 128), SHAPE(32, 64, 3, 3)}, OG_FLOAT16},
    };
    (void)unused;
    for (size_t a = 0; a < TEST_COUNT(archs); a++)
        for (size_t i = 0; i < TEST_COUNT(kinds); i++)
            if (test_takes(i, a))
                compile_unspilt(kinds[i].text, kinds[i].shapes, kinds[i].dtype, archs[a],
                                "og_convolve_mma");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_again),      cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_invariance), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_plans),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    setenv("OGIVE_PRODUCT", "mma", 1);
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    setenv("OGIVE_SHIM_MULTIPROCESSORS", "3", 1); /* small shapes get wide tiles, too */
    return CASE_RUN(tests);
}
