/* SPDX-License-Identifier: MIT
 *
 * inputs.c - the inputs of a formula; see inputs.h.
 */
#include "inputs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mapped_file.h"
#include "npy.h"
#include "safetensors.h"

struct input_source {
    const char *path; /* argument, or the part of it that is the path */
    char *path_owned;
    mapped_file file;
    bool is_safetensors;
    bool offered; /* given bare: every tensor under its own name */
    npy_array npy;
    safetensors_file tensors;
};

static const char *const input_forms =
    "NAME=FILE.npy, NAME=FILE.safetensors:KEY, NAME=128x4096:float32 or NAME=2.0";

/* Opens path, or finds that it is open already. */
static input_source *open_source(inputs *in, const char *path, size_t length, failure *why)
{
    for (size_t i = 0; i < in->source_count; i++)
        if (strlen(in->sources[i].path) == length && !memcmp(in->sources[i].path, path, length))
            return &in->sources[i];

    input_source *source = &in->sources[in->source_count];
    *source = (input_source){.path_owned = strndup(path, length)};
    source->path = source->path_owned;
    if (!source->path) {
        fail_memory(why, (double)length, "a file's name");
        return NULL;
    }
    in->source_count++;
    if (!mapped_file_open(source->path, &source->file, why))
        return NULL;

    const mapped_file *file = &source->file;
    source->is_safetensors =
        !npy_is_npy(file->bytes, file->size) && !text_ends_with(source->path, ".npy");
    bool good = source->is_safetensors
                    ? safetensors_parse(file->bytes, file->size, &source->tensors, why)
                    : npy_parse(file->bytes, file->size, &source->npy, why);
    if (!good) {
        if (source->is_safetensors && !text_ends_with(source->path, ".safetensors"))
            failed(why, STATUS_FILE, "neither a .npy nor a .safetensors file");
        fail_prefix(why, source->path);
        return NULL;
    }
    return source;
}

static const char *nearest_tensor(const safetensors_file *file, const char *name)
{
    const char *best = NULL;

    /* One candidate at a time, so that no list has to be made: the last that
     * is near. Close names differ in one place, and any of them helps. */
    for (size_t i = 0; i < file->count; i++) {
        const char *candidate = text_nearest(name, &file->entries[i].name, 1);
        best = candidate ? candidate : best;
    }
    return best;
}

/* Tensor key of source as input item. */
static bool take_tensor(input *item, const input_source *source, const char *key, failure *why)
{
    const safetensors_entry *entry = safetensors_find(&source->tensors, key);

    if (!entry) {
        const char *nearest = nearest_tensor(&source->tensors, key);
        char list[200] = "";
        size_t used = 0;
        for (size_t i = 0; i < source->tensors.count && used + 60 < sizeof(list); i++)
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%.40s", i ? ", " : "",
                                     source->tensors.entries[i].name);
        if (nearest)
            failed(why, STATUS_FILE, "no tensor '%s'; did you mean '%s'?", key, nearest);
        else
            failed(why, STATUS_FILE, "no tensor '%s'; it holds %zu: %s%s", key,
                   source->tensors.count, list, used + 60 >= sizeof(list) ? ", ..." : "");
        return fail_prefix(why, source->path);
    }
    if (!safetensors_layout(entry, &item->layout, why))
        return fail_prefix(why, source->path);
    item->kind = INPUT_FILE;
    item->data = source->file.bytes + entry->data_offset;
    return true;
}

/* x=weights.safetensors without a key: the only tensor, or the one of the same
 * name. */
static bool take_only_tensor(input *item, const input_source *source, failure *why)
{
    if (source->tensors.count == 1)
        return take_tensor(item, source, source->tensors.entries[0].name, why);
    if (safetensors_find(&source->tensors, item->name))
        return take_tensor(item, source, item->name, why);
    return failed(why, STATUS_USAGE, "%s holds %zu tensors: say which, %s=%s:KEY", source->path,
                  source->tensors.count, item->name, source->path);
}

