"""From a loss to the next state: gradients and clipping are PyTorch's own, live or aside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from small_networks import SteepestDescent, batch, network
from torch import Tensor

from zoo.optim.descent import Descent, Differentiable
from zoo.optim.optimizers import Adam, Optimizer
from zoo.optim.parameters import Parameters
from zoo.optim.state import LiveState, State
from zoo.optim.workers import averaged

RATE = torch.tensor(0.1)
KINDS = pytest.mark.parametrize("kind", [State, LiveState])


def descent(
    optimizer: Optimizer | None = None, max_grad_norm: float | None = None, seed: int = 0, name: str = "net"
) -> Descent:
    return Descent(Parameters(name, network(seed)), optimizer or Adam(), max_grad_norm=max_grad_norm)


def error(model: Callable[..., Tensor], scale: float = 1.0) -> Tensor:
    values, targets = batch()
    return scale * (model(values) - targets).square().mean()


def taken(
    descent: Descent, state: State, rate: Tensor = RATE, scale: float = 1.0, unless: Tensor | None = None
) -> tuple[State, Tensor]:
    module = descent.module(state)
    return descent.descend(state, module, error(module, scale), rate, unless)


def copied(state: State) -> State:
    return State({name: tensor.clone() for name, tensor in state.items()})


def test_module_sees_a_step_on_the_live_state() -> None:
    ours = descent(SteepestDescent())
    model = ours.parameters.module
    state: State = LiveState(ours.initial_state())
    before = model.head.weight.detach().clone()
    after, _ = taken(ours, state)
    assert after is state
    assert after["net"] is ours.parameters.flat
    assert not torch.equal(model.head.weight, before)
    assert torch.equal(ours.parameters.at(after["net"])(batch()[0]), model(batch()[0]))


def test_a_step_goes_down() -> None:
    ours = descent(SteepestDescent())
    state: State = LiveState(ours.initial_state())
    before = error(ours.parameters.module)
    state, _ = taken(ours, state, torch.tensor(1e-3))
    assert error(ours.parameters.module) < before


def test_a_step_aside_moves_as_one_on_the_live_state_and_leaves_everything_else_as_it_is() -> None:
    ours, live = descent(max_grad_norm=0.5), descent(max_grad_norm=0.5)
    live_state: State = LiveState(live.initial_state())
    state = ours.initial_state()
    first = copied(state)
    for _ in range(5):
        before = state
        state, _ = taken(ours, state)
        assert all(before[name] is not state[name] for name in state)
        assert torch.equal(ours.parameters.flat, first["net"])
        live_state, _ = taken(live, live_state)
    assert live_state.keys() == state.keys()
    for name, tensor in live_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-5)
    at, twin = ours.parameters.at(state["net"]), live.parameters.module
    torch.testing.assert_close(at(batch()[0]), twin(batch()[0]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("max_grad_norm", [None, 1e-3, 0.5, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_steps_and_clipping_are_pytorchs(max_grad_norm: float | None, scale: float) -> None:
    plain, ours = network(), descent(max_grad_norm=max_grad_norm)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    state: State = LiveState(ours.initial_state())
    for _ in range(20):
        optimizer.zero_grad()
        error(plain, scale).backward()
        for parameter in plain.unused.parameters():
            parameter.grad = torch.zeros_like(parameter)
        bound = float("inf") if max_grad_norm is None else max_grad_norm
        expected_norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), bound)
        optimizer.step()
        state, norm = taken(ours, state, torch.tensor(0.01), scale)
        torch.testing.assert_close(norm, expected_norm, rtol=1e-3, atol=1e-7)
    for name, parameter in plain.named_parameters():
        found = dict(ours.parameters.module.named_parameters())[name]
        torch.testing.assert_close(found, parameter, rtol=1e-3, atol=1e-5)


@KINDS
def test_the_smallest_gradients_are_clipped_as_pytorch_clips_them(kind: type[State]) -> None:
    """Next to the 1e-6 by which it keeps from dividing by 0."""
    parameters = Parameters("net", network())
    ours = Descent(parameters, SteepestDescent(), max_grad_norm=1e-7)
    plain = network()
    gradient = torch.full_like(parameters.flat, 1e-6 / parameters.size**0.5)
    for name, parameter in plain.named_parameters():
        parameter.grad = gradient[parameters.slices[name]].view_as(parameter).clone()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e-7)
    clipped = torch.cat([parameter.grad.reshape(-1) for parameter in plain.parameters()])
    state = kind(net=torch.zeros(parameters.size))
    state, _ = ours.step(state, gradient, torch.tensor(1.0))
    torch.testing.assert_close(state["net"], -clipped, rtol=1e-4, atol=0.0)


@KINDS
def test_parameters_without_a_gradient_and_frozen_ones_stay(kind: type[State]) -> None:
    model = network()
    model.body.requires_grad_(False)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    ours = Descent(Parameters("net", model), Adam(), max_grad_norm=0.5)
    state = kind(ours.initial_state())
    assert torch.equal(ours.module(state)(batch()[0]), model(batch()[0]))
    for _ in range(3):
        state, _ = taken(ours, state)
    named = ours.parameters.named(state["net"])
    assert torch.equal(model.body.weight, before["body.weight"])
    assert torch.equal(named["unused.weight"], before["unused.weight"])
    assert not torch.equal(named["head.weight"], before["head.weight"])


def test_descend_leaves_other_parts_of_the_state_as_they_are() -> None:
    ours, other = descent(), descent(seed=3, name="net2")
    state: State = LiveState({**ours.initial_state(), **other.initial_state()})
    before = copied(state)
    state, _ = taken(ours, state)
    assert state.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor) == name.startswith("net2"), name


@KINDS
@pytest.mark.parametrize("unless", [True, False])
def test_a_step_is_skipped_where_told(kind: type[State], unless: bool) -> None:
    ours = descent()
    state = kind(ours.initial_state())
    before = copied(state)
    state, norm = taken(ours, state, unless=torch.tensor(unless))
    assert norm > 0
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor) == unless, name


@KINDS
def test_a_gradient_can_be_taken_and_stepped_on_apart(kind: type[State]) -> None:
    whole, parts = descent(max_grad_norm=0.5), descent(max_grad_norm=0.5)
    expected, expected_norm = taken(whole, kind(whole.initial_state()))
    state = kind(parts.initial_state())
    module = parts.module(state)
    gradient = parts.gradient(module, error(module))
    assert gradient.shape == parts.parameters.flat.shape
    state, norm = parts.step(state, gradient, RATE)
    assert torch.equal(norm, expected_norm)
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


@KINDS
def test_a_second_optimizer_moves_the_same_parameters_with_tensors_of_its_own(kind: type[State]) -> None:
    first = descent(Adam(beta1=0.5))
    second = Descent(first.parameters, Adam(), max_grad_norm=0.1, name="cloning")
    state = kind({**first.initial_state(), **second.initial_state()})
    assert state["net"] is first.parameters.flat
    start = copied(state)
    state, _ = taken(second, state)
    after = copied(state)
    for name, tensor in start.items():
        assert torch.equal(state[name], tensor) == name.startswith("net."), name
    state, _ = taken(first, state)
    for name, tensor in after.items():
        assert torch.equal(state[name], tensor) == name.startswith("cloning."), name


class Meeting:
    """Where two workers of one process exchange tensors."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=30)
        self.brought: list[Tensor] = []

    def average(self, tensor: Tensor) -> Tensor:
        if self.barrier.wait() == 0:
            self.brought = []
        self.barrier.wait()
        self.brought.append(tensor.double())
        self.barrier.wait()
        return (sum(self.brought) / 2).to(tensor.dtype)  # type: ignore[union-attr]


