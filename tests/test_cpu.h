/* SPDX-License-Identifier: MIT
 *
 * test_cpu.h - kernels of the plan built by hand, a naive interpreter of plan.h (one
 * row and one element after the other, reductions written down as their definition
 * says), and check(), which runs a kernel on the CPU backend at every level, with
 * several numbers of threads and sizes of blocks, and compares bit by bit. Every
 * buffer lies against a guard page, inputs are read-only.
 */
#ifndef OG_TEST_CPU_H
#define OG_TEST_CPU_H

#include "test.h"

#include "cpu/cpu_prepare.h"
#include "math/half.h"
#include "math/scalar_f32.h"
#include "math/scalar_f64.h"
#include "plan/backend.h"

/* ---- building kernels ------------------------------------------------------- */

enum { MAX_ITEMS = 64, MAX_PASSES = 4 };

typedef struct {
    og_plan plan;
    og_kernel kernel;
    og_buffer buffers[MAX_ITEMS];
    int64_t counts[MAX_ITEMS], origins[MAX_ITEMS]; /* of buffers, in elements */
    og_access accesses[MAX_ITEMS];
    og_product product;
    og_pass passes[MAX_PASSES];
    og_instr elements[MAX_PASSES][MAX_ITEMS], rows[MAX_PASSES][MAX_ITEMS];
    og_reduce reductions[MAX_PASSES][MAX_ITEMS];
    og_value values[MAX_PASSES * MAX_ITEMS];
    double constants[MAX_ITEMS];
    bool may_alias[MAX_ITEMS];
    og_level level;
} builder;

static inline builder *begin(og_order order, int32_t rank, const int64_t *extents,
                             int32_t n_reduced)
{
    builder *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->plan.kernels = &b->kernel;
    b->plan.kernel_count = 1;
    b->plan.buffers = b->buffers;
    b->plan.may_alias = b->may_alias;
    og_kernel *k = &b->kernel;
    k->order = order;
    k->space.rank = rank;
    k->space.n_reduced = n_reduced;
    if (rank)
        memcpy(k->space.extent, extents, (size_t)rank * sizeof *extents);
    k->accesses = b->accesses;
    k->passes = b->passes;
    k->values = b->values;
    k->constants = b->constants;
    for (int p = 0; p < MAX_PASSES; p++)
        b->passes[p] = (og_pass){
            .elements = b->elements[p], .reductions = b->reductions[p], .rows = b->rows[p]};
    k->pass_count = 1;
    return b;
}

