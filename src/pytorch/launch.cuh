/* SPDX-License-Identifier: MIT
 *
 * launch.cuh - CUDA's runtime, as units use it: a launch that may begin while the one before it
 * ends, and tensor maps, whose maker is asked of the runtime, so that nothing is linked.
 */
#include <cuda.h>
#include <cuda_runtime.h>

/* Launches that overlap can be captured into graphs from CUDA 12.3 on. */
static bool og_can_overlap()
{
    static int version = 0;
    if (version == 0)
        cudaDriverGetVersion(&version);
    return version >= 12030;
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
    config.numAttrs = overlaps && og_can_overlap();
    if (shared_bytes > 48 * 1024) {
        const int error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error)
            return error;
    }
    return cudaLaunchKernelExC(&config, kernel, arguments);
}
#define OG_LAUNCH(kernel, ...) og_launch((const void *)kernel, __VA_ARGS__)

typedef CUresult (*og_encoder)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static og_encoder og_find_encoder()
{
    static void *found = NULL;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    if (!found)
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                         cudaEnableDefault, &result);
#else
    if (!found)
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    return (og_encoder)found;
}

/* Matrices at address, of pairs of bytes or floats, in boxes swizzled by 128 bytes. */
static int og_make_map(og_map &to, const og_hopper_map &map, const void *address)
{
    const cuuint64_t extents[] = {(cuuint64_t)map.columns, (cuuint64_t)map.rows,
                                  (cuuint64_t)map.depth};
    const cuuint64_t pitches[] = {(cuuint64_t)map.pitch_bytes, (cuuint64_t)map.slab_bytes};
    const cuuint32_t steps[] = {1, 1, 1};
    const cuuint32_t box[] = {(cuuint32_t)map.box_columns, (cuuint32_t)map.box_rows,
                              (cuuint32_t)map.box_depth};
    const og_encoder encode = og_find_encoder();
    if (!encode)
        return cudaErrorNotSupported;
    return encode((CUtensorMap *)&to,
                  map.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                  3, (void *)address, extents, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
               ? cudaErrorInvalidValue
               : cudaSuccess;
}
