/* SPDX-License-Identifier: MIT
 *
 * safetensors.c - .safetensors files; see safetensors.h.
 */
#include "safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_output.h"
#include "text.h"

/* Every dtype the format knows: a file may hold any of them, and their sizes
 * are checked, used or not. */
static const struct {
    const char *name;
    unsigned bits;
} file_dtypes[] = {
    {"F64", 64},    {"F32", 32},    {"BF16", 16},       {"F16", 16},        {"BOOL", 8},
    {"U8", 8},      {"I8", 8},      {"I16", 16},        {"U16", 16},        {"I32", 32},
    {"U32", 32},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

static unsigned dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof(file_dtypes) / sizeof(file_dtypes[0]); i++)
        if (!strcmp(file_dtypes[i].name, name))
            return file_dtypes[i].bits;
    return 0;
}

/* "tensor 'NAME': ..." with a long name cut. */
static bool fail_tensor(failure *why, const char *name, const char *what)
{
    return failed(why, STATUS_FILE, "bad .safetensors header: tensor '%.200s': %s", name, what);
}

static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* Bytes that dtype and shape ask for. */
static bool count_bytes(const safetensors_entry *entry, size_t *out, failure *why)
{
    unsigned width = dtype_bits(entry->dtype);
    /* The product goes on past a 0, as the reference's does, so that
     * [2^62, 4, 0] is refused there and here. */
    int64_t bits = 1, empty = 0;

    for (size_t i = 0; i < json_array_size(entry->shape); i++) {
        const json_t *item = json_array_get(entry->shape, i);
        if (!is_count(item))
            return fail_tensor(why, entry->name, "a dim of its shape is not a whole number >= 0");
        if (json_integer_value(item) == 0)
            empty = 1;
        else if (__builtin_mul_overflow(bits, json_integer_value(item), &bits))
            return fail_tensor(why, entry->name, "its shape has too many elements");
    }
    if (__builtin_mul_overflow(bits, (int64_t)width, &bits))
        return fail_tensor(why, entry->name, "its shape has too many elements");
    if (empty)
        bits = 0;
    if (bits % 8)
        return fail_tensor(why, entry->name, "its data does not end at a whole byte");
    *out = (size_t)bits / 8;
    return true;
}

/* One member of the header. Leaves the begin of data_offsets in data_offset. */
static bool read_entry(const char *name, json_t *value, safetensors_entry *out, failure *why)
{
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");

    if (!json_is_object(value))
        return fail_tensor(why, name, "expected an object with dtype, shape and data_offsets");
    if (!json_is_string(dtype))
        return fail_tensor(why, name, "dtype is missing or no string");
    if (!dtype_bits(json_string_value(dtype)))
        return failed(why, STATUS_FILE,
                      "bad .safetensors header: tensor '%.200s': dtype '%.40s' is unknown", name,
                      json_string_value(dtype));
    if (!json_is_array(shape))
        return fail_tensor(why, name, "shape is missing or no list");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !is_count(json_array_get(offsets, 0)) || !is_count(json_array_get(offsets, 1)))
        return fail_tensor(why, name, "data_offsets must be [BEGIN, END], two whole numbers >= 0");

    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    size_t wanted = 0;
    *out = (safetensors_entry){name, json_string_value(dtype), shape, begin, 0};
    if (!count_bytes(out, &wanted, why))
        return false;
    if (end < begin)
        return fail_tensor(why, name, "data_offsets end before they begin");
    if (end - begin != wanted)
        return failed(
            why, STATUS_FILE,
            "bad .safetensors header: tensor '%.200s': data_offsets give %zu bytes, dtype "
            "and shape %zu",
            name, end - begin, wanted);
    out->bytes = wanted;
    return true;
}

static bool check_metadata(const json_t *value, failure *why)
{
    const char *key;
    json_t *text;

    if (json_is_null(value))
        return true;
    if (!json_is_object(value))
        return failed(why, STATUS_FILE, "bad .safetensors header: __metadata__ is not an object");
    json_object_foreach((json_t *)(uintptr_t)value, key, text)
    {
        if (!json_is_string(text))
            return failed(why, STATUS_FILE,
                          "bad .safetensors header: __metadata__ '%.200s' is not a string", key);
    }
    return true;
}

