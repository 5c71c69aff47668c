"""Updates and functions as compiled graphs: a step is traced with its gradients, and a loop put around it.

Imported only once something is to be compiled. What is private in PyTorch stands here (tried with 2.13):
`make_fx`, which traces a step and its gradients into one graph, `compile_fx`, which compiles such a graph,
copies of many tensors, and sums over ranks. If any of it fails, `zoo.optim.update_runner` goes on eagerly,
by public means alone.

On a CPU one step becomes a call that overwrites the state by itself; several become a `torch.while_loop`, so
that nothing returns to Python between them. A GPU replays a CUDA graph for each row (`compile_replayed`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.gpu import CudaGraph, GraphedFunction
from zoo.optim.update_runner import (
    STOPPED,
    LiveState,
    RunRows,
    State,
    Step,
    Tree,
    UpdateResult,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

INDUCTOR_OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,
    "cpp.use_decompose_tanh": True,
    "compile_threads": 1,
    "pattern_matcher": False,  # it would put bias and product together again
}

FEW_COLUMNS = 25  # up to which MKL was faster with a product's factors swapped, for batches of 64 and 256

_loop_numbers = itertools.count()


if not os.environ.get("TORCHINDUCTOR_CACHE_DIR"):  # else PyTorch takes a folder that all users share
    _folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "zoo", "inductor").absolute()
    _folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(_folder)

# These import inductor, which asks for its folder then.
from torch._inductor.compile_fx import compile_fx  # noqa: E402

from zoo.optim import zen5_products  # noqa: E402


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """Swap the factors of a narrow product, such as a first layer's gradient: MKL is up to 6 times faster."""
    if left.device.type == "cpu" and 1 < right.shape[1] <= FEW_COLUMNS < left.shape[0]:
        return (right.t() @ left.t()).t().contiguous()
    return NotImplemented


_aten = torch.ops.aten

# A bias fuses with what follows, not with the product.
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.addmm.default: lambda bias, left, right: left @ right + bias,
    torch.ops.aten.mm.default: _mm,
    **zen5_products.decompositions(),
    # Whole, these move running statistics without saying so in their schema.
    **get_decompositions([_aten.native_batch_norm, _aten.cudnn_batch_norm, _aten.cudnn_batch_norm_backward]),
}


class _Traced(NamedTuple):
    """A step as a graph: flat tensors to changed state entries, a vector of metrics, and outputs."""

    graph: torch.fx.GraphModule
    example: list[Tensor]
    state_names: list[str]
    changed: list[str]
    metrics: list[str]
    outputs: dict[str, tuple[torch.Size, torch.dtype]]
    moves: bool  # whether an entry or output is an entry's old value, overwritten when read


def compile_single(step: Step, state: LiveState, shared: Tree, row: Tree) -> RunRows:
    """Return a function that takes the step on one row; the arguments here are examples."""
    traced = _trace(step, state, shared, row)
    call = _inductor(traced.graph, traced.example) if traced.moves else _overwriting(traced)
    changed = traced.changed if traced.moves else []

    def run(shared: Tree, rows: Tree, first: int) -> UpdateResult:
        row = [tensor[first] for tensor in tree_leaves(rows)]
        results = call(*state.values(), *tree_leaves(shared), *row)
        if traced.moves:
            results = state.without_aliases(results)
        state.overwrite(dict(zip(changed, results[: len(changed)], strict=True)))
        metrics, *outputs = results[len(changed) :]
        named = zip(traced.outputs, (output[None] for output in outputs), strict=True)
        return UpdateResult(1, traced.metrics, metrics, dict(named))

    return run


def compile_loop(step: Step, state: LiveState, shared: Tree, row: Tree, capacity: int) -> RunRows:
    """Compile the step to run up to ``capacity`` rows per call, or one row if entries move."""
    traced = _trace(step, state, shared, row)
    if traced.moves:
        return compile_single(step, state, shared, row)
    call = _loop(traced, len(tree_leaves(shared)))

    def run(shared: Tree, rows: Tree, first: int) -> UpdateResult:
        parts = [tensor[first : first + capacity] for tensor in tree_leaves(rows)]
        n_rows, sums = torch.tensor(len(parts[0])), torch.zeros(len(traced.metrics))
        missing = capacity - len(parts[0])
        if missing:
            parts = [torch.cat([part, part.new_zeros((missing, *part.shape[1:]))]) for part in parts]
        outputs = [torch.zeros((capacity, *shape), dtype=dtype) for shape, dtype in traced.outputs.values()]
        with torch.no_grad():  # in which torch lets a loop overwrite tensors
            n_done = int(call(n_rows, sums, outputs, *state.values(), *tree_leaves(shared), *parts))
        named = zip(traced.outputs, (output[:n_done] for output in outputs), strict=True)
        return UpdateResult(n_done, traced.metrics, sums, dict(named))

    return run


