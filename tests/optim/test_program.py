"""The update program: every row one step, stopping, and the same numbers eagerly and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.optim.optimizers import Adam
from zoo.optim.program import SMALLEST_ROOM, STOPPED, UpdateProgram
from zoo.optim.trainable import State, Trainable


class Regression:
    """Least squares by a small network, with a slow copy of it, told by a flag in the inputs to stop."""

    def __init__(self, *, compiled: bool = False) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.trainable = Trainable("net", self.network, Adam(), max_grad_norm=0.5)
        state = {
            **self.trainable.initial_state(),
            "slow": self.trainable.flat.clone(),
            "untouched": torch.arange(4.0),
            STOPPED: torch.zeros((), dtype=torch.bool),
        }
        self.program = UpdateProgram(self.step, state, compiled=compiled)

    def step(self, state: State, shared: Any, inputs: Any) -> tuple[State, dict[str, Tensor]]:
        variables = self.trainable.variables(state)
        error = variables(inputs["pairs"]["x"]).squeeze(-1) - inputs["pairs"]["y"] * shared["scale"]
        loss = error.square().mean()
        state, norm = self.trainable.descend(state, variables, loss, shared["learning_rate"])
        state = {**self.trainable.follow(state, "slow", 0.1), STOPPED: inputs["stop"]}
        return state, {"loss": loss.detach(), "norm": norm, "first": inputs["pairs"]["y"][0]}

    def run(self, n_steps: int, *, stop_at: int | None = None) -> Tensor:
        generator = torch.Generator().manual_seed(n_steps)
        inputs = {
            "pairs": {
                "x": torch.randn(n_steps, 5, 3, generator=generator),
                "y": torch.randn(n_steps, 5, generator=generator),
            },
            "stop": torch.arange(n_steps) == (-1 if stop_at is None else stop_at),
        }
        shared = {"scale": torch.tensor(2.0), "learning_rate": torch.tensor(0.01)}
        metrics, n_rows = self.program.run(shared, inputs)
        assert n_rows == n_steps
        return metrics

    def snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.program.state.items()}


def test_metrics_are_means_over_the_rows() -> None:
    whole, by_ones = Regression(), Regression()
    metrics = whole.run(6)
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(6, 5, 3, generator=generator)
    y = torch.randn(6, 5, generator=generator)
    shared = {"scale": torch.tensor(2.0), "learning_rate": torch.tensor(0.01)}
    state, rows = by_ones.program.state, []
    for i in range(6):
        state, values = by_ones.step(
            state, shared, {"pairs": {"x": x[i], "y": y[i]}, "stop": torch.tensor(False)}
        )
        rows.append(torch.stack(list(values.values())))
    assert whole.program.metric_names == ["loss", "norm", "first"]
    torch.testing.assert_close(metrics, torch.stack(rows).mean(0))
    for name, tensor in whole.program.state.items():
        assert torch.equal(tensor, state[name]), name


def test_state_is_overwritten_in_place() -> None:
    regression = Regression()
    addresses = {name: tensor.data_ptr() for name, tensor in regression.program.state.items()}
    before = regression.network[0].weight.detach().clone()
    regression.run(2)
    assert {name: t.data_ptr() for name, t in regression.program.state.items()} == addresses
    assert not torch.equal(regression.network[0].weight, before)
    assert torch.equal(regression.program.state["untouched"], torch.arange(4.0))


@pytest.mark.parametrize("stop_at", [0, 2, 5])
def test_a_stopped_call_takes_the_steps_up_to_the_stop(stop_at: int) -> None:
    stopped, short = Regression(), Regression()
    metrics = stopped.run(6, stop_at=stop_at)
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(6, 5, 3, generator=generator), torch.randn(6, 5, generator=generator)
    taken = slice(0, stop_at + 1)
    expected, _ = short.program.run(
        {"scale": torch.tensor(2.0), "learning_rate": torch.tensor(0.01)},
        {"pairs": {"x": x[taken], "y": y[taken]}, "stop": torch.zeros(stop_at + 1, dtype=torch.bool)},
    )
    assert torch.equal(metrics, expected)
    assert all(torch.equal(tensor, short.program.state[name]) for name, tensor in stopped.snapshot().items())


def test_a_stop_ends_only_its_own_call() -> None:
    regression = Regression()
    regression.run(3, stop_at=1)
    assert not regression.program.state[STOPPED]
    before = regression.snapshot()
    regression.run(3)
    assert not torch.equal(regression.program.state["net"], before["net"])


def test_an_error_in_a_step_is_not_swallowed() -> None:
    def step(state: State, shared: Any, inputs: Any) -> tuple[State, dict[str, Tensor]]:
        raise ValueError("wrong axis")

    program = UpdateProgram(step, {"net": torch.zeros(1)}, compiled=False)
    with pytest.raises(ValueError, match="wrong axis"):
        program.run(torch.zeros(()), torch.zeros(2))


def test_compiled_calls_of_any_length_end_as_eager_ones() -> None:
    """Calls that grow are compiled at most twice, however many other loops this process has compiled."""
    eager, compiled = Regression(), Regression(compiled=True)
    longer = SMALLEST_ROOM + 5
    calls: list[tuple[int, int | None]] = [
        (3, None),
        (2, None),
        (3, 1),
        (7, None),
        (longer, None),
        (2 * longer, SMALLEST_ROOM + 2),
        (2 * longer, 3),
        (5, None),
        (1, None),
        (1, 0),
    ]
    with torch._dynamo.config.patch(recompile_limit=1):
        for n_steps, stop_at in calls:
            expected, metrics = eager.run(n_steps, stop_at=stop_at), compiled.run(n_steps, stop_at=stop_at)
            assert compiled.program.compiled
            torch.testing.assert_close(metrics, expected, rtol=1e-4, atol=1e-5)
            for name, tensor in eager.program.state.items():
                torch.testing.assert_close(compiled.program.state[name], tensor, rtol=1e-3, atol=1e-5)
    assert compiled.program.metric_names == eager.program.metric_names
    assert len(compiled.program._graphs) == 3
    values = torch.randn(4, 3)
    torch.testing.assert_close(compiled.network(values), eager.network(values), rtol=1e-3, atol=1e-4)


class Branching(nn.Linear):
    """A module whose arithmetic depends on the values that it sees."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(-values if values.sum() > 0 else values)


