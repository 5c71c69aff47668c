"""What pytest does for `find_mutants.py`: it notes which tests reach which lines, and shows mutants to tests.

Mutants are shown in children of a process that has collected all tests: a child puts the mutant's functions
in the place of those that are there, which costs milliseconds, and runs the tests that reach its line. What
runs when a file is imported is no function's: such a mutant has a fresh pytest look at it.
"""

from __future__ import annotations

import ast
import bisect
import contextlib
import gc
import importlib.util
import itertools
import json
import math
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path.cwd()

HANGS_AFTER = 15.0, 10.0
"""Seconds of the processor after which a test hangs, and how many times what it takes otherwise on top."""

LOADED = 8.0
"""How many times longer it may wait: other processes may have the processor, too."""

MEMORY = 16 * 1024**3
"""Bytes of addresses that tests may use: a mutant may ask for any number."""

TESTS_OF = {
    "algorithms/a2c.py": ("test_on_policy_",),
    "algorithms/acer_terms.py": ("test_acer",),
    "algorithms/agent.py": ("test_base_of_algorithms", "test_agents_in_python"),
    "algorithms/base.py": ("test_base_of_algorithms", "test_callbacks", "test_agents_in_python"),
    "algorithms/callback.py": ("test_callback_schedule",),
    "algorithms/demonstrations.py": ("test_demonstrations", "test_cloning"),
    "algorithms/dqn.py": ("test_off_policy_",),
    "algorithms/episodes_apart.py": ("test_ars",),
    "algorithms/finite.py": ("test_not_finite",),
    "algorithms/in_envs.py": ("test_in_envs", "test_on_policy_collection"),
    "algorithms/off_policy.py": ("test_off_policy_counts",),
    "algorithms/on_policy.py": ("test_on_policy_means", "test_on_policy_", "test_recurrent_rollouts"),
    "algorithms/ppo1.py": ("test_on_policy_means",),
    "algorithms/ppo2.py": ("test_on_policy_",),
    "algorithms/resuming.py": ("test_attributes_resumed", "test_reproducibility"),
    "algorithms/sac.py": ("test_off_policy_updates",),
    "algorithms/sde_options.py": ("test_sde_options", "test_sde_in_algorithms"),
    "algorithms/sequences.py": ("test_sequences", "test_recurrent_rollouts"),
    "algorithms/team.py": ("test_team", "test_learning_together"),
    "envs/env_states.py": ("test_env_replay",),
    "envs/stepper.py": ("test_stepper", "test_env_replay"),
    "envs/vec_env.py": ("test_native",),
    "memory/expert_files.py": ("test_expert_files", "test_expert_data"),
    "memory/expert_problems.py": ("test_expert_data",),
    "memory/expert_summary.py": ("test_expert_summary", "test_expert_data"),
    "memory/sampling.py": ("test_replay",),
    "optim/tracing.py": ("test_program",),
    "optim/intermediates.py": ("test_intermediates", "test_program"),
    "optim/joined.py": ("test_joined", "test_program"),
    "optim/products.py": ("test_products", "test_program"),
    "optim/blocked_product.py": ("test_products", "test_rounding"),
    "optim/reductions.py": ("test_reductions", "test_program"),
    "optim/processor.py": ("test_products",),
    "policies/numpy_forward.py": ("test_acting",),
}
"""Files of tests that look before those that are called after a file, in this order."""

PASSED, FAILED, NOT_SHOWN = 0, 1, 3
"""How a child ends; `NOT_SHOWN` where the mutant could not be put in place."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say which of both is to be done."""
    parser.addoption("--note-reached", help="file for what tests reach")
    parser.addoption("--show-mutants", help="file with mutants, and with what tests reach")
    parser.addoption("--fates", type=int, help="open file for what became of each")


def pytest_configure(config: pytest.Config) -> None:
    """Do it."""
    if config.getoption("--note-reached"):
        config.pluginmanager.register(Notes(Path(config.getoption("--note-reached"))))
    if config.getoption("--show-mutants"):
        task = json.loads(Path(config.getoption("--show-mutants")).read_text(encoding="utf-8"))
        config.pluginmanager.register(Exhibition(task, config.getoption("--fates")))


