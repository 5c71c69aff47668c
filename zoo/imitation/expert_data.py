"""Expert data: whole episodes of an expert, to imitate, and their files in Zoo's or Stable-Baselines' format.

Zoo's file is one compressed NumPy archive: Stable-Baselines' arrays, and a card. These have one row per step:
``obs``, ``actions`` (for dictionaries and tuples ``obs/<key>``, ``actions/<path>``), ``rewards``,
``episode_starts`` and ``action_masks``. These have one entry per episode: ``episode_returns``,
``episode_terminated`` and ``episode_successes``. ``card.json`` holds both spaces and other metadata.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.lib.npyio import NpzFile

from zoo.buffers.arrays import Arrays, transform
from zoo.core.plain_data import parse_json, to_json
from zoo.core.printing import decimal, one_line
from zoo.core.zips import opened_npz, write_npz
from zoo.envs.spaces import (
    PLAIN,
    Space,
    check_supported,
    choice_sizes,
    describe,
    interfaces_differ,
    is_composite,
    leaf_spaces,
    mask_size,
    space_from_dict,
    space_to_dict,
)
from zoo.errors import ZooError, ZooWarning

Array = np.ndarray
Spaces = tuple[Space, Space]

FORMAT = 1  # the version of the format that this Zoo writes

CARD = "card.json"
OPTIONAL = {
    "terminated": "episode_terminated",
    "successes": "episode_successes",
    "action_masks": "action_masks",
}
STABLE_BASELINES = ("actions", "obs", "rewards", "episode_returns", "episode_starts")
"""Arrays in the archives of Stable-Baselines' `generate_expert_traj`."""


