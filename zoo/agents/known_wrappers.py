"""The wrappers that a stranger's agent may name, and what their arguments may be: a list, kept by hand.

None of them imports, opens, shows or calls what its arguments say; nothing is imported to find that out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]

STEPS_LIMIT = 10**9
"""The largest number of steps that is only counted."""
REPEATS_LIMIT = 1_000
"""The largest number of what is kept or repeated at once."""
BINS_LIMIT = 10_000
SIDE_LIMIT = 4_096
"""Pixels."""
NUMBERS_LIMIT = 1_000
"""Numbers that a list may have."""

DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: Any) -> bool:
    return _number(value) or (
        isinstance(value, list) and len(value) <= NUMBERS_LIMIT and all(map(_number, value))
    )


def _count(limit: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _counts(limit: int) -> Check:
    """Accept one whole number, or some that don't multiply to more than an observation may be large."""

    def check(value: Any) -> bool:
        values = value if isinstance(value, list) else [value]
        return len(values) <= 8 and all(map(_count(limit), values))

    return check


def _indices(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= NUMBERS_LIMIT and all(map(_count(10**6), value))


def _key(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 100 and value.isidentifier()


def _keys(value: Any) -> bool:
    is_index = _count(NUMBERS_LIMIT)
    return (
        isinstance(value, list)
        and len(value) <= NUMBERS_LIMIT
        and all(_key(each) or is_index(each) for each in value)
    )


def _nothing_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(*choices: str) -> Check:
    return lambda value: isinstance(value, str) and value in choices


_COMMON, _OBSERVATION, _ACTION = "common", "transform_observation", "transform_action"
_STATEFUL, _RENDERING = "stateful_observation", "rendering"

MASKS: dict[str, Check] = {}
"""`ActionMasker` has a check of its own in `zoo.agents.trust`."""

OF_GYMNASIUM: dict[str, tuple[str, dict[str, Check]]] = {
    "AddRenderObservation": (
        _OBSERVATION,
        {"render_only": _flag, "render_key": _key, "obs_key": _key},
    ),
    "AddWhiteNoise": (
        _RENDERING,
        {"probability_of_noise_per_pixel": _number, "is_noise_grayscale": _flag},
    ),
    "AtariPreprocessing": (
        "atari_preprocessing",
        {
            **dict.fromkeys(("noop_max", "frame_skip"), _count(REPEATS_LIMIT)),
            "screen_size": _counts(SIDE_LIMIT),
            **dict.fromkeys(
                ("terminal_on_life_loss", "grayscale_obs", "grayscale_newaxis", "scale_obs"), _flag
            ),
        },
    ),
    "ClipAction": (_ACTION, {}),
    "ClipReward": (
        "transform_reward",
        dict.fromkeys(("min_reward", "max_reward"), _nothing_or(_number)),
    ),
    "DelayObservation": (_STATEFUL, {"delay": _count(REPEATS_LIMIT)}),
    "DiscretizeAction": (_ACTION, {"bins": _counts(BINS_LIMIT), "multidiscrete": _flag}),
    "DiscretizeObservation": (_OBSERVATION, {"bins": _counts(BINS_LIMIT), "multidiscrete": _flag}),
    "DtypeObservation": (_OBSERVATION, {"dtype": _one_of(*DTYPES)}),
    "FilterObservation": (_OBSERVATION, {"filter_keys": _keys}),
    "FlattenObservation": (_OBSERVATION, {}),
    "FrameStackObservation": (
        _STATEFUL,
        {"stack_size": _count(REPEATS_LIMIT), "padding_type": _one_of("reset", "zero")},
    ),
    "GrayscaleObservation": (_OBSERVATION, {"keep_dim": _flag}),
    "MaxAndSkipObservation": (_STATEFUL, {"skip": _count(REPEATS_LIMIT)}),
    "NormalizeObservation": (_STATEFUL, {"epsilon": _number}),
    "NormalizeReward": ("stateful_reward", {"gamma": _number, "epsilon": _number}),
    "ObstructView": (
        _RENDERING,
        {
            "obstructed_pixels_ratio": _number,
            "obstruction_width": _count(SIDE_LIMIT),
            "is_noise_grayscale": _flag,
        },
    ),
    "OrderEnforcing": (_COMMON, {"disable_render_order_enforcing": _flag}),
    "PassiveEnvChecker": (_COMMON, {}),
    "RecordEpisodeStatistics": (_COMMON, {"buffer_length": _count(REPEATS_LIMIT), "stats_key": _key}),
    "RepeatAction": ("stateful_action", {"num_repeats": _count(REPEATS_LIMIT)}),
    "RescaleAction": (_ACTION, dict.fromkeys(("min_action", "max_action"), _numbers)),
    "RescaleObservation": (_OBSERVATION, dict.fromkeys(("min_obs", "max_obs"), _numbers)),
    "ReshapeObservation": (_OBSERVATION, {"shape": _counts(10**6)}),
    "ResizeObservation": (_OBSERVATION, {"shape": _counts(SIDE_LIMIT)}),
    "StickyAction": (
        "stateful_action",
        {"repeat_action_probability": _number, "repeat_action_duration": _counts(REPEATS_LIMIT)},
    ),
    "TimeAwareObservation": (
        _STATEFUL,
        {"flatten": _flag, "normalize_time": _flag, "dict_time_key": _key},
    ),
    "TimeLimit": (_COMMON, {"max_episode_steps": _count(STEPS_LIMIT)}),
}
"""By name: the module in ``gymnasium.wrappers``, and the arguments."""

OF_ZOO: dict[str, tuple[str, dict[str, Check]]] = {
    "ActionMasker": ("action_masks", MASKS),
    "ActionRepeat": ("wrappers", {"n": _count(REPEATS_LIMIT)}),
    "EpisodeStatistics": ("wrappers", {}),
    "FireOnReset": ("atari", {}),
    "FrameStack": ("wrappers", {"n": _count(REPEATS_LIMIT)}),
    "History": ("wrappers", {"horizon": _count(REPEATS_LIMIT)}),
    "LifeLoss": ("atari", {}),
    "MaskVelocities": ("wrappers", {"indices": _nothing_or(_indices)}),
    "TimeFeature": ("wrappers", {"max_steps": _nothing_or(_count(STEPS_LIMIT)), "test_mode": _flag}),
}
"""The same for ``zoo.envs``."""

WRITES_FILES = ("RecordVideo",)
"""Wrappers that write where their arguments say."""


def known_arguments(target: Any) -> Mapping[str, Check] | None:
    """Return the arguments that the wrapper of this name or class path may have, None for an unknown one."""
    if not isinstance(target, str):
        return None
    module, _, name = target.rpartition(".")
    for package, known in (("gymnasium.wrappers", OF_GYMNASIUM), ("zoo.envs", OF_ZOO)):
        home, arguments = known.get(name, ("", {}))
        if home and module in ("", f"{package}.{home}", package if known is OF_GYMNASIUM else ""):
            return arguments
    return None
