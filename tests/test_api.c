/* SPDX-License-Identifier: MIT
 *
 * test_api.c - ogive.h, function by function: what is refused and with which
 * words, what plans say. Running is in test_api_run.c, what may share memory in
 * test_aliasing.c, threads and the cache in test_sharing.c.
 */
#include "api_case.h"

/* ---- version, statuses, functions ---------------------------------------------- */

static void test_version(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", OGIVE_VERSION_MAJOR, OGIVE_VERSION_MINOR,
             OGIVE_VERSION_PATCH);
    assert_string_equal(ogive_version(), text);
}

static void test_status_names(void **state)
{
    (void)state;
    static const char *const names[] = {"ok",       "formula",     "shape",  "dtype",
                                        "argument", "unsupported", "memory", "device"};
    for (size_t i = 0; i < TEST_COUNT(names); i++)
        assert_string_equal(ogive_status_name((ogive_status)i), names[i]);
    assert_non_null(ogive_status_name((ogive_status)8));
    assert_non_null(ogive_status_name((ogive_status)-1));
}

static void test_functions(void **state)
{
    (void)state;
    size_t count = ogive_function_count();
    assert_in_range(count, 50, 1000);
    ogive_function_info info;
    for (size_t i = 0; i < count; i++) {
        TEST_OK(ogive_function(i, &info, &error), error);
        assert_true(info.name[0] && info.group[0]);
        assert_true(memchr(info.signature, 0, sizeof info.signature) != NULL);
        assert_true((info.max_ulp < 0) == (info.hash == 0));
        assert_true(info.max_ulp < 4);
        for (size_t j = 0; j < i; j++) {
            ogive_function_info other;
            TEST_OK(ogive_function(j, &other, NULL), error);
            assert_string_not_equal(info.name, other.name);
        }
    }
    TEST_OK(ogive_function(0, &info, &error), error);
    assert_string_equal(info.name, "sigmoid");
    assert_string_equal(info.signature, "input");
    assert_string_equal(info.group, "activation");
    assert_null(info.meaning);
    TEST_FAILS(ogive_function(count, &info, &error), OGIVE_ARGUMENT, error, "expected 0 to");
    TEST_FAILS(ogive_function(0, NULL, &error), OGIVE_ARGUMENT, error, "info");
    assert_int_equal(ogive_function(SIZE_MAX, &info, NULL), OGIVE_ARGUMENT);
}

static void test_levels(void **state)
{
    (void)state;
    size_t count = 0;
    bool found = false;
    for (; ogive_cpu_level_name(count); count++)
        found |= strcmp(ogive_cpu_level_name(count), ogive_cpu_level()) == 0;
    assert_true(count >= 1 && found);
    assert_null(ogive_cpu_level_name(count));
    assert_null(ogive_cpu_level_name(SIZE_MAX));
    assert_true(ogive_cpu_threads() >= 1);
}

/* ---- formulas -------------------------------------------------------------------- */

static void test_formula_create(void **state)
{
    (void)state;
    ogive_formula *formula = (ogive_formula *)&error;
    REFUSED(ogive_formula_create("x", OGIVE_TEXT, NULL, &error), OGIVE_ARGUMENT, "out is NULL");
    REFUSED(ogive_formula_create(NULL, OGIVE_TEXT, &formula, &error), OGIVE_ARGUMENT,
            "text is NULL");
    assert_null(formula);
    assert_int_equal(error.offset, -1);
    formula = (ogive_formula *)&error;
    assert_int_equal(ogive_formula_create("x +", OGIVE_TEXT, &formula, &error), OGIVE_FORMULA);
    assert_null(formula);
    assert_int_equal(error.status, OGIVE_FORMULA);
    assert_int_equal(error.offset, 3);
    assert_int_equal(ogive_formula_create("x +", OGIVE_TEXT, &formula, NULL), OGIVE_FORMULA);
    assert_int_equal(ogive_formula_create("", 0, &formula, &error), OGIVE_FORMULA);
    assert_int_equal(ogive_formula_create("1 + 2", OGIVE_TEXT, &formula, &error), OGIVE_FORMULA);
    assert_null(formula);
    TEST_FAILS(ogive_formula_create("x + sigmod(x)", OGIVE_TEXT, &formula, &error), OGIVE_FORMULA,
               error, "did you mean 'sigmoid'?");
    assert_int_equal(error.offset, 4);
}

