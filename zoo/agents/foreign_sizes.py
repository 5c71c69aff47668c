"""How much a stranger's config may ask for: of an environment, of networks, of rollouts, of processes.

A whole number may be written as a fraction (``1e9``): it is one afterwards, and is held against the limits as
one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.agents.untrusted import UntrustedError, walk

ARGUMENTS = ("env.kwargs", "env.wrappers")
"""Where the arguments of environments stand, and of what wraps them."""

TEXT_LIMIT = 1_000
"""Characters that a text in the arguments of a stranger's environment may have."""
LIST_LIMIT = 1_000
"""Values that a list or mapping there may have."""
NUMBER_LIMIT = 10**6
"""The largest whole number there: of steps, for instance."""
TEXTS_LIMIT = 20_000
"""Characters that all texts of a stranger's environment may have together: maps, for instance."""

LARGEST = {
    **dict.fromkeys(("frame_stack", "history", "stack_size", "buffer_length"), 1_000),
    **dict.fromkeys(("action_repeat", "frame_skip", "noop_max", "padding_length"), 1_000),
    **dict.fromkeys(("shape", "size", "screen_size", "width", "height"), 4_096),
}
"""The largest number of what is kept, repeated or drawn at once."""

MULTIPLYING = ("frame_stack", "history", "stack_size", "horizon", "delay", "n", "shape", "screen_size")
PRODUCT_LIMIT = 10**8
"""What these together may make of one number of an observation."""

WEIGHTS_LIMIT = 10**8
"""Weights that the layers of one network of a stranger's run may have."""
LAYERS_LIMIT = 100
ROLLOUT_LIMIT = 10**7
"""Steps of all environments that it may keep before an update."""
ENVS_LIMIT = 1_000
"""Environments that it may make."""
SIDE_LIMIT = 4_096
"""Pixels of its videos, on each side."""

BATCH_LIMIT = 10**7
"""Steps that its batches may have, of all returns over several steps."""
ACTIVATIONS_LIMIT = 5 * 10**8
"""Numbers that the layers of its networks may compute for a batch."""
PAIRS_LIMIT = 10**8
"""Differences of quantiles that a loss of a batch may compare."""
KEPT_LIMIT = 10_000
"""Agents that it may keep."""

MOST = {
    "algo.n_critics": 100,
    "algo.n_quantiles": 10_000,
    "algo.n_delta": 10_000,
    "algo.n_top": 10_000,
    "algo.n_minibatches": 10**6,
    "algo.batch_size": 10**6,
    "algo.gradient_steps": 10**5,
    "memory.n_step": 10**5,
    "algo.n_steps": ROLLOUT_LIMIT,
    "n_envs": ENVS_LIMIT,
    "workers": ENVS_LIMIT,
    "env.n_workers": ENVS_LIMIT,
    "threads": 1_000,
    "callbacks.eval.n_envs": ENVS_LIMIT,
    "callbacks.eval.n_episodes": 10**5,
    "callbacks.video.length": 10**5,
    "callbacks.video.size": SIDE_LIMIT,
}
"""The largest numbers in a stranger's run."""

PRODUCTS = (
    (("algo.n_steps", "n_envs"), ROLLOUT_LIMIT),
    (("memory.n_step", "algo.batch_size"), BATCH_LIMIT),
    (("algo.n_quantiles", "algo.n_quantiles", "algo.n_critics", "algo.batch_size"), PAIRS_LIMIT),
)
"""Numbers in it, and the most that they may multiply to."""


