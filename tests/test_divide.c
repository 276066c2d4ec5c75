/* SPDX-License-Identifier: MIT
 *
 * test_divide.c - formulas divided among processes, without processes: inputs are cut, the
 * stages run on the parts, what they give is put together as ogive_formula_division() says,
 * and must be what the whole formula gives. First the table of formulas that people divide,
 * then random formulas and their gradients.
 *
 * OGIVE_TEST_ITERATIONS=N runs N random formulas; a failure prints how to run its own.
 */
#include "random_formula.h"

#include "api_case.h"

enum { MOST = 64, MOST_RANKS = 4 };

/* A whole tensor, or a process's own. */
typedef struct {
    char name[64];
    int rank;
    int64_t shape[8], count;
    double *data;
} value;

typedef struct {
    value items[MOST];
    int count;
} values;

static struct {
    int formulas, divisions, cut, whole, elements, excused;
} total;

static void free_values(values *v)
{
    for (int i = 0; i < v->count; i++)
        free(v->items[i].data);
    v->count = 0;
}

static value *add_value(values *v, const char *name, int rank, const int64_t *shape)
{
    assert_in_range(v->count, 0, MOST - 1);
    value *item = &v->items[v->count++];
    *item = (value){.rank = rank, .count = 1};
    snprintf(item->name, sizeof item->name, "%s", name);
    for (int d = 0; d < rank; d++)
        item->count *= item->shape[d] = shape[d];
    item->data = calloc((size_t)item->count + 1, sizeof *item->data);
    assert_non_null(item->data);
    return item;
}

static const value *find_value(const values *v, const char *name)
{
    for (int i = 0; i < v->count; i++)
        if (!strcmp(v->items[i].name, name))
            return &v->items[i];
    fail_msg("no value '%s'", name);
    return NULL;
}

static void borrow(const value *v, DLTensor *tensor)
{
    *tensor = (DLTensor){.data = v->data,
                         .device = {kDLCPU, 0},
                         .ndim = v->rank,
                         .dtype = {kDLFloat, 64, 1},
                         .shape = (int64_t *)v->shape};
}

/* The formula's inputs, by name, as tensors. */
typedef struct {
    DLTensor tensors[MOST];
    const DLTensor *pointers[MOST];
    size_t count;
} bound;

static void bind(const ogive_formula *formula, const values *given, bound *out)
{
    out->count = ogive_formula_input_count(formula);
    for (size_t i = 0; i < out->count; i++) {
        borrow(find_value(given, ogive_formula_input_name(formula, i)), &out->tensors[i]);
        out->pointers[i] = &out->tensors[i];
    }
}

/* Appends the results of formula as values called name0, name1, ...; false if it refuses. */
static bool run(ogive_formula *formula, const values *given, const char *name, values *results)
{
    bound in;
    ogive_plan *plan;
    DLTensor outputs[MOST];
    const DLTensor *pointers[MOST];
    bind(formula, given, &in);
    if (ogive_plan_create(formula, in.pointers, in.count, NULL, 0, NULL, &plan, &error))
        return false;
    size_t count = ogive_formula_result_count(formula);
    for (size_t r = 0; r < count; r++) {
        const DLTensor *result = ogive_plan_result(plan, r);
        char text[80];
        snprintf(text, sizeof text, "%s%zu", name, r);
        value *made = add_value(results, text, result->ndim, result->shape);
        borrow(made, &outputs[r]);
        outputs[r].shape = made->shape;
        pointers[r] = &outputs[r];
    }
    ogive_plan_release(plan);
    ogive_status status = ogive_run(formula, in.pointers, in.count, pointers, count, NULL, &error);
    return status == OGIVE_OK;
}

/* ---- parts ------------------------------------------------------------------------------- */

/* As torch.chunk: equal parts but for the last ones, which may be smaller or empty. */
static void find_part(int64_t extent, int ranks, int rank, int64_t *first, int64_t *count)
{
    int64_t size = (extent + ranks - 1) / ranks;
    *first = size * rank < extent ? size * rank : extent;
    *count = extent - *first < size ? extent - *first : size;
}

