"""Break one line at a time and report what no test sees.

    python scripts/find_mutants.py --sample 40
    python scripts/find_mutants.py --sample all zoo/optim/optimizers.py

Each mutant is one file of a copy of the project with one operator, comparison, number or branch changed. The
tests of its room run against it until the first fails; what they let pass, the tests of all rooms with
arithmetic look at. A mutant that survives is a line that nothing holds in place: it gets a test, or, if no
test could tell it from the line (a bound that is never met), an entry in `EQUIVALENT` with the reason.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("zoo", "conf", "hyperparams", "trained_agents", "tests", "pyproject.toml")

FILES = (
    *("zoo/algorithms/a2c.py", "zoo/algorithms/dqn.py", "zoo/algorithms/ppo2.py", "zoo/algorithms/sac.py"),
    *("zoo/algorithms/td3.py", "zoo/algorithms/tqc.py", "zoo/algorithms/quantile_loss.py"),
    *("zoo/algorithms/on_policy.py", "zoo/algorithms/off_policy.py", "zoo/algorithms/scalar_means.py"),
    *("zoo/memory/replay.py", "zoo/memory/rollout.py", "zoo/memory/sampling.py", "zoo/memory/columns.py"),
    *("zoo/optim/descent.py", "zoo/optim/natural.py", "zoo/optim/optimizers.py", "zoo/optim/parameters.py"),
    *("zoo/optim/program.py", "zoo/optim/schedules.py"),
    *("zoo/policies/choosing.py", "zoo/policies/composite_head.py", "zoo/policies/critics.py"),
    "zoo/policies/deterministic_actor.py",
    *("zoo/policies/exploration.py", "zoo/policies/gaussian_heads.py", "zoo/policies/heads.py"),
    *("zoo/policies/multi_heads.py", "zoo/policies/numpy_forward.py", "zoo/policies/q_network.py"),
    *("zoo/policies/recurrent_core.py", "zoo/policies/squashed_actor.py", "zoo/policies/codecs.py"),
    *("zoo/envs/action_log.py", "zoo/envs/normalize.py"),
    *("zoo/training/evaluation.py", "zoo/training/stopping.py", "zoo/algorithms/callback.py"),
)
"""The files whose arithmetic results depend on."""

ROOMS = ("memory", "optim", "policies", "envs", "training", "algorithms")

EQUIVALENT: dict[tuple[str, str, str], str] = {}
"""(file, what stood there, what was put there): why no test can tell them apart."""

PATIENCE = 3.0
"""A mutant hangs where its tests take so many times as long as they do without it."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
}  # fmt: skip
NAMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "amin": "amax", "amax": "amin",
    "mean": "sum", "sum": "mean", "all": "any", "any": "all", "ones": "zeros", "zeros": "ones",
    "argmax": "argmin", "exp": "square", "log": "square",
    "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One file with one thing changed."""

    file: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.before}` became `{self.after}`"


def main() -> int:
    """Run the mutants that were asked for; return 1 if any survived."""
    arguments = parse_arguments()
    mutants = [mutant for file in arguments.files for mutant in mutants_of(file)]
    mutants = [each for each in mutants if (each.file, each.before, each.after) not in EQUIVALENT]
    n = len(mutants) if arguments.sample == "all" else min(int(arguments.sample), len(mutants))
    chosen = random.Random(arguments.seed).sample(mutants, n)
    print(f"{n} of {len(mutants)} mutants, seed {arguments.seed}", flush=True)
    survivors = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.workers) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for i in range(arguments.workers):
            copies.put(copy_of_project(Path(folder) / str(i)))
        started = time.monotonic()
        if set(pool.map(lambda project: tested(project, ROOMS, None), list(copies.queue))) != {"SURVIVED"}:
            print("the tests fail without any mutant")
            return 2
        limit = PATIENCE * (time.monotonic() - started)
        for mutant, fate in zip(
            chosen, pool.map(lambda each: fate_of(each, copies, limit), chosen), strict=True
        ):
            print(f"{fate:9} {mutant}", flush=True)
            survivors += [mutant] if fate == "SURVIVED" else []
    print(f"{len(survivors)} of {n} survived", *survivors, sep="\n  ")
    return 1 if survivors else 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", default=FILES, help="files to break; else all with arithmetic")
    parser.add_argument("--sample", default="40", help="how many mutants, drawn at random, or all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def copy_of_project(folder: Path) -> Path:
    """Copy what tests need."""
    folder.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def fate_of(mutant: Mutant, copies: queue.Queue[Path], limit: float) -> str:
    """Return what became of the tests with the mutant in the place of its file; see `tested`."""
    project = copies.get()
    path = project / mutant.file
    original = path.read_text(encoding="utf-8")
    room = mutant.file.split("/")[1]
    try:
        path.write_text(mutant.source, encoding="utf-8")
        fate = tested(project, [room], limit)
        others = [each for each in ROOMS if each != room]
        return tested(project, others, limit) if fate == "SURVIVED" else fate
    finally:
        path.write_text(original, encoding="utf-8")
        copies.put(project)


def tested(project: Path, rooms: Sequence[str], limit: float | None) -> str:
    """Run the tests of these rooms: one fails (seen), they take too long (hangs), or all pass (SURVIVED)."""
    tests = [f"tests/{room}" for room in rooms]
    environment = {**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "hangs"
    return "seen" if done.returncode else "SURVIVED"


def mutants_of(file: str) -> Iterator[Mutant]:
    """Return the mutants of a file, in the order of its lines."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    skipped = {id(inner) for each in ast.walk(tree) if is_skipped(each) for inner in ast.walk(each)}
    nodes = [node for node in ast.walk(tree) if id(node) not in skipped]
    for node in sorted(nodes, key=lambda each: getattr(each, "lineno", 0)):
        for changed in changes(node):
            before, kind, kept = ast.unparse(node), node.__class__, copy.copy(node.__dict__)
            node.__class__, node.__dict__ = changed.__class__, {**kept, **changed.__dict__}
            after, source = ast.unparse(node), ast.unparse(tree)
            node.__class__, node.__dict__ = kind, kept
            yield Mutant(file, getattr(node, "lineno", 0), before, after, source)


def is_skipped(node: ast.AST) -> bool:
    """Return whether nothing within a node is arithmetic: annotations, messages, fields, class headers."""
    if isinstance(
        node, ast.AnnAssign | ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.arguments
    ):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hyperparameter"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Return what may stand in the place of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield (
            ast.UnaryOp(ast.UAdd(), node.operand)
            if isinstance(node.op, ast.USub)
            else ast.Call(ast.Name("bool" if isinstance(node.op, ast.Not) else "abs"), [node.operand], [])
        )
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr], node.ctx)
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield ast.Name(NAMES[node.id], node.ctx)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(not node.value if isinstance(node.value, bool) else other_number(node.value))


def other_number(value: float) -> float:
    """Return a number that is not this one."""
    return value + 1 if isinstance(value, int) or value == 0 else 2 * value


if __name__ == "__main__":
    raise SystemExit(main())
