/* SPDX-License-Identifier: MIT
 *
 * test_cuda_shim_self.c - the fake driver and compiler themselves (tests/cuda): a right
 * kernel gives the right numbers, a wrong one is caught. What passes on them means
 * something only because of this.
 */
#include "test.h"

#include "cuda/host/cuda_driver.h"

#include <dlfcn.h>

static og_cuda_functions call;
static og_cu_context *context;

static struct {
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *), (*log)(void *, char *);
    int (*image_size)(void *, size_t *), (*image)(void *, char *);
    int (*destroy)(void **);
} nvrtc;

static int open_libraries(void **unused)
{
    const char *driver = getenv("OGIVE_LIBCUDA"), *compiler = getenv("OGIVE_NVRTC");
    (void)unused;
    if (!driver || !compiler) {
        fprintf(stderr, "OGIVE_LIBCUDA and OGIVE_NVRTC name the fake libraries under CTest\n");
        return -1;
    }
    void *cuda = dlopen(driver, RTLD_NOW), *rtc = dlopen(compiler, RTLD_NOW);
    if (!cuda || !rtc) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
#define FIND(name, symbol, arguments) *(void **)&call.name = dlsym(cuda, symbol);
    OG_CUDA_FUNCTIONS(FIND)
    OG_CUDA_OPTIONAL_FUNCTIONS(FIND)
    *(void **)&nvrtc.create = dlsym(rtc, "nvrtcCreateProgram");
    *(void **)&nvrtc.compile = dlsym(rtc, "nvrtcCompileProgram");
    *(void **)&nvrtc.log_size = dlsym(rtc, "nvrtcGetProgramLogSize");
    *(void **)&nvrtc.log = dlsym(rtc, "nvrtcGetProgramLog");
    *(void **)&nvrtc.image_size = dlsym(rtc, "nvrtcGetCUBINSize");
    *(void **)&nvrtc.image = dlsym(rtc, "nvrtcGetCUBIN");
    *(void **)&nvrtc.destroy = dlsym(rtc, "nvrtcDestroyProgram");
    return call.cuInit(0) || call.cuDevicePrimaryCtxRetain(&context, 0) ||
           call.cuCtxPushCurrent(context);
}

/* ---- one kernel ---------------------------------------------------------------------- */

typedef struct {
    float *x, *y;
    int64_t n;
} argument;

static const char *const options[] = {"--fmad=false", "--gpu-architecture=sm_90"};

/* kernel `run` of source, loaded; fails the test with the compiler's log. */
static og_cu_module *load(const char *body, og_cu_function **function)
{
    static const char head[] = "struct argument { float *x, *y; long long n; };\n"
                               "extern \"C\" __global__ void __launch_bounds__(1024)\n"
                               "run(const __grid_constant__ argument a)\n";
    char source[4000];
    snprintf(source, sizeof source, "%s%s", head, body);
    void *program;
    size_t bytes;
    assert_int_equal(nvrtc.create(&program, source, "kernel.cu", 0, NULL, NULL), 0);
    if (nvrtc.compile(program, 2, options) != 0) {
        char log[4000];
        assert_int_equal(nvrtc.log_size(program, &bytes), 0);
        assert_true(bytes < sizeof log);
        nvrtc.log(program, log);
        fail_msg("%s", log);
    }
    assert_int_equal(nvrtc.image_size(program, &bytes), 0);
    char *image = malloc(bytes);
    assert_int_equal(nvrtc.image(program, image), 0);
    assert_int_equal(nvrtc.destroy(&program), 0);
    og_cu_module *module;
    assert_int_equal(call.cuModuleLoadDataEx(&module, image, 0, NULL, NULL), 0);
    free(image);
    assert_int_equal(call.cuModuleGetFunction(function, module, "run"), 0);
    return module;
}

enum { COUNT = 1000 };

/* Runs body over x = 0, 1, 2, ... 999 with blocks of that many threads: its CUresult;
 * y in out. */
