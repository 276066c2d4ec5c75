/* SPDX-License-Identifier: MIT
 *
 * replay.c - what the planner and the CUDA backend make of some hundred formulas, one line each:
 * hashes of the plan, of the emitted source and of the launches, then what it is. A change that is
 * meant to change no kernel changes no line (scripts/replay compares two trees).
 *
 *     replay [--dump FOLDER]    the texts themselves, a file each, to look at the difference
 *
 * It is no test: what kernels compute is checked by the test_cuda_* programs.
 */
#include "plan_case.h"

#include "base/embedded.h"
#include "cuda/emit/cuda_choose.h"
#include "cuda/emit/cuda_work.h"

#include <sys/stat.h>

static const og_cuda_limits devices[] = {
    {70, 80, 2048, 98304, 98304, 6 << 20, 1.5e9},
    {80, 108, 2048, 166912, 167936, 40 << 20, 1.4e9},
    {90, 132, 2048, 232448, 233472, 50 << 20, 1.98e9},
    {100, 148, 2048, 232448, 233472, 126 << 20, 1.9e9},
};

/* A formula and shapes without a dtype's letter: it is tried with all dtypes named. */
typedef struct {
    const char *formula, *shapes, *dtypes; /* "f": float32, "h", "b", "d" */
} replay_case;

static const replay_case cases[] = {
    /* pointwise */
    {"sigmoid(x)", "4096x1000", "fhbd"},
    {"sigmoid(x)", "30000000", "fhbd"},
    {"sigmoid(x)", "-", "fhbd"},
    {"sigmoid(x)", "50000x50000", "fh"},
    {"hardsigmoid(x)", "4096x4096", "fh"},
    {"gelu(x) * y", "30000000 -", "fhb"},
    {"where(x > 0, softplus(x, 2), y)", "30x40 30x1", "fhbd"},
    {"x * sigmoid(x) + y", "1024x4096 4096", "fhbd"},
    {"x + y", "40x50x6 50x1", "fhbd"},
    {"sigmoid(x)", "40x50s", "fhbd"},
    {"sigmoid(x) + y", "40x50t 40x50", "fhbd"},
    {"t(x) + y", "300x200 200x300", "fhbd"},
    {"clamp(tanh(x) * y + x, -1, 1) * 0.5, x - y", "100x77 100x77", "fhbd"},
    {"float16(x) + bfloat16(y)", "100x77 100x77", "fhbd"},
    {"where(x == y, x, 3.0) / y", "100x76 76", "fhbd"},
    /* rows */
    {"sum(x, 1)", "40x3", "fhbd"},
    {"sum(x, 1)", "40x1000", "fhbd"},
    {"sum(x, 1)", "4x16385", "fhbd"},
    {"sum(x)", "4000x4001", "fhbd"},
    {"amax(x, 1), amin(x, 1), mean(x, 1)", "400x1000", "fhbd"},
    {"x - mean(x, 1, true)", "400x5001", "fhbd"},
    {"softmax(x, 1)", "400x30", "fhbd"},
    {"softmax(x, 1)", "400x1024", "fhbd"},
    {"softmax(x, 1)", "40x16384", "fhbd"},
    {"softmax(x + y, 1)", "400x16384 400x16384", "fhb"},
    {"softmax(x, 1)", "4096x65536", "fhb"},
    {"logsumexp(x, 1)", "40x50000", "fhbd"},
    {"log_softmax(x, 1)", "40x5000", "fhbd"},
    {"layer_norm(x, 4096, w, b)", "400x4096 4096 4096", "fhbd"},
    {"layer_norm(x, 1000)", "400x1000", "fhbd"},
    {"rms_norm(x, 16384)", "40x16384", "fhb"},
    {"softmax(x * sigmoid(x), 1)", "40x1000", "fhbd"},
    {"softmax(gelu(x), 1) * x", "40x1000", "fhb"},
    {"x / sum(x, 1, true)", "40x1000", "fhb"},
    {"std(x, 1), var(x, 1)", "400x100", "fhbd"},
    {"sum(x * y, (1, 2))", "40x30x20s 40x30x20", "fhbd"},
    /* columns */
    {"sum(sigmoid(x), 1)", "30x40x50", "fhbd"},
    {"sum(x, 0)", "4097x50", "fhbd"},
    {"sum(x, 0)", "4097x500000", "fhb"},
    {"softmax(x, 0)", "40x50", "fhbd"},
    {"softmax(x, 0)", "50000x40", "fhbd"},
    {"x - mean(x, 0, true)", "4000x100", "fhbd"},
    {"amax(x, 0), sum(x, 0)", "500x1000", "fhbd"},
    /* products */
    {"linear(x, w, b)", "128x512 512x512 512", "fhbd"},
    {"sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", "128x32768 32768x32768 32768", "fhbd"},
    {"z = linear(x, w, b); z + 2.0 * sigmoid(z)", "1024x8192 8192x8192 8192", "fhbd"},
    {"linear(x, w)", "1x4096 4096x4096", "fhbd"},
    {"linear(x, w)", "16x8192 8192x8192", "fhb"},
    {"linear(x, w)", "64x65536 100x65536", "fhbd"},
    {"linear(x, w)", "4096x4096 4096x4096", "fhb"},
    {"linear(x, w)", "8192x8192 8192x8192", "fhb"},
    {"linear(x, w)", "8192x8192 64x8192", "fhbd"},
    {"linear(x, w)", "300x60 70x60", "fhbd"},
    {"linear(x, w)", "300x61 71x61", "fhbd"},
    {"relu(linear(x, w)) + y", "300x512 256x512 300x256", "fhb"},
    {"x @ w", "300x512 512x256", "fhbd"},
    {"x @ w", "300x512t 512x256", "fhbd"},
    {"x @ w", "300x512 512x256t", "fhb"},
    {"x @ w", "512 512x256", "fhbd"},
    {"x @ w", "300x512 512", "fhbd"},
    {"x @ w", "7x300x512 7x512x256", "fhbd"},
    {"x @ w", "2x3x100x512 3x512x256", "fhbd"},
    {"x @ w", "7x300x512 512x256", "fhb"},
    {"x @ w", "100000x64 64x200", "fhb"},
    {"x @ w", "2048x64 64x2048", "fhb"},
    {"softmax(linear(x, w), 1)", "256x512 1000x512", "fhbd"},
    {"logsumexp(linear(x, w), 1)", "256x512 1000x512", "fhbd"},
    {"sum(linear(x, w), 1), amax(linear(x, w), 1)", "256x512 1000x512", "fhbd"},
    {"sum(linear(x, w), 1)", "256x512 60x512", "fhbd"},
    {"sum(x @ w, -2)", "7x300x512 7x512x256", "fhbd"},
    {"silu(linear(x, w)) * linear(x, v)", "2048x4096 11008x4096 11008x4096", "fhbd"},
    {"silu(linear(x, w)) * linear(x, v)", "16x4096 11008x4096 11008x4096", "fhb"},
    {"sum((x @ w) * (x @ v), -1)", "3x4x64 3x64x24 3x64x24", "fhb"},
    {"(x @ w) * (y @ v)", "300x512 512x256 300x512 512x256", "fhbd"},
    {"linear(gelu(linear(x, w)), v)", "512x256 1024x256 256x1024", "fhb"},
    {"d(x w) sum(sigmoid(linear(x, w, b)))", "256x512 1024x512 1024 -", "fhbd"},
    {"d(x w b) linear(x, w, b)", "8x32x512 1024x512 1024 8x32x1024", "fhbd"},
    {"d(x) softmax(x, 1)", "256x512 256x512", "fhbd"},
    {"d(x w b) layer_norm(x, 512, w, b)", "256x512 512 512 256x512", "fhbd"},
    {"d(x y) gelu(x) * y", "256x512 512 256x512", "fhbd"},
};

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Every shape of the list with the dtype's letter. */
static void add_letter(const char *shapes, char dtype, char *out)
{
    for (; *shapes; shapes++) {
        if (*shapes == ' ' && dtype != 'f')
            *out++ = dtype;
        *out++ = *shapes;
    }
    if (dtype != 'f')
        *out++ = dtype;
    *out = 0;
}

