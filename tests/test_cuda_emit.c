/* SPDX-License-Identifier: MIT
 *
 * test_cuda_emit.c - what og_cuda_emit() makes of kernels, without a GPU: which body,
 * how many launches, what sources depend on, golden sources (tests/golden/cuda; accept a
 * change with OGIVE_UPDATE_GOLDEN=1) and, where the real NVRTC is found, that every
 * function compiles in every body, for several GPUs, with all values in registers.
 * What kernels compute is test_cuda_shim.c's affair.
 *     OGIVE_TEST_NVRTC=.../libnvrtc.so.13   where it is, if it is not found (see cuda_nvrtc.h)
 */
#define _GNU_SOURCE /* memmem */
#include "plan_case.h"

#include "cuda_limits.h"
#include "cuda_nvrtc_library.h"
#include "function_call.h"

#include "cuda/emit/cuda_emit.h"

/* ---- emitting ------------------------------------------------------------------------ */

/* Kernel 0 of a formula, for a GPU. Free the arena. */
static og_cuda_work emit_for(const og_cuda_limits *gpu, const char *formula, const char *shapes,
                             og_arena *arena)
{
    og_graph graph;
    og_plan plan;
    og_cuda_work work;
    ogive_error error;
    make_plan(formula, shapes, &graph, &plan);
    if (og_cuda_emit(&plan, 0, gpu, &(og_cuda_wishes){.strict = true}, arena, &work, &error))
        fail_msg("%s [%s]: %s", formula, shapes, error.message);
    og_plan_free(&plan);
    og_graph_free(&graph);
    return work;
}

/* Where an entry is in a source whose includes are resolved. Free *resolved. */
static const char *find_entry(const og_cuda_work *work, int32_t launch, og_text *resolved)
{
    char entry[64];
    snprintf(entry, sizeof entry, "(%s, OG_", work->launches[launch].entry);
    og_add_resolved(work->source, resolved);
    return strstr(resolved->data, entry);
}

static og_cuda_work emit(const char *formula, const char *shapes, og_arena *arena)
{
    return emit_for(&hopper, formula, shapes, arena);
}

static void print_work(const og_cuda_work *work, og_text *out)
{
    og_text_add(out, "// %s, scratch %zu\n", work->body, work->scratch_bytes);
    for (int32_t l = 0; l < work->launch_count; l++) {
        const og_cuda_launch *launch = &work->launches[l];
        og_text_add(out, "// %s<<<%u, %u>>>, %zu bytes of arguments, pointers at", launch->entry,
                    launch->grid[0], launch->block[0], launch->argument_bytes);
        for (int32_t p = 0; p < launch->pointer_count; p++)
            og_text_add(out, " %zu:%d+%zu", launch->pointers[p].at, (int)launch->pointers[p].buffer,
                        launch->pointers[p].offset);
        og_text_add(out, "\n");
    }
    og_text_add(out, "%s", work->source);
}

/* ---- what is emitted ------------------------------------------------------------------ */

static void test_golden_sources(void **state)
{
    (void)state;
    static const struct {
        const char *name, *formula, *shapes;
    } cases[] = {
        {"cuda/contiguous.cu", "sigmoid(x)", "4096x1000"},
        {"cuda/broadcast.cu", "where(x > 0, softplus(x, 2), y)", "30x40h 30x1b"},
        {"cuda/table.cu", "gelu(x) * y", "30000000b -"},
        {"cuda/transposing.cu", "t(x) + y", "300x200 200x300"},
        {"cuda/rows.cu", "x - mean(x, 1, true)", "400x5001d"},
        {"cuda/rows_kept.cu", "softmax(x, 1)", "400x1024"},
        {"cuda/rows_shared.cu", "softmax(x + y, 1)", "400x16384b 400x16384b"},
        {"cuda/rows_split.cu", "logsumexp(x, 1)", "40x50000"},
        {"cuda/rows_squares.cu", "layer_norm(x, 140000)", "40x140000b"},
        {"cuda/columns.cu", "sum(sigmoid(x), 1)", "30x40x50"},
        {"cuda/columns_split.cu", "softmax(x, 0)", "50000x40"},
        {"cuda/windows.cu", "max_pool2d(x, 3, 2, 1)", "2x30x40x50"},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_text text = {0};
        og_cuda_work work = emit(cases[c].formula, cases[c].shapes, &arena);
        og_text_add(&text, "// %s  [%s]\n", cases[c].formula, cases[c].shapes);
        print_work(&work, &text);
        compare_golden(cases[c].name, &text);
        og_text_free(&text);
        og_arena_free(&arena);
    }
}

