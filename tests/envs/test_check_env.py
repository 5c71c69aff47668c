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
FLAT = spaces.Box(np.array([0.0, -1.0]), np.array([0.0, 1.0]), dtype=np.float64)

WRONG: list[tuple[dict[str, Any], str]] = [
    # The old API
    ({"reset": lambda env: ZEROS}, r"reset\(\) returned .* \(the old API\?\); expected two"),
    (
        {"step": lambda env: (ZEROS, 0.0, False, {})},
        r"returned 4 values \(the old API: split `done`",
    ),
    ({"step": lambda env: None}, r"step\(\) returned nothing; expected five"),
    ({"reset": lambda env: (ZEROS, None)}, r"reset\(\) returned nothing as info; expected a dict"),
    ({"info": None}, r"step\(\) returned nothing as info; expected a dict"),
    # Shapes, types and values of observations
    ({"observation": np.zeros(3, dtype=np.float32)}, r"shape \(3,\); observation_space says \(2,\)"),
    ({"observation": np.zeros((1, 2), dtype=np.float32)}, r"shape \(1, 2\); .* says \(2,\)"),
    ({"observation": 0.5}, r"shape \(\); observation_space says \(2,\)"),
    ({"observation": "left"}, "is a str; expected numbers"),
    ({"observation": [0.0, None]}, "is a list; expected numbers"),
    ({"observation": [[0.0], [0.0, 1.0]]}, "is a list; expected numbers"),
    ({"observation": np.array([0.0, np.nan], dtype=np.float32)}, r"is NaN at \[1\]"),
    ({"observation_space": BYTES, "observation": np.array([0.5, 0.25])}, "does not fit in uint8; return"),
    ({"observation_space": BYTES, "observation": np.array([0, 300])}, "int64, which does not fit in uint8"),
    ({"observation_space": spaces.Discrete(3), "observation": 3}, "is 3, which is not in Discrete"),
    ({"observation_space": spaces.Discrete(3, start=1), "observation": 0}, "is 0, which is not in Discrete"),
    ({"observation_space": spaces.MultiDiscrete([2, 2]), "observation": np.array([0, 2])}, "is not in Multi"),
    ({"observation_space": DICT}, "expected a dict with the keys"),
    ({"observation_space": DICT, "observation": {"positio": ZEROS, "token": 0}}, "did you mean 'positio'"),
    (
        {"observation_space": DICT, "observation": {"position": np.array([0.0, np.nan]), "token": 0}},
        r"observation `position` of reset\(\) is NaN",
    ),
    # Spaces
    ({"observation_space": spaces.Text(3)}, "type Text is not supported"),
    ({"action_space": spaces.Dict({"word": spaces.Text(3)})}, "actions of type Text are not supported"),
    ({"action_space": FLAT}, "action space maximum and minimum values are equal"),
    # Rewards and flags
    ({"reward": np.nan}, "the reward is nan"),
    ({"reward": None}, "the reward is None"),
    ({"reward": np.zeros(1)}, r"the reward is an array of shape \(1,\)"),
    ({"terminated": None}, "terminated=None, nothing; expected True or False"),
    ({"truncated": {}}, "truncated=.*, a dict; expected True or False"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_env_is_refused_with_what_to_mend(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        check_env(lambda: Custom(**wrong))


def test_reset_without_a_seed_argument_is_refused() -> None:
    class Old(Custom):
        def reset(self) -> Any:  # type: ignore[override]
            return ZEROS

    with pytest.raises(
        ZooError, match=r"reset\(\) does not take `seed` \(the old API\); expected: def reset"
    ):
        check_env(Old)


def test_crossed_bounds_are_told() -> None:
    env = Custom()
    env.observation_space.low[1] = 3.0
    assert any("low value is greater than a high value" in found for found in check_env(env))


def test_missing_space_is_refused() -> None:
    def make() -> Any:
        env = Custom()
        del env.action_space
        return env

    with pytest.raises(ZooError, match=r"action_space is None; set self\.action_space"):
        check_env(make)


def test_anything_but_an_env_is_refused() -> None:
    def make_list() -> Any:
        return []

    with pytest.raises(ZooError, match=r"make_list made a list; expected a gymnasium\.Env$"):
        check_env(make_list)
    old = type("Old", (type("Env", (), {"__module__": "gym.core"}),), {})
    with pytest.raises(ZooError, match=r"made a Old; expected a gymnasium\.Env \(it is one of the old `gym`"):
        check_env(lambda: old())
    with pytest.raises(ZooError, match="env is a int; expected an id"):
        check_env(3)  # type: ignore[arg-type]


def test_raising_env_shows_its_own_traceback() -> None:
    with pytest.raises(ZooError, match=r"Failing raised RuntimeError in step\(.*\):(.|\n)*lost its licence"):
        check_env(Failing)


@pytest.mark.parametrize(
    ("strange", "finding"),
    [
        (
            {"observation": np.array([0.0, 2.0], dtype=np.float32)},
            r"is 2 at \[1\], outside the bounds \[-1, 1\] of observation_space; widen them",
        ),
        ({"action_space": spaces.Box(-np.inf, np.inf, (2,))}, "action_space has infinite bounds"),
        (
            {"observation_space": spaces.Box(0, 1, (32, 32, 3)), "observation": np.zeros((32, 32, 3))},
            "looks like a picture, but is read as numbers; declare pictures as uint8",
        ),
        *(
            (
                {
                    "observation_space": spaces.Box(0, 1, shape, np.uint8),
                    "observation": np.zeros(shape, np.uint8),
                },
                "from 0 to 1 looks like a picture",
            )
            for shape in ((84, 84), (84, 84, 1), (3, 64, 64))
        ),
        (
            {"observation_space": DICT, "observation": {"position": ZEROS, "token": 2, "tokens": 1}},
            "observations have `tokens`; did you mean 'token'",
        ),
        (
            {
                "observation_space": spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2),))}),
                "observation": {"a": (1, 7)},
            },
            "observations have `a/1`",
        ),
        (
            {"reset": lambda env: (np.random.default_rng().random(2).astype(np.float32), {})},
            "two new ones with the same seed and actions began differently; it does not honour its seed",
        ),
    ],
)
def test_strange_env_is_let_through_with_a_warning(strange: dict[str, Any], finding: str) -> None:
    findings = check_env(lambda: Custom(**strange))
    assert any(re.search(finding, found) for found in findings)
    with pytest.warns(UserWarning, match=finding):
        make_vec_env(lambda: Custom(**strange), seed=0)


