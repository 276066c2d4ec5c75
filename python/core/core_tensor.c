/* SPDX-License-Identifier: MIT
 *
 * core_tensor.c - tensors on their way in and out: borrowed through the framework's
 * table of C functions where its type has one, else through __dlpack__; results made
 * by the framework's own allocator.
 */
#include <string.h>

#include "core.h"

enum { MOST_DIMS = 64 }; /* the most that frameworks have; the library takes 8 */

void *core_data(const DLTensor *view)
{
    return view->data ? (char *)view->data + view->byte_offset : NULL;
}

static bool on_cpu(const DLTensor *view)
{
    return (int)view->device.device_type != kDLCUDA;
}

/* ---- in -------------------------------------------------------------------------- */

/* Calls object.__dlpack__(**arguments); steals arguments. */
static PyObject *call_dlpack(PyObject *object, PyObject *arguments)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *none = PyTuple_New(0), *capsule = NULL;
    if (method && none && arguments)
        capsule = PyObject_Call(method, none, arguments);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(arguments);
    return capsule;
}

/* Asks for a versioned capsule first, so that read-only arrays can be lent. A CUDA
 * tensor is asked to be ready on the legacy default stream, where we then work. */
static PyObject *export_capsule(PyObject *object)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *first = device ? PySequence_GetItem(device, 0) : NULL;
    long type = first ? PyLong_AsLong(first) : -1;
    Py_XDECREF(device);
    Py_XDECREF(first);
    if (PyErr_Occurred())
        return NULL;
    const char *stream = type == kDLCUDA ? "stream" : NULL;
    PyObject *capsule =
        call_dlpack(object, Py_BuildValue(stream ? "{s(ii)si}" : "{s(ii)}", "max_version",
                                          DLPACK_MAJOR, DLPACK_MINOR, stream, 1));
    if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError))
        return capsule;
    PyErr_Clear(); /* NumPy before 2.1 knows no max_version */
    return call_dlpack(object, Py_BuildValue(stream ? "{si}" : "{}", stream, 1));
}

/* Takes the tensor out of a capsule: nobody else may at the same time. */
static int take_tensor(core_operand *operand, PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        operand->versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        if (operand->versioned->version.major != DLPACK_MAJOR) {
            PyErr_Format(PyExc_BufferError, "DLPack %u: expected version 1",
                         (unsigned)operand->versioned->version.major);
            return -1;
        }
        operand->view = operand->versioned->dl_tensor;
        operand->read_only = operand->versioned->flags & DLPACK_READ_ONLY;
        return 0;
    }
    if (!PyCapsule_IsValid(capsule, "dltensor")) {
        PyErr_SetString(PyExc_BufferError, "__dlpack__ gave no DLPack capsule");
        return -1;
    }
    operand->legacy = PyCapsule_GetPointer(capsule, "dltensor");
    PyCapsule_SetName(capsule, "used_dltensor");
    operand->view = operand->legacy->dl_tensor;
    return 0;
}

static int take_capsule(core_operand *operand, PyObject *capsule)
{
    int status;
    CORE_BEGIN_ALONE(capsule);
    status = take_tensor(operand, capsule);
    CORE_END_ALONE();
    return status;
}

static int borrow_view(core_operand *operand)
{
    const DLPackExchangeAPI *api = operand->kind.api;
    if (api && api->dltensor_from_py_object_no_sync)
        return api->dltensor_from_py_object_no_sync(operand->object, &operand->view);
    if (api) {
        if (api->managed_tensor_from_py_object_no_sync(operand->object, &operand->versioned))
            return -1;
        operand->view = operand->versioned->dl_tensor;
        operand->read_only = operand->versioned->flags & DLPACK_READ_ONLY;
        return 0;
    }
    PyObject *capsule = operand->kind.family == FAMILY_TORCH ? core_torch_lend(operand->object)
                                                             : export_capsule(operand->object);
    int status = capsule ? take_capsule(operand, capsule) : -1;
    Py_XDECREF(capsule);
    return status;
}

static bool is_empty(const DLTensor *view)
{
    for (int32_t d = 0; d < view->ndim; d++)
        if (view->shape[d] == 0)
            return true;
    return false;
}

/* The first line of an exception's text, a new reference; NULL if it has none. */
static PyObject *first_line(PyObject *exception)
{
    PyObject *text = exception ? PyObject_Str(exception) : NULL;
    PyObject *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *line = lines ? PySequence_GetItem(lines, 0) : NULL;
    Py_XDECREF(text);
    Py_XDECREF(lines);
    return line;
}

/* Says which tensor was refused: a framework's own words name none, and PyTorch's go on with
 * the stack of its C++ functions. */
static void name_refused(const core_operand *operand, const char *what, const char *name)
{
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_RuntimeError))
        return;
    PyObject *type, *exception, *trace;
    PyErr_Fetch(&type, &exception, &trace);
    PyObject *line = first_line(exception);
    PyObject *dtype = PyObject_GetAttrString(operand->object, "dtype");
    PyObject *device = operand->kind.family == FAMILY_NUMPY /* no such thing before 2.0 */
                           ? PyUnicode_FromString("cpu")
                           : PyObject_GetAttrString(operand->object, "device");
    PyErr_Restore(type, exception, trace);
    if (line && dtype && device)
        PyErr_Format(PyExc_TypeError, "%s '%s', a tensor of %S on %S, cannot be lent: %U", what,
                     name, dtype, device, line);
    Py_XDECREF(line);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
}

