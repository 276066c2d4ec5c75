# SPDX-License-Identifier: MIT
"""A graph of ATen's operators with its regions, as one flat Python function.

    def call(args):
        primals_1, primals_2, = args; args.clear()
        b0 = empty((8, 64), (64, 1), float32)
        f0(b0, primals_1, at(primals_2, (64, 16), (1, 64), 0))
        ...

Results are allocated here with the strides that the graph gives them, a view of memory whose
strides are known is no call but sizes and strides (at), and what no later line reads is let go.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from .. import _core
from ._aten import aten, is_view, joined_dim
from ._direct import GUARDED, leave_alone
from ._precision import precision
from ._regions import Analysis, Region
from ._translate import FLOATS, is_number, value_of

guards: Any = torch._C._dynamo.guards
# What is computed into memory that was allocated here, by functions that need no look at overloads.
_INTO = {aten.mm.default: torch.mm, aten.bmm.default: torch.bmm, aten.addmm.default: torch.addmm,
         aten.cat.default: torch.cat}
# What takes a third less time than the call of an overload.
_QUICK = {aten.add.Tensor: torch.add, aten.mul.Tensor: torch.mul, aten.gelu.default: torch._C._nn.gelu}
_MOST_PIECES = 4  # that a formula joins


@functools.cache
def _printer() -> Any:
    from torch.utils._sympy.printers import PythonPrinter
    return PythonPrinter()


def _fit(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)


def _is_symbol(size: Any) -> bool:
    return isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _joins_strided(cat: Node, device: str = "cuda") -> bool:
    """Whether a formula joins tensors: of one shape and dtype, on a GPU, where torch.cat copies them one
    by one, as it does with five dims, or if none is contiguous."""
    value, pieces = value_of(cat), list(map(value_of, cat.args[0]))
    return value.device.type == device and value.dtype in FLOATS and 2 <= len(pieces) <= _MOST_PIECES and (
        all(each.dtype == value.dtype and each.shape == pieces[0].shape for each in pieces)
        and (value.dim() > 4 or not any(each.is_contiguous() for each in pieces)))


def _keep(x: Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """A view of an input, kept for a gradient: unlike what `at` gives it counts writes to x, so that autograd
    finds those that come before the gradient."""
    return x.as_strided(sizes, strides, x.storage_offset() + offset)


class _Writer:
    """Lines of code, and the objects that they name."""

    def __init__(self, module: GraphModule, analysis: Analysis) -> None:
        self.module, self.analysis = module, analysis
        self.names: dict[Node, str] = {}
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {"at": guards._reinterpret_tensor, "keep": _keep, "fit": _fit}
        self.objects: dict[int, str] = {}
        self.symbols: set[str] = set()
        self.exact: set[Node] = set()  # whose strides are known to be the graph's
        self.views: dict[Node, tuple[Node, str]] = {}  # base, code
        self.bound: dict[str, Node] = {}  # names of Python variables that hold tensors
        self.placed: dict[Node, tuple[Node, str]] = {}  # what is written into a part of another

    # ---- values as code ----

    def object(self, value: Any, prefix: str = "c") -> str:
        if id(value) not in self.objects:
            name = f"{prefix}{len(self.objects)}"
            self.objects[id(value)], self.globals[name] = name, value
        return self.objects[id(value)]

    def size(self, size: Any) -> str:
        if not _is_symbol(size):
            return repr(size)
        for symbol in size.node.expr.free_symbols:
            if str(symbol) not in self.symbols:
                raise KeyError(str(symbol))
        return f"({_printer().doprint(size.node.expr)})"

    def sizes(self, sizes: Iterable[Any]) -> str:
        return "(" + "".join(f"{self.size(size)}, " for size in sizes) + ")"

    def has_sizes(self, value: Tensor) -> bool:
        """Whether the sizes and strides of value can be written down here."""
        try:
            self.sizes((*value.shape, *value.stride(), value.storage_offset()))
            return True
        except KeyError:
            return False

    def value(self, value: Any) -> str:
        """An argument as code."""
        if isinstance(value, Node):
            return self.views[value][1] if value in self.views else self.names[value]
        if isinstance(value, (tuple, list)):
            return "[" + ", ".join(map(self.value, value)) + "]"
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        return self.object(value)

    # ---- what a node becomes ----

    def find_placed(self, outputs: set[Node]) -> None:
        """Results of regions that are joined and of which nothing else is made but formulas, which
        take any strides: written where they belong."""
        inside = {node for region in self.analysis.regions for node in region.nodes
                  if node not in region.kept}
        for node in self.module.graph.nodes:
            if node.target is not aten.cat.default or outputs.isdisjoint(node.args[0]):
                continue
            value, first = value_of(node), 0
            dim = joined_dim(node)
            good = self.has_sizes(value) and len(set(node.args[0])) == len(node.args[0])
            for piece in node.args[0]:
                part = value_of(piece)
                if good and part.dim() == value.dim() and part.dtype == value.dtype and (
                        piece in outputs and piece not in self.placed) and all(
                        user in inside or user.target is aten.cat.default for user in piece.users):
                    self.placed[piece] = node, (
                        f"{self.sizes(part.shape)}, {self.sizes(value.stride())}, "
                        f"{self.size(first * value.stride(dim))}")
                first += part.shape[dim] if part.dim() == value.dim() else 0

    def place(self, piece: Node) -> str:
        """piece's part of what it is joined into."""
        whole, where = self.placed[piece]
        if whole not in self.names:
            self.allocate(whole)
        self.views[piece] = whole, f"at({self.names[whole]}, {where})"
        return self.views[piece][1]

    def join(self, node: Node) -> None:
        """The rest of what is joined."""
        value, first = value_of(node), 0
        dim = joined_dim(node)
        for piece in node.args[0]:
            part = value_of(piece)
            if self.placed.get(piece, (None,))[0] is not node:
                self.lines.append(f"{self.names[node]}.narrow({dim}, {self.size(first)}, "
                                  f"{self.size(part.shape[dim])}).copy_({self.value(piece)})")
            first += part.shape[dim]

    def join_strided(self, node: Node) -> None:
        """By a formula that copies all parts at once (dQKV of a bert-large layer on an H200: torch.cat
        takes 121 us)."""
        value, first = value_of(node), 0
        dim = joined_dim(node)
        self.allocate(node)
        names, outs = [f"x{i}" for i in range(len(node.args[0]))], []
        for piece in node.args[0]:
            part = value_of(piece)
            outs.append(f"at({self.names[node]}, {self.sizes(part.shape)}, "
                        f"{self.sizes(value.stride())}, {self.size(first * value.stride(dim))})")
            first += part.shape[dim]
        copy = self.object(_core.compile(", ".join(names))._into, "f_copy")
        self.lines.append(f"{copy}(({', '.join(outs)}), {', '.join(map(self.value, node.args[0]))})")

    def allocate(self, node: Node) -> str:
        if node in self.placed:
            return self.place(node)
        value, name = value_of(node), self.name(node)
        device = value.device.type
        fast = getattr(guards, f"_empty_strided_{device}", None)
        sizes, dtype = f"{self.sizes(value.shape)}, {self.sizes(value.stride())}", self.object(value.dtype)
        if fast is not None and (device == "cpu" or value.device.index == torch.cuda.current_device()):
            self.lines.append(f"{name} = {self.object(fast, f'empty_{device}_')}({sizes}, {dtype})")
        else:
            self.lines.append(f"{name} = {self.object(torch.empty_strided)}({sizes}, dtype={dtype}, "
                              f"device={self.object(value.device)})")
        self.exact.add(node)
        return name

    def name(self, node: Node) -> str:
        self.names[node] = name = f"b{len(self.names)}"
        self.bound[name] = node
        return name

    def number(self, node: Node, region: Region) -> str:
        """A number as a tensor, which a formula takes beside tensors of any device."""
        values = [value_of(each) for each in region.inputs]
        wide = any(isinstance(each, Tensor) and each.dtype == torch.float64 for each in values)
        dtype = torch.float64 if wide else torch.float32
        device = value_of(region.outputs[0]).device
        return (f"{self.object(torch.full)}((), {self.names[node]}, dtype={self.object(dtype)}, "
                f"device={self.object(device)})")

    def region(self, region: Region, index: int) -> None:
        formula = _core.compile(region.text, precision())
        inputs = "".join(f", {self.number(node, region) if is_number(node) else self.value(node)}"
                         for node in region.inputs)
        if all(self.has_sizes(value_of(node)) for node in region.outputs):
            outs = [self.allocate(node) for node in region.outputs]
            out = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
            self.globals[f"f{index}"] = formula._into
            self.lines.append(f"f{index}({out}{inputs})")
        else:  # sizes that depend on the data: contiguous results
            names = ", ".join(self.name(node) for node in region.outputs)
            self.globals[f"f{index}"] = formula._straight
            self.lines.append(f"{names} = f{index}({inputs[2:]})")

    def fit(self, node: Node) -> bool:
        """Sees to it that the strides of what node gave are the graph's; False: it cannot."""
        if node not in self.exact and self.has_sizes(value_of(node)):
            name, strides = self.names[node], self.sizes(value_of(node).stride())
            self.lines.append(f"if {name}.stride() != {strides}: {name} = fit({name}, {strides})")
            self.exact.add(node)
        return node in self.exact

    def is_shared(self, node: Node, root: Node) -> bool:
        """Whether node is a result and has to be a tensor of its own: its memory is an input's, or
        something else returns it, too."""
        if not any(user.op == "output" for user in node.users):
            return False
        results = [each for user in node.users if user.op == "output" for each in user.args[0]
                   if isinstance(each, Node)]
        pending, family = [root], {root}
        for each in pending:
            pending += [user for user in each.users if is_view(user) and user not in family]
            family.update(pending)
        return root.op != "call_function" or sum(each in family for each in results) > 1

    def view(self, node: Node) -> None:
        """Memory of another node, with other sizes and strides."""
        base: Any = node.args[0]
        root, value = self.views[base][0] if base in self.views else base, value_of(node)
        if not self.has_sizes(value) or not self.fit(root):
            self.call(node)
            return
        whole = value_of(root)
        if not self.is_shared(node, root) and value.stride() == whole.stride() and (
                tuple(value.shape) == tuple(whole.shape)
                and value.storage_offset() == whole.storage_offset()):
            code = self.names[root]
        else:
            offset = self.size(value.storage_offset() - whole.storage_offset())
            kept = root.op == "placeholder" and any(user.op == "output" for user in node.users)
            code = (f"{'keep' if kept else 'at'}({self.names[root]}, {self.sizes(value.shape)}, "
                    f"{self.sizes(value.stride())}, {offset})")
        self.views[node] = root, code

    def call(self, node: Node) -> None:
        target: Any = node.target
        if target is aten.cat.default and _joins_strided(node) and self.has_sizes(value_of(node)):
            self.join_strided(node)
            return
        named = [f"{key}={self.value(value)}" for key, value in node.kwargs.items()]
        arguments = [*map(self.value, node.args), *named]
        if target in _INTO and self.has_sizes(value_of(node)) and not named:
            function = self.object(_INTO[target])
            if value_of(node).is_contiguous() and target is not aten.cat.default:
                self.lines.append(f"{self.name(node)} = {function}({', '.join(arguments)})")
                self.exact.add(node)
                return
            out = self.allocate(node)
            self.lines.append(f"{function}({', '.join(arguments)}, out={out})")
            return
        if target is operator.getitem and isinstance(node.args[1], int):
            code = f"{self.value(node.args[0])}[{node.args[1]}]"
        else:
            quick = _QUICK.get(target) or getattr(target, "_op", target)
            code = f"{self.object(quick, 'o')}({', '.join(arguments)})"
        self.lines.append(f"{self.name(node)} = {code}")
        if target is aten.clone.default:  # which may stand for a copy into other strides
            self.fit(node)

    def placeholders(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.names[node] = node.name
            self.bound[node.name] = node
            if self.module.meta.get(GUARDED) and node.name.startswith(("primals", "arg")):
                self.exact.add(node)
        self.lines.append("".join(f"{node.name}, " for node in nodes) + "= args" if nodes else "pass")
        self.lines.append("args.clear()")
        for node in nodes:
            value = value_of(node)
            if _is_symbol(value):
                self.bind(value, node.name)
        for node in nodes:
            value = value_of(node)
            for i, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
                self.bind(size, f"{node.name}.size({i})")

    def bind(self, size: Any, code: str) -> None:
        """A symbol's value, where it is first seen."""
        if _is_symbol(size) and size.node.expr.is_symbol and str(size.node.expr) not in self.symbols:
            self.symbols.add(str(size.node.expr))
            self.lines.append(f"{size.node.expr} = {code}")

    # ---- the whole ----

    def units(self) -> list[Any]:
        return [unit for unit in self.analysis.order()
                if isinstance(unit, Region) or unit.op not in ("placeholder", "output")]

    def write(self) -> None:
        nodes = list(self.module.graph.nodes)
        self.placeholders([node for node in nodes if node.op == "placeholder"])
        self.find_placed({node for region in self.analysis.regions for node in region.outputs})
        for index, unit in enumerate(self.units()):
            first = len(self.lines)
            if isinstance(unit, Region):
                self.region(unit, index)
            elif unit.op == "get_attr":
                self.names[unit] = self.object(getattr(self.module, unit.target))
            elif unit in self.names:  # some of what it joins is there
                self.join(unit)
            elif is_view(unit) and isinstance(unit.args[0], Node):
                self.view(unit)
            else:
                self.call(unit)
            self.lines[first:] = ["\n".join(self.lines[first:])] if self.lines[first:] else []
        output = next(node for node in nodes if node.op == "output")
        self.lines.append(f"return {self.value(output.args[0])}")

    def let_go(self) -> None:
        """Names are deleted behind the last line that has them."""
        last: dict[str, int] = {}
        for i, line in enumerate(self.lines):
            for word in _words(line):
                if word in self.bound:
                    last[word] = i
        done: dict[int, list[str]] = {}
        for name, i in last.items():
            if 1 < i < len(self.lines) - 1:
                done.setdefault(i, []).append(name)
        for i, names in done.items():
            self.lines[i] += f"\ndel {', '.join(names)}"

    def text(self) -> str:
        return "def call(args):\n    " + "\n".join(self.lines).replace("\n", "\n    ") + "\n"


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def write(module: GraphModule, analysis: Analysis) -> Callable[[list[Any]], Any]:
    """The function of a list of arguments, which it empties, that module is."""
    writer = _Writer(module, analysis)
    writer.write()
    writer.let_go()
    text = writer.text()
    exec(compile(text, "<ogive>", "exec"), writer.globals)
    call: Any = writer.globals["call"]
    leave_alone(call)
    call.text, call._boxed_call = text, True
    return call  # type: ignore[no-any-return]
