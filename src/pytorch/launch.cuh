/* SPDX-License-Identifier: MIT
 *
 * launch.cuh - CUDA's runtime, as units use it: a launch that may begin while the one before it
 * ends.
 */
#include <cuda_runtime.h>

/* Kernels wait for the one before them if they were compiled for sm_90 or later. Launches that
 * overlap can be captured into graphs from CUDA 12.3 on. */
static bool og_can_overlap(const void *kernel)
{
    static int version = 0;
    static cudaFuncAttributes attributes;
    if (version == 0) {
        cudaFuncGetAttributes(&attributes, kernel);
        cudaDriverGetVersion(&version);
    }
    return version >= 12030 && attributes.binaryVersion >= 90;
}

static int og_launch(const void *kernel, int64_t blocks, int threads, int64_t shared_bytes,
                     bool overlaps, void *stream, og_args &a)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute overlap = {};
    void *arguments[] = {&a};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)shared_bytes;
    config.stream = (cudaStream_t)stream;
    config.attrs = &overlap;
    config.numAttrs = overlaps && og_can_overlap(kernel);
    if (shared_bytes > 48 * 1024) {
        const int error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error)
            return error;
    }
    return cudaLaunchKernelExC(&config, kernel, arguments);
}
#define OG_LAUNCH(kernel, ...) og_launch((const void *)kernel, __VA_ARGS__)