def half_error(module: Differentiable, half: slice) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    values, targets = torch.randn(8, 3, generator=generator), torch.randn(8, 1, generator=generator)
    return (module(values[half]) - targets[half]).square().mean()


@KINDS
@pytest.mark.parametrize("limit", [1e-4, 1e4])
def test_averaged_gradients_of_two_halves_are_those_of_the_whole(kind: type[State], limit: float) -> None:
    """Clipping comes after the average, and both workers stop or neither: halves alone would disagree."""

    def work(average: Callable[[Tensor], Tensor], half: slice) -> tuple[State, list[Tensor]]:
        ours = Descent(Parameters("net", networks.pop()), Adam(), max_grad_norm=0.05, average=average)
        state = kind(ours.initial_state())
        seen = []
        for _ in range(4):
            module = ours.module(state)
            loss = half_error(module, half)
            mean = ours.averaged(loss.detach())
            state, norm = ours.descend(state, module, loss, torch.tensor(0.01), unless=mean > limit)
            seen += [mean, norm]
        return state, seen

    networks = [network() for _ in range(3)]
    meeting = Meeting()
    expected, expected_seen = work(averaged, slice(0, 8))
    assert (expected["net.count"] == 0) == (limit < 1)
    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(work, meeting.average, half) for half in (slice(0, 4), slice(4, 8))]
        (one, seen), (two, _) = (worker.result(timeout=60) for worker in workers)
    for name, tensor in expected.items():
        assert torch.equal(one[name], two[name]), name
        torch.testing.assert_close(one[name], tensor, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(torch.stack(seen), torch.stack(expected_seen), rtol=1e-4, atol=1e-6)
