/* SPDX-License-Identifier: MIT */

/* Kernels without products: the order of dims, which is part of a sum's definition; then the body,
 * and its numbers. */
#include "cuda/emit/cuda_reduce_shapes.h"
#include "cuda/emit/cuda_shapes.h"

enum Body { VECTORS = 1, ROWS, ROWS_SPLIT, COLUMNS, COLUMNS_TILES, COLUMNS_SPLIT };
enum Motion { STILL, UNIT, STRIDED };

/* What the formula says of a kernel. Bits are operands'. */
struct Facts {
    const char *name;
    int operands;
    unsigned results, stored; /* what the caller gets; and what is kept for other kernels, too */
    unsigned kept;            /* is of another kernel: float32, or float64 if tensors are */
    unsigned numbers;         /* is a number, and no tensor */
    bool is_costly;
    int wanted_blocks;
    og_reduced_facts reduced;
};

/* A unit's numbers, to be compared with those of other calls. */
struct Numbers {
    const Facts *facts;
    int body, dtype, bits, dims, kept, vector_dim, vector, threads;
    int more[9]; /* by name below, as the body has them */
    int along[2], ends_rows, combiners; /* of a product */
    unsigned char moves[MAX_OPERANDS], motion[MAX_OPERANDS];
    UnitRun run;
};

static const char *body_name(int body)
{
    static const char *const names[] = {"vectors",       "rows",          "rows_split",
                                        "columns",       "columns_tiles", "columns_split",
                                        "product_tiles", "mma_pairs",     "mma_halves"};
    return names[body - VECTORS];
}

static void add_number(std::string &text, const char *name, int value)
{
    text += std::string(name) + " " + std::to_string(value) + "\n";
}

/* The numbers that all bodies have. */
static std::string text_of_layout(const Numbers &k)
{
    static const char *const forms[] = {"og_float32", "og_float16", "og_bfloat16", "og_float64"};
    std::string moves, motions;
    for (int i = 0; i < k.facts->operands; i++) {
        moves += (i ? "," : "") + std::to_string(k.moves[i]);
        motions += (i ? "," : "") + std::to_string(k.motion[i]);
    }
    std::string text = std::string("OG_FORM ") + forms[k.dtype] + "\nOG_MOVES " + moves +
                       "\nOG_MOTIONS " + motions + "\n";
    text += std::string("BODY ") + body_name(k.body) + "\n";
    add_number(text, "OG_BODY", 1 << k.body);
    add_number(text, "OG_IS_DOUBLE", k.dtype == 3);
    add_number(text, "OG_INDEX_BITS", k.bits);
    add_number(text, "OG_DIMS", k.dims);
    add_number(text, "OG_KEPT_DIMS", k.kept);
    add_number(text, "OG_VECTOR_DIM", k.vector_dim);
    add_number(text, "OG_V", k.vector);
    add_number(text, "OG_THREADS", k.threads);
    return text;
}

static std::string text_of(const Numbers &k)
{
    static const char *const names[][9] = {
        {"OG_LEAD", "OG_OUTER", "OG_BATCH"},
        {"OG_GROUP", "OG_VECTORS", "OG_STEPS", "OG_FLIGHT", "OG_KEEPS", "OG_FLAT", "OG_WHOLE",
         "OG_COMBINERS", "OG_COMBINE_THREADS"},
        {"OG_X", "OG_Y", "OG_RUNS", "OG_FLIGHT", "OG_SHARED_BYTES", "OG_BLOCKS"}};
    const int list = k.body == VECTORS ? 0 : k.body <= ROWS_SPLIT ? 1 : 2;
    std::string text = text_of_layout(k);
    for (int i = 0; i < 9 && names[list][i]; i++)
        add_number(text, names[list][i], k.more[i]);
    return text;
}

static int64_t count_of(const Args &a, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= a.extent[d];
    return n;
}

static void swap_dims(const Facts &f, Args &a, int d, int e)
{
    std::swap(a.extent[d], a.extent[e]);
    for (int i = 0; i < f.operands; i++)
        std::swap(a.stride[i][d], a.stride[i][e]);
}

