/* SPDX-License-Identifier: MIT
 *
 * core.h - what the files of ogive._core share: the Formula object and the way
 * of a call: bind arguments, choose a door, borrow tensors, find a plan, run it,
 * hand the results back. Knows ogive.h, DLPack and Python's limited API (3.10);
 * PyTorch only through the objects that ogive.torch registers.
 *
 * The GIL guards everything here that is not immutable (kinds, plans, doors); it
 * is released only while a plan is made or runs. A free-threaded Python has no GIL (and
 * no limited API): there core_mutex does, and what others may change is not borrowed.
 */
#ifndef OGIVE_CORE_H
#define OGIVE_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "dlpack_abi.h"
#include "ogive.h"

/* ---- threads ------------------------------------------------------------------------ */

#ifdef Py_GIL_DISABLED
typedef PyMutex core_mutex;
#define CORE_LOCK(mutex) PyMutex_Lock(mutex)
#define CORE_UNLOCK(mutex) PyMutex_Unlock(mutex)
#define CORE_BEGIN_ALONE(object) Py_BEGIN_CRITICAL_SECTION(object)
#define CORE_END_ALONE() Py_END_CRITICAL_SECTION()
#else /* where the GIL is held */
typedef char core_mutex;
#define CORE_LOCK(mutex) ((void)(mutex))
#define CORE_UNLOCK(mutex) ((void)(mutex))
#define CORE_BEGIN_ALONE(object) {
#define CORE_END_ALONE() }
#endif

/* Item i of a list that others may change, a new reference; NULL with an exception. */
static inline PyObject *core_list_item(PyObject *list, Py_ssize_t i)
{
#ifdef Py_GIL_DISABLED
    return PyList_GetItemRef(list, i);
#else
    PyObject *item = PyList_GetItem(list, i);
    Py_XINCREF(item);
    return item;
#endif
}

/* What a dict that others may change has for key, a new reference; NULL if it has nothing, or with
 * an exception. */
static inline PyObject *core_dict_item(PyObject *dict, PyObject *key)
{
    PyObject *item = NULL;
#ifdef Py_GIL_DISABLED
    PyDict_GetItemRef(dict, key, &item);
#else
    item = PyDict_GetItemWithError(dict, key);
    Py_XINCREF(item);
#endif
    return item;
}

/* ---- kinds of arguments (core_kinds.c) ------------------------------------- */

typedef enum {
    FAMILY_NUMBER,         /* int, float, NumPy's scalars */
    FAMILY_SYMBOL,         /* torch.SymInt, torch.SymFloat: a number while PyTorch traces */
    FAMILY_TORCH,          /* exactly torch.Tensor or torch.nn.Parameter */
    FAMILY_TORCH_SUBCLASS, /* any other torch.Tensor: only the dispatcher knows it */
    FAMILY_NUMPY,          /* numpy.ndarray, numpy.memmap */
    FAMILY_DLPACK,         /* anything else that has __dlpack__ */
    FAMILY_NONE            /* not a tensor */
} core_family;

typedef struct {
    PyTypeObject *type;
    core_family family;
    const DLPackExchangeAPI *api; /* or NULL: __dlpack__ is called */
} core_kind;

/* The kind of object's type. -1 with an exception. */
int core_kind_of(PyObject *object, core_kind *kind);
bool core_is_torch(const core_kind *kind);
bool core_is_number(const core_kind *kind);
/* Whether tensors of both may meet in one call. */
bool core_is_same(const core_kind *a, const core_kind *b);

/* ---- tensors (core_tensor.c) ------------------------------------------------ */

typedef struct {
    PyObject *object; /* borrowed */
    core_kind kind;
    DLTensor view;
    DLManagedTensorVersioned *versioned; /* owned, or NULL */
    DLManagedTensor *legacy;             /* owned, or NULL */
    bool read_only;
    union {
        float f32;
        double f64;
    } number;     /* what view points at, if the object is a number */
    double value; /* of a number: core_read_number() */
} core_operand;