static int compare_entries(const void *left, const void *right)
{
    const safetensors_entry *a = left, *b = right;

    if (a->data_offset != b->data_offset)
        return a->data_offset < b->data_offset ? -1 : 1;
    /* Empty tensors first: they may share their offset with a full one. */
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Entries in the order of their data: each must begin where the last ended and
 * the last must end with the file. */
static bool check_order(safetensors_file *file, size_t data_start, size_t data_bytes, failure *why)
{
    size_t at = 0;

    qsort(file->entries, file->count, sizeof(*file->entries), compare_entries);
    for (size_t i = 0; i < file->count; i++) {
        safetensors_entry *entry = &file->entries[i];
        if (entry->data_offset != at)
            return failed(
                why, STATUS_FILE,
                "bad .safetensors header: tensor '%.200s' begins at byte %zu of the data, "
                "expected %zu (%s)",
                entry->name, entry->data_offset, at,
                entry->data_offset < at ? "tensors overlap" : "a gap between tensors");
        at += entry->bytes;
        entry->data_offset += data_start;
    }
    if (at > data_bytes)
        return failed(why, STATUS_FILE,
                      "truncated: the tensors need %zu bytes of data, the file has %zu", at,
                      data_bytes);
    if (at < data_bytes)
        return failed(why, STATUS_FILE,
                      "bad .safetensors file: %zu bytes after the last tensor's data",
                      data_bytes - at);
    return true;
}

/* The reference takes -0 for a float and refuses it where a count belongs;
 * jansson makes it the integer 0. Nothing else in a header can be -0. */
static bool has_negative_zero(const char *text, size_t length)
{
    bool quoted = false;

    for (size_t i = 0; i + 1 < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] == '-' && text[i + 1] == '0' &&
                 (i + 2 == length || !strchr(".eE", text[i + 2])))
            return true;
    }
    return false;
}

/* Parses the JSON; a message that names the place. */
static bool load_header(const char *text, size_t length, json_t **out, failure *why)
{
    json_error_t error;

    if (text[0] != '{')
        return failed(why, STATUS_FILE, "bad .safetensors header: it does not begin with '{'");
    for (size_t i = 0; i < length;) {
        size_t n = text_utf8_length(text + i, length - i);
        if (!n)
            return failed(why, STATUS_FILE, "bad .safetensors header: byte %zu is not UTF-8", i);
        i += n;
    }
    if (has_negative_zero(text, length))
        return failed(why, STATUS_FILE, "bad .safetensors header: -0 is not a whole number >= 0");
    json_watch_memory();
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!*out && (json_take_loss() || json_error_code(&error) == json_error_out_of_memory))
        return fail_memory(why, (double)length, "the .safetensors header");
    if (!*out && json_error_code(&error) == json_error_duplicate_key)
        return failed(why, STATUS_FILE,
                      "bad .safetensors header: a key is given twice (at byte %d)", error.position);
    if (!*out)
        return failed(why, STATUS_FILE, "bad .safetensors header: %s (at byte %d)", error.text,
                      error.position);
    return true;
}

static bool read_entries(safetensors_file *file, failure *why)
{
    const char *name;
    json_t *value;

    file->entries = calloc(json_object_size(file->header) + 1, sizeof(*file->entries));
    if (!file->entries)
        return fail_memory(why, (double)json_object_size(file->header), "the .safetensors header");
    json_object_foreach(file->header, name, value)
    {
        bool good = !strcmp(name, "__metadata__")
                        ? check_metadata(value, why)
                        : read_entry(name, value, &file->entries[file->count++], why);
        if (!good)
            return false;
    }
    return true;
}

