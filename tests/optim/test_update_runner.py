"""The runner: every row one step, outputs in their order, and the same numbers eagerly and compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from zoo.optim.gpu import WARM_UPS
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import (
    SMALLEST_CAPACITY,
    STOPPED,
    LiveState,
    State,
    StepResult,
    UpdateResult,
    UpdateRunner,
    tree_leaves,
    tree_map,
)

NAMES = ["loss", "norm", "first"]
COMPILED = pytest.mark.parametrize("compiled", [False, True, "replayed"], indirect=True)
COMPILED_SLOWLY = pytest.mark.parametrize(
    "compiled",
    [False, *(pytest.param(form, marks=pytest.mark.slow) for form in (True, "replayed"))],
    indirect=True,
)


class ReplayedByHand:
    """A CUDA graph for machines without a GPU: each replay is a call."""

    def __init__(self, function: Callable[[], Any], device: Any, changed: Iterable[Tensor] = ()) -> None:
        self._function = function
        before = [(tensor, tensor.clone()) for tensor in changed]
        for _ in range(WARM_UPS):
            self.result = tree_map(torch.clone, function() or [])
        for tensor, old in before:
            tensor.copy_(old)

    def replay(self) -> None:
        """Write into the same memory, as a graph does."""
        for held, result in zip(tree_leaves(self.result), tree_leaves(self._function() or []), strict=True):
            held.copy_(result)


@pytest.fixture
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether steps are compiled: "replayed" is as for a GPU."""
    if request.param == "replayed":
        import zoo.optim.compile
        import zoo.optim.gpu

        monkeypatch.setattr(LiveState, "is_cuda", True)
        for module in (zoo.optim.compile, zoo.optim.gpu):
            monkeypatch.setattr(module, "CudaGraph", ReplayedByHand)
    return bool(request.param)


def runtime(compile: bool | str) -> Runtime:
    return Runtime(device="cpu", compile=compile, threads=1)


class Regression:
    """Least squares by a small network, with a slow copy of it, until a flag in the rows says to stop."""

    def __init__(self, *, compiled: bool | str = False) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
        self.parameters = Parameters("net", self.network)
        self.updater = Updater(self.parameters, Adam(), max_grad_norm=0.5)
        state = {
            **self.updater.initial_state(),
            "slow": self.parameters.flat.clone(),
            "untouched": torch.arange(4.0),
            STOPPED: torch.zeros((), dtype=torch.bool),
        }
        self.runner = UpdateRunner(State(state), runtime(compiled))

    def step(self, state: State, shared: Any, row: Any) -> StepResult:
        module = self.updater.module(state)
        error = module(row["pairs"]["x"]).squeeze(-1) - row["pairs"]["y"] * shared["scale"]
        loss = error.square().mean()
        stop = row["stop"]
        state, norm = self.updater.step(state, module, loss, shared["learning_rate"], skip=stop)
        state = self.parameters.polyak_update(state, "slow", 0.1 * (~stop).float()).replaced({STOPPED: stop})
        first = row["pairs"]["y"][0]
        metrics = {"loss": loss, "norm": norm, "first": first}
        return StepResult(state, metrics, {"error": error, "is_above": error > 0, "first": first})

    def run(self, n_steps: int, *, stop_at: int | None = None, until: int | None = None) -> UpdateResult:
        generator = torch.Generator().manual_seed(n_steps)
        rows = {
            "pairs": {
                "x": torch.randn(n_steps, 5, 3, generator=generator)[:until],
                "y": torch.randn(n_steps, 5, generator=generator)[:until],
            },
            "stop": (torch.arange(n_steps) == (-1 if stop_at is None else stop_at))[:until],
        }
        ran = self.runner.run(self.step, SHARED, rows)
        assert ran.names == NAMES
        n_seen = len(rows["stop"]) if stop_at is None else stop_at + 1
        assert ran.n_steps == n_seen - (stop_at is not None)
        assert torch.equal(ran.outputs["first"], rows["pairs"]["y"][:n_seen, 0])
        return ran

    def snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.runner.state.items()}


SHARED = {"scale": torch.tensor(2.0), "learning_rate": torch.tensor(0.01)}


def assert_same(compiled: UpdateResult, eager: UpdateResult) -> None:
    assert compiled.names == eager.names
    assert compiled.n_steps == eager.n_steps
    torch.testing.assert_close(compiled.metrics, eager.metrics, rtol=1e-4, atol=1e-5)
    assert list(compiled.outputs) == list(eager.outputs)
    for name, output in eager.outputs.items():
        torch.testing.assert_close(compiled.outputs[name], output, rtol=1e-3, atol=1e-4)


def assert_same_state(compiled: UpdateRunner, eager: UpdateRunner) -> None:
    for name, tensor in eager.state.items():
        torch.testing.assert_close(compiled.state[name], tensor, rtol=1e-3, atol=1e-5)


