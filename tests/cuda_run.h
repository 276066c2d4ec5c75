/* SPDX-License-Identifier: MIT
 *
 * cuda_run.h - a CUDA device through the public interface, for tests: the fake one of
 * tests/cuda where OGIVE_LIBCUDA names it (as CTest does), else the machine's first.
 */
#ifndef OG_CUDA_RUN_H
#define OG_CUDA_RUN_H

#include "test.h"

static const DLDevice cuda_device = {kDLCUDA, 0};

static inline bool device_is_fake(void)
{
    const char *driver = getenv("OGIVE_LIBCUDA");
    return driver && strstr(driver, "ogive_fake_cuda");
}

/* Does a launch do anything? Where it does not (OGIVE_SHIM_IDLE=1, as CTest has it under
 * sanitizers), results are what they were before, and nothing can be said of them. */
static inline bool device_computes(void)
{
    const char *idle = getenv("OGIVE_SHIM_IDLE");
    return !device_is_fake() || !idle || strcmp(idle, "1") != 0;
}

/* NULL, or why there is nothing to test on. A fake device has to work. */
static inline const char *device_skip(void)
{
    static ogive_cuda_info info;
    /* Kernels for the fake device are kept by fake_nvrtc.c, which knows when its header
     * has changed, and never among real ones. */
    if (device_is_fake())
        setenv("OGIVE_CACHE_DIR", "/dev/null", 1);
    ogive_cuda_describe(&info);
    return device_is_fake() ? NULL : info.driver_problem[0] ? info.driver_problem : NULL;
}

static inline void *device_alloc(size_t bytes)
{
    ogive_error error;
    void *data = NULL;
    TEST_OK(ogive_device_allocate(cuda_device, bytes, &data, &error), error);
    return data;
}

static inline void device_free(void *data)
{
    ogive_error error;
    TEST_OK(ogive_device_free(cuda_device, data, &error), error);
}

static inline void device_copy(void *to, const void *from, size_t bytes)
{
    ogive_error error;
    TEST_OK(ogive_device_copy(cuda_device, to, from, bytes, &error), error);
}

static inline void *first_element(const DLTensor *tensor)
{
    return tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
}

/* Plans and runs, with a workspace of exactly the bytes asked for, full of NaNs, and
 * waits. */
static inline ogive_status device_run(const ogive_formula *formula, DLTensor *const *inputs,
                                      size_t input_count, DLTensor *const *outputs,
                                      size_t output_count, const ogive_options *options,
                                      ogive_error *error)
{
    enum { MOST = 64 };
    const void *in[MOST];
    void *out[MOST];
    ogive_plan *plan;
    assert_true(input_count <= MOST && output_count <= MOST);
    ogive_status status =
        ogive_plan_create(formula, (const DLTensor *const *)inputs, input_count,
                          (const DLTensor *const *)outputs, output_count, options, &plan, error);
    if (status != OGIVE_OK)
        return status;
    for (size_t i = 0; i < input_count; i++)
        in[i] = first_element(inputs[i]);
    for (size_t i = 0; i < output_count; i++)
        out[i] = first_element(outputs[i]);
    size_t bytes = ogive_plan_workspace(plan);
    void *workspace = device_alloc(bytes);
    if (bytes && !device_is_fake()) { /* the fake one's memory is born so */
        void *nans = malloc(bytes);
        assert_non_null(nans);
        memset(nans, 0xff, bytes);
        device_copy(workspace, nans, bytes);
        free(nans);
    }
    status = ogive_plan_run(plan, in, out, workspace, NULL, error);
    if (status == OGIVE_OK)
        status = ogive_device_synchronize(cuda_device, NULL, error);
    device_free(workspace);
    ogive_plan_release(plan);
    return status;
}

#endif
