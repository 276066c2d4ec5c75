/* SPDX-License-Identifier: MIT
 *
 * cpu_levels.c - finds out once what this machine can run, and lets the caller
 * (or OGIVE_CPU) choose a lower level. The names are those of the x86-64 psABI:
 * a level counts only if the CPU has everything the psABI lists for it, since
 * the compiler was told that it may use all of it, and if the operating system
 * saves the wide registers (XCR0): a CPUID bit alone does not say so.
 */
#include "cpu/cpu_levels.h"

#include "cpu/cpu_threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the machine has -------------------------------------------------- */

typedef struct {
    const char *name;
    const og_cpu_kernels *kernels;
} cpu_level;

/* Lowest first; each includes the ones before it. */
#if defined(__x86_64__)
#include <cpuid.h>

static const cpu_level levels[] = {
    {"x86-64", &og_cpu_kernels_x86_64},
    {"x86-64-v3", &og_cpu_kernels_x86_64_v3},
    {"x86-64-v4", &og_cpu_kernels_x86_64_v4},
};

/* The state that the operating system saves: bit 1 SSE, 2 AVX, 5 to 7 AVX-512. */
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_bits(uint64_t word, uint64_t bits)
{
    return (word & bits) == bits;
}

/* Index of the highest level. */
static size_t find_highest(void)
{
    uint32_t a, b, c, d, leaf1_c, leaf7_b = 0, extended_c = 0;
    if (!__get_cpuid(1, &a, &b, &leaf1_c, &d) || !__get_cpuid_count(7, 0, &a, &leaf7_b, &c, &d) ||
        !__get_cpuid(0x80000001, &a, &b, &extended_c, &d))
        return 0;

    /* Level 2 is in here too: SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT, LAHF. */
    const uint32_t v3_leaf1_c = bit_SSE3 | bit_SSSE3 | bit_FMA | bit_CMPXCHG16B | bit_SSE4_1 |
                                bit_SSE4_2 | bit_MOVBE | bit_POPCNT | bit_OSXSAVE | bit_AVX |
                                bit_F16C;
    const uint32_t v3_leaf7_b = bit_BMI | bit_AVX2 | bit_BMI2;
    const uint32_t v3_extended_c = bit_LAHF_LM | bit_LZCNT;
    const uint32_t v4_leaf7_b =
        bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL;

    if (!has_bits(leaf1_c, v3_leaf1_c) || !has_bits(leaf7_b, v3_leaf7_b) ||
        !has_bits(extended_c, v3_extended_c) || !has_bits(read_xcr0(), 0x06))
        return 0;
    return has_bits(leaf7_b, v4_leaf7_b) && has_bits(read_xcr0(), 0xe6) ? 2 : 1;
}

#elif defined(__aarch64__)

static const cpu_level levels[] = {{"aarch64", &og_cpu_kernels_aarch64}};

static size_t find_highest(void)
{
    return 0;
}

#else
#error "Ogive has kernels for x86-64 and AArch64 only"
#endif

enum { LEVEL_COUNT = sizeof levels / sizeof levels[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static size_t machine_highest;

static void look_at_machine(void)
{
    machine_highest = find_highest();
}

static size_t get_highest(void)
{
    pthread_once(&once, look_at_machine);
    return machine_highest;
}

/* ---- choosing -------------------------------------------------------------- */

static ogive_status fail_unknown(const char *source, const char *wanted, ogive_error *error)
{
    char names[128] = "";
    for (size_t i = 0; i < LEVEL_COUNT; i++) {
        if (i)
            strcat(names, i + 1 < LEVEL_COUNT ? ", " : " or ");
        strcat(strcat(strcat(names, "'"), levels[i].name), "'");
    }
    OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s is '%.40s', expected %s", source, wanted, names);
}

ogive_status og_cpu_select(const char *wanted, const og_cpu_kernels **out, const char **name,
                           ogive_error *error)
{
    *out = NULL;
    *name = NULL;
    const char *source = "cpu_level";
    if (!wanted) {
        source = "OGIVE_CPU";
        wanted = getenv("OGIVE_CPU");
    }
    const size_t highest = get_highest();
    size_t i = highest;
    if (wanted && *wanted) {
        for (i = 0; i < LEVEL_COUNT && strcmp(wanted, levels[i].name) != 0; i++)
            ;
        if (i == LEVEL_COUNT)
            return fail_unknown(source, wanted, error);
        if (i > highest)
            OG_FAIL(error, OGIVE_UNSUPPORTED, -1, "%s is '%s', but this machine's level is '%s'",
                    source, wanted, levels[highest].name);
    }
    *out = levels[i].kernels;
    *name = levels[i].name;
    return OGIVE_OK;
}

const char *ogive_cpu_level_name(size_t index)
{
    return index <= get_highest() ? levels[index].name : NULL;
}

const char *ogive_cpu_level(void)
{
    const og_cpu_kernels *kernels;
    const char *name;
    if (og_cpu_select(NULL, &kernels, &name, NULL) != OGIVE_OK)
        name = levels[get_highest()].name;
    return name;
}

int32_t ogive_cpu_threads(void)
{
    return og_cpu_thread_count(0);
}
