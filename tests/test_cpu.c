/* SPDX-License-Identifier: MIT
 *
 * test_cpu.c - kernels of the plan, built by hand and at random, run by the CPU
 * backend at every level, with several numbers of threads and sizes of blocks,
 * and compared bit by bit with a naive interpreter of plan.h: one row and one
 * element after the other, reductions written down as their definition says.
 * Every buffer lies against a guard page, inputs are read-only.
 */
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

static builder *begin(og_order order, int32_t rank, const int64_t *extents, int32_t n_reduced)
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
        b->passes[p] = (og_pass){b->elements[p], 0, b->reductions[p], 0, b->rows[p], 0};
    k->pass_count = 1;
    return b;
}

/* A buffer that strides over the space fit into, and its access. */
static int32_t add_access(builder *b, og_buffer_kind kind, og_dtype dtype, const int64_t *stride)
{
    int32_t at = b->kernel.access_count++, buffer = b->plan.buffer_count++;
    int64_t low = 0, high = 0;
    og_access *access = &b->accesses[at];
    *access = (og_access){buffer, dtype, {0}};
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
static void add_product(builder *b, int64_t k, const og_dtype *dtypes,
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

static int32_t new_value(builder *b, og_type type, og_level level)
{
    int32_t v = b->kernel.value_count++;
    b->values[v] = (og_value){type, level, b->kernel.pass_count - 1};
    return v;
}

static int32_t add_instr(builder *b, og_op op, og_type type, og_type result, int32_t index,
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

static og_type type_of(og_dtype dtype)
{
    return dtype == OG_FLOAT64 ? OG_F64 : OG_F32;
}

static int32_t load(builder *b, int32_t access)
{
    og_type type = type_of(b->accesses[access].dtype);
    return add_instr(b, OG_OP_LOAD, type, type, access, -1, -1, -1);
}

static void store(builder *b, int32_t access, int32_t v)
{
    add_instr(b, OG_OP_STORE, b->values[v].type, OG_F32, access, v, -1, -1);
}

static int32_t constant(builder *b, og_type type, double value)
{
    b->constants[b->kernel.constant_count] = value;
    return add_instr(b, OG_OP_CONSTANT, type, type, b->kernel.constant_count++, -1, -1, -1);
}

static int32_t map(builder *b, og_op op, int32_t x, int32_t y)
{
    og_type type = b->values[x].type;
    return add_instr(b, op, type, type, 0, x, y, -1);
}

static int32_t reduce(builder *b, og_op op, int32_t source)
{
    og_pass *pass = &b->passes[b->kernel.pass_count - 1];
    int32_t v = new_value(b, b->values[source].type, OG_ROW);
    pass->reductions[pass->reduction_count++] = (og_reduce){op, b->values[v].type, source, v};
    b->level = OG_ROW;
    return v;
}

static void next_pass(builder *b)
{
    b->kernel.pass_count++;
    b->level = OG_ELEMENT;
}

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

static cell compute_f32(og_op op, float x, float y, const double *constants)
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

static cell compute_f64(og_op op, double x, double y, const double *k)
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

static cell read_cell(const void *memory, int64_t at, og_dtype dtype)
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

static void write_cell(void *memory, int64_t at, og_dtype dtype, cell value)
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

static cell convert(cell from, og_type type, og_dtype to)
{
    cell r = {0};
    if (to == OG_FLOAT64)
        r.f64 = type == OG_F64 ? from.f64 : (double)from.f32;
    else if (to == OG_FLOAT32)
        r.f32 = type == OG_F64 ? (float)from.f64 : from.f32;
    else if (to == OG_FLOAT16)
        r.f32 = og_f32_from_f16(type == OG_F64 ? og_f16_from_f64(from.f64)
                                               : og_f16_from_f32(from.f32));
    else
        r.f32 = og_f32_from_bf16(type == OG_F64 ? og_bf16_from_f64(from.f64)
                                                : og_bf16_from_f32(from.f32));
    return r;
}

/* One step of a fold. */
static cell meet(og_op op, og_type type, cell a, cell b)
{
    og_op as = op == OG_OP_sum ? OG_OP_add : op == OG_OP_amin ? OG_OP_minimum : OG_OP_maximum;
    return type == OG_F64 ? compute_f64(as, a.f64, b.f64, NULL)
                          : compute_f32(as, a.f32, b.f32, NULL);
}

typedef struct {
    cell value;
    bool missing;
} lane;

static lane meet_lanes(og_op op, og_type type, const lane *lanes, int64_t count)
{
    if (count == 1)
        return lanes[0];
    lane a = meet_lanes(op, type, lanes, count / 2);
    lane b = meet_lanes(op, type, lanes + count / 2, count / 2);
    if (b.missing)
        return a;
    return (lane){meet(op, type, a.value, b.value), false};
}

static cell fold_chunk(og_order order, og_op op, og_type type, const cell *x, int64_t n)
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
static int64_t find_length(og_order order, bool product)
{
    return product || order == OG_COLUMNS ? OG_RUN : OG_CHUNK;
}

static cell fold_row(og_order order, og_op op, og_type type, const cell *x, int64_t n)
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
static cell exp_below(og_type type, cell a, cell m)
{
    if (type == OG_F64)
        return compute_f64(OG_OP_exp, a.f64 - (isinf(m.f64) ? 0 : m.f64), 0, NULL);
    return compute_f32(OG_OP_exp, a.f32 - (isinf(m.f32) ? 0 : m.f32), 0, NULL);
}

static cell sum_exponentials(og_order order, bool product, og_type type, const cell *x, int64_t n)
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
static cell fold_groups(og_op op, og_type type, const cell *x, int64_t n)
{
    int64_t count = 0;
    cell *partial = calloc((size_t)(n / OG_RUN + 1), sizeof *partial);
    for (int64_t i = 0; i < n; i += OG_RUN)
        partial[count++] = fold_chunk(OG_ROWS, op, type, x + i, n - i < OG_RUN ? n - i : OG_RUN);
    cell result = fold_row(OG_ROWS, op, type, partial, count);
    free(partial);
    return result;
}

static cell reduce_naively(og_order order, bool product, og_op op, og_type type, const cell *x,
                           int64_t n)
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

static int64_t find_index(const machine *m, const og_access *access, int64_t element)
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

static float multiply_naively(const machine *m, int64_t element)
{
    const og_product *p = &m->b->product;
    int64_t left = find_index(m, &p->left, element), right = find_index(m, &p->right, element);
    float groups = 0, group = 0;
    for (int64_t k0 = 0; k0 < p->k; k0 += OG_PRODUCT_BLOCK) {
        float sum = 0;
        for (int64_t k = k0; k < p->k && k < k0 + OG_PRODUCT_BLOCK; k++)
            sum = fmaf(read_cell(m->memory[p->left.buffer], left + k * p->left_k_stride,
                                 p->left.dtype).f32,
                       read_cell(m->memory[p->right.buffer], right + k * p->right_k_stride,
                                 p->right.dtype).f32,
                       sum);
        if (k0 % OG_PRODUCT_GROUP == 0 && k0)
            groups = k0 == OG_PRODUCT_GROUP ? group : groups + group;
        group = k0 % OG_PRODUCT_GROUP ? group + sum : sum;
    }
    return p->k > OG_PRODUCT_GROUP ? groups + group : group;
}

static cell *cell_of(const machine *m, int32_t value, int64_t element)
{
    bool row = m->b->values[value].level == OG_ROW;
    return &m->cells[value * (m->n + 1) + (row ? 0 : element)];
}

static void interpret(const machine *m, const og_instr *instr, int64_t element)
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
        r = read_cell(m->memory[access->buffer], find_index(m, access, element), access->dtype);
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

static void interpret_row(const machine *m)
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
            *cell_of(m, reduce->dst, 0) =
                reduce_naively(kernel->order, kernel->product_count > 0, reduce->op, reduce->type,
                               source, m->n);
        }
        for (int32_t i = 0; i < pass->row_count; i++)
            interpret(m, &pass->rows[i], 0);
    }
    free(source);
}

