# SPDX-License-Identifier: MIT
"""Arguments that mean harm: lists that change during a call, numbers that free what was lent,
DLPack objects that lie. An exception is an answer; a crash or a lost deleter is none."""

import ctypes
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ogive

# ---- out= ------------------------------------------------------------------------------


def test_out_in_a_list_that_makes_its_items():
    class Fresh(list):
        def __getitem__(self, index):
            return torch.empty(1 << 20)  # nothing else holds it

        def __iter__(self):
            return (self[i] for i in range(2))

    x = torch.randn(1 << 20)
    f = ogive.compile("x + 1, x * 2")
    for _ in range(5):
        out = Fresh([0, 1])
        assert f(x, out=out) is out


def test_out_in_a_list_that_another_thread_empties():
    n = 1 << 21
    f = ogive.compile("softmax(tanh(x), dim=0), log1p(abs(x)) * sigmoid(x)")
    x = torch.randn(n)
    given_lists, done = [], threading.Event()

    def empty_lists():
        while not done.is_set():
            while given_lists:
                given_lists.pop().clear()
            done.wait(0.0005)

    thread = threading.Thread(target=empty_lists)
    thread.start()
    try:
        for _ in range(10):
            out = [torch.empty(n), torch.empty(n)]
            given_lists.append(out)
            try:
                assert f(x, out=out) is out
            except ValueError as error:  # it was empty before the call looked at it
                assert "out has 0" in str(error)
    finally:
        done.set()
        thread.join()


def test_out_tuple_is_handed_back():
    class Pair(tuple):
        pass

    x = np.ones(3, np.float32)
    for kind in (list, tuple, Pair):
        out = kind([np.empty(3, np.float32), np.empty(3, np.float32)])
        assert ogive.compile("x + 1, x * 3")(x, out=out) is out
        assert out[0][0] == 2 and out[1][0] == 3


def test_out_inference_tensor():
    """PyTorch's rule: such a tensor is written in inference mode alone."""
    f = ogive.compile("x + 1")
    with torch.inference_mode():
        out = torch.zeros(4)
        f(torch.ones(4), out=out)
        assert out[0] == 2
    with pytest.raises(RuntimeError, match="inference"):
        torch.add(torch.ones(4), 1, out=out)  # writes first, then refuses
    with pytest.raises(RuntimeError, match="inference"):
        f(torch.ones(4) * 7, out=out)
    assert out[0] == 2


# ---- numbers ----------------------------------------------------------------------------


def test_number_that_frees_an_input():
    x = torch.randn(1 << 22)

    class Evil(float):
        def __float__(self):
            x.untyped_storage().resize_(0)
            return 1.0

    with pytest.raises(TypeError, match="no memory"):
        ogive.compile("x * s")(x, Evil(2.0))


def test_number_that_raises():
    class Bad(float):
        def __float__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ogive.compile("x * s")(np.ones(4, np.float32), Bad(2.0))


# ---- DLPack -----------------------------------------------------------------------------


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32),
                ("dtype", DataType), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", Deleter), ("flags", ctypes.c_uint64),
                ("tensor", Tensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

# Any layout of extents up to 4 and strides up to 4 that starts in the middle stays inside. No
# other is drawn that memory could hold: nobody can tell that it does not.
memory = (ctypes.c_float * 1024)(*range(1024))
MIDDLE = ctypes.addressof(memory) + 2048
LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"


class Liar:
    """Lends what fields say. taken counts capsules that have a deleter, ended its calls."""

    taken = ended = 0

    def __init__(self, shape=(4,), strides=None, ndim=None, data=MIDDLE, dtype=(2, 32, 1),
                 device=(1, 0), offset=0, has_shape=True, name=VERSIONED, major=1, flags=0,
                 has_deleter=True):
        self.device, self.dtype = "cpu", "odd"
        self.place = device
        self.extents = (ctypes.c_int64 * 64)(*shape)
        self.steps = (ctypes.c_int64 * 64)(*(strides or ()))
        tensor = Tensor(data, Device(*device), len(shape) if ndim is None else ndim,
                        DataType(*dtype), ctypes.addressof(self.extents) if has_shape else None,
                        ctypes.addressof(self.steps) if strides is not None else None, offset)
        self.deleter = Deleter(self.end) if has_deleter else Deleter()
        self.has_deleter, self.name = has_deleter, name
        self.managed = (Versioned(major, 0, None, self.deleter, flags, tensor)
                        if name == VERSIONED else Managed(tensor, None, self.deleter))

    def end(self, _):
        Liar.ended += 1

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **_):
        Liar.taken += self.has_deleter and self.name in (LEGACY, VERSIONED)
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


