/* SPDX-License-Identifier: MIT
 *
 * product_split.cuh - the second launch of a product whose k was split: adds the sums of
 * blocks or groups of k in order and applies pass 0. Eight threads take a run of OG_RUN columns
 * of a row, two quads each.
 *
 * PARAMETERS
 *   OG_GROUP_SUMS  of a group of k that were left: one for each block, or 1
 */
#include "cuda/kernels/product.cuh"

enum { OG_ADD_THREADS = 256, OG_ADD_AHEAD = 16 /* sums on their way */ };

OG_KERNEL(og_add_parts, OG_ADD_THREADS)
{
    og_index runs = (a.n + OG_RUN - 1) / OG_RUN;
    og_index item = ((og_index)blockIdx.x * OG_ADD_THREADS + (og_index)threadIdx.x) / 8;
    og_index index = item / runs, n = item % runs * OG_RUN + threadIdx.x % 8 * 4;
    bool there = index < a.rows;
    og_quad z[OG_PRODUCTS][2];
    og_await_launch();
#pragma unroll
    for (int p = 0; p < OG_PRODUCTS; p++) {
        og_quad(&total)[2] = z[p], group[2];
#pragma unroll
        for (int j = 0; j < 8; j++)
            total[j / 4].e[j % 4] = group[j / 4].e[j % 4] = (og_number)-0.0f;
#pragma unroll OG_ADD_AHEAD
        for (og_index i = 0; i < a.sums; i++) {
            bool ends = i + 1 == a.sums || (i + 1) % OG_GROUP_SUMS == 0;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                og_index column = n + 32 * h < a.pitch ? n + 32 * h : 0;
                og_quad x = *(const og_quad *)og_part_sum(a, p, i, there ? index : 0, column);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    og_number sum = group[h].e[j] + x.e[j];
                    total[h].e[j] = ends ? total[h].e[j] + sum : total[h].e[j];
                    group[h].e[j] = ends ? (og_number)-0.0f : sum;
                }
            }
        }
    }
    og_index base = index / a.m;
    og_finish_row(a, there ? base : 0, there ? index - base * a.m : a.m, n, z);
}