static void interpret_kernel(const builder *b, void *const *memory)
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
static void fill(void *memory, og_dtype dtype, int64_t count, uint64_t seed, bool special)
{
    static const double ranges[][2] = {{-4, 4}, {-4, -1}, {-3, 5}, {1, 4}, {-4, 4}, {0, 0}};
    const double *range = ranges[seed % TEST_COUNT(ranges)];
    test_random random = {seed * 2 + 1};
    for (int64_t i = 0; i < count; i++) {
        double value = test_random_range(&random, range[0], range[1]);
        if (value == 0 && test_random_below(&random, 4))
            value = -0.0;
        static const double specials[] = {0.0,      -0.0,   INFINITY, -INFINITY,
                                          NAN,      1e-40,  80,       -90};
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

static bool same_element(const void *a, const void *b, int64_t i, og_dtype dtype)
{
    size_t bytes = og_dtype_bytes(dtype);
    if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes) == 0)
        return true;
    cell x = read_cell(a, i, dtype), y = read_cell(b, i, dtype);
    return dtype == OG_FLOAT64 ? isnan(x.f64) && isnan(y.f64) : isnan(x.f32) && isnan(y.f32);
}

typedef struct {
    test_guard guards[MAX_ITEMS];
    void *first[MAX_ITEMS]; /* the element that the pointer points at */
} memory_set;

static void allocate_set(const builder *b, memory_set *set, uint64_t seed, bool special)
{
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        const og_buffer *buffer = &b->buffers[i];
        size_t bytes = og_dtype_bytes(buffer->dtype);
        bool at_start = (seed + (uint64_t)i) % 2;
        set->guards[i] = test_guard_alloc((size_t)b->counts[i] * bytes,
                                          at_start ? TEST_AT_START : TEST_AT_END);
        set->first[i] = (char *)set->guards[i].data + (size_t)b->origins[i] * bytes;
        if (buffer->kind == OG_BUFFER_INPUT) {
            fill(set->guards[i].data, buffer->dtype, b->counts[i], seed + (uint64_t)i, special);
            test_guard_freeze(&set->guards[i]);
        }
    }
}