/* A buffer that strides over the space fit into, and its access. */
static inline int32_t add_access(builder *b, og_buffer_kind kind, og_dtype dtype,
                                 const int64_t *stride)
{
    int32_t at = b->kernel.access_count++, buffer = b->plan.buffer_count++;
    int64_t low = 0, high = 0;
    og_access *access = &b->accesses[at];
    *access = (og_access){.buffer = buffer, .dtype = dtype, .is_store = kind == OG_BUFFER_OUTPUT};
    for (int32_t d = 0; d < b->kernel.space.rank; d++) {
        int64_t reach = (b->kernel.space.extent[d] - 1) * stride[d];
        access->stride[d] = stride[d];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    b->origins[buffer] = -low;
    b->counts[buffer] = high - low + 1;
    b->buffers[buffer].kind = kind;
    b->buffers[buffer].dtype = dtype;
    b->buffers[buffer].index =
        kind == OG_BUFFER_INPUT ? b->plan.input_count++ : b->plan.output_count++;
    return at;
}

/* The kernel's product: strides of both sides over the space and along k. */
static inline void add_product(builder *b, int64_t k, const og_dtype *dtypes,
                               int64_t strides[2][OG_MAX_RANK], const int64_t *k_strides)
{
    og_space *space = &b->kernel.space;
    b->product.k = k;
    b->product.dtype = dtypes[0] == dtypes[1] ? dtypes[0] : OG_FLOAT32;
    b->product.left_k_stride = k_strides[0];
    b->product.right_k_stride = k_strides[1];
    for (int side = 0; side < 2; side++) { /* an access with one more dim, which is dropped */
        int64_t over[OG_MAX_RANK];
        memcpy(over, strides[side], sizeof over);
        space->extent[space->rank] = k ? k : 1;
        over[space->rank++] = k_strides[side];
        int32_t at = add_access(b, OG_BUFFER_INPUT, dtypes[side], over);
        space->rank--;
        *(side ? &b->product.right : &b->product.left) = b->accesses[at];
        b->kernel.access_count--;
    }
    b->kernel.products = &b->product;
    b->kernel.product_count = 1;
}

static inline int32_t new_value(builder *b, og_type type, og_level level)
{
    int32_t v = b->kernel.value_count++;
    b->values[v] = (og_value){type, level, b->kernel.pass_count - 1};
    return v;
}

static inline int32_t add_instr(builder *b, og_op op, og_type type, og_type result, int32_t index,
                                int32_t x, int32_t y, int32_t z)
{
    og_pass *pass = &b->passes[b->kernel.pass_count - 1];
    og_instr instr = {op, type, -1, {x, y, z}, index};
    if (op != OG_OP_STORE)
        instr.dst = new_value(b, result, b->level);
    if (b->level == OG_ROW)
        pass->rows[pass->row_count++] = instr;
    else
        pass->elements[pass->element_count++] = instr;
    return instr.dst;
}

static inline og_type type_of(og_dtype dtype)
{
    return dtype == OG_FLOAT64 ? OG_F64 : OG_F32;
}

static inline int32_t load(builder *b, int32_t access)
{
    og_type type = type_of(b->accesses[access].dtype);
    return add_instr(b, OG_OP_LOAD, type, type, access, -1, -1, -1);
}

static inline void store(builder *b, int32_t access, int32_t v)
{
    add_instr(b, OG_OP_STORE, b->values[v].type, OG_F32, access, v, -1, -1);
}

static inline int32_t constant(builder *b, og_type type, double value)
{
    b->constants[b->kernel.constant_count] = value;
    return add_instr(b, OG_OP_CONSTANT, type, type, b->kernel.constant_count++, -1, -1, -1);
}

static inline int32_t map(builder *b, og_op op, int32_t x, int32_t y)
{
    og_type type = b->values[x].type;
    return add_instr(b, op, type, type, 0, x, y, -1);
}

static inline int32_t reduce(builder *b, og_op op, int32_t source)
{
    og_pass *pass = &b->passes[b->kernel.pass_count - 1];
    int32_t v = new_value(b, b->values[source].type, OG_ROW);
    pass->reductions[pass->reduction_count++] = (og_reduce){op, b->values[v].type, source, v};
    b->level = OG_ROW;
    return v;
}

static inline void next_pass(builder *b)
{
    b->kernel.pass_count++;
    b->level = OG_ELEMENT;
}

static const og_op reductions[] = {OG_OP_sum, OG_OP_amax, OG_OP_amin, OG_OP_row_max, OG_OP_sumexp};

/* ---- the naive interpreter ---------------------------------------------------- */

typedef union {
    float f32;
    double f64;
    uint32_t mask;
} cell;

#define CALL_1_0(f) f(x)
#define CALL_1_1(f) f(x, k[0])
#define CALL_1_2(f) f(x, k[0], k[1])
#define CALL_2_0(f) f(x, y)
#define CALL_2_1(f) f(x, y, k[0])

static inline cell compute_f32(og_op op, float x, float y, const double *constants)
{
    cell r = {0};
    float k[2] = {0, 0};
    for (int i = 0; i < og_function_of(op)->constants; i++)
        k[i] = (float)constants[i];
    switch ((int)op) {
#define SCALAR(name, args, count, ...)                                                             \
    case OG_OP_##name:                                                                             \
        r.f32 = CALL_##args##_##count(og_##name##_f32);                                            \
        break;
#define MASK(name, ...)                                                                            \
    case OG_OP_##name:                                                                             \
        r.mask = og_##name##_f32(x, y);                                                            \
        break;
#include "formula/functions.def"
    }
    return r;
}

static inline cell compute_f64(og_op op, double x, double y, const double *k)
{
    cell r = {0};
    switch ((int)op) {
#define SCALAR(name, args, count, ...)                                                             \
    case OG_OP_##name:                                                                             \
        r.f64 = CALL_##args##_##count(og_##name##_f64);                                            \
        break;
#define MASK(name, ...)                                                                            \
    case OG_OP_##name:                                                                             \
        r.mask = og_##name##_f64(x, y);                                                            \
        break;
#include "formula/functions.def"
    }
    return r;
}

static inline cell read_cell(const void *memory, int64_t at, og_dtype dtype)
{
    cell r = {0};
    if (dtype == OG_FLOAT64) {
        memcpy(&r.f64, (const char *)memory + at * 8, 8);
    } else if (dtype == OG_FLOAT32) {
        memcpy(&r.f32, (const char *)memory + at * 4, 4);
    } else {
        uint16_t half;
        memcpy(&half, (const char *)memory + at * 2, 2);
        r.f32 = dtype == OG_FLOAT16 ? og_f32_from_f16(half) : og_f32_from_bf16(half);
    }
    return r;
}

static inline void write_cell(void *memory, int64_t at, og_dtype dtype, cell value)
{
    if (dtype == OG_FLOAT64) {
        memcpy((char *)memory + at * 8, &value.f64, 8);
    } else if (dtype == OG_FLOAT32) {
        memcpy((char *)memory + at * 4, &value.f32, 4);
    } else {
        uint16_t half =
            dtype == OG_FLOAT16 ? og_f16_from_f32(value.f32) : og_bf16_from_f32(value.f32);
        memcpy((char *)memory + at * 2, &half, 2);
    }
}

static inline cell convert(cell from, og_type type, og_dtype to)
{
    cell r = {0};
    if (to == OG_FLOAT64)
        r.f64 = type == OG_F64 ? from.f64 : (double)from.f32;
    else if (to == OG_FLOAT32)
        r.f32 = type == OG_F64 ? (float)from.f64 : from.f32;
    else if (to == OG_FLOAT16)
        r.f32 =
            og_f32_from_f16(type == OG_F64 ? og_f16_from_f64(from.f64) : og_f16_from_f32(from.f32));
    else
        r.f32 = og_f32_from_bf16(type == OG_F64 ? og_bf16_from_f64(from.f64)
                                                : og_bf16_from_f32(from.f32));
    return r;
}

/* One step of a fold. */
static inline cell meet(og_op op, og_type type, cell a, cell b)
{
    og_op as = op == OG_OP_sum ? OG_OP_add : op == OG_OP_amin ? OG_OP_minimum : OG_OP_maximum;
    return type == OG_F64 ? compute_f64(as, a.f64, b.f64, NULL)
                          : compute_f32(as, a.f32, b.f32, NULL);
}

typedef struct {
    cell value;
    bool missing;
} lane;

static inline lane meet_lanes(og_op op, og_type type, const lane *lanes, int64_t count)
{
    if (count == 1)
        return lanes[0];
    lane a = meet_lanes(op, type, lanes, count / 2);
    lane b = meet_lanes(op, type, lanes + count / 2, count / 2);
    if (b.missing)
        return a;
    return (lane){meet(op, type, a.value, b.value), false};
}

static inline cell fold_chunk(og_order order, og_op op, og_type type, const cell *x, int64_t n)
{
    if (order == OG_COLUMNS) {
        cell acc = x[0];
        for (int64_t i = 1; i < n; i++)
            acc = meet(op, type, acc, x[i]);
        return acc;
    }
    lane lanes[OG_LANES];
    for (int l = 0; l < OG_LANES; l++) {
        lanes[l].missing = l >= n;
        for (int64_t i = l; i < n; i += OG_LANES)
            lanes[l].value = i == l ? x[i] : meet(op, type, lanes[l].value, x[i]);
    }
    return meet_lanes(op, type, lanes, OG_LANES).value;
}

/* What a row is cut into first. */
static inline int64_t find_length(og_order order, bool product)
{
    return product || order == OG_COLUMNS ? OG_RUN : OG_CHUNK;
}

static inline cell fold_row(og_order order, og_op op, og_type type, const cell *x, int64_t n)
{
    int64_t length = order == OG_ROWS ? OG_CHUNK : OG_RUN, count = 0;
    if (n <= length)
        return fold_chunk(order, op, type, x, n);
    cell *partial = calloc((size_t)(n / length + 1), sizeof *partial);
    for (int64_t i = 0; i < n; i += length)
        partial[count++] = fold_chunk(order, op, type, x + i, n - i < length ? n - i : length);
    cell result = fold_row(order, op, type, partial, count);
    free(partial);
    return result;
}

/* exp(a - u(m)) */
static inline cell exp_below(og_type type, cell a, cell m)
{
    if (type == OG_F64)
        return compute_f64(OG_OP_exp, a.f64 - (isinf(m.f64) ? 0 : m.f64), 0, NULL);
    return compute_f32(OG_OP_exp, a.f32 - (isinf(m.f32) ? 0 : m.f32), 0, NULL);
}

static inline cell sum_exponentials(og_order order, bool product, og_type type, const cell *x,
                                    int64_t n)
{
    int64_t length = find_length(order, product), count = 0;
    cell *m = calloc((size_t)(n / length + 1), sizeof *m), *s = calloc((size_t)n + 1, sizeof *s);
    cell *e = calloc((size_t)n + 1, sizeof *e);
    for (int64_t i = 0; i < n; i += length, count++) {
        int64_t size = n - i < length ? n - i : length;
        m[count] = fold_chunk(order, OG_OP_amax, type, x + i, size);
        for (int64_t j = 0; j < size; j++)
            e[j] = exp_below(type, x[i + j], m[count]);
        s[count] = fold_chunk(order, OG_OP_sum, type, e, size);
    }
    cell greatest = fold_row(order, OG_OP_amax, type, m, count);
    for (int64_t c = 0; c < count && count > 1; c++) {
        cell scale = exp_below(type, m[c], greatest);
        if (type == OG_F64)
            s[c].f64 *= scale.f64;
        else
            s[c].f32 *= scale.f32;
    }
    cell result = fold_row(order, OG_OP_sum, type, s, count);
    free(m);
    free(s);
    free(e);
    return result;
}

/* In a kernel with a product. */
static inline cell fold_groups(og_op op, og_type type, const cell *x, int64_t n)
{
    int64_t count = 0;
    cell *partial = calloc((size_t)(n / OG_RUN + 1), sizeof *partial);
    for (int64_t i = 0; i < n; i += OG_RUN)
        partial[count++] = fold_chunk(OG_ROWS, op, type, x + i, n - i < OG_RUN ? n - i : OG_RUN);
    cell result = fold_row(OG_ROWS, op, type, partial, count);
    free(partial);
    return result;
}

static inline cell reduce_naively(og_order order, bool product, og_op op, og_type type,
                                  const cell *x, int64_t n)
{
    cell empty = {0};
    if (n == 0 && op != OG_OP_sum && op != OG_OP_sumexp) {
        double limit = op == OG_OP_amin ? INFINITY : -INFINITY;
        if (type == OG_F64)
            empty.f64 = limit;
        else
            empty.f32 = (float)limit;
    }
    if (n == 0)
        return empty;
    return op == OG_OP_sumexp ? sum_exponentials(order, product, type, x, n)
           : product          ? fold_groups(op, type, x, n)
                              : fold_row(order, op, type, x, n);
}

/* A run of the interpreter: cells[value * n + element]. */
typedef struct {
    const builder *b;
    void *const *memory; /* per buffer: the element its pointer points at */
    int64_t row, n;
    cell *cells;
} machine;

static inline int64_t find_index(const machine *m, const og_access *access, int64_t element)
{
    const og_space *space = &m->b->kernel.space;
    int64_t index = m->row * (m->n ? m->n : 1) + element, at = 0;
    for (int32_t d = space->rank - 1; d >= 0; d--) {
        int64_t size = space->extent[d] ? space->extent[d] : 1;
        at += index % size * access->stride[d];
        index /= size;
    }
    return at;
}

/* What an access reads at an element: through windows, or its number. */
static inline cell look_naively(const machine *m, const og_access *access, int64_t element)
{
    bool wide = access->dtype == OG_FLOAT64;
    int64_t at = find_index(m, access, element);
    cell r = {0};
    for (int32_t w = 0; w < access->window_count; w++) {
        const og_window *window = &access->windows[w];
        og_access place = {0}; /* moves as the window does */
        if (window->place >= 0)
            place.stride[window->place] += window->step;
        if (window->tap >= 0)
            place.stride[window->tap] += window->reach;
        int64_t p = window->start + find_index(m, &place, element);
        if (p < 0 || !og_uneven_sees(&window->uneven, p % window->divisor) ||
            p / window->divisor >= window->extent) {
            if (wide)
                r.f64 = access->fill;
            else
                r.f32 = (float)access->fill;
            return r;
        }
        at += p / window->divisor * window->stride;
    }
    if (access->buffer >= 0)
        return read_cell(m->memory[access->buffer], at, access->dtype);
    if (wide)
        r.f64 = (double)at;
    else
        r.f32 = (float)at;
    return r;
}

static inline float multiply_naively(const machine *m, int64_t element)
{
    const og_product *p = &m->b->product;
    int64_t left = find_index(m, &p->left, element), right = find_index(m, &p->right, element);
    float groups = 0, group = 0;
    for (int64_t k0 = 0; k0 < p->k; k0 += OG_PRODUCT_BLOCK) {
        float sum = 0;
        for (int64_t k = k0; k < p->k && k < k0 + OG_PRODUCT_BLOCK; k++)
            sum = fmaf(
                read_cell(m->memory[p->left.buffer], left + k * p->left_k_stride, p->left.dtype)
                    .f32,
                read_cell(m->memory[p->right.buffer], right + k * p->right_k_stride, p->right.dtype)
                    .f32,
                sum);
        if (k0 % OG_PRODUCT_GROUP == 0 && k0)
            groups = k0 == OG_PRODUCT_GROUP ? group : groups + group;
        group = k0 % OG_PRODUCT_GROUP ? group + sum : sum;
    }
    return p->k > OG_PRODUCT_GROUP ? groups + group : group;
}

static inline cell *cell_of(const machine *m, int32_t value, int64_t element)
{
    bool row = m->b->values[value].level == OG_ROW;
    return &m->cells[value * (m->n + 1) + (row ? 0 : element)];
}

static inline void interpret(const machine *m, const og_instr *instr, int64_t element)
{
    cell args[3] = {{0}, {0}, {0}}, r = {0};
    for (int a = 0; a < 3; a++)
        if (instr->args[a] >= 0)
            args[a] = *cell_of(m, instr->args[a], element);
    const og_access *access = &m->b->accesses[instr->index];
    const double *k = &m->b->constants[instr->index];
    if (instr->op == OG_OP_STORE) {
        write_cell(m->memory[access->buffer], find_index(m, access, element), access->dtype,
                   args[0]);
        return;
    }
    if (instr->op == OG_OP_LOAD)
        r = look_naively(m, access, element);
    else if (instr->op == OG_OP_PRODUCT)
        r.f32 = multiply_naively(m, element);
    else if (instr->op == OG_OP_CONSTANT && instr->type == OG_F64)
        r.f64 = *k;
    else if (instr->op == OG_OP_CONSTANT)
        r.f32 = (float)*k;
    else if (instr->op == OG_OP_where)
        r = args[0].mask ? args[1] : args[2];
    else if (instr->op == OG_OP_CONVERT)
        r = convert(args[0], m->b->values[instr->args[0]].type, (og_dtype)instr->index);
    else if (instr->type == OG_F64)
        r = compute_f64(instr->op, args[0].f64, args[1].f64, k);
    else
        r = compute_f32(instr->op, args[0].f32, args[1].f32, k);
    *cell_of(m, instr->dst, element) = r;
}

static inline void interpret_row(const machine *m)
{
    const og_kernel *kernel = &m->b->kernel;
    cell *source = calloc((size_t)m->n + 1, sizeof *source);
    for (int32_t p = 0; p < kernel->pass_count; p++) {
        const og_pass *pass = &kernel->passes[p];
        for (int64_t e = 0; e < m->n; e++)
            for (int32_t i = 0; i < pass->element_count; i++)
                interpret(m, &pass->elements[i], e);
        for (int32_t r = 0; r < pass->reduction_count; r++) {
            const og_reduce *reduce = &pass->reductions[r];
            for (int64_t e = 0; e < m->n; e++)
                source[e] = *cell_of(m, reduce->source, e);
            *cell_of(m, reduce->dst, 0) = reduce_naively(kernel->order, kernel->product_count > 0,
                                                         reduce->op, reduce->type, source, m->n);
        }
        for (int32_t i = 0; i < pass->row_count; i++)
            interpret(m, &pass->rows[i], 0);
    }
    free(source);
}

static inline void interpret_kernel(const builder *b, void *const *memory)
{
    const og_space *space = &b->kernel.space;
    machine m = {b, memory, 0, 1, NULL};
    int64_t rows = 1;
    for (int32_t d = 0; d < space->rank; d++)
        *(d < space->rank - space->n_reduced ? &rows : &m.n) *= space->extent[d];
    m.cells = calloc((size_t)(b->kernel.value_count * (m.n + 1)), sizeof *m.cells);
    assert_non_null(m.cells);
    for (m.row = 0; m.row < rows; m.row++)
        interpret_row(&m);
    free(m.cells);
}

/* ---- running and comparing ----------------------------------------------------- */

/* Numbers of either sign, of one sign or zeros, some special; the same for the same
 * seed. (Of one sign or zero, so that a missing element counted in is seen.) */
static inline void fill(void *memory, og_dtype dtype, int64_t count, uint64_t seed, bool special)
{
    static const double ranges[][2] = {{-4, 4}, {-4, -1}, {-3, 5}, {1, 4}, {-4, 4}, {0, 0}};
    const double *range = ranges[seed % TEST_COUNT(ranges)];
    test_random random = {seed * 2 + 1};
    for (int64_t i = 0; i < count; i++) {
        double value = test_random_range(&random, range[0], range[1]);
        if (value == 0 && test_random_below(&random, 4))
            value = -0.0;
        static const double specials[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 80, -90};
        uint64_t draw = test_random_bits(&random) % (special ? 8 : 400);
        if (special && draw < 2)
            value = specials[test_random_below(&random, 8)];
        else if (draw == 7)
            value *= 8;
        cell c = {0};
        if (dtype == OG_FLOAT64)
            c.f64 = value;
        else
            c.f32 = (float)value;
        write_cell(memory, i, dtype, c);
    }
}

static inline bool same_element(const void *a, const void *b, int64_t i, og_dtype dtype)
{
    size_t bytes = og_dtype_bytes(dtype);
    if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes) ==
        0)
        return true;
    cell x = read_cell(a, i, dtype), y = read_cell(b, i, dtype);
    return dtype == OG_FLOAT64 ? isnan(x.f64) && isnan(y.f64) : isnan(x.f32) && isnan(y.f32);
}