static void print_maps(const og_cuda_launch *launch, og_text *out)
{
    for (int32_t i = 0; i < launch->map_count; i++) {
        const og_cuda_map *m = &launch->maps[i];
        og_text_add(out,
                    "  map at %zu: %d+%zu dtype %d, %lld x %lld x %lld, pitch %lld, slab %lld, box "
                    "%d x %d x %d, between %d, 256 %d, copy %d %zu %lld",
                    m->at, (int)m->buffer, m->offset, (int)m->dtype, (long long)m->columns,
                    (long long)m->rows, (long long)m->depth, (long long)m->pitch_bytes,
                    (long long)m->slab_bytes, (int)m->box_columns, (int)m->box_rows,
                    (int)m->box_depth, (int)m->rows_between, m->fetches_256, m->may_copy,
                    m->copy_offset, (long long)m->copy_pitch_bytes);
        for (int32_t d = 0; d < m->more; d++)
            og_text_add(out, ", %lld at %lld", (long long)m->more_extent[d],
                        (long long)m->more_bytes[d]);
        og_text_add(out, m->more ? ", box %d%s\n" : "\n", (int)m->more_box,
                    m->is_plain ? ", plain" : "");
        if (m->swizzle_bytes || m->last_box)
            og_text_add(out, "    swizzle %d, last box %d, between %d, %d\n", (int)m->swizzle_bytes,
                        (int)m->last_box, (int)m->depth_between, (int)m->more_between);
    }
}