/* Copies between a whole and its part: elements [first, first + count) of dim. */
static void move_part(value *whole, int dim, int64_t first, value *part, bool to_part)
{
    int64_t inner = 1, outer = 1, count = part->shape[dim], extent = whole->shape[dim];
    for (int d = 0; d < whole->rank; d++)
        *(d < dim ? &outer : &inner) *= d == dim ? 1 : whole->shape[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < count * inner; i++) {
            double *a = &whole->data[(o * extent + first) * inner + i];
            double *b = &part->data[o * count * inner + i];
            if (to_part)
                *b = *a;
            else
                *a = *b;
        }
}

static void add_input(values *mine, const value *whole, const ogive_placement *placed, int ranks,
                      int rank)
{
    int64_t shape[8], first = 0;
    memcpy(shape, whole->shape, sizeof shape);
    if (placed->share == OGIVE_PART)
        find_part(whole->shape[placed->dim], ranks, rank, &first, &shape[placed->dim]);
    value *part = add_value(mine, whole->name, whole->rank, shape);
    if (placed->share == OGIVE_PART) {
        move_part((value *)whole, placed->dim, first, part, true);
        return;
    }
    for (int64_t i = 0; i < whole->count; i++)
        part->data[i] = whole->data[i] / (placed->share == OGIVE_SUM ? ranks : 1);
}

static double combine(ogive_share share, double a, double b)
{
    if (share == OGIVE_SUM)
        return a + b;
    if (a != a || b != b)
        return NAN;
    return share == OGIVE_MAX ? (a > b ? a : b) : a < b ? a : b;
}

/* parts: one of each process, as placed says; *whole has room for what they make. */
static void join_parts(value *whole, value *const *parts, int ranks, const ogive_placement *placed)
{
    for (int rank = 0; rank < ranks; rank++) {
        value *part = parts[rank];
        if (placed->share == OGIVE_PART) {
            int64_t first, count;
            find_part(whole->shape[placed->dim], ranks, rank, &first, &count);
            assert_int_equal(part->shape[placed->dim], count);
            move_part(whole, placed->dim, first, part, false);
            continue;
        }
        assert_int_equal(part->count, whole->count);
        for (int64_t i = 0; i < whole->count; i++)
            whole->data[i] = rank == 0 || placed->share == OGIVE_SAME
                                 ? part->data[i]
                                 : combine(placed->share, whole->data[i], part->data[i]);
    }
}

/* ---- one division -------------------------------------------------------------------------- */

typedef struct {
    ogive_formula *formula;
    const values *inputs;
    bound in;
    const values *want, *perturbed; /* results; of inputs a little off: what noise does */
    uint64_t seed;
    const char *text;
} subject;

static void complain(const subject *s, size_t index, int ranks, const char *what)
{
    fail_msg("OGIVE_TEST_SEED=%" PRIu64 " OGIVE_TEST_ITERATIONS=1: index %zu of %d: %s\n  %s",
             s->seed, index, ranks, what, s->text);
}

static bool has_extremes(const subject *s, size_t index, const ogive_division *division,
                         const ogive_placement *of_results)
{
    for (size_t r = 0; r < ogive_formula_result_count(s->formula); r++)
        if (of_results[r].share == OGIVE_MAX || of_results[r].share == OGIVE_MIN)
            return true;
    for (int32_t i = 0; i < division->cuts; i++) {
        ogive_cut cut = {.size = sizeof cut};
        TEST_OK(ogive_formula_cut(s->formula, s->in.pointers, s->in.count, index, (size_t)i, &cut,
                                  &error),
                error);
        if (cut.share != OGIVE_SUM)
            return true;
    }
    return false;
}

/* Reduces the cuts of a stage: the processes go on with the same values. */
static void reduce_cuts(const subject *s, size_t index, const ogive_division *division, int stage,
                        values *results, values *mine, int ranks)
{
    int r = 0;
    for (int32_t i = 0; i < division->cuts; i++) {
        ogive_cut cut = {.size = sizeof cut};
        TEST_OK(ogive_formula_cut(s->formula, s->in.pointers, s->in.count, index, (size_t)i, &cut,
                                  &error),
                error);
        if (cut.stage != stage)
            continue;
        ogive_placement placed = {cut.share, -1};
        value *parts[MOST_RANKS];
        for (int rank = 0; rank < ranks; rank++)
            parts[rank] = &results[rank].items[r];
        value *whole = add_value(&mine[0], cut.name, cut.ndim, cut.shape);
        join_parts(whole, parts, ranks, &placed);
        for (int rank = 1; rank < ranks; rank++) {
            value *copy = add_value(&mine[rank], cut.name, cut.ndim, cut.shape);
            memcpy(copy->data, whole->data, (size_t)whole->count * sizeof *copy->data);
        }
        r++;
    }
}

