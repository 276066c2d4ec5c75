# SPDX-License-Identifier: MIT
"""torch.compile(model, backend="ogive"): tensors that share memory, and what is written to them.
A program's results, its inputs and buffers afterwards, which of these share memory, and gradients
are what they are eagerly."""

import pytest
import torch
import torch.nn.functional as F

import ogive.torch as ot


@pytest.fixture(params=["torch", "aten"])
def level(request):
    torch._dynamo.reset()
    yield request.param
    torch._dynamo.reset()


def dropout_written(x, y):
    a = x * 1
    b = F.dropout(a, 0.5, False)
    b.mul_(0.5).add_(y.detach())
    return a, b, torch.sigmoid(a) * 2


def dropout_of_nothing(x, y):
    a = F.dropout(x * 2, 0.0, True)
    b = torch.dropout(a, 0.3, False)
    a.mul_(2)
    return b, torch.sigmoid(b) * y + 1


def written_behind_dropout(x, y):
    """What a gradient needs is written to by way of a view of what dropout gave."""
    a = x * 1
    b = torch.sigmoid(a) * 2 + y
    F.dropout(a, 0.5, False).t().mul_(0.5)
    return a, b


def cloned(x, y):
    """A copy in a formula is one: neither of the two is written to by way of the other."""
    a = torch.sigmoid(x) * 2
    b = a.clone()
    a.mul_(0.5)
    return a, b, torch.clone(b) + y


def clone_of_what_changes(x, y):
    a = x.clone()
    x.mul_(0.5).add_(y.detach())
    return torch.sigmoid(a) * y + x


def detached(x, y):
    """Of what requires no grad: the argument itself, which is written to."""
    a = x.detach() * 2
    b = a.detach()
    b.mul_(0.5)
    return torch.sigmoid(a) * y + 1, a, a.detach()


def copied(x, y):
    a = x * 1
    a.copy_(y)
    return a, torch.sigmoid(a) * 2 + x


def copied_into_view(x, y):
    a = x * 1
    a.t().copy_(y * 2 + 1)
    a[0].copy_(y[1])
    return a, a.t() * 2 - x


def input_written(x, y):
    z = torch.sigmoid(x) * y
    x.mul_(0.5).add_(y.detach())
    return x, z, x.t(), x[1:] * 2 + 1


def input_copied_into(x, y):
    x.copy_(y)
    return x, torch.sigmoid(x) * 2 + y


def inputs_returned(x, y):
    return x, x.t(), y[1], x.view(2, 8), torch.sigmoid(x) * 2 + y


def results_share_memory(x, y):
    a = torch.sigmoid(x) * 2 + y
    return a, a.t(), a[1:3], a.view(-1), a


def detached_beside_itself(x, y):
    a = torch.sigmoid(x) * 2 + 1
    return a.detach(), y * 1, a[0].expand(4, 4), a.detach().repeat(1, 2)


def pieces_returned(x, y):
    a, b = torch.sigmoid(x) * 2 + 1, torch.tanh(y) * x
    return torch.cat([a, b], 1), a, b.t(), torch.cumsum(a, 0)


def part_written(x, y):
    a = torch.sigmoid(x) * 2
    a[1:3].mul_(2)
    a.t()[0].add_(y[0])
    return a, a[1] + y, a.t()


PROGRAMS = [dropout_written, dropout_of_nothing, written_behind_dropout, cloned,
            clone_of_what_changes, detached, copied, copied_into_view,
            input_written, input_copied_into, inputs_returned, results_share_memory,
            detached_beside_itself, pieces_returned, part_written]
# Whose gradient PyTorch's AOTAutograd refuses.
REFUSED = {("aten", input_written), ("aten", input_copied_into)}


def share(tensors):
    memory = [each.untyped_storage().data_ptr() for each in tensors]
    return [[a == b for a in memory] for b in memory]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("training", [False, True])
def test_programs(function, training, level, data, device):
    if training and (level, function) in REFUSED:
        pytest.skip("AOTAutograd has no gradient of it")
    x, y = data(4, 4), data(4, 4) + 0.5

    def outcome(call):
        leaves = [each.clone().requires_grad_(training) for each in (x, y)]
        inputs = [each * 1 for each in leaves]
        results = call(*inputs)
        chosen = [each for each in results if each.requires_grad]
        grads = torch.autograd.grad([(each * each).sum() for each in chosen], leaves,
                                    allow_unused=True) if training else []
        return [*results, *inputs], [each.requires_grad for each in results], grads

    want = outcome(function)
    got = outcome(torch.compile(function, backend=ot.backend, options={"level": level},
                                fullgraph=True))
    assert got[1] == want[1] and share(got[0]) == share(want[0])
    for a, b in zip((*got[0], *got[2]), (*want[0], *want[2])):
        if b is None:
            assert a is None or not a.any()
            continue
        torch.testing.assert_close(a, b)
    assert [each.stride() for each in got[0]] == [each.stride() for each in want[0]]


@pytest.mark.parametrize("times", [1, 3])
def test_batch_norm_statistics(times, level, data, device):
    """Buffers that a step of training writes to, of a module and of a function."""
    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.SiLU(),
                                   torch.nn.Dropout(0.0), torch.nn.BatchNorm1d(6)).to(device)

    plain, ours = model(), model()
    call = torch.compile(ours, backend=ot.backend, options={"level": level})
    for step in range(times):
        x = data(8, 4) + step
        for each in plain(x), call(x):
            (each * each).sum().backward()
    for (name, a), b in zip(ours.state_dict().items(), plain.state_dict().values()):
        torch.testing.assert_close(a, b, msg=lambda text: f"{name}: {text}")
    for a, b in zip(ours.parameters(), plain.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
    plain.eval(), ours.eval()
    torch.testing.assert_close(call(x), plain(x))
