/* SPDX-License-Identifier: MIT
 *
 * core_kinds.c - what a type of argument is, found out once per type: a number, a
 * tensor of PyTorch or NumPy, anything that speaks DLPack. Imports none of them: who
 * passes such a tensor has done so.
 */
#include "core.h"

enum { KINDS = 64 }; /* types remembered; any further ones are looked at every time */

static core_kind kinds[KINDS];
static atomic_int kind_count; /* those below it never change */
static core_mutex lock;       /* of who adds one */

/* 1 if type is a subclass of module's class name and the module has been imported. */
static int is_from(PyTypeObject *type, const char *module_name, const char *name)
{
    PyObject *key = PyUnicode_FromString(module_name);
    PyObject *module = key ? PyImport_GetModule(key) : NULL;
    Py_XDECREF(key);
    if (!module)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *class = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (!class) {
        PyErr_Clear(); /* a module of that name that is something else */
        return 0;
    }
    int answer = PyType_Check(class) && PyType_IsSubtype(type, (PyTypeObject *)class);
    Py_DECREF(class);
    return answer;
}

static bool is_named(PyTypeObject *type, const char *name)
{
    PyObject *own = PyObject_GetAttrString((PyObject *)type, "__name__");
    bool answer = own && PyUnicode_Check(own) && PyUnicode_CompareWithASCIIString(own, name) == 0;
    Py_XDECREF(own);
    PyErr_Clear();
    return answer;
}

static bool has_attribute(PyTypeObject *type, const char *name)
{
    PyObject *value = PyObject_GetAttrString((PyObject *)type, name);
    PyErr_Clear();
    Py_XDECREF(value);
    return value != NULL;
}

/* The newest table of DLPack's major version 1 on the type, or NULL. */
static const DLPackExchangeAPI *find_table(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const DLPackExchangeAPIHeader *header = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule); /* the table lives as long as the process */
    while (header && header->version.major != DLPACK_MAJOR)
        header = header->prev_api;
    return (const DLPackExchangeAPI *)header;
}

static int find_family(PyTypeObject *type, PyObject *object, core_family *family)
{
    int found = is_from(type, "torch", "Tensor");
    if (found > 0) {
        bool plain = is_named(type, "Tensor") || is_named(type, "Parameter");
        PyObject *module = PyObject_GetAttrString((PyObject *)type, "__module__");
        plain = plain && module && PyUnicode_Check(module) &&
                (PyUnicode_CompareWithASCIIString(module, "torch") == 0 ||
                 PyUnicode_CompareWithASCIIString(module, "torch.nn.parameter") == 0);
        PyErr_Clear();
        Py_XDECREF(module);
        *family = plain ? FAMILY_TORCH : FAMILY_TORCH_SUBCLASS;
        return core_torch_load() || (!plain && core_torch_meet((PyObject *)type)) ? -1 : 0;
    }
    if (found == 0 && (found = is_from(type, "numpy", "ndarray")) > 0) {
        /* Other subclasses carry a meaning (a mask, a unit) that would be lost. */
        *family =
            is_named(type, "ndarray") || is_named(type, "memmap") ? FAMILY_NUMPY : FAMILY_NONE;
        return 0;
    }
    if (found < 0)
        return -1;
    if (PyFloat_Check(object) || PyLong_Check(object)) {
        *family = FAMILY_NUMBER;
        return 0;
    }
    if (has_attribute(type, "__dlpack__")) {
        *family = FAMILY_DLPACK;
        return 0;
    }
    static const struct {
        const char *module, *name;
        core_family family;
    } numbers[] = {{"numpy", "floating", FAMILY_NUMBER},
                   {"numpy", "integer", FAMILY_NUMBER},
                   {"torch", "SymFloat", FAMILY_SYMBOL},
                   {"torch", "SymInt", FAMILY_SYMBOL}};
    *family = FAMILY_NONE;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && found == 0; i++)
        if ((found = is_from(type, numbers[i].module, numbers[i].name)) > 0)
            *family = numbers[i].family;
    return found < 0 ? -1 : 0;
}

/* Two threads may do so for one type, which costs a place. */
static void remember(const core_kind *kind)
{
    CORE_LOCK(&lock);
    int count = atomic_load_explicit(&kind_count, memory_order_relaxed);
    if (count < KINDS) {
        Py_INCREF(kind->type); /* its address must not be used again by another type */
        kinds[count] = *kind;
        atomic_store_explicit(&kind_count, count + 1, memory_order_release);
    }
    CORE_UNLOCK(&lock);
}

int core_kind_of(PyObject *object, core_kind *kind)
{
    PyTypeObject *type = Py_TYPE(object);
    int count = atomic_load_explicit(&kind_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (kinds[i].type == type) {
            *kind = kinds[i];
            return 0;
        }
    *kind = (core_kind){.type = type};
    if (find_family(type, object, &kind->family) < 0)
        return -1;
    if (kind->family == FAMILY_TORCH || kind->family == FAMILY_DLPACK)
        kind->api = find_table(type);
    remember(kind);
    return 0;
}

bool core_is_torch(const core_kind *kind)
{
    return kind->family == FAMILY_TORCH || kind->family == FAMILY_TORCH_SUBCLASS;
}

bool core_is_number(const core_kind *kind)
{
    return kind->family == FAMILY_NUMBER || kind->family == FAMILY_SYMBOL;
}

bool core_is_same(const core_kind *a, const core_kind *b)
{
    if (core_is_torch(a) || core_is_torch(b))
        return core_is_torch(a) && core_is_torch(b);
    return a->family == b->family && (a->family != FAMILY_DLPACK || a->type == b->type);
}
