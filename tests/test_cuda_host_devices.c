/* SPDX-License-Identifier: MIT
 *
 * test_cuda_host_devices.c - the CUDA backend's host side on the stand-in libraries: two
 * GPUs and their streams, a run that may only launch, memory that runs out, contexts that
 * are lost, sources that are dumped.
 */
#include "cuda_host.h"

#include <pthread.h>

static const DLDevice second = {kDLCUDA, 1};

/* Streams of the fake driver: see fake_driver.c. */
static void *stream_of(DLDevice device)
{
    return (void *)(uintptr_t)(256 * device.device_id + 8);
}

/* ogive_run() of text on device, with a stream; the CPU's bits. */
static ogive_status run_on(DLDevice device, const char *text, void *stream)
{
    test_tensor in, out;
    DLTensor *x = describe(&in, device, N), *y = describe(&out, device, N);
    ogive_formula *formula = parse(text);
    const ogive_options options = {.size = sizeof options, .stream = stream};
    float values[N], want[N], got[N];
    for (int i = 0; i < N; i++)
        values[i] = value_of(i);
    x->device = y->device = (DLDevice){kDLCPU, 0};
    x->data = values;
    y->data = want;
    CHECK_OK(ogive_run(formula, (const DLTensor *const[]){x}, 1, (const DLTensor *const[]){y}, 1,
                       NULL, &error));
    x->device = y->device = device;
    x->data = upload(device);
    y->data = upload(device);
    ogive_status status = ogive_run(formula, (const DLTensor *const[]){x}, 1,
                                    (const DLTensor *const[]){y}, 1, &options, &error);
    if (status == OGIVE_OK) {
        CHECK_OK(ogive_device_copy(device, got, y->data, sizeof got, &error));
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
    ogive_error kept = error;
    (void)ogive_device_free(device, x->data, NULL);
    (void)ogive_device_free(device, y->data, NULL);
    error = kept;
    ogive_formula_release(formula);
    return status;
}

/* ---- two GPUs ----------------------------------------------------------------------------- */

/* Each has modules and memory of its own, whichever is current and comes first. */
static void use_both(void)
{
    const og_cuda_device *first;
    og_cu_context *now = NULL;
    CHECK_OK(run_on(second, two_kernels, stream_of(second)));
    CHECK_OK(run_on(gpu, two_kernels, stream_of(gpu)));
    CHECK_OK(og_cuda_find_device(0, &first, &error));
    CHECK(og_cuda_driver()->call.cuCtxPushCurrent(first->context) == 0);
    CHECK_OK(run_on(second, two_kernels, NULL));
    CHECK_OK(run_on(second, "softmax(x, dim=1)", NULL));
    CHECK_OK(run_on(gpu, "softmax(x, dim=1)", NULL));
    CHECK(og_cuda_driver()->call.cuCtxPopCurrent(&now) == 0 && now == first->context);
    expect_no_context();
}

/* A stream of the other GPU: told, nothing leaks, and its own works. */
static void give_wrong_streams(void)
{
    static const char *const texts[] = {"x + 1", two_kernels}; /* without and with workspace */
    size_t free = free_bytes();
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        CHECK_FAILS(run_on(gpu, texts[i], stream_of(second)), OGIVE_ARGUMENT,
                    "stream is no stream of CUDA device 0");
        CHECK_FAILS(run_on(second, texts[i], stream_of(gpu)), OGIVE_ARGUMENT,
                    "stream is no stream of CUDA device 1");
        CHECK_OK(run_on(gpu, texts[i], stream_of(gpu)));
        CHECK_OK(run_on(second, texts[i], stream_of(second)));
    }
    CHECK(free_bytes() == free);
    /* The default stream is every device's: something else is wrong. */
    setenv("OGIVE_SHIM_FAIL", "cuLaunchKernel:1:400", 1);
    CHECK_FAILS(run_on(gpu, "x + 1", NULL), OGIVE_DEVICE, "CUDA_ERROR_INVALID_HANDLE");
    CHECK(!strstr(error.message, "stream is no stream"));
}