@dataclass(frozen=True)
class ExpertData:
    """Whole episodes, one after another; arrays have one row per step, (n_steps, …), or per episode.

    ``observations`` are raw, never normalised. ``actions`` are as the environment takes them; for a Tuple or
    Dict space they are a dictionary of arrays, keyed by the paths of `zoo.envs.spaces`. None means unknown.
    Raises `ZooError` for arrays that do not fit together.
    """

    observation_space: Space
    action_space: Space
    observations: Arrays
    actions: Arrays
    rewards: Array
    lengths: Array
    """Steps of each episode."""
    returns: Array
    """Sum of each episode's rewards."""
    terminated: Array | None = None
    """Whether each episode terminated; False if it was truncated."""
    successes: Array | None = None
    """Whether each episode reached its goal."""
    action_masks: Array | None = None
    """Which actions were valid, (n_steps, mask_size)."""
    card: dict[str, Any] = field(default_factory=dict)
    """``env``, ``source`` and other metadata, as JSON values."""

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem is not None:
            raise ZooError(f"invalid expert data: {problem}")

    @property
    def n_steps(self) -> int:
        return len(self.rewards)

    @property
    def n_episodes(self) -> int:
        return len(self.lengths)

    @property
    def starts(self) -> Array:
        """The first step of each episode."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def episode_starts(self) -> Array:
        """Whether each step is the first of its episode."""
        starts = np.zeros(self.n_steps, np.bool_)
        starts[self.starts] = True
        return starts

    def only(self, episodes: Array) -> ExpertData:
        """Return the episodes with these numbers, in this order."""
        of_episode = np.split(np.arange(self.n_steps), self.starts[1:])
        steps = np.concatenate([of_episode[i] for i in episodes])
        chosen: dict[str, Any] = {}
        for rows, names in (
            (steps, ("observations", "actions", "rewards", "action_masks")),
            (episodes, ("lengths", "returns", "terminated", "successes")),
        ):
            for name in names:
                values = getattr(self, name)
                chosen[name] = None if values is None else transform(itemgetter(rows), values)
        return replace(self, **chosen)

    def filtered(
        self, *, min_return: float | None = None, successes_only: bool = False, n_episodes: int | None = None
    ) -> ExpertData:
        """Return the first ``n_episodes`` episodes that pass the filters.

        Raises `ZooError` if none passes, or if successes are unknown; warns of fewer than ``n_episodes``.
        """
        if successes_only and self.successes is None:
            raise ZooError("successes_only: the expert data does not say which episodes succeeded")
        keeps = np.ones(self.n_episodes, np.bool_) if min_return is None else self.returns >= min_return
        if successes_only:
            keeps = keeps & np.asarray(self.successes)
        if not keeps.any():
            raise ZooError(nothing_left(self.returns, min_return, successes_only))
        if n_episodes is not None and keeps.sum() < n_episodes:
            warnings.warn(too_few(self.n_episodes, int(keeps.sum()), n_episodes), ZooWarning, stacklevel=2)
        return self if keeps.all() and n_episodes is None else self.only(np.flatnonzero(keeps)[:n_episodes])

    def check_spaces(
        self, observation_space: Space, action_space: Space, name: str = "the expert data"
    ) -> None:
        """Raise `ZooError`, naming the difference, for an environment of other spaces."""
        mine = self.observation_space, self.action_space
        difference = interfaces_differ(mine, (observation_space, action_space))
        if difference is not None:
            raise ZooError(f"the {difference[0]} of {name} and the environment's differ: {difference[1]}")


Dataset = ExpertData | str | Path
"""Expert data, or the path of a file that `read_expert` reads."""


def nothing_left(returns: Array, min_return: float | None, successes_only: bool) -> str:
    """Return the error message for a filter that no episode passes."""
    filters = [] if min_return is None else [f"min_return={min_return:g}"]
    filters += ["successes_only"] if successes_only else []
    episodes = f"{len(returns):,} episodes, the best with a return of {returns.max():g}"
    return f"{' and '.join(filters)} leaves nothing of {episodes}"


def too_few(n_episodes: int, n_good: int, n_wanted: int) -> str:
    """Return the message for fewer good episodes than requested."""
    return f"{n_wanted:,} episodes were wanted; {n_good:,} of {n_episodes:,} are good enough"


# -- checks -----------------------------------------------------------------------------------------------


def _problem(data: ExpertData) -> str | None:
    n_steps, n_episodes = data.n_steps, data.n_episodes
    if not n_steps or not n_episodes:
        return "it is empty"
    if data.lengths.min() < 1 or data.lengths.sum() != n_steps:
        return f"its episodes have {data.lengths.sum():,} steps together, but there are {n_steps:,} rewards"
    shapes: dict[str, tuple[int | None, ...]] = {
        "rewards": (n_steps,),
        **dict.fromkeys(("returns", "terminated", "successes"), (n_episodes,)),
        "action_masks": (n_steps, mask_size(data.action_space)),
    }
    for name, shape in shapes.items():
        values = getattr(data, name)
        if values is not None and values.shape != shape:
            return f"{name} of shape {values.shape}, expected {shape}"
    if not np.isfinite(data.rewards).all() or not np.isfinite(data.returns).all():
        return "its rewards are not finite"
    for kind, space, column in (
        ("observations", data.observation_space, data.observations),
        ("actions", data.action_space, data.actions),
    ):
        parts = dict(leaf_spaces(space))
        arrays = column if isinstance(column, Mapping) else {"": column}
        if arrays.keys() != parts.keys():
            return f"its {kind} have the parts {sorted(arrays)} instead of {sorted(parts)}"
        for key, part in parts.items():
            name, expected, array = f"{kind}, {key}" if key else kind, (n_steps, *part.shape), arrays[key]  # type: ignore[misc]
            if array.shape != expected or array.dtype != part.dtype:
                return f"{name} of shape {array.shape} and type {array.dtype}, expected {describe(part)}"
            wrong = first_wrong(part, array, within_bounds=kind == "actions")
            if wrong is not None:
                return f"{name}: {array[wrong].tolist()} at step {wrong:,} is no value of {describe(part)}"
    if data.action_masks is not None:
        forbidden = _forbidden(data.action_space, data.actions, data.action_masks)
        if forbidden.any():
            return f"the mask at step {int(forbidden.argmax()):,} forbids the expert's own action"
    return None


def first_wrong(space: Any, values: Array, *, within_bounds: bool = True) -> int | None:
    """Return the index of the first row of values (n, *shape) outside the space, or None.

    Without ``within_bounds``, floats of a Box may lie outside their bounds, as observations of many
    environments do, but they have to be finite.
    """
    if values.dtype.kind not in "biuf":
        return 0
    wrong = ~np.isfinite(values)
    if np.dtype(space.dtype).kind in "biu":
        wrong |= values != np.floor(values)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes = space.n if isinstance(space, spaces.Discrete) else space.nvec
        wrong |= (values < space.start) | (values >= space.start + sizes)
    elif isinstance(space, spaces.MultiBinary):
        wrong |= (values < 0) | (values > 1)
    elif within_bounds or space.dtype.kind in "biu":
        wrong |= (values < space.low) | (values > space.high)
    return int(np.argwhere(wrong)[0, 0]) if wrong.any() else None


def _forbidden(space: Space, actions: Arrays, masks: Array) -> Array:
    """Return a mask of forbidden actions (n, …), from masks (n, mask_size); subspaces are keyed by path."""
    chosen = []
    for path, part in leaf_spaces(space):
        if choice_sizes(part):
            column = actions[path] if isinstance(actions, Mapping) else actions
            counted = column.astype(np.int64) - getattr(part, "start", 0)
            chosen.append(counted.reshape(len(masks), -1))
    sizes = choice_sizes(space)
    starts = np.cumsum(sizes) - sizes
    allowed = np.take_along_axis(masks, starts + np.concatenate(chosen, axis=1), axis=1)
    return np.logical_not(allowed.all(axis=1))


def values_of(space: Space, array: Array, name: str, *, within_bounds: bool = True) -> Array:
    """Return values (n, …) in the space's shape and dtype; sides of length one may differ.

    Raises `ZooError` for any other shape, such as a transposed image's, and for values outside the space.
    """
    shape = tuple(space.shape or ())
    if [size for size in array.shape[1:] if size != 1] != [size for size in shape if size != 1]:
        raise ZooError(f"{name} of shape {array.shape[1:]}, expected {shape}: {describe(space)}")
    array = array.reshape(len(array), *shape)
    wrong = first_wrong(space, array, within_bounds=within_bounds)
    if wrong is not None:
        value = one_line(array[wrong].tolist(), 80)
        raise ZooError(f"{name}: {value} in row {wrong:,} is no value of {describe(space)}")
    return array.astype(space.dtype)


# -- files ------------------------------------------------------------------------------------------------


def write_expert(path: str | Path, data: ExpertData) -> Path:
    """Write expert data whole or not at all, and return the path. Raises `ZooError`."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ZooError(f"expert data are written to a file that ends in .npz, not to {one_line(path)}")
    arrays = {**_named("obs", data.observations), **_named("actions", data.actions)}
    arrays |= {"rewards": data.rewards, "episode_starts": data.episode_starts}
    optional = {name: getattr(data, kind) for kind, name in OPTIONAL.items()}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays["episode_returns"] = data.returns
    card = {
        **data.card,
        "format": FORMAT,
        "n_episodes": data.n_episodes,
        "n_steps": data.n_steps,
        "mean_return": float(data.returns.mean()),
        "observation_space": space_to_dict(data.observation_space),
        "action_space": space_to_dict(data.action_space),
    }
    write_npz(path, arrays, {CARD: to_json(card)})
    return path


