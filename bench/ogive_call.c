/* SPDX-License-Identifier: MIT
 *
 * ogive_call.c - a Python module with one type, so that bench/pytorch_cpu.py can
 * time ogive_run() and PyTorch in one process: Call(text, inputs, outputs,
 * threads[, names]), tensors given as (address, shape, strides, dtype code, bits);
 * with names, the formula is its gradient by these inputs. Calling it runs the
 * formula; only ogive_run() is between the caller and the kernels.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ogive.h"

enum { MAX_TENSORS = 16, MAX_RANK = 8 };

typedef struct {
    PyObject_HEAD ogive_formula *formula;
    ogive_options options;
    size_t input_count, output_count;
    DLTensor tensors[MAX_TENSORS]; /* inputs, then outputs */
    const DLTensor *pointers[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][MAX_RANK], strides[MAX_TENSORS][MAX_RANK];
} Call;

static int read_dims(PyObject *tuple, int64_t *dims)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    for (Py_ssize_t d = 0; d < count && d < MAX_RANK; d++)
        dims[d] = PyLong_AsLongLong(PyTuple_GetItem(tuple, d));
    return (int)count;
}

static int read_tensors(Call *call, PyObject *list, size_t first, size_t *count)
{
    *count = (size_t)PyList_Size(list);
    for (size_t i = 0; i < *count && first + i < MAX_TENSORS; i++) {
        size_t at = first + i;
        unsigned long long address;
        PyObject *shape, *strides;
        int code, bits;
        if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "KO!O!ii", &address,
                              &PyTuple_Type, &shape, &PyTuple_Type, &strides, &code, &bits))
            return -1;
        DLTensor *tensor = &call->tensors[at];
        tensor->data = (void *)(uintptr_t)address;
        tensor->device.device_type = kDLCPU;
        tensor->dtype = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
        tensor->ndim = read_dims(shape, call->shapes[at]);
        read_dims(strides, call->strides[at]);
        tensor->shape = call->shapes[at];
        tensor->strides = call->strides[at];
        call->pointers[at] = tensor;
    }
    return 0;
}

/* The formula becomes its gradient by a list of names. */
static int take_gradient(Call *call, PyObject *list)
{
    const char *names[MAX_TENSORS];
    Py_ssize_t count = PyList_Size(list);
    ogive_formula *gradient;
    ogive_error error;
    for (Py_ssize_t i = 0; i < count && i < MAX_TENSORS; i++)
        if (!(names[i] = PyUnicode_AsUTF8(PyList_GetItem(list, i))))
            return -1;
    if (ogive_formula_gradient(call->formula, names, (size_t)count, &gradient, &error)) {
        PyErr_SetString(PyExc_ValueError, error.message);
        return -1;
    }
    ogive_formula_release(call->formula);
    call->formula = gradient;
    return 0;
}

static int call_init(Call *call, PyObject *args, PyObject *keywords)
{
    (void)keywords;
    const char *text;
    PyObject *inputs, *outputs, *names = NULL;
    int threads;
    ogive_error error;
    if (!PyArg_ParseTuple(args, "sO!O!i|O!", &text, &PyList_Type, &inputs, &PyList_Type, &outputs,
                          &threads, &PyList_Type, &names) ||
        read_tensors(call, inputs, 0, &call->input_count) ||
        read_tensors(call, outputs, call->input_count, &call->output_count))
        return -1;
    call->options.size = sizeof call->options;
    call->options.threads = threads;
    if (ogive_formula_create(text, OGIVE_TEXT, &call->formula, &error)) {
        PyErr_SetString(PyExc_ValueError, error.message);
        return -1;
    }
    return names ? take_gradient(call, names) : 0;
}

static PyObject *call_run(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)args;
    (void)keywords;
    Call *call = (Call *)self;
    ogive_error error;
    if (ogive_run(call->formula, call->pointers, call->input_count,
                  call->pointers + call->input_count, call->output_count, &call->options, &error))
        return PyErr_Format(PyExc_RuntimeError, "%s", error.message);
    Py_RETURN_NONE;
}

static void call_free(PyObject *self)
{
    ogive_formula_release(((Call *)self)->formula);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject call_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "ogive_call.Call",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)call_init,
    .tp_call = call_run,
    .tp_dealloc = call_free,
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "ogive_call", .m_size = -1};

PyMODINIT_FUNC PyInit_ogive_call(void)
{
    PyObject *result = PyType_Ready(&call_type) ? NULL : PyModule_Create(&module);
    if (result)
        PyModule_AddObject(result, "Call", (PyObject *)&call_type);
    return result;
}
