/* SPDX-License-Identifier: MIT
 *
 * core_errors.c - the library's errors as Python's exceptions.
 */
#include <string.h>

#include "core.h"

PyObject *core_formula_error, *core_device_error;

static PyObject *exception_of(ogive_status status)
{
    switch (status) {
    case OGIVE_FORMULA:
        return core_formula_error;
    case OGIVE_DTYPE:
        return PyExc_TypeError;
    case OGIVE_MEMORY:
        return PyExc_MemoryError;
    case OGIVE_DEVICE:
        return core_device_error;
    case OGIVE_UNSUPPORTED:
        return PyExc_NotImplementedError;
    default:
        return PyExc_ValueError;
    }
}

/* Characters (not bytes) in the UTF-8 text[0, bytes). */
static Py_ssize_t count_characters(const char *text, size_t bytes)
{
    Py_ssize_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* "message\n  the line\n      ^", a new reference. */
static PyObject *describe(const ogive_error *error, const char *text, size_t length)
{
    if (error->offset < 0 || (size_t)error->offset > length)
        return PyUnicode_FromString(error->message);
    size_t at = (size_t)error->offset, begin = at, end = at;
    while (begin > 0 && text[begin - 1] != '\n')
        begin--;
    while (end < length && text[end] != '\n')
        end++;
    PyObject *line = PyUnicode_DecodeUTF8(text + begin, (Py_ssize_t)(end - begin), "replace");
    PyObject *space = PyUnicode_FromString(" "), *before = NULL, *all = NULL;
    if (space)
        before = PySequence_Repeat(space, count_characters(text + begin, at - begin));
    if (line && before)
        all = PyUnicode_FromFormat("%s\n  %U\n  %U^", error->message, line, before);
    Py_XDECREF(line);
    Py_XDECREF(space);
    Py_XDECREF(before);
    return all;
}

/* Python's own offsets count characters, so that text[e.offset] is the place. */
static void raise_formula_error(PyObject *message, Py_ssize_t offset)
{
    PyObject *value = PyObject_CallFunctionObjArgs(core_formula_error, message, NULL);
    PyObject *number = offset < 0 ? (Py_INCREF(Py_None), Py_None) : PyLong_FromSsize_t(offset);
    if (value && number && PyObject_SetAttrString(value, "offset", number) == 0)
        PyErr_SetObject(core_formula_error, value);
    Py_XDECREF(value);
    Py_XDECREF(number);
}

void core_raise(const ogive_error *error, PyObject *text)
{
    Py_ssize_t length = 0;
    const char *bytes = text ? PyUnicode_AsUTF8AndSize(text, &length) : "";
    if (!bytes)
        return;
    PyObject *message = describe(error, bytes, (size_t)length);
    if (!message)
        return;
    PyObject *exception = exception_of(error->status);
    if (exception != core_formula_error)
        PyErr_SetObject(exception, message);
    else
        raise_formula_error(message, error->offset < 0 || error->offset > length
                                         ? -1
                                         : count_characters(bytes, (size_t)error->offset));
    Py_DECREF(message);
}
