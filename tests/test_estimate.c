/* SPDX-License-Identifier: MIT
 *
 * test_estimate.c - ogive_estimate(): the side that was measured to be faster is the one that is
 * estimated to be, and times are within a factor of two.
 */
#include "ogive.h"
#include "test.h"

static const DLDataType float32 = {kDLFloat, 32, 1}, bfloat16 = {kDLBfloat, 16, 1},
                        float16 = {kDLFloat, 16, 1}, float64 = {kDLFloat, 64, 1};

static ogive_work product(DLDataType dtype, int64_t batch, int64_t m, int64_t n, int64_t k,
                          int32_t across)
{
    double elements = (double)batch * ((double)m * (double)k + (double)m * (double)n) +
                      (double)batch * (double)n * (double)k;
    return (ogive_work){.size = sizeof(ogive_work),
                        .kind = OGIVE_WORK_PRODUCT,
                        .dtype = dtype,
                        .bytes = elements * dtype.bits / 8,
                        .batch = batch,
                        .m = m,
                        .n = n,
                        .k = k,
                        .across = across};
}

/* Milliseconds as docs/cuda.md and bench/results have them. */
static const struct {
    const char *machine;
    DLDataType dtype;
    int64_t batch, m, n, k;
    int32_t across;
    double ogive, pytorch;
} measured[] = {
    {"sm_90", {kDLFloat, 32, 1}, 1, 8192, 8192, 8192, 0, 5.77, 22.6},
    {"sm_90", {kDLFloat, 32, 1}, 1, 8192, 8192, 8192, 1, 5.94, 22.2},
    {"sm_90", {kDLFloat, 32, 1}, 1, 4096, 4096, 4096, 0, 0.752, 2.78},
    {"sm_90", {kDLFloat, 32, 1}, 1, 64, 8192, 8192, 0, 0.100, 0.229},
    {"sm_90", {kDLFloat, 32, 1}, 1, 8, 8192, 8192, 0, 0.084, 0.146},
    {"sm_90", {kDLFloat, 32, 1}, 64, 512, 512, 512, 1, 0.160, 0.414},
    {"sm_90", {kDLFloat, 32, 1}, 512, 128, 128, 64, 1, 0.0461, 0.0669},
    {"sm_90", {kDLBfloat, 16, 1}, 1, 64, 8192, 8192, 0, 0.0416, 0.0469},
    {"cpu", {kDLFloat, 32, 1}, 1, 1, 4096, 4096, 0, 1.504, 3.035},
    {"cpu", {kDLFloat, 16, 1}, 1, 128, 4096, 4096, 0, 20.5, 89.3},
    {"cpu-bf16", {kDLBfloat, 16, 1}, 1, 128, 4096, 4096, 0, 21.3, 10.4},
    {"cpu-bf16", {kDLBfloat, 16, 1}, 1, 1, 4096, 4096, 0, 0.729, 1.246},
};

/* Sums over columns of rows x columns, microseconds (bench/results/2026-11-17-H200-backend.txt). */
static void test_sums_across_memory(void **state)
{
    (void)state;
    static const struct {
        double rows, columns, ogive, pytorch;
    } sums[] = {{16384, 1024, 19.6, 38.5},
                {4096, 2048, 13.2, 18.4},
                {4096, 8192, 32.5, 35.9},
                {16384, 4096, 46.6, 57.0}};
    for (size_t i = 0; i < TEST_COUNT(sums); i++) {
        ogive_work work = {.size = sizeof work,
                           .kind = OGIVE_WORK_ROWS,
                           .dtype = bfloat16,
                           .bytes = 2 * (sums[i].rows + 1) * sums[i].columns,
                           .across = 1};
        double ours = 1e6 * ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work);
        double theirs = 1e6 * ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work);
        assert_true(ours < theirs && ours > sums[i].ogive / 2 && ours < sums[i].ogive * 2 &&
                    theirs > sums[i].pytorch / 2 && theirs < sums[i].pytorch * 2);
        work.across = 0; /* along memory PyTorch's are as fast */
        assert_true(ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work) >=
                    ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work));
    }
}