static void test_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes, *body;
        int32_t launches;
    } cases[] = {
        {"sigmoid(x)", "4096x1000", "contiguous", 1},
        {"sigmoid(x)", "0x5", "empty", 0},
        {"x + 1", "1099511627776x1099511627776x0", "empty", 0},
        {"sigmoid(x)", "-", "contiguous", 1},
        {"sigmoid(x)", "25952256h", "contiguous, by table", 2},
        {"bfloat16(tanh(x * y))", "30000000h -", "contiguous, by table", 2},
        {"sigmoid(x)", "25952255h", "contiguous", 1},
        {"sigmoid(x)", "30000000", "contiguous", 1},
        {"x / 6 + abs(x)", "30000000h", "contiguous", 1}, /* costs too little */
        {"sigmoid(x) * y", "30000000h 30000000h", "contiguous", 1},
        {"sigmoid(x), tanh(x)", "30000000b", "contiguous", 1},
        {"float32(sigmoid(x))", "30000000b", "contiguous", 1},
        {"sigmoid(x)", "30000000hs", "strided", 1},
        {"x + y", "40x50 50", "strided", 1},
        {"sigmoid(x)", "40x50s", "strided", 1},
        {"sigmoid(x)", "40x50t", "transposing", 1},
        {"sigmoid(x)", "40x8t", "strided", 1}, /* too little to turn */
        {"t(x) + x", "2000x2000", "transposing", 1},
        {"sum(x, 1)", "40x3", "rows, several a warp", 1},
        {"sum(x, 1)", "40x0", "rows, several a warp", 1},
        {"sum(x, 1)", "0x40", "empty", 0},
        {"sum(x, 1)", "40x1000", "rows, a warp a row", 1},
        {"sum(x, 1)", "40x16384", "rows, a block a row", 1},
        {"sum(x, 1)", "40x16385", "rows, a block a chunk", 2},
        {"softmax(x, 1)", "40x30", "rows, several a warp, kept", 1},
        {"softmax(x, 1)", "40x1000", "rows, a warp a row, kept", 1},
        {"softmax(x, 1)", "40x16384", "rows, a block a row, kept", 1},
        {"softmax(x, 1)", "40x16384b", "rows, a block a row, kept", 1},
        {"layer_norm(x, 16384)", "40x16384h", "rows, a block a row, kept", 1},
        {"softmax(x + y, 1)", "40x16384b 40x16384b", "rows, a block a row, kept in shared memory",
         1},
        {"softmax(x + y, 1)", "40x16000d 40x16000d", "rows, a block a row, kept in shared memory",
         1},
        {"softmax(x + y + z, 1)", "40x16000d 40x16000d 40x16000d", "rows, a block a row", 1},
        {"softmax(x, 1)", "40x16385", "rows, a block a chunk", 3},
        {"softmax(x, 1)", "131x16388", "rows, a block a chunk", 3}, /* too few for all */
        {"softmax(x, 1)", "132x16388", "rows, a block a row, kept in shared memory", 1},
        {"softmax(x, 1)", "132x16389", "rows, a block a chunk", 3}, /* single elements */
        {"softmax(x, 1)", "4096x65536", "rows, a block a row, kept in shared memory", 1},
        {"softmax(x, 1)", "4096x65540", "rows, a cluster a row, kept in shared memory", 1},
        {"softmax(x, 1)", "4096x393216", "rows, a cluster a row, kept in shared memory", 1},
        {"softmax(x, 1)", "40x393216", "rows, a block a chunk", 3},   /* too few for clusters */
        {"softmax(x, 1)", "4096x524800", "rows, a block a chunk", 3}, /* nine blocks */
        {"softmax(x, 1)", "4096x114688b", "rows, a block a row, kept in shared memory", 1},
        {"layer_norm(x, 65536)", "4096x65536", "rows, a block a row, kept in shared memory", 1},
        {"layer_norm(x, 65540)", "4096x65540", "rows, a cluster a row, kept in shared memory", 1},
        {"var(x, 1)", "4096x65540", "rows, a block a chunk", 2},
        {"sum(x, 0)", "40x50", "columns", 1},
        {"sum(x, 0)", "4096x50", "columns", 1},
        {"sum(x, 0)", "4097x50", "columns, a block a tile", 2},
        {"sum(x, 0)", "4097x500000", "columns, tile by tile", 1},
        {"softmax(x, 0)", "40x50", "columns", 1},
        {"softmax(x, 0)", "4097x50", "columns, a block a tile", 5},
        {"softmax(x, 1)", "8x64x40000", "columns, kept in shared memory", 1},
        {"softmax(x, 1)", "8x63x40000", "columns", 1}, /* read again from caches */
        {"softmax(x, 1)", "2x500x40000", "columns, kept in shared memory", 1},
        {"softmax(x, 1)", "1x1000x40000", "columns", 1}, /* one block a multiprocessor */
        {"sum(x, 1)", "8x64x40000", "columns", 1},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_cuda_work work = emit(cases[c].formula, cases[c].shapes, &arena);
        if (strcmp(work.body, cases[c].body) != 0 || work.launch_count != cases[c].launches)
            fail_msg("%s [%s]: '%s' and %d launches, not '%s' and %d", cases[c].formula,
                     cases[c].shapes, work.body, (int)work.launch_count, cases[c].body,
                     (int)cases[c].launches);
        for (int32_t l = 0; l < work.launch_count; l++) {
            og_text resolved = {0};
            assert_non_null(find_entry(&work, l, &resolved));
            og_text_free(&resolved);
            assert_in_range(work.launches[l].block[0], 1, 1024);
            assert_true(work.launches[l].grid[0] >= 1);
        }
        assert_int_equal(work.scratch_bytes % 64, 0);
        og_arena_free(&arena);
    }
}

