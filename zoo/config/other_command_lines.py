"""Command lines as other systems have them, answered with the whole command that is meant here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zoo.config.all_keys import all_keys
from zoo.config.bare_words import LISTS, WORDS
from zoo.config.names_elsewhere import OPTIONS, OTHER_PLACES
from zoo.config.source import algorithm_options
from zoo.errors import ZooError, nearest

OUR_FLAGS = ("-h", "--help", "-m", "--multirun", "-c", "--cfg", "-p", "--package", "-i", "--info")
CFG = ("job", "hydra", "all")
INFO = ("defaults", "defaults-tree", "searchpath", "plugins")
WITH_CHOICES = {"-c": CFG, "--cfg": CFG, "-i": INFO, "--info": INFO, "-p": (), "--package": ()}
"""Flags of ours that take a value, and the values that they take; none: any."""

KEYS = {
    "n": "n_timesteps",
    "f": "runs_dir",
    "folder": "runs_dir",
    "log_folder": "runs_dir",
    "i": "init_from",
    "trained_agent": "init_from",
    "num_threads": "threads",
    "eval_freq": "callbacks.eval.every",
    "eval_episodes": "callbacks.eval.n_episodes",
    "n_eval_episodes": "n_episodes",
    "n_eval_envs": "callbacks.eval.n_envs",
    "save_freq": "callbacks.checkpoint.every",
    "study_name": "study",
    "max_total_trials": "n_trials",
    "conf": "tuned",
    "conf_file": "tuned",
    "wandb_project_name": "logger.wandb.project",
    "wandb_entity": "logger.wandb.entity",
    "load_checkpoint": "checkpoint",
    "model_path": "agent",
    "total_timesteps": "n_timesteps",
    "learning_rate": "algo.learning_rate",
    "gamma": "algo.gamma",
}
"""Flags of the RL Zoo and of single-file libraries that take one value, and the key that it is for."""

SWITCHES = {
    "track": "logger=wandb",
    "tensorboard_log": "logger.tensorboard=true",
    "tb": "logger.tensorboard=true",
    "progress": "progress_bar=true",
    "P": "progress_bar=true",
    "no_render": "render=false",
    "stochastic": "deterministic=false",
    "deterministic": "deterministic=true",
    "capture_video": "callbacks=video",
}
"""Flags that stand alone here, whatever they take elsewhere, and what is meant."""

MANY = {"hyperparams": "algo", "params": "algo", "env_kwargs": "env.kwargs"}
"""Flags that take any number of ``name:value``, and where these names live."""

FOR_TUNE = ("optimize", "optimize_hyperparameters")

NEEDLESS = ("load_best", "uuid", "use_cuda", "cuda", "optimization_log_path", "no_optim_plots")
"""Flags for what is done anyway, or decided otherwise."""

VALUES = {"env.vectorization": {"subproc": "workers", "dummy": "sync"}}

ENV_ID = re.compile(r"([\w.]+:)?([\w.-]+/)?[\w.-]+-v\d+")


@dataclass
class _Meant:
    """What a command line comes down to."""

    verb: str
    words: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def add(self, key: str, value: str, typed: str) -> None:
        """Take a setting, or note that the command has none for what was typed."""
        if key == "algo":
            value = _algorithm(value) or value
        if key.partition(".")[0] in _tops(self.verb):
            self.words.append(f"{key}={VALUES.get(key, {}).get(value, value)}")
        else:
            self.dropped.append(typed)

    def command(self) -> str:
        line = shlex.join(["zoo", self.verb, *self.words])
        if not self.dropped:
            return line
        nothing = "has no counterpart" if len(self.dropped) == 1 else "have no counterparts"
        return f"{line} ({', '.join(self.dropped)} {nothing})"


def refuse_other_command_lines(command: str, arguments: Sequence[str]) -> None:
    """Raise `ZooError` with the command that is meant, if flags or words are none of Zoo's.

    A list that the shell took apart at its spaces, and a ``=`` between spaces, are put together again.
    """
    whole = _joined(arguments)
    found = _first_foreign(command, whole)
    if found is None:
        if whole != list(arguments):
            raise ZooError(
                f"a setting with spaces needs quotes, one without is: {shlex.join(['zoo', command, *whole])}"
            )
        return
    is_flag = found.startswith("-")
    if is_flag and not _is_known(command, found):
        hint = nearest(found, [flag for flag in OUR_FLAGS if flag.startswith("--")])
        if hint or not found.startswith("--"):
            raise ZooError(
                f"there is no flag {found}{hint or '; settings have no dashes: key=value'}"
                f" (see: zoo {command} --help)"
            )
    meant = _translated(command, whole)
    if meant is None:
        lacks = "value" if found in _tops(command) else "key"
        example = f"{found}=..." if lacks == "value" else "key=value, such as n_timesteps=1e5"
        raise ZooError(f"`{found}` has no {lacks}; expected {example} (see: zoo {command} --help)")
    what = f"there is no flag {found}: settings have no dashes" if is_flag else f"`{found}` has no key"
    raise ZooError(f"{what}; what is meant: {meant.command()}")


def _joined(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with what belongs to one setting in one."""
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ""
        is_open = "=" in before and any(before.count(a) > before.count(b) for a, b in ("[]", "{}"))
        is_split = not before.startswith("-") and (
            (re.fullmatch(r"[\w.]+", before) and argument.startswith("="))
            or (re.fullmatch(r"[\w.]+=", before) and re.match(r"[^-=][^=]*$", argument))
        )
        if is_open:
            joined[-1] = f"{before}{'' if before[-1] in ',[{:' else ' '}{argument}"
        elif is_split:
            joined[-1] = before + argument
        else:
            joined.append(argument)
    return joined


