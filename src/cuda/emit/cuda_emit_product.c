/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_product.c - kernels with matrix products, in the CPU's order on CUDA cores: the
 * factors as CUDA C, and what is emitted around the bodies: product_tiles.cuh, with
 * product_split.cuh where k is split, or product_few.cuh. og_matrices says how
 * the space is seen.
 */
#include "cuda/emit/cuda_emit_product.h"
#include "cuda/emit/cuda_product_tile.h"

#include <math.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

og_matrices og_cuda_matrices_of(const og_kernel *kernel)
{
    og_matrices s = kernel->matrices;
    int64_t line = s.n_rank ? kernel->space.extent[kernel->space.rank - 1] : 1;
    if (s.n_rank > 1 && line)
        s.n = og_times(s.n / line, og_cuda_line_of(kernel));
    return s;
}

int64_t og_cuda_reach_of(const og_space *space, const og_access *access)
{
    int64_t reach = 0, span;
    for (int32_t d = 0; d < space->rank; d++)
        if (__builtin_mul_overflow(llabs(access->stride[d]), space->extent[d] - 1, &span) ||
            __builtin_add_overflow(reach, span, &reach))
            return INT64_MAX;
    for (int32_t w = 0; w < access->window_count; w++)
        if (__builtin_mul_overflow(llabs(access->windows[w].stride), access->windows[w].extent - 1,
                                   &span) ||
            __builtin_add_overflow(reach, span, &reach))
            return INT64_MAX;
    return reach;
}

/* How far from its first element a convolution's factor is read, or would be. */
static double reach_of(const og_kernel *kernel, const og_factor *f)
{
    const og_k_dims *k = &kernel->products[0].k_dims;
    double reach = 0;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        reach += fabs((double)f->access->stride[d]) * (double)(kernel->space.extent[d] + 256);
    for (int32_t d = 0; d < k->rank; d++)
        reach += fabs((double)k->stride[f->is_right][d]) * (double)(k->extent[d] + 256);
    for (int32_t w = 0; w < f->access->window_count; w++) {
        const og_window *window = &f->access->windows[w];
        double span = fabs((double)window->start);
        if (window->place >= 0)
            span +=
                fabs((double)window->step) * (double)(kernel->space.extent[window->place] + 256);
        if (window->tap >= 0)
            span += fabs((double)window->reach) * (double)(k->extent[window->tap] + 256);
        reach += span * fmax(1, fabs((double)window->stride));
    }
    return reach;
}

bool og_cuda_product_needs_wide(const og_kernel *kernel, bool is_split)
{
    enum { SLACK = 256 };
    const og_matrices padded = og_cuda_matrices_of(kernel), *s = &padded;
    const int32_t n_dim = og_column_dim(kernel);
    const int64_t most = INT32_MAX / 4;
    int64_t count;
    for (int32_t d = 0; d < kernel->space.rank; d++)
        if (kernel->space.extent[d] > most)
            return true;
    if (s->m > most || s->k > most - SLACK ||
        __builtin_mul_overflow(s->batch, s->m + SLACK, &count) ||
        __builtin_mul_overflow(count, s->n + SLACK, &count) || count > most ||
        (is_split && count > most / (2 * (s->k / OG_PRODUCT_BLOCK + 1))))
        return true;
    for (int32_t i = 0; i < 2 * kernel->product_count; i++) {
        og_factor f = og_factor_of(kernel, i / 2, i % 2);
        int64_t reach;
        if (og_kernel_convolves(kernel) && reach_of(kernel, &f) > (double)most)
            return true;
        if (__builtin_mul_overflow(llabs(f.k_stride), s->k + SLACK, &reach))
            return true;
        for (int32_t d = 0; d < kernel->space.rank; d++) {
            int64_t span;
            if (__builtin_mul_overflow(llabs(f.access->stride[d]), kernel->space.extent[d] + SLACK,
                                       &span) ||
                __builtin_add_overflow(reach, span, &reach) || reach > most)
                return true;
        }
        if (reach > most)
            return true;
    }
    for (int32_t i = 0; i < kernel->access_count; i++) {
        int64_t stride = n_dim < 0 ? 0 : llabs(kernel->accesses[i].stride[n_dim]), span;
        if (__builtin_mul_overflow(stride, s->n + SLACK, &span) || span > most)
            return true;
    }
    return false;
}

