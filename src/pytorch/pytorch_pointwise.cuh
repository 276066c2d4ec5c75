/* Pointwise: a thread takes a vector of 16 bytes along the innermost dim. Each operand moves
 * as a whole vector where it lies so (a.vectors), else element by element. */
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

/* In so many words: the compiler else makes several stores of it, to share them with those
 * element by element. */
__device__ __forceinline__ void store_words(void *to, const uint4 &w)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y),
                 "r"(w.z), "r"(w.w)
                 : "memory");
}

template <class E, class C, int V>
__device__ __forceinline__ void store_vector(E *to, bool whole, long long step, int count,
                                             const C *from)
{
    if (whole) {
        union {
            Vector<E, V> v;
            uint4 words[sizeof(E) * V / 16];
        } x;
#pragma unroll
        for (int e = 0; e < V; e++)
            put(from[e], x.v.e[e]);
#pragma unroll
        for (int w = 0; w < (int)sizeof(E) * V / 16; w++)
            store_words((uint4 *)to + w, x.words[w]);
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (e < count)
                put(from[e], to[e * step]);
    }
}

/* The vector whose first element is at at[]; flat: all that moves moves by 16 bytes. */
template <class S, class T, bool flat>
__device__ __forceinline__ void apply_vector(const Args &a, const long long *at, int inner,
                                             int count)
{
    typedef typename ComputedIn<T>::type C;
    constexpr int V = 16 / sizeof(T);
    C in[S::LOADS ? S::LOADS : 1][V], out[S::STORES][V];
#pragma unroll
    for (int l = 0; l < S::LOADS; l++) {
        const int i = S::loaded(l);
        const long long step = a.stride[i][inner];
        const bool whole = flat ? step != 0 : (a.vectors >> i & 1) && count == V;
        if (S::KEPT >> i & 1)
            load_vector<C, C, V>((const C *)a.data[i] + at[i], whole, step, count, in[l]);
        else
            load_vector<T, C, V>((const T *)a.data[i] + at[i], whole, step, count, in[l]);
    }
#pragma unroll
    for (int v = 0; v < V; v++) {
        C x[S::LOADS ? S::LOADS : 1], y[S::STORES];
#pragma unroll
        for (int l = 0; l < S::LOADS; l++)
            x[l] = in[l][v];
        S::template element<C>(a.number, x, (const C *)0, (const C *)0, y, (C *)0);
#pragma unroll
        for (int s = 0; s < S::STORES; s++)
            out[s][v] = y[s];
    }
#pragma unroll
    for (int s = 0; s < S::STORES; s++) {
        const int i = S::stored(s);
        const long long step = a.stride[i][inner];
        const bool whole = flat || ((a.vectors >> i & 1) && count == V);
        if (S::KEPT >> i & 1)
            store_vector<C, C, V>((C *)a.data[i] + at[i], whole, step, count, out[s]);
        else
            store_vector<T, C, V>((T *)a.data[i] + at[i], whole, step, count, out[s]);
    }
}

/* One dim, along which every operand lies in vectors or stands still. */
template <template <int> class K, class T>
__global__ void __launch_bounds__(THREADS) pointwise_flat(const Args a)
{
    typedef K<0> S;
    constexpr int V = 16 / sizeof(T);
    const long long e = ((long long)blockIdx.x * THREADS + threadIdx.x) * V;
    const long long left = a.extent[0] - e;
    long long at[S::OPERANDS];
#pragma unroll
    for (int i = 0; i < S::OPERANDS; i++)
        at[i] = e * a.stride[i][0];
    if (left >= V)
        apply_vector<S, T, true>(a, at, 0, V);
    else if (left > 0)
        apply_vector<S, T, false>(a, at, 0, (int)left);
}

/* Any strides. Index is int where that is enough. */
template <template <int> class K, class T, class Index>
__global__ void __launch_bounds__(THREADS) pointwise(const Args a)
{
    typedef K<0> S;
    constexpr int V = 16 / sizeof(T);
    const int inner = a.kept - 1;
    const Index extent = (Index)a.extent[inner], along = (extent + V - 1) / V;
    const Index vector = (Index)blockIdx.x * THREADS + threadIdx.x;
    const Index line = vector / along, e = (vector - line * along) * V;
    Index lines = 1;
    for (int d = 0; d < inner; d++)
        lines *= (Index)a.extent[d];
    if (line >= lines)
        return;
    long long at[S::OPERANDS] = {};
    move<S::OPERANDS>(a, line, 0, inner, at);
#pragma unroll
    for (int i = 0; i < S::OPERANDS; i++)
        at[i] += e * a.stride[i][inner];
    apply_vector<S, T, false>(a, at, inner, extent - e < V ? (int)(extent - e) : V);
}