def read_expert(path: str | Path, spaces: Spaces | None = None) -> ExpertData:
    """Read Zoo's or Stable-Baselines' ``.npz``; no code in it is run.

    ``spaces`` are the environment's observation and action space: data of other spaces are refused.
    Stable-Baselines' files need them, as they hold no spaces. Raises `ZooError` for missing or damaged files.
    """
    path = Path(path).expanduser()
    with opened_npz(path) as npz:
        read = _read_own if CARD in npz.files else _read_stable_baselines
        data = read(npz, path, spaces)
    sums = np.add.reduceat(data.rewards.astype(np.float64), data.starts)
    if (differs := ~np.isclose(sums, data.returns, rtol=1e-3, atol=1e-3)).any():
        i = int(np.argmax(differs))
        warnings.warn(
            f"{one_line(path)}: the return of episode {i} is {data.returns[i]:g}, its rewards add up to"
            f" {sums[i]:g}; min_return goes by the return",
            ZooWarning,
            stacklevel=2,
        )
    return data


def _read_own(npz: NpzFile, path: Path, env_spaces: Spaces | None) -> ExpertData:
    content: Any = npz[CARD]  # bytes: it is not an array
    card = parse_json(content)
    if card.get("format") != FORMAT:
        raise ZooError(
            f"{one_line(path)} has the format {one_line(card.get('format'))}, this Zoo reads {FORMAT};"
            " record it again"
        )
    try:
        data = _assembled(npz, card)
    except ZooError as error:
        raise ZooError(f"{one_line(path)} is damaged: {error}") from error
    if env_spaces is not None:
        data.check_spaces(*env_spaces, name=one_line(path))
    return data


def _assembled(npz: NpzFile, card: dict[str, Any]) -> ExpertData:
    observation_space, action_space = (
        space_from_dict(card.pop(name)) for name in ("observation_space", "action_space")
    )
    check_supported(observation_space, action_space)
    keys = list(observation_space) if isinstance(observation_space, spaces.Dict) else None
    paths = [path for path, _ in leaf_spaces(action_space)] if is_composite(action_space) else None
    optional = {kind: npz[name] for kind, name in OPTIONAL.items() if name in npz.files}
    return ExpertData(
        observation_space,
        action_space,
        observations=_column(npz, "obs", keys),
        actions=_column(npz, "actions", paths),
        rewards=npz["rewards"],
        lengths=_episode_lengths(npz["episode_starts"]),
        returns=npz["episode_returns"],
        card=card,
        **{kind: array.astype(np.bool_) for kind, array in optional.items()},
    )


