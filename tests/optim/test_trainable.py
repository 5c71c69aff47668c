"""A module on flat parameters: it sees its updates, and gradients and clipping are PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.optim.optimizers import Adam
from zoo.optim.trainable import State, Trainable, polyak


class SteepestDescent:
    """The plainest optimizer: its step is the gradient itself."""

    def initial(self, parameters: Tensor) -> dict[str, Tensor]:
        return {}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor], learning_rate: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return parameters - learning_rate * gradient, slots


class TwoHeads(nn.Module):
    """A network of which one head is used by no loss here."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 5)
        self.head = nn.Linear(5, 1)
        self.unused = nn.Linear(5, 2)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.body(values).tanh())


def network(seed: int = 0) -> TwoHeads:
    torch.manual_seed(seed)
    return TwoHeads()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(7, 3, generator=generator), torch.randn(7, 1, generator=generator)


def error(model: nn.Module, scale: float = 1.0) -> Tensor:
    values, targets = batch()
    return scale * (model(values) - targets).square().mean()


def keep(trainable: Trainable, state: State) -> None:
    """Overwrite the flat parameters in place, as the update program does."""
    trainable.flat.copy_(state[trainable.name])


def test_flat_parameters_leave_the_module_as_it_was() -> None:
    plain, ours = network(), network()
    Trainable("net", ours, Adam())
    values, _ = batch()
    assert torch.equal(plain(values), ours(values))
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, dict(ours.named_parameters())[name])


def test_module_sees_a_step_once_it_is_kept() -> None:
    model = network()
    trainable = Trainable("net", model, SteepestDescent())
    state = trainable.initial_state()
    before = model.head.weight.detach().clone()
    variables = trainable.variables(state)
    new_state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    assert torch.equal(model.head.weight, before)
    keep(trainable, new_state)
    assert not torch.equal(model.head.weight, before)
    assert torch.equal(trainable.constants(new_state)(batch()[0]), model(batch()[0]))


@pytest.mark.parametrize("max_grad_norm", [None, 1e-3, 0.5, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_steps_and_clipping_are_pytorchs(max_grad_norm: float | None, scale: float) -> None:
    plain, ours = network(), network()
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    trainable = Trainable("net", ours, Adam(), max_grad_norm)
    state = trainable.initial_state()
    for _ in range(20):
        optimizer.zero_grad()
        error(plain, scale).backward()
        for parameter in plain.unused.parameters():
            parameter.grad = torch.zeros_like(parameter)
        bound = float("inf") if max_grad_norm is None else max_grad_norm
        expected_norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), bound)
        optimizer.step()
        variables = trainable.variables(state)
        state, norm = trainable.descend(state, variables, error(variables, scale), torch.tensor(0.01))
        torch.testing.assert_close(norm, expected_norm, rtol=1e-3, atol=1e-7)
    keep(trainable, state)
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(dict(ours.named_parameters())[name], parameter, rtol=1e-3, atol=1e-5)


def test_parameters_without_a_gradient_stay() -> None:
    model = network()
    before = model.unused.weight.detach().clone()
    trainable = Trainable("net", model, Adam(), 0.5)
    state = trainable.initial_state()
    for _ in range(3):
        variables = trainable.variables(state)
        state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    keep(trainable, state)
    assert torch.equal(model.unused.weight, before)


def test_frozen_parameters_stay_and_are_used() -> None:
    model = network()
    model.body.requires_grad_(False)
    before = model.body.weight.clone()
    trainable = Trainable("net", model, Adam())
    assert len(trainable.flat) == 5 + 1 + 10 + 2
    state = trainable.initial_state()
    variables = trainable.variables(state)
    assert torch.equal(variables(batch()[0]), model(batch()[0]))
    state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    keep(trainable, state)
    assert torch.equal(model.body.weight, before)
    assert torch.equal(trainable.constants(state)(batch()[0]), model(batch()[0]))


def test_descend_leaves_the_old_state_and_other_parts_of_it_as_they_are() -> None:
    trainable, other = Trainable("net", network(), Adam()), Trainable("net2", network(3), Adam())
    state = {**trainable.initial_state(), **other.initial_state()}
    before = {name: tensor.clone() for name, tensor in state.items()}
    variables = trainable.variables(state)
    new_state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    assert new_state.keys() == state.keys()
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor)
        assert torch.equal(new_state[name], tensor) == name.startswith("net2"), name


def test_no_gradient_flows_into_constants() -> None:
    trainable = Trainable("net", network(), Adam())
    state = trainable.initial_state()
    values = batch()[0].requires_grad_()
    output = trainable.constants(state)(values).sum()
    assert torch.autograd.grad(output, values)[0].abs().sum() > 0
    assert not any(tensor.requires_grad for tensor in trainable.constants(state).parameters.values())
    assert not trainable.constants(state)(batch()[0]).requires_grad


def test_constants_of_a_copy_are_the_copys() -> None:
    trainable = Trainable("net", network(), Adam())
    other = network(9)
    target = torch.cat([parameter.detach().reshape(-1) for parameter in other.parameters()])
    state = {**trainable.initial_state(), "target": target}
    values, _ = batch()
    assert torch.equal(trainable.constants(state, "target")(values), other(values))


@given(tau=st.floats(0, 1, width=32, allow_subnormal=False))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_polyak_goes_a_fraction_of_the_way(tau: float) -> None:
    target, online = torch.tensor([1.0, -3.0, 1e-4]), torch.tensor([2.0, 5.0, 7e5])
    for fraction in (tau, torch.tensor(tau)):
        expected = (1 - tau) * target.double() + tau * online.double()
        torch.testing.assert_close(polyak(target, online, fraction).double(), expected, rtol=1e-5, atol=1e-5)


def test_polyak_with_one_is_a_copy_and_with_zero_changes_nothing() -> None:
    torch.manual_seed(0)
    target, online = torch.randn(1000) * 1e3, torch.randn(1000)
    for one, zero in ((1.0, 0.0), (torch.tensor(1.0), torch.tensor(0.0))):
        assert torch.equal(polyak(target, online, one), online)
        assert torch.equal(polyak(target, online, zero), target)