static void test_measured_products(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(measured); i++) {
        ogive_work work = product(measured[i].dtype, measured[i].batch, measured[i].m,
                                  measured[i].n, measured[i].k, measured[i].across);
        double ours = 1e3 * ogive_estimate(measured[i].machine, OGIVE_BY_OGIVE, &work);
        double theirs = 1e3 * ogive_estimate(measured[i].machine, OGIVE_BY_PYTORCH, &work);
        bool good = (ours < theirs) == (measured[i].ogive < measured[i].pytorch) &&
                    ours > measured[i].ogive * 0.5 && ours < measured[i].ogive * 2 &&
                    theirs > measured[i].pytorch * 0.5 && theirs < measured[i].pytorch * 2;
        if (!good)
            fail_msg("product %zu: estimated %g and %g ms, measured %g and %g", i, ours, theirs,
                     measured[i].ogive, measured[i].pytorch);
    }
}

static void test_products_that_were_not_measured(void **state)
{
    (void)state;
    const struct {
        const char *machine;
        ogive_work work;
    } cases[] = {
        {"sm_90", product(float32, 1, 4, 128, 64, 0)},
        {"sm_90", product(float32, 1, 4, 100, 128, 0)},
        {"sm_90", product(float32, 1, 7, 256, 128, 1)},
        {"sm_90", product(float32, 511, 128, 128, 64, 1)},
        {"sm_90", product(float32, 512, 127, 128, 128, 1)},
        {"sm_90", product(bfloat16, 1, 1024, 8192, 8192, 0)},
        {"sm_90", product(float16, 1, 64, 1024, 1024, 0)},
        {"sm_90", product(float64, 1, 1024, 1024, 1024, 0)},
        {"sm_80", product(float32, 1, 1024, 1024, 1024, 1)},
        {"sm_80", product(bfloat16, 1, 64, 8192, 8192, 0)},
        {"sm", product(float32, 1, 1024, 1024, 1024, 0)},
        {"tpu", product(float32, 1, 1024, 1024, 1024, 0)},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        if (ogive_estimate(cases[i].machine, OGIVE_BY_OGIVE, &cases[i].work) != 0)
            fail_msg("case %zu has an estimate", i);
}

/* A convolution of float32 as bench/results/2026-11-16-H200-convolution-rates.txt has it, of 8 channels
 * -convolutions-tensor.txt, with phases 2026-11-17-H200-transposed.txt: places of results, filters,
 * channels; milliseconds. Of 64 filters -18-H200-convolutions-cells.txt. */
static const struct {
    ogive_windows_form form;
    int32_t dims, exact;
    int64_t places[3], images, groups, filters, channels, taps, strides;
    double read, ogive, pytorch;
    int64_t span; /* if there is dilation */
} windows_measured[] = {
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 254, 254}, 64, 1, 128, 64, 9, 1, 268e6, 3.72, 3.80, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 1, {1, 254, 254}, 64, 1, 128, 64, 9, 1, 268e6, 3.72, 14.6, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 254, 254}, 128, 1, 64, 16, 9, 1, 134e6, 2.54, 3.09, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 254, 254}, 128, 1, 64, 8, 9, 1, 67e6, 2.22, 2.71, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 28, 28}, 64, 1, 128, 128, 9, 1, 6.4e6, 0.1185, 0.0911, 0},
    {OGIVE_WINDOWS_STRIDED, 2, 0, {1, 28, 28}, 64, 1, 128, 128, 9, 1, 25.7e6, 0.379, 0.140, 0},
    {OGIVE_WINDOWS_POINTS, 2, 0, {1, 56, 56}, 64, 1, 64, 256, 1, 1, 51e6, 0.100, 0.0741, 0},
    {OGIVE_WINDOWS_PLAIN, 3, 0, {30, 62, 62}, 16, 1, 64, 32, 27, 1, 67e6, 2.00, 1.58, 0},
    {OGIVE_WINDOWS_PLAIN, 3, 0, {13, 29, 29}, 1024, 1, 16, 3, 64, 1, 50e6, 3.81, 9.84, 0},
    {OGIVE_WINDOWS_TRANSPOSED, 3, 0, {32, 128, 128}, 16, 1, 64, 16, 27, 1, 134e6, 4.08, 6.22, 0},
    {OGIVE_WINDOWS_PHASES, 3, 0, {63, 63, 63}, 16, 1, 64, 32, 125, 8, 16.8e6, 2.17, 40.1, 0},
    {OGIVE_WINDOWS_PHASES, 2, 0, {1, 256, 256}, 16, 1, 64, 64, 16, 4, 16.8e6, 0.482, 0.396, 0},
    {OGIVE_WINDOWS_PHASES, 2, 0, {1, 256, 256}, 128, 1, 64, 64, 9, 4, 134e6, 1.72, 2.63, 0},
    {OGIVE_WINDOWS_PHASES, 2, 0, {1, 128, 128}, 16, 1, 128, 256, 9, 4, 16.8e6, 0.326, 0.275, 0},
    {OGIVE_WINDOWS_PHASES, 3, 0, {47, 95, 95}, 16, 1, 128, 64, 27, 8, 56.6e6, 5.53, 4.70, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 28, 28}, 64, 32, 4, 4, 9, 1, 6.4e6, 0.308, 0.0824, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 508, 504}, 8, 1, 64, 32, 45, 1, 67e6, 1.85, 2.33, 0},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 508, 496}, 8, 1, 64, 32, 45, 1, 67e6, 2.50, 2.29, 225},
    {OGIVE_WINDOWS_PLAIN, 2, 0, {1, 56, 56}, 64, 1, 64, 64, 9, 1, 12.8e6, 0.127, 0.145, 0},
    {OGIVE_WINDOWS_TRANSPOSED, 2, 0, {1, 514, 518}, 8, 1, 64, 64, 21, 1, 134e6, 1.95, 2.27, 0},
    {OGIVE_WINDOWS_TRANSPOSED, 2, 0, {1, 1026, 1026}, 8, 1, 64, 64, 9, 1, 537e6, 4.48, 5.19, 0},
    {OGIVE_WINDOWS_DEPTHWISE, 2, 0, {1, 56, 56}, 64, 96, 1, 1, 49, 1, 19.3e6, 0.202, 0.636, 0},
};