/* Does an entry's text hold this? */
static bool entry_has(const og_cuda_work *work, int32_t launch, const char *what)
{
    og_text resolved = {0};
    const char *at = find_entry(work, launch, &resolved);
    assert_non_null(at);
    const char *found = strstr(at, what), *end = strstr(at, "\n}\n");
    bool has = found && found < end;
    og_text_free(&resolved);
    return has;
}

/* Launches after the first begin before the one before has ended, and wait for it themselves; the
 * last admits none: what follows it is not the library's. Before Hopper they begin afterwards. */
static void test_overlaps(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
    } cases[] = {{"sum(x, 1)", "40x16385"},
                 {"softmax(x, 1)", "40x16385"},
                 {"sum(x, 0)", "4097x50"},
                 {"softmax(x, 0)", "4097x50"},
                 {"linear(x, w)", "1x65536 64x65536"},
                 {"linear(x, w)", "8192x8192 64x8192"}};
    static const char none[] = "sum(linear(x, w), 1)", no_columns[] = "3x70 0x70"; /* one launch */
    og_cuda_limits ampere = hopper;
    ampere.arch = 80;
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_cuda_work work = emit(cases[c].formula, cases[c].shapes, &arena);
        const int32_t last = work.launch_count - 1;
        assert_true(last >= 1);
        for (int32_t l = 0; l <= last; l++) {
            assert_int_equal(work.launches[l].overlaps, l > 0);
            assert_true(l == 0 || entry_has(&work, l, "og_await_launch();"));
            assert_int_equal(entry_has(&work, l, "og_admit_next();"), l < last);
        }
        work = emit_for(&ampere, cases[c].formula, cases[c].shapes, &arena);
        for (int32_t l = 0; l < work.launch_count; l++)
            assert_false(work.launches[l].overlaps);
        og_arena_free(&arena);
    }
    og_arena arena = {0};
    og_cuda_work work = emit(none, no_columns, &arena);
    assert_true(work.launch_count == 1 && !work.launches[0].overlaps);
    og_arena_free(&arena);
}

/* What several traversals compute of kept operands is derived from them once, if it costs
 * something and takes no more room than they do. */
static void test_derived(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
        int derived;
    } cases[] = {
        {"layer_norm(gelu(x) * 0.5 + y, 4096)", "40x4096 40x4096", 1},
        {"layer_norm(gelu(x) * 0.5 + y, 96)", "40x96b 40x96b", 1},
        {"softmax(x * sigmoid(x), 1)", "40x1000", 1},
        {"logsumexp(tanh(x), 1)", "40x1000d", 1},       /* two traversals of one pass */
        {"softmax(gelu(x) * y, 1)", "40x1000 40x1", 1}, /* not of y: that is gelu(x) */
        {"softmax(tanh(x) * sigmoid(y) * tanh(x), 1) + sigmoid(y)", "40x1000 40x1000", 2},
        {"softmax(gelu(x), 1) * x", "40x1000", 0}, /* x is needed, too */
        {"sum(gelu(x), 1)", "40x1000", 0},
        {"softmax(x + y, 1)", "40x1000 40x1000", 0},   /* costs nothing */
        {"softmax(gelu(x), 1)", "40x16384b", 0},       /* in shared memory */
        {"softmax(gelu(x), 1)", "40x40000", 0},        /* chunks */
        {"gelu(x) - mean(gelu(x), 0)", "400x1000", 0}, /* columns */
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_cuda_work work = emit(cases[c].formula, cases[c].shapes, &arena);
        int derived = 0;
        char store[32];
        do
            snprintf(store, sizeof store, "kept.d%d.e[i] = ", derived);
        while (strstr(work.source, store) && ++derived);
        if (derived != cases[c].derived)
            fail_msg("%s [%s]: %d derived values, not %d", cases[c].formula, cases[c].shapes,
                     derived, cases[c].derived);
        assert_int_equal(strstr(work.source, "og_derive(a, kept)") != NULL, derived > 0);
        og_arena_free(&arena);
    }
}

/* A table takes shared memory and time to fill. */
static void test_table_pays(void **state)
{
    (void)state;
    og_cuda_limits few = hopper, small = hopper;
    few.multiprocessors = 2;
    small.shared_per_block = 99 << 10;
    assert_true(og_cuda_table_pays(3 * 65536 * 132, &hopper));
    assert_false(og_cuda_table_pays(3 * 65536 * 132 - 1, &hopper));
    assert_true(og_cuda_table_pays(INT64_MAX, &hopper));
    assert_true(og_cuda_table_pays(3 * 65536 * 2, &few));
    assert_false(og_cuda_table_pays(INT64_MAX, &small));
}

