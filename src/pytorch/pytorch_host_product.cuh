/* SPDX-License-Identifier: MIT */

/* Dims `dims` of t as the one dim that is summed; its stride, or t is copied so that it
 * has one. */
static int64_t join_summed(Tensor &t, std::initializer_list<int> dims)
{
    for (int round = 0; round < 2; round++) {
        int64_t stride = 0, extent = 1;
        bool joins = true;
        for (const int *d = dims.end(); d-- != dims.begin();) {
            if (t.size(*d) == 1)
                continue;
            joins = joins && (extent == 1 || t.stride(*d) == stride * extent);
            stride = extent == 1 ? t.stride(*d) : stride;
            extent *= t.size(*d);
        }
        if (joins || t.numel() == 0)
            return stride;
        t = t.contiguous();
    }
    return 0;
}

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
static Tensor copy_factor(const TensorArgs &t, int which, bool is_kept, float *scales,
                          const at::TensorOptions &options)
{
    const int64_t all = t.p.rows / t.p.m * (which % 2 ? t.p.n : t.p.m);
    const int64_t blocks = divide_up(all, THREADS / 32) * divide_up(t.p.k, RUN);
    Tensor copy = at::empty({all * t.steps * LINE}, options.dtype(at::kByte));
    if (blocks == 0)
        return copy;
    arrange<T, P, direct><<<grid_of(blocks), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        t.p, which, is_kept, t.steps, copy.data_ptr(), scales);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return copy;
}

/* Sets what product_tensor() takes of p.factor[which]; copies are put into `held`. */
template <class T, class P>
static void prepare_factor(TensorArgs &t, int which, bool is_kept, std::vector<Tensor> &held,
                           const at::TensorOptions &options)
{
    const ProductArgs &p = t.p;
    const Factor &f = p.factor[which];
    const int product = which / 2, right = which % 2;
    if (t.arranged == right) {
        const int64_t all = p.rows / p.m * (right ? p.n : p.m);
        const Tensor scales = at::empty({divide_up(p.k, RUN) * all}, options.dtype(at::kFloat));
        held.push_back(scales);
        held.push_back(copy_factor<T, P, false>(t, which, is_kept, (float *)scales.data_ptr(),
                                                options));
        t.scales[product] = (const float *)scales.data_ptr();
        t.lines[product] = (const unsigned short *)held.back().data_ptr();
        return;
    }
    Factor &to = t.direct[product];
    to = f;
    if (is_direct(p, f, is_kept ? sizeof(float) : sizeof(T), sizeof(P)))
        return;
    held.push_back(copy_factor<T, P, true>(t, which, is_kept, NULL, options));
    to = {held.back().data_ptr(), {}, 1};
    int64_t stride = t.steps * line_k(sizeof(P));
    for (int d = p.batch_dims + p.m_dims + p.n_dims - 1; d >= 0; d--)
        if (d < p.batch_dims || (d >= p.batch_dims + p.m_dims) == (right != 0)) {
            to.stride[d] = stride;
            stride *= p.a.extent[d];
        }
}

template <class Kernel, class A>
static void launch_product(Kernel kernel, int64_t blocks, size_t shared, const A &a)
{
    if (blocks == 0)
        return;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<grid_of(blocks), THREADS, shared, c10::cuda::getCurrentCUDAStream()>>>(a);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

template <template <int> class K, class T>
static void run_tensor(const ProductArgs &p, int64_t blocks, size_t room,
                       const at::TensorOptions &options)
{
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    const size_t tiles = S::PRODUCTS * TILE * FINISH_PITCH * sizeof(float);
    const size_t offsets = 2 * TILE * sizeof(void *);
    TensorArgs t = {};
    std::vector<Tensor> held;
    t.p = p;
    t.arranged = p.n < p.m;
    t.steps = (int)divide_up(p.k, line_k(sizeof(P)));
    for (int i = 0; i < 2 * S::PRODUCTS; i++)
        prepare_factor<T, P>(t, i, S::KEPT_FACTORS >> i & 1, held, options);
    const bool has_room = 3 * STAGE_BYTES + offsets + tiles <= room;
    const size_t rest = offsets + (has_room ? tiles : 0);
    t.stages = 4 * STAGE_BYTES + rest <= room ? 4 : 3;
    if (!has_room) {
        held.push_back(at::empty({blocks * (int64_t)tiles}, options.dtype(at::kByte)));
        t.tiles = (float *)held.back().data_ptr();
    }
    launch_product(product_tensor<K, T>, blocks, t.stages * STAGE_BYTES + rest, t);
}

/* Factors are operands OPERANDS, OPERANDS + 1, ... of a; dims: batch, m's, n's. */
template <template <int> class K, class T>
static void run_product(Args a, int batch_dims, int m_dims, int n_dims, int64_t k,
                        std::initializer_list<int64_t> k_strides, const at::TensorOptions &options)
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
        p.factor[i].k_stride = k_strides.begin()[i];
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
    const Tensor terms = at::empty({S::TERMS * p.n_tiles * p.rows * (int64_t)sizeof(Partial<C>)},
                                   options.dtype(at::kByte));
    p.terms = terms.data_ptr();
    const int64_t blocks = batches * p.m_tiles * p.n_tiles;
    if (!tensor)
        launch_product(product_plain<K, T>, blocks,
                       S::PRODUCTS * PLAIN_TILE * PLAIN_PITCH * sizeof(C), p);
    else if constexpr (sizeof(T) < 8)
        run_tensor<K, T>(p, blocks, room, options);
    if constexpr (S::TERMS > 0) {
        finish_rows<K, 0, T><<<grid_of(divide_up(p.rows, THREADS / 32)), THREADS, 0,
                               c10::cuda::getCurrentCUDAStream()>>>(p.a, p.n_tiles, p.terms,
                                                                   (void *)0);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
}