static void free_set(const builder *b, memory_set *set)
{
    for (int32_t i = 0; i < b->plan.buffer_count; i++)
        test_guard_free(&set->guards[i]);
}

static const char *describe(const builder *b)
{
    static char text[400];
    int at = snprintf(text, sizeof text, "order %d, reduced %d, passes %d, space",
                      (int)b->kernel.order, (int)b->kernel.space.n_reduced,
                      (int)b->kernel.pass_count);
    for (int32_t d = 0; d < b->kernel.space.rank; d++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %" PRId64,
                       b->kernel.space.extent[d]);
    return text;
}

static void compare_outputs(const builder *b, const memory_set *got, const memory_set *want,
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
            fail_msg("%s: %s, %d threads, buffer %d, element %" PRId64 ": got %s, want %s",
                     describe(b), level, threads, (int)i, e,
                     b->buffers[i].dtype == OG_FLOAT64 ? test_text_f64(x.f64)
                                                       : test_text_f32(x.f32),
                     b->buffers[i].dtype == OG_FLOAT64 ? test_text_f64(y.f64)
                                                       : test_text_f32(y.f32));
        }
    }
}

/* Runs b once; its outputs are left in set. */
static void run_backend(builder *b, memory_set *set, const char *level, int threads,
                        const og_cpu_tuning *tuning, bool aliased)
{
    ogive_options options = {sizeof options, threads, level};
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
    TEST_OK(og_cpu_backend.run(&b->plan, state, inputs, outputs, workspace.data, NULL, aliased,
                               &error),
            error);
    test_guard_free(&workspace);
    og_cpu_backend.release(state);
}

static const og_cpu_tuning tunings[] = {
    {24 * 1024, 8000000}, /* as it is */
    {24 * 1024, 1},       /* as many threads as there are tiles */
    {1, 1},               /* the smallest blocks */
};

/* Compares all ways of running b with the interpreter; frees b. */
static void check(builder *b, uint64_t seed, bool special)
{
    static const int thread_counts[] = {1, 2, 3, 5};
    memory_set want, got;
    allocate_set(b, &want, seed, special);
    interpret_kernel(b, want.first);
    const char *level;
    for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
        for (size_t t = 0; t < TEST_COUNT(thread_counts); t++) {
            size_t tuning = thread_counts[t] == 1 ? 2 * (l % 2) : thread_counts[t] == 2 ? 0 : t - 1;
            allocate_set(b, &got, seed, special);
            run_backend(b, &got, level, thread_counts[t], &tunings[tuning % 3], false);
            compare_outputs(b, &got, &want, level, thread_counts[t]);
            free_set(b, &got);
        }
    free_set(b, &want);
    free(b);
}

/* ---- reductions ------------------------------------------------------------------ */

static const og_op reductions[] = {OG_OP_sum, OG_OP_amax, OG_OP_amin, OG_OP_row_max, OG_OP_sumexp};

/* All reductions of x, or of x * x - y: rows x n (or n x rows) in memory. */
static builder *build_reduction(og_order order, int64_t rows, int64_t n, bool computed,
                                og_dtype dtype)
{
    builder *b = begin(order, 2, (int64_t[]){rows, n}, 1);
    int64_t strides[2] = {order == OG_ROWS ? n : 1, order == OG_ROWS ? 1 : rows};
    int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, strides));
    if (computed) {
        int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, strides));
        x = map(b, OG_OP_sub, map(b, OG_OP_mul, x, x), y);
    }
    int32_t results[TEST_COUNT(reductions)];
    for (size_t r = 0; r < TEST_COUNT(reductions); r++)
        results[r] = reduce(b, reductions[r], x);
    for (size_t r = 0; r < TEST_COUNT(reductions); r++)
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){1, 0}), results[r]);
    return b;
}

static void test_lengths(void **unused)
{
    static const int64_t lengths[] = {1,    2,    3,    7,     8,     63,    64,    65,
                                      127,  300,  511,  512,   513,   1023,  1025,  4095,
                                      4097, 8200, 16383, 16384, 16385, 3 * 16384 + 5};
    static const int64_t rows[] = {1, 5, 67};
    (void)unused;
    for (size_t l = 0; l < TEST_COUNT(lengths); l++)
        for (size_t r = 0; r < TEST_COUNT(rows); r++)
            for (int order = 0; order < 2; order++) {
                if (lengths[l] * rows[r] > 100000)
                    continue;
                for (uint64_t seed = 0; seed < 6; seed += rows[r] == 1 ? 1 : 2)
                    check(build_reduction((og_order)order, rows[r], lengths[l], false, OG_FLOAT32),
                          seed + r % 2, false);
                check(build_reduction((og_order)order, rows[r], lengths[l], true, OG_FLOAT32), l,
                      l % 2);
            }
    check(build_reduction(OG_ROWS, 1, (1 << 18) + 3, false, OG_FLOAT32), 1, false);
    check(build_reduction(OG_COLUMNS, 1, (1 << 18) + 3, true, OG_FLOAT32), 2, false);
    check(build_reduction(OG_ROWS, 2, (1 << 17) + 3, true, OG_BFLOAT16), 3, false);
    check(build_reduction(OG_COLUMNS, 3, 64 * 64 * 8 + 1, false, OG_FLOAT16), 4, false);
}

