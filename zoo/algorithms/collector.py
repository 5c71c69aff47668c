"""Steps all environments together with a policy, and normalises observations and rewards.

Collecting for on-policy and off-policy algorithms and evaluating all go through here.
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from zoo.buffers.arrays import Arrays, NotFinite, find_not_finite
from zoo.envs.adapter import ReplayableAdapter, VecEnvAdapter, make_adapter
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.normalize import Normalizer, is_training
from zoo.envs.transition import Transition, now
from zoo.envs.wrappers import unsaved_statistics
from zoo.errors import NotFiniteError, ZooError
from zoo.policies.actor_critic import PolicyInput

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

Array = np.ndarray

ADVICE = "; smaller algo.learning_rate may help"
"""What the error says where the policy's numbers are not finite."""

Act = Callable[[PolicyInput], Mapping[str, Arrays]]
"""Returns ``actions``, and what else a buffer stores of a step."""


class Collector:
    """Steps some environments with a policy, and keeps their latest observations.

    ``to_env`` turns actions as they are stored into those that the environments take. ``policy_input`` has
    the latest observations as the policy reads them, ``raw_observations`` as the environments gave them.
    Seconds spent are added to ``timings``.
    """

    def __init__(
        self,
        envs: VecEnvAdapter,
        to_env: Callable[[Arrays], Any] = lambda actions: actions,
        normalizer: Normalizer | None = None,
        timings: dict[str, float] | None = None,
    ) -> None:
        self.envs = envs
        self.to_env = to_env
        self.normalizer = normalizer
        self.timings = defaultdict(float) if timings is None else timings
        self.not_finite: NotFinite | None = None
        """The first number of policy or environments that was NaN or infinite, raw: normalising hides it."""
        self.raw_observations: Arrays = None
        self.policy_input: PolicyInput = {}
        self._seeds: list[int] = []
        self._everywhere = self._starting = np.arange(envs.num_envs)

    @property
    def is_under_way(self) -> bool:
        """Whether the environments have been reset, and there are observations to act on."""
        return bool(self.policy_input)

    @property
    def episode_starts(self) -> Array:
        """Whether the latest observation of each environment is the first of an episode."""
        starts = np.zeros(self.envs.num_envs, np.bool_)
        starts[self._starting] = True
        return starts

    def reset(self, seeds: Sequence[int]) -> None:
        """Reset all environments, each with its own seed."""
        self._seeds = list(seeds)
        observations = self.envs.reset(seeds)
        self._look_at({"observations": observations})
        if self.normalizer is not None and self._statistics_follow():
            self.normalizer.begin(observations)
        self.set_observations(observations)
        self._starting = self._everywhere

    def set_observations(self, observations: Arrays) -> None:
        """Take these raw observations as the latest ones."""
        self.raw_observations = observations
        self.policy_input = {"observations": self.normalized(observations)}
        masks = self.envs.action_masks()
        if masks is not None:
            self.policy_input["action_masks"] = masks

    def renormalize(self) -> None:
        """Normalise the latest observations again, by the present statistics."""
        if self.is_under_way:
            self.policy_input["observations"] = self.normalized(self.raw_observations)

    def normalized(self, observations: Arrays) -> Arrays:
        """Return observations as the policy reads them."""
        normalizer = self.normalizer
        return observations if normalizer is None else normalizer.normalize_observations(observations)

    def step(self, act: Act) -> Transition:
        """Act once in all environments."""
        started = time.perf_counter()
        observations, policy_input = self.raw_observations, self.policy_input
        acted = act(policy_input)
        actions = self.to_env(acted["actions"])
        before = time.perf_counter()
        transition = self.envs.step(actions)
        after = time.perf_counter()
        transition.observations, transition.columns = observations, {**policy_input, **acted}
        self._look_at({**acted, "rewards": transition.rewards, "observations": transition.new_observations})
        if len(transition.finished):
            self._look_at({"observations": transition.final_observations}, transition.finished)
        if self.normalizer is not None and self._statistics_follow():
            self.normalizer.update(
                transition.new_observations, transition.rewards, transition.dones, transition.envs
            )
        self.set_observations(transition.new_observations)
        if transition.stepped is None:
            self._starting = transition.finished
        else:  # an episode starts where this step has merely reset
            self._starting = np.setdiff1d(self._everywhere, transition.stepped)
        self.timings["env"] += after - before
        self.timings["policy"] += before - started + time.perf_counter() - after
        return transition

    def _look_at(self, columns: Mapping[str, Arrays], envs: Array | None = None) -> None:
        """Note the first number that is not finite in arrays (n_envs, …), or (len(envs), …)."""
        location = find_not_finite(columns)
        if location is not None and self.not_finite is None:
            self.not_finite = location if envs is None else location._replace(env=int(envs[location.env]))

    def _statistics_follow(self) -> bool:
        """Whether a normaliser's statistics follow each step: unless a `VecNormalize` has training=False."""
        return is_training(self.envs.given_env)

    # -- exact resume -----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the environments' state for a resume; if not replayable, the state of their last reset."""
        if not self.is_under_way:
            return {}
        if not isinstance(self.envs, ReplayableAdapter):
            return {"seeds": self._seeds, "seconds": now() - self.envs.start}
        return {"envs": self.envs.state(), "episode_starts": self.episode_starts}

    def load_state(self, state: Mapping[str, Any]) -> list[int]:
        """Go back to there; return the environments whose episodes could not be replayed and were cut."""
        self.not_finite = None
        if not state:
            return []
        if "seeds" in state:
            self._seeds = list(state["seeds"])
            self.envs.start = now() - state.get("seconds", now() - self.envs.start)
            self.set_observations(self.envs.reset(self._seeds))
            self._starting = self._everywhere
            if self.normalizer is not None:
                self.normalizer.returns[:] = 0.0
            return []
        assert isinstance(self.envs, ReplayableAdapter)
        cut = self.envs.load_state(state["envs"])
        if self.normalizer is not None:
            self.normalizer.returns[cut] = 0.0
        self.set_observations(self.envs.observations)
        self._starting = np.union1d(np.flatnonzero(state["episode_starts"]), cut).astype(np.int64)
        return cut


