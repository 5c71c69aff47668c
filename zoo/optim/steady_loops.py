"""Compiled loops on a CPU whose tensors stay where they are from the first step to the last, where they can.

`torch.while_loop` asks its body for new tensors: an optimizer's three vectors take up twice the place in a
core's cache. Here a body says that what it carries is to be overwritten, and inductor orders whatever reads
an old value before that. And inductor makes every tensor of a step anew in each, some sixty of them, which
took DQN longer than its optimizer. Once none moves, they can all be made before the loop, and live until it
ends. That is so where the body is kernels and products alone: operations that make their result themselves
(an LSTM, the largest of some numbers, a sum over workers) keep the loop as it was.

This uses private parts of PyTorch; `zoo.optim.tracing` imports it, as it does `zoo.optim.products`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import ir
from torch._inductor.codegen.common import device_codegens, init_backend_registration
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.lowering import clone, copy_, index_put_, register_lowering, unsqueeze
from torch._inductor.utils import DeferredLineBase
from torch._inductor.virtualized import V

from zoo.optim.compiled_cache import version_of

VERSION = version_of(__file__)


@torch.library.custom_op(f"zoo::overwritten_{VERSION}", mutates_args=())
def overwritten(old: Sequence[Tensor], new: Sequence[Tensor]) -> list[Tensor]:
    """Return ``new``; compiled, in the memory of ``old``.

    It takes all that a step carries at once, so that all that reads the old is computed before: inductor
    orders operations by what they are computed from.
    """
    return [tensor.clone() for tensor in new]


@overwritten.register_fake
def _(old: Sequence[Tensor], new: Sequence[Tensor]) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in old]


@register_lowering(overwritten._opoverload, type_promotion_kind=None)
def _lowered(old: Any, new: Any) -> Any:
    before = [each if each is at else _copied_if_given(each) for at, each in zip(old, new, strict=True)]
    return list(map(copy_, old, before))


@torch.library.custom_op(f"zoo::apart_{VERSION}", mutates_args=())
def apart(tensor: Tensor) -> Tensor:
    """Return the same numbers; compiled, in memory that a graph which overwrites what it is given leaves."""
    return tensor.clone()


@apart.register_fake
def _(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor)


@register_lowering(apart._opoverload, type_promotion_kind=None)
def _lowered_apart(tensor: Any) -> Any:
    return _copied_if_given(tensor)


def _copied_if_given(tensor: Any) -> Any:
    """Return a copy of what the graph is given, or of a view of it: inductor takes a clone of that for it."""
    if ir.try_get_name(tensor) not in V.graph.graph_inputs:
        return tensor
    copied = clone(tensor)
    copied.realize()
    return copied


@torch.library.custom_op(f"zoo::with_row_{VERSION}", mutates_args=())
def with_row(rows: Tensor, index: Tensor, row: Tensor) -> Tensor:
    """Return ``rows`` with ``row`` at ``index`` (int64 of shape (1,)); compiled, in their memory."""
    return rows.index_copy(0, index, row[None])


@with_row.register_fake
def _(rows: Tensor, index: Tensor, row: Tensor) -> Tensor:
    return torch.empty_like(rows)


@register_lowering(with_row._opoverload, type_promotion_kind=None)
def _lowered_with_row(rows: Any, index: Any, row: Any) -> Any:
    return index_put_(rows, [index], unsqueeze(row, 0))


class _Wrapper(CppWrapperCpu):
    """As inductor's own, but for the loops."""

    @staticmethod
    def create(*_: Any, **__: Any) -> CppWrapperCpu:
        return _Wrapper()  # type: ignore[no-untyped-call]

    def generate_return(self, output_refs: list[str]) -> None:
        """Write the end, before which all else is written."""
        known = [line() if isinstance(line, DeferredLineBase) else line for line in self.wrapper_call._lines]
        lines = [line for line in known if isinstance(line, str)]  # not what part of the model each is for
        if any(VERSION in line for line in lines):  # as the names of kernels have it
            self.wrapper_call._lines[:] = with_steady_loops(lines)
        super().generate_return(output_refs)


