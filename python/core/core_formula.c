/* SPDX-License-Identifier: MIT
 *
 * core_formula.c - the type ogive.Formula: a parsed formula, or what steps made of it,
 * a gradient, say. Immutable but for its cache of plans.
 *
 * Calls use the vectorcall protocol. Its names entered Python's limited API in 3.12;
 * 3.10 and 3.11, whose binary interface no longer changes, have them with the same
 * values, so they are written out here.
 */
#include "core.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
PyAPI_FUNC(PyObject *) PyVectorcall_Call(PyObject *callable, PyObject *tuple, PyObject *dict);
#endif

PyTypeObject *core_formula_type;

/* ---- making -------------------------------------------------------------------------- */

static PyObject *input_names(const ogive_formula *formula)
{
    Py_ssize_t count = (Py_ssize_t)ogive_formula_input_count(formula);
    PyObject *names = PyTuple_New(count);
    for (Py_ssize_t i = 0; names && i < count; i++) {
        PyObject *name = PyUnicode_InternFromString(ogive_formula_input_name(formula, (size_t)i));
        if (!name || PyTuple_SetItem(names, i, name)) {
            Py_CLEAR(names);
            break;
        }
    }
    return names;
}

/* Takes formula over; the objects are borrowed, steps is stolen. */
static PyObject *wrap(ogive_formula *formula, PyObject *text, PyObject *steps, PyObject *precision)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(core_formula_type, Py_tp_alloc);
    core_formula *self = steps ? (core_formula *)allocate(core_formula_type, 0) : NULL;
    if (!self) {
        ogive_formula_release(formula);
        Py_XDECREF(steps);
        return NULL;
    }
    self->vectorcall = (void *)core_vectorcall;
    self->formula = formula;
    Py_INCREF(text);
    self->text = text;
    self->steps = steps;
    Py_INCREF(precision);
    self->precision = precision;
    self->inputs = input_names(formula);
    if (!self->inputs)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int check_precision(PyObject *precision)
{
    if (PyUnicode_Check(precision) &&
        (PyUnicode_CompareWithASCIIString(precision, "float32") == 0 ||
         PyUnicode_CompareWithASCIIString(precision, "strict") == 0 ||
         PyUnicode_CompareWithASCIIString(precision, "tf32") == 0))
        return 0;
    PyErr_Format(PyExc_ValueError, "precision is %R: expected 'float32', 'strict' or 'tf32'",
                 precision);
    return -1;
}

PyObject *core_formula_create(PyObject *text, PyObject *precision)
{
    Py_ssize_t length;
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "a formula is a str, not %R", (PyObject *)Py_TYPE(text));
        return NULL;
    }
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (!bytes || check_precision(precision))
        return NULL;
    ogive_formula *formula;
    ogive_error error;
    if (ogive_formula_create(bytes, (size_t)length, &formula, &error) != OGIVE_OK) {
        core_raise(&error, text);
        return NULL;
    }
    return wrap(formula, text, PyUnicode_FromString(""), precision);
}

void core_formula_look_for_dots(core_formula *self)
{
    size_t count = ogive_formula_input_count(self->formula);
    for (size_t i = 0; i < count; i++)
        if (strchr(ogive_formula_input_name(self->formula, i), '.'))
            self->has_dots = true;
}

/* One more step, a new reference. */
static PyObject *append(PyObject *steps, PyObject *level)
{
    return PyUnicode_FromFormat(PyUnicode_GetLength(steps) ? "%U;%U" : "%U%U", steps, level);
}

