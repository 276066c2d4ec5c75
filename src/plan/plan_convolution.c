/* SPDX-License-Identifier: MIT
 *
 * plan_convolution.c - a convolution as a product over windows. x (b, c, l), w (n, c / groups, t)
 * and g (b, n, p) meet where windows of g's places see x (functions.def); of whichever of them is
 * the result, the dims are the kernel's space, and those that it lacks are summed:
 *
 *     result   space                  k
 *     g        b, groups, n, p        c, t
 *     x        b, groups, c, l        n, t
 *     w        groups, n, c, t        b, p
 *
 * An x whose windows have a stride is several kernels, one for each *phase*: the elements that are
 * stride apart meet the same taps, and no others. So nothing is multiplied with what is not there
 * but at the edges of a tensor. Where og_plan_rules gathers phases they are one kernel, whose windows
 * have the stride for a divisor; the device then finds each element's own terms.
 */
#include "plan/planner.h"

#include <string.h>

/* A tensor as it lies in memory: the strides of its dims. */
typedef struct {
    int32_t buffer;
    og_dtype dtype;
    int64_t stride[OG_MAX_RANK];
} tensor;

/* The elements first + u * step of dim i of an x, u below count; and which taps they meet: first_tap
 * + j * tap_step, j below taps, at place (start + u - j * reach) / divisor of g. */
typedef struct {
    int64_t first, step, count;
    int64_t first_tap, tap_step, taps;
    int64_t start, reach, divisor;
} phase;

/* Where the dims of a result lie in the kernel's space, which has groups apart; -1: it has none. */
typedef struct {
    int32_t batch, group, channel;
    int32_t other; /* w: its second dim */
    int32_t first; /* of places, elements or taps */
} places;

static bool gives_w(og_op op)
{
    return op == OG_OP_convolve_weight;
}

/* Phase number r of dim i. */
static phase find_phase(const og_convolution *c, int i, int64_t r)
{
    const og_sliding *s = &c->sliding;
    int64_t extent = c->x->shape[c->x->rank - c->rank + i], taps = c->w->shape[2 + i];
    int64_t stride = s->stride[i], common = og_greatest_divisor(s->dilation[i], stride);
    phase p = {.first = r,
               .step = stride,
               .count = r < extent ? (extent - r - 1) / stride + 1 : 0,
               .tap_step = stride / common,
               .reach = s->dilation[i] / common,
               .divisor = 1};
    int64_t from = r + s->padding[i];         /* a multiple of stride, less t dilations */
    int64_t tried = og_min(taps, p.tap_step); /* those after them meet what these do */
    while (p.first_tap < tried && (from - p.first_tap * s->dilation[i]) % stride)
        p.first_tap++;
    bool meets = p.first_tap < tried;
    p.taps = meets ? (taps - 1 - p.first_tap) / p.tap_step + 1 : 0;
    p.first_tap = meets ? p.first_tap : 0;
    p.start = meets ? (from - p.first_tap * s->dilation[i]) / stride : 0;
    return p;
}

/* Those of dim i: none beyond its elements. */
static int64_t count_phases(const og_convolution *c, int i)
{
    int64_t extent = c->x->shape[c->x->rank - c->rank + i];
    return og_max(1, og_min(c->sliding.stride[i], extent));
}

/* Phases of node: elements of the result that meet different taps. */
static int64_t count_all_phases(const og_planner *b, int32_t node)
{
    if (node < 0 || !og_node_convolves(b, node) || !og_op_convolves_back(b->graph->nodes[node].op))
        return 1;
    og_convolution c = og_convolution_of(&b->graph->nodes[node], b->types, &b->types[node]);
    int64_t count = 1;
    for (int i = 0; i < c.rank; i++) {
        count *= count_phases(&c, i);
        if (count > INT32_MAX)
            return count;
    }
    return count;
}

int64_t og_count_phases(const og_planner *b, int32_t node)
{
    const bool gathers = b->rules.gathers_phases && node >= 0 && b->types[node].dtype == OG_FLOAT32;
    return gathers ? 1 : count_all_phases(b, node);
}

/* ---- the space ------------------------------------------------------------------- */

static void scale_access(og_access *access, int32_t dim, const phase *p)
{
    access->offset += p->first * access->stride[dim];
    access->stride[dim] *= p->step;
    for (int32_t w = 0; w < access->window_count; w++)
        if (access->windows[w].place == dim) {
            access->windows[w].start += p->first * access->windows[w].step;
            access->windows[w].step *= p->step;
        }
}

