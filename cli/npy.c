/* SPDX-License-Identifier: MIT
 *
 * npy.c - NumPy's .npy files; see npy.h.
 *
 * The header is a Python literal. Only what NumPy itself writes is understood:
 * a dict of exactly three keys, a string or a list, a bool and a tuple of ints.
 */
#include "npy.h"

#include <stdio.h>
#include <string.h>

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* The header's text and how far it has been read. */
typedef struct {
    const char *text;
    size_t length;
    size_t at;
    failure *why;
} cursor;

static void skip_spaces(cursor *c)
{
    while (c->at < c->length && strchr(" \t\r\n\f", c->text[c->at]) && c->text[c->at])
        c->at++;
}

static bool accept(cursor *c, char wanted)
{
    skip_spaces(c);
    if (c->at == c->length || c->text[c->at] != wanted)
        return false;
    c->at++;
    return true;
}

static bool fail_expected(cursor *c, const char *expected)
{
    if (c->at >= c->length)
        return failed(c->why, STATUS_FILE,
                      "bad .npy header: expected %s, got the end of the header", expected);
    return failed(c->why, STATUS_FILE, "bad .npy header: expected %s at byte %zu, got '%c'",
                  expected, c->at, c->text[c->at]);
}

/* A string without escapes; cut to capacity (then it is no name we know). */
static bool read_string(cursor *c, const char *expected, char *out, size_t capacity)
{
    size_t used = 0;

    skip_spaces(c);
    if (c->at == c->length || (c->text[c->at] != '\'' && c->text[c->at] != '"'))
        return fail_expected(c, expected);
    char quote = c->text[c->at++];
    while (c->at < c->length && c->text[c->at] != quote) {
        if (used + 1 < capacity)
            out[used++] = c->text[c->at];
        c->at++;
    }
    if (c->at == c->length)
        return fail_expected(c, "a closing quote");
    c->at++;
    out[used] = 0;
    return true;
}

static bool read_bool(cursor *c, bool *out)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"True", true}, {"False", false}};

    skip_spaces(c);
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(words[i].word);
        if (c->length - c->at >= n && !memcmp(c->text + c->at, words[i].word, n)) {
            c->at += n;
            *out = words[i].value;
            return true;
        }
    }
    return fail_expected(c, "True or False");
}

static bool read_extent(cursor *c, int64_t *out)
{
    int64_t value = 0;
    size_t start = c->at;

    while (c->at < c->length && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, c->text[c->at] - '0', &value))
            return failed(c->why, STATUS_FILE, "bad .npy header: a dim of the shape is too large");
        c->at++;
    }
    if (c->at == start)
        return fail_expected(c, "a dim of the shape (a whole number, at least 0)");
    /* Python 2 wrote long integers as 3L. */
    if (c->at < c->length && c->text[c->at] == 'L')
        c->at++;
    *out = value;
    return true;
}

static bool read_shape(cursor *c, host_layout *layout)
{
    int32_t ndim = 0;
    bool comma = true;

    if (!accept(c, '('))
        return fail_expected(c, "'(' of the shape");
    while (!accept(c, ')')) {
        int64_t extent = 0;
        if (!comma)
            return fail_expected(c, "',' or ')' in the shape");
        skip_spaces(c);
        if (!read_extent(c, &extent))
            return false;
        if (ndim < MAX_RANK)
            layout->shape[ndim] = extent;
        ndim++;
        comma = accept(c, ',');
    }
    if (ndim == 1 && !comma)
        return failed(c->why, STATUS_FILE,
                      "bad .npy header: the shape is a number, expected a tuple");
    if (ndim > MAX_RANK)
        return failed(c->why, STATUS_FILE, "the array has %d dims; ogive takes up to %d", ndim,
                      MAX_RANK);
    layout->ndim = ndim;
    return true;
}

/* Says what a descr that is not taken stands for. */
static bool fail_descr(const char *descr, failure *why)
{
    static const struct {
        char kind;
        const char *name;
    } kinds[] = {
        {'b', "a boolean that is not of 8 bits"},
        {'i', "an integer of another size or byte order"},
        {'u', "an unsigned integer of more than 8 bits"},
        {'c', "complex"},
        {'m', "a duration"},
        {'M', "a date"},
        {'O', "Python objects (pickle)"},
        {'S', "bytes"},
        {'a', "bytes"},
        {'U', "text"},
        {'V', "raw or structured data"},
        {'f', "a float that is not of 16, 32 or 64 bits"},
    };
    const char *type = descr + (*descr && strchr("<>|=", *descr) ? 1 : 0);
    const char *takes = "ogive reads little-endian float16, float32 and float64 "
                        "('<f2', '<f4', '<f8'), bool, uint8 and integers of 8 to 64 bits";

    if (*descr == '>' && type[0] == 'f')
        return failed(why, STATUS_FILE, "dtype '%s' is big-endian; %s", descr, takes);
    if (*descr != '<' && !strcmp(type, "f2") + !strcmp(type, "f4") + !strcmp(type, "f8"))
        return failed(why, STATUS_FILE, "dtype '%s' names no byte order; %s", descr, takes);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (type[0] == kinds[i].kind)
            return failed(why, STATUS_FILE, "dtype '%s' is %s; %s", descr, kinds[i].name, takes);
    return failed(why, STATUS_FILE, "dtype '%s' is unknown; %s", descr, takes);
}

