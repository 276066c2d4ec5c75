/* SPDX-License-Identifier: MIT
 *
 * functions.c - functions.def as a table, found by name in constant time, and
 * the float64 values by which constant expressions are folded. Misspelt names
 * are in nearest.c.
 */
#include "formula/functions.h"

#include "math/scalar_f64.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define OG_INFINITY INFINITY
#define OG_NAN NAN

/* functions.def's words for a signature, as og_parameter. */
/* clang-format off */
#define PARAMETER(of_kind, word, ...) {.kind = OG_PARAMETER_##of_kind, .name = #word, __VA_ARGS__}
#define TENSOR(name) PARAMETER(TENSOR, name, .required = true)
#define CONDITION(name) PARAMETER(TENSOR, name, .required = true, .is_mask = true)
#define TENSOR_OR(name, value) PARAMETER(TENSOR, name, .number = value)
#define NUMBER(name) PARAMETER(NUMBER, name, .required = true)
#define NUMBER_OR(name, value) PARAMETER(NUMBER, name, .number = value)
#define CASES(name, value, ...) \
    PARAMETER(NUMBER, name, .number = value, .selects = true, .cases = {__VA_ARGS__}, \
              .case_count = (int32_t)(sizeof (double[]){__VA_ARGS__} / sizeof(double)))
#define COUNT_OR(name, value) PARAMETER(NUMBER, name, .number = value, .is_count = true)
#define DIM(name) PARAMETER(DIM, name, .required = true)
#define DIM_OR(name, value) PARAMETER(DIM, name, .number = value)
#define DIMS(name) PARAMETER(DIMS, name, .required = true)
#define DIMS_OR_ALL(name) PARAMETER(DIMS, name, .required = false)
#define DIMS_SWITCH(name) PARAMETER(DIMS, name, .selects = true)
#define SIZES(name) PARAMETER(SIZES, name, .required = true)
#define STEPS(name) PARAMETER(STEPS, name, .required = true)
#define STEPS_OR(name, value) PARAMETER(STEPS, name, .number = value)
#define WIDTHS(name) PARAMETER(STEPS, name, .choices = {"valid", "same"})
#define FLAG(name) PARAMETER(FLAG, name, .required = false)
#define FLAG_SET(name) PARAMETER(FLAG, name, .number = 1)
#define SWITCH(name) PARAMETER(FLAG, name, .selects = true)
#define SWITCH_SET(name) PARAMETER(FLAG, name, .selects = true, .number = 1)
#define CHOICE(name, ...) PARAMETER(CHOICE, name, .selects = true, .choices = {__VA_ARGS__})
#define WORD(name, ...) PARAMETER(CHOICE, name, .choices = {__VA_ARGS__})
#define KEYWORD {.kind = OG_PARAMETER_KEYWORD}
/* clang-format on */