static void print_launches(const og_cuda_work *work, og_text *out)
{
    og_text_add(out, "%s; scratch %zu; %s %s %d\n", work->body, work->scratch_bytes,
                work->unused ? work->unused : "-", work->note ? work->note : "-",
                (int)work->tensor_products);
    for (int32_t l = 0; l < work->launch_count; l++) {
        const og_cuda_launch *launch = &work->launches[l];
        og_text_add(out, "%s<<<%u, %u, %zu>>> when %d overlaps %d, pointers at", launch->entry,
                    launch->grid[0], launch->block[0], launch->shared_bytes, (int)launch->when,
                    launch->overlaps);
        for (int32_t p = 0; p < launch->pointer_count; p++)
            og_text_add(out, " %zu:%d+%zu", launch->pointers[p].at, (int)launch->pointers[p].buffer,
                        launch->pointers[p].offset);
        og_text_add(out, "\n  bytes ");
        for (size_t b = 0; b < launch->argument_bytes; b++)
            og_text_add(out, "%02x", launch->argument[b]);
        og_text_add(out, "\n");
        print_maps(launch, out);
    }
}

/* Plans as the API does for a device and emits all kernels. */
static void emit_all(const og_cuda_limits *gpu, bool strict, const char *formula,
                     const char *shapes, og_text *plans, og_text *sources, og_text *launches)
{
    og_graph graph;
    og_plan plan;
    og_arena arena = {0};
    const og_cuda_wishes wishes = {.strict = strict};
    og_plan_rules rules = {.sharing = strict ? OG_SHARE_ANY : OG_SHARE_ALIKE};
    make_plan_by(rules, formula, shapes, &graph, &plan);
    bool takes = true;
    for (int32_t k = 0; !strict && k < plan.kernel_count; k++)
        takes &=
            plan.kernels[k].product_count != 2 || og_cuda_takes_two(&plan.kernels[k], gpu, &wishes);
    if (!takes) {
        og_plan_free(&plan);
        og_graph_free(&graph);
        rules.sharing = OG_SHARE_NONE;
        make_plan_by(rules, formula, shapes, &graph, &plan);
    }
    for (int32_t k = 0; k < plan.kernel_count; k++) {
        og_cuda_work work;
        ogive_error error;
        og_kernel_print(&plan, k, NULL, plans);
        if (og_cuda_emit(&plan, k, gpu, &wishes, &arena, &work, &error)) {
            og_text_add(launches, "refused: %s\n", error.message);
            continue;
        }
        print_launches(&work, launches);
        og_add_resolved(work.source, sources);
    }
    og_text_add(plans, "temporary %zu\n", plan.temporary_bytes);
    og_plan_free(&plan);
    og_graph_free(&graph);
    og_arena_free(&arena);
}

static void dump(const char *folder, int number, const char *kind, const og_text *text)
{
    char path[4096];
    mkdir(folder, 0777);
    snprintf(path, sizeof path, "%s/%04d.%s", folder, number, kind);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s cannot be written", path);
    fputs(text->data ? text->data : "", file);
    fclose(file);
}

static void replay_one(const og_cuda_limits *gpu, bool strict, const replay_case *of, char dtype,
                       const char *folder, int number)
{
    char shapes[256];
    og_text plans = {0}, sources = {0}, launches = {0};
    add_letter(of->shapes, dtype, shapes);
    emit_all(gpu, strict, of->formula, shapes, &plans, &sources, &launches);
    printf("%04d %016llx %016llx %016llx sm_%d%s %s [%s] %.*s\n", number,
           (unsigned long long)hash_text(plans.data ? plans.data : ""),
           (unsigned long long)hash_text(sources.data ? sources.data : ""),
           (unsigned long long)hash_text(launches.data ? launches.data : ""), (int)gpu->arch,
           strict ? " strict" : "", of->formula, shapes,
           (int)strcspn(launches.data ? launches.data : "", ";"), launches.data);
    if (folder) {
        dump(folder, number, "plan", &plans);
        dump(folder, number, "cu", &sources);
        dump(folder, number, "launches", &launches);
    }
    og_text_free(&plans);
    og_text_free(&sources);
    og_text_free(&launches);
}

int main(int argc, char **argv)
{
    const char *folder = argc == 3 && strcmp(argv[1], "--dump") == 0 ? argv[2] : NULL;
    int number = 0;
    if (argc != 1 && !folder) {
        fprintf(stderr, "usage: replay [--dump FOLDER]\n");
        return 2;
    }
    for (size_t c = 0; c < TEST_COUNT(cases); c++)
        for (const char *dtype = cases[c].dtypes; *dtype; dtype++)
            for (size_t d = 0; d < TEST_COUNT(devices); d++)
                for (int strict = 0; strict < 2; strict++) {
                    bool has_product =
                        strstr(cases[c].formula, "linear") || strstr(cases[c].formula, "@");
                    number++;
                    if (has_product || !strict)
                        replay_one(&devices[d], strict, &cases[c], *dtype, folder, number);
                }
    return 0;
}
