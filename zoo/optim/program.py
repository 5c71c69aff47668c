"""Running an update step many times: eagerly, or as one compiled graph.

An algorithm writes one pure step, ``step(state, shared, inputs) -> (state, metrics)``, in ordinary PyTorch.
Here it is traced once with its gradients and its optimizer into a single graph of tensor operations, a loop
over the steps is put around that graph, and the whole is compiled. On a GPU each step is a CUDA graph.
Eager and compiled runs see the same numbers, because whatever is random is drawn outside and passed in.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from zoo.optim.trainable import State

Tree = Any
"""A tensor, or dictionaries of tensors."""

Step = Callable[[State, Tree, Tree], tuple[State, dict[str, Tensor]]]
"""One update: state, what all steps share, and this step's inputs, to the next state and scalar metrics."""

STOPPED = "stopped"
"""The state entry (a bool scalar) that ends the remaining steps of a call once it is true."""

SMALLEST_ROOM = 16
"""Steps that a compiled loop holds at least, once the number of steps in a call has grown."""

INDUCTOR_OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,
    "cpp.use_decompose_tanh": True,
    "compile_threads": 1,
    "pattern_matcher": False,  # it would put bias and product together again, see _addmm
}

_loop_numbers = itertools.count()

logger = logging.getLogger(__name__)


class UpdateProgram:
    """Repeats ``step`` on ``state``, whose tensors are overwritten in place by each call of `run`.

    Parameters that are views of a state's tensor therefore always show the last finished call.
    """

    def __init__(self, step: Step, state: State, *, compiled: bool) -> None:
        self.step = step
        self.state = state
        self.compiled = compiled
        self.metric_names: list[str] = []
        self._graphs: dict[Any, _Graph] = {}
        self._room = 1

    def run(self, shared: Tree, inputs: Tree) -> tuple[Tensor, int]:
        """Take one step for each row of ``inputs`` (leading dimension: steps).

        Returns the means of the metrics over the steps taken, in the order of ``metric_names`` and still as
        a tensor, and the number of rows.
        """
        n_steps = len(pytree.tree_leaves(inputs)[0])
        if self.compiled:
            try:
                return self._run_compiled(shared, inputs, n_steps), n_steps
            except Exception as error:
                self.compiled = False
                reason = str(error).strip().splitlines() or [type(error).__name__]
                logger.warning("compiling the update failed, going on without: %s", reason[0])
        return self._run_eager(shared, inputs, n_steps), n_steps

    def _run_eager(self, shared: Tree, inputs: Tree, n_steps: int) -> Tensor:
        state = self.state
        totals: Tensor | None = None
        taken = 0
        for row in range(n_steps):
            state, metrics = self.step(state, shared, _row(inputs, row))
            self.metric_names = list(metrics)
            values = torch.stack(list(metrics.values()))
            totals = values if totals is None else totals + values
            taken += 1
            if STOPPED in state and bool(state[STOPPED]):
                break
        self._keep(state)
        assert totals is not None
        return totals / taken

    def _run_compiled(self, shared: Tree, inputs: Tree, n_steps: int) -> Tensor:
        device = next(iter(self.state.values())).device
        if n_steps == 1 or device.type != "cpu":
            return self._run_single_steps(shared, inputs, n_steps)
        self._make_room(n_steps)
        leaves, rows = pytree.tree_leaves(shared), pytree.tree_leaves(inputs)
        graph = self._graph("loop", leaves, rows, shared, inputs)
        totals = torch.zeros(len(graph.metrics))
        steps_taken = torch.zeros((), dtype=torch.int64)
        for first in range(0, n_steps, self._room):
            piece = [leaf[first : first + self._room] for leaf in rows]
            padded = [_padded(leaf, self._room) for leaf in piece]
            taken, *changed, sums = graph.call(
                torch.tensor(len(piece[0])), *self.state.values(), *leaves, *padded
            )
            totals, steps_taken = totals + sums, steps_taken + taken
            if self._keep(dict(zip(graph.changed, changed, strict=True))):
                break
        return totals / steps_taken

    def _make_room(self, n_steps: int) -> None:
        """Let the compiled loop hold the first call's steps; where calls grow, a few more, once.

        Compiling takes many seconds, so the longer calls after that are taken in pieces.
        """
        if n_steps > self._room and self._room < SMALLEST_ROOM:
            self._room = n_steps if self._room == 1 else max(n_steps, SMALLEST_ROOM)

    def _run_single_steps(self, shared: Tree, inputs: Tree, n_steps: int) -> Tensor:
        leaves, rows = pytree.tree_leaves(shared), pytree.tree_leaves(inputs)
        graph = self._graph("step", leaves, rows, shared, inputs)
        totals: Tensor | None = None
        taken = 0
        for i in range(n_steps):
            *changed, metrics = graph.call(*self.state.values(), *leaves, *(row[i] for row in rows))
            totals = metrics.clone() if totals is None else totals + metrics
            taken += 1
            if self._keep(dict(zip(graph.changed, changed, strict=True))):
                break
        assert totals is not None
        return totals / taken

    def _keep(self, new: State) -> bool:
        """Overwrite the state, and return whether it asks to stop."""
        for key, value in new.items():
            if value is not self.state[key]:
                self.state[key].copy_(value)
        if STOPPED not in self.state:
            return False
        stop = bool(self.state[STOPPED])
        self.state[STOPPED].zero_()
        return stop

    def _graph(
        self, kind: str, leaves: list[Tensor], rows: list[Tensor], shared: Tree, inputs: Tree
    ) -> _Graph:
        shapes = (*(leaf.shape for leaf in leaves), *(row.shape[1:] for row in rows))
        key = (kind, self._room, *shapes, *(tensor.dtype for tensor in (*leaves, *rows)))
        if key not in self._graphs:
            traced = _trace(self.step, self.state, shared, _row(inputs, 0))
            self._graphs[key] = _compile_loop(traced) if kind == "loop" else _compile_step(traced)
            self.metric_names = self._graphs[key].metrics
        return self._graphs[key]