def _first_foreign(command: str, arguments: Sequence[str]) -> str | None:
    """Return the first flag that is none of ours, or word that the command does not take, if there is one."""
    takes_words = command in LISTS or command in WORDS
    after = ""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if after:
            choices, after = WITH_CHOICES[after], ""
            if choices and argument not in choices and any(map(_is_flag_of_others, arguments)):
                return next(filter(_is_flag_of_others, arguments))
        elif _is_flag(argument):
            if name not in OUR_FLAGS and not argument.startswith(("-c", "-p", "-i")):
                return name
            if argument.startswith("-conf"):
                return name
            after = name if name in WITH_CHOICES and not value else ""
        elif "=" not in argument and not argument.startswith("~") and not takes_words:
            return argument
    return None


def _is_flag(argument: str) -> bool:
    return re.match(r"--?[A-Za-z]", argument) is not None


def _is_flag_of_others(argument: str) -> bool:
    return argument.startswith("--") and argument.partition("=")[0] not in OUR_FLAGS


def _name(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _is_known(command: str, flag: str) -> bool:
    """Tell whether a flag is one of another system, or a setting of the command with dashes."""
    name = _name(flag)
    tables: tuple[object, ...] = (KEYS, SWITCHES, MANY, FOR_TUNE, NEEDLESS, ("algo", "env", "vec_env"))
    return any(name in table for table in tables) or name in _tops(command)  # type: ignore[operator]


def _tops(command: str) -> set[str]:
    return {key for key in all_keys(command, ()) if "." not in key}


def _translated(command: str, arguments: Sequence[str]) -> _Meant | None:
    """Return what a command line comes down to, or None for a word that could be anything."""
    is_tuning = command == "train" and any(_name(each) in FOR_TUNE for each in arguments)
    meant = _Meant("tune" if is_tuning else command)
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if _is_flag(argument):
            _take_flag(meant, argument, waiting)
        elif "=" in argument or argument.startswith("~"):
            meant.words.append(argument)
        elif (setting := _setting_of(argument, command)) is not None:
            meant.words.append(setting)
        else:
            return None
    meant.words.sort(key=lambda word: (not word.startswith("algo="), not word.startswith("env=")))
    return meant


def _take_flag(meant: _Meant, flag: str, waiting: list[str]) -> None:
    typed, equals, value = flag.partition("=")
    name = _name(typed)
    values = [value] if equals else list(_values(waiting))
    if typed in OUR_FLAGS and not (typed == "-i" and values and values[0] not in INFO):
        takes_value = typed in WITH_CHOICES
        meant.words += [typed, *values[: int(takes_value)]]
        waiting[:0] = values[int(takes_value) :]
    elif name in FOR_TUNE or name in NEEDLESS:
        waiting[:0] = values
    elif name in SWITCHES:
        key, _, chosen = SWITCHES[name].partition("=")
        meant.add(key, chosen, typed)
    elif name in MANY:
        for key, each in (value.split(":", 1) for value in values if ":" in value):
            place = (
                OTHER_PLACES.get(key, f"{MANY[name]}.{key}") if name != "env_kwargs" else f"env.kwargs.{key}"
            )
            meant.add(place, each.strip("'\""), typed)
    else:
        key = {"vec_env": "env.vectorization"}.get(name) or KEYS.get(name, name)
        meant.add(key, " ".join(values[:1]) or "...", typed)
        waiting[:0] = values[1:]


def _values(waiting: list[str]) -> Iterator[str]:
    """Take the words behind a flag, up to the next flag or setting."""
    while waiting and not _is_flag(waiting[0]) and "=" not in waiting[0]:
        yield waiting.pop(0)


def _algorithm(name: str) -> str | None:
    """Return what an algorithm is called here, or None for a name that is none's."""
    return ({each.lower(): each for each in algorithm_options()} | OPTIONS).get(name.lower())


def _setting_of(word: str, command: str) -> str | None:
    """Return the setting that a word alone stands for, or None if that is not clear."""
    key, colon, value = word.partition(":")
    if colon and key in ("algo", "env", *_tops(command)) and value:
        return f"{key}={value}"
    algorithm = _algorithm(word)
    if algorithm is not None:
        return f"algo={algorithm}"
    if ENV_ID.fullmatch(word) and "runs/" not in word:
        return f"env={word}"
    if "agent" in _tops(command) and ("/" in word or word.endswith(".zip")):
        return f"agent={word}"
    if command in ("train", "tune") and word.endswith((".yaml", ".yml")):
        return f"experiment={word}"
    return None
