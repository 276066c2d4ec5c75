# SPDX-License-Identifier: MIT
"""The installed package: what is in it, its types, its one binary."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest

import ogive
import ogive.torch as ot

# Not functions of the table.
OTHERS = {"Formula", "backend", "explain", "set_precision", "set_sums"}
PACKAGE = pathlib.Path(ogive.__file__).parent
ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_files():
    names = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*")
             if "__pycache__" not in path.parts and path.is_file()}
    assert {"__init__.py", "_core.pyi", "py.typed", "_core.abi3.so", "torch/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".c", ".h", ".a", ".txt"))]


def test_version_is_the_librarys():
    text = (ROOT / "include" / "ogive.h").read_text()
    numbers = [text.split(f"#define OGIVE_VERSION_{part} ")[1].split()[0]
               for part in ("MAJOR", "MINOR", "PATCH")]
    assert ogive.__version__ == ".".join(numbers)


def test_the_binary_exports_one_name():
    """Another copy of the library in the process must not be mixed up with this one."""
    output = subprocess.run(["nm", "-D", "--defined-only", PACKAGE / "_core.abi3.so"],
                            capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in output.splitlines()] == ["PyInit__core"]


def test_types_of_the_package():
    subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml",
                    ROOT / "python" / "ogive"], check=True, cwd=ROOT)


def test_types_that_users_see(tmp_path):
    (tmp_path / "user.py").write_text(
        "import ogive, ogive.torch\n"
        "import torch\n"
        "f = ogive.compile('x * 2', precision='strict')\n"
        "reveal_type(f)\n"
        "reveal_type(f.inputs)\n"
        "reveal_type(ogive.torch.softmax(torch.ones(2, 2), dim=1))\n"
        "m: torch.nn.Module = ogive.torch.Formula('x * 2')\n"
        "f.nothing\n"
        "ogive.compile(3)\n")
    result = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml",
                             "user.py"], cwd=tmp_path, capture_output=True, text=True)
    output = result.stdout
    assert 'Revealed type is "ogive._core.Formula"' in output
    assert 'Revealed type is "tuple[' in output
    assert 'has no attribute "nothing"' in output and "incompatible type" in output
    assert output.count("error:") == 2, output


def test_stubs_are_the_tables(monkeypatch):
    """ogive/torch/_functions.pyi is what scripts/derive writes."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import stubs
    text = (PACKAGE / "torch" / "_functions.pyi").read_text()
    assert text == stubs.stubs([row[:3] for row in ogive._core.functions()])
    assert set(re.findall(r"^def (\w+)", text, re.M)) == set(ot.__all__) - OTHERS


def test_the_backend_needs_no_import():
    if not list(importlib.metadata.entry_points(group="torch_dynamo_backends", name="ogive")):
        pytest.skip("the package is not installed")
    code = """
import sys, torch
call = torch.compile(lambda x: torch.sigmoid(x) * 2 + x, backend="ogive")
x = torch.randn(5)
torch.testing.assert_close(call(x), torch.sigmoid(x) * 2 + x)
assert "ogive" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_table_of_c_functions():
    """PyTorch 2.9 has none, and lends its tensors by DLPack's capsules."""
    code = """
import torch
if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    del torch.Tensor.__dlpack_c_exchange_api__
import ogive, ogive.torch as ot
assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
x = torch.linspace(-3, 3, 12).reshape(3, 4)
want = torch.sigmoid(x)
parameter = torch.nn.Parameter(x.clone())
with torch.no_grad():
    for tensor in (x, parameter, x.t()):
        torch.testing.assert_close(ot.sigmoid(tensor), torch.sigmoid(tensor))
out = torch.empty(4, 3).t()
assert ot.sigmoid(x, out=out) is out
torch.testing.assert_close(out, want)
assert "gradient: keeps" in ogive.compile("x * 2").explain(parameter)
ot.sigmoid(parameter).sum().backward()
torch.testing.assert_close(parameter.grad, want * (1 - want))
torch.testing.assert_close(torch.ops.ogive.run([parameter], "x * 2")[0], x * 2)
torch.testing.assert_close(ot.sigmoid(torch._neg_view(x)), torch.sigmoid(-x))
half = ot.sigmoid(x.bfloat16())
assert half.dtype == torch.bfloat16
assert torch.compile(ot.sigmoid, backend="eager", fullgraph=True)(x).shape == (3, 4)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
