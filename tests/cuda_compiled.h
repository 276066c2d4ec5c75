/* SPDX-License-Identifier: MIT
 *
 * cuda_compiled.h - products on tensor cores without a GPU: what is emitted for one, and,
 * through a real NVRTC, that it compiles and no register is spilt.
 */
#ifndef OG_CUDA_COMPILED_H
#define OG_CUDA_COMPILED_H

#include "cuda_case.h"

#include "cuda/host/cuda_driver.h"
#include "cuda/host/cuda_nvrtc.h"
#include "cuda/emit/cuda_work.h"
#include "plan/planner.h"

#include <elf.h>

/* A product over a space of these extents, whose last dim is n, contiguous; strides of x and w
 * over that space, then of k. */
static inline void emit_batch(const og_cuda_limits *limits, og_dtype dtype, int32_t rank,
                              const int64_t *extents, int64_t k, const int64_t *x, const int64_t *w,
                              og_arena *arena, og_cuda_work *work)
{
    og_instr elements[] = {{.op = OG_OP_PRODUCT, .dst = 0, .args = {-1, -1, -1}},
                           {.op = OG_OP_STORE, .dst = -1, .args = {0, -1, -1}}};
    og_pass pass = {.elements = elements, .element_count = 2};
    og_access output = {.buffer = 2, .dtype = dtype, .is_store = true};
    og_value value = {.type = OG_F32, .level = OG_ELEMENT};
    og_product product = {.left = {.buffer = 0, .dtype = dtype},
                          .right = {.buffer = 1, .dtype = dtype},
                          .k = k,
                          .n = extents[rank - 1],
                          .left_k_stride = x[rank],
                          .right_k_stride = w[rank]};
    og_kernel kernel = {.space = {.rank = rank},
                        .accesses = &output,
                        .access_count = 1,
                        .products = &product,
                        .product_count = 1,
                        .passes = &pass,
                        .pass_count = 1,
                        .values = &value,
                        .value_count = 1};
    og_plan plan = {.kernels = &kernel, .kernel_count = 1};
    ogive_error error;
    int64_t stride = 1;
    for (int32_t d = rank - 1; d >= 0; d--) {
        kernel.space.extent[d] = extents[d];
        product.left.stride[d] = x[d];
        product.right.stride[d] = w[d];
        output.stride[d] = stride;
        stride *= extents[d];
    }
    og_see_matrices(&kernel);
    TEST_OK(og_cuda_emit(&plan, 0, limits, &(og_cuda_wishes){0}, arena, work, &error), error);
}

/* x (m, k) times w (k, n), both of dtype; strides of m and k, of n and k. */
static inline void emit_product(const og_cuda_limits *limits, og_dtype dtype, int64_t m, int64_t n,
                                int64_t k, const int64_t x_stride[2], const int64_t w_stride[2],
                                og_arena *arena, og_cuda_work *work)
{
    emit_batch(limits, dtype, 2, (int64_t[]){m, n}, k, (int64_t[]){x_stride[0], 0, x_stride[1]},
               (int64_t[]){0, w_stride[0], w_stride[1]}, arena, work);
}

/* Section `number` of a cubin. */
static inline Elf64_Shdr read_section(const unsigned char *cubin, int number)
{
    Elf64_Ehdr header;
    Elf64_Shdr section;
    memcpy(&header, cubin, sizeof header);
    assert_in_range(number, 0, header.e_shnum - 1);
    memcpy(&section, cubin + header.e_shoff + (size_t)number * sizeof section, sizeof section);
    return section;
}

static inline const char *name_section(const unsigned char *cubin, const Elf64_Shdr *section)
{
    Elf64_Ehdr header;
    memcpy(&header, cubin, sizeof header);
    return (const char *)cubin + read_section(cubin, header.e_shstrndx).sh_offset +
           section->sh_name;
}

/* A section of this name; a cubin has it. */
static inline Elf64_Shdr find_section(const unsigned char *cubin, const char *name)
{
    int number = 0;
    Elf64_Shdr section = read_section(cubin, number);
    while (strcmp(name_section(cubin, &section), name) != 0)
        section = read_section(cubin, ++number);
    return section;
}

/* Is symbol `number` in the section of this entry, which has what it calls, too? */
static inline bool is_of_entry(const unsigned char *cubin, uint32_t number, const char *entry)
{
    Elf64_Sym symbol;
    Elf64_Shdr symbols = find_section(cubin, ".symtab");
    memcpy(&symbol, cubin + symbols.sh_offset + number * sizeof symbol, sizeof symbol);
    Elf64_Shdr own = read_section(cubin, symbol.st_shndx);
    const char *name = name_section(cubin, &own);
    return strncmp(name, ".text.", 6) == 0 && strcmp(name + 6, entry) == 0;
}

/* Does the entry compute what others leave? */
static inline bool is_redo(const unsigned char *cubin, uint32_t number)
{
    return is_of_entry(cubin, number, "og_redo") || is_of_entry(cubin, number, "og_redo_windows");
}

