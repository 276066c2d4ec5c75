/* SPDX-License-Identifier: MIT
 *
 * cuda_emit_windows.c - kernels that reduce windows of few taps: how windows make columns, and what
 * windows.cuh is told of them.
 */
#include "cuda/emit/cuda_emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS = 256,
    MOST_TAPS = 128, /* that are unrolled */
    MOST_UNEVEN_TAPS = 16,
    MOST_TALL = 16,        /* windows of a column */
    MOST_TALL_TAPS = 216,  /* taps of all of them */
    VECTOR = 4,            /* elements, and columns side by side */
    MOST_BLOCK_TALL = 4,   /* windows of each of these, ... */
    MANY_CELLS = 32,       /* of a layer: leave room for the sums of one window less */
    FEW_CELLS = 16,        /* for which large blocks are as good */
    MOST_BLOCK_TAPS = 640, /* ... and taps of all */
    MOST_BLOCK_APART = 2,  /* the same of windows that share nothing */
    MOST_BLOCK_APART_TAPS = 128,
    MOST_APART = 4,         /* windows of a column that share nothing, ... */
    MOST_APART_TAPS = 64,   /* ... and their taps */
    LEAST_THREADS = 1024,   /* of a multiprocessor: fewer are not worth taller columns */
    MOST_KNOWN_STRIDE = 16, /* along the last dim of taps, in elements: part of the source */
    LEAST_LINE = 32,        /* elements */
    LEAST_LANES = 8,
    NEAR = INT32_MAX / 4 /* threads, and windows of a dim, that are counted by 31 bits */
};

/* How a thread's windows lie: see windows.cuh. */
typedef struct {
    int32_t down, depth; /* dims, or -1 */
    int32_t tall, deep, flat;
    int64_t step, reach;
    int32_t across;                 /* columns of a thread; below: if they are several */
    int32_t lanes;                  /* threads with columns of one line */
    int32_t image;                  /* the one operand of layers */
    int32_t side_taps, side_window; /* side_window: the place of the window that goes along lines */
    int64_t side_step, side_reach, phase;
} columns;

/* Where windows cut a dim into parts of several lengths, every tap is looked for by divisions: many
 * of them, unrolled, spill registers. */
static int64_t most_taps(const og_kernel *kernel)
{
    for (int32_t a = 0; a < kernel->access_count; a++)
        for (int32_t w = 0; w < kernel->accesses[a].window_count; w++)
            if (kernel->accesses[a].windows[w].uneven.bits)
                return MOST_UNEVEN_TAPS;
    return MOST_TAPS;
}

/* Stores of elements, and sums of exponentials, are the columns' affair. */
ogive_status og_cuda_refuse_windows(og_cuda_emitter *e, const char **why)
{
    const og_kernel *kernel = e->kernel;
    const og_space *space = &kernel->space;
    const og_pass *pass = &kernel->passes[0];
    int64_t taps = og_cuda_count(space, space->rank - space->n_reduced, space->rank);
    bool stores = false;
    for (int32_t i = 0; i < pass->element_count; i++)
        stores |= pass->elements[i].op == OG_OP_STORE;
    bool fits = kernel->slides && kernel->pass_count == 1 && pass->reduction_count && !stores &&
                !og_cuda_has_terms(pass) && taps > 0 && taps <= most_taps(kernel) &&
                !og_cuda_serves(e);
    *why = fits ? NULL : "";
    return OGIVE_OK;
}

/* ---- the kernel, with windows as strides ---------------------------------------------------- */

static bool divides(const og_access *access)
{
    bool any = false;
    for (int32_t w = 0; w < access->window_count; w++)
        any |= access->windows[w].divisor > 1 || access->windows[w].uneven.bits;
    return any;
}

/* The access moves as if its windows saw everything, which then only say whether they do. */
static void fold_windows(const og_space *space, og_access *access)
{
    for (int32_t w = 0; w < access->window_count && !divides(access); w++) {
        og_window *window = &access->windows[w];
        access->offset += window->start * window->stride;
        for (int32_t d = 0; d < space->rank; d++)
            access->stride[d] += og_window_step(window, d) * window->stride;
    }
    for (int32_t w = 0; w < access->window_count && !divides(access); w++)
        access->windows[w].stride = 0;
}