/* ---- factors ----------------------------------------------------------------------------- */

static const char *side_of(const og_factor *f)
{
    return f->is_right ? "right" : "left";
}

/* a.left0_2, added where first used: the stride along a dim. */
static void add_move(og_cuda_emitter *e, const og_factor *f, int32_t dim, const char *index)
{
    char name[32];
    if (f->access->stride[dim] == 0)
        return;
    snprintf(name, sizeof name, "%s%d_%d", side_of(f), (int)f->product, (int)dim);
    og_cuda_add_index(e, name, f->access->stride[dim]);
    og_text_add(&e->passes, "        at += %s * a.%s;\n", index, name);
}

/* Adds to `at` what index over dims [0, to), the last fastest, means. */
static void add_moves(og_cuda_emitter *e, const og_factor *f, int32_t to, const char *index)
{
    for (int32_t d = to - 1; d > 0; d--) {
        char divisor[16];
        og_cuda_print_dim_divisor(d, divisor);
        og_text_add(&e->passes,
                    "        rest = og_divide(%s, a.%s);\n"
                    "        i = %s - rest * a.%s.extent;\n"
                    "        %s = rest;\n",
                    index, divisor, index, divisor, index);
        add_move(e, f, d, "i");
    }
    if (to > 0)
        add_move(e, f, 0, index);
}

/* What lies side by side in memory. */
static const char *along_of(const og_kernel *kernel, const og_factor *f)
{
    const og_matrices *s = &kernel->matrices;
    int32_t dim = f->is_right ? og_column_dim(kernel) : s->m_rank == 1 ? s->batch_rank : -1;
    if (f->k_stride == 1)
        return "OG_ALONG_K";
    return dim >= 0 && f->access->stride[dim] == 1 ? "OG_ALONG_ROWS" : "OG_ALONG_NONE";
}

/* Widening is one instruction of a GPU, a dozen in half.h: of a float16 tile's step that would
 * be one instruction in eight. The bits are the same but for a NaN's. */
static const char before_factors[] = "\n/* What neighbours in memory are. */\n"
                                     "enum { OG_ALONG_K, OG_ALONG_ROWS, OG_ALONG_NONE };\n"
                                     "\nOG_FN float og_widen_f16(og_half x)\n{\n"
                                     "#if defined(__CUDA_ARCH__)\n"
                                     "    float y;\n"
                                     "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x));\n"
                                     "    return y;\n"
                                     "#else\n"
                                     "    return og_f32_from_f16(x);\n"
                                     "#endif\n}\n";

/* ---- what windows see: product_windows.cuh ------------------------------------------------- */

/* Makes f->k_stride the stride of all k dims of a convolution's left factor; false if they have
 * none, or are seen through windows. */
static bool join_k(const og_kernel *kernel, og_factor *f)
{
    const og_k_dims *k = &kernel->products[0].k_dims;
    const int64_t *stride = k->stride[f->is_right];
    if (f->is_right || f->access->window_count)
        return false;
    for (int32_t d = 0; d + 1 < k->rank; d++)
        if (stride[d] != stride[d + 1] * k->extent[d + 1])
            return false;
    f->k_stride = stride[k->rank - 1];
    return true;
}

/* What one step along dim d of k, or of the space, adds to the offset. */
static int64_t step_of_seen(const og_kernel *kernel, const og_factor *f, bool is_k, int32_t d)
{
    if (!is_k)
        return llabs(og_factor_step(f->access, d));
    int64_t step = kernel->products[0].k_dims.stride[f->is_right][d];
    for (int32_t w = 0; w < f->access->window_count; w++)
        if (f->access->windows[w].tap == d)
            step += f->access->windows[w].reach * f->access->windows[w].stride;
    return llabs(step);
}

