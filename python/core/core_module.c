/* SPDX-License-Identifier: MIT
 *
 * core_module.c - ogive._core: compile(), the table of functions, the exceptions.
 */
#include "core.h"

PyDoc_STRVAR(compile_doc,
             "compile(text, precision='float32')\n--\n\n"
             "Parses a formula. precision is that of matrix products: 'float32', 'strict' for the\n"
             "CPU's bits on every device, or 'tf32', on GPUs from sm_80 on.");

static PyObject *compile(PyObject *module, PyObject *args, PyObject *names)
{
    static char first[] = "text", second[] = "precision";
    static char *keywords[] = {first, second, NULL};
    PyObject *text, *precision = NULL, *formula = NULL;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|O:compile", keywords, &text, &precision))
        return NULL;
    precision =
        precision ? (Py_INCREF(precision), precision) : PyUnicode_InternFromString("float32");
    if (precision)
        formula = core_formula_create(text, precision);
    Py_XDECREF(precision);
    if (formula)
        core_formula_look_for_dots((core_formula *)formula);
    return formula;
}

PyDoc_STRVAR(restore_doc, "_restore(text, steps, precision) -> Formula, as pickled.");

static PyObject *restore(PyObject *module, PyObject *args)
{
    PyObject *text, *steps, *precision;
    (void)module;
    if (!PyArg_ParseTuple(args, "OUO:_restore", &text, &steps, &precision))
        return NULL;
    PyObject *levels = core_steps(steps);
    PyObject *formula = levels ? core_formula_create(text, precision) : NULL;
    for (Py_ssize_t i = 0; formula && i < PyList_Size(levels); i++) {
        PyObject *next = core_formula_derive((core_formula *)formula, PyList_GetItem(levels, i));
        Py_DECREF(formula);
        formula = next;
    }
    Py_XDECREF(levels);
    return formula;
}

PyDoc_STRVAR(functions_doc,
             "functions()\n--\n\n"
             "The functions of the formula language: (name, signature, group, symbol) of each.");

static PyObject *list_functions(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    ogive_function_info info;
    (void)module;
    (void)unused;
    for (size_t i = 0; list && i < ogive_function_count(); i++) {
        PyObject *item =
            ogive_function(i, &info, NULL) == OGIVE_OK
                ? Py_BuildValue("(sssz)", info.name, info.signature, info.group, info.symbol)
                : NULL;
        if (!item || PyList_Append(list, item))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"compile", (PyCFunction)(void (*)(void))compile, METH_VARARGS | METH_KEYWORDS, compile_doc},
    {"functions", list_functions, METH_NOARGS, functions_doc},
    {"_restore", restore, METH_VARARGS, restore_doc},
    {"_estimate", core_estimate, METH_VARARGS,
     "_estimate(machine, by, kind, dtype, bytes, operations, follows, records, ...): "
     "ogive_estimate()."},
    {"_register_torch", core_torch_register, METH_O,
     "_register_torch(table): the functions that core_torch.c asks."},
    {"_use_openmp", core_use_openmp, METH_VARARGS,
     "_use_openmp(parallel, most): runs on the CPU take the threads of an OpenMP runtime, whose\n"
     "GOMP_parallel() and a function that says how many it may be are at these addresses."},
    {"_operator", (PyCFunction)(void (*)(void))core_operator, METH_FASTCALL | METH_KEYWORDS,
     "_operator(inputs, formula, ...): torch.ops.ogive.run for plain tensors, else PyTorch's."},
    {0}};

static int make_exceptions(void)
{
    if (!core_formula_error)
        core_formula_error = PyErr_NewExceptionWithDoc(
            "ogive.FormulaError",
            "The text of a formula is wrong; offset is the index of the character, or None.",
            PyExc_ValueError, NULL);
    if (!core_device_error)
        core_device_error = PyErr_NewExceptionWithDoc(
            "ogive.DeviceError", "What a device reported.", PyExc_RuntimeError, NULL);
    return core_formula_error && core_device_error ? 0 : -1;
}

/* Called for every import that makes a module; types and exceptions are static variables, made
 * once, which interpreters must not share. */
static int fill_module(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "ogive works in the main interpreter of a process alone: "
                        "this is a sub-interpreter");
        return -1;
    }
    if (make_exceptions() || core_operator_init() || core_formula_init(module) ||
        PyModule_AddObjectRef(module, "FormulaError", core_formula_error) ||
        PyModule_AddObjectRef(module, "DeviceError", core_device_error))
        return -1;
    return PyModule_AddStringConstant(module, "__version__", ogive_version());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill_module},
#ifdef Py_GIL_DISABLED
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "ogive._core",
                                 .m_doc = "The C part of ogive.", .m_methods = functions,
                                 .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void); /* Python calls it by name */

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