class Notes:
    """Notes seconds and reached lines of each test that passes, by file and line."""

    def __init__(self, path: Path) -> None:
        from coverage import Coverage

        self._path = path
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = Coverage(data_file=None, config_file=False, include=[f"{ROOT}/zoo/*"])

    def pytest_collection_finish(self) -> None:
        """Begin with the first test; what importing reaches is no test's own."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, bool, bool]:
        """Note what one test reaches."""
        self._coverage.switch_context(item.nodeid)
        started = time.perf_counter()
        done = yield
        self._seconds[item.nodeid] = round(time.perf_counter() - started, 4)
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out what fails without any mutant."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        self._coverage.stop()
        data = self._coverage.get_data()
        tests = [test for test in self._seconds if test not in self._failed]
        numbers = {test: number for number, test in enumerate(tests)}
        reached = {
            str(Path(file).relative_to(ROOT)): {
                line: [numbers[test] for test in contexts if test in numbers]
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        notes = {
            "tests": [(test, self._seconds[test]) for test in tests],
            "failed": sorted(self._failed),
            "reached": reached,
        }
        self._path.write_text(json.dumps(notes), encoding="utf-8")


class Exhibition:
    """Shows mutants to the tests that this pytest has collected, one after the other."""

    def __init__(self, task: Mapping[str, Any], fates: int) -> None:
        self._mutants: list[dict[str, Any]] = task["mutants"]
        self._tests: list[tuple[str, float]] = task["notes"]["tests"]
        self._reached: dict[str, dict[str, list[int]]] = task["notes"]["reached"]
        self._fates = fates
        self._seen_by = Path(task["seen_by"])
        self._seconds: float = task["seconds"] or math.inf

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Show each to its tests, instead of running them all."""
        for mutant in self._mutants:
            self._seen_by.write_text("", encoding="utf-8")
            fate = self._fate_of(mutant, session)
            line = json.dumps((fate, self._seen_by.read_text(encoding="utf-8")))
            os.write(self._fates, line.encode() + b"\n")
        return True

    def _fate_of(self, mutant: Mapping[str, Any], session: pytest.Session) -> str:
        tests = self._tests_of(mutant)
        if not tests:
            return "UNREACHED"
        in_time = self._in_time(tests)
        path = ROOT / mutant["file"]
        original = path.read_bytes()
        try:
            # Also for the processes that tests start; compiled files are told apart by whole seconds only.
            path.write_text(mutant["source"], encoding="utf-8")
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
            child = os.fork()
            if child == 0:
                _never_return(lambda: self._look(mutant, in_time, session))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            path.write_bytes(original)
            _end_children()
        if status in (-signal.SIGALRM, -signal.SIGPROF):
            return "hangs"
        survived = "SURVIVED" if len(in_time) == len(tests) else "UNDECIDED"
        others = {PASSED: survived, NOT_SHOWN: "NOT SHOWN", -signal.SIGTERM: "NOT SHOWN"}
        return others.get(status, "seen")

    def _tests_of(self, mutant: Mapping[str, Any]) -> list[tuple[str, float]]:
        """Return the tests that reach a mutant: its file's own first, the fastest before, then others.

        Of these the fastest of each file come first, then the second of each, and so on: tests of one file
        tend to see the same things.

        What runs at the import, every test reaches that reaches any line of the file; all of its room may.
        What torch compiles is seen to be run by nobody: those reach it that make the function around it.
        """
        _, room, name = mutant["file"].split("/")
        own = (*TESTS_OF.get(f"{room}/{name}", ()), f"_{name.removesuffix('.py')}")
        lines = self._reached.get(mutant["file"], {})
        first, last = mutant["lines"]
        if mutant["in_function"]:
            numbers = {number for line in range(first, last + 1) for number in lines.get(str(line), ())}
            for line in _lines_of_inner_functions(mutant):
                if numbers:
                    break
                numbers = set(lines.get(str(line), ()))
        else:
            numbers = {number for each in lines.values() for number in each}
            numbers |= {n for n, (test, _) in enumerate(self._tests) if test.startswith(f"tests/{room}/")}
        tests = sorted((self._tests[number] for number in numbers), key=itemgetter(1))
        n_before: Counter[str] = Counter()
        places = {}
        for name, seconds in tests:
            file = name.partition("::")[0]
            place = next((i for i, each in enumerate(own) if each in file), len(own) + n_before[file])
            places[name] = (place, seconds)
            n_before[file] += 1
        return sorted(tests, key=lambda test: places[test[0]])

    def _in_time(self, tests: Sequence[tuple[str, float]]) -> Sequence[tuple[str, float]]:
        """Return the first of the tests, one at least, that together take no longer than they may."""
        ends = list(itertools.accumulate(seconds for _, seconds in tests))
        return tests[: max(1, bisect.bisect_right(ends, self._seconds))]

    def _look(
        self, mutant: Mapping[str, Any], tests: Sequence[tuple[str, float]], session: pytest.Session
    ) -> int:
        """Run the tests in this child until the first fails."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        for timer in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(timer, signal.SIG_DFL)
        os.setsid()
        functions = _functions_to_replace(mutant) if mutant["in_function"] else None
        if functions is None:
            self._look_afresh([name for name, _ in tests], sum(seconds for _, seconds in tests))
        for function, code in functions or ():
            function.__code__ = code
        items = {item.nodeid: item for item in session.items}
        chosen = [(items[name], seconds) for name, seconds in tests if name in items]
        for number, (item, seconds) in enumerate(chosen):
            following = chosen[number + 1][0] if number + 1 < len(chosen) else None
            _end_after(HANGS_AFTER[0] + HANGS_AFTER[1] * seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                self._seen_by.write_text(item.nodeid, encoding="utf-8")
                return FAILED
        return PASSED

    def _look_afresh(self, names: Sequence[str], seconds: float) -> None:
        """Become a pytest that imports the mutant."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        _end_after(10 * HANGS_AFTER[0] + HANGS_AFTER[1] * seconds)
        options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", f"{ROOT}-tmp")
        os.execv(sys.executable, [sys.executable, "-m", "mutant_tests", *options, *names])


