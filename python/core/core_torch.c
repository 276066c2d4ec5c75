/* SPDX-License-Identifier: MIT
 *
 * core_torch.c - PyTorch's two doors. A call goes straight to the kernels when
 * nothing needs PyTorch's dispatcher, else to the operator of ogive.torch. What needs
 * it is asked of functions that ogive.torch registers here: a gradient to record, a
 * tensor subclass, torch.func's transforms, dispatch and function modes, autocast,
 * TorchScript's tracing, the lazy negative bit. A wrong "straight" would be a wrong
 * result, so whatever is not known to be plain takes the operator.
 */
#include "core.h"

/* The functions of PyTorch that answer, in the order of registration. */
enum {
    GRAD_MODE,      /* -> bool */
    FUNCTORCH,      /* -> level or None */
    DISPATCH_MODES, /* -> int */
    FUNCTION_MODES, /* -> int */
    AUTOCAST,       /* -> bool */
    TRACING,        /* -> state or None */
    IS_NEGATIVE,    /* (tensor) -> bool */
    WRITTEN,        /* (tensor): its version changes */
    OPERATOR,       /* (formula, inputs, out) -> result */
    FUNCTIONS
};

static const char *const names[FUNCTIONS] = {"grad_mode", "functorch", "dispatch_modes",
                                             "function_modes", "autocast", "tracing",
                                             "is_negative", "written", "operator"};
static PyObject *functions[FUNCTIONS];
static PyObject *requires_grad;
static bool loaded;

int core_torch_load(void)
{
    if (loaded)
        return 0;
    PyObject *module = PyImport_ImportModule("ogive.torch");
    Py_XDECREF(module);
    if (module && !loaded)
        PyErr_SetString(PyExc_ImportError, "ogive.torch is only partly imported");
    return module && loaded ? 0 : -1;
}

PyObject *core_torch_register(PyObject *module, PyObject *table)
{
    (void)module;
    for (int i = 0; i < FUNCTIONS; i++) {
        PyObject *function = PyDict_GetItemString(table, names[i]);
        if (!function) {
            PyErr_SetString(PyExc_KeyError, names[i]);
            return NULL;
        }
        Py_INCREF(function);
        Py_XDECREF(functions[i]);
        functions[i] = function;
    }
    if (!requires_grad && !(requires_grad = PyUnicode_InternFromString("requires_grad")))
        return NULL;
    loaded = true;
    Py_RETURN_NONE;
}

/* 1 if the function's answer is neither False, None nor 0. */
static int ask(int which, PyObject *argument)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(functions[which], argument, NULL);
    if (!answer)
        return -1;
    int truth = answer == Py_False || answer == Py_None ? 0
                : which == FUNCTORCH                  ? 1 /* level 0 is one */
                                                      : PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return truth;
}

static int needs_grad(PyObject *tensor)
{
    PyObject *answer = PyObject_GetAttr(tensor, requires_grad);
    Py_XDECREF(answer);
    return answer ? answer == Py_True : -1;
}

/* What a single tensor needs; *differentiable is set if it requires grad. */
static int tensor_needs_operator(PyObject *tensor, const core_kind *kind, bool *differentiable)
{
    if (kind->family == FAMILY_TORCH_SUBCLASS)
        return 1;
    if (kind->family != FAMILY_TORCH)
        return 0;
    int answer = needs_grad(tensor);
    if (answer < 0)
        return -1;
    if (answer && !kind->api)
        return 1; /* __dlpack__ refuses it; the operator gets it detached */
    *differentiable |= answer;
    return ask(IS_NEGATIVE, tensor);
}

int core_torch_needs_operator(const core_operand *operands, Py_ssize_t count, PyObject *out)
{
    bool differentiable = false;
    int answer = 0;
    for (Py_ssize_t i = 0; i < count && !answer; i++)
        answer =
            tensor_needs_operator(operands[i].object, &operands[i].kind, &differentiable);
    bool several = out && (PyTuple_Check(out) || PyList_Check(out));
    Py_ssize_t out_count = !out ? 0 : several ? PySequence_Size(out) : 1;
    for (Py_ssize_t i = 0; i < out_count && !answer; i++) {
        core_kind kind;
        PyObject *item = several ? PySequence_GetItem(out, i) : (Py_INCREF(out), out);
        answer = !item || core_kind_of(item, &kind)
                     ? -1
                     : tensor_needs_operator(item, &kind, &differentiable);
        Py_XDECREF(item);
    }
    for (int which = FUNCTORCH; which <= TRACING && !answer; which++)
        answer = ask(which, NULL);
    return answer || !differentiable ? answer : ask(GRAD_MODE, NULL);
}

PyObject *core_torch_operator(core_formula *self, PyObject *const *objects, PyObject *out)
{
    Py_ssize_t count = PyTuple_Size(self->inputs);
    PyObject *inputs = PyList_New(count), *value = NULL;
    for (Py_ssize_t i = 0; inputs && i < count; i++) {
        Py_INCREF(objects[i]);
        PyList_SetItem(inputs, i, objects[i]);
    }
    if (inputs)
        value = PyObject_CallFunctionObjArgs(functions[OPERATOR], (PyObject *)self, inputs,
                                             out ? out : Py_None, NULL);
    Py_XDECREF(inputs);
    return value;
}

int core_torch_written(PyObject *tensor)
{
    PyObject *done = PyObject_CallFunctionObjArgs(functions[WRITTEN], tensor, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