static void test_formula_text(void **state)
{
    (void)state;
    /* A length ends the text where no NUL is; the text is not kept. */
    char text[] = "b * fc.weight + b, xyz";
    ogive_formula *formula;
    TEST_OK(ogive_formula_create(text, 20, &formula, &error), error);
    memset(text, '?', sizeof text);
    assert_int_equal(ogive_formula_input_count(formula), 3);
    assert_string_equal(ogive_formula_input_name(formula, 0), "b");
    assert_string_equal(ogive_formula_input_name(formula, 1), "fc.weight");
    assert_string_equal(ogive_formula_input_name(formula, 2), "x");
    assert_null(ogive_formula_input_name(formula, 3));
    assert_null(ogive_formula_input_name(formula, SIZE_MAX));
    assert_int_equal(ogive_formula_result_count(formula), 2);
    assert_ptr_equal(ogive_formula_retain(formula), formula);
    ogive_formula_release(formula);
    assert_string_equal(ogive_formula_input_name(formula, 0), "b");
    ogive_formula_release(formula);
    ogive_formula_release(NULL);
    assert_null(ogive_formula_retain(NULL));
    assert_int_equal(ogive_formula_input_count(NULL), 0);
    assert_int_equal(ogive_formula_result_count(NULL), 0);
    assert_null(ogive_formula_input_name(NULL, 0));
}

/* ---- plans ------------------------------------------------------------------------ */

static void test_plan_arguments(void **state)
{
    (void)state;
    ogive_formula *f = make("x * y, x");
    float data[6] = {0};
    const DLTensor *x = TEST_TENSOR(data, test_float32, 2, 3);
    const DLTensor *in[] = {x, x}, *out[] = {x, x}, *missing[] = {x, NULL};
    ogive_plan *plan = (ogive_plan *)&error;
#define PLAN(formula, inputs, count, outputs, output_count, options)                               \
    ogive_plan_create(formula, inputs, count, outputs, output_count, options, &plan, &error)
    REFUSED(ogive_plan_create(f, in, 2, NULL, 0, NULL, NULL, &error), OGIVE_ARGUMENT,
            "out is NULL");
    REFUSED(PLAN(NULL, in, 2, NULL, 0, NULL), OGIVE_ARGUMENT, "formula is NULL");
    assert_null(plan);
    plan = (ogive_plan *)&error;
    REFUSED(PLAN(f, in, 1, NULL, 0, NULL), OGIVE_ARGUMENT,
            "the formula has 2 inputs, 1 were given");
    assert_null(plan);
    REFUSED(PLAN(f, in, 3, NULL, 0, NULL), OGIVE_ARGUMENT,
            "the formula has 2 inputs, 3 were given");
    REFUSED(PLAN(f, NULL, 2, NULL, 0, NULL), OGIVE_ARGUMENT,
            "the formula has 2 inputs, 0 were given");
    REFUSED(PLAN(f, missing, 2, NULL, 0, NULL), OGIVE_ARGUMENT, "input 'y' is NULL");
    REFUSED(PLAN(f, in, 2, out, 1, NULL), OGIVE_ARGUMENT,
            "the formula has 2 results, 1 outputs were given");
    REFUSED(PLAN(f, in, 2, missing, 2, NULL), OGIVE_ARGUMENT, "output '1' is NULL");
    ogive_options options = {.size = 4};
    char text[200];
    snprintf(text, sizeof text, "options.size is 4: expected sizeof(ogive_options), %zu",
             sizeof options);
    REFUSED(PLAN(f, in, 2, out, 2, &options), OGIVE_ARGUMENT, text);
    options = (ogive_options){.size = sizeof options, .threads = -1};
    REFUSED(PLAN(f, in, 2, out, 2, &options), OGIVE_ARGUMENT,
            "options.threads is -1: expected 0 or more");
    options = (ogive_options){.size = sizeof options, .cpu_level = "pentium"};
    TEST_FAILS(PLAN(f, in, 2, out, 2, &options), OGIVE_ARGUMENT, error, "'pentium'");
    assert_null(plan);
    options = (ogive_options){
        .size = sizeof options, .threads = 1000000, .cpu_level = ogive_cpu_level_name(0)};
    TEST_OK(PLAN(f, in, 2, out, 2, &options), error);
    ogive_plan_release(plan);
    options = (ogive_options){.size = sizeof options, .precision = (ogive_precision)7};
    REFUSED(PLAN(f, in, 2, out, 2, &options), OGIVE_ARGUMENT,
            "options.precision is 7: expected OGIVE_FLOAT32, OGIVE_STRICT or OGIVE_TF32");
    options = (ogive_options){.size = sizeof options, .cuda_arch = "90a"};
    REFUSED(PLAN(f, in, 2, out, 2, &options), OGIVE_ARGUMENT,
            "options.cuda_arch is '90a', but the tensors are on the CPU");
    /* No error wanted: the same statuses. */
    assert_int_equal(ogive_plan_create(f, in, 1, NULL, 0, NULL, &plan, NULL), OGIVE_ARGUMENT);
    ogive_formula_release(f);
#undef PLAN
}