/* Dim dim of the space becomes the phase's elements of it. */
static void take_phase(og_kernel *kernel, int32_t dim, const phase *p)
{
    kernel->space.extent[dim] = p->count;
    for (int32_t a = 0; a < kernel->access_count; a++)
        scale_access(&kernel->accesses[a], dim, p);
}

/* Dim dim becomes two: groups, and what a group has. */
static void split_groups(og_kernel *kernel, int32_t dim, int64_t groups)
{
    og_space *space = &kernel->space;
    int64_t inner = space->extent[dim] / groups;
    int32_t order[OG_MAX_RANK], count = 0;
    for (int32_t d = 0; d < space->rank; d++) {
        order[count++] = d;
        if (d == dim)
            order[count++] = d; /* both have the inner stride now */
    }
    og_permute_dims(kernel, order, count);
    space->extent[dim] = groups;
    space->extent[dim + 1] = inner;
    for (int32_t a = 0; a < kernel->access_count; a++)
        kernel->accesses[a].stride[dim] *= inner;
}

static places find_places(const og_node *node, const og_convolution *c)
{
    int32_t has_groups = c->groups > 1;
    if (gives_w(node->op))
        return (places){-1, has_groups ? 0 : -1, has_groups, 1 + has_groups, 2 + has_groups};
    int32_t has_batch = c->x->rank > c->rank + 1;
    return (places){has_batch ? 0 : -1, has_groups ? has_batch : -1, has_batch + has_groups, -1,
                    has_batch + has_groups + 1};
}

/* ---- weights --------------------------------------------------------------------- */

bool og_copies_weight(const og_planner *b, int32_t node)
{
    const og_node *of = &b->graph->nodes[node];
    return og_op_convolves_back(of->op) && of->numbers[1] == 1 && count_all_phases(b, node) == 1 &&
           b->types[of->args[1]].shape[1] > 1;
}

void og_lay_out_weight(og_buffer *buffer)
{
    int64_t taps = 1;
    for (int32_t d = buffer->rank - 1; d >= 2; d--) {
        buffer->stride[d] = taps;
        taps *= buffer->shape[d];
    }
    buffer->stride[0] = taps;
    buffer->stride[1] = taps * buffer->shape[0];
}

/* ---- factors --------------------------------------------------------------------- */

/* Where argument arg of node is in memory, or that of which it is a view. */
static tensor find_tensor(const og_planner *b, int32_t node, int arg)
{
    int32_t at = b->graph->nodes[node].args[arg];
    og_mapping mapping = og_identity_mapping(&b->types[at]);
    int32_t buffer = b->copies[node][arg];
    if (buffer < 0) {
        for (; b->buffer[at] < 0; at = b->graph->nodes[at].args[0])
            mapping = og_argument_mapping(b, at, 0, &mapping);
        buffer = b->buffer[at];
    }
    const og_buffer *of = &b->buffers[buffer];
    tensor t = {.buffer = buffer, .dtype = of->dtype};
    for (int32_t d = 0; d < of->rank; d++)
        if (mapping.at[d] >= 0)
            t.stride[mapping.at[d]] += of->stride[d];
    return t;
}

static og_access start_access(const tensor *t)
{
    return (og_access){.buffer = t->buffer, .dtype = t->dtype};
}

static void move_along(og_access *access, int32_t dim, int64_t stride)
{
    if (dim >= 0)
        access->stride[dim] += stride;
}

/* Adds a window to factor side; if it always sees an element, the strides that it is. Its place is a
 * dim of the space, its tap one of k. */
static void add_window(const og_kernel *kernel, og_product *product, int side, og_window window)
{
    og_access *access = side ? &product->right : &product->left;
    int64_t count = kernel->space.extent[window.place];
    int64_t taps = product->k_dims.extent[window.tap];
    int64_t across = (count - 1) * window.step, along = (taps - 1) * window.reach;
    int64_t least = window.start + og_min(0, across) + og_min(0, along);
    int64_t most = window.start + og_max(0, across) + og_max(0, along);
    if (least < 0 || most >= window.extent || window.divisor > 1) {
        access->windows[access->window_count++] = window;
        return;
    }
    access->offset += window.start * window.stride;
    access->stride[window.place] += window.step * window.stride;
    product->k_dims.stride[side][window.tap] += window.reach * window.stride;
}

