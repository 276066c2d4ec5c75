/* SPDX-License-Identifier: MIT
 *
 * test_cuda_host.c - the host side of the CUDA backend on the stand-in libraries of
 * tests/cuda: what is missing is told, what fails is told and leaks nothing, contexts
 * stay as they were, and what has been compiled is not compiled again.
 */
#include "cuda_host.h"

#include <pthread.h>

static char went_wrong[] = "what a thread returns that failed";

/* ---- what is missing ------------------------------------------------------------------------ */

static void expect_no_driver(void)
{
    ogive_plan *plan = NULL;
    ogive_cuda_info info;
    CHECK_FAILS(plan_text("x + 1", N, NULL, &plan), OGIVE_DEVICE, "no CUDA driver: /no/libcuda");
    CHECK(!plan);
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "no CUDA driver: /no/libcuda");
    ogive_cuda_describe(&info);
    CHECK(strstr(info.driver_problem, "no CUDA driver") && info.device_count == 0);
    CHECK(!info.nvrtc_problem[0] && info.nvrtc_version == 13000);
    CHECK(!strcmp(info.cache_folder, folder) && !info.cache_problem[0]);
    void *data;
    CHECK_FAILS(ogive_device_allocate(gpu, 4, &data, &error), OGIVE_DEVICE, "no CUDA driver");
    CHECK_FAILS(ogive_device_synchronize(gpu, NULL, &error), OGIVE_DEVICE, "no CUDA driver");
}

static void expect_old_driver(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "has no cuInit: it is too old");
}

static void expect_no_device(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE,
                "finds no GPU; CUDA_VISIBLE_DEVICES is none");
}

static void expect_broken_driver(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "does not start: ");
}

static void expect_forked_driver(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE,
                "CUDA_ERROR_NOT_INITIALIZED (initialization error), as after a fork");
}

static void expect_other_device(void)
{
    test_tensor x;
    ogive_plan *plan;
    const DLTensor *inputs[] = {describe(&x, (DLDevice){kDLCUDA, 3}, N)};
    ogive_formula *formula = parse("x");
    CHECK_FAILS(ogive_plan_create(formula, inputs, 1, NULL, 0, NULL, &plan, &error), OGIVE_DEVICE,
                "there is no CUDA device 3: this machine has 2");
    x.tensor.device.device_id = -1;
    CHECK_FAILS(ogive_plan_create(formula, inputs, 1, NULL, 0, NULL, &plan, &error), OGIVE_DEVICE,
                "there is no CUDA device -1: this machine has 2");
    ogive_formula_release(formula);
}

static void test_missing_driver(void **unused)
{
    (void)unused;
    in_child(expect_no_driver, "OGIVE_LIBCUDA=/no/libcuda.so.1", NULL);
    in_child(expect_old_driver, "OGIVE_LIBCUDA=libm.so.6", NULL);
    in_child(expect_no_device, "OGIVE_SHIM_DEVICES=0", "CUDA_VISIBLE_DEVICES=none", NULL);
    in_child(expect_no_device, "OGIVE_SHIM_FAIL=cuInit:0:100", "CUDA_VISIBLE_DEVICES=none", NULL);
    in_child(expect_broken_driver, "OGIVE_SHIM_FAIL=cuInit:0:999", NULL);
    in_child(expect_broken_driver, "OGIVE_SHIM_FAIL=cuDeviceGetCount:0:999", NULL);
    in_child(expect_forked_driver, "OGIVE_SHIM_FAIL=cuInit:0:3", NULL);
    in_child(expect_other_device, "OGIVE_SHIM_DEVICES=2", NULL);
}

static void expect_no_nvrtc(void)
{
    ogive_cuda_info info;
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "OGIVE_NVRTC is '/no/nvrtc'");
    ogive_cuda_describe(&info);
    CHECK(info.nvrtc_problem[0] && info.nvrtc_version == 0 && info.device_count == 1);
    /* It may appear later. */
    setenv("OGIVE_NVRTC", getenv("NVRTC_TO_BE"), 1);
    CHECK_OK(run_text("x + 1", NULL));
}

static void expect_wrong_nvrtc(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "has no nvrtcVersion");
}

