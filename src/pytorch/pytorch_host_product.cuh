/* SPDX-License-Identifier: MIT */

/* Products, but those of float32 on Hopper: on tensor cores where these take them, else on CUDA
 * cores. Dims are those of the batch, of rows and of columns. */
enum { TILES = 7, MMA_PAIRS, MMA_HALVES };

struct ProductFacts {
    Facts of;
    int batch_dims, m_dims, n_dims, kept_dims;
    bool kept_factors[2]; /* they are of another kernel: float32, or float64 if tensors are */
    bool exchanged, reduces;
};

static std::string text_of_product(const ProductFacts &f, const Numbers &k)
{
    static const char *const names[][10] = {
        {"OG_TM", "OG_TN", "OG_LANES_N", "OG_WARPS_M", "OG_WARPS_N", "OG_BK", "OG_BLOCKS",
         "OG_LEVELS", "OG_SPLIT"},
        {"OG_BM", "OG_BN", "OG_STAGES", "OG_SHARED_BYTES", "OG_PAIRS", "OG_BFLOAT",
         "OG_SPLIT_KEEPS", "OG_SPLIT_PLANES", "OG_SPLIT_SHUFFLES"}};
    static const char *const types[] = {"float", "uint16_t", "uint16_t", "double"};
    const int kept = k.dtype == 3 ? 3 : 0;
    std::string text = text_of_layout(k);
    text += std::string("OG_LEFT ") + types[f.kept_factors[0] ? kept : k.dtype] + "\nOG_RIGHT " +
            types[f.kept_factors[1] ? kept : k.dtype] + "\n";
    add_number(text, "OG_PRODUCTS", 1);
    add_number(text, "OG_N_DIMS", f.n_dims);
    add_number(text, "OG_BATCH_DIMS", f.batch_dims);
    add_number(text, "OG_ALONG_LEFT", k.along[0]);
    add_number(text, "OG_ALONG_RIGHT", k.along[1]);
    add_number(text, "OG_ENDS_ROWS", k.ends_rows);
    add_number(text, "OG_COMBINERS", k.combiners);
    add_number(text, "OG_COMBINE_THREADS", k.combiners == 32 ? 128 : 512);
    if (k.body != TILES) {
        add_number(text, "OG_BK", 64);
        add_number(text, "OG_QUADS", 2);
        add_number(text, "OG_REDO_BYTES", OG_CUDA_REDO_BYTES);
        add_number(text, "OG_SPLIT_WIDENS", 0);
    }
    for (int i = 0; i < 9; i++)
        add_number(text, names[k.body != TILES][i], k.more[i]);
    return text;
}

/* Tiles of CUDA cores: large ones, if that leaves no multiprocessor idle. */
static void shape_tiles(Numbers &k, int64_t batch, int64_t m, int64_t n, int64_t depth)
{
    static const int tiles[2][3][7] = {
        {{8, 8, 8, 4, 2, 16, 1}, {8, 8, 8, 2, 1, 16, 4}, {4, 8, 8, 1, 1, 16, 8}},
        {{4, 8, 8, 4, 1, 8, 2}, {4, 8, 8, 1, 2, 8, 4}, {4, 8, 8, 1, 1, 8, 8}}}; /* of float64 */
    const int processors = attribute(cudaDevAttrMultiProcessorCount);
    for (int i = 0; i < 3; i++) {
        const int *t = tiles[k.dtype == 3][i];
        const int64_t rows = 32 / t[2] * t[0] * t[3], columns = t[2] * t[1] * t[4];
        std::copy(t, t + 7, k.more);
        k.threads = 32 * t[3] * t[4];
        if (batch * og_count_parts(m, rows) * og_count_parts(n, columns) >= processors)
            break;
    }
    k.more[7] = depth <= 256 ? 1 : depth <= 4096 ? 2 : 3;
}