/* The strides of x, w and g along batch, channels (of w: its first and second dim) and the rest. */
typedef struct {
    int64_t batch, channel, other;
    const int64_t *rest;
} strides;

static strides see_strides(const og_convolution *c, const tensor *t, const og_typed *type,
                           bool is_w)
{
    if (is_w)
        return (strides){0, t->stride[0], t->stride[1], t->stride + 2};
    int32_t first = type->rank - c->rank;
    return (strides){first > 1 ? t->stride[0] : 0, t->stride[first - 1], 0, t->stride + first};
}

/* g = sum over (c, t) of x and w. */
static void multiply_xw(const og_kernel *kernel, const og_convolution *c, const places *at,
                        const strides *x, const strides *w, og_product *to)
{
    int64_t n = c->w->shape[0] / c->groups, channels = c->w->shape[1];
    to->k_dims.extent[0] = channels;
    to->k_dims.stride[0][0] = x->channel;
    to->k_dims.stride[1][0] = w->other;
    move_along(&to->left, at->batch, x->batch);
    move_along(&to->left, at->group, channels * x->channel);
    move_along(&to->right, at->group, n * w->channel);
    move_along(&to->right, at->channel, w->channel);
    for (int i = 0; i < c->rank; i++) {
        to->k_dims.extent[1 + i] = c->w->shape[2 + i];
        to->k_dims.stride[1][1 + i] = w->rest[i];
        add_window(kernel, to, 0,
                   (og_window){.place = at->first + i,
                               .tap = 1 + i,
                               .start = -(int64_t)c->sliding.padding[i],
                               .step = c->sliding.stride[i],
                               .reach = c->sliding.dilation[i],
                               .divisor = 1,
                               .extent = c->x->shape[c->x->rank - c->rank + i],
                               .stride = x->rest[i]});
    }
}

/* x = sum over (n, t) of g and w, of a phase. */
static void multiply_gw(const og_kernel *kernel, const og_convolution *c, const places *at,
                        const phase *phases, const strides *g, const strides *w, og_product *to)
{
    int64_t n = c->w->shape[0] / c->groups;
    to->k_dims.extent[0] = n;
    to->k_dims.stride[0][0] = g->channel;
    to->k_dims.stride[1][0] = w->channel;
    move_along(&to->left, at->batch, g->batch);
    move_along(&to->left, at->group, n * g->channel);
    move_along(&to->right, at->group, n * w->channel);
    move_along(&to->right, at->channel, w->other);
    for (int i = 0; i < c->rank; i++) {
        const phase *p = &phases[i];
        to->k_dims.extent[1 + i] = p->taps;
        to->k_dims.stride[1][1 + i] = p->tap_step * w->rest[i];
        to->right.offset += p->first_tap * w->rest[i];
        add_window(kernel, to, 0,
                   (og_window){.place = at->first + i,
                               .tap = 1 + i,
                               .start = p->start,
                               .step = 1,
                               .reach = -p->reach,
                               .divisor = p->divisor,
                               .extent = c->g->shape[c->g->rank - c->rank + i],
                               .stride = g->rest[i]});
    }
}

/* Dim i of all phases as one: every element meets every tap, and most of them see nothing. */
static phase find_gathered(const og_convolution *c, int i)
{
    return (phase){.step = 1,
                   .count = c->x->shape[c->x->rank - c->rank + i],
                   .tap_step = 1,
                   .taps = c->w->shape[2 + i],
                   .start = c->sliding.padding[i],
                   .reach = c->sliding.dilation[i],
                   .divisor = c->sliding.stride[i]};
}

/* w = sum over (b, p) of x and g. */
static void multiply_xg(const og_kernel *kernel, const og_convolution *c, const places *at,
                        const strides *x, const strides *g, og_product *to)
{
    int64_t n = c->w->shape[0] / c->groups, channels = c->w->shape[1];
    to->k_dims.extent[0] = c->x->rank > c->rank + 1 ? c->x->shape[0] : 1;
    to->k_dims.stride[0][0] = x->batch;
    to->k_dims.stride[1][0] = g->batch;
    move_along(&to->left, at->group, channels * x->channel);
    move_along(&to->left, at->other, x->channel);
    move_along(&to->right, at->group, n * g->channel);
    move_along(&to->right, at->channel, g->channel);
    for (int i = 0; i < c->rank; i++) {
        to->k_dims.extent[1 + i] = c->g->shape[c->g->rank - c->rank + i];
        to->k_dims.stride[1][1 + i] = g->rest[i];
        add_window(kernel, to, 0,
                   (og_window){.place = at->first + i,
                               .tap = 1 + i,
                               .start = -(int64_t)c->sliding.padding[i],
                               .step = c->sliding.dilation[i],
                               .reach = c->sliding.stride[i],
                               .divisor = 1,
                               .extent = c->x->shape[c->x->rank - c->rank + i],
                               .stride = x->rest[i]});
    }
}