static bool is_number(const char *text, double *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    char *end;

    /* Not strtod's hexadecimal: 0x10 is a shape. */
    if (strcmp(digits, "inf") && strcmp(digits, "nan") &&
        (strspn(text, "+-.0123456789eE") != strlen(text) || !strpbrk(text, "0123456789")))
        return false;
    *out = strtod(text, &end);
    return !*end && *text;
}

/* "float32" or "float32:channels_last", behind a shape. */
static bool take_dtype(input *item, const char *text, const char *name, bool *channels_last,
                       failure *why)
{
    const char *colon = strchr(name, ':');
    char alone[32];
    snprintf(alone, sizeof alone, "%.*s", colon ? (int)(colon - name) : 31, name);
    item->layout.dtype = host_dtype_named(alone);
    if (!item->layout.dtype) {
        const char *nearest = host_dtype_nearest(alone);
        return failed(why, STATUS_USAGE, "%s=%s: unknown dtype '%s'%s%s%s; expected one of %s",
                      item->name, text, alone, nearest ? " (did you mean '" : "",
                      nearest ? nearest : "", nearest ? "'?)" : "", HOST_DTYPE_NAMES);
    }
    *channels_last = colon != NULL;
    return !colon || !strcmp(colon + 1, "channels_last") ||
           failed(why, STATUS_USAGE, "%s=%s: unknown layout '%s'; expected channels_last",
                  item->name, text, colon + 1);
}

/* 128x4096:float32; 1x1 to 8 dims, float32 if no dtype follows. *is_shape says
 * whether text looks like one at all. */
static bool take_shape(input *item, const char *text, bool *is_shape, failure *why)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    host_layout *layout = &item->layout;
    bool channels_last = false;

    *is_shape = length && strspn(text, "0123456789x") == length && text[0] != 'x' &&
                text[length - 1] != 'x' && !strstr(text, "xx");
    if (!*is_shape)
        return false;
    item->kind = INPUT_GENERATED;
    if (!take_dtype(item, text, colon ? colon + 1 : "float32", &channels_last, why))
        return false;
    for (const char *at = text; at < text + length; at++) {
        char *end;
        errno = 0;
        long long extent = strtoll(at, &end, 10);
        if (layout->ndim == MAX_RANK)
            return failed(why, STATUS_USAGE, "%s=%s: more than %d dims", item->name, text,
                          MAX_RANK);
        if (errno)
            return failed(why, STATUS_USAGE, "%s=%s: a dim is too large", item->name, text);
        layout->shape[layout->ndim++] = extent;
        at = end;
    }
    if (!host_layout_contiguous(layout, NULL))
        return failed(why, STATUS_USAGE, "%s=%s: the shape has too many elements", item->name,
                      text);
    if (channels_last && layout->ndim != 4 && layout->ndim != 5)
        return failed(why, STATUS_USAGE, "%s=%s: channels_last is a layout of 4 or 5 dims",
                      item->name, text);
    if (channels_last)
        host_layout_channels_last(layout);
    return true;
}

void inputs_set_number(input *item, double number)
{
    item->kind = INPUT_NUMBER;
    item->number = number;
    item->layout = (host_layout){.dtype = host_dtype_named("float32")};
    item->tensor = host_layout_tensor(&item->layout, NULL);
}

/* Whether text can only be meant as a file, there or not. */
static bool is_file_name(const char *text)
{
    return strchr(text, '/') || text_ends_with(text, ".npy") || strstr(text, ".safetensors");
}