PyObject *core_formula_derive(core_formula *self, PyObject *names)
{
    Py_ssize_t count = PyTuple_Size(names);
    const char **texts = PyMem_Malloc((size_t)(count + 1) * sizeof *texts);
    PyObject *comma = PyUnicode_FromString(","), *level = NULL, *steps = NULL, *result = NULL;
    bool good = texts && comma;
    if (!texts)
        PyErr_NoMemory();
    if (count == 0 && good) {
        PyErr_SetString(PyExc_TypeError, "gradient() needs the name of at least one input");
        good = false;
    }
    for (Py_ssize_t i = 0; good && i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (!PyUnicode_Check(name)) {
            PyErr_Format(PyExc_TypeError, "the name of an input is a str, not %R",
                         (PyObject *)Py_TYPE(name));
            good = false;
        } else {
            texts[i] = PyUnicode_AsUTF8AndSize(name, NULL);
            good = texts[i] != NULL;
        }
    }
    if (good && (level = PyUnicode_Join(comma, names)) && (steps = append(self->steps, level))) {
        ogive_formula *formula;
        ogive_error error;
        ogive_status status =
            count && *texts[0] == '@'
                ? core_make_stage(self->formula, texts, (size_t)count, &formula, &error)
                : ogive_formula_make(self->formula, texts, (size_t)count, &formula, &error);
        if (status == OGIVE_OK)
            result = wrap(formula, self->text, steps, self->precision);
        else {
            core_raise(&error, NULL);
            Py_DECREF(steps);
        }
    }
    PyMem_Free(texts);
    Py_XDECREF(comma);
    Py_XDECREF(level);
    return result;
}

PyObject *core_steps(PyObject *steps)
{
    PyObject *levels =
        PyUnicode_GetLength(steps) ? PyObject_CallMethod(steps, "split", "s", ";") : PyList_New(0);
    for (Py_ssize_t i = 0; levels && i < PyList_Size(levels); i++) {
        PyObject *names = PyObject_CallMethod(PyList_GetItem(levels, i), "split", "s", ",");
        PyObject *tuple = names ? PyList_AsTuple(names) : NULL;
        Py_XDECREF(names);
        if (!tuple || PyList_SetItem(levels, i, tuple))
            Py_CLEAR(levels);
    }
    return levels;
}

static void dealloc(PyObject *object)
{
    core_formula *self = (core_formula *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (self->weak_references)
        PyObject_ClearWeakRefs(object);
    core_plans_clear(self);
    ogive_formula_release(self->formula);
    Py_XDECREF(self->text);
    Py_XDECREF(self->steps);
    Py_XDECREF(self->precision);
    Py_XDECREF(self->inputs);
    Py_XDECREF(self->traceable);
    release(object);
    Py_DECREF(type);
}

/* ---- methods ------------------------------------------------------------------------- */

/* Of an input; else it is an item of another step than a gradient. */
static bool is_name(const char *text)
{
    return !strchr("<@0123456789", *text) && !strpbrk(text, "=,;");
}

static PyObject *represent(PyObject *object)
{
    core_formula *self = (core_formula *)object;
    PyObject *text =
        PyUnicode_CompareWithASCIIString(self->precision, "float32") == 0
            ? PyUnicode_FromFormat("ogive.compile(%R)", self->text)
            : PyUnicode_FromFormat("ogive.compile(%R, precision=%R)", self->text, self->precision);
    PyObject *levels = core_steps(self->steps);
    for (Py_ssize_t i = 0; text && levels && i < PyList_Size(levels); i++) {
        PyObject *items = PyList_GetItem(levels, i), *first = PyTuple_GetItem(items, 0);
        const char *word = PyUnicode_AsUTF8AndSize(first, NULL);
        const char *maker = word && is_name(word) ? "gradient" : "made";
        PyObject *next = PyTuple_Size(items) == 1
                             ? PyUnicode_FromFormat("%U.%s(%R)", text, maker, first)
                             : PyUnicode_FromFormat("%U.%s%R", text, maker, items);
        Py_DECREF(text);
        text = next;
    }
    if (!levels)
        Py_CLEAR(text);
    Py_XDECREF(levels);
    return text;
}

/* The formula itself; a gradient's says what it computes. */
static PyObject *text_of(PyObject *object)
{
    core_formula *self = (core_formula *)object;
    if (PyUnicode_GetLength(self->steps) == 0) {
        Py_INCREF(self->text);
        return self->text;
    }
    size_t length = ogive_formula_text(self->formula, NULL, 0);
    char *text = PyMem_Malloc(length + 1);
    if (!text)
        return PyErr_NoMemory();
    ogive_formula_text(self->formula, text, length + 1);
    PyObject *value = PyUnicode_FromStringAndSize(text, (Py_ssize_t)length);
    PyMem_Free(text);
    return value;
}

PyDoc_STRVAR(explain_doc, "explain($self, /, *inputs, **named)\n--\n\n"
                          "The plan for these inputs, as text: kernels and what each reads, "
                          "computes and writes.");

static PyObject *explain(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    core_formula *self = (core_formula *)object;
    PyObject **objects = PyMem_Malloc((size_t)PyTuple_Size(self->inputs) * sizeof *objects);
    PyObject *value = NULL;
    if (!objects)
        return PyErr_NoMemory();
    if (core_bind(self, args, count, names, objects, NULL) == 0)
        value = core_explain(self, objects);
    PyMem_Free(objects);
    return value;
}

PyDoc_STRVAR(gradient_doc,
             "gradient($self, /, *names)\n--\n\n"
             "The gradient by the inputs of these names: one result per name. Its inputs are\n"
             "the formula's, then one per result of it: grad, or grad.0, grad.1, ...");

static PyObject *gradient(PyObject *object, PyObject *names)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : "x";
        if (text && !is_name(text))
            PyErr_Format(PyExc_ValueError, "the formula has no input %R", name);
        if (!text || !is_name(text))
            return NULL;
    }
    PyObject *derived = core_formula_derive((core_formula *)object, names);
    if (derived)
        core_formula_look_for_dots((core_formula *)derived);
    return derived;
}