/* Shapes, strides and constants are arguments. */
static void test_shapes_share_a_source(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes, *other, *other_shapes;
        bool same;
    } cases[] = {
        {"sigmoid(x)", "4x5", "sigmoid(x)", "1000x77x3", true},
        {"sigmoid(x)", "4x5", "sigmoid(x)", "4x5h", false},
        {"sigmoid(x)", "4x5", "sigmoid(x)", "50000x50000", false}, /* 64-bit indices */
        {"sigmoid(x)", "4x5", "sigmoid(x)", "4325376", false},     /* several vectors a thread */
        {"sigmoid(x)", "4325375", "sigmoid(x)", "4325376", false},
        {"sigmoid(x)", "4325376", "sigmoid(x)", "99999999", true},
        {"abs(x)", "4x5", "abs(x)", "4325376", true},
        {"sigmoid(x)", "30000000h", "sigmoid(x)", "99999999h", true},
        {"softplus(x, 2) + 3", "4x5", "softplus(x, 5, 6) + 7", "9", true},
        {"x + y", "40x50 50", "x + y", "99x100001 100001", true},
        {"x + y", "40x50 50", "x + y", "40x50 40x1", false},
        {"sigmoid(x)", "40x50s", "sigmoid(x)", "900x70s", true},
        {"sigmoid(x)", "40x50t", "sigmoid(x)", "900x70t", true},
        {"sum(x, 1)", "40x4000", "sum(x, 1)", "99x4040", true},
        {"softmax(x, 1)", "40x4000", "softmax(x, 1)", "99x3900", true},
        {"softmax(x, 1)", "40x4000", "softmax(x, 1)", "99x1500", false},
        {"sum(x, 1)", "40x40000", "sum(x, 1)", "99x400004", true},
        {"sum(x, 0)", "500x40", "sum(x, 0)", "300x44", true},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_cuda_work a = emit(cases[c].formula, cases[c].shapes, &arena);
        og_cuda_work b = emit(cases[c].other, cases[c].other_shapes, &arena);
        if ((strcmp(a.source, b.source) == 0) != cases[c].same)
            fail_msg("%s [%s] and %s [%s] %s a source", cases[c].formula, cases[c].shapes,
                     cases[c].other, cases[c].other_shapes,
                     cases[c].same ? "do not share" : "share");
        og_arena_free(&arena);
    }
}

/* What a kernel cannot hold is refused, not cut. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *each, *between, *shapes, *message, *amount;
        int count;
    } cases[] = {
        {"x%d", " + ", "40", "at most 4096 bytes of arguments", "601 operands", 600},
        {"sum(x * %d, 0)", " + ", "5000x3", "at most 768 bytes of a column's sums", "has 1000",
         250},
    };
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_text formula = {0}, shapes = {0};
        og_graph graph;
        og_plan plan;
        og_arena arena = {0};
        og_cuda_work work;
        ogive_error error;
        for (int i = 0; i < cases[c].count; i++) {
            og_text_add(&formula, "%s", i ? cases[c].between : "");
            og_text_add(&formula, cases[c].each, i + 2);
            og_text_add(&shapes, "%s%s", i ? " " : "", cases[c].shapes);
        }
        make_plan(formula.data, shapes.data, &graph, &plan);
        assert_int_equal(og_cuda_emit(&plan, 0, &hopper, &(og_cuda_wishes){.strict = true}, &arena,
                                      &work, &error),
                         OGIVE_UNSUPPORTED);
        assert_non_null(strstr(error.message, cases[c].message));
        assert_non_null(strstr(error.message, cases[c].amount));
        og_arena_free(&arena);
        og_plan_free(&plan);
        og_graph_free(&graph);
        og_text_free(&formula);
        og_text_free(&shapes);
    }
}

/* Magic numbers of divisors divide as / does: all extents and indices around what matters. */
static void test_division(void **state)
{
    (void)state;
    test_random random = test_random_named("division");
    for (int i = 0; i < 200000; i++) {
        bool wide = i % 2;
        int bits = wide ? 63 : 31;
        uint64_t extent =
            test_random_bits(&random) >> (64 - bits + test_random_bits(&random) % bits);
        uint64_t index = test_random_bits(&random) >> (64 - bits);
        extent = i < 1000 ? (uint64_t)i + 1 : extent ? extent : 1;
        if (i % 3 == 0) /* one off a multiple */
            index = index / extent * extent - (index >= extent && i % 2);
        og_cuda_emitter e = {.wide = wide};
        og_cuda_add_divisor(&e, "d", (int64_t)extent);
        uint64_t magic = 0, quotient;
        uint32_t shift;
        memcpy(&magic, e.arguments.bytes + (wide ? 8 : 4), wide ? 8 : 4);
        memcpy(&shift, e.arguments.bytes + (wide ? 16 : 8), 4);
        quotient = (uint64_t)(((unsigned __int128)index * magic) >> (wide ? 64 : 32)) >> shift;
        if ((magic ? quotient : index) != index / extent)
            fail_msg("%" PRIu64 " / %" PRIu64 " is not %" PRIu64, index, extent, quotient);
        og_text_free(&e.arguments.members);
    }
}