/* How many elements of the last kept dim, which windows do not slide along, make a line: the first
 * taps lead from line to line. 0: there are none. */
static int64_t find_line(const og_kernel *kernel)
{
    const int32_t taps = kernel->space.rank - kernel->space.n_reduced, last = taps - 1;
    int64_t line = 0;
    for (int32_t i = 0; i < kernel->access_count && last >= 0; i++) {
        const og_access *access = &kernel->accesses[i];
        const int64_t step = access->stride[last], reach = access->stride[taps];
        for (int32_t w = 0; w < access->window_count; w++)
            if (og_window_step(&access->windows[w], last))
                return 0;
        if (!line && step && reach % step == 0)
            line = reach / step;
    }
    bool fits = line >= LEAST_LINE && kernel->space.extent[last] % line == 0 &&
                kernel->space.extent[last] > line && kernel->space.rank < OG_MAX_RANK;
    return fits ? line : 0;
}

/* Dim d becomes two, of lines and of what is in a line. */
static void split_dim(og_kernel *kernel, int32_t d, int64_t line)
{
    og_space *space = &kernel->space;
    const size_t behind = (size_t)(space->rank - d) * sizeof(int64_t);
    memmove(space->extent + d + 1, space->extent + d, behind);
    space->extent[d] /= line;
    space->extent[d + 1] = line;
    space->rank++;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        og_access *access = &kernel->accesses[i];
        memmove(access->stride + d + 1, access->stride + d, behind);
        access->stride[d] *= line;
        for (int32_t w = 0; w < access->window_count; w++) {
            access->windows[w].place += access->windows[w].place > d;
            access->windows[w].tap += access->windows[w].tap > d;
        }
    }
}

/* A copy of e's kernel, whose accesses are folded and whose lines are a dim, takes its place. */
static ogive_status fold_kernel(og_cuda_emitter *e)
{
    const size_t count = (size_t)e->kernel->access_count;
    og_kernel *kernel = OG_ARENA_NEW(e->arena, og_kernel, 1);
    og_access *accesses = OG_ARENA_NEW(e->arena, og_access, count);
    if (!kernel || !accesses)
        return og_fail_memory(e->error, count * sizeof *accesses);
    memcpy(accesses, e->kernel->accesses, count * sizeof *accesses);
    *kernel = *e->kernel;
    kernel->accesses = accesses;
    for (size_t i = 0; i < count; i++)
        fold_windows(&kernel->space, &accesses[i]);
    const int64_t line = find_line(kernel);
    if (line)
        split_dim(kernel, kernel->space.rank - kernel->space.n_reduced - 1, line);
    e->kernel = kernel;
    e->wide = og_cuda_needs_wide(kernel, kernel->space.rank - kernel->space.n_reduced);
    return OGIVE_OK;
}

/* ---- columns ------------------------------------------------------------------------------- */

static bool moves(const og_access *access, int32_t d)
{
    bool any = access->stride[d] != 0;
    for (int32_t w = 0; w < access->window_count; w++)
        any |= og_window_step(&access->windows[w], d) != 0;
    return any;
}

static bool is_loaded(const og_cuda_emitter *e, int32_t access)
{
    const og_pass *pass = &e->kernel->passes[0];
    for (int32_t i = 0; i < pass->element_count; i++)
        if (pass->elements[i].op == OG_OP_LOAD && pass->elements[i].index == access)
            return og_cuda_number_of(e, access) < 0;
    return false;
}

/* Are the two motions, by a window and by a tap, so many steps of the same layers? */
static bool is_in_layers(const columns *c, int64_t by_window, int64_t by_tap)
{
    return by_window % c->step == 0 && by_window / c->step * c->reach == by_tap;
}

static bool access_is_in_layers(const columns *c, const og_access *access)
{
    bool all =
        !divides(access) && is_in_layers(c, access->stride[c->down], access->stride[c->depth]);
    for (int32_t w = 0; w < access->window_count; w++)
        all &= is_in_layers(c, og_window_step(&access->windows[w], c->down),
                            og_window_step(&access->windows[w], c->depth));
    return all;
}