PyDoc_STRVAR(
    placements_doc,
    "placements(*inputs, **inputs) -> list of dict\n--\n\n"
    "How the formula is divided among processes, for whole inputs of these shapes: one dict per\n"
    "index, a set of dims that must be divided together. 'extent' is theirs; 'inputs' (by name)\n"
    "and 'results' say what a process has: the number of the dim that it has a part of, 'same',\n"
    "'sum', 'max' or 'min'. 'cuts' are values to be reduced on the way, 'stages' the formulas\n"
    "between them; 0: the index must be whole, for the 'reason' given. 'counts': a mean counts\n"
    "elements along it, which must be those of the whole. Of inputs only shape and dtype are\n"
    "looked at.");

PyDoc_STRVAR(straight_doc,
             "_straight(*inputs): the results, whatever PyTorch may want of the call.");

static PyObject *straight(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    core_formula *self = (core_formula *)object;
    if (count == PyTuple_Size(self->inputs))
        return core_call(self, args, NULL, CORE_STRAIGHT);
    PyErr_Format(PyExc_TypeError, "the formula has %zd inputs %R, %zd were given",
                 PyTuple_Size(self->inputs), self->inputs, count);
    return NULL;
}

PyDoc_STRVAR(into_doc,
             "_into(out, *inputs): as _straight(), into tensors that nobody else has seen.");

static PyObject *into(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    core_formula *self = (core_formula *)object;
    if (count == PyTuple_Size(self->inputs) + 1)
        return core_call(self, args + 1, args[0], CORE_STRAIGHT);
    PyErr_Format(PyExc_TypeError, "the formula has %zd inputs %R, %zd and out were given",
                 PyTuple_Size(self->inputs), self->inputs, count - 1);
    return NULL;
}

static PyObject *calls(PyObject *object, PyObject *name)
{
    const char *function = PyUnicode_AsUTF8AndSize(name, NULL);
    return function
               ? PyBool_FromLong(ogive_formula_calls(((core_formula *)object)->formula, function))
               : NULL;
}

