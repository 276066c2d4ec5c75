/* SPDX-License-Identifier: MIT
 *
 * core_torch.c - PyTorch's two doors. A call goes straight to the kernels when
 * nothing needs PyTorch's dispatcher, else to the operator of ogive.torch. What needs
 * it is asked of functions that ogive.torch registers here: a gradient to record, a
 * tensor subclass, torch.func's transforms, forward-mode derivatives, dispatch and
 * function modes, autocast, TorchScript's tracing, the lazy negative bit. A wrong
 * "straight" would be a wrong result, so whatever is not known to be plain takes the
 * operator.
 *
 * Five Python calls of PyTorch take 0.5 us, half of a torch.sigmoid; the C++ functions
 * behind them take 10 ns. Where ogive.torch finds those they are asked first.
 */
#include "core.h"

#include <string.h>

/* The functions of PyTorch that answer, in the order of registration. */
enum {
    GRAD_MODE,      /* -> bool */
    FUNCTORCH,      /* -> level or None */
    DISPATCH_MODES, /* -> int */
    FUNCTION_MODES, /* -> int */
    AUTOCAST,       /* -> bool */
    TRACING,        /* -> state or None */
    IS_NEGATIVE,    /* (tensor) -> bool */
    IS_INFERENCE,   /* (tensor) -> bool: has it no version? */
    INFERENCE_MODE, /* -> bool */
    WRITTEN,        /* (tensor): its version changes */
    LEND,           /* (tensor) -> DLPack capsule */
    STREAM,         /* (device index) -> int */
    OPERATOR,       /* (formula, inputs, out) -> result */
    GRADIENT,       /* (formula, *inputs) -> result, where only a gradient is wanted */
    EXPLAIN,        /* (formula, inputs) -> str: what a gradient keeps; all, of DTensors */
    DISPATCH,       /* torch.ops.ogive.run as PyTorch made it */
    MEET,           /* (type): a subclass of Tensor that has not been seen before */
    FUNCTIONS
};

static const char *const names[FUNCTIONS] = {
    [GRAD_MODE] = "grad_mode",
    [FUNCTORCH] = "functorch",
    [DISPATCH_MODES] = "dispatch_modes",
    [FUNCTION_MODES] = "function_modes",
    [AUTOCAST] = "autocast",
    [TRACING] = "tracing",
    [IS_NEGATIVE] = "is_negative",
    [IS_INFERENCE] = "is_inference",
    [INFERENCE_MODE] = "inference_mode",
    [WRITTEN] = "written",
    [LEND] = "lend",
    [STREAM] = "stream",
    [OPERATOR] = "operator",
    [GRADIENT] = "gradient",
    [EXPLAIN] = "explain",
    [DISPATCH] = "dispatch",
    [MEET] = "meet",
};
static PyObject *_Atomic functions[FUNCTIONS];
static PyObject *forward_ad; /* the dict of PyTorch's module of that name */
static PyObject *_Atomic requires_grad, *_Atomic current_level; /* names */
static atomic_bool loaded; /* the above and quick are there, for good */
static core_mutex lock;    /* of who registers first */

/* PyTorch's C++ functions, by the names that ogive.torch looked up; all or none. */
typedef struct {
    bool (*key_included)(uint16_t key); /* is this thread's dispatcher told to use key? */
    bool (*key_excluded)(uint16_t key);
    bool (*function_mode)(void);
    int64_t (*dispatch_modes)(void);
    uint16_t functorch, tracer, autocast_cpu, autocast_cuda; /* keys */
    bool known;
} quick_functions;
static quick_functions quick;

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

/* The integer called name of a dict, 0 if it has none. */
static unsigned long long read_number(PyObject *dict, const char *name)
{
    PyObject *number = PyDict_GetItemString(dict, name);
    return number ? PyLong_AsUnsignedLongLong(number) : 0;
}

static void read_pointer(PyObject *dict, const char *name, void *function)
{
    uintptr_t address = (uintptr_t)read_number(dict, name);
    memcpy(function, &address, sizeof address);
}

static int read_quick(PyObject *table, quick_functions *to)
{
    PyObject *dict = PyDict_GetItemString(table, "quick");
    memset(to, 0, sizeof *to);
    if (!dict)
        return 0;
    read_pointer(dict, "key_included", &to->key_included);
    read_pointer(dict, "key_excluded", &to->key_excluded);
    read_pointer(dict, "function_mode", &to->function_mode);
    read_pointer(dict, "dispatch_modes", &to->dispatch_modes);
    to->functorch = (uint16_t)read_number(dict, "functorch");
    to->tracer = (uint16_t)read_number(dict, "tracer");
    to->autocast_cpu = (uint16_t)read_number(dict, "autocast_cpu");
    to->autocast_cuda = (uint16_t)read_number(dict, "autocast_cuda");
    to->known = to->key_included && to->key_excluded && to->function_mode && to->dispatch_modes &&
                to->functorch && to->tracer && to->autocast_cpu && to->autocast_cuda;
    return PyErr_Occurred() ? -1 : 0;
}

/* Sets *name to the one string of that text, for good: two threads set the same. */
static int intern(PyObject *_Atomic *name, const char *text)
{
    if (!*name)
        *name = PyUnicode_InternFromString(text);
    return *name ? 0 : -1;
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
        functions[i] = function; /* one before it lives on: another thread may be calling it */
    }
    if (loaded)
        Py_RETURN_NONE;
    PyObject *dict = PyDict_GetItemString(table, "forward_ad");
    if (intern(&requires_grad, "requires_grad") || intern(&current_level, "_current_level"))
        return NULL;
    if (!dict || !PyDict_Check(dict) || !PyDict_GetItemWithError(dict, current_level)) {
        PyErr_SetString(PyExc_KeyError, "forward_ad");
        return NULL;
    }
    quick_functions found;
    if (read_quick(table, &found))
        return NULL;
    CORE_LOCK(&lock);
    if (!loaded) {
        Py_INCREF(dict);
        forward_ad = dict;
        quick = found;
        loaded = true; /* who sees it sees the above */
    }
    CORE_UNLOCK(&lock);
    Py_RETURN_NONE;
}