static bool is_close(double got, double want, double perturbed, double noise)
{
    if (got == want || (got != got && want != want))
        return true;
    double slack = 30 * fabs(perturbed - want) + 1e-9 * fabs(want) + noise + 1e-11;
    return fabs(got - want) <= slack;
}

/* Twice the largest difference that the perturbation makes, if it is a small one: where it happens
 * to make none, another order may still leave rounding errors of that size. */
static double find_noise(const value *want, const value *perturbed)
{
    double noise = 0;
    for (int64_t i = 0; i < want->count; i++) {
        double by = 2 * fabs(perturbed->data[i] - want->data[i]);
        if (by < 1e-8 && by > noise)
            noise = by;
    }
    return noise;
}

static void check_results(const subject *s, size_t index, values *results, int ranks,
                          const ogive_placement *of_results)
{
    for (int r = 0; r < s->want->count; r++) {
        const value *want = &s->want->items[r];
        values made = {0};
        value *whole = add_value(&made, "whole", want->rank, want->shape), *parts[MOST_RANKS];
        for (int rank = 0; rank < ranks; rank++)
            parts[rank] = &results[rank].items[r];
        join_parts(whole, parts, ranks, &of_results[r]);
        double noise = find_noise(want, &s->perturbed->items[r]);
        for (int64_t i = 0; i < want->count; i++) {
            double other = s->perturbed->items[r].data[i];
            total.elements++;
            /* What rounding makes infinite or NaN is not decided here. */
            bool lost = !isfinite(other) || !isfinite(want->data[i]);
            /* Nor is the logarithm of a rounding error (log 2^-52 = -36), which is 0 in another
             * order. */
            lost |= whole->data[i] == -INFINITY && want->data[i] < -36;
            /* Nor what such an error, or a 0, leaves of a division. */
            lost |=
                isnan(whole->data[i]) && (strstr(s->text, "fmod") || strstr(s->text, "remainder"));
            total.excused += lost;
            if (!lost && !is_close(whole->data[i], want->data[i], other, noise)) {
                char what[200];
                snprintf(what, sizeof what, "result %d element %" PRId64 ": got %s, want %s", r, i,
                         test_text_f64(whole->data[i]), test_text_f64(want->data[i]));
                complain(s, index, ranks, what);
            }
        }
        free_values(&made);
    }
}

static void check_division(const subject *s, size_t index, int ranks)
{
    ogive_division division = {.size = sizeof division};
    ogive_placement of_inputs[MOST] = {{0}}, of_results[MOST];
    values mine[MOST_RANKS] = {{.count = 0}};
    TEST_OK(ogive_formula_division(s->formula, s->in.pointers, s->in.count, index, &division,
                                   of_inputs, of_results, &error),
            error);
    int64_t first, last;
    find_part(division.extent, ranks, ranks - 1, &first, &last);
    total.whole += division.stages == 0;
    if (division.stages == 0 || (!last && has_extremes(s, index, &division, of_results)))
        return;
    bool refused = false; /* by a process that has nothing along the dim, so no greatest element */
    total.divisions++;
    total.cut += division.stages > 1;
    for (int rank = 0; rank < ranks; rank++)
        for (size_t i = 0; i < s->in.count; i++)
            add_input(&mine[rank], find_value(s->inputs, ogive_formula_input_name(s->formula, i)),
                      &of_inputs[i], ranks, rank);
    for (int stage = 0; stage < division.stages && !refused; stage++) {
        values results[MOST_RANKS] = {{.count = 0}};
        ogive_formula *part;
        TEST_OK(ogive_formula_stage(s->formula, s->in.pointers, s->in.count, index, (size_t)stage,
                                    &part, &error),
                error);
        for (int rank = 0; rank < ranks && !refused; rank++)
            if (!run(part, &mine[rank], "r", &results[rank])) {
                refused = !last && strstr(error.message, "has no element to choose");
                if (!refused)
                    complain(s, index, ranks, error.message);
            }
        ogive_formula_release(part);
        if (!refused && stage + 1 < division.stages)
            reduce_cuts(s, index, &division, stage, results, mine, ranks);
        else if (!refused)
            check_results(s, index, results, ranks, of_results);
        for (int rank = 0; rank < ranks; rank++)
            free_values(&results[rank]);
    }
    for (int rank = 0; rank < ranks; rank++)
        free_values(&mine[rank]);
}

