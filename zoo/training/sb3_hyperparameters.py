"""What Stable-Baselines3's hyperparameters are here, so that an agent's training goes on as it was."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from zoo.agents.sb3_zip import Sb3Files, is_pickled
from zoo.algorithms.registry import algorithm_class
from zoo.config.fields import build
from zoo.errors import ZooError
from zoo.files.tensors import Arrays
from zoo.training.sb3_names import widths

Space = spaces.Space[Any]

_OTHERWISE_HERE: dict[str, dict[str, Any]] = {
    "dqn": {"double": False, "dueling": False},
    "ddpg": {"actor_learning_rate": None},
    "trpo": {"max_grad_norm": None},
}
"""What SB3 has no name for, and Zoo does otherwise by default."""

_PER_DIMENSION = {"trpo": ("target_kl", "cg_damping")}
"""What SB3-Contrib holds against the mean over action dimensions, and Zoo against their sum."""

_CONSTANT = re.compile(r"(?:FloatSchedule\()?ConstantSchedule\(val=([-+\d.e]+)\)+")


def hyperparameters(name: str, files: Sb3Files, action_space: Space) -> tuple[Any, list[str]]:
    """Return the config as far as the file says it, and what it does not say."""
    config_class = algorithm_class(name).config_class
    values = {**_OTHERWISE_HERE.get(name, {}), **(_rms_prop(files) if name == "a2c" else {})}
    unknown = []
    for each in dataclasses.fields(config_class):
        if each.name in values or each.name not in files.data:
            continue
        value = _value(files.data[each.name])
        if each.name in _PER_DIMENSION.get(name, ()) and isinstance(value, float):
            value *= _n_dimensions(action_space)
        try:
            build(config_class, {each.name: value}, "algo")
        except ZooError:
            unknown.append(each.name)
        else:
            values[each.name] = value
    if name == "ars":
        values |= _searched(files, action_space)
    return build(config_class, {**values, **_sizes(name, files, action_space)}, "algo"), unknown


def _searched(files: Sb3Files, action_space: Space) -> dict[str, Any]:
    """Return what an agent of ARS has under other names, or in its policy."""
    kwargs = files.printed("policy_kwargs")
    has_layers = bool(widths(files.tensors, "action_net")) or "net_arch" in kwargs  # as MlpPolicy has
    is_box = isinstance(action_space, spaces.Box)
    std = _value(files.data.get("delta_std_schedule"))
    return {
        **({"delta_std": std} if isinstance(std, float) else {}),
        "with_bias": any(tensor.endswith("bias") for tensor in files.tensors),
        "squash_output": is_box and kwargs.get("squash_output", has_layers) is True,
    }


def _value(value: Any) -> Any:
    """Return a plain value, or the number of a printed constant schedule; else what no config takes."""
    if not is_pickled(value):
        return value
    match = _CONSTANT.fullmatch(str(value.get("value_schedule", "")))
    try:
        return object() if match is None else float(match[1])
    except ValueError:
        return object()


def _n_dimensions(action_space: Space) -> int:
    """Return over how many numbers or bits of an action SB3-Contrib takes the mean of divergences."""
    if not isinstance(action_space, spaces.Box | spaces.MultiBinary):
        return 1
    return math.prod(action_space.shape)


def _rms_prop(files: Sb3Files) -> dict[str, Any]:
    """Return which optimizer an agent of A2C has: the file only says of what class, and with what values."""
    kwargs = files.printed("policy_kwargs")
    optimizer, given = str(kwargs.get("optimizer_class", "")), kwargs.get("optimizer_kwargs")
    given = given if isinstance(given, Mapping) else {}
    names = {"rms_prop_decay": "alpha", "rms_prop_eps": "eps"}
    return {
        "use_rms_prop": "RMSprop" in optimizer,
        "rms_prop_tensorflow": "RMSpropTFLike" in optimizer,
        **{ours: given[theirs] for ours, theirs in names.items() if isinstance(given.get(theirs), float)},
    }


def _sizes(name: str, files: Sb3Files, action_space: Space) -> dict[str, int]:
    """Return what tensors' shapes say: the numbers of critics and of quantiles."""
    critics = {found[1] for tensor in files.tensors if (found := re.match(r"critic\.qf(\d+)\.", tensor))}
    sizes = {"n_critics": len(critics)} if name in ("sac", "td3", "tqc") else {}
    if name == "tqc":
        sizes["n_quantiles"] = _outputs(files.tensors, "critic.qf0")
    if name == "qrdqn":
        assert isinstance(action_space, spaces.Discrete)
        sizes["n_quantiles"] = _outputs(files.tensors, "quantile_net.quantile_net") // int(action_space.n)
    return sizes


def _outputs(tensors: Arrays, prefix: str) -> int:
    found = [
        (int(match[1]), len(tensor))
        for name, tensor in tensors.items()
        if (match := re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.bias", name)) and tensor.ndim == 1
    ]
    if not found:
        raise ZooError(f"it has no `{prefix}`")
    return max(found)[1]
