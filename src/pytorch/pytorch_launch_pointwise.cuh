/* SPDX-License-Identifier: MIT */

template <template <int> class K, class T>
static void run_pointwise(const Launching &l, Args a, int lead)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    const int V = 16 / (int)sizeof(T);
    if (count_of(a, 0, a.kept) == 0)
        return;
    a.kept = simplify(a, S::OPERANDS, 0, a.kept, a.kept, lead);
    if (a.kept == 0) {
        a.extent[a.kept++] = 1;
        for (int i = 0; i < S::OPERANDS; i++)
            a.stride[i][0] = 1;
    }
    const int inner = a.kept - 1;
    bool is_flat = a.kept == 1;
    for (int i = 0; i < S::OPERANDS; i++) {
        const int64_t size = (S::KEPT >> i & 1) ? sizeof(C) : sizeof(T);
        bool whole = a.stride[i][inner] == 1 && (uintptr_t)a.data[i] % 16 == 0;
        for (int d = 0; d < inner; d++)
            whole = whole && a.stride[i][d] * size % 16 == 0;
        a.vectors |= (unsigned)whole << i;
        is_flat = is_flat && (whole || a.stride[i][inner] == 0);
    }
    const int64_t all = count_of(a, 0, inner) * divide_up(a.extent[inner], V);
    const int each = is_flat ? Flat<S>::THREADS * Flat<S>::BATCH : THREADS;
    const unsigned grid = grid_of(divide_up(all, each));
    const cudaStream_t stream = (cudaStream_t)l.stream;
    if (is_flat)
        pointwise_flat<K, T><<<grid, Flat<S>::THREADS, 0, stream>>>(a);
    else if (std::max(all + THREADS, (int64_t)a.extent[inner] + V) < INT64_C(1) << 31)
        pointwise<K, T, int><<<grid, THREADS, 0, stream>>>(a);
    else
        pointwise<K, T, long long><<<grid, THREADS, 0, stream>>>(a);
    check_cuda(cudaGetLastError());
}