static int run(const char *body, unsigned grid, unsigned threads, unsigned shared, float *out)
{
    og_cu_function *function;
    og_cu_module *module = load(body, &function);
    og_cu_address x, y;
    float values[COUNT];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    assert_int_equal(call.cuMemAlloc(&x, sizeof values), 0);
    assert_int_equal(call.cuMemAlloc(&y, sizeof values), 0);
    assert_int_equal(call.cuMemcpy(x, (og_cu_address)(uintptr_t)values, sizeof values), 0);
    argument a = {(float *)(uintptr_t)x, (float *)(uintptr_t)y, COUNT};
    void *parameters[] = {&a};
    int result =
        call.cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared, NULL, parameters, NULL);
    if (out)
        assert_int_equal(call.cuMemcpy((og_cu_address)(uintptr_t)out, y, sizeof values), 0);
    (void)call.cuMemFree(x);
    (void)call.cuMemFree(y);
    assert_int_equal(call.cuModuleUnload(module), 0);
    return result;
}

/* ---- right ones ------------------------------------------------------------------------ */

static const char sum_of_blocks[] =
    "{ __shared__ float part[32]; extern __shared__ float keep[];\n"
    "  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;\n"
    "  float v = i < a.n ? a.x[i] : 0.0f;\n"
    "  keep[t] = v;\n"
    "  for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);\n"
    "  if (t % 32 == 0) part[t / 32] = v;\n"
    "  __syncthreads();\n"
    "  if (t < 32) {\n"
    "    v = t < blockDim.x / 32 ? part[t] : 0.0f;\n"
    "    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);\n"
    "    if (t == 0) part[0] = v;\n"
    "  }\n"
    "  __syncthreads();\n"
    "  if (i < a.n) a.y[i] = part[0] - keep[blockDim.x - 1 - t]; }";

static void test_right(void **unused)
{
    float y[COUNT];
    (void)unused;
    assert_int_equal(run(sum_of_blocks, 8, 128, 128 * 4, y), 0);
    for (int i = 0; i < COUNT; i++) {
        int first = i / 128 * 128, sum = 0;
        for (int j = first; j < first + 128; j++)
            sum += j < COUNT ? j : 0;
        int other = first + 127 - (i - first);
        assert_true(y[i] == (float)(sum - (other < COUNT ? other : 0)));
    }
}

static void test_votes(void **unused)
{
    float y[COUNT];
    (void)unused;
    assert_int_equal(run("{ int t = threadIdx.x; int some = __syncthreads_or(t == 7);\n"
                         "  int all = __syncthreads_and(t < 99), n = __syncthreads_count(t < 5);\n"
                         "  unsigned b = __ballot_sync(0xffffffffu, t % 3 == 0);\n"
                         "  a.y[t] = some * 1000 + all * 100 + n + (b >> (t % 32) & 1) * 0.5f; }",
                         1, 128, 0, y),
                     0);
    for (int t = 0; t < 128; t++)
        assert_true(y[t] == 1005 + (t % 3 == 0 ? 0.5f : 0));
}

/* Lanes that have exited are not waited for, whoever comes first. */
static void test_exits(void **unused)
{
    float y[COUNT];
    (void)unused;
    assert_int_equal(run("{ int t = threadIdx.x; if (t % 32 >= 20 || t % 32 == 3) return;\n"
                         "  a.y[t] = __shfl_xor_sync(0xffffffffu, a.x[t], 4); }",
                         1, 256, 0, y),
                     0);
    for (int t = 0; t < 256; t++) {
        int lane = t % 32, other = lane ^ 4;
        bool both = lane < 20 && lane != 3 && other < 20 && other != 3;
        assert_true(both ? y[t] == (float)(t ^ 4) : isnan(y[t]));
    }
}

/* What nobody wrote is NaN: shared memory, device memory, an absent lane. */
static void test_poison(void **unused)
{
    float y[COUNT];
    (void)unused;
    assert_int_equal(run("{ __shared__ float s[64]; extern __shared__ float d[];\n"
                         "  int t = threadIdx.x;\n"
                         "  a.y[t] = s[t]; a.y[64 + t] = d[t];\n"
                         "  if (t >= 16) return;\n"
                         "  a.y[128 + t] = __shfl_down_sync(0xffffu, 1.0f, 8); }",
                         1, 32, 128, y),
                     0);
    for (int i = 0; i < 16; i++)
        assert_true(isnan(y[i]) && isnan(y[64 + i]) && isnan(y[200 + i]));
    for (int i = 0; i < 8; i++)
        assert_true(y[128 + i] == 1 && isnan(y[136 + i]));
}

/* ---- wrong ones ------------------------------------------------------------------------- */