static void test_column_widths(void **unused)
{
    static const int64_t widths[] = {2, 16, 100, 511, 512, 513, 1100, 5000};
    static const int64_t lengths[] = {1, 5, 64, 65, 130};
    (void)unused;
    for (size_t w = 0; w < TEST_COUNT(widths); w++)
        for (size_t l = 0; l < TEST_COUNT(lengths); l++) {
            if (widths[w] * lengths[l] > 100000)
                continue;
            check(build_reduction(OG_COLUMNS, widths[w], lengths[l], false, OG_FLOAT32), w, false);
            check(build_reduction(OG_COLUMNS, widths[w], lengths[l], true, OG_FLOAT32), l, true);
        }
}

static void test_reduction_dtypes(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < OG_DTYPE_COUNT; dtype++)
        for (int order = 0; order < 2; order++)
            for (int computed = 0; computed < 2; computed++) {
                check(build_reduction((og_order)order, 9, 70, computed, (og_dtype)dtype), 1, false);
                check(build_reduction((og_order)order, 3, 700, computed, (og_dtype)dtype), 2, true);
                check(build_reduction((og_order)order, 600, 70, computed, (og_dtype)dtype), 3,
                      false);
            }
}

/* Sums alone: columns are read from memory without a step in between. */
static void test_plain_sums(void **unused)
{
    static const int64_t shapes[][2] = {{1, 5000}, {3, 200}, {64, 64}, {700, 129}, {9000, 3}};
    (void)unused;
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int order = 0; order < 2; order++) {
            int64_t rows = shapes[s][0], n = shapes[s][1];
            builder *b = begin((og_order)order, 2, shapes[s], 1);
            int64_t strides[2] = {order ? 1 : n + 3, order ? rows + 5 : 1};
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, OG_FLOAT32, strides));
            int32_t sum = reduce(b, OG_OP_sum, x);
            store(b, add_access(b, OG_BUFFER_OUTPUT, OG_FLOAT32, (int64_t[]){1, 0}), sum);
            check(b, s, false);
        }
}

/* softmax(x) * w: the row stays for a second pass; w varies along the row only. */
static builder *build_softmax(og_order order, int64_t rows, int64_t n, og_dtype dtype)
{
    builder *b = begin(order, 2, (int64_t[]){rows, n}, 1);
    int64_t strides[2] = {order == OG_ROWS ? n : 1, order == OG_ROWS ? 1 : rows};
    int32_t in = add_access(b, OG_BUFFER_INPUT, dtype, strides);
    int32_t x = load(b, in);
    int32_t m = reduce(b, OG_OP_row_max, x), s = reduce(b, OG_OP_sumexp, x);
    int32_t d = map(b, OG_OP_add, s, map(b, OG_OP_sub, m, m));
    next_pass(b);
    x = load(b, in);
    int32_t w = load(b, add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){0, 1}));
    int32_t y = map(b, OG_OP_div, map(b, OG_OP_exp, map(b, OG_OP_sub, x, m), -1), d);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, strides), map(b, OG_OP_mul, y, w));
    return b;
}

/* exp(x - m) and its sum's value: terms that the backend may keep from the sum, also
 * where m is infinite and they are not the sum's. */
static builder *build_exponentials(int64_t rows, int64_t n, og_dtype dtype)
{
    builder *b = begin(OG_ROWS, 2, (int64_t[]){rows, n}, 1);
    int32_t in = add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){n, 1});
    og_type type = type_of(dtype);
    int32_t x = map(b, OG_OP_mul, load(b, in), constant(b, type, 0.5));
    int32_t m = reduce(b, OG_OP_amax, x), s = reduce(b, OG_OP_sumexp, x);
    next_pass(b);
    x = map(b, OG_OP_mul, load(b, in), constant(b, type, 0.5));
    int32_t e = map(b, OG_OP_exp, map(b, OG_OP_sub, x, m), -1);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){n, 1}), e);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, (int64_t[]){n, 1}), map(b, OG_OP_mul, e, s));
    return b;
}

static void test_kept_exponentials(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < OG_DTYPE_COUNT; dtype++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            check(build_exponentials(30, 5, (og_dtype)dtype), seed, true);
            check(build_exponentials(50, 60, (og_dtype)dtype), seed, seed % 2);
            check(build_exponentials(5, 2000, (og_dtype)dtype), seed, seed % 2);
            check(build_exponentials(1, 17000, (og_dtype)dtype), seed, seed % 2);
        }
}