/* What neighbouring threads have of it: k or rows, of whatever more lie close to each other. */
static const char *along_of_seen(const og_kernel *kernel, const og_factor *f)
{
    enum { CLOSE = 4 }; /* elements: of a sector of 32 bytes, two are used */
    const og_matrices *s = &kernel->matrices;
    const og_k_dims *k = &kernel->products[0].k_dims;
    int32_t rows_end = s->batch_rank + s->m_rank;
    int32_t dim = f->is_right ? og_column_dim(kernel) : s->m_rank ? rows_end - 1 : -1;
    int64_t rows = 1, terms = 1;
    if (dim >= 0 && step_of_seen(kernel, f, false, dim) <= CLOSE)
        rows = kernel->space.extent[dim];
    for (int32_t d = k->rank - 1; d >= 0; d--) {
        int64_t step = step_of_seen(kernel, f, true, d);
        if (d == k->rank - 1 ? step > CLOSE : step != terms)
            break;
        terms *= k->extent[d];
    }
    return og_min(terms, 32) > og_min(rows, 32) ? "OG_ALONG_K" : "OG_ALONG_ROWS";
}

/* "p.offset += i * a.right0_2;", and the same of windows' places. */
static void add_step(og_cuda_emitter *e, const char *factor, char of, int32_t dim, int32_t window,
                     int64_t step)
{
    char name[80];
    if (step == 0)
        return;
    if (window < 0)
        snprintf(name, sizeof name, "%s_%c%d", factor, of, (int)dim);
    else
        snprintf(name, sizeof name, "%s_%c%d_%d", factor, of, (int)dim, (int)window);
    og_cuda_add_index(e, name, step);
    if (window < 0)
        og_text_add(&e->passes, "        p.offset += i * a.%s;\n", name);
    else
        og_text_add(&e->passes, "        p.place[%d] += i * a.%s;\n", (int)window, name);
}

/* p moves by i along dim of the space, or of k. */
static void add_place_move(og_cuda_emitter *e, const og_factor *f, const char *factor, bool is_k,
                           int32_t dim)
{
    const og_k_dims *k = &e->kernel->products[0].k_dims;
    int64_t stride = is_k ? k->stride[f->is_right][dim] : f->access->stride[dim];
    for (int32_t w = 0; w < f->access->window_count; w++) {
        const og_window *window = &f->access->windows[w];
        int64_t step = is_k ? (window->tap == dim ? window->reach : 0)
                            : (window->place == dim ? window->step : 0);
        stride += step * window->stride;
        add_step(e, factor, is_k ? 'k' : 's', dim, w, step);
    }
    add_step(e, factor, is_k ? 'k' : 's', dim, -1, stride);
}

/* index over dims [from, to) of the space, or of k, the last fastest, moves p; i is what the last
 * of them took when it is alone, or was taken first. */
static void add_place_moves(og_cuda_emitter *e, const og_factor *f, const char *factor, bool is_k,
                            int32_t from, int32_t to, const char *index)
{
    for (int32_t d = to - 1; d >= from; d--) {
        char divisor[32];
        if (is_k)
            snprintf(divisor, sizeof divisor, "k_%d", (int)d);
        else
            og_cuda_print_dim_divisor(d, divisor);
        if (d > from)
            og_text_add(&e->passes,
                        "        rest = og_divide(%s, a.%s);\n"
                        "        i = %s - rest * a.%s.extent;\n"
                        "        %s = rest;\n",
                        index, divisor, index, divisor, index);
        else
            og_text_add(&e->passes, "        i = %s;\n", index);
        if (!is_k && f->is_right && d + 1 == e->kernel->space.rank &&
            e->kernel->matrices.n_rank > 1)
            og_text_add(&e->passes, "        is_there = i < a.line;\n");
        add_place_move(e, f, factor, is_k, d);
    }
}

