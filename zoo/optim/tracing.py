"""Steps and functions as compiled graphs, by private parts of PyTorch (tried with 2.13).

Imported only once something is to be compiled. A step is traced, with what it differentiates inside, into
one graph of tensor operations. On a CPU one step becomes a call that overwrites the state by itself; several
become a `torch.while_loop`, so that nothing returns to Python between them. A GPU replays each step as a CUDA
graph.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo.optim.compiled_cache import use_private_cache
from zoo.optim.state import STOPPED, LiveState, State, Step, Taken
from zoo.optim.tensor_trees import Tree, leaves, mapped, rebuilt

INDUCTOR_OPTIONS: dict[str, Any] = {
    "cpp_wrapper": True,
    "cpp.use_decompose_tanh": True,
    "compile_threads": 1,
    "pattern_matcher": False,  # it would put bias and product together again, see products
}

_loop_numbers = itertools.count()

logger = logging.getLogger(__name__)


def _keep_compiled_code_private() -> None:
    """Put all that PyTorch keeps into a folder of the user's alone; for headers it asks no setting."""
    folder = use_private_cache()
    from torch._inductor.runtime import cache_dir_utils

    cache_dir_utils.default_cache_dir = lambda: str(folder)
    from torch._inductor import codecache  # which asks when it is imported

    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")


def _look_for_no_modules_in_the_working_folder() -> None:
    """Take the working folder, which may be a stranger's, off the path of the Python that inductor starts.

    It looks there whether the processor has the vectors that kernels are compiled for.
    """
    from torch._inductor.cpu_vec_isa import VecISA

    VecISA._avx_py_load = "import sys\nsys.path[:] = filter(None, sys.path)\n" + VecISA._avx_py_load


_keep_compiled_code_private()
_look_for_no_modules_in_the_working_folder()

# These import inductor, which asks for its folders then.
from torch._inductor.runtime import cache_dir_utils  # noqa: E402

from zoo.optim import intermediates, joined, products, reductions  # noqa: E402
from zoo.optim.steady_loops import apart, overwritten, with_row  # noqa: E402

DECOMPOSITIONS = {**products.DECOMPOSITIONS, **reductions.DECOMPOSITIONS, **joined.DECOMPOSITIONS}


class _Traced(NamedTuple):
    """A step as a graph: flat tensors to changed state entries, a vector of metrics, and outputs."""

    graph: torch.fx.GraphModule
    example: list[Tensor]
    state_names: list[str]
    changed: list[str]
    metrics: list[str]
    outputs: dict[str, tuple[torch.Size, torch.dtype]]
    moves: bool
    """Whether an entry or output is what an entry was: inductor would read that after it is overwritten."""


def compile_single(
    step: Step, state: LiveState, shared: Tree, row: Tree
) -> Callable[[Tree, Tree, int], Taken]:
    """Return what takes the step on one row of rows; the arguments here are examples."""
    traced = _trace(step, state, shared, row)
    is_cuda = state.is_cuda
    overwrites = not is_cuda and not traced.moves
    if is_cuda:
        call = _cuda_graph(traced.graph)
    else:
        call = _overwriting(traced) if overwrites else _inductor(traced.graph, traced.example)
    changed = [] if overwrites else traced.changed

    def take(shared: Tree, rows: Tree, first: int) -> Taken:
        row = [tensor[first] for tensor in leaves(rows)]
        results = call(*state.values(), *leaves(shared), *row)
        if is_cuda:  # its results lie where the next replay writes
            results = [result.clone() for result in results]
        elif not overwrites:
            results = state.apart(results)
        state.replaced(dict(zip(changed, results[: len(changed)], strict=True)))
        metrics, *outputs = results[len(changed) :]
        named = zip(traced.outputs, (output[None] for output in outputs), strict=True)
        return Taken(1, traced.metrics, metrics, dict(named))

    return take


