/* SPDX-License-Identifier: MIT */

/* Sweeps of few long rows, one after the other. */
template <template <int> class K, int sweep, class T>
static void run_segments(const Launching &l, const Args &a, int lanes, bool by_columns, dim3 grid,
                         int64_t segment, void *terms, void *values)
{
    typedef K<sweep> S;
    const cudaStream_t stream = (cudaStream_t)l.stream;
    sweep_segments<K, sweep, T>
        <<<grid, THREADS, 0, stream>>>(a, lanes, by_columns, segment, terms, values);
    check_cuda(cudaGetLastError());
    if (S::TERMS || S::ROW_LOADS || S::ROW_STORES) {
        finish_rows<K, sweep, T>
            <<<grid_of(divide_up(count_of(a, 0, a.kept), THREADS / 32)), THREADS, 0, stream>>>(
                a, grid.x, terms, values);
        check_cuda(cudaGetLastError());
    }
    if constexpr (sweep + 1 < S::SWEEPS)
        run_segments<K, sweep + 1, T>(l, a, lanes, by_columns, grid, segment, terms, values);
}

/* lead: the operand whose memory decides the order of dims. */
template <template <int> class K, class T>
static void run_rows(const Launching &l, Args a, int lead)
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
        void *terms =
            l.allocate(l.held, segments * rows * S::MOST_TERMS * (int64_t)sizeof(Partial<C>));
        void *values = l.allocate(l.held, rows * S::ROW_VALUES * (int64_t)sizeof(C));
        const dim3 grid((unsigned)segments, (unsigned)blocks);
        run_segments<K, 0, T>(l, a, lanes, by_columns, grid, segment, terms, values);
        return;
    }
    whole_rows<K, T><<<grid_of(blocks), THREADS, 0, (cudaStream_t)l.stream>>>(
        a, lanes, by_columns);
    check_cuda(cudaGetLastError());
}
