/* SPDX-License-Identifier: MIT
 *
 * test_cuda_host_graph.c - what only a real driver shows: runs captured into a CUDA
 * graph that outlives its plan, planning while a stream is captured, streams that do not
 * wait for each other, pinned and managed memory, a host pointer that does not end the
 * context, and a kernel that does. Skipped on the stand-in libraries, which have no graphs.
 */
#include "test.h"

#include "cuda/host/cuda_driver.h"

#include <dlfcn.h>

/* ---- more of the driver ------------------------------------------------------------------ */

typedef struct graph graph;
typedef struct executable executable;

static struct {
    int (*create_stream)(og_cu_stream **stream, unsigned flags);
    int (*destroy_stream)(og_cu_stream *stream);
    int (*begin)(og_cu_stream *stream, int mode);
    int (*end)(og_cu_stream *stream, graph **out);
    int (*instantiate)(executable **out, graph *from, unsigned long long flags);
    int (*launch)(executable *what, og_cu_stream *stream);
    int (*destroy_executable)(executable *what);
    int (*destroy_graph)(graph *what);
    int (*get_current)(og_cu_context **context);
    int (*allocate_host)(void **out, size_t bytes, unsigned flags);
    int (*free_host)(void *data);
    int (*allocate_managed)(og_cu_address *out, size_t bytes, unsigned flags);
} cuda;

static const og_cuda_device *device;
static ogive_error error;

static bool find(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);
    memcpy(to, &found, sizeof found);
    return found != NULL;
}

/* 1: there is a real device. */
static bool is_real(void)
{
    const og_cuda_driver_state *driver = og_cuda_driver();
    if (driver->problem[0])
        return false;
    void *library = dlopen(driver->path, RTLD_NOW | RTLD_NOLOAD);
    return library && find(library, "cuStreamCreate", &cuda.create_stream) &&
           find(library, "cuStreamDestroy_v2", &cuda.destroy_stream) &&
           find(library, "cuStreamBeginCapture_v2", &cuda.begin) &&
           find(library, "cuStreamEndCapture", &cuda.end) &&
           find(library, "cuGraphInstantiateWithFlags", &cuda.instantiate) &&
           find(library, "cuGraphLaunch", &cuda.launch) &&
           find(library, "cuGraphExecDestroy", &cuda.destroy_executable) &&
           find(library, "cuGraphDestroy", &cuda.destroy_graph) &&
           find(library, "cuCtxGetCurrent", &cuda.get_current) &&
           find(library, "cuMemHostAlloc", &cuda.allocate_host) &&
           find(library, "cuMemFreeHost", &cuda.free_host) &&
           find(library, "cuMemAllocManaged", &cuda.allocate_managed);
}

/* Each test enters the device's context itself, as a program of the driver API does. */
static int enter(void **unused)
{
    (void)unused;
    if (!is_real())
        return 0;
    return og_cuda_find_device(0, &device, &error) || og_cuda_enter(device, &error);
}

static int leave(void **unused)
{
    (void)unused;
    return device ? (int)og_cuda_leave(device, OGIVE_OK, &error) : 0;
}

#define NEEDS_DEVICE()                                                                             \
    do {                                                                                           \
        (void)unused;                                                                              \
        if (!device)                                                                               \
            skip();                                                                                \
    } while (0)

/* The context that was current is so still. */
static void check_context(void)
{
    og_cu_context *now = NULL;
    assert_int_equal(cuda.get_current(&now), 0);
    assert_ptr_equal(now, device->context);
}

/* ---- a formula ---------------------------------------------------------------------------- */

enum { ROWS = 256, COLUMNS = 256, N = ROWS * COLUMNS };
static const DLDevice gpu = {kDLCUDA, 0};
/* Several kernels and a workspace. */
static const char sums[] = "x + sum(x, dim=0) + sum(x, dim=1, keepdim=true)";
/* On tensor cores, by launches that overlap; exact, so that it has the CPU's bits. */
static const char product[] = "linear(x, x)";

typedef struct {
    const char *text;
    ogive_formula *formula;
    test_tensor x, y;
    float *host; /* x's values */
} problem;

static float value_of(int i, int round)
{
    return (float)((i * 7 + round * 13) % 101) * 0.125f - 4;
}

static void fill(problem *p, int round)
{
    for (int i = 0; i < N; i++)
        p->host[i] = value_of(i, round);
    TEST_OK(ogive_device_copy(gpu, p->x.tensor.data, p->host, N * sizeof(float), &error), error);
}

static void start(problem *p, const char *text)
{
    p->text = text;
    TEST_OK(ogive_formula_create(text, OGIVE_TEXT, &p->formula, &error), error);
    test_tensor *const tensors[] = {&p->x, &p->y};
    for (int i = 0; i < 2; i++) {
        test_tensor_init(tensors[i], NULL, test_float32, 2, (int64_t[]){ROWS, COLUMNS}, NULL);
        tensors[i]->tensor.device = gpu;
        TEST_OK(ogive_device_allocate(gpu, N * sizeof(float), &tensors[i]->tensor.data, &error),
                error);
    }
    p->host = malloc(N * sizeof(float));
    assert_non_null(p->host);
    fill(p, 0);
}

