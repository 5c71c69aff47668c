"""The state that updates read and replace, and what runs their steps: eagerly, or as compiled graphs.

An algorithm writes one step, ``step(state, shared, row) -> StepResult``, in ordinary PyTorch: a function of
a state. Given a plain `State` it leaves it alone and returns the next one: so it is traced, once, with its
gradients and its optimizer, into a single graph of tensor operations, and a loop over the rows is put around
that graph (`zoo.optim.compile`); on a GPU each step is a CUDA graph. Given the runner's `LiveState` it
overwrites the tensors themselves, which takes far fewer operations, and returns the same object. The code of
a step is the same for both, as long as it goes on with the state that the last call returned, and asks for a
`State.snapshot` where it needs an older tensor. Both see the same numbers, because random numbers are drawn
outside and passed in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

# The place that PyTorch's own documentation of dispatch modes imports from.
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.optim.runtime import CompilingInterrupted, Runtime

if TYPE_CHECKING:
    from zoo.optim.workers import Workers

SMALLEST_CAPACITY = 16
"""Steps that a compiled loop holds at least, once the number of steps in a call has grown."""

STOPPED = "stopped"
"""The state entry (a bool scalar) by which a step says that it moved nothing, and ends the call."""

Tree = Any  # A tensor, or dicts, tuples and lists of trees

Rates = Mapping[str, Tensor]  # hyperparameters that follow a schedule, by name: scalars of this moment

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


# -- what a step reads and returns -----------------------------------------------------------------------


class State(dict[str, Tensor]):
    """All tensors that updates read and replace, by name."""

    def snapshot(self, name: str) -> Tensor:
        """Return the tensor's current value, safe from later steps."""
        return self[name]

    def replaced(self, tensors: Mapping[str, Tensor]) -> State:
        """Return the next state, with these tensors in place of its own of the same names and shapes."""
        self._check_shapes(tensors)
        return State({**self, **tensors})

    def _check_shapes(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if tensor.shape != self[name].shape:
                raise ValueError(f"{name}: {tuple(tensor.shape)} cannot replace {tuple(self[name].shape)}")


class LiveState(State):
    """The tensors themselves, which modules share: steps on it overwrite them."""

    @property
    def is_cuda(self) -> bool:
        """Whether they lie on a GPU."""
        return next(iter(self.values())).is_cuda

    def snapshot(self, name: str) -> Tensor:
        """Return a copy of the tensor."""
        return self[name].clone()

    def replaced(self, tensors: Mapping[str, Tensor]) -> LiveState:
        """Overwrite this state's tensors, and return it."""
        self.overwrite(tensors)
        return self

    def overwrite(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors into the state's tensors of the same names."""
        new = {name: tensor.detach() for name, tensor in tensors.items() if tensor is not self[name]}
        self._check_shapes(new)
        for name, tensor in zip(new, self.without_aliases(new.values()), strict=True):
            self[name].copy_(tensor)

    def without_aliases(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Return the tensors, with a copy for each that shares memory with this state."""
        inputs = list(tensors)
        memory = {tensor.untyped_storage().data_ptr() for tensor in self.values()} if inputs else set()
        return [value.clone() if value.untyped_storage().data_ptr() in memory else value for value in inputs]


class StepResult(NamedTuple):
    """What one step returns: the next state, scalar metrics, and outputs for each sample of its row."""

    state: State
    metrics: dict[str, Tensor]
    outputs: Mapping[str, Tensor] = MappingProxyType({})


Step = Callable[[State, Any, Any], StepResult]
"""One update, in ordinary PyTorch: of the state, of what all steps share, and of this step's row.

The last two are trees. No ``.item()``, no NumPy, no branch on a value.
"""


def is_concrete(tensor: Tensor) -> bool:
    """Return whether the tensor holds numbers; those that a step is traced with have none."""
    return type(tensor) is Tensor


# -- trees of tensors -------------------------------------------------------------------------------------


def tree_leaves(tree: Tree) -> list[Tensor]:
    """Return the tensors of a tree, always in the same order. Raises `TypeError` for anything else in it."""
    if isinstance(tree, Tensor):
        return [tree]
    if not isinstance(tree, dict | tuple | list):
        raise TypeError(f"expected tensors, or dicts, tuples and lists of them; found {type(tree).__name__}")
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in tree_leaves(part)]


def joined(first: Any, second: Any) -> Any:
    """Return the rows of two batches, one after the other: tensors, or dictionaries of them."""
    if isinstance(first, Tensor):
        return torch.cat([first, second])
    return {name: joined(part, second[name]) for name, part in first.items()}


def tree_map(function: Callable[[Tensor], Any], tree: Tree) -> Tree:
    """Apply the function to each tensor of the tree."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {name: tree_map(function, part) for name, part in tree.items()}
    parts = [tree_map(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def tree_unflatten(tree: Tree, tensors: Iterable[Tensor]) -> Tree:
    """Return a tree of the same structure with these tensors, one for each of its `tree_leaves`."""
    remaining = iter(tensors)
    return tree_map(lambda _: next(remaining), tree)


def tree_row(rows: Tree, index: int) -> Tree:
    """Return one row of tensors with a leading dimension."""
    return tree_map(lambda tensor: tensor[index], rows)


def tree_signature(tree: Tree, first_dimension: int = 0) -> Hashable:
    """Return the key of a tree's compiled graph: names, shapes from ``first_dimension`` on, dtypes."""
    if isinstance(tree, dict):
        return tuple((name, tree_signature(part, first_dimension)) for name, part in tree.items())
    if isinstance(tree, tuple | list):
        return type(tree), *(tree_signature(part, first_dimension) for part in tree)
    return tree.shape[first_dimension:], tree.dtype


# -- means over data-parallel ranks -----------------------------------------------------------------------

_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)
"""The ranks whose update is running, None if a process learns alone."""


@contextmanager
def averaging_over(workers: Workers | None) -> Iterator[None]:
    """Average over these ranks inside the block; with None, each process has its own means."""
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


def average(tensor: Tensor) -> Tensor:
    """Return the mean of a floating-point tensor over all ranks; a process alone returns its own."""
    workers = _workers.get()
    return tensor if workers is None else workers.mean(tensor)


def average_number(number: float) -> float:
    """Return the mean of a number over all ranks."""
    workers = _workers.get()
    return number if workers is None else workers.sum(number)[0] / workers.size


def n_ranks() -> int:
    """Return the number of ranks that share the running update."""
    workers = _workers.get()
    return 1 if workers is None else workers.size


# -- running steps ----------------------------------------------------------------------------------------


class UpdateResult(NamedTuple):
    """Results of the steps on some rows: metrics in the order of ``names``, and outputs (rows, …).

    `UpdateRunner.run` returns means of the metrics, and does not count a last step that `STOPPED`.
    """

    n_steps: int
    names: list[str]
    metrics: Tensor
    outputs: dict[str, Tensor]


RunRows = Callable[[Tree, Tree, int], UpdateResult]
"""Takes the steps on some of the rows, of ``(shared, rows, first row)``, and overwrites the live state.

Returns sums of the metrics, and counts the last step however it ended.
"""


class ScalarMeans:
    """Sums of recorded values by name. Tensors stay tensors until they are read, so recording never waits.

    Rows are values of one step (an evaluation's); they are logged as they are, never averaged.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[tuple[str, ...], tuple[Any, int]] = {}
        self._rows: dict[int, dict[str, float]] = {}

    def record(self, names: Sequence[str], values: Any) -> None:
        """Add one value to each name; with several names, a vector of them."""
        key = tuple(names)
        total, count = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + values, count + 1)

    def record_row(self, timesteps: int, scalars: Mapping[str, float]) -> None:
        """Keep the values of one step."""
        self._rows.setdefault(timesteps, {}).update(scalars)

    def read_rows(self, before: int) -> dict[int, dict[str, float]]:
        """Return the rows of steps below ``before`` since the last call, by their steps."""
        return {step: self._rows.pop(step) for step in sorted(self._rows) if step < before}

    def read(self) -> dict[str, float]:
        """Return the means since the last call, and of the rows that were not read the latest values."""
        totals, counts = Counter[str](), Counter[str]()
        for names, (total, count) in self._sums.items():
            values = total.reshape(-1).tolist() if isinstance(total, Tensor) else [float(total)]
            totals.update(dict(zip(names, values, strict=True)))
            counts.update(dict.fromkeys(names, count))
        means = {name: total / counts[name] for name, total in totals.items()}
        for _, row in sorted(self._rows.items()):
            means.update(row)
        self._sums, self._rows = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return the sums as numbers for JSON."""
        sums = self._sums.values()
        totals = [total.tolist() if isinstance(total, Tensor) else float(total) for total, _ in sums]
        return {
            "names": [list(names) for names in self._sums],
            "totals": totals,
            "counts": [count for _, count in sums],
            "rows": [[step, row] for step, row in self._rows.items()],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._rows = {int(step): dict(row) for step, row in state.get("rows", ())}
        self._sums = {}
        for names, total, count in zip(state["names"], state["totals"], state["counts"], strict=True):
            if isinstance(total, list):
                total = torch.tensor(total, device=self._device)
            self._sums[tuple(names)] = (total, count)


class UpdateRunner:
    """Takes steps on one state. Parameters that are views of its tensors show the last finished call.

    Graphs are kept for each step (a bound method is equal to itself; a new lambda is a new step) and for the
    names, shapes and dtypes that it was called with. What can't be compiled runs eagerly from then on; one of
    several ranks can't go on without the others, so there it ends the run.
    """

    def __init__(self, state: State, runtime: Runtime) -> None:
        self.state = LiveState(state)
        self.runtime = runtime
        self._graphs: dict[Hashable, Callable[..., Any]] = {}
        self._capacities: dict[Step, int] = {}

    def run(self, step: Step, shared: Tree, rows: Tree) -> UpdateResult:
        """Take a step for each row of ``rows`` (steps, …) and the ``shared`` tensors, until one `STOPPED`."""
        n_rows = len(tree_leaves(rows)[0])
        run_rows, first = self._run_first(step, shared, rows, n_rows)
        parts, n_done = [first], first.n_steps
        while not (stopped := self._stopped()) and n_done < n_rows:
            parts.append(run_rows(shared, rows, n_done))
            n_done += parts[-1].n_steps
        sums = sum((part.metrics for part in parts[1:]), first.metrics)
        outputs = {name: torch.cat([part.outputs[name] for part in parts]) for name in first.outputs}
        means = sums if n_done == 1 else sums / n_done
        return UpdateResult(n_done - stopped, first.names, means, outputs)

    def call(self, function: Callable[..., Tree], *trees: Tree) -> Tree:
        """Return ``function(state, *trees)``, which only reads the state: a product, an evaluation."""
        compiled = None
        if self.runtime.compile is True:
            key = function, *(tree_signature(tree) for tree in trees)
            compiled = self._run_compiled(key, partial(self._compile_function, function, trees), *trees)
        result = function(State(self.state), *trees) if compiled is None else compiled[1]
        tensors = self.state.without_aliases(tensor.detach() for tensor in tree_leaves(result))
        return tree_unflatten(result, tensors)

    def _run_first(self, step: Step, shared: Tree, rows: Tree, n_rows: int) -> tuple[RunRows, UpdateResult]:
        """Return the function that runs this call's rows, and the result of the first ones."""
        if self.runtime.compile is True:
            capacity = self._capacity(step, n_rows)
            key = step, capacity, tree_signature(shared), tree_signature(rows, first_dimension=1)
            make = partial(self._compile_step, step, shared, rows, capacity)
            compiled = self._run_compiled(key, make, shared, rows, 0)
            if compiled is not None:
                return compiled
        run_row = partial(self._run_eagerly, step)
        if self.runtime.compile != "auto" or self.runtime.expected_gradient_steps is None:
            return run_row, run_row(shared, rows, 0)
        counter = _OperationCounter()  # type: ignore[no-untyped-call]
        with counter:
            result = run_row(shared, rows, 0)
        self.runtime.decide(counter.n_operations)
        return run_row, result

    def _run_eagerly(self, step: Step, shared: Tree, rows: Tree, index: int) -> UpdateResult:
        result = step(self.state, shared, tree_row(rows, index))
        self.state.overwrite(result.state)
        values = [value.detach() for value in result.metrics.values()]
        sums = torch.stack(values) if values else torch.tensor([])
        outputs = self.state.without_aliases(output.detach()[None] for output in result.outputs.values())
        return UpdateResult(1, list(result.metrics), sums, dict(zip(result.outputs, outputs, strict=True)))

    def _run_compiled(
        self, key: Hashable, make: Callable[[], Callable[..., Result]], *arguments: Any
    ) -> tuple[Callable[..., Result], Result] | None:
        """Return a graph and its result; None, and the state as it was, if its first call failed."""
        workers = _workers.get()
        key = workers, key
        if key in self._graphs:
            return self._graphs[key], self._graphs[key](*arguments)
        before = {name: self.state.snapshot(name) for name in self.state}
        try:
            with self.runtime.compile_clock.running():  # torch compiles a loop when it is first called
                graph = make()
                result = graph(*arguments)
        except KeyboardInterrupt:
            self.state.overwrite(before)
            self.runtime.compile = self.runtime.chosen_compile  # a rule decides anew in the next training
            raise CompilingInterrupted from None
        except Exception as error:
            self.state.overwrite(before)
            self.runtime.compile = False
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if workers is not None:
                message = f"compiling the update failed; compile=false goes without: {reason}"
                raise RuntimeError(message) from error
            logger.warning("compiling the update failed, going on without: %s", reason)
            return None
        self._graphs[key] = graph
        return graph, result

    def _compile_step(self, step: Step, shared: Tree, rows: Tree, capacity: int) -> RunRows:
        from zoo.optim.compile import compile_loop, compile_replayed, compile_single

        row = tree_row(rows, 0)
        if self.state.is_cuda:
            return compile_replayed(step, self.state, shared, row, capacity)
        if capacity == 1:
            return compile_single(step, self.state, shared, row)
        return compile_loop(step, self.state, shared, row, capacity)

    def _compile_function(self, function: Callable[..., Tree], trees: Tree) -> Callable[..., Tree]:
        from zoo.optim.compile import compile_function

        return compile_function(function, self.state, trees)

    def _capacity(self, step: Step, n_rows: int) -> int:
        """Return how many steps a graph holds: those of the first call; where calls grow, a few more, once.

        Compiling takes many seconds, so longer calls are then taken in parts. One step needs no loop.
        """
        capacity = self._capacities.setdefault(step, n_rows)
        if n_rows == 1 and not self.state.is_cuda:
            return 1
        if capacity < min(n_rows, SMALLEST_CAPACITY):
            capacity = self._capacities[step] = max(n_rows, SMALLEST_CAPACITY)
        return capacity

    def _stopped(self) -> bool:
        """Return whether the last step asked for an end, and clear that."""
        if STOPPED not in self.state:
            return False
        stopped = bool(self.state[STOPPED])
        self.state[STOPPED].zero_()
        return stopped


class _OperationCounter(TorchDispatchMode):
    """Counts the tensor operations within its block, including backward passes."""

    n_operations = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n_operations += 1
        return operation(*args, **(kwargs or {}))