static void test_wrong(void **unused)
{
    static const struct {
        const char *body;
        unsigned grid, threads, shared;
        int result;
    } cases[] = {
        {"{ a.y[a.n + threadIdx.x * 1024] = 1; }", 1, 1, 0, 700},      /* beyond */
        {"{ a.y[-1 - (int)threadIdx.x * 1024] = 1; }", 1, 32, 0, 700}, /* before */
        {"{ a.y[0] = a.x[1 << 20]; }", 1, 1, 0, 700},                  /* far */
        {"{ a.y[0] = *(const float *)16; }", 1, 1, 0, 700},            /* nothing there */
        {"{ extern __shared__ float s[]; s[threadIdx.x] = 1; }", 1, 64, 128, 700},
        {"{ if (threadIdx.x < 32) __syncthreads(); }", 1, 64, 0, 719}, /* others exit */
        {"{ if (threadIdx.x < 32) __syncthreads();\n"
         "  else __syncwarp(0xffffffffu), __syncthreads_or(1); }",
         1, 64, 0, 719},
        {"{ if (threadIdx.x == 3) __syncthreads();\n"
         "  else a.y[0] = __shfl_sync(0xffffffffu, 1.0f, 0); }",
         1, 32, 0, 719},
        {"{ if (threadIdx.x != 3) __syncwarp(0xfu); }", 1, 32, 0, 719}, /* not in the mask */
        {"{ __trap(); }", 1, 1, 0, 719},
        {"{ }", 1, 1025, 0, 1},
        {"{ }", 1, 32, 49 * 1024, 1}, /* without the attribute */
        {"{ }", 0, 32, 0, 1},
    };
    (void)unused;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        int result = run(cases[i].body, cases[i].grid, cases[i].threads, cases[i].shared, NULL);
        if (result != cases[i].result)
            fail_msg("%s: %d, expected %d", cases[i].body, result, cases[i].result);
    }
}

/* Blocks and warps in no order: a kernel that counts on one gives something else. */
static void test_order(void **unused)
{
    static const char body[] = "{ if (threadIdx.x == 0) a.y[blockIdx.x] = atomicAdd("
                               "(int *)a.x + 0, 1); }";
    float y[COUNT];
    int moved = 0;
    (void)unused;
    assert_int_equal(run(body, 100, 32, 0, y), 0);
    for (int i = 0; i < 100; i++)
        moved += y[i] != (float)i;
    assert_true(moved > 50);
}

/* What only the checking form finds: within the padding behind a block, races. */
static void test_checked(void **unused)
{
    static const struct {
        const char *body;
        int result;
    } cases[] = {
        {"{ a.y[threadIdx.x] = a.x[threadIdx.x]; }", 0},
        {"{ a.y[threadIdx.x] = a.x[990 + threadIdx.x]; }", 719}, /* past the end, in its page */
        {"{ *(float2 *)(a.y + 1) = float2{1, 2}; }", 700},       /* not aligned */
        /* A struct of two floats need not be, whatever the compiler copies it by. */
        {"{ struct two { float s, t; }; two *to = (two *)(a.y + 1) + threadIdx.x;\n"
         "  *to = ((two *)(a.x + 1))[threadIdx.x]; }",
         0},
        {"{ struct two { float s, t; }; two *to = (two *)(a.y + 999);\n"
         "  *to = ((two *)(a.x + 1))[threadIdx.x]; }",
         719}, /* its second half is past the end */
        /* Nor one of two words of 8 bytes, on a thread's own stack: gcc copies it by 16. */
        {"{ struct two { long long s, t; }; struct { two a; long long b; two c; } v;\n"
         "  two *const at[2] = {&v.a, &v.c}; two *volatile which = at[0];\n"
         "  for (int i = 0; i < 2; i++) { *which = two{i, threadIdx.x}; which = at[1]; }\n"
         "  v.b = 0; a.y[threadIdx.x] = (float)(v.a.t + v.b + v.c.s); }",
         0},
        {"{ __shared__ float s[64]; s[threadIdx.x] = 1; a.y[0] = s[63 - threadIdx.x]; }", 719},
        {"{ __shared__ float s[64]; s[threadIdx.x] = 1; __syncwarp();\n"
         "  a.y[threadIdx.x] = s[63 - threadIdx.x]; }",
         719}, /* another warp's */
        {"{ __shared__ float s[64]; s[threadIdx.x] = 1; __syncwarp();\n"
         "  a.y[threadIdx.x] = s[threadIdx.x ^ 1]; __syncwarp(); s[threadIdx.x ^ 2] = 3; }",
         0},
        {"{ __shared__ float s[64]; s[threadIdx.x] = 1; __syncthreads();\n"
         "  a.y[threadIdx.x] = s[63 - threadIdx.x]; __syncthreads(); s[threadIdx.x] = 2; }",
         0},
        {"{ __shared__ float s[64]; s[threadIdx.x] = 1; __syncthreads();\n"
         "  a.y[threadIdx.x] = s[63 - threadIdx.x]; s[threadIdx.x] = 2; }",
         719}, /* too early */
        {"{ __shared__ unsigned s[1]; if (threadIdx.x == 0) s[0] = 0; __syncthreads();\n"
         "  atomicOr(s, 1u << threadIdx.x % 32); __syncthreads(); a.y[threadIdx.x] = s[0]; }",
         0}, /* no race */
    };
    (void)unused;
    setenv("OGIVE_SHIM_CHECK", "1", 1);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        int result = run(cases[i].body, 1, 64, 0, NULL);
        if (result != cases[i].result)
            fail_msg("%s: %d, expected %d", cases[i].body, result, cases[i].result);
    }
    float y[COUNT];
    assert_int_equal(run(sum_of_blocks, 8, 128, 128 * 4, y), 0);
    unsetenv("OGIVE_SHIM_CHECK");
}