extents = st.one_of(st.integers(0, 4), st.sampled_from([-1, 1 << 62, -(1 << 63)]))
strides = st.one_of(st.integers(-4, 4), st.sampled_from([1 << 61, (1 << 63) - 1, -(1 << 63)]))


@st.composite
def lies(draw):
    shape = tuple(draw(st.lists(extents, max_size=3)))
    lie = dict(shape=shape)
    if draw(st.booleans()):
        lie["strides"] = tuple(draw(st.lists(strides, min_size=len(shape), max_size=len(shape))))
    rare = {
        "ndim": st.sampled_from([-(1 << 31), -1, 0, 1, 2, 8, 9, 64, 65, 1 << 20, (1 << 31) - 1]),
        "data": st.sampled_from([None, MIDDLE + 1, MIDDLE]),
        "dtype": st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 3)),
        "device": st.tuples(st.sampled_from([-1, 0, 1, 3, 99]), st.integers(-1, 3)),
        "offset": st.sampled_from([0, 1, 4]),
        "has_shape": st.booleans(),
        "name": st.sampled_from([LEGACY, VERSIONED, b"used_dltensor", b"other"]),
        "major": st.sampled_from([0, 1, 2, (1 << 32) - 1]),
        "flags": st.sampled_from([0, 1, 2, (1 << 64) - 1]),
        "has_deleter": st.booleans(),
    }
    for key in draw(st.lists(st.sampled_from(sorted(rare)), max_size=3, unique=True)):
        lie[key] = draw(rare[key])
    return lie


ANSWERS = (TypeError, ValueError, BufferError, NotImplementedError, MemoryError)
formulas = {count: ogive.compile(", ".join(["x + 1", "sum(x)"][:count])) for count in (1, 2)}


@settings(max_examples=200)
@given(lies(), st.one_of(st.none(), lies()), st.sampled_from([1, 2]))
@example(dict(shape=(2, 2), has_shape=False), None, 1)
@example(dict(ndim=1 << 20), None, 1)
@example({}, dict(ndim=(1 << 31) - 1), 1)
@example(dict(shape=(1,), strides=(-(1 << 63),)), dict(shape=(1,)), 1)
@example(dict(shape=(-4,)), dict(shape=(-4,)), 1)
def test_dlpack_that_lies(lie, out_lie, count):
    f, x = formulas[count], Liar(**lie)
    out = Liar(**(lie if out_lie is None else out_lie))
    try:
        f(x, out=out if count == 1 else (out, Liar(shape=(), data=MIDDLE + 1024)))
    except ANSWERS as error:
        assert str(error)
    del x, out
    assert Liar.taken == Liar.ended


def test_deleter_runs_without_the_exception():
    """Python code runs in it, and must not see, or lose, an exception that is pending."""
    seen = []

    class Curious(Liar):
        def end(self, _):
            seen.append(str(len("abc")))
            super().end(_)

    with pytest.raises(ValueError, match="negative extent"):
        ogive.compile("x + 1")(Curious(shape=(-4,)), out=Curious())
    gc.collect()
    assert seen == ["3", "3"] and Liar.taken == Liar.ended


# ---- interpreters -----------------------------------------------------------------------


def test_sub_interpreters_are_refused():
    """Whether the main interpreter has the module already or not; which goes on with it. In a process
    of its own: PyTorch minds sub-interpreters."""
    pytest.importorskip("_xxsubinterpreters")  # up to CPython 3.12
    subprocess.run([sys.executable, "-c", """
import sys, _xxsubinterpreters as interpreters
for first in True, False:
    other = interpreters.create()
    try:
        interpreters.run_string(other, f"import sys; sys.path[:] = {sys.path!r}; import ogive._core")
    except interpreters.RunFailedError as error:
        assert "the main interpreter of a process alone" in str(error), error
    else:
        sys.exit(1)
    interpreters.destroy(other)
    import ogive
    assert ogive.compile("x + 1").inputs == ("x",)
"""], check=True)


def test_a_second_import():
    """What the first import made is what the second has."""
    subprocess.run([sys.executable, "-c", """
import importlib, sys, ogive
before, error = ogive.compile("x + 1"), ogive.FormulaError
del sys.modules["ogive._core"]
again = importlib.import_module("ogive._core")
assert type(again.compile("x * 2")) is type(before) and again.FormulaError is error
try:
    again.compile("x +")
except error:
    sys.exit(0)
sys.exit(1)
"""], check=True)
