/* SPDX-License-Identifier: MIT
 *
 * pytorch_formula.c - a formula's text in Python. A function of the language is PyTorch's
 * of the same name, so tokens are written as they come: names get their Python form,
 * functions their module, and a number where PyTorch wants a tensor becomes one.
 */
#include "formula/lexer.h"
#include "formula/nearest.h"
#include "pytorch/pytorch_program.h"

#include <ctype.h>
#include <string.h>

enum { MAX_BINDINGS = 256 };

typedef struct {
    const og_graph *graph;
    const char *const *names;
    const bool *is_number;
    og_lexer lexer;
    struct {
        size_t offset, length;
        size_t behind; /* underscores that Python's name has behind the formula's */
        bool is_constant;
    } bindings[MAX_BINDINGS];
    int32_t binding_count;
    size_t underscores; /* the least behind a binding's name */
    const char *tensor; /* some tensor, in Python */
    bool has_doubles;   /* numbers that became float64 tensors */
    ogive_error *error;
} translator;

static const og_token *token_of(const translator *t)
{
    return &t->lexer.token;
}

static bool is_word(const translator *t, const char *word)
{
    const og_token *token = token_of(t);
    return token->length == strlen(word) &&
           memcmp(t->graph->text + token->offset, word, token->length) == 0;
}

static bool same_text(const translator *t, size_t a, size_t b, size_t length)
{
    return memcmp(t->graph->text + a, t->graph->text + b, length) == 0;
}

/* Character i of binding b's name in Python, or 0 behind it: its own name, with more underscores
 * behind it than any input has. */
static char binding_character(const translator *t, int32_t b, size_t i)
{
    size_t length = t->bindings[b].length;
    char c = i < length                           ? t->graph->text[t->bindings[b].offset + i]
             : i < length + t->bindings[b].behind ? '_'
                                                  : 0;
    return c == '.' ? '_' : c;
}

static void add_binding(const translator *t, int32_t b, og_text *out)
{
    for (size_t i = 0; binding_character(t, b, i); i++)
        og_text_add(out, "%c", binding_character(t, b, i));
}

static bool same_python_name(const translator *t, int32_t a, int32_t b)
{
    size_t i = 0;
    while (binding_character(t, a, i) && binding_character(t, a, i) == binding_character(t, b, i))
        i++;
    return binding_character(t, a, i) == binding_character(t, b, i);
}

/* Gives the binding after the last as many underscores as keep a.b, a_b and a_b_ apart. */
static void name_next_binding(translator *t)
{
    int32_t next = t->binding_count;
    t->bindings[next].behind = t->underscores;
    for (int32_t b = 0; b < next; b++)
        if (same_python_name(t, b, next)) {
            t->bindings[next].behind++;
            b = -1;
        }
}

static void translate_name(translator *t, og_text *out, bool *is_constant)
{
    static const char *const words[][2] = {
        {"inf", "math.inf"}, {"nan", "math.nan"}, {"true", "True"}, {"True", "True"},
        {"false", "False"},  {"False", "False"},  {"None", "None"}};
    const og_token *token = token_of(t);
    for (int32_t b = 0; b < t->binding_count; b++)
        if (t->bindings[b].length == token->length &&
            same_text(t, t->bindings[b].offset, token->offset, token->length)) {
            add_binding(t, b, out);
            *is_constant &= t->bindings[b].is_constant;
            return;
        }
    for (int32_t i = 0; i < t->graph->input_count; i++)
        if (is_word(t, t->graph->inputs[i].name)) {
            og_text_add(out, "%s", t->names[i]);
            *is_constant &= t->is_number[i];
            return;
        }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(t, words[i][0]))
            og_text_add(out, "%s", words[i][1]);
}

/* Python reads no integer with a zero in front, and PyTorch none beyond int64. */
static void translate_number(const translator *t, og_text *out)
{
    enum { MOST_DIGITS = 18 };
    const og_token *token = token_of(t);
    const char *text = t->graph->text + token->offset;
    char digits[OG_NUMBER_TEXT];
    if (token->length > MOST_DIGITS ||
        (token->length > 1 && text[0] == '0' && isdigit((unsigned char)text[1])))
        og_text_add(out, "%s", og_number_text(token->number, digits));
    else
        og_text_add(out, "%.*s", (int)token->length, text);
}

static ogive_status translate_expression(translator *t, og_text *out, bool *is_constant);

