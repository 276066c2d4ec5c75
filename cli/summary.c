/* SPDX-License-Identifier: MIT
 *
 * summary.c - a result for people and for machines; see summary.h.
 *
 * The values are laid out as numpy.array2string does by default: precision 8,
 * shortest digits that read back the same, one format for all, the middle of a
 * dim left out when there are more than 1000 elements.
 */
#include "summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json_output.h"
#include "text.h"

enum {
    PRECISION = 8,
    THRESHOLD = 1000, /* elements; more are summarised */
    EDGE = 3,         /* items shown at each end of the last two dims */
    OUTER_EDGE = 1,   /* of the dims before them */
    LINE_WIDTH = 75
};

/* One format for all shown values, as numpy.core.arrayprint.FloatingFormat. */
typedef struct {
    const host_dtype *dtype;
    bool exponent;
    int left, right; /* characters before and after the point */
    int precision;   /* digits after the point with an exponent */
    int exponent_digits;
    /* what is gathered on the way */
    double least, greatest; /* magnitudes */
    bool any_finite, any_nan, any_inf, any_negative_inf;
} number_format;

/* Shows index i of a dim of this extent? Skipping is done by the caller. */
static int64_t edge_of(const host_layout *layout, int32_t dim, bool whole)
{
    int64_t edge = dim >= layout->ndim - 2 ? EDGE : OUTER_EDGE;
    return whole || layout->shape[dim] <= 2 * edge ? layout->shape[dim] : edge;
}

/* Digits after the first that value's dtype needs to be read back. */
static int digits_needed(const host_dtype *dtype, double value, char text[40])
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, 40, "%.*e", digits, value);
        if (host_round(dtype, strtod(text, NULL)) == value)
            return digits;
    }
    return 17;
}

/* value without an exponent, "1." or "0.333": returns characters before and
 * after the point. */
static void format_positional(const number_format *f, double value, char out[400])
{
    char scientific[40];
    int digits = digits_needed(f->dtype, value, scientific);
    int exponent = value == 0 ? 0 : atoi(strchr(scientific, 'e') + 1);
    int after = digits - exponent;

    after = after < 0 ? 0 : after > PRECISION ? PRECISION : after;
    snprintf(out, 400, "%.*f", after, value);
    if (!strchr(out, '.'))
        strcat(out, ".");
    char *end = out + strlen(out);
    while (end[-1] == '0' && end[-2] != '.')
        *--end = 0;
    if (end[-1] == '0')
        *--end = 0;
}

/* Fraction digits of value in scientific form, at most PRECISION, without
 * trailing zeros. */
static int scientific_digits(const number_format *f, double value)
{
    char text[40];
    int digits = digits_needed(f->dtype, value, text);

    if (digits <= PRECISION)
        return digits;
    snprintf(text, sizeof(text), "%.*e", PRECISION, value);
    digits = PRECISION;
    for (char *c = strchr(text, 'e') - 1; *c == '0'; c--)
        digits--;
    return digits;
}

/* Calls visit for each value that is shown. */
typedef void visitor(number_format *f, double value);

static void visit_shown(number_format *f, const host_layout *layout, const void *data, int32_t dim,
                        int64_t offset, bool whole, visitor *visit)
{
    if (dim == layout->ndim) {
        visit(f, host_value(f->dtype, data, offset));
        return;
    }
    int64_t extent = layout->shape[dim], edge = edge_of(layout, dim, whole);
    for (int64_t i = 0; i < extent; i++) {
        if (i == edge && extent > edge)
            i = extent - edge;
        visit_shown(f, layout, data, dim + 1, offset + i * layout->strides[dim], whole, visit);
    }
}

static void visit_range(number_format *f, double value)
{
    if (!isfinite(value)) {
        f->any_nan |= isnan(value);
        f->any_inf |= isinf(value);
        f->any_negative_inf |= isinf(value) && value < 0;
        return;
    }
    f->any_finite = true;
    if (value == 0)
        return;
    value = fabs(value);
    f->least = f->least == 0 || value < f->least ? value : f->least;
    f->greatest = value > f->greatest ? value : f->greatest;
}

static void visit_width(number_format *f, double value)
{
    char text[400];

    if (!isfinite(value))
        return;
    if (f->exponent) {
        int digits = scientific_digits(f, value);
        snprintf(text, sizeof(text), "%.*e", digits, value);
        int left = value < 0 || (value == 0 && signbit(value)) ? 2 : 1;
        int exponent = (int)strlen(strchr(text, 'e')) - 2;
        f->left = left > f->left ? left : f->left;
        f->precision = digits > f->precision ? digits : f->precision;
        f->exponent_digits = exponent > f->exponent_digits ? exponent : f->exponent_digits;
        return;
    }
    format_positional(f, value, text);
    int left = (int)(strchr(text, '.') - text), right = (int)strlen(text) - left - 1;
    f->left = left > f->left ? left : f->left;
    f->right = right > f->right ? right : f->right;
}