static void test_two_devices(void **unused)
{
    (void)unused;
    in_child(use_both, "OGIVE_SHIM_DEVICES=2", NULL);
    in_child(give_wrong_streams, "OGIVE_SHIM_DEVICES=2", NULL);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Once planned, a run needs nothing but pointers asked about and launches. */
static void only_launch(void)
{
    ogive_plan *plan;
    void *x = upload(gpu), *y = upload(gpu), *workspace;
    CHECK_OK(plan_text(two_kernels, N, NULL, &plan));
    CHECK_OK(ogive_device_allocate(gpu, ogive_plan_workspace(plan), &workspace, &error));
    setenv("OGIVE_SHIM_FAIL",
           "cuMemAlloc,cuMemFree,cuMemcpy,cuMemAllocFromPoolAsync,cuMemFreeAsync,cuCtxSynchronize,"
           "cuStreamSynchronize,cuModuleLoadDataEx,cuModuleGetFunction,cuFuncLoad,"
           "cuFuncGetAttribute,cuFuncSetAttribute,cuDeviceGetAttribute,cuMemGetInfo",
           1);
    for (int round = 0; round < 3; round++)
        CHECK_OK(ogive_plan_run(plan, (const void *const[]){x}, (void *const[]){y}, workspace,
                                stream_of(gpu), &error));
    unsetenv("OGIVE_SHIM_FAIL");
    float want[N], got[N];
    CHECK_OK(ogive_device_copy(gpu, want, y, sizeof want, &error));
    CHECK_OK(ogive_plan_run(plan, (const void *const[]){x}, (void *const[]){y}, workspace, NULL,
                            &error));
    CHECK_OK(ogive_device_copy(gpu, got, y, sizeof got, &error));
    CHECK(memcmp(want, got, sizeof got) == 0);
    ogive_plan_release(plan);
}

/* Factors of a product on tensor cores are checked too, however the kernel gets at them. */
static void give_wrong_factors(void)
{
    enum { SIDE = 256 };
    static _Alignas(64) float host[SIDE * SIDE];
    test_tensor in, weights;
    ogive_plan *plan;
    void *x, *y, *workspace;
    ogive_formula *formula = parse("linear(x, w)");
    test_tensor *const tensors[] = {&in, &weights};
    for (int i = 0; i < 2; i++) {
        test_tensor_init(tensors[i], NULL, test_float32, 2, (int64_t[]){SIDE, SIDE}, NULL);
        tensors[i]->tensor.device = gpu;
    }
    CHECK_OK(ogive_plan_create(formula, (const DLTensor *const[]){&in.tensor, &weights.tensor}, 2,
                               NULL, 0, NULL, &plan, &error));
    CHECK_OK(ogive_device_allocate(gpu, sizeof host, &x, &error));
    CHECK_OK(ogive_device_allocate(gpu, sizeof host, &y, &error));
    CHECK_OK(ogive_device_allocate(gpu, ogive_plan_workspace(plan), &workspace, &error));
    CHECK_FAILS(ogive_plan_run(plan, (const void *const[]){x, host}, (void *const[]){y}, workspace,
                               NULL, &error),
                OGIVE_ARGUMENT, "the data of input 'w'");
    CHECK_FAILS(ogive_plan_run(plan, (const void *const[]){host, x}, (void *const[]){y}, workspace,
                               NULL, &error),
                OGIVE_ARGUMENT, "the data of input 'x'");
    ogive_plan_release(plan);
    ogive_formula_release(formula);
}

/* Planning in one thread while others capture, and while others plan and run. */
static void *plan_and_run(void *text)
{
    for (int i = 0; i < 20; i++)
        if (run_on(gpu, text, stream_of(gpu)) != OGIVE_OK)
            return error.message;
    return NULL;
}

static void run_mixed(void)
{
    static const char *const texts[] = {"sigmoid(x) * x", two_kernels, "softmax(x, dim=1)",
                                        "sigmoid(x) * x"};
    pthread_t threads[TEST_COUNT(texts)];
    size_t free = free_bytes();
    for (size_t i = 0; i < TEST_COUNT(texts); i++)
        CHECK(pthread_create(&threads[i], NULL, plan_and_run, (void *)(uintptr_t)texts[i]) == 0);
    for (size_t i = 0; i < TEST_COUNT(texts); i++) {
        void *message;
        CHECK(pthread_join(threads[i], &message) == 0);
        CHECK(!message);
    }
    CHECK(free_bytes() == free);
}

static void test_running(void **unused)
{
    (void)unused;
    in_child(only_launch, NULL);
    in_child(give_wrong_factors, NULL);
    in_child(run_mixed, NULL);
    in_child(run_mixed, "OGIVE_SHIM_CAPTURING=1", NULL);
}

/* ---- out of memory ------------------------------------------------------------------------- */

/* Of the device, for the workspace of ogive_run(): how much, where, what is left. */
static void run_out_of_memory(void)
{
    CHECK_OK(run_on(gpu, two_kernels, NULL));
    const char *const calls[] = {"cuMemAllocFromPoolAsync:1:2", "cuMemAlloc:3:2"};
    setenv("OGIVE_SHIM_FAIL", calls[getenv("WITHOUT_POOL") != NULL], 1);
    CHECK_FAILS(run_on(gpu, two_kernels, NULL), OGIVE_MEMORY,
                "CUDA device 0 (shim of an H200 (0)) has no ");
    CHECK(strstr(error.message, "are free"));
    CHECK_OK(run_on(gpu, two_kernels, NULL));
}

static void test_memory(void **unused)
{
    (void)unused;
    in_child(run_out_of_memory, NULL);
    in_child(run_out_of_memory, "OGIVE_SHIM_FAIL=cuMemPoolCreate", "WITHOUT_POOL=1", NULL);
}

/* ---- lost contexts -------------------------------------------------------------------------- */

#define CHECK_LOST(call)                                                                           \
    do {                                                                                           \
        CHECK_FAILS(call, OGIVE_DEVICE, "its context is lost and every CUDA call");                \
        expect_no_context();                                                                       \
    } while (0)

/* After an illegal address, say, every call tells so; the CPU is still there. */
static void lose_context(void)
{
    ogive_plan *plan, *other;
    void *x = upload(gpu), *y = upload(gpu), *workspace, *data;
    float values[N];
    uint64_t hash;
    size_t sigmoid = 0;
    ogive_function_info info;
    while (!ogive_function(sigmoid, &info, &error) && strcmp(info.name, "sigmoid"))
        sigmoid++;
    CHECK_OK(plan_text(two_kernels, N, NULL, &plan));
    CHECK_OK(ogive_device_allocate(gpu, ogive_plan_workspace(plan), &workspace, &error));
    ogive_formula *formula = parse(two_kernels);
    setenv("OGIVE_SHIM_LOST", getenv("LOST"), 1);
    CHECK_LOST(ogive_plan_run(plan, (const void *const[]){x}, (void *const[]){y}, workspace, NULL,
                              &error));
    CHECK_LOST(plan_text(two_kernels, N, NULL, &other)); /* its modules are there */
    CHECK(!other);
    CHECK_LOST(plan_text("exp(x) + 7", N, NULL, &other));
    CHECK_LOST(ogive_device_allocate(gpu, 64, &data, &error));
    CHECK(!data);
    CHECK_LOST(ogive_device_copy(gpu, values, x, sizeof values, &error));
    CHECK_LOST(ogive_device_synchronize(gpu, NULL, &error));
    CHECK_LOST(ogive_device_synchronize(gpu, stream_of(gpu), &error));
    CHECK_LOST(ogive_function_hash(sigmoid, gpu, 1 << 20, &hash, &error));
    CHECK_LOST(ogive_device_free(gpu, x, &error));
    /* Without room for a message. */
    CHECK(ogive_plan_run(plan, (const void *const[]){x}, (void *const[]){y}, workspace, NULL,
                         NULL) == OGIVE_DEVICE);
    CHECK(ogive_device_synchronize(gpu, NULL, NULL) == OGIVE_DEVICE);
    ogive_plan_release(plan);
    test_tensor in, out;
    DLTensor *host_x = describe(&in, (DLDevice){kDLCPU, 0}, N);
    DLTensor *host_y = describe(&out, (DLDevice){kDLCPU, 0}, N);
    host_x->data = host_y->data = values;
    memset(values, 0, sizeof values);
    CHECK_OK(ogive_run(formula, (const DLTensor *const[]){host_x}, 1,
                       (const DLTensor *const[]){host_y}, 1, NULL, &error));
    ogive_formula_release(formula);
}

static void test_lost(void **unused)
{
    (void)unused;
    in_child(lose_context, "LOST=700", NULL);
    in_child(lose_context, "LOST=719", NULL);
    in_child(lose_context, "LOST=226", NULL); /* CUDA_ERROR_CONTAINED */
}

/* ---- images -------------------------------------------------------------------------------- */

/* The driver refuses what the compiler made: told with both versions, if they are known. */
static void expect_refused(void)
{
    ogive_plan *plan;
    setenv("OGIVE_SHIM_FAIL", "cuModuleLoadDataEx:1:222", 1);
    CHECK_FAILS(plan_text("x + 1", N, NULL, &plan), OGIVE_DEVICE,
                "CUDA device 0 refuses code for sm_90a");
    CHECK(strstr(error.message, "its driver is for CUDA 13.0"));
    CHECK(!strstr(error.message, "NVRTC 0.0"));
}

static void expect_run(void)
{
    CHECK_OK(run_text("x + 1", NULL));
}

static void test_refused(void **unused)
{
    (void)unused;
    in_child(expect_refused, NULL);
    in_child(expect_run, NULL);
    in_child(expect_refused, "OGIVE_NVRTC=/no/nvrtc", NULL); /* from the cache: by whom? */
}

/* OGIVE_DUMP's folder is made; what is in it is what was compiled. */
static void dump(void)
{
    char command[900];
    ogive_plan *plan;
    CHECK_OK(plan_text("x + 1", N, NULL, &plan));
    static char source[200000];
    size_t length = ogive_plan_source(plan, 0, source, sizeof source);
    CHECK(length > 0 && length < sizeof source);
    ogive_plan_release(plan);
    snprintf(command, sizeof command, "%s/copy", folder);
    FILE *file = fopen(command, "w");
    CHECK(file && fwrite(source, 1, length, file) == length && fclose(file) == 0);
    snprintf(command, sizeof command,
             "cd '%s' && cmp dump/*-sm_90a.cu copy && test -s dump/*-sm_90a.cubin", folder);
    CHECK(system(command) == 0);
}

static void test_dump(void **unused)
{
    char variable[600];
    (void)unused;
    snprintf(variable, sizeof variable, "OGIVE_DUMP=%s/dump", folder);
    in_child(dump, variable, NULL);
    in_child(expect_run, "OGIVE_DUMP=/dev/null/no", "OGIVE_CACHE_DIR=/dev/null", NULL);
}

int main(void)
{
    if (!test_on_stand_ins())
        return 2;
    const struct CMUnitTest tests[] = {
        HOST_TEST(test_two_devices), HOST_TEST(test_running), HOST_TEST(test_memory),
        HOST_TEST(test_lost),        HOST_TEST(test_refused), HOST_TEST(test_dump),
    };
    return TEST_RUN(tests);
}
