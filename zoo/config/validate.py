"""Checking overrides, and the config composed of them, against what is declared, before anything starts."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override

from zoo.config import schema
from zoo.config.aliases import HYDRA, UnknownKeyError
from zoo.config.fields import build, check_bounds, scheduled
from zoo.config.keys import SECTIONS
from zoo.config.schema import ALGO_LABELS, OPEN_SECTIONS, SETTINGS
from zoo.config.source import NO_TUNED
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
    examples = REQUIRED_CHOICES.get(command, {})
    missing = [key for key in examples if config.get(key) is None]
    if missing:
        example = " ".join(f"{key}={examples[key]}" for key in missing)
        raise ZooError(f"which {' and '.join(missing)}? for example: {example}")


def checked(command: str, config: Values) -> dict[str, Any]:
    """Return the config with every value of its declared type, and defaults. Raises `ZooError`."""
    config = _with_replay_section(config)
    known = [field.name for field in dataclasses.fields(SETTINGS[command])]
    sections = ("env",) if command in PLAYING else [*SECTIONS.get(command, ()), "env"]
    values: dict[str, Any] = {}
    for key, value in config.items():
        if key in sections and isinstance(value, Mapping):
            values[key] = _checked_section(command, key, value)
        elif key in sections and key not in known:
            found = "null" if value is None else one_line(repr(value), 40)
            raise ZooError(f"`{key}={found}` has the wrong type; expected settings by their names")
        elif key not in known:
            raise UnknownKeyError(str(key), [*known, *sections])
    settings = {key: config[key] for key in known if key in config}
    values = {**vars(build(SETTINGS[command], settings, "")), **values}
    _check_together(values)
    return {key: values[key] for key in [*config, *known] if key in values}


def _with_replay_section(config: Values) -> Values:
    """Give the section ``replay`` to algorithms with a replay buffer; refuse one that is set for another."""
    algo = config.get("algo")
    name = algo.get("name") if isinstance(algo, Mapping) else None
    if not isinstance(name, str) or not isinstance(config.get("replay"), Mapping | None):
        return config
    if schema.algorithm_class(name).has_replay:
        return {**config, "replay": config.get("replay") or {}}
    if config.get("replay"):
        typed = schema.preset_or_name(config["algo"])
        raise ZooError(f"`replay` can't be set: {typed} has no replay buffer of single transitions")
    return {key: value for key, value in config.items() if key != "replay"}


def _checked_section(command: str, name: str, values: Values) -> dict[str, Any]:
    if name == "env" and command in PLAYING:
        return _changed_env(values)
    if name == "env":
        return _env(values)
    if name == "sampler":
        schema.make_sampler(values, 0, 0)
    if name == "pruner":
        schema.make_pruner(values, 1, 1)
    if name == "algo":
        return _algo(values)
    if name in ("space", "sampler", "pruner"):  # a space is held against the algorithm when the search begins
        return dict(values)
    own = {}
    if name in OPEN_SECTIONS:
        own = {key: each for key, each in values.items() if isinstance(each, Mapping) and "_target_" in each}
    ours = {key: each for key, each in values.items() if key not in own}
    return {**_built(schema.section_class(name), ours, name), **own}


def _algo(values: Values) -> dict[str, Any]:
    labels = {key: values[key] for key in ALGO_LABELS if key in values}
    if not isinstance(labels.get("name"), str):
        raise ZooError("`algo.name` is missing: it names the algorithm that a preset builds on")
    hyperparameters = {key: value for key, value in values.items() if key not in ALGO_LABELS}
    return {**labels, **_built(schema.algorithm_config_class(labels["name"]), hyperparameters, "algo")}


def _env(values: Values) -> dict[str, Any]:
    env = _built(schema.section_class("env"), values, "env")
    schema.env_config(schema.section_class("env")(**env))
    return env


def _changed_env(values: Values) -> dict[str, Any]:
    """Check what is set of an environment, and nothing else: the rest is as the agent was trained in."""
    for key, why in FIXED_WHEN_PLAYING.items():
        if key in values:
            raise ZooError(f"`env.{key}` can't be set here: {why}")
    given = {key: value for key, value in values.items() if value is not None or key != "id"}
    env = _env({"id": "any", **given})
    return {key: env[key] for key in given}


def _built(config_class: type[Any], values: Values, where: str) -> dict[str, Any]:
    built = build(config_class, values, where)
    fields = {field.name: field for field in dataclasses.fields(built)}
    for name, value in scheduled(built).items():
        if value != fields[name].default:
            _check_schedule(value, fields[name].metadata, f"{where}.{name}")
    return dataclasses.asdict(built)


def _check_schedule(value: Any, metadata: Values, where: str) -> None:
    try:
        schedule = schema.parse_schedule(value)
    except ZooError as error:
        raise ZooError(f"`{where}`: {error}") from error
    if isinstance(value, str | Mapping):
        check_bounds(schedule.start, metadata, where)
        bounds = metadata["bounds"].items()
        reached_at_last = {{"gt": "ge", "lt": "le"}.get(name, name): bound for name, bound in bounds}
        check_bounds(schedule.end, {"bounds": reached_at_last}, where)


def _check_together(values: dict[str, Any]) -> None:
    """Raise `ZooError` for settings that do not go together; fill in what depends on others."""
    if values.get("init_with", "weights") != "weights" and values.get("init_from") is None:
        raise ZooError(
            f"`init_with={values['init_with']}` says what to take of init_from=RUN, which is missing"
        )
    algo, env, policy, replay = (values.get(key) for key in ("algo", "env", "policy", "replay"))
    evaluation = (values.get("callbacks") or {}).get("eval") or {}
    if env is not None and evaluation.get("deterministic", True) is None:
        # Atari games are played stochastically, as in all published scores, unless the user says otherwise.
        evaluation["deterministic"] = not schema.is_atari_id(env["id"])
    if not isinstance(algo, Mapping):
        return
    starts, n_timesteps = algo.get("learning_starts"), values.get("n_timesteps")
    if starts is not None and n_timesteps is not None and starts >= n_timesteps:
        is_tuned = values.get("tuned") not in (None, NO_TUNED)
        raise ZooError(
            f"`algo.learning_starts={starts}` leaves nothing of n_timesteps={n_timesteps} to learn in;"
            " expected fewer random steps (algo.learning_starts=…), or a longer run"
            f"{'; tuned=none leaves tuned values out' if is_tuned else ''}"
        )
    preset = algo.get("preset")
    if preset == f"her_{algo['name']}" and replay and replay["prioritized"] and not replay["hindsight"]:
        raise ZooError(
            f"`algo={preset}` replays with hindsight, which replay=prioritized would replace;"
            f" replay=[prioritized,hindsight] has both, algo={algo['name']} replay=prioritized goes without"
        )
    if policy is not None:
        config = schema.section_class("policy")(**policy)
        if preset == schema.RECURRENT_PRESET:
            schema.check_is_recurrent(config)
        schema.check_recurrence_options(config)


# -- the overrides ----------------------------------------------------------------------------------------


def refuse_unknown_names(
    overrides: Iterable[Override], groups: Sequence[str], known_keys: Sequence[str], typed_keys: Sequence[str]
) -> None:
    """Raise `ZooError` for a name that is wrong whatever the algorithm, which takes long to import.

    Also for one of the ``groups`` that is given no option. ``known_keys`` are the names at the top of the
    command's config, ``typed_keys`` what users type for them; what is added by ``+`` may be any.
    """
    for override in overrides:
        key = override.key_or_group
        place = f"{key.replace('/', '.')}."
        is_heeded = place.startswith(tuple(f"{each}." for each in HYDRA_SETTINGS))
        if override.is_hydra_override() and not is_heeded:
            heeded = f"expected one of {', '.join(HYDRA_SETTINGS)}"
            hints = (hint for name, hint in HYDRA["settings"].items() if place.startswith(f"{name}."))
            raise ZooError(f"`{key}` is not used: {next(hints, heeded)}")
        is_single = key in groups and not override.is_sweep_override()
        if is_single and not (override.value() and isinstance(override.value(), str | list)):
            none = f" or {key}=none" if key in ("callbacks", "logger", "tuned") else ""
            raise ZooError(f"`{override.input_line}`: {key} can't be left out; expected {key}=NAME{none}")
        if override.is_add() or override.is_hydra_override():
            continue
        section, *rest = re.split(r"[./]", key)
        if section not in known_keys:
            raise UnknownKeyError(section, typed_keys, rest="".join(f".{each}" for each in rest))
        if rest and section in schema.SECTIONS and section not in OPEN_SECTIONS:
            known = [field.name for field in dataclasses.fields(schema.section_class(section))]
            if rest[0] not in known:
                raise UnknownKeyError(rest[0], known, section)


def refuse_several_values(overrides: Iterable[Override]) -> None:
    """Raise `ZooError` for a setting with several values where one job runs."""
    for override in overrides:
        if override.is_sweep_override():
            raise ZooError(
                f"`{override.input_line}` stands for several values: add -m to run each of them"
                " (a list is written [a,b], a text with commas \"'a,b'\")"
            )


def refuse_pretraining_from_nothing(overrides: Iterable[Override], config: Values) -> None:
    """Raise `ZooError` for a typed setting of pretraining where there is nothing to start from.

    An experiment may say how to pretrain, and leave the data to whoever has some.
    """
    typed = [each.key_or_group for each in overrides if each.key_or_group.startswith("pretrain.")]
    if set(typed) - {"pretrain.dataset"} and value_at(config, "pretrain.dataset") is None:
        raise ZooError(
            f"`{typed[0]}` does nothing by itself: it needs pretrain.dataset=PATH, the expert data to start"
            " from"
        )
