"""A module on flat parameters: it sees its updates, and gradients and clipping are PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from zoo.optim.optimizers import Adam
from zoo.optim.trainable import State, Trainable


class SteepestDescent:
    """The plainest optimizer: its step is the gradient itself."""

    def initial(self, parameters: Tensor) -> dict[str, Tensor]:
        return {}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor], learning_rate: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return parameters - learning_rate * gradient, slots

    def step_(
        self, parameters: Tensor, gradient: Tensor, slots: dict[str, Tensor], learning_rate: Tensor
    ) -> None:
        parameters.sub_(learning_rate * gradient)


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


def aside(state: State) -> State:
    """Return a state that is not the live one: its steps are pure, as they are while an update is traced."""
    return {name: tensor.clone() for name, tensor in state.items()}


def test_flat_parameters_leave_the_module_as_it_was() -> None:
    plain, ours = network(), network()
    Trainable("net", ours, Adam())
    values, _ = batch()
    assert torch.equal(plain(values), ours(values))
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, dict(ours.named_parameters())[name])


def test_module_sees_a_step_on_the_live_state() -> None:
    model = network()
    trainable = Trainable("net", model, SteepestDescent())
    state = trainable.initial_state()
    before = model.head.weight.detach().clone()
    variables = trainable.variables(state)
    state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    assert state["net"] is trainable.flat
    assert not torch.equal(model.head.weight, before)
    assert torch.equal(trainable.constants(state)(batch()[0]), model(batch()[0]))


def test_a_step_aside_moves_as_one_on_the_live_state_and_leaves_everything_else_as_it_is() -> None:
    model, twin = network(), network()
    trainable, live = Trainable("net", model, Adam(), 0.5), Trainable("net", twin, Adam(), 0.5)
    live_state, state = live.initial_state(), aside(trainable.initial_state())
    first = aside(state)
    for _ in range(5):
        before, variables = state, trainable.variables(state)
        state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
        assert all(before[name] is not state[name] for name in state)
        assert torch.equal(trainable.flat, first["net"])
        variables = live.variables(live_state)
        live_state, _ = live.descend(live_state, variables, error(variables), torch.tensor(0.1))
    assert live_state.keys() == state.keys()
    for name, tensor in live_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(trainable.constants(state)(batch()[0]), twin(batch()[0]), rtol=1e-3, atol=1e-4)


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
    assert torch.equal(model.body.weight, before)
    assert torch.equal(trainable.constants(state)(batch()[0]), model(batch()[0]))


def test_descend_leaves_other_parts_of_the_state_as_they_are() -> None:
    trainable, other = Trainable("net", network(), Adam()), Trainable("net2", network(3), Adam())
    state = {**trainable.initial_state(), **other.initial_state()}
    before = aside(state)
    variables = trainable.variables(state)
    state, _ = trainable.descend(state, variables, error(variables), torch.tensor(0.1))
    assert state.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor) == name.startswith("net2"), name


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("unless", [True, False])
def test_a_step_is_skipped_where_told(is_live: bool, unless: bool) -> None:
    trainable = Trainable("net", network(), Adam())
    state = trainable.initial_state()
    state = state if is_live else aside(state)
    before = aside(state)
    variables = trainable.variables(state)
    state, norm = trainable.descend(
        state, variables, error(variables), torch.tensor(0.1), unless=torch.tensor(unless)
    )
    assert norm > 0
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor) == unless, name


def test_no_gradient_flows_into_constants() -> None:
    trainable = Trainable("net", network(), Adam())
    state = trainable.initial_state()
    values = batch()[0].requires_grad_()
    output = trainable.constants(state)(values).sum()
    assert torch.autograd.grad(output, values)[0].abs().sum() > 0
    assert not any(tensor.requires_grad for tensor in trainable.constants(state).parameters.values())
    assert not trainable.constants(state)(batch()[0]).requires_grad


@pytest.mark.parametrize("is_live", [True, False])
def test_constants_of_a_copy_are_the_copys(is_live: bool) -> None:
    trainable = Trainable("net", network(), Adam())
    other = network(9)
    target = torch.cat([parameter.detach().reshape(-1) for parameter in other.parameters()])
    state = {**trainable.initial_state(), "target": target}
    state = state if is_live else aside(state)
    values, _ = batch()
    assert torch.equal(trainable.constants(state, "target")(values), other(values))
    replaced = {**state, "target": target + 1.0}
    assert not torch.equal(trainable.constants(replaced, "target")(values), other(values))
    state["target"].zero_()
    assert not trainable.constants(state, "target")(values).any()


def test_constants_share_what_is_not_trained() -> None:
    model = network()
    model.body.requires_grad_(False)
    model.register_buffer("scale", torch.ones(1))
    trainable = Trainable("net", model, Adam())
    constants = trainable.constants(trainable.initial_state())
    with torch.no_grad():
        model.body.weight.fill_(2.0)
        model.get_buffer("scale").fill_(3.0)
    assert torch.equal(constants(batch()[0]), model(batch()[0]))
    assert constants.call.get_buffer("scale").item() == 3.0
    assert model.head.weight.requires_grad


@pytest.mark.parametrize("is_live", [True, False])
@given(tau=st.floats(0, 1, width=32, allow_subnormal=False))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_a_copy_follows_by_a_fraction(is_live: bool, tau: float) -> None:
    for fraction in (tau, torch.tensor(tau)):
        trainable = Trainable("net", network(), Adam())
        state = {**trainable.initial_state(), "target": torch.randn(len(trainable.flat)) * 1e3}
        state = state if is_live else aside(state)
        target, online = state["target"].double(), state["net"].double()
        new = trainable.follow(state, "target", fraction)
        assert (new["target"] is state["target"]) == is_live
        assert torch.equal(new["net"].double(), online)
        torch.testing.assert_close(
            new["target"].double(), (1 - tau) * target + tau * online, rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("is_live", [True, False])
def test_following_by_one_is_a_copy_and_by_zero_changes_nothing(is_live: bool) -> None:
    trainable = Trainable("net", network(), Adam())
    state = {**trainable.initial_state(), "target": torch.randn(len(trainable.flat)) * 1e3}
    state = state if is_live else aside(state)
    before = state["target"].clone()
    for zero in (0.0, torch.tensor(0.0)):
        assert torch.equal(trainable.follow(state, "target", zero)["target"], before)
    for one in (1.0, torch.tensor(1.0)):
        assert torch.equal(trainable.follow(state, "target", one)["target"], state["net"])