static void test_tensors_refused(void **state)
{
    (void)state;
    ogive_formula *f = make("fc.weight + 1");
    ogive_plan *plan;
    float data[6] = {0};
    test_tensor t;
    const int64_t shape[8] = {2, 3, 1, 1, 1, 1, 1, 1};
    const DLTensor *in[] = {test_tensor_init(&t, data, test_float32, 2, shape, NULL)};
#define REFUSE(want_status, want_message)                                                          \
    do {                                                                                           \
        REFUSED(ogive_plan_create(f, in, 1, NULL, 0, NULL, &plan, &error), want_status,            \
                want_message);                                                                     \
        assert_null(plan);                                                                         \
        const DLTensor *out[] = {TEST_TENSOR(data, test_float32, 2, 3)};                           \
        REFUSED(ogive_run(f, in, 1, out, 1, NULL, &error), want_status, want_message);             \
    } while (0)
    t.tensor.ndim = 9;
    int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    t.tensor.shape = nine;
    REFUSE(OGIVE_SHAPE, "input 'fc.weight' has 9 dims: expected 0 to 8");
    t.tensor.ndim = -1;
    REFUSE(OGIVE_SHAPE, "input 'fc.weight' has -1 dims: expected 0 to 8");
    t.tensor.ndim = 2;
    t.tensor.shape = NULL;
    REFUSE(OGIVE_ARGUMENT, "input 'fc.weight' has 2 dims and no shape");
    t.tensor.shape = t.shape;
    t.shape[1] = -3;
    REFUSE(OGIVE_SHAPE, "input 'fc.weight' has a negative extent: -3 in dim 1");
    t.shape[0] = t.shape[1] = (int64_t)1 << 40;
    REFUSE(OGIVE_SHAPE,
           "input 'fc.weight' of shape (1099511627776, 1099511627776) is larger than any memory");
    t.shape[0] = 2;
    t.shape[1] = 3;
    t.tensor.strides = t.strides;
    t.strides[0] = INT64_MAX;
    t.strides[1] = 1;
    REFUSE(OGIVE_SHAPE, "input 'fc.weight' of shape (2, 3) is larger than any memory");
    t.strides[0] = INT64_MIN;
    REFUSE(OGIVE_SHAPE, "input 'fc.weight' of shape (2, 3) is larger than any memory");
    t.tensor.strides = NULL;
    t.tensor.device = (DLDevice){(DLDeviceType)8, 0};
    REFUSE(OGIVE_UNSUPPORTED,
           "input 'fc.weight' is on a device of DLPack type 8: expected the CPU (1) or CUDA (2)");
    t.tensor.device = (DLDevice){kDLCPU, 0};
    static const struct {
        DLDataType type;
        const char *name;
    } types[] = {{{kDLInt, 4, 1}, "int4"},           {{kDLUInt, 16, 1}, "uint16"},
                 {{kDLUInt, 64, 1}, "uint64"},       {{kDLBool, 8, 2}, "bool8 x 2 lanes"},
                 {{kDLComplex, 64, 1}, "complex64"}, {{kDLComplex, 128, 1}, "complex128"},
                 {{kDLFloat, 8, 1}, "float8"},       {{kDLFloat, 32, 4}, "float32 x 4 lanes"}};
    for (size_t i = 0; i < TEST_COUNT(types); i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "input 'fc.weight' is %s: expected float32, float16, bfloat16, float64, bool, "
                 "uint8 or an integer of 8 to 64 bits",
                 types[i].name);
        t.tensor.dtype = types[i].type;
        REFUSE(OGIVE_DTYPE, text);
    }
    ogive_formula_release(f);
#undef REFUSE
}