int core_borrow(core_operand *operand, const char *what, const char *name)
{
    if (borrow_view(operand)) {
        name_refused(operand, what, name);
        return -1;
    }
    DLTensor *view = &operand->view;
    if (view->ndim < 0 || view->ndim > MOST_DIMS || (view->ndim && !view->shape)) {
        PyErr_Format(PyExc_ValueError, "%s '%s' has %d dims%s: expected 0 to 8, and a shape", what,
                     name, (int)view->ndim, view->shape ? "" : " and no shape");
        return -1;
    }
    if (core_data(view) || is_empty(view))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s '%s' has no memory", what, name);
    return -1;
}

int core_read_number(core_operand *operand)
{
    PyObject *real = PyNumber_Float(operand->object);
    operand->value = real ? PyFloat_AsDouble(real) : -1;
    Py_XDECREF(real);
    return PyErr_Occurred() ? -1 : 0;
}

void core_borrow_number(core_operand *operand, bool wide)
{
    operand->view = (DLTensor){.device = {.device_type = kDLCPU},
                               .dtype = {kDLFloat, wide ? 64 : 32, 1},
                               .data = &operand->number};
    if (wide)
        operand->number.f64 = operand->value;
    else
        operand->number.f32 = (float)operand->value;
}

void core_release(core_operand *operands, Py_ssize_t count)
{
    PyObject *type, *exception, *trace;
    PyErr_Fetch(&type, &exception, &trace); /* deleters may run Python code */
    for (Py_ssize_t i = 0; i < count; i++) {
        DLManagedTensorVersioned *versioned = operands[i].versioned;
        DLManagedTensor *legacy = operands[i].legacy;
        if (versioned && versioned->deleter)
            versioned->deleter(versioned);
        if (legacy && legacy->deleter)
            legacy->deleter(legacy);
        operands[i].versioned = NULL;
        operands[i].legacy = NULL;
    }
    PyErr_Restore(type, exception, trace);
}

/* ---- out ------------------------------------------------------------------------- */

static void set_error(void *context, const char *kind, const char *message)
{
    (void)context;
    PyErr_SetString(strcmp(kind, "MemoryError") == 0 ? PyExc_MemoryError : PyExc_RuntimeError,
                    message);
}

static const char *dtype_name(DLDataType type)
{
    if (type.code == kDLBfloat)
        return "bfloat16";
    if (type.code == kDLBool)
        return "bool";
    return type.bits == 64 ? "float64" : type.bits == 32 ? "float32" : "float16";
}

/* By the framework's function of that name, from Python: ogive._arrays.empty(). */
static int allocate_by_name(const DLTensor *prototype, const core_operand *model,
                            core_operand *result)
{
    PyObject *module = PyImport_ImportModule("ogive._arrays");
    PyObject *shape = PyTuple_New(prototype->ndim);
    bool good = module && shape;
    for (int32_t d = 0; good && d < prototype->ndim; d++) {
        PyObject *extent = PyLong_FromLongLong(prototype->shape[d]);
        good = extent && PyTuple_SetItem(shape, d, extent) == 0;
    }
    if (good)
        result->object = PyObject_CallMethod(module, "empty", "OOs", model->object, shape,
                                             dtype_name(prototype->dtype));
    Py_XDECREF(module);
    Py_XDECREF(shape);
    if (!result->object)
        return -1;
    if (core_borrow(result, "output", "out") == 0 && !result->read_only)
        return 0;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "new arrays of this kind cannot be written to");
    Py_DECREF(result->object);
    result->object = NULL;
    return -1;
}

int core_allocate(const DLTensor *prototype, const core_operand *model, core_operand *result)
{
    *result = (core_operand){.kind = model->kind};
    const DLPackExchangeAPI *api = model->kind.api;
    if (!api)
        return allocate_by_name(prototype, model, result);
    DLTensor wanted = *prototype;
    wanted.device = model->view.device;
    if (api->managed_tensor_allocator(&wanted, &result->versioned, NULL, set_error)) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        result->versioned = NULL;
        return -1;
    }
    result->view = result->versioned->dl_tensor;
    return 0;
}

PyObject *core_result_object(core_operand *result)
{
    void *object = result->object;
    if (object) { /* allocated by name */
        result->object = NULL;
        core_release(result, 1);
        return object;
    }
    DLManagedTensorVersioned *tensor = result->versioned;
    result->versioned = NULL; /* taken over, even in failure */
    if (result->kind.api->managed_tensor_to_py_object_no_sync(tensor, &object))
        return NULL;
    return object;
}

int core_stream(const core_operand *model, void **stream)
{
    *stream = NULL;
    DLDevice device = model->view.device;
    if (on_cpu(&model->view))
        return 0;
    if (model->kind.api)
        return model->kind.api->current_work_stream(device.device_type, device.device_id, stream);
    if (model->kind.family == FAMILY_TORCH)
        return core_torch_stream(device.device_id, stream);
    return 0; /* __dlpack__ made the data ready on the legacy default stream, NULL */
}
