"""The trial before the first step: what is wrong is said, with what was expected and how to mend it."""

from __future__ import annotations

import random
import re
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting, Failing, Noisy

from zoo.envs import check_env, make_vec_env
from zoo.errors import ZooError


class Custom(gym.Env[Any, Any]):
    """An environment of which one thing at a time can be made wrong."""

    def __init__(
        self,
        observation_space: Any = None,
        action_space: Any = None,
        first: Any = None,
        following: Any = None,
        observation: Any = None,
        reset: Any = None,
        step: Any = None,
        **result: Any,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self._observation = np.zeros(2, dtype=np.float32) if observation is None else observation
        self._reset, self._step, self._result = reset, step, result

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return (self._observation, {}) if self._reset is None else self._reset(self)

    def step(self, action: Any) -> Any:
        if self._step is not None:
            return self._step(self)
        result = {"reward": 0.0, "terminated": False, "truncated": False, "info": {}, **self._result}
        return (self._observation, *result.values())


ZEROS = np.zeros(2, dtype=np.float32)
DICT = spaces.Dict({"position": spaces.Box(-1.0, 1.0, (2,)), "token": spaces.Discrete(3)})

BYTES = spaces.Box(0, 255, (2,), np.uint8)

WRONG: list[tuple[dict[str, Any], str]] = [
    # The old API
    ({"reset": lambda env: ZEROS}, r"reset\(\)"),
    ({"step": lambda env: (ZEROS, 0.0, False, {})}, "five values"),
    ({"step": lambda env: None}, "tuple"),
    ({"reset": lambda env: (ZEROS, None)}, "dictionary"),
    ({"info": None}, "dict"),
    # Shapes, types and values of observations
    ({"observation": np.zeros(3, dtype=np.float32)}, r"\(3,\)"),
    ({"observation": np.zeros((1, 2), dtype=np.float32)}, r"\(1, 2\)"),
    ({"observation": "left"}, "numbers"),
    ({"observation": [[0.0], [0.0, 1.0]]}, "numbers"),
    ({"observation": np.array([0.0, np.nan], dtype=np.float32)}, "NaN"),
    ({"observation_space": BYTES, "observation": np.array([0.5, 0.25])}, "uint8"),
    ({"observation_space": BYTES, "observation": np.array([0, 300])}, "uint8"),
    ({"observation_space": spaces.Discrete(3, start=1), "observation": 0}, "not in Discrete"),
    ({"observation_space": spaces.MultiDiscrete([2, 2]), "observation": np.array([0, 2])}, "not in Multi"),
    ({"observation_space": DICT}, "dict"),
    ({"observation_space": DICT, "observation": {"positio": ZEROS, "token": 0}}, "positio"),
    (
        {"observation_space": DICT, "observation": {"position": np.full(2, np.nan), "token": 0}},
        "position.*NaN",
    ),
    # Spaces
    ({"observation_space": spaces.Text(3)}, "Text"),
    ({"action_space": spaces.Dict({"word": spaces.Text(3)})}, "Text"),
    # Rewards and flags
    ({"reward": np.nan}, "reward"),
    ({"reward": None}, "reward"),
    ({"reward": np.zeros(1)}, "reward"),
    ({"terminated": None}, "terminated"),
    ({"truncated": {}}, "truncated"),
]


@pytest.mark.parametrize(("wrong", "named"), WRONG)
def test_wrong_env_is_refused(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ZooError, match=named):
        check_env(lambda: Custom(**wrong))


def test_missing_space_is_refused() -> None:
    def make() -> Any:
        env = Custom()
        del env.action_space
        return env

    with pytest.raises(ZooError, match="action_space"):
        check_env(make)


@pytest.mark.parametrize("given", [list, lambda: type("Old", (), {})(), 3])
def test_anything_but_an_env_is_refused(given: Any) -> None:
    with pytest.raises(ZooError, match="expected"):
        check_env(given)


def test_raising_env_shows_its_own_traceback() -> None:
    with pytest.raises(ZooError, match=r"Failing raised RuntimeError in step\(.*\):(.|\n)*lost its licence"):
        check_env(Failing)


PICTURES = [spaces.Box(0, 1, (32, 32, 3)), spaces.Box(0, 1, (84, 84), np.uint8)]


@pytest.mark.parametrize(
    ("strange", "finding"),
    [
        ({"observation": np.array([0.0, 2.0], dtype=np.float32)}, "bounds"),
        ({"action_space": spaces.Box(-np.inf, np.inf, (2,))}, "infinite"),
        *(
            ({"observation_space": box, "observation": np.zeros(box.shape, box.dtype)}, "picture")
            for box in PICTURES
        ),
        ({"reset": lambda env: (np.random.default_rng().random(2).astype(np.float32), {})}, "seed"),
    ],
)
def test_strange_env_is_let_through_with_a_warning(strange: dict[str, Any], finding: str) -> None:
    findings = check_env(lambda: Custom(**strange))
    assert any(re.search(finding, found) for found in findings)
    with pytest.warns(UserWarning, match=finding):
        make_vec_env(lambda: Custom(**strange), seed=0)


@pytest.mark.parametrize(
    ("action_space", "is_told"),
    [
        (spaces.Box(-100.0, 100.0, (2,)), True),
        (spaces.Box(0.0, 0.05, (1,)), True),
        (spaces.Dict({"arm": spaces.Box(0, 255, (1,), np.uint8)}), True),
        (spaces.Box(-2.0, 2.0, (2,)), False),
        (spaces.Box(0, 3, (1,), np.int64), False),
    ],
    ids=str,
)
def test_ranges_that_do_not_suit_gaussian_policies_are_told(action_space: Any, is_told: bool) -> None:
    findings = check_env(lambda: Custom(action_space=action_space))
    assert [bool("Gaussian" in finding) for finding in findings] == [True] * is_told
    with warnings.catch_warnings():  # other algorithms scale actions themselves
        warnings.simplefilter("error")
        make_vec_env(lambda: Custom(action_space=action_space))


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"observation": [0.0, 1.0]},
        {"observation": np.zeros(2)},
        {"observation": np.zeros(2, dtype=np.int64)},
        {"reward": np.float32(1.0), "terminated": np.bool_(False)},
        {"reward": 1, "truncated": 0},
        {"observation_space": spaces.Discrete(3, start=-1), "observation": np.int64(-1)},
        {"observation_space": spaces.MultiBinary(2), "observation": np.array([0, 1])},
        {"observation_space": DICT, "observation": {"position": ZEROS, "token": np.array(2)}},
        {"action_space": spaces.Discrete(3, start=-1)},
        {"observation_space": spaces.Box(0, 1, (3, 3), np.uint8), "observation": np.zeros((3, 3), np.uint8)},
        {"observation_space": spaces.Box(0, 255, (84, 84), np.uint8), "observation": np.zeros((84, 84), int)},
    ],
)
def test_fine_env_passes_without_a_word(fine: dict[str, Any]) -> None:
    assert check_env(lambda: Custom(**fine)) == []
    env = make_vec_env(lambda: Custom(**fine), 2, seed=0)
    env.reset()
    env.step(env.action_space.sample())