/* Of bfloat16, with channels last and without: 2026-11-17-H200-convolutions-patches.txt. */
static const struct {
    ogive_windows_form form;
    int32_t dims;
    int64_t places[3], images, filters, channels, taps;
    double read, last[2], plain[2]; /* ms of Ogive, of PyTorch */
} halves_measured[] = {
    {OGIVE_WINDOWS_PLAIN, 2, {1, 510, 1022}, 8, 128, 64, 9, 268e6, {0.831, 0.953}, {1.68, 2.47}},
    {OGIVE_WINDOWS_PLAIN, 2, {1, 508, 504}, 8, 64, 32, 45, 67e6, {0.523, 0.955}, {0.802, 1.33}},
    {OGIVE_WINDOWS_PLAIN,
     2,
     {1, 56, 56},
     64,
     64,
     64,
     9,
     12.8e6,
     {0.0317, 0.0414},
     {0.0716, 0.0955}},
    {OGIVE_WINDOWS_PLAIN,
     2,
     {1, 14, 14},
     64,
     256,
     256,
     9,
     3.2e6,
     {0.0334, 0.0326},
     {0.0693, 0.0523}},
    {OGIVE_WINDOWS_STRIDED, 2, {1, 55, 55}, 256, 96, 3, 121, 38e6, {0.832, 2.05}, {0.911, 2.51}},
    {OGIVE_WINDOWS_TRANSPOSED,
     2,
     {1, 1026, 1026},
     8,
     64,
     64,
     9,
     537e6,
     {0.860, 1.22},
     {3.44, 3.19}},
    {OGIVE_WINDOWS_PLAIN, 2, {1, 1022, 1022}, 16, 128, 16, 9, 268e6, {1.62, 2.72}, {6.31, 7.24}},
    {OGIVE_WINDOWS_TRANSPOSED,
     2,
     {1, 130, 260},
     64,
     128,
     64,
     15,
     134e6,
     {0.778, 0.766},
     {1.26, 1.57}},
    {OGIVE_WINDOWS_POINTS, 2, {1, 1024, 1024}, 16, 128, 64, 1, 1.07e9, {1.90, 1.83}, {2.47, 1.91}},
};

