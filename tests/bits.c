/* SPDX-License-Identifier: MIT
 *
 * bits.c - the same bits everywhere: prints a hash of the results of many
 * formulas, after checking that every CPU level of this machine and several
 * numbers of threads give the same one. Its output is the same on every CPU;
 * CTest compares it with tests/bits.txt, scripts/test with AArch64's.
 *
 *     bits             prints "HASH  FORMULA  INPUTS", one line per formula
 *     bits --levels    prints the machine's CPU levels
 *
 * Uses the public header and libc alone, so that it can be cross-compiled.
 */
#include "ogive.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 4, MAX_RANK = 8 };

/* An input is SHAPE + TYPE + HOW: "300x200f", "4x5bt". TYPE: f float32, h float16,
 * b bfloat16. HOW: nothing for ordinary numbers, t the same but stored transposed
 * (the last two dims), a for bit patterns of all kinds: every one of a half
 * type's; one of every 32768 neighbours of float32's, the first (zeros, powers of
 * two, infinities) and one by chance in turn. */
typedef struct {
    const char *formula;
    const char *inputs[MAX_INPUTS];
} test_case;

#define SWEEP_FLOAT "131072fa"
#define SWEEP_HALF "65536ha"
#define SWEEP_BFLOAT "65536ba"

static const test_case cases[] = {
    /* the founding workloads */
    {"sigmoid(x)", {"64x4099f"}},
    {"hardsigmoid(x)", {"64x4099f"}},
    {"sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)", {"67x129f", "75x129f", "75f"}},
    {"z = linear(x, w, b); z + 2.0 * sigmoid(z)", {"67x129f", "75x129f", "75f"}},
    {"z = linear(x, w, b); z + 2.0 * sigmoid(z)", {"33x65b", "70x65b", "70b"}},

    /* products: one row, few, many; every layout and type */
    {"linear(x, w)", {"1x4099f", "300x4099f"}},
    {"linear(x, w)", {"5x3x1030h", "40x1030h"}},
    {"linear(x, w)", {"300x600ft", "200x600ft"}},
    {"matmul(x, y)", {"130x257f", "257x66f"}},
    {"x @ y", {"3x20x31f", "31x18ft"}},
    {"x @ y", {"2x70x1100b", "2x1100x90b"}},

    /* pointwise, with layouts and types mixed */
    {"x * sigmoid(x) + y", {"1000003f", "1000003f"}},
    {"(x * y + x) * sigmoid(y) - 0.5", {"300x1000f", "1000f"}},
    {"x * y - z / (1 + abs(x))", {"127x63ft", "127x1f", "63h"}},
    {"where(x < y, exp(x), log(abs(y)))", {"100x101b", "100x101bt"}},
    {"where(x >= y, x, where(x != 0.5, -y, x ** 2))", {"100x101f", "101f"}},
    {"where(x <= y, x, where(x == y, where(x > y, 1, x), y))", {SWEEP_HALF, "1h"}},
    {"float16(x) + bfloat16(y) + float32(x)", {"5000f", "5000f"}},
    {"float32(float16(x))", {SWEEP_FLOAT}},
    {"float32(bfloat16(x))", {SWEEP_FLOAT}},

    /* reductions: rows, columns, both, and every depth of the order */
    {"sum(x)", {"1f"}},
    {"sum(x)", {"1000003f"}},
    {"sum(x, dim=1)", {"7x511f"}},
    {"sum(x, dim=1)", {"5x16384f"}},
    {"sum(x, dim=1)", {"5x16385f"}},
    {"sum(x, dim=1)", {"3x300007f"}},
    {"sum(x, dim=0)", {"63x1000f"}},
    {"sum(x, dim=0)", {"65x1001f"}},
    {"sum(x, dim=0)", {"9001x37f"}},
    {"sum(x, dim=0)", {"9001x37ft"}},
    {"sum(x, dim=1)", {"257x300ft"}},
    {"sum(x, dim=(0, 2))", {"11x13x401f"}},
    {"sum(x, dim=1, keepdim=true) + x", {"31x67x21f"}},
    {"mean(x, dim=-1), amax(x, dim=-1), amin(x, dim=-1)", {"40x20000h"}},
    {"amax(x, dim=0), amin(x, dim=0)", {"1000x33b"}},
    {"amax(x), amin(x)", {SWEEP_FLOAT}},
    {"var(x, dim=1), std(x, dim=1, correction=0)", {"20x3001f"}},
    {"var(x, dim=0)", {"3001x20f"}},
    {"logsumexp(x, dim=1)", {"33x40001f"}},
    {"logsumexp(x, dim=0)", {"501x77f"}},
    {"softmax(x, dim=-1)", {"33x4099f"}},
    {"softmax(x, dim=0)", {"515x60f"}},
    {"softmax(x, dim=1)", {"9x300x7h"}},
    {"log_softmax(x, dim=-1)", {"13x20011f"}},
    {"layer_norm(x, (1027,), w, b)", {"60x1027f", "1027f", "1027f"}},
    {"layer_norm(x, (12, 33))", {"60x12x33b"}},
    {"rms_norm(x, (20000,), w)", {"9x20000f", "20000f"}},
    {"softmax(sum(x, dim=2), dim=0) * mean(y)", {"20x30x40f", "20x30f"}},

    /* composites and functions with arguments beyond the sweeps' */
    {"leaky_relu(x, 0.2) + elu(x, 0.7) + celu(x, 1.3)", {"10007f"}},
    {"gelu(x), gelu(x, approximate='tanh')", {SWEEP_FLOAT}},
    {"softplus(x, beta=2, threshold=10)", {SWEEP_FLOAT}},
    {"hardtanh(x, -2, 3) + clamp(x, -1.5, 0.25) + relu6(x)", {SWEEP_FLOAT}},
    {"threshold(x, 0.1, -7) + softshrink(x, 0.3) + hardshrink(x, 0.3)", {"10007f"}},
    {"prelu(x, y)", {"9x31x77f", "31f"}},
    {"clamp(x, y, z)", {SWEEP_FLOAT, "3x1f", "1f"}},
    {"2 ** x, 0 ** x, -2 ** x", {SWEEP_FLOAT}},
    {"vector_norm(x, 2, 1), vector_norm(x, 3, 1), norm(x, 1), vector_norm(x, inf)", {"33x4099f"}},
    {"normalize(x), cosine_similarity(x, y)", {"33x4099f", "33x4099f"}},
    {"s, m = std_mean(x, 1, keepdim=true); (x - m) / s", {"33x4099f"}},
    {"binary_cross_entropy(x, y, reduction='none')", {SWEEP_FLOAT, "3x1f"}},
    {"binary_cross_entropy_with_logits(x, y), kl_div(x, y)", {"33x4099f", "33x4099f"}},
    {"mse_loss(x, y), l1_loss(x, y), huber_loss(x, y), smooth_l1_loss(x, y, beta=0.5)",
     {"33x4099f", "33x4099f"}},
    {"x ** 2, x ** 3, x ** 0.5, x ** -1, x ** -2, pow(x, 1.7)", {SWEEP_FLOAT}},
};

