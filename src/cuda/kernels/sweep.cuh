/* SPDX-License-Identifier: MIT
 *
 * sweep.cuh - fills x with floats by their bits and hashes y; cuda_sweep.c launches
 * it with 65536 threads, each of which takes every 65536th element. A source of its own.
 */
struct og_args {
    unsigned int *data;
    unsigned long long *partials;
    unsigned int first, step, count;
};

extern "C" __global__ void __launch_bounds__(256) og_fill(const __grid_constant__ og_args a)
{
    unsigned int threads = gridDim.x * 256;
    for (unsigned int i = blockIdx.x * 256 + threadIdx.x; i < a.count; i += threads)
        a.data[i] = a.first + i * a.step;
}

/* The hash of src/math/accuracy.def. */
extern "C" __global__ void __launch_bounds__(256) og_hash(const __grid_constant__ og_args a)
{
    unsigned int threads = gridDim.x * 256, thread = blockIdx.x * 256 + threadIdx.x;
    unsigned long long sum = 0;
    for (unsigned int i = thread; i < a.count; i += threads) {
        unsigned int bits = a.data[i];
        if ((bits & 0x7fffffffu) > 0x7f800000u)
            bits = 0x7fffffffu;
        unsigned long long v = (unsigned long long)(a.first + i * a.step) << 32 | bits;
        v *= 0x9e3779b97f4a7c15u;
        v ^= v >> 32;
        v *= 0xd6e8feb86659fd93u;
        sum += v ^ v >> 29;
    }
    a.partials[thread] = sum;
}
