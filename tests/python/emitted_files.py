# SPDX-License-Identifier: MIT
"""What the tests of files share that `ogive emit --pytorch` writes: making one, and the stand-ins for driver
and NVRTC (tests/cuda)."""

import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "pytorch"), str(ROOT / "bench")]
from emitted_gpu import load  # noqa: E402
from emulated import LIBRARIES  # noqa: E402

COMMAND = os.environ.get("OGIVE_COMMAND")  # scripts/test-python builds it
needs_command = pytest.mark.skipif(not COMMAND, reason="OGIVE_COMMAND does not name the ogive command")
needs_stand_ins = pytest.mark.skipif(not all(map(os.path.exists, LIBRARIES.values())),
                                     reason="build/tests has no stand-ins for driver and NVRTC")


def emit(*arguments):
    return subprocess.run([COMMAND, "emit", "--pytorch", *arguments], capture_output=True, text=True)


def emit_module(folder, *arguments):
    path = folder / "emitted.py"
    done = emit(*arguments, "-o", path)
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert not re.search(r"\b(pass|try|except)\b", text, re.I)  # what KernelBench refuses
    return load(path)


def shape_arguments(shapes):
    return [f"{name}={'x'.join(map(str, shape))}:float32" for name, shape in shapes.items()]


def lazy_negative(x):
    """-x, in whose memory is x, two elements apart."""
    lazy = torch.complex(x, x).conj().imag
    assert lazy.is_neg() and lazy.stride(-1) == 2
    return lazy


def call_library(command, formula, inputs, folder):
    """What the library's own kernels give on the same stand-in for a GPU."""
    named = []
    for name, x in inputs.items():
        numpy.save(folder / f"{name}.npy", x.numpy())
        named.append(f"{name}={folder / name}.npy")
    environment = {**os.environ, "OGIVE_LIBCUDA": str(LIBRARIES["cuda"]), "OGIVE_SHIM_MULTIPROCESSORS": "4",
                   "OGIVE_NVRTC": str(LIBRARIES["nvrtc"]), "OGIVE_CACHE_DIR": str(folder / "cache")}
    subprocess.run([command, "run", formula, *named, "--device", "cuda", "-o", folder / "result.npy"],
                   check=True, env=environment, capture_output=True)
    return torch.from_numpy(numpy.load(folder / "result.npy"))
