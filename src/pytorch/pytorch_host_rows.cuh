/* SPDX-License-Identifier: MIT */

/* Sweeps of few long rows, one after the other. */
template <template <int> class K, int sweep, class T>
static void run_segments(const Args &a, int lanes, bool by_columns, dim3 grid, int64_t segment,
                         void *terms, void *values)
{
    typedef K<sweep> S;
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    sweep_segments<K, sweep, T>
        <<<grid, THREADS, 0, stream>>>(a, lanes, by_columns, segment, terms, values);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (S::TERMS || S::ROW_LOADS || S::ROW_STORES) {
        finish_rows<K, sweep, T>
            <<<grid_of(divide_up(count_of(a, 0, a.kept), THREADS / 32)), THREADS, 0, stream>>>(
                a, grid.x, terms, values);
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    if constexpr (sweep + 1 < S::SWEEPS)
        run_segments<K, sweep + 1, T>(a, lanes, by_columns, grid, segment, terms, values);
}

/* lead: the operand whose memory decides the order of dims. */
template <template <int> class K, class T>
static void run_rows(Args a, int lead, const at::TensorOptions &options)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    const int64_t rows = count_of(a, 0, a.kept), elements = count_of(a, a.kept, a.reduced);
    if (rows == 0)
        return;
    a.reduced = simplify(a, S::OPERANDS, a.kept, a.reduced, a.kept + a.reduced, lead);
    a.kept = simplify(a, S::OPERANDS, 0, a.kept, a.kept + a.reduced, lead);
    const int64_t row_step = a.reduced ? a.stride[lead][a.kept + a.reduced - 1] : 1;
    const int64_t kept_step = a.kept ? a.stride[lead][a.kept - 1] : 0;
    const bool by_columns = kept_step != 0 && std::abs(kept_step) < std::abs(row_step);
    int lanes = by_columns ? THREADS / 32 : THREADS;
    while (lanes > 4 && lanes * 4 > elements)
        lanes /= 2;
    const int64_t blocks = divide_up(rows, THREADS / lanes);
    const int64_t wanted = INT64_C(4) * attribute(cudaDevAttrMultiProcessorCount);
    const int64_t segments =
        std::min(divide_up(wanted, blocks), divide_up(elements, lanes * INT64_C(32)));
    if (segments > 1 && blocks < wanted / 4) {
        const int64_t segment = divide_up(elements, segments);
        const Tensor terms = at::empty({segments * rows * S::MOST_TERMS * (int64_t)sizeof(Partial<C>)},
                                       options.dtype(at::kByte));
        const Tensor values = at::empty({rows * S::ROW_VALUES * (int64_t)sizeof(C)},
                                        options.dtype(at::kByte));
        const dim3 grid((unsigned)segments, (unsigned)blocks);
        run_segments<K, 0, T>(a, lanes, by_columns, grid, segment, terms.data_ptr(),
                              values.data_ptr());
        return;
    }
    whole_rows<K, T><<<grid_of(blocks), THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a, lanes, by_columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
