"""Running a command under Hydra: one job, many jobs (``-m``), or only showing the config or the help."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from hydra.types import RunMode

from zoo.config.aliases import HYDRA
from zoo.config.compose import ConfigLoader, job_part
from zoo.config.overrides import parse_arguments
from zoo.config.user_files import shown
from zoo.core.printing import say, show, without_password
from zoo.errors import ZooError, nearest
from zoo.launch.help import command_help, flag_names, hydra_yaml, readable_yaml
from zoo.launch.processes import run_job
from zoo.launch.status_table import counts, print_jobs
from zoo.launch.sweep import Sweep
from zoo.launch.sweep_folder import DONE, FAILED, FAILURE, KILLED


def run_command(command: str, function: str, arguments: Sequence[str]) -> int:
    """Do what ``zoo <command> <arguments>`` asks for, a job by `run_job`; return the exit status."""
    flags = _flags(command, arguments)
    resumed, overrides = _split_resumed_sweep(parse_arguments(command, flags.overrides))
    loader = ConfigLoader(command)
    if flags.help:
        show(command_help(command, loader, overrides))
    elif flags.cfg is not None:
        config = loader.load_incomplete(overrides)  # what has not been chosen yet may be missing
        is_job = flags.cfg == "job" and not flags.package
        text = readable_yaml(command, job_part(config)) if is_job else ""
        show(text or hydra_yaml(config, flags.cfg, flags.package, flags.resolve), end="")
    elif flags.info is not None:
        loader.load_incomplete(overrides)
        for file, section in loader.source.read.items():
            show(f"{shown(file)}: {section or 'the whole'}")
    elif flags.multirun or resumed is not None or _is_multirun(loader, overrides):
        return _run_many(loader, function, overrides, resumed)
    else:
        return run_job(loader, function, overrides)
    return 0


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ZooError(f"{message} (see: {self.prog} --help)")


def _flags(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the flags, with the other arguments as ``overrides``. Raises `ZooError` for an unknown flag."""
    answers = HYDRA["flags"]
    for flag in (argument.partition("=")[0] for argument in arguments):
        if flag.startswith("-") and flag in answers:
            raise ZooError(f"{flag}: {answers[flag]}")
    parser = _ArgumentParser(prog=f"zoo {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p", default="")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--info", "-i", choices=("defaults", "searchpath", "config", "plugins", "all"))
    flags, unknown = parser.parse_known_intermixed_args(list(arguments))
    if unknown:
        hint = nearest(unknown[0], flag_names()) or "; settings have no dashes: algo=ppo2 n_timesteps=1e5"
        raise ZooError(f"there is no flag {unknown[0]}{hint} (see: {parser.prog} --help)")
    if flags.info in answers:
        raise ZooError(f"--info {flags.info}: {answers[flags.info]}")
    if flags.cfg is None and (flags.resolve or flags.package):
        raise ZooError("--resolve and --package go with --cfg job, --cfg hydra or --cfg all")
    return flags


def _split_resumed_sweep(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the folder that ``sweep.resume`` names, None without it, and the other overrides."""
    resumed, others = None, []
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key == "sweep.resume" and value:  # a path may have characters that mean something to Hydra
            resumed = value.strip("'\"")
        elif key.startswith("sweep."):
            raise ZooError(f"unknown setting `{key}` of a sweep; expected sweep.resume=DIR")
        else:
            others.append(override)
    return resumed, others


def _is_multirun(loader: ConfigLoader, overrides: list[str]) -> bool:
    if "hydra.mode=MULTIRUN" in overrides:
        return True
    if not any(override.startswith("experiment=") for override in overrides):
        return False
    config = loader.load_configuration(overrides, RunMode.MULTIRUN)
    return bool(config.hydra.mode == RunMode.MULTIRUN)


def _run_many(loader: ConfigLoader, function: str, overrides: list[str], resumed: str | None) -> int:
    if changed := [hidden for text in overrides if (hidden := without_password(text)) != text]:
        raise ZooError(
            f"{changed[0]}: with -m its password would be written into the sweep's files;"
            " name an environment variable that has the URL: 'storage=${oc.env:NAME}'"
        )
    sweep = Sweep(loader, function)
    folder = sweep.start(overrides) if resumed is None else sweep.resume(resumed, overrides)
    if sweep.is_left_to_slurm:
        say(f"zoo status {shlex.quote(folder.shown)}")
        return 0
    jobs = folder.write_table()
    print_jobs(jobs)
    say(f"zoo: {counts(jobs)}")
    missing = [job for job in jobs if job.status != DONE]
    if missing:
        again = f"zoo {loader.command} -m {shlex.quote(f'sweep.resume={folder.shown}')}"
        say(f"zoo: {len(missing)} of {len(jobs)} jobs did not finish; this runs them: {again}", sys.stderr)
    failures = [job for job in missing if job.status in (FAILED, KILLED)]
    return max((job.exit_status or FAILURE for job in failures or missing), default=0)