static void test_measured_halves(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * TEST_COUNT(halves_measured); i++) {
        const bool is_last = i % 2;
        const double *want = is_last ? halves_measured[i / 2].last : halves_measured[i / 2].plain;
        ogive_work work = {.size = sizeof work, .kind = OGIVE_WORK_WINDOWS, .dtype = bfloat16};
        work.windows = (ogive_windows){.form = halves_measured[i / 2].form,
                                       .dims = halves_measured[i / 2].dims,
                                       .channels = halves_measured[i / 2].channels,
                                       .taps = halves_measured[i / 2].taps,
                                       .channels_last = is_last};
        work.batch = 1;
        work.m = halves_measured[i / 2].images;
        for (int d = 0; d < 3; d++)
            work.m *= work.windows.places[d] = halves_measured[i / 2].places[d];
        work.n = halves_measured[i / 2].filters;
        work.k = halves_measured[i / 2].channels * halves_measured[i / 2].taps;
        work.bytes = 2 * ((double)work.m * (double)work.n + halves_measured[i / 2].read);
        double ours = 1e3 * ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work);
        double theirs = 1e3 * ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work);
        double ratio = want[0] / want[1];
        bool agrees = (ours < theirs) == (ratio < 1) || (ratio > 0.88 && ratio < 1.13);
        if (!agrees || ours < want[0] / 2.1 || ours > want[0] * 2.1 || theirs < want[1] / 2.1 ||
            theirs > want[1] * 2.1)
            fail_msg("halves %zu: estimated %g and %g ms, measured %g and %g", i, ours, theirs,
                     want[0], want[1]);
    }
}

static ogive_work measured_windows(size_t i)
{
    double results = (double)windows_measured[i].groups * (double)windows_measured[i].filters;
    int64_t m = windows_measured[i].images;
    ogive_work work = {.size = sizeof work, .kind = OGIVE_WORK_WINDOWS, .dtype = float32};
    work.windows = (ogive_windows){.form = windows_measured[i].form,
                                   .dims = windows_measured[i].dims,
                                   .channels = windows_measured[i].channels,
                                   .taps = windows_measured[i].taps,
                                   .span = windows_measured[i].span,
                                   .exact = windows_measured[i].exact};
    for (int d = 0; d < 3; d++)
        m *= work.windows.places[d] = windows_measured[i].places[d];
    work.batch = windows_measured[i].groups;
    work.m = m;
    work.n = windows_measured[i].filters;
    work.k = windows_measured[i].channels * windows_measured[i].taps / windows_measured[i].strides;
    work.bytes = 4 * (results * (double)m + windows_measured[i].read);
    return work;
}

/* The faster is the one that was, but where both were within a tenth. */
static void test_measured_windows(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(windows_measured); i++) {
        ogive_work work = measured_windows(i);
        double ours = 1e3 * ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work);
        double theirs = 1e3 * ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work);
        double ratio = windows_measured[i].ogive / windows_measured[i].pytorch;
        bool agrees = (ours < theirs) == (ratio < 1) || (ratio > 0.9 && ratio < 1.1);
        if (!agrees || ours < windows_measured[i].ogive / 2 ||
            ours > windows_measured[i].ogive * 2 || theirs < windows_measured[i].pytorch / 2 ||
            theirs > windows_measured[i].pytorch * 2)
            fail_msg("windows %zu: estimated %g and %g ms, measured %g and %g", i, ours, theirs,
                     windows_measured[i].ogive, windows_measured[i].pytorch);
    }
}

static void test_windows_that_were_not_measured(void **state)
{
    (void)state;
    ogive_work work = measured_windows(0);
    assert_true(ogive_estimate("sm_80", OGIVE_BY_OGIVE, &work) == 0);
    assert_true(ogive_estimate("sm_80", OGIVE_BY_PYTORCH, &work) > 0);
    work.windows.channels_last = 1;
    assert_true(ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work) == 0);
    assert_true(ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work) > 0);
    work.windows.channels_last = 0;
    work.dtype = bfloat16;
    work.windows.form = OGIVE_WINDOWS_DEPTHWISE;
    assert_true(ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work) == 0);
    assert_true(ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work) > 0);
    work.dtype = float32;
    work.windows.form = (ogive_windows_form)99;
    assert_true(ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work) == 0);
}

/* Gradients by the weight of 64 x 64 filters of 3 x 3, 64 images of 56 x 56, in ms, with channels last and
 * without: 2026-11-17-H200-weights.txt. cuDNN's of float32 without TF32. */
static void test_gradients_by_weight(void **state)
{
    static const struct {
        int bits, channels_last;
        double ogive, pytorch;
    } kinds[] = {{16, 1, 0.0376, 0.0496},
                 {16, 0, 0.0778, 0.0965},
                 {32, 1, 0.301, 0.56},
                 {32, 0, 0.248, 0.564}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ogive_work work = measured_windows(0);
        work.dtype = kinds[i].bits == 16 ? bfloat16 : float32;
        work.batch = 1;
        work.m = 64 * 56 * 56;
        work.n = 64;
        work.k = 64 * 9;
        work.bytes = 2.0 * 64 * 64 * 56 * 56 * kinds[i].bits / 8;
        work.windows.form = OGIVE_WINDOWS_BY_WEIGHT;
        work.windows.channels = 64;
        work.windows.taps = 9;
        work.windows.exact = 1;
        work.windows.channels_last = kinds[i].channels_last;
        const double ours = ogive_estimate("sm_90", OGIVE_BY_OGIVE, &work) * 1e3;
        const double theirs = ogive_estimate("sm_90", OGIVE_BY_PYTORCH, &work) * 1e3;
        assert_true(ours > kinds[i].ogive / 2 && ours < kinds[i].ogive * 2);
        assert_true(theirs > kinds[i].pytorch / 2 && theirs < kinds[i].pytorch * 2);
        assert_true(ours < theirs);
    }
}