static void expect_old_nvrtc(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "is NVRTC 11.8, too old: 12.0 is needed");
}

static void expect_run(void)
{
    CHECK_OK(run_text("x + 1", NULL));
}

static void test_missing_nvrtc(void **unused)
{
    (void)unused;
    char later[600];
    snprintf(later, sizeof later, "NVRTC_TO_BE=%s", getenv("OGIVE_NVRTC"));
    in_child(expect_wrong_nvrtc, "OGIVE_NVRTC=libm.so.6", NULL);
    in_child(expect_old_nvrtc, "OGIVE_SHIM_NVRTC=11.8", NULL);
    in_child(expect_no_nvrtc, "OGIVE_NVRTC=/no/nvrtc", later, NULL);
    /* The last one has left its kernel in the cache: it is enough. */
    in_child(expect_run, "OGIVE_NVRTC=/no/nvrtc", NULL);
}

/* ---- compiling once --------------------------------------------------------------------------- */

static void expect_compile_failure(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "does not compile a kernel for sm_90a");
}

static void share_modules(void)
{
    ogive_plan *first, *second;
    CHECK_OK(plan_text("sigmoid(x) + 1", 64, NULL, &first));
    /* Other numbers, other size: the same source. */
    setenv("OGIVE_SHIM_FAIL", "nvrtcCompileProgram,cuModuleLoadDataEx", 1);
    CHECK_OK(plan_text("sigmoid(x) + 2", 4096, NULL, &second));
    ogive_plan_release(first);
    ogive_plan_release(second);
    CHECK_OK(plan_text("sigmoid(x) + 3", 100, NULL, &first));
    ogive_plan_release(first);
}

/* Threads plan two formulas at once: of each one compiles, and others wait for it. */
static void *plan_once(void *text)
{
    ogive_plan *plan;
    ogive_status status = plan_text(text, 64, NULL, &plan);
    ogive_plan_release(plan);
    return status == OGIVE_OK ? NULL : went_wrong;
}

static void plan_in_threads(bool fails)
{
    static char texts[2][20] = {"tanh(x) * x - 0.5", "exp(x) - x"};
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, plan_once, texts[i % 2]) == 0);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(threads[i], &result);
        CHECK(!result == !fails);
    }
}

static void plan_all(void)
{
    plan_in_threads(false);
}

static void fail_all(void)
{
    plan_in_threads(true);
}

static void expect_cached(void)
{
    char text[4000];
    ogive_plan *plan;
    CHECK_OK(plan_text("x + 1", N, NULL, &plan));
    ogive_plan_explain(plan, text, sizeof text);
    CHECK(strstr(text, "from the cache"));
    ogive_plan_release(plan);
}

static void expect_compiled(void)
{
    char text[4000];
    ogive_plan *plan;
    CHECK_OK(plan_text("x + 1", N, NULL, &plan));
    ogive_plan_explain(plan, text, sizeof text);
    CHECK(!strstr(text, "from the cache") && strstr(text, "sm_90a, NVRTC 13.0"));
    ogive_plan_release(plan);
}

static void test_compiled_once(void **unused)
{
    char command[400];
    (void)unused;
    in_child(expect_compile_failure, "OGIVE_SHIM_FAIL=nvrtcCompileProgram", NULL);
    in_child(expect_compiled, NULL);
    in_child(expect_cached, "OGIVE_SHIM_FAIL=nvrtcCompileProgram", NULL);
    snprintf(command, sizeof command, "for f in '%s'/*.image; do echo x >> \"$f\"; done", folder);
    assert_int_equal(system(command), 0);
    in_child(expect_compiled, NULL); /* what is damaged is made anew */
    in_child(expect_cached, NULL);
    in_child(expect_run, "OGIVE_SHIM_FAIL=nvrtcCompileProgram", NULL);
    /* Another NVRTC's image is not taken for this one's. */
    in_child(expect_compile_failure, "OGIVE_SHIM_NVRTC=12.4", "OGIVE_SHIM_FAIL=nvrtcCompileProgram",
             NULL);
    in_child(expect_run, "OGIVE_CACHE_DIR=/dev/null", NULL);
    in_child(share_modules, NULL);
    in_child(fail_all, "OGIVE_SHIM_FAIL=nvrtcCompileProgram", NULL);
    in_child(plan_all, NULL);
}

