"""Loops of compiled steps: what a step carries lies where it was, and nothing is made anew between steps."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from zoo.optim.program import Outcome, Program, Ran
from zoo.optim.runtime import Runtime
from zoo.optim.state import State

SIZE, N_STEPS = 24, 5


@pytest.fixture(params=["brgemm(", "mm_out("])
def multiplier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what the code of a product calls, whoever multiplies."""
    from zoo.optim import tracing  # says where inductor keeps its files

    assert tracing
    monkeypatch.setattr("zoo.optim.products.mkl_holds_back", lambda: request.param == "brgemm(")
    called: str = request.param
    return called


def moving_on(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """Each entry from what another was before, with a metric and an output of the old ones."""
    a, b = state["a"], state["b"]
    new = {"a": a * 0.9 + b @ row, "b": (b - a).tanh(), "count": state["count"] + 1}
    return Outcome(state.replaced(new), {"old": a[3, 4], "new": new["a"].mean()}, {"before": b + shared})


def one_twice(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """Both entries are the same new tensor, one of them also read as it was."""
    new = state["a"] @ row * shared
    given = {"new": new[0], "old": state["b"].t().reshape(-1)[:7]}
    return Outcome(state.replaced({"a": new, "b": new}), {"sum": state["b"].sum()}, given)


def turned(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """Entries whose numbers are each read from where another is written."""
    new = {"a": state["a"].t().contiguous() + 1, "b": state["b"].roll(1, 0) * shared}
    return Outcome(state.replaced(new), {"sum": (state["b"] * row).sum()})


def overlapping(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """Entries of parts of what they were."""
    new = {"a": torch.cat([state["a"][1:], row[:1]]), "b": state["b"].flip(0).cumsum(1) * shared}
    return Outcome(state.replaced(new), {"first": state["a"][0, 0]}, {"last": state["a"][-1]})


def copied(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """An entry keeps what another was, of which inductor makes no copy by itself."""
    new = {"a": state["a"] * shared + row, "b": state["a"].clone(), "count": state["count"] + 1}
    return Outcome(state.replaced(new), {"sum": (state["b"] * row).sum()})


def copied_turned(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """As `copied`, of parts and of itself, in the other order."""
    new = {"a": state["a"].t().clone(), "b": torch.cat([state["b"].flip(0)]) * shared}
    return Outcome(state.replaced(new), {"sum": (state["a"] * row).sum()})


def exchanged(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """The entries change places by copies, and by products and sums that change nothing."""
    new = {"a": state["b"].clone(), "b": state["a"] * torch.ones(SIZE, SIZE) + torch.zeros(SIZE, SIZE)}
    return Outcome(state.replaced(new), {"sum": (state["a"] * row).sum() * shared})


def swapped(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """The entries change places."""
    new = {"a": state["b"], "b": state["a"], "count": state["count"] + 1}
    return Outcome(state.replaced(new), {"sum": (state["a"] * row).sum() * shared})


def joined_and_summed(state: State, shared: Tensor, row: Tensor) -> Outcome:
    """As an optimizer: a gradient of products and sums, clipped by its norm, and moments of it."""
    gradient = torch.cat([(state["a"] @ row).view(-1), state["b"].view(-1)])
    gradient = gradient * (1 / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1.0)
    first, second = gradient.split(SIZE * SIZE)
    a = torch.lerp(state["a"], first.view(SIZE, SIZE), 0.1)
    b = state["b"] - shared * second.view(SIZE, SIZE) / (a.square().sqrt() + 0.1)
    return Outcome(state.replaced({"a": a, "b": b}), {"norm": gradient.norm()}, {"is_above": b[0] > 0})


STEADY = [moving_on, one_twice, joined_and_summed]
OTHERS = [turned, overlapping, copied, copied_turned, exchanged, swapped]


def start() -> State:
    generator = torch.Generator().manual_seed(3)
    tensors = {name: torch.randn(SIZE, SIZE, generator=generator) for name in ("a", "b")}
    return State(**tensors, count=torch.zeros((), dtype=torch.int64))


SHARED = torch.tensor(0.3)
ROWS = torch.randn(N_STEPS, SIZE, SIZE, generator=torch.Generator().manual_seed(4)) / SIZE
CALLS = {"loop": (ROWS, ROWS[:3]), "single": (ROWS[:1], ROWS[1:2])}
"""The second call of a loop has fewer steps than it can hold."""


def compiled(step: Callable[..., Outcome], kind: str = "loop") -> tuple[Program, list[Ran]]:
    program = Program(start(), Runtime(device="cpu", compile=True, threads=2))
    addresses = [tensor.data_ptr() for tensor in program.state.values()]
    results = [program.run(step, SHARED, rows) for rows in CALLS[kind]]
    assert [tensor.data_ptr() for tensor in program.state.values()] == addresses
    assert program.runtime.compiles
    return program, results


@pytest.mark.usefixtures("multiplier", "needs_compiler")
@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("step", [*STEADY, *OTHERS], ids=lambda step: step.__name__)
def test_what_is_overwritten_ends_as_steps_by_themselves_do(step: Callable[..., Outcome], kind: str) -> None:
    program, results = compiled(step, kind)
    state = start()
    for rows, result in zip(CALLS[kind], results, strict=True):
        outcomes = []
        for row in rows:
            outcomes.append(step(state, SHARED, row))
            state = outcomes[-1].state
        metrics = torch.stack([torch.stack(list(outcome.metrics.values())) for outcome in outcomes])
        torch.testing.assert_close(result.metrics, metrics.mean(0), rtol=1e-4, atol=1e-5)
        for name, output in result.outputs.items():
            expected = torch.stack([outcome.outputs[name] for outcome in outcomes])
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    for name, tensor in state.items():
        torch.testing.assert_close(program.state[name], tensor, rtol=1e-4, atol=1e-5)


def loops_of(step: Callable[..., Outcome]) -> list[str]:
    """Return the code of each loop that the step becomes."""
    from torch._inductor.utils import run_and_get_code

    from zoo.optim.steady_loops import LOOP

    with torch.compiler.config.patch(force_disable_caches=True):
        _, codes = run_and_get_code(lambda: compiled(step))
    return [textwrap.dedent(part) for code in codes for part in code.split(LOOP)[1:]]


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("step", STEADY, ids=lambda step: step.__name__)
def test_a_steady_loop_has_only_kernels_in_it(step: Callable[..., Outcome], multiplier: str) -> None:
    (loop,) = loops_of(step)
    inside = loop[: loop.index("\n}")]
    assert "cpp_fused" in inside
    assert "empty_strided" not in inside
    assert "std::move" not in inside
    assert (multiplier == "mm_out(") == ("mm_out(" in inside)


@pytest.mark.usefixtures("needs_compiler")
def test_what_moves_is_made_anew_in_each_step() -> None:
    (loop,) = loops_of(swapped)
    assert "empty_strided" in loop


@pytest.mark.usefixtures("multiplier", "needs_compiler")
def test_steady_loops_compute_what_others_do_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.compiler.config.patch(force_disable_caches=True):
        program, results = compiled(joined_and_summed)
        seen: list[str] = []
        monkeypatch.setattr(
            "zoo.optim.steady_loops.with_steady_loops", lambda lines: seen.extend(lines) or lines
        )
        other, other_results = compiled(joined_and_summed)
    assert any("empty_strided" in line for line in seen)
    for name, tensor in program.state.items():
        assert torch.equal(tensor, other.state[name])
    for one, another in zip(results, other_results, strict=True):
        assert torch.equal(one.metrics, another.metrics)


MADE = """
AtenTensorHandle cond_arg_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf1, &cond_arg_handle));
RAIIAtenTensorHandle cond_arg(cond_arg_handle);
static constexpr int64_t sizes[] = {2L, };
AtenTensorHandle cond_buf_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(0, sizes, sizes, a, b, 0, &cond_buf_handle));
RAIIAtenTensorHandle cond_buf(cond_buf_handle);
""".strip()

LOOP_IN_CPP = (
    """
before();
while (1) {
    // subgraph: cond
MADE
    cpp_fused_lt_1((const int64_t*)(cond_arg.data_ptr()), (bool*)(cond_buf.data_ptr()));
    buf0_cond_result.reset();
    buf0_cond_result = std::move(cond_buf);
    bool buf0_cond_result_scalar;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(buf0_cond_result, &buf0_cond_result_scalar));
    if (!buf0_cond_result_scalar) break;
    AtenTensorHandle arg_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf1, &arg_handle));
    RAIIAtenTensorHandle arg(arg_handle);
    auto view = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg, 1, x, x, 0L));  // alias
    auto again = std::move(view);  // reuse
    cpp_fused_add_2((int64_t*)(again.data_ptr()));
    // here
    buf1.reset();
    buf1 = std::move(arg);
}
after();
""".strip()
    .replace("MADE", MADE)
    .splitlines()
)

STEADY_IN_CPP = (
    """
before();
{
MADE
AtenTensorHandle arg_handle;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf1, &arg_handle));
RAIIAtenTensorHandle arg(arg_handle);
auto view = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(arg, 1, x, x, 0L));
auto& again = view;
void* again_data = again.data_ptr();
void* cond_arg_data = cond_arg.data_ptr();
void* cond_buf_data = cond_buf.data_ptr();
while (1) {
cpp_fused_lt_1((const int64_t*)(cond_arg_data), (bool*)(cond_buf_data));
bool buf0_cond_result_scalar;
AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_item_bool(cond_buf, &buf0_cond_result_scalar));
if (!buf0_cond_result_scalar) break;
cpp_fused_add_2((int64_t*)(again_data));
}
}
after();
""".strip()
    .replace("MADE", MADE)
    .splitlines()
)


def rewritten(lines: list[str]) -> list[str]:
    from zoo.optim import tracing
    from zoo.optim.steady_loops import with_steady_loops

    assert tracing
    return with_steady_loops(lines)


def test_tensors_are_made_before_the_loop() -> None:
    assert rewritten(LOOP_IN_CPP) == STEADY_IN_CPP
    assert rewritten(LOOP_IN_CPP + LOOP_IN_CPP) == STEADY_IN_CPP + STEADY_IN_CPP
    assert rewritten([]) == []


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("// here", "buf2 = std::move(other);"),
        ("buf1 = std::move(arg);", "buf2 = std::move(arg);"),
        ("// here", "int64_t u0 = something();"),
        ("// here", "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort(arg, 0, &buf7_handle, &buf8_handle));"),
        ("// here", "AtenTensorHandle buf7_handle;"),
        ("// here", "{"),
    ],
)
def test_a_loop_with_something_else_in_it_stays(line: str, instead: str) -> None:
    lines = [each.replace(line, instead) for each in LOOP_IN_CPP]
    lines += ["}"] * (instead == "{")
    assert lines != LOOP_IN_CPP
    assert rewritten(lines) == lines


def test_what_is_before_and_after_a_loop_stays() -> None:
    code = ["while (0) {", "buf1.reset();", "}", "buf1 = std::move(arg);"]
    assert rewritten(code) == code