/* Do windows along c->down overlap, by taps of c->depth? Finds step and reach. */
static bool find_layers(const og_cuda_emitter *e, columns *c)
{
    const og_kernel *kernel = e->kernel;
    c->step = 0;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        int64_t step = access->stride[c->down], reach = access->stride[c->depth];
        if (!is_loaded(e, i) || !moves(access, c->down))
            continue;
        if (!c->step && step > 0 && reach > 0) {
            int64_t unit = og_greatest_divisor(step, reach);
            c->step = step / unit;
            c->reach = reach / unit;
        }
        if (!c->step || !access_is_in_layers(c, access))
            return false;
    }
    return c->step && c->step <= (c->deep - 1) * c->reach && c->reach <= MOST_TALL;
}

/* Layers that a column reads. */
static int32_t count_layers(const columns *c, int32_t tall)
{
    int32_t count = 0;
    for (int64_t j = 0; j <= (tall - 1) * c->step + (c->deep - 1) * c->reach; j++) {
        bool is_one = false;
        for (int32_t r = 0; r < tall && r * c->step <= j; r++)
            is_one |= (j - r * c->step) % c->reach == 0 && (j - r * c->step) / c->reach < c->deep;
        count += is_one;
    }
    return count;
}

/* Cells of a layer that a thread with c->across columns reads. */
static int64_t count_cells(const columns *c)
{
    const int64_t reach =
        c->phase + (c->across - 1) * c->side_step + (c->side_taps - 1) * c->side_reach + 1;
    return c->flat / c->side_taps * og_divide_up(reach, VECTOR) * VECTOR;
}

/* Taps of all windows of a thread, at most. */
static int64_t most_column_taps(const columns *c)
{
    if (c->across > 1)
        return c->depth < 0 ? MOST_BLOCK_APART_TAPS : MOST_BLOCK_TAPS;
    return c->depth < 0 ? MOST_APART_TAPS : MOST_TALL_TAPS;
}

/* Windows of a column, at most. */
static int64_t most_windows(const columns *c)
{
    if (c->across > 1)
        return c->depth < 0 ? MOST_BLOCK_APART : MOST_BLOCK_TALL - (count_cells(c) > MANY_CELLS);
    return c->depth < 0 ? MOST_APART : MOST_TALL;
}

/* Windows of a column: those by which the fewest layers are read for each of them, and then as many
 * as may be. */
static int32_t choose_tall(const og_cuda_emitter *e, const columns *c)
{
    const og_space *space = &e->kernel->space;
    const int64_t extent = space->extent[c->down], taps = (int64_t)c->deep * c->flat;
    const int64_t rows = og_cuda_count(space, 0, space->rank - space->n_reduced);
    const int64_t rows_each = rows / c->across, taps_each = taps * c->across;
    const int64_t most = most_windows(c);
    int32_t best = 1;
    double least = (double)c->deep;
    for (int32_t tall = 2;
         tall <= most && tall * taps_each <= most_column_taps(c) && tall <= extent; tall++) {
        int64_t down = og_divide_up(extent, tall);
        double layers = (double)count_layers(c, tall) * (double)down / (double)extent;
        if (rows_each / extent * down < (int64_t)LEAST_THREADS * e->limits->multiprocessors)
            break;
        if (c->depth < 0 ? (double)(down * tall) <= 1.05 * (double)extent : layers < least) {
            best = tall;
            least = layers;
        }
    }
    return best;
}

/* The operand that moves down, where there is one and windows share all others beside each other,
 * too; or -1. */
static int32_t find_image(const og_cuda_emitter *e, const columns *c)
{
    const og_kernel *kernel = e->kernel;
    const int32_t last = kernel->space.rank - kernel->space.n_reduced - 1;
    int32_t image = -1, count = 0;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        if (!is_loaded(e, i))
            continue;
        const bool is_image = moves(&kernel->accesses[i], c->down);
        count += is_image || moves(&kernel->accesses[i], last);
        image = is_image ? i : image;
    }
    return count == 1 ? image : -1;
}

/* Do the elements behind the last one of a buffer fill a vector, if its first is aligned? */
static bool ends_with_vector(const og_buffer *buffer)
{
    int64_t last = 0;
    for (int32_t d = 0; d < buffer->rank; d++) {
        if (buffer->stride[d] < 0)
            return false;
        last += (buffer->shape[d] - 1) * buffer->stride[d];
    }
    return (last + 1) % VECTOR == 0;
}

