/* SPDX-License-Identifier: MIT
 *
 * unit_shim.h - takes the place of src/pytorch/launch*.cuh where there is no GPU: emulated.py has
 * launches run, and tensor maps made, by the driver that stands in for libcuda (tests/cuda).
 */
struct shim_host {
    int (*launch)(const char *kernel, int64_t blocks, int threads, int64_t shared_bytes,
                  int overlaps, void *argument);
    int (*map)(void *to, const void *map, const void *address);
    int (*tiles)(void *to, const void *tiles, const void *address); /* og_tiles */
};
extern "C" {
__attribute__((visibility("default"))) shim_host og_shim_host;
}

#define OG_SHIM_TEXT(...) #__VA_ARGS__
#define OG_SHIM_NAME(kernel) OG_SHIM_TEXT(kernel)
#define OG_LAUNCH(kernel, blocks, threads, shared_bytes, overlaps, stream, a)                      \
    og_shim_host.launch(OG_SHIM_NAME(kernel), blocks, threads, shared_bytes, overlaps, &a)

template <class Map, class Of> static int og_make_map(Map &to, const Of &map, const void *address)
{
    return og_shim_host.map(&to, &map, address);
}
