"""Our own vector environments: same-step autoreset, arrays to step into; in this process here."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from zoo.config.aliases import AnswersNames
from zoo.envs.env_group import EnvGroup, EpisodeEnd, StepArrays, copied
from zoo.envs.replay import from_tree, to_tree
from zoo.envs.seeds import derived_seeds
from zoo.envs.spaces import Env, Info, Observations, check_supported, is_composite, leaves
from zoo.envs.vector_infos import info_of

if TYPE_CHECKING:
    from zoo.envs.subproc import Workers


class RawStep(NamedTuple):
    """One step of every environment. Arrays are the caller's own, but the next overwrites rewards."""

    observations: Observations
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    ends: list[EpisodeEnd]
    infos: list[Info]


class VecEnv(AnswersNames, VectorEnv[Any, Any, Any]):
    """A vector environment that resets a finished environment within the step that finished it.

    `step` is Gymnasium's; `transition` is the same step without the merging of infos, which costs more
    than the step itself where an environment fills its info. ``engine`` is what steps the environments, in
    this process or in others. ``seed`` is what the first `reset` without a seed uses: environment i gets
    ``seed + i``.

    Each environment has seeds of its own sequence, which a seed given to `reset` begins: at the first end of
    an episode after some steps it is reset with the next one (see `zoo.envs.env_group`). `state` is those
    seeds and the actions since; `load_state` replays them.
    """

    last_stepped_by: object = None
    """Who stepped it last (`VecEnvAdapter.was_disturbed`); None for whoever did it by hand."""

    def __init__(self, engine: EnvGroup | Workers, num_envs: int, *, seed: int | None = None) -> None:
        check_supported(engine.observation_space, engine.action_space)
        self.engine = engine
        self.num_envs = num_envs
        self.single_observation_space = engine.observation_space
        self.single_action_space = engine.action_space
        self._acts_in_parts = is_composite(engine.action_space)
        self.observation_space = batch_space(engine.observation_space, num_envs)
        self.action_space = batch_space(engine.action_space, num_envs)
        self.action_space.seed(None if seed is None else derived_seeds(seed, 1)[0])
        self.metadata = {**engine.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = engine.render_mode
        self._first_seed = seed
        self._arrays = engine.use_arrays(
            StepArrays.allocate(num_envs, engine.observation_space, engine.action_space)
        )
        self.last_ends: Sequence[EpisodeEnd] = ()

    @property
    def mask_size(self) -> int | None:
        """Values in an environment's mask of valid actions; None if there are no masks."""
        return self.engine.mask_size

    def raw_step(self, actions: Any) -> RawStep:
        """Step every environment with its row of ``actions``, values of the action space itself."""
        arrays = self._arrays
        self.last_ends = ends = self.engine.step(self.own_actions(actions))
        return RawStep(
            copied(arrays.observations),
            arrays.rewards,
            arrays.terminated.copy(),
            arrays.truncated.copy(),
            self.action_masks(),
            ends,
            self.engine.last_infos,
        )

    def state(self) -> dict[str, Any]:
        """Return, for each environment, its seed, the actions since, and what came of them: a state tree."""
        return to_tree(self.engine.states())

    def load_state(self, tree: Mapping[str, Any]) -> list[int]:
        """Reset every environment with its seed, replay its actions and compare what came of them.

        Returns the environments that came out different: they are named in a warning, and start an episode
        with their next seed. Raises `ZooError` for a state of other environments.
        """
        states = from_tree(tree, self._arrays)
        self._first_seed = None
        different = self.engine.load_states(states)
        if different:
            name = "the environment" if self.spec is None else self.spec.id
            which = f"env {different[0]}" if len(different) == 1 else f"envs {', '.join(map(str, different))}"
            warnings.warn(
                f"{name}: {which} came out different when the actions were replayed, so these "
                "episodes are cut; an environment must follow from its seed alone (in the next run, "
                "env.renew=true helps where reset() keeps something of the past)",
                stacklevel=2,
            )
        return different

    def shown(self) -> tuple[Observations, NDArray[np.bool_] | None]:
        """Return copies of the observations that the environments show now, and of their masks."""
        return copied(self._arrays.observations), self.action_masks()

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, mask_size), or None without masks."""
        if self.engine.mask_size is None:
            return None
        assert self._arrays.action_masks is not None
        return self._arrays.action_masks.copy()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, Info]:
        """Reset all environments, or those of ``options["reset_mask"]``; an int gives i ``seed + i``."""
        if seed is None:
            seed, self._first_seed = self._first_seed, None
        if seed is None:
            seeds: list[int | None] = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            seeds = [int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = [None if single is None else int(single) for single in seed]
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        rows: Sequence[int] = range(self.num_envs)
        if options is not None and "reset_mask" in options:
            options = dict(options)
            rows = np.flatnonzero(options.pop("reset_mask")).tolist()
        infos = self.engine.reset(seeds, options or None, rows)
        self.last_stepped_by = None
        return copied(self._arrays.observations), self.merged_infos(infos, [])

    def begin(self, seeds: Mapping[int, int]) -> Observations:
        """Begin an episode in some environments, each by its own seed alone; return the observations of all.

        Afterwards each stands still, without reward or end, until it is reset: unless it masks actions, for
        then it would have to say which may be taken.
        """
        each = [seeds.get(i) for i in range(self.num_envs)]
        self.engine.reset(each, None, sorted(seeds), once=True)
        self.last_stepped_by = None
        return copied(self._arrays.observations)

    def step(
        self, actions: Any
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Step all environments; ``final_obs`` and ``final_info`` hold the end of those that finished."""
        observations, rewards, terminated, truncated, _, ends, infos = self.raw_step(actions)
        self.last_stepped_by = None
        return observations, rewards.copy(), terminated, truncated, self.merged_infos(infos, ends)

    def merged_infos(self, infos: Sequence[Info], ends: Sequence[EpisodeEnd]) -> Info:
        """Return infos in Gymnasium's vector form: one array and one mask a key."""
        merged: Info = {}
        for end in ends:
            merged = self._add_info(
                merged, {"final_obs": end.observation, "final_info": end.info}, end.env_index
            )
        for i, info in enumerate(infos):
            if info:
                merged = self._add_info(merged, info, i)
        return merged

    def _add_info(self, vector_infos: Info, env_info: Info, env_num: int) -> Info:
        """Add one info as Gymnasium does; what does not fit its array makes that an array of objects."""
        for key, value in env_info.items():
            there = vector_infos.get(key)
            if there is None or isinstance(there, dict) == isinstance(value, dict):
                with contextlib.suppress(TypeError, ValueError, OverflowError):
                    super()._add_info(vector_infos, {key: value}, env_num)
                    continue
            mask = vector_infos[f"_{key}"]
            objects = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(mask).tolist():
                objects[i] = info_of(there, i) if isinstance(there, dict) else vector_infos[key][i]
            objects[env_num], mask[env_num] = value, True
            vector_infos[key] = objects
        return vector_infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of each environment, or read the attribute, and return the results.

        What comes back from worker processes must be picklable. What a method raises is raised here.
        """
        if name in ("step", "reset"):
            self.last_stepped_by = None
        return tuple(self.engine.call(name, *args, **kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{len(each)} values for {self.num_envs} environments")
        self.engine.set_attr(name, each)

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return tuple(self.engine.call("render"))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        if "engine" in vars(self):
            self.engine.close()

    def own_actions(self, actions: Any) -> NDArray[Any]:
        """Return a copy of ``actions`` in the space's dtype, which the environments may write into.

        Of tuples or dictionaries of actions it is an array of records: `zoo.envs.spaces.action_array`.
        """
        if self._acts_in_parts:
            records = np.zeros_like(self._arrays.actions)
            for path, part in leaves(self.single_action_space, actions):
                rows = records[path]
                if np.shape(part) != rows.shape:
                    raise ValueError(f"actions of `{path}` of shape {np.shape(part)}; expected {rows.shape}")
                rows[...] = part
            return records
        own = np.array(actions, dtype=self._arrays.actions.dtype)
        if own.shape != self._arrays.actions.shape:
            raise ValueError(f"actions of shape {own.shape}; expected {self._arrays.actions.shape}")
        return own


class SyncVecEnv(VecEnv):
    """Steps its environments in a loop: the fastest way for quick environments."""

    def __init__(
        self, make_envs: Sequence[Callable[[], Env]], *, seed: int | None = None, **life: Any
    ) -> None:
        self.group = EnvGroup(make_envs, **life)
        super().__init__(self.group, len(make_envs), seed=seed)
        self.spec = self.group.envs[0].spec

    @property
    def envs(self) -> list[Env]:
        """The environments themselves."""
        return self.group.envs
