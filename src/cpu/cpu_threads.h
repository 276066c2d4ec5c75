/* SPDX-License-Identifier: MIT
 *
 * cpu_threads.h - run a function on several threads and wait for all of them.
 */
#ifndef OG_CPU_THREADS_H
#define OG_CPU_THREADS_H

#include <stdint.h>

enum { OG_MAX_THREADS = 256 };

/* How many threads to use: requested if it is > 0, else the first number of
 * OMP_NUM_THREADS, else the cores this thread may run on. 1 .. OG_MAX_THREADS. */
int og_cpu_thread_count(int32_t requested);

/* Calls body(context, t, threads) once for every t in 0 .. threads - 1 and
 * returns when all are done. The caller is thread 0; the others run at the same
 * time if they can, else after it, on the caller: so no call may wait for another
 * (no barriers inside body). Never fails. Any number of threads may call this at
 * once, and body may too: one gets the pool, the others do all the work themselves.
 * On the pool's threads the floating-point environment is the default one. */
void og_cpu_parallel(int threads, void (*body)(void *context, int thread, int threads),
                     void *context);

#endif
