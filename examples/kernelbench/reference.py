# SPDX-License-Identifier: MIT
"""What the examples must equal: KernelBench's problems in plain PyTorch, with its sizes.
The tests and bench/kernelbench.py share it."""
import torch
import torch.nn as nn


class Sigmoid(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x)


class HardSigmoid(nn.Module):
    def forward(self, x):
        return torch.nn.functional.hardsigmoid(x)


class MatmulSigmoidSum(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, x):
        return torch.sum(torch.sigmoid(self.linear(x)), dim=1, keepdim=True)


class GemmSigmoidScalingResidualAdd(nn.Module):
    def __init__(self, input_size, hidden_size, scaling_factor):
        super().__init__()
        self.gemm = nn.Linear(input_size, hidden_size)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        z = self.gemm(x)
        return torch.sigmoid(z) * self.scaling_factor + z


# file -> reference, arguments and shape of x as KernelBench has them, the same small
problems = {
    "level1/21_Sigmoid.py": (Sigmoid, (), (4096, 393216), (), (64, 1024)),
    "level1/28_HardSigmoid.py": (HardSigmoid, (), (4096, 393216), (), (64, 1024)),
    "level2/56_Matmul_Sigmoid_Sum.py":
        (MatmulSigmoidSum, (32768, 32768), (128, 32768), (256, 200), (33, 256)),
    "level2/70_Gemm_Sigmoid_Scaling_ResidualAdd.py":
        (GemmSigmoidScalingResidualAdd, (8192, 8192, 2.0), (1024, 8192), (256, 200, 2.0), (33, 256)),
}
