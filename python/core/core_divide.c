/* SPDX-License-Identifier: MIT
 *
 * core_divide.c - how a formula is divided among processes: ogive.h's answers as Python
 * values. A placement is the number of the dim that is divided, or 'same', 'sum', 'max',
 * 'min'.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { MOST_DIMS = 8 };

static const char *const shares[] = {[OGIVE_SAME] = "same",
                                     [OGIVE_PART] = "part",
                                     [OGIVE_SUM] = "sum",
                                     [OGIVE_MAX] = "max",
                                     [OGIVE_MIN] = "min"};

static PyObject *placement_of(const ogive_placement *placed)
{
    return placed->share == OGIVE_PART ? PyLong_FromLong(placed->dim)
                                       : PyUnicode_InternFromString(shares[placed->share]);
}

static PyObject *placements_of(const ogive_placement *placed, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        PyObject *item = placement_of(&placed[i]);
        if (!item || PyTuple_SetItem(tuple, i, item))
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *raise(core_formula *self, const ogive_error *error)
{
    core_raise(error, self->text);
    return NULL;
}

/* ---- cuts ------------------------------------------------------------------------------ */

static PyObject *shape_of(const ogive_cut *cut)
{
    PyObject *shape = PyTuple_New(cut->ndim);
    for (int32_t d = 0; shape && d < cut->ndim; d++)
        PyTuple_SetItem(shape, d, PyLong_FromLongLong(cut->shape[d]));
    return shape;
}

/* {'name', 'share', 'stage', 'function', 'offset', 'constant', 'shape'} */
static PyObject *cut_of(const ogive_cut *cut)
{
    PyObject *shape = shape_of(cut);
    return shape ? Py_BuildValue("{s:s,s:s,s:i,s:s,s:L,s:O,s:N}", "name", cut->name, "share",
                                 shares[cut->share], "stage", (int)cut->stage, "function",
                                 cut->function, "offset", (long long)cut->offset, "constant",
                                 cut->constant ? Py_True : Py_False, "shape", shape)
                 : NULL;
}

static PyObject *cuts_of(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                         size_t index, int32_t cuts)
{
    PyObject *list = PyList_New(cuts);
    ogive_error error;
    for (int32_t i = 0; list && i < cuts; i++) {
        ogive_cut cut = {.size = sizeof cut};
        if (ogive_formula_cut(self->formula, inputs, (size_t)count, index, (size_t)i, &cut,
                              &error)) {
            Py_DECREF(list);
            return raise(self, &error);
        }
        PyObject *item = cut_of(&cut);
        if (!item || PyList_SetItem(list, i, item))
            Py_CLEAR(list);
    }
    return list;
}

/* ---- divisions --------------------------------------------------------------------------- */

/* {'extent', 'inputs', 'results', 'stages', 'counts', 'cuts', 'reason'} */
static PyObject *division_of(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                             size_t index, ogive_placement *of_inputs, ogive_placement *of_results)
{
    ogive_division division = {.size = sizeof division};
    ogive_error error;
    if (ogive_formula_division(self->formula, inputs, (size_t)count, index, &division, of_inputs,
                               of_results, &error))
        return raise(self, &error);
    Py_ssize_t results =
        division.stages ? (Py_ssize_t)ogive_formula_result_count(self->formula) : 0;
    PyObject *cuts = cuts_of(self, inputs, count, index, division.cuts);
    PyObject *placed = cuts ? placements_of(of_inputs, count) : NULL;
    PyObject *given = placed ? placements_of(of_results, results) : NULL;
    if (given)
        return Py_BuildValue("{s:L,s:N,s:N,s:i,s:O,s:N,s:s}", "extent", (long long)division.extent,
                             "inputs", placed, "results", given, "stages", (int)division.stages,
                             "counts", division.counts ? Py_True : Py_False, "cuts", cuts, "reason",
                             division.reason);
    Py_XDECREF(cuts);
    Py_XDECREF(placed);
    return NULL;
}