def compile_replayed(step: Step, state: LiveState, shared: Tree, row: Tree, capacity: int) -> RunRows:
    """Compile the step to run up to ``capacity`` rows per call on a GPU that already holds them."""
    traced = _trace(step, state, shared, row)
    call, device = _inductor(traced.graph, traced.example), traced.example[0].device
    changed, names, stops = traced.changed, traced.metrics, STOPPED in state
    held = [tensor.clone() for tensor in tree_leaves(shared)]
    held_rows = [tensor.expand(capacity, *tensor.shape).clone() for tensor in tree_leaves(row)]
    index = torch.zeros(1, dtype=torch.int64, device=device)
    metrics = torch.zeros((capacity, len(names)), device=device)
    outputs = {
        name: torch.zeros((capacity, *shape), dtype=dtype, device=device)
        for name, (shape, dtype) in traced.outputs.items()
    }

    def one_step() -> None:
        row = [values.index_select(0, index).squeeze(0) for values in held_rows]
        results = call(*state.values(), *held, *row)
        for name, result in zip(changed, results, strict=False):
            state[name].copy_(result)
        for buffer, result in zip((metrics, *outputs.values()), results[len(changed) :], strict=True):
            buffer.index_copy_(0, index, result[None])
        index.add_(1).remainder_(capacity)  # warm-ups may be more than the rows

    with torch.no_grad():
        graph = CudaGraph(one_step, device, [*(state[name] for name in changed), index])

    @torch.no_grad()
    def run(shared: Tree, rows: Tree, first: int) -> UpdateResult:
        parts = [tensor[first : first + capacity] for tensor in tree_leaves(rows)]
        n_rows, n_done = len(parts[0]), 0
        _copy_all([*held, *(target[:n_rows] for target in held_rows)], [*tree_leaves(shared), *parts])
        index.zero_()
        while n_done < n_rows and not (n_done and stops and bool(state[STOPPED])):
            graph.replay()
            n_done += 1
        named = {name: buffer[:n_done].clone() for name, buffer in outputs.items()}
        return UpdateResult(n_done, names, metrics[:n_done].sum(0), named)

    return run


def _copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy sources into targets, one call per dtype: a single copy took 31 µs on an H100."""
    by_type: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        of_type = by_type.setdefault(target.dtype, ([], []))
        of_type[0].append(target)
        of_type[1].append(source)
    for pair in by_type.values():
        torch._foreach_copy_(*pair)


def compile_function(
    function: Callable[..., Tree], state: LiveState, trees: Sequence[Tree]
) -> Callable[..., Tree]:
    """Return ``function`` of the state and trees like these, as one graph that reads the live state."""
    results: list[Tree] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        old, *arguments = tree_unflatten([dict(state), *trees], tensors)
        results[:] = [tree_map(lambda tensor: tensor, function(State(old), *arguments))]
        return [_clone_alias(tensor, tensors) for tensor in tree_leaves(results[0])]

    example = [*state.values(), *tree_leaves(list(trees))]
    graph = make_fx(flat, DECOMPOSITIONS, tracing_mode="fake")(*example)
    call = _inductor(graph, example)

    def called(*trees: Tree) -> Sequence[Tensor]:
        return call(*state.values(), *tree_leaves(list(trees)))

    graphed = GraphedFunction(lambda *trees: list(called(*trees)), trees) if state.is_cuda else called
    return lambda *trees: tree_unflatten(results[0], graphed(*trees))


def traced_sum(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks, as an operation of the graph that is being traced."""
    import torch.distributed._functional_collectives  # registers the operations

    assert torch.distributed.group.WORLD is not None
    name = torch.distributed.group.WORLD.group_name
    operations = torch.ops._c10d_functional
    return operations.wait_tensor(operations.all_reduce(tensor, "sum", name))