/* 1 if the function's answer is neither False, None nor 0. */
static int ask(int which, PyObject *argument)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(functions[which], argument, NULL);
    if (!answer)
        return -1;
    int truth = answer == Py_False || answer == Py_None ? 0
                : which == FUNCTORCH                    ? 1 /* level 0 is one */
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
    if (kind->family == FAMILY_TORCH_SUBCLASS || kind->family == FAMILY_SYMBOL)
        return 1;
    if (kind->family != FAMILY_TORCH)
        return 0;
    int answer = needs_grad(tensor);
    if (answer < 0)
        return -1;
    *differentiable |= answer;
    return ask(IS_NEGATIVE, tensor);
}

/* What this thread's state needs. Levels of forward-mode derivatives are counted for
 * all threads, from -1. */
static int thread_needs_operator(void)
{
    PyObject *level = core_dict_item(forward_ad, current_level);
    bool none = level && PyLong_AsLong(level) == -1;
    Py_XDECREF(level);
    if (PyErr_Occurred() || !none)
        return PyErr_Occurred() ? -1 : 1;
    if (quick.known && !quick.key_included(quick.functorch) && !quick.key_included(quick.tracer) &&
        quick.key_excluded(quick.autocast_cpu) && quick.key_excluded(quick.autocast_cuda) &&
        !quick.function_mode() && quick.dispatch_modes() == 0)
        return 0;
    int answer = 0;
    for (int which = FUNCTORCH; which <= TRACING && !answer; which++)
        answer = ask(which, NULL);
    return answer;
}

int core_torch_needs_operator(const core_operand *operands, Py_ssize_t count, PyObject *out)
{
    bool differentiable = false;
    int answer = 0;
    for (Py_ssize_t i = 0; i < count && !answer; i++)
        answer = tensor_needs_operator(operands[i].object, &operands[i].kind, &differentiable);
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
    if (!answer)
        answer = thread_needs_operator();
    if (answer || !differentiable)
        return answer;
    answer = ask(GRAD_MODE, NULL);
    return answer <= 0 ? answer : out ? CORE_OPERATOR : CORE_GRADIENT;
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

PyObject *core_torch_gradient(core_formula *self, PyObject *const *objects)
{
    Py_ssize_t count = PyTuple_Size(self->inputs);
    PyObject *arguments = PyTuple_New(count + 1), *value = NULL;
    for (Py_ssize_t i = 0; arguments && i <= count; i++) {
        PyObject *object = i ? objects[i - 1] : (PyObject *)self;
        Py_INCREF(object);
        PyTuple_SetItem(arguments, i, object);
    }
    if (arguments)
        value = PyObject_CallObject(functions[GRADIENT], arguments);
    Py_XDECREF(arguments);
    return value;
}

PyObject *core_torch_explain(core_formula *self, PyObject *const *objects)
{
    Py_ssize_t count = PyTuple_Size(self->inputs);
    PyObject *inputs = PyTuple_New(count), *text = NULL;
    for (Py_ssize_t i = 0; inputs && i < count; i++) {
        Py_INCREF(objects[i]);
        PyTuple_SetItem(inputs, i, objects[i]);
    }
    if (inputs)
        text = PyObject_CallFunctionObjArgs(functions[EXPLAIN], (PyObject *)self, inputs, NULL);
    Py_XDECREF(inputs);
    return text;
}

PyObject *core_torch_dispatch(PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    PyObject *arguments = PyTuple_New(count), *named = PyDict_New(), *value = NULL;
    bool good = arguments && named;
    for (Py_ssize_t i = 0; good && i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(arguments, i, args[i]);
    }
    for (Py_ssize_t i = 0; good && keywords && i < PyTuple_Size(keywords); i++)
        good = PyDict_SetItem(named, PyTuple_GetItem(keywords, i), args[count + i]) == 0;
    if (good)
        value = PyObject_Call(functions[DISPATCH], arguments, named);
    Py_XDECREF(arguments);
    Py_XDECREF(named);
    return value;
}

PyObject *core_torch_lend(PyObject *tensor)
{
    return PyObject_CallFunctionObjArgs(functions[LEND], tensor, NULL);
}

int core_torch_stream(int32_t device, void **stream)
{
    PyObject *answer = PyObject_CallFunction(functions[STREAM], "i", (int)device);
    *stream = answer ? PyLong_AsVoidPtr(answer) : NULL;
    Py_XDECREF(answer);
    return PyErr_Occurred() ? -1 : 0;
}

int core_torch_meet(PyObject *type)
{
    PyObject *done = PyObject_CallFunctionObjArgs(functions[MEET], type, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

int core_torch_written(PyObject *tensor)
{
    int inference = ask(IS_INFERENCE, tensor);
    int allowed = inference > 0 ? ask(INFERENCE_MODE, NULL) : 1;
    if (inference < 0 || allowed < 0)
        return -1;
    if (!allowed) { /* PyTorch's own rule, and error */
        PyErr_SetString(PyExc_RuntimeError, "out is an inference tensor: outside of "
                                            "torch.inference_mode() it must not be written to");
        return -1;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(functions[WRITTEN], tensor, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
