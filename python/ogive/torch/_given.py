# SPDX-License-Identifier: MIT
"""Modules that are given to a formula by name, and belong to a model.

A module that is some other module's already is read, not registered a second time: names of
parameters and state dicts are as they would be without the formula. What is nobody else's is the
formula's own. PyTorch tells of every module that gets a new place (a hook of its own), so a
formula hears of an owner that comes later, and of another module in its module's place.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

if TYPE_CHECKING:
    from ._module import Formula

_owned: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_readers: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[Formula]] = (
    weakref.WeakKeyDictionary())
_parents: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[nn.Module]] = (
    weakref.WeakKeyDictionary())


def is_owned(module: nn.Module) -> bool:
    """Whether a module other than a formula has it. Of models that were made before this package
    was imported only the garbage collector knows."""
    if module not in _owned and any(
            isinstance(owner, nn.Module) and owner._modules is place
            or isinstance(owner, dict) and owner.get("_modules") is place
            for place in gc.get_referrers(module) if type(place) is dict
            for owner in gc.get_referrers(place)):
        _owned.add(module)
    return module in _owned


def add_reader(module: nn.Module, formula: Formula) -> None:
    _readers.setdefault(module, weakref.WeakSet()).add(formula)


def _is_elsewhere(module: nn.Module, formula: Formula, owner: nn.Module, name: str) -> bool:
    """Whether the model around formula has module in another place than owner.name."""
    for parent in _parents.get(formula, ()):
        for other in parent.modules():
            if any(each is module and not (other is owner and key == name)
                   for key, each in other._modules.items() if other is not formula):
                return True
    return False


def _replace(owner: nn.Module, name: str, new: nn.Module | None) -> None:
    """owner.name becomes new: formulas that read what it was read new, or it is refused."""
    old = owner._modules.get(name)
    if old is None or old is new or owner in _readers.get(old, ()):
        return
    for formula in tuple(_readers.get(old, ())):
        if _is_elsewhere(old, formula, owner, name):
            continue
        if new is None or type(new).forward is not type(old).forward:
            what = "nothing" if new is None else f"a {type(new).__name__}, whose forward() is another"
            raise TypeError(
                f"'{name}' is read by the formula {formula.formula.text!r} as a "
                f"{type(old).__name__} and cannot become {what}: a formula reads a module's tensors "
                "and does not call it. Replace the formula first (del or another module)")
        formula._rebind(old, new)


def _note(owner: nn.Module, name: str, module: nn.Module | None) -> Any:
    """Called by PyTorch before owner.name becomes module."""
    from ._module import Formula
    if name in owner._modules:
        _replace(owner, name, module)
    if module is None:
        return
    if isinstance(module, Formula):
        _parents.setdefault(module, weakref.WeakSet()).add(owner)
    if not isinstance(owner, Formula):
        _owned.add(module)
        for formula in _readers.get(module, ()):
            formula._disown(module)


register_module_module_registration_hook(_note)