typedef struct {
    test_guard guards[MAX_ITEMS];
    void *first[MAX_ITEMS]; /* the element that the pointer points at */
} memory_set;

static inline void allocate_set(const builder *b, memory_set *set, uint64_t seed, bool special)
{
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        const og_buffer *buffer = &b->buffers[i];
        size_t bytes = og_dtype_bytes(buffer->dtype);
        bool at_start = (seed + (uint64_t)i) % 2;
        set->guards[i] =
            test_guard_alloc((size_t)b->counts[i] * bytes, at_start ? TEST_AT_START : TEST_AT_END);
        set->first[i] = (char *)set->guards[i].data + (size_t)b->origins[i] * bytes;
        if (buffer->kind == OG_BUFFER_INPUT) {
            fill(set->guards[i].data, buffer->dtype, b->counts[i], seed + (uint64_t)i, special);
            test_guard_freeze(&set->guards[i]);
        }
    }
}

static inline void free_set(const builder *b, memory_set *set)
{
    for (int32_t i = 0; i < b->plan.buffer_count; i++)
        test_guard_free(&set->guards[i]);
}

static const char *describe(const builder *b)
{
    static char text[400];
    int at =
        snprintf(text, sizeof text, "order %d, reduced %d, passes %d, space", (int)b->kernel.order,
                 (int)b->kernel.space.n_reduced, (int)b->kernel.pass_count);
    for (int32_t d = 0; d < b->kernel.space.rank; d++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRId64, b->kernel.space.extent[d]);
    return text;
}