class Counting(nn.Linear):
    """A module with memory of its own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values + self.get_buffer("calls"))


@pytest.mark.parametrize("module", [Branching, Counting])
def test_what_one_graph_cannot_hold_goes_on_eagerly(
    module: type[nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    """A graph would keep the branch, or the buffer, that it was traced with."""
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        trainable = Trainable("net", module(3, 1), Adam())

        def step(
            state: State, shared: Any, inputs: Any, trainable: Trainable = trainable
        ) -> tuple[State, dict[str, Tensor]]:
            variables = trainable.variables(state)
            loss = variables(inputs).square().mean()
            state, _ = trainable.descend(state, variables, loss, torch.tensor(0.1))
            return state, {"loss": loss.detach()}

        program = UpdateProgram(step, trainable.initial_state(), compiled=compiled)
        rows = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(1))
        program.run(torch.zeros(()), rows)
        program.run(torch.zeros(()), rows[:1])
        assert not program.compiled
        ends.append(trainable.flat)
    assert torch.equal(*ends)
    assert caplog.text.count("going on without") == 1


def test_without_a_compiler_a_run_goes_on_eagerly_and_says_so_once(tmp_path: Path) -> None:
    program = """
from test_program import Regression
eager, compiled = Regression(), Regression(compiled=True)
for _ in range(2):
    assert eager.run(4).tolist() == compiled.run(4).tolist()
assert not compiled.program.compiled
assert eager.program.state["net"].equal(compiled.program.state["net"])
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **os.environ,
            "CXX": "/nonexistent",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stderr.splitlines()
    assert len(lines) == 1, finished.stderr
    assert "going on without" in lines[0]
    assert "No working C++ compiler" in lines[0]
