/* SPDX-License-Identifier: MIT
 *
 * nearest.c - the known name that a misspelt one most likely means, for error
 * messages: of functions and of parameters.
 */
#include "formula/nearest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 32 }; /* longer names have no near one */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Edit distance, in which two neighbours swapped count once and the case of a
 * letter does not count. Both lengths are at most LONGEST. */
static int measure_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    int rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = least(above[j - 1] + !same, 1 + least(above[j], row[j - 1]));
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

static bool begins_with(const char *name, size_t length, const char *start, size_t start_length)
{
    if (start_length > length)
        return false;
    for (size_t i = 0; i < start_length; i++) {
        if (lower(name[i]) != lower(start[i]))
            return false;
    }
    return true;
}

int og_name_distance(const char *name, size_t length, const char *known)
{
    size_t known_length = strlen(known);
    if (length == 0 || length > LONGEST || known_length > LONGEST)
        return -1;
    int distance = measure_distance(name, length, known, known_length);
    if (distance <= ((int)length + 1) / 3 && distance < (int)known_length)
        return distance;
    /* An abbreviation (sig, hardsig) or something appended (relu_, softmax2d). */
    if ((length >= 3 && begins_with(known, known_length, name, length)) ||
        (known_length >= 4 && begins_with(name, length, known, known_length)))
        return LONGEST + distance;
    return -1;
}

const char *og_function_nearest(const char *name, size_t length)
{
    const char *nearest = NULL;
    int best = -1;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        if (!function->group)
            continue;
        int distance = og_name_distance(name, length, function->name);
        if (distance >= 0 && (best < 0 || distance < best)) {
            best = distance;
            nearest = function->name;
        }
    }
    return nearest;
}

static bool is_word(const char *word, const char *name, size_t length)
{
    return strlen(word) == length && !memcmp(word, name, length);
}

/* What other libraries, and people, call functions of the language. */
static const char *const other_names[][2] = {
    {"swish", "silu"},
    {"logistic", "sigmoid"},
    {"log_sigmoid", "logsigmoid"},
    {"hard_sigmoid", "hardsigmoid"},
    {"hard_swish", "hardswish"},
    {"hard_tanh", "hardtanh"},
    {"ln", "log"},
    {"power", "pow"},
    {"clip", "clamp"},
    {"average", "mean"},
    {"layernorm", "layer_norm"},
    {"rmsnorm", "rms_norm"},
    {"mm", "matmul"},
    {"bmm", "matmul"},
    {"dot", "matmul"},
    {"select", "where"},
    {"to", "float32"},
    {"float", "float32"},
    {"double", "float64"},
    {"half", "float16"},
    {"fabs", "abs"},
    {"absolute", "abs"},
    {"sgn", "sign"},
    {"arctan", "atan"},
    {"expit", "sigmoid"},
    {"multiply", "mul"},
    {"subtract", "sub"},
    {"divide", "div"},
    {"masked_fill", "where"},
    {"split", "narrow"},
    {"chunk", "narrow"},
};

/* What no formula can do, by the beginnings of PyTorch's names for it. */
static const char *const beyond[][2] = {
    {"dropout", "random numbers"},
    {"rand", "random numbers"},
    {"bernoulli", "random numbers"},
    {"sort", "sorting"},
    {"argsort", "sorting"},
    {"topk", "sorting"},
    {"median", "sorting"},
    {"quantile", "sorting"},
    {"argmax", "indices"},
    {"argmin", "indices"},
    {"scaled_dot_product", "attention"},
    {"multi_head", "attention"},
    {"embedding", "indexing"},
    {"gather", "indexing"},
    {"scatter", "indexing"},
    {"index", "indexing"},
    {"cross_entropy", "indexing"},
    {"nll_loss", "indexing"},
    {"einsum", "einsum"},
    {"cat", "joining tensors"},
    {"concat", "joining tensors"},
    {"stack", "joining tensors"},
    {"reshape", "reshaping"},
    {"view", "reshaping"},
    {"permute", "reshaping"},
    {"squeeze", "reshaping"},
    {"unsqueeze", "reshaping"},
    {"flatten", "reshaping"},
    {"fft", "transforms"},
    {"svd", "decompositions"},
    {"inverse", "decompositions"},
    {"cumsum", "running sums"},
    {"cumprod", "running sums"},
};

/* The last part of a dotted name. */
static const char *get_last_part(const char *name, size_t *length)
{
    size_t start = *length;
    while (start > 0 && name[start - 1] != '.')
        start--;
    *length -= start;
    return name + start;
}

static bool is_space(const char *name, size_t length)
{
    static const char *const spaces[] = {"F",  "torch", "nn.functional", "torch.nn.functional",
                                         "np", "numpy", "math",          "ot"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (is_word(spaces[i], name, length))
            return true;
    return false;
}

/* The public function that is called so, in the language or elsewhere; or NULL. */
static const char *find_called(const char *name, size_t length)
{
    og_op op = og_function_find(name, length, false);
    if (op != OG_FUNCTION_COUNT)
        return og_function_of(op)->name;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (is_word(other_names[i][0], name, length))
            return other_names[i][1];
    return NULL;
}

void og_function_advise(const char *name, size_t length, char *text, size_t capacity)
{
    size_t last_length = length;
    const char *last = get_last_part(name, &last_length);
    const char *called = find_called(last, last_length);
    size_t before = length - last_length; /* with the point */
    int shown = before > LONGEST ? LONGEST : (int)before - 1;
    if (called && before && !is_space(name, before - 1)) {
        snprintf(text, capacity, "; write %s(%.*s, ...)", called, shown, name);
        return;
    }
    if (called) {
        snprintf(text, capacity, "; write %s(...)", called);
        return;
    }
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        if (begins_with(last, last_length, beyond[i][0], strlen(beyond[i][0]))) {
            snprintf(text, capacity, ": the language has no %s (ogive functions lists what it has)",
                     beyond[i][1]);
            return;
        }
    }
    const char *nearest = og_function_nearest(last, last_length);
    if (nearest)
        snprintf(text, capacity, "; did you mean '%s'? (ogive functions lists all)", nearest);
    else
        snprintf(text, capacity, " (ogive functions lists all)");
}

bool og_parameter_is_called(const og_parameter *parameter, const char *name, size_t length)
{
    const char *known = parameter->name;
    if (!known)
        return false;
    return is_word(known, name, length) ||
           (!strcmp(known, "dim") && is_word("axis", name, length)) ||
           (!strcmp(known, "keepdim") && is_word("keepdims", name, length));
}

const char *og_parameter_nearest(const og_function *function, const char *name, size_t length)
{
    const char *nearest = NULL;
    int best = -1;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        int distance = p->name ? og_name_distance(name, length, p->name) : -1;
        if (distance >= 0 && (best < 0 || distance < best)) {
            best = distance;
            nearest = p->name;
        }
    }
    return nearest;
}
