/* SPDX-License-Identifier: MIT
 *
 * api.h - the objects behind ogive.h, between the files of this folder.
 */
#ifndef OG_API_H
#define OG_API_H

#include "formula/graph.h"
#include "plan/backend.h"
#include "plan/planner.h"

#include <stdatomic.h>

/* Layouts and options that a cached plan was made for: flat words, compared whole. */
typedef struct {
    int64_t *words;
    size_t count;
    char level[32]; /* of ogive_options.cpu_level; "" for NULL */
} og_key;

enum { OG_CACHED_PLANS = 8 };

struct ogive_formula {
    atomic_int owners;
    og_graph graph;
    atomic_uint lock;                   /* guards plans: og_lock_cache() */
    ogive_plan *plans[OG_CACHED_PLANS]; /* most recent first, NULL at the end */
};

/* A formula that owns graph, which is freed on failure. */
ogive_status og_formula_wrap(og_graph *graph, ogive_formula **out, ogive_error *error);

/* Bytes that a tensor reaches from its first element: [low, high). */
typedef struct {
    int64_t low, high;
} og_reach;

struct ogive_plan {
    atomic_int owners;
    og_plan plan;
    const og_backend *backend;
    void *state;
    og_placement placement;
    size_t workspace_bytes;
    DLTensor *results;     /* [output_count], arena of plan */
    const char **names;    /* [input_count], for messages and explain */
    og_reach *reach;       /* [input_count + output_count] */
    size_t *packed;        /* [input_count]: bytes of an input that is packed, else 0 */
    og_key key;            /* of a cached plan */
    _Atomic(void *) spare; /* one idle workspace of a cached plan */
};

/* Registers the fork handler that the lock relies on, once. */
void og_watch_forks(void);
/* Waits for the formula's cache of plans. In a forked child it may be empty then. */
void og_lock_cache(ogive_formula *formula);

/* text into the caller's buffer, cut to capacity; returns its length, as snprintf does. */
size_t og_copy_text(const char *text, size_t length, char *buffer, size_t capacity);

/* Checks a caller's tensor and reads its layout. what ("input", "output") and
 * name are for messages. */
ogive_status og_read_tensor(const DLTensor *tensor, const char *what, const char *name,
                            og_layout *layout, ogive_error *error);

/* Where a tensor that og_read_tensor() takes is: the CPU, whatever its number, or a
 * CUDA device. */
DLDevice og_tensor_device(const DLTensor *tensor);
/* "the CPU", "CUDA device 1" */
enum { OG_DEVICE_TEXT = 32 };
const char *og_device_text(DLDevice device, char text[OG_DEVICE_TEXT]);

/* Do the bytes from the first to the last element fit an int64? */
bool og_layout_fits(const og_layout *layout);

/* The bytes an og_layout reaches. Never overflows for a layout that
 * fits. */
og_reach og_layout_reach(const og_layout *layout);

/* Do two tensors at these addresses share an element? May say yes wrongly for
 * layouts that interleave in unusual ways, never no. */
bool og_tensors_overlap(const og_buffer *a, const og_reach *a_reach, const char *a_data,
                        const og_buffer *b, const og_reach *b_reach, const char *b_data);

#endif
