"""Checking overrides, and the config composed of them, against what is declared, before anything starts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hydra.core.override_parser.types import Override

from zoo.config import schema
from zoo.config.aliases import unknown_key
from zoo.config.fields import build, check_bounds, scheduled
from zoo.config.schema import (
    ALGO_LABELS,
    CALLBACKS,
    SETTINGS,
    LoggerSettings,
    WandbSettings,
)
from zoo.config.source import NO_TUNED
from zoo.core.printing import one_line
from zoo.errors import ZooError

TARGET = "_target_"

REQUIRED_CHOICES = {
    "train": {"algo": "ppo2", "env": "CartPole-v1"},
    "tune": {"algo": "ppo2", "env": "CartPole-v1"},
    "check": {"env": "CartPole-v1"},
    "compare": {"runs": "[runs/ppo2,runs/a2c]"},
}
"""What the user has to choose for each command, with an example."""


FIXED_WHEN_PLAYING = {
    "normalize": "an agent normalises with the statistics of its training, and returns are as they come",
    "render_mode": "`record` and `render` say whether the environment is drawn",
}
"""What can't be set of an environment that a saved agent plays in."""


def require_choices(command: str, config: Mapping[str, Any]) -> None:
    """Raise `ZooError` if something is missing that only the user can choose."""
    examples = REQUIRED_CHOICES.get(command, {})
    missing = [key for key in examples if config.get(key) is None]
    if missing:
        example = " ".join(f"{key}={examples[key]}" for key in missing)
        raise ZooError(f"which {' and '.join(missing)}? for example: {example}")


