"""Starting a run from the weights of an agent, with the settings of today."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.agents.agent_folder import AgentFiles, read_agent, read_as_data
from zoo.config.environment_values import as_written
from zoo.envs.spaces import interfaces_differ, space_from_dict
from zoo.errors import ZooError
from zoo.files.printing import one_line

if TYPE_CHECKING:
    from zoo.algorithms.base import Algorithm

SECTIONS = ("algo", "policy", "memory", "env")


def take_weights(
    algorithm: Algorithm[Any], agent: str, config: Mapping[str, Any], *, links_allowed: bool = False
) -> list[str]:
    """Copy the agent's weights and running statistics, and return which of its settings are others today.

    Nothing of the agent is run; links that leave it are followed only with ``links_allowed``. Raises
    `ZooError` if there is none, or it does not fit.
    """
    files = read_agent(agent, trust=True, own_env=True) if links_allowed else read_as_data(agent)
    _check_spaces(algorithm, files, agent)
    _check_finite(files, agent)
    try:
        algorithm.set_parameters(files.tensors)
    except ZooError as error:
        raise ZooError(f"the weights of {agent} don't fit {config['algo']['name']}: {error}") from error
    if algorithm.normalizer is not None and files.normalization is not None:
        arrays, values = files.normalization
        algorithm.normalizer.load_state({"arrays": arrays, "values": values})
    return list(differences(files.config, algorithm, config))


def _check_spaces(algorithm: Algorithm[Any], files: AgentFiles, agent: str) -> None:
    trained = tuple(space_from_dict(files.config[f"{kind}_space"]) for kind in ("observation", "action"))
    difference = interfaces_differ((trained[0], trained[1]), algorithm.spaces)
    if difference is not None:
        what, how = difference
        raise ZooError(f"can't start from {agent}: its {what} and the environment's differ: {how}")


def _check_finite(files: AgentFiles, agent: str) -> None:
    """Raise `ZooError` for weights or statistics that are no numbers: nothing is learned from there."""
    statistics = {} if files.normalization is None else files.normalization[0]
    for name, array in {**files.tensors, **statistics}.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ZooError(
                f"can't start from {one_line(agent)}: {one_line(name)} has values that are not finite (NaN or"
                " infinite); an earlier agent of that run may be whole"
            )


def differences(
    trained: Mapping[str, Any], algorithm: Algorithm[Any], config: Mapping[str, Any]
) -> Iterator[str]:
    """Give ``key: value of the agent → value of today`` for every setting that differs."""
    today = as_written({**config, "policy": dataclasses.asdict(algorithm.policy_config)})
    for section in SECTIONS:
        yield from _differing(trained.get(section) or {}, today.get(section) or {}, section)
    had, has = trained_normalized(trained), algorithm.normalizer is not None
    if has and not had:
        yield "the running statistics of observations and rewards start anew: the agent had none"


def trained_normalized(trained: Mapping[str, Any]) -> bool:
    """Tell whether an agent normalises."""
    return bool((trained.get("env") or {}).get("normalize"))


def _differing(then: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[str]:
    """Give what differs in the keys that both have; where only one has a mapping, that as a whole."""
    for key, one in then.items():
        if key not in now:
            continue
        other = now[key]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differing(one, other, f"{path}.{key}")
        elif one != other:
            yield f"{path}.{key}: {one_line(one)} → {one_line(other)}"
