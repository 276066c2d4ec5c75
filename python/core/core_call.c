/* SPDX-License-Identifier: MIT
 *
 * core_call.c - the way of a call: bind arguments to inputs, look what kind they
 * are, choose PyTorch's door, borrow the tensors, plan, run, hand back results of
 * the same kind.
 */
#include <string.h>

#include "core.h"

enum { FEW = 8 }; /* operands that need no allocation */

/* ---- binding ------------------------------------------------------------------------ */

static const char *input_name(core_formula *self, Py_ssize_t i)
{
    return ogive_formula_input_name(self->formula, (size_t)i);
}

/* The index of the input called name, or -1. */
static Py_ssize_t find_input(core_formula *self, PyObject *name)
{
    Py_ssize_t count = PyTuple_Size(self->inputs);
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GetItem(self->inputs, i) == name)
            return i;
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyUnicode_Compare(PyTuple_GetItem(self->inputs, i), name) == 0)
            return i;
    return -1;
}

static int bind_name(core_formula *self, PyObject *name, PyObject *value, PyObject **objects,
                     PyObject **out)
{
    Py_ssize_t at = find_input(self, name);
    if (at >= 0) {
        if (objects[at]) {
            PyErr_Format(PyExc_TypeError, "input '%U' was given twice", name);
            return -1;
        }
        objects[at] = value;
        return 0;
    }
    if (out && PyUnicode_CompareWithASCIIString(name, "out") == 0) {
        *out = value == Py_None ? NULL : value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "the formula has no input '%U': its inputs are %R", name,
                 self->inputs);
    return -1;
}

static bool is_function(const char *name)
{
    ogive_function_info info;
    for (size_t i = 0; i < ogive_function_count(); i++)
        if (ogive_function(i, &info, NULL) == OGIVE_OK && strcmp(info.name, name) == 0)
            return true;
    return false;
}

/* x.mean by position: the tensor that is given may well be x. */
static int check_places(core_formula *self, PyObject *const *args, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *name = input_name(self, i), *dot = strrchr(name, '.');
        if (!dot || !PyObject_HasAttrString((PyObject *)Py_TYPE(args[i]), dot + 1))
            continue;
        PyObject *before = PyUnicode_FromStringAndSize(name, dot - name);
        if (before && is_function(dot + 1))
            PyErr_Format(PyExc_TypeError,
                         "input '%s' is given by position: for %s of a tensor %U write %s(%U); a "
                         "tensor that is called so is given by name, **{'%s': ...}",
                         name, dot + 1, before, dot + 1, before, name);
        else if (before)
            PyErr_Format(PyExc_TypeError,
                         "input '%s' is given by position: a formula does not know the %s of a "
                         "tensor %U; a tensor that is called so is given by name, **{'%s': ...}",
                         name, dot + 1, before, name);
        Py_XDECREF(before);
        return -1;
    }
    self->has_dots = count < PyTuple_Size(self->inputs);
    return 0;
}

int core_bind(core_formula *self, PyObject *const *args, Py_ssize_t count, PyObject *names,
              PyObject **objects, PyObject **out)
{
    Py_ssize_t inputs = PyTuple_Size(self->inputs), named = names ? PyTuple_Size(names) : 0;
    if (count > inputs) {
        PyErr_Format(PyExc_TypeError, "the formula has %zd inputs %R, %zd were given", inputs,
                     self->inputs, count);
        return -1;
    }
    if (self->has_dots && check_places(self, args, count))
        return -1;
    for (Py_ssize_t i = 0; i < inputs; i++)
        objects[i] = i < count ? args[i] : NULL;
    for (Py_ssize_t i = 0; i < named; i++)
        if (bind_name(self, PyTuple_GetItem(names, i), args[count + i], objects, out))
            return -1;
    for (Py_ssize_t i = count; i < inputs; i++)
        if (!objects[i]) {
            PyErr_Format(PyExc_TypeError, "input '%s' is missing", input_name(self, i));
            return -1;
        }
    return 0;
}

/* ---- operands ----------------------------------------------------------------------- */

static int refuse(PyObject *object, const char *what, const char *name)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__qualname__");
    if (type)
        PyErr_Format(PyExc_TypeError,
                     "%s '%s' is a %S: expected a tensor of PyTorch or NumPy, one that has "
                     "__dlpack__, or a number",
                     what, name, type);
    Py_XDECREF(type);
    return -1;
}

