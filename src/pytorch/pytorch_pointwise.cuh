/* Pointwise: a thread takes vectors of 16 bytes along the innermost dim. Each operand
 * moves as whole vectors where it lies so (a.vectors), else element by element. Loads come
 * first, so that all of them are under way at once. Index is int where that is enough. */
template <class E, int V> struct alignas(sizeof(E) * V < 16 ? sizeof(E) * V : 16) Vector {
    E e[V];
};

template <class E, class C, int V>
__device__ __forceinline__ void load_vector(const E *from, bool whole, long long step, int count,
                                            C *to)
{
    if (whole) {
        Vector<E, V> v = *(const Vector<E, V> *)from;
#pragma unroll
        for (int e = 0; e < V; e++)
            to[e] = (C)number_of(v.e[e]);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            to[e] = e < count ? (C)number_of(from[e * step]) : (C)0;
    }
}

template <class E, class C, int V>
__device__ __forceinline__ void store_vector(E *to, bool whole, long long step, int count,
                                             const C *from)
{
    if (whole) {
        Vector<E, V> v;
#pragma unroll
        for (int e = 0; e < V; e++)
            put(from[e], v.e[e]);
        *(Vector<E, V> *)to = v;
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (e < count)
                put(from[e], to[e * step]);
    }
}

template <template <int> class K, class T, class Index>
__global__ void __launch_bounds__(THREADS) pointwise(const Args a)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    constexpr int V = 16 / sizeof(T), VECTORS = S::LOADS < 2 ? 4 : S::LOADS == 2 ? 2 : 1;
    const int inner = a.kept - 1;
    const Index extent = (Index)a.extent[inner], along = (extent + V - 1) / V;
    Index outer = 1;
    for (int d = 0; d < inner; d++)
        outer *= (Index)a.extent[d];
    const Index first = (Index)blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
    C in[VECTORS][S::LOADS ? S::LOADS : 1][V];
#pragma unroll
    for (int u = 0; u < VECTORS; u++) {
        const Index index = first + u * THREADS;
        if (index >= outer * along)
            continue;
        const Index line = inner ? index / along : 0, e = (index - line * along) * V;
        const int count = extent - e < V ? (int)(extent - e) : V;
        long long at[S::OPERANDS] = {};
        move<S::OPERANDS>(a, line, 0, inner, at);
#pragma unroll
        for (int l = 0; l < S::LOADS; l++) {
            const int i = S::loaded(l);
            const long long step = a.stride[i][inner], from = at[i] + e * step;
            const bool whole = (a.vectors >> i & 1) && count == V;
            if ((S::KEPT >> i & 1))
                load_vector<C, C, V>((const C *)a.data[i] + from, whole, step, count, in[u][l]);
            else
                load_vector<T, C, V>((const T *)a.data[i] + from, whole, step, count, in[u][l]);
        }
    }
#pragma unroll
    for (int u = 0; u < VECTORS; u++) {
        const Index index = first + u * THREADS;
        if (index >= outer * along)
            continue;
        const Index line = inner ? index / along : 0, e = (index - line * along) * V;
        const int count = extent - e < V ? (int)(extent - e) : V;
        long long at[S::OPERANDS] = {};
        move<S::OPERANDS>(a, line, 0, inner, at);
        C out[S::STORES][V];
#pragma unroll
        for (int v = 0; v < V; v++) {
            C x[S::LOADS ? S::LOADS : 1], y[S::STORES];
#pragma unroll
            for (int l = 0; l < S::LOADS; l++)
                x[l] = in[u][l][v];
            S::template element<C>(a.number, x, (const C *)0, (const C *)0, y, (C *)0);
#pragma unroll
            for (int s = 0; s < S::STORES; s++)
                out[s][v] = y[s];
        }
#pragma unroll
        for (int s = 0; s < S::STORES; s++) {
            const int i = S::stored(s);
            const long long step = a.stride[i][inner], to = at[i] + e * step;
            const bool whole = (a.vectors >> i & 1) && count == V;
            if ((S::KEPT >> i & 1))
                store_vector<C, C, V>((C *)a.data[i] + to, whole, step, count, out[s]);
            else
                store_vector<T, C, V>((T *)a.data[i] + to, whole, step, count, out[s]);
        }
    }
}