/* data(), extent(), find_row() and find_k(). */
static void add_seen(og_cuda_emitter *e, const og_factor *f, const char *factor)
{
    const og_matrices *s = &e->kernel->matrices;
    const int32_t rank = e->kernel->space.rank, windows = f->access->window_count;
    og_text *to = &e->passes;
    char name[80];
    int64_t start = 0;
    og_text_add(to,
                "    OG_FN const element *data(const og_args &a)\n    {\n"
                "        return a.%s;\n    }\n"
                "    OG_FN og_index extent(const og_args &a, int w)\n    {\n"
                "        return ",
                factor);
    for (int32_t w = 0; w < windows; w++) {
        snprintf(name, sizeof name, "%s_extent%d", factor, (int)w);
        og_cuda_add_index(e, name, f->access->windows[w].extent);
        if (w + 1 < windows)
            og_text_add(to, "w == %d ? ", (int)w);
        og_text_add(to, w + 1 < windows ? "a.%s : " : "a.%s", name);
        start += f->access->windows[w].start * f->access->windows[w].stride;
    }
    og_text_add(to, "%s;\n    }\n", windows ? "" : "0");
    og_text_add(to,
                "    template <class P>\n"
                "    OG_FN bool find_row(const og_args &a, og_index base, og_index index, P &p)\n"
                "    {\n        og_index rest, i;\n        bool is_there = true;\n");
    snprintf(name, sizeof name, "%s_start", factor);
    og_cuda_add_index(e, name, start);
    og_text_add(to, "        p.offset = a.%s;\n", name);
    for (int32_t w = 0; w < windows; w++) {
        snprintf(name, sizeof name, "%s_start%d", factor, (int)w);
        og_cuda_add_index(e, name, f->access->windows[w].start);
        og_text_add(to, "        p.place[%d] = a.%s;\n", (int)w, name);
    }
    if (f->is_right) {
        add_place_moves(e, f, factor, false, rank - s->n_rank, rank, "index");
        add_place_moves(e, f, factor, false, 0, s->batch_rank, "base");
    } else {
        og_text_add(to, "        index += base * a.m;\n");
        add_place_moves(e, f, factor, false, 0, s->batch_rank + s->m_rank, "index");
    }
    og_text_add(to, "        return is_there;\n    }\n"
                    "    template <class P>\n"
                    "    OG_FN void find_k(const og_args &a, og_index k, P &p)\n"
                    "    {\n        og_index rest, i;\n        p.offset = 0;\n");
    for (int32_t w = 0; w < windows; w++)
        og_text_add(to, "        p.place[%d] = 0;\n", (int)w);
    add_place_moves(e, f, factor, true, 0, e->kernel->products[0].k_dims.rank, "k");
    og_text_add(to, "    }\n");
}

/* What a factor's elements are, of a source that serves every dtype. */
static void add_any_element(og_cuda_emitter *e, const og_factor *f, const char *name)
{
    const bool is_kept = e->plan->buffers[f->access->buffer].kind == OG_BUFFER_TEMPORARY;
    const char *side = f->is_right ? "RIGHT" : "LEFT";
    og_cuda_add_pointer(e, f->is_right ? "const OG_RIGHT" : "const OG_LEFT", name,
                        f->access->buffer, 0);
    og_text_add(
        &e->passes,
        "\nstruct og_%s {\n    typedef og_form<%s> form;\n"
        "    typedef OG_%s element;\n"
        "    enum { is_seen = 0, is_right = %d, windows = 0 };\n"
        "    static constexpr int along = OG_ALONG_%s;\n"
        "    OG_FN og_number widen(element x)\n    {\n        return form::widen(x);\n    }\n"
        "    OG_FN element missing()\n    {\n"
        "        return %s;\n    }\n",
        name, is_kept ? "true" : "false", side, f->is_right, side,
        f->is_right ? "sizeof(element) == 2 ? (element)0x8000 : (element)-0.0f" : "0");
}

/* How many elements of a factor are between one k and the next. */
static void add_k_stride(og_cuda_emitter *e, const og_factor *f, const char *name)
{
    og_text *to = &e->passes;
    og_text_add(to, "    OG_FN og_index k_stride(const og_args &a)\n    {\n");
    if (f->k_stride == 1 && !og_cuda_serves(e)) {
        og_text_add(to, "        return 1;\n    }\n");
        return;
    }
    og_cuda_add_index(e, name, f->k_stride);
    og_text_add(to, "        return %sa.%s;\n    }\n",
                og_cuda_serves(e) ? "along == OG_ALONG_K ? 1 : " : "", name);
}

