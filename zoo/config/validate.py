"""Checks of overrides and of the composed config against their declarations, before anything starts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from zoo.config.aliases import HYDRA, UnknownKeyError
from zoo.config.fields import build
from zoo.config.keys import COMMAND_SECTIONS
from zoo.config.overrides import KEYS_BY_TYPED_NAME
from zoo.config.schema import ALGO_LABELS, OPEN_SECTIONS, SETTINGS, preset_or_name
from zoo.config.sections import SECTIONS, algorithm_class, check_section, section_class
from zoo.core.plain_data import value_at
from zoo.core.printing import one_line
from zoo.errors import ZooError

Values = Mapping[str, Any]

REQUIRED_CHOICES = {
    "train": {"algo": "ppo2", "env": "CartPole-v1"},
    "tune": {"algo": "ppo2", "env": "CartPole-v1"},
    "check": {"env": "CartPole-v1"},
    "compare": {"runs": "[runs/ppo2,runs/a2c]"},
}
"""What the user has to choose for each command, with an example."""

PLAYING = ("enjoy", "evaluate", "record")
"""Commands whose section ``env`` says what is changed of the environment of a saved agent."""

FIXED_WHEN_PLAYING = {
    "normalize": "an agent normalises with the statistics of its training, and returns are as they come",
    "render_mode": "`record` and `render` say whether the environment is drawn",
}

HYDRA_SETTINGS = ("hydra.mode", "hydra.launcher", "hydra.sweep.dir", "hydra.sweeper.params")
"""Settings of Hydra's own that are heeded, with all that stands below them."""


# -- the composed config ----------------------------------------------------------------------------------


def require_choices(command: str, config: Values) -> None:
    """Raise `ZooError` if something is missing that only the user can choose."""
    examples = REQUIRED_CHOICES.get(command, {}).items()
    missing = {key: f"{key}={example}" for key, example in examples if config.get(key) is None}
    if missing:
        raise ZooError(f"which {' and '.join(missing)}? for example: {' '.join(missing.values())}")


def checked(command: str, config: Values) -> dict[str, Any]:
    """Return the config with every value of its declared type, and defaults. Raises `ZooError`."""
    config = _with_replay_section(config)
    names = [field.name for field in dataclasses.fields(SETTINGS[command])]
    sections = ("env",) if command in PLAYING else [*COMMAND_SECTIONS.get(command, ()), "env"]
    values: dict[str, Any] = {}
    for key, value in config.items():
        if key in sections and isinstance(value, Mapping):
            values[key] = _checked_section(command, key, value)
        elif key in sections and key not in names:
            wrong = "null" if value is None else one_line(repr(value), 40)
            raise ZooError(f"`{key}={wrong}` has the wrong type; expected settings by their names")
        elif key not in names:
            raise UnknownKeyError(str(key), [*names, *sections])
    settings = {key: config[key] for key in names if key in config}
    values = {**vars(build(SETTINGS[command], settings, "")), **values}
    _check_together(values)
    return {key: values[key] for key in [*config, *names] if key in values}


def _with_replay_section(config: Values) -> Values:
    """Give the section ``replay`` to algorithms with a replay buffer; refuse one that is set for another."""
    algo = config.get("algo")
    name = algo.get("name") if isinstance(algo, Mapping) else None
    if not isinstance(name, str) or not isinstance(config.get("replay"), Mapping | None):
        return config
    if algorithm_class(name).has_replay:
        return {**config, "replay": config.get("replay") or {}}
    if config.get("replay"):
        typed = preset_or_name(config["algo"])
        raise ZooError(f"`replay` can't be set: {typed} has no replay buffer of single transitions")
    return {key: value for key, value in config.items() if key != "replay"}


def _checked_section(command: str, name: str, values: Values) -> dict[str, Any]:
    if name == "env" and command in PLAYING:
        return _changed_env(values)
    if name in SECTIONS:
        config_class = section_class(name)
        is_open = name in OPEN_SECTIONS
        apart = [key for key in values if is_open and value_at(values, f"{key}._target_") is not None]
    elif name == "algo":
        if not isinstance(values.get("name"), str):
            raise ZooError("`algo.name` is missing: it names the algorithm that a preset builds on")
        config_class = algorithm_class(values["name"]).config_class
        apart = [key for key in ALGO_LABELS if key in values]
    else:  # a space is held against the algorithm when the search begins
        check_section(name, values)
        return dict(values)
    config = build(config_class, {key: value for key, value in values.items() if key not in apart}, name)
    return {**{key: values[key] for key in apart}, **dataclasses.asdict(config)}


