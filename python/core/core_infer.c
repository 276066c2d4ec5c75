/* SPDX-License-Identifier: MIT
 *
 * core_infer.c - the shapes and dtypes of a formula's results, without any data: what
 * PyTorch needs to trace an operator.
 */
#include <string.h>

#include "core.h"

enum { MOST_DIMS = 64 }; /* more than planning takes: that is for it to refuse */

static const struct {
    const char *name;
    DLDataType type;
} dtypes[] = {{"float32", {kDLFloat, 32, 1}},     {"float16", {kDLFloat, 16, 1}},
              {"bfloat16", {kDLBfloat, 16, 1}},   {"float64", {kDLFloat, 64, 1}},
              {"complex64", {kDLComplex, 64, 1}}, {"complex128", {kDLComplex, 128, 1}},
              {"int64", {kDLInt, 64, 1}},         {"int32", {kDLInt, 32, 1}},
              {"int16", {kDLInt, 16, 1}},         {"int8", {kDLInt, 8, 1}},
              {"uint8", {kDLUInt, 8, 1}},         {"bool", {kDLBool, 8, 1}}};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

int core_dtype_of(PyObject *name, DLDataType *type)
{
    for (int i = 0; i < DTYPES; i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, dtypes[i].name) == 0) {
            *type = dtypes[i].type;
            return 0;
        }
    PyErr_Format(PyExc_TypeError,
                 "an input is %S: expected float32, float16, bfloat16, float64, bool, uint8 or an "
                 "integer of 8 to 64 bits",
                 name);
    return -1;
}