/* struct og_left0: how a row of k is found and read. */
static void add_factor(og_cuda_emitter *e, og_factor *f)
{
    const og_matrices *s = &e->kernel->matrices;
    static const char *const widen[OG_DTYPE_COUNT] = {
        [OG_FLOAT16] = "og_widen_f16", [OG_BFLOAT16] = "og_f32_from_bf16"};
    og_text *to = &e->passes;
    og_dtype dtype = f->access->dtype;
    const char *type = og_cuda_type_of(dtype);
    char pointer[32], name[80], const_type[32];
    snprintf(pointer, sizeof pointer, "%s%d", side_of(f), (int)f->product);
    snprintf(name, sizeof name, "%s_k", pointer);
    snprintf(const_type, sizeof const_type, "const %s", type);
    bool is_seen = og_kernel_convolves(e->kernel) && !join_k(e->kernel, f);
    const char *along = is_seen ? along_of_seen(e->kernel, f) : along_of(e->kernel, f);
    if (og_cuda_serves(e)) {
        add_any_element(e, f, pointer);
    } else {
        og_cuda_add_pointer(e, const_type, pointer, f->access->buffer,
                            og_cuda_offset_of(f->access));
        og_text_add(to,
                    "\nstruct og_%s {\n    typedef %s element;\n"
                    "    enum { along = %s, is_seen = %d, is_right = %d, windows = %d };\n"
                    "    OG_FN og_number widen(element x)\n    {\n        return %s(x);\n    }\n"
                    "    OG_FN element missing()\n    {\n        return %s;\n    }\n",
                    pointer, type, along, is_seen, f->is_right, (int)f->access->window_count,
                    widen[dtype] ? widen[dtype] : "",
                    !f->is_right                                ? "0"
                    : og_dtype_bytes(dtype) == sizeof(uint16_t) ? "0x8000"
                                                                : "-0.0f");
    }
    if (is_seen) {
        add_seen(e, f, pointer);
        og_text_add(to, "};\n");
        return;
    }
    add_k_stride(e, f, name);
    og_text_add(to,
                "    OG_FN const element *row(const og_args &a, og_index base, og_index index)\n"
                "    {\n        og_index at = 0, rest, i;\n");
    if (f->is_right) {
        if (s->n_rank)
            add_move(e, f, og_column_dim(e->kernel), "index");
        add_moves(e, f, s->batch_rank, "base");
    } else {
        og_text_add(to, "        index += base * a.m;\n");
        add_moves(e, f, s->batch_rank + s->m_rank, "index");
    }
    og_text_add(to, "        return a.%s + at;\n    }\n};\n", pointer);
}

/* ---- entries ----------------------------------------------------------------------------- */

/* og_multiply_all() and og_slots_of() of product_tiles.cuh. */
static void add_tile_products(og_cuda_emitter *e, const og_matrices *s)
{
    og_text *to = &e->body;
    bool waits = og_cuda_product_levels(s->k) == 3; /* sums wait in slots: apart from buffers */
    og_text_add(to,
                "\nOG_FN og_number *og_slots_of(og_number *shared, int p)\n{\n"
                "    const int slots = OG_BM * OG_BN, buffers = 2 * OG_BUFFER;\n"
                "    return shared + %s;\n}\n",
                og_cuda_serves(e) ? "(OG_LEVELS == 3 ? buffers + p * slots : 0)"
                : waits           ? "buffers + p * slots"
                        : "(p == OG_PRODUCTS - 1 ? 0 : buffers > slots ? buffers : slots)");
    og_text_add(to, "\nOG_FN void og_multiply_all(const og_args &a, const og_tile_part &tile,\n"
                    "                           const og_tile_place &at, og_number *shared)\n{\n");
    for (int32_t p = 0; p < e->kernel->product_count; p++)
        og_text_add(to,
                    "    og_tile_product<og_left%d, og_right%d>(a, tile, at, %d, shared, "
                    "og_slots_of(shared, %d));\n",
                    (int)p, (int)p, (int)p, (int)p);
    og_text_add(to, "}\n");
}

/* og_multiply_all() of product_few.cuh. */
static void add_few_products(og_cuda_emitter *e)
{
    og_text *to = &e->body;
    og_text_add(to,
                "\nOG_FN void og_multiply_all(const og_args &a, const og_few_place &at, og_number "
                "*shared,\n                           og_number "
                "(&total)[OG_PRODUCTS][OG_EACH])\n{\n");
    for (int32_t p = 0; p < e->kernel->product_count; p++)
        og_text_add(to,
                    "    og_few_product<og_left%d, og_right%d>(a, at, %d, shared, total[%d]);\n",
                    (int)p, (int)p, (int)p, (int)p);
    og_text_add(to, "}\n");
}

