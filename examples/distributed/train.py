# SPDX-License-Identifier: MIT
"""A gated MLP and a small transformer, tensor parallel, with formulas.

    torchrun --nproc-per-node 2 examples/distributed/train.py             CPU, gloo
    torchrun --nproc-per-node 8 examples/distributed/train.py --cuda      GPUs, NCCL

Each is trained for some steps on all processes and, on each by itself, as one process would;
prints how far the two are apart, the collectives of a step, and tokens per second.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

import ogive.torch as ot


class Gated(nn.Module):
    """silu(x gate) * (x up), times down: one formula, which issues no collective of its own."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.randn(hidden, width) * width**-.5)
        self.up = nn.Parameter(torch.randn(hidden, width) * width**-.5)
        self.down = nn.Parameter(torch.randn(width, hidden) * hidden**-.5)
        self.formula = ot.Formula("linear(silu(linear(x, gate)) * linear(x, up), down)")

    def forward(self, x):
        return self.formula(x, self.gate, self.up, self.down)


class Attention(nn.Module):
    """Heads are divided: q, k and v by rows of their weights, the output by columns of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        for name in ("q", "k", "v", "out"):
            setattr(self, name, nn.Parameter(torch.randn(width, width) * width**-.5))
        scale = (width // heads)**-.5
        self.project = ot.Formula("linear(x, w)")
        self.attend = ot.Formula(f"softmax(q @ transpose(k, -2, -1) * {scale!r}, -1) @ v")

    def forward(self, x):
        batch, tokens, width = x.shape

        def split(w):
            return self.project(x, w).view(batch, tokens, self.heads, -1).transpose(1, 2)

        mixed = self.attend(split(self.q), split(self.k), split(self.v))
        return self.project(mixed.transpose(1, 2).reshape(batch, tokens, width), self.out)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(width, heads), Gated(width, 3 * width)
        self.first, self.second = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.norm = ot.Formula(f"rms_norm(x, {width}, w)")
        self.add = ot.Formula("x + y")

    def forward(self, x):
        x = self.add(x, self.attention(self.norm(x, self.first)))
        return self.add(x, self.mlp(self.norm(x, self.second)))


class Collectives(TorchDispatchMode):
    """Counts what torch.distributed is asked for."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # what it does on this process's parts comes here
        self.count += function.namespace == "_c10d_functional" and "wait" not in str(function)
        return function(*args, **(kwargs or {}))


ROWS, COLUMNS = ("gate", "up", "q", "k", "v"), ("down", "out")


def divide(model: nn.Module, mesh) -> nn.Module:
    """The parameters as DTensors: rows of what widens, columns of what narrows."""
    for module in model.modules():
        for name, value in list(module._parameters.items()):
            placed = Shard(0) if name in ROWS else Shard(1) if name in COLUMNS else Replicate()
            setattr(module, name, nn.Parameter(distribute_tensor(value.detach(), mesh, [placed])))
    return model


def make(name: str, arguments) -> nn.Module:
    torch.manual_seed(0)
    if name == "gated MLP":
        return Gated(arguments.width, 3 * arguments.width)
    return nn.Sequential(*[Block(arguments.width, arguments.heads) for _ in range(2)])


def train(model: nn.Module, x: torch.Tensor, steps: int) -> tuple[list[float], float, int]:
    """Losses, seconds of a step, collectives of a forward and backward pass."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses, began, collectives = [], 0.0, 0
    for step in range(steps):
        if step == 1:  # the first one compiles
            began = time.perf_counter()
        optimizer.zero_grad()
        with Collectives() as mode:
            loss = (model(x) - x).square().mean()
            loss.backward()
        collectives = mode.count
        optimizer.step()
        losses.append((loss.full_tensor() if isinstance(loss, DTensor) else loss).item())
    return losses, (time.perf_counter() - began) / max(1, steps - 1), collectives


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true", help="GPUs and NCCL, not the CPU and gloo")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    device = "cuda" if arguments.cuda else "cpu"
    if arguments.cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if arguments.cuda else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    x = torch.randn(arguments.batch, arguments.tokens, arguments.width,
                    generator=torch.Generator().manual_seed(1)).to(device)
    for name in ("gated MLP", "transformer"):
        alone, _, _ = train(make(name, arguments).to(device), x, arguments.steps)
        model = divide(make(name, arguments).to(device), mesh)
        losses, seconds, collectives = train(model, distribute_tensor(x, mesh, [Replicate()]),
                                             arguments.steps)
        apart = max(abs(a - b) / a for a, b in zip(alone, losses))
        if dist.get_rank() == 0:
            print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f} on {mesh.size()} processes, "
                  f"{'equal to' if apart < 1e-4 else 'NOT equal to'} one's (within {apart:.1e}); "
                  f"{collectives} collectives a step; {x.numel() // x.shape[-1] / seconds:.0f} "
                  "tokens/s", flush=True)
        if apart >= 1e-4:
            raise SystemExit(1)
    dist.barrier()  # nobody leaves while another still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
