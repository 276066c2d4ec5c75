# SPDX-License-Identifier: MIT
"""ogive.torch.Formula: binding, sharing, dotted names, state dicts, copies."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn

import ogive
import ogive.torch as ot

TEXT = "z = linear(x, fc.weight, fc.bias); z + 2.0 * sigmoid(z)"


@pytest.fixture
def x(data):
    return data(4, 3)


def reference(fc, x):
    z = fc(x)
    return z + 2.0 * torch.sigmoid(z)


def test_bound_modules_are_shared(x):
    fc = nn.Linear(3, 5, device=x.device)
    tail = ot.Formula(TEXT, fc=fc)
    assert tail.fc is fc and list(tail.state_dict()) == ["fc.weight", "fc.bias"]
    torch.testing.assert_close(tail(x), reference(fc, x))
    torch.testing.assert_close(tail(x=x), reference(fc, x))
    with torch.no_grad():
        fc.bias += 1
    torch.testing.assert_close(tail(x), reference(fc, x))
    assert "linear(x, fc.weight" in repr(tail)


def test_parameters_buffers_and_nested_modules(x):
    scale, shift = nn.Parameter(torch.rand(3, device=x.device)), torch.rand(3, device=x.device)
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)).to(x.device)
    formula = ot.Formula("linear(relu(linear(x * scale, net.0.weight, net.0.bias)), net.2.weight)"
                         " + shift", scale=scale, shift=shift, net=net)
    assert dict(formula.named_parameters())["scale"] is scale
    assert dict(formula.named_buffers())["shift"] is shift
    want = nn.functional.linear(torch.relu(net[0](x * scale)), net[2].weight) + shift
    torch.testing.assert_close(formula(x), want)
    formula.double()
    assert formula(x.double()).dtype == torch.float64


def test_parametrized_modules(x):
    """Their weight is computed when it is read, whenever they became so."""
    fc = nn.Linear(3, 5).to(x.device)
    before = ot.Formula(TEXT, fc=fc)
    nn.utils.parametrizations.weight_norm(fc)
    for tail in (before, ot.Formula(TEXT, fc=fc)):
        with torch.no_grad():
            fc.parametrizations.weight.original0.mul_(2)
        torch.testing.assert_close(tail(x), reference(fc, x))
        tail(x).sum().backward()
    assert fc.parametrizations.weight.original1.grad is not None


def test_dotted_names_by_themselves(x):
    formula = ot.Formula("linear(x, layers.0.weight, layers.0.bias)", **{
        "layers.0.weight": nn.Parameter(torch.rand(5, 3)), "layers.0.bias": torch.rand(5)}).to(x.device)
    assert list(formula.state_dict()) == ["layers.0.weight", "layers.0.bias"]
    assert formula(x).shape == (4, 5)


def test_free_inputs_in_order_of_appearance(x):
    formula = ot.Formula("a * w - b", w=torch.ones(3, device=x.device))
    torch.testing.assert_close(formula(x, 2.0), x - 2)
    torch.testing.assert_close(formula(b=x, a=2 * x), x)
    torch.testing.assert_close(formula(x, b=x), x * 0)
    for call in (lambda: formula(x), lambda: formula(x, x, x), lambda: formula(x, a=x),
                 lambda: formula(x, c=x), lambda: formula(x, w=x)):
        with pytest.raises(TypeError, match="forward"):
            call()


def test_several_results_and_precision(x):
    formula = ot.Formula("x * w, x + w", precision="strict", w=torch.ones(3, device=x.device))
    assert formula.formula.precision == "strict" and len(formula(x)) == 2


@pytest.mark.parametrize("named, exception, message", [
    ({"v": torch.ones(3)}, ValueError, "no input 'v'"),
    ({"fc": nn.ReLU()}, ValueError, "'fc.weight' is no parameter or buffer of ReLU"),
    ({"fc": nn.Linear(3, 5, bias=False)}, ValueError, "'fc.bias' is no parameter"),
    ({"x": nn.Linear(3, 5), "fc": nn.Linear(3, 5)}, ValueError, "'x' is a module"),
    ({"fc": 3.0}, TypeError, "'fc' is a float"),
    ({"fc": nn.Linear(3, 5), "fc.weight": torch.ones(5, 3)}, ValueError, "Linear has .* 'weight'"),
    ({"fc": nn.Linear(3, 5), "forward": torch.ones(3)}, ValueError, "Formula has .* 'forward'"),
    ({"fc": nn.Linear(3, 5), "formula": torch.ones(3)}, ValueError, "Formula has .* 'formula'"),
    ({"fc": nn.Linear(3, 5), "_inputs": torch.ones(3)}, ValueError, "Formula has .* '_inputs'"),
])
def test_wrong_bindings(named, exception, message):
    with pytest.raises(exception, match=message):
        ot.Formula(TEXT, **named)


def test_wrong_text():
    with pytest.raises(ogive.FormulaError):
        ot.Formula("sigmod(x)")


def test_state_dict_deepcopy_pickle(x):
    tail = ot.Formula(TEXT, fc=nn.Linear(3, 5)).to(x.device)
    want = tail(x)
    other = ot.Formula(TEXT, fc=nn.Linear(3, 5)).to(x.device)
    other.load_state_dict(tail.state_dict())
    twin = copy.deepcopy(tail)
    assert twin.fc.weight is not tail.fc.weight
    file = io.BytesIO()
    torch.save(tail, file)
    file.seek(0)
    for again in (other, twin, pickle.loads(pickle.dumps(tail)),
                  torch.load(file, weights_only=False)):
        assert torch.equal(again(x), want)


def test_an_input_called_text(x):
    torch.testing.assert_close(ot.Formula("x + text", text=x)(x), x + x)
    with pytest.raises(ValueError, match="expected 'float32', 'strict' or 'tf32'"):
        ot.Formula("x + precision", precision=x)


def test_hooks_and_containers(x):
    seen = []
    model = nn.Sequential(nn.Linear(3, 3), ot.Formula("softmax(x * s, 1)", s=torch.tensor(2.0)))
    model.to(x.device)
    model[1].register_forward_hook(lambda module, args, result: seen.append(result.shape))
    assert model(x).shape == (4, 3) and seen == [(4, 3)]
    model.eval().requires_grad_(False)
    with torch.no_grad():
        torch.testing.assert_close(model(x), torch.softmax(model[0](x) * 2, 1))


# ---- modules of a model -----------------------------------------------------------------


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(3)
        self.fc = nn.Linear(3, 5)

    def forward(self, x):
        return reference(self.fc, x)


class WithFormula(Plain):
    """The formula comes after what it reads, or before."""

    def __init__(self, first=False):
        super().__init__()
        if first:
            fc = self.fc
            del self.fc
            self.tail = ot.Formula(TEXT, fc=nn.Linear(3, 5))
            self.fc = self.tail.fc
            assert fc is not self.fc
        else:
            self.tail = ot.Formula(TEXT, fc=self.fc)

    def forward(self, x):
        return self.tail(x)


@pytest.mark.parametrize("first", [False, True])
def test_a_models_state_is_as_without_the_formula(first, x):
    plain, model = Plain().to(x.device), WithFormula(first).to(x.device)
    assert sorted(model.state_dict()) == sorted(plain.state_dict())
    assert {name for name, _ in model.named_parameters(remove_duplicate=False)} == {
        name for name, _ in plain.named_parameters()}
    model.load_state_dict(plain.state_dict())
    torch.testing.assert_close(model(x), plain(x))
    other = Plain().to(x.device)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(x), plain(x))
    twin = copy.deepcopy(model)
    assert twin.tail.fc is twin.fc and twin.fc is not model.fc
    again = pickle.loads(pickle.dumps(model))
    assert again.tail.fc is again.fc and sorted(again.state_dict()) == sorted(plain.state_dict())
    model.double()
    assert model(x.double()).dtype == torch.float64
    called = torch.func.functional_call(plain, dict(model.named_parameters()), x.double())
    torch.testing.assert_close(model(x.double()), called)


def test_a_model_made_before_the_package_was_imported(x):
    import subprocess
    import sys
    code = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(3, 5))
keys = list(model.state_dict())
import ogive.torch as ot
model.append(ot.Formula("x * fc.bias", fc=model[0]))
assert list(model.state_dict()) == keys, model.state_dict()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("first", [False, True])
def test_another_module_in_its_place_is_followed(first, x):
    model = WithFormula(first).to(x.device)
    model.fc = other = nn.Linear(3, 7).to(x.device)
    torch.testing.assert_close(model(x), reference(other, x))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied.fc = nn.Linear(3, 2).to(x.device)
        torch.testing.assert_close(copied(x), reference(copied.fc, x))
    torch.testing.assert_close(model(x), reference(other, x))


class Adapted(nn.Module):
    """As LoRA has it: the weight is there, and is not all."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x):
        return self.base(x) + 1