static PyObject *reduce(PyObject *object, PyObject *unused)
{
    core_formula *self = (core_formula *)object;
    PyObject *module = PyImport_ImportModule("ogive._core");
    PyObject *restore = module ? PyObject_GetAttrString(module, "_restore") : NULL;
    (void)unused;
    Py_XDECREF(module);
    return restore ? Py_BuildValue("N(OOO)", restore, self->text, self->steps, self->precision)
                   : NULL;
}

/* ---- attributes ---------------------------------------------------------------------- */

static PyObject *get_results(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(ogive_formula_result_count(((core_formula *)object)->formula));
}

static PyObject *get_products(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(ogive_formula_product_count(((core_formula *)object)->formula));
}

/* A tuple of what describe() says of every i below count. */
static PyObject *make_tuple(const ogive_formula *formula, size_t count,
                            PyObject *(*describe)(const ogive_formula *, size_t))
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *item = describe(formula, i);
        if (!item || PyTuple_SetItem(tuple, (Py_ssize_t)i, item) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *describe_reads(const ogive_formula *formula, size_t i)
{
    return PyBool_FromLong(ogive_formula_reads(formula, i));
}

static PyObject *get_reads(PyObject *object, void *unused)
{
    const ogive_formula *formula = ((core_formula *)object)->formula;
    (void)unused;
    return make_tuple(formula, ogive_formula_input_count(formula), describe_reads);
}

static PyObject *describe_twin(const ogive_formula *formula, size_t i)
{
    size_t passed = ogive_formula_passed(formula, i);
    return passed == (size_t)-1
               ? Py_BuildValue("(nO)", (Py_ssize_t)ogive_formula_twin(formula, i), Py_None)
               : Py_BuildValue("(nn)", (Py_ssize_t)ogive_formula_twin(formula, i),
                               (Py_ssize_t)passed);
}

static PyObject *get_twins(PyObject *object, void *unused)
{
    const ogive_formula *formula = ((core_formula *)object)->formula;
    (void)unused;
    return make_tuple(formula, ogive_formula_result_count(formula), describe_twin);
}

static PyObject *get_name(PyObject *object, void *unused)
{
    (void)unused;
    Py_INCREF(((core_formula *)object)->text);
    return ((core_formula *)object)->text;
}

/* A new reference, or NULL: none yet. */
static PyObject *read_traceable(core_formula *self)
{
    CORE_LOCK(&self->lock);
    PyObject *traceable = self->traceable;
    Py_XINCREF(traceable);
    CORE_UNLOCK(&self->lock);
    return traceable;
}

/* The Python function that stands for this formula while Dynamo traces. Dynamo asks any
 * callable whose type has __script_if_tracing_wrapper for __original_fn and traces that. */
static PyObject *get_traceable(PyObject *object, void *unused)
{
    core_formula *self = (core_formula *)object;
    (void)unused;
    PyObject *made = NULL, *kept = read_traceable(self);
    if (kept)
        return kept;
    PyObject *module = PyImport_ImportModule("ogive.torch._operator");
    if (module)
        made = PyObject_CallMethod(module, "traceable", "O", object);
    Py_XDECREF(module);
    if (!made)
        return NULL;
    CORE_LOCK(&self->lock);
    if (!self->traceable) { /* another thread may have been first */
        Py_INCREF(made);
        self->traceable = made;
    }
    CORE_UNLOCK(&self->lock);
    Py_DECREF(made);
    return read_traceable(self);
}

static PyMemberDef members[] = {
    {"text", T_OBJECT_EX, offsetof(core_formula, text), READONLY, "The formula as it was given."},
    {"steps", T_OBJECT_EX, offsetof(core_formula, steps), READONLY,
     "What was made of the text: names that gradient() was called with, joined by commas, calls "
     "by semicolons; casts, parts and stages, too."},
    {"precision", T_OBJECT_EX, offsetof(core_formula, precision), READONLY,
     "'float32' or 'strict'."},
    {"inputs", T_OBJECT_EX, offsetof(core_formula, inputs), READONLY,
     "The names of the inputs, in order."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(core_formula, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(core_formula, weak_references), READONLY, NULL},
    {0}};

static PyGetSetDef attributes[] = {
    {"results", get_results, NULL, "The number of results.", NULL},
    {"_products", get_products, NULL, "The number of matrix products in the text.", NULL},
    {"_reads", get_reads, NULL, "Of each input, whether its elements are read.", NULL},
    {"_twins", get_twins, NULL,
     "Of each result, the first result that it equals, and the input or None, where shape and "
     "dtype "
     "are the same.",
     NULL},
    {"__name__", get_name, NULL, "The text, where a function would have its name.", NULL},
    {"__original_fn", get_traceable, NULL, "What Dynamo traces in place of this.", NULL},
    {0}};

static PyMethodDef methods[] = {
    {"explain", (PyCFunction)(void (*)(void))explain, METH_FASTCALL | METH_KEYWORDS, explain_doc},
    {"gradient", gradient, METH_VARARGS, gradient_doc},
    {"_straight", (PyCFunction)(void (*)(void))straight, METH_FASTCALL, straight_doc},
    {"_into", (PyCFunction)(void (*)(void))into, METH_FASTCALL, into_doc},
    {"_infer", (PyCFunction)(void (*)(void))core_infer, METH_FASTCALL,
     "_infer(*layouts): the results' (shape, dtype) for inputs' (shape, dtype)."},
    {"_kernels", (PyCFunction)(void (*)(void))core_kernels, METH_FASTCALL,
     "_kernels(*layouts): (name, bytes, operations, slides) of its plan's kernels on the CPU."},
    {"placements", (PyCFunction)(void (*)(void))core_placements, METH_FASTCALL | METH_KEYWORDS,
     placements_doc},
    {"_divisions", (PyCFunction)(void (*)(void))core_divisions, METH_FASTCALL,
     "_divisions(*layouts): placements() for inputs' (shape, dtype), those of inputs a tuple."},
    {"_divisions_at_sums", (PyCFunction)(void (*)(void))core_divisions_at_sums, METH_FASTCALL,
     "_divisions_at_sums(*layouts): the same, with sums cut where they are made (OGIVE_AT_SUMS)."},
    {"_orders", (PyCFunction)(void (*)(void))core_orders, METH_FASTCALL,
     "_orders(*layouts): the fields of each kernel's ogive_sums."},
    {"_sums", (PyCFunction)(void (*)(void))core_sums, METH_FASTCALL,
     "_sums(which, *layouts): the results' placements if some inputs are sums; None: not linear."},
    {"_calls", calls, METH_O, "_calls(name): whether the text calls this function."},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {0}};

PyDoc_STRVAR(type_doc,
             "A formula, made by ogive.compile(): call it with one tensor per input.\n\n"
             "f(x, w), f(x, w=w) or f(**{'fc.weight': w}); out= takes the result (a tuple of\n"
             "them, if there are several).");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)type_doc}, {Py_tp_dealloc, dealloc},        {Py_tp_repr, represent},
    {Py_tp_str, text_of},          {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, members},
    {Py_tp_getset, attributes},    {Py_tp_methods, methods},        {0}};

static PyType_Spec spec = {.name = "ogive.Formula",
                           .basicsize = sizeof(core_formula),
                           .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                                    Py_TPFLAGS_DISALLOW_INSTANTIATION,
                           .slots = slots};

int core_formula_init(PyObject *module)
{
    if (!core_formula_type)
        core_formula_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!core_formula_type || PyObject_SetAttrString((PyObject *)core_formula_type,
                                                     "__script_if_tracing_wrapper", Py_True))
        return -1;
    return PyModule_AddObjectRef(module, "Formula", (PyObject *)core_formula_type);
}
