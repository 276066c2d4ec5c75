# SPDX-License-Identifier: MIT
"""ogive.compile() without PyTorch: NumPy arrays, numbers, names, out=, errors."""

import copy
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import ogive
import pytest


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype(np.float64)))


@pytest.fixture
def x():
    return np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)


def test_neither_pytorch_nor_numpy_is_imported():
    code = ("import sys, ogive; ogive.compile('sigmoid(x)');"
            "sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_what_a_formula_says_of_itself():
    f = ogive.compile("z = x * fc.weight; z, sum(z)")
    assert f.inputs == ("x", "fc.weight") and f.results == 2
    assert f.text == "z = x * fc.weight; z, sum(z)" and f.precision == "float32"
    assert repr(f) == "ogive.compile('z = x * fc.weight; z, sum(z)')"
    assert repr(ogive.compile("x", "strict")) == "ogive.compile('x', precision='strict')"
    assert repr(ogive.compile("x", "tf32")) == "ogive.compile('x', precision='tf32')"
    g = f.gradient("x", "fc.weight").gradient("x")
    assert repr(g) == repr(f) + ".gradient('x', 'fc.weight').gradient('x')"
    assert g.inputs == ("x", "fc.weight", "grad.0", "grad.1", "grad2.0", "grad2.1")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_numpy_arrays_in_and_out(dtype, x):
    x = x.astype(dtype)
    y = ogive.compile("sigmoid(x)")(x)
    assert type(y) is np.ndarray and y.dtype == dtype and y.shape == x.shape
    np.testing.assert_allclose(y, sigmoid(x), rtol=1e-6 if dtype != np.float16 else 1e-3)


@pytest.mark.parametrize("view", [
    lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1::2], lambda x: x[::-1, ::-1],
    lambda x: x[0], lambda x: x[1, 2:3].reshape(()), lambda x: x[:0], lambda x: x[:, :, None],
    lambda x: np.broadcast_to(x[:1], (5, 6)), np.asfortranarray,
], ids=["transposed", "rows", "columns", "reversed", "row", "0-d", "empty", "3-d", "broadcast",
        "fortran"])
def test_strided_arrays_are_read_in_place(view, x):
    v = view(x)
    y = ogive.compile("sigmoid(x) + 1")(v)
    assert y.shape == v.shape
    np.testing.assert_allclose(y, sigmoid(v) + 1, rtol=1e-6)


def test_read_only_and_mapped_arrays(x, tmp_path):
    x.flags.writeable = False
    f = ogive.compile("x * 2")
    np.testing.assert_array_equal(f(x), x * 2)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(f(np.load(tmp_path / "x.npy", mmap_mode="r")), x * 2)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(f(mapped, out=np.empty(x.shape, np.float32)), x * 2)
    with pytest.raises(ValueError, match="read-only"):
        f(x + 0, out=x)


def test_arguments_by_position_and_by_name(x):
    f = ogive.compile("x * fc.weight + s")
    w = x[0]
    want = x * w + np.float32(3)
    np.testing.assert_array_equal(f(x, w, 3), want)
    np.testing.assert_array_equal(f(x, s=3.0, **{"fc.weight": w}), want)
    np.testing.assert_array_equal(f(s=np.float64(3), x=x, **{"fc.weight": w}), want)


@pytest.mark.parametrize("number", [2, 2.0, True, np.float64(2), np.float32(2), np.int64(2)])
def test_numbers_promote_nothing(number, x):
    f = ogive.compile("x * s")
    for dtype in (np.float32, np.float16, np.float64):
        y = f(x.astype(dtype), number)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, x.astype(dtype) * dtype(float(number)))


def test_a_number_is_not_rounded_to_half():
    x = np.full(4, 3, np.float16)  # 0.1 in float16 is 0.09998
    np.testing.assert_array_equal(ogive.compile("x * s * 1000")(x, 0.1), np.full(4, 300, np.float16))


def test_several_results_are_a_tuple(x):
    y, m = ogive.compile("x - amax(x, 1, true), amax(x, 1)")(x)
    np.testing.assert_array_equal(m, x.max(1))
    np.testing.assert_array_equal(y, x - x.max(1, keepdims=True))


def test_out_takes_the_result(x):
    f = ogive.compile("sigmoid(x)")
    out = np.zeros((6, 4), np.float32).T
    assert f(x, out=out) is out
    np.testing.assert_array_equal(out, f(x))
    assert f(x, out=None) is not None
    g = ogive.compile("x + 1, x * 2")
    pair = (np.empty_like(x), np.empty_like(x))
    assert g(x, out=pair) is pair
    np.testing.assert_array_equal(pair[0], x + 1)
    np.testing.assert_array_equal(pair[1], x * 2)
    want = f(x)
    assert f(x, out=x) is x  # in place
    np.testing.assert_array_equal(x, want)


def test_gradient(x):
    g = ogive.compile("sum(x**2 * w)").gradient("x", "w")
    assert g.inputs == ("x", "w", "grad") and g.results == 2
    by_x, by_w = g(x, x, np.float32(1).reshape(()))
    np.testing.assert_allclose(by_x, 2 * x * x, rtol=1e-6)
    np.testing.assert_allclose(by_w, x * x, rtol=1e-6)