void og_cuda_add_finish_numbers(og_cuda_emitter *e, bool ends_rows)
{
    const og_pass *pass = &e->kernel->passes[0];
    const og_cuda_number numbers[] = {
        {"OG_REDUCES", og_cuda_has_row_values(pass)},
        {"OG_TERMS", og_cuda_has_terms(pass)},
        {"OG_LINES", e->kernel->matrices.n_rank > 1 || og_kernel_gathers(e->kernel)},
        {og_cuda_serves(e) ? NULL : "OG_ENDS_ROWS", ends_rows},
        {0}};
    og_cuda_add_defines(&e->numbers, numbers);
}

static void add_tile_numbers(og_cuda_emitter *e, const og_matrices *s, const og_cuda_tile *tile,
                             size_t table_bytes)
{
    const og_kernel *kernel = e->kernel;
    const og_cuda_number few[] = {{"OG_PRODUCTS", kernel->product_count},
                                  {"OG_BK", tile->step},
                                  {"OG_ROWS", tile->rows},
                                  {"OG_LANES_N", tile->lanes_n},
                                  {"OG_QUADS", tile->thread_n},
                                  {"OG_WARPS", tile->warps_m},
                                  {"OG_SPLIT", tile->part_blocks > 0},
                                  {0}};
    const og_cuda_number tiles[] = {
        {"OG_PRODUCTS", kernel->product_count},
        {"OG_BK", tile->step},
        {"OG_TM", tile->thread_m},
        {"OG_TN", tile->thread_n},
        {"OG_LANES_N", tile->lanes_n},
        {"OG_WARPS_M", tile->warps_m},
        {"OG_WARPS_N", tile->warps_n},
        {"OG_BLOCKS", tile->blocks},
        {"OG_LEVELS", tile->part_blocks ? 1 + tile->leaves_groups : og_cuda_product_levels(s->k)},
        {"OG_SPLIT", tile->part_blocks > 0},
        {0}};
    size_t number = kernel->products[0].dtype == OG_FLOAT64 ? sizeof(double) : sizeof(float);
    const og_cuda_number table[] = {
        {"OG_K_TABLE", (int32_t)((tile->shared_bytes - (size_t)tile->step * table_bytes) / number)},
        {0}};
    const og_cuda_number convolves[] = {{"OG_CONVOLVES", table_bytes > 0}, {0}};
    const og_cuda_number sums[] = {
        {"OG_GROUP_SUMS", tile->leaves_groups ? 1 : OG_PRODUCT_GROUP / OG_PRODUCT_BLOCK}, {0}};
    if (og_cuda_serves(e)) {
        og_cuda_add_defines(&e->numbers, convolves);
        return;
    }
    og_text_add(&e->numbers, "typedef %s og_number;\n",
                kernel->products[0].dtype == OG_FLOAT64 ? "double" : "float");
    og_cuda_add_enum(&e->numbers, tile->is_few ? few : tiles);
    if (tile->part_blocks)
        og_cuda_add_enum(&e->numbers, sums);
    if (table_bytes)
        og_cuda_add_enum(&e->numbers, table);
    if (!tile->is_few)
        og_cuda_add_defines(&e->numbers, convolves);
}

static int64_t count_blocks(const og_matrices *s)
{
    return og_divide_up(s->k, OG_PRODUCT_BLOCK);
}

static int64_t count_parts(const og_matrices *s, const og_cuda_tile *tile)
{
    return tile->part_blocks ? og_divide_up(count_blocks(s), tile->part_blocks) : 1;
}

/* Members of the arguments that only a split product has. */
static void add_split_arguments(og_cuda_emitter *e, const og_matrices *s, const og_cuda_tile *tile,
                                const og_cuda_product_shape *shape)
{
    og_cuda_add_region(e, "og_number", "part_sums",
                       (int64_t)og_cuda_split_bytes(shape, tile->sums));
    og_cuda_add_index(e, "sums", tile->sums);
    og_cuda_add_index(e, "pitch", og_cuda_split_pitch(shape));
    og_cuda_add_index(e, "parts", count_parts(s, tile));
    og_cuda_add_index(e, "part_k", tile->part_blocks * OG_PRODUCT_BLOCK);
}

