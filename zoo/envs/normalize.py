"""Running normalisation of observations and rewards: the arithmetic, and the wrapper that applies it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from zoo.config.aliases import RefusesNames
from zoo.config.fields import build
from zoo.envs.config import NormalizeConfig
from zoo.envs.spaces import Observations, Space, describe, is_image
from zoo.errors import ZooError, nearest

SINGLE = ""
"""The key under which the statistics of a plain (not Dict) observation are kept."""

RETURN = "return"
"""What the statistics of the running return are called."""

INITIAL_COUNT = 1e-4

SB3_OPTIONS = {"norm_obs": "observations", "norm_reward": "rewards", "norm_obs_keys": "keys"}

SCALED = "scaled"

_NUMBERS = ("clip_obs", "clip_reward", "epsilon", "gamma")


class RunningMoments:
    """Mean and variance, at first 0 and 1, of all that was seen, by Chan's parallel formula in float64.

    What is seen first takes the place of the initial count, for even so small a count of zeros would stay in
    the variance of numbers far from zero.
    """

    def __init__(self, shape: tuple[int, ...], count: float = INITIAL_COUNT) -> None:
        self.mean = np.zeros(shape)
        self.squares = np.full(shape, count)
        """Sum of squared deviations from the mean."""
        self.count = count

    @property
    def var(self) -> NDArray[np.float64]:
        """The variance (of the population: divided by the count)."""
        return self.squares / self.count

    def update(self, batch: NDArray[np.float64]) -> None:
        """Update by a batch, (n, …)."""
        n = len(batch)
        if n == 0:
            return
        batch_mean = np.add.reduce(batch, 0) / n
        deviations = batch - batch_mean
        deviations *= deviations
        self.merge(n, batch_mean, np.add.reduce(deviations, 0))

    def merge(self, n: float, mean: NDArray[np.float64], squares: NDArray[np.float64]) -> None:
        """Merge the mean and sum of squared deviations of ``n`` > 0 rows."""
        if self.count <= INITIAL_COUNT:
            self.count, self.mean, self.squares = float(n), np.array(mean), np.array(squares)
            return
        delta = mean - self.mean
        total = self.count + n
        self.mean = self.mean + delta * (n / total)
        self.squares = self.squares + squares
        delta *= delta
        self.squares += delta * (self.count * n / total)
        self.count = total


class Normalizer(RefusesNames):
    """Statistics of observations and of the discounted return, and the normalisation by them.

    Observations: (o − mean) / sqrt(var + ε), clipped. Rewards: r / sqrt(var of R + ε), clipped, where
    R ← γR + r runs along each environment; the mean is not subtracted, so a reward keeps its sign. `SCALED`
    rewards: r / max(sqrt(var of R + ε), largest |R| / return_bound), not clipped (Lee et al. 2025).
    Of a Dict observation each key is normalised by itself; images and discrete parts are left as they are.
    """

    def __init__(
        self,
        observation_space: Space,
        config: NormalizeConfig | None = None,
        *,
        num_envs: int = 1,
        gamma: float = 0.99,
    ) -> None:
        config = config or NormalizeConfig()
        self.rewards = config.rewards
        self.clip_obs, self.clip_reward, self.epsilon = config.clip_obs, config.clip_reward, config.epsilon
        self.gamma = gamma if config.gamma is None else config.gamma
        parts = _normalized_parts(observation_space, config.keys) if config.observations else {}
        self.moments = {key: RunningMoments(part.shape) for key, part in parts.items()}
        self.return_moments = RunningMoments(())
        self._local: dict[str, RunningMoments] = {}
        """Statistics of this rank since the last `merge_shared`, where ranks share theirs."""
        self.returns = np.zeros(num_envs)
        self.return_bound, self.largest_return = config.return_bound, 0.0
        self._scales: dict[str, tuple[Any, Any]] = {}

    @property
    def has_seen_observations(self) -> bool:
        """Whether any observation is in the statistics, or waits for `merge_shared`."""
        waiting = [moments.count for name, moments in self._local.items() if name != RETURN]
        return any(waiting) or any(moments.count > INITIAL_COUNT for moments in self.moments.values())

    def begin(self, observations: Observations) -> None:
        """Take in observations of a reset of all environments, and start their running returns anew."""
        self.returns[:] = 0.0
        self.update_observations(observations)

    def update(
        self,
        observations: Observations,
        rewards: NDArray[Any],
        dones: NDArray[np.bool_],
        rows: NDArray[Any] | slice = np.s_[:],
    ) -> None:
        """Update by one step of all environments; ``rows`` were stepped, the others merely reset."""
        self.update_observations(observations)
        if len(self.returns) != len(rewards):
            self.returns = np.zeros(len(rewards))
        self.returns[rows] = self.returns[rows] * self.gamma + np.asarray(rewards, np.float64)[rows]
        self._local.get(RETURN, self.return_moments).update(self.returns[rows])
        self.largest_return = max(self.largest_return, np.abs(self.returns[rows]).max(initial=0.0))
        self.returns[dones] = 0.0

    def update_observations(self, observations: Observations) -> None:
        """Take in observations, (n, …) or a dict of them."""
        for key, moments in self.moments.items():
            batch = np.asarray(observations[key] if key != SINGLE else observations, dtype=np.float64)
            self._local.get(_name(key), moments).update(batch)
        self._scales.clear()

    def normalize_observations(self, observations: Observations) -> Observations:
        """Return observations (…, *shape) with the parts that are normalised so, as float32."""
        return self._map_parts(self._normalized, observations)

    def normalized_space(self, space: Space) -> Space:
        """Return the space of normalised observations: float32 within ±clip_obs where any are normalised."""
        limit = self.clip_obs
        parts = self._map_parts(lambda _, part: spaces.Box(-limit, limit, part.shape, np.float32), space)
        return spaces.Dict(parts) if isinstance(parts, dict) else parts

    def unnormalize_obs(self, observations: Observations) -> Observations:
        """Undo `normalize_observations` (exact where nothing was clipped)."""
        scales = {key: (part.mean, np.sqrt(part.var + self.epsilon)) for key, part in self.moments.items()}
        return self._map_parts(lambda key, values: values * scales[key][1] + scales[key][0], observations)

    def normalize_rewards(self, rewards: NDArray[Any]) -> NDArray[np.float32]:
        """Return rewards divided by the standard deviation of the running return, as float32."""
        if not self.rewards:
            return np.asarray(rewards, dtype=np.float32)
        scaled = rewards / self._reward_scale()
        if self.rewards != SCALED:
            scaled = np.minimum(np.maximum(scaled, -self.clip_reward), self.clip_reward)
        return np.asarray(scaled, dtype=np.float32)

    def _reward_scale(self) -> Any:
        least = self.largest_return / self.return_bound if self.rewards == SCALED else 0.0
        return max(np.sqrt(self.return_moments.var + self.epsilon), least)

    def unnormalize_reward(self, rewards: NDArray[Any]) -> NDArray[Any]:
        """Undo `normalize_rewards` (exact where nothing was clipped)."""
        return rewards * self._reward_scale() if self.rewards else rewards

    def normalize_transitions(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch with observations, those that followed and rewards normalised in place."""
        for name in ("observations", "next_observations"):
            batch[name] = self.normalize_observations(batch[name])
        batch["rewards"] = self.normalize_rewards(batch["rewards"])
        return batch

    def _map_parts(self, change: Callable[[str, Any], Any], observations: Observations) -> Observations:
        """Return observations with those parts changed that are normalised."""
        if not isinstance(observations, Mapping):
            return change(SINGLE, observations) if SINGLE in self.moments else observations
        return {key: change(key, part) if key in self.moments else part for key, part in observations.items()}

    def _normalized(self, key: str, values: Any) -> NDArray[np.float32]:
        scale = self._scales.get(key)
        if scale is None:
            moments = self.moments[key]
            scale = self._scales[key] = (moments.mean, 1.0 / np.sqrt(moments.var + self.epsilon))
        normalized = values - scale[0]
        normalized *= scale[1]
        np.maximum(normalized, -self.clip_obs, out=normalized)
        np.minimum(normalized, self.clip_obs, out=normalized)
        return normalized.astype(np.float32)

    def share(self) -> None:
        """Collect new statistics separately, until `merge_shared` merges all ranks' statistics."""
        named = self._named_moments().items()
        self._local = {name: RunningMoments(moments.mean.shape, count=0.0) for name, moments in named}

    def stop_sharing(self) -> None:
        """Merge this process's statistics, and update them directly from now on."""
        if self._local:
            self.merge(self.local_statistics()[np.newaxis])
            self._local = {}

    def local_statistics(self) -> NDArray[np.float64]:
        """Return the statistics of this rank since the last `merge_shared` as a vector (n,)."""
        parts = [np.ravel(part) for m in self._local.values() for part in (m.count, m.mean, m.squares)]
        return np.concatenate([*parts, [self.largest_return]])

    def merge_shared(self, statistics: NDArray[np.float64]) -> None:
        """Merge the `local_statistics` of each rank, (ranks, n), in their order."""
        self.merge(statistics)
        self.share()

    def merge(self, statistics: NDArray[np.float64]) -> None:
        """Merge vectors of the form of `local_statistics`, (…, n), in their order."""
        for row in statistics:
            start = 0
            for moments in self._named_moments().values():
                end = start + 1 + 2 * moments.mean.size
                if n := float(row[start]):
                    moments.merge(n, *row[start + 1 : end].reshape(2, *moments.mean.shape))
                start = end
            self.largest_return = max(self.largest_return, row[-1])
        self._scales.clear()

    def state(self) -> dict[str, Any]:
        """Return everything that `from_state` needs: ``arrays``, and ``values`` for JSON."""
        arrays: dict[str, NDArray[Any]] = {"returns": self.returns.copy()}
        for name, moments in self._named_moments().items():
            arrays |= {f"{name}.{part}": np.array(value) for part, value in vars(moments).items()}
        values = {name: getattr(self, name) for name in ("rewards", *_NUMBERS)}
        if self.rewards == SCALED:
            arrays["largest_return"] = np.array(self.largest_return)
            values["return_bound"] = self.return_bound
        return {"arrays": arrays, "values": {"keys": list(self.moments), **values}}

    def load_state(self, tree: Mapping[str, Any]) -> None:
        """Take over what `state` returned, settings and all."""
        arrays, values = tree["arrays"], tree["values"]
        self.rewards = values["rewards"]
        self.return_bound = float(values.get("return_bound", self.return_bound))
        self.largest_return = float(arrays.get("largest_return", 0.0))
        for name in _NUMBERS:
            setattr(self, name, float(values[name]))
        self.moments = {key: RunningMoments(()) for key in values["keys"]}
        for name, moments in self._named_moments().items():
            moments.mean = np.array(arrays[f"{name}.mean"], dtype=np.float64)
            moments.squares = np.array(arrays[f"{name}.squares"], dtype=np.float64)
            moments.count = float(arrays[f"{name}.count"])
        self.returns = np.array(arrays["returns"], dtype=np.float64)
        self._scales.clear()

    def resume(self, tree: Mapping[str, Any]) -> None:
        """Go on with what `state` returned. Raises `ZooError` if it is of other settings."""
        if tree["values"] != self.state()["values"]:
            raise ZooError("the normalisation statistics are of other settings (`env.normalize`)")
        self.load_state(tree)

    @classmethod
    def from_state(cls, tree: Mapping[str, Any]) -> Normalizer:
        """Return the normaliser whose `state` this is."""
        normalizer = cls(spaces.Dict())
        normalizer.load_state(tree)
        return normalizer

    def _named_moments(self) -> dict[str, RunningMoments]:
        named = {_name(key): moments for key, moments in self.moments.items()}
        return {**named, RETURN: self.return_moments}