/* Fills object and kind of operands; *model: the first that is a tensor. */
static int look_at(core_formula *self, PyObject *const *objects, core_operand *operands,
                   Py_ssize_t count, Py_ssize_t *model)
{
    *model = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        operands[i].object = objects[i];
        operands[i].versioned = NULL;
        operands[i].legacy = NULL;
        operands[i].read_only = false;
        if (core_kind_of(objects[i], &operands[i].kind))
            return -1;
        const core_kind *kind = &operands[i].kind;
        if (kind->family == FAMILY_NONE)
            return refuse(objects[i], "input", input_name(self, i));
        if (core_is_number(kind))
            continue;
        const core_kind *first = *model < 0 ? kind : &operands[*model].kind;
        if (!core_is_same(first, kind)) {
            PyErr_Format(PyExc_TypeError,
                         "inputs '%s' and '%s' are tensors of different kinds: "
                         "%R and %R",
                         input_name(self, *model), input_name(self, i), (PyObject *)first->type,
                         (PyObject *)kind->type);
            return -1;
        }
        if (*model < 0)
            *model = i;
    }
    if (*model >= 0)
        return 0;
    PyErr_SetString(PyExc_TypeError, "all inputs are numbers: expected at least one tensor");
    return -1;
}

/* Reads numbers, borrows tensors, then makes tensors of the numbers: float64 ones if a tensor
 * is, else float32, which as a 0-d tensor promotes nothing that has dims. Numbers come first
 * since a number's __float__ may do anything, even free the memory of a borrowed tensor. */
static int borrow_all(core_formula *self, core_operand *operands, Py_ssize_t count)
{
    bool wide = false;
    for (Py_ssize_t i = 0; i < count; i++)
        if (core_is_number(&operands[i].kind) && core_read_number(&operands[i]))
            return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (core_is_number(&operands[i].kind))
            continue;
        if (core_borrow(&operands[i], "input", input_name(self, i))) {
            core_release(operands, i + 1);
            return -1;
        }
        DLDataType type = operands[i].view.dtype;
        wide |= type.code == kDLFloat && type.bits == 64;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (core_is_number(&operands[i].kind))
            core_borrow_number(&operands[i], wide);
    return 0;
}

/* Whether PyTorch has to make other tensors of some operands: a number or a 0-d CPU
 * tensor has to get to the GPU where the others are; a number beside nothing but 0-d
 * tensors of half types has to be one of these, for float32 would promote them. */
static bool must_convert(const core_operand *operands, Py_ssize_t count)
{
    bool number = false, scalar = false, device = false, wide = false;
    for (Py_ssize_t i = 0; i < count; i++) {
        const DLTensor *view = &operands[i].view;
        bool cpu = view->device.device_type == kDLCPU;
        scalar |= cpu && view->ndim == 0;
        device |= !cpu;
        if (core_is_number(&operands[i].kind))
            number = true;
        else
            wide |= view->ndim > 0 || view->dtype.bits > 16 || view->dtype.bits == 8;
    }
    return (scalar && device) || (number && !wide);
}

/* ---- results ------------------------------------------------------------------------ */

/* What the caller gave as out, a new reference; for several results a tuple of the items: a
 * list may change while the GIL is released, and a subclass may give others every time. */
static PyObject *hold_out(core_formula *self, PyObject *out)
{
    bool several = PyTuple_Check(out) || PyList_Check(out);
    if (several && ogive_formula_result_count(self->formula) > 1)
        return PySequence_Tuple(out);
    Py_INCREF(out);
    return out;
}

static int check_out(PyObject *out, Py_ssize_t count)
{
    if (count == 1)
        return 0;
    if (!PyTuple_Check(out)) {
        PyErr_Format(PyExc_TypeError, "the formula has %zd results: out must be a tuple of them",
                     count);
        return -1;
    }
    if (PyTuple_Size(out) == count)
        return 0;
    PyErr_Format(PyExc_ValueError, "the formula has %zd results, out has %zd", count,
                 PyTuple_Size(out));
    return -1;
}