void og_cuda_add_tensor_factors(og_cuda_emitter *e)
{
    static const char factors[] =
        "\nOG_FN const og_element *og_x_row(const og_args &a, og_index index)\n{\n"
        "    return og_left0::row(a, 0, index);\n}\n"
        "\nOG_FN const og_element *og_w_row(const og_args &a, og_index base, og_index n)\n{\n"
        "%s    return og_right0::row(a, base, n);\n}\n"
        "\nOG_FN int64_t og_w_stride(const og_args &a)\n{\n"
        "    return og_right0::k_stride(a);\n}\n";
    og_text_add(&e->passes, factors,
                e->kernel->product_count == 2
                    ? "    if (n >= a.n)\n        return og_right1::row(a, base, n - a.n);\n"
                    : "");
}

bool og_cuda_ends_in_filters(const og_kernel *kernel)
{
    const int32_t filters = kernel->matrices.batch_rank;
    bool is = true;
    for (int32_t i = 0; i < kernel->access_count; i++)
        is &= !kernel->accesses[i].is_store || kernel->accesses[i].stride[filters] == 1;
    return is;
}

void og_cuda_keep_filters(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        bool still = !access->is_store && og_access_is_plain(access) &&
                     og_cuda_number_of(e, i) < 0 && !og_kernel_stores(kernel, i);
        for (int32_t d = 0; d < kernel->space.rank; d++)
            still &= d == kernel->matrices.batch_rank || access->stride[d] == 0;
        e->is_kept[i] = still;
    }
}

ogive_status og_cuda_add_split(og_cuda_emitter *e, const char *entry, int64_t rows, int64_t k)
{
    int32_t lanes = og_split_lanes(rows, k, e->limits->multiprocessors);
    int32_t threads = og_split_threads(lanes);
    og_cuda_add_index(e, "split_rows", rows);
    og_cuda_add_index(e, "split_lanes", lanes);
    return og_cuda_add_launch(e, entry, -1, og_divide_up(rows, threads / lanes), threads);
}

ogive_status og_cuda_add_redo(og_cuda_emitter *e, int64_t items)
{
    int64_t most = (int64_t)e->limits->multiprocessors * OG_CUDA_REDO_BLOCKS;
    OG_TRY(og_cuda_add_launch(e, "og_redo", -1, og_min(items, most), OG_CUDA_REDO_THREADS));
    e->out->launches[e->out->launch_count - 1].shared_bytes = OG_CUDA_REDO_BYTES;
    return OGIVE_OK;
}

/* is_across: what pass 0 calls columns are rows of the product. */
static void add_parts(og_cuda_emitter *e, bool is_across)
{
    const og_matrices padded = og_cuda_matrices_of(e->kernel), *s = &padded;
    const int32_t rows_end = s->batch_rank + s->m_rank;
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    og_cuda_add_index(e, "m", s->m);
    og_cuda_add_index(e, "n", is_across ? s->m : s->n);
    og_cuda_add_index(e, "k", s->k);
    if (s->n_rank > 1 || og_kernel_gathers(e->kernel))
        og_cuda_add_index(e, "line", e->kernel->space.extent[e->kernel->space.rank - 1]);
    for (int32_t d = 0; d < e->kernel->products[0].k_dims.rank; d++) {
        char name[16];
        snprintf(name, sizeof name, "k_%d", (int)d);
        og_cuda_add_divisor(e, name, e->kernel->products[0].k_dims.extent[d]);
    }
    og_cuda_add_index(e, "rows", s->batch * s->m);
    og_cuda_add_seek_range(e, "og_seek_rows", 0, rows_end);
    if (is_across)
        og_cuda_add_seek_range(e, "og_step_row", s->batch_rank, rows_end);
    else
        og_cuda_add_seek_range(e, "og_step_row", rows_end, e->kernel->space.rank);
    if (og_cuda_serves(e))
        og_text_add(&e->passes, "\ntypedef og_real og_number;\n");
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    og_text_add(&e->passes, "%s", before_factors);
    for (int32_t p = 0; p < e->kernel->product_count; p++)
        for (int side = 0; side < 2; side++) {
            og_factor f = og_factor_of(e->kernel, p, side);
            if (!side || !og_kernel_gathers(e->kernel)) /* which hopper_phases.cuh finds */
                add_factor(e, &f);
        }
}

void og_cuda_add_product_parts(og_cuda_emitter *e)
{
    add_parts(e, false);
}

void og_cuda_add_product_parts_across(og_cuda_emitter *e)
{
    add_parts(e, true);
}