/* Shapes near the ends of int64 are refused or planned, never wrapped around. */
static void test_giant_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t x[3], x_strides[3], y[3], y_strides[3];
        ogive_status status;
    } cases[] = {
        /* (2^40, 1) + (2^40): 2^80 elements */
        {"x + y",
         {1, (int64_t)1 << 40, 1},
         {0, 0, 0},
         {1, 1, (int64_t)1 << 40},
         {0, 0, 0},
         OGIVE_SHAPE},
        {"sum(x + y)",
         {1, (int64_t)1 << 40, 1},
         {0, 0, 0},
         {1, 1, (int64_t)1 << 40},
         {0, 0, 0},
         OGIVE_SHAPE},
        /* 2^62 elements are countable, their bytes are not */
        {"x + y", {1, 1, (int64_t)1 << 62}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, OGIVE_SHAPE},
        {"sum(x + y)", {1, 1, (int64_t)1 << 62}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, OGIVE_OK},
        /* nothing, with strides that no product of which fits */
        {"x + y", {0, 5, 5}, {INT64_MAX, INT64_MAX, INT64_MAX}, {1, 1, 1}, {0, 0, 0}, OGIVE_OK},
        {"sum(x + y, dim=1)", {5, 0, 5}, {INT64_MIN, 3, INT64_MAX}, {1, 1, 1}, {7, 7, 7}, OGIVE_OK},
        {"x + y",
         {0, (int64_t)1 << 40, (int64_t)1 << 40},
         {0, 0, 0},
         {1, 1, 1},
         {0, 0, 0},
         OGIVE_OK},
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_formula *f = make(cases[i].text);
        ogive_plan *plan;
        test_tensor x, y;
        const DLTensor *in[] = {
            test_tensor_init(&x, NULL, test_float64, 3, cases[i].x, cases[i].x_strides),
            test_tensor_init(&y, NULL, test_float64, 3, cases[i].y, cases[i].y_strides)};
        ogive_status status = ogive_plan_create(f, in, 2, NULL, 0, NULL, &plan, &error);
        if (status != cases[i].status)
            fail_msg("case %zu: %s: %s", i, ogive_status_name(status), error.message);
        ogive_plan_release(plan);
        ogive_formula_release(f);
    }
}

static void test_outputs_refused(void **state)
{
    (void)state;
    ogive_formula *f = make("x + 1");
    float data[12] = {0};
    const DLTensor *in[] = {TEST_TENSOR(data, test_float32, 2, 3)};
    test_tensor t;
    ogive_plan *plan;
    static const struct {
        DLDataType dtype;
        int rank;
        int64_t shape[3], strides[3];
        ogive_status status;
        const char *message;
    } cases[] = {
        {{kDLFloat, 32, 1},
         2,
         {3, 2},
         {2, 1},
         OGIVE_SHAPE,
         "output '0' has shape (3, 2): expected (2, 3)"},
        {{kDLFloat, 32, 1}, 1, {6}, {1}, OGIVE_SHAPE, "output '0' has shape (6,): expected (2, 3)"},
        {{kDLFloat, 32, 1},
         3,
         {1, 2, 3},
         {6, 3, 1},
         OGIVE_SHAPE,
         "output '0' has shape (1, 2, 3): expected (2, 3)"},
        {{kDLFloat, 16, 1},
         2,
         {2, 3},
         {3, 1},
         OGIVE_DTYPE,
         "output '0' is float16: expected float32"},
        {{kDLInt, 32, 1}, 2, {2, 3}, {3, 1}, OGIVE_DTYPE, "output '0' is int32: expected float32"},
        {{kDLFloat, 32, 1},
         2,
         {2, 3},
         {0, 1},
         OGIVE_ARGUMENT,
         "output '0' overlaps itself: shape (2, 3) with strides (0, 1)"},
        {{kDLFloat, 32, 1},
         2,
         {2, 3},
         {2, 1},
         OGIVE_ARGUMENT,
         "output '0' overlaps itself: shape (2, 3) with strides (2, 1)"},
        {{kDLFloat, 32, 1},
         2,
         {2, 3},
         {1, 1},
         OGIVE_ARGUMENT,
         "output '0' overlaps itself: shape (2, 3) with strides (1, 1)"},
        {{kDLFloat, 32, 1},
         2,
         {2, 3},
         {-2, 1},
         OGIVE_ARGUMENT,
         "output '0' overlaps itself: shape (2, 3) with strides (-2, 1)"},
        {{kDLFloat, 32, 1}, 2, {2, 3}, {1, 2}, OGIVE_OK, ""},
        {{kDLFloat, 32, 1}, 2, {2, 3}, {-3, -1}, OGIVE_OK, ""},
        {{kDLFloat, 32, 1}, 2, {2, 3}, {5, 2}, OGIVE_OK, ""}, /* rows that interleave */
    };
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const DLTensor *out[] = {test_tensor_init(&t, data, cases[i].dtype, cases[i].rank,
                                                  cases[i].shape, cases[i].strides)};
        ogive_status status = ogive_plan_create(f, in, 1, out, 1, NULL, &plan, &error);
        if (status != cases[i].status || strcmp(error.message, cases[i].message) != 0)
            fail_msg("case %zu: %s: %s", i, ogive_status_name(status), error.message);
        ogive_plan_release(plan);
    }
    ogive_formula_release(f);
}