static int borrow_out(PyObject *out, core_operand *results, Py_ssize_t count,
                      const core_operand *model)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        results[i] = (core_operand){.object = count == 1 ? out : PyTuple_GetItem(out, i)};
        if (core_kind_of(results[i].object, &results[i].kind))
            return -1;
        if (results[i].kind.family == FAMILY_NONE || core_is_number(&results[i].kind))
            return refuse(results[i].object, "output", "out");
        if (!core_is_same(&results[i].kind, &model->kind)) {
            PyErr_Format(PyExc_TypeError, "out is a %R, the inputs are %R",
                         (PyObject *)results[i].kind.type, (PyObject *)model->kind.type);
            return -1;
        }
        if (core_borrow(&results[i], "output", "out"))
            return -1;
        if (results[i].read_only) {
            PyErr_SetString(PyExc_ValueError, "out is read-only");
            return -1;
        }
    }
    return 0;
}

/* One result by itself, several as a tuple. */
static PyObject *collect(core_operand *results, Py_ssize_t count)
{
    if (count == 1)
        return core_result_object(&results[0]);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        PyObject *object = core_result_object(&results[i]);
        if (!object || PyTuple_SetItem(tuple, i, object)) {
            Py_CLEAR(tuple);
            break;
        }
    }
    return tuple;
}

static void drop_results(core_operand *results, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        Py_XDECREF(results[i].object); /* allocated by name and not handed out */
    core_release(results, count);
}

static PyObject *run_into_new(core_formula *self, core_operand *inputs, Py_ssize_t input_count,
                              const core_operand *model, core_operand *results, Py_ssize_t count)
{
    core_plan plan;
    if (core_plan_find(self, inputs, input_count, NULL, 0, &plan))
        return NULL;
    PyObject *value = NULL;
    Py_ssize_t made = 0;
    while (made < count &&
           core_allocate(ogive_plan_result(plan.plan, (size_t)made), model, &results[made]) == 0)
        made++;
    if (made == count &&
        core_plan_run(self, &plan, inputs, input_count, results, count, model) == 0)
        value = collect(results, count);
    drop_results(results, made);
    ogive_plan_release(plan.plan);
    return value;
}

static PyObject *run_into_out(core_formula *self, core_operand *inputs, Py_ssize_t input_count,
                              const core_operand *model, PyObject *out, core_operand *results,
                              Py_ssize_t count, core_door door)
{
    core_plan plan = {0};
    PyObject *value = NULL;
    memset(results, 0, (size_t)count * sizeof *results);
    if (borrow_out(out, results, count, model) == 0 &&
        core_plan_find(self, inputs, input_count, results, count, &plan) == 0) {
        int status = 0;
        for (Py_ssize_t i = 0; i < count && status == 0; i++)
            if (core_is_torch(&results[i].kind) && door != CORE_STRAIGHT)
                status = core_torch_written(results[i].object);
        if (status == 0 &&
            core_plan_run(self, &plan, inputs, input_count, results, count, model) == 0) {
            Py_INCREF(out);
            value = out;
        }
    }
    core_release(results, count);
    ogive_plan_release(plan.plan);
    return value;
}

/* ---- calls -------------------------------------------------------------------------- */

/* The thin door. Inputs have been looked at. */
static PyObject *call_direct(core_formula *self, core_operand *inputs, Py_ssize_t count,
                             Py_ssize_t model, PyObject *out, core_door door)
{
    Py_ssize_t result_count = (Py_ssize_t)ogive_formula_result_count(self->formula);
    core_operand few[FEW], *results = few;
    PyObject *value = NULL;
    if (out && check_out(out, result_count)) {
        core_release(inputs, count);
        return NULL;
    }
    if (result_count > FEW && !(results = PyMem_Calloc((size_t)result_count, sizeof *results)))
        PyErr_NoMemory();
    else if (out)
        value = run_into_out(self, inputs, count, &inputs[model], out, results, result_count, door);
    else
        value = run_into_new(self, inputs, count, &inputs[model], results, result_count);
    if (results != few)
        PyMem_Free(results);
    core_release(inputs, count);
    return value;
}

/* Through PyTorch: by its operator, or straight but with a gradient recorded. */
static PyObject *call_torch(core_formula *self, PyObject *const *objects, PyObject *out,
                            core_door door, int needed)
{
    if (door == CORE_TRY)
        Py_RETURN_NONE;
    return needed == CORE_GRADIENT ? core_torch_gradient(self, objects)
                                   : core_torch_operator(self, objects, out);
}

