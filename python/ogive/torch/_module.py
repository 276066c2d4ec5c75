# SPDX-License-Identifier: MIT
"""A formula as an nn.Module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .. import _core
from . import _precision


class Formula(nn.Module):
    """A formula some of whose inputs are bound by name.

        Formula("z = linear(x, fc.weight, fc.bias); z + 2.0 * sigmoid(z)", fc=model.fc)

    What is given by name, an nn.Module, nn.Parameter or tensor, is registered under it and
    shared, not copied; dotted names of the formula reach into it. forward() takes the
    inputs that are left, in order of first appearance, or by name. Of a module its tensors are
    read; its forward() and its hooks are not called. precision, if not given, is what
    set_precision() says now.
    """

    def __init__(self, text: str, /, *, precision: str | None = None,
                 **named: nn.Module | Tensor | None) -> None:
        super().__init__()
        self.formula = _core.compile(
            text, _precision.precision() if precision is None else precision)
        self._inputs = self.formula.inputs  # of a formula Dynamo sees only the call
        self._bound = self._free = tuple[str, ...]()
        for name, value in named.items():
            self._bind(name, value)
        self._bound = tuple(name for name in self._inputs if self._reaches(name))
        self._free = tuple(name for name in self._inputs if name not in self._bound)
        for name in named:
            if not any(bound == name or bound.startswith(name + ".") for bound in self._bound):
                raise ValueError(f"the formula has no input '{name}': its inputs are "
                                 f"{', '.join(self._inputs)}")

    def _bind(self, name: str, value: Any) -> None:
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                owner.register_module(part, nn.Module())
            owner = owner.get_submodule(part)
        if hasattr(owner, last):
            raise ValueError(f"'{name}' cannot be bound: {type(owner).__name__} has an attribute "
                             f"'{last}' already")
        if isinstance(value, nn.Module):
            owner.register_module(last, value)
        elif isinstance(value, nn.Parameter):
            owner.register_parameter(last, value)
        elif isinstance(value, Tensor):
            owner.register_buffer(last, value)
        else:
            raise TypeError(f"'{name}' is a {type(value).__name__}: expected an nn.Module, "
                            "an nn.Parameter or a tensor")

    def _reaches(self, name: str) -> bool:
        """Whether name leads to a tensor that is bound; raises if only part of it does."""
        *path, last = name.split(".")
        owner: nn.Module = self
        for depth, part in enumerate(path):
            if part not in owner._modules:
                if depth:
                    raise ValueError(f"'{name}': {'.'.join(path[:depth])} has no '{part}'")
                return False
            owner = owner.get_submodule(part)
        if isinstance(owner._parameters.get(last, owner._buffers.get(last)), Tensor) or (
                is_parametrized(owner, last)):
            return True
        if path or last in owner._modules:
            raise ValueError(f"'{name}' is no parameter or buffer of "
                             f"{type(owner).__name__}" if path else f"'{name}' is a module")
        return False

    def forward(self, *args: Any, **named: Any) -> Any:
        values = dict(zip(self._free, args))
        if len(args) > len(self._free) or len(values) + len(named) != len(self._free) or any(
                name not in self._free or name in values for name in named):
            raise TypeError(f"forward() takes {', '.join(self._free) or 'nothing'}: "
                            f"{len(args)} were given by position, {tuple(named)} by name")
        values.update(named)
        for name in self._bound:
            owner: Any = self
            for part in name.split("."):
                owner = getattr(owner, part)
            values[name] = owner
        return self.formula(*[values[name] for name in self._inputs])

    def extra_repr(self) -> str:
        return repr(self.formula.text)