/* The measured rows of accuracy.def overwrite the -1 that every row starts with, those of
 * operators their NULL. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
#endif

static const og_function functions[OG_FUNCTION_COUNT] = {
#define ROW(function, ...) [OG_OP_##function] = {.name = #function, .max_ulp = -1.0, __VA_ARGS__},
#define SCALAR(name, count, constant_count, price, topic, rule, ...)                               \
    ROW(name, .kind = OG_SCALAR, .args = count, .constants = constant_count,                       \
        .cost = OG_COST_##price, .group = topic, .derivative = rule, .parameters = {__VA_ARGS__})
#define MASK(name, topic, ...)                                                                     \
    ROW(name, .kind = OG_MASKING, .args = 2, .group = topic, .parameters = {__VA_ARGS__})
#define COMPOSITE(name, topic, text, ...)                                                          \
    ROW(name, .kind = OG_COMPOSITE, .group = topic, .meaning = text, .parameters = {__VA_ARGS__})
#define DERIVED(name, topic, text, rule, ...)                                                      \
    ROW(name, .kind = OG_COMPOSITE, .group = topic, .meaning = text, .derivative = rule,           \
        .parameters = {__VA_ARGS__})
#define REDUCTION(name, folded_by, topic, rule, ...)                                               \
    ROW(name, .kind = OG_REDUCTION, .args = 1, .fold = OG_FOLD_##folded_by, .group = topic,        \
        .derivative = rule, .parameters = {__VA_ARGS__})
#define SPECIAL(name, topic, rule, ...)                                                            \
    ROW(name, .kind = OG_SPECIAL, .group = topic, .derivative = rule, .parameters = {__VA_ARGS__})
#define OVERLOAD(name, other) [OG_OP_##name].overload = 1 + OG_OP_##other,
#define FLOATS(name) [OG_OP_##name].gives_floats = true,
#define OPERATOR(name, text, tightness)                                                            \
    [OG_OP_##name].symbol = text, [OG_OP_##name].level = OG_BINDS_##tightness,
#include "formula/functions.def"

#define OG_ACCURACY(name, ulp, bits) [OG_OP_##name].max_ulp = ulp, [OG_OP_##name].hash = bits,
#include "math/accuracy.def"
#undef OG_ACCURACY
};

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

const og_function *og_function_of(og_op op)
{
    return &functions[op];
}

bool og_op_is_reduction(og_op op)
{
    return op < OG_FUNCTION_COUNT && functions[op].kind == OG_REDUCTION;
}

bool og_op_gives_floats(og_op op)
{
    return op < OG_FUNCTION_COUNT && functions[op].gives_floats;
}

og_fold og_op_fold(og_op op)
{
    return functions[op].fold;
}

bool og_op_is_maximum(og_op op)
{
    return functions[op].fold == OG_FOLD_MAX || functions[op].fold == OG_FOLD_PEAK;
}

og_cost og_op_cost(og_op op)
{
    return op < OG_FUNCTION_COUNT ? functions[op].cost : OG_COST_FEW;
}

const char *og_op_infix(og_op op)
{
    bool is_binary = op < OG_FUNCTION_COUNT && functions[op].args == 2;
    return is_binary ? functions[op].symbol : NULL;
}

const char *og_function_module(og_op op)
{
    static const char *const functional[] = {"activation", "gating",  "normalisation", "distance",
                                             "loss",       "pooling", "convolution"};
    if (op == OG_OP_unfold) /* torch.nn.functional.unfold is another one */
        return NULL;
    if (op == OG_OP_max || op == OG_OP_min || op == OG_OP_std_mean || op == OG_OP_var_mean)
        return NULL;
    if (op == OG_OP_vector_norm)
        return "torch.linalg";
    for (size_t i = 0; i < sizeof functional / sizeof *functional; i++)
        if (functions[op].group && !strcmp(functions[op].group, functional[i]))
            return "F";
    return op == OG_OP_linear ? "F" : "torch";
}

bool og_op_slices(og_op op)
{
    return op == OG_OP_narrow || op == OG_OP_narrow_back || op == OG_OP_portion ||
           op == OG_OP_portion_back;
}

bool og_op_convolves_back(og_op op)
{
    return op == OG_OP_convolve_back || op == OG_OP_convolve_back_like;
}

bool og_op_convolves(og_op op)
{
    return op == OG_OP_convolve || op == OG_OP_convolve_like || op == OG_OP_convolve_weight ||
           og_op_convolves_back(op);
}

int og_op_value_count(og_op op, int count)
{
    switch ((int)op) {
    case OG_OP_sum_like:
    case OG_OP_broadcast_like:
    case OG_OP_expand:
    case OG_OP_cast_like:
    case OG_OP_reshape_like:
    case OG_OP_channel_like:
    case OG_OP_group_spread:
    case OG_OP_full_like:
    case OG_OP_product_t:
    case OG_OP_slide_back:
    case OG_OP_narrow_back:
    case OG_OP_portion_back:
    case OG_OP_convolve_like:
    case OG_OP_convolve_back_like:
    case OG_OP_convolve_weight:
    case OG_OP_bias_of:
    case OG_OP_index:
        return count - 1;
    case OG_OP_part_size: /* two of them */
        return 0;
    default:
        return count;
    }
}

/* ---- lookup -------------------------------------------------------------- */

enum { SLOTS = 512 }; /* a power of two, several times OG_FUNCTION_COUNT */
_Static_assert(OG_FUNCTION_COUNT * 2 < SLOTS && OG_FUNCTION_COUNT < 255, "make SLOTS larger");

/* 1 + op by hash, 0 for none. Filled at the first use, perhaps by several threads
 * at once: they store the same values, so relaxed atomics do. */
static _Atomic uint8_t slots[SLOTS];
static atomic_bool slots_filled;

static unsigned hash_name(const char *name, size_t length)
{
    uint32_t hash = (uint32_t)length;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 0x01000193u;
    return hash ^ hash >> 15;
}