/* ---- GPUs that NVRTC does not know -------------------------------------------------------------- */

static void expect_ptx(void)
{
    char text[4000];
    ogive_plan *plan;
    CHECK_OK(plan_text("x + 1", N, NULL, &plan));
    ogive_plan_explain(plan, text, sizeof text);
    CHECK(strstr(text, "  compute_") &&
          strstr(text, "PTX, since this NVRTC does not know sm_150a"));
    ogive_plan_release(plan);
    CHECK_OK(run_text("x + 1", NULL));
}

static void expect_too_old(void)
{
    CHECK_FAILS(run_text("x + 1", NULL), OGIVE_UNSUPPORTED, "does not compile for sm_35");
}

static void test_unknown_arch(void **unused)
{
    (void)unused;
    in_child(expect_ptx, "OGIVE_SHIM_ARCH=150", NULL);
    in_child(expect_run, "OGIVE_SHIM_ARCH=150", "OGIVE_NVRTC=/no/nvrtc", NULL); /* the same PTX */
    in_child(expect_too_old, "OGIVE_SHIM_ARCH=35", NULL);
}

static void plan_without_gpu(void)
{
    ogive_plan *plan;
    char text[4000];
    static char source[100000];
    ogive_warm_info warmed;
    ogive_options options = {.size = sizeof options, .cuda_arch = "sm_80"};
    CHECK_OK(plan_text("sigmoid(x)", N, &options, &plan));
    ogive_plan_explain(plan, text, sizeof text);
    CHECK(strstr(text, "planned for sm_80, with the limits of an A100"));
    CHECK(ogive_plan_result(plan, 0)->device.device_type == kDLCUDA);
    size_t length = ogive_plan_source(plan, 0, source, sizeof source);
    CHECK(length > 100 && length == strlen(source) && strstr(source, "__global__"));
    CHECK(ogive_plan_source(plan, 0, source, 10) == length && strlen(source) == 9);
    CHECK(ogive_plan_source(plan, 1, source, 10) == 0 && !source[0]);
    CHECK_OK(ogive_plan_warm(plan, &warmed, &error));
    CHECK(warmed.kernels == 1 && warmed.compiled == 1 && !strcmp(warmed.target, "sm_80"));
    CHECK_OK(ogive_plan_warm(plan, &warmed, &error));
    CHECK(warmed.kernels == 1 && warmed.compiled == 0);
    float memory[N];
    CHECK_FAILS(ogive_plan_run(plan, (const void *const[]){memory}, (void *const[]){memory}, NULL,
                               NULL, &error),
                OGIVE_ARGUMENT, "is for a GPU of architecture 80 (options.cuda_arch)");
    ogive_plan_release(plan);
    static const char *const wrong[] = {"", "9", "90b", "ninety", "sm90", "12345", "35"};
    for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
        options.cuda_arch = wrong[i];
        CHECK_FAILS(plan_text("x", N, &options, &plan), OGIVE_ARGUMENT,
                    "(options.cuda_arch) is not known: expected");
    }
    options.cuda_arch = "150"; /* NVRTC does not know it */
    CHECK_OK(plan_text("sigmoid(x)", N, &options, &plan));
    CHECK_OK(ogive_plan_warm(plan, &warmed, &error));
    CHECK(warmed.compiled == 1 && !strncmp(warmed.target, "compute_", 8));
    ogive_plan_release(plan);
    CHECK_OK(plan_text("sigmoid(x)", 0, &options, &plan)); /* nothing to compute */
    CHECK_OK(ogive_plan_warm(plan, &warmed, &error));
    CHECK(warmed.kernels == 0 && !warmed.target[0]);
    ogive_plan_release(plan);
    setenv("OGIVE_CACHE_DIR", "/dev/null", 1);
    options.cuda_arch = "90a";
    CHECK_OK(plan_text("sigmoid(x)", N, &options, &plan));
    CHECK_FAILS(ogive_plan_warm(plan, NULL, &error), OGIVE_DEVICE, "cannot be kept in '/dev/null'");
    ogive_plan_release(plan);
}

