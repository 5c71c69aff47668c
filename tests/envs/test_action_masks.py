"""Masks of valid actions: with every step, for what is shown and for what episodes ended with."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.envs import ActionMasker, EnvStepper, make_vec_env
from zoo.envs.action_masks import allowed_action, flat_mask
from zoo.envs.composite_spaces import leaf_spaces, leaves
from zoo.envs.spaces import choice_sizes, mask_size
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
        ends = np.cumsum(choice_sizes(self.action_space))
        for start, end in zip([0, *ends], ends, strict=False):
            self._mask[self.np_random.integers(start, end)] = True
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


@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_of_environments_in_other_processes(make: Any) -> None:
    assert_masks_are_those_of_the_observations(
        EnvStepper(AsyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.DISABLED))
    )


class Vectorised(VectorEnv[Any, Any, Any]):
    """Two environments in one array, which hold their masks themselves; each step ends an episode of one."""

    num_envs = 2
    single_observation_space: Any = spaces.Box(0, 1, (N,), np.int8)
    single_action_space: Any = spaces.Discrete(N)
    metadata: ClassVar[Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, *, lengthened: int = 0) -> None:
        self.lengthened = lengthened

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._rng = np.random.default_rng(0)
        self.n_steps = 0
        return self._draw(), {}

    def step(self, actions: Any) -> Any:
        self.n_steps += 1
        ends = np.arange(2) == self.n_steps % 3
        return self._draw(), np.zeros(2), ends, np.zeros(2, bool), {}

    def action_masks(self) -> Any:
        return np.concatenate([self._masks, np.ones((2, self.lengthened), bool)], axis=1)

    def _draw(self) -> Any:
        self._masks = np.arange(N) <= self._rng.integers(N, size=(2, 1))
        return self._masks.astype(np.int8)


def test_vector_env_may_say_all_masks_itself() -> None:
    envs = EnvStepper(Vectorised())
    shown = envs.reset([0, 1])
    for _ in range(20):
        assert np.array_equal(envs.action_masks(), shown)
        step = envs.step([0, 0])
        shown = step.observations
        assert np.array_equal(step.action_masks, shown)
        if len(step.finished):
            assert np.array_equal(step.final_action_masks, shown[step.finished])


def test_mask_of_a_wrong_size_in_another_vector_env_is_refused() -> None:
    with pytest.raises(ZooError, match=r"^env 0 .*gave a mask of 13 actions; Discrete\(12\) takes 12"):
        EnvStepper(Vectorised(lengthened=1)).reset([0, 1])


# Masks that are ignored


@pytest.mark.parametrize("options", [{}, WORKERS, {"nan_check": True}], ids=["sync", "workers", "checked"])
@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_can_be_ignored(make: Any, options: dict[str, Any]) -> None:
    envs = EnvStepper(make_vec_env(make, 2, check=False, mask_actions=False, **options))
    envs.reset([0, 1])
    steps = [envs.step([2, 2]) for _ in range(8)]
    assert envs.mask_size is None
    assert envs.action_masks() is None
    assert all(step.action_masks is step.final_action_masks is None for step in steps)
    assert envs.env.unwrapped.get_attr("asked") == (0, 0)
    envs.close()


def test_masks_of_other_vector_envs_can_be_ignored() -> None:
    for other in (SyncVectorEnv([lambda: Telling(in_info=True)] * 2), Vectorised()):
        other.mask_actions = False  # type: ignore[attr-defined]
        envs = EnvStepper(other)
        envs.reset([0, 1])
        assert envs.step([2, 2]).action_masks is envs.mask_size is None


def test_masks_that_make_no_sense_can_be_ignored() -> None:
    box = spaces.Box(-1.0, 1.0, (2,))
    envs = EnvStepper(make_vec_env(lambda: Asked(box), 2, mask_actions=False))
    envs.reset([0, 1])
    assert envs.step(np.zeros((2, 2))).action_masks is None


# Masks that allow nothing


class Closing(Telling):
    """Allows nothing for one of its choices from the third step on; says so as ``how`` it is told."""

    def __init__(self, space: Any = None, *, in_info: bool = True, ends: str = "") -> None:
        super().__init__(space or spaces.Discrete(N, start=2), in_info)
        self.ends = ends

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        is_third = self._n_steps == 3
        return (
            observation,
            reward,
            is_third and self.ends == "terminated",
            is_third and self.ends == "cut",
            info,
        )

    def _draw(self) -> Any:
        observation, info = super()._draw()
        if self._n_steps == 3:
            self._mask[: choice_sizes(self.action_space)[0]] = False
            observation = self._mask.astype(np.int8)
            info = {"action_mask": self._mask} if self._in_info else {}
        return observation, info


class AskedClosing(Closing):
    def action_masks(self) -> Any:
        return self._mask


def stepped(envs: EnvStepper, n: int, action: Any = 2) -> list[Any]:
    envs.reset([7, 8])
    return [envs.step(np.stack([np.asarray(action)] * 2)) for _ in range(n)]


@pytest.mark.parametrize("options", [{}, WORKERS], ids=["sync", "workers"])
@pytest.mark.parametrize("make", [lambda: AskedClosing(in_info=False), Closing], ids=["method", "info"])
def test_state_that_allows_no_action_names_env_and_step(make: Any, options: dict[str, Any]) -> None:
    envs = EnvStepper(make_vec_env(make, 2, check=False, **options))
    with pytest.raises(ZooError, match=r"^env 0 \(step 3 after seed 7\) allows no action: its mask is all"):
        stepped(envs, 4)
    envs.close()


def test_choice_that_is_left_nothing_is_numbered() -> None:
    envs = EnvStepper(make_vec_env(lambda: Closing(spaces.MultiDiscrete([5, 4, 3])), 2, check=False))
    with pytest.raises(ZooError, match=r"allows no action for choice 1 of 3: its mask is all false there"):
        stepped(envs, 4, [0, 0, 0])


def test_state_in_another_vector_env_that_allows_no_action_names_env_and_step() -> None:
    envs = EnvStepper(SyncVectorEnv([lambda: Telling(in_info=True), Closing]))
    with pytest.raises(ZooError, match=r"^env 1 \(step 3 of its episode\) allows no action"):
        stepped(envs, 4)


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
@pytest.mark.parametrize("make", [partial(AskedClosing, in_info=False), Closing], ids=["asked", "info"])
def test_end_of_a_game_need_allow_nothing_but_a_time_limit_must(mode: Any, make: Any) -> None:
    def envs(ends: str) -> EnvStepper:
        makers = [lambda: make(ends=ends)] * 2
        if mode is None:
            return EnvStepper(make_vec_env(makers[0], 2, check=False))
        return EnvStepper(SyncVectorEnv(makers, autoreset_mode=mode))

    steps = stepped(envs("terminated"), 8)
    assert sum(len(step.finished) for step in steps) == 4
    for step in steps:
        assert step.action_masks.any(-1).all()
        if len(step.finished):
            assert step.final_action_masks.all()
    nobody_asked = make is not Closing and mode is AutoresetMode.SAME_STEP
    if not nobody_asked:
        with pytest.raises(ZooError, match=r"^env 0 \(step 3 .* allows no action"):
            stepped(envs("cut"), 4)


def test_masks_that_were_there_before_are_missed() -> None:
    class Silent(Telling):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {}

    others = EnvStepper(SyncVectorEnv([lambda: Silent(in_info=True)] * 2))
    ours = EnvStepper(make_vec_env(lambda: Silent(in_info=True), 2, check=False))
    for envs in (ours, others):
        with pytest.raises(ZooError, match=r"^env 0 .*gave no `action_mask` in its info, but did"):
            stepped(envs, 1)


# Nested masks, and actions that they allow

PARTS = spaces.Dict(
    {
        "arm": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-1.0, 1.0, (2,)))),
        "bits": spaces.MultiBinary(2),
        "gear": spaces.MultiDiscrete([2, 3]),
    }
)


def test_masks_of_parts_may_be_nested_as_the_action_is() -> None:
    given = {"arm": ([1, 0, 1], None), "gear": [np.array([0, 1]), np.array([1, 0, 0])]}
    expected = [1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0]
    assert flat_mask(given, PARTS).astype(int).tolist() == expected
    assert flat_mask(expected, PARTS).astype(int).tolist() == expected
    assert flat_mask({"arm": None}, PARTS).all()
    assert flat_mask({"arm": (None, None), "bits": [1, 0, 0, 1]}, PARTS).sum() == 10


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"gears": [1] * 5}, "a mask for `gears`, which is no part of Dict"),
        ({"arm": ([1, 1, 1],)}, r"masks for 1 parts; Tuple\(Discrete\(3, start=1\), Box.* has 2"),
        ({"arm": ([1, 1], None)}, r"a mask of 2 actions; Discrete\(3, start=1\) takes 3"),
        ({"arm": (None, [1, 1])}, r"a mask of 2 actions; Box\(2,\) float32 takes 0"),
    ],
)
def test_nested_masks_that_do_not_fit_are_refused(mask: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        flat_mask(mask, PARTS)


@pytest.mark.parametrize(
    "space", [*SPACES, PARTS, spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [2, 3]])]
)
def test_allowed_actions_are_those_of_the_mask(space: Any) -> None:
    rng, sizes = np.random.default_rng(0), choice_sizes(space)
    space.seed(0)
    starts = np.cumsum([0, *sizes[:-1]])
    taken: set[int] = set()
    for _ in range(100):
        mask = rng.random(sum(sizes)) < 0.3
        mask[starts + rng.integers(sizes)] = True
        action = allowed_action(space, mask)
        assert space.contains(action)
        parts = dict(leaves(space, action))
        counted = [
            np.ravel(parts[path] - getattr(leaf, "start", 0))
            for path, leaf in leaf_spaces(space)
            if path != "arm/1"
        ]
        chosen = np.concatenate(counted) + starts
        assert mask[chosen].all()
        taken.update(chosen.tolist())
    assert taken == set(range(sum(sizes)))


# The wrapper


def evens(env: Any) -> Any:
    return np.arange(env.unwrapped.action_space.n) % 2 == 0


class Moving(gym.Env[Any, Any]):
    observation_space: Any = spaces.Discrete(5)
    action_space: Any = spaces.Discrete(4)
    nothing_but_two = np.arange(4) == 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.place = min(self.place + 1, 4)
        return self.place, 0.0, False, False, {}

    def valid_moves(self) -> Any:
        return np.arange(4) <= self.place


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (evens, [1, 0, 1, 0]),
        ("valid_moves", [1, 1, 0, 0]),
        ("nothing_but_two", [0, 0, 1, 0]),
        (f"{__name__}.evens", [1, 0, 1, 0]),
    ],
)
def test_masker_asks_a_function_or_a_method_by_name(function: Any, expected: list[int]) -> None:
    masker = {"_target_": "ActionMasker", "action_mask_fn": function}
    in_config = make_vec_env(Moving, 1, wrappers=[masker])
    in_python = make_vec_env(lambda: ActionMasker(Moving(), function), 1)
    for made in (in_config, in_python):
        envs = EnvStepper(made)
        envs.reset([0])
        assert envs.step([0]).action_masks.astype(int).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "valid_move",
            "ActionMasker: Moving has no method `valid_move`; a function of a module is",
        ),
        (f"{__name__}.evenness", "has no function `evenness`"),
        ("no_such_module.evens", "ActionMasker: no_such_module.evens: No module named 'no_such_module'"),
    ],
)
def test_masker_without_such_a_function_is_refused(name: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_vec_env(Moving, 1, wrappers=[{"_target_": "ActionMasker", "action_mask_fn": name}])


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