@pytest.mark.parametrize("first", [False, True])
def test_a_module_that_computes_something_else_is_refused(first, x):
    model = WithFormula(first).to(x.device)
    before, fc = model(x), model.fc
    for other in (Adapted(fc), nn.Bilinear(3, 3, 5), None):
        with pytest.raises(TypeError, match="'fc' is read by the formula"):
            model.fc = other
    with pytest.raises(ValueError, match="'fc.bias' is no parameter"):
        model.fc = nn.Linear(3, 5, bias=False)
    assert model.fc is fc and torch.equal(model(x), before)
    del model.tail
    model.fc = Adapted(fc)


@pytest.mark.parametrize("copied", [False, True])
def test_a_module_is_replaced_behind_pytorchs_back(copied, x):
    """By writing to _modules, as PyTorch's quantisation does."""
    model = WithFormula().to(x.device)
    if copied:
        model = copy.deepcopy(model)
    model._modules["fc"] = other = nn.Linear(3, 7).to(x.device)
    torch.testing.assert_close(model(x), reference(other, x))
    model._modules["fc"] = Adapted(other)
    for _ in range(2):  # and stays refused
        with pytest.raises(TypeError, match="'fc' is read by the formula .* a Adapted"):
            model(x)
    model._modules["fc"] = other
    torch.testing.assert_close(model(x), reference(other, x))
    model.same, model._modules["fc"] = other, Adapted(other)  # which has it elsewhere
    torch.testing.assert_close(model(x), reference(other, x))


