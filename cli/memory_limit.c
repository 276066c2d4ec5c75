/* SPDX-License-Identifier: MIT
 *
 * memory_limit.c - measures the memory's speed; see memory_limit.h.
 *
 * Each thread owns a source and a target, too large for the caches, and goes
 * over them in blocks. A block is copied (a byte read for each written), only
 * read or only filled, in the proportion asked for. Ordinary stores read a line
 * before they overwrite it; stores around the cache do not. Which is faster
 * depends on the machine, so both are tried and the better one counts.
 */
#include "memory_limit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "clock.h"

enum { BLOCK = 16384 }; /* bytes, well inside L1 */

typedef enum { BLOCK_COPY, BLOCK_READ, BLOCK_FILL } block_kind;

typedef struct {
    pthread_mutex_t gate; /* held until every thread has started */
    pthread_barrier_t barrier;
    size_t blocks;    /* per thread */
    double copy_part; /* of the blocks; the others are other_kind */
    block_kind other_kind;
    bool around_cache; /* the coming pass */
    bool ended;
} measurement;

typedef struct {
    measurement *shared;
    unsigned char *source, *target;
    uint64_t sink; /* keeps the compiler from dropping the reads */
    pthread_t thread;
} stream;

static uint64_t read_block(const unsigned char *source)
{
    const uint64_t *words = (const uint64_t *)source;
    uint64_t sums[8] = {0};

    for (size_t i = 0; i < BLOCK / 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += words[i + j];
    return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

/* source NULL: fills. */
static void write_around_cache(unsigned char *target, const unsigned char *source)
{
#ifdef __SSE2__
    const __m128i *from = (const __m128i *)(const void *)source;
    __m128i *to = (__m128i *)(void *)target;
    __m128i zero = _mm_setzero_si128();

    for (size_t i = 0; i < BLOCK / sizeof(*to); i += 4)
        for (size_t j = i; j < i + 4; j++)
            _mm_stream_si128(to + j, source ? _mm_load_si128(from + j) : zero);
#else
    if (source)
        memcpy(target, source, BLOCK);
    else
        memset(target, 0, BLOCK);
#endif
}

static void run_pass(stream *s)
{
    const measurement *m = s->shared;
    double due = 0;

    for (size_t i = 0; i < m->blocks; i++) {
        unsigned char *source = s->source + i * BLOCK, *target = s->target + i * BLOCK;
        block_kind kind = m->other_kind;

        due += m->copy_part;
        if (due >= 1) {
            due -= 1;
            kind = BLOCK_COPY;
        }
        if (kind == BLOCK_READ)
            s->sink += read_block(source);
        else if (m->around_cache)
            write_around_cache(target, kind == BLOCK_COPY ? source : NULL);
        else if (kind == BLOCK_COPY)
            memcpy(target, source, BLOCK);
        else
            memset(target, 0, BLOCK);
    }
}

static void *run_stream(void *argument)
{
    stream *s = argument;

    pthread_mutex_lock(&s->shared->gate);
    pthread_mutex_unlock(&s->shared->gate);
    if (s->shared->ended) /* not all could be started */
        return NULL;
    /* First touch by the thread that uses it: its own node's memory. */
    memset(s->source, 1, s->shared->blocks * BLOCK);
    memset(s->target, 1, s->shared->blocks * BLOCK);
    for (;;) {
        pthread_barrier_wait(&s->shared->barrier);
        if (s->shared->ended)
            return NULL;
        run_pass(s);
        pthread_barrier_wait(&s->shared->barrier);
    }
}

/* Bytes per second of the best pass; the calling thread only keeps time. */
static double time_passes(measurement *m, double bytes_per_pass, double seconds)
{
    double best = 0;

    /* A pass that does not count: it waits for the threads' first touch. */
    pthread_barrier_wait(&m->barrier);
    pthread_barrier_wait(&m->barrier);
    double begin = clock_seconds();
    for (int pass = 0; pass < 6 || clock_seconds() - begin < seconds; pass++) {
        m->around_cache = pass % 2;
        double start = clock_seconds();
        pthread_barrier_wait(&m->barrier);
        pthread_barrier_wait(&m->barrier);
        double rate = bytes_per_pass / (clock_seconds() - start);
        best = rate > best ? rate : best;
    }
    m->ended = true;
    pthread_barrier_wait(&m->barrier);
    return best;
}

static size_t choose_bytes(int32_t threads)
{
    double wanted = threads > 16 ? 16.0 * threads : 256; /* MiB */
    double physical = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    wanted *= 1 << 20;
    return (size_t)(physical > 0 && wanted > physical / 8 ? physical / 8 : wanted);
}

/* All or none: *started threads are to be joined in either case. */
static bool start_streams(measurement *m, stream *streams, int32_t threads, unsigned char *memory,
                          size_t half, int32_t *started)
{
    pthread_mutex_init(&m->gate, NULL);
    pthread_barrier_init(&m->barrier, NULL, (unsigned)threads + 1);
    pthread_mutex_lock(&m->gate);
    for (*started = 0; *started < threads; ++*started) {
        stream *s = &streams[*started];
        *s = (stream){.shared = m,
                      .source = memory + (size_t)*started * 2 * half,
                      .target = memory + (size_t)*started * 2 * half + half};
        if (pthread_create(&s->thread, NULL, run_stream, s))
            break;
    }
    m->ended = *started < threads;
    pthread_mutex_unlock(&m->gate);
    return !m->ended;
}

bool memory_limit_measure(double bytes_read, double bytes_written, int32_t threads, double seconds,
                          double *out, failure *why)
{
    measurement m = {0};
    double more = bytes_read > bytes_written ? bytes_read : bytes_written;
    double less = bytes_read > bytes_written ? bytes_written : bytes_read;
    size_t half = choose_bytes(threads) / 2 / (size_t)threads / BLOCK * BLOCK;
    size_t total = 2 * half * (size_t)threads;
    stream *streams = calloc((size_t)threads, sizeof(*streams));
    unsigned char *memory =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int32_t started = 0;

    if (memory == MAP_FAILED || !streams) {
        free(streams);
        return fail_memory(why, (double)total, "measuring the memory");
    }
    madvise(memory, total, MADV_HUGEPAGE);
    m.blocks = half / BLOCK;
    m.copy_part = more > 0 ? less / more : 1;
    m.other_kind = bytes_read >= bytes_written ? BLOCK_READ : BLOCK_FILL;
    bool good = start_streams(&m, streams, threads, memory, half, &started);
    if (good)
        *out = time_passes(&m, (double)half * threads * (1 + m.copy_part), seconds);
    for (int32_t i = 0; i < started; i++)
        pthread_join(streams[i].thread, NULL);
    pthread_barrier_destroy(&m.barrier);
    munmap(memory, total);
    free(streams);
    return good || failed(why, STATUS_DEVICE, "cannot start %d threads", threads);
}

static bool read_line(int index, const char *name, char *out, int capacity)
{
    char path[96];

    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool good = fgets(out, capacity, file) != NULL;
    fclose(file);
    return good;
}

int64_t cache_bytes(int level)
{
    char text[64];

    for (int index = 0; index < 8; index++) {
        if (!read_line(index, "level", text, sizeof(text)) || atoi(text) != level ||
            !read_line(index, "type", text, sizeof(text)) || !strncmp(text, "Instruction", 11) ||
            !read_line(index, "size", text, sizeof(text)))
            continue;
        char *unit;
        long long size = strtoll(text, &unit, 10);
        return size * (*unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1);
    }
    return 0;
}