/* Runs y = x, then body, which may begin before that has ended: its CUresult. */
static int run_after(const char *body, bool overlaps)
{
    og_cu_function *functions[2];
    og_cu_module *modules[] = {load("{ a.y[threadIdx.x] = a.x[threadIdx.x]; }", &functions[0]),
                               load(body, &functions[1])};
    og_cu_address x, y;
    assert_int_equal(call.cuMemAlloc(&x, COUNT * sizeof(float)), 0);
    assert_int_equal(call.cuMemAlloc(&y, COUNT * sizeof(float)), 0);
    argument a = {(float *)(uintptr_t)x, (float *)(uintptr_t)y, COUNT};
    void *parameters[] = {&a};
    og_cu_launch_attribute attribute = {.id = 6, .value = {.allowed = overlaps}};
    const og_cu_launch_config config = {
        .grid = {1, 1, 1}, .block = {64, 1, 1}, .attributes = &attribute, .attribute_count = 1};
    assert_int_equal(
        call.cuLaunchKernel(functions[0], 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL), 0);
    int result = call.cuLaunchKernelEx(&config, functions[1], parameters, NULL);
    (void)call.cuMemFree(x);
    (void)call.cuMemFree(y);
    for (int i = 0; i < 2; i++)
        assert_int_equal(call.cuModuleUnload(modules[i]), 0);
    return result;
}

/* A launch that overlaps the one before touches nothing of its before it has waited. */
static void test_overlaps(void **unused)
{
    static const struct {
        const char *body;
        int result;
    } cases[] = {
        {"{ og_await_launch(); a.x[threadIdx.x] = a.y[threadIdx.x]; }", 0},
        {"{ float x = a.x[threadIdx.x]; og_await_launch(); a.y[threadIdx.x] = x; }", 0},
        {"{ a.y[500 + threadIdx.x] = 1; og_await_launch(); }", 0},
        {"{ float y = a.y[threadIdx.x]; og_await_launch(); a.x[threadIdx.x] = y; }", 719},
        {"{ a.y[threadIdx.x] = 1; og_await_launch(); }", 719},
        {"{ a.x[threadIdx.x] = 1; og_await_launch(); }", 719},
        {"{ if (threadIdx.x) og_await_launch(); a.x[threadIdx.x] = 1; }", 719},
        {"{ a.y[500 + threadIdx.x] = 1; }", 719}, /* what comes next would wait for this alone */
    };
    (void)unused;
    setenv("OGIVE_SHIM_CHECK", "1", 1);
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        int apart = run_after(cases[i].body, false), result = run_after(cases[i].body, true);
        if (apart != 0 || result != cases[i].result)
            fail_msg("%s: %d and %d, expected 0 and %d", cases[i].body, apart, result,
                     cases[i].result);
    }
    setenv("OGIVE_SHIM_ARCH", "80", 1); /* before Hopper nothing overlaps */
    assert_int_equal(run_after(cases[0].body, true), 1);
    unsetenv("OGIVE_SHIM_ARCH");
    unsetenv("OGIVE_SHIM_CHECK");
}

