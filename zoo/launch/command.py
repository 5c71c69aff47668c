"""Running a command under Hydra: one job, many jobs (``-m``), or only showing the config or the help."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.compose import HYDRA_ERRORS, ConfigLoader, as_zoo_error
from zoo.config.fields import build
from zoo.config.overrides import parse_arguments, parse_overrides
from zoo.config.paths import shown
from zoo.core.printing import one_line, say, show, without_password
from zoo.errors import ZooError, nearest
from zoo.launch.help import command_help, readable_yaml
from zoo.launch.job import run_job
from zoo.launch.status_table import counts, print_table
from zoo.launch.sweep import Sweep, SweepSettings
from zoo.launch.sweep_folder import DONE, FAILED, KILLED


def run_command(command: str, function: str, arguments: Sequence[str]) -> int:
    """Do what ``zoo <command> <arguments>`` asks for and return the exit status.

    ``function`` is ``module:name`` of what takes a job's config and returns its exit status, or None for 0;
    it is imported by the job. Raises `ZooError`.
    """
    flags = _flags(command, arguments)
    sweep, overrides = _split_sweep_settings(parse_arguments(command, flags.overrides))
    loader = ConfigLoader(command)
    if flags.help:
        show(command_help(command, loader, overrides))
    elif flags.cfg is not None:
        _show_config(loader, overrides, flags.cfg, flags.package)
    elif flags.info is not None:
        for file, section in loader.files(overrides).items():
            show(f"{shown(file)}: {section or 'the whole'}")
    elif flags.multirun or (sweep is not None and sweep.resume) or _is_multirun(loader, overrides):
        return _run_many(loader, function, overrides, sweep or SweepSettings())
    elif sweep is not None:
        raise ZooError("what begins with `sweep.` is for many jobs: add -m")
    else:
        return run_job(loader, function, overrides)
    return 0


FLAGS = ("--help", "--multirun", "--cfg", "--package", "--info")


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ZooError(f"{message} (see: {self.prog} --help)")


def _flags(command: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the flags, with the other arguments as ``overrides``. Raises `ZooError` for an unknown flag."""
    parser = _ArgumentParser(prog=f"zoo {command}", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--package", "-p")
    parser.add_argument("--info", "-i", choices=("defaults",))
    flags, unknown = parser.parse_known_intermixed_args(list(arguments))
    if unknown:
        hint = nearest(unknown[0], FLAGS) or "; settings have no dashes: algo=ppo2 n_timesteps=1e5"
        raise ZooError(f"there is no flag {unknown[0]}{hint} (see: {parser.prog} --help)")
    return flags


def _split_sweep_settings(overrides: Sequence[str]) -> tuple[SweepSettings | None, list[str]]:
    """Return the settings of the sweep among the overrides, None if there are none, and the other overrides.

    Raises `ZooError` for an unknown setting, a wrong type, and a value out of range.
    """
    own = [each for each in overrides if each.lstrip("+").startswith("sweep.")]
    others = [each for each in overrides if each not in own]
    values: dict[str, object] = {}
    for override in own:
        key, _, text = override.lstrip("+").removeprefix("sweep.").partition("=")
        if key == "resume" and text:  # a path may have characters that mean something to Hydra
            values[key] = text.strip("'\"")
            continue
        (parsed,) = parse_overrides([override.lstrip("+")])
        if parsed.is_sweep_override():
            raise ZooError(f"`{override}`: what is set for the whole sweep has one value")
        values[key] = parsed.value()
    return (build(SweepSettings, values, "sweep") if own else None), others


def _is_multirun(loader: ConfigLoader, overrides: list[str]) -> bool:
    """Tell whether the overrides, or the experiment that they choose, ask for many jobs."""
    if "hydra.mode=MULTIRUN" in overrides:
        return True
    if not any(override.startswith("experiment=") for override in overrides):
        return False
    config = loader.load_configuration(overrides, RunMode.MULTIRUN)
    return bool(config.hydra.mode == RunMode.MULTIRUN)


def _run_many(loader: ConfigLoader, function: str, overrides: list[str], settings: SweepSettings) -> int:
    _refuse_passwords(overrides)
    sweep = Sweep(loader, function, settings)
    try:
        folder = sweep.start(overrides) if settings.resume is None else sweep.resume(overrides)
    except HYDRA_ERRORS as error:
        raise as_zoo_error(error) from error
    except OSError as error:
        raise ZooError(f"can't write the sweep: {one_line(error)}") from error
    if sweep.is_left_to_slurm:
        say(f"zoo status {shlex.quote(folder.shown)}")
        return 0
    rows = folder.write_table()
    print_table(rows)
    say(f"zoo: {counts(rows)}")
    missing = [row for row in rows if row.status != DONE]
    if missing:
        again = f"zoo {loader.command} -m {shlex.quote(f'sweep.resume={folder.shown}')}"
        say(f"zoo: {len(missing)} of {len(rows)} jobs did not finish; this runs them: {again}", sys.stderr)
    failures = [row.exit_status for row in missing if row.status in (FAILED, KILLED)]
    return max(failures or [row.exit_status for row in missing], default=0)


def _refuse_passwords(overrides: Sequence[str]) -> None:
    """Raise `ZooError` for a password in a URL: a sweep's files, which others read, have all overrides."""
    for override in overrides:
        if without_password(override) != override:
            key = override.partition("=")[0]
            raise ZooError(
                f"{without_password(override)}: with -m its password would be written into the sweep's files;"
                f" name an environment variable that has the URL: '{key}=${{oc.env:NAME}}'"
            )


def _show_config(loader: ConfigLoader, overrides: list[str], which: str, package: str | None) -> None:
    """Print the config; what has not been chosen yet, such as the environment, may be missing in it."""
    config = loader.load_incomplete(overrides)
    if which == "hydra":
        show(_hydra_part(config), end="")
        return
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    if package is not None:
        part = OmegaConf.select(job, package)
        if part is None:
            raise ZooError(f"the config has no part `{package}`{nearest(package, map(str, job))}")
        show(OmegaConf.to_yaml(part, resolve=True) if OmegaConf.is_config(part) else part, end="")
        return
    show(readable_yaml(loader.command, job), end="")
    if which == "all":
        show(_hydra_part(config), end="")


def _hydra_part(config: DictConfig) -> str:
    """Return Hydra's own part of a config as YAML, without its help pages."""
    names = [str(name) for name in config.hydra if name not in ("help", "hydra_help")]
    return OmegaConf.to_yaml(OmegaConf.create({"hydra": OmegaConf.masked_copy(config.hydra, names)}))
