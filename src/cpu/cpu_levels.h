/* SPDX-License-Identifier: MIT
 *
 * cpu_levels.h - which of the compiled kernels this machine can run, and the
 * floating-point environment that they need.
 */
#ifndef OG_CPU_LEVELS_H
#define OG_CPU_LEVELS_H

#include "base/base.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* One level's kernels: cpu_kernels.h says what they are. */
typedef struct og_cpu_kernels og_cpu_kernels;

#if defined(__x86_64__)
extern const og_cpu_kernels og_cpu_kernels_x86_64;
extern const og_cpu_kernels og_cpu_kernels_x86_64_v3;
extern const og_cpu_kernels og_cpu_kernels_x86_64_v4;
#elif defined(__aarch64__)
extern const og_cpu_kernels og_cpu_kernels_aarch64;
#endif

/* The kernels of the level called wanted; NULL: of the level that OGIVE_CPU
 * names, else of the machine's highest. *name is the level's (static) name. */
ogive_status og_cpu_select(const char *wanted, const og_cpu_kernels **out, const char **name,
                           ogive_error *error);

/* Results must not depend on the caller's rounding mode, on flush-to-zero or on
 * denormals-are-zero, and the caller must not see its state changed: every run
 * is between enter and leave, on each thread. About 10 cycles.
 * The code between them belongs in a function of its own that the compiler cannot
 * inline (the kernels are called by pointer): it does not know that arithmetic
 * depends on this state. */
typedef struct {
    uint64_t control, status;
} og_cpu_float_state;

static inline og_cpu_float_state og_cpu_float_enter(void)
{
    og_cpu_float_state saved = {0, 0};
#if defined(__x86_64__)
    saved.control = _mm_getcsr();
    _mm_setcsr(0x1f80); /* all exceptions masked, to nearest, no FTZ or DAZ */
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(saved.control), "=r"(saved.status));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
#endif
    return saved;
}

/* Brings back the sticky exception flags too. */
static inline void og_cpu_float_leave(og_cpu_float_state saved)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)saved.control);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1"
                     :
                     : "r"(saved.control), "r"(saved.status)
                     : "memory");
#endif
}

#endif