def _name(key: str) -> str:
    """Name of the statistics of one subspace of the observation."""
    return f"observations/{key}" if key else "observations"


def refuse_hidden_normalizer(env: Any) -> None:
    """Raise `ZooError` if a `VecNormalize` is among the wrappers of a vector environment."""
    while isinstance(env, VectorWrapper):
        if isinstance(env, VecNormalize):
            raise ZooError("VecNormalize is the outermost wrapper of a vector environment, and there is one")
        env = env.env


class VecNormalize(RefusesNames, VectorWrapper):
    """Normalises observations and rewards; while ``training``, it updates the statistics.

    Two environments share their statistics by sharing a ``normalizer``. `VecEnvAdapter` looks through this
    wrapper: algorithms keep raw values and normalise them when they use them. Without ``config`` its fields
    may be ``options``, also by Stable-Baselines3's names.
    """

    @staticmethod
    def load(*_: Any) -> NoReturn:
        """Raise `ZooError`: an agent is saved and loaded with its statistics."""
        raise ZooError("VecNormalize.load: here it is zoo.load(agent, env); SB3's: zoo import normalize=FILE")

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        config: NormalizeConfig | None = None,
        *,
        gamma: float = 0.99,
        training: bool = True,
        normalizer: Normalizer | None = None,
        **options: Any,
    ) -> None:
        refuse_hidden_normalizer(env)
        super().__init__(env)
        if options:
            if config is not None or normalizer is not None:
                raise ZooError(f"VecNormalize: {', '.join(options)} are fields of its config or normalizer")
            values = {SB3_OPTIONS.get(name, name): value for name, value in options.items()}
            config = build(NormalizeConfig, values, "VecNormalize")
        space = self.env.single_observation_space
        self.normalizer = normalizer or Normalizer(space, config, num_envs=env.num_envs, gamma=gamma)
        self.training = training
        self._resets_later = env.metadata.get("autoreset_mode") is AutoresetMode.NEXT_STEP
        self._single_observation_space = self.normalizer.normalized_space(space)
        self._observation_space = batch_space(self._single_observation_space, env.num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self._is_stepped = np.ones(self.num_envs, np.bool_)
        if self.training:
            self.normalizer.begin(observations)
        return self.normalizer.normalize_observations(observations), infos

    def step(
        self, actions: Any
    ) -> tuple[Observations, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        dones = np.logical_or(terminated, truncated)
        if self.training:
            self.normalizer.update(observations, rewards, dones, self._is_stepped)
        if self._resets_later:
            self._is_stepped = ~dones
        normalize, final = self.normalizer.normalize_observations, infos.get("final_obs")
        if isinstance(final, np.ndarray) and final.dtype == object:
            rows = [None if row is None else normalize(row) for row in final]
            infos = {**infos, "final_obs": np.fromiter(rows, object, len(rows))}
        elif final is not None:
            infos = {**infos, "final_obs": normalize(final)}
        rewards = self.normalizer.normalize_rewards(rewards)
        return normalize(observations), rewards, terminated, truncated, infos


def is_training(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether statistics are updated; False for a `VecNormalize` that is not training."""
    return not isinstance(env, VecNormalize) or env.training


def _normalized_parts(space: Space, keys: Sequence[str] | None) -> dict[str, spaces.Box]:
    """Return the parts of an observation that are normalised: those of ``keys``, else all numbers."""
    parts = dict(space.items()) if isinstance(space, spaces.Dict) else {SINGLE: space}
    boxes = {key: part for key, part in parts.items() if isinstance(part, spaces.Box) and not is_image(part)}
    for key in keys or ():
        if key not in parts:
            raise ZooError(f"env.normalize.keys: the observation has no key `{key}`{nearest(key, parts)}")
        if key not in boxes:
            raise ZooError(
                f"env.normalize.keys: `{key}` is {describe(parts[key])}; it must be a Box, and no image"
            )
    return boxes if keys is None else {key: boxes[key] for key in keys}
