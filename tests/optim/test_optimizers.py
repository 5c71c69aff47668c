"""Each optimizer against PyTorch's, step by step, and RMSprop's other form against TensorFlow's numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.optim.descent import Descent
from zoo.optim.optimizers import Adam, Momentum, Optimizer, RMSprop
from zoo.optim.parameters import Parameters
from zoo.optim.program import Outcome, Program
from zoo.optim.runtime import Runtime
from zoo.optim.state import State

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


def test_both_forms_of_adam_can_take_turns() -> None:
    """A run that was compiled goes on eagerly, and the other way round."""
    steps, start, rate = gradients(40), torch.linspace(-1.0, 1.0, N_PARAMETERS), torch.tensor(1e-2)
    optimizer = Adam()
    mixed, slots = start.clone(), optimizer.initial(start)
    for i, gradient in enumerate(steps):
        if i // 10 % 2:
            optimizer.step_(mixed, gradient, slots, rate)
        else:
            mixed, slots = optimizer.step(mixed, gradient, slots, rate)
    torch.testing.assert_close(mixed, walk(optimizer, start, steps, [1e-2] * 40), rtol=2e-4, atol=2e-6)


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

    def forward(self, slopes: Tensor) -> Tensor:
        return self.values @ slopes


def adam_path(slopes: Tensor, learning_rate: Tensor, *, compiled: bool) -> Tensor:
    """Return where Adam is after each step (steps, parameters), taken by a program."""
    descent = Descent(Parameters("vector", Vector(slopes.dtype)), Adam())

    def step(state: State, learning_rate: Tensor, slopes: Tensor) -> Outcome:
        vector = descent.module(state)
        state, _ = descent.descend(state, vector, vector(slopes), learning_rate)
        return Outcome(state, {}, {"path": state.snapshot("vector")})

    program = Program(descent.initial_state(), Runtime(device="cpu", compile=compiled, threads=1))
    path = program.run(step, learning_rate, slopes).outputs["path"]
    assert program.runtime.compiles == compiled
    return path


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1.5e-6), (torch.float64, 1e-12)], ids=str)
def test_adam_stays_beside_pytorchs_for_thousands_of_steps_compiled_or_not(
    dtype: torch.dtype, error: float
) -> None:
    """Powers of 0.999 in single precision would make the first steps wrong by 1e-5."""
    drawn = torch.randn(2000, N_PARAMETERS, generator=torch.Generator().manual_seed(3), dtype=dtype)
    slopes = (1.0 + 0.3 * drawn) * 10.0 ** torch.linspace(-4, 3, N_PARAMETERS, dtype=dtype)
    parameters = torch.zeros(N_PARAMETERS, dtype=dtype, requires_grad=True)
    optimizer, path = torch.optim.Adam([parameters], lr=0.01), []
    for slope in slopes:
        parameters.grad = slope
        optimizer.step()
        path.append(parameters.detach().clone())
    rate = torch.tensor(0.01, dtype=torch.float64)
    eager, compiled = (adam_path(slopes, rate, compiled=compiled) for compiled in (False, True))
    for ours in (eager, compiled):
        torch.testing.assert_close(ours, torch.stack(path), rtol=error, atol=0.0)
    torch.testing.assert_close(compiled, eager, rtol=error, atol=0.0)


def test_adams_betas_are_used() -> None:
    steps, start = gradients(30), torch.zeros(N_PARAMETERS)
    ours = walk(Adam(beta1=0.5, beta2=0.9), start, steps, [1e-2] * 30)
    theirs = torch_walk(lambda values: torch.optim.Adam(values, betas=(0.5, 0.9)), start, steps, [1e-2] * 30)
    torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-6)


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


@pytest.mark.parametrize(("tensorflow_form", "moved"), [(True, -0.288674), (False, -0.99997)])
def test_first_step_of_each_form_of_rmsprop(tensorflow_form: bool, moved: float) -> None:
    optimizer = RMSprop(decay=0.99, eps=1e-5, tensorflow_form=tensorflow_form)
    start = torch.zeros(1)
    after, _ = optimizer.step(start, torch.tensor([3.0]), optimizer.initial(start), torch.tensor(0.1))
    assert after.item() == pytest.approx(moved, abs=5e-6)


def test_rmsprop_in_tensorflows_form_keeps_epsilon_inside_the_root() -> None:
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