def test_metrics_are_averaged_and_outputs_are_stacked() -> None:
    whole, by_ones = Regression(), Regression()
    ran = whole.run(6)
    generator = torch.Generator().manual_seed(6)
    x, y = torch.randn(6, 5, 3, generator=generator), torch.randn(6, 5, generator=generator)
    state: State = LiveState(by_ones.runner.state)
    outcomes = []
    for i in range(6):
        outcome = by_ones.step(state, SHARED, {"pairs": {"x": x[i], "y": y[i]}, "stop": torch.tensor(False)})
        state = outcome.state
        outcomes.append(outcome)
    rows = [torch.stack(list(outcome.metrics.values())) for outcome in outcomes]
    torch.testing.assert_close(ran.metrics, torch.stack(rows).mean(0))
    assert torch.equal(ran.outputs["error"], torch.stack([outcome.outputs["error"] for outcome in outcomes]))
    assert not any(tensor.requires_grad for tensor in (ran.metrics, *ran.outputs.values()))
    for name, tensor in whole.runner.state.items():
        assert torch.equal(tensor, state[name]), name


def test_state_is_overwritten_in_place() -> None:
    regression = Regression()
    addresses = {name: tensor.data_ptr() for name, tensor in regression.runner.state.items()}
    before = regression.network[0].weight.detach().clone()
    regression.run(2)
    assert {name: t.data_ptr() for name, t in regression.runner.state.items()} == addresses
    assert not torch.equal(regression.network[0].weight, before)
    assert torch.equal(regression.runner.state["untouched"], torch.arange(4.0))


@pytest.mark.parametrize("stop_at", [0, 2, 5])
def test_stopped_call_keeps_only_the_steps_before_it(stop_at: int) -> None:
    stopped, short, longer = Regression(), Regression(), Regression()
    ran, expected = stopped.run(6, stop_at=stop_at), longer.run(6, until=stop_at + 1)
    assert torch.equal(ran.metrics, expected.metrics)
    assert torch.equal(ran.outputs["error"], expected.outputs["error"])
    if stop_at:
        short.run(6, until=stop_at)
    assert all(torch.equal(tensor, short.runner.state[name]) for name, tensor in stopped.snapshot().items())


@pytest.mark.parametrize("compiled", [True, "replayed"], indirect=True)
def test_compiled_calls_of_any_length_equal_eager_ones(compiled: bool) -> None:
    """Calls that grow are compiled at most twice, however many other loops this process has compiled."""
    eager, graphed = Regression(), Regression(compiled=compiled)
    addresses = {name: tensor.data_ptr() for name, tensor in graphed.runner.state.items()}
    longer = SMALLEST_CAPACITY + 5
    calls = [(3, None), (2, None), (3, 1), (7, None), (longer, None), (2 * longer, SMALLEST_CAPACITY + 2)]
    calls += [(2 * longer, 3), (5, None), (1, None), (1, 0)]
    with torch._dynamo.config.patch(recompile_limit=1):
        for n_steps, stop_at in calls:
            assert_same(graphed.run(n_steps, stop_at=stop_at), eager.run(n_steps, stop_at=stop_at))
            assert graphed.runner.runtime.compile is True
            assert_same_state(graphed.runner, eager.runner)
    assert len(graphed.runner._graphs) == (2 if graphed.runner.state.is_cuda else 3)
    assert {name: tensor.data_ptr() for name, tensor in graphed.runner.state.items()} == addresses
    values = torch.randn(4, 3)
    torch.testing.assert_close(graphed.network(values), eager.network(values), rtol=1e-3, atol=1e-4)


@COMPILED
def test_several_steps_and_functions_share_a_program(compiled: bool) -> None:
    regression = Regression(compiled=compiled)
    twin = Regression()

    def shift(state: State, shared: Tensor, row: Tensor) -> StepResult:
        return StepResult(state.replaced({"untouched": state["untouched"] + row * shared}), {"by": row})

    def both(state: State, x: dict[str, Tensor]) -> dict[str, Any]:
        return {"sum": state["untouched"].sum() + x["a"], "same": (x["a"], state["untouched"])}

    regression.run(2)
    ran = regression.runner.run(shift, torch.tensor(2.0), torch.tensor([1.0, 3.0]))
    assert (ran.names, ran.metrics.tolist(), ran.outputs) == (["by"], [2.0], {})
    before = regression.snapshot()
    result = regression.runner.call(both, {"a": torch.tensor(1.0)})
    assert result["sum"] == 6 + 4 * 8 + 1
    assert result["same"][0] == 1
    assert torch.equal(result["same"][1], torch.arange(4.0) + 8)
    regression.runner.state["untouched"].add_(1)
    assert torch.equal(result["same"][1], torch.arange(4.0) + 8)
    regression.runner.state["untouched"].sub_(1)
    assert all(torch.equal(regression.runner.state[name], tensor) for name, tensor in before.items())
    twin.run(2)
    assert_same(regression.run(2), twin.run(2))
    assert regression.runner.runtime.compile == compiled