@pytest.mark.parametrize(
    ("action_space", "range_told"),
    [
        (spaces.Box(-100.0, 100.0, (2,)), "from -100 to 100"),
        (spaces.Box(np.float32([-1, 0]), np.float32([1, 10])), r"from 0 to 10 at \[1\]"),
        (spaces.Box(0.0, 0.05, (1,)), "from 0 to 0.05"),
        (spaces.Dict({"arm": spaces.Box(0, 255, (1,), np.uint8)}), "`arm` goes from 0 to 255"),
        (spaces.Box(-2.0, 2.0, (2,)), None),
        (spaces.Box(-0.4, 0.4, (2,)), None),
        (spaces.Box(0, 3, (1,), np.int64), None),
    ],
    ids=str,
)
def test_ranges_that_do_not_suit_gaussian_policies_are_told(
    action_space: Any, range_told: str | None
) -> None:
    findings = check_env(lambda: Custom(action_space=action_space))
    assert len(findings) == (range_told is not None)
    assert range_told is None or re.search(range_told, findings[0])
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


def test_env_that_cannot_be_closed_is_let_through_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Clinging(Custom):
        def close(self) -> None:
            raise RuntimeError("not yet")

    assert check_env(Clinging) == []
    assert "Clinging: close() raised RuntimeError: not yet" in capsys.readouterr().err


def test_check_can_be_switched_off() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_vec_env(lambda: Custom(action_space=spaces.Box(-np.inf, np.inf, (2,))), check=False)


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
