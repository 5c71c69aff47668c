"""Units of returns: moments of all targets, and a last layer that changes with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters
from zoo.optim.popart import RunningReturnNormalizer, output_layer
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import LiveState, State, StepResult, UpdateRunner, averaging_over


def critic() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


def normalizer_and_state(
    *, preserve: bool = True, double: bool = False
) -> tuple[RunningReturnNormalizer, Parameters, State]:
    """Return units of a critic and of a target with other weights."""
    parameters = Parameters("critic", critic().double() if double else critic())
    part = RunningReturnNormalizer(parameters, ("critic", "target"), preserve=preserve)
    target = parameters.flat + 0.1 * torch.randn_like(parameters.flat)
    return part, parameters, State({"critic": parameters.flat, "target": target, **part.initial_state()})


def means(
    part: RunningReturnNormalizer, parameters: Parameters, state: State, inputs: Tensor
) -> dict[str, Tensor]:
    """Return what critic and target say of returns."""
    with torch.no_grad():
        return {
            name: part.denormalize(state, parameters.functional(state[name])(inputs))
            for name in ("critic", "target")
        }


def batches(n: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    scales = (1.0, 300.0, 0.01, 5.0, 4e3, 1.0)[:n]
    return [scale * (torch.randn(32, generator=generator) - 2.0) for scale in scales]


@pytest.mark.parametrize("live", [False, True])
def test_update_preserves_outputs_of_critic_and_target(live: bool) -> None:
    part, parameters, state = normalizer_and_state(double=True)
    if live:
        state = LiveState(state)
    inputs = torch.randn(200, 3, dtype=torch.float64)
    expected = means(part, parameters, state, inputs)
    weights = {name: state[name].clone() for name in ("critic", "target")}
    for batch in batches():
        before = part.std(state).item()
        state = part.update(state, batch)
        assert part.std(state).item() != before
        for name, values in means(part, parameters, state, inputs).items():
            torch.testing.assert_close(values, expected[name], rtol=1e-9, atol=1e-9)
    for name, vector in weights.items():
        changed = (state[name] != vector).nonzero().flatten().tolist()
        assert changed == list(range(part.weight.start, parameters.size))


def test_moments_cover_all_targets_and_a_small_prior() -> None:
    part, _, state = normalizer_and_state()
    for batch in batches():
        state = part.update(state, batch)
    values = torch.cat(batches()).double().numpy()
    total = len(values) + 0.01
    mean = values.sum() / total
    variance = ((values**2).sum() + 0.01) / total - mean**2
    assert state["returns.mean"].item() == pytest.approx(mean, rel=1e-9)
    assert part.std(state).item() == pytest.approx(np.sqrt(variance), rel=1e-9)
    returns = torch.tensor([1.0, -2.0, 300.0])
    torch.testing.assert_close(part.denormalize(state, part.normalize(state, returns)), returns)
    expected = (returns.double() - mean) / np.sqrt(variance)
    torch.testing.assert_close(part.normalize(state, returns), expected.float())


def test_targets_of_other_workers_count_as_own_ones() -> None:
    """Three workers with the same targets, whose means are then those of each."""
    (alone, _, expected), (together, _, state) = normalizer_and_state(), normalizer_and_state()
    three: Any = SimpleNamespace(size=3, mean=lambda tensor: tensor)
    with averaging_over(three):
        for batch in batches(3):
            state = together.update(state, batch)
    for batch in batches(3):
        expected = alone.update(expected, batch.repeat(3))
    for name in ("returns.mean", "returns.squares", "returns.count"):
        torch.testing.assert_close(state[name], expected[name])


@pytest.mark.parametrize("constant", [0.0, -7.5, 1e6])
def test_constant_returns_keep_std_at_its_minimum(constant: float) -> None:
    part, parameters, state = normalizer_and_state()
    for _ in range(300):
        state = part.update(state, torch.full((64,), constant))
    if constant != 1e6:  # the hundredth of a zero among so large ones is no constant
        assert part.std(state).item() == pytest.approx(0.1)
    assert all(tensor.isfinite().all() for tensor in state.values())
    assert part.normalize(state, torch.tensor([constant])).abs().item() < 0.1
    assert all(each.isfinite().all() for each in means(part, parameters, state, torch.randn(9, 3)).values())


def test_reset_and_with_moments_preserve_outputs() -> None:
    part, parameters, state = normalizer_and_state(double=True)
    state = part.update(state, batches()[1])
    inputs, moments = torch.randn(20, 3, dtype=torch.float64), part.moments(state)
    assert part.metrics(state) == {
        "returns_mean": state["returns.mean"].float(),
        "returns_std": part.std(state).float(),
    }
    expected = means(part, parameters, state, inputs)
    plain = part.reset(state)
    assert (plain["returns.mean"], part.std(plain)) == (0.0, 1.0)
    again = part.with_moments(plain, moments)
    for name, values in expected.items():
        with torch.no_grad():
            torch.testing.assert_close(parameters.functional(plain[name])(inputs), values)
        torch.testing.assert_close(means(part, parameters, again, inputs)[name], values)
    for name, tensor in state.items():
        torch.testing.assert_close(again[name], tensor)


def test_compiled_step_equals_eager_step() -> None:
    def states(compile: bool) -> dict[str, Tensor]:
        part, _, state = normalizer_and_state()

        def step(state: State, shared: Any, row: Tensor) -> StepResult:
            state = part.update(state, row)
            return StepResult(state, part.metrics(state))

        runner = UpdateRunner(state, Runtime(device="cpu", compile=compile, threads=1))
        ran = runner.run(step, {}, torch.stack(batches(4)))
        assert ran.names == ["returns_mean", "returns_std"]
        assert ran.metrics.dtype == torch.float32  # as all that is logged: a checkpoint keeps no more
        assert runner.runtime.compile is compile
        return dict(runner.state)

    eager, compiled = states(False), states(True)
    for name, expected in eager.items():
        torch.testing.assert_close(compiled[name], expected, rtol=1e-5, atol=1e-5)


def test_output_layer_is_a_last_linear_to_one_value() -> None:
    assert output_layer(nn.Sequential(nn.Linear(3, 3), critic())) == "1.2"
    for module in (nn.ReLU(), nn.Linear(3, 2), nn.Linear(3, 1, bias=False)):
        with pytest.raises(ZooError, match="ends with a linear layer to one value"):
            output_layer(module)