def _named(prefix: str, column: Arrays) -> dict[str, Array]:
    """Return the arrays of a column, keyed by their names in the archive."""
    if isinstance(column, Mapping):
        return {f"{prefix}/{key}": array for key, array in column.items()}
    return {prefix: column}


def _column(npz: NpzFile, prefix: str, keys: Iterable[str] | None) -> Arrays:
    return npz[prefix] if keys is None else {key: npz[f"{prefix}/{key}"] for key in keys}


def _episode_lengths(episode_starts: Array) -> Array:
    starts = np.flatnonzero(episode_starts)
    if not len(starts) or starts[0]:
        raise ZooError("its first step is not the start of an episode")
    return np.diff(np.append(starts, len(episode_starts))).astype(np.int64)


def _read_stable_baselines(npz: NpzFile, path: Path, env_spaces: Spaces | None) -> ExpertData:
    """Read expert data of Stable-Baselines; its discrete actions have the shape (n_steps, 1)."""
    missing = [name for name in STABLE_BASELINES if name not in npz.files]
    if missing:
        raise ZooError(
            f"{one_line(path)} is no expert data: it has no {missing[0]} (it has {one_line(npz.files)})"
        )
    if env_spaces is None:
        raise ZooError(
            f"{one_line(path)} is a Stable-Baselines archive, which has no spaces: they must come from an env"
        )
    arrays = {name: np.atleast_1d(npz[name]) for name in STABLE_BASELINES}
    observation_space, action_space = env_spaces
    actions = arrays["actions"]
    if isinstance(action_space, spaces.Box) and actions.dtype.kind in "biuf":
        actions = actions.clip(action_space.low, action_space.high)  # as they reached the environment
    try:
        for space in env_spaces:
            if not isinstance(space, PLAIN):
                raise ZooError(f"Stable-Baselines' files can't hold values of {describe(space)}")
        return ExpertData(
            observation_space,
            action_space,
            values_of(observation_space, arrays["obs"], "observations", within_bounds=False),
            values_of(action_space, actions, "actions"),
            arrays["rewards"].reshape(-1).astype(np.float32),
            _episode_lengths(arrays["episode_starts"].reshape(-1)),
            arrays["episode_returns"].reshape(-1).astype(np.float64),
            card={"env": None, "source": {"format": "Stable-Baselines", "file": path.name}},
        )
    except ZooError as error:
        raise ZooError(f"{one_line(path)} does not fit: {error}") from error


# -- summary ----------------------------------------------------------------------------------------------

N_BINS, BAR_WIDTH = 10, 40


def summary(data: ExpertData) -> str:
    """Return a table about the data, followed by a histogram of its returns."""
    source = data.card.get("source") or "?"
    if isinstance(source, Mapping):
        source = ", ".join(f"{key} {one_line(value, 80)}" for key, value in source.items())
    rows = [
        ("environment", one_line(data.card.get("env") or "?")),
        ("source", one_line(source, 1000)),
        ("observations", describe(data.observation_space)),
        ("actions", describe(data.action_space) + ("" if data.action_masks is None else ", with masks")),
        ("episodes", f"{data.n_episodes:,}, {data.n_steps:,} steps"),
        ("length", f"{data.lengths.min():,} to {data.lengths.max():,}, mean {data.lengths.mean():,.1f}"),
        ("return", f"{decimal(float(data.returns.mean()))} ± {decimal(float(data.returns.std()))}"),
    ]
    if data.successes is not None:
        rows.append(("successes", f"{data.successes.mean():.0%}"))
    if data.terminated is not None:
        rows.append(("truncated", f"{1 - data.terminated.mean():.0%}"))
    width = max(len(name) for name, _ in rows)
    table = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join([*table, "", "returns", *histogram(data.returns)])


def histogram(values: np.ndarray) -> list[str]:
    """Return one line per bin: its bounds, a bar and the number of values; a single line if all are equal."""
    if values.min() == values.max():
        return [f"  {decimal(float(values[0]))}  {'█' * BAR_WIDTH}  {len(values):,}"]
    counts, edges = np.histogram(values, N_BINS)
    bounds = [decimal(float(edge)) for edge in edges]
    width = max(map(len, bounds))
    return [
        f"  {bounds[i]:>{width}} … {bounds[i + 1]:>{width}}"
        f"  {'█' * round(BAR_WIDTH * count / counts.max()):<{BAR_WIDTH}}  {count:,}"
        for i, count in enumerate(counts.tolist())
    ]