/* Is a vector of the image that windows see at all seen as a whole? Finds the window that goes along
 * lines. */
static bool sees_vectors(const og_cuda_emitter *e, columns *c)
{
    const og_kernel *kernel = e->kernel;
    const og_access *image = &kernel->accesses[c->image];
    const int32_t last = kernel->space.rank - kernel->space.n_reduced - 1;
    int32_t number = kernel->access_count;
    for (int32_t i = 0; i < c->image; i++)
        number += kernel->accesses[i].window_count;
    for (int32_t w = 0; w < image->window_count; w++) {
        const og_window *window = &image->windows[w];
        if (!og_window_step(window, last))
            continue;
        if (c->side_window >= 0 || og_window_step(window, last) != c->side_step ||
            (window->start - c->phase) % VECTOR || window->extent % VECTOR ||
            (c->side_taps > 1 && og_window_step(window, kernel->space.rank - 1) != c->side_reach))
            return false;
        c->side_window = number + w;
    }
    return c->side_window >= 0 || ends_with_vector(&e->plan->buffers[image->buffer]);
}

/* Threads that share a line: as many as leave no more than one in eight without columns. */
static bool find_lanes(int64_t width, columns *c)
{
    for (c->lanes = 32; c->lanes >= LEAST_LANES; c->lanes /= 2) {
        const int64_t line = c->lanes * VECTOR;
        if (og_divide_up(width, line) * line * 7 <= width * 8)
            return true;
    }
    return false;
}

/* Are lines read by vectors, and is that worth it? c->tall is not chosen yet. */
static bool find_side(const og_cuda_emitter *e, columns *c)
{
    const og_kernel *kernel = e->kernel;
    const og_space *space = &kernel->space;
    const og_pass *pass = &kernel->passes[0];
    const int32_t kept = space->rank - space->n_reduced, last = space->rank - 1;
    const int64_t width = space->extent[kept - 1];
    c->image = find_image(e, c);
    if (c->image < 0 || pass->reduction_count != 1 || pass->reductions[0].type != OG_F32)
        return false;
    const og_access *image = &kernel->accesses[c->image];
    const size_t bytes = og_dtype_bytes(image->dtype);
    const int64_t step = image->stride[kept - 1], reach = image->stride[last];
    if (divides(image) || image->buffer < 0 || (bytes != 2 && bytes != 4) || step < 1 ||
        step > VECTOR)
        return false;
    c->side_step = step;
    if (last != c->depth && reach >= 1 && reach <= MOST_KNOWN_STRIDE) {
        c->side_taps = (int32_t)space->extent[last];
        c->side_reach = reach;
    }
    for (int32_t d = 0; d < space->rank; d++)
        if (d != kept - 1 && (d != last || c->side_taps == 1) && image->stride[d] % VECTOR)
            return false;
    c->phase = (image->offset % VECTOR + VECTOR) % VECTOR;
    c->across = VECTOR;
    const int64_t vectors = count_cells(c) / VECTOR, lines = c->flat / c->side_taps;
    return vectors < lines * step * (2 * c->side_taps - 1) && vectors <= 64 &&
           find_lanes(width, c) && sees_vectors(e, c);
}

/* A thread has one of these columns. */
static void make_alone(columns *c)
{
    c->across = 1;
    c->lanes = 32;
    c->image = c->side_window = -1;
    c->side_taps = 1;
    c->side_step = c->side_reach = 1;
    c->phase = 0;
}

/* How many windows a thread takes; false: one. */
static bool make_block(const og_cuda_emitter *e, columns *c)
{
    make_alone(c);
    if (find_side(e, c)) {
        c->tall = choose_tall(e, c);
        if (c->tall > 1)
            return true;
    }
    make_alone(c);
    c->tall = choose_tall(e, c);
    return c->tall > 1;
}

/* Columns along the first dim that windows overlap along, for neighbouring threads share what lies
 * beside; else along the one before the last. */