/* ---- compiling ------------------------------------------------------------------------- */

static const char *const archs[] = {"90a", "80", "100"};

/* Those before 12.8 do not know sm_100. */
static bool nvrtc_knows(const char *arch)
{
    for (int i = 0; i < nvrtc.info->arch_count; i++)
        if (nvrtc.info->archs[i] == og_cuda_read_arch(arch))
            return true;
    return false;
}

/* Many kernels in one source: scalar functions once, the rest in a namespace each. */
typedef struct {
    const char *arch; /* "90a" */
    og_cuda_limits limits;
    og_text source, names; /* names: "k0_ FORMULA [SHAPES] BODY" and so on, a line each */
    int count;
} unit;

static unit start_unit(const char *arch)
{
    unit u = {.arch = arch};
    const char *like;
    og_cuda_assume_limits(og_cuda_read_arch(arch), &u.limits, &like);
    return u;
}

static int failed_units; /* of a test: all are compiled before it fails */

static void add_kernel(unit *u, const char *formula, const char *shapes)
{
    og_arena arena = {0};
    og_cuda_work work = emit_for(&u->limits, formula, shapes, &arena);
    /* Of src/math one copy serves all. */
    if (!u->source.data)
        og_add_resolved("#include \"math/half.h\"\n#include \"math/scalar_f32.h\"\n"
                        "#include \"math/scalar_f64.h\"\n",
                        &u->source);
    const char *rest = work.source, *math;
    while ((math = strstr(rest, "#include \"math/")))
        rest = strchr(math, '\n');
    for (int32_t l = 0; l < work.launch_count; l++)
        og_text_add(&u->source, "#undef %s\n#define %s k%d_%s\n", work.launches[l].entry,
                    work.launches[l].entry, u->count, work.launches[l].entry);
    og_text_add(&u->names, "\nk%d_ %s [%s] %s", u->count, formula, shapes, work.body);
    og_text_add(&u->source, "namespace k%d {\n", u->count++);
    og_add_resolved(rest, &u->source);
    og_text_add(&u->source, "}\n");
    og_arena_free(&arena);
}

/* Of float64 kernels ptxas may spill so many bytes, as it does in a few of them to have
 * more blocks run (8 to 16 of 13.4's for sm_80, sm_90a and sm_100). */
enum { FLOAT64_SPILLS = 24 };

/* A warning, an error, or a byte that is not in a register. */
static bool is_complaint(const char *line, bool is_float64)
{
    const char *spills = strstr(line, "bytes stack frame, ");
    if (!spills)
        return strstr(line, "warning") || strstr(line, "error");
    return atoi(spills + strlen("bytes stack frame, ")) > (is_float64 ? FLOAT64_SPILLS : 0);
}

/* Looks at what the compiler says of a kernel; prints complaints, with its formula. */
static void check_line(const unit *u, const char *kernel, const char *line)
{
    char number[16];
    snprintf(number, sizeof number, "\n%.*s_ ", (int)strcspn(kernel, "_"), kernel);
    const char *name = strstr(u->names.data, number);
    int length = name ? (int)strcspn(name + 1, "\n") : 0;
    bool is_float64 = name && memmem(name, (size_t)length, "d]", 2);
    if (!is_complaint(line, is_float64))
        return;
    print_error("sm_%s: %s: %.*s: %s\n", u->arch, kernel, length, name ? name + 1 : "", line);
    failed_units++;
}

/* A complaint fails the test in the end. */
static void compile_unit(unit *u)
{
    char target[64];
    const char *options[16] = {target, "--ptxas-options=-v", "-diag-suppress=177"};
    int count = 3, result;
    snprintf(target, sizeof target, "--gpu-architecture=sm_%s", u->arch);
    for (int i = 0; i < og_cuda_option_count; i++)
        options[count++] = og_cuda_options[i];
    char *log = compile_text(u->source.data, options, count, &result);
    if (result)
        fail_msg("sm_%s: %.2000s", u->arch, log);
    const char *kernel = "?";
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n")) {
        const char *name = strstr(line, "Function properties for ");
        if (name)
            kernel = name + strlen("Function properties for ");
        check_line(u, kernel, line);
    }
    free(log);
    og_text_free(&u->source);
    og_text_free(&u->names);
}

static void end_units(void)
{
    int failed = failed_units;
    failed_units = 0;
    if (failed)
        fail_msg("%d complaints", failed);
}