static void test_absent_gpu(void **unused)
{
    (void)unused;
    in_child(plan_without_gpu, "OGIVE_LIBCUDA=/no/libcuda.so.1", NULL);
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static void mix_devices(void)
{
    test_tensor x, y, out;
    ogive_plan *plan = NULL;
    const DLTensor *inputs[] = {describe(&x, gpu, N), describe(&y, (DLDevice){kDLCPU, 0}, N)};
    const DLTensor *outputs[] = {describe(&out, gpu, N)};
    ogive_formula *formula = parse("a.x + b");
#define PLAN() ogive_plan_create(formula, inputs, 2, outputs, 1, NULL, &plan, &error)
    CHECK_FAILS(PLAN(), OGIVE_ARGUMENT,
                "input 'b' is on the CPU, input 'a.x' on CUDA device 0: all tensors must be on one "
                "device");
    y.tensor.device = (DLDevice){kDLCUDA, 1};
    CHECK_FAILS(PLAN(), OGIVE_ARGUMENT,
                "input 'b' is on CUDA device 1, input 'a.x' on CUDA device "
                "0");
    y.tensor.device = gpu;
    out.tensor.device = (DLDevice){kDLCUDA, 1};
    CHECK_FAILS(PLAN(), OGIVE_ARGUMENT, "output '0' is on CUDA device 1, input 'a.x' on");
    out.tensor.device = (DLDevice){(DLDeviceType)3, 0}; /* pinned: the CPU's */
    CHECK_FAILS(PLAN(), OGIVE_ARGUMENT, "output '0' is on the CPU");
    CHECK(!plan);
    out.tensor.device = (DLDevice){(DLDeviceType)13, 0}; /* managed: the GPU's */
    CHECK_OK(PLAN());
    CHECK(ogive_plan_result(plan, 0)->device.device_type == kDLCUDA);
    ogive_plan_release(plan);
#undef PLAN
    ogive_formula_release(formula);
}

/* A wrong pointer is told before a kernel follows it. */
static void give_wrong_pointers(void)
{
    float host[N] = {0};
    ogive_plan *plan;
    void *x = upload(gpu), *y = upload(gpu), *other = upload((DLDevice){kDLCUDA, 1});
    CHECK_OK(plan_text(two_kernels, N, NULL, &plan));
    size_t bytes = ogive_plan_workspace(plan);
    void *workspace, *aligned = NULL;
    CHECK(bytes > 0);
    CHECK_OK(ogive_device_allocate(gpu, bytes, &workspace, &error));
    CHECK_OK(ogive_device_allocate((DLDevice){kDLCPU, 0}, bytes, &aligned, &error));
#define RUN(in, out, space, stream)                                                                \
    ogive_plan_run(plan, (const void *const[]){in}, (void *const[]){out}, space, stream, &error)
    CHECK_OK(RUN(x, y, workspace, NULL));
    CHECK_FAILS(RUN(host, y, workspace, NULL), OGIVE_ARGUMENT, "the data of input 'x' (0x");
    CHECK_FAILS(RUN(host, y, workspace, NULL), OGIVE_ARGUMENT,
                ") is ordinary host memory, or freed: expected memory of CUDA device 0");
    CHECK_FAILS(RUN(x, host, workspace, NULL), OGIVE_ARGUMENT, "the data of output '0'");
    CHECK_FAILS(RUN(x, other, workspace, NULL), OGIVE_ARGUMENT,
                ") is memory of CUDA device 1: expected CUDA device 0");
    CHECK_FAILS(RUN(x, y, aligned, NULL), OGIVE_ARGUMENT, "the workspace (0x");
    CHECK_FAILS(RUN(x, y, NULL, NULL), OGIVE_ARGUMENT, "workspace: expected");
    setenv("OGIVE_SHIM_FAIL", "cuLaunchKernel:1:400", 1);
    CHECK_FAILS(RUN(x, y, workspace, (void *)8), OGIVE_ARGUMENT,
                "stream is no stream of CUDA device 0");
    setenv("OGIVE_SHIM_FAIL", "cuLaunchKernel:1:700", 1);
    CHECK_FAILS(RUN(x, y, workspace, NULL), OGIVE_DEVICE,
                "its context is lost and every CUDA call of this process will fail");
    unsetenv("OGIVE_SHIM_FAIL");
    CHECK_OK(RUN(x, y, workspace, (void *)8));
#undef RUN
    CHECK_OK(ogive_device_free(gpu, workspace, &error));
    CHECK_OK(ogive_device_free(gpu, x, &error));
    CHECK_OK(ogive_device_free(gpu, y, &error));
    CHECK_OK(ogive_device_free((DLDevice){kDLCUDA, 1}, other, &error));
    CHECK_OK(ogive_device_free((DLDevice){kDLCPU, 0}, aligned, &error));
    ogive_plan_release(plan);
}

static void run_on_two_devices(void)
{
    const DLDevice second = {kDLCUDA, 1};
    float got[N];
    test_tensor in, out;
    DLTensor *x = describe(&in, second, N), *y = describe(&out, second, N);
    ogive_formula *formula = parse("x + 1");
    CHECK_OK(run_text("x + 1", NULL));
    x->data = upload(second);
    y->data = upload(second);
    for (int i = 0; i < 2; i++)
        CHECK_OK(ogive_run(formula, (const DLTensor *const[]){x}, 1, (const DLTensor *const[]){y},
                           1, NULL, &error));
    CHECK_OK(ogive_device_copy(second, got, y->data, sizeof got, &error));
    for (int i = 0; i < N; i++)
        CHECK(got[i] == value_of(i) + 1);
    /* The formula's plan for the second device is not one for the first. */
    x->device = y->device = gpu;
    CHECK_FAILS(ogive_run(formula, (const DLTensor *const[]){x}, 1, (const DLTensor *const[]){y}, 1,
                          NULL, &error),
                OGIVE_ARGUMENT, "is memory of CUDA device 1: expected CUDA device 0");
    CHECK_OK(ogive_device_free(second, x->data, &error));
    CHECK_OK(ogive_device_free(second, y->data, &error));
    ogive_formula_release(formula);
}

static void test_tensors(void **unused)
{
    (void)unused;
    in_child(mix_devices, NULL);
    in_child(give_wrong_pointers, "OGIVE_SHIM_DEVICES=2", NULL);
    in_child(run_on_two_devices, "OGIVE_SHIM_DEVICES=2", NULL);
}

/* ---- faults ------------------------------------------------------------------------------------- */

/* names: " first second ". */
static bool is_one_of(const char *name, const char *names)
{
    char word[100];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(names, word) != NULL;
}

/* The function FAULT fails: the call that needs it tells so, or does without; when it
 * works again, so do we. */
static void fail_one(void)
{
    const char *name = getenv("FAULT");
    char fault[100];
    size_t free = free_bytes();
    for (int nth = 1; nth <= 3; nth++) {
        snprintf(fault, sizeof fault, "%s:%d", name, nth);
        setenv("OGIVE_SHIM_FAIL", fault, 1);
        ogive_status status = run_text(two_kernels, (void *)8);
        unsetenv("OGIVE_SHIM_FAIL");
        CHECK(status == OGIVE_OK || error.message[0]);
        if (strcmp(name, "cuCtxPopCurrent") != 0 &&
            strcmp(name, "cuThreadExchangeStreamCaptureMode") != 0)
            expect_no_context();
        CHECK_OK(run_text(two_kernels, (void *)8));
    }
    /* What could not be freed, or was got by a call that then could not end, is lost. */
    if (!is_one_of(name, " cuMemFree cuMemFreeAsync cuCtxPushCurrent cuCtxPopCurrent "
                         "cuThreadExchangeStreamCaptureMode "))
        CHECK(free_bytes() == free);
}

/* The function fails always, from the start. */
static void fail_always(void)
{
    const char *name = getenv("FAULT");
    ogive_status status = run_text(two_kernels, NULL);
    CHECK(status == OGIVE_OK || error.message[0]);
    if (is_one_of(name, " cuDevicePrimaryCtxRetain cuCtxPushCurrent cuModuleLoadDataEx "
                        "cuModuleGetFunction cuFuncLoad cuFuncGetAttribute cuLaunchKernel "
                        "cuMemAlloc cuMemcpy cuPointerGetAttributes nvrtcCreateProgram "
                        "nvrtcCompileProgram nvrtcGetCUBIN "))
        CHECK(status != OGIVE_OK);
}

static void test_faults(void **unused)
{
    (void)unused;
    static const char *const names[] = {
#define NAME(name, symbol, arguments) #name,
        OG_CUDA_FUNCTIONS(NAME) OG_CUDA_OPTIONAL_FUNCTIONS(NAME)
#undef NAME
            "nvrtcVersion",
        "nvrtcGetNumSupportedArchs",
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
        "nvrtcDestroyProgram"};
    for (size_t i = 0; i < TEST_COUNT(names); i++) {
        char fault[100], always[100];
        snprintf(fault, sizeof fault, "FAULT=%s", names[i]);
        snprintf(always, sizeof always, "OGIVE_SHIM_FAIL=%s", names[i]);
        in_child(fail_one, fault, "OGIVE_CACHE_DIR=/dev/null", NULL);
        in_child(fail_always, fault, always, "OGIVE_CACHE_DIR=/dev/null", NULL);
    }
}

/* ---- contexts, captures, forks --------------------------------------------------------------------- */

/* The caller's current context stays so, also when a call fails. */
static void keep_context(void)
{
    const og_cuda_device *first, *second;
    og_cu_context *now = NULL;
    CHECK_OK(og_cuda_find_device(0, &first, &error));
    CHECK_OK(og_cuda_find_device(1, &second, &error));
    CHECK(first->context != second->context);
    CHECK(og_cuda_driver()->call.cuCtxPushCurrent(second->context) == 0);
    CHECK_OK(run_text(two_kernels, NULL));
    setenv("OGIVE_SHIM_FAIL", "cuLaunchKernel:1", 1);
    CHECK(run_text(two_kernels, NULL) == OGIVE_DEVICE);
    unsetenv("OGIVE_SHIM_FAIL");
    CHECK(og_cuda_driver()->call.cuCtxPopCurrent(&now) == 0 && now == second->context);
    expect_no_context();
}

/* Planning, and memory, work while streams are captured. */
static void plan_while_capturing(void)
{
    CHECK_OK(run_text(two_kernels, (void *)8));
}

/* Devices without memory pools: the workspace is allocated, used, waited for. */
static void run_without_pool(void)
{
    size_t free = free_bytes();
    CHECK_OK(run_text(two_kernels, (void *)8));
    CHECK(free_bytes() == free);
}

static ogive_plan *inherited;

static void use_after_fork(void)
{
    int status;
    CHECK_OK(plan_text("x + 1", N, NULL, &inherited));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ogive_plan *plan;
        CHECK_FAILS(plan_text("x + 1", N, NULL, &plan), OGIVE_DEVICE,
                    "CUDA was started before this process was forked");
        CHECK_FAILS(run_text("x + 1", NULL), OGIVE_DEVICE, "before this process was forked");
        float memory[N];
        CHECK_FAILS(ogive_plan_run(inherited, (const void *const[]){memory},
                                   (void *const[]){memory}, NULL, NULL, &error),
                    OGIVE_DEVICE, "before this process was forked");
        ogive_plan_release(inherited);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ogive_plan_release(inherited);
    CHECK_OK(run_text("x + 1", NULL));
}

/* Several threads run one formula on streams of their own, each with its workspace. */
static ogive_formula *shared;

static void *run_often(void *stream)
{
    for (int i = 0; i < 10; i++)
        if (run_formula(shared, stream) != OGIVE_OK)
            return went_wrong;
    return NULL;
}

static void run_in_threads(void)
{
    pthread_t threads[4];
    size_t free = free_bytes();
    shared = parse(two_kernels);
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, (void *)(16 + i)) == 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        CHECK(!result);
    }
    ogive_formula_release(shared);
    CHECK(free_bytes() == free);
}