/* Idle: a kernel is known by its name, and does nothing; limits of launches are as ever. */
static void test_idle(void **unused)
{
    float y[COUNT];
    og_cu_function *function;
    (void)unused;
    setenv("OGIVE_SHIM_IDLE", "1", 1);
    assert_int_equal(run("{ a.y[threadIdx.x] = 1; no_such_function(); }", 1, 64, 0, y), 0);
    for (int i = 0; i < COUNT; i++)
        assert_true(isnan(y[i])); /* as memory is born */
    assert_int_equal(run("{ }", 0, 64, 0, NULL), 1);
    og_cu_module *module = load("{ }", &function);
    assert_int_equal(call.cuModuleGetFunction(&function, module, "runs"), 500);
    assert_int_equal(call.cuModuleUnload(module), 0);
    unsetenv("OGIVE_SHIM_IDLE");
}

static void test_compiler(void **unused)
{
    static const char *const wrong[] = {"--gpu-architecture=sm_90"};
    void *program;
    char log[4000];
    (void)unused;
    assert_int_equal(nvrtc.create(&program, "x y z", "k.cu", 0, NULL, NULL), 0);
    assert_int_equal(nvrtc.compile(program, 1, wrong), 5);
    nvrtc.log(program, log);
    assert_non_null(strstr(log, "--fmad=false"));
    assert_int_equal(nvrtc.compile(program, 2, options), 6);
    assert_int_equal(nvrtc.destroy(&program), 0);
    assert_int_equal(nvrtc.create(&program, "__device__ float f(float x) { return expf(x); }",
                                  "k.cu", 0, NULL, NULL),
                     0);
    assert_int_equal(nvrtc.compile(program, 2, options), 6); /* no libm */
    assert_int_equal(nvrtc.destroy(&program), 0);
}

static void test_memory(void **unused)
{
    og_cu_address a, b;
    char bytes[100] = {1};
    size_t free_bytes, total_bytes;
    (void)unused;
    assert_int_equal(call.cuMemAlloc(&a, 100), 0);
    assert_int_equal(call.cuMemcpy(a, (og_cu_address)(uintptr_t)bytes, 100), 0);
    assert_int_equal(call.cuMemcpy(a + 1, (og_cu_address)(uintptr_t)bytes, 100), 1);
    unsigned kind = 7;
    int ordinal = 7, which[] = {2, 9};
    void *values[] = {&kind, &ordinal};
    assert_int_equal(call.cuPointerGetAttributes(2, which, values, a + 99), 0);
    assert_true(kind == 2 && ordinal == 0);
    assert_int_equal(call.cuPointerGetAttributes(2, which, values, (og_cu_address)(uintptr_t)bytes),
                     0);
    assert_true(kind == 0 && ordinal == -2);
    assert_int_equal(call.cuMemAlloc(&b, (size_t)1 << 40), 2);
    assert_int_equal(call.cuMemGetInfo(&free_bytes, &total_bytes), 0);
    assert_int_equal(total_bytes - free_bytes, 100);
    assert_int_equal(call.cuMemFree(a + 16), 1);
    assert_int_equal(call.cuMemFree(a), 0);
    assert_int_equal(call.cuMemFree(a), 1);
    setenv("OGIVE_SHIM_FAIL", "cuMemAlloc:2", 1);
    assert_int_equal(call.cuMemAlloc(&a, 1), 0);
    assert_int_equal(call.cuMemAlloc(&b, 1), 2);
    assert_int_equal(call.cuMemAlloc(&b, 1), 0);
    unsetenv("OGIVE_SHIM_FAIL");
    assert_int_equal(call.cuMemFree(a), 0);
    assert_int_equal(call.cuMemFree(b), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),   cmocka_unit_test(test_votes),
        cmocka_unit_test(test_exits),   cmocka_unit_test(test_poison),
        cmocka_unit_test(test_wrong),   cmocka_unit_test(test_order),
        cmocka_unit_test(test_checked), cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_idle),    cmocka_unit_test(test_compiler),
        cmocka_unit_test(test_memory),
    };
    return test_report(cmocka_run_group_tests(tests, open_libraries, NULL));
}
