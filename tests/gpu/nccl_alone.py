# SPDX-License-Identifier: MIT
"""nccl_alone.py [cpu] - formulas of DTensors on a mesh of one GPU with NCCL, forward and backward,
against the same formulas of plain tensors. One process: that DTensors of a GPU are divided, cut and
reduced there without an error, and give what plain tensors do; nothing moves between GPUs. With cpu:
the same by gloo. Prints a line for what failed, then "N cases passed" and PASS or FAIL."""

import pathlib
import sys
import tempfile
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import ogive
import ogive.torch as ot
from distributed_cases import ATTENTION, GATED, P, R, S0, S1, TAIL, place, tensors

LINEAR = dict(x=(16, 64), w=(96, 64), b=(96,))
MLP = dict(x=(16, 64), w=(96, 64), v=(96, 64), d=(64, 96))
HEADS = dict(q=(4, 8, 16), k=(4, 24, 16), v=(4, 24, 16))
# Formula, shapes, placements: parts, sums, cuts, maxima.
CASES = [
    ("x * sigmoid(x) + y", dict(x=(16, 64), y=(64,)), dict(x=S0, y=R)),
    (TAIL, LINEAR, dict(x=S0, w=R, b=R)),
    (TAIL, LINEAR, dict(x=R, w=S0, b=S0)),
    (TAIL, LINEAR, dict(x=S1, w=S1, b=R)),
    ("linear(x, w, b)", LINEAR, dict(x=S1, w=S1, b=R)),
    ("r + gelu(linear(x, w))", dict(r=(16, 96), x=(16, 64), w=(96, 64)), dict(r=S0, x=S1, w=S1)),
    ("softmax(x, dim=1)", dict(x=(16, 64)), dict(x=S1)),
    ("layer_norm(x, 64, w, b)", dict(x=(16, 64), w=(64,), b=(64,)), dict(x=S1, w=R, b=R)),
    ("rms_norm(x, 64, w)", dict(x=(16, 64), w=(64,)), dict(x=S1, w=S0)),
    ("mean((x - y)**2)", dict(x=(16, 64), y=(16, 64)), dict(x=S0, y=S0)),
    ("relu(amax(x, 1))", dict(x=(16, 64)), dict(x=S1)),
    (GATED, MLP, dict(x=R, w=S0, v=S0, d=S1)),
    (ATTENTION, HEADS, dict(q=S0, k=S0, v=S0)),
    (ATTENTION, HEADS, dict(q=R, k=S1, v=S1)),
    ("exp(x * 0.1)", dict(x=(16, 64)), dict(x=P)),
]


def with_gradients(formula, values, seed):
    """The result and, for seed(result), the gradients by all values."""
    result = formula(**values)
    return result, torch.autograd.grad(result, list(values.values()), seed(result))


def check(mesh, device, text, shapes, placements):
    formula = ogive.compile(text)
    values = {name: value.to(device) for name, value in tensors(**shapes).items()}
    whole = {}

    def seed(result):
        whole["seed"] = torch.randn(result.shape, generator=torch.Generator().manual_seed(5)).to(device)
        return whole["seed"]

    plain = {name: value.clone().requires_grad_() for name, value in values.items()}
    want, wanted = with_gradients(formula, plain, seed)
    placed = {name: value.requires_grad_() for name, value in place(mesh, values, placements).items()}
    got, found = with_gradients(formula, placed, lambda result: distribute_tensor(
        whole["seed"], mesh, [R if p.is_partial() else p for p in result.placements]))
    torch.testing.assert_close(got.full_tensor(), want, rtol=2e-5, atol=2e-5)
    for name, gradient, value in zip(placed, found, wanted):
        torch.testing.assert_close(gradient.full_tensor(), value, rtol=5e-5, atol=5e-5,
                                   msg=lambda text, name=name: f"gradient by {name}: {text}")


def check_all(mesh, device):
    """The number of cases that passed, of all."""
    passed = 0
    for sums in "any", "ranks", "one":
        ot.set_sums(sums)
        for case in CASES:
            try:
                check(mesh, device, *case)
                passed += 1
            except Exception:
                print(f"sums {sums}: {case[0]}, {case[2]}\n{traceback.format_exc()}")
    ot.set_sums("any")
    return passed, 3 * len(CASES)


def main():
    device = "cpu" if "cpu" in sys.argv[1:] else "cuda"
    backend = "gloo" if device == "cpu" else "nccl"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            with CommDebugMode() as mode:
                passed, count = check_all(init_device_mesh(device, (1,)), device)
            total = torch.ones(4, device=device)
            dist.all_reduce(total)  # the backend itself, whatever DTensor leaves out
            passed += int(total.sum().item() == 4)
        finally:
            dist.destroy_process_group()
    moved = {str(name): times for name, times in mode.get_comm_counts().items() if times}
    print(f"PyTorch {torch.__version__}, {backend}"
          f"{'' if device == 'cpu' else ' ' + '.'.join(map(str, torch.cuda.nccl.version()))}: "
          f"collectives of DTensors {moved or 'none'}")
    print(f"{passed} cases passed of {count + 1}: {'PASS' if passed == count + 1 else 'FAIL'}")
    return passed != count + 1


if __name__ == "__main__":
    sys.exit(main())