static void test_contexts(void **unused)
{
    (void)unused;
    in_child(keep_context, "OGIVE_SHIM_DEVICES=2", NULL);
    in_child(plan_while_capturing, "OGIVE_SHIM_CAPTURING=1", NULL);
    in_child(run_without_pool, "OGIVE_SHIM_FAIL=cuMemPoolCreate", NULL);
    in_child(use_after_fork, NULL);
    in_child(run_in_threads, NULL);
}

/* ---- memory of a device ------------------------------------------------------------------------------ */

static void use_memory(void)
{
    void *data = (void *)1;
    char there[] = "there", back[6] = "";
    ogive_cuda_device_info info;
    const DLDevice cpu = {kDLCPU, 0}, places[] = {gpu, cpu};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ogive_device_allocate(places[i], 0, &data, &error));
        CHECK(!data);
        CHECK_OK(ogive_device_free(places[i], NULL, &error));
        CHECK_OK(ogive_device_allocate(places[i], 6, &data, &error));
        CHECK((uintptr_t)data % 16 == 0);
        CHECK_OK(ogive_device_copy(places[i], data, there, 6, &error));
        CHECK_OK(ogive_device_copy(places[i], back, data, 6, &error));
        CHECK(!strcmp(back, "there"));
        CHECK_FAILS(ogive_device_copy(places[i], NULL, there, 6, &error), OGIVE_ARGUMENT,
                    "to is NULL");
        CHECK_OK(ogive_device_copy(places[i], NULL, NULL, 0, &error));
        CHECK_OK(ogive_device_synchronize(places[i], NULL, &error));
        CHECK_OK(ogive_device_free(places[i], data, &error));
        CHECK_FAILS(ogive_device_allocate(places[i], SIZE_MAX - 10, &data, &error), OGIVE_MEMORY,
                    "bytes");
        CHECK(!data);
    }
    CHECK_FAILS(ogive_device_synchronize(cpu, &data, &error), OGIVE_ARGUMENT, "must be NULL");
    CHECK_FAILS(ogive_device_allocate((DLDevice){(DLDeviceType)8, 0}, 4, &data, &error),
                OGIVE_ARGUMENT, "DLPack type 8");
    CHECK_OK(ogive_cuda_device(0, &info, &error));
    CHECK(info.arch == 90 && info.multiprocessors == 132 && info.memory_bytes > 0 && info.name[0]);
    CHECK(info.memory_bytes_per_second > 1e12 && info.l2_bytes > 0);
    CHECK_FAILS(ogive_cuda_device(1, &info, &error), OGIVE_DEVICE, "there is no CUDA device 1");
    CHECK_FAILS(ogive_cuda_device(0, NULL, &error), OGIVE_ARGUMENT, "info is NULL");
}