static columns find_columns(const og_cuda_emitter *e)
{
    const og_space *space = &e->kernel->space;
    const int32_t kept = space->rank - space->n_reduced;
    const int32_t taps = (int32_t)og_cuda_count(space, kept, space->rank);
    for (int32_t d = 0; d + 1 < kept; d++) {
        columns c = {.down = d, .depth = kept, .deep = (int32_t)space->extent[kept]};
        c.flat = taps / c.deep;
        if (find_layers(e, &c) && make_block(e, &c))
            return c;
    }
    columns c = {.down = kept - 2, .depth = -1, .deep = 1, .flat = taps, .step = 1, .reach = 1};
    if (kept < 2 || !make_block(e, &c)) {
        make_alone(&c);
        c.down = -1;
        c.tall = 1;
    }
    return c;
}

/* ---- what is emitted ----------------------------------------------------------------------- */

/* og_sees_all() */
static void add_sees_all(og_cuda_emitter *e, const columns *c)
{
    const og_kernel *kernel = e->kernel;
    const og_space *space = &kernel->space;
    int32_t place = kernel->access_count;
    og_text *to = &e->body;
    og_text_add(to, "\nOG_FN bool og_sees_all(const og_args &a, const og_offsets &at)\n{\n"
                    "    bool all = true;\n");
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++, place++) {
            const og_window *window = &kernel->accesses[i].windows[w];
            const int n = (int)place, number = n - (int)kernel->access_count;
            if (divides(&kernel->accesses[i])) {
                og_text_add(to, "    all = false;\n");
                continue;
            }
            og_text_add(to,
                        "    {\n        og_near least = (og_near)(at.o[%d] + a.windows[%d].start), "
                        "most = least;\n",
                        n, number);
            for (int32_t d = 0; d < space->rank; d++) {
                const int32_t kept = space->rank - space->n_reduced;
                const int64_t count = d >= kept       ? space->extent[d]
                                      : d == c->down  ? c->tall
                                      : d == kept - 1 ? c->across
                                                      : 1;
                if (og_window_step(window, d) && count > 1)
                    og_text_add(to,
                                "        og_reach_on((og_near)(%d * og_stride<%d, %d>(a)), least, "
                                "most);\n",
                                (int)count - 1, n, (int)d);
            }
            og_text_add(to,
                        "        all = all && least >= 0 && most < (og_near)a.windows[%d].extent;\n"
                        "    }\n",
                        number);
        }
    og_text_add(to, "    return all;\n}\n");
}

/* og_known_stride of what is moved by for every tap: of windows, and of neighbours in memory. */
static void add_known_strides(og_cuda_emitter *e)
{
    const og_kernel *kernel = e->kernel;
    const int32_t rank = kernel->space.rank, kept = rank - kernel->space.n_reduced;
    int32_t place = kernel->access_count;
    static const char line[] =
        "template <> struct og_known_stride<%d, %d> {\n    enum { value = %d };\n};\n";
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        const int64_t last = access->stride[rank - 1];
        if (is_loaded(e, i) && last && llabs(last) <= MOST_KNOWN_STRIDE)
            og_text_add(&e->places, line, (int)i, (int)rank - 1, (int)last);
        for (int32_t w = 0; w < access->window_count; w++, place++)
            for (int32_t d = kept; d < rank; d++) {
                const int64_t step = og_window_step(&access->windows[w], d);
                if (step && llabs(step) <= NEAR)
                    og_text_add(&e->places, line, (int)place, (int)d, (int)step);
            }
    }
}

/* The loads, or (places) the operands and windows, of a layer or (fixed) of all. */
static void print_places(og_cuda_emitter *e, const columns *c, bool fixed, bool places)
{
    const og_kernel *kernel = e->kernel;
    int32_t count = 0, window = kernel->access_count;
    for (int32_t i = 0; i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        const bool is_fixed = c->down >= 0 && !moves(access, c->down);
        const bool is_one = is_loaded(e, i) && is_fixed == fixed;
        if (is_one)
            e->list[count++] = i;
        for (int32_t w = 0; w < access->window_count; w++, window++)
            if (is_one && places)
                e->list[count++] = window;
    }
    og_cuda_print_indices(e->list, count, &e->body);
}

static void add_lists(og_cuda_emitter *e, const columns *c)
{
    static const char *const names[] = {"layer", "fixed"};
    for (int fixed = 0; fixed < 2; fixed++) {
        og_text_add(&e->body, "typedef og_loads<");
        print_places(e, c, fixed, false);
        og_text_add(&e->body, "> og_%s;\ntypedef og_indices<", names[fixed]);
        print_places(e, c, fixed, true);
        og_text_add(&e->body, "> og_%s_places;\n", names[fixed]);
    }
}