def compile_loop(
    step: Step, state: LiveState, shared: Tree, row: Tree, capacity: int
) -> Callable[[Tree, Tree, int], Taken]:
    """Return what takes the step on up to ``capacity`` of the rows in one call."""
    traced = _trace(step, state, shared, row)
    call = _loop(traced, len(leaves(shared)), capacity)
    n_changed = len(traced.changed)

    def take(shared: Tree, rows: Tree, first: int) -> Taken:
        pieces = [tensor[first : first + capacity] for tensor in leaves(rows)]
        padded = [_padded(piece, capacity) for piece in pieces]
        n_rows = torch.tensor(len(pieces[0]))
        taken, *results = call(n_rows, *state.values(), *leaves(shared), *padded)
        changed = zip(traced.changed, results[:n_changed], strict=True)
        state.replaced({name: new for name, new in changed if new.data_ptr() != state[name].data_ptr()})
        sums, *buffers = results[n_changed:]
        n_taken = int(taken)
        named = zip(traced.outputs, (buffer[:n_taken] for buffer in buffers), strict=True)
        return Taken(n_taken, traced.metrics, sums, dict(named))

    return take


def compile_function(
    function: Callable[..., Tree], state: LiveState, trees: Sequence[Tree]
) -> Callable[..., Tree]:
    """Return ``function`` of the state and trees like these, as one graph that reads the live state."""
    _tell_of_missing_vectors()
    results: list[Tree] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        old, *arguments = rebuilt([dict(state), *trees], tensors)
        results[:] = [mapped(lambda tensor: tensor, function(State(old), *arguments))]
        return [_apart(tensor, tensors) for tensor in leaves(results[0])]

    example = [*state.values(), *leaves(list(trees))]
    graph = make_fx(flat, DECOMPOSITIONS, tracing_mode="fake")(*example)
    intermediates.keep_scalars(graph)
    is_cuda = state.is_cuda
    call = _cuda_graph(graph) if is_cuda else _inductor(graph, example)

    def compiled(*trees: Tree) -> Tree:
        tensors = call(*state.values(), *leaves(list(trees)))
        return rebuilt(results[0], [tensor.clone() for tensor in tensors] if is_cuda else tensors)

    return compiled


def traced_sum(tensor: Tensor) -> Tensor:
    """Return the sum of a tensor over all workers, as an operation of the graph that is being traced."""
    import torch.distributed._functional_collectives  # registers the operations

    assert torch.distributed.group.WORLD is not None
    name = torch.distributed.group.WORLD.group_name
    operations = torch.ops._c10d_functional
    summed: Tensor = operations.wait_tensor(operations.all_reduce(tensor, "sum", name))
    return summed


@functools.cache
def _tell_of_missing_vectors() -> None:
    """Warn where inductor finds no vectors in a processor that has some: kernels are others without."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and not pick_vec_isa():
        logger.warning(
            "compiled updates use none of the processor's vectors, and round otherwise: what is kept in %s"
            " may be damaged; remove it, and it is made anew",
            cache_dir_utils.cache_dir(),
        )


def _trace(step: Step, live: LiveState, shared: Tree, row: Tree) -> _Traced:
    _tell_of_missing_vectors()
    names, changed, metrics = list(live), list[str](), list[str]()
    outputs: dict[str, tuple[torch.Size, torch.dtype]] = {}
    moved: list[bool] = []

    def flat_step(*tensors: Tensor) -> list[Tensor]:
        old, *arguments = rebuilt([dict(live), shared, row], tensors)
        outcome = step(State(old), *arguments)
        new = State(old).replaced(outcome.state)
        changed[:] = [name for name in names if new[name] is not old[name]]
        given = [*(new[name] for name in changed), *outcome.outputs.values()]
        moved[:] = [_is_shared(tensor, list(old.values())) for tensor in given]
        metrics[:] = list(outcome.metrics)
        outputs.update({name: (output.shape, output.dtype) for name, output in outcome.outputs.items()})
        values = [value.float() for value in outcome.metrics.values()]
        return [
            *(_apart(new[name].to(old[name].dtype), tensors) for name in changed),
            torch.stack(values) if values else tensors[0].new_zeros(0, dtype=torch.float32),
            *(_apart(output, tensors) for output in outcome.outputs.values()),
        ]

    example = [*live.values(), *leaves(shared), *leaves(row)]
    graph = make_fx(flat_step, DECOMPOSITIONS, tracing_mode="fake")(*example)
    intermediates.keep_scalars(graph)
    intermediates.keep_activations(graph)
    return _Traced(graph, example, names, changed, metrics, outputs, any(moved))


def _apart(result: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Return the result in memory of its own, which a loop asks of what it carries."""
    return result.clone() if _is_shared(result, tensors) else result