/* The part after "NAME=". */
static bool take_value(inputs *in, input *item, const char *value, failure *why)
{
    static const char marker[] = ".safetensors:";
    const char *key = strstr(value, marker);
    bool is_shape;

    if (!*value)
        return failed(why, STATUS_USAGE, "'%s=' has no value; expected %s", item->name,
                      input_forms);
    if (is_number(value, &item->number)) {
        if (isinf((float)item->number) && !strstr(value, "inf"))
            return failed(why, STATUS_USAGE, "%s=%s is out of float32's range", item->name, value);
        inputs_set_number(item, item->number);
        item->maybe_size = strspn(value, "0123456789") == strlen(value) && item->number > 1;
        return true;
    }
    if (take_shape(item, value, &is_shape, why))
        return true;
    if (is_shape)
        return false;
    if (!is_file_name(value) && access(value, F_OK) != 0 && errno == ENOENT)
        return failed(why, STATUS_USAGE,
                      "%s=%s: neither a shape (like 128x4096:float32), a number nor a file that "
                      "exists",
                      item->name, value);

    size_t length = key ? (size_t)(key - value) + strlen(marker) - 1 : strlen(value);
    const input_source *source = open_source(in, value, length, why);
    if (!source)
        return false;
    if (key)
        return source->is_safetensors
                   ? take_tensor(item, source, value + length + 1, why)
                   : failed(why, STATUS_FILE, "%s is a .npy file: it has no keys", source->path);
    if (source->is_safetensors)
        return take_only_tensor(item, source, why);
    item->kind = INPUT_FILE;
    item->layout = source->npy.layout;
    item->data = source->file.bytes + source->npy.data_offset;
    return true;
}

static bool is_name_character(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80 || (!first && ((c >= '0' && c <= '9') || c == '.'));
}

/* Length of the name in "NAME=...", 0 if argument is not of that form. */
static size_t name_length(const char *argument)
{
    size_t n = 0;

    while (is_name_character(argument[n], n == 0))
        n++;
    return argument[n] == '=' ? n : 0;
}

bool inputs_is_input(const char *argument)
{
    return name_length(argument) || text_ends_with(argument, ".safetensors");
}

/* The formula's inputs as "x, y, z", for messages. */
static void list_names(const inputs *in, char *out, size_t capacity)
{
    size_t used = 0;

    out[0] = 0;
    for (size_t i = 0; i < in->count && used < capacity; i++)
        used +=
            (size_t)snprintf(out + used, capacity - used, "%s%s", i ? ", " : "", in->items[i].name);
}

static bool is_function(const char *name)
{
    ogive_function_info info;

    for (size_t i = 0; i < ogive_function_count(); i++)
        if (!ogive_function(i, &info, NULL) && !strcmp(info.name, name))
            return true;
    return false;
}

/* What 'x.mean' in the formula was meant as, where only x is given: "mean"; or NULL. */
static const char *find_method(const inputs *in, const char *name, size_t length)
{
    for (size_t i = 0; i < in->count; i++) {
        const char *known = in->items[i].name;
        if (!strncmp(known, name, length) && known[length] == '.' &&
            is_function(known + length + 1))
            return known + length + 1;
    }
    return NULL;
}

static bool fail_no_input(const inputs *in, const char *name, size_t length, failure *why)
{
    char wanted[128], list[400];
    const char *nearest = NULL;

    snprintf(wanted, sizeof(wanted), "%.*s", (int)length, name);
    for (size_t i = 0; i < in->count && !nearest; i++)
        nearest = text_nearest(wanted, &in->items[i].name, 1);
    list_names(in, list, sizeof(list));
    const char *method = find_method(in, name, length);
    if (method)
        return failed(
            why, STATUS_USAGE,
            "the formula has no input '%s'; its inputs are %s: a name with a dot is a name, "
            "write %s(%s)",
            wanted, list, method, wanted);
    if (nearest && strlen(nearest) > 1)
        return failed(why, STATUS_USAGE, "the formula has no input '%s'; did you mean '%s'?",
                      wanted, nearest);
    return failed(why, STATUS_USAGE, "the formula has no input '%s'; its inputs are %s", wanted,
                  list);
}

