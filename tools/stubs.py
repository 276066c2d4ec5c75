#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""python/ogive/torch/_functions.pyi, made of the library's table of functions.

    ogive functions --json | tools/stubs.py > python/ogive/torch/_functions.pyi

scripts/derive runs it, and a test of the package compares the file with what it prints.
"""
import json
import sys
import textwrap

HEAD = "from collections.abc import Sequence\n\nfrom torch import Tensor, dtype as _dtype\n\n"
# As in _functions.py: what it leaves out, and what it adds.
LEFT_OUT = ("cast", "view")
WITH_DTYPE = ("sum", "mean", "softmax", "softmin", "log_softmax")
TENSORS = ("input", "other", "weight", "bias", "condition", "target", "pos_weight", "anchor",
           "positive", "negative", "x", "x1", "x2", "mat1", "mat2", "running_mean", "running_var")
VALUES = ("exponent", "min", "max")  # tensors or numbers
OF_TWO = ("max", "min")  # their dim may be the other tensor
PAIRS = ("var_mean", "std_mean")
WITH_UNBIASED = ("var", "std", *PAIRS)
STEPS = ("kernel_size", "stride", "padding", "dilation", "output_padding",  # of windows
         "output_size")
WITH_WORDS = ("conv1d", "conv2d", "conv3d")  # padding may be 'same'
DIMS = "int | Sequence[int]"


def type_of(name, function, group, default):
    """The annotation of a parameter."""
    if name in TENSORS:
        number = name == "other" and group in ("arithmetic", "comparison") \
            and not function.startswith("logical") or name != "condition" and function == "where" or function == "pow"
        of = "Tensor | float" if number else "Tensor"
    elif name in VALUES:
        of = "Tensor | float"
    elif name in ("dim", "normalized_shape"):
        of = "int" if group in ("normalisation", "distance") and name == "dim" else DIMS
        of += " | Tensor" if function in OF_TWO else ""
    elif name in STEPS:
        of = DIMS + (" | str" if name == "padding" and function in WITH_WORDS else "")
    elif name in ("groups", "num_groups"):
        of = "int"
    elif name == "p" and function == "norm":
        of = "float | str"
    elif default in ("True", "False"):
        of = "bool"
    else:
        of = "str" if default and default[0] == "'" else "float"
    if function in WITH_UNBIASED and name == "dim":
        of += " | bool"
    return of + (" | None" if default == "None" else "") + (" = ..." if default else "")


def stub(name, signature, group):
    """A function's line, broken where it is long."""
    if name in WITH_UNBIASED:  # PyTorch's older signature, by place
        signature = signature.replace(", *, correction=1.0, keepdim=False",
                                      ", unbiased=False, keepdim=False, *, correction=1.0")
    if "*" not in signature:
        signature += ", *"
    parts = []
    for each in signature.split(", "):
        parameter, _, default = each.partition("=")
        kind = type_of(parameter, name, group, default)
        if parameter == "unbiased":
            kind = "bool | None = ..."
        parts.append(each if each == "*" else f"{parameter}: {kind}")
    if name in WITH_DTYPE:
        parts.append("dtype: _dtype | None = ...")
    parts.append("out: Tensor | None = ...")
    start = f"def {name}("
    # A parameter is not broken: its blanks are hidden from textwrap.
    text = " ".join(part.replace(" ", "\0") + "," for part in parts).removesuffix(",")
    result = "tuple[Tensor, Tensor]" if name in PAIRS else "Tensor"
    result = result.replace(" ", "\0")
    text = textwrap.fill(f"{text})\0->\0{result}:\0...", 100 - len(start), break_long_words=False,
                         break_on_hyphens=False)
    return start + text.replace("\n", "\n" + " " * len(start)).replace("\0", " ") + "\n"


def stubs(functions):
    """functions: (name, signature, group) of each."""
    listed = [row for row in functions if row[2] not in LEFT_OUT]
    names = textwrap.fill(", ".join(f'"{row[0]}"' for row in listed) + "]", 89,
                          break_on_hyphens=False).replace("\n", "\n" + " " * 11)
    return HEAD + f"__all__ = [{names}\n\n" + "".join(stub(*row) for row in listed)


if __name__ == "__main__":
    table = [(row["name"], row["signature"], row["group"]) for row in json.load(sys.stdin)]
    sys.stdout.write(stubs(table))