def test_explain(x):
    text = ogive.compile("softmax(x, 1)").explain(x=x)
    assert text.startswith("kernel 0: rows row_max sumexp") and "kernel 1" not in text


def test_pickle_and_copy(x):
    for f in (ogive.compile("tanh(x)", "strict"), ogive.compile("x*x*x").gradient("x").gradient("x")):
        inputs = [x] * len(f.inputs)
        for again in (pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
            assert repr(again) == repr(f)
            np.testing.assert_array_equal(again(*inputs), f(*inputs))


@pytest.mark.parametrize("text, offset, message", [
    ("sigmod(x)", 0, "unknown function 'sigmod'; did you mean 'sigmoid'? (ogive functions lists "
     "all)\n  sigmod(x)\n  ^"),
    ("x +\n  y z", 8, "\n    y z\n      ^"),
    ("x # é\n+ y z", 10, "\n  + y z\n      ^"),
    ("2", 0, "no input"),
])
def test_a_wrong_formula_names_the_place(text, offset, message):
    with pytest.raises(ogive.FormulaError) as error:
        ogive.compile(text)
    assert isinstance(error.value, ValueError)
    assert message in str(error.value) and error.value.offset == offset
    again = pickle.loads(pickle.dumps(error.value))
    assert str(again) == str(error.value) and again.offset == offset


@pytest.mark.parametrize("call, exception, message", [
    (lambda f, x: f(), TypeError, "input 'x' is missing"),
    (lambda f, x: f(x, x, x), TypeError, r"has 2 inputs \('x', 'w'\), 3 were given"),
    (lambda f, x: f(x, x, x=x), TypeError, "'x' was given twice"),
    (lambda f, x: f(x, v=x), TypeError, "no input 'v'"),
    (lambda f, x: f(x, "w"), TypeError, "input 'w' is a str"),
    (lambda f, x: f(x, None), TypeError, "input 'w' is a NoneType"),
    (lambda f, x: f(x, 1j), TypeError, "input 'w' is a complex"),
    (lambda f, x: f(x, x.tolist()), TypeError, "input 'w' is a list"),
    (lambda f, x: f(1.0, 2.0), TypeError, "all inputs are numbers"),
    (lambda f, x: f(x, 10**400), OverflowError, "too large"),
    (lambda f, x: f(x, x.astype(np.uint16)), TypeError, "'w' is uint16"),
    (lambda f, x: f(x.astype(int), x.astype(int)), TypeError, "int64 is not supported; cast it"),
    (lambda f, x: f(x > 0, x > 0), TypeError, "bool is not supported; cast it"),
    (lambda f, x: f(x, x + 0j), TypeError, "'w' is complex"),
    (lambda f, x: f(x, x.astype(">f4")), TypeError, "input 'w', a tensor of >f4 .*byte order"),
    (lambda f, x: f(x, np.zeros(3, [("a", "f4"), ("b", "f4")])), TypeError, "input 'w', .*'<f4'"),
    (lambda f, x: f(x, x.astype(object)), TypeError, "input 'w', a tensor of object"),
    (lambda f, x: f(x, x, out=x.astype(">f4")), TypeError, "output 'out', .*byte order"),
    (lambda f, x: f(x, np.ma.array(x)), TypeError, "MaskedArray"),
    (lambda f, x: f(x, np.ones(5, np.float32)), ValueError, r"\(4, 6\) and \(5,\)"),
    (lambda f, x: f(x, np.ones((1,) * 9, np.float32)), ValueError, "9 dims"),
    (lambda f, x: f(x, x, out=x[:2]), ValueError, r"output '0' has shape \(2, 6\)"),
    (lambda f, x: f(x, x, out=x.astype(np.float64)), TypeError, "output '0' is float64"),
    (lambda f, x: f(x, x, out=[x]), TypeError, "'out' is a list"),
    (lambda f, x: f(x, x, out=2.0), TypeError, "'out' is a float"),
    (lambda f, x: f(x.T, x.T, out=x.reshape(6, 4)), ValueError, "overlaps input"),
    (lambda f, x: f(x[0], x[0], out=np.lib.stride_tricks.as_strided(x, (6,), (0,))), ValueError,
     "overlaps itself"),
    (lambda f, x: f(np.frombuffer(bytes(25), np.float32, 6, 1), 1.0), (ValueError, BufferError),
     "align"),
    (lambda f, x: f.gradient("v"), ValueError, "no input 'v'"),
    (lambda f, x: f.gradient("0"), ValueError, "no input '0'"),
    (lambda f, x: f.gradient("x,w"), ValueError, "no input 'x,w'"),
    (lambda f, x: f.gradient(), TypeError, "at least one"),
    (lambda f, x: f.gradient(x), TypeError, "is a str"),
    (lambda f, x: f.explain(x), TypeError, "'w' is missing"),
    (lambda f, x: ogive.compile("bfloat16(x)")(x), TypeError, "NumPy does not have"),
    (lambda f, x: ogive.compile(b"x"), TypeError, "is a str"),
    (lambda f, x: ogive.compile("x", "fast"), ValueError, "'float32', 'strict' or 'tf32'"),
    (lambda f, x: ogive.compile("x\0y"), ogive.FormulaError, "character"),
    (lambda f, x: type(f)(), TypeError, "cannot create"),
    (lambda f, x: ogive.compile("x, x")(x, out=x), TypeError, "tuple"),
    (lambda f, x: ogive.compile("x, x")(x, out=(x,)), ValueError, "out has 1"),
])
def test_wrong_calls(call, exception, message, x):
    with pytest.raises(exception, match=message):
        call(ogive.compile("x * w"), x)


class Lender:
    """Speaks DLPack, but cannot make arrays."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Standard(Lender):
    """Speaks DLPack, and makes arrays as Python's array standard says."""
    float32, device, writeable = np.float32, "cpu", True

    def __array_namespace__(self):
        return self

    def empty(self, shape, dtype, device):
        array = np.empty(shape, dtype)
        array.flags.writeable = self.writeable
        return Standard(array)


def test_arrays_of_the_array_standard(x):
    y, m = ogive.compile("x * 2, amax(x, 1)")(Standard(x[:, ::2]))
    assert type(y) is Standard
    np.testing.assert_array_equal(y.array, x[:, ::2] * 2)
    np.testing.assert_array_equal(m.array, x[:, ::2].max(1))
    fixed = Standard(x)
    fixed.writeable = False
    with pytest.raises(TypeError, match="cannot be written to"):
        ogive.compile("x * 2")(fixed)


def test_jax_arrays(x):
    jnp = pytest.importorskip("jax.numpy")
    y = ogive.compile("x * 2")(jnp.asarray(x))
    assert isinstance(y, jnp.ndarray)
    np.testing.assert_array_equal(y, x * 2)


def test_dlpack_objects_without_a_known_framework(x):
    f = ogive.compile("x * 2")
    with pytest.raises(TypeError, match="no way to make new arrays"):
        f(Lender(x))
    out = Lender(np.empty_like(x))
    assert f(Lender(x), out=out) is out
    np.testing.assert_array_equal(out.array, x * 2)
    with pytest.raises(TypeError, match="different kinds"):
        ogive.compile("x * y")(x, Lender(x))
    broken = Lender(x)
    broken.array = None
    with pytest.raises(AttributeError):
        f(broken)


def test_many_inputs_and_results(x):
    names = [f"a{i}" for i in range(40)]
    f = ogive.compile(" + ".join(names) + ", " + ", ".join(f"{name} * 2" for name in names))
    arrays = [x + i for i in range(40)]
    results = f(*arrays)
    assert len(results) == 41
    np.testing.assert_allclose(results[0], sum(a.astype(np.float64) for a in arrays), rtol=1e-5)
    np.testing.assert_array_equal(results[40], arrays[39] * 2)


def test_more_layouts_than_plans_are_kept():
    f, g = ogive.compile("sum(x)"), ogive.compile("softmax(linear(x, x), 1)")
    numbers = np.random.default_rng(3).standard_normal((120, 80)).astype(np.float32)
    for step in (1, 7, 1):
        for n in range(1, 90, step):
            part = numbers.reshape(-1)[:n]
            assert f(part) == pytest.approx(float(part.sum()), abs=1e-4)
            rows = g(numbers[:n])  # has a workspace
            np.testing.assert_allclose(rows.sum(1), np.ones(n), rtol=1e-5)


def test_threads_share_a_formula():
    f = ogive.compile("softmax(x, 1) * w")
    arrays = [np.random.default_rng(i).standard_normal((i + 1, 300)).astype(np.float32)
              for i in range(16)]
    want = [f(a, 2.0) for a in arrays]
    wrong = []

    def work(offset):
        for i in range(200):
            k = (i * 7 + offset) % len(arrays)
            if not np.array_equal(f(arrays[k], 2.0), want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_released(x):
    """Another thread goes on while a long formula runs, though nobody makes us yield."""
    f = ogive.compile("softmax(" + "tanh(" * 40 + "x" + ")" * 40 + ", 1)")
    big = np.tile(x, (1000, 40))
    f(big)
    count, stop = [0], threading.Event()

    def counter():
        while not stop.is_set():
            count[0] += 1
            time.sleep(1e-4)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=counter)
    thread.start()
    try:
        time.sleep(0.01)
        before = count[0]
        f(big)  # some 50 ms
        after = count[0]
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert after > before


def test_fork_after_import(x):
    f = ogive.compile("softmax(x, 1)")
    big = np.tile(x, (200, 100))
    want = f(big)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(f(big), want) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(f(big), want)


def test_nothing_leaks(x):
    resource = pytest.importorskip("resource")
    f = ogive.compile("softmax(x, 1)")
    big = np.tile(x, (100, 20))

    def work():
        for _ in range(300):
            f(big)
            ogive.compile("x * y").gradient("x")
            with pytest.raises(ValueError):
                f(big, out=x)
            with pytest.raises(ogive.FormulaError):
                ogive.compile("x +")

    work()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        work()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 4000, grown  # one result leaked each time would be 100 times that
