/* SPDX-License-Identifier: MIT
 *
 * core_operator.c - what torch.ops.ogive.run does first: plain tensors go straight to the
 * kernels here, too, since the way through the dispatcher and back into Python takes 3.5 us.
 * All else is the dispatcher's.
 */
#include "core.h"

enum { FEW = 8, FORMULAS = 1024 };

static PyObject *formulas; /* text: Formula, for defaults of the operator's other arguments */

int core_operator_init(void)
{
    if (!formulas)
        formulas = PyDict_New();
    return formulas ? 0 : -1;
}

/* The formula of text, a new reference. */
static core_formula *find_formula(PyObject *text)
{
    PyObject *found = core_dict_item(formulas, text);
    if (found || PyErr_Occurred())
        return (core_formula *)found;
    PyObject *precision = PyUnicode_InternFromString("float32");
    PyObject *formula = precision ? core_formula_create(text, precision) : NULL;
    Py_XDECREF(precision);
    if (formula && PyDict_Size(formulas) >= FORMULAS)
        PyDict_Clear(formulas);
    if (formula && PyDict_SetItem(formulas, text, formula))
        Py_CLEAR(formula);
    return (core_formula *)formula;
}

/* A list of results; None: not for us. */
static PyObject *try_plain(core_formula *formula, PyObject *inputs)
{
    Py_ssize_t count = PyTuple_Size(formula->inputs);
    PyObject *few[FEW], *list = NULL, *result = NULL;
    if (count > FEW || PyList_Size(inputs) != count)
        Py_RETURN_NONE;
    Py_ssize_t held = 0; /* the list may change while the GIL is released */
    while (held < count && (few[held] = core_list_item(inputs, held)))
        held++;
    if (held == count)
        result = core_call(formula, few, NULL, CORE_TRY);
    for (Py_ssize_t i = 0; i < held; i++)
        Py_DECREF(few[i]);
    if (!result || result == Py_None)
        return result;
    if (ogive_formula_result_count(formula->formula) > 1)
        list = PySequence_List(result);
    else if ((list = PyList_New(1))) {
        Py_INCREF(result);
        PyList_SetItem(list, 0, result);
    }
    Py_DECREF(result);
    return list;
}

/* Whether every item is a tensor, which the operator insists on. */
static bool are_tensors(PyObject *list)
{
    core_kind kind;
    bool good = true;
    for (Py_ssize_t i = 0; good && i < PyList_Size(list); i++) {
        PyObject *item = core_list_item(list, i);
        good = item && core_kind_of(item, &kind) == 0 && kind.family == FAMILY_TORCH;
        Py_XDECREF(item);
    }
    if (!good)
        PyErr_Clear();
    return good;
}

static bool is_default(PyObject *const *args, Py_ssize_t count)
{
    return (count < 3 || (PyUnicode_Check(args[2]) && PyUnicode_GetLength(args[2]) == 0)) &&
           (count < 4 || (PyUnicode_Check(args[3]) &&
                          PyUnicode_CompareWithASCIIString(args[3], "float32") == 0));
}

/* Has every type of tensor been met, whose rule must be there before the dispatcher looks for
 * it? -1 with an exception. */
static int meet_types(PyObject *inputs)
{
    core_kind kind;
    if (!PyList_Check(inputs) && !PyTuple_Check(inputs))
        return 0;
    PyObject *items = PySequence_Tuple(inputs);
    int status = items ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_Size(items); i++)
        status = core_kind_of(PyTuple_GetItem(items, i), &kind);
    Py_XDECREF(items);
    return status;
}

PyObject *core_operator(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    (void)module;
    if (!names && count >= 2 && count <= 4 && PyList_Check(args[0]) && PyUnicode_Check(args[1]) &&
        is_default(args, count) && are_tensors(args[0])) {
        core_formula *formula = find_formula(args[1]);
        PyObject *result = formula ? try_plain(formula, args[0]) : NULL;
        Py_XDECREF(formula);
        if (result != Py_None)
            return result;
        Py_DECREF(result);
    }
    Py_ssize_t first = 0; /* inputs, which may be given by name */
    while (!count && names && first < PyTuple_Size(names) - 1 &&
           PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, first), "inputs") != 0)
        first++;
    if ((count || (names && PyTuple_Size(names))) && meet_types(args[first]))
        return NULL;
    return core_torch_dispatch(args, count, names);
}