def _changed_env(values: Values) -> dict[str, Any]:
    """Check the environment settings that the user changes; the others stay as in training."""
    for key, why in FIXED_WHEN_PLAYING.items():
        if key in values:
            raise ZooError(f"`env.{key}` can't be set here: {why}")
    changes = {key: value for key, value in values.items() if value is not None or key != "id"}
    env = dataclasses.asdict(build(section_class("env"), {"id": "any", **changes}, "env"))
    return {key: env[key] for key in changes}


def _check_together(values: dict[str, Any]) -> None:
    """Raise `ZooError` for settings that do not go together; fill in what depends on others."""
    init_with = values.get("init_with", "weights")
    if init_with != "weights" and values.get("init_from") is None:
        raise ZooError(f"`init_with={init_with}` needs init_from=RUN")
    algo, env, policy, replay = (values.get(key) for key in ("algo", "env", "policy", "replay"))
    evaluation = (values.get("callbacks") or {}).get("eval") or {}
    if env is not None and evaluation.get("deterministic", True) is None:
        evaluation["deterministic"] = section_class("env")(id=env["id"]).is_greedy(None)
    if not isinstance(algo, Mapping):
        return
    starts, n_timesteps = algo.get("learning_starts"), values.get("n_timesteps")
    if starts is not None and n_timesteps is not None and starts >= n_timesteps:
        is_tuned = values.get("tuned") not in (None, "none")
        raise ZooError(
            f"`algo.learning_starts={starts}` leaves nothing of n_timesteps={n_timesteps} to learn in;"
            f" expected fewer random steps, such as algo.learning_starts={n_timesteps // 10}, or a longer run"
            f"{'; tuned=none leaves tuned values out' if is_tuned else ''}"
        )
    preset = algo.get("preset")
    if preset == f"her_{algo['name']}" and replay and replay["prioritized"] and not replay["hindsight"]:
        raise ZooError(
            f"`algo={preset}` needs hindsight replay, which replay=prioritized drops;"
            " use replay=[prioritized,hindsight], or"
            f" algo={algo['name']} replay=prioritized without hindsight"
        )
    if policy is not None:
        config = build(section_class("policy"), policy, "policy")
        if (check_policy := getattr(algorithm_class(algo["name"], preset), "check_policy", None)) is not None:
            check_policy(config)


# -- the overrides ----------------------------------------------------------------------------------------


def check_overrides(command: str, overrides: Sequence[Override], *, is_run: bool) -> None:
    """Raise `ZooError` for a name that is wrong for every algorithm: importing one takes long.

    Also raise it for a group without an option and, if one job runs, for a setting with several values.
    Settings added by ``+`` may have any name.
    """
    groups = COMMAND_SECTIONS.get(command, ())
    known_keys = [*dict.fromkeys([*(field.name for field in dataclasses.fields(SETTINGS[command])), *groups])]
    typed = {key: name for name, key in KEYS_BY_TYPED_NAME.get(command, {}).items()}
    for override in overrides:
        key = override.key_or_group
        place = f"{key.replace('/', '.')}."
        is_heeded = place.startswith(tuple(f"{setting}." for setting in HYDRA_SETTINGS))
        if override.is_hydra_override() and not is_heeded:
            heeded = f"expected one of {', '.join(HYDRA_SETTINGS)}"
            hints = (hint for name, hint in HYDRA["settings"].items() if place.startswith(f"{name}."))
            raise ZooError(f"`{key}` is not used: {next(hints, heeded)}")
        is_single = key in groups and not override.is_sweep_override()
        if is_single and not (override.value() and isinstance(override.value(), str | list)):
            none = f" or {key}=none" if key in ("callbacks", "logger", "tuned") else ""
            raise ZooError(f"`{override.input_line}`: {key} can't be left out; expected {key}=NAME{none}")
        section, *rest = re.split(r"[./]", key)
        if override.is_add() or override.is_hydra_override():
            pass
        elif section not in known_keys:
            names = [typed.get(name, name) for name in known_keys]
            raise UnknownKeyError(section, names, rest="".join(f".{name}" for name in rest))
        elif rest and section in SECTIONS and section not in OPEN_SECTIONS:
            fields = [field.name for field in dataclasses.fields(section_class(section))]
            if rest[0] not in fields:
                raise UnknownKeyError(rest[0], fields, section)
    for override in overrides if is_run else ():
        if override.is_sweep_override():
            raise ZooError(
                f"`{override.input_line}` stands for several values: add -m to run each of them"
                " (a list is written [a,b], a text with commas \"'a,b'\")"
            )


def refuse_pretraining_from_nothing(typed: Iterable[str], config: Values) -> None:
    """Raise `ZooError` for a typed setting of pretraining without data; an experiment may leave these out."""
    keys = [key for key in typed if key.startswith("pretrain.") and key != "pretrain.dataset"]
    if keys and value_at(config, "pretrain.dataset") is None:
        raise ZooError(f"`{keys[0]}` does nothing by itself: it needs pretrain.dataset=PATH, expert data")