/* Every 100003rd input: the same hash on the CPU and on the device. */
static void hash_functions(void)
{
    uint64_t want, got;
    for (size_t i = 0; i < ogive_function_count(); i++) {
        ogive_function_info info;
        CHECK_OK(ogive_function(i, &info, &error));
        if (info.hash == 0) {
            CHECK_FAILS(ogive_function_hash(i, gpu, 1, &got, &error), OGIVE_ARGUMENT,
                        "has no documented hash");
            continue;
        }
        if (strcmp(info.name, "sigmoid") && strcmp(info.name, "gelu"))
            continue;
        CHECK_OK(ogive_function_hash(i, (DLDevice){kDLCPU, 0}, 100003, &want, &error));
        CHECK_OK(ogive_function_hash(i, gpu, 100003, &got, &error));
        CHECK(got == want && got != 0);
        CHECK_FAILS(ogive_function_hash(i, gpu, 0, &got, &error), OGIVE_ARGUMENT, "step is 0");
    }
}

static void test_memory(void **unused)
{
    (void)unused;
    in_child(use_memory, NULL);
    in_child(hash_functions, NULL);
}

int main(void)
{
    if (!test_on_stand_ins())
        return 2;
    const struct CMUnitTest tests[] = {
        HOST_TEST(test_missing_driver), HOST_TEST(test_missing_nvrtc),
        HOST_TEST(test_compiled_once),  HOST_TEST(test_unknown_arch),
        HOST_TEST(test_absent_gpu),     HOST_TEST(test_tensors),
        HOST_TEST(test_faults),         HOST_TEST(test_contexts),
        HOST_TEST(test_memory),
    };
    return TEST_RUN(tests);
}