static void test_softmax(void **unused)
{
    static const int64_t shapes[][2] = {{1, 1},   {100, 1}, {40, 8},    {33, 64},   {7, 500},
                                        {5, 513}, {3, 4096}, {2, 16500}, {1, 50000}, {513, 65}};
    (void)unused;
    for (size_t s = 0; s < TEST_COUNT(shapes); s++)
        for (int order = 0; order < 2; order++)
            for (int dtype = 0; dtype < OG_DTYPE_COUNT; dtype++) {
                if (dtype && shapes[s][0] * shapes[s][1] > 20000)
                    continue;
                check(build_softmax((og_order)order, shapes[s][0], shapes[s][1], (og_dtype)dtype),
                      s, s % 3 == 1);
            }
}

/* ---- pointwise ------------------------------------------------------------------- */

/* x * sigmoid(x) + y over a space, with any strides of x, y and the result. */
static void check_pointwise(int32_t rank, const int64_t *extents, const int64_t *x_stride,
                            const int64_t *y_stride, const int64_t *out_stride, og_dtype dtype)
{
    builder *b = begin(OG_ROWS, rank, extents, 0);
    int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, x_stride));
    int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, y_stride));
    int32_t product = map(b, OG_OP_mul, x, map(b, OG_OP_sigmoid, x, -1));
    int32_t sum = map(b, OG_OP_add, product, y);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, out_stride), sum);
    check(b, (uint64_t)extents[0] + (uint64_t)dtype, true);
}

static void test_pointwise_layouts(void **unused)
{
    (void)unused;
    for (int t = 0; t < OG_DTYPE_COUNT; t++) {
        og_dtype dtype = (og_dtype)t;
        int64_t none[1] = {1};
        check_pointwise(0, none, none, none, none, dtype);
        static const int64_t lengths[] = {1, 2, 15, 16, 17, 511, 4096, 4097, 20001};
        for (size_t l = 0; l < TEST_COUNT(lengths); l++) {
            int64_t n[1] = {lengths[l]};
            check_pointwise(1, n, (int64_t[]){1}, (int64_t[]){1}, (int64_t[]){1}, dtype);
            check_pointwise(1, n, (int64_t[]){2}, (int64_t[]){0}, (int64_t[]){1}, dtype);
            check_pointwise(1, n, (int64_t[]){-1}, (int64_t[]){1}, (int64_t[]){3}, dtype);
        }
        static const int64_t sizes[][2] = {{2, 3}, {64, 64}, {100, 70}, {5, 600}, {600, 5}};
        for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
            int64_t m = sizes[s][0], n = sizes[s][1];
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){0, 1}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){1, 0}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){1, m}, (int64_t[]){n, 1}, (int64_t[]){n, 1},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n, 1}, (int64_t[]){n, 1}, (int64_t[]){1, m},
                            dtype);
            check_pointwise(2, sizes[s], (int64_t[]){n + 2, 1}, (int64_t[]){0, 0},
                            (int64_t[]){n + 1, 1}, dtype);
        }
        int64_t cube[3] = {9, 11, 13};
        check_pointwise(3, cube, (int64_t[]){1, 9, 99}, (int64_t[]){0, 13, 1},
                        (int64_t[]){143, 13, 1}, dtype);
        check_pointwise(3, cube, (int64_t[]){13, 117, 1}, (int64_t[]){11, 1, 99},
                        (int64_t[]){13, 117, 1}, dtype);
    }
}

/* Every form of an argument: blocks, elements of memory, constants. */
static void test_forms(void **unused)
{
    (void)unused;
    for (int t = 0; t < 2; t++) {
        og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
        og_type type = type_of(dtype);
        builder *b = begin(OG_ROWS, 2, (int64_t[]){30, 40}, 0);
        int64_t full[2] = {40, 1};
        int32_t block = load(b, add_access(b, OG_BUFFER_INPUT, dtype, full));
        int32_t one = load(b, add_access(b, OG_BUFFER_INPUT, dtype, (int64_t[]){0, 0}));
        int32_t number = constant(b, type, 0.75);
        int32_t both = map(b, OG_OP_sub, one, number);
        int32_t some = add_instr(b, OG_OP_lt, type, OG_MASK32, 0, block, number, -1);
        int32_t all = add_instr(b, OG_OP_lt, type, OG_MASK32, 0, one, number, -1);
        int32_t values[] = {block, both};
        int32_t sum = map(b, OG_OP_sub, number, block);
        for (int m = 0; m < 2; m++)
            for (int x = 0; x < 2; x++)
                for (int y = 0; y < 2; y++) {
                    int32_t w = add_instr(b, OG_OP_where, type, type, 0, m ? some : all, values[x],
                                          values[y]);
                    sum = map(b, x ? OG_OP_add : OG_OP_maximum, sum, w);
                    sum = map(b, OG_OP_div, both, sum);
                }
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), sum);
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), both);
        store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, full), block);
        check(b, 7, true);
    }
}