bool safetensors_parse(const void *bytes, size_t size, safetensors_file *out, failure *why)
{
    const unsigned char *b = bytes;
    uint64_t length = 0;

    *out = (safetensors_file){0};
    if (size < 8)
        return failed(why, STATUS_FILE, "not a .safetensors file: %zu bytes, expected at least 8",
                      size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | b[i];
    if (length > SAFETENSORS_MAX_HEADER)
        return failed(why, STATUS_FILE,
                      "bad .safetensors file: the header's length is %llu bytes, more than the "
                      "format's limit of 100000000",
                      (unsigned long long)length);
    if (length > size - 8)
        return failed(why, STATUS_FILE,
                      "truncated: the .safetensors header should have %llu bytes, the file has %zu "
                      "left",
                      (unsigned long long)length, size - 8);
    if (length < 2)
        return failed(why, STATUS_FILE, "bad .safetensors file: the header is empty");

    size_t data_start = 8 + (size_t)length;
    if (load_header((const char *)b + 8, (size_t)length, &out->header, why) &&
        read_entries(out, why) && check_order(out, data_start, size - data_start, why))
        return true;
    safetensors_release(out);
    return false;
}

void safetensors_release(safetensors_file *file)
{
    json_decref(file->header);
    free(file->entries);
    *file = (safetensors_file){0};
}

const safetensors_entry *safetensors_find(const safetensors_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->entries[i].name, name))
            return &file->entries[i];
    return NULL;
}

bool safetensors_layout(const safetensors_entry *entry, host_layout *out, failure *why)
{
    size_t ndim = json_array_size(entry->shape);

    *out = (host_layout){0};
    for (size_t i = 0; i < host_dtype_count(); i++)
        if (!strcmp(host_dtype_at(i)->safetensors_name, entry->dtype))
            out->dtype = host_dtype_at(i);
    if (!out->dtype)
        return failed(
            why, STATUS_FILE,
            "tensor '%.200s' has dtype %s; ogive takes F16, BF16, F32, F64, BOOL, U8, I8, "
            "I16, I32, I64",
            entry->name, entry->dtype);
    if (ndim > MAX_RANK)
        return failed(why, STATUS_FILE, "tensor '%.200s' has %zu dims; ogive takes up to %d",
                      entry->name, ndim, MAX_RANK);
    out->ndim = (int32_t)ndim;
    for (size_t i = 0; i < ndim; i++)
        out->shape[i] = json_integer_value(json_array_get(entry->shape, i));
    host_layout_contiguous(out, NULL);
    return true;
}

/* The reference's order: widest dtype first, so that all stay aligned, then by
 * name. Few tensors: insertion sort. */
static void sort_tensors(const host_layout *const *layouts, const char *const *names, size_t count,
                         size_t *order)
{
    for (size_t i = 0; i < count; i++) {
        size_t j = i;
        for (; j > 0; j--) {
            size_t other = order[j - 1];
            size_t mine = layouts[i]->dtype->bytes, theirs = layouts[other]->dtype->bytes;
            if (mine < theirs || (mine == theirs && strcmp(names[i], names[other]) > 0))
                break;
            order[j] = other;
        }
        order[j] = i;
    }
}

static json_t *describe(const host_layout *layout, size_t begin, size_t end)
{
    json_t *shape = json_array();

    for (int32_t i = 0; i < layout->ndim; i++)
        json_array_append_new(shape, json_integer(layout->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", layout->dtype->safetensors_name, "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

bool safetensors_write_header(const host_layout *const *layouts, const char *const *names,
                              size_t count, size_t *order, char **out, size_t *length, failure *why)
{
    json_t *header = json_object();
    size_t at = 0;

    sort_tensors(layouts, names, count, order);
    for (size_t i = 0; i < count; i++) {
        const host_layout *layout = layouts[order[i]];
        size_t bytes = (size_t)host_layout_elements(layout) * layout->dtype->bytes;
        if (json_object_set_new(header, names[order[i]], describe(layout, at, at + bytes))) {
            json_decref(header);
            if (json_take_loss())
                return fail_memory(why, 0, "the .safetensors header");
            return failed(why, STATUS_USAGE, "'%.200s' is no name for a tensor: it is not UTF-8",
                          names[order[i]]);
        }
        at += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    size_t used = text ? strlen(text) : 0, padded = (used + 7) / 8 * 8;
    char *bytes = malloc(8 + padded);
    if (!text || !bytes || json_take_loss()) {
        free(text);
        free(bytes);
        return fail_memory(why, 8.0 + (double)padded, "the .safetensors header");
    }
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)((uint64_t)padded >> (8 * i) & 255);
    memcpy(bytes + 8, text, used);
    memset(bytes + 8 + used, ' ', padded - used);
    free(text);
    *out = bytes;
    *length = 8 + padded;
    return true;
}
