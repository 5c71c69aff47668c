"""Observations in tuples and nested dictionaries become one dictionary, and masks among them masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import zoo
from zoo.envs import VecEnvAdapter, VecNormalize, check_env, make_vec_env
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate_policy

PAIR = spaces.Tuple((spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(4, start=1)))
SEEN_PAIR = (np.float32([0.25, 0.5]), 3)
NESTED: dict[str, tuple[spaces.Space[Any], Any, dict[str, Any]]] = {
    "a tuple": (PAIR, SEEN_PAIR, {"0": [0.25, 0.5], "1": 3}),
    "a tuple of one": (spaces.Tuple((spaces.MultiBinary(2),)), ([0, 1],), {"0": [0, 1]}),
    "a tuple in a dictionary": (
        spaces.Dict({"arm": PAIR, "bits": spaces.MultiBinary(2)}),
        {"arm": SEEN_PAIR, "bits": np.int8([1, 0])},
        {"arm/0": [0.25, 0.5], "arm/1": 3, "bits": [1, 0]},
    ),
    "a dictionary in a dictionary": (
        spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(3), "c": spaces.MultiDiscrete([2, 3])})}),
        {"a": {"b": 2, "c": np.array([1, 2])}},
        {"a/b": 2, "a/c": [1, 2]},
    ),
    "a dictionary in a tuple": (
        spaces.Tuple((spaces.Dict({"b": spaces.Discrete(3)}), spaces.Tuple((spaces.Discrete(2),)))),
        ({"b": np.int64(1)}, (1,)),
        {"0/b": 1, "1/0": 1},
    ),
}


class Shown(gym.Env[Any, Any]):
    """Shows one thing; episodes have four steps and are cut short."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any], shown: Any) -> None:
        self.observation_space, self.shown = space, shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.shown, 1.0, False, self.steps == 4, {}


def vectors(env: Any) -> dict[str, Any]:
    """Return two of them side by side, in every way that an environment may enter."""
    foreign = {mode.name: SyncVectorEnv([env] * 2, autoreset_mode=mode) for mode in AutoresetMode}
    return {"own": make_vec_env(env, 2), **foreign, "normalised": VecNormalize(SyncVectorEnv([env] * 2))}


@pytest.mark.parametrize("nested", NESTED)
def test_every_part_is_seen_under_its_path(nested: str) -> None:
    space, shown, expected = NESTED[nested]
    for name, env in vectors(lambda: Shown(space, shown)).items():
        stepper = VecEnvAdapter(env)
        stepper.reset([0, 1])
        steps = [stepper.step(np.zeros(2, np.int64)) for _ in range(5)]
        reevaluation = [step.final_observations for step in steps if len(step.finished)]
        assert len(reevaluation) == 1
        for observations in (stepper.observations, *reevaluation):
            assert set(observations) == set(stepper.observation_space) == set(expected), name
            for key, value in expected.items():
                np.testing.assert_array_equal(np.asarray(observations[key]), [value, value])
                assert stepper.observation_space[key].contains(np.asarray(observations[key])[0])
    assert check_env(lambda: Shown(space, shown)) == check_env(Shown(space, shown)) == []


def test_a_dictionary_of_plain_parts_stays_as_it_is() -> None:
    space = spaces.Dict({"b": spaces.Discrete(3), "a/c": spaces.MultiBinary(2)})
    env = make_vec_env(lambda: Shown(space, {"b": 1, "a/c": np.int8([0, 1])}))
    assert env.single_observation_space == space


def test_parts_of_one_name_are_refused() -> None:
    space = spaces.Dict({"a/b": spaces.Discrete(3), "a": spaces.Dict({"b": spaces.Discrete(3)})})
    with pytest.raises(ZooError, match="joined by /"):
        make_vec_env(lambda: Shown(space, {"a/b": 1, "a": {"b": 1}}))


