/* SPDX-License-Identifier: MIT
 *
 * base.h - what every folder of the library shares: failing with a message,
 * size arithmetic that cannot wrap, memory that is freed in one go, dtypes.
 * Knows nothing of formulas, plans or devices.
 */
#ifndef OG_BASE_H
#define OG_BASE_H

#include "ogive.h"

#include <fenv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OG_MAX_RANK = 8 };

/* ---- errors -------------------------------------------------------------- */

#if defined(__GNUC__)
#define OG_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define OG_PRINTF(at, first)
#endif

/* Fills *error (if not NULL) and returns status. A message too long is cut at
 * a character boundary and ends in "...". */
ogive_status og_fail(ogive_error *error, ogive_status status, int64_t offset, const char *format,
                     ...) OG_PRINTF(4, 5);
ogive_status og_fail_memory(ogive_error *error, size_t bytes);
/* Sets OGIVE_OK, no offset, an empty message. Every public call starts with it. */
void og_error_clear(ogive_error *error);

#define OG_FAIL(error, status, offset, ...) return og_fail(error, status, offset, __VA_ARGS__)
#define OG_TRY(expression)                                                                         \
    do {                                                                                           \
        ogive_status og_try_status_ = (expression);                                                \
        if (og_try_status_ != OGIVE_OK)                                                            \
            return og_try_status_;                                                                 \
    } while (0)

/* ---- sizes --------------------------------------------------------------- */

/* *out = a * b (a + b); false if that does not fit. */
bool og_mul_size(size_t a, size_t b, size_t *out);
bool og_add_size(size_t a, size_t b, size_t *out);

static inline int64_t og_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t og_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* a * b, neither below 0, or INT64_MAX if that is less: extents may be anything, and what does not
 * fit is refused as blocks or bytes. */
static inline int64_t og_times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* a / b rounded up, for a >= 0 and b > 0. */
static inline int64_t og_divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* The greatest number that divides both; of 0 and a number, the number. */
static inline int64_t og_greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Number of elements of a shape whose dims are >= 0; false above INT64_MAX. */
bool og_shape_count(int rank, const int64_t *shape, int64_t *out);

/* "(2, 3)", "(5,)", "()" as PyTorch prints a shape. */
enum { OG_SHAPE_TEXT = 192 };
const char *og_shape_text(int rank, const int64_t *shape, char text[OG_SHAPE_TEXT]);

/* The shortest decimal that reads back as value: "0.01", "1e-05", "6", "-inf". */
enum { OG_NUMBER_TEXT = 32 };
const char *og_number_text(double value, char text[OG_NUMBER_TEXT]);

/* ---- floating-point state -------------------------------------------------- */

/* The state of the thread (rounding, flush-to-zero, traps, flags) is put aside
 * and the default set, so that no result depends on the caller's; then back. */
void og_float_state_enter(fenv_t *saved);
void og_float_state_leave(const fenv_t *saved);

/* ---- dtypes -------------------------------------------------------------- */

/* The types that formulas compute with come first, then those that they only read (and bool,
 * which comparisons give). */
typedef enum {
    OG_FLOAT32,
    OG_FLOAT16,
    OG_BFLOAT16,
    OG_FLOAT64,
    OG_FLOAT_COUNT,
    OG_BOOL = OG_FLOAT_COUNT,
    OG_UINT8,
    OG_INT8,
    OG_INT16,
    OG_INT32,
    OG_INT64,
    OG_DTYPE_COUNT
} og_dtype;

static inline bool og_dtype_is_float(og_dtype dtype)
{
    return dtype < OG_FLOAT_COUNT;
}

const char *og_dtype_name(og_dtype dtype);
size_t og_dtype_bytes(og_dtype dtype);
DLDataType og_dtype_dlpack(og_dtype dtype);
/* False for a type that formulas do not take; name (any size) then says which. */
bool og_dtype_from_dlpack(DLDataType type, og_dtype *out, char name[32]);

/* ---- arena: many small allocations, one free ------------------------------ */

typedef struct og_arena_block og_arena_block;
typedef struct {
    og_arena_block *first;
} og_arena;

/* Zeroed memory aligned to 16, owned by the arena; NULL if there is none. A zero
 * arena ({0}) is empty and ready. */
void *og_arena_alloc(og_arena *arena, size_t count, size_t size);
void og_arena_free(og_arena *arena);

#define OG_ARENA_NEW(arena, type, count) ((type *)og_arena_alloc(arena, count, sizeof(type)))

/* Doubles *items (malloc'ed, capacity *capacity, elements of size bytes) until
 * it holds needed elements; false if memory is short (*items stays valid). */
bool og_grow(void **items, size_t *capacity, size_t needed, size_t size);

/* The same for an array that starts in first (on the stack, say, never freed)
 * and moves to malloc'ed memory when it outgrows it. */
bool og_grow_from(const void *first, void **items, size_t *capacity, size_t needed, size_t size);

/* Text that grows, for printing plans and sources. */
typedef struct {
    char *data; /* NUL-terminated, or NULL while empty */
    size_t length, capacity;
    bool failed; /* memory ran out: length is what was kept */
} og_text;

void og_text_add(og_text *text, const char *format, ...) OG_PRINTF(2, 3);
void og_text_free(og_text *text);

#endif