/* A call of function op with its tensors x, y and its numbers; false if a formula cannot. */
static bool print_call(og_op op, const char *format, char *formula, size_t capacity)
{
    const og_function *f = og_function_of(op);
    char call[128], whole[160];
    const char *overloaded = find_overloaded_call(op);
    if ((f->kind != OG_SCALAR && f->kind != OG_MASKING) || (!f->group && !overloaded))
        return false;
    if (overloaded)
        snprintf(call, sizeof call, overloaded, "x * x");
    else
        print_function_call(f, "x * x", call, sizeof call);
    snprintf(whole, sizeof whole, f->kind == OG_MASKING ? "where(%s, x, 0)" : "%s", call);
    snprintf(formula, capacity, format, whole);
    return true;
}

/* In one body every function, or (share > 1) each that is `first` after a multiple of share. */
static void compile_functions(const char *format, const char *shapes, const char *arch, int first,
                              int share)
{
    unit u = start_unit(arch);
    char formula[256];
    for (og_op op = 0; op < OG_FUNCTION_COUNT; op++)
        if ((int)op % share == first % share && print_call(op, format, formula, sizeof formula))
            add_kernel(&u, formula, shapes);
    compile_unit(&u);
}

/* What og_divide_by_f32() computes on a GPU is the quotient, bit for bit. */
static void test_float_division(void **state)
{
    (void)state;
    static const float divisors[] = {6.0f,  3.0f,     -7.0f,     0.1f,    8.0f,  0x1.fffffep0f,
                                     1e20f, 0x1p126f, 0x1p-149f, -3e-39f, 3e38f, 0x1.8p-60f};
    for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
        const float by = divisors[d];
        double high, low;
        og_cuda_find_inverse(by, &high, &low);
        for (uint32_t i = 0; i < 1u << 18; i++) {
            /* of all sizes; of small ones, whose quotients are subnormal and often in the middle */
            uint32_t bits = i % 2 ? i * 2654435761u : i / 2 | i << 31;
            float x, got, want;
            memcpy(&x, &bits, sizeof x);
            x = i % 4 == 2 ? x * by : x;
            got = (float)fma(x, high, (double)x * low);
            want = x / by;
            if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want)))
                fail_msg("%a / %a: got %a, want %a", (double)x, (double)by, (double)got,
                         (double)want);
        }
    }
}

/* Inverses of what is divided by take room among arguments: of many numbers none has one, so that no
 * formula is refused for them. */
static void test_many_divisions(void **state)
{
    (void)state;
    static const struct {
        int count;
        bool has_inverses;
    } cases[] = {{2, true}, {70, true}, {300, false}, {900, false}};
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        og_arena arena = {0};
        og_text formula = {0};
        for (int i = 0; i < cases[c].count; i++)
            og_text_add(&formula, "%sx / %d.3", i ? " + " : "", i + 2);
        og_cuda_work work = emit(formula.data, "1000", &arena);
        assert_int_equal(strstr(work.source, "= og_divide_by_f32(") != NULL, cases[c].has_inverses);
        og_text_free(&formula);
        og_arena_free(&arena);
    }
}

static void test_functions_compile(void **state)
{
    (void)state;
    enum { ALWAYS = 7 }; /* the others if OGIVE_TEST_FULL is set */
    static const struct {
        const char *format, *shapes;
    } bodies[] = {
        {"%s", "1000%s"},           {"%s", "50x60s%s"},          {"%s", "50x60t%s"},
        {"sum(%s, 1)", "90x64%s"},  {"sum(%s, 1)", "90x4096%s"}, {"sum(%s, 0)", "900x64%s"},
        {"%s", "30000000%s"},       {"sum(%s, 1)", "90x3%s"},    {"sum(%s, 1)", "9x50000%s"},
        {"sum(%s, 0)", "9000x7%s"},
    };
    static const char *const dtypes[] = {"", "h", "b", "d"};
    if (!load_nvrtc())
        skip();
    /* A part of all combinations; all of them take ten minutes. Of functions each turn has another
     * half in the first body, as float32 and as float64, a quarter by each other GPU and as either
     * half, and a sixth in the other bodies. */
    for (size_t b = 0; b < TEST_COUNT(bodies); b++)
        for (size_t d = 0; d < TEST_COUNT(dtypes); d++)
            for (size_t a = 0; a < TEST_COUNT(archs); a++) {
                char shapes[64];
                if (!nvrtc_knows(archs[a]))
                    continue;
                if (!test_full() && (b + d > 0) + (a > 0) > 1)
                    continue;
                if (!test_full() && ((b > 0 && d > 0) || b >= ALWAYS))
                    continue;
                snprintf(shapes, sizeof shapes, bodies[b].shapes, dtypes[d]);
                const int share = test_full() ? 1 : d == 3 ? 2 : b > 0 ? 6 : a + d > 0 ? 4 : 2;
                compile_functions(bodies[b].format, shapes, archs[a],
                                  (int)(a + b + d + test_turn() % (uint64_t)share), share);
            }
    end_units();
}

