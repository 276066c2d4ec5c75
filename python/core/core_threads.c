/* SPDX-License-Identifier: MIT
 *
 * core_threads.c - runs on the CPU by PyTorch's threads, which are an OpenMP runtime's. After each
 * of PyTorch's operators these spin for milliseconds, waiting for the next; threads of Ogive's own
 * would have to take the cores from them.
 */
#include "core.h"

#include <string.h>

/* What the compiler makes of "omp parallel": flags are 0 where nothing is said of affinity. GCC's,
 * LLVM's and Intel's runtimes have it. */
typedef void (*run_parallel)(void (*task)(void *argument), void *argument, unsigned threads,
                             unsigned flags);
static run_parallel parallel;
static int (*most_threads)(void); /* torch.get_num_threads() */

static void run_by_openmp(void (*task)(void *argument), void *argument, int32_t threads)
{
    int most = most_threads();
    if (most < threads)
        threads = most;
    if (threads > 1)
        parallel(task, argument, (unsigned)threads, 0);
    else
        task(argument);
}

PyObject *core_use_openmp(PyObject *module, PyObject *args)
{
    unsigned long long first, second;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK:_use_openmp", &first, &second))
        return NULL;
    uintptr_t addresses[] = {(uintptr_t)first, (uintptr_t)second};
    memcpy(&parallel, &addresses[0], sizeof parallel);
    memcpy(&most_threads, &addresses[1], sizeof most_threads);
    ogive_error error;
    if (ogive_cpu_use_threads(run_by_openmp, &error) == OGIVE_OK)
        Py_RETURN_NONE;
    core_raise(&error, NULL);
    return NULL;
}
