/* SPDX-License-Identifier: MIT
 *
 * test_gradient.h - what the tests of gradients share: small float64 tensors,
 * formulas run on them, gradients that must exist.
 */
#ifndef OG_TEST_GRADIENT_H
#define OG_TEST_GRADIENT_H

#include "test.h"

#include "api/api.h"

enum { MAX_ARRAYS = 12 };

/* A contiguous float64 tensor. */
typedef struct {
    int32_t rank;
    int64_t shape[OG_MAX_RANK];
    int64_t count;
    double *data;
} array;

static inline array new_array(int32_t rank, const int64_t *shape)
{
    array a = {.rank = rank, .count = 1};
    for (int32_t d = 0; d < rank; d++)
        a.count *= a.shape[d] = shape[d];
    a.data = calloc((size_t)a.count + 1, sizeof *a.data);
    assert_non_null(a.data);
    return a;
}

/* "3x4" or "" (a 0-d tensor), filled with random numbers. */
static inline const char *read_array(const char *text, double low, double high, test_random *random,
                                     array *a)
{
    int64_t shape[OG_MAX_RANK];
    int32_t rank = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        shape[rank++] = strtoll(text, &end, 10);
        text = end + (*end == 'x');
    }
    text += *text == '-'; /* a 0-d tensor is written - */
    *a = new_array(rank, shape);
    for (int64_t i = 0; i < a->count; i++)
        a->data[i] = test_random_range(random, low, high);
    return text + (*text == ' ');
}

static inline void free_arrays(array *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(arrays[i].data);
}

/* ---- evaluating ------------------------------------------------------------ */

/* Fills outputs, which are new; returns how many. */
static inline size_t evaluate(ogive_formula *formula, const array *inputs, array *outputs)
{
    test_tensor tensors[MAX_ARRAYS];
    const DLTensor *pointers[MAX_ARRAYS];
    const void *data[MAX_ARRAYS];
    void *results[MAX_ARRAYS];
    ogive_error error;
    ogive_plan *plan;
    size_t input_count = ogive_formula_input_count(formula);
    size_t count = ogive_formula_result_count(formula);
    assert_true(input_count <= MAX_ARRAYS && count <= MAX_ARRAYS);
    for (size_t i = 0; i < input_count; i++) {
        pointers[i] = test_tensor_init(&tensors[i], inputs[i].data, test_float64, inputs[i].rank,
                                       inputs[i].shape, NULL);
        data[i] = inputs[i].data;
    }
    ogive_status status =
        ogive_plan_create(formula, pointers, input_count, NULL, 0, NULL, &plan, &error);
    if (status)
        fail_msg("%s: %s", formula->graph.text, error.message);
    for (size_t i = 0; i < count; i++) {
        const DLTensor *result = ogive_plan_result(plan, i);
        assert_int_equal(result->dtype.bits, 64);
        outputs[i] = new_array(result->ndim, result->shape);
        results[i] = outputs[i].data;
    }
    void *workspace = aligned_alloc(64, (ogive_plan_workspace(plan) + 127) / 64 * 64);
    status = ogive_plan_run(plan, data, results, workspace, NULL, &error);
    free(workspace);
    ogive_plan_release(plan);
    if (status)
        fail_msg("%s: %s", formula->graph.text, error.message);
    return count;
}

/* Sum over the results of their elements times those of weights. */
static inline double evaluate_loss(ogive_formula *formula, const array *inputs,
                                   const array *weights)
{
    array results[MAX_ARRAYS];
    size_t count = evaluate(formula, inputs, results);
    double loss = 0;
    for (size_t r = 0; r < count; r++)
        for (int64_t i = 0; i < results[r].count; i++)
            loss += weights ? results[r].data[i] * weights[r].data[i] : results[r].data[i];
    free_arrays(results, count);
    return loss;
}

/* ---- formulas --------------------------------------------------------------- */

static inline ogive_formula *make_formula(const char *text)
{
    ogive_formula *formula;
    ogive_error error;
    if (ogive_formula_create(text, OGIVE_TEXT, &formula, &error))
        fail_msg("%s: %s", text, error.message);
    return formula;
}

static inline ogive_formula *make_gradient(const ogive_formula *formula, const char *const *names,
                                           size_t count)
{
    ogive_formula *gradient;
    ogive_error error;
    if (ogive_formula_gradient(formula, names, count, &gradient, &error))
        fail_msg("%s: %s", formula->graph.text, error.message);
    return gradient;
}

#endif