/* Room for the placements of inputs and results; of_results is the second half. */
static ogive_placement *allocate(core_formula *self, Py_ssize_t count, ogive_placement **of_results)
{
    size_t results = ogive_formula_result_count(self->formula);
    ogive_placement *room = PyMem_Calloc((size_t)count + results + 1, sizeof *room);
    if (!room)
        PyErr_NoMemory();
    *of_results = room ? room + count : NULL;
    return room;
}

/* context: NULL, or anything, for sums that are cut where they are made. */
static PyObject *list_divisions(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                                void *context)
{
    size_t divisions, added = context ? OGIVE_AT_SUMS : 0;
    ogive_error error;
    ogive_placement *of_results, *of_inputs = allocate(self, count, &of_results);
    if (!of_inputs)
        return NULL;
    PyObject *list = NULL;
    if (ogive_formula_division_count(self->formula, inputs, (size_t)count, &divisions, &error))
        raise(self, &error);
    else
        list = PyList_New((Py_ssize_t)divisions);
    for (size_t i = 0; list && i < divisions; i++) {
        PyObject *item = division_of(self, inputs, count, i + added, of_inputs, of_results);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item))
            Py_CLEAR(list);
    }
    PyMem_Free(of_inputs);
    return list;
}

PyObject *core_divisions(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return core_ask(self, args, count, list_divisions, NULL);
}

PyObject *core_divisions_at_sums(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return core_ask(self, args, count, list_divisions, self);
}

/* context: a tuple that says which inputs are sums. */
static PyObject *find_sums(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                           void *context)
{
    ogive_division division = {.size = sizeof division};
    ogive_error error;
    ogive_placement *of_results, *of_inputs = allocate(self, count, &of_results);
    PyObject *value = NULL;
    if (!of_inputs)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        of_inputs[i].share = PyTuple_GetItem(context, i) == Py_True ? OGIVE_SUM : OGIVE_SAME;
    if (PyErr_Occurred())
        value = NULL;
    else if (ogive_formula_division(self->formula, inputs, (size_t)count, OGIVE_NOTHING, &division,
                                    of_inputs, of_results, &error))
        raise(self, &error);
    else if (division.stages)
        value = placements_of(of_results, (Py_ssize_t)ogive_formula_result_count(self->formula));
    else
        value = (Py_INCREF(Py_None), Py_None);
    PyMem_Free(of_inputs);
    return value;
}

PyObject *core_sums(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count && PyTuple_Check(args[0]))
        return core_ask(self, args + 1, count - 1, find_sums, args[0]);
    PyErr_SetString(PyExc_TypeError, "_sums() takes a tuple of bools, then layouts");
    return NULL;
}

/* ---- of tensors ------------------------------------------------------------------------------ */