class _Graph(NamedTuple):
    """A compiled call, the state entries that it returns (others are overwritten), and its metrics."""

    call: Callable[..., Sequence[Tensor]]
    changed: list[str]
    metrics: list[str]


class _Traced(NamedTuple):
    """The step as a graph of operations: flat tensors to changed state entries and a vector of metrics."""

    graph: torch.fx.GraphModule
    state_names: list[str]
    changed: list[str]
    metrics: list[str]
    n_shared: int
    example: list[Tensor]


def _trace(step: Step, state: State, shared: Tree, inputs: Tree) -> _Traced:
    from torch.fx.experimental.proxy_tensor import make_fx

    names = list(state)
    shared_leaves, shared_tree = pytree.tree_flatten(shared)
    input_leaves, input_tree = pytree.tree_flatten(inputs)
    changed: list[str] = []
    metric_names: list[str] = []

    def flat_step(*tensors: Tensor) -> list[Tensor]:
        old = dict(zip(names, tensors[: len(names)], strict=True))
        rest = list(tensors[len(names) :])
        new, metrics = step(
            old,
            pytree.tree_unflatten(rest[: len(shared_leaves)], shared_tree),
            pytree.tree_unflatten(rest[len(shared_leaves) :], input_tree),
        )
        changed[:] = [name for name in names if new[name] is not old[name]]
        metric_names[:] = list(metrics)
        return [*(new[name] for name in changed), torch.stack([value.float() for value in metrics.values()])]

    example = [*state.values(), *shared_leaves, *input_leaves]
    graph = make_fx(flat_step, {torch.ops.aten.addmm.default: _addmm}, tracing_mode="fake")(*example)
    return _Traced(graph, names, changed, metric_names, len(shared_leaves), example)


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Add the bias after the product, where it fuses with what follows: ``addmm`` starts by copying it."""
    return left @ right + bias if alpha == beta == 1 else NotImplemented


def _compile_step(traced: _Traced) -> _Graph:
    """Compile one step, which on a CPU overwrites the state by itself."""
    if traced.example[0].device.type == "cuda":
        call = torch.compile(traced.graph, fullgraph=True, dynamic=False, mode="reduce-overhead")
        return _Graph(call, traced.changed, traced.metrics)
    graph = traced.graph.graph
    placeholders = dict(zip(traced.state_names, graph.nodes, strict=False))
    output = graph.output_node()
    results: Any = output.args[0]
    *new, metrics = results
    with graph.inserting_before(output):
        for name, value in zip(traced.changed, new, strict=True):
            graph.call_function(torch.ops.aten.copy_.default, (placeholders[name], value))
    output.args = ([metrics],)
    for node in graph.nodes:
        node.meta.clear()
    traced.graph.recompile()
    call = torch._inductor.compile(traced.graph, list(traced.example), INDUCTOR_OPTIONS)
    return _Graph(call, [], traced.metrics)


def _compile_loop(traced: _Traced) -> _Graph:
    """Put `torch.while_loop` around the traced step: nothing returns to Python between the steps."""
    graph, names, changed = traced.graph, traced.state_names, traced.changed
    n_state, n_metrics = len(names), len(traced.metrics)
    positions = [names.index(name) for name in changed]
    stop_position = changed.index(STOPPED) if STOPPED in changed else None
    first_row = n_state + traced.n_shared

    def loop(n_steps: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        state, shared, rows = tensors[:n_state], tensors[n_state:first_row], tensors[first_row:]

        def unfinished(i: Tensor, *carried: Tensor) -> Tensor:
            more = i < n_steps
            return more if stop_position is None else more & ~carried[stop_position]

        def body(i: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
            current = list(state)
            for position, value in zip(positions, carried[:-1], strict=True):
                current[position] = value
            index = i.reshape(1)
            row = [values.index_select(0, index).squeeze(0) for values in rows]
            *new, metrics = graph(*current, *shared, *row)
            return (i + 1, *new, carried[-1] + metrics)

        start = (torch.zeros((), dtype=torch.int64), *(state[p] for p in positions), torch.zeros(n_metrics))
        return torch.while_loop(unfinished, body, start)

    # Torch counts the recompilations of a code object, however many functions are made of it, and refuses the
    # ninth: each loop gets a code object of its own.
    loop.__code__ = loop.__code__.replace(co_name=f"loop_{next(_loop_numbers)}")
    compiled = torch.compile(loop, fullgraph=True, dynamic=False, options=INDUCTOR_OPTIONS)
    return _Graph(compiled, changed, traced.metrics)


def _row(inputs: Tree, index: int) -> Tree:
    return pytree.tree_map(lambda rows: rows[index], inputs)


def _padded(rows: Tensor, length: int) -> Tensor:
    if rows.shape[0] == length:
        return rows
    return torch.cat([rows, rows.new_zeros((length - rows.shape[0], *rows.shape[1:]))])