static number_format choose_format(const host_layout *layout, const void *data, bool whole)
{
    number_format f = {.dtype = layout->dtype};

    visit_shown(&f, layout, data, 0, 0, whole, visit_range);
    /* NumPy's cutoff since 2.2: the decimal digits that the dtype holds. */
    double cutoff = f.dtype->bytes == 8 ? 1e8 : f.dtype->bytes == 4 ? 1e6 : 1e3;
    f.exponent =
        f.greatest >= cutoff || (f.least > 0 && (f.least < 1e-4 || f.greatest / f.least > 1000));
    visit_shown(&f, layout, data, 0, 0, whole, visit_width);
    if (f.exponent)
        f.right = f.precision + 2 + f.exponent_digits;
    int words = f.any_negative_inf ? 4 : f.any_nan || f.any_inf ? 3 : 0;
    int offset = f.any_finite ? f.right + 1 : 0;
    if (words - offset > f.left)
        f.left = words - offset;
    return f;
}

static void format_value(const number_format *f, double value, char out[800])
{
    char text[400];
    int width = f->left + (f->any_finite ? f->right + 1 : 0);

    if (f->dtype->code.code == kDLBool) {
        snprintf(out, 800, "%s", value ? " True" : "False");
    } else if (!isfinite(value)) {
        snprintf(out, 800, "%*s", width, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    } else if (f->exponent) {
        snprintf(text, sizeof(text), "%.*e", f->precision, value);
        if (!strchr(text, '.')) {
            char *e = strchr(text, 'e');
            memmove(e + 1, e, strlen(e) + 1);
            *e = '.';
        }
        snprintf(out, 800, "%*s", width, text);
    } else {
        format_positional(f, value, text);
        int left = (int)(strchr(text, '.') - text);
        snprintf(out, 800, "%*s%s%*s", f->left - left, "", text,
                 f->right - ((int)strlen(text) - left - 1), "");
    }
}

/* The innermost dim, wrapped at LINE_WIDTH as NumPy does. */
static void print_row(FILE *out, const number_format *f, const host_layout *layout,
                      const void *data, int64_t offset, bool whole)
{
    int32_t dim = layout->ndim - 1;
    int64_t extent = layout->shape[dim], edge = edge_of(layout, dim, whole);
    int column = layout->ndim, pending = 0;

    fputc('[', out);
    for (int64_t i = 0; i < extent; i++) {
        char text[800];
        if (i == edge && extent > edge) {
            fprintf(out, "%*s ...", pending, "");
            pending = 0;
            column += 4;
            i = extent - edge;
        }
        format_value(f, host_value(f->dtype, data, offset + i * layout->strides[dim]), text);
        int width = (int)strlen(text) + (i > 0);
        if (i > 0 && column + width > LINE_WIDTH - layout->ndim) {
            fprintf(out, "\n%*s", layout->ndim, "");
            column = layout->ndim;
            width--;
            pending = 0;
        } else if (i > 0) {
            pending++;
        }
        /* Spaces are held back: none are left at the end of a wrapped line. */
        size_t length = strlen(text), used = length;
        while (used && text[used - 1] == ' ')
            used--;
        fprintf(out, "%*s%.*s", pending, "", (int)used, text);
        pending = (int)(length - used);
        column += width;
    }
    fprintf(out, "%*s]", pending, "");
}

static void print_nested(FILE *out, const number_format *f, const host_layout *layout,
                         const void *data, int32_t dim, int64_t offset, bool whole)
{
    if (dim == layout->ndim - 1) {
        print_row(out, f, layout, data, offset, whole);
        return;
    }
    int64_t extent = layout->shape[dim], edge = edge_of(layout, dim, whole);
    fputc('[', out);
    for (int64_t i = 0; i < extent; i++) {
        if (i > 0) {
            for (int32_t newlines = dim; newlines < layout->ndim - 1; newlines++)
                fputc('\n', out);
            fprintf(out, "%*s", dim + 1, "");
        }
        if (i == edge && extent > edge) {
            fputs("...", out);
            for (int32_t newlines = dim; newlines < layout->ndim - 1; newlines++)
                fputc('\n', out);
            fprintf(out, "%*s", dim + 1, "");
            i = extent - edge;
        }
        print_nested(out, f, layout, data, dim + 1, offset + i * layout->strides[dim], whole);
    }
    fputc(']', out);
}

summary_range summary_measure(const host_layout *layout, const void *data)
{
    summary_range range = {INFINITY, NAN, -INFINITY, 0};
    int64_t elements = host_layout_elements(layout);
    double total = 0;

    for (int64_t start = 0; start < elements; start += 4096) {
        int64_t end = elements - start < 4096 ? elements : start + 4096;
        double part = 0;
        for (int64_t i = start; i < end; i++) {
            double value = host_value(layout->dtype, data, i);
            if (isnan(value)) {
                range.nans++;
                continue;
            }
            part += value;
            range.least = value < range.least ? value : range.least;
            range.greatest = value > range.greatest ? value : range.greatest;
        }
        total += part;
    }
    if (elements == range.nans)
        range.least = range.greatest = NAN;
    else
        range.mean = total / (double)(elements - range.nans);
    return range;
}

/* The shortest digits that read back the same; nan without a sign, as NumPy. */
static const char *shortest(char out[40], const host_dtype *dtype, double value)
{
    char text[40];

    if (isnan(value))
        return "nan";
    int digits = isinf(value) ? 0 : digits_needed(dtype, value, text);
    snprintf(out, 40, "%.*g", digits + 1, value);
    return out;
}

void summary_print(FILE *out, const char *label, const host_layout *layout, const void *data)
{
    char shape[256], least[40], greatest[40];
    int64_t elements = host_layout_elements(layout);
    summary_range range = summary_measure(layout, data);

    text_shape(shape, sizeof(shape), layout->shape, layout->ndim);
    fprintf(out, "%s%s %s", label, shape, layout->dtype->name);
    if (elements > range.nans && elements > 1)
        fprintf(out, ", least %s, mean %.6g, greatest %s",
                shortest(least, layout->dtype, range.least), range.mean,
                shortest(greatest, layout->dtype, range.greatest));
    if (range.nans && elements > 1)
        fprintf(out, ", %lld of %lld are nan", (long long)range.nans, (long long)elements);
    fputc('\n', out);
    if (elements == 0) {
        fputs("[]\n", out);
        return;
    }
    bool whole = elements <= THRESHOLD;
    number_format f = choose_format(layout, data, whole);
    if (layout->ndim == 0) {
        char text[800];
        format_value(&f, host_value(layout->dtype, data, 0), text);
        fprintf(out, "%s\n", text);
        return;
    }
    print_nested(out, &f, layout, data, 0, 0, whole);
    fputc('\n', out);
}

static json_t *nested_json(const host_layout *layout, const void *data, int32_t dim, int64_t offset)
{
    if (dim == layout->ndim && layout->dtype->code.code == kDLBool)
        return json_boolean(host_value(layout->dtype, data, offset) != 0);
    if (dim == layout->ndim)
        return json_number_or_text(host_value(layout->dtype, data, offset));
    json_t *list = json_array();
    for (int64_t i = 0; i < layout->shape[dim]; i++)
        json_array_append_new(
            list, nested_json(layout, data, dim + 1, offset + i * layout->strides[dim]));
    return list;
}

/* Has a result few enough elements, and lists if it has none, to be written out? */
static bool is_short(const host_layout *layout)
{
    int64_t lists = 1;

    if (host_layout_elements(layout))
        return host_layout_elements(layout) <= THRESHOLD;
    for (int32_t i = 0; layout->shape[i] && lists <= THRESHOLD; i++)
        lists = layout->shape[i] > THRESHOLD ? THRESHOLD + 1 : lists * layout->shape[i];
    return lists <= THRESHOLD;
}

json_t *summary_json(const host_layout *layout, const void *data)
{
    summary_range range = summary_measure(layout, data);
    json_t *shape = json_array();

    for (int32_t i = 0; i < layout->ndim; i++)
        json_array_append_new(shape, json_integer(layout->shape[i]));
    json_t *result = json_pack("{s:o, s:s}", "shape", shape, "dtype", layout->dtype->name);
    json_object_set_new(result, "least", json_number_or_text(range.least));
    json_object_set_new(result, "mean", json_number_or_text(range.mean));
    json_object_set_new(result, "greatest", json_number_or_text(range.greatest));
    json_object_set_new(result, "nan", json_integer(range.nans));
    if (is_short(layout))
        json_object_set_new(result, "values", nested_json(layout, data, 0, 0));
    return result;
}