@pytest.mark.parametrize("algorithm", [zoo.PPO2, zoo.DQN])
@pytest.mark.parametrize("policy", ["MlpPolicy", "MultiInputPolicy"])
def test_blackjack_is_learned_saved_and_asked_as_it_shows_itself(
    algorithm: Any, policy: str, tmp_path: Path
) -> None:
    model = algorithm(policy, "Blackjack-v1", seed=0, compile=False)
    model.learn(300)
    loaded = algorithm.load(model.save(tmp_path / "agent"))
    own = gym.make("Blackjack-v1")
    observation, _ = own.reset(seed=0)
    parts = {str(i): part for i, part in enumerate(observation)}
    several = gym.make_vec("Blackjack-v1", 3).reset(seed=0)[0]
    for each in (model, loaded):
        assert each.predict(observation)[0] == model.predict(parts)[0]
        assert each.predict(several)[0].shape == (3,)
        assert -1.0 <= evaluate_policy(each, own, 10)[0] <= 1.0


# -- masks ------------------------------------------------------------------------------------------------


class Masked(gym.Env[Any, Any]):
    """Allows one action at a time, shown under `action_mask`, and fails at any other."""

    action_space = spaces.Discrete(4, start=1)

    def __init__(self, mask_space: spaces.Space[Any] | None = None, seen: Any = None) -> None:
        mask = spaces.Box(0, 1, (4,), np.int8) if mask_space is None else mask_space
        space = spaces.Tuple((spaces.Discrete(9),)) if seen is None else seen
        self.observation_space = spaces.Dict({"action_mask": mask, "observations": space})
        self._mask = np.zeros(mask.shape, mask.dtype)

    def _shown(self) -> Any:
        self._mask[...] = 0  # one array for all masks, as some environments have it
        self.allowed = int(self.np_random.integers(4))
        self._mask[self.allowed] = 1
        return {"action_mask": self._mask, "observations": (self.allowed,)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        assert action == 1 + self.allowed, "this action was not allowed"
        ended, cut = self.np_random.random(2) < 0.1
        return self._shown(), 1.0, bool(ended), bool(cut), {}


MASK_SPACES = [spaces.Box(0, 1, (4,), np.int8), spaces.MultiBinary(4), spaces.Box(0.0, 1.0, (4,))]


@pytest.mark.parametrize("mask_space", MASK_SPACES, ids=str)
def test_a_mask_among_the_observations_is_used_and_not_seen(mask_space: spaces.Space[Any]) -> None:
    def make() -> Masked:
        return Masked(mask_space)

    assert check_env(make) == check_env(make()) == []
    for algorithm in (zoo.PPO2, zoo.DQN):
        for name, env in vectors(make).items():
            model = algorithm("MlpPolicy", env, seed=0, compile=False)
            model.learn(64)
            assert list(model.observation_space) == ["observations/0"], name
            assert model.masks_actions
    own = make()
    observation, _ = own.reset(seed=0)
    for _ in range(50):
        action, _ = model.predict(observation, deterministic=False)
        observation, _, ended, cut, _ = own.step(action)
        if ended or cut:
            observation, _ = own.reset()
    assert evaluate_policy(model, own, 5, return_episode_rewards=True)[1]


def test_a_mask_is_a_part_like_others_where_nobody_shall_be_asked() -> None:
    env = make_vec_env(Masked, mask_actions=False, check=False)
    assert list(env.single_observation_space) == ["action_mask", "observations/0"]
    stepper = VecEnvAdapter(env)
    stepper.reset([0])
    assert stepper.mask_size is None


def test_what_masks_numbers_is_a_part_like_others() -> None:
    space = spaces.Dict({"action_mask": spaces.MultiBinary(2), "seen": spaces.Discrete(2)})

    class Numbers(Shown):
        action_space = spaces.Box(-1.0, 1.0, (2,))  # type: ignore[assignment]

    env = make_vec_env(lambda: Numbers(space, {"action_mask": np.int8([0, 1]), "seen": 1}))
    assert set(env.single_observation_space) == {"action_mask", "seen"}


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ZooError, match="mask_actions"):
        make_vec_env(lambda: Masked(spaces.MultiBinary(5)))