def _end_after(seconds: float) -> None:
    """Let a signal end this process once it has had so many seconds of the processor, or waits for ever."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, LOADED * seconds)


def _never_return(look: Any) -> None:
    """End this child with what ``look`` returns: whatever the process above had in mind is not its affair."""
    status = NOT_SHOWN
    try:
        status = look()
    except BaseException:
        with contextlib.suppress(Exception):
            Path(f"{ROOT}-problem.txt").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(status)


def _lines_of_inner_functions(mutant: Mapping[str, Any]) -> list[int]:
    """Return where the functions begin in which a mutant stands, innermost first, but for the outermost."""
    around = [
        node.lineno
        for node in ast.walk(ast.parse(mutant["source"]))
        if isinstance(node, ast.FunctionDef) and node.lineno <= mutant["line"] <= (node.end_lineno or 0)
    ]
    return sorted(around, reverse=True)[:-1]


def _functions_to_replace(mutant: Mapping[str, Any]) -> list[tuple[FunctionType, CodeType]] | None:
    """Return the functions of the file that are there, and what they become.

    None where two begin in one line under one name, so that it can't be told which is which.
    """
    path = str(ROOT / mutant["file"])
    new: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    for code in _codes_in(compile(mutant["source"], path, "exec")):
        new[code.co_name, code.co_firstlineno].append(code)
    replaced = []
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == path:
            codes = new[each.__code__.co_name, each.__code__.co_firstlineno]
            if len(codes) != 1:
                return None
            replaced.append((each, codes[0]))
    return replaced


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


def _end_children() -> None:
    """End what tests left behind: this process adopts orphans (see `conftest.py`)."""
    while pids := [
        int(pid)
        for path in Path("/proc/self/task").glob("*/children")
        for pid in path.read_text(encoding="ascii").split()
    ]:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


if __name__ == "__main__":
    raise SystemExit(pytest.main(["-p", "mutant_tests", *sys.argv[1:]]))