/* One argument. `given` marks the items that have a value. */
static bool take_argument(inputs *in, const char *argument, bool *given, failure *why)
{
    size_t length = name_length(argument);

    if (!length && text_ends_with(argument, ".safetensors")) {
        input_source *source = open_source(in, argument, strlen(argument), why);
        if (source)
            source->offered = true;
        return source != NULL;
    }
    if (!length && text_ends_with(argument, ".npy"))
        return failed(why, STATUS_USAGE, "'%s' needs a name: %s=%s", argument,
                      in->count ? in->items[0].name : "x", argument);
    if (!length)
        return failed(why, STATUS_USAGE, "'%s' is not an input; expected %s", argument,
                      input_forms);
    for (size_t i = 0; i < in->count; i++) {
        const char *name = in->items[i].name;
        if (strlen(name) != length || memcmp(name, argument, length))
            continue;
        if (given[i])
            return failed(why, STATUS_USAGE, "input '%s' is given twice", name);
        given[i] = true;
        return take_value(in, &in->items[i], argument + length + 1, why);
    }
    return fail_no_input(in, argument, length, why);
}

static bool has_extent(const inputs *in, double extent)
{
    for (size_t i = 0; i < in->count; i++)
        for (int32_t d = 0; d < in->items[i].layout.ndim; d++)
            if (in->items[i].kind != INPUT_MISSING &&
                (double)in->items[i].layout.shape[d] == extent)
                return true;
    return false;
}

const input *inputs_find_maybe_size(const inputs *in, bool any_size)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->items[i].maybe_size && (any_size || has_extent(in, in->items[i].number)))
            return &in->items[i];
    return NULL;
}

bool inputs_fail_missing(const input *item, failure *why)
{
    return failed(why, STATUS_USAGE,
                  "input '%s' is missing: give it as %s=FILE.npy, %s=128x4096:float32 or %s=2.0",
                  item->name, item->name, item->name, item->name);
}

/* An input without an argument of its own: from the files given bare. */
static bool take_offered(inputs *in, input *item, bool is_required, failure *why)
{
    const input_source *found = NULL, *offering = NULL;

    for (size_t i = 0; i < in->source_count; i++) {
        const input_source *source = &in->sources[i];
        if (!source->offered || !source->is_safetensors)
            continue;
        offering = source;
        if (!safetensors_find(&source->tensors, item->name))
            continue;
        if (found)
            return failed(why, STATUS_USAGE, "both %s and %s hold '%s': say which, %s=FILE:%s",
                          found->path, source->path, item->name, item->name, item->name);
        found = source;
    }
    if (found)
        return take_tensor(item, found, item->name, why);
    item->kind = INPUT_MISSING;
    if (!is_required)
        return true;
    const char *nearest = offering ? nearest_tensor(&offering->tensors, item->name) : NULL;
    if (nearest && strlen(item->name) > 2)
        return failed(why, STATUS_USAGE, "input '%s' is missing; %s holds '%s'", item->name,
                      offering->path, nearest);
    return inputs_fail_missing(item, why);
}

bool inputs_resolve(const ogive_formula *formula, const text_list *arguments, size_t required,
                    inputs *out, failure *why)
{
    size_t count = ogive_formula_input_count(formula);
    bool *given = calloc(count + 1, sizeof(*given));

    *out = (inputs){.items = calloc(count + 1, sizeof(*out->items)),
                    .tensors = calloc(count + 1, sizeof(*out->tensors)),
                    .sources = calloc(arguments->count + 1, sizeof(*out->sources))};
    bool good = given && out->items && out->tensors && out->sources;
    if (!good)
        fail_memory(why, (double)count, "the inputs");
    for (size_t i = 0; good && i < count; i++)
        out->items[i].name = ogive_formula_input_name(formula, i);
    if (good)
        out->count = count;
    for (size_t i = 0; good && i < arguments->count; i++)
        good = take_argument(out, arguments->items[i], given, why);
    for (size_t i = 0; good && i < count; i++)
        good = given[i] || take_offered(out, &out->items[i], i < required, why);
    for (size_t i = 0; good && i < count; i++) {
        if (out->items[i].kind != INPUT_MISSING)
            out->items[i].tensor = host_layout_tensor(&out->items[i].layout, out->items[i].data);
        out->tensors[i] = &out->items[i].tensor;
    }
    free(given);
    return good;
}

