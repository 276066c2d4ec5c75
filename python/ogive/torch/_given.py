# SPDX-License-Identifier: MIT
"""Modules that are given to a formula by name, and belong to a model.

A module that is some other module's already is read, not registered a second time: names of
parameters and state dicts are as they would be without the formula. What is nobody else's is the
formula's own. PyTorch tells of every module that gets a new place (a hook of its own), so a
formula hears of an owner that comes later, and of another module in its module's place. What
writes to an owner's _modules (PyTorch's own quantisation does) tells nobody: a call looks whether
its modules are where they were.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

if TYPE_CHECKING:
    from ._module import Formula

_owned: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_readers: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[Formula]] = (
    weakref.WeakKeyDictionary())
_parents: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[nn.Module]] = (
    weakref.WeakKeyDictionary())
_Place = tuple["weakref.ref[nn.Module]", str]
_places: weakref.WeakKeyDictionary[nn.Module, set[_Place]] = weakref.WeakKeyDictionary()


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
        _follow(formula, name, old, new)


def _follow(formula: Formula, name: str, old: nn.Module, new: nn.Module | None) -> None:
    """formula reads new, the module of that name now, where it read old; or it is refused."""
    if new is None or type(new).forward is not type(old).forward:
        what = "nothing" if new is None else (
            f"a {type(new).__name__} ({type(new).__module__}), whose forward() is another")
        raise TypeError(
            f"'{name}' is read by the formula {formula.formula.text!r} as a "
            f"{type(old).__name__} and cannot become {what}: a formula reads a module's tensors "
            "and does not call it. Replace the formula first (del or another module)")
    formula._rebind(old, new)


def _look_around() -> None:
    """Finds where modules are that formulas read, and nobody told of: in models that were loaded,
    or made before this package was imported. Looks at all objects, once for all formulas."""
    from ._module import Formula
    for module in list(_readers):
        _places.setdefault(module, set())
    for each in gc.get_objects():
        if not issubclass(type(each), nn.Module) or issubclass(type(each), Formula):
            continue
        for name, module in list(each.__dict__.get("_modules", {}).items()):
            if module is not None and module in _places:
                _places[module].add((weakref.ref(each), name))


def _is_in(module: nn.Module, place: _Place) -> bool:
    owner = place[0]()
    return owner is not None and owner._modules.get(place[1]) is module


def _get_successor(module: nn.Module, place: _Place) -> nn.Module | None:
    """The module that has taken the place of module; None if there is none."""
    owner = place[0]()
    new = None if owner is None else owner._modules.get(place[1])
    return None if new is module else new


def _stays(module: nn.Module, new: nn.Module) -> bool:
    """Whether module is somewhere else than in new, which may be a wrapper around it."""
    inside = set(new.modules())
    return any(_is_in(module, place) and place[0]() not in inside for place in _places[module])


def check_modules(formula: Formula) -> None:
    """One of the modules that formula reads that has lost its place to another is given up for
    that one, or it is refused."""
    for module in tuple(formula._shared.values()):
        if module not in _places:
            _look_around()
        for place in tuple(_places.get(module, ())):
            new = _get_successor(module, place)
            if new is None:
                continue
            if not _stays(module, new):
                _look_around()  # for places that nobody told of
            if not _stays(module, new):
                _follow(formula, place[1], module, new)
                _places.setdefault(new, set()).add(place)
                break
            _places[module].discard(place)


def note_copy(formula: Formula, twin: Formula, memo: dict[int, Any]) -> None:
    """twin is formula's copy, made by copy.deepcopy() with memo."""
    for given, module in formula._shared.items():
        for reference, name in _places.get(module, ()):
            owner = memo.get(id(reference()))
            if isinstance(owner, nn.Module):
                _places.setdefault(twin._shared[given], set()).add((weakref.ref(owner), name))


def _note(owner: nn.Module, name: str, module: nn.Module | None) -> Any:
    """Called by PyTorch before owner.name becomes module."""
    if torch.compiler.is_compiling():  # Dynamo has no words for a module that it makes itself
        return
    from ._module import Formula
    if name in owner._modules:
        _replace(owner, name, module)
    if module is None:
        return
    if isinstance(module, Formula):
        _parents.setdefault(module, weakref.WeakSet()).add(owner)
    if not isinstance(owner, Formula):
        _owned.add(module)
        _places.setdefault(module, set()).add((weakref.ref(owner), name))
        for formula in _readers.get(module, ()):
            formula._disown(module)


register_module_module_registration_hook(_note)