def envs_for(
    env: Any, n_envs: int | None, default: int, gamma: float
) -> tuple[EnvConfig | None, VecEnvAdapter]:
    """Return a vector environment of any ``env``, and its config where that is known.

    Of an id, a config or a function ``n_envs`` environments are made, ``default`` ones if that is None.
    ``gamma`` is the discount of normalised rewards. Raises `ZooError`.
    """
    if isinstance(env, VecEnvAdapter | VectorEnv):
        if n_envs not in (None, env.num_envs):
            raise ZooError(f"n_envs={n_envs}, but the vector environment has {env.num_envs} of them")
        for line in unsaved_statistics(env.given_env if isinstance(env, VecEnvAdapter) else env):
            warnings.warn(line, stacklevel=2)
        return None, env if isinstance(env, VecEnvAdapter) else make_adapter(env)
    if isinstance(env, str):
        env = EnvConfig(id=env)
    if n_envs is None:
        n_envs = 1 if isinstance(env, gym.Env | list | tuple) else default
    made = make_vec_env(env, n_envs, gamma=gamma)
    return env if isinstance(env, EnvConfig) else None, make_adapter(made)


# -- numbers that are not finite: nothing is learned from such, and none are written --------------------


def check_collected(algorithm: Algorithm) -> None:
    """Raise `NotFiniteError` for the first number that the collector found not to be finite."""
    location = algorithm.collector.not_finite
    if location is None:
        return
    if location.name in ("rewards", "observations"):
        thing = "a reward" if location.name == "rewards" else "an observation"
        start, end = f"environment {location.env} gave {thing} that", ""
    else:
        kind = "value" if location.name == "values" else "action"
        start, end = f"the policy's {kind} for environment {location.env}", ADVICE
    large = "too large for 32 bits" if location.name != "rewards" else "too large to be squared in 32 bits"
    problem = large if np.isfinite(location.value) else "not finite"
    raise NotFiniteError(
        f"{start} is {problem} ({location.value}) by step {algorithm.num_timesteps} of the run{end}"
    )


def check_parameters(algorithm: Algorithm) -> None:
    """Raise `NotFiniteError` if updates have made anything that they replace not finite."""
    for name, tensor in algorithm.runner.state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not tensor.isfinite().all():
            raise NotFiniteError(
                f"after {algorithm.n_updates} updates `{name}` is not finite, at step"
                f" {algorithm.num_timesteps} of the run{ADVICE}"
            )