/* Functions of one tensor are swept one by one, over all kinds of bits. */
static const char *const sweep_groups[] = {"activation", "mathematics", "arithmetic"};

/* ---- inputs ---------------------------------------------------------------- */

static const char *current_formula = "";

static void give_up(const char *what)
{
    fprintf(stderr, "bits: %s: %s\n", current_formula, what);
    exit(2);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

typedef struct {
    DLTensor tensor;
    int64_t shape[MAX_RANK], strides[MAX_RANK];
} input;

/* Sign, a magnitude of 2^-6 to 2^3, the leading bits of the fraction: written
 * as bits, so that no conversion of ours is in play. */
static void fill(void *data, int64_t count, char type, bool all, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t r = next_random(&seed), sign = r >> 63, exponent = r >> 48 & 7, low = r & 0x7fffff;
        if (type == 'f')
            ((uint32_t *)data)[i] =
                (uint32_t)(all ? (uint64_t)i * 65537 : sign << 31 | (121 + exponent) << 23 | low);
        else if (type == 'h')
            ((uint16_t *)data)[i] =
                (uint16_t)(all ? (uint64_t)i : sign << 15 | (9 + exponent) << 10 | low >> 13);
        else
            ((uint16_t *)data)[i] =
                (uint16_t)(all ? (uint64_t)i : sign << 15 | (121 + exponent) << 7 | low >> 16);
    }
}

