/* SPDX-License-Identifier: MIT */

/* Does a factor, as it lies, move along k by 16 bytes of what is multiplied? */
static bool is_direct(const ProductArgs &p, const Factor &f, int64_t size, int64_t multiplied)
{
    bool fits = f.k_stride == 1 && size == multiplied && (uintptr_t)f.data % 16 == 0;
    for (int d = 0; d < p.batch_dims + p.m_dims + p.n_dims; d++)
        fits = fits && f.stride[d] * size % 16 == 0;
    return fits;
}

/* A copy of a factor for product_tensor(); scales: see there. */
template <class T, class P, bool direct>
static void *copy_factor(const Launching &l, const TensorArgs &t, int which, bool is_kept,
                         float *scales)
{
    const int64_t all = t.p.rows / t.p.m * (which % 2 ? t.p.n : t.p.m);
    const int64_t blocks = divide_up(all, THREADS / 32) * divide_up(t.p.k, RUN);
    void *copy = l.allocate(l.held, all * t.steps * LINE);
    if (blocks == 0)
        return copy;
    arrange<T, P, direct><<<grid_of(blocks), THREADS, 0, (cudaStream_t)l.stream>>>(
        t.p, which, is_kept, t.steps, copy, scales);
    check_cuda(cudaGetLastError());
    return copy;
}

/* Sets what product_tensor() takes of p.factor[which]. */
template <class T, class P>
static void prepare_factor(const Launching &l, TensorArgs &t, int which, bool is_kept)
{
    const ProductArgs &p = t.p;
    const Factor &f = p.factor[which];
    const int product = which / 2, right = which % 2;
    if (t.arranged == right) {
        const int64_t all = p.rows / p.m * (right ? p.n : p.m);
        float *scales =
            (float *)l.allocate(l.held, divide_up(p.k, RUN) * all * (int64_t)sizeof(float));
        t.scales[product] = scales;
        t.lines[product] =
            (const unsigned short *)copy_factor<T, P, false>(l, t, which, is_kept, scales);
        return;
    }
    Factor &to = t.direct[product];
    to = f;
    if (is_direct(p, f, is_kept ? sizeof(float) : sizeof(T), sizeof(P)))
        return;
    to = {copy_factor<T, P, true>(l, t, which, is_kept, NULL), {}, 1};
    int64_t stride = t.steps * line_k(sizeof(P));
    for (int d = p.batch_dims + p.m_dims + p.n_dims - 1; d >= 0; d--)
        if (d < p.batch_dims || (d >= p.batch_dims + p.m_dims) == (right != 0)) {
            to.stride[d] = stride;
            stride *= p.a.extent[d];
        }
}

template <class Kernel, class A>
static void launch_product(const Launching &l, Kernel kernel, int64_t blocks, size_t shared,
                           const A &a)
{
    if (blocks == 0)
        return;
    check_cuda(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<grid_of(blocks), THREADS, shared, (cudaStream_t)l.stream>>>(a);
    check_cuda(cudaGetLastError());
}

template <template <int> class K, class T>
static void run_tensor(const Launching &l, const ProductArgs &p, int64_t blocks, size_t room)
{
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    const size_t tiles = S::PRODUCTS * TILE * FINISH_PITCH * sizeof(float);
    const size_t offsets = 2 * TILE * sizeof(void *);
    TensorArgs t = {};
    t.p = p;
    t.arranged = p.n < p.m;
    t.steps = (int)divide_up(p.k, line_k(sizeof(P)));
    for (int i = 0; i < 2 * S::PRODUCTS; i++)
        prepare_factor<T, P>(l, t, i, S::KEPT_FACTORS >> i & 1);
    const bool has_room = 3 * STAGE_BYTES + offsets + tiles <= room;
    const size_t rest = offsets + (has_room ? tiles : 0);
    t.stages = 4 * STAGE_BYTES + rest <= room ? 4 : 3;
    if (!has_room)
        t.tiles = (float *)l.allocate(l.held, blocks * (int64_t)tiles);
    launch_product(l, product_tensor<K, T>, blocks, t.stages * STAGE_BYTES + rest, t);
}

/* Factors are operands OPERANDS, OPERANDS + 1, ... of a; dims: batch, m's, n's. */
template <template <int> class K, class T>
static void run_product(const Launching &l, Args a, int batch_dims, int m_dims, int n_dims,
                        int64_t k, const int64_t *k_strides)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    const int operands = S::OPERANDS + 2 * S::PRODUCTS;
    const bool reduces = a.reduced > 0;
    ProductArgs p = {};
    int dims = batch_dims + m_dims + n_dims;
    const int64_t batches = count_of(a, 0, batch_dims);
    p.k = k;
    p.m = count_of(a, batch_dims, m_dims);
    p.n = count_of(a, batch_dims + m_dims, n_dims);
    p.rows = batches * p.m;
    p.n_dims = simplify(a, operands, batch_dims + m_dims, n_dims, dims, -1);
    dims -= n_dims - p.n_dims;
    p.m_dims = simplify(a, operands, batch_dims, m_dims, dims, -1);
    dims -= m_dims - p.m_dims;
    p.batch_dims = simplify(a, operands, 0, batch_dims, dims, -1);
    a.reduced = reduces ? p.n_dims : 0;
    a.kept = p.batch_dims + p.m_dims + (reduces ? 0 : p.n_dims);
    for (int i = 0; i < 2 * S::PRODUCTS; i++) {
        p.factor[i].data = a.data[S::OPERANDS + i];
        for (int d = 0; d < MAX_DIMS; d++)
            p.factor[i].stride[d] = a.stride[S::OPERANDS + i][d];
        p.factor[i].k_stride = k_strides[i];
    }
    p.a = a;
    if (p.rows == 0)
        return;
    const size_t room = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    const bool tensor = sizeof(T) < 8 && attribute(cudaDevAttrComputeCapabilityMajor) >= 8 &&
                        room >= 3 * STAGE_BYTES + 2 * TILE * sizeof(void *);
    const int64_t side = tensor ? (int64_t)TILE : (int64_t)PLAIN_TILE;
    p.m_tiles = divide_up(p.m, side);
    p.n_tiles = divide_up(p.n, side);
    p.terms = l.allocate(l.held, S::TERMS * p.n_tiles * p.rows * (int64_t)sizeof(Partial<C>));
    const int64_t blocks = batches * p.m_tiles * p.n_tiles;
    if (!tensor)
        launch_product(l, product_plain<K, T>, blocks,
                       S::PRODUCTS * PLAIN_TILE * PLAIN_PITCH * sizeof(C), p);
    else if constexpr (sizeof(T) < 8)
        run_tensor<K, T>(l, p, blocks, room);
    if constexpr (S::TERMS > 0) {
        finish_rows<K, 0, T><<<grid_of(divide_up(p.rows, THREADS / 32)), THREADS, 0,
                               (cudaStream_t)l.stream>>>(p.a, p.n_tiles, p.terms,
                                                                   (void *)0);
        check_cuda(cudaGetLastError());
    }
}