/* ---- k --------------------------------------------------------------------------- */

static bool has_tap(const og_product *product, int32_t dim)
{
    return og_access_has_tap(&product->left, dim) || og_access_has_tap(&product->right, dim);
}

/* Dim dim of k goes: it has one element, or is one with the dim after it, and no window's tap. */
static void drop_k_dim(og_product *product, int32_t dim)
{
    og_k_dims *k = &product->k_dims;
    for (int32_t d = dim; d + 1 < k->rank; d++) {
        k->extent[d] = k->extent[d + 1];
        for (int side = 0; side < 2; side++)
            k->stride[side][d] = k->stride[side][d + 1];
    }
    k->rank--;
    for (int side = 0; side < 2; side++) {
        og_access *access = side ? &product->right : &product->left;
        for (int32_t w = 0; w < access->window_count; w++) {
            og_window *window = &access->windows[w];
            window->tap = window->tap == dim ? -1 : window->tap - (window->tap > dim);
        }
    }
}

static void settle_k(og_product *product)
{
    og_k_dims *k = &product->k_dims;
    for (int32_t d = k->rank - 1; d >= 0; d--)
        if (k->extent[d] == 1)
            drop_k_dim(product, d);
    for (int32_t d = k->rank - 2; d >= 0; d--) {
        bool joins = !has_tap(product, d) && !has_tap(product, d + 1);
        for (int side = 0; side < 2; side++)
            joins &= k->stride[side][d] == k->stride[side][d + 1] * k->extent[d + 1];
        if (!joins)
            continue;
        k->extent[d + 1] *= k->extent[d];
        drop_k_dim(product, d);
    }
    if (!og_shape_count(k->rank, k->extent, &product->k))
        product->k = INT64_MAX;
    if (k->rank == 0) { /* one term */
        k->extent[0] = 1;
        k->stride[0][0] = k->stride[1][0] = 0;
        k->rank = 1;
    }
}

void og_emit_convolution(og_planner *b, int32_t node, int64_t number, og_kernel *kernel)
{
    const og_node *of = &b->graph->nodes[node];
    og_convolution c = og_convolution_of(of, b->types, &b->types[node]);
    og_product *to = &kernel->products[0];
    phase phases[OG_MAX_WINDOWS];
    const bool gathers = og_count_phases(b, node) < count_all_phases(b, node);
    int32_t rank = b->types[node].rank, channel = gives_w(of->op) ? 0 : rank - c.rank - 1;
    for (int i = c.rank - 1; i >= 0 && og_op_convolves_back(of->op); i--) {
        if (gathers) {
            phases[i] = find_gathered(&c, i);
            continue;
        }
        int64_t count = count_phases(&c, i);
        phases[i] = find_phase(&c, i, number % count);
        take_phase(kernel, rank - c.rank + i, &phases[i]);
        number /= count;
    }
    if (c.groups > 1)
        split_groups(kernel, channel, c.groups);
    places at = find_places(of, &c);
    tensor first = find_tensor(b, node, 0), second = find_tensor(b, node, 1);
    to->left = start_access(&first);
    to->right = start_access(&second);
    to->k_dims = (og_k_dims){.rank = 1 + c.rank};
    const og_typed *types[] = {&b->types[of->args[0]], &b->types[of->args[1]]};
    strides one = see_strides(&c, &first, types[0], false);
    strides two = see_strides(&c, &second, types[1], !gives_w(of->op));
    to->by_places = gives_w(of->op);
    if (gives_w(of->op))
        multiply_xg(kernel, &c, &at, &one, &two, to);
    else if (og_op_convolves_back(of->op))
        multiply_gw(kernel, &c, &at, phases, &one, &two, to);
    else
        multiply_xw(kernel, &c, &at, &one, &two, to);
    to->n = kernel->space.extent[at.channel];
    settle_k(to);
}
