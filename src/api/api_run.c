/* SPDX-License-Identifier: MIT
 *
 * api_run.c - ogive_run(): plan, workspace and run in one call. A formula keeps
 * its recent plans (and each of these one idle workspace), so that a call for
 * layouts seen before costs a lookup and a run.
 */
#include "api/api.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    STACK_WORDS = 128,       /* keys up to this size need no allocation */
    STACK_WORKSPACE = 16384, /* bytes of workspace taken from the stack */
    SPARE_BYTES = 8 << 20    /* larger workspaces are not kept between calls */
};

/* ---- keys ---------------------------------------------------------------------- */

/* Anything that a plan would refuse is one word: a key that no plan has. */
static bool has_layout(const DLTensor *tensor)
{
    return tensor && tensor->ndim >= 0 && tensor->ndim <= OG_MAX_RANK &&
           (tensor->ndim == 0 || tensor->shape);
}

static size_t key_words(const DLTensor *const *tensors, size_t count)
{
    size_t words = 0;
    for (size_t i = 0; i < count; i++)
        words += has_layout(tensors[i]) ? 3 + 2 * (size_t)tensors[i]->ndim : 1;
    return words;
}

/* Appends a tensor's layout. */
static int64_t *add_tensor(int64_t *word, const DLTensor *tensor)
{
    if (!has_layout(tensor)) {
        *word++ = -1;
        return word;
    }
    *word++ = (int64_t)tensor->device.device_type << 32 | (uint32_t)tensor->device.device_id;
    *word++ =
        (int64_t)tensor->dtype.code << 32 | (int64_t)tensor->dtype.bits << 16 | tensor->dtype.lanes;
    *word++ = (int64_t)tensor->ndim * 2 + (tensor->strides != NULL);
    for (int32_t d = 0; d < tensor->ndim; d++) {
        *word++ = tensor->shape[d];
        *word++ = tensor->strides ? tensor->strides[d] : 0;
    }
    return word;
}

static bool keys_equal(const og_key *a, const og_key *b)
{
    return a->count == b->count && memcmp(a->words, b->words, a->count * sizeof *a->words) == 0 &&
           strcmp(a->level, b->level) == 0;
}

/* ---- the cache ------------------------------------------------------------------- */

/* The lock of a formula's cache is held for some 50 ns, so waiting yields the CPU.
 * It holds 0 while free, else 1 + the number of forks that led to the process of
 * its holder: in a forked child a lock that a thread of the parent held is
 * recognised, taken over, and what it guarded is forgotten, for it may be half
 * changed. */
static atomic_uint fork_count;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

static void register_handler(void)
{
    /* Without memory for it, only a fork amid other threads' runs is at risk. */
    (void)pthread_atfork(NULL, NULL, count_fork);
}

void og_watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handler);
}

void og_lock_cache(ogive_formula *formula)
{
    unsigned mine = 1 + atomic_load_explicit(&fork_count, memory_order_relaxed);
    for (;;) {
        unsigned holder = 0;
        if (atomic_compare_exchange_strong_explicit(&formula->lock, &holder, mine,
                                                    memory_order_acquire, memory_order_relaxed))
            return;
        if (holder != mine &&
            atomic_compare_exchange_strong_explicit(&formula->lock, &holder, mine,
                                                    memory_order_acquire, memory_order_relaxed)) {
            memset(formula->plans, 0, sizeof formula->plans);
            return;
        }
        sched_yield();
    }
}

static void unlock_cache(ogive_formula *formula)
{
    atomic_store_explicit(&formula->lock, 0, memory_order_release);
}

/* A plan that the caller must release, or NULL. */
static ogive_plan *find_plan(ogive_formula *formula, const og_key *key)
{
    ogive_plan *found = NULL;
    og_lock_cache(formula);
    for (int i = 0; i < OG_CACHED_PLANS && formula->plans[i]; i++)
        if (keys_equal(&formula->plans[i]->key, key)) {
            found = ogive_plan_retain(formula->plans[i]);
            memmove(&formula->plans[1], &formula->plans[0], (size_t)i * sizeof found);
            formula->plans[0] = found;
            break;
        }
    unlock_cache(formula);
    return found;
}

static void remember_plan(ogive_formula *formula, ogive_plan *plan, const og_key *key)
{
    plan->key = *key;
    plan->key.words = malloc(key->count * sizeof *key->words);
    if (!plan->key.words)
        return; /* a plan that is not remembered is as good */
    memcpy(plan->key.words, key->words, key->count * sizeof *key->words);
    og_lock_cache(formula);
    ogive_plan *oldest = formula->plans[OG_CACHED_PLANS - 1];
    memmove(&formula->plans[1], &formula->plans[0], (OG_CACHED_PLANS - 1) * sizeof plan);
    formula->plans[0] = ogive_plan_retain(plan);
    unlock_cache(formula);
    ogive_plan_release(oldest);
}

/* ---- running --------------------------------------------------------------------- */