@COMPILED_SLOWLY
def test_a_function_can_only_read_the_state(compiled: bool) -> None:
    regression = Regression(compiled=compiled)

    def tried(state: State, rate: Tensor) -> Tensor:
        module = regression.updater.module(state)
        moved, _ = regression.updater.step(state, module, module(torch.ones(1, 3)).sum(), rate)
        return moved["net"]

    before = regression.snapshot()
    moved = regression.runner.call(tried, torch.tensor(0.1))
    assert not torch.equal(moved, before["net"])
    assert all(torch.equal(regression.runner.state[name], tensor) for name, tensor in before.items())
    assert regression.runner.runtime.compile == compiled


@COMPILED
@pytest.mark.parametrize("n_rows", [1, 3])
def test_entries_can_change_places(compiled: bool, n_rows: int) -> None:
    runner = UpdateRunner(State(a=torch.zeros(2), b=torch.arange(2.0)), runtime(compiled))
    for _ in range(2):
        runner.run(_swap, torch.zeros(()), torch.zeros(n_rows))
    assert runner.state["a"].tolist() == [0.0, 0.0]
    assert runner.state["b"].tolist() == [0.0, 1.0]
    runner.run(_swap, torch.zeros(()), torch.zeros(n_rows))
    assert runner.state["a"].tolist() == [0.0, 1.0]
    assert runner.runtime.compile == compiled


@COMPILED_SLOWLY
@pytest.mark.parametrize(("n_rows", "keeps"), [(1, True), (3, False)])
def test_what_was_can_be_kept_beside_what_is(compiled: bool, n_rows: int, keeps: bool) -> None:
    regression = Regression(compiled=compiled)

    def step(state: State, shared: Any, row: Any) -> StepResult:
        old = state.snapshot("net")
        module = regression.updater.module(state)
        loss = module(row).square().mean()
        state, _ = regression.updater.step(state, module, loss, shared)
        new = {"slow": old} if keeps else {}
        return StepResult(state.replaced(new), {}, {"old": old, "new": state["net"]})

    start = regression.parameters.flat.clone()
    ran = regression.runner.run(step, torch.tensor(0.1), torch.ones(n_rows, 2, 3))
    assert (ran.names, ran.metrics.tolist()) == ([], [])
    assert torch.equal(ran.outputs["old"][0], start)
    assert torch.equal(ran.outputs["old"][1:], ran.outputs["new"][:-1])
    assert torch.equal(ran.outputs["new"][-1], regression.parameters.flat)
    assert torch.equal(regression.runner.state["slow"], ran.outputs["old"][-1] if keeps else start)
    assert not torch.equal(regression.runner.state["slow"], regression.parameters.flat)
    assert regression.runner.runtime.compile == compiled


def _swap(state: State, shared: Tensor, row: Tensor) -> StepResult:
    return StepResult(state.replaced({"a": state["b"], "b": state["a"]}), {})


def test_compiling_is_decided_after_first_eager_step() -> None:
    long, short = Regression(compiled="auto"), Regression(compiled="auto")
    long.runner.runtime.expect(1e7, 1e4)
    short.runner.runtime.expect(10, 1e4)
    for regression, compiles in ((long, True), (short, False)):
        regression.run(3)
        assert regression.runner.runtime.compile == compiles
        assert not regression.runner._graphs
        assert regression.runner.runtime.compile != "auto"
    assert_same(long.run(3), short.run(3))
    assert len(long.runner._graphs) == 1


class Branching(nn.Linear):
    """A module whose arithmetic depends on the values that it sees."""

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(-values if values.sum() > 0 else values)


class Counting(nn.Linear):
    """A module with a tensor that is not saved, so no part of the state."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        return super().forward(values + self.get_buffer("calls"))


@pytest.mark.parametrize("module", [Branching, Counting])
def test_what_one_graph_cannot_hold_goes_on_eagerly(module: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A graph would keep the branch, or the buffer, that it was traced with."""
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        updater = Updater(Parameters("net", module(3, 1)), Adam())

        def step(state: State, shared: Any, row: Any, updater: Updater = updater) -> StepResult:
            network = updater.module(state)
            loss = network(row).square().mean()
            state, _ = updater.step(state, network, loss, torch.tensor(0.1))
            return StepResult(state, {"loss": loss})

        runner = UpdateRunner(updater.initial_state(), runtime(compiled))
        rows = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(1))
        runner.run(step, torch.zeros(()), rows)
        runner.run(step, torch.zeros(()), rows[:1])
        assert runner.runtime.compile is False
        assert runner.runtime.state()["compile"] is False
        ends.append(updater.parameters.flat)
    assert torch.equal(*ends)
    assert caplog.text.count("going on without") == 1


def test_eager_runs_load_nothing_that_compiles() -> None:
    program = """
import sys
from test_update_runner import Regression
before = set(sys.modules)
regression = Regression(compiled="auto")
regression.runner.runtime.expect(10, 1e4)
regression.run(4)
regression.runner.call(lambda state, x: state["net"] * x, regression.parameters.flat)
new = set(sys.modules) - before
assert "zoo.optim.compile" not in sys.modules
assert "torch.fx.experimental.proxy_tensor" not in new, new
assert not [name for name in sys.modules if name.startswith("torch._inductor.compile_fx")]
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", program]
    finished = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