/* Fills view from object, an input or output (what) called name. -1 with an exception. Ends
 * with core_release(). */
int core_borrow(core_operand *operand, const char *what, const char *name);
/* The value of a number; runs its __float__. -1 with an exception. */
int core_read_number(core_operand *operand);
/* Makes a 0-d tensor of that value, float64 if wide, else float32. */
void core_borrow_number(core_operand *operand, bool wide);
/* Keeps an exception that is pending. */
void core_release(core_operand *operands, Py_ssize_t count);

/* A new tensor of prototype's shape and dtype, of model's kind and device: view is
 * filled; core_result_object() turns it into the object, a new reference. */
int core_allocate(const DLTensor *prototype, const core_operand *model, core_operand *result);
PyObject *core_result_object(core_operand *result);
/* The first element. */
void *core_data(const DLTensor *view);
/* model's framework's current stream; NULL on the CPU. */
int core_stream(const core_operand *model, void **stream);

/* ---- plans (core_plans.c) ------------------------------------------------------ */

enum { CORE_PLANS = 32 }; /* of a formula: layouts that a model gives it in turn */

typedef struct {
    int64_t *words; /* the tensors' layouts */
    Py_ssize_t count;
    ogive_plan *plan;
    bool is_long; /* worth releasing the GIL for */
    void *spare;  /* an idle workspace, or NULL */
} core_plan;

typedef struct {
    PyObject_HEAD void *vectorcall; /* at the offset that __vectorcalloffset__ names */
    ogive_formula *formula;
    PyObject *text;      /* str */
    PyObject *steps;     /* str: what was made of text, as core_formula_derive() reads it, by ; */
    PyObject *precision; /* str */
    PyObject *inputs;    /* tuple of str */
    PyObject *weak_references;
    atomic_bool has_dots; /* the user's own text, with a dotted name that may be meant otherwise */
    core_mutex lock;      /* of what follows */
    PyObject *traceable;  /* Python function that Dynamo traces instead, or NULL */
    core_plan plans[CORE_PLANS];
} core_formula;

/* Finds or makes the plan for these tensors; outputs NULL: new, contiguous results.
 * The caller's reference is ended by core_plan_release(). */
int core_plan_find(core_formula *self, core_operand *inputs, Py_ssize_t input_count,
                   core_operand *outputs, Py_ssize_t output_count, core_plan *out);
/* Runs plan; workspace comes from the model's framework, if not on the CPU. */
int core_plan_run(core_formula *self, const core_plan *plan, core_operand *inputs,
                  Py_ssize_t input_count, core_operand *outputs, Py_ssize_t output_count,
                  const core_operand *model);
void core_plans_clear(core_formula *self);

/* ---- calls (core_call.c) --------------------------------------------------------- */

/* What to do where a call needs PyTorch's dispatcher. */
typedef enum {
    CORE_ANY_DOOR, /* go there */
    CORE_STRAIGHT, /* do not even ask: it sent us here, and nobody else has seen out */
    CORE_TRY       /* give None */
} core_door;

/* The formula of objects (one per input); out: NULL or what the caller gave. */
PyObject *core_call(core_formula *self, PyObject *const *objects, PyObject *out, core_door door);
/* As core_call, up to the plan: its description as str. */
PyObject *core_explain(core_formula *self, PyObject *const *objects);
PyObject *core_vectorcall(PyObject *self, PyObject *const *args, size_t flags, PyObject *names);
/* Sorts positional and keyword arguments into objects (borrowed); out may be NULL. */
int core_bind(core_formula *self, PyObject *const *args, Py_ssize_t count, PyObject *names,
              PyObject **objects, PyObject **out);

/* What answer says of inputs with layouts args, (shape, dtype) each (core_infer.c). */
typedef PyObject *core_answer(core_formula *self, const DLTensor *const *inputs, Py_ssize_t count,
                              void *context);
PyObject *core_ask(PyObject *self, PyObject *const *args, Py_ssize_t count, core_answer *answer,
                   void *context);