/* Every function of the language, on blocks and with constants. */
static void test_functions(void **unused)
{
    (void)unused;
    for (int op = 0; op < OG_FUNCTION_COUNT; op++) {
        const og_function *function = og_function_of((og_op)op);
        if (function->kind != OG_SCALAR && function->kind != OG_MASKING)
            continue;
        for (int t = 0; t < 2; t++) {
            og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
            og_type type = type_of(dtype);
            builder *b = begin(OG_ROWS, 1, (int64_t[]){777}, 0);
            int64_t stride[1] = {1};
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, dtype, stride));
            int32_t y = -1;
            if (function->kind == OG_MASKING || function->args == 2)
                y = load(b, add_access(b, OG_BUFFER_INPUT, dtype, stride));
            int32_t at = b->kernel.constant_count;
            for (int k = 0; k < function->constants; k++)
                b->constants[b->kernel.constant_count++] = 0.5 + k;
            bool masks = function->kind == OG_MASKING;
            int32_t r = add_instr(b, (og_op)op, type, masks ? OG_MASK32 : type, at, x, y, -1);
            if (masks)
                r = add_instr(b, OG_OP_where, type, type, 0, r, x, y);
            store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, stride), r);
            check(b, (uint64_t)op, true);
        }
    }
}

static void test_conversions(void **unused)
{
    (void)unused;
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < OG_DTYPE_COUNT; to++) {
            builder *b = begin(OG_ROWS, 1, (int64_t[]){5000}, 0);
            int64_t stride[1] = {1};
            og_dtype source = from ? OG_FLOAT64 : OG_FLOAT32;
            int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, source, stride));
            int32_t r = add_instr(b, OG_OP_CONVERT, type_of((og_dtype)to), type_of((og_dtype)to),
                                  to, x, -1, -1);
            og_dtype result = to == OG_FLOAT64 ? OG_FLOAT64 : OG_FLOAT32;
            store(b, add_access(b, OG_BUFFER_OUTPUT, result, stride), r);
            check(b, (uint64_t)to, true);
        }
}

/* ---- in place -------------------------------------------------------------------- */

/* Output 0 is input `input`: same layout. */
static void check_in_place(builder *b, int32_t input)
{
    int32_t in = -1, out = -1;
    for (int32_t i = 0; i < b->plan.buffer_count; i++) {
        if (b->buffers[i].kind == OG_BUFFER_INPUT && b->buffers[i].index == input)
            in = i;
        if (b->buffers[i].kind == OG_BUFFER_OUTPUT && b->buffers[i].index == 0)
            out = i;
    }
    b->may_alias[input] = true;
    memory_set want, got;
    allocate_set(b, &want, 5, true);
    interpret_kernel(b, want.first);
    const char *level;
    for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
        for (size_t t = 0; t < TEST_COUNT(tunings); t++) {
            allocate_set(b, &got, 5, true);
            size_t bytes = (size_t)b->counts[in] * og_dtype_bytes(b->buffers[in].dtype);
            memcpy(got.guards[out].data, got.guards[in].data, bytes);
            got.first[in] = got.first[out];
            run_backend(b, &got, level, 1 + (int)t, &tunings[t], true);
            compare_outputs(b, &got, &want, level, 1 + (int)t);
            free_set(b, &got);
        }
    free_set(b, &want);
    free(b);
}

static void test_in_place(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < OG_DTYPE_COUNT; dtype++) {
        for (int order = 0; order < 2; order++)
            for (int n = 60; n <= 600; n *= 10)
                check_in_place(build_softmax((og_order)order, 70, n, (og_dtype)dtype), 0);
        /* y, x * y, x: the first result overwrites x, which two others read. */
        builder *b = begin(OG_ROWS, 1, (int64_t[]){9000}, 0);
        int64_t stride[1] = {1};
        int32_t x = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, stride));
        int32_t y = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, stride));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride), map(b, OG_OP_neg, y, -1));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride), map(b, OG_OP_mul, x, y));
        store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, stride), x);
        check_in_place(b, 0);
        /* exp(x), sum(x) and sumexp(x) in one pass. */
        for (int n = 60; n <= 40000; n *= 20) {
            b = begin(OG_ROWS, 2, (int64_t[]){3, n}, 1);
            x = load(b, add_access(b, OG_BUFFER_INPUT, (og_dtype)dtype, (int64_t[]){n, 1}));
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){n, 1}),
                  map(b, OG_OP_exp, x, -1));
            int32_t s = reduce(b, OG_OP_sum, x), e = reduce(b, OG_OP_sumexp, x);
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){1, 0}), s);
            store(b, add_access(b, OG_BUFFER_OUTPUT, (og_dtype)dtype, (int64_t[]){1, 0}), e);
            check_in_place(b, 0);
        }
    }
}

/* ---- empty ----------------------------------------------------------------------- */