static PyObject *call_looked_at(core_formula *self, PyObject *const *objects,
                                core_operand *operands, Py_ssize_t count, PyObject *out,
                                core_door door)
{
    Py_ssize_t model;
    if (look_at(self, objects, operands, count, &model))
        return NULL;
    bool torch = core_is_torch(&operands[model].kind) && door != CORE_STRAIGHT;
    int needed = torch ? core_torch_needs_operator(operands, count, out) : CORE_NOTHING;
    if (needed < 0)
        return NULL;
    if (needed == CORE_OPERATOR)
        return call_torch(self, objects, out, door, needed);
    if (borrow_all(self, operands, count)) {
        /* What cannot be lent (sparse, meta, no storage): the dispatcher's answer counts. */
        if (!torch || PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
        return call_torch(self, objects, out, door, CORE_OPERATOR);
    }
    if (torch && must_convert(operands, count))
        needed = CORE_OPERATOR;
    if (needed != CORE_NOTHING) {
        core_release(operands, count);
        return call_torch(self, objects, out, door, needed);
    }
    return call_direct(self, operands, count, model, out, door);
}

PyObject *core_call(core_formula *self, PyObject *const *objects, PyObject *out, core_door door)
{
    Py_ssize_t count = PyTuple_Size(self->inputs);
    core_operand few[FEW], *operands = few;
    PyObject *held = out ? hold_out(self, out) : NULL, *value = NULL;
    if (out && !held)
        return NULL;
    if (count > FEW && !(operands = PyMem_Malloc((size_t)count * sizeof *operands)))
        PyErr_NoMemory();
    else
        value = call_looked_at(self, objects, operands, count, held, door);
    if (operands != few)
        PyMem_Free(operands);
    if (value && value == held) { /* the caller gets back the very list that it gave */
        Py_INCREF(out);
        Py_DECREF(value);
        value = out;
    }
    Py_XDECREF(held);
    return value;
}

PyObject *core_vectorcall(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names)
{
    core_formula *self = (core_formula *)callable;
    /* The highest bit says that args[-1] may be written to. */
    Py_ssize_t given = (Py_ssize_t)(flags & ((size_t)-1 >> 1));
    Py_ssize_t count = PyTuple_Size(self->inputs);
    PyObject *few[FEW], **objects = few, *out = NULL, *value = NULL;
    if (count > FEW && !(objects = PyMem_Malloc((size_t)count * sizeof *objects)))
        return PyErr_NoMemory();
    if (core_bind(self, args, given, names, objects, &out) == 0)
        value = core_call(self, objects, out, CORE_ANY_DOOR);
    if (objects != few)
        PyMem_Free(objects);
    return value;
}

/* ---- explain ------------------------------------------------------------------------ */

static PyObject *explain_plan(const ogive_plan *plan)
{
    size_t length = ogive_plan_explain(plan, NULL, 0);
    char *text = length ? PyMem_Malloc(length + 1) : NULL;
    if (!text)
        return PyErr_NoMemory();
    bool whole = ogive_plan_explain(plan, text, length + 1) == length;
    PyObject *value = whole ? PyUnicode_FromString(text) : PyErr_NoMemory();
    PyMem_Free(text);
    return value;
}

/* Both are stolen. */
static PyObject *append(PyObject *text, PyObject *more)
{
    PyObject *value = more ? PyUnicode_Concat(text, more) : NULL;
    Py_DECREF(text);
    Py_XDECREF(more);
    return value;
}

/* Is one of them a tensor that only PyTorch's dispatcher knows, as DTensors are? */
static bool has_wrapper(const core_operand *operands, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++)
        if (operands[i].kind.family == FAMILY_TORCH_SUBCLASS)
            return true;
    return false;
}

PyObject *core_explain(core_formula *self, PyObject *const *objects)
{
    Py_ssize_t count = PyTuple_Size(self->inputs), model;
    core_operand *operands = PyMem_Malloc((size_t)count * sizeof *operands);
    PyObject *value = NULL;
    core_plan plan;
    if (!operands)
        return PyErr_NoMemory();
    const bool is_seen = look_at(self, objects, operands, count, &model) == 0;
    if (is_seen && has_wrapper(operands, count)) {
        value = core_torch_explain(self, objects);
    } else if (is_seen && borrow_all(self, operands, count) == 0) {
        if (core_plan_find(self, operands, count, NULL, 0, &plan) == 0) {
            value = explain_plan(plan.plan);
            ogive_plan_release(plan.plan);
            if (value && core_is_torch(&operands[model].kind))
                value = append(value, core_torch_explain(self, objects));
        }
        core_release(operands, count);
    }
    PyMem_Free(operands);
    return value;
}