static void shape_mma(Numbers &k, int64_t batch, int64_t m, int64_t n, int64_t depth, bool is_bfloat)
{
    const bool is_half = k.body == MMA_HALVES;
    const int most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    const int rows = m <= 32 ? 32 : m <= 64 ? 64 : 128;
    int columns = 128, stages = 2;
    if (batch * og_count_parts(m, rows) * og_count_parts(n, columns) <
            attribute(cudaDevAttrMultiProcessorCount) ||
        og_mma_shared_bytes(rows, columns, stages, is_half) > most)
        columns = 64;
    while (is_half && stages < 4 && og_mma_shared_bytes(rows, columns, stages + 1, is_half) <= most)
        stages++;
    const int numbers[] = {rows,    columns,   stages, og_mma_shared_bytes(rows, columns, stages, is_half),
                           !is_half, is_bfloat, og_cuda_split_keeps(og_count_parts(depth, 64) * 64)};
    std::copy(std::begin(numbers), std::end(numbers), k.more);
    k.threads = 256;
}

/* What neighbours of a factor in memory are: 0: k, 1: rows, 2: neither. */
static int along_of(const Args &a, int operand, int64_t step, int dim)
{
    return step == 1 ? 0 : dim >= 0 && a.stride[operand][dim] == 1 ? 1 : 2;
}

/* Which units multiply. */
static int product_body(const ProductFacts &f, const Args &a, int64_t n, const Numbers &k)
{
    const int last = f.of.operands, dims = f.batch_dims + f.m_dims + f.n_dims;
    const int left = f.kept_factors[0] ? 0 : k.dtype, right = f.kept_factors[1] ? 0 : k.dtype;
    const bool has_columns = f.n_dims && a.stride[last + 1][dims - 1] != 0 && !f.exchanged;
    if (k.dtype == 3 || left != right || !has_columns || n < 128 || a.k < 128 ||
        attribute(cudaDevAttrComputeCapabilityMajor) < 8 ||
        attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) < 99 * 1024)
        return TILES;
    return left == 0 ? MMA_PAIRS : MMA_HALVES;
}

/* Runs a product; false: its unit is missing. */
static bool run_product(const ProductFacts &f, Args &a, const at::TensorOptions &options)
{
    static const char *const names[] = {"CUDA cores", "float32 as pairs of float16 on tensor cores (mma.sync)",
                                        "tensor cores (mma.sync)"};
    const int dims = f.batch_dims + f.m_dims + f.n_dims, last = f.of.operands;
    const int64_t batch = count_of(a, 0, f.batch_dims);
    const int64_t m = count_of(a, f.batch_dims, f.batch_dims + f.m_dims);
    const int64_t n = count_of(a, f.batch_dims + f.m_dims, dims);
    if (batch == 0 || m == 0 || (n == 0 && !f.reduces))
        return true;
    Numbers k = start_numbers(f.of, options);
    k.vector_dim = f.n_dims ? dims - 1 : -1;
    a.kept = dims;
    a.reduced = 0;
    see_layout(f.of, a, k);
    for (int i = last; i < last + 2; i++)
        if (reach_of(a, i, dims) + std::abs((double)a.k_stride[i - last]) * ((double)a.k + 256) >
            INT32_MAX / 4)
            k.bits = 64;
    if ((double)batch * ((double)m + 256) * ((double)n + 256) > INT32_MAX / 4)
        k.bits = 64;
    k.kept = f.kept_dims;
    k.vector = 4;
    k.body = product_body(f, a, n, k);
    k.along[0] = along_of(a, last, a.k_stride[0], f.m_dims == 1 ? f.batch_dims : -1);
    k.along[1] = along_of(a, last + 1, a.k_stride[1], f.n_dims ? dims - 1 : -1);
    k.ends_rows = n <= 64;
    k.combiners = og_combiners_of(og_count_parts(n, 64));
    a.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    if (k.body == TILES)
        shape_tiles(k, batch, m, n, a.k);
    else
        shape_mma(k, batch, m, n, a.k, k.dtype == 2);
    return run_any(k, a, options, [&] { return text_of_product(f, k); }, names[k.body - TILES]);
}