static void test_empty(void **unused)
{
    (void)unused;
    for (int order = 0; order < 2; order++)
        for (int t = 0; t < 2; t++) {
            og_dtype dtype = t ? OG_FLOAT64 : OG_FLOAT32;
            check(build_reduction((og_order)order, 37, 0, false, dtype), 1, false);
            check(build_reduction((og_order)order, 0, 37, true, dtype), 1, false);
            check(build_softmax((og_order)order, 600, 0, dtype), 1, false);
        }
    check_pointwise(2, (int64_t[]){0, 5}, (int64_t[]){5, 1}, (int64_t[]){0, 1}, (int64_t[]){5, 1},
                    OG_FLOAT32);
}

/* ---- at random --------------------------------------------------------------------- */

static int32_t pick(test_random *random, const int32_t *values, int32_t count)
{
    return values[test_random_below(random, count)];
}

/* Strides of a random order of the dims in memory; dims in `still` do not move. */
static void draw_strides(test_random *random, const og_space *space, uint32_t still, bool input,
                         int64_t *strides)
{
    int32_t order[OG_MAX_RANK];
    for (int32_t d = 0; d < space->rank; d++)
        order[d] = d;
    if (test_random_below(random, 2))
        for (int32_t d = space->rank - 1; d > 0; d--) {
            int32_t other = (int32_t)test_random_below(random, d + 1), kept = order[d];
            order[d] = order[other];
            order[other] = kept;
        }
    int64_t stride = test_random_below(random, 8) ? 1 : 2;
    for (int32_t i = space->rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        bool stays = (still >> d & 1) || (input && !test_random_below(random, 5));
        strides[d] = stays ? 0 : stride;
        if (stays)
            continue;
        if (input && !test_random_below(random, 12))
            strides[d] = -stride;
        stride = stride * (space->extent[d] ? space->extent[d] : 1) +
                 (test_random_below(random, 6) == 0);
    }
}

static uint32_t reduced_dims(const og_space *space)
{
    return ((1u << space->n_reduced) - 1) << (space->rank - space->n_reduced);
}

static int32_t draw_load(test_random *random, builder *b, bool row)
{
    int64_t strides[OG_MAX_RANK] = {0};
    og_dtype dtype = (og_dtype)test_random_below(random, OG_DTYPE_COUNT);
    const og_space *space = &b->kernel.space;
    draw_strides(random, space, row ? reduced_dims(space) : 0, true, strides);
    return load(b, add_access(b, OG_BUFFER_INPUT, dtype, strides));
}

/* v in the given type. */
static int32_t cast(builder *b, int32_t v, og_type type)
{
    if (b->values[v].type == type)
        return v;
    return add_instr(b, OG_OP_CONVERT, type, type, type == OG_F64 ? OG_FLOAT64 : OG_FLOAT32, v, -1,
                     -1);
}

static int32_t draw_instr(test_random *random, builder *b, const int32_t *values, int32_t count)
{
    static const og_op binary[] = {OG_OP_add, OG_OP_sub, OG_OP_mul, OG_OP_maximum, OG_OP_minimum};
    static const og_op unary[] = {OG_OP_sigmoid, OG_OP_exp, OG_OP_neg, OG_OP_square, OG_OP_tanh};
    int32_t x = pick(random, values, count);
    og_type type = b->values[x].type;
    int32_t y = cast(b, pick(random, values, count), type);
    switch (test_random_below(random, 8)) {
    case 0:
        return constant(b, type, test_random_range(random, -2, 2));
    case 1:
        return add_instr(b, OG_OP_CONVERT, OG_F32, OG_F32,
                         test_random_below(random, 2) ? OG_FLOAT16 : OG_BFLOAT16, x, -1, -1);
    case 2: {
        int32_t mask = add_instr(b, OG_OP_gt, type, OG_MASK32, 0, x, y, -1);
        int32_t z = pick(random, values, count);
        return add_instr(b, OG_OP_where, b->values[z].type, b->values[z].type, 0, mask, z,
                         cast(b, pick(random, values, count), b->values[z].type));
    }
    case 3:
    case 4:
        return map(b, unary[test_random_below(random, TEST_COUNT(unary))], x, -1);
    default:
        return map(b, binary[test_random_below(random, TEST_COUNT(binary))], x, y);
    }
}

static void draw_store(test_random *random, builder *b, int32_t v, bool row)
{
    int64_t strides[OG_MAX_RANK] = {0};
    const og_space *space = &b->kernel.space;
    draw_strides(random, space, row ? reduced_dims(space) : 0, false, strides);
    og_dtype dtype = b->values[v].type == OG_F64 ? OG_FLOAT64
                                                 : (og_dtype)test_random_below(random, 3);
    store(b, add_access(b, OG_BUFFER_OUTPUT, dtype, strides), v);
}

/* One level of one pass: loads, instructions, stores. pool: values to start from. */
static int32_t draw_section(test_random *random, builder *b, int32_t *pool, int32_t count,
                            bool row)
{
    if (count == 0 || test_random_below(random, 2))
        pool[count++] = draw_load(random, b, row);
    for (int64_t i = test_random_below(random, 5); i > 0; i--)
        pool[count] = draw_instr(random, b, pool, count), count++;
    if (test_random_below(random, 3) > 0)
        draw_store(random, b, pool[count - 1], row);
    if (test_random_below(random, 3) == 0)
        draw_store(random, b, pick(random, pool, count), row);
    return count;
}

