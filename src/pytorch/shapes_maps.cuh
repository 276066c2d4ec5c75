/* SPDX-License-Identifier: MIT
 *
 * shapes_maps.cuh - tensor maps of a file that is made for some shapes: og_cuda_map in the words of
 * cuTensorMapEncodeTiled().
 */
#include "pytorch/launch_maps.cuh"

struct og_tiles {
    int at; /* byte in the parameter */
    int bytes, rank;
    uint64_t extents[5], pitches[4]; /* in elements; in bytes */
    uint32_t box[5], steps[5];
    int swizzle, promotion;
};

static int og_add_map(og_args &a, const og_tiles &of, const char *address)
{
    const og_encoder encode = og_find_encoder();
    if (!encode)
        return cudaErrorNotSupported;
    return encode((CUtensorMap *)((char *)&a + of.at),
                  of.bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                  (cuuint32_t)of.rank, (void *)address, (const cuuint64_t *)of.extents,
                  (const cuuint64_t *)of.pitches, of.box, of.steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  (CUtensorMapSwizzle)of.swizzle, (CUtensorMapL2promotion)of.promotion,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
               ? cudaErrorInvalidValue
               : cudaSuccess;
}
