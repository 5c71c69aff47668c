"""Optimizers against PyTorch's, updaters on both kinds of state, and means over workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from small_networks import batch, network
from torch import Tensor, nn

from zoo.optim.optimizers import (
    Adam,
    FunctionalModule,
    Momentum,
    Optimizer,
    Parameters,
    RMSprop,
    Updater,
    weight_decay,
)
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import LiveState, State, StepResult, UpdateRunner, average, averaging_over

N_PARAMETERS = 17


def gradients(n_steps: int) -> list[Tensor]:
    """Return gradients of very different sizes, some of them exactly zero."""
    generator = torch.Generator().manual_seed(5)
    scale = 10.0 ** torch.linspace(-6, 3, N_PARAMETERS)
    drawn = [torch.randn(N_PARAMETERS, generator=generator) * scale for _ in range(n_steps)]
    for gradient in drawn[::3]:
        gradient[:4] = 0.0
    return drawn


def walk(optimizer: Optimizer, start: Tensor, steps: list[Tensor], learning_rates: list[float]) -> Tensor:
    """Take the steps in the pure form, and make sure that the form in place ends at the same point."""
    parameters, slots = start, optimizer.initial(start)
    overwritten, own_slots = start.clone(), optimizer.initial(start)
    for gradient, learning_rate in zip(steps, learning_rates, strict=True):
        parameters, slots = optimizer.step(parameters, gradient, slots, torch.tensor(learning_rate))
        optimizer.step_(overwritten, gradient, own_slots, torch.tensor(learning_rate))
    torch.testing.assert_close(overwritten - start, parameters - start, rtol=2e-4, atol=2e-6)
    for name, slot in slots.items():
        torch.testing.assert_close(own_slots[name], slot, rtol=1e-4, atol=1e-7)
    return parameters


def torch_walk(
    make: Callable[[list[Tensor]], torch.optim.Optimizer],
    start: Tensor,
    steps: list[Tensor],
    learning_rates: list[float],
) -> Tensor:
    parameters = start.double().requires_grad_()
    optimizer = make([parameters])
    for gradient, learning_rate in zip(steps, learning_rates, strict=True):
        optimizer.param_groups[0]["lr"] = learning_rate
        parameters.grad = gradient.double()
        optimizer.step()
    return parameters.detach().float()


@pytest.mark.parametrize("eps", [1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize("n_steps", [1, 2, 500])
def test_adam_walks_as_pytorchs(eps: float, n_steps: int) -> None:
    steps, start = gradients(n_steps), torch.linspace(-1.0, 1.0, N_PARAMETERS)
    rates = np.linspace(3e-3, 1e-4, n_steps).tolist()
    ours = walk(Adam(eps=eps), start, steps, rates)
    theirs = torch_walk(lambda values: torch.optim.Adam(values, eps=eps), start, steps, rates)
    torch.testing.assert_close(ours - start, theirs - start, rtol=2e-4, atol=2e-6)


class Vector(nn.Module):
    """Parameters whose gradient can be chosen."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(N_PARAMETERS, dtype=dtype))

    def forward(self, grads: Tensor) -> Tensor:
        return self.values @ grads


def adam_path(grads: Tensor, learning_rate: Tensor, *, compiled: bool) -> Tensor:
    """Return where Adam is after each step (steps, parameters), taken by a runner."""
    updater = Updater(Parameters("vector", Vector(grads.dtype)), Adam())

    def step(state: State, learning_rate: Tensor, grads: Tensor) -> StepResult:
        vector = updater.module(state)
        state, _ = updater.step(state, vector, vector(grads), learning_rate)
        return StepResult(state, {}, {"path": state.snapshot("vector")})

    runner = UpdateRunner(updater.initial_state(), Runtime(device="cpu", compile=compiled, threads=1))
    path = runner.run(step, learning_rate, grads).outputs["path"]
    assert runner.runtime.compile == compiled
    return path


