# SPDX-License-Identifier: MIT
"""Threads that call, make, explain, differentiate and pickle the same formulas at once: every result
is right, every tensor that was lent is given back once.

    python thread_storm.py [SECONDS]

A program of its own, for any CPython, one without a GIL too, and in need of nothing else: arrays are
ctypes' where there is no NumPy. Ends with status 1 if anything is wrong. test_threads.py runs it.
"""
import ctypes
import os
import pickle
import random
import sys
import threading
import time

import ogive

try:
    import numpy
except ImportError:
    numpy = None

THREADS = 8
failures, counts = [], {"calls": 0, "lent": 0, "given back": 0}
counting = threading.Lock()


def count(what, more=1):
    with counting:
        counts[what] += more


# ---- arrays ----------------------------------------------------------------------------


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


make_capsule = ctypes.pythonapi.PyCapsule_New
make_capsule.restype = ctypes.py_object
make_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAME = b"dltensor"  # a capsule has its address
lent = {}  # address: what a capsule points at, until it is given back


@Deleter
def give_back(address):
    if lent.pop(address, None) is None:
        failures.append("a tensor was given back that is not lent")
    count("given back")


class Array:
    """float32 of one shape, all of one value."""

    capsule = None

    def __init__(self, shape, value=0.0):
        self.shape = shape
        self.dims = (ctypes.c_int64 * len(shape))(*shape)
        self.values = (ctypes.c_float * max(1, shape[0] * shape[1]))()
        for i in range(len(self.values)):
            self.values[i] = value

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **unused):
        if self.capsule is not None:
            return self.capsule
        managed = Managed(Tensor(ctypes.addressof(self.values), (1, 0), 2, 2, 32, 1,
                                 ctypes.addressof(self.dims), None, 0), None, give_back)
        lent[ctypes.addressof(managed)] = managed, self
        count("lent")
        return make_capsule(ctypes.addressof(managed), NAME, None)


def make_stingy():
    """An array that gives the same capsule to everybody: the first may have it."""
    array = Array((2, 2), 1.0)
    array.capsule = array.__dlpack__()
    return array


# ---- what threads do -------------------------------------------------------------------

shared = [ogive.compile("x * 2 + 1"), ogive.compile("x + sum(x, dim=1, keepdim=true)"),
          ogive.compile("w.a = x + 1; w.a * x"), ogive.compile("x + 1, x * 3")]


def expect(which, cols):
    return ([3.0], [1.0 + cols], [2.0], [2.0, 3.0])[which]


def check(which, cols, outs):
    for out, want in zip(outs, expect(which, cols)):
        for i in (0, len(out.values) // 2, len(out.values) - 1):
            if out.values[i] != want:
                failures.append(f"{shared[which].text}: {out.values[i]}, expected {want}")


def call(chance, kind=Array):
    which, shape = chance.randrange(4), (chance.randrange(1, 5), chance.choice((1, 7, 64, 3000)))
    x, outs = kind(shape, 1.0), [kind(shape) for _ in range(2 if which == 3 else 1)]
    shared[which](x, out=outs if which == 3 else outs[0])
    check(which, shape[1], outs)


def call_numpy(chance):
    if numpy is None:
        return
    which, shape = chance.randrange(4), (chance.randrange(1, 5), chance.choice((1, 7, 64, 3000)))
    results = shared[which](numpy.ones(shape, numpy.float32))
    for result, want in zip(results if which == 3 else [results], expect(which, shape[1])):
        if not (result == want).all():
            failures.append(f"{shared[which].text} of {shape}: NumPy's is wrong")


def call_new_type(chance):
    call(chance, type("Kind%d" % chance.randrange(100), (Array,), {}))


def make(chance):
    f = ogive.compile("exp(x) * %d" % chance.randrange(50))
    g = pickle.loads(pickle.dumps(f.gradient("x")))
    if g.inputs != ("x", "grad"):
        failures.append(f"inputs of {g}: {g.inputs}")


def look(chance):
    f = shared[chance.randrange(4)]
    text = f.explain(Array((2, chance.randrange(1, 9))))
    if "kernel" not in text or not repr(f):
        failures.append(text)
    try:
        f(None)
    except TypeError:
        pass


def share_out(chance, box=[None]):
    """out= a list that another thread may be emptying."""
    outs = [Array((2, 300)), Array((2, 300))]
    box[0], other = outs, box[0]
    try:
        shared[3](Array((2, 300), 1.0), out=outs)
    except ValueError:  # it had been emptied
        pass
    if other and chance.random() < 0.5:
        other.clear()


stingy = [make_stingy()]


def share_capsule(chance):
    x = stingy[0]
    try:
        shared[0](x, out=Array((2, 2)))
    except BufferError:  # another was first
        stingy[0] = make_stingy()
    except TypeError as error:  # the same, in the words that name the input
        if "no DLPack capsule" not in str(error):
            raise
        stingy[0] = make_stingy()


def storm(seed, end):
    chance = random.Random(seed)
    acts = [call] * 4 + [call_numpy] * 4 + [call_new_type, make, look, share_out, share_capsule]
    try:
        while time.monotonic() < end and not failures:
            chance.choice(acts)(chance)
            count("calls")
    except Exception as error:  # whatever it is, this thread ends and all have failed
        failures.append(f"{type(error).__name__}: {error}")
        raise


def main():
    free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 5)
    threads = [threading.Thread(target=storm, args=(i, end)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stingy.clear()
    unused = len(lent)  # capsules that nobody took: what they point at lives on
    if counts["given back"] + unused != counts["lent"]:
        failures.append(f"lent and given back are not the same: {counts}, {unused} not taken")
    print(f"{'no GIL' if free else 'GIL'}, {os.cpu_count()} cores: {counts}", *failures, sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