static const og_parameter *find_parameter(const og_function *function, const char *name,
                                          size_t length, int32_t place)
{
    int32_t at = 0;
    for (const og_parameter *p = function->parameters; p->kind != OG_PARAMETER_NONE; p++) {
        if (p->kind == OG_PARAMETER_KEYWORD)
            continue;
        if (name ? og_parameter_is_called(p, name, length) : at == place)
            return p;
        at++;
    }
    return NULL;
}

/* Where PyTorch wants a tensor and the formula has a number: one of no dims. It is a float64, so
 * that nothing is lost; of where() it may decide the result's dtype. */
static ogive_status tensor_of_number(translator *t, const og_function *function,
                                     const og_parameter *parameter, int64_t offset,
                                     const char *number, og_text *out)
{
    bool has_shape = !strcmp(function->group, "product") ||
                     (!strcmp(function->group, "normalisation") && parameter->name[0] != 'i');
    if (has_shape)
        OG_FAIL(t->error, OGIVE_UNSUPPORTED, offset,
                "%s: a number as %s has no form in PyTorch; give a tensor", function->name,
                parameter->name);
    if (strcmp(function->name, "where") != 0) {
        t->has_doubles = true;
        og_text_add(out, "torch.as_tensor(%s, dtype=torch.float64)", number);
    } else if (!strcmp(parameter->name, "condition")) {
        og_text_add(out, "torch.as_tensor(%s)", number);
    } else if (!strcmp(parameter->name, "input")) {
        og_text_add(out, "torch.as_tensor(%s, dtype=%s.dtype)", number, t->tensor);
    } else {
        og_text_add(out, "%s", number);
    }
    return OGIVE_OK;
}

/* An argument, written so that PyTorch takes it for this parameter. */
static ogive_status translate_argument(translator *t, const og_function *function,
                                       const og_parameter *parameter, og_text *out,
                                       bool *is_constant)
{
    og_text inner = {0};
    bool is_list = token_of(t)->kind == OG_TOKEN_OPEN || token_of(t)->kind == OG_TOKEN_OPEN_LIST;
    bool is_none = is_word(t, "None"), constant = true;
    int64_t offset = (int64_t)token_of(t)->offset;
    ogive_status status = translate_expression(t, &inner, &constant);
    const char *text = inner.data ? inner.data : "";
    bool is_tensor = parameter && parameter->kind == OG_PARAMETER_TENSOR && !is_none;
    if (status == OGIVE_OK && is_tensor && constant)
        status = tensor_of_number(t, function, parameter, offset, text, out);
    else if (parameter && parameter->kind == OG_PARAMETER_SIZES && !is_list)
        og_text_add(out, "(%s,)", text);
    else
        og_text_add(out, "%s", text);
    *is_constant &= constant || !is_tensor;
    out->failed |= inner.failed;
    og_text_free(&inner);
    return status;
}

/* name ( arguments ): the name is the token before; the open parenthesis the current one. */
static ogive_status translate_call(translator *t, og_op op, og_text *out, bool *is_constant)
{
    /* max of two tensors is maximum; any other was refused (api_pytorch.c). */
    if (!og_function_module(op))
        op = (og_op)(og_function_of(op)->overload - 1);
    const og_function *function = og_function_of(op);
    int32_t place = 0;
    og_text_add(out, "%s.%s(", og_function_module(op), function->name);
    OG_TRY(og_lexer_next(&t->lexer));
    while (token_of(t)->kind != OG_TOKEN_CLOSE) {
        const og_parameter *parameter = find_parameter(function, NULL, 0, place++);
        og_lexer before = t->lexer;
        if (token_of(t)->kind == OG_TOKEN_NAME) { /* name = value? */
            og_token name = *token_of(t);
            OG_TRY(og_lexer_next(&t->lexer));
            if (token_of(t)->kind == OG_TOKEN_ASSIGN) {
                parameter = find_parameter(function, t->graph->text + name.offset, name.length, 0);
                og_text_add(out, "%s=", parameter->name); /* the parser found it, too */
                OG_TRY(og_lexer_next(&t->lexer));
            } else {
                t->lexer = before;
            }
        }
        OG_TRY(translate_argument(t, function, parameter, out, is_constant));
        if (token_of(t)->kind == OG_TOKEN_COMMA) {
            og_text_add(out, ", ");
            OG_TRY(og_lexer_next(&t->lexer));
        }
    }
    og_text_add(out, ")");
    return og_lexer_next(&t->lexer);
}

