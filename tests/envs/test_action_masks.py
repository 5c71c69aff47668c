"""Masks of valid actions: with every step, for what is shown and for what episodes ended with."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.make_env import make_vec_env
from zoo.envs.masks import ActionMasker, flat_mask, sample_valid_action
from zoo.envs.spaces import choice_sizes, leaf_spaces, leaves, mask_size
from zoo.envs.vec_env import SyncVecEnv
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


def assert_masks_are_those_of_the_observations(envs: VecEnvAdapter) -> None:
    """All is allowed where an episode is over: a next-step environment shows that, others only at the end."""
    shown = envs.reset(range(envs.num_envs))
    assert envs.mask_size == N
    n_cut = n_over = 0
    for _ in range(30):
        assert np.array_equal(envs.action_masks(), shown)
        step = envs.step(np.stack([envs.action_space.sample()] * envs.num_envs))
        shown = step.new_observations
        assert step.new_action_masks is not None
        assert step.new_action_masks.dtype == np.bool_
        if envs.next_step_autoreset:
            shown = np.where(step.terminated[:, None], 1, shown)
        assert np.array_equal(step.new_action_masks, shown)
        assert (step.final_action_masks is None) == (len(step.finished) == 0)
        if len(step.finished):
            is_over = step.terminated[step.finished]
            expected = np.where(is_over[:, None], 1, step.final_observations)
            assert np.array_equal(step.final_action_masks, expected)
            n_cut, n_over = n_cut + (~is_over).sum(), n_over + is_over.sum()
    assert min(n_cut, n_over) > 1
    envs.close()


@pytest.mark.parametrize("options", [{}, WORKERS], ids=["sync", "workers"])
@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_are_those_of_what_is_shown(make: Any, options: dict[str, Any]) -> None:
    assert_masks_are_those_of_the_observations(make_adapter(make_vec_env(make, 3, check=False, **options)))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_masks_of_every_space_that_has_them(space: Any) -> None:
    assert mask_size(space) == N
    assert_masks_are_those_of_the_observations(
        make_adapter(make_vec_env(lambda: Asked(space), 2, check=False))
    )


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_masks_in_infos_of_other_vector_envs(mode: AutoresetMode) -> None:
    others = SyncVectorEnv([lambda: Telling(in_info=True)] * 2, autoreset_mode=mode)
    assert_masks_are_those_of_the_observations(make_adapter(others))


@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_of_environments_in_other_processes(make: Any) -> None:
    assert_masks_are_those_of_the_observations(
        make_adapter(AsyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.DISABLED))
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
    envs = make_adapter(Vectorised())
    shown = envs.reset([0, 1])
    for _ in range(20):
        assert np.array_equal(envs.action_masks(), shown)
        step = envs.step([0, 0])
        shown = step.new_observations
        is_over = step.terminated
        assert np.array_equal(step.new_action_masks[~is_over], shown[~is_over])
        assert step.new_action_masks[is_over].all()
        shown = step.new_action_masks
        if len(step.finished):
            assert step.final_action_masks.all()


# Masks that are ignored
@pytest.mark.parametrize("make", [Asked, lambda: Telling(in_info=True)], ids=["method", "info"])
def test_masks_can_be_ignored(make: Any) -> None:
    envs = make_adapter(make_vec_env(make, 2, check=False, mask_actions=False))
    envs.reset([0, 1])
    steps = [envs.step([2, 2]) for _ in range(8)]
    assert envs.mask_size is None
    assert envs.action_masks() is None
    assert all(step.new_action_masks is step.final_action_masks is None for step in steps)
    assert envs.env.unwrapped.get_attr("asked") == (0, 0)
    envs.close()


# Masks that allow nothing
class Closing(Telling):
    """Allows nothing for one of its choices from the third step on; says so as ``how`` it is told."""

    def __init__(self, space: Any = None, *, in_info: bool = True, ends: str = "") -> None:
        super().__init__(space or spaces.Discrete(N, start=2), in_info)
        self.ends = ends

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        is_third = self._n_steps == 3
        ends = is_third and self.ends == "terminated", is_third and self.ends == "cut"
        return observation, reward, *ends, info

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


def stepped(envs: VecEnvAdapter, n: int, action: Any = 2) -> list[Any]:
    envs.reset([7, 8])
    return [envs.step(np.stack([np.asarray(action)] * 2)) for _ in range(n)]


@pytest.mark.parametrize("options", [{}, WORKERS], ids=["sync", "workers"])
def test_empty_mask_error_names_env_and_step(options: dict[str, Any]) -> None:
    envs = make_adapter(make_vec_env(Closing, 2, check=False, **options))
    with pytest.raises(ZooError, match=r"^env 0 \(step 3 after seed 7\): the mask allows no action;"):
        stepped(envs, 4)
    envs.close()


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
@pytest.mark.parametrize("make", [partial(AskedClosing, in_info=False), Closing], ids=["asked", "info"])
def test_only_terminal_states_may_have_empty_masks(mode: Any, make: Any) -> None:
    def envs(ends: str) -> VecEnvAdapter:
        makers = [lambda: make(ends=ends)] * 2
        if mode is None:
            return make_adapter(make_vec_env(makers[0], 2, check=False))
        return make_adapter(SyncVectorEnv(makers, autoreset_mode=mode))

    steps = stepped(envs("terminated"), 8)
    assert sum(len(step.finished) for step in steps) == 4
    for step in steps:
        assert step.new_action_masks.any(-1).all()
        if len(step.finished):
            assert step.final_action_masks.all()
    nobody_asked = make is not Closing and mode is AutoresetMode.SAME_STEP
    if not nobody_asked:
        with pytest.raises(ZooError, match=r"^env 0 \(step 3 .* allows no action"):
            stepped(envs("cut"), 4)


# Masks that come too late, or not always
class Late(Telling):
    """Tells masks with its steps alone."""

    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0], {}


def test_mask_missing_from_reset_is_refused() -> None:
    envs = make_adapter(make_vec_env(lambda: Late(in_info=True), 2, check=False))
    with pytest.raises(ZooError, match=r"^env 0 \(step 1 after seed 7\) gave `action_mask` in a step"):
        stepped(envs, 1)
    envs.close()


@pytest.mark.parametrize("ours", [True, False])
def test_mask_missing_from_one_reset_names_the_env(ours: bool) -> None:
    for silent in (0, 1):
        makers: list[Any] = [lambda: Telling(in_info=True)] * 2
        makers[silent] = lambda: Late(in_info=True)
        envs = make_adapter(SyncVecEnv(makers) if ours else SyncVectorEnv(makers))
        with pytest.raises(ZooError, match=rf"^env {silent} .*`action_mask`"):
            envs.reset([7, 8])


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
    "mask",
    [
        {"gears": [1] * 5},
        {"arm": ([1, 1, 1],)},
        {"arm": ([1, 1], None)},
        {"gear": [np.ones(3), np.ones(2)]},
        {"arm": {"hand": [1, 1, 1]}},
        ([1, 1, 1], None),
    ],
)
def test_nested_masks_that_do_not_fit_are_refused(mask: Any) -> None:
    with pytest.raises(ZooError, match="mask"):
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
        action = sample_valid_action(space, mask)
        assert space.contains(action)
        parts = dict(leaves(space, action))
        chosen_of = [(path, leaf) for path, leaf in leaf_spaces(space) if path != "arm/1"]
        counted = [np.ravel(parts[path] - getattr(leaf, "start", 0)) for path, leaf in chosen_of]
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
        envs = make_adapter(made)
        envs.reset([0])
        assert envs.step([0]).new_action_masks.astype(int).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("valid_move", "ActionMasker.*no attribute 'valid_move'.*action_mask_fn=my_module.my_function"),
        (f"{__name__}.evenness", "evenness"),
        ("no_such_module.evens", "ActionMasker: No module named 'no_such_module'"),
    ],
)
def test_masker_without_such_a_function_is_refused(name: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_vec_env(Moving, 1, wrappers=[{"_target_": "ActionMasker", "action_mask_fn": name}])


@pytest.mark.parametrize(
    "mask", [np.array([-1e9, 0.0, 0.0, 0.0]), np.full(4, np.nan), "0110", {"valid": [0, 1]}, None]
)
def test_mask_that_holds_no_truth_is_refused(mask: Any) -> None:
    """What is added to logits elsewhere would allow just what it forbids."""
    env = gym.wrappers.TimeLimit(Telling(spaces.Discrete(4)), 5)
    vector = make_vec_env(lambda: ActionMasker(env, lambda _: mask), 1, check=False)
    with pytest.raises(ZooError, match=r"env 0.*mask"):
        make_adapter(vector).reset()


def test_actions_that_cannot_be_masked_are_refused() -> None:
    box = spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(ZooError, match=r"actions of Box\(2,\) float32 cannot be masked"):
        make_vec_env(lambda: Asked(box), check=False)