static void test_plan_results(void **state)
{
    (void)state;
    ogive_formula *f = make("x + 1, sum(x, dim=1), amax(x)");
    const DLTensor *in[] = {TEST_TENSOR(NULL, test_float16, 2, 3, 4)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 1, NULL, 0, NULL, &plan, &error), error);
    ogive_formula_release(f); /* plans outlive their formula */
    static const struct {
        int rank;
        int64_t shape[3], strides[3];
    } want[] = {{3, {2, 3, 4}, {12, 4, 1}}, {2, {2, 4}, {4, 1}}, {0, {0}, {0}}};
    for (size_t r = 0; r < 3; r++) {
        const DLTensor *result = ogive_plan_result(plan, r);
        assert_null(result->data);
        assert_int_equal(result->device.device_type, kDLCPU);
        assert_int_equal(result->ndim, want[r].rank);
        assert_memory_equal(&result->dtype, &test_float16, sizeof test_float16);
        assert_non_null(result->strides);
        for (int d = 0; d < want[r].rank; d++) {
            assert_int_equal(result->shape[d], want[r].shape[d]);
            assert_int_equal(result->strides[d], want[r].strides[d]);
        }
    }
    assert_null(ogive_plan_result(plan, 3));
    assert_null(ogive_plan_result(NULL, 0));
    assert_ptr_equal(ogive_plan_retain(plan), plan);
    ogive_plan_release(plan);
    assert_true(ogive_plan_kernel_count(plan) >= 1);
    ogive_plan_release(plan);
    ogive_plan_release(NULL);
    assert_null(ogive_plan_retain(NULL));
    assert_int_equal(ogive_plan_workspace(NULL), 0);
    assert_int_equal(ogive_plan_kernel_count(NULL), 0);
}

/* Bytes of a product's factors: each element in memory once, however often it is used. */
static void test_product_traffic(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k, x[2], w[2]; /* strides */
        int64_t read;
    } cases[] = {
        {5, 7, 3, {3, 1}, {3, 1}, 4 * (15 + 21)},
        {5, 7, 3, {1, 0}, {3, 1}, 4 * (5 + 21)}, /* one number a row */
        {5, 7, 3, {0, 1}, {0, 0}, 4 * (3 + 1)},
        {5, 7, 0, {0, 0}, {0, 0}, 0},
        {(int64_t)1 << 30, 2, (int64_t)1 << 32, {1, 1}, {0, 1}, INT64_MAX}, /* rows overlap */
    };
    ogive_formula *f = make("linear(x, w)");
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        const int64_t shapes[][2] = {{cases[i].m, cases[i].k}, {cases[i].n, cases[i].k}};
        test_tensor at[2];
        const DLTensor *in[] = {
            test_tensor_init(&at[0], NULL, test_float32, 2, shapes[0], cases[i].x),
            test_tensor_init(&at[1], NULL, test_float32, 2, shapes[1], cases[i].w)};
        ogive_plan *plan;
        ogive_kernel_info info;
        TEST_OK(ogive_plan_create(f, in, 2, NULL, 0, NULL, &plan, &error), error);
        TEST_OK(ogive_plan_kernel(plan, 0, &info, &error), error);
        assert_int_equal(info.bytes_read, cases[i].read);
        assert_int_equal(info.bytes_written, 4 * cases[i].m * cases[i].n);
        assert_true(info.multiply_seconds == 0); /* not known of a CPU */
        ogive_plan_release(plan);
    }
    ogive_formula_release(f);
}