/* splitmix64's finaliser: a good hash of a counter. */
static uint64_t mix(uint64_t v)
{
    v += 0x9e3779b97f4a7c15u;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
    v = (v ^ v >> 27) * 0x94d049bb133111ebu;
    return v ^ v >> 31;
}

/* k/2^digits in the narrow formats: exact, so nothing rounds up to 1. */
static uint16_t narrow_bits(const host_dtype *dtype, uint64_t random)
{
    bool half = dtype->code.code == kDLFloat;
    int digits = half ? 11 : 8;
    float value = ldexpf((float)(random >> (64 - digits)), -digits);
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (!half)
        return (uint16_t)(bits >> 16);
    return value == 0 ? 0 : (uint16_t)((bits >> 13) - ((127 - 15) << 10));
}

/* A small one that every type holds. */
static void put_integer(const host_dtype *dtype, void *data, int64_t i, int value)
{
    switch (dtype->bytes) {
    case 8:
        ((int64_t *)data)[i] = value;
        break;
    case 4:
        ((int32_t *)data)[i] = value;
        break;
    case 2:
        ((int16_t *)data)[i] = (int16_t)value;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

void fill_uniform(const host_dtype *dtype, void *data, int64_t elements, uint64_t seed,
                  const char *name)
{
    uint64_t key = mix(seed);

    for (; *name; name++)
        key = mix(key ^ (unsigned char)*name);
    for (int64_t i = 0; i < elements; i++) {
        uint64_t random = mix(key + (uint64_t)i);
        if (!host_dtype_is_float(dtype)) /* 0 to 127, or 0 and 1 */
            put_integer(dtype, data, i, (int)(random >> (dtype->code.code == kDLBool ? 63 : 57)));
        else if (dtype->bytes == 4)
            ((float *)data)[i] = (float)(random >> 40) * 0x1p-24f;
        else if (dtype->bytes == 8)
            ((double *)data)[i] = (double)(random >> 11) * 0x1p-53;
        else
            ((uint16_t *)data)[i] = narrow_bits(dtype, random);
    }
}

/* Bytes from the first element to the end of the last. */
static size_t span_bytes(const host_layout *layout)
{
    return (size_t)host_layout_elements(layout) * layout->dtype->bytes;
}

static bool load_one(input *item, uint64_t seed, failure *why)
{
    size_t bytes = span_bytes(&item->layout);

    /* Neither format promises alignment; the library needs it. */
    if (item->kind == INPUT_FILE && (uintptr_t)item->data % item->layout.dtype->bytes == 0)
        return true;
    item->owned = host_allocate(bytes);
    if (!item->owned)
        return fail_memory(why, (double)bytes, item->name);
    if (item->kind == INPUT_FILE) {
        memcpy(item->owned, item->data, bytes);
    } else if (item->kind == INPUT_NUMBER) {
        float value = (float)item->number;
        memcpy(item->owned, &value, sizeof(value));
    } else {
        fill_uniform(item->layout.dtype, item->owned, host_layout_elements(&item->layout), seed,
                     item->name);
    }
    item->data = item->owned;
    return true;
}

bool inputs_load(inputs *in, uint64_t seed, failure *why)
{
    for (size_t i = 0; i < in->count; i++) {
        if (!load_one(&in->items[i], seed, why))
            return false;
        in->items[i].tensor.data = (void *)(uintptr_t)in->items[i].data;
    }
    return true;
}

void inputs_release(inputs *in)
{
    for (size_t i = 0; i < in->count; i++)
        free(in->items[i].owned);
    for (size_t i = 0; i < in->source_count; i++) {
        input_source *source = &in->sources[i];
        safetensors_release(&source->tensors);
        mapped_file_close(&source->file);
        free(source->path_owned);
    }
    free(in->items);
    free(in->tensors);
    free(in->sources);
    *in = (inputs){0};
}