static void end(problem *p)
{
    ogive_formula_release(p->formula);
    TEST_OK(ogive_device_free(gpu, p->x.tensor.data, &error), error);
    TEST_OK(ogive_device_free(gpu, p->y.tensor.data, &error), error);
    free(p->host);
}

/* y is the CPU's result of host, bit by bit. */
static void check(const problem *p, const void *y)
{
    float *want = malloc(N * sizeof(float)), *got = malloc(N * sizeof(float));
    test_tensor in, out;
    ogive_formula *formula;
    assert_true(want && got);
    TEST_OK(ogive_formula_create(p->text, OGIVE_TEXT, &formula, &error), error);
    const DLTensor *inputs[] = {
        test_tensor_init(&in, p->host, test_float32, 2, (int64_t[]){ROWS, COLUMNS}, NULL)};
    const DLTensor *outputs[] = {
        test_tensor_init(&out, want, test_float32, 2, (int64_t[]){ROWS, COLUMNS}, NULL)};
    TEST_OK(ogive_run(formula, inputs, 1, outputs, 1, NULL, &error), error);
    TEST_OK(ogive_device_copy(gpu, got, y, N * sizeof(float), &error), error);
    for (int i = 0; i < N; i++)
        if (!test_same_f32(got[i], want[i]))
            fail_msg("element %d: got %s, want %s", i, test_text_f32(got[i]),
                     test_text_f32(want[i]));
    ogive_formula_release(formula);
    free(want);
    free(got);
}

static ogive_status run(problem *p, void *stream)
{
    const ogive_options options = {.size = sizeof options, .stream = stream};
    return ogive_run(p->formula, (const DLTensor *const[]){&p->x.tensor}, 1,
                     (const DLTensor *const[]){&p->y.tensor}, 1, &options, &error);
}

/* ---- tests ----------------------------------------------------------------------------------- */

enum { NON_BLOCKING = 1, GLOBAL = 0 };

static void replay(problem *p, graph *captured, og_cu_stream *stream)
{
    executable *ready = NULL;
    assert_int_equal(cuda.instantiate(&ready, captured, 0), 0);
    for (int round = 1; round < 4; round++) {
        fill(p, round);
        assert_int_equal(cuda.launch(ready, stream), 0);
        TEST_OK(ogive_device_synchronize(gpu, stream, &error), error);
        check(p, p->y.tensor.data);
    }
    assert_int_equal(cuda.destroy_executable(ready), 0);
}

/* plan_run() captured; the plan is gone when the graph runs. */
static void capture_plan(const char *text)
{
    problem p;
    og_cu_stream *stream = NULL;
    graph *captured = NULL;
    ogive_plan *plan = NULL;
    void *workspace = NULL;
    start(&p, text);
    assert_int_equal(cuda.create_stream(&stream, NON_BLOCKING), 0);
    TEST_OK(ogive_plan_create(p.formula, (const DLTensor *const[]){&p.x.tensor}, 1, NULL, 0, NULL,
                              &plan, &error),
            error);
    TEST_OK(ogive_device_allocate(gpu, ogive_plan_workspace(plan), &workspace, &error), error);
    assert_int_equal(cuda.begin(stream, GLOBAL), 0);
    TEST_OK(ogive_plan_run(plan, (const void *const[]){p.x.tensor.data},
                           (void *const[]){p.y.tensor.data}, workspace, stream, &error),
            error);
    assert_int_equal(cuda.end(stream, &captured), 0);
    ogive_plan_release(plan);
    check_context();
    replay(&p, captured, stream);
    assert_int_equal(cuda.destroy_graph(captured), 0);
    assert_int_equal(cuda.destroy_stream(stream), 0);
    TEST_OK(ogive_device_free(gpu, workspace, &error), error);
    end(&p);
}

static void test_captured_plan(void **unused)
{
    NEEDS_DEVICE();
    capture_plan(sums);
    capture_plan(product);
}

/* ogive_run() captured, workspace and all, planning for the first time while the stream
 * is captured in the strictest mode. */
static void capture_run(const char *text)
{
    problem p;
    og_cu_stream *stream = NULL;
    graph *captured = NULL;
    start(&p, text);
    assert_int_equal(cuda.create_stream(&stream, NON_BLOCKING), 0);
    assert_int_equal(cuda.begin(stream, GLOBAL), 0);
    ogive_status status = run(&p, stream);
    assert_int_equal(cuda.end(stream, &captured), 0);
    if (status != OGIVE_OK)
        fail_msg("%s", error.message);
    check_context();
    replay(&p, captured, stream);
    assert_int_equal(cuda.destroy_graph(captured), 0);
    assert_int_equal(cuda.destroy_stream(stream), 0);
    end(&p);
}

static void test_captured_run(void **unused)
{
    NEEDS_DEVICE();
    capture_run(sums);
    capture_run(product);
}

