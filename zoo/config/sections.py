"""Which dataclass describes which section of a config, and what the section ``algo`` calls itself.

The dataclasses stand beside the code that they configure, in rooms above this one, so they are named here
and imported when a config needs them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ALGO_LABELS = ("name", "preset")
"""What stands in the section ``algo`` beside hyperparameters: the algorithm, and the preset if it is one."""

PRESET = re.compile(r"\w[\w.+-]{0,99}")
"""A preset is a file's name, and names folders."""


def asked_for(algo: Mapping[str, Any]) -> str:
    """Return what ``algo=`` was: folders, tables and messages call a run and its agent so."""
    return str(algo.get("preset") or algo["name"])


SECTIONS = {
    "env": "zoo.envs.config:EnvConfig",
    "policy": "zoo.policies.config:PolicyConfig",
    "replay": "zoo.buffers.config:ReplayConfig",
    "pretrain": "zoo.imitation.bc:PretrainConfig",
}

PARTS = {
    "env": {
        "normalize": "zoo.envs.config:NormalizeConfig",
        "atari": "zoo.envs.config:AtariConfig",
    },
}
"""Dataclasses of keys that may be a plain value as well as a mapping."""

_ALGORITHMS = "zoo.algorithms.registry:ALGORITHMS"
_ALGORITHM_CLASS = "zoo.algorithms.registry:algorithm_class"

USUAL_POLICY = "MlpPolicy"


def section_class(section: str) -> type[Any]:
    """Return the dataclass of a section, as `SECTIONS` names them."""
    return _imported(SECTIONS[section])


def part_class(section: str, part: str) -> type[Any]:
    """Return the dataclass of a part of a section, as `PARTS` names them."""
    return _imported(PARTS[section][part])


def algorithm_config_class(name: str) -> type[Any]:
    """Return the dataclass of an algorithm's hyperparameters. Raises `ZooError` for an unknown algorithm."""
    return _imported(_ALGORITHM_CLASS)(name).config_class


def has_replay(name: str) -> bool:
    """Tell whether an algorithm takes the section ``replay``. Raises `ZooError` for an unknown algorithm."""
    return _imported(_ALGORITHM_CLASS)(name).has_replay


def usual_policy(name: str) -> str:
    """Return the policy that an algorithm, or a preset of one, has unless another is chosen."""
    known = name in _imported(_ALGORITHMS)
    return _imported(_ALGORITHM_CLASS)(name).usual_policy if known else USUAL_POLICY


def algorithm_names() -> Iterable[str]:
    """Return the names of all algorithms."""
    return _imported(_ALGORITHMS)


def algorithm_summary(name: str) -> str:
    """Return what an algorithm's file says first about itself, without its source; nothing is imported."""
    module = _imported(_ALGORITHMS)[name].partition(":")[0]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    description = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return re.split(r" \(|[.\n]", description)[0] + "."


def policy_names() -> Iterable[str]:
    """Return the names of all policies."""
    return _imported("zoo.policies.config:POLICIES")


def schedule_ends(value: Any) -> tuple[float, float]:
    """Return where a schedule starts and ends. Raises `ZooError` if ``value`` is none."""
    schedule = _imported("zoo.optim.schedules:parse")(value)
    return schedule.start, schedule.end


def check_env(values: dict[str, Any]) -> None:
    """Raise `ZooError` if the parts of an environment's config, such as ``normalize``, are wrong."""
    _imported("zoo.envs.config:env_config")(_imported(SECTIONS["env"])(**values))


def checked_sampler(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sampler's settings with every default filled in. Raises `ZooError` for wrong ones."""
    return _imported("zoo.tuning.samplers:checked_sampler")(values)


def checked_pruner(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pruner's settings with every default filled in. Raises `ZooError` for wrong ones."""
    return _imported("zoo.tuning.samplers:checked_pruner")(values)


def check_recurrent_policy(policy: Mapping[str, Any], preset: Any) -> None:
    """Raise `ZooError` for a policy without a memory where there has to be one, or where its options are."""
    config = section_class("policy")(**policy)
    if preset == _imported("zoo.policies.config:RECURRENT_PRESET"):
        _imported("zoo.policies.config:check_is_recurrent")(config)
    _imported("zoo.policies.config:check_recurrence_options")(config)


def env_file_name(env_id: str) -> str:
    """Return an environment's id as the name of a file."""
    return _imported("zoo.envs.registry:folder_name")(env_id)


def is_atari(env_id: str) -> bool:
    """Tell whether the id is that of an Atari game seen through its screen."""
    return _imported("zoo.envs.config:is_atari")(_imported(SECTIONS["env"])(id=env_id))


def _imported(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