/* Windows over, or results of, more than 2^31 elements. */
static const struct {
    const char *formula, *shapes;
} vast_windows[] = {
    {"max_pool1d(x, 3, 1048576, 1)", "1x4294967296h"},
    {"max_pool1d(x, 8, 1, 4, 3)", "65536x65536"},
    {"adaptive_avg_pool1d(x, 7)", "1048576x4097h"},
    {"avg_pool2d(x, 3, 2, 1)", "4096x1024x1024b"},
    {"avg_pool3d(x, 3, 2, 1)", "2048x128x128x128"},
    {"d(x) max_pool2d(x, 2)", "4096x1024x1024 4096x512x512"},
    {"adaptive_avg_pool2d(x, 1)", "4096x1024x1024"},
    {"conv2d(x, w, padding=1, groups=64)", "64x64x1024x1024 64x1x3x3"},
    {"conv2d(x, w)", "64x64x1024x1024 8x64x3x3"},
};

/* Their kernels' indices have 64 bits. */
static void test_vast_windows(void **state)
{
    (void)state;
    for (size_t c = 0; c < TEST_COUNT(vast_windows); c++) {
        og_arena arena = {0};
        og_cuda_work work = emit(vast_windows[c].formula, vast_windows[c].shapes, &arena);
        if (!strstr(work.source, "typedef int64_t og_index;"))
            fail_msg("%s [%s]: %s", vast_windows[c].formula, vast_windows[c].shapes, work.body);
        og_arena_free(&arena);
    }
}

static void test_windows_compile(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shape;
    } cases[] = {
        {"max_pool1d(x, 8, 1, 4, 3)", "4x500"},
        {"avg_pool1d(x, 3)", "1x3"}, /* one column */
        {"max_pool2d(x, 3, 2, 1)", "2x3x40x50"},
        {"avg_pool2d(x, 3, 2, 1, true, false)", "2x3x40x50"},
        {"avg_pool3d(x, 2)", "3x10x12x14"},
        {"adaptive_avg_pool2d(x, (7, 9))", "2x3x40x50"},
        {"adaptive_max_pool1d(x, 3)", "4x5000"},
        {"sum(unfold(x, 0, 5, 2), -1)", "40x50"},
        {"max_pool1d(x, 8, 1, 4, 3)", "12288x65536"}, /* by vectors, as those that follow */
        {"max_pool2d(x, 4, 1, 1)", "2048x512x512"},
        {"avg_pool3d(x, 3, 2, 1)", "512x128x128x256"},
        {"glu(x)", "4x500"},
        {"softmax(narrow(x, 1, 3, 400), 1)", "40x500"},
    };
    static const char *const dtypes[] = {"", "h", "b", "d"};
    if (!load_nvrtc())
        skip();
    for (size_t a = 0; a < TEST_COUNT(archs); a++) {
        if (!nvrtc_knows(archs[a]))
            continue;
        unit u = start_unit(archs[a]);
        for (size_t c = 0; c < TEST_COUNT(cases); c++)
            for (size_t d = 0; d < TEST_COUNT(dtypes); d++) {
                char shapes[64];
                if (!test_takes(c + d, a) || !test_has_turn(c, d, 2))
                    continue;
                snprintf(shapes, sizeof shapes, "%s%s", cases[c].shape, dtypes[d]);
                add_kernel(&u, cases[c].formula, shapes);
            }
        for (size_t c = 0; c < TEST_COUNT(vast_windows); c++)
            if (test_takes(c, a) && test_has_turn(c, a, 2))
                add_kernel(&u, vast_windows[c].formula, vast_windows[c].shapes);
        add_kernel(&u, "conv2d(x, w, groups=128)", "32x128x128x256 128x1x3x7");
        add_kernel(&u, "conv2d(x, w, padding=3, groups=128)", "32x128x128x256 128x1x7x7");
        compile_unit(&u);
    }
    end_units();
}

/* Every body, size and dtype, with the passes that make them hard. */
static void test_bodies_compile(void **state)
{
    (void)state;
    static const char *const formulas[] = {"softmax(x, %d)", "var(x, %d)",
                                           "exp(x), sum(x, %d), amax(x * 2, %d), amin(x, %d)"};
    static const char *const shapes[] = {"90x3",     "90x64",   "90x1000", "90x4096",
                                         "90x9999",  "9x16384", "9x50000", "900x65536",
                                         "9x200000", "9000x7",  "600x600"};
    static const char *const dtypes[] = {"", "h", "d"};
    if (!load_nvrtc())
        skip();
    for (size_t a = 0; a < TEST_COUNT(archs); a++)
        for (size_t d = 0; d < TEST_COUNT(dtypes); d++) {
            unit u = start_unit(archs[a]);
            if ((!test_full() && a > 0 && d > 0) || !nvrtc_knows(archs[a]))
                continue;
            for (size_t s = 0; s < TEST_COUNT(shapes); s++)
                for (size_t f = 0; f < TEST_COUNT(formulas); f++) {
                    char formula[128], shape[64];
                    int dim = s < 9;
                    if (!test_takes(s + f, a) || !test_has_turn(s, f + d, 2))
                        continue;
                    snprintf(shape, sizeof shape, "%s%s", shapes[s], dtypes[d]);
                    snprintf(formula, sizeof formula, formulas[f], dim, dim, dim);
                    add_kernel(&u, formula, shape);
                }
            compile_unit(&u);
        }
    end_units();
}