int core_dtype_of(PyObject *name, DLDataType *type);
/* _infer(*layouts): the results' (shape, dtype) for inputs'. */
PyObject *core_infer(PyObject *self, PyObject *const *args, Py_ssize_t count);
/* Its plan's kernels for such inputs, as a list of (name, bytes, operations, slides). */
PyObject *core_kernels(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_orders(PyObject *self, PyObject *const *args, Py_ssize_t count);
/* ogive_estimate() of (machine, by, kind, dtype, bytes, operations, follows, records, batch, m, n,
 * k, across, then ogive_windows' members). */
PyObject *core_estimate(PyObject *module, PyObject *args);

/* ---- dividing among processes (core_divide.c) ---------------------------------------- */

/* placements(*inputs, **inputs), _divisions(*layouts), _sums(which, *layouts) */
PyObject *core_placements(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *core_divisions(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_divisions_at_sums(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *core_sums(PyObject *self, PyObject *const *args, Py_ssize_t count);
/* The stage of a formula that items name: "@1.0" (index 1, stage 0; "@": all of the formula),
 * then the whole inputs' layouts: "16x64:float32". */
ogive_status core_make_stage(const ogive_formula *formula, const char *const *items, size_t count,
                             ogive_formula **out, ogive_error *error);

/* ---- PyTorch's doors (core_torch.c) ------------------------------------------------ */

/* Imports ogive.torch's operator, once. */
int core_torch_load(void);
PyObject *core_torch_register(PyObject *module, PyObject *table);
/* What a call on these operands needs; out: NULL or what the caller gave. -1 with an
 * exception. */
enum { CORE_NOTHING, CORE_OPERATOR, CORE_GRADIENT /* to be recorded, nothing else */ };
int core_torch_needs_operator(const core_operand *operands, Py_ssize_t count, PyObject *out);
PyObject *core_torch_operator(core_formula *self, PyObject *const *objects, PyObject *out);
PyObject *core_torch_gradient(core_formula *self, PyObject *const *objects);
/* What a gradient of this call would keep, as str; "" if none is wanted. */
PyObject *core_torch_explain(core_formula *self, PyObject *const *objects);
/* The operator, by PyTorch's dispatcher: arguments as a vectorcall has them. */
PyObject *core_torch_dispatch(PyObject *const *args, Py_ssize_t count, PyObject *names);
/* A tensor as a DLPack capsule, ready or not, and PyTorch's current stream of a CUDA device,
 * for a PyTorch without a table that has them. __dlpack__ would take 4 us. */
PyObject *core_torch_lend(PyObject *tensor);
int core_torch_stream(int32_t device, void **stream);
/* _use_openmp(parallel, most): runs on the CPU take PyTorch's threads (core_threads.c). */
PyObject *core_use_openmp(PyObject *module, PyObject *args);
/* Tells ogive.torch of a subclass of Tensor. */
int core_torch_meet(PyObject *type);
/* Tells autograd that tensor is about to be written to; refuses what must not be. */
int core_torch_written(PyObject *tensor);

/* _operator(inputs, formula, steps="", precision="float32") -> list (core_operator.c) */
PyObject *core_operator(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
int core_operator_init(void);

/* ---- the module ----------------------------------------------------------------------- */

extern PyObject *core_formula_error, *core_device_error;
extern PyTypeObject *core_formula_type;

/* Raises what error says, with a caret under the place in text, if it has one. */
void core_raise(const ogive_error *error, PyObject *text);
int core_formula_init(PyObject *module);
PyObject *core_formula_create(PyObject *text, PyObject *precision);
/* Says of a user's text whether its inputs' names have dots (core_bind() then looks closer). */
void core_formula_look_for_dots(core_formula *self);
/* What a step makes of self. items are names of inputs: the gradient by them; casts or values:
 * see ogive_formula_make(); or a stage: see core_make_stage(). */
PyObject *core_formula_derive(core_formula *self, PyObject *items);
/* "w,b;w" as [("w", "b"), ("w",)], a new reference. */
PyObject *core_steps(PyObject *steps);

#endif