/* (shape, dtype) or (shape, dtype, strides) into view, extents and strides into dims. */
static int read_layout(PyObject *pair, DLTensor *view, int64_t dims[2 * MOST_DIMS])
{
    PyObject *shape, *dtype, *strides = NULL;
    if (!PyArg_ParseTuple(pair, "O!O|O!", &PyTuple_Type, &shape, &dtype, &PyTuple_Type, &strides))
        return -1;
    Py_ssize_t rank = PyTuple_Size(shape);
    if (strides && PyTuple_Size(strides) != rank) {
        PyErr_Format(PyExc_ValueError, "an input has %zd dims and %zd strides", rank,
                     PyTuple_Size(strides));
        return -1;
    }
    if (rank > MOST_DIMS) {
        PyErr_Format(PyExc_ValueError, "an input has %zd dims: expected 0 to 8", rank);
        return -1;
    }
    for (Py_ssize_t d = 0; d < rank; d++)
        dims[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    for (Py_ssize_t d = 0; strides && d < rank; d++)
        dims[MOST_DIMS + d] = PyLong_AsLongLong(PyTuple_GetItem(strides, d));
    *view = (DLTensor){.device = {.device_type = kDLCPU}, .ndim = (int32_t)rank, .shape = dims};
    view->strides = strides ? dims + MOST_DIMS : NULL;
    return PyErr_Occurred() ? -1 : core_dtype_of(dtype, &view->dtype);
}

/* NULL with an exception set, as of all that follow. */
static PyObject *tuple_of(const int64_t *sizes, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int32_t d = 0; tuple && d < count; d++) {
        PyObject *size = PyLong_FromLongLong(sizes[d]);
        if (!size || PyTuple_SetItem(tuple, d, size))
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *layout_of(const DLTensor *result)
{
    PyObject *shape = tuple_of(result->shape, result->ndim);
    const char *name = "";
    for (int i = 0; i < DTYPES; i++)
        if (memcmp(&dtypes[i].type, &result->dtype, sizeof result->dtype) == 0)
            name = dtypes[i].name;
    return shape ? Py_BuildValue("(Ns)", shape, name) : NULL;
}

static ogive_plan *plan_for(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count)
{
    ogive_plan *plan;
    ogive_error error;
    if (ogive_plan_create(self->formula, inputs, (size_t)count, NULL, 0, NULL, &plan, &error) ==
        OGIVE_OK)
        return plan;
    core_raise(&error, self->text);
    return NULL;
}

static PyObject *infer(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                       void *context)
{
    (void)context;
    ogive_plan *plan = plan_for(self, inputs, count);
    if (!plan)
        return NULL;
    Py_ssize_t results = (Py_ssize_t)ogive_formula_result_count(self->formula);
    PyObject *list = PyList_New(results);
    for (Py_ssize_t i = 0; list && i < results; i++) {
        PyObject *layout = layout_of(ogive_plan_result(plan, (size_t)i));
        if (!layout || PyList_SetItem(list, i, layout))
            Py_CLEAR(list);
    }
    ogive_plan_release(plan);
    return list;
}

typedef PyObject *describe_kernel(const ogive_plan *plan, size_t kernel);

/* A list of what describe() says of each kernel. */
static PyObject *describe_all(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                              describe_kernel *describe)
{
    ogive_plan *plan = plan_for(self, inputs, count);
    if (!plan)
        return NULL;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < ogive_plan_kernel_count(plan); i++) {
        PyObject *item = describe(plan, i);
        if (!item || PyList_Append(list, item))
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    ogive_plan_release(plan);
    return list;
}

/* (name, bytes, operations, slides) */
static PyObject *describe_work(const ogive_plan *plan, size_t kernel)
{
    ogive_kernel_info info;
    if (ogive_plan_kernel(plan, kernel, &info, NULL) != OGIVE_OK)
        return PyErr_NoMemory();
    return Py_BuildValue("(sddi)", info.name, (double)info.bytes_read + (double)info.bytes_written,
                         info.operations, (int)info.slides);
}

/* (order, lead, extents, exponentials, products, k): ogive_plan_sums() */
static PyObject *describe_sums(const ogive_plan *plan, size_t kernel)
{
    ogive_sums sums = {.size = sizeof sums};
    ogive_plan_sums(plan, kernel, &sums, NULL);
    PyObject *extents = tuple_of(sums.extent, sums.reduced);
    return extents ? Py_BuildValue("(iiNiiL)", (int)sums.order, (int)sums.lead, extents,
                                   (int)sums.exponentials, (int)sums.products, (long long)sums.k)
                   : NULL;
}

static PyObject *list_kernels(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                              void *context)
{
    (void)context;
    return describe_all(self, inputs, count, describe_work);
}

static PyObject *list_orders(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                             void *context)
{
    (void)context;
    return describe_all(self, inputs, count, describe_sums);
}

PyObject *core_ask(PyObject *object, PyObject *const *args, Py_ssize_t count, core_answer *answer,
                   void *context)
{
    core_formula *self = (core_formula *)object;
    size_t room = (size_t)(count + 1);
    DLTensor *views = PyMem_Calloc(room, sizeof *views);
    const DLTensor **pointers = PyMem_Calloc(room, sizeof *pointers);
    int64_t(*dims)[2 * MOST_DIMS] = PyMem_Calloc(room, sizeof *dims);
    PyObject *value = NULL;
    bool good = views && pointers && dims;
    if (!good)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < count; i++) {
        good = read_layout(args[i], &views[i], dims[i]) == 0;
        pointers[i] = &views[i];
    }
    if (good)
        value = answer(self, pointers, count, context);
    PyMem_Free(views);
    PyMem_Free(pointers);
    PyMem_Free(dims);
    return value;
}

PyObject *core_infer(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return core_ask(self, args, count, infer, NULL);
}

PyObject *core_kernels(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return core_ask(self, args, count, list_kernels, NULL);
}

PyObject *core_orders(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return core_ask(self, args, count, list_orders, NULL);
}

PyObject *core_estimate(PyObject *module, PyObject *args)
{
    (void)module;
    const char *machine;
    PyObject *dtype;
    int by, kind, across = 0, follows = 0, records = 0;
    long long batch = 0, m = 0, n = 0, k = 0;
    ogive_work work = {.size = sizeof work};
    long long channels = 0, taps = 0, span = 0, depth = 1, height = 1, width = 1;
    int form = 0, dims = 0, exact = 0, last = 0;
    double biased = 0;
    if (!PyArg_ParseTuple(args, "siiOddii|LLLLiiiLLLLLLiid", &machine, &by, &kind, &dtype,
                          &work.bytes, &work.operations, &follows, &records, &batch, &m, &n, &k,
                          &across, &form, &dims, &channels, &taps, &span, &depth, &height, &width,
                          &exact, &last, &biased) ||
        core_dtype_of(dtype, &work.dtype))
        return NULL;
    work.windows = (ogive_windows){.form = (ogive_windows_form)form,
                                   .dims = dims,
                                   .channels = channels,
                                   .taps = taps,
                                   .span = span,
                                   .places = {depth, height, width},
                                   .exact = exact,
                                   .channels_last = last,
                                   .biased = biased};
    work.kind = (ogive_work_kind)kind;
    work.batch = batch, work.m = m, work.n = n, work.k = k;
    work.across = across, work.follows = follows, work.records = records;
    return PyFloat_FromDouble(ogive_estimate(machine, (ogive_worker)by, &work));
}
