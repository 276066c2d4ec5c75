/* SPDX-License-Identifier: MIT
 *
 * test_cuda_hopper_windows_halves.c - convolutions of float16 and bfloat16 on Hopper's tensor cores:
 * exact sums and their tails have the CPU's bits, others are within a bound of float64; a result
 * depends on what its window sees and on its filter alone. On the fake device cuda/shim_hopper.h
 * multiplies.
 */
#include "cuda_case.h"
#include "cuda_compiled.h"
#include "math/half.h"

#include <math.h>

/* ---- exact sums -------------------------------------------------------------------------- */

static const struct {
    const char *text;
    case_shape shapes[4];
    case_layout layouts[2], result; /* of x and w */
} exact[] = {
    /* channels side by side: fetched as they lie */
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 12, 20), SHAPE(64, 64, 3, 3)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"relu(conv2d(x, w, b))",
     {SHAPE(3, 32, 11, 20), SHAPE(130, 32, 3, 3), SHAPE(130)},
     {CHANNELS_LAST, CHANNELS_LAST},
     CHANNELS_LAST},
    {"tanh(conv2d(x, w, b, padding=2))",
     {SHAPE(1, 16, 9, 18), SHAPE(40, 16, 5, 3), SHAPE(40)},
     {CHANNELS_LAST, TRANSPOSED},
     CONTIGUOUS},
    {"conv2d(x, w, stride=2)",
     {SHAPE(2, 96, 17, 36), SHAPE(72, 96, 3, 3)},
     {CHANNELS_LAST, STRIDED},
     CHANNELS_LAST},
    {"conv2d(x, w, padding=(2, 6), dilation=(2, 3))",
     {SHAPE(1, 32, 10, 24), SHAPE(32, 32, 3, 5)},
     {CHANNELS_LAST, PADDED},
     CHANNELS_LAST},
    {"conv2d(x, w, groups=2, padding=1)",
     {SHAPE(2, 32, 9, 15), SHAPE(64, 16, 3, 3)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 8, 16), SHAPE(24, 64, 3, 3)},
     {MISALIGNED_LAST, CONTIGUOUS},
     MISALIGNED_LAST},
    {"sigmoid(conv2d(x, w, b, padding=1))",
     {SHAPE(1, 32, 6, 9), SHAPE(50, 32, 3, 3), SHAPE(50)},
     {MISALIGNED_LAST, CONTIGUOUS},
     CONTIGUOUS},
    {"conv3d(x, w, padding=1, stride=(1, 2, 1))",
     {SHAPE(1, 16, 5, 6, 20), SHAPE(32, 16, 3, 3, 3)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)",
     {SHAPE(2, 32, 12, 18), SHAPE(32, 32, 5, 5)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w, padding=1) + r",
     {SHAPE(4, 48, 7, 7), SHAPE(64, 48, 3, 3), SHAPE(4, 64, 7, 7)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w, stride=2)",
     {SHAPE(2, 64, 15, 36), SHAPE(32, 64, 1, 1)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"relu(conv2d(x, w, b)) + r",
     {SHAPE(3, 64, 7, 9), SHAPE(40, 64, 1, 1), SHAPE(40), SHAPE(3, 40, 7, 9)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w)", /* few columns */
     {SHAPE(2, 64, 9, 12), SHAPE(7, 64, 1, 1)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(relu(x), w, padding=1)", /* which is kept */
     {SHAPE(2, 32, 9, 17), SHAPE(40, 32, 3, 3)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"transpose(transpose(relu(conv2d(x, w, b)), 1, 2), 2, 3)", /* stored so */
     {SHAPE(2, 64, 12, 20), SHAPE(72, 64, 3, 3), SHAPE(72)},
     {CHANNELS_LAST, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w) + 1", /* more filters than a tile, and lines of places that wrap */
     {SHAPE(3, 32, 7, 9), SHAPE(200, 32, 3, 2)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w, padding=1)", /* chunks of channels that have patches each */
     {SHAPE(1, 136, 33, 9), SHAPE(64, 136, 3, 3)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    /* places side by side, or neither: copied first */
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 64, 12, 20), SHAPE(64, 64, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"relu(conv2d(x, w, b))",
     {SHAPE(2, 72, 11, 21), SHAPE(130, 72, 3, 3), SHAPE(130)},
     {CONTIGUOUS, CONTIGUOUS},
     STRIDED},
    {"conv2d(x, w, groups=3)",
     {SHAPE(2, 60, 9, 12), SHAPE(60, 20, 2, 2)},
     {CHANNELS_LAST, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1)",
     {SHAPE(2, 16, 8, 17), SHAPE(32, 16, 3, 3)},
     {SLICED, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w)", {SHAPE(40, 30, 30), SHAPE(32, 40, 3, 3)}, {STRIDED, CONTIGUOUS}, CONTIGUOUS},
    {"conv1d(x, w, b, 1, 2, 2)",
     {SHAPE(3, 16, 200), SHAPE(32, 16, 4), SHAPE(32)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv1d(x, w, stride=3)",
     {SHAPE(2, 48, 300), SHAPE(70, 48, 5)},
     {STILL_FIRST, CONTIGUOUS},
     CONTIGUOUS},
    {"sigmoid(conv_transpose2d(x, w, b))",
     {SHAPE(2, 32, 9, 20), SHAPE(32, 48, 3, 3), SHAPE(48)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv_transpose1d(x, w, padding=2, dilation=2)",
     {SHAPE(2, 64, 130), SHAPE(64, 33, 3)},
     {PADDED, CONTIGUOUS},
     CONTIGUOUS},
    /* few channels: taps along a line are channels, too */
    {"relu(conv2d(x, w, b, padding=1))",
     {SHAPE(2, 8, 12, 40), SHAPE(64, 8, 3, 3), SHAPE(64)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv2d(x, w, stride=4, padding=2)",
     {SHAPE(2, 3, 40, 80), SHAPE(32, 3, 11, 11)},
     {CONTIGUOUS, TRANSPOSED},
     CONTIGUOUS},
    {"conv2d(x, w, groups=2)",
     {SHAPE(2, 6, 9, 36), SHAPE(64, 3, 5, 3)},
     {STRIDED, CONTIGUOUS},
     CHANNELS_LAST},
    {"conv_transpose2d(x, w)",
     {SHAPE(1, 6, 9, 30), SHAPE(6, 24, 4, 4)},
     {PADDED, CONTIGUOUS},
     CONTIGUOUS},
    {"conv3d(x, w)",
     {SHAPE(2, 3, 5, 6, 30), SHAPE(16, 3, 3, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    /* one place along a padded dim; what stands still along lines */
    {"conv2d(x, w, padding=1)",
     {SHAPE(1, 16, 1, 64), SHAPE(32, 16, 3, 3)},
     {CONTIGUOUS, CONTIGUOUS},
     CONTIGUOUS},
    {"conv2d(x, w, padding=1) - s",
     {SHAPE(1, 16, 3, 21), SHAPE(32, 16, 3, 3), SHAPE(1, 32, 3, 1)},
     {CHANNELS_LAST, CONTIGUOUS},
     CHANNELS_LAST},
};

static void check_exact(og_dtype dtype)
{
    test_random random = test_random_named("exact windows of halves");
    case_share = 2;
    case_options.precision = OGIVE_FLOAT32;
    for (size_t i = 0; i < TEST_COUNT(exact); i++)
        check_exact_sums(exact[i].text, exact[i].shapes, exact[i].layouts, dtype, exact[i].result,
                         &random);
    case_options.precision = OGIVE_STRICT;
    end_cases("exact windows of halves");
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

/* ---- other sums -------------------------------------------------------------------------- */

/* conv2d(x, w, padding=1) of `batch` images, 3 x 3 taps, float16; results as float32. */
typedef struct {
    int64_t batch, channels, filters, height, width;
    bool is_last; /* channels of x are side by side */
} images;

static int64_t count_x(const images *of)
{
    return of->batch * of->channels * of->height * of->width;
}

static int64_t count_y(const images *of)
{
    return of->batch * of->filters * of->height * of->width;
}

/* x and w are numbers of float16, in contiguous order. */
static void run_images(const images *of, const float *x, const float *w, float *y)
{
    const ogive_options options = {.size = sizeof options, .precision = OGIVE_FLOAT32};
    const int64_t places = of->height * of->width, c = of->channels;
    const int64_t shapes[][4] = {{of->batch, c, of->height, of->width},
                                 {of->filters, c, 3, 3},
                                 {of->batch, of->filters, of->height, of->width}};
    const int64_t strides[] = {c * places, 1, of->width * c, c};
    const int64_t counts[] = {count_x(of), of->filters * c * 9, count_y(of)};
    const float *host[] = {x, w, NULL};
    test_tensor at[3];
    DLTensor *tensors[3];
    void *memory[3];
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        uint16_t *halves = calloc((size_t)counts[t] * 2, sizeof *halves);
        assert_non_null(halves);
        memory[t] = device_alloc((size_t)counts[t] * (t == 2 ? 4 : 2));
        for (int64_t i = 0; host[t] && i < counts[t]; i++) {
            int64_t to = t == 0 && of->is_last
                             ? i / places / c * c * places + i % places * c + i / places % c
                             : i;
            halves[to] = og_f16_from_f32(host[t][i]);
        }
        device_copy(memory[t], halves, (size_t)counts[t] * (t == 2 ? 4 : 2));
        tensors[t] =
            test_tensor_init(&at[t], memory[t], dlpack_of(t == 2 ? OG_FLOAT32 : OG_FLOAT16), 4,
                             shapes[t], t == 0 && of->is_last ? strides : NULL);
        tensors[t]->device = cuda_device;
        free(halves);
    }
    TEST_OK(device_run(find_formula("float32(conv2d(x, w, padding=1))"), tensors, 2, tensors + 2, 1,
                       &options, &error),
            error);
    device_copy(y, memory[2], (size_t)count_y(of) * sizeof *y);
    for (int t = 0; t < 3; t++)
        device_free(memory[t]);
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

static float *new_halves(int64_t count, test_random *random)
{
    float *to = malloc((size_t)count * sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; i < count; i++)
        to[i] = og_f32_from_f16(og_f16_from_f32((float)test_random_range(random, -1, 1)));
    return to;
}

/* Each step of 16 k truncates 17 terms 25 bits below the greatest, and their sum; then float16 rounds.
 * Of more than 8192 k the steps of a chain of 512 count, and the chains. */
static void check_error(const images *of, const float *x, const float *w, const float *y)
{
    const int64_t places = of->height * of->width;
    double worst = 0;
    for (int64_t i = 0; i < count_y(of); i++) {
        double sum, scale;
        int64_t image = i / places / of->filters, filter = i / places % of->filters;
        find_place(of, x + image * of->channels * places, w + filter * of->channels * 9,
                   i % places / of->width, i % of->width, &sum, &scale);
        double slack = fabs(y[i] - sum) - fabs(sum) * 0x1p-11,
               e = slack > 0 ? slack / scale : slack;
        worst = e > worst || e != e ? e : worst;
    }
    printf("%lld channels, %lld filters: %.1e of sum |x||w|\n", (long long)of->channels,
           (long long)of->filters, worst);
    assert_true(worst <= 0x1p-23 * 9.0 * (double)of->channels / 16);
}

/* Sums are within a bound of float64; an image has the bits that it has without others, and those
 * that it has however it lies. */
static void test_accuracy(void **unused)
{
    static const images shapes[] = {{2, 16, 32, 9, 18, true},
                                    {3, 64, 130, 8, 16, false},
                                    {2, 100, 64, 7, 33, true},
                                    {2, 3, 64, 9, 20, false},
                                    {1, 960, 16, 3, 5, true}};
    test_random random = test_random_named("accuracy");
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        images of = shapes[i], one = of;
        float *x = new_halves(count_x(&of), &random);
        float *w = new_halves(of.filters * of.channels * 9, &random);
        float *y = new_halves(count_y(&of), &random), *z = new_halves(count_y(&of), &random);
        run_images(&of, x, w, y);
        one.batch = 1;
        one.is_last = !of.is_last;
        const int64_t last = of.batch - 1;
        run_images(&one, x + last * count_x(&one), w, z);
        if (device_computes()) {
            check_error(&of, x, w, y);
            assert_memory_equal(z, y + last * count_y(&one), (size_t)count_y(&one) * sizeof *z);
        }
        free(x);
        free(w);
        free(y);
        free(z);
    }
}

/* Infinity and NaN are seen by the windows that see them, and by no others. */
static void test_strangers(void **unused)
{
    static const float strange[] = {INFINITY, NAN, -INFINITY};
    test_random random = test_random_named("strangers");
    (void)unused;
    for (int form = 0; form < 3; form++) {
        const images of = {2, form == 2 ? 3 : 24, 40, 10, 20, form == 0};
        const int64_t places = of.height * of.width, image = of.channels * places;
        float *x = new_halves(count_x(&of), &random);
        float *w = new_halves(of.filters * of.channels * 9, &random);
        float *plain = new_halves(count_y(&of), &random), *y = new_halves(count_y(&of), &random);
        bool seen[2 * 10 * 20] = {false};
        run_images(&of, x, w, plain);
        for (size_t i = 0; i < TEST_COUNT(strange); i++) {
            int64_t at = (int64_t)test_random_below(&random, (uint64_t)count_x(&of));
            x[at] = strange[i];
            for (int64_t h = -1; h <= 1; h++)
                for (int64_t v = -1; v <= 1; v++) {
                    int64_t line = at % places / of.width + h, place = at % of.width + v;
                    if (line >= 0 && line < of.height && place >= 0 && place < of.width)
                        seen[(at / image * of.height + line) * of.width + place] = true;
                }
        }
        run_images(&of, x, w, y);
        for (int64_t i = 0; device_computes() && i < count_y(&of); i++)
            if (seen[i / places / of.filters * places + i % places])
                assert_true(!(fabsf(y[i]) < INFINITY));
            else
                assert_true(y[i] == plain[i]);
        free(x);
        free(w);
        free(plain);
        free(y);
    }
}

/* ---- what is planned --------------------------------------------------------------------- */

/* A convolution that keeps the image's size, of so many taps along lines and columns. */
static ogive_plan *plan_images(const char *text, const char *arch, const int64_t x[4],
                               int64_t filters, int64_t taps, bool is_last)
{
    const ogive_options options = {.size = sizeof options, .cuda_arch = arch};
    const int64_t shapes[][4] = {
        {x[0], x[1], x[2], x[3]}, {filters, x[1], taps, taps}, {x[0], filters, x[2], x[3]}};
    int64_t strides[3][4];
    test_tensor at[3];
    DLTensor *tensors[3];
    ogive_plan *plan;
    ogive_error error;
    for (int t = 0; t < 3; t++) {
        const int64_t c = shapes[t][1], h = shapes[t][2], w = shapes[t][3];
        memcpy(strides[t], (int64_t[]){c * h * w, 1, w * c, c}, sizeof strides[t]);
        tensors[t] = test_tensor_init(&at[t], NULL, dlpack_of(OG_BFLOAT16), 4, shapes[t],
                                      is_last ? strides[t] : NULL);
        tensors[t]->device = cuda_device;
    }
    TEST_OK(ogive_plan_create(find_formula(text), (const DLTensor *const *)tensors, 2,
                              (const DLTensor *const *)tensors + 2, 1, &options, &plan, &error),
            error);
    return plan;
}

/* 1x1 convolutions run on tensor cores however their tensors lie, or do not. */
static void test_points(void **unused)
{
    static const struct {
        const char *arch;
        int64_t x[4], filters;
        const char *body;
    } kinds[] = {
        {"90a", {2, 256, 56, 56}, 8, "product on tensor cores"},
        {"90a", {2, 256, 3, 3}, 64, "product, the CPU's order"},
        {"80", {2, 256, 56, 56}, 64, "product on tensor cores (mma.sync)"},
        {"80", {2, 256, 7, 7}, 512, "product, the CPU's order"},
    };
    static char text[1 << 16];
    (void)unused;
    for (size_t i = 0; i < 2 * TEST_COUNT(kinds); i++) {
        ogive_plan *plan = plan_images("conv2d(x, w)", kinds[i / 2].arch, kinds[i / 2].x,
                                       kinds[i / 2].filters, 1, i % 2);
        ogive_plan_explain(plan, text, sizeof text);
        if (!strstr(text, kinds[i / 2].body))
            fail_msg("case %zu: expected '%s' in\n%s", i, kinds[i / 2].body, text);
        ogive_plan_release(plan);
    }
}

/* What functions select of halves is kept as halves before a product, so that tensor cores take it; what
 * they compute is not. */
static void test_selected(void **unused)
{
    static const struct {
        const char *text;
        bool is_half;
    } kinds[] = {
        {"conv2d(relu(x), w, padding=1)", true},
        {"conv2d(clamp(-abs(x), -6, 0.5), w, padding=1)", true},
        {"conv2d(where(x > 2, x, maximum(x, 0)), w, padding=1)", true},
        {"conv2d(max_pool2d(relu(x), 3, 1, 1), w, padding=1)", true},
        {"conv2d(clamp(x, 0, 0.3), w, padding=1)", false}, /* which is no half */
        {"conv2d(x * x, w, padding=1)", false},
    };
    static char text[1 << 16];
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(kinds); i++) {
        ogive_plan *plan =
            plan_images(kinds[i].text, "90a", (int64_t[]){2, 64, 16, 16}, 64, 3, i % 2);
        ogive_plan_explain(plan, text, sizeof text);
        if (!strstr(text, "convolution on tensor cores") == kinds[i].is_half)
            fail_msg("%s:\n%s", kinds[i].text, text);
        ogive_plan_release(plan);
    }
}

/* ---- what is compiled -------------------------------------------------------------------- */

/* Compiles conv2d(x, w, padding=1) and a tail of tensors whose channels lie side by side; packs: whose
 * results are packed. */
static void compile_last(const char *text, const int64_t x[4], int64_t filters, bool packs)
{
    ogive_plan *plan = plan_images(text, "90a", x, filters, 3, true);
    size_t length = ogive_plan_source(plan, 0, NULL, 0);
    char *source = malloc(length + 1);
    assert_non_null(source);
    ogive_plan_source(plan, 0, source, length + 1);
    assert_non_null(strstr(source, "#define OG_LAST 1\n"));
    assert_non_null(strstr(source, "#define OG_COPIES_IMAGE 0\n"));
    assert_true(!strstr(source, "#define OG_PACKS 1\n") == !packs);
    compile_source(text, source, "90a", 0);
    free(source);
    ogive_plan_release(plan);
}

static void test_compile(void **unused)
{
    static const struct {
        const char *text;
        case_shape shapes[2];
    } kinds[] = {
        {"conv2d(x, w, padding=1)", {SHAPE(64, 64, 128, 128), SHAPE(64, 64, 3, 3)}},
        {"tanh(conv2d(x, w, stride=2))", {SHAPE(16, 512, 57, 57), SHAPE(512, 512, 3, 3)}},
        {"conv3d(x, w)", {SHAPE(8, 48, 64, 64, 64), SHAPE(24, 48, 3, 3, 3)}},
        {"conv1d(x, w)", {SHAPE(32, 64, 131072), SHAPE(128, 64, 3)}},
        {"conv2d(x, w, padding=1)", {SHAPE(4, 1280, 32, 32), SHAPE(640, 1280, 3, 3)}},
        {"conv2d(x, w, stride=4)", {SHAPE(256, 3, 224, 224), SHAPE(96, 3, 11, 11)}},
    };
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(kinds); i++)
        if (test_has_turn(i, 0, 2))
            compile_spilt(kinds[i].text, kinds[i].shapes, OG_BFLOAT16, "90a", "og_convolve_halves",
                          0);
    compile_last("conv2d(x, w, padding=1)", (int64_t[]){64, 64, 56, 56}, 64, true);
    compile_last("conv2d(x, w, padding=1)", (int64_t[]){64, 256, 14, 14}, 256, true);
    compile_last("tanh(conv2d(x, w, padding=1))", (int64_t[]){8, 64, 512, 1024}, 128, false);
    compile_last("gelu(conv2d(x, w, padding=1))", (int64_t[]){64, 64, 56, 56}, 64, false);
    compile_last("conv2d(x, w, padding=1)", (int64_t[]){4, 1280, 32, 32}, 640, true);
    compile_last("relu(conv2d(x, w, padding=1) + x)", (int64_t[]){64, 64, 56, 56}, 64, false);
    compile_last("relu(conv2d(x, w, padding=1) * 2 + x)", (int64_t[]){64, 128, 28, 28}, 128, false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_float16), cmocka_unit_test(test_exact_bfloat16),
        cmocka_unit_test(test_accuracy),      cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_points),        cmocka_unit_test(test_selected),
    };
    const struct CMUnitTest compiled[] = {cmocka_unit_test(test_compile)};
    if (only_compiles())
        return cmocka_run_group_tests(compiled, NULL, NULL);
    return CASE_RUN(tests);
}