static void drop_dim(const Facts &f, Args &a, int d)
{
    const bool is_kept = d < a.kept;
    for (; d + 1 < a.kept + a.reduced; d++)
        swap_dims(f, a, d, d + 1);
    (is_kept ? a.kept : a.reduced)--;
}

/* The operand by whose memory dims are ordered: the largest that is read or kept of a kernel that
 * reduces, else the first result; or -1. */
static int find_lead(const Facts &f, const Args &a)
{
    int lead = -1;
    double most = 0;
    for (int i = 0; i < f.operands; i++) {
        const bool is_result = f.results >> i & 1;
        double touched = 1;
        if (!a.reduced && is_result)
            return i;
        for (int d = 0; d < a.kept + a.reduced; d++)
            touched *= a.stride[i][d] ? (double)a.extent[d] : 1;
        if (!is_result && (lead < 0 || touched > most)) {
            lead = i;
            most = touched;
        }
    }
    return lead;
}

/* In each group of dims those that the lead does not move along come first, then those of falling
 * stride. */
static void sort_dims(const Facts &f, Args &a, int lead, int from, int to)
{
    for (int d = from + 1; d < to; d++)
        for (int e = d; e > from; e--) {
            const int64_t step = std::abs(a.stride[lead][e]);
            const int64_t before = std::abs(a.stride[lead][e - 1]);
            if (!(before != 0 && (step == 0 || step > before)))
                break;
            swap_dims(f, a, e, e - 1);
        }
}

/* Neighbouring dims that every operand walks as one become one. */
static void join_dims(const Facts &f, Args &a)
{
    for (int d = a.kept + a.reduced - 2; d >= 0; d--) {
        bool joins = d + 1 != a.kept;
        for (int i = 0; i < f.operands; i++)
            joins = joins && a.stride[i][d] == a.stride[i][d + 1] * a.extent[d + 1];
        if (!joins)
            continue;
        a.extent[d + 1] *= a.extent[d];
        drop_dim(f, a, d);
    }
}

/* Brings dims into the order of Ogive's plans; is a row across memory? */
static bool order_dims(const Facts &f, Args &a)
{
    const bool reduces = a.reduced > 0;
    const int lead = find_lead(f, a);
    int64_t row_step = INT64_MAX, kept_step = INT64_MAX;
    for (int d = a.kept + a.reduced - 1; d >= 0; d--) {
        const int64_t step = lead < 0 ? 0 : std::abs(a.stride[lead][d]);
        int64_t &least = d < a.kept ? kept_step : row_step;
        if (a.extent[d] == 1)
            drop_dim(f, a, d);
        else if (step)
            least = std::min(least, step);
    }
    if (lead >= 0) {
        sort_dims(f, a, lead, 0, a.kept);
        sort_dims(f, a, lead, a.kept, a.kept + a.reduced);
    }
    if (reduces && (a.reduced == 0 || count_of(a, a.kept, a.kept + a.reduced) == 0)) {
        const int64_t n = a.reduced ? 0 : 1; /* one dim of one element, or of none */
        a.reduced = 1;
        a.extent[a.kept] = n;
        for (int i = 0; i < f.operands; i++)
            a.stride[i][a.kept] = 0;
    }
    join_dims(f, a);
    if (a.kept + a.reduced == 0) {
        a.kept = 1;
        a.extent[0] = 1;
    }
    return row_step > kept_step;
}

static int64_t bytes_of(const Facts &f, int dtype, int i)
{
    return dtype == 3 ? 8 : dtype == 0 || (f.kept >> i & 1) ? 4 : 2;
}

/* How far an operand reaches, and a little further. */
static double reach_of(const Args &a, int operand, int dims)
{
    double reach = 0;
    for (int d = 0; d < dims; d++)
        reach += std::abs((double)a.stride[operand][d]) * ((double)a.extent[d] + 256);
    return reach;
}

