# SPDX-License-Identifier: MIT
"""A formula as an nn.Module."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .. import _core
from . import _precision
from ._fsdp import call_inside, sharded_module_type
from ._given import add_reader, check_modules, is_owned, note_copy
from ._operator import attributes_among


class Formula(nn.Module):
    """A formula some of whose inputs are bound by name.

        Formula("z = linear(x, fc.weight, fc.bias); z + 2.0 * sigmoid(z)", fc=model.fc)

    What is given by name, an nn.Module, nn.Parameter or tensor, is shared, not copied, and
    registered under its name, but for a module that another module has: that one stays its
    owner's, and state dicts are as without the formula. Dotted names of the formula reach into it.
    forward() takes the inputs that are left, in order of first appearance, or by name. Of a
    module its tensors are read; its forward() and its hooks are not called, but for those by which
    FSDP2 gathers its parameters. Where the owner gets
    another module in its place, the formula reads that one, or it is refused. precision, if not
    given, is what set_precision() says now.
    """

    _shared: dict[str, nn.Module]  # those of other modules, by their dotted names here

    def __init__(self, text: str, /, *, precision: str | None = None,
                 **named: nn.Module | Tensor | None) -> None:
        super().__init__()
        self.formula = _core.compile(
            text, _precision.precision() if precision is None else precision)
        self._inputs = self.formula.inputs  # of a formula Dynamo sees only the call
        self._bound = self._free = tuple[str, ...]()
        self._shared = {}
        for name, value in named.items():
            self._bind(name, value)
        self._bound = tuple(name for name in self._inputs if self._reaches(name))
        self._free = tuple(name for name in self._inputs if name not in self._bound)
        self._attributes = attributes_among(self._free)
        self._name_inputs()
        for name in named:
            if not any(bound == name or bound.startswith(name + ".") for bound in self._bound):
                raise ValueError(f"the formula has no input '{name}': its inputs are "
                                 f"{', '.join(self._inputs)}")

    def _name_inputs(self) -> None:
        """torch.export asks the signature of forward() what the inputs are called."""
        if type(self) is Formula and all(map(str.isidentifier, self._free)):
            self.__class__ = _class_with(self._free)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if "_names" not in vars(type(self)):
            return super().__reduce_ex__(protocol)
        return _blank, (), self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Formula:
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__dict__, memo))
        note_copy(self, twin, memo)
        return twin

    def _bind(self, name: str, value: Any) -> None:
        if isinstance(value, nn.Module) and is_owned(value):
            self._check_place(self, name.partition(".")[0], name)
            self._shared[name] = value
            add_reader(value, self)
            return
        *path, last = name.split(".")
        owner: nn.Module = self
        for part in path:
            if part not in owner._modules:
                self._check_place(owner, part, name)
                owner.register_module(part, nn.Module())
            owner = owner.get_submodule(part)
        self._check_place(owner, last, name)
        if isinstance(value, nn.Module):
            owner.register_module(last, value)
            add_reader(value, self)
        elif isinstance(value, nn.Parameter):
            owner.register_parameter(last, value)
        elif isinstance(value, Tensor):
            owner.register_buffer(last, value)
        else:
            raise TypeError(f"'{name}' is a {type(value).__name__}: expected an nn.Module, "
                            "an nn.Parameter or a tensor")

    def _check_place(self, owner: nn.Module, part: str, name: str) -> None:
        if hasattr(owner, part) or owner is self and part in self._shared:
            raise ValueError(f"'{name}' cannot be bound: {type(owner).__name__} has an attribute "
                             f"'{part}' already")

    def _rebind(self, old: nn.Module, new: nn.Module) -> None:
        """What was read of a module is read of the one that takes its place."""
        before = dict(self._shared)
        self._shared.update({name: new for name, module in before.items() if module is old})
        try:
            for name in self._bound:
                self._reaches(name)
        except ValueError:
            self._shared = before
            raise
        add_reader(new, self)

    def _disown(self, module: nn.Module) -> None:
        """A module that was the formula's own has got an owner."""
        for name, each in list(self._modules.items()):
            if each is module:
                del self._modules[name]
                self._shared[name] = module

    def __getattr__(self, name: str) -> Any:
        shared = self.__dict__.get("_shared", {})
        return shared[name] if name in shared else super().__getattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._name_inputs()
        for module in (*self._shared.values(), *self._modules.values()):
            if module is not None:
                add_reader(module, self)

    def _start(self, name: str) -> tuple[Any, list[str]]:
        """Where the way to an input begins, and what is left of its name."""
        for given, module in self._shared.items():
            if name.startswith(given + "."):
                return module, name[len(given) + 1:].split(".")
        return self, name.split(".")

    def _reaches(self, name: str) -> bool:
        """Whether name leads to a tensor that is bound; raises if only part of it does."""
        if name in self._shared:
            raise ValueError(f"'{name}' is a module")
        owner, (*path, last) = self._start(name)
        inside = owner is not self
        for depth, part in enumerate(path):
            if part not in owner._modules:
                if depth or inside:
                    before = ".".join(name.split(".")[:-len(path) - 1 + depth])
                    raise ValueError(f"'{name}': {before} has no '{part}'")
                return False
            owner = owner.get_submodule(part)
        if isinstance(owner._parameters.get(last, owner._buffers.get(last)), Tensor) or (
                is_parametrized(owner, last)):
            return True
        if path or inside or last in owner._modules:
            raise ValueError(f"'{name}' is no parameter or buffer of {type(owner).__name__}"
                             if path or inside else f"'{name}' is a module")
        return False

    def forward(self, *args: Any, **named: Any) -> Any:
        values = dict(zip(self._free, args))
        if len(args) > len(self._free) or len(values) + len(named) != len(self._free) or any(
                name not in self._free or name in values for name in named):
            raise TypeError(f"forward() takes {', '.join(self._free) or 'nothing'}: "
                            f"{len(args)} were given by position, {tuple(named)} by name")
        if self._attributes:
            self._check_places(len(args))
        if self._shared and not torch.compiler.is_compiling():
            check_modules(self)
        values.update(named)
        sharded = self._sharded_modules()
        return call_inside(sharded, self._compute, values) if sharded else self._compute(values)

    def _compute(self, values: dict[str, Any]) -> Any:
        """The formula of values, those of the inputs that are left, and what is bound."""
        for name in self._bound:
            owner, parts = self._start(name)
            for part in parts:
                owner = getattr(owner, part)
            values[name] = owner
        return self.formula(**values)

    def _sharded_modules(self) -> list[nn.Module]:
        """Modules on the way to what is bound whose parameters FSDP2 gathers for their forward
        alone, each once."""
        kind = sharded_module_type()
        if kind is None:
            return []
        found: list[nn.Module] = []
        for name in self._bound:
            owner, parts = self._start(name)
            for part in ("", *parts[:-1]):
                owner = getattr(owner, part) if part else owner
                if owner is not self and isinstance(owner, kind) and owner not in found:
                    found.append(owner)
        return found

    def _check_places(self, count: int) -> None:
        for name, message in self._attributes.items():
            if name in self._free[:count]:
                raise TypeError(message)

    def extra_repr(self) -> str:
        return repr(self.formula.text)


def _blank() -> Formula:
    """For pickle and copy, which then fill it."""
    return Formula.__new__(Formula)


@functools.cache
def _class_with(names: tuple[str, ...]) -> type[Formula]:
    """Formula, but with these names as forward()'s parameters."""
    general: Any = Formula.forward
    forward = types.FunctionType(general.__code__, general.__globals__, "forward")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in ("self", *names)])
    return type("Formula", (Formula,), {"forward": forward, "_names": names, "__doc__": Formula.__doc__,
                                        "__module__": Formula.__module__})