def _trace(step: Step, live: LiveState, shared: Tree, row: Tree) -> _Traced:
    names, changed, metrics = list(live), list[str](), list[str]()
    outputs: dict[str, tuple[torch.Size, torch.dtype]] = {}
    moved: list[bool] = []

    def flat_step(*tensors: Tensor) -> list[Tensor]:
        old, *arguments = tree_unflatten([dict(live), shared, row], tensors)
        result = step(State(old), *arguments)
        new = State(old).replaced(result.state)
        changed[:] = [name for name in names if new[name] is not old[name]]
        results = [*(new[name] for name in changed), *result.outputs.values()]
        moved[:] = [_is_alias(tensor, list(old.values())) for tensor in results]
        metrics[:] = list(result.metrics)
        outputs.update({name: (output.shape, output.dtype) for name, output in result.outputs.items()})
        values = [value.float() for value in result.metrics.values()]
        return [
            *(_clone_alias(new[name].to(old[name].dtype), tensors) for name in changed),
            torch.stack(values) if values else tensors[0].new_zeros(0, dtype=torch.float32),
            *(_clone_alias(output, tensors) for output in result.outputs.values()),
        ]

    example = [*live.values(), *tree_leaves(shared), *tree_leaves(row)]
    graph = make_fx(flat_step, DECOMPOSITIONS, tracing_mode="fake")(*example)
    return _Traced(graph, example, names, changed, metrics, outputs, any(moved))


def _clone_alias(result: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Clone a result that aliases an input: `torch.while_loop` forbids such outputs."""
    return result.clone() if _is_alias(result, tensors) else result


def _is_alias(result: Tensor, tensors: Sequence[Tensor]) -> bool:
    return any(torch._C._is_alias_of(result, tensor) for tensor in tensors)  # type: ignore[attr-defined]


def _inductor(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    if example[0].is_cuda:
        return torch.compile(graph, fullgraph=True, dynamic=False)
    for node in graph.graph.nodes:
        node.meta.clear()
    graph.recompile()
    call: Any = compile_fx(graph, list(example), config_patches=INDUCTOR_OPTIONS)
    return call


def _overwriting(traced: _Traced) -> Callable[..., Sequence[Tensor]]:
    """Compile one step so that it writes changed entries into the state; it returns the rest."""
    graph = traced.graph.graph
    placeholders = dict(zip(traced.state_names, graph.nodes, strict=False))
    output = graph.output_node()
    results: Any = output.args[0]
    with graph.inserting_before(output):
        for name, value in zip(traced.changed, results, strict=False):
            graph.call_function(torch.ops.aten.copy_.default, (placeholders[name], value))
    output.args = (results[len(traced.changed) :],)
    return _inductor(traced.graph, traced.example)


def _loop(traced: _Traced, n_shared: int) -> Callable[..., Tensor]:
    """Wrap the traced step in `torch.while_loop`; return a function that gives the number of steps taken.

    The loop carries that number alone, and overwrites the state: what it carried it would make anew in each
    step. Metrics are added to ``sums``, and outputs written to a row of a buffer each.
    """
    graph, n_state, n_changed = traced.graph, len(traced.state_names), len(traced.changed)
    positions = [traced.state_names.index(name) for name in traced.changed]
    stop_position = traced.state_names.index(STOPPED) if STOPPED in traced.changed else None
    first_row = n_state + n_shared

    def loop(n_rows: Tensor, sums: Tensor, buffers: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        state, shared, rows = tensors[:n_state], tensors[n_state:first_row], tensors[first_row:]

        def unfinished(i: Tensor) -> Tensor:
            more = i < n_rows
            return more if stop_position is None else more & ~state[stop_position]

        def body(i: Tensor) -> tuple[Tensor]:
            index = i.reshape(1)
            row = [values.index_select(0, index).squeeze(0) for values in rows]
            results = graph(*state, *shared, *row)
            for position, value in zip(positions, results, strict=False):
                state[position].copy_(value)
            sums.add_(results[n_changed])
            for buffer, output in zip(buffers, results[n_changed + 1 :], strict=True):
                buffer.index_copy_(0, index, output[None])
            return (i + 1,)

        (n_done,) = torch.while_loop(unfinished, body, (torch.zeros((), dtype=torch.int64),))
        return n_done

    # Torch refuses the ninth compilation of a code object, so each loop gets one of its own.
    loop.__code__ = loop.__code__.replace(co_name=f"loop_{next(_loop_numbers)}")
    return torch.compile(loop, fullgraph=True, dynamic=False, options=INDUCTOR_OPTIONS)