/* Windows overlap, whether they are seen as strides or (padding) not. */
static void test_window_traffic(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t read, written;
    } cases[] = {
        {"max_pool2d(x, 3, 1)", 2 * 9 * 10, 2 * 7 * 8},
        {"max_pool2d(x, 3, 1, 1)", 2 * 9 * 10, 2 * 9 * 10},
        {"conv2d(x, w)", 2 * 9 * 10 + 4 * 2 * 3 * 3, 4 * 7 * 8},
        {"conv2d(x, d, groups=2)", 2 * 9 * 10 + 2 * 3 * 3, 2 * 7 * 8},
    };
    const DLTensor *w = TEST_TENSOR(NULL, test_float32, 4, 2, 3, 3);
    const DLTensor *d = TEST_TENSOR(NULL, test_float32, 2, 1, 3, 3);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        ogive_formula *f = make(cases[i].text);
        const DLTensor *in[] = {TEST_TENSOR(NULL, test_float32, 2, 9, 10),
                                strstr(cases[i].text, "groups") ? d : w};
        ogive_plan *plan;
        ogive_kernel_info info;
        TEST_OK(
            ogive_plan_create(f, in, ogive_formula_input_count(f), NULL, 0, NULL, &plan, &error),
            error);
        TEST_OK(ogive_plan_kernel(plan, 0, &info, &error), error);
        assert_int_equal(info.bytes_read, 4 * cases[i].read);
        assert_int_equal(info.bytes_written, 4 * cases[i].written);
        ogive_plan_release(plan);
        ogive_formula_release(f);
    }
}

static void test_kernels_and_explain(void **state)
{
    (void)state;
    ogive_formula *f = make("softmax(x, dim=1)");
    const DLTensor *in[] = {TEST_TENSOR(NULL, test_float32, 30, 40)};
    ogive_plan *plan;
    TEST_OK(ogive_plan_create(f, in, 1, NULL, 0, NULL, &plan, &error), error);
    assert_int_equal(ogive_plan_kernel_count(plan), 1);
    ogive_kernel_info info;
    TEST_OK(ogive_plan_kernel(plan, 0, &info, &error), error);
    assert_true(strncmp(info.name, "rows ", 5) == 0);
    assert_int_equal(info.elements, 1200);
    assert_int_equal(info.bytes_read, 4800);
    assert_int_equal(info.bytes_written, 4800);
    assert_true(info.passes >= 2 && info.threads >= 1);
    assert_int_equal(ogive_plan_kernel(plan, 1, &info, &error), OGIVE_ARGUMENT);
    assert_int_equal(ogive_plan_kernel(plan, 0, NULL, &error), OGIVE_ARGUMENT);
    assert_int_equal(ogive_plan_kernel(NULL, 0, &info, &error), OGIVE_ARGUMENT);

    size_t length = ogive_plan_explain(plan, NULL, 0);
    assert_in_range(length, 50, 100000);
    char *whole = malloc(length + 1), *cut = malloc(length + 8);
    assert_int_equal(ogive_plan_explain(plan, whole, length + 1), length);
    assert_int_equal(strlen(whole), length);
    for (size_t capacity = 1; capacity <= length + 4; capacity += capacity < 20 ? 1 : 37) {
        memset(cut, '#', length + 8);
        assert_int_equal(ogive_plan_explain(plan, cut, capacity), length);
        size_t kept = capacity - 1 < length ? capacity - 1 : length;
        assert_memory_equal(cut, whole, kept);
        assert_int_equal(cut[kept], 0);
        assert_int_equal(cut[capacity], '#');
    }
    char text[4] = "###";
    assert_int_equal(ogive_plan_explain(NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
    free(whole);
    free(cut);
    ogive_plan_release(plan);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_functions),      cmocka_unit_test(test_levels),
        cmocka_unit_test(test_formula_create), cmocka_unit_test(test_formula_text),
        cmocka_unit_test(test_plan_arguments), cmocka_unit_test(test_tensors_refused),
        cmocka_unit_test(test_giant_shapes),   cmocka_unit_test(test_outputs_refused),
        cmocka_unit_test(test_plan_results),   cmocka_unit_test(test_product_traffic),
        cmocka_unit_test(test_window_traffic), cmocka_unit_test(test_kernels_and_explain),
    };
    return TEST_RUN(tests);
}
