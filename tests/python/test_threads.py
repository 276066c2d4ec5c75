# SPDX-License-Identifier: MIT
"""thread_storm.py with this Python, and with one that has no GIL, where such a one is found:
OGIVE_FREE_THREADED names it, else python3.14t or python3.13t of PATH; the package is built for it.
And whose threads compute beside PyTorch."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

here = pathlib.Path(__file__).resolve().parent
source = here.parents[1]


def run_storm(python, seconds, **environment):
    done = subprocess.run([python, str(here / "thread_storm.py"), str(seconds)], text=True,
                          capture_output=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_storm():
    assert "calls" in run_storm(sys.executable, 2)


def find_free_threaded():
    names = [os.environ.get("OGIVE_FREE_THREADED", "python3.14t"), "python3.13t"]
    return next((path for path in map(shutil.which, names) if path), None)


def test_without_gil(tmp_path_factory):
    python, cmake = find_free_threaded(), shutil.which("cmake")
    if not python or not cmake:
        pytest.skip("no free-threaded Python, or no CMake")
    include = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
                             check=True, text=True, capture_output=True).stdout.strip()
    build = source / "build" / "free-threaded"
    subprocess.run([cmake, "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                    "-DOGIVE_BUILD_PYTHON=ON", "-DOGIVE_BUILD_CLI=OFF", "-DOGIVE_BUILD_TESTS=OFF",
                    f"-DPython_EXECUTABLE={python}", f"-DPython_INCLUDE_DIR={include}"], check=True)
    subprocess.run([cmake, "--build", build, "--target", "_core", "-j", str(os.cpu_count())],
                   check=True)
    package = tmp_path_factory.mktemp("package")
    shutil.copytree(source / "python" / "ogive", package / "ogive")
    for module in (build / "python").glob("_core*.so"):
        shutil.copy(module, package / "ogive")
    assert run_storm(python, 5, PYTHONPATH=str(package)).startswith("no GIL")


# A formula of many rows, and how many of its threads are Ogive's own, in a process of their own.
COUNTED = """
import os, sys, pathlib
import ogive, torch
if sys.argv[1] == "shared":
    import ogive.torch
f = ogive.compile("softmax(x, 1)")
x = torch.linspace(-1, 1, 2048 * 512).reshape(2048, 512).numpy()

def count():
    names = [p.read_text().strip() for p in pathlib.Path("/proc/self/task").glob("*/comm")]
    return names.count("ogive")

first = f(x)
assert abs(first - torch.softmax(torch.from_numpy(x).double(), 1).numpy()).max() < 1e-8
counts = [count()]
for most in (1, 2, 5):
    torch.set_num_threads(most)
    assert (f(x) == first).all()
counts.append(count())
child = os.fork()
if child == 0:  # in which PyTorch's threads would be waited for
    os._exit(0 if (f(x) == first).all() and count() > 0 else 1)
assert os.waitpid(child, 0)[1] == 0, "child"
print(*counts)
"""


# How many threads come into being while a thread of Python, which has run no operator of PyTorch's,
# runs a formula, and while a second one does.
LIMITED = """
import pathlib, sys, threading
import ogive, torch
import ogive.torch
f = ogive.compile("softmax(x, 1)")
x = torch.linspace(-1, 1, 2048 * 512).reshape(2048, 512).numpy()
torch.set_num_threads(int(sys.argv[1]))
added = []

def run():
    def count():
        return len(list(pathlib.Path("/proc/self/task").iterdir()))
    before = count()
    f(x)
    added.append(count() - before)

for _ in range(2):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
print(*added)
"""


@pytest.mark.parametrize("most", [1, 3])
def test_threads_of_a_new_thread(most):
    """torch.set_num_threads() is meant for threads that begin later, too."""
    done = subprocess.run([sys.executable, "-c", LIMITED, str(most)], text=True, capture_output=True,
                          env={**os.environ, "OMP_NUM_THREADS": "4"}, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(int, done.stdout.split())) <= most - 1, done.stdout


@pytest.mark.skipif(os.cpu_count() < 2, reason="one core: no threads")
@pytest.mark.parametrize("whose", ["own", "shared"])
def test_whose_threads(whose):
    """PyTorch's, once ogive.torch is there; a child of fork() has none of these."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", COUNTED, whose], text=True, capture_output=True,
                          env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    own = list(map(int, done.stdout.split()))
    assert own == [0, 0] if whose == "shared" else all(own), own