static ogive_status name_body(og_cuda_emitter *e, const og_cuda_tile *tile)
{
    return og_cuda_name_body(e, "product, the CPU's order on CUDA cores, %s of %d x %d%s",
                             tile->is_few ? "a warp a block of k, tiles" : "tiles", (int)tile->rows,
                             (int)tile->columns, tile->part_blocks ? ", k in parts" : "");
}

/* All launches: products; sums of parts, if k is split; sums of runs, if there are several. */
static ogive_status add_entries(og_cuda_emitter *e, const og_matrices *s, const og_cuda_tile *tile)
{
    int64_t m_tiles = og_divide_up(s->m, tile->rows), n_tiles = og_divide_up(s->n, tile->columns);
    int64_t rows = s->batch * s->m, runs = og_divide_up(s->n, OG_RUN);
    int64_t blocks = og_times(og_times(s->batch, m_tiles), og_times(n_tiles, count_parts(s, tile)));
    OG_TRY(og_cuda_check_blocks(e, blocks));
    bool combines =
        og_cuda_has_row_values(&e->kernel->passes[0]) && (runs != 1 || og_cuda_serves(e));
    og_cuda_add_index(e, "m_tiles", m_tiles);
    og_cuda_add_index(e, "n_tiles", n_tiles);
    if (og_kernel_convolves(e->kernel))
        og_cuda_include(&e->body, "product_windows");
    og_cuda_include(&e->body, tile->is_few ? "product_few" : "product_tiles");
    if (tile->part_blocks)
        og_cuda_include(&e->body, "product_split");
    OG_TRY(og_cuda_make_launches(e, 3));
    if (combines)
        og_cuda_begin_combine(e, rows, runs);
    if (tile->is_few)
        add_few_products(e);
    else
        add_tile_products(e, s);
    og_cuda_add_finish_numbers(e, s->n <= OG_RUN);
    if (m_tiles * n_tiles > 0) {
        OG_TRY(
            og_cuda_add_launch(e, tile->is_few ? "og_few" : "og_tiles", -1, blocks, tile->threads));
        e->out->launches[0].shared_bytes = tile->shared_bytes;
        if (tile->part_blocks) {
            OG_TRY(og_cuda_add_launch(e, "og_add_parts", -1, og_divide_up(rows * runs, 32), 256));
            og_cuda_overlap_last(e);
        }
    }
    return combines ? og_cuda_add_combine(e, 0, rows, runs) : OGIVE_OK;
}

ogive_status og_cuda_emit_product(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    assert(!og_kernel_gathers(kernel)); /* the plan has these for og_cuda_takes_phases() alone */
    const og_matrices padded = og_cuda_matrices_of(kernel), *s = &padded;
    if (og_kernel_convolves(kernel)) /* tables depend on it */
        e->wide |= og_cuda_product_needs_wide(kernel, true);
    og_cuda_product_shape shape = {.of = *s,
                                   .products = kernel->product_count,
                                   .is_double = kernel->products[0].dtype == OG_FLOAT64,
                                   .reduces = kernel->space.n_reduced > 0,
                                   .table_bytes =
                                       og_kernel_convolves(kernel)
                                           ? 4 * 4 * (e->wide ? sizeof(int64_t) : sizeof(int32_t))
                                           : 0};
    og_cuda_tile tile = {.rows = 1, .columns = 1};
    if (!og_cuda_serves(e))
        tile = og_cuda_choose_tile(&shape, e->limits);
    if (tile.shared_bytes > e->limits->shared_per_block)
        OG_FAIL(e->error, OGIVE_UNSUPPORTED, -1,
                "a matrix product takes %zu bytes of shared memory, this GPU has %zu",
                tile.shared_bytes, e->limits->shared_per_block);
    e->wide |= og_cuda_product_needs_wide(kernel, tile.part_blocks > 0);
    e->vector_dim = og_column_dim(kernel);
    e->vector = 4;
    e->threads = tile.threads;
    add_tile_numbers(e, s, &tile, shape.table_bytes);
    og_cuda_add_product_parts(e);
    if (tile.part_blocks)
        add_split_arguments(e, s, &tile, &shape);
    OG_TRY(name_body(e, &tile));
    return add_entries(e, s, &tile);
}
