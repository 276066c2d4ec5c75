# SPDX-License-Identifier: MIT
"""Formulas on PyTorch's distributed engine: several gloo processes on this machine do what
distributed_cases.py says. OGIVE_TEST_FULL=1: also 4 processes, on a line and 2 x 2."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch.distributed

import distributed_cases

if not torch.distributed.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "distributed.md"
MESHES = [(2,), *([(4,), (2, 2)] if os.environ.get("OGIVE_TEST_FULL") else [])]


@pytest.fixture(scope="module", params=MESHES, ids=lambda mesh: "x".join(map(str, mesh)))
def reports(request, tmp_path_factory):
    """One start of the processes for all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    distributed_cases.start(request.param, str(folder), distributed_cases.cases())
    return folder


@pytest.mark.parametrize("name", distributed_cases.cases())
def test_case(reports, name):
    found = sorted(reports.glob(f"{name}.*"))
    texts = [file.read_text() for file in found]
    assert texts, f"{name} did not run: an earlier case failed"
    assert not any(texts), "\n".join(texts)


def run_two(command, **options):
    """By two processes; again where gloo's threads outlived the interpreter, as they seldom do, on a busy
    machine twice in a row: pytorch/pytorch pull 179291, issue 190489."""
    for _ in range(5):
        result = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240, **options)
        if "terminate called without an active exception" not in result.stderr:
            break
    return result


def test_example():
    """Two processes give what one does; the file checks that itself."""
    example = pathlib.Path(__file__).parents[2] / "examples" / "distributed" / "train.py"
    result = run_two([example, *"--width 64 --heads 4 --tokens 16 --steps 2".split()])
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("equal to one's") == 2 and "NOT" not in result.stdout, result.stdout


@pytest.mark.parametrize("code", re.findall(
    r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S))
def test_documentation_runs(code, tmp_path):
    """The code in docs/distributed.md as it stands there, which checks itself."""
    (tmp_path / "gated.py").write_text(code)
    assert "`torchrun --nproc-per-node 2 gated.py`" in DOCUMENT.read_text()
    result = run_two(["gated.py"], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