/* The most bytes of stack that an entry of a cubin takes, og_redo's or (not of_redo) any other:
 * EIATTR_FRAME_SIZE and EIATTR_MIN_STACK_SIZE of its section .nv.info. */
static inline uint32_t find_stack(const unsigned char *cubin, bool of_redo)
{
    enum { FRAME_SIZE = 0x11, MIN_STACK_SIZE = 0x12, SIZED = 0x04 };
    const Elf64_Shdr section = find_section(cubin, ".nv.info");
    uint32_t most = 0, found = 0;
    for (uint64_t at = 0; at + 4 <= section.sh_size;) {
        const unsigned char *record = cubin + section.sh_offset + at;
        uint16_t bytes = 0;
        uint32_t value[2];
        if (record[0] == SIZED)
            memcpy(&bytes, record + 2, 2);
        if (record[0] == SIZED && (record[1] == FRAME_SIZE || record[1] == MIN_STACK_SIZE)) {
            memcpy(value, record + 4, sizeof value);
            if (is_redo(cubin, value[0]) == of_redo)
                most = value[1] > most ? value[1] : most;
            found++;
        }
        at += 4 + (uint64_t)bytes;
    }
    assert_true(found > 0);
    return most;
}

/* Has this source been asked about before, for this GPU? Many shapes have one source. */
static inline bool is_compiled_before(const char *source, const char *arch)
{
    enum { MOST = 1000 };
    static uint64_t seen[MOST];
    static int count;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = arch; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = source; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < count; i++)
        if (seen[i] == hash)
            return true;
    assert_true(count < MOST);
    seen[count++] = hash;
    return false;
}

/* What compile_spilt() looks at, of a source. */
static inline void compile_source(const char *text, const char *source, const char *arch,
                                  uint32_t most)
{
    const og_cuda_nvrtc *nvrtc;
    ogive_error error;
    unsigned char *cubin;
    size_t bytes;
    og_cuda_target target;
    og_text log = {0};
    TEST_OK(og_cuda_find_nvrtc(&nvrtc, &error), error);
    TEST_OK(og_cuda_choose_target(nvrtc, og_cuda_read_arch(arch), &target, &error), error);
    TEST_OK(og_cuda_compile(nvrtc, source, &target, &cubin, &bytes, &log, &error), error);
    printf("sm_%s: %s: %zu bytes, %u of stack, og_redo %u\n", arch, text, bytes,
           find_stack(cubin, false), find_stack(cubin, true));
    assert_in_range(find_stack(cubin, false), 0, most);
    assert_in_range(find_stack(cubin, true), 0, 96);
    /* C75xx: products that wait for each other, registers that cannot be moved. */
    assert_true(!log.data || !strstr(log.data, "C75"));
    og_text_free(&log);
    free(cubin);
}

/* Compiles a formula of one kernel, whose source contains `mark`, for arch; may take so many bytes
 * of stack. og_redo and og_redo_windows, which compute what others leave, may have 96: up to 80 were
 * seen, and the forms of og_redo that have none took NVRTC longer. */
static inline void compile_spilt(const char *text, const case_shape *shapes, og_dtype dtype,
                                 const char *arch, const char *mark, uint32_t most)
{
    const bool tf32 = case_options.precision == OGIVE_TF32;
    const ogive_options options = {
        .size = sizeof options, .precision = tf32 ? OGIVE_TF32 : OGIVE_FLOAT32, .cuda_arch = arch};
    ogive_formula *formula = find_formula(text);
    size_t count = ogive_formula_input_count(formula);
    const DLTensor *inputs[8];
    test_tensor at[8];
    ogive_plan *plan;
    ogive_error error;
    for (size_t i = 0; i < count; i++) {
        DLTensor *tensor =
            test_tensor_init(&at[i], NULL, dlpack_of(dtype), shapes[i].rank, shapes[i].shape, NULL);
        tensor->device = cuda_device;
        inputs[i] = tensor;
    }
    TEST_OK(ogive_plan_create(formula, inputs, count, NULL, 0, &options, &plan, &error), error);
    size_t length = ogive_plan_source(plan, 0, NULL, 0);
    char *source = malloc(length + 1);
    assert_non_null(source);
    ogive_plan_source(plan, 0, source, length + 1);
    assert_non_null(strstr(source, mark));
    if (!is_compiled_before(source, arch))
        compile_source(text, source, arch, most);
    free(source);
    ogive_plan_release(plan);
}

/* The same, without any. */
static inline void compile_unspilt(const char *text, const case_shape *shapes, og_dtype dtype,
                                   const char *arch, const char *mark)
{
    compile_spilt(text, shapes, dtype, arch, mark, 0);
}

/* Is a real NVRTC named (OGIVE_TEST_NVRTC)? Then it compiles kernels, and none is run. */
static inline bool only_compiles(void)
{
    const char *nvrtc = getenv("OGIVE_TEST_NVRTC");
    if (nvrtc)
        setenv("OGIVE_NVRTC", nvrtc, 1);
    return nvrtc != NULL;
}

#endif