static inline void compare_outputs(const builder *b, const memory_set *got, const memory_set *want,
                                   const char *level, int threads)
{
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        if (b->buffers[i].kind != OG_BUFFER_OUTPUT)
            continue;
        for (int64_t e = 0; e < b->counts[i]; e++) {
            if (same_element(got->guards[i].data, want->guards[i].data, e, b->buffers[i].dtype))
                continue;
            cell x = read_cell(got->guards[i].data, e, b->buffers[i].dtype);
            cell y = read_cell(want->guards[i].data, e, b->buffers[i].dtype);
            fail_msg(
                "%s: %s, %d threads, buffer %d, element %" PRId64 ": got %s, want %s", describe(b),
                level, threads, (int)i, e,
                b->buffers[i].dtype == OG_FLOAT64 ? test_text_f64(x.f64) : test_text_f32(x.f32),
                b->buffers[i].dtype == OG_FLOAT64 ? test_text_f64(y.f64) : test_text_f32(y.f32));
        }
    }
}

/* Runs b once; its outputs are left in set. */
static inline void run_backend(builder *b, memory_set *set, const char *level, int threads,
                               const og_cpu_tuning *tuning, bool aliased)
{
    ogive_options options = {.size = sizeof options, .threads = threads, .cpu_level = level};
    ogive_error error;
    void *state;
    size_t bytes;
    TEST_OK(og_cpu_prepare_tuned(&b->plan, &options, tuning, &state, &bytes, &error), error);
    const void *inputs[MAX_ITEMS];
    void *outputs[MAX_ITEMS];
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        if (b->buffers[i].kind == OG_BUFFER_INPUT)
            inputs[b->buffers[i].index] = set->first[i];
        else
            outputs[b->buffers[i].index] = set->first[i];
    }
    assert_int_equal(bytes % 64, 0);
    test_guard workspace = test_guard_alloc(bytes, threads % 2 ? TEST_AT_END : TEST_AT_START);
    TEST_OK(
        og_cpu_backend.run(&b->plan, state, inputs, outputs, workspace.data, NULL, aliased, &error),
        error);
    test_guard_free(&workspace);
    og_cpu_backend.release(state);
}

