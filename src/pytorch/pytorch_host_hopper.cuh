/* SPDX-License-Identifier: MIT */

/* Products of float32 on Hopper's tensor cores, by Ogive's kernels. Some of their numbers follow
 * from sizes: each set of them is a unit, built when it is first needed. */
#include "pytorch/hopper_call.cuh"

/* What emission knows of a product: bits of operands that are neighbours along the columns, that
 * stand still there, bytes of a run's sums, and whether there are any. */
struct HopperFacts {
    const char *kernel, *name; /* name: of the unit */
    int operands;
    unsigned neighbours, still;
    int64_t sum_bytes;
    bool reduces;
};

static bool is_hopper()
{
    return attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
           attribute(cudaDevAttrComputeCapabilityMinor) == 0 &&
           attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= 227 * 1024;
}

/* Does every operand lie as the kernel was made for? *is_far: beyond 31 bits. */
static bool lies_well(const HopperFacts &of, const Args &a, int dims, bool *is_far)
{
    const int last = dims - 1;
    for (int i = 0; i < of.operands; i++) {
        double reach = 0;
        for (int d = 0; d < dims; d++)
            reach += std::abs((double)a.stride[i][d]) * (double)(a.extent[d] - 1);
        *is_far = *is_far || reach > INT32_MAX;
        if (((of.neighbours >> i & 1) && a.stride[i][last] != 1) ||
            ((of.still >> i & 1) && a.stride[i][last] != 0))
            return false;
    }
    return true;
}

static std::string numbers_of(const og_hopper_shape *s, bool is_wide)
{
    std::string text;
#define OG_NUMBER(name, value)                                                                     \
    text += #name " ";                                                                             \
    text += std::to_string((long long)(value)) + "\n";
    OG_HOPPER_NUMBERS(OG_NUMBER)
    OG_NUMBER(OG_COMBINERS, og_combiners_of(s->runs))
    OG_NUMBER(OG_COMBINE_THREADS, og_combine_threads(s->runs))
    OG_NUMBER(OG_INDEX_BITS, is_wide ? 64 : 32)
    return text;
}

static og_hopper_shape shape_of(const HopperFacts &of, const Args &a, int batch_dims, int m_dims,
                                int64_t k, const int64_t *steps)
{
    const int last = batch_dims + m_dims;
    const long long *w_stride = a.stride[of.operands + 1];
    og_hopper_shape s;
    memset(&s, 0, sizeof s); /* the bytes between members, too: find_hopper() compares all */
    s.batch = s.m = 1;
    for (int d = 0; d < last; d++)
        (d < batch_dims ? s.batch : s.m) *= a.extent[d];
    s.n = a.extent[last];
    s.k = k;
    s.x_stride_k = steps[0];
    s.w_stride_k = steps[1];
    s.w_stride_n = w_stride[last];
    s.has_batch = batch_dims > 0;
    s.w_slab = batch_dims ? w_stride[0] : 0;
    s.w_last = batch_dims ? a.extent[0] - 1 : 0;
    s.x_moves = batch_dims && a.stride[of.operands][0] != 0;
    s.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    s.sum_bytes = of.sum_bytes;
    if (s.batch > 0 && s.m > 0 && s.n > 0 && k > 0)
        og_shape_hopper(&s);
    return s;
}

/* Tensor cores pay from n = 128 and k = 64 on; extents of up to 30 bits are counted safely. */
static bool is_fit(const og_hopper_shape &s, const void *w)
{
    const double most = 1 << 30, rows = (double)s.batch * (double)s.m;
    return rows > 0 && s.n >= 128 && s.k >= 64 && s.n <= most && s.k <= most && rows <= most &&
           rows * (double)s.n * (double)s.k <= 0x1p70 &&
           (s.fetch == OG_CUDA_TURNED || (uintptr_t)w % 16 == 0);
}

/* Of a product of these sizes, or NULL: it is missing. What was found is kept by sizes, which are
 * sooner compared than made numbers of. */
static UnitRun find_hopper(const HopperFacts &of, const og_hopper_shape &s, bool is_wide)
{
    struct Found {
        const char *name;
        og_hopper_shape shape;
        bool is_wide;
        UnitRun run;
    };
    static std::vector<Found> found;
    for (const Found &one : found)
        if (one.name == of.name && one.is_wide == is_wide && !memcmp(&one.shape, &s, sizeof s))
            return one.run;
    const UnitRun run = find_unit(of.name, numbers_of(&s, is_wide));
    if (run)
        found.push_back({of.name, s, is_wide, run});
    return run;
}

/* 1: done; 0: not a case for it; -1: its unit is missing. Factors are operands of.operands and the
 * next one of a. */
static int run_hopper(const HopperFacts &of, const Args &a, int batch_dims, int m_dims, int64_t k,
                      const int64_t *steps, const at::TensorOptions &options)
{
    const at::ScalarType dtype = at::typeMetaToScalarType(options.dtype());
    og_hopper_call c = {};
    bool is_far = false;
    if (dtype != at::kFloat || !is_hopper() ||
        !lies_well(of, a, batch_dims + m_dims + 1, &is_far))
        return 0;
    c.shape = shape_of(of, a, batch_dims, m_dims, k, steps);
    c.x = (const float *)a.data[of.operands];
    c.w = (const float *)a.data[of.operands + 1];
    c.x_stride = a.stride[of.operands];
    if (!is_fit(c.shape, c.w))
        return 0;
    for (int d = 0; d < batch_dims + m_dims; d++)
        is_far = is_far || std::abs(c.x_stride[d]) > INT32_MAX / 2;
    const UnitRun run =
        find_hopper(of, c.shape, is_far || og_hopper_is_wide(&c.shape, of.reduces));
    if (!run)
        return -1;
    c.extent = a.extent;
    c.data = a.data;
    c.stride = a.stride;
    c.number = a.number;
    c.stream = c10::cuda::getCurrentCUDAStream();
    const Tensor scratch = at::empty({run(&c)}, options.dtype(at::kByte));
    c.scratch = scratch.data_ptr();
    C10_CUDA_CHECK((cudaError_t)run(&c));
    served[of.kernel] = "float32 as pairs of float16 on tensor cores (wgmma)";
    return 1;
}
