/* SPDX-License-Identifier: MIT
 *
 * results.c - puts the results of a formula into files; see results.h.
 */
#include "results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "safetensors.h"

/* Splits "out.safetensors:KEY"; *key is NULL without one. */
static size_t path_length(const char *option, const char **key)
{
    static const char marker[] = ".safetensors:";
    const char *found = strstr(option, marker);

    *key = found ? found + strlen(marker) : NULL;
    return found ? (size_t)(*key - 1 - option) : strlen(option);
}

/* The file that option names, new or already there. */
static bool find_file(results *r, const char *option, size_t *out, failure *why)
{
    const char *key;
    size_t length = path_length(option, &key);

    for (size_t i = 0; i < r->file_count; i++) {
        const char *path = r->files[i].path;
        if (strlen(path) == length && !memcmp(path, option, length)) {
            *out = i;
            return key || failed(why, STATUS_USAGE, "-o %s is given twice%s", option,
                                 r->files[i].is_safetensors ? " (several results in one file: "
                                                              "-o FILE.safetensors:KEY)"
                                                            : "");
        }
    }
    bool safetensors = key || text_ends_with(option, ".safetensors");
    if (!safetensors && !text_ends_with(option, ".npy") && !output_is_direct(option))
        return failed(why, STATUS_USAGE, "-o %s: the name must end in .npy or .safetensors",
                      option);
    if (r->file_count == MAX_OUTPUTS)
        return failed(why, STATUS_USAGE, "more than %d output files", MAX_OUTPUTS);
    result_file *file = &r->files[r->file_count];
    *file = (result_file){
        .file = {.fd = -1}, .path = strndup(option, length), .is_safetensors = safetensors};
    if (!file->path)
        return fail_memory(why, (double)length, "a file's name");
    *out = r->file_count++;
    return true;
}

/* Result i goes where option says. */
static bool place_result(results *r, size_t i, const char *option, const host_layout *layout,
                         failure *why)
{
    const char *key;

    if (!find_file(r, option, &r->file_of[i], why))
        return false;
    path_length(option, &key);
    if (key && !*key)
        return failed(why, STATUS_USAGE, "-o %s: the key after ':' is empty", option);
    if (key && !strcmp(key, "__metadata__"))
        return failed(why, STATUS_USAGE, "-o %s: in a .safetensors file __metadata__ is no tensor",
                      option);
    const char *name = key ? key : r->default_names[i];
    for (size_t j = 0; j < i; j++)
        if (r->file_of[j] == r->file_of[i] && !strcmp(r->names[j], name))
            return failed(why, STATUS_USAGE, "-o %s is given twice", option);
    r->names[i] = name;
    if (!r->files[r->file_of[i]].is_safetensors && !layout->dtype->npy_name)
        return failed(why, STATUS_USAGE,
                      "-o %s: .npy has no %s; use .safetensors, or float32(...) in the formula",
                      option, layout->dtype->name);
    return true;
}

/* Opens file i. Two names of one file would leave one result of two. */
static bool open_file(results *r, size_t i, failure *why)
{
    output_file *file = &r->files[i].file;

    if (!output_open(r->files[i].path, file, why))
        return false;
    for (size_t j = 0; file->target && j < i; j++)
        if (r->files[j].file.target && !strcmp(r->files[j].file.target, file->target))
            return failed(why, STATUS_USAGE, "-o %s and -o %s are one file", r->files[j].path,
                          r->files[i].path);
    return true;
}

bool results_open(results *r, const text_list *outputs, host_layout *const *layouts, size_t count,
                  failure *why)
{
    const char *key;

    *r = (results){.files = calloc(MAX_OUTPUTS, sizeof(*r->files)),
                   .file_of = calloc(count, sizeof(*r->file_of)),
                   .names = calloc(count, sizeof(*r->names)),
                   .default_names = calloc(count, sizeof(*r->default_names)),
                   .count = count};
    if (!r->files || !r->file_of || !r->names || !r->default_names)
        return fail_memory(why, (double)count, "the outputs");
    bool takes_all = false;
    if (outputs->count == 1 && count > 1) {
        path_length(outputs->items[0], &key);
        takes_all = !key && text_ends_with(outputs->items[0], ".safetensors");
    }
    if (outputs->count != count && !takes_all)
        return failed(why, STATUS_USAGE,
                      "the formula has %zu result%s, but there %s %zu -o (one each%s)", count,
                      count == 1 ? "" : "s", outputs->count == 1 ? "is" : "are", outputs->count,
                      count > 1 ? ", or one .safetensors for all" : "");
    for (size_t i = 0; i < count; i++) {
        snprintf(r->default_names[i], sizeof(r->default_names[i]),
                 count == 1 ? "result" : "result.%zu", i);
        if (takes_all && i > 0)
            r->names[i] = r->default_names[i];
        else if (!place_result(r, i, outputs->items[i], layouts[i], why))
            return false;
    }
    for (size_t i = 0; i < r->file_count; i++)
        if (!open_file(r, i, why))
            return false;
    return true;
}

static size_t data_bytes(const host_layout *layout)
{
    return (size_t)host_layout_elements(layout) * layout->dtype->bytes;
}

static bool write_npy(output_file *file, const host_layout *layout, const void *data, failure *why)
{
    char header[NPY_MAX_HEADER];
    size_t length = npy_write_header(layout, header);

    return output_write(file, header, length, why) &&
           output_write(file, data, data_bytes(layout), why);
}

/* All results that go to files[which]. */
static bool write_safetensors(results *r, size_t which, host_layout *const *layouts,
                              void *const *data, failure *why)
{
    size_t *index = calloc(2 * r->count, sizeof(*index)), *order = index + r->count, count = 0;
    const host_layout **mine = calloc(r->count, sizeof(*mine));
    const char **names = calloc(r->count, sizeof(*names));
    char *header = NULL;
    size_t length = 0;
    bool good = index && mine && names;

    if (!good)
        fail_memory(why, (double)r->count, "the outputs");
    for (size_t i = 0; good && i < r->count; i++) {
        if (r->file_of[i] == which) {
            mine[count] = layouts[i];
            names[count] = r->names[i];
            index[count++] = i;
        }
    }
    output_file *file = &r->files[which].file;
    good = good && safetensors_write_header(mine, names, count, order, &header, &length, why) &&
           output_write(file, header, length, why);
    for (size_t i = 0; good && i < count; i++) {
        size_t result = index[order[i]];
        good = output_write(file, data[result], data_bytes(layouts[result]), why);
    }
    free(header);
    free(index);
    free(mine);
    free(names);
    return good;
}

bool results_write(results *r, host_layout *const *layouts, void *const *data, failure *why)
{
    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].is_safetensors && !write_safetensors(r, i, layouts, data, why))
            return false;
    for (size_t i = 0; i < r->count; i++) {
        result_file *file = &r->files[r->file_of[i]];
        if (!file->is_safetensors && !write_npy(&file->file, layouts[i], data[i], why))
            return false;
    }
    for (size_t i = 0; i < r->file_count; i++)
        if (!output_sync(&r->files[i].file, why))
            return false;
    for (size_t i = 0; i < r->file_count; i++)
        if (!output_commit(&r->files[i].file, why))
            return false;
    return true;
}

void results_release(results *r)
{
    for (size_t i = 0; i < r->file_count; i++) {
        output_discard(&r->files[i].file);
        free(r->files[i].path);
    }
    free(r->files);
    free(r->file_of);
    free(r->names);
    free(r->default_names);
    *r = (results){0};
}