static void fill_slots(void)
{
    /* Built apart, so that a slot never holds two values in turn. */
    uint8_t filled[SLOTS] = {0};
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        unsigned slot = hash_name(functions[op].name, strlen(functions[op].name)) % SLOTS;
        while (filled[slot])
            slot = (slot + 1) % SLOTS;
        filled[slot] = (uint8_t)(op + 1);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        atomic_store_explicit(&slots[slot], filled[slot], memory_order_relaxed);
    atomic_store_explicit(&slots_filled, true, memory_order_release);
}

og_op og_function_find(const char *name, size_t length, bool hidden)
{
    if (!atomic_load_explicit(&slots_filled, memory_order_acquire))
        fill_slots();
    for (unsigned slot = hash_name(name, length) % SLOTS;; slot = (slot + 1) % SLOTS) {
        unsigned found = atomic_load_explicit(&slots[slot], memory_order_relaxed);
        if (!found)
            return OG_FUNCTION_COUNT;
        const og_function *function = &functions[found - 1];
        if (strlen(function->name) == length && !memcmp(function->name, name, length))
            return hidden || function->group ? (og_op)(found - 1) : OG_FUNCTION_COUNT;
    }
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

const char *og_function_public_meaning(const og_function *function)
{
    const char *at = function->meaning;
    while (at && *at) {
        size_t length = 0;
        while (is_letter(at[length]))
            length++;
        if (at[length] == '(' && length && og_function_find(at, length, false) == OG_FUNCTION_COUNT)
            return NULL;
        at += length ? length : 1;
    }
    return function->meaning;
}

/* ---- values -------------------------------------------------------------- */

bool og_is_whole(double value)
{
    return og_trunc_f64(value) == value && og_abs_f64(value) < OG_INFINITY;
}

double og_function_value(og_op op, const double *args, const double *constants)
{
#define CALL_1_0(f) f(args[0])
#define CALL_1_1(f) f(args[0], constants[0])
#define CALL_1_2(f) f(args[0], constants[0], constants[1])
#define CALL_2_0(f) f(args[0], args[1])
#define CALL_2_1(f) f(args[0], args[1], constants[0])
    switch (op) {
#define SCALAR(name, count, constant_count, ...)                                                   \
    case OG_OP_##name:                                                                             \
        return CALL_##count##_##constant_count(og_##name##_f64);
#include "formula/functions.def"
    default:
        return OG_NAN;
    }
}

/* ---- signatures ---------------------------------------------------------- */

static void print_default(const og_parameter *parameter, char *text, size_t capacity)
{
    char number[OG_NUMBER_TEXT];
    switch (parameter->kind) {
    case OG_PARAMETER_FLAG:
        snprintf(text, capacity, parameter->number != 0 ? "True" : "False");
        break;
    case OG_PARAMETER_CHOICE:
        snprintf(text, capacity, "'%s'", parameter->choices[0]);
        break;
    case OG_PARAMETER_DIM:
        snprintf(text, capacity, "%d", (int)parameter->number);
        break;
    case OG_PARAMETER_STEPS:
        snprintf(text, capacity, isnan(parameter->number) ? "None" : "%.0f", parameter->number);
        break;
    case OG_PARAMETER_NUMBER:
        if (parameter->is_count) {
            snprintf(text, capacity, "%.0f", parameter->number);
            break;
        }
        /* Infinite and NaN defaults stand for "no bound" and "by the type". */
        if (isfinite(parameter->number)) {
            og_number_text(parameter->number, number);
            snprintf(text, capacity, "%s%s", number, strpbrk(number, ".e") ? "" : ".0");
            break;
        }
        snprintf(text, capacity, "None");
        break;
    default:
        snprintf(text, capacity, "None");
    }
}

void og_function_signature(const og_function *function, char *text, size_t capacity)
{
    size_t length = 0;
    if (capacity)
        text[0] = '\0';
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        char value[OG_NUMBER_TEXT + 16] = "";
        bool is_keyword = p->kind == OG_PARAMETER_KEYWORD;
        if (!p->required && !is_keyword)
            print_default(p, value, sizeof value);
        if (length >= capacity)
            return;
        int added = snprintf(text + length, capacity - length, "%s%s%s%s",
                             p == function->parameters ? "" : ", ", is_keyword ? "*" : p->name,
                             value[0] ? "=" : "", value);
        if (added < 0)
            return;
        length += (size_t)added;
    }
}
