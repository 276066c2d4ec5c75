/* SPDX-License-Identifier: MIT
 *
 * pytorch_options.c - what the user says of the class (its name, constructor, modules, scalars): is it
 * Python that can stand in the file, and which input does it make what? Expressions are not
 * parsed, only kept from ending early or running on.
 */
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The bytes of the name that text begins with, or 0. */
static size_t name_length(const char *text)
{
    size_t length = 0;
    while (!isdigit((unsigned char)text[0]) && is_name_character(text[length]))
        length++;
    return length;
}

/* Is the name among words, each of which has a space on either side? */
static bool is_among(const char *words, const char *name, size_t length)
{
    for (const char *at = words; (at = strchr(at, ' ')) && *++at;)
        if (strncmp(at, name, length) == 0 && at[length] == ' ')
            return true;
    return false;
}

static bool is_keyword(const char *name, size_t length)
{
    return is_among(" False None True and as assert async await break class continue def del elif "
                    "else except finally for from global if import in is lambda nonlocal not or "
                    "pass raise return try while with yield __debug__ ",
                    name, length);
}

bool og_pytorch_is_taken(const char *name)
{
    size_t length = strlen(name);
    bool is_grad = strncmp(name, "grad", 4) == 0 && strspn(name + 4, "0123456789") == length - 4;
    return is_grad || is_keyword(name, length) ||
           is_among(
               " self ctx torch nn math F any float tuple tensors needs grads results _Formula "
               "_plain _forward _backward _build _call forward_ad ",
               name, length);
}

/* Part of a dotted name as an attribute: layers.0.weight has three, one of them an index, which
 * Python reads without zeros in front. */
static bool is_attribute(const char *name, size_t length)
{
    if (isdigit((unsigned char)name[0]))
        return strspn(name, "0123456789") >= length && (name[0] != '0' || length == 1);
    /* a class's own names: Python changes those that begin with two underscores */
    return name_length(name) == length && !is_keyword(name, length) && strncmp(name, "__", 2) != 0;
}

/* ---- Python's expressions ----------------------------------------------------------------- */

/* Brackets and quotes must close, and it must be one line without a comment or another
 * statement. No string may be in three quotes. */
static ogive_status check_closed(const char *what, const char *text, ogive_error *error)
{
    char open[64], quote = 0;
    size_t depth = 0;
    for (const char *c = text; *c; c++) {
        const char *opening = strchr("([{", *c), *closing = strchr(")]}", *c);
        bool is_bad = (unsigned char)*c < ' ' || *c == '\\' || (!quote && strchr("#;", *c));
        if (quote) {
            quote = *c == quote ? 0 : quote;
        } else if (*c == '\'' || *c == '"') {
            quote = *c;
            is_bad |= c[1] == *c && c[2] == *c;
        } else if (opening && depth < sizeof open) {
            open[depth++] = ")]}"[opening - "([{"];
        } else if (opening || (closing && (!depth || open[--depth] != *c))) {
            is_bad = true;
        }
        if (is_bad)
            OG_FAIL(
                error, OGIVE_ARGUMENT, -1,
                "%s '%.200s': expected one line of Python without a comment or ';', got '%.20s'",
                what, text, c);
    }
    if (depth || quote)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "%s '%.200s': expected %c at its end", what, text,
                quote ? quote : open[depth - 1]);
    return OGIVE_OK;
}

/* The first comma outside of brackets and quotes, or the end. */
static const char *find_comma(const char *text)
{
    char quote = 0;
    int depth = 0;
    for (; *text && (quote || depth || *text != ','); text++) {
        if (quote || *text == '\'' || *text == '"')
            quote = !quote ? *text : *text == quote ? 0 : quote;
        else
            depth += (strchr("([{", *text) != NULL) - (strchr(")]}", *text) != NULL);
    }
    return text;
}

/* The name of the parameter that text begins with: of "*, scale: float = 2.0" none, then scale. */
static const char *parameter_name(const char *text, size_t *length)
{
    text += strspn(text, " *");
    *length = name_length(text);
    return text;
}

static const char *find_parameter(const char *init, const char *name, size_t length)
{
    for (const char *at = init; at && *at; at += *at == ',') {
        size_t own;
        const char *found = parameter_name(at, &own);
        if (own == length && strncmp(found, name, length) == 0)
            return found;
        at = find_comma(at);
    }
    return NULL;
}

static ogive_status check_init(const char *init, ogive_error *error)
{
    OG_TRY(check_closed("constructor", init, error));
    for (const char *at = init; *at; at += *at == ',') {
        size_t length;
        const char *name = parameter_name(at, &length), *rest = name + length;
        const char *end = find_comma(at);
        rest += strspn(rest, " ");
        bool is_mark = !length && (*rest == '/' || memchr(at, '*', (size_t)(name - at)));
        bool is_name = length && (rest == end || *rest == ':' || *rest == '=') &&
                       !is_keyword(name, length) && !is_among(" self ", name, length) &&
                       find_parameter(init, name, length) == name;
        bool is_end = !*end && name == end && end > init; /* "a, b," */
        if (!is_mark && !is_name && !is_end)
            OG_FAIL(error, OGIVE_ARGUMENT, -1,
                    "constructor '%.200s': expected parameters of different names after self, "
                    "such as 'in_features, scale=2.0', got '%.100s'",
                    init, at);
        at = end;
    }
    return OGIVE_OK;
}

/* ---- modules and scalars --------------------------------------------------------------------- */