/* Which operands move along which dim, and how along the vectors' dim. */
static void see_layout(const Facts &f, const Args &a, Numbers &k)
{
    const double most = INT32_MAX / 4;
    double count = 1;
    k.dims = a.kept + a.reduced;
    k.kept = a.kept;
    k.bits = 32;
    for (int d = 0; d < k.dims; d++)
        count *= (double)a.extent[d] + 16;
    for (int i = 0; i < f.operands; i++) {
        const int64_t step = k.vector_dim < 0 ? 1 : a.stride[i][k.vector_dim];
        for (int d = 0; d < k.dims; d++)
            k.moves[i] |= (a.stride[i][d] != 0) << d;
        k.motion[i] = step == 0 ? STILL : step == 1 ? UNIT : STRIDED;
        if (reach_of(a, i, k.dims) > most || count > most)
            k.bits = 64;
    }
}

/* The widest vector by which all operands can be moved that are neighbours in memory. */
static int best_vector(const Facts &f, const Args &a, const Numbers &k)
{
    int64_t narrowest = 16;
    for (int i = 0; i < f.operands; i++)
        if (k.motion[i] == UNIT && !(f.numbers >> i & 1))
            narrowest = std::min(narrowest, bytes_of(f, k.dtype, i));
    for (int vector = (int)(16 / narrowest);; vector /= 2) {
        bool fits = a.reduced < 2 || k.vector_dim != k.dims - 1 ||
                    a.extent[k.vector_dim] % vector == 0;
        for (int i = 0; i < f.operands; i++)
            for (int d = 0; d < k.dims; d++)
                fits = fits && (k.motion[i] != UNIT || d == k.vector_dim ||
                                a.stride[i][d] % vector == 0);
        if (fits || vector == 1)
            return vector;
    }
}

static void shape_vectors(const Facts &f, const Args &a, Numbers &k)
{
    enum { BIG_ROUNDS = 16 }; /* elements for each thread that a GPU holds: fewer are no batches */
    const int64_t n = a.extent[k.dims - 1];
    int64_t narrowest = 0;
    bool is_contiguous = k.dims == 1;
    int lead = -1;
    for (int i = 0; i < f.operands; i++) {
        if (f.numbers >> i & 1)
            continue;
        const int64_t bytes = bytes_of(f, k.dtype, i);
        is_contiguous = is_contiguous && k.motion[i] != STRIDED;
        if (k.motion[i] != STILL && (!narrowest || bytes < narrowest))
            narrowest = bytes;
        if (k.motion[i] == UNIT && (lead < 0 || ((f.stored >> i & 1) && !(f.stored >> lead & 1))))
            lead = i;
    }
    k.vector = (int)(16 / (narrowest ? narrowest : 8));
    k.threads = is_contiguous ? 128 : 256;
    k.more[0] = lead;
    k.more[1] = k.dims > 1;
    k.more[2] = 1;
    if (is_contiguous && f.is_costly &&
        n / BIG_ROUNDS >= (int64_t)attribute(cudaDevAttrMultiProcessorCount) *
                              attribute(cudaDevAttrMaxThreadsPerMultiProcessor))
        k.more[2] = k.vector < 8 ? 2 : 4;
}

static og_reduced_facts facts_of(const Facts &f, int dtype)
{
    og_reduced_facts reduced = f.reduced;
    const int wider = dtype == 3 ? 2 : 1; /* than float32 */
    reduced.keeps_halves = (dtype == 1 || dtype == 2) && f.reduced.keeps_halves;
    reduced.kept *= wider * wider;
    reduced.sum_bytes *= wider;
    reduced.all_bytes *= wider;
    reduced.loads *= wider;
    reduced.loads_beside *= wider;
    return reduced;
}

static void shape_rows(const Facts &f, const Args &a, Numbers &k)
{
    const og_reduced_facts reduced = facts_of(f, k.dtype);
    const int64_t n = count_of(a, a.kept, k.dims), chunk = std::min<int64_t>(n, OG_ROWS_CHUNK);
    const int vector = best_vector(f, a, k);
    og_rows_shape s = og_shape_rows(&reduced, chunk, vector, true);
    if (n > OG_ROWS_CHUNK || (reduced.kept && !s.keeps)) {
        const int64_t chunks = og_count_parts(n, OG_ROWS_CHUNK);
        k.body = ROWS_SPLIT;
        s = og_shape_rows(&reduced, OG_ROWS_CHUNK, vector, false);
        s.whole = s.whole && n % OG_ROWS_CHUNK == 0;
        k.more[7] = og_combiners_of(chunks);
        k.more[8] = og_combine_threads(chunks);
    } else {
        k.body = ROWS;
    }
    const int numbers[] = {s.group,  s.vectors, s.steps, s.flight,
                           s.keeps, a.reduced == 1, og_whole_steps(&s)};
    std::copy(std::begin(numbers), std::end(numbers), k.more);
    k.vector = s.vector;
    k.threads = s.threads;
}

