/* SPDX-License-Identifier: MIT
 *
 * inputs.h - the inputs of a formula, as they stand on the command line:
 *     x=in.npy                         a file
 *     w=weights.safetensors:fc.weight  one tensor of a file
 *     weights.safetensors              every tensor in it, under its own name
 *     x=128x4096:float32               generated, uniform in [0, 1)
 *     w=64:float32                     the same with one dim
 *     s=2.0                            a 0-d float32 tensor
 */
#ifndef OGIVE_CLI_INPUTS_H
#define OGIVE_CLI_INPUTS_H

#include "failure.h"
#include "host_tensor.h"
#include "ogive.h"
#include "text.h"

typedef enum { INPUT_FILE, INPUT_GENERATED, INPUT_NUMBER, INPUT_MISSING } input_kind;

typedef struct {
    const char *name; /* the formula's */
    input_kind kind;
    host_layout layout;
    double number;    /* of an INPUT_NUMBER */
    bool maybe_size;  /* it was written w=16, which could be meant as 16 elements */
    const void *data; /* NULL until inputs_load(), unless mapped */
    void *owned;      /* data, if it has to be freed */
    DLTensor tensor;  /* points into layout */
} input;

typedef struct input_source input_source;

typedef struct {
    input *items;
    size_t count;
    const DLTensor **tensors; /* of the items, as the library wants them */
    input_source *sources;    /* the open files */
    size_t source_count;
} inputs;

/* Whether a command-line argument can be an input at all. */
bool inputs_is_input(const char *argument);

/* Finds every input of formula among the arguments; those from number `required`
 * on may be INPUT_MISSING. Opens and maps files, but neither generates nor copies
 * anything: planning needs no data. */
bool inputs_resolve(const ogive_formula *formula, const text_list *arguments, size_t required,
                    inputs *out, failure *why);

/* The input that was written w=16, if another one has a dim of 16, or any such if any_size;
 * NULL: none. Who does not know w=16:float32 means 16 elements by that. */
const input *inputs_find_maybe_size(const inputs *in, bool any_size);

/* What inputs_resolve() says of an input that is required. */
bool inputs_fail_missing(const input *item, failure *why);

/* item becomes a number, as s=2.0 makes it. */
void inputs_set_number(input *item, double number);

/* Makes the data of every input available. */
bool inputs_load(inputs *in, uint64_t seed, failure *why);

void inputs_release(inputs *in);

/* Fills data with elements uniform in [0, 1), a function of seed, name and
 * index alone. */
void fill_uniform(const host_dtype *dtype, void *data, int64_t elements, uint64_t seed,
                  const char *name);

#endif
