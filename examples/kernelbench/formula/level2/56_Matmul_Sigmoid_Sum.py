# SPDX-License-Identifier: MIT
"""KernelBench level 2, problem 56: a linear layer, its sigmoid, summed over each row.
The product's tiles are summed while they are in the cache; it is never stored."""
import torch
import torch.nn as nn

import ogive

formula = ogive.compile("sum(sigmoid(linear(x, w, b)), dim=1, keepdim=true)")


class ModelNew(nn.Module):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return formula(x, self.linear.weight, self.linear.bias)