/* og_move_flat() */
static void add_move_flat(og_cuda_emitter *e, const columns *c)
{
    const og_space *space = &e->kernel->space;
    const int32_t kept = space->rank - space->n_reduced;
    int64_t behind = 1;
    og_text_add(&e->body,
                "\ntemplate <class Places>\nOG_FN void og_move_flat(const og_args &a, int "
                "f, og_offsets &at, Places places)\n{\n");
    for (int32_t d = space->rank - 1; d >= kept + (c->depth >= 0); d--) {
        og_text_add(&e->body, "    og_move_all<%d>(a, f / %d %% %d, at, places);\n", (int)d,
                    (int)behind, (int)space->extent[d]);
        behind *= space->extent[d];
    }
    og_text_add(&e->body, "}\n");
}

/* og_next_layer(), and a.layers, what operands move by. */
static void add_next_layer(og_cuda_emitter *e, const columns *c)
{
    const og_kernel *kernel = e->kernel;
    int32_t place = kernel->access_count;
    og_text_add(&e->body, "\nOG_FN void og_next_layer(const og_args &a, og_offsets &at)\n{\n");
    for (int32_t i = 0; c->down >= 0 && i < kernel->access_count; i++) {
        const og_access *access = &kernel->accesses[i];
        char name[24];
        snprintf(name, sizeof name, "layer%d", (int)i);
        if (is_loaded(e, i) && access->stride[c->down]) {
            og_cuda_add_index(e, name, access->stride[c->down] / c->step);
            og_text_add(&e->body, "    at.o[%d] += a.%s;\n", (int)i, name);
        }
        for (int32_t w = 0; w < access->window_count; w++, place++)
            if (is_loaded(e, i) && og_window_step(&access->windows[w], c->down))
                og_text_add(&e->body, "    at.o[%d] += %lld;\n", (int)place,
                            (long long)(og_window_step(&access->windows[w], c->down) / c->step));
    }
    og_text_add(&e->body, "}\n\n");
}

/* Threads and their columns: og_thread, og_cut, a.threads, a.cuts; og_near. Returns the blocks. */
static int64_t add_threads(og_cuda_emitter *e, const columns *c)
{
    const og_kernel *kernel = e->kernel;
    const int32_t kept = kernel->space.rank - kernel->space.n_reduced;
    int64_t cuts[OG_MAX_RANK] = {1}, threads = 1;
    bool far_places = false, far = false;
    for (int32_t d = 0; d < kept; d++) {
        far |= kernel->space.extent[d] > NEAR;
        cuts[d] = og_divide_up(kernel->space.extent[d], d == c->down ? c->tall : 1);
        if (d == kept - 1 && c->across > 1)
            cuts[d] = og_divide_up(cuts[d], c->lanes * c->across) * c->lanes;
        threads = og_times(threads, cuts[d]);
    }
    far |= threads > NEAR;
    for (int32_t i = 0; i < kernel->access_count; i++)
        for (int32_t w = 0; w < kernel->accesses[i].window_count; w++)
            far_places |= og_cuda_moves_far(kernel, &kernel->accesses[i].windows[w]);
    og_text_add(&e->numbers,
                "typedef int%d_t og_near;\ntypedef int%d_t og_thread;\ntypedef uint%d_t "
                "og_unsigned_thread;\nstruct og_cut {\n    og_thread extent;\n    "
                "og_unsigned_thread magic;\n    uint32_t shift;\n};\n",
                far_places ? 64 : 32, far ? 64 : 32, far ? 64 : 32);
    og_cuda_add_index(e, "threads", threads);
    og_cuda_add_cuts(e, "cuts", cuts, kept ? kept : 1, far);
    return og_divide_up(threads, e->threads);
}

/* Values that columns side by side need beside addresses: a layer's cells, sums, and weights or, of
 * windows without, about as much for what the compiler reads ahead. */
static int64_t count_values(const columns *c)
{
    return count_cells(c) + (int64_t)c->tall * c->across + (int64_t)c->deep * c->flat;
}

