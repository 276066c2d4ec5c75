/* SPDX-License-Identifier: MIT
 *
 * launch_maps.cuh - tensor maps, whose maker is asked of the runtime, so that nothing is linked.
 */
#include <cuda.h>
#include <cuda_runtime.h>

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