/* (shape, dtype) of anything that has a shape and a dtype, or of a number; a new reference. */
static PyObject *layout_of(PyObject *object)
{
    PyObject *shape = PyObject_GetAttrString(object, "shape");
    PyObject *dtype = shape ? PyObject_GetAttrString(object, "dtype") : NULL;
    PyObject *layout = NULL;
    if (!dtype && (PyFloat_Check(object) || PyLong_Check(object))) {
        PyErr_Clear();
        layout = Py_BuildValue("(()s)", "float32");
    } else if (dtype) {
        PyObject *sizes = PySequence_Tuple(shape), *text = PyObject_Str(dtype);
        const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
        const char *dot = name ? strrchr(name, '.') : NULL; /* torch.float32 */
        if (sizes && name)
            layout = Py_BuildValue("(Os)", sizes, dot ? dot + 1 : name);
        Py_XDECREF(sizes);
        Py_XDECREF(text);
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    return layout;
}

/* The inputs' placements, by name. */
static int name_inputs(PyObject *division, PyObject *names)
{
    PyObject *placed = PyDict_GetItemString(division, "inputs"), *named = PyDict_New();
    int status = placed && named ? 0 : -1;
    for (Py_ssize_t i = 0; !status && i < PyTuple_Size(names); i++)
        status = PyDict_SetItem(named, PyTuple_GetItem(names, i), PyTuple_GetItem(placed, i));
    if (!status)
        status = PyDict_SetItemString(division, "inputs", named);
    Py_XDECREF(named);
    return status;
}

PyObject *core_placements(PyObject *object, PyObject *const *args, Py_ssize_t count,
                          PyObject *names)
{
    core_formula *self = (core_formula *)object;
    Py_ssize_t inputs = PyTuple_Size(self->inputs);
    PyObject **objects = PyMem_Calloc((size_t)inputs + 1, sizeof *objects), *list = NULL;
    PyObject *layouts = PyTuple_New(inputs);
    bool good = objects && layouts && core_bind(self, args, count, names, objects, NULL) == 0;
    if (!objects)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < inputs; i++) {
        objects[i] = layout_of(objects[i]);
        good = objects[i] && PyTuple_SetItem(layouts, i, objects[i]) == 0;
    }
    if (good)
        list = core_divisions(object, objects, inputs);
    for (Py_ssize_t i = 0; list && i < PyList_Size(list); i++)
        if (name_inputs(PyList_GetItem(list, i), self->inputs))
            Py_CLEAR(list);
    Py_XDECREF(layouts); /* which owns what objects point at */
    PyMem_Free(objects);
    return list;
}

/* ---- stages as text -------------------------------------------------------------------------- */

/* "16x64:float32" into tensor and dims. */
static bool read_layout(const char *text, DLTensor *tensor, int64_t dims[MOST_DIMS])
{
    *tensor = (DLTensor){.device = {.device_type = kDLCPU}, .shape = dims};
    while (*text >= '0' && *text <= '9' && tensor->ndim < MOST_DIMS) {
        char *end;
        dims[tensor->ndim++] = strtoll(text, &end, 10);
        text = end + (*end == 'x');
    }
    if (*text != ':')
        return false;
    PyObject *name = PyUnicode_FromString(text + 1);
    bool good = name && core_dtype_of(name, &tensor->dtype) == 0;
    PyErr_Clear();
    Py_XDECREF(name);
    return good;
}

static ogive_status refuse(ogive_error *error, const char *item, const char *expected)
{
    *error = (ogive_error){.status = OGIVE_ARGUMENT, .offset = -1};
    snprintf(error->message, sizeof error->message, "a stage of a formula: '%.200s': expected %s",
             item, expected);
    return OGIVE_ARGUMENT;
}

ogive_status core_make_stage(const ogive_formula *formula, const char *const *items, size_t count,
                             ogive_formula **out, ogive_error *error)
{
    size_t index = OGIVE_NOTHING, stage = 0;
    *out = NULL;
    if (items[0][1] && sscanf(items[0], "@%zu.%zu", &index, &stage) != 2)
        return refuse(error, items[0], "@INDEX.STAGE");
    DLTensor *tensors = calloc(count, sizeof *tensors);
    const DLTensor **pointers = calloc(count, sizeof *pointers);
    int64_t(*dims)[MOST_DIMS] = calloc(count, sizeof *dims);
    ogive_status status = OGIVE_OK;
    if (!tensors || !pointers || !dims)
        status = refuse(error, items[0], "memory");
    for (size_t i = 1; !status && i < count; i++) {
        pointers[i - 1] = &tensors[i - 1];
        if (!read_layout(items[i], &tensors[i - 1], dims[i - 1]))
            status = refuse(error, items[i], "a layout such as 16x64:float32");
    }
    if (!status)
        status = ogive_formula_stage(formula, pointers, count - 1, index, stage, out, error);
    free(tensors);
    free(pointers);
    free(dims);
    return status;
}