def test_a_compiled_function_makes_modules(x):
    def function(x):
        return nn.Sequential(nn.ReLU(), nn.Tanh())(x) + 1

    compiled = torch.compile(function, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))


def test_another_models_modules_are_its_own_matter(x):
    teacher, student = Plain().to(x.device), nn.Module()
    student.fc = teacher.fc
    student.tail = ot.Formula(TEXT, fc=student.fc)
    teacher.fc = Adapted(teacher.fc)
    torch.testing.assert_close(student.tail(x), reference(student.fc, x))


def test_names_that_tensors_have_as_attributes(x):
    stats = nn.Module()
    stats.register_buffer("mean", x.mean(0))
    torch.testing.assert_close(ot.Formula("x - stats.mean", stats=stats)(x), x - x.mean(0))
    formula = ot.Formula("x.mean + y")
    with pytest.raises(TypeError, match="'x.mean' is given by position: .* write mean"):
        formula(x, x)
    with pytest.raises(Exception, match="'x.mean' is given by position: .* write mean"):
        torch.compile(ogive.compile("x.mean + y"), backend="eager", fullgraph=True)(x, x)
    torch.testing.assert_close(formula(y=x, **{"x.mean": x}), x + x)


@pytest.mark.parametrize("strict", [False, True])
def test_inputs_names_in_an_exported_program(strict):
    fc = nn.Linear(3, 4)
    formula = ot.Formula("gelu(linear(x, fc.weight, fc.bias)) * scale", fc=fc)
    assert list(inspect.signature(formula.forward).parameters) == ["x", "scale"]
    x, scale = torch.randn(5, 3), torch.randn(4)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(formula, (x, scale), strict=strict,
                                  dynamic_shapes={"x": {0: rows}, "scale": None})
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert names[-2:] == ["x", "scale"]
    torch.testing.assert_close(program.module()(x[:3], scale), formula(x[:3], scale))
    for other in (copy.deepcopy(formula), pickle.loads(pickle.dumps(formula))):
        assert type(other) is type(formula) and isinstance(other, ot.Formula)
        assert other.fc.weight is not fc.weight and torch.equal(other(x, scale), formula(x, scale))
    with pytest.raises(TypeError, match=r"forward\(\) takes x, scale: 1 were given"):
        formula(x)
