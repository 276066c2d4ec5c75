/* SPDX-License-Identifier: MIT */
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

/* The vector whose first element is at at[], of which count elements are there. flat: all that
 * moves moves by 16 bytes. in: [load][element] */
template <class S, class T, class C, bool flat>
__device__ __forceinline__ void load_operands(const Args &a, const long long *at, int inner,
                                              int count, C (*in)[16 / sizeof(T)])
{
    constexpr int V = 16 / sizeof(T);
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
}

template <class S, class T, class C, bool flat>
__device__ __forceinline__ void finish_vector(const Args &a, const long long *at, int inner,
                                              int count, const C (*in)[16 / sizeof(T)])
{
    constexpr int V = 16 / sizeof(T);
    C out[S::STORES][V];
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

template <class S, class T>
__device__ __forceinline__ void apply_vector(const Args &a, const long long *at, int inner,
                                             int count)
{
    typedef typename ComputedIn<T>::type C;
    C in[S::LOADS ? S::LOADS : 1][16 / sizeof(T)];
    load_operands<S, T, C, false>(a, at, inner, count, in);
    finish_vector<S, T, C, false>(a, at, inner, count, in);
}

/* One dim, along which every operand lies in vectors or stands still. Small blocks, of one or
 * two vectors a thread, whose loads are all under way before anything is computed. On an H200,
 * 4096 x 393216 floats, a block of 128 vectors as 64 threads of two takes 3.02 ms for a sigmoid
 * and for a hardsigmoid, 128 threads of two 3.03, 128 of one 3.05 and 3.00, 64 of one 3.8. */
template <class S> struct Flat {
    static constexpr int BATCH = S::LOADS > 1 ? 1 : 2, THREADS = 128 / BATCH;
};

template <template <int> class K, class T>
__global__ void __launch_bounds__(Flat<K<0>>::THREADS) pointwise_flat(const Args a)
{
    typedef K<0> S;
    typedef typename ComputedIn<T>::type C;
    constexpr int V = 16 / sizeof(T), BATCH = Flat<S>::BATCH, EACH = Flat<S>::THREADS;
    const long long first = (long long)blockIdx.x * (EACH * BATCH * V);
    long long at[BATCH][S::OPERANDS];
#pragma unroll
    for (int b = 0; b < BATCH; b++)
#pragma unroll
        for (int i = 0; i < S::OPERANDS; i++)
            at[b][i] = (first + (b * EACH + (int)threadIdx.x) * V) * a.stride[i][0];
    if (a.extent[0] - first >= EACH * BATCH * V) {
        C in[BATCH][S::LOADS ? S::LOADS : 1][V];
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            load_operands<S, T, C, true>(a, at[b], 0, V, in[b]);
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            finish_vector<S, T, C, true>(a, at[b], 0, V, in[b]);
        return;
    }
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
        const long long left = a.extent[0] - first - (b * EACH + (int)threadIdx.x) * V;
        if (left > 0)
            apply_vector<S, T>(a, at[b], 0, left < V ? (int)left : V);
    }
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
    apply_vector<S, T>(a, at, inner, extent - e < V ? (int)(extent - e) : V);
}