def _is_shared(result: Tensor, tensors: Sequence[Tensor]) -> bool:
    return any(torch._C._is_alias_of(result, each) for each in tensors)  # type: ignore[attr-defined]


def _cuda_graph(graph: torch.fx.GraphModule) -> Callable[..., Sequence[Tensor]]:
    return torch.compile(graph, fullgraph=True, dynamic=False, mode="reduce-overhead")


def _inductor(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    for node in graph.graph.nodes:
        node.meta.clear()
    graph.recompile()
    return torch._inductor.compile(graph, list(example), INDUCTOR_OPTIONS)


def _overwriting(traced: _Traced) -> Callable[..., Sequence[Tensor]]:
    """Compile one step so that it writes changed entries into the state; it returns the rest."""
    graph = traced.graph.graph
    placeholders = dict(zip(traced.state_names, graph.nodes, strict=False))
    output = graph.output_node()
    results: Any = output.args[0]
    with graph.inserting_before(output):
        new = [graph.call_function(apart._opoverload, (value,)) for value in results[: len(traced.changed)]]
        for name, value in zip(traced.changed, new, strict=True):
            graph.call_function(torch.ops.aten.copy_.default, (placeholders[name], value))
    output.args = (results[len(traced.changed) :],)
    return _inductor(traced.graph, traced.example)


def _loop(traced: _Traced, n_shared: int, capacity: int) -> Callable[..., Sequence[Tensor]]:
    """Put `torch.while_loop` around the traced step; outputs are written into a row of a buffer each."""
    graph, n_state, n_changed = traced.graph, len(traced.state_names), len(traced.changed)
    positions = [traced.state_names.index(name) for name in traced.changed]
    stop_position = traced.changed.index(STOPPED) if STOPPED in traced.changed else None
    first_row, n_metrics = n_state + n_shared, len(traced.metrics)
    outputs = list(traced.outputs.values())

    def loop(n_steps: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        state, shared, rows = tensors[:n_state], tensors[n_state:first_row], tensors[first_row:]

        def unfinished(i: Tensor, *carried: Tensor) -> Tensor:
            more = i < n_steps
            return more if stop_position is None else more & ~carried[stop_position]

        def body(i: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
            current = list(state)
            for position, value in zip(positions, carried[:n_changed], strict=True):
                current[position] = value
            index = i.reshape(1)
            row = [values.index_select(0, index).squeeze(0) for values in rows]
            results = graph(*current, *shared, *row)
            sums = carried[n_changed] + results[n_changed]
            written = zip(carried[n_changed + 1 :], results[n_changed + 1 :], strict=True)
            buffers = [with_row(buffer, index, output) for buffer, output in written]
            new = [i + 1, *results[:n_changed], sums, *buffers]
            return tuple(new if traced.moves else overwritten([i, *carried], new))

        buffers = [torch.zeros((capacity, *shape), dtype=dtype) for shape, dtype in outputs]
        changed = (state[position] for position in positions)
        start = (torch.zeros((), dtype=torch.int64), *changed, torch.zeros(n_metrics), *buffers)
        return torch.while_loop(unfinished, body, start)

    # Torch counts the recompilations of a code object, however many functions are made of it, and refuses the
    # ninth: each loop gets a code object of its own.
    loop.__code__ = loop.__code__.replace(co_name=f"loop_{next(_loop_numbers)}")
    return torch.compile(loop, fullgraph=True, dynamic=False, options=INDUCTOR_OPTIONS)


def _padded(rows: Tensor, length: int) -> Tensor:
    if rows.shape[0] == length:
        return rows
    return torch.cat([rows, rows.new_zeros((length - rows.shape[0], *rows.shape[1:]))])