static const og_cpu_tuning tunings[] = {
    {24 * 1024, 8000000, 0, 0, 0}, /* as it is */
    {24 * 1024, 1, 0, 0, 0},       /* as many threads as there are tiles */
    {1, 1, 0, 0, 0},               /* the smallest blocks */
};

/* Compares all ways of running b with the interpreter; frees b. */
static inline void check(builder *b, uint64_t seed, bool special)
{
    static const int thread_counts[] = {1, 2, 3, 5};
    memory_set want, got;
    allocate_set(b, &want, seed, special);
    interpret_kernel(b, want.first);
    const char *level;
    for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
        for (size_t t = 0; t < TEST_COUNT(thread_counts); t++) {
            /* One thread races with nobody, and work is divided alike at every level. */
            const bool races = thread_counts[t] == 3 || (l == 0 && thread_counts[t] > 1);
            if (TEST_LOOKS_FOR_RACES && !races && !test_full())
                continue;
            size_t tuning = thread_counts[t] == 1 ? 2 * (l % 2) : thread_counts[t] == 2 ? 0 : t - 1;
            allocate_set(b, &got, seed, special);
            run_backend(b, &got, level, thread_counts[t], &tunings[tuning % 3], false);
            compare_outputs(b, &got, &want, level, thread_counts[t]);
            free_set(b, &got);
        }
    free_set(b, &want);
    free(b);
}

#endif