/* What only big tensors take. */
static void test_big_bodies_compile(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
    } cases[] = {{"gelu(x)", "5000000"},
                 {"x * sigmoid(x) + y", "5000000 5000000"},
                 {"tanh(x)", "5000000d"},
                 {"x * sigmoid(x) + y", "5000000h 5000000h"},
                 {"erf(x)", "5000000b"},
                 {"sigmoid(x)", "30000000h"},
                 {"mish(x)", "30000000b"},
                 {"layer_norm(gelu(x) * 0.5 + y, 4096)", "40x4096 40x4096"},
                 {"layer_norm(gelu(x) * 0.5 + y, 4096)", "40x4096b 40x4096b"},
                 {"softmax(gelu(x), 1)", "40x1024"},
                 {"layer_norm(gelu(x) + y, 200000)", "40x200000 40x200000"},
                 {"layer_norm(x, 200000, w, b)", "40x200000b 200000b 200000b"},
                 {"var(x, 1), var(y, 1), softmax(x, 1)", "40x200000h 40x200000h"},
                 {"instance_norm(x)", "2x3x512x512d"},
                 {"instance_norm(x)", "20x30x512x512"}, /* of clusters, from Hopper on */
                 {"layer_norm(x, 200000, w, b)", "400x200000b 200000b 200000b"},
                 {"softmax(x, 1) * var(x, 1, keepdim=true)", "4000x393216"},
                 {"softmax(tanh(x) + y, 1)", "4000x60000d 4000x60000d"},
                 {"softmax(x * y, 1)", "8x64x40000 8x64x40000"}, /* columns in shared memory */
                 {"x / norm(x, 2, 1, true)", "8x500x40000h"},
                 {"log_softmax(x, 1), std(x, 1)", "8x64x40000d"},
                 {"var(x, 1)", "9x200001d"},
                 /* masks and integers, in every body */
                 {"where(m, x, 0) > 0.5", "5000000m 5000000"},
                 {"x * i + j - k", "5000 5000l 5000n 5000c"},
                 {"where(m.T, x.T, 0)", "512x512m 512x512h"},
                 {"softmax(where(m & (x > 0), x, -inf), 1)", "90x4096m 90x4096"},
                 {"softmax(where(m, x, -inf), 1)", "40x60000m 40x60000"},
                 {"softmax(where(m, x, -inf), 1)", "40x3m 40x3h"},
                 {"sum(x * i, 0), sum(float32(m), 0)", "900x64 900x64i 900x64m"},
                 {"sum(x * i)", "900x640 900x640l"}};
    if (!load_nvrtc())
        skip();
    for (size_t a = 0; a < TEST_COUNT(archs); a++) {
        unit u = start_unit(archs[a]);
        if (!nvrtc_knows(archs[a]))
            continue;
        for (size_t c = 0; c < TEST_COUNT(cases); c++)
            if (test_takes(c, a) && test_has_turn(c, a, 2))
                add_kernel(&u, cases[c].formula, cases[c].shapes);
        compile_unit(&u);
    }
    end_units();
}

/* What follows a product reads masks and stores them; a source of its own each. */
static void test_masked_products_compile(void **state)
{
    (void)state;
    static const struct {
        const char *formula, *shapes;
    } cases[] = {{"where(m, linear(x, w), 0)", "256x256m 256x256 256x256"},
                 {"where(m, linear(x, w), 0) > 0", "256x256m 256x256h 256x256h"},
                 {"sum(where(m, linear(x, w), 0), 1)", "256x256m 256x256b 256x256b"}};
    if (!load_nvrtc())
        skip();
    for (size_t c = 0; c < TEST_COUNT(cases); c++) {
        unit u = start_unit("90a");
        add_kernel(&u, cases[c].formula, cases[c].shapes);
        compile_unit(&u);
    }
    end_units();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_sources),     cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_overlaps),           cmocka_unit_test(test_derived),
        cmocka_unit_test(test_table_pays),         cmocka_unit_test(test_shapes_share_a_source),
        cmocka_unit_test(test_refusals),           cmocka_unit_test(test_division),
        cmocka_unit_test(test_float_division),     cmocka_unit_test(test_many_divisions),
        cmocka_unit_test(test_functions_compile),  cmocka_unit_test(test_bodies_compile),
        cmocka_unit_test(test_big_bodies_compile), cmocka_unit_test(test_masked_products_compile),
        cmocka_unit_test(test_vast_windows),       cmocka_unit_test(test_windows_compile),
    };
    return TEST_RUN(tests);
}