/* Everything up to a comma, semicolon or closing bracket that is not its own. */
static ogive_status translate_expression(translator *t, og_text *out, bool *is_constant)
{
    for (int32_t depth = 0;;) {
        const og_token token = *token_of(t);
        bool opens = token.kind == OG_TOKEN_OPEN || token.kind == OG_TOKEN_OPEN_LIST;
        bool closes = token.kind == OG_TOKEN_CLOSE || token.kind == OG_TOKEN_CLOSE_LIST;
        bool ends = token.kind == OG_TOKEN_END || token.kind == OG_TOKEN_SEMICOLON || closes ||
                    token.kind == OG_TOKEN_COMMA;
        if (ends && depth == 0)
            return OGIVE_OK;
        depth += opens - closes;
        if (token.kind == OG_TOKEN_NAME) {
            og_lexer before = t->lexer;
            og_op op = og_function_find(t->graph->text + token.offset, token.length, false);
            OG_TRY(og_lexer_next(&t->lexer));
            if (token_of(t)->kind == OG_TOKEN_OPEN && op != OG_FUNCTION_COUNT) {
                OG_TRY(translate_call(t, op, out, is_constant));
                continue;
            }
            t->lexer = before;
            translate_name(t, out, is_constant);
        } else if (token.kind == OG_TOKEN_NUMBER) {
            translate_number(t, out);
        } else {
            bool spaced = !opens && !closes && token.kind != OG_TOKEN_COMMA &&
                          token.kind != OG_TOKEN_STRING && token.kind != OG_TOKEN_POWER &&
                          token.kind != OG_TOKEN_TRANSPOSE;
            og_text_add(out, spaced ? " %.*s " : "%.*s", (int)token.length,
                        t->graph->text + token.offset);
            og_text_add(out, token.kind == OG_TOKEN_COMMA ? " " : "");
        }
        OG_TRY(og_lexer_next(&t->lexer));
    }
}

/* name = expression; */
static ogive_status translate_binding(translator *t, const og_token *name, og_text *text)
{
    bool is_constant = true;
    if (t->binding_count == MAX_BINDINGS)
        OG_FAIL(t->error, OGIVE_UNSUPPORTED, (int64_t)name->offset,
                "a PyTorch file takes at most %d names", MAX_BINDINGS);
    int32_t own = t->binding_count;
    t->bindings[own].offset = name->offset;
    t->bindings[own].length = name->length;
    name_next_binding(t);
    og_text_add(text, "    ");
    add_binding(t, own, text);
    og_text_add(text, " = ");
    OG_TRY(og_lexer_next(&t->lexer));
    OG_TRY(translate_expression(t, text, &is_constant));
    og_text_add(text, "\n");
    t->bindings[own].is_constant = is_constant;
    t->binding_count++;
    return og_lexer_next(&t->lexer);
}

/* Sets what names of bindings and numbers need of the inputs. */
static void look_at_inputs(translator *t)
{
    for (int32_t i = 0; i < t->graph->input_count; i++) {
        const char *name = t->names[i];
        size_t behind = 0;
        for (size_t length = strlen(name); length && name[length - 1] == '_'; length--)
            behind++;
        if (t->underscores <= behind)
            t->underscores = behind + 1;
        if (!t->tensor && !t->is_number[i])
            t->tensor = name;
    }
}

static ogive_status add_results(translator *t, og_text *text)
{
    og_text_add(text, "    return ");
    for (;;) {
        og_text result = {0};
        bool is_constant = true;
        ogive_status status = translate_expression(t, &result, &is_constant);
        og_text_add(text, t->has_doubles ? "(%s).to(%s.dtype)" : "%s",
                    result.data ? result.data : "", t->tensor);
        text->failed |= result.failed;
        og_text_free(&result);
        OG_TRY(status);
        if (token_of(t)->kind != OG_TOKEN_COMMA)
            break;
        og_text_add(text, ", ");
        OG_TRY(og_lexer_next(&t->lexer));
    }
    og_text_add(text, "\n");
    return OGIVE_OK;
}

ogive_status og_pytorch_add_formula(const og_graph *graph, const char *const *names,
                                    const bool *is_number, og_text *text, ogive_error *error)
{
    translator t = {.graph = graph,
                    .names = names,
                    .is_number = is_number,
                    .lexer = {.text = graph->text, .length = graph->length, .error = error},
                    .error = error};
    look_at_inputs(&t);
    OG_TRY(og_lexer_next(&t.lexer));
    while (token_of(&t)->kind == OG_TOKEN_NAME) {
        og_token name = *token_of(&t);
        og_lexer before = t.lexer;
        OG_TRY(og_lexer_next(&t.lexer));
        if (token_of(&t)->kind != OG_TOKEN_ASSIGN) {
            t.lexer = before;
            break;
        }
        OG_TRY(translate_binding(&t, &name, text));
    }
    return add_results(&t, text);
}