def test_training_env_and_global_generators_notice_nothing() -> None:
    class Global(Counting):
        def step(self, action: Any) -> Any:
            random.random()
            np.random.random()
            return super().step(action)

    random.seed(3)
    np.random.seed(3)
    expected = (random.random(), np.random.random())
    random.seed(3)
    np.random.seed(3)
    env = make_vec_env(Global, 1, seed=0)
    assert (random.random(), np.random.random()) == expected
    assert env.reset()[0].tolist() == [[0.0, 0.0]]


def test_given_instance_is_not_left_with_a_known_seed() -> None:
    firsts = []
    for _ in range(2):
        env = gym.wrappers.TimeLimit(Noisy(), 5)
        check_env(env)
        firsts.append(make_vec_env(env, check=False).reset()[0]["state"])
    assert not np.array_equal(*firsts)


class KeepingThePast(gym.Env[Any, Any]):
    """Draws from its own generator, and adds what it did before the reset."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: Any = spaces.Discrete(2)

    def __init__(self) -> None:
        self._n_steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self._n_steps += 1
        return self.np_random.normal(size=1) + self._n_steps, 0.0, False, False, {}


def test_env_whose_reset_keeps_the_past_is_told_to_be_renewed() -> None:
    [finding] = check_env(KeepingThePast)
    assert finding.startswith("KeepingThePast needs env.renew=true for exact resume: ")
    assert "went apart at step 1" in finding
    assert check_env(KeepingThePast, renew=True) == []
    [finding] = check_env(KeepingThePast())
    assert "given twice, went apart at step 1; it does not honour its seed" in finding


def test_env_that_ignores_its_seed_is_told_so_even_where_it_is_renewed() -> None:
    class Ignoring(KeepingThePast):
        def step(self, action: Any) -> Any:
            return np.random.normal(size=1), 0.0, False, False, {}

    for renew in (False, True):
        [finding] = check_env(Ignoring, renew=renew)
        assert "two new ones with the same seed and actions went apart at step 1" in finding


@pytest.mark.parametrize("env_id", ["BipedalWalker-v3", "LunarLander-v3"])
def test_env_that_needs_it_is_found_among_the_registered(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("Box2D")
    monkeypatch.setattr("zoo.envs.env_checker.REPEATED_SECONDS", 60.0)  # however busy the machine is
    needs_it = env_id == "BipedalWalker-v3"
    assert any("needs env.renew=true" in found for found in check_env(env_id, renew=False)) == needs_it
    assert not any("renew" in found for found in check_env(env_id))