def check_sizes_of_environment(env: Mapping[str, Any]) -> None:
    """Refuse arguments that ask for more than any environment needs."""
    n_characters, product = 0, 1.0
    for path, _, item in walk(env, "env"):
        if isinstance(item, Mapping | list) and len(item) > LIST_LIMIT:
            raise UntrustedError(path, f"{len(item):,} values", f"these are more than {LIST_LIMIT:,}")
        if isinstance(item, str):
            n_characters += len(item)
            if path.startswith(ARGUMENTS) and len(item) > TEXT_LIMIT:
                raise UntrustedError(path, item, f"it has more than {TEXT_LIMIT:,} characters")
        if n_characters > TEXTS_LIMIT:
            raise UntrustedError(path, item, f"texts before it have {TEXTS_LIMIT:,} characters already")
        name = path.rpartition(".")[2].partition("[")[0]
        limit = LARGEST.get(name, NUMBER_LIMIT if path.startswith(ARGUMENTS) else None)
        is_steps = path.startswith("env.wrappers") and name == "max_episode_steps"
        is_count = isinstance(item, int) or (isinstance(item, float) and name in LARGEST)
        if limit is not None and not is_steps and is_count and not abs(item) <= limit:  # nor is it NaN
            raise UntrustedError(path, item, f"it is more than {limit:,}")
        if name in MULTIPLYING and is_count and item:
            product *= abs(item)
        if not product <= PRODUCT_LIMIT:
            raise UntrustedError(path, item, f"sizes multiply to more than {PRODUCT_LIMIT:,}")


def check_sizes_of_run(config: Mapping[str, Any]) -> None:
    """Refuse what no memory holds, or never ends: a run has no weights with which to compare its config."""
    n_critics, batch_size = _largest(config, "algo.n_critics"), _largest(config, "algo.batch_size")
    for section in ("policy", "algo"):
        values = config.get(section)
        for key, value in values.items() if isinstance(values, Mapping) else ():
            if section == "policy" or str(key).endswith("net_arch"):
                _check_widths(f"{section}.{key}", value, n_critics, batch_size)
    for path, most in MOST.items():
        value = _at(config, path)
        for number in _numbers(value):
            if number > most:
                raise UntrustedError(path, value, f"it is more than {most:,}")
    for paths, limit in PRODUCTS:
        if math.prod(_largest(config, path) for path in paths) > limit:
            others = " and ".join(dict.fromkeys(path for path in paths if path != paths[0])) or "itself"
            raise UntrustedError(paths[0], _at(config, paths[0]), f"with {others} it is more than {limit:,}")
    every = _at(config, "callbacks.agents.every")
    interval, n_timesteps = _whole(every), _largest(config, "n_timesteps")
    if interval is not None and 0 < interval * KEPT_LIMIT < n_timesteps:
        reason = f"of n_timesteps={n_timesteps} these are more than {KEPT_LIMIT:,} agents"
        raise UntrustedError("callbacks.agents.every", every, reason)


def _largest(config: Mapping[str, Any], path: str) -> int:
    """Return the largest number in a setting, at least 1."""
    return max(_numbers(_at(config, path)), default=1)


def _check_widths(path: str, value: Any, n_networks: int, batch_size: int) -> None:
    """Refuse layers of more weights than so many networks may have, or of more numbers for a batch."""
    for widths in _lists_of_widths(value):
        pairs = zip([widths[0], *widths], [*widths, widths[-1]], strict=True)
        if len(widths) > LAYERS_LIMIT or n_networks * sum(a * b for a, b in pairs) > WEIGHTS_LIMIT:
            networks = "" if n_networks == 1 else f" in {n_networks} critics"
            reason = f"these are more than {LAYERS_LIMIT} layers or {WEIGHTS_LIMIT:,} weights{networks}"
            raise UntrustedError(path, value, reason)
        if n_networks * sum(widths) * batch_size > ACTIVATIONS_LIMIT:
            reason = f"for batches of {batch_size:,} these are more than {ACTIVATIONS_LIMIT:,} numbers"
            raise UntrustedError(path, value, reason)


def _lists_of_widths(value: Any) -> Iterator[list[int]]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _lists_of_widths(each)
        return
    values = value if isinstance(value, list) else [value]
    widths = [number for each in values if (number := _whole(each)) is not None]
    if widths:
        yield widths


def _numbers(value: Any) -> Iterator[int]:
    """Give the whole number that a setting is, or those of a size such as ``640x480``."""
    number = _whole(value)
    if number is not None:
        yield number
    elif isinstance(value, str):
        yield from (int(digits) for digits in re.findall(r"\d{1,20}", value))


def _whole(value: Any) -> int | None:
    """Return the whole number that a value is, or will be once its type is checked."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _at(config: Mapping[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