static void shape_columns(const Facts &f, const Args &a, Numbers &k)
{
    const og_reduced_facts reduced = facts_of(f, k.dtype);
    const og_columns_shape s = og_shape_columns(
        &reduced, count_of(a, a.kept, k.dims), a.extent[a.kept - 1], count_of(a, 0, a.kept - 1),
        best_vector(f, a, k), attribute(cudaDevAttrMultiProcessorCount));
    const int numbers[] = {s.x, s.y, s.runs, s.flight, og_columns_shared_bytes(&reduced, &s),
                           f.wanted_blocks};
    k.body = s.split ? COLUMNS_SPLIT : s.tiles > 1 ? COLUMNS_TILES : COLUMNS;
    std::copy(std::begin(numbers), std::end(numbers), k.more);
    k.vector = s.vector;
    k.threads = s.threads;
}

/* The unit that has these numbers, or NULL: it is missing. text: of its numbers. */
template <class Text> static UnitRun find_any(const Numbers &k, Text text)
{
    static std::vector<Numbers> found;
    for (const Numbers &one : found)
        if (!memcmp(&one, &k, offsetof(Numbers, run)))
            return one.run;
    const UnitRun run = find_unit(k.facts->name, text());
    if (run) {
        found.push_back(k);
        found.back().run = run;
    }
    return run;
}

/* Runs the unit that has these numbers; false: it is missing. */
template <class Text>
static bool run_any(const Numbers &k, Args &a, const at::TensorOptions &options, Text text,
                    const char *name)
{
    const UnitRun run = find_any(k, text);
    if (!run)
        return false;
    a.stream = c10::cuda::getCurrentCUDAStream();
    const int64_t bytes = run(&a);
    const Tensor scratch = bytes ? at::empty({bytes}, options.dtype(at::kByte)) : Tensor();
    a.scratch = bytes ? scratch.data_ptr() : &a;
    C10_CUDA_CHECK((cudaError_t)run(&a));
    served[k.facts->name] = name;
    return true;
}

static Numbers start_numbers(const Facts &f, const at::TensorOptions &options)
{
    Numbers k;
    memset(&k, 0, sizeof k); /* the bytes between members, too: find_any() compares all */
    k.facts = &f;
    k.dtype = dtype_number(at::typeMetaToScalarType(options.dtype()));
    return k;
}

/* Runs a kernel that reduces nothing; false: its unit is missing. */
static bool run_vectors(const Facts &f, Args &a, const at::TensorOptions &options)
{
    if (count_of(a, 0, a.kept) == 0)
        return true;
    Numbers k = start_numbers(f, options);
    order_dims(f, a);
    k.body = VECTORS;
    k.vector_dim = a.kept - 1;
    see_layout(f, a, k);
    shape_vectors(f, a, k);
    return run_any(k, a, options, [&] { return text_of(k); }, body_name(k.body));
}

/* Runs a kernel that reduces rows or columns; false: its unit is missing. */
static bool run_reduced(const Facts &f, Args &a, const at::TensorOptions &options)
{
    if (count_of(a, 0, a.kept) == 0)
        return true;
    Numbers k = start_numbers(f, options);
    const bool is_across = order_dims(f, a);
    k.vector_dim = is_across ? a.kept - 1 : a.kept + a.reduced - 1;
    see_layout(f, a, k);
    if (is_across)
        shape_columns(f, a, k);
    else
        shape_rows(f, a, k);
    return run_any(k, a, options, [&] { return text_of(k); }, body_name(k.body));
}
