"""Running a command under Hydra: one job, many jobs (``-m``), or only showing the config or the help."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn

from hydra.conf import HydraConf
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.hydra_internals import HydraConfig, JobReturn, hydra_part, hydra_with
from zoo.config.loading import ConfigLoader
from zoo.config.showing import command_help, readable_yaml
from zoo.errors import ZooError, nearest

INTERRUPTED = 130
"""Exit status of a run that the user or the cluster ended."""

MISTAKE = 2
"""Exit status after a `ZooError`."""

FAILURE = 1
"""Exit status after any other exception."""


def run_command(command: str, function: str, arguments: Sequence[str]) -> int:
    """Do what ``zoo <command> <arguments>`` asks for and return the exit status.

    ``function`` is ``module:name`` of what takes a job's config and returns its exit status, or None for 0;
    it is imported by the job. Raises `ZooError`.
    """
    flags = _parser(command).parse_intermixed_args(list(arguments))
    overrides = list(flags.overrides)
    loader = ConfigLoader(command)
    if flags.help:
        print(command_help(command, loader, overrides))
    elif flags.cfg is not None:
        _show_config(loader, overrides, flags.cfg, flags.package)
    elif flags.info is not None:
        hydra_with(loader).show_info(flags.info, config_name=command, overrides=overrides)
    elif flags.multirun or _is_multirun(loader, overrides):
        return _multirun(loader, Job(function, is_one_of_many=True), overrides)
    else:
        return _run(loader, Job(function), overrides)
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        word = message.rpartition("unrecognized arguments: ")[2].split(" ")[0]
        flags = [flag for action in self._actions for flag in action.option_strings]
        raise ZooError(f"{message}{nearest(word, flags)} (see: {self.prog} --help)")


def _parser(command: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"zoo {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p")
    parser.add_argument("--info", "-i", choices=("defaults", "defaults-tree", "searchpath", "plugins"))
    return parser


@dataclass
class Outcome:
    """How a job ended. ``message`` says why, if it failed; ``error`` is set for a single job only."""

    status: int
    message: str = ""
    error: Exception | None = None


@dataclass
class Job:
    """What Hydra calls with a job's config, here or in another process."""

    function: str
    is_one_of_many: bool = False

    def __call__(self, config: DictConfig) -> Outcome:
        module, _, name = self.function.partition(":")
        run = getattr(importlib.import_module(module), name)
        if not self.is_one_of_many:
            try:
                return Outcome(run(config) or 0)
            except Exception as error:
                # Raised again by `_run`: Hydra would print a line of its own.
                return Outcome(FAILURE, error=error)
        if _interruption.has_come:
            return Outcome(INTERRUPTED, "not started")
        hydra = HydraConfig.get()
        name = f"zoo: job {hydra.job.num}"
        log = _own_log(hydra)
        print(f"{name}: {_spelled(hydra.overrides.task)}{f' (output: {log})' if log else ''}", flush=True)
        with _written_to(log):
            outcome = _outcome(run, config)
        if log:
            print(f"{name}: {outcome.message or _ENDINGS.get(outcome.status, 'done')}", flush=True)
        _interruption.has_come |= outcome.status == INTERRUPTED
        return outcome


_ENDINGS = {INTERRUPTED: "interrupted"}


def _spelled(overrides: Iterable[str]) -> str:
    """Return overrides as the user would write them, without Hydra's backslashes."""
    return " ".join(re.sub(r"\\(.)", r"\1", override) for override in overrides)


def _own_log(hydra: HydraConf) -> str | None:
    """Return the file for what a job prints, where jobs side by side would print over each other."""
    if not str(hydra.launcher._target_).startswith("hydra_plugins.hydra_joblib_launcher."):
        return None
    return os.path.join(hydra.sweep.dir, f"{hydra.job.num}.log")


@contextmanager
def _written_to(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    with open(path, "w", encoding="utf-8", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        yield


def _outcome(run: Any, config: DictConfig) -> Outcome:
    """Run one job of many: what goes wrong is told at once, and the others go on."""
    try:
        return Outcome(run(config) or 0)
    except ZooError as error:
        print(f"zoo: {error}", file=sys.stderr, flush=True)
        return Outcome(MISTAKE, str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome(FAILURE, f"{type(error).__name__}: {error}")


def _is_multirun(loader: ConfigLoader, overrides: list[str]) -> bool:
    """Tell whether the overrides, or the experiment that they choose, ask for many jobs."""
    if "hydra.mode=MULTIRUN" in overrides:
        return True
    if not any(override.startswith("experiment=") for override in overrides):
        return False
    config = loader.load_configuration(loader.command, overrides, RunMode.MULTIRUN)
    return bool(config.hydra.mode == RunMode.MULTIRUN)


def _run(loader: ConfigLoader, job: Job, overrides: list[str]) -> int:
    done = hydra_with(loader).run(loader.command, job, overrides, with_log_configuration=False)
    outcome: Outcome = done.return_value
    if outcome.error is not None:
        raise outcome.error
    return outcome.status


def _multirun(loader: ConfigLoader, job: Job, overrides: list[str]) -> int:
    try:
        with _interruption.waited_for():
            results = hydra_with(loader).multirun(
                loader.command, job, overrides, with_log_configuration=False
            )
    except RuntimeError as error:
        if '"srun"' not in str(error):
            raise
        raise ZooError(
            "hydra/launcher=slurm: this machine is not part of a Slurm cluster (it has no `srun`);"
            " hydra/launcher=joblib runs the jobs on its own cores"
        ) from error
    jobs = list(_job_returns(results))
    failed = [(number, done) for number, done in enumerate(jobs) if done.return_value.status]
    if failed:
        print(f"zoo: {len(failed)} of {len(jobs)} jobs did not finish:", file=sys.stderr)
    for number, done in failed:
        why = done.return_value.message or "interrupted"
        print(f"  job {number}: {_spelled(done.overrides or ())}: {why}", file=sys.stderr)
    return max((done.return_value.status for _, done in failed), default=0)


def _job_returns(results: Any) -> Iterator[JobReturn]:
    """Give the results of all jobs, out of the batches in which a sweeper returns them."""
    if isinstance(results, JobReturn):
        yield results
    elif isinstance(results, Iterable):
        for result in results:
            yield from _job_returns(result)


@dataclass
class _Interruption:
    """Whether the user asked to end, in a process that runs many jobs: those not yet started are left out."""

    has_come: bool = False
    _before: Any = field(default=None, repr=False)

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Within the block, a first Ctrl-C lets the running jobs end cleanly, a second ends all at once."""
        before = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True
        os.write(2, b"\nzoo: no more jobs will be started; Ctrl-C again ends all at once\n")


_interruption = _Interruption()


def _show_config(loader: ConfigLoader, overrides: list[str], which: str, package: str | None) -> None:
    """Print the config; what has not been chosen yet, such as the environment, may be missing in it."""
    config = loader.load_incomplete(overrides)
    if which == "hydra":
        print(OmegaConf.to_yaml(hydra_part(config)), end="")
        return
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    if package is not None:
        part = OmegaConf.select(job, package)
        if part is None:
            raise ZooError(f"the config has no part `{package}`{nearest(package, map(str, job))}")
        print(OmegaConf.to_yaml(part, resolve=True) if OmegaConf.is_config(part) else part, end="")
        return
    print(readable_yaml(loader.command, job), end="")
    if which == "all":
        print(OmegaConf.to_yaml(hydra_part(config)), end="")