@pytest.mark.parametrize(
    ("dtype", "error"), [(torch.float32, 1.5e-6), pytest.param(torch.float64, 1e-12, marks=pytest.mark.slow)]
)
def test_adam_matches_pytorch_for_thousands_of_steps(dtype: torch.dtype, error: float) -> None:
    """Powers of 0.999 in single precision would make the first steps wrong by 1e-5."""
    drawn = torch.randn(2000, N_PARAMETERS, generator=torch.Generator().manual_seed(3), dtype=dtype)
    grads = (1.0 + 0.3 * drawn) * 10.0 ** torch.linspace(-4, 3, N_PARAMETERS, dtype=dtype)
    parameters = torch.zeros(N_PARAMETERS, dtype=dtype, requires_grad=True)
    optimizer, path = torch.optim.Adam([parameters], lr=0.01), []
    for grad in grads:
        parameters.grad = grad
        optimizer.step()
        path.append(parameters.detach().clone())
    rate = torch.tensor(0.01, dtype=torch.float64)
    eager, compiled = (adam_path(grads, rate, compiled=compiled) for compiled in (False, True))
    for ours in (eager, compiled):
        torch.testing.assert_close(ours, torch.stack(path), rtol=error, atol=0.0)
    torch.testing.assert_close(compiled, eager, rtol=error, atol=0.0)


@pytest.mark.parametrize("n_steps", [1, 2, 500])
def test_rmsprop_in_pytorchs_form_walks_as_pytorchs(n_steps: int) -> None:
    steps, start = gradients(n_steps), torch.linspace(-1.0, 1.0, N_PARAMETERS)
    rates = np.linspace(7e-4, 1e-5, n_steps).tolist()
    ours = walk(RMSprop(decay=0.9, eps=1e-4, tensorflow_form=False), start, steps, rates)
    theirs = torch_walk(lambda values: torch.optim.RMSprop(values, alpha=0.9, eps=1e-4), start, steps, rates)
    torch.testing.assert_close(ours - start, theirs - start, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_momentum_walks_as_pytorchs(decay: float) -> None:
    steps, start, rates = gradients(20), torch.linspace(-1.0, 1.0, N_PARAMETERS), [1e-2] * 20
    theirs = torch_walk(lambda values: torch.optim.SGD(values, momentum=decay), start, steps, rates)
    torch.testing.assert_close(walk(Momentum(decay), start, steps, rates), theirs, rtol=2e-4, atol=2e-6)


def test_rmsprop_adds_epsilon_inside_the_root() -> None:
    optimizer = RMSprop(decay=0.5, eps=0.25)
    parameters, slots = torch.zeros(1), optimizer.initial(torch.zeros(1))
    square, expected = 1.0, 0.0
    for gradient in (1.0, -2.0, 0.5):
        parameters, slots = optimizer.step(parameters, torch.tensor([gradient]), slots, torch.tensor(0.1))
        square = 0.5 * square + 0.5 * gradient**2
        expected -= 0.1 * gradient / (square + 0.25) ** 0.5
    assert parameters.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "optimizer", [Adam(), RMSprop(0.99, 1e-5), RMSprop(0.99, 1e-5, False), Momentum(0.9)]
)
def test_a_step_leaves_its_arguments_as_they_are(optimizer: Optimizer) -> None:
    parameters, gradient = torch.ones(3), torch.tensor([1.0, -2.0, 0.0])
    slots = optimizer.initial(parameters)
    before = {name: slot.clone() for name, slot in slots.items()}
    after, new_slots = optimizer.step(parameters, gradient, slots, torch.tensor(0.1))
    assert torch.equal(parameters, torch.ones(3))
    assert torch.equal(gradient, torch.tensor([1.0, -2.0, 0.0]))
    assert all(torch.equal(slots[name], before[name]) for name in before)
    assert new_slots.keys() == slots.keys()
    assert after[0] < 1 < after[1]
    assert after[2] == 1


RATE = torch.tensor(0.1)
KINDS = pytest.mark.parametrize("kind", [State, LiveState])


def updater(
    optimizer: Optimizer | None = None, max_grad_norm: float | None = None, seed: int = 0, name: str = "net"
) -> Updater:
    return Updater(Parameters(name, network(seed)), optimizer or Adam(), max_grad_norm=max_grad_norm)


