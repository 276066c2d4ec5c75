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

/* How load_tile() moves a factor whose elements are `size` bytes of the `held` multiplied. */
static int choose_way(const ProductArgs &p, const Factor &f, int first, int count, int64_t size,
                      int64_t held)
{
    const int dims = p.batch_dims + p.m_dims + p.n_dims;
    const bool is_unit = count == 1 && f.stride[first] == 1;
    bool aligned = size == held && (uintptr_t)f.data % 16 == 0;
    for (int d = 0; d < dims; d++)
        if (!(is_unit && d == first))
            aligned = aligned && f.stride[d] * size % 16 == 0;
    if (f.k_stride == 1 && (!is_unit || p.k > 1))
        return aligned ? 1 : 0;
    if (is_unit)
        return aligned && f.k_stride * size % 16 == 0 ? 2 : 3;
    return 0;
}

template <template <int> class K, class T> static void set_ways(ProductArgs &p)
{
    typedef K<0> S;
    typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
    for (int i = 0; i < 2 * S::PRODUCTS; i++) {
        const bool right = i % 2;
        p.factor[i].way = choose_way(p, p.factor[i], p.batch_dims + (right ? p.m_dims : 0),
                                     right ? p.n_dims : p.m_dims,
                                     S::KEPT_FACTORS >> i & 1 ? sizeof(float) : sizeof(T),
                                     sizeof(P));
    }
}

template <class Kernel, class... More>
static void launch_product(Kernel kernel, int64_t blocks, size_t shared, const ProductArgs &p,
                           More... more)
{
    if (blocks == 0)
        return;
    C10_CUDA_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<grid_of(blocks), THREADS, shared, c10::cuda::getCurrentCUDAStream()>>>(p, more...);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
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
    bool tensor = false, has_room = false;
    int64_t side = PLAIN_TILE;
    size_t shared = S::PRODUCTS * PLAIN_TILE * PLAIN_PITCH * sizeof(C);
    if constexpr (sizeof(T) < 8) {
        typedef typename Multiplied<T, S::KEPT_FACTORS != 0>::type P;
        const size_t room = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
        const size_t tile = S::PRODUCTS * TILE * FINISH_PITCH * sizeof(float);
        const size_t least = std::max(sizeof(TensorShared<P>), tile);
        tensor = attribute(cudaDevAttrComputeCapabilityMajor) >= 8 && room >= least;
        has_room = S::PRODUCTS == 1 && room >= sizeof(TensorShared<P>) + tile;
        side = tensor ? (int64_t)TILE : side;
        shared = has_room ? sizeof(TensorShared<P>) + tile : tensor ? least : shared;
    }
    p.m_tiles = divide_up(p.m, side);
    p.n_tiles = divide_up(p.n, side);
    const Tensor terms = at::empty({S::TERMS * p.n_tiles * p.rows * (int64_t)sizeof(Partial<C>)},
                                   options.dtype(at::kByte));
    p.terms = terms.data_ptr();
    const int64_t blocks = batches * p.m_tiles * p.n_tiles;
    if constexpr (sizeof(T) < 8) {
        if (tensor) {
            set_ways<K, T>(p);
            launch_product(product_tensor<K, T>, blocks, shared, p, has_room);
        }
    }
    if (!tensor)
        launch_product(product_plain<K, T>, blocks, shared, p);
    if constexpr (S::TERMS > 0) {
        finish_rows<K, 0, T><<<grid_of(divide_up(p.rows, THREADS / 32)), THREADS, 0,
                               c10::cuda::getCurrentCUDAStream()>>>(p.a, p.n_tiles, p.terms,
                                                                   (void *)0);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
}
