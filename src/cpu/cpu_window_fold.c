/* SPDX-License-Identifier: MIT
 *
 * cpu_window_fold.c - which programs are reductions over windows that loops of their own make: of
 * elements (poolings), or sums of elements times a weight (convolutions of a channel each). What
 * programs do step by step, with blocks between them, is one loop there, and sums stay in registers.
 *
 *   cpu_window_lines.c   lines of an image, of windows one element apart, or two
 *   cpu_window_spots.c   channels side by side, and all other lines, which are turned for it
 */
#include "cpu/cpu_window_walk.h"

/* Finds the window that moves along lines, or -1; false, if there are several. */
static bool find_moving(const og_cpu_access *x, int32_t *moving)
{
    *moving = -1;
    for (int32_t i = 0; i < x->window_count; i++) {
        if (!og_cpu_last_stride(&x->windows[i].axes[OG_CPU_INNER]))
            continue;
        if (*moving >= 0)
            return false;
        *moving = i;
    }
    return true;
}

/* What a program reads: a block that a step loads, or memory. */
typedef struct {
    int32_t place, access;
    og_cpu_load load;
} reading;

/* All that is read, two at most: returns how many there are, or -1 if there is more to the program
 * than these and (weighs) a last step. */
static int32_t find_readings(const og_cpu_program *program, bool weighs, reading to[2])
{
    const og_cpu_reduction *r = &program->reductions[0];
    const og_dtype own = r->bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32;
    int32_t count = 0;
    if (program->step_count + program->direct_count != (weighs ? 3 : 1))
        return -1;
    for (int32_t i = 0; i < program->direct_count; i++) {
        const og_cpu_direct *direct = &program->directs[i];
        to[count++] = (reading){direct->place, direct->access, r->loops->load[own]};
    }
    for (int32_t i = 0; i < program->step_count - weighs; i++) {
        const og_cpu_step *step = &program->steps[i];
        if ((step->kind != OG_CPU_SEE && step->kind != OG_CPU_LOAD) || step->loops != r->loops ||
            program->accesses[step->access].buffer < 0)
            return -1;
        to[count++] = (reading){step->dst, step->access, step->run.load};
    }
    return count;
}

/* Is a step the product of two places, blocks or one of them one element? */
static bool multiplies(const og_cpu_step *step, int32_t x, int32_t w)
{
    const og_cpu_map *forms = step->loops->map[OG_OP_mul], run = step->run.map;
    return step->kind == OG_CPU_MAP && (run == forms[0] || run == forms[1] || run == forms[2]) &&
           ((step->args[0] == x && step->args[1] == w) ||
            (step->args[0] == w && step->args[1] == x));
}

/* Does an access stand still along lines, so that it can be weights? */
static bool stands_still(const og_cpu_access *access)
{
    return !access->window_count && og_cpu_last_stride(&access->axes[OG_CPU_INNER]) == 0;
}

/* Do all lines have the same, so that it can be weights of columns? */
static bool stands_by_lines(const og_cpu_access *access)
{
    const og_cpu_axis *inner = &access->axes[OG_CPU_INNER];
    return !access->window_count && inner->rank == 2 && inner->stride[0] == 0;
}

/* A fold whose x and w stand where they should: is any of it done by lines, or by spots? */
static ogive_status choose_fold(og_cpu_program *program, og_cpu_window_fold *of, og_arena *arena,
                                ogive_error *error)
{
    bool spots;
    if (!find_moving(&program->accesses[of->x], &of->moving))
        return OGIVE_OK;
    OG_TRY(og_cpu_find_window_spots(program, of, &spots, arena, error));
    og_cpu_window_lines *lines = OG_ARENA_NEW(arena, og_cpu_window_lines, 1);
    if (!lines)
        return og_fail_memory(error, sizeof *lines);
    if (og_cpu_find_window_lines(program, of, lines))
        program->window_lines = lines;
    of->is = spots || program->window_lines;
    program->window_fold = *of;
    return OGIVE_OK;
}

ogive_status og_cpu_find_window_fold(og_cpu_program *program, int64_t taps, int64_t width,
                                     og_arena *arena, ogive_error *error)
{
    const og_cpu_reduction *r = program->reductions;
    reading all[2];
    if (program->reduction_count != 1 || r->is_sumexp || r->strided || program->stage_count ||
        program->kept_count || !program->step_count)
        return OGIVE_OK;
    const og_cpu_load own = r->loops->load[r->bytes == sizeof(double) ? OG_FLOAT64 : OG_FLOAT32];
    const og_cpu_step *last = &program->steps[program->step_count - 1];
    const bool weighs = last->kind == OG_CPU_MAP;
    if (last->dst != r->source || find_readings(program, weighs, all) != (weighs ? 2 : 1))
        return OGIVE_OK;
    const og_cpu_access *first = &program->accesses[all[0].access];
    const bool first_stands = weighs && (stands_still(first) || stands_by_lines(first));
    const reading *x = &all[first_stands], *w = weighs ? &all[!first_stands] : NULL;
    const og_cpu_access *weights = w ? &program->accesses[w->access] : NULL;
    if (w && (r->fold != OG_CPU_SUM || !multiplies(last, x->place, w->place) ||
              !(stands_still(weights) || stands_by_lines(weights))))
        return OGIVE_OK;
    og_cpu_window_fold of = {.x = x->access,
                             .w = w ? w->access : -1,
                             .own = x->load == own,
                             .load = x->load,
                             .load_w = w ? w->load : NULL,
                             .taps = taps,
                             .width = width};
    return choose_fold(program, &of, arena, error);
}

void og_cpu_fold_windows(const og_cpu_worker *worker, const og_cpu_program *program,
                         const og_cpu_piece *piece, char *to)
{
    if (program->window_lines)
        og_cpu_fold_window_lines(worker, program, piece, to);
    else
        og_cpu_fold_window_spots(worker, program, piece, to);
}