static bool read_descr(cursor *c, host_layout *layout)
{
    char descr[40];

    skip_spaces(c);
    if (c->at < c->length && c->text[c->at] == '[')
        return failed(c->why, STATUS_FILE,
                      "the dtype is structured (a record with fields); ogive reads little-endian "
                      "float16, float32 and float64 ('<f2', '<f4', '<f8'), bool, uint8 and "
                      "integers of 8 to 64 bits");
    if (!read_string(c, "the dtype as a string", descr, sizeof(descr)))
        return false;
    for (size_t i = 0; i < host_dtype_count(); i++) {
        const host_dtype *dtype = host_dtype_at(i);
        if (dtype->npy_name && !strcmp(dtype->npy_name, descr)) {
            layout->dtype = dtype;
            return true;
        }
    }
    return fail_descr(descr, c->why);
}

/* The dict: each of the three keys once, in any order. */
static bool read_header(cursor *c, host_layout *layout, bool *fortran)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    bool comma = true;

    if (!accept(c, '{'))
        return fail_expected(c, "'{'");
    while (!accept(c, '}')) {
        char key[40];
        unsigned which = 0;
        if (!comma)
            return fail_expected(c, "',' or '}'");
        if (!read_string(c, "a key in quotes", key, sizeof(key)))
            return false;
        while (which < 3 && strcmp(keys[which], key))
            which++;
        if (which == 3 || seen & 1u << which)
            return failed(c->why, STATUS_FILE,
                          "bad .npy header: %s key '%s'; expected 'descr', 'fortran_order' and "
                          "'shape' once each",
                          which == 3 ? "unknown" : "duplicate", key);
        seen |= 1u << which;
        if (!accept(c, ':'))
            return fail_expected(c, "':'");
        bool good = which == 0   ? read_descr(c, layout)
                    : which == 1 ? read_bool(c, fortran)
                                 : read_shape(c, layout);
        if (!good)
            return false;
        comma = accept(c, ',');
    }
    for (unsigned i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return failed(c->why, STATUS_FILE, "bad .npy header: key '%s' is missing", keys[i]);
    skip_spaces(c);
    return c->at == c->length || fail_expected(c, "nothing after '}'");
}

/* Finds the header's text: after magic, version and length. */
static bool find_header(const unsigned char *bytes, size_t size, cursor *c, size_t *data_offset)
{
    if (!npy_is_npy(bytes, size))
        return failed(c->why, STATUS_FILE, "not a .npy file: it does not begin with \\x93NUMPY");
    if (size < 10)
        return failed(c->why, STATUS_FILE, "truncated: the file ends inside the .npy header");
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return failed(c->why, STATUS_FILE,
                      ".npy version %d.%d is unknown; ogive reads 1.0, 2.0, 3.0", bytes[6],
                      bytes[7]);
    size_t start = bytes[6] == 1 ? 10 : 12;
    if (size < start)
        return failed(c->why, STATUS_FILE, "truncated: the file ends inside the .npy header");
    size_t length = bytes[8] | (size_t)bytes[9] << 8;
    if (start == 12)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > size - start)
        return failed(c->why, STATUS_FILE,
                      "truncated: the .npy header should have %zu bytes, the file has %zu left",
                      length, size - start);
    c->text = (const char *)bytes + start;
    c->length = length;
    c->at = 0;
    *data_offset = start + length;
    return true;
}

bool npy_is_npy(const void *bytes, size_t size)
{
    return size >= sizeof(magic) && !memcmp(bytes, magic, sizeof(magic));
}

bool npy_parse(const void *bytes, size_t size, npy_array *out, failure *why)
{
    cursor c = {.why = why};
    bool fortran = false;

    *out = (npy_array){0};
    if (!find_header(bytes, size, &c, &out->data_offset) ||
        !read_header(&c, &out->layout, &fortran))
        return false;

    host_layout *layout = &out->layout;
    if (!host_layout_contiguous(layout, &out->elements))
        return failed(why, STATUS_FILE, "bad .npy header: the shape has too many elements");
    if (fortran) {
        int64_t stride = 1;
        for (int32_t i = 0; i < layout->ndim; i++) {
            layout->strides[i] = stride;
            stride *= layout->shape[i] ? layout->shape[i] : 1;
        }
    }
    size_t wanted = (size_t)out->elements * layout->dtype->bytes;
    if (wanted > size - out->data_offset)
        return failed(why, STATUS_FILE,
                      "truncated: the array should have %zu bytes of data, the file has %zu",
                      wanted, size - out->data_offset);
    return true;
}

size_t npy_write_header(const host_layout *layout, char out[NPY_MAX_HEADER])
{
    /* 8 dims of at most 19 digits and ", " are 168 bytes. */
    size_t used = 10;
    used += (size_t)snprintf(out + used, NPY_MAX_HEADER - used,
                             "{'descr': '%s', 'fortran_order': False, 'shape': (",
                             layout->dtype->npy_name);
    for (int32_t i = 0; i < layout->ndim; i++)
        used += (size_t)snprintf(out + used, NPY_MAX_HEADER - used, "%lld%s",
                                 (long long)layout->shape[i],
                                 layout->ndim == 1      ? ","
                                 : i + 1 < layout->ndim ? ", "
                                                        : "");
    used += (size_t)snprintf(out + used, NPY_MAX_HEADER - used, "), }");

    size_t total = (used + 1 + 63) / 64 * 64;
    memset(out + used, ' ', total - used);
    out[total - 1] = '\n';
    memcpy(out, magic, sizeof(magic));
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((total - 10) & 255);
    out[9] = (char)((total - 10) >> 8);
    return total;
}