size_t og_pytorch_module_name(const char *module, const char **value)
{
    size_t length = name_length(module);
    const char *at = module + length + strspn(module + length, " ");
    if (!length || *at != '=')
        return 0;
    at++;
    *value = at + strspn(at, " ");
    return **value && **value != '=' ? length : 0;
}

static bool is_module(const ogive_pytorch_options *o, size_t before, const char *name,
                      size_t length)
{
    for (size_t m = 0; m < before; m++)
        if (name_length(o->modules[m]) == length && strncmp(o->modules[m], name, length) == 0)
            return true;
    return false;
}

static ogive_status check_module(const ogive_pytorch_options *o, size_t m, ogive_error *error)
{
    const char *module = o->modules[m] ? o->modules[m] : "", *value;
    size_t length = og_pytorch_module_name(module, &value);
    if (!length || !is_attribute(module, length) || is_among(" forward ", module, length))
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "module '%.200s': expected a name, '=' and what it is, as in "
                "fc=nn.Linear(in_features, out_features)",
                module);
    if (is_module(o, m, module, length))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "module '%.*s' is given twice", (int)length, module);
    return check_closed("module", module, error);
}

static ogive_status check_scalar(const og_graph *graph, const ogive_pytorch_options *o, size_t s,
                                 ogive_error *error)
{
    const char *scalar = o->scalars[s] ? o->scalars[s] : "";
    size_t length = strlen(scalar);
    bool is_input = false;
    for (int32_t i = 0; i < graph->input_count; i++)
        is_input |= !strcmp(graph->inputs[i].name, scalar);
    if (!is_input)
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the formula has no input '%.200s'", scalar);
    if (!find_parameter(o->init, scalar, length))
        OG_FAIL(error, OGIVE_ARGUMENT, -1,
                "scalar '%.200s' is not a parameter of the constructor (%.200s)", scalar,
                o->init ? o->init : "it has none");
    if (!is_attribute(scalar, length) || is_among(" forward ", scalar, length))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "scalar '%.200s' cannot be an attribute of a module",
                scalar);
    if (is_module(o, o->module_count, scalar, length))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "'%.200s' is a module and a scalar: expected one",
                scalar);
    for (size_t i = 0; i < s; i++)
        if (!strcmp(o->scalars[i], scalar))
            OG_FAIL(error, OGIVE_ARGUMENT, -1, "scalar '%.200s' is given twice", scalar);
    return OGIVE_OK;
}

/* fc.weight of a module fc becomes self.fc.weight. */
static ogive_status check_owned(const char *input, ogive_error *error)
{
    for (const char *part = input; *part;) {
        size_t length = strcspn(part, ".");
        if (!is_attribute(part, length))
            OG_FAIL(error, OGIVE_ARGUMENT, -1, "'%.200s': no attribute in Python is called '%.*s'",
                    input, (int)length, part);
        part += length + (part[length] == '.');
    }
    return OGIVE_OK;
}

static ogive_status check_class(const char *name, ogive_error *error)
{
    size_t length = strlen(name);
    if (!length || name_length(name) != length || og_pytorch_is_taken(name) ||
        og_pytorch_find_refused(name))
        OG_FAIL(error, OGIVE_ARGUMENT, -1, "the class cannot be called '%.60s' in the file", name);
    return OGIVE_OK;
}

ogive_status og_pytorch_check_options(const og_graph *graph, const ogive_pytorch_options *o,
                                      ogive_error *error)
{
    const char *arch = o->arch && strncmp(o->arch, "sm_", 3) == 0 ? o->arch + 3 : o->arch;
    if (arch && strcmp(arch, "90") != 0 && strcmp(arch, "90a") != 0)
        OG_FAIL(
            error, OGIVE_UNSUPPORTED, -1,
            "options.arch is '%.20s': a PyTorch file is for all GPUs, or for those of 90 (Hopper)",
            o->arch);
    if (o->name)
        OG_TRY(check_class(o->name, error));
    if (o->init)
        OG_TRY(check_init(o->init, error));
    for (size_t m = 0; m < o->module_count; m++)
        OG_TRY(check_module(o, m, error));
    for (size_t s = 0; s < o->scalar_count; s++)
        OG_TRY(check_scalar(graph, o, s, error));
    for (int32_t i = 0; i < graph->input_count; i++)
        if (og_pytorch_role_of(o, graph->inputs[i].name) == OG_PYTORCH_OWNED)
            OG_TRY(check_owned(graph->inputs[i].name, error));
    return OGIVE_OK;
}

og_pytorch_role og_pytorch_role_of(const ogive_pytorch_options *o, const char *input)
{
    for (size_t s = 0; s < o->scalar_count; s++)
        if (!strcmp(o->scalars[s], input))
            return OG_PYTORCH_SCALAR;
    return is_module(o, o->module_count, input, strcspn(input, ".")) ? OG_PYTORCH_OWNED
                                                                     : OG_PYTORCH_ARGUMENT;
}

const char *og_pytorch_find_refused(const char *text)
{
    static const char *const words[] = {"pass", "try", "except"};
    for (const char *at = text; *at;) {
        size_t length = 0;
        while (is_name_character(at[length]))
            length++;
        for (size_t w = 0; w < sizeof words / sizeof *words; w++)
            if (length == strlen(words[w]) && strncasecmp(at, words[w], length) == 0)
                return words[w];
        at += length ? length : 1;
    }
    return NULL;
}