def checked(command: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with every value of its declared type and every default filled in.

    Raises `ZooError` for an unknown key, a wrong type or a value out of range. A command that declares no
    settings gets its config as it is.
    """
    if command not in SETTINGS:
        return dict(config)
    config = _with_replay_section(config)
    sections_here = {**_SECTIONS, **_SECTIONS_OF_COMMAND.get(command, {})}
    present = {key: check for key, check in sections_here.items() if isinstance(config.get(key), Mapping)}
    settings_class = SETTINGS[command]
    known = [field.name for field in dataclasses.fields(settings_class)]
    for key in config:
        if key in known or key in present:
            continue
        if key in sections_here:
            found = "null" if config[key] is None else one_line(repr(config[key]), 40)
            raise ZooError(f"`{key}={found}` has the wrong type; expected settings by their names")
        raise unknown_key(str(key), [*known, *sections_here], "")
    settings = build(settings_class, {key: config[key] for key in known if key in config}, "")
    values = {**vars(settings), **{key: check(config[key]) for key, check in present.items()}}
    _set_deterministic_evaluation(values)
    _refuse_no_learning(values)
    _refuse_init_with_alone(values)
    _refuse_replaced_hindsight(values)
    if isinstance(values.get("algo"), Mapping) and isinstance(values.get("policy"), Mapping):
        schema.check_recurrent_policy(values["policy"], values["algo"].get("preset"))
    return {key: values[key] for key in [*config, *known] if key in values}


def _with_replay_section(config: Mapping[str, Any]) -> dict[str, Any]:
    """Give the section ``replay`` to algorithms with a replay buffer; refuse one that is set for another."""
    others = {key: value for key, value in config.items() if key != "replay"}
    replay, algo = config.get("replay"), config.get("algo")
    name = algo.get("name") if isinstance(algo, Mapping) else None
    if not isinstance(name, str) or not isinstance(replay, Mapping | None):
        return dict(config)
    if schema.has_replay(name):
        return {**others, "replay": replay or {}}
    if replay:
        raise ZooError(f"`replay` can't be set: {name} has no replay buffer of single transitions")
    return others


def _set_deterministic_evaluation(values: Mapping[str, Any]) -> None:
    """Atari games are played stochastically, as in all published scores, unless the user says otherwise."""
    evaluation = (values.get("callbacks") or {}).get("eval") or {}
    if values.get("env") is not None and evaluation.get("deterministic", True) is None:
        evaluation["deterministic"] = not schema.is_atari(values["env"]["id"])


def _refuse_no_learning(values: Mapping[str, Any]) -> None:
    """Raise `ZooError` for a training that would end before its first update."""
    algo, n_timesteps = values.get("algo"), values.get("n_timesteps")
    starts = algo.get("learning_starts") if isinstance(algo, Mapping) else None
    if starts is not None and n_timesteps is not None and starts >= n_timesteps:
        is_tuned = values.get("tuned") not in (None, NO_TUNED)
        raise ZooError(
            f"`algo.learning_starts={starts}` leaves nothing of n_timesteps={n_timesteps} to learn in;"
            " expected fewer random steps (algo.learning_starts=…), or a longer run"
            f"{'; tuned=none leaves tuned values out' if is_tuned else ''}"
        )


def _refuse_replaced_hindsight(values: Mapping[str, Any]) -> None:
    """Raise `ZooError` for ``replay=prioritized``, which replaces the hindsight of a ``her_`` preset.

    ``replay=uniform`` replaces it on purpose, to compare.
    """
    algo, replay = values.get("algo"), values.get("replay")
    if not isinstance(algo, Mapping) or not isinstance(replay, Mapping):
        return
    has_lost = replay.get("prioritized") is not None and replay.get("hindsight") is None
    if algo.get("preset") == f"her_{algo.get('name')}" and has_lost:
        raise ZooError(
            f"`algo={algo['preset']}` replays with hindsight, which replay=prioritized would replace;"
            f" replay=[prioritized,hindsight] has both, algo={algo['name']} replay=prioritized goes without"
        )


def _refuse_init_with_alone(values: Mapping[str, Any]) -> None:
    """Raise `ZooError` for a run that is to take more than weights from no other."""
    what = values.get("init_with", "weights")
    if what != "weights" and values.get("init_from") is None:
        raise ZooError(f"`init_with={what}` says what to take of init_from=RUN, which is missing")


def _algo(values: Mapping[str, Any]) -> dict[str, Any]:
    labels = {key: values[key] for key in ALGO_LABELS if key in values}
    if not isinstance(labels.get("name"), str):
        raise ZooError("`algo.name` is missing: it names the algorithm that a preset builds on")
    config_class = schema.algorithm_config_class(labels["name"])
    hyperparameters = {key: value for key, value in values.items() if key not in ALGO_LABELS}
    return {**labels, **_built(config_class, hyperparameters, "algo")}


def _env(values: Mapping[str, Any]) -> dict[str, Any]:
    env = _built(schema.section_class("env"), values, "env")
    schema.check_env(env)
    return env


def _playing_env(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check what is set of an environment, and nothing else: the rest is as the agent was trained in."""
    for key, why in FIXED_WHEN_PLAYING.items():
        if key in values:
            raise ZooError(f"`env.{key}` can't be set here: {why}")
    given = {key: value for key, value in values.items() if value is not None or key != "id"}
    checked_values = _env({"id": "any", **given})
    return {key: checked_values[key] for key in given}


def _section(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return _built(schema.section_class(name), values, name)


def _callbacks(values: Mapping[str, Any]) -> dict[str, Any]:
    callbacks: dict[str, Any] = dict.fromkeys(CALLBACKS)
    for name, settings in values.items():
        where = f"callbacks.{name}"
        if isinstance(settings, Mapping) and TARGET in settings:
            callbacks[name] = dict(settings)
        elif name not in CALLBACKS:
            note = f" (a callback of your own has a `{TARGET}`)"
            raise unknown_key(name, list(CALLBACKS), "callbacks", note=note)
        elif isinstance(settings, Mapping):
            callbacks[name] = _built(CALLBACKS[name], settings, where)
        elif settings is not None:
            raise ZooError(f"`{where}={settings}` is neither null nor a mapping of settings")
    return callbacks


def _logger(values: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: dict(each) for name, each in values.items() if isinstance(each, Mapping) and TARGET in each}
    known = {name: each for name, each in values.items() if name not in own}
    for name in known.keys() - {field.name for field in dataclasses.fields(LoggerSettings)}:
        if known[name] is None or isinstance(known[name], Mapping):
            names = [field.name for field in dataclasses.fields(LoggerSettings)]
            raise unknown_key(name, names, "logger", note=f" (a tracker of your own has a `{TARGET}`)")
    logger = _built(LoggerSettings, known, "logger")
    if logger["wandb"] is not None:
        logger["wandb"] = _built(WandbSettings, logger["wandb"], "logger.wandb")
    return {**logger, **own}


_SECTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "algo": _algo,
    "env": _env,
    **{name: partial(_section, name) for name in ("policy", "replay", "pretrain")},
    "callbacks": _callbacks,
    "logger": _logger,
}

_SECTIONS_OF_COMMAND: dict[str, dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "tune": {"sampler": schema.checked_sampler, "pruner": schema.checked_pruner, "space": dict},
    **{command: {"env": _playing_env} for command in ("enjoy", "evaluate", "record")},
}
"""Sections that only some commands have, or have otherwise.

The space of a search is held against the algorithm when the search begins.
"""


def _built(config_class: type[Any], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    built = build(config_class, values, where)
    fields = {field.name: field for field in dataclasses.fields(built)}
    for name, value in scheduled(built).items():
        if value != fields[name].default:
            _check_schedule(value, fields[name].metadata, f"{where}.{name}")
    return dataclasses.asdict(built)


def _check_schedule(value: Any, metadata: Mapping[str, Any], where: str) -> None:
    try:
        start, end = schema.schedule_ends(value)
    except ZooError as error:
        raise ZooError(f"`{where}`: {error}") from error
    if isinstance(value, str | Mapping):
        check_bounds(start, metadata, where)
        bounds = metadata["bounds"].items()
        reached_at_last = {{"gt": "ge", "lt": "le"}.get(name, name): bound for name, bound in bounds}
        check_bounds(end, {"bounds": reached_at_last}, where)


UNUSED_HYDRA_SETTINGS = {
    "hydra.run.dir": "a run's folder is made in `runs_dir=`",
    "hydra.output_subdir": "the config stands in the run's folder as config.yaml",
    "hydra.job.chdir": "a run stays in the folder in which it was started",
}
"""Settings of Hydra's own that would do nothing here, and what does."""


def refuse_unknown_names(
    overrides: Iterable[Override], known_keys: Sequence[str], typed_keys: Sequence[str]
) -> None:
    """Raise `ZooError` for a name that is wrong whatever the algorithm, which takes long to import.

    ``known_keys`` are the names at the top of the command's config, ``typed_keys`` what users type for them;
    what is added by ``+`` may be any.
    """
    for override in overrides:
        key = override.key_or_group
        if key in UNUSED_HYDRA_SETTINGS:
            raise ZooError(f"`{key}` is not used: {UNUSED_HYDRA_SETTINGS[key]}")
        if override.is_add() or override.is_hydra_override():
            continue
        section, *rest = re.split(r"[./]", key)
        if section not in known_keys:
            raise unknown_key(section, typed_keys, "", rest="".join(f".{each}" for each in rest))
        if rest and section in schema.SECTIONS:
            known = [field.name for field in dataclasses.fields(schema.section_class(section))]
            if rest[0] not in known:
                raise unknown_key(rest[0], known, section)


def refuse_empty_choices(overrides: Iterable[Override], options: Mapping[str, Sequence[str]]) -> None:
    """Raise `ZooError` for a group that is given no option, or left out; ``options`` are those of each."""
    for override in overrides:
        group = override.key_or_group
        if group not in options:
            continue
        none = f"; {group}=none leaves it empty" if "none" in options[group] else ""
        if override.is_delete():
            raise ZooError(f"`~{group}`: the section {group} can't be left out{none}")
        if override.is_sweep_override():
            continue
        value = override.value()
        if value == "" or not isinstance(value, str | list):
            raise ZooError(f"`{override.input_line}` names nothing; expected {group}=NAME{none}")


def refuse_several_values(overrides: Iterable[Override]) -> None:
    """Raise `ZooError` for a setting with several values where one job runs."""
    for override in overrides:
        if override.is_sweep_override():
            raise ZooError(
                f"`{override.input_line}` stands for several values: add -m to run each of them"
                " (a list is written [a,b], a text with commas \"'a,b'\")"
            )


def refuse_pretraining_from_nothing(overrides: Iterable[Override], config: Mapping[str, Any]) -> None:
    """Raise `ZooError` for a typed setting of pretraining where there is nothing to start from.

    An experiment may say how to pretrain, and leave the data to whoever has some.
    """
    pretrain = config.get("pretrain")
    if not isinstance(pretrain, Mapping) or pretrain.get("dataset") is not None:
        return
    defaults = {field.name: field.default for field in dataclasses.fields(schema.section_class("pretrain"))}
    for override in overrides:
        section, _, key = override.key_or_group.partition(".")
        if section == "pretrain" and key in defaults and pretrain.get(key) != defaults[key]:
            raise ZooError(
                f"`pretrain.{key}={pretrain.get(key)}` does nothing by itself: it needs"
                " pretrain.dataset=PATH, the expert data to start from"
            )
