/* SPDX-License-Identifier: MIT
 *
 * cuda_product_split.cuh - the second launch of a product whose k was split: adds the sums of
 * blocks of k in order and applies pass 0. Eight threads take a run of OG_RUN columns of a
 * row, two quads each.
 */
enum { OG_ADD_THREADS = 256 };
static_assert(OG_QUADS == 2, "");

OG_KERNEL(og_add_blocks, OG_ADD_THREADS)
{
    og_index runs = a.pitch / OG_RUN;
    og_index item = ((og_index)blockIdx.x * OG_ADD_THREADS + (og_index)threadIdx.x) / 8;
    og_index index = item / runs, n = item % runs * OG_RUN + threadIdx.x % 8 * 4;
    bool there = index < a.rows;
    og_quad z[OG_PRODUCTS][2];
#pragma unroll
    for (int p = 0; p < OG_PRODUCTS; p++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            og_quad total, group;
#pragma unroll
            for (int j = 0; j < 4; j++)
                total.e[j] = group.e[j] = (og_number)-0.0f;
#pragma unroll 4
            for (og_index block = 0; block < a.blocks_of_k; block++) {
                og_quad x = *og_block_quad(a, p, block, there ? index : 0, n + 32 * h);
                bool ends = block + 1 == a.blocks_of_k || (block + 1) % (4096 / 256) == 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    group.e[j] = group.e[j] + x.e[j];
                    total.e[j] = ends ? total.e[j] + group.e[j] : total.e[j];
                    group.e[j] = ends ? (og_number)-0.0f : group.e[j];
                }
            }
            z[p][h] = total;
        }
    og_index base = index / a.m;
    og_finish_row(a, there ? base : 0, there ? index - base * a.m : a.m, n, z);
}