/* Sides of a product: anything goes but along a reduced dim. */
static int32_t draw_product(test_random *random, builder *b)
{
    static const int64_t lengths[] = {0, 1, 3, 16, 50, 256, 300, 700, 4100, 8300};
    const og_space *space = &b->kernel.space;
    int64_t total = 1, k = lengths[test_random_below(random, TEST_COUNT(lengths))];
    for (int32_t d = 0; d < space->rank; d++)
        total *= space->extent[d];
    while (total * k > 200000)
        k /= 2;
    int64_t strides[2][OG_MAX_RANK] = {{0}}, k_strides[2];
    og_dtype dtypes[2];
    uint32_t still[2] = {0, 0};
    for (int32_t d = 0; d < space->rank; d++) /* mostly a batch, then rows, then columns */
        if (d + 2 >= space->rank)
            still[d + 1 == space->rank ? 0 : 1] |= 1u << d;
    if (test_random_below(random, 4) == 0) { /* the other way round */
        uint32_t first = still[0];
        still[0] = still[1], still[1] = first;
    }
    if (test_random_below(random, 4) == 0 && !space->n_reduced)
        still[0] = still[1] = (uint32_t)test_random_below(random, 4);
    for (int side = 0; side < 2; side++) {
        dtypes[side] = (og_dtype)test_random_below(random, 3);
        draw_strides(random, space, still[side], true, strides[side]);
        k_strides[side] = 1 + test_random_below(random, 2);
        if (test_random_below(random, 2)) { /* k within the others, else around them */
            for (int32_t d = 0; d < space->rank; d++)
                strides[side][d] *= (k ? k : 1) * k_strides[side];
        } else {
            k_strides[side] = total;
        }
    }
    add_product(b, k, dtypes, strides, k_strides);
    return add_instr(b, OG_OP_PRODUCT, OG_F32, OG_F32, 0, -1, -1, -1);
}

static builder *draw_kernel(test_random *random, bool product)
{
    static const int64_t extents[] = {2, 3, 5, 8, 16, 33, 64, 70, 130, 512, 513, 1100, 16400};
    int64_t space[OG_MAX_RANK], total = 1;
    int32_t rank = 0, want = (int32_t)test_random_below(random, 5);
    for (int tries = 0; rank < want && tries < 20; tries++) {
        int64_t extent = extents[test_random_below(random, TEST_COUNT(extents))];
        if (total * extent > 20000)
            continue;
        space[rank++] = extent;
        total *= extent;
    }
    int32_t n_reduced = rank ? (int32_t)test_random_below(random, product ? 2 : rank + 1) : 0;
    og_order order = product ? OG_ROWS : (og_order)test_random_below(random, 2);
    builder *b = begin(order, rank, space, n_reduced);
    int32_t pool[4 * MAX_ITEMS], rows = 0;
    int64_t passes = n_reduced ? 1 + test_random_below(random, 3) : 1;
    for (int64_t p = 0; p < passes; p++) {
        int32_t given = rows;
        if (product && p == 0)
            pool[given++] = draw_product(random, b);
        int32_t count = draw_section(random, b, pool, given, false);
        if (!n_reduced)
            break;
        int32_t sources[4], drawn = 1 + (int32_t)test_random_below(random, 3);
        for (int32_t r = 0; r < drawn; r++)
            sources[r] = pick(random, pool, count);
        for (int32_t r = 0; r < drawn; r++)
            pool[rows++] =
                reduce(b, reductions[test_random_below(random, TEST_COUNT(reductions))], sources[r]);
        rows = draw_section(random, b, pool, rows, true);
        if (p + 1 < passes)
            next_pass(b);
    }
    return b;
}

static void test_random_kernels(void **unused)
{
    test_random random = test_random_named("kernels");
    (void)unused;
    for (int i = 0; i < (test_full() ? 20000 : 300); i++)
        check(draw_kernel(&random, false), (uint64_t)i, i % 3 == 0);
}

static void test_random_products(void **unused)
{
    test_random random = test_random_named("products");
    (void)unused;
    for (int i = 0; i < (test_full() ? 20000 : 400); i++)
        check(draw_kernel(&random, true), (uint64_t)i, i % 5 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),        cmocka_unit_test(test_column_widths),
        cmocka_unit_test(test_reduction_dtypes), cmocka_unit_test(test_plain_sums),
        cmocka_unit_test(test_softmax),        cmocka_unit_test(test_kept_exponentials), cmocka_unit_test(test_pointwise_layouts),
        cmocka_unit_test(test_forms),          cmocka_unit_test(test_functions),
        cmocka_unit_test(test_conversions),    cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_empty),          cmocka_unit_test(test_random_kernels),
        cmocka_unit_test(test_random_products),
    };
    return TEST_RUN(tests);
}
