# SPDX-License-Identifier: MIT
"""thread_storm.py with this Python, and with one that has no GIL, where such a one is found:
OGIVE_FREE_THREADED names it, else python3.14t or python3.13t of PATH; the package is built for it."""

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
