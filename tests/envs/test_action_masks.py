"""Masks of valid actions: with every step, for what is shown and for what episodes ended with."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo.envs import EnvStepper, make_vec_env
from zoo.envs.spaces import mask_size
from zoo.errors import ZooError

WORKERS: dict[str, Any] = {"vectorization": "workers", "n_workers": 2, "start_method": "fork"}
N = 12


class Telling(gym.Env[Any, Any]):
    """Observes its mask, so that each can be compared with what it belongs to; episodes of 3 or 4 steps."""

    observation_space: Any = spaces.Box(0, 1, (N,), np.int8)

    def __init__(self, action_space: Any = None, in_info: bool = False) -> None:
        self.action_space = action_space or spaces.Discrete(N, start=2)
        self._in_info = in_info
        self.asked = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._n_steps = 0
        return self._draw()

    def step(self, action: Any) -> Any:
        self._n_steps += 1
        observation, info = self._draw()
        return observation, 0.0, self._n_steps == 3 and bool(self._mask[0]), self._n_steps == 4, info

    def _draw(self) -> Any:
        self._mask = self.np_random.random(N) < 0.5
        told = self._mask.astype(np.int8)
        return told.copy(), {"action_mask": told} if self._in_info else {}


class Asked(Telling):
    """Tells its mask by a method."""

    def action_masks(self) -> Any:
        self.asked += 1
        return self._mask


SPACES = [
    spaces.Discrete(N, start=2),
    spaces.MultiDiscrete([5, 4, 3]),
    spaces.MultiBinary(6),
    spaces.MultiBinary((2, 3)),
]


def assert_masks_are_those_of_the_observations(envs: EnvStepper) -> None:
    shown = envs.reset(range(envs.num_envs))
    assert envs.mask_size == N
    n_ended = 0
    for _ in range(30):
        assert np.array_equal(envs.action_masks(), shown)
        step = envs.step(np.stack([envs.action_space.sample()] * envs.num_envs))
        shown = step.observations
        assert step.action_masks is not None
        assert step.action_masks.dtype == np.bool_
        assert np.array_equal(step.action_masks, shown)
        assert (step.final_action_masks is None) == (len(step.finished) == 0)
        if len(step.finished):
            assert np.array_equal(step.final_action_masks, step.final_observations)
        n_ended += len(step.finished)
    assert n_ended > envs.num_envs
    envs.close()


@pytest.mark.parametrize("options", [{}, WORKERS, {"nan_check": True}], ids=["sync", "workers", "checked"])
@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_are_those_of_what_is_shown(make: Any, options: dict[str, Any]) -> None:
    assert_masks_are_those_of_the_observations(EnvStepper(make_vec_env(make, 3, check=False, **options)))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_masks_of_every_space_that_has_them(space: Any) -> None:
    assert mask_size(space) == N
    assert_masks_are_those_of_the_observations(EnvStepper(make_vec_env(lambda: Asked(space), 2, check=False)))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_masks_in_infos_of_other_vector_envs(mode: AutoresetMode) -> None:
    others = SyncVectorEnv([lambda: Telling(in_info=True)] * 2, autoreset_mode=mode)
    assert_masks_are_those_of_the_observations(EnvStepper(others))


def test_final_mask_that_nobody_can_ask_for_allows_everything() -> None:
    envs = EnvStepper(SyncVectorEnv([Asked] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    envs.reset([0, 1])
    steps = [envs.step([2, 2]) for _ in range(8)]
    assert all(np.array_equal(step.action_masks, step.observations) for step in steps)
    assert all(step.final_action_masks.all() for step in steps if len(step.finished))


def test_each_mask_is_asked_for_once() -> None:
    envs = EnvStepper(make_vec_env(Asked, 1, check=False))
    envs.reset([0])
    n_ended = sum(len(envs.step([2]).finished) for _ in range(20))
    for _ in range(3):
        envs.action_masks()
    assert envs.env.get_attr("asked") == (1 + 20 + n_ended,)


def test_masks_stay_as_they_were_given() -> None:
    envs = EnvStepper(make_vec_env(Asked, 2, check=False))
    envs.reset([0, 1])
    masks = envs.step([2, 2]).action_masks
    kept = masks.copy()
    envs.step([2, 2])
    assert np.array_equal(masks, kept)


def test_envs_without_masks_have_none() -> None:
    envs = EnvStepper(make_vec_env("CartPole-v1", 2))
    envs.reset([0, 1])
    step = envs.step([0, 0])
    assert (envs.mask_size, envs.action_masks(), step.action_masks, step.final_action_masks) == (None,) * 4


def test_mask_of_a_wrong_size_is_refused() -> None:
    envs = make_vec_env(lambda: Asked(spaces.Discrete(N + 1)), check=False)
    with pytest.raises(ZooError, match=r"env 0.*gave a mask of 12 actions; Discrete\(13\) takes 13"):
        envs.reset(seed=0)


def test_env_whose_mask_is_wrong_at_the_end_of_an_episode_is_named_once() -> None:
    class Narrowing(Asked):
        def action_masks(self) -> Any:
            return super().action_masks()[: -1 if self._n_steps == 4 else None]

    envs = EnvStepper(make_vec_env(lambda: Narrowing(spaces.Discrete(N)), check=False))
    envs.reset([0])

    def play() -> None:
        for _ in range(40):
            envs.step([0])

    with pytest.raises(ZooError, match=r"gave a mask of 11 actions") as raised:
        play()
    assert str(raised.value).count("env 0") == 1


def test_actions_that_cannot_be_masked_are_refused() -> None:
    box = spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(ZooError, match=r"actions of Box\(2,\) float32 cannot be masked"):
        make_vec_env(lambda: Asked(box), check=False)