static void check_formula(ogive_formula *formula, const values *inputs, const char *text,
                          uint64_t seed)
{
    values want = {.count = 0}, perturbed = {.count = 0}, off = {.count = 0};
    subject s = {.formula = formula, .inputs = inputs, .want = &want, .perturbed = &perturbed};
    s.text = text;
    s.seed = seed;
    bind(formula, inputs, &s.in);
    for (int i = 0; i < inputs->count; i++) {
        const value *item = &inputs->items[i];
        value *copy = add_value(&off, item->name, item->rank, item->shape);
        for (int64_t e = 0; e < item->count; e++)
            copy->data[e] = item->data[e] * (1 + (e % 2 ? 1e-12 : -1e-12));
    }
    if (run(formula, inputs, "r", &want) && run(formula, &off, "r", &perturbed)) {
        size_t count;
        TEST_OK(ogive_formula_division_count(formula, s.in.pointers, s.in.count, &count, &error),
                error);
        for (size_t index = 0; index < count; index++)
            for (int ranks = 2; ranks <= 3; ranks++)
                check_division(&s, index, ranks);
        total.formulas++;
    }
    free_values(&want);
    free_values(&perturbed);
    free_values(&off);
}

/* ---- random formulas -------------------------------------------------------------------------- */

static void fill(test_random *random, value *v)
{
    for (int64_t i = 0; i < v->count; i++)
        v->data[i] = test_random_range(random, -2, 2);
}

/* The gradient by all inputs, whose own gradient inputs are added to inputs. */
static void check_gradient(test_random *random, ogive_formula *formula, values *inputs,
                           const char *text, uint64_t seed)
{
    const char *names[MOST];
    size_t count = ogive_formula_input_count(formula);
    ogive_formula *gradient;
    ogive_plan *plan;
    bound in;
    for (size_t i = 0; i < count; i++)
        names[i] = ogive_formula_input_name(formula, i);
    bind(formula, inputs, &in);
    if (!count || ogive_formula_gradient(formula, names, count, &gradient, &error))
        return;
    TEST_OK(ogive_plan_create(formula, in.pointers, in.count, NULL, 0, NULL, &plan, &error), error);
    for (size_t r = 0; r < ogive_formula_result_count(formula); r++) {
        const DLTensor *result = ogive_plan_result(plan, r);
        fill(random, add_value(inputs, ogive_formula_input_name(gradient, count + r), result->ndim,
                               result->shape));
    }
    ogive_plan_release(plan);
    check_formula(gradient, inputs, text, seed);
    ogive_formula_release(gradient);
}

static void check_random(uint64_t seed)
{
    test_random random = {seed * 0x9e3779b97f4a7c15u | 1};
    random_formula *f = malloc(sizeof *f);
    values inputs = {.count = 0};
    ogive_formula *formula;
    formula_generate(&random, 60, f);
    bool casts = strstr(f->text, "float16(") || strstr(f->text, "float32(");
    /* Rounding decides what a wave of an exponential is, which inputs a little off need not show: the
     * squares of what layer_norm gives have the same sum, whatever the inputs. */
    bool waves = strstr(f->text, "exp") && (strstr(f->text, "cos(") || strstr(f->text, "sin("));
    if (!casts && !waves && !ogive_formula_create(f->text, OGIVE_TEXT, &formula, &error)) {
        bool empty = false;
        for (int i = 0; i < f->input_count; i++) {
            formula_node *node = &f->nodes[i];
            fill(&random,
                 add_value(&inputs, formula_input_names[node->input], node->rank, node->shape));
            empty |= node->count == 0;
        }
        if (!empty) {
            check_formula(formula, &inputs, f->text, seed);
            check_gradient(&random, formula, &inputs, f->text, seed);
        }
        ogive_formula_release(formula);
        free_values(&inputs);
    }
    formula_free(f);
    free(f);
}

