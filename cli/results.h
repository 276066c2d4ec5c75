/* SPDX-License-Identifier: MIT
 *
 * results.h - puts the results of a formula into files.
 *     -o out.npy              one result
 *     -o out.safetensors      one result, or all that there are
 *     -o out.safetensors:KEY  one result under that name; several may share
 *                             the file
 *     -o /dev/stdout          one result as .npy; the same for every target that
 *                             is written to directly (output.h)
 */
#ifndef OGIVE_CLI_RESULTS_H
#define OGIVE_CLI_RESULTS_H

#include "failure.h"
#include "host_tensor.h"
#include "output.h"
#include "text.h"

typedef struct {
    output_file file;
    char *path;
    bool is_safetensors;
} result_file;

typedef struct {
    result_file *files;
    size_t file_count;
    size_t *file_of;    /* of each result */
    const char **names; /* of each result in its file */
    char (*default_names)[32];
    size_t count; /* of results */
} results;

/* Checks the -o options against the results and makes the temporary files.
 * On failure too: release with results_release(). */
bool results_open(results *r, const text_list *outputs, host_layout *const *layouts, size_t count,
                  failure *why);
/* Writes all, then gives all their names. */
bool results_write(results *r, host_layout *const *layouts, void *const *data, failure *why);
void results_release(results *r);

#endif
