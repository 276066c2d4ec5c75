/* SPDX-License-Identifier: MIT
 *
 * test_cuda_hopper_windows.c - convolutions on Hopper's tensor cores: exact sums and their tails
 * have the CPU's bits, others float32's accuracy; a result depends on what its window sees and on
 * its filter alone. On the fake device cuda/shim_hopper.h multiplies.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"

#include <math.h>

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[6];
    case_layout layouts[2]; /* of the first two */
} exact[] = {
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 16, 12, 20), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"relu(conv2d(x, w, b))",
     {SHAPE(2, 64, 11, 20), SHAPE(130, 64, 3, 3), SHAPE(130)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, b, padding=2)",
     {SHAPE(1, 20, 9, 18), SHAPE(40, 20, 5, 3), SHAPE(40)},
     {TRANSPOSED, TRANSPOSED}},
    {"conv2d(x, w, stride=2)", {SHAPE(2, 32, 17, 36), SHAPE(64, 32, 3, 3)}, {CONTIGUOUS, STRIDED}},
    {"conv2d(x, w, stride=2)",
     {SHAPE(2, 64, 15, 36), SHAPE(32, 64, 1, 1)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=(2, 6), dilation=(2, 3))",
     {SHAPE(1, 32, 10, 24), SHAPE(32, 32, 3, 5)},
     {CONTIGUOUS, PADDED}},
    {"tanh(conv2d(x, w, groups=2, padding=1))",
     {SHAPE(2, 32, 9, 15), SHAPE(64, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 96, 8, 16), SHAPE(24, 96, 3, 3)},
     {MISALIGNED, CONTIGUOUS}},
    {"conv2d(x, w, padding=1)", {SHAPE(2, 16, 8, 17), SHAPE(32, 16, 3, 3)}, {SLICED, CONTIGUOUS}},
    {"conv2d(x, w)", {SHAPE(40, 30, 30), SHAPE(32, 40, 3, 3)}, {STRIDED, CONTIGUOUS}},
    {"conv1d(x, w, b, 1, 2, 2)",
     {SHAPE(3, 16, 200), SHAPE(32, 16, 4), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv1d(x, w, stride=3)", {SHAPE(2, 48, 300), SHAPE(70, 48, 5)}, {STILL_FIRST, CONTIGUOUS}},
    {"conv3d(x, w, padding=1)",
     {SHAPE(1, 16, 5, 6, 20), SHAPE(32, 16, 3, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"sigmoid(conv_transpose2d(x, w, b))",
     {SHAPE(2, 32, 9, 20), SHAPE(32, 48, 3, 3), SHAPE(48)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
     {SHAPE(2, 32, 12, 18), SHAPE(32, 32, 5, 5)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose3d(x, w, stride=(1, 2, 1))",
     {SHAPE(1, 16, 4, 6, 14), SHAPE(16, 32, 3, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose1d(x, w, padding=2, dilation=2)",
     {SHAPE(2, 64, 130), SHAPE(64, 33, 3)},
     {PADDED, CONTIGUOUS}},
    /* phases of a transposed stride in one kernel: beside each other along lines, whose length is odd or
     * even; as tiles; some along lines only, or along others only */
    {"relu(conv_transpose2d(x, w, b, stride=2, padding=1))",
     {SHAPE(2, 32, 10, 19), SHAPE(32, 40, 3, 3), SHAPE(40)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1) * s",
     {SHAPE(2, 64, 9, 33), SHAPE(64, 64, 3, 3), SHAPE(2, 64, 18, 66)},
     {CONTIGUOUS, TRANSPOSED}},
    {"conv_transpose2d(x, w, stride=2) + s",
     {SHAPE(1, 32, 9, 18), SHAPE(32, 32, 4, 4), SHAPE(1, 20, 38)},
     {PADDED, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, groups=2) - s",
     {SHAPE(2, 32, 7, 21), SHAPE(32, 24, 3, 3), SHAPE(2, 1, 15, 43)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(2, 4), padding=(0, 1))",
     {SHAPE(2, 32, 6, 20), SHAPE(32, 24, 3, 5)},
     {CONTIGUOUS, STRIDED}},
    {"conv_transpose2d(x, w, stride=(2, 3), padding=1, groups=2)",
     {SHAPE(2, 32, 6, 20), SHAPE(32, 17, 3, 5)},
     {MISALIGNED, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(1, 2), padding=(1, 0))",
     {SHAPE(1, 48, 9, 20), SHAPE(48, 32, 3, 3)},
     {STRIDED, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(3, 1), padding=1)",
     {SHAPE(1, 16, 7, 40), SHAPE(16, 32, 4, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(3, 2), dilation=(2, 3))",
     {SHAPE(1, 16, 7, 30), SHAPE(16, 32, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose3d(x, w, stride=2, padding=1, output_padding=1)",
     {SHAPE(1, 16, 3, 5, 18), SHAPE(16, 32, 3, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose3d(x, w, stride=(2, 2, 2))",
     {SHAPE(2, 3, 3, 4, 17), SHAPE(3, 16, 3, 5, 5)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose1d(x, w, b, stride=2, padding=1)",
     {SHAPE(2, 32, 131), SHAPE(32, 32, 5), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose1d(x, w, stride=2) + s",
     {SHAPE(2, 64, 70), SHAPE(64, 32, 4), SHAPE(142)},
     {SLICED, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=2, padding=2)", /* several chunks, of different lengths */
     {SHAPE(1, 208, 5, 18), SHAPE(208, 32, 5, 5)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, b, stride=2, dilation=2, padding=1)", /* phases without taps */
     {SHAPE(1, 32, 6, 20), SHAPE(32, 32, 3, 3), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(3, 5), dilation=(1, 2), padding=1)",
     {SHAPE(1, 32, 5, 19), SHAPE(32, 20, 2, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose1d(x, w, stride=2, padding=1, dilation=2)",
     {SHAPE(2, 32, 70), SHAPE(32, 64, 3)},
     {MISALIGNED, CONTIGUOUS}},
    /* few channels: two taps are 16 k, or four */
    {"relu(conv2d(x, w, b, padding=1))",
     {SHAPE(2, 8, 12, 40), SHAPE(64, 8, 3, 3), SHAPE(64)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, groups=2)", {SHAPE(2, 16, 9, 36), SHAPE(64, 8, 5, 3)}, {STRIDED, CONTIGUOUS}},
    {"conv2d(x, w, stride=4, padding=2)",
     {SHAPE(2, 3, 40, 80), SHAPE(32, 3, 11, 11)},
     {CONTIGUOUS, TRANSPOSED}},
    {"conv3d(x, w)", {SHAPE(2, 3, 5, 6, 30), SHAPE(16, 3, 3, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w)", {SHAPE(1, 6, 9, 30), SHAPE(6, 24, 4, 4)}, {PADDED, CONTIGUOUS}},
    {"conv2d(x, w)", {SHAPE(1, 10, 9, 30), SHAPE(24, 10, 3, 3)}, {CONTIGUOUS, CONTIGUOUS}},
    /* few k: lines that other warps write, four neighbours at a time or two, and such as they do not
     * take, of odd length; tiles of 128 filters and of 64, and of 32 in groups */
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 16, 9, 64), SHAPE(128, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"relu(conv2d(x, w, b))",
     {SHAPE(2, 16, 8, 68), SHAPE(256, 16, 3, 3), SHAPE(256)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=1) + s",
     {SHAPE(2, 16, 7, 37), SHAPE(64, 16, 3, 3), SHAPE(2, 64, 7, 37)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"gelu(conv2d(x, w, groups=2, padding=1))",
     {SHAPE(3, 32, 8, 48), SHAPE(64, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    /* patches that are split once: an even and an odd number of cells of 64 filters and of 128, chunks of
     * channels, groups; phases with their own numbers of cells, of which one has a single cell of zeros */
    {"relu(conv2d(x, w, b, padding=1))",
     {SHAPE(2, 64, 9, 37), SHAPE(64, 64, 3, 3), SHAPE(64)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, stride=(1, 2), dilation=(2, 1))",
     {SHAPE(2, 32, 12, 40), SHAPE(48, 32, 3, 3)},
     {STRIDED, CONTIGUOUS}},
    {"conv2d(x, w, b, padding=2)",
     {SHAPE(1, 64, 9, 20), SHAPE(128, 64, 5, 3), SHAPE(128)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"sigmoid(conv2d(x, w, padding=1, groups=2))",
     {SHAPE(1, 64, 7, 18), SHAPE(144, 32, 5, 5)},
     {MISALIGNED, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(2, 1), padding=1)",
     {SHAPE(1, 64, 6, 20), SHAPE(64, 64, 5, 5)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, b, stride=(2, 1), dilation=(2, 1))",
     {SHAPE(1, 32, 5, 18), SHAPE(32, 40, 3, 5), SHAPE(40)},
     {CONTIGUOUS, CONTIGUOUS}},
    /* other warps end tiles: pass 0 has several operands, or results; 2 steps of 16 k in a tile's last block
     * of two, 3 of its only one, of filters that stay and of such that do not; three phases along a line, of
     * vectors of two, and four, of four */
    {"gelu(conv2d(x, w, b, padding=1) * s + t) - u",
     {SHAPE(2, 16, 7, 40), SHAPE(44, 16, 3, 3), SHAPE(44), SHAPE(2, 44, 7, 40), SHAPE(1, 1, 7, 40),
      SHAPE(40)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"z = conv2d(x, w, groups=2); relu(z) + s, z * t",
     {SHAPE(2, 32, 6, 38), SHAPE(80, 16, 2, 3), SHAPE(2, 80, 5, 36), SHAPE(80, 1, 1)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"s + conv2d(x, w, padding=(0, 1)) * t",
     {SHAPE(2, 33, 5, 33), SHAPE(2, 16, 5, 33), SHAPE(33, 16, 1, 3), SHAPE(2, 33, 5, 1)},
     {PADDED, CONTIGUOUS}},
    {"conv2d(x, w, groups=2)",
     {SHAPE(1, 32, 5, 66), SHAPE(64, 16, 1, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"s * conv_transpose2d(x, w, b, stride=(2, 3)) + t",
     {SHAPE(1, 16, 11, 62), SHAPE(1, 16, 5, 20), SHAPE(16, 16, 3, 5), SHAPE(16), SHAPE(62)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv_transpose2d(x, w, stride=(1, 4), padding=(0, 1), output_padding=(0, 1)) - s",
     {SHAPE(2, 16, 5, 19), SHAPE(16, 16, 3, 5), SHAPE(2, 16, 7, 76)},
     {STRIDED, CONTIGUOUS}},
    /* one place along a padded dim; what stands still along lines, whose tile reaches beyond them */
    {"conv2d(x, w, padding=1)",
     {SHAPE(1, 16, 1, 64), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS}},
    {"conv2d(x, w, padding=1) - s",
     {SHAPE(1, 16, 3, 21), SHAPE(32, 16, 3, 3), SHAPE(1, 32, 3, 1)},
     {CONTIGUOUS, CONTIGUOUS}},
};

static void test_exact(void **unused)
{
    test_random random = test_random_named("exact windows");
    (void)unused;
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(exact); i++)
        for (int strided = 0; strided < 2; strided++)
            check_exact_sums(exact[i].text, exact[i].shapes, exact[i].layouts, OG_FLOAT32,
                             strided ? STRIDED : CONTIGUOUS, &random);
    case_options.precision = OGIVE_STRICT;
    end_cases("exact windows");
}

/* By the input of one with strides: a transposed one, whose phases are one kernel. */
static void test_gradient(void **unused)
{
    static const case_shape shapes[] = {SHAPE(2, 24, 15, 35), SHAPE(32, 24, 3, 3),
                                        SHAPE(2, 32, 8, 18)};
    static const char *const text = "conv2d(x, w, stride=2, padding=1)";
    static const char *const names[] = {"x"};
    test_random random = test_random_named("gradient");
    ogive_formula *gradient;
    ogive_error error;
    (void)unused;
    TEST_OK(ogive_formula_gradient(find_formula(text), names, 1, &gradient, &error), error);
    formula_case c = {.text = text, .formula = gradient};
    c.input_count = ogive_formula_input_count(gradient);
    case_options.precision = OGIVE_FLOAT32;
    for (size_t t = 0; t < c.input_count; t++)
        place_exact(&c.inputs[t], OG_FLOAT32, CONTIGUOUS, &shapes[t], &random);
    run_placed(&c, CONTIGUOUS, &random);
    case_options.precision = OGIVE_STRICT;
    ogive_formula_release(gradient);
    end_cases("gradient");
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

static int64_t count_y(const images *of)
{
    return of->batch * of->filters * of->height * of->width;
}

/* y = the formula of x and w, on the device. */
static void run_formula(const char *text, const int64_t (*shapes)[4], ogive_precision precision,
                        const float *x, const float *w, float *y)
{
    const ogive_options options = {.size = sizeof options, .precision = precision};
    const float *host[] = {x, w, NULL};
    test_tensor at[3];
    DLTensor *tensors[3];
    void *memory[3];
    size_t bytes[3];
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        bytes[t] = sizeof(float);
        for (int d = 0; d < 4; d++)
            bytes[t] *= (size_t)shapes[t][d];
        memory[t] = device_alloc(bytes[t]);
        if (host[t])
            device_copy(memory[t], host[t], bytes[t]);
        tensors[t] = test_tensor_init(&at[t], memory[t], dlpack_of(OG_FLOAT32), 4, shapes[t], NULL);
        tensors[t]->device = cuda_device;
    }
    TEST_OK(device_run(find_formula(text), tensors, 2, tensors + 2, 1, &options, &error), error);
    device_copy(y, memory[2], bytes[2]);
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
}

static void run_images(const images *of, ogive_precision precision, const float *x, const float *w,
                       float *y)
{
    const int64_t shapes[][4] = {{of->batch, of->channels, of->height, of->width},
                                 {of->filters, of->channels, 3, 3},
                                 {of->batch, of->filters, of->height, of->width}};
    run_formula("conv2d(x, w, padding=1)", shapes, precision, x, w, y);
}

/* What place (h, w) of an image's filter is, in float64, and sum |x||w|. */
static void find_place(const images *of, const float *x, const float *filter, int64_t h, int64_t w,
                       double *sum, double *scale)
{
    *sum = *scale = 0;
    for (int64_t c = 0; c < of->channels; c++)
        for (int64_t tap = 0; tap < 9; tap++) {
            int64_t at_h = h + tap / 3 - 1, at_w = w + tap % 3 - 1;
            if (at_h < 0 || at_h >= of->height || at_w < 0 || at_w >= of->width)
                continue;
            double term =
                (double)x[(c * of->height + at_h) * of->width + at_w] * filter[c * 9 + tap];
            *sum += term;
            *scale += fabs(term);
        }
}

static double find_error(const images *of, const float *x, const float *w, const float *y)
{
    const int64_t places = of->height * of->width;
    double worst = 0;
    for (int64_t i = 0; i < count_y(of); i++) {
        double sum, scale;
        int64_t image = i / places / of->filters, filter = i / places % of->filters;
        find_place(of, x + image * of->channels * places, w + filter * of->channels * 9,
                   i % places / of->width, i % of->width, &sum, &scale);
        double e = fabs(y[i] - sum) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

static float *new_floats(int64_t count, test_random *random)
{
    float *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)test_random_range(random, -1, 1);
    return to;
}

static void test_accuracy(void **unused)
{
    static const images shapes[] = {
        {2, 16, 32, 9, 18}, {1, 64, 130, 8, 16}, {1, 200, 64, 7, 33}, {1, 96, 160, 6, 17}};
    test_random random = test_random_named("accuracy");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        const images *of = &shapes[i];
        float *x = new_floats(count_x(of), &random);
        float *w = new_floats(of->filters * of->channels * 9, &random);
        float *y = new_floats(count_y(of), &random);
        for (int64_t j = 0; j < count_x(of); j++)
            x[j] *= j % 64 == 9 ? 0x1p12f : 1.0f;
        run_images(of, OGIVE_FLOAT32, x, w, y);
        double worst = device_computes() ? find_error(of, x, w, y) : 0;
        printf("%lld channels, %lld filters: %.1e of sum |x||w|\n", (long long)of->channels,
               (long long)of->filters, worst);
        assert_true(worst <= 0x1p-20); /* as of products: test_cuda_wgmma.c */
        free(x);
        free(w);
        free(y);
    }
}

/* Numbers that tensor cores cannot hold are computed strictly, in the windows that see them alone;
 * and an image has the bits that it has without others. */
static void check_strangers(const images *two, test_random *random)
{
    const images one = {1, two->channels, two->filters, two->height, two->width};
    static const float strange[] = {INFINITY, NAN, 3e38f, -INFINITY, 1e-42f};
    const int64_t places = two->height * two->width, image = two->channels * places;
    float *x = new_floats(count_x(two), random),
          *w = new_floats(two->filters * two->channels * 9, random);
    float *plain = new_floats(count_y(two), random), *strict = new_floats(count_y(two), random);
    float *y = new_floats(count_y(two), random), *alone = new_floats(count_y(&one), random);
    bool *seen = calloc((size_t)(two->batch * places), sizeof *seen);
    assert_non_null(seen);
    run_images(two, OGIVE_FLOAT32, x, w, plain);
    run_images(&one, OGIVE_FLOAT32, x + image, w, alone);
    assert_true(!device_computes() ||
                memcmp(alone, plain + count_y(&one), (size_t)count_y(&one) * sizeof *y) == 0);
    for (size_t i = 0; i < TEST_COUNT(strange); i++) {
        int64_t at = (int64_t)test_random_below(random, (uint64_t)count_x(two));
        x[at] = strange[i];
        for (int64_t h = -1; h <= 1; h++)
            for (int64_t v = -1; v <= 1; v++) {
                int64_t line = at % places / two->width + h, place = at % two->width + v;
                if (line >= 0 && line < two->height && place >= 0 && place < two->width)
                    seen[(at / image * two->height + line) * two->width + place] = true;
            }
    }
    run_images(two, OGIVE_FLOAT32, x, w, y);
    run_images(two, OGIVE_STRICT, x, w, strict);
    for (int64_t i = 0; device_computes() && i < count_y(two); i++) {
        bool is_seen = seen[i / places / two->filters * places + i % places];
        const float *want = is_seen && !(fabsf(strict[i]) < 1e30f) ? strict : plain;
        if (is_seen && want == plain)
            assert_true(fabsf(y[i] - strict[i]) <= 1e-4f); /* what is tiny has not lost it */
        else
            assert_true(y[i] == want[i] || (y[i] != y[i] && want[i] != want[i]));
    }
    float *const all[] = {x, w, plain, strict, y, alone};
    for (size_t i = 0; i < TEST_COUNT(all); i++)
        free(all[i]);
    free(seen);
}

/* Where patches are split once; where threads split what they read, and others end tiles; where they end
 * their own. */
static void test_strangers(void **unused)
{
    static const images kinds[] = {{2, 32, 40, 10, 20}, {2, 16, 44, 10, 20}, {2, 16, 70, 6, 18}};
    test_random random = test_random_named("strangers");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(kinds); i++)
        check_strangers(&kinds[i], &random);
}

/* What pairs of float16 lose matters where it is all of a sum: small filters that meet what is not 0
 * alone, small places beside a peak that a filter leaves out. docs/accuracy.md has the bound. */
static void test_hard(void **unused)
{
    static const images of = {1, 32, 33, 4, 18};
    const int64_t places = of.height * of.width;
    test_random random = test_random_named("hard");
    float *x = new_floats(count_x(&of), &random), *w = new_floats(33 * 32 * 9, &random);
    float *y = new_floats(count_y(&of), &random);
    (void)unused;
    for (int which = 0; which < 2; which++) {
        for (int64_t i = 0; i < 33 * 32 * 9; i++)
            w[i] *= i / 9 % 32 ? 1.0f : which ? 0.0f : 1e-12f;
        for (int64_t i = 0; i < count_x(&of); i++)
            x[i] = which ? x[i] * (i < places ? 0x1p30f : 1.0f) : i < places ? x[i] : 0.0f;
        run_images(&of, OGIVE_FLOAT32, x, w, y);
        double worst = device_computes() ? find_error(&of, x, w, y) : 0;
        printf("hard %d: %.2f * 2^-24 of sum |x||w|\n", which, worst * 0x1p24);
        assert_true(worst <= (87 + 32 * 9 / 64.0) * 0x1p-24);
        free(x);
        x = new_floats(count_x(&of), &random);
    }
    free(x);
    free(w);
    free(y);
}

/* ---- a transposed stride ----------------------------------------------------------------- */

/* conv_transpose2d(x, w, stride=2, padding=1) of an image, 3 x 3 taps. The phases of all filters but one
 * are 64 rows, whose tiles other warps end. */
enum { T_CHANNELS = 32, T_FILTERS = 33, T_HEIGHT = 6, T_WIDTH = 17 };
enum { T_OUT_HEIGHT = 2 * T_HEIGHT - 1, T_OUT_WIDTH = 2 * T_WIDTH - 1 };
enum { T_X = T_CHANNELS * T_HEIGHT * T_WIDTH, T_W = T_CHANNELS * T_FILTERS * 9 };
enum { T_Y = T_FILTERS * T_OUT_HEIGHT * T_OUT_WIDTH };

static void run_transposed(int64_t filters, ogive_precision precision, const float *x,
                           const float *w, float *y)
{
    const int64_t shapes[][4] = {{1, T_CHANNELS, T_HEIGHT, T_WIDTH},
                                 {T_CHANNELS, filters, 3, 3},
                                 {1, filters, T_OUT_HEIGHT, T_OUT_WIDTH}};
    run_formula("conv_transpose2d(x, w, stride=2, padding=1)", shapes, precision, x, w, y);
}

/* The greatest error of y, over sum |x||w|. What is 0 must be. */
static double find_transposed_error(int64_t filters, const float *x, const float *w, const float *y)
{
    double worst = 0;
    for (int64_t i = 0; i < filters * T_OUT_HEIGHT * T_OUT_WIDTH; i++) {
        const int64_t filter = i / T_OUT_WIDTH / T_OUT_HEIGHT;
        const int64_t h = i / T_OUT_WIDTH % T_OUT_HEIGHT + 1, v = i % T_OUT_WIDTH + 1;
        double sum = 0, scale = 0;
        for (int64_t c = 0; c < T_CHANNELS; c++)
            for (int64_t tap = 0; tap < 9; tap++) {
                const int64_t at_h = h - tap / 3, at_w = v - tap % 3;
                if (at_h < 0 || at_w < 0 || at_h % 2 || at_w % 2 || at_h / 2 >= T_HEIGHT ||
                    at_w / 2 >= T_WIDTH)
                    continue;
                const double term = (double)x[(c * T_HEIGHT + at_h / 2) * T_WIDTH + at_w / 2] *
                                    w[(c * filters + filter) * 9 + tap];
                sum += term;
                scale += fabs(term);
            }
        const double e = y[i] == sum ? 0 : fabs(y[i] - sum) / scale;
        worst = e > worst || e != e ? e : worst;
    }
    return worst;
}

/* Numbers of all kinds; peaks that some phases' taps do not meet, next to places that they do; small
 * filters: the bound of docs/accuracy.md, for each sum by its own terms. */
static void test_transposed(void **unused)
{
    test_random random = test_random_named("transposed");
    float *x = new_floats(T_X, &random), *w = new_floats(T_W, &random);
    float *y = new_floats(T_Y, &random);
    (void)unused;
    for (int run = 0; run < 8; run++) {
        const int64_t filters = run < 4 ? T_FILTERS : T_FILTERS - 1;
        const int which = run % 4;
        for (int64_t i = 0; i < T_X; i++) {
            x[i] = (float)test_random_range(&random, -1, 1);
            if (which == 1)
                x[i] *= i % 2 ? 0x1p30f : 1.0f;
            if (which == 2)
                x[i] = i % 5 ? 0.0f : x[i] * 0x1p-40f;
        }
        for (int64_t i = 0; i < T_W; i++) {
            w[i] = (float)test_random_range(&random, -1, 1);
            if (which == 2)
                w[i] *= i % 9 == 4 ? 1e-12f : 1.0f;
            if (which == 3)
                w[i] = i % 9 % 3 == 1 ? 0.0f : w[i];
        }
        run_transposed(filters, OGIVE_FLOAT32, x, w, y);
        const double worst = device_computes() ? find_transposed_error(filters, x, w, y) : 0;
        printf("transposed %d, %d filters: %.2f * 2^-24 of sum |x||w|\n", which, (int)filters,
               worst * 0x1p24);
        assert_true(worst <= (87 + 32 * 9 / 64.0) * 0x1p-24);
    }
    free(x);
    free(w);
    free(y);
}

/* What is not finite is in the results that meet it, as strictly; others are what they were, or in the
 * strict order, of their own terms: they keep the bits of one or of the other. */
static void check_transposed_strangers(int64_t filters, test_random *random)
{
    static const float strange[] = {INFINITY, NAN, 3e38f, -INFINITY};
    float *x = new_floats(T_X, random), *w = new_floats(T_W, random);
    float *y = new_floats(T_Y, random), *plain = new_floats(T_Y, random);
    float *strict = new_floats(T_Y, random);
    int64_t changed = 0;
    run_transposed(filters, OGIVE_FLOAT32, x, w, plain);
    for (size_t i = 0; i < TEST_COUNT(strange); i++)
        x[test_random_below(random, T_X)] = strange[i];
    run_transposed(filters, OGIVE_FLOAT32, x, w, y);
    run_transposed(filters, OGIVE_STRICT, x, w, strict);
    for (int64_t i = 0; device_computes() && i < filters * T_OUT_HEIGHT * T_OUT_WIDTH; i++) {
        changed += memcmp(&y[i], &plain[i], sizeof *y) != 0;
        if (fabsf(strict[i]) < 1e30f)
            assert_true(y[i] == strict[i] || y[i] == plain[i]);
        else
            assert_true(y[i] == strict[i] || (y[i] != y[i] && strict[i] != strict[i]));
    }
    assert_true(!device_computes() || changed < T_Y / 2);
    float *const all[] = {x, w, y, plain, strict};
    for (size_t i = 0; i < TEST_COUNT(all); i++)
        free(all[i]);
}

static void test_transposed_strangers(void **unused)
{
    test_random random = test_random_named("transposed strangers");
    (void)unused;
    check_transposed_strangers(T_FILTERS, &random);
    check_transposed_strangers(T_FILTERS - 1, &random);
}

/* ---- what is planned --------------------------------------------------------------------- */

/* Elements between two that are beyond 31 bits. */
#define FAR ((int64_t)1 << 32)

static const struct {
    const char *text;
    og_dtype dtype;
    case_shape shapes[2]; /* of x and w */
    int64_t strides[5];   /* of x; 0: it is contiguous */
    const char *explained, *source;
} planned[] = {
    /* phases: none along lines; more than a kernel takes, of which some meet none of the taps */
    {"conv_transpose2d(x, w, stride=2)",
     OG_FLOAT32,
     {SHAPE(2, 64, 12, 20), SHAPE(64, 64, 3, 3)},
     {0},
     ", 4 phases at once, those of a line beside each other: ",
     "og_multiply_windows"},
    {"conv_transpose2d(x, w, stride=(2, 1))",
     OG_FLOAT32,
     {SHAPE(2, 64, 12, 20), SHAPE(64, 64, 3, 3)},
     {0},
     ", 2 phases at once, tiles of each: ",
     "og_multiply_windows"},
    {"conv_transpose1d(x, w, stride=10, dilation=4)",
     OG_FLOAT32,
     {SHAPE(2, 64, 200), SHAPE(64, 64, 3)},
     {0},
     "kernel 9: product",
     "typedef"},
    /* KernelBench's L2-2, L1-77 and L1-79: 64 filters, whose phases of a line are faster as 128 rows than as
     * tiles of 64, which would have trays */
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
     OG_FLOAT32,
     {SHAPE(128, 64, 128, 128), SHAPE(64, 64, 3, 3)},
     {0},
     "tiles of 128 x (1, 2, 64), 4 phases at once, those of a line beside each other: ",
     "#define OG_TRAYS 0\n"},
    {"conv_transpose3d(x, w, stride=2, padding=1, dilation=2)",
     OG_FLOAT32,
     {SHAPE(16, 32, 16, 32, 32), SHAPE(32, 64, 3, 3, 3)},
     {0},
     "tiles of 128 x (2, 4, 16), 8 phases at once, those of a line beside each other: ",
     "#define OG_TRAYS 0\n"},
    {"conv_transpose1d(x, w, stride=2, padding=1, dilation=2)",
     OG_FLOAT32,
     {SHAPE(16, 32, 131072), SHAPE(32, 64, 3)},
     {0},
     "tiles of 128 x (1, 1, 128), 2 phases at once, those of a line beside each other: ",
     "#define OG_TRAYS 0\n"},
    /* trays: 33 to 64 rows, phases of a line among them, but none beside cells or tiles of each phase */
    {"conv_transpose2d(x, w, stride=(2, 1), padding=1)",
     OG_FLOAT32,
     {SHAPE(16, 64, 128, 128), SHAPE(64, 64, 3, 3)},
     {0},
     ", 2 phases at once, tiles of each: ",
     "#define OG_TRAYS 0\n"},
    {"conv2d(x, w)", /* L2-87 */
     OG_FLOAT32,
     {SHAPE(128, 8, 256, 256), SHAPE(64, 8, 3, 3)},
     {0},
     "tiles of 64 x ",
     "#define OG_TRAYS 1\n"},
    {"conv2d(x, w)", /* with half of the filters groups alternate */
     OG_FLOAT32,
     {SHAPE(128, 8, 256, 256), SHAPE(32, 8, 3, 3)},
     {0},
     "tiles of 32 x ",
     "#define OG_TRAYS 0\n"},
    {"conv2d(x, w)", /* L1-62, cells */
     OG_FLOAT32,
     {SHAPE(8, 32, 512, 512), SHAPE(64, 32, 5, 9)},
     {0},
     "tiles of 64 x (1, 4, 32): ",
     "#define OG_TRAYS 0\n"},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
     OG_FLOAT32,
     {SHAPE(16, 64, 128, 128), SHAPE(64, 32, 3, 3)},
     {0},
     "tiles of 64 x (1, 4, 32), 4 phases at once, those of a line beside each other: ",
     "#define OG_TRAYS 1\n"},
    /* images that are copied: their steps, and the elements of a line, are indices */
    {"conv2d(x, w, padding=1)",
     OG_FLOAT16,
     {SHAPE(2, 16, 9, 18), SHAPE(32, 16, 3, 3)},
     {FAR, 162, 18, 1},
     "convolution on tensor cores",
     "typedef int64_t og_index;"},
    {"conv1d(x, w, stride=1024)",
     OG_FLOAT16,
     {SHAPE(1, 3, 2 * FAR), SHAPE(16, 3, 16)},
     {0},
     "convolution on tensor cores",
     "typedef int64_t og_index;"},
    {"conv2d(x, w, padding=1)", /* a line of one element */
     OG_FLOAT32,
     {SHAPE(2, 16, 9, 18), SHAPE(32, 16, 3, 3)},
     {FAR, 162, 18, 0},
     "convolution, float32",
     "typedef int64_t og_index;"},
};

static void test_plans(void **unused)
{
    static char text[1 << 20];
    const ogive_options options = {.size = sizeof options, .cuda_arch = "90a"};
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(planned); i++) {
        test_tensor at[2];
        DLTensor *tensors[2];
        ogive_plan *plan;
        ogive_error error;
        for (int t = 0; t < 2; t++) {
            const case_shape *shape = &planned[i].shapes[t];
            const int64_t *strides = t == 0 && planned[i].strides[0] ? planned[i].strides : NULL;
            tensors[t] = test_tensor_init(&at[t], NULL, dlpack_of(planned[i].dtype), shape->rank,
                                          shape->shape, strides);
            tensors[t]->device = cuda_device;
        }
        TEST_OK(ogive_plan_create(find_formula(planned[i].text), (const DLTensor *const *)tensors,
                                  2, NULL, 0, &options, &plan, &error),
                error);
        ogive_plan_explain(plan, text, sizeof text);
        if (!strstr(text, planned[i].explained))
            fail_msg("%s: expected '%s' in\n%s", planned[i].text, planned[i].explained, text);
        ogive_plan_source(plan, 0, text, sizeof text);
        if (!strstr(text, planned[i].source))
            fail_msg("%s, case %zu: no '%s'", planned[i].text, i, planned[i].source);
        ogive_plan_release(plan);
    }
}

/* ---- what is compiled -------------------------------------------------------------------- */

static void test_compile(void **unused)
{
    static const struct {
        const char *text;
        case_shape shapes[6];
    } kinds[] = {
        {"conv2d(x, w, padding=1)", {SHAPE(64, 64, 128, 128), SHAPE(64, 64, 3, 3)}},
        {"tanh(conv2d(x, w, stride=2))", {SHAPE(16, 512, 57, 57), SHAPE(512, 512, 3, 3)}},
        {"conv3d(x, w)", {SHAPE(8, 48, 64, 64, 64), SHAPE(24, 48, 3, 3, 3)}},
        {"conv1d(x, w)", {SHAPE(32, 64, 131072), SHAPE(128, 64, 3)}},
        {"conv2d(x, w)", {SHAPE(128, 8, 256, 256), SHAPE(64, 8, 3, 3)}},
        {"conv2d(x, w)", {SHAPE(16, 16, 1024, 1024), SHAPE(128, 16, 3, 3)}},
        {"mish(conv2d(x, w))", {SHAPE(16, 16, 1024, 1024), SHAPE(128, 16, 3, 3)}},
        {"conv3d(x, w)", {SHAPE(16, 3, 64, 64, 64), SHAPE(64, 3, 3, 5, 7)}},
        {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
         {SHAPE(16, 64, 128, 128), SHAPE(64, 64, 3, 3)}},
        {"tanh(conv_transpose2d(x, w, stride=2))", {SHAPE(16, 64, 128, 128), SHAPE(64, 64, 3, 3)}},
        {"conv_transpose3d(x, w, stride=2, padding=1)",
         {SHAPE(16, 32, 16, 32, 32), SHAPE(32, 64, 3, 3, 3)}},
        {"conv_transpose2d(x, w, stride=3)", {SHAPE(16, 64, 64, 64), SHAPE(64, 64, 5, 5)}},
        {"conv_transpose1d(x, w, stride=2, padding=1, dilation=2)",
         {SHAPE(16, 32, 131072), SHAPE(32, 64, 3)}},
        {"conv_transpose2d(x, w, stride=5, padding=1, dilation=2)",
         {SHAPE(16, 32, 64, 128), SHAPE(32, 64, 3, 3)}},
        {"gelu(conv3d(x, w))", {SHAPE(16, 3, 32, 128, 128), SHAPE(16, 3, 3, 3, 3)}}, /* groups */
        {"conv2d(x, w)", {SHAPE(8, 64, 512, 256), SHAPE(128, 64, 5, 7)}}, /* cells, as the first */
        {"gelu(conv2d(x, w, stride=2, padding=1))",
         {SHAPE(64, 128, 56, 56), SHAPE(128, 128, 3, 3)}},
        {"conv_transpose2d(x, w, stride=(2, 1))", {SHAPE(8, 64, 64, 64), SHAPE(64, 64, 5, 5)}},
        {"sigmoid(conv1d(x, w))", {SHAPE(32, 64, 131072), SHAPE(40, 64, 9)}},
        /* ends of tiles by other warps: what costs much, several operands, of 64 bit indices, of single
         * elements, of phases */
        {"mish(conv2d(x, w, b))", {SHAPE(128, 8, 256, 256), SHAPE(64, 8, 3, 3), SHAPE(64)}},
        {"gelu(conv2d(x, w, b) * s + t) - u",
         {SHAPE(16, 16, 258, 258), SHAPE(64, 16, 3, 3), SHAPE(64), SHAPE(16, 64, 256, 256),
          SHAPE(256, 256), SHAPE(256)}},
        {"gelu(conv2d(x, w) * s)",
         {SHAPE(128, 16, 1026, 1026), SHAPE(64, 16, 3, 3), SHAPE(128, 64, 1024, 1024)}},
        {"gelu(conv2d(x, w, padding=1) * s) - t",
         {SHAPE(128, 64, 1024, 1024), SHAPE(64, 64, 3, 3), SHAPE(128, 64, 1024, 1024),
          SHAPE(1024, 1024)}},
        {"tanh(conv2d(x, w)) + s",
         {SHAPE(16, 32, 257, 257), SHAPE(64, 32, 1, 3), SHAPE(16, 64, 257, 255)}},
        {"z = conv3d(x, w); relu(z), z * s",
         {SHAPE(8, 48, 64, 64, 64), SHAPE(64, 48, 3, 3, 3), SHAPE(62, 62, 62)}},
        {"gelu(conv_transpose2d(x, w, b, stride=2) + s)",
         {SHAPE(16, 64, 128, 128), SHAPE(64, 32, 4, 4), SHAPE(32), SHAPE(16, 32, 258, 258)}},
        {"mish(conv_transpose3d(x, w, stride=3) * s)",
         {SHAPE(16, 16, 16, 32, 32), SHAPE(16, 16, 3, 5, 3), SHAPE(48, 98, 96)}},
    };
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(kinds); i++)
        if (test_has_turn(i, 0, 2))
            compile_spilt(kinds[i].text, kinds[i].shapes, OG_FLOAT32, "90a", "og_multiply_windows",
                          0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_accuracy),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_hard),
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_transposed_strangers),
        cmocka_unit_test(test_plans),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