def error(model: Callable[..., Tensor], scale: float = 1.0) -> Tensor:
    values, targets = batch()
    return scale * (model(values) - targets).square().mean()


def taken(
    updater: Updater, state: State, rate: Tensor = RATE, scale: float = 1.0, skip: Tensor | None = None
) -> tuple[State, Tensor]:
    module = updater.module(state)
    return updater.step(state, module, error(module, scale), rate, skip)


def copied(state: State) -> State:
    return State({name: tensor.clone() for name, tensor in state.items()})


def test_functional_step_equals_a_step_on_live_state() -> None:
    ours, live = updater(max_grad_norm=0.5), updater(max_grad_norm=0.5)
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
    at, twin = ours.parameters.functional(state["net"]), live.parameters.module
    torch.testing.assert_close(at(batch()[0]), twin(batch()[0]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("max_grad_norm", [None, 1e-3, 0.5, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_steps_and_clipping_are_pytorchs(max_grad_norm: float | None, scale: float) -> None:
    plain, ours = network(), updater(max_grad_norm=max_grad_norm)
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
@pytest.mark.parametrize("skip", [True, False])
def test_a_step_is_skipped_where_told(kind: type[State], skip: bool) -> None:
    ours = updater()
    state = kind(ours.initial_state())
    before = copied(state)
    state, norm = taken(ours, state, skip=torch.tensor(skip))
    assert norm > 0
    for name, tensor in before.items():
        assert torch.equal(state[name], tensor) == skip, name


class Meeting:
    """Where two workers of one process exchange tensors."""

    size = 2

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=30)
        self.brought: list[Tensor] = []

    def mean(self, tensor: Tensor) -> Tensor:
        if self.barrier.wait() == 0:
            self.brought = []
        self.barrier.wait()
        self.brought.append(tensor.double())
        self.barrier.wait()
        return (sum(self.brought) / 2).to(tensor.dtype)  # type: ignore[union-attr]


def half_error(module: FunctionalModule, half: slice) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    values, targets = torch.randn(8, 3, generator=generator), torch.randn(8, 1, generator=generator)
    return (module(values[half]) - targets[half]).square().mean()


@KINDS
@pytest.mark.parametrize("limit", [1e-4, 1e4])
def test_averaged_gradients_of_halves_equal_the_whole(kind: type[State], limit: float) -> None:
    """Clipping comes after the average, and both workers stop or neither: halves alone would disagree."""

    def work(workers: Any, half: slice) -> tuple[State, list[Tensor]]:
        ours = Updater(Parameters("net", networks.pop()), Adam(), max_grad_norm=0.05)
        state = kind(ours.initial_state())
        seen = []
        with averaging_over(workers):
            for _ in range(4):
                module = ours.module(state)
                loss = half_error(module, half)
                mean = average(loss.detach())
                state, norm = ours.step(state, module, loss, torch.tensor(0.01), skip=mean > limit)
                seen += [mean, norm]
        return state, seen

    networks = [network() for _ in range(3)]
    meeting = Meeting()
    expected, expected_seen = work(None, slice(0, 8))
    assert (expected["net.count"] == 0) == (limit < 1)
    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(work, meeting, half) for half in (slice(0, 4), slice(4, 8))]
        (one, seen), (two, _) = (worker.result(timeout=60) for worker in workers)
    for name, tensor in expected.items():
        assert torch.equal(one[name], two[name]), name
        torch.testing.assert_close(one[name], tensor, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(torch.stack(seen), torch.stack(expected_seen), rtol=1e-4, atol=1e-6)


def test_weight_decay_is_l2_gradient_except_on_spared() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    parameters = Parameters("critic", module)
    decay = weight_decay(parameters, parameters.flat, 0.3, spared=["2.weight"])
    vector = parameters.flat.clone().requires_grad_()
    expected = 0.3 * 0.5 * parameters.named(vector)["0.weight"].square().sum()
    (gradient,) = torch.autograd.grad(expected, vector)
    torch.testing.assert_close(decay, gradient)
    assert 0.5 * (decay @ parameters.flat).item() == pytest.approx(expected.item())
