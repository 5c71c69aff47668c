"""What compiling changes: products, and where graphs are kept."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from zoo import PPO2
from zoo.optim.runtime import torch_settings

COMPILING = """
import sys
from test_update_runner import Regression
{before}
eager, compiled = Regression(), Regression(compiled=True)
for _ in range(2):
    eager.run(1), compiled.run(1)
assert compiled.runner.runtime.compile == {compiles}
assert eager.runner.state["net"].allclose(compiled.runner.state["net"], rtol=1e-3, atol=1e-5)
"""


def run(tmp_path: Path, compiles: bool, before: str = "", **environment: str) -> str:
    """Train in a process of its own; return what it says."""
    inherited = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    env = {**inherited, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": path, **environment}
    command = [sys.executable, "-c", COMPILING.format(before=before, compiles=compiles)]
    finished = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("needs_compiler")
def test_compiled_code_lies_in_the_users_cache(tmp_path: Path) -> None:
    run(tmp_path, compiles=True)
    folder = tmp_path / "cache" / "zoo" / "inductor"
    assert folder.stat().st_mode & 0o077 == 0, "others can't put anything there"
    assert list(folder.rglob("*.so"))


@pytest.mark.slow
def test_missing_compiler_warns_once_and_runs_eagerly(tmp_path: Path) -> None:
    (line,) = run(tmp_path, compiles=False, CXX="/nonexistent").splitlines()
    assert "going on without" in line
    assert "No working C++ compiler" in line


def test_run_without_torch_inductor_stays_eager(tmp_path: Path) -> None:
    """As with a release of PyTorch in which it is no more."""
    said = run(tmp_path, compiles=False, before="sys.modules['torch._inductor'] = None")
    assert "going on without" in said


def test_interrupt_while_compiling_is_told_in_a_line() -> None:
    """The next training decides anew whether to compile; nothing is compiled here."""
    model = PPO2("MlpPolicy", "CartPole-v1", n_steps=16, seed=0)
    model.runtime.compile_clock.on_change = partial(signal.raise_signal, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="not compiled") as interrupt:
        model.learn(10**8, progress_bar=False)
    places = [frame.path for frame in interrupt.traceback if "zoo/optim" in str(frame.path)]
    assert [Path(place).name for place in places] == ["runtime.py"]
    assert interrupt.value._render_traceback_() == [f"CompilingInterrupted: {interrupt.value}"]
    assert model.learn(64, progress_bar=False).runtime.compile is False


def traced(function: Any, *given: Tensor) -> torch.fx.GraphModule:
    from zoo.optim import compile, zen5_products

    table = {**compile.DECOMPOSITIONS, torch.ops.aten.mm.default: zen5_products.product}
    return make_fx(function, table, tracing_mode="fake")(*given)


def compiled(function: Any, *given: Tensor, threads: int = 1) -> list[Tensor]:
    """Return what a function gives that is compiled; it has to be oneDNN that multiplies."""
    from torch._inductor.utils import run_and_get_code

    with torch_settings(threads), torch.compiler.config.patch(force_disable_caches=True):
        graph = traced(function, *given)
        call = torch.compile(graph, fullgraph=True, dynamic=False)
        results, codes = run_and_get_code(lambda: call(*given))
    assert "at::native::cpublas::brgemm(" in "".join(codes)
    return list(results)


def matrix(rows: int, columns: int, transposed: bool = False, **options: Any) -> Tensor:
    return torch.randn(columns, rows, **options).t() if transposed else torch.randn(rows, columns, **options)


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.slow
def test_blocked_products_are_right_in_any_layout() -> None:
    def all_products(*factors: Tensor) -> list[Tensor]:
        return [left @ right for left, right in zip(factors[::2], factors[1::2], strict=True)]

    layouts = list(itertools.product([False, True], repeat=2))
    shapes = [(300, 1100, 40)] * 2 + [(3, 5, 7), (520, 33, 550)]
    factors = []
    for (rows, inner, columns), (one, other) in zip(shapes, layouts, strict=True):
        factors += [matrix(rows, inner, one), matrix(inner, columns, other)]
    found = compiled(all_products, *factors, threads=2)
    for product, expected in zip(found, all_products(*factors), strict=True):
        torch.testing.assert_close(product, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.usefixtures("needs_compiler")
def test_sliced_and_fused_products_are_right() -> None:
    def layers(one: Tensor, other: Tensor, column: Tensor) -> list[Tensor]:
        row, later = one[:1].expand(128, 128), other.view(-1)[256 : 256 + 128 * 40].view(128, 40)
        parts = [one[5:45, 3:60] @ other[2:59, 7:], one[::2, ::3] @ other[:43], one @ later, row @ other]
        hidden = torch.addmm(one[0], one, other.t()).relu()
        outer = torch.where(one > 0, column @ column.t(), 0.0)
        return [*parts, hidden, hidden @ other, hidden.sum(0), outer, outer.t() @ one, (one @ column).relu()]

    given = matrix(128, 128), matrix(128, 128), matrix(128, 1)
    for found, expected in zip(compiled(layers, *given), layers(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize(
    ("maker", "family", "capability", "expected"),
    [
        ("AuthenticAMD", 26, "AVX512", True),
        ("AuthenticAMD", 25, "AVX512", False),
        ("AuthenticAMD", 26, "AVX2", False),
        ("GenuineIntel", 26, "AVX512", False),
    ],
)
def test_other_processors_have_other_products(
    maker: str, family: int, capability: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zoo.optim.zen5_products import is_zen_5

    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {maker}\ncpu family\t: {family}\nmodel\t\t: 2\n")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert is_zen_5(cpuinfo) is expected
    assert not is_zen_5(tmp_path / "missing")
