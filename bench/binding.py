# SPDX-License-Identifier: MIT
"""libogive through ctypes, over PyTorch's tensors: for benchmarks, and for tests on a machine
that has the library alone. Library(path).plan(...) is all that most of them need; a call of
what it returns is a call of ogive_plan_run() and half a microsecond of ctypes."""
import ctypes
import pathlib
import weakref

import torch

root = pathlib.Path(__file__).resolve().parent.parent
codes = {torch.float32: (2, 32), torch.float16: (2, 16), torch.bfloat16: (4, 16),
         torch.float64: (2, 64)}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("offset", ctypes.c_int64),
                ("message", ctypes.c_char * 1000)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32),
                ("cpu_level", ctypes.c_char_p), ("precision", ctypes.c_int),
                ("stream", ctypes.c_void_p), ("cuda_arch", ctypes.c_char_p),
                ("packed", ctypes.c_uint64)]


class Refused(Exception):
    """What a function of the library said."""


def describe(tensors):
    """An array of pointers to DLTensors, which keeps alive what it points at. Of a tuple
    instead of a tensor only the shape is known."""
    array = (ctypes.POINTER(DLTensor) * max(len(tensors), 1))()
    array.kept = []
    for i, t in enumerate(tensors):
        sizes = t if isinstance(t, tuple) else t.shape
        numbers = ctypes.c_int64 * max(len(sizes), 1)
        one = DLTensor(ndim=len(sizes), shape=numbers(*sizes))
        if not isinstance(t, tuple):
            one.data, one.strides = t.data_ptr(), numbers(*t.stride())
            one.device_type, one.device_id = (2, t.device.index or 0) if t.is_cuda else (1, 0)
            one.code, one.bits = codes[t.dtype]
            one.lanes = 1
        array[i] = ctypes.pointer(one)
        array.kept += [one, t]
    return array


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        self.lib.ogive_plan_workspace.restype = ctypes.c_size_t
        self.lib.ogive_version.restype = ctypes.c_char_p
        for name in ("ogive_plan_workspace", "ogive_plan_release", "ogive_formula_release"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p]
        self.lib.ogive_plan_run.argtypes = [ctypes.c_void_p] * 6

    def version(self):
        return self.lib.ogive_version().decode()

    def call(self, name, *args):
        error = Error()
        if getattr(self.lib, name)(*args, ctypes.byref(error)) != 0:
            raise Refused(f"{name}: {error.message.decode()}")

    def formula(self, text):
        handle = ctypes.c_void_p()
        self.call("ogive_formula_create", text.encode(), ctypes.c_size_t(len(text.encode())),
                  ctypes.byref(handle))
        return handle

    def plan(self, text, inputs, outputs, precision=0, threads=0):
        """A function that runs text over inputs, into outputs, on a stream (default: CUDA's
        default stream). precision: 0 float32, 1 (True) strict, 2 tf32."""
        formula, plan = self.formula(text), ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), threads, None, int(precision), None, None, 0)
        try:
            self.call("ogive_plan_create", formula, describe(inputs),
                      ctypes.c_size_t(len(inputs)), describe(outputs),
                      ctypes.c_size_t(len(outputs)), ctypes.byref(options), ctypes.byref(plan))
        finally:
            self.lib.ogive_formula_release(formula)  # a plan outlives it
        size = self.lib.ogive_plan_workspace(plan)
        workspace = torch.empty(size + 64, dtype=torch.uint8, device=outputs[0].device)
        start = workspace.data_ptr() + -workspace.data_ptr() % 64
        ins = (ctypes.c_void_p * max(len(inputs), 1))(*[t.data_ptr() for t in inputs])
        outs = (ctypes.c_void_p * len(outputs))(*[t.data_ptr() for t in outputs])
        run, error = self.lib.ogive_plan_run, Error()
        at, args = ctypes.byref(error), (plan, ins, outs, start if size else None)

        def call(stream=None):
            if run(*args, stream, at) != 0:
                raise Refused(f"{text}: {error.message.decode()}")
        call.kept = workspace, inputs, outputs
        weakref.finalize(call, self.lib.ogive_plan_release, plan).atexit = False
        return call

    def pytorch_file(self, text, shapes):
        """What `ogive emit --pytorch` writes for inputs of these shapes (tuples)."""
        formula, length = self.formula(text), ctypes.c_size_t()
        file = ctypes.create_string_buffer(1 << 22)
        try:
            self.call("ogive_formula_pytorch", formula, describe(shapes),
                      ctypes.c_size_t(len(shapes)), None, file, ctypes.c_size_t(len(file)),
                      ctypes.byref(length))
        finally:
            self.lib.ogive_formula_release(formula)
        return file.value.decode()
