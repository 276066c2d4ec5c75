/* SPDX-License-Identifier: MIT
 *
 * cpu_packed.h - inputs that are packed before the run, for products that would else pack
 * them again in every run. Packed memory is a header, which every run checks, and
 * then the matrix as cpu_product.h wants it.
 */
#ifndef OG_CPU_PACKED_H
#define OG_CPU_PACKED_H

#include "cpu/cpu_prepare.h"

/* Of the header: what follows it is aligned as it is. */
enum { OG_CPU_PACKED_HEADER = 64 };

/* Is buffer an input that runs get packed? */
bool og_cpu_is_packed(const og_cpu_state *state, const og_buffer *buffer);

/* Can all inputs that are asked for be packed? Kernels are prepared. */
ogive_status og_cpu_check_packed(const og_plan *plan, const og_cpu_state *state,
                                 ogive_error *error);

/* See backend.h. */
size_t og_cpu_packed_bytes(const og_plan *plan, const void *state, int32_t input);
void og_cpu_pack(const og_plan *plan, const void *state, int32_t input, const void *data,
                 void *packed);

/* Are the inputs that must be packed what og_cpu_pack() makes for this plan? */
ogive_status og_cpu_check_headers(const og_plan *plan, const og_cpu_state *state,
                                  const void *const *inputs, ogive_error *error);

#endif