static void make_input(const char *text, uint64_t seed, input *out)
{
    memset(out, 0, sizeof *out);
    int64_t count = 1;
    int rank = 0;
    char *end = (char *)text;
    do {
        out->shape[rank] = strtoll(rank ? end + 1 : end, &end, 10);
        count *= out->shape[rank++];
    } while (*end == 'x');
    char type = end[0], how = end[1];

    out->strides[rank - 1] = 1;
    for (int d = rank - 1; d > 0; d--)
        out->strides[d - 1] = out->strides[d] * out->shape[d];
    if (how == 't') {
        out->strides[rank - 1] = out->shape[rank - 2];
        out->strides[rank - 2] = 1;
    }
    out->tensor.data = malloc((size_t)count * 4);
    if (!out->tensor.data)
        give_up("no memory");
    fill(out->tensor.data, count, type, how == 'a', seed);
    out->tensor.device.device_type = kDLCPU;
    out->tensor.ndim = rank;
    out->tensor.dtype.code = type == 'b' ? kDLBfloat : kDLFloat;
    out->tensor.dtype.bits = type == 'f' ? 32 : 16;
    out->tensor.dtype.lanes = 1;
    out->tensor.shape = out->shape;
    out->tensor.strides = how == 't' ? out->strides : NULL;
}

/* ---- results --------------------------------------------------------------- */

/* FNV-1a over elements; every NaN counts as the same. */
static uint64_t hash_result(uint64_t hash, const DLTensor *tensor, const void *data)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    uint32_t infinity = tensor->dtype.bits == 32          ? 0x7f800000
                        : tensor->dtype.code == kDLBfloat ? 0x7f80
                                                          : 0x7c00;
    uint32_t magnitude = tensor->dtype.bits == 32 ? 0x7fffffff : 0x7fff;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits =
            tensor->dtype.bits == 32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
        if ((bits & magnitude) > infinity)
            bits = magnitude;
        hash = (hash ^ bits) * UINT64_C(1099511628211);
    }
    return hash;
}

static void *allocate(size_t bytes)
{
    void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!data)
        give_up("no memory");
    memset(data, 0xa5, bytes);
    return data;
}

static uint64_t run(const ogive_formula *formula, const DLTensor *const *tensors, size_t count,
                    const char *level, int threads)
{
    ogive_error error;
    ogive_plan *plan;
    ogive_options options = {.size = sizeof options, .threads = threads, .cpu_level = level};
    if (ogive_plan_create(formula, tensors, count, NULL, 0, &options, &plan, &error))
        give_up(error.message);

    const void *in[MAX_INPUTS];
    void *out[8];
    size_t result_count = ogive_formula_result_count(formula);
    for (size_t i = 0; i < count; i++)
        in[i] = tensors[i]->data;
    for (size_t i = 0; i < result_count; i++) {
        const DLTensor *result = ogive_plan_result(plan, i);
        size_t bytes = result->dtype.bits / 8;
        for (int d = 0; d < result->ndim; d++)
            bytes *= (size_t)result->shape[d];
        out[i] = allocate(bytes);
    }
    void *workspace = allocate(ogive_plan_workspace(plan));
    if (ogive_plan_run(plan, in, out, workspace, NULL, &error))
        give_up(error.message);

    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < result_count; i++) {
        hash = hash_result(hash, ogive_plan_result(plan, i), out[i]);
        free(out[i]);
    }
    free(workspace);
    ogive_plan_release(plan);
    return hash;
}