/* Blocks of THREADS that a multiprocessor should hold: 4 leave 64 registers a thread, 3 80, 2 128.
 * On an H200 KernelBench's L1-85 (3x7, weights) takes 0.46 ms by 4 and 0.56 by 2 if a thread has one
 * column, 0.33 and 0.42 if it has several; L1-46 (27 taps, no weights) 2.59 by 4, 2.22 by 3, 2.27
 * by 2; L1-41 1.74 by 4, 1.91 by 3; L1-45, a window a thread, 3.94 by 2 and 4.22 by 1. */
static int32_t wanted_blocks(const og_cuda_emitter *e, const columns *c)
{
    enum { SIMPLE = 8, FITS_4 = 52, FITS_3 = 76 }; /* instructions of a pass; values */
    const int32_t loads = og_cuda_load_registers(e, 1);
    const bool simple = e->kernel->passes[0].element_count <= SIMPLE && loads <= 2;
    if (c->tall == 1 || !simple)
        return 2;
    if (c->across == 1 || count_values(c) <= FITS_4)
        return 4;
    return loads == 1 && count_values(c) <= FITS_3 ? 3 : 2;
}

/* Sets the threads of a block; returns OG_BLOCKS. Windows that share nothing and read many cells are
 * better off in small blocks: L1-41 takes 1.70 ms, not 1.74. Of eight of these sm_100 would spill
 * (NVRTC 13.4). */
static int32_t choose_blocks(og_cuda_emitter *e, const columns *c)
{
    const int32_t blocks = wanted_blocks(e, c);
    e->threads = THREADS;
    if (c->across == 1 || c->depth >= 0 || count_cells(c) <= FEW_CELLS)
        return blocks;
    e->threads /= 2;
    return blocks == 4 && e->limits->arch >= 100 ? 7 : 2 * blocks;
}

ogive_status og_cuda_emit_windows(og_cuda_emitter *e)
{
    OG_TRY(fold_kernel(e));
    const og_space *space = &e->kernel->space;
    const int32_t kept_dims = space->rank - space->n_reduced;
    const columns c = find_columns(e);
    e->vector_dim = kept_dims - 1;
    e->vector = 1;
    e->sees_whole = true;
    OG_TRY(og_cuda_find_terms(e, false));
    og_cuda_add_numbers(e, (const og_cuda_number[]){{"OG_BLOCKS", choose_blocks(e, &c)},
                                                    {"OG_KEPT", kept_dims},
                                                    {"OG_TALL", c.tall},
                                                    {"OG_DOWN", c.down},
                                                    {"OG_DEEP", c.deep},
                                                    {"OG_DEPTH", c.depth},
                                                    {"OG_STEP", c.step},
                                                    {"OG_REACH", c.reach},
                                                    {"OG_FLAT", c.flat},
                                                    {"OG_ACROSS", c.across},
                                                    {"OG_LANES", c.lanes},
                                                    {"OG_IMAGE", c.image},
                                                    {"OG_SIDE_TAPS", c.side_taps},
                                                    {"OG_SIDE_STEP", c.side_step},
                                                    {"OG_SIDE_REACH", c.side_reach},
                                                    {"OG_PHASE", c.phase},
                                                    {"OG_SIDE_WINDOW", c.side_window},
                                                    {0}});
    og_cuda_include(&e->places, "reduce");
    og_cuda_add_operands(e);
    add_known_strides(e);
    og_cuda_add_index(e, "n", (int64_t)c.deep * c.flat);
    const int64_t blocks = add_threads(e, &c);
    OG_TRY(og_cuda_check_blocks(e, blocks));
    og_cuda_add_row(e);
    og_cuda_add_pass(e, 0);
    add_lists(e, &c);
    add_move_flat(e, &c);
    add_next_layer(e, &c);
    og_cuda_include(&e->body, "windows");
    add_sees_all(e, &c);
    if (c.tall == 1)
        e->out->body = "windows, a thread each";
    else if (c.across == 1)
        OG_TRY(og_cuda_name_body(e, "windows, columns of %d", (int)c.tall));
    else
        OG_TRY(og_cuda_name_body(e, "windows, %d columns of %d", (int)c.across, (int)c.tall));
    OG_TRY(og_cuda_make_launches(e, 1));
    return og_cuda_add_launch(e, "og_windows", -1, blocks, e->threads);
}