init_backend_registration()
if device_codegens["cpu"].cpp_wrapper_codegen is CppWrapperCpu:
    device_codegens["cpu"] = dataclasses.replace(device_codegens["cpu"], cpp_wrapper_codegen=_Wrapper)

LOOP = "while (1) {"

_TENSOR = re.compile(
    r"AtenTensorHandle (\w+)_handle;\n"
    r"AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_"
    r"(?:empty_strided\(.*|assign_tensors_out\((\w+)), &\1_handle\)\);\n"
    r"RAIIAtenTensorHandle \1\(\1_handle\);"
)
_VIEW = re.compile(
    r"(auto \w+ = wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\([\w, ]*\)\);)"
    r"(?: \w+\.reset\(\);)?  // (?:alias|reuse)"
)
_TAKEN_OVER = re.compile(r"auto (\w+) = std::move\((\w+)\);  // reuse")
_SIZES = re.compile(r"static constexpr int64_t .*;")
_CONDITION = re.compile(r"(\w+_cond_result) = std::move\((\w+)\);")
_CARRIED = re.compile(r"(\w+) = std::move\((\w+)\);")
_FREED = re.compile(r"\w+\.reset\(\);|//.*|")
# One statement a line, as inductor writes them, so that what matches a whole line is one.
_STEP = re.compile(
    r"cpp_fused\w*\(.*\);|AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_cpu_\w+_out\(.*\)\);"
    r"|AtenTensorHandle tmp_\w+;"
    r"|AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_new_tensor_handle\(\w+, &tmp_\w+\)\);"
    r"|bool \w+;|AOTI_TORCH_ERROR_CODE_CHECK\(aoti_torch_item_bool\(.*\)\);|if \(!\w+\) break;"
)
_POINTER = re.compile(r"(\w+)\.data_ptr\(\)")


def with_steady_loops(lines: Sequence[str]) -> list[str]:
    """Return the lines of C++ of a graph, in which loops make their tensors before, where none moves."""
    result: list[str] = []
    rest = iter(lines)
    for line in rest:
        result.append(line)
        if line.strip() == LOOP:
            body = list(_to_end_of_block(rest))
            result[-1:] = _steady([part.strip() for part in body[:-1]]) or [line, *body]
    return result


def _to_end_of_block(lines: Iterator[str]) -> Iterator[str]:
    depth = 1
    for line in lines:
        depth += line.count("{") - line.count("}")
        yield line
        if not depth:
            return


def _steady(lines: Sequence[str]) -> list[str] | None:
    """Return a loop with only kernels in it, and all else before it.

    None where a line is of no known kind, or something comes to lie elsewhere in each step.
    """
    before: list[str] = []
    steps: list[str] = []
    sources: dict[str, str] = {}
    names: dict[str, str] = {}
    rest = iter([line for line in lines if not _FREED.fullmatch(line)])
    for line in rest:
        if line.startswith("AtenTensorHandle") and not _STEP.fullmatch(line):
            line = "\n".join([line, *itertools.islice(rest, 2)])
        if tensor := _TENSOR.fullmatch(line):
            sources[tensor[1]] = tensor[2]
            before += line.splitlines()
        elif view := _VIEW.fullmatch(line):
            before.append(view[1])
        elif taken_over := _TAKEN_OVER.fullmatch(line):
            before.append(f"auto& {taken_over[1]} = {taken_over[2]};")
        elif _SIZES.fullmatch(line):
            before.append(line)
        elif condition := _CONDITION.fullmatch(line):
            names[condition[1]] = condition[2]
        elif carried := _CARRIED.fullmatch(line):
            if sources.get(carried[2]) != carried[1]:  # it comes to lie elsewhere
                return None
        elif _STEP.fullmatch(line):
            steps.append(line)
        else:
            return None
    code = "\n".join(steps)
    for name, known_as in names.items():
        code = re.sub(rf"\b{name}\b", known_as, code)
    pointers = sorted(set(_POINTER.findall(code)))
    before += [f"void* {name}_data = {name}.data_ptr();" for name in pointers]
    return ["{", *before, LOOP, *_POINTER.sub(r"\1_data", code).splitlines(), "}", "}"]