/* Many runs on two streams at once, of one formula: no workspace is shared. */
static void run_two_streams(const char *text)
{
    problem p[2];
    og_cu_stream *streams[2];
    for (int i = 0; i < 2; i++) {
        start(&p[i], text);
        fill(&p[i], 50 + i);
        assert_int_equal(cuda.create_stream(&streams[i], NON_BLOCKING), 0);
    }
    ogive_formula *own = p[1].formula;
    p[1].formula = p[0].formula;
    for (int round = 0; round < 200; round++)
        for (int i = 0; i < 2; i++)
            TEST_OK(run(&p[i], streams[i]), error);
    p[1].formula = own;
    for (int i = 0; i < 2; i++) {
        TEST_OK(ogive_device_synchronize(gpu, streams[i], &error), error);
        check(&p[i], p[i].y.tensor.data);
        assert_int_equal(cuda.destroy_stream(streams[i]), 0);
    }
    check_context();
    end(&p[0]);
    end(&p[1]);
}

static void test_two_streams(void **unused)
{
    NEEDS_DEVICE();
    run_two_streams(sums);
    run_two_streams(product);
}

/* Memory of other kinds: read where the device can, refused where it cannot. */
static void test_pointers(void **unused)
{
    NEEDS_DEVICE();
    problem p;
    void *pinned = NULL, *kept;
    og_cu_address managed = 0;
    start(&p, sums);
    TEST_OK(run(&p, NULL), error);
    kept = p.x.tensor.data;
    p.x.tensor.data = p.host;
    TEST_FAILS(run(&p, NULL), OGIVE_ARGUMENT, error, "the data of input 'x'");
    TEST_FAILS(run(&p, NULL), OGIVE_ARGUMENT, error, "ordinary host memory");
    p.x.tensor.data = kept;
    TEST_OK(run(&p, NULL), error); /* the context lives */
    check(&p, p.y.tensor.data);

    assert_int_equal(cuda.allocate_host(&pinned, N * sizeof(float), 0), 0);
    memcpy(pinned, p.host, N * sizeof(float));
    p.x.tensor.data = pinned;
    TEST_OK(run(&p, NULL), error);
    check(&p, p.y.tensor.data);
    enum { ATTACH_GLOBAL = 1 };
    assert_int_equal(cuda.allocate_managed(&managed, N * sizeof(float), ATTACH_GLOBAL), 0);
    p.x.tensor.data = (void *)(uintptr_t)managed;
    memcpy(p.x.tensor.data, p.host, N * sizeof(float));
    TEST_OK(run(&p, NULL), error);
    check(&p, p.y.tensor.data);
    p.x.tensor.data = kept;
    assert_int_equal(cuda.free_host(pinned), 0);
    TEST_OK(ogive_device_free(gpu, (void *)(uintptr_t)managed, &error), error);
    check_context();
    end(&p);
}

#define EXPECT_LOST(call) TEST_FAILS(call, OGIVE_DEVICE, error, "its context is lost")

/* A tensor that is shorter than it says, by more than any GPU has: the kernel ends the
 * context, and every call says so. The CPU still works. */
static void test_lost_context(void **unused)
{
    NEEDS_DEVICE();
    const int64_t shape[] = {(int64_t)1 << 38}; /* a terabyte */
    test_tensor in;
    problem p;
    ogive_formula *formula;
    void *data = NULL;
    start(&p, sums);
    TEST_OK(ogive_formula_create("x * 3", OGIVE_TEXT, &formula, &error), error);
    DLTensor *x = test_tensor_init(&in, NULL, test_float32, 1, shape, NULL);
    x->device = gpu;
    TEST_OK(ogive_device_allocate(gpu, 1 << 20, &x->data, &error), error);
    const DLTensor *const both[] = {x}; /* in place */
    TEST_OK(ogive_run(formula, both, 1, both, 1, NULL, &error), error);
    EXPECT_LOST(ogive_device_synchronize(gpu, NULL, &error));
    EXPECT_LOST(ogive_device_synchronize(gpu, NULL, &error));
    EXPECT_LOST(run(&p, NULL)); /* has to be planned first */
    EXPECT_LOST(ogive_run(formula, both, 1, both, 1, NULL, &error));
    EXPECT_LOST(ogive_device_allocate(gpu, 64, &data, &error));
    assert_null(data);
    EXPECT_LOST(ogive_device_copy(gpu, p.host, x->data, 64, &error));
    EXPECT_LOST(ogive_device_free(gpu, x->data, &error));
    const DLTensor *inputs[] = {
        test_tensor_init(&in, p.host, test_float32, 1, (int64_t[]){N}, NULL)};
    TEST_OK(ogive_run(formula, inputs, 1, inputs, 1, NULL, &error), error);
    for (int i = 0; i < N; i++)
        assert_true(p.host[i] == 3 * value_of(i, 0));
    ogive_formula_release(formula);
    ogive_formula_release(p.formula);
    free(p.host);
    device = NULL; /* nothing is left to be left */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_captured_run), /* first: nothing is planned yet */
        TEST(test_captured_plan), TEST(test_two_streams),
        TEST(test_pointers),      TEST(test_lost_context), /* last: nothing works after it */
    };
    return TEST_RUN(tests);
}