static void test_random_formulas(void **state)
{
    (void)state;
    const char *wanted = getenv("OGIVE_TEST_ITERATIONS");
    int iterations = wanted ? atoi(wanted) : test_rounds(1500, 1500);
    uint64_t seed = test_seed();
    for (int i = 0; i < iterations; i++)
        check_random(seed + (uint64_t)i);
    print_message("%d formulas and gradients: %d divisions held, %d of them with cuts, %d indices "
                  "must be whole; %d elements, %d not finite\n",
                  total.formulas, total.divisions, total.cut, total.whole, total.elements,
                  total.excused);
    assert_true(iterations < 100 || total.cut > iterations / 10);
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const char *share_text(const ogive_placement *placed)
{
    static const char *const parts[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    switch (placed->share) {
    case OGIVE_PART:
        return parts[placed->dim];
    case OGIVE_SUM:
        return "sum";
    case OGIVE_MAX:
        return "max";
    case OGIVE_MIN:
        return "min";
    default:
        return "-";
    }
}

/* "16: x=1 w=1 b=sum -> sum": per index its extent, what each input and result is, and cuts. added
 * to each index: 0, or OGIVE_AT_SUMS. */
static void describe(const ogive_formula *formula, const values *inputs, size_t added, char *text,
                     size_t room)
{
    bound in;
    size_t count, at = 0;
    bind(formula, inputs, &in);
    TEST_OK(ogive_formula_division_count(formula, in.pointers, in.count, &count, &error), error);
    for (size_t i = 0; i < count; i++) {
        size_t index = i + added;
        ogive_division d = {.size = sizeof d};
        ogive_placement of_inputs[MOST], of_results[MOST];
        TEST_OK(ogive_formula_division(formula, in.pointers, in.count, index, &d, of_inputs,
                                       of_results, &error),
                error);
        at += (size_t)snprintf(text + at, room - at, "%" PRId64 ":", d.extent);
        for (size_t n = 0; n < in.count; n++)
            at += (size_t)snprintf(text + at, room - at, " %s=%s",
                                   ogive_formula_input_name(formula, n), share_text(&of_inputs[n]));
        at += (size_t)snprintf(text + at, room - at, "%s%s", d.counts ? " counts" : "",
                               d.stages ? " ->" : " whole");
        for (size_t r = 0; d.stages && r < ogive_formula_result_count(formula); r++)
            at += (size_t)snprintf(text + at, room - at, " %s", share_text(&of_results[r]));
        for (int32_t c = 0; c < d.cuts; c++) {
            ogive_cut cut = {.size = sizeof cut};
            TEST_OK(
                ogive_formula_cut(formula, in.pointers, in.count, index, (size_t)c, &cut, &error),
                error);
            ogive_placement placed = {cut.share, -1};
            at += (size_t)snprintf(text + at, room - at, " [%d %s %s at %d]", (int)cut.stage,
                                   share_text(&placed), cut.function, (int)cut.offset);
        }
        at += (size_t)snprintf(text + at, room - at, "\n");
    }
}

/* shapes: those of the inputs in order, then of gradients: "8x16 32x16". */
static void read_shapes(const ogive_formula *formula, const char *shapes, values *inputs)
{
    for (size_t i = 0; i < ogive_formula_input_count(formula); i++) {
        int64_t shape[8];
        int rank = 0;
        while (*shapes && *shapes != ' ') {
            char *end;
            shape[rank++] = strtoll(shapes, &end, 10);
            shapes = *end == 'x' ? end + 1 : end;
        }
        shapes += *shapes == ' ';
        add_value(inputs, ogive_formula_input_name(formula, i), rank, shape);
    }
}

static void check_table(const char *text, const char *by, const char *shapes, const char *want)
{
    ogive_formula *formula = make(text);
    values inputs = {.count = 0};
    char got[4000] = "";
    if (by) {
        ogive_formula *gradient;
        char names[64];
        const char *list[8];
        size_t count = 0;
        snprintf(names, sizeof names, "%s", by);
        for (char *at = strtok(names, ","); at; at = strtok(NULL, ","))
            list[count++] = at;
        TEST_OK(ogive_formula_gradient(formula, list, count, &gradient, &error), error);
        ogive_formula_release(formula);
        formula = gradient;
    }
    read_shapes(formula, shapes, &inputs);
    describe(formula, &inputs, 0, got, sizeof got);
    assert_string_equal(got, want);
    free_values(&inputs);
    ogive_formula_release(formula);
}

static void test_table(void **state)
{
    (void)state;
    check_table("x * sigmoid(x) + y", NULL, "8x16 16", "8: x=0 y=- -> 0\n16: x=1 y=0 -> 1\n");
    check_table("linear(x, w, b)", NULL, "8x16 32x16 32",
                "8: x=0 w=- b=- -> 0\n16: x=1 w=1 b=sum -> sum\n32: x=- w=0 b=0 -> 1\n");
    check_table("linear(x, w, b)", "x,w,b", "8x16 32x16 32 8x32",
                "8: x=0 w=- b=- grad=0 -> 0 sum sum\n16: x=1 w=1 b=- grad=- -> 1 1 -\n"
                "32: x=- w=0 b=0 grad=1 -> sum 0 0\n");
    check_table("z = linear(x, w, b); z + 2.0 * sigmoid(z)", NULL, "8x16 32x16 32",
                "8: x=0 w=- b=- -> 0\n16: x=1 w=1 b=- -> - [0 sum linear at 4]\n"
                "32: x=- w=0 b=0 -> 1\n");
    check_table("linear(silu(linear(x, w)) * linear(x, v), d)", NULL, "8x16 32x16 32x16 16x32",
                "8: x=0 w=- v=- d=- -> 0\n16: x=1 w=1 v=1 d=- -> sum [0 sum linear at 12]\n"
                "32: x=- w=0 v=0 d=1 -> sum\n16: x=- w=- v=- d=0 -> 1\n");
    check_table(
        "linear(silu(linear(x, w)) * linear(x, v), d)", "x,w,v,d", "8x16 32x16 32x16 16x32 8x16",
        "8: x=0 w=- v=- d=- grad=0 -> 0 sum sum sum\n"
        "16: x=1 w=1 v=1 d=- grad=- -> 1 1 1 sum [0 sum linear at 12] [1 sum linear at 12]\n"
        "32: x=- w=0 v=0 d=1 grad=- -> sum 0 0 1\n"
        "16: x=- w=- v=- d=0 grad=1 -> sum sum sum 0\n");
    check_table("glu(x, 1)", NULL, "8x16", "8: x=0 -> 0\n16: x=1 whole\n");
    check_table("narrow(x @ w, 1, 1, 3)", NULL, "8x16 16x12",
                "8: x=0 w=- -> 0\n16: x=1 w=0 -> sum\n12: x=- w=1 whole\n");
    check_table("glu(x, 1)", "x", "8x16 8x8",
                "8: x=0 grad=0 -> 0\n16: x=1 grad=- whole\n8: x=- grad=1 whole\n");
    check_table("softmax(x, dim=1)", NULL, "8x16",
                "8: x=0 -> 0\n16: x=1 -> 1 [0 max softmax at 0] [1 sum softmax at 0]\n");
    check_table("layer_norm(x, 16, w, b)", NULL, "8x16 16 16",
                "8: x=0 w=- b=- -> 0\n"
                "16: x=1 w=0 b=0 counts -> 1 [0 sum layer_norm at 0] [1 sum layer_norm at 0] "
                "[2 sum layer_norm at 0]\n");
    check_table("r + linear(h, w, b) * 0.5", NULL, "8x16 8x32 16x32 16",
                "8: r=0 h=0 w=- b=- -> 0\n16: r=1 h=- w=0 b=0 -> 1\n"
                "32: r=sum h=1 w=1 b=sum -> sum\n");
    check_table("mean((x - y)**2)", NULL, "8x16 8x16",
                "8: x=0 y=0 counts -> sum\n16: x=1 y=1 counts -> sum\n");
    check_table("amax(x, 1) * 2 - 1, -amin(x, 0)", NULL, "8x16",
                "8: x=0 -> 0 max\n16: x=1 -> max 0\n");
    check_table("relu(amax(x, 1))", NULL, "8x16", "8: x=0 -> 0\n16: x=1 -> - [0 max amax at 5]\n");
    check_table("x @ t(x)", NULL, "8x16", "8: x=0 whole\n16: x=1 -> sum\n");
    check_table("softmax(q @ transpose(k, 1, 2) * 0.125, 2) @ v", NULL, "4x8x16 4x24x16 4x24x5",
                "4: q=0 k=0 v=0 -> 0\n8: q=1 k=- v=- -> 1\n"
                "16: q=2 k=2 v=- -> - [0 sum * at 31]\n"
                "24: q=- k=1 v=1 -> sum [0 max softmax at 0] [1 sum softmax at 0]\n"
                "5: q=- k=- v=2 -> 2\n");
    check_table("z = linear(x, w); y * z + sigmoid(y * z) + sigmoid(z)", NULL, "8x16 4x16 4",
                "8: x=0 w=- y=- -> 0\n16: x=1 w=1 y=- -> - [0 sum linear at 4]\n"
                "4: x=- w=0 y=0 -> 1\n"); /* y * z is not cut, too */
    check_table("z = x @ w; z * 0.5 + sigmoid(z), z", NULL, "8x16 16x4",
                "8: x=0 w=- -> 0 0\n16: x=1 w=0 -> - - [0 sum @ at 6]\n4: x=- w=1 -> 1 1\n");
}

/* Sizes that the text gives, and an index that a tensor has twice, matter even where the gradient
 * needs a tensor's shape alone. */
static void test_shapes_alone(void **state)
{
    (void)state;
    check_table("sum(b * 2 - layer_norm(x, 8))", "b", "8 4x8 ",
                "8: b=0 x=1 grad=- counts -> 0\n4: b=- x=0 grad=- -> sum\n");
    check_table("sum(sigmoid(y) * (x - x) - linear(x, w))", "y", "5x8 3x5x8 8x8 ",
                "5: y=0 x=1 w=- grad=- -> 0\n8: y=1 x=2 w=- grad=- whole\n"
                "3: y=- x=0 w=- grad=- -> sum\n");
}

static void check_at_sums(const char *text, const char *shapes, const char *want)
{
    ogive_formula *formula = make(text);
    values inputs = {.count = 0};
    char got[4000] = "";
    read_shapes(formula, shapes, &inputs);
    describe(formula, &inputs, OGIVE_AT_SUMS, got, sizeof got);
    assert_string_equal(got, want);
    free_values(&inputs);
    ogive_formula_release(formula);
}

/* No op hands a sum on; maxima, which do not depend on an order, are. */
static void test_at_sums(void **state)
{
    (void)state;
    check_at_sums("linear(x, w, b)", "8x16 32x16 32",
                  "8: x=0 w=- b=- -> 0\n16: x=1 w=1 b=- -> - [0 sum linear at 0]\n"
                  "32: x=- w=0 b=0 -> 1\n");
    check_at_sums("sum(x, 0)", "8x16", "8: x=0 -> sum\n16: x=1 -> 0\n");
    check_at_sums("t(sum(x, 0, keepdim=true)) * 2", "8x16",
                  "8: x=0 -> - [0 sum sum at 2]\n16: x=1 -> 0\n");
    check_at_sums("amax(x, 1) * 2", "8x16", "8: x=0 -> 0\n16: x=1 -> max\n");
}

/* How the kernels of a plan add: "order lead (extents) k", one after the other. */
static void check_orders(const char *text, const char *shapes, const char *want)
{
    ogive_formula *formula = make(text);
    values inputs = {.count = 0};
    bound in;
    ogive_plan *plan;
    char got[500] = "";
    size_t at = 0;
    read_shapes(formula, shapes, &inputs);
    bind(formula, &inputs, &in);
    TEST_OK(ogive_plan_create(formula, in.pointers, in.count, NULL, 0, NULL, &plan, &error), error);
    for (size_t k = 0; k < ogive_plan_kernel_count(plan); k++) {
        ogive_sums sums = {.size = sizeof sums};
        TEST_OK(ogive_plan_sums(plan, k, &sums, &error), error);
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%d %d (", k ? ", " : "",
                               (int)sums.order, (int)sums.lead);
        for (int32_t d = 0; d < sums.reduced; d++)
            at += (size_t)snprintf(got + at, sizeof got - at, "%s%d", d ? " " : "",
                                   (int)sums.extent[d]);
        at += (size_t)snprintf(got + at, sizeof got - at, ") %d%s", (int)sums.k,
                               sums.exponentials ? " exponentials" : "");
    }
    assert_string_equal(got, want);
    ogive_sums sums = {.size = 1};
    REFUSED(ogive_plan_sums(plan, 0, &sums, &error), OGIVE_ARGUMENT,
            "sums.size is 1: expected sizeof(ogive_sums), 104");
    sums.size = sizeof sums;
    REFUSED(ogive_plan_sums(plan, 9, &sums, &error), OGIVE_ARGUMENT,
            "kernel 9: the plan has 1, and sums must be given");
    ogive_plan_release(plan);
    free_values(&inputs);
    ogive_formula_release(formula);
}

static void test_orders(void **state)
{
    (void)state;
    check_orders("sum(x, 0)", "512x8", "2 0 (512) 0");
    check_orders("sum(x, 0)", "512x1", "1 0 (512) 0");
    check_orders("sum(x * y, (0, 2))", "4x5x6 6", "1 0 (4 6) 0");
    check_orders("linear(x, w)", "5x16 7x16", "0 -1 () 16");
    check_orders("sum(linear(x, w), 1)", "5x16 7x16", "3 -1 (7) 16");
    check_orders("softmax(x, 1)", "5x16", "1 0 (16) 0 exponentials");
    check_orders("conv2d(x, w)", "1x3x8x8 4x3x3x3", "0 -1 () -1");
    check_orders("amax(x, 1)", "5x16", "0 -1 () 0");
}

static void test_refusals(void **state)
{
    (void)state;
    ogive_formula *f = make("softmax(x, 1) + cut0"), *stage = (ogive_formula *)1;
    values inputs = {.count = 0};
    bound in;
    size_t count;
    ogive_division d = {.size = 1};
    ogive_cut cut = {.size = sizeof cut};
    ogive_placement of_inputs[MOST] = {{0}}, of_results[MOST];
    read_shapes(f, "4x6 6", &inputs);
    bind(f, &inputs, &in);
    REFUSED(ogive_formula_division_count(f, in.pointers, 1, &count, &error), OGIVE_ARGUMENT,
            "the formula has 2 inputs, 1 were given");
    REFUSED(ogive_formula_division(f, in.pointers, 2, 0, &d, of_inputs, of_results, &error),
            OGIVE_ARGUMENT, "division.size is 1: expected sizeof(ogive_division), 128");
    d.size = sizeof d;
    REFUSED(ogive_formula_division(f, in.pointers, 2, 2, &d, of_inputs, of_results, &error),
            OGIVE_ARGUMENT, "index 2: the formula has 2 for these inputs");
    REFUSED(ogive_formula_stage(f, in.pointers, 2, 1, 3, &stage, &error), OGIVE_ARGUMENT,
            "stage 3: index 1 has 3");
    assert_null(stage);
    REFUSED(ogive_formula_cut(f, in.pointers, 2, 1, 2, &cut, &error), OGIVE_ARGUMENT,
            "cut 2: index 1 has 2");
    TEST_OK(ogive_formula_cut(f, in.pointers, 2, 1, 0, &cut, &error), error);
    assert_string_equal(cut.name, "cut0_2"); /* cut0 is an input */
    assert_int_equal(cut.constant, 1);
    TEST_OK(ogive_formula_stage(f, in.pointers, 2, 1, 2, &stage, &error), error);
    assert_string_equal(ogive_formula_input_name(stage, 2), "cut0_2");
    ogive_formula_release(stage);
    of_inputs[0].share = OGIVE_SUM; /* a softmax is not linear */
    TEST_OK(
        ogive_formula_division(f, in.pointers, 2, OGIVE_NOTHING, &d, of_inputs, of_results, &error),
        error);
    assert_int_equal(d.stages, 0);
    free_values(&inputs);
    ogive_formula_release(f);
}

/* Contributions are handed on by what is linear in them, and where only a shape is needed. */
static void test_given_sums(void **state)
{
    (void)state;
    ogive_formula *f = make("x * y + 2 * z");
    values inputs = {.count = 0};
    bound in;
    ogive_division d = {.size = sizeof d};
    ogive_placement of_inputs[3] = {{OGIVE_SUM, -1}, {OGIVE_SAME, -1}, {OGIVE_SUM, -1}}, result;
    read_shapes(f, "4x6 6 4x6", &inputs);
    bind(f, &inputs, &in);
    TEST_OK(
        ogive_formula_division(f, in.pointers, 3, OGIVE_NOTHING, &d, of_inputs, &result, &error),
        error);
    assert_int_equal(d.stages, 1);
    assert_int_equal(result.share, OGIVE_SUM);
    of_inputs[2].share = OGIVE_SAME;
    TEST_OK(
        ogive_formula_division(f, in.pointers, 3, OGIVE_NOTHING, &d, of_inputs, &result, &error),
        error);
    assert_int_equal(d.stages, 0);
    free_values(&inputs);
    ogive_formula_release(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),          cmocka_unit_test(test_shapes_alone),
        cmocka_unit_test(test_at_sums),        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_given_sums),
        cmocka_unit_test(test_random_formulas)};
    return TEST_RUN(tests);
}
