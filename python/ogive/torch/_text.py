# SPDX-License-Identifier: MIT
"""Python values as formula text; formulas read and written with Python's own grammar, of
which theirs is a part once dotted names and Python's keywords have stand-ins."""

from __future__ import annotations

import ast
import dataclasses
import keyword
import operator
import re
from typing import Any

from torch import Tensor

_WORDS = re.compile(r"""(?P<string>'[^']*'|"[^"]*")|(?P<comment>\#[^\n]*)
                        |(?P<name>[A-Za-z_]\w*(?:\.(?:[A-Za-z_]\w*|\d+))*)""", re.X)


@dataclasses.dataclass
class Program:
    """name = expression; ...; result, ..."""
    bindings: list[tuple[str, ast.expr]]
    results: list[ast.expr]
    stand_ins: dict[str, str]  # by what they stand for

    def text(self) -> str:
        written = "; ".join([*(f"{name} = {ast.unparse(value)}" for name, value in self.bindings),
                             ", ".join([ast.unparse(result) for result in self.results])])
        for word, stand_in in self.stand_ins.items():
            written = written.replace(stand_in, word)
        return written


def read(text: str) -> Program:
    """Raises SyntaxError or RecursionError where Python's grammar gives up."""
    stand_ins: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        word = match.group()
        if match["comment"]:
            return ""
        if match["string"] or word in ("None", "True", "False") or (
                "." not in word and not keyword.iskeyword(word)):
            return word
        name = re.sub(r"(\.m?T)+$", "", word)  # which are no part of a name
        if name != word and "." not in name and not keyword.iskeyword(name):
            return word
        return stand_ins.setdefault(name, f"ogive_stand_in_{len(stand_ins)}_") + word[len(name):]

    *statements, last = ast.parse(_WORDS.sub(replace, text).replace("\n", " ").strip()).body
    bindings = [(statement.targets[0].id, statement.value) for statement in statements
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)]
    if not isinstance(last, ast.Expr) or len(bindings) < len(statements):
        raise SyntaxError("no formula")
    results = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return Program(bindings, results, stand_ins)


def literal(name: str, value: Any) -> str:
    """A Python value as formula text."""
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join([literal(name, item) for item in value]) + "]"
    if value is None or type(value) in (bool, int, float, str):
        return repr(value)
    if not isinstance(value, Tensor):
        if hasattr(value, "__index__"):  # NumPy's numbers, whose repr() is another
            return repr(operator.index(value))
        if hasattr(value, "__float__"):
            return repr(float(value))
    raise TypeError(f"{name} is a {type(value).__name__}: expected a number")