static const void *data_of(const DLTensor *tensor)
{
    return tensor->data ? (const char *)tensor->data + tensor->byte_offset : NULL;
}

static ogive_status run_with(ogive_plan *plan, const DLTensor *const *inputs,
                             const DLTensor *const *outputs, void *workspace, void *stream,
                             ogive_error *error)
{
    size_t input_count = (size_t)plan->plan.input_count;
    size_t count = input_count + (size_t)plan->plan.output_count;
    const void *few[32] = {NULL};
    const void **data = count <= 32 ? few : malloc(count * sizeof *data);
    if (!data)
        return og_fail_memory(error, count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = data_of(i < input_count ? inputs[i] : outputs[i - input_count]);
    ogive_status status =
        ogive_plan_run(plan, data, (void *const *)(data + input_count), workspace, stream, error);
    if (data != few)
        free(data);
    return status;
}

/* On a device with memory of its own. */
static ogive_status run_borrowing(ogive_plan *plan, const DLTensor *const *inputs,
                                  const DLTensor *const *outputs, void *stream, ogive_error *error)
{
    void *workspace = NULL;
    size_t bytes = plan->workspace_bytes;
    if (bytes)
        OG_TRY(plan->backend->borrow(plan->state, bytes, stream, &workspace, error));
    ogive_status status = run_with(plan, inputs, outputs, workspace, stream, error);
    return bytes ? plan->backend->give_back(plan->state, workspace, stream, status, error) : status;
}

static ogive_status run_plan(ogive_plan *plan, const DLTensor *const *inputs,
                             const DLTensor *const *outputs, void *stream, ogive_error *error)
{
    if (plan->backend->borrow)
        return run_borrowing(plan, inputs, outputs, stream, error);
    size_t bytes = plan->workspace_bytes;
    if (bytes <= STACK_WORKSPACE) {
        _Alignas(64) char stack[STACK_WORKSPACE];
        return run_with(plan, inputs, outputs, stack, stream, error);
    }
    void *workspace = atomic_exchange_explicit(&plan->spare, NULL, memory_order_acquire);
    if (!workspace && !(workspace = aligned_alloc(64, (bytes + 63) & ~(size_t)63)))
        return og_fail_memory(error, bytes);
    ogive_status status = run_with(plan, inputs, outputs, workspace, stream, error);
    if (bytes <= SPARE_BYTES)
        workspace = atomic_exchange_explicit(&plan->spare, workspace, memory_order_acq_rel);
    free(workspace);
    return status;
}

static ogive_status run_key(ogive_formula *formula, const og_key *key,
                            const DLTensor *const *inputs, size_t input_count,
                            const DLTensor *const *outputs, size_t output_count,
                            const ogive_options *options, ogive_error *error)
{
    ogive_plan *plan = find_plan(formula, key);
    if (!plan) {
        OG_TRY(ogive_plan_create(formula, inputs, input_count, outputs, output_count, options,
                                 &plan, error));
        remember_plan(formula, plan, key);
    }
    ogive_status status = run_plan(plan, inputs, outputs, options ? options->stream : NULL, error);
    ogive_plan_release(plan);
    return status;
}

ogive_status ogive_run(ogive_formula *formula, const DLTensor *const *inputs, size_t input_count,
                       const DLTensor *const *outputs, size_t output_count,
                       const ogive_options *options, ogive_error *error)
{
    og_error_clear(error);
    if (!formula || (!inputs && input_count) || !outputs)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s is NULL",
                !formula   ? "formula"
                : !outputs ? "outputs"
                           : "inputs");
    const bool valid = options && options->size == sizeof *options;
    const char *level = valid ? options->cpu_level : NULL;
    if (valid && options->cuda_arch)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.cuda_arch is for plans that are not run: expected NULL");
    if (valid && options->packed)
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "options.packed is for plans and ogive_plan_run(): expected 0");
    if (level && strlen(level) >= sizeof((og_key *)0)->level)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "options.cpu_level is not the name of a CPU level");
    int64_t few[STACK_WORDS];
    og_key key = {.words = few};
    size_t words = 3 + key_words(inputs, input_count) + key_words(outputs, output_count);
    if (words > STACK_WORDS && !(key.words = malloc(words * sizeof *key.words)))
        return og_fail_memory(error, words * sizeof *key.words);
    int64_t *word = key.words;
    /* An options struct of the wrong size is refused by planning: no plan has -1. */
    *word++ = valid ? options->threads : options ? -1 : 0;
    *word++ = valid ? (int64_t)options->precision : 0;
    *word++ = (int64_t)input_count;
    for (size_t i = 0; i < input_count; i++)
        word = add_tensor(word, inputs[i]);
    for (size_t i = 0; i < output_count; i++)
        word = add_tensor(word, outputs[i]);
    key.count = (size_t)(word - key.words);
    if (level)
        strcpy(key.level, level);
    ogive_status status =
        run_key(formula, &key, inputs, input_count, outputs, output_count, options, error);
    if (key.words != few)
        free(key.words);
    return status;
}