/* Of the CPU's no convolution is faster alone; maxima of windows are. */
static void test_windows_on_a_cpu(void **state)
{
    (void)state;
    for (int form = OGIVE_WINDOWS_PLAIN; form <= OGIVE_WINDOWS_BY_WEIGHT; form++) {
        ogive_work work = measured_windows(0);
        work.windows.form = (ogive_windows_form)form;
        assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) >
                    ogive_estimate("cpu", OGIVE_BY_PYTORCH, &work));
    }
    ogive_work work = {.size = sizeof work, .kind = OGIVE_WORK_WINDOWS, .dtype = float32};
    work.windows = (ogive_windows){.form = OGIVE_WINDOWS_MAXIMA, .dims = 2, .taps = 4};
    work.operations = 1e6;
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) > 0);
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) <
                ogive_estimate("cpu", OGIVE_BY_PYTORCH, &work));
}

static void test_calls(void **state)
{
    (void)state;
    const char *const machines[] = {"cpu", "cpu-bf16", "sm", "sm_80", "sm_90"};
    for (size_t i = 0; i < TEST_COUNT(machines); i++)
        for (int kind = OGIVE_WORK_ELEMENTS; kind < OGIVE_WORK_PRODUCT; kind++) {
            ogive_work work = {
                .size = sizeof work, .kind = (ogive_work_kind)kind, .dtype = float32};
            double call = ogive_estimate(machines[i], OGIVE_BY_OGIVE, &work);
            work.follows = 1;
            double launch = ogive_estimate(machines[i], OGIVE_BY_OGIVE, &work);
            assert_true(0 < launch && launch < call && call < 1e-5);
            work.bytes = 1e9;
            assert_true(ogive_estimate(machines[i], OGIVE_BY_OGIVE, &work) > 2e-4);
            assert_true(ogive_estimate(machines[i], OGIVE_BY_PYTORCH, &work) > 2e-4);
        }
    /* One function of a tensor is PyTorch's, two are not. */
    ogive_work work = {.size = sizeof work, .dtype = float32, .bytes = 8e6, .operations = 1e6};
    double one = ogive_estimate("cpu", OGIVE_BY_PYTORCH, &work);
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) >= one);
    work.operations *= 2;
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) < 2 * one);
}

static void test_recording(void **state)
{
    (void)state;
    ogive_work work = {.size = sizeof work, .dtype = float32, .bytes = 8}, alone = work;
    alone.records = 1;
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &alone) >
                ogive_estimate("cpu", OGIVE_BY_OGIVE, &work));
    assert_true(ogive_estimate("cpu", OGIVE_BY_PYTORCH, &alone) ==
                ogive_estimate("cpu", OGIVE_BY_PYTORCH, &work));
}

static void test_refusals(void **state)
{
    (void)state;
    ogive_work work = {.size = sizeof work, .dtype = float32, .bytes = 8};
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) > 0);
    assert_true(ogive_estimate(NULL, OGIVE_BY_OGIVE, &work) == 0);
    assert_true(ogive_estimate("cpux", OGIVE_BY_OGIVE, &work) == 0);
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, NULL) == 0);
    work.size = 8;
    assert_true(ogive_estimate("cpu", OGIVE_BY_OGIVE, &work) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_products),
        cmocka_unit_test(test_sums_across_memory),
        cmocka_unit_test(test_products_that_were_not_measured),
        cmocka_unit_test(test_measured_windows),
        cmocka_unit_test(test_measured_halves),
        cmocka_unit_test(test_windows_that_were_not_measured),
        cmocka_unit_test(test_gradients_by_weight),
        cmocka_unit_test(test_windows_on_a_cpu),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_recording),
        cmocka_unit_test(test_refusals),
    };
    return TEST_RUN(tests);
}
