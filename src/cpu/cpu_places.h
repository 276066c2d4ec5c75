/* SPDX-License-Identifier: MIT
 *
 * cpu_places.h - convolutions whose tiles have places of an image as rows
 * (cpu_product_places.h): how the image is seen, and how large tiles are. All of it is known
 * before the run.
 */
#ifndef OG_CPU_PLACES_H
#define OG_CPU_PLACES_H

#include "cpu/cpu_product.h"

/* The image, which has a view, as a scene of k terms, or NULL: it is none. */
ogive_status og_cpu_see_scene(const og_cpu_factor *image, int64_t k, og_arena *arena,
                              og_cpu_scene **scene, ogive_error *error);

/* See og_cpu_product_kernels.cut; turns: columns are the places. False: there are none, or what
 * windows see of them does not fit. */
bool og_cpu_cut_places(og_cpu_scene *scene, bool turns, bool whole, int64_t tile_count,
                       size_t bytes, og_cpu_tiling *tiling);

#endif
