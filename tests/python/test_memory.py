# SPDX-License-Identifier: MIT
"""Every allocation of a call fails once, by a malloc of our own under the interpreter: the call
then works or raises MemoryError, and the next one works."""

import os
import pathlib
import subprocess
import sys

import ogive
import pytest

HERE = pathlib.Path(__file__).parent

# Runs in another process. PYTHONMALLOC=malloc makes Python's own objects part of it.
SCRIPT = """
import ctypes
import numpy as np
import ogive

library = ctypes.CDLL(None)
fail_at = library.fail_at
fail_at.restype = ctypes.c_long


def stop():
    # Has none failed before this call? Its own allocations count, too.
    try:
        return fail_at(0) > 0
    except MemoryError:
        return True


x = np.linspace(-3, 3, 6000, dtype=np.float32).reshape(2, 3000)
out = np.empty_like(x)
pair = (np.empty_like(x), np.empty(2, np.float32))
silu = ogive.compile("x * sigmoid(x) + s")
want = silu(x, 2.0)
cases = {
    "compile": lambda: ogive.compile("softmax(x, dim=1) * 2").inputs == ("x",),
    "refused": lambda: ogive.compile("softmax(x,") and False,
    "new shape": lambda: ogive.compile("x * sigmoid(x) + s")(x, 2.0)[0, 0] == want[0, 0],
    "call": lambda: silu(x, 2.0)[1, 5] == want[1, 5],
    "out": lambda: silu(x, 2.0, out=out) is out and out[1, 5] == want[1, 5],
    "two": lambda: len(ogive.compile("x + 1, sum(x, dim=1)")(x, out=pair)) == 2,
    "explain": lambda: len(silu.explain(x, 2.0)) > 100,
    "gradient": lambda: ogive.compile("sum(tanh(x))").gradient("x") is not None,
}
for name, case in cases.items():
    tried, n = 0, 1
    while True:
        problem = None
        try:
            fail_at(n)
            good = case()
        except MemoryError:
            good = True
        except ogive.FormulaError as error:  # the answer to what is refused
            good = name == "refused"
        except Exception as error:
            good, problem = False, error
        if stop():
            break
        # NumPy and the interpreter turn some failures of theirs into other exceptions.
        assert good or "memory" in str(problem).lower(), (name, n, repr(problem))
        tried += 1
        n += 1
    assert (case() if name != "refused" else True), name
    print(name, tried)
"""


@pytest.fixture(scope="module")
def failing_malloc(tmp_path_factory):
    built = tmp_path_factory.mktemp("failing") / "failing_malloc.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(HERE / "failing_malloc.c"), "-o",
                    str(built)], check=True)
    return built


def test_every_allocation_fails_once(failing_malloc):
    environment = dict(os.environ, LD_PRELOAD=str(failing_malloc), PYTHONMALLOC="malloc",
                       OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    counts = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert len(counts) == 8 and all(int(count) > 0 for count in counts.values()), counts


def test_json_of_the_command(failing_malloc):
    """The C library's own allocations fail, too, as those of the stream that the text is written to:
    `--json` prints all or nothing."""
    program = pathlib.Path(ogive.__file__).parent / "bin" / "ogive"
    if not program.exists():
        pytest.skip("the package was built without the command")
    command = [str(program), "functions", "--json"]

    def run(at):
        environment = dict(os.environ, LD_PRELOAD=str(failing_malloc), OGIVE_FAIL_AT=str(at))
        return subprocess.run(command, env=environment, capture_output=True, timeout=60)

    most = 1 << 30
    want = run(most)
    count = most - int(want.stderr.split()[-1])
    assert want.returncode == 0 and count > 400
    for at in range(count - 399, count + 1):
        got = run(at)
        assert got.returncode == 4 and not got.stdout or got.stdout == want.stdout, at