/* Prints the hash; false if levels or numbers of threads disagree. */
static bool run_case(const char *text, const char *const *inputs)
{
    static const int thread_counts[] = {1, 2, 3, 7};
    current_formula = text;
    ogive_error error;
    ogive_formula *formula;
    if (ogive_formula_create(text, OGIVE_TEXT, &formula, &error))
        give_up(error.message);

    size_t count = ogive_formula_input_count(formula);
    input made[MAX_INPUTS];
    const DLTensor *tensors[MAX_INPUTS];
    if (count > MAX_INPUTS || (count < MAX_INPUTS && inputs[count]) || !inputs[count - 1])
        give_up("wrong number of inputs");
    for (size_t i = 0; i < count; i++) {
        make_input(inputs[i], 0x9e3779b97f4a7c15u * (i + 1), &made[i]);
        tensors[i] = &made[i].tensor;
    }

    uint64_t first = run(formula, tensors, count, ogive_cpu_level_name(0), 1);
    bool same = true;
    const char *level;
    for (size_t l = 0; (level = ogive_cpu_level_name(l)); l++)
        for (size_t t = 0; t < sizeof thread_counts / sizeof thread_counts[0]; t++) {
            uint64_t hash = run(formula, tensors, count, level, thread_counts[t]);
            if (hash == first)
                continue;
            same = false;
            fprintf(stderr,
                    "bits: %s: level %s, %d threads: %016" PRIx64 " instead of %016" PRIx64 "\n",
                    text, level, thread_counts[t], hash, first);
        }
    printf("%016" PRIx64 "  %s ", first, text);
    for (size_t i = 0; i < count; i++) {
        printf(" %s", inputs[i]);
        free(made[i].tensor.data);
    }
    printf("\n");
    fflush(stdout);
    ogive_formula_release(formula);
    return same;
}

static bool is_formula(const char *text)
{
    ogive_formula *formula;
    bool good = ogive_formula_create(text, OGIVE_TEXT, &formula, NULL) == OGIVE_OK;
    ogive_formula_release(formula);
    return good;
}

/* "NAME(x, y)", each of them of all kinds in turn, the other ordinary. */
static bool sweep_pair(const char *name)
{
    char text[80];
    snprintf(text, sizeof text, "%s(x, y)", name);
    if (!is_formula(text))
        return true;
    bool same = run_case(text, (const char *[MAX_INPUTS]){SWEEP_FLOAT, "3x1f"});
    return run_case(text, (const char *[MAX_INPUTS]){"3x1f", SWEEP_FLOAT}) && same;
}

/* "NAME(x)" over all three types, or "NAME(x, y)", if NAME takes one tensor, or two. */
static bool sweep_function(const char *name)
{
    static const char *const sweeps[] = {SWEEP_FLOAT, SWEEP_HALF, SWEEP_BFLOAT};
    char text[80];
    snprintf(text, sizeof text, "%s(x)", name);
    if (!is_formula(text))
        return sweep_pair(name);
    bool same = true;
    for (int i = 0; i < 3; i++) {
        const char *inputs[MAX_INPUTS] = {sweeps[i]};
        same &= run_case(text, inputs);
    }
    return same;
}

int main(int argc, char **argv)
{
    const char *level;
    if (argc > 1 && strcmp(argv[1], "--levels") == 0) {
        for (size_t i = 0; (level = ogive_cpu_level_name(i)); i++)
            puts(level);
        return 0;
    }
    bool same = true;
    ogive_function_info info;
    for (size_t i = 0; i < ogive_function_count(); i++) {
        if (ogive_function(i, &info, NULL))
            give_up("ogive_function() failed");
        for (size_t g = 0; g < sizeof sweep_groups / sizeof sweep_groups[0]; g++)
            if (strcmp(info.group, sweep_groups[g]) == 0 && strcmp(info.name, "prelu") != 0)
                same &= sweep_function(info.name);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        same &= run_case(cases[i].formula, cases[i].inputs);
    return same ? 0 : 1;
}
