# SPDX-License-Identifier: MIT
"""What the tests of the Python package share. Run them with scripts/test-python."""

import os
import tempfile

# PyTorch's own bfloat16 products die on machines that show AMX without granting it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
# Inductor's cache knows an operator by its name: it would call one of another version.
_cache = tempfile.TemporaryDirectory(prefix="ogive-inductor-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _cache.name

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

hypothesis.settings.register_profile("ogive", deadline=None, max_examples=60, derandomize=True)
# On a GPU every example compiles kernels of its own, for seconds (scripts/test-gpu).
hypothesis.settings.register_profile("gpu", deadline=None, max_examples=12, derandomize=True)
hypothesis.settings.load_profile("ogive")

# What a test that takes device, or data, runs on: the GPU by scripts/test-gpu.
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def tolerance(dtype):
    """rtol, atol for values of size 1."""
    return {torch.float64: (1e-12, 1e-13), torch.float32: (2e-6, 1e-6),
            torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)}[dtype]


def assert_close(got, want, dtype=None):
    rtol, atol = tolerance(dtype or want.dtype)
    torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def data(device):
    """data(*shape, dtype=...): different numbers in every place, on device."""
    generator = torch.Generator().manual_seed(1)

    def make(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    return make


@pytest.fixture
def failures():
    """What a test found, told in its end."""
    found = []
    yield found
    assert not found, f"{len(found)} differences\n" + "\n".join(found[:60])
