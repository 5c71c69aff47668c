"""What may be said of environments, by id, class or function: it works, or is refused by name."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scripted import Counting, Failing, Noisy

import zoo
from zoo import PPO2, SAC
from zoo.envs.config import EnvConfig, env_config
from zoo.envs.env_checker import check_env
from zoo.envs.make_env import make_vec_env
from zoo.envs.registry import PACKAGES, folder_name, missing_packages_named, resolve, with_registered_env
from zoo.errors import ZooError, ZooWarning

SMALL = {"net_arch": [4]}
LIMITED: dict[str, Any] = {"max_episode_steps": 1000}


class Counter(gym.Env[Any, Any]):
    """Observes ``n``; never ends."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, n: int = 1, render_mode: str | None = None) -> None:
        self.n, self.render_mode = n, render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([self.n], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([self.n], np.float32), 0.0, False, False, {}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.n, np.uint8)


def make_counter(n: int = 1, render_mode: str | None = None) -> Counter:
    return Counter(n, render_mode)


def test_class_that_is_registered_has_its_id() -> None:
    assert with_registered_env({"env": Counter, "seed": 1}) == {"env": "Counter-v0", "seed": 1}


@pytest.fixture(autouse=True)
def registered() -> Any:
    gym.register("Counter-v0", Counter, max_episode_steps=20)
    yield
    del gym.registry["Counter-v0"]


@pytest.mark.parametrize("env", [Counter, make_counter, lambda **given: Counter(**given), "Counter-v0"])
@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_kwargs_and_render_mode_reach_the_env_factory(env: Any, vectorization: str) -> None:
    where = {"vectorization": vectorization, "start_method": "fork"}
    envs = make_vec_env(env, 2, kwargs={"n": 5}, render_mode="rgb_array", **where)
    observations, _ = envs.reset()
    assert observations.tolist() == [[5.0], [5.0]]
    assert envs.render_mode == "rgb_array"
    assert [int(frame.max()) for frame in envs.render()] == [5, 5]
    envs.close()


@pytest.mark.parametrize(
    ("env", "options", "named"),
    [
        (Counter, {"kwargs": {"m": 5}}, "'m'"),
        (lambda: Counter(), {"kwargs": {"n": 5}}, "'n'"),
        (lambda: Counter(), {"render_mode": "rgb_array"}, r"env\.render_mode"),
        (Counter(), {"kwargs": {"n": 5}}, r"env\.kwargs"),
        (Counter(), {"render_mode": "rgb_array"}, r"env\.render_mode"),
        (
            lambda: gym.wrappers.TimeLimit(Counter(), 9),
            {"max_episode_steps": 10},
            r"max_episode_steps=10.* 9 ",
        ),
        (lambda: gym.make("Counter-v0"), {"max_episode_steps": None}, r"max_episode_steps=null.* 20 "),
    ],
)
def test_what_would_be_ignored_is_refused_by_name(env: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ZooError, match=named):
        make_vec_env(env, 1, **options)


# -- the time limit ---------------------------------------------------------------------------------------
def longest(env: Any, n_steps: int = 600, **options: Any) -> int:
    """Return the steps of the first episode, at most ``n_steps``."""
    envs = make_vec_env(env, 1, seed=0, **options)
    envs.reset()
    for n in range(1, n_steps + 1):
        *_, terminated, truncated, _ = envs.step(np.zeros((1, *envs.single_action_space.shape), np.int64))
        if terminated[0] or truncated[0]:
            return n
    return n_steps


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 20),
        ({"max_episode_steps": None}, 600),
        ({"max_episode_steps": 7}, 7),
        ({"max_episode_steps": 70}, 70),
    ],
)
def test_time_limit(options: dict[str, Any], steps: int) -> None:
    assert longest("Counter-v0", **options) == longest(EnvConfig("Counter-v0"), **options) == steps


def test_unsupported_max_episode_steps_is_refused() -> None:
    with pytest.raises(ZooError, match=r"max_episode_steps=null"):
        make_vec_env("CartPole-v1", 1, vectorization="native", max_episode_steps=None)
    with pytest.raises(ZooError, match="max_episode_steps"):
        env_config("CartPole-v1", max_episode_steps="never")


@pytest.mark.parametrize("limit", ["auto", None, 9])
def test_agents_keep_the_time_limit(tmp_path: Path, limit: Any) -> None:
    PPO2(SMALL, EnvConfig("CartPole-v1", max_episode_steps=limit), compile=False).save(tmp_path / "agent")
    assert zoo.load(tmp_path / "agent").env_config.max_episode_steps == limit


@pytest.mark.parametrize(
    ("env_id", "folder"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("my.module:My-v0", "my.module-My-v0"),
        ("../../etc", "etc"),
        ("a b\\c", "a-b-c"),
    ],
)
def test_folder_name_is_one_safe_name(env_id: str, folder: str) -> None:
    assert folder_name(env_id) == folder


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", "unknown environment CartPol-v1; did you mean 'CartPole-v1'"),
        ("CartPole-v7", "unknown environment CartPole-v7; there is CartPole-v0, CartPole-v1"),
        ("Qqqqqqqqqqqqqqq-v0", "if a package registers it, write `module:Qqqqqqqqqqqqqqq-v0`"),
        ("CartPoll-v1", "One of your own is `module:CartPoll-v1`"),
        ("toy_envs:Qqqqqqqqqqqqqqq-v3", r"toy_envs has none: gymnasium.register\('Qqqqqqqqqqqqqqq-v0'"),
        ("Grid-v0", "if a package registers it, write `module:Grid-v0`"),  # not AirRaid
        ("Frozen-v0", "if a package registers it, write `module:Frozen-v0`"),
        ("CartPole v1", "did you mean 'CartPole-v1'"),
        (":", "expected `module:Id`"),
        ("no_such_module:X-v0", "no module `no_such_module`"),
        ("Identity-v0", "Zoo/Identity-v0"),
    ],
)
def test_unknown_id_is_explained(env_id: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_vec_env(env_id)


@pytest.mark.parametrize(
    ("env_id", "command"),
    [
        ("ALE/Nowhere-v5", "pip install ale-py opencv-python-headless"),
        ("NowhereNoFrameskip-v4", "pip install ale-py opencv-python-headless"),
        ("NowhereBulletEnv-v0", "pip install pybullet-envs-gymnasium pybullet"),
        ("PandaNowhere-v3", "pip install gymnasium-robotics highway-env panda-gym"),
        ("MiniGrid-Nowhere-v0", "pip install minigrid"),
        ("MinAtar/Nowhere-v1", "pip install minatar"),
    ],
)
def test_missing_package_error_gives_install_command(
    env_id: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = set(PACKAGES.values())
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    with pytest.raises(ZooError) as caught:
        resolve(env_id)
    assert str(caught.value) == f"{env_id} needs: {command}"


@pytest.mark.parametrize(
    ("env_id", "command"),
    [("LunarLander-v3", "pip install box2d"), ("Hopper-v5", "pip install imageio mujoco")],
)
def test_missing_simulator_error_gives_install_command(env_id: str, command: str) -> None:
    with pytest.raises(ZooError) as caught, missing_packages_named(resolve(env_id)):
        raise gym.error.DependencyNotInstalled("simulator is not installed")
    assert command in str(caught.value)


def test_id_with_a_module_imports_the_module_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plugin.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('FromPlugin-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make_vec_env("my_plugin:FromPlugin-v0").spec.id == "FromPlugin-v0"
    sys.modules.pop("my_plugin")
    gym.registry.pop("FromPlugin-v0")


def test_module_that_lacks_a_package_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_broken_plugin.py").write_text("import no_such_simulator\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZooError, match="needs `no_such_simulator`: pip install no_such_simulator"):
        make_vec_env("my_broken_plugin:X-v0")


class Custom(gym.Env[Any, Any]):
    """An environment of which one thing at a time can be made wrong."""

    def __init__(
        self,
        observation_space: Any = None,
        action_space: Any = None,
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
    ({"info": {"action_mask": None}}, "action_mask"),
    # Shapes, types and values of observations
    ({"observation": np.zeros(3, dtype=np.float32)}, r"\(3,\)"),
    ({"observation": np.zeros((1, 2), dtype=np.float32)}, r"\(1, 2\)"),
    ({"observation": "left"}, "numbers"),
    ({"observation": ZEROS.astype(object)}, "numbers"),
    ({"observation": [[0.0], [0.0, 1.0]]}, "numbers"),
    ({"observation": np.array([0.0, np.nan], dtype=np.float32)}, "NaN"),
    ({"observation_space": BYTES, "observation": np.array([0.5, 0.25])}, "uint8"),
    ({"observation_space": BYTES, "observation": np.array([0, 300])}, "uint8"),
    (
        {"observation_space": spaces.Box(-1.0, 1.0, (2,), np.float64), "observation": np.full(2, 1e300)},
        "32 b",
    ),
    ({"observation_space": spaces.Discrete(3, start=1), "observation": 0}, "not within 1 to 3"),
    (
        {"observation_space": spaces.MultiDiscrete([2, 2]), "observation": np.array([0, 2])},
        "not within 0 to 1",
    ),
    ({"observation_space": DICT}, "dict"),
    ({"observation_space": DICT, "observation": {"positio": ZEROS, "token": 0}}, "positio"),
    (
        {"observation_space": DICT, "observation": {"position": np.full(2, np.nan), "token": 0}},
        "position.*NaN",
    ),
    # Spaces
    ({"observation_space": spaces.Text(3)}, "Text"),
    ({"action_space": spaces.Dict({"word": spaces.Text(3)})}, "Text"),
    ({"action_space": spaces.Box(-1.0, 1.0, (0,))}, "no number"),
    ({"action_space": spaces.Box(np.ones(2), np.ones(2))}, "equal"),
    # Rewards and flags
    ({"reward": np.nan}, "reward"),
    ({"reward": 1e300}, "reward"),
    ({"reward": None}, "reward"),
    ({"reward": np.zeros(1)}, "reward"),
    ({"terminated": None}, "terminated"),
    ({"terminated": np.array(False)}, "terminated"),
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


def test_step_of_old_gym_is_told_behind_a_time_limit() -> None:
    old = Custom(step=lambda env: (ZEROS, 0.0, False, {}))
    with pytest.raises(ZooError, match="five values"):
        check_env(lambda: gym.wrappers.TimeLimit(old, 10))


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
            ({"observation_space": box, "observation": np.zeros(box.shape, box.dtype)}, "image")
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
def test_check_env_reports_non_gaussian_action_ranges(action_space: Any, is_told: bool) -> None:
    findings = check_env(lambda: Custom(action_space=action_space), **LIMITED)
    assert [bool("Gaussian" in finding) for finding in findings] == [True] * is_told
    with warnings.catch_warnings():  # other algorithms scale actions themselves
        warnings.simplefilter("error")
        make_vec_env(lambda: Custom(action_space=action_space))


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"observation": [0.0, 1.0]},
        {"observation": np.zeros(2, dtype=np.int64)},
        {"reward": 1, "truncated": 0},
        {"observation_space": spaces.Discrete(3, start=-1), "observation": np.int64(-1)},
        {"observation_space": DICT, "observation": {"position": ZEROS, "token": np.array(2)}},
        {"observation_space": spaces.Box(0, 1, (3, 3), np.uint8), "observation": np.zeros((3, 3), np.uint8)},
        {"observation_space": spaces.Box(0, 255, (84, 84), np.uint8), "observation": np.zeros((84, 84), int)},
    ],
)
def test_fine_env_passes_without_a_word(fine: dict[str, Any]) -> None:
    assert check_env(lambda: Custom(**fine), **LIMITED) == []
    env = make_vec_env(lambda: Custom(**fine), 2, seed=0)
    env.reset()
    env.step(env.action_space.sample())


def test_env_check_leaves_env_and_global_rngs_alone() -> None:
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


def test_check_resets_with_the_given_seed() -> None:
    seeds = []

    class Seeded(Counter):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seeds.append(seed)
            return super().reset(seed=seed, options=options)

    check_env(Seeded, seed=7)
    assert {7} <= set(seeds) <= {7, None}


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


def test_check_env_advises_renew_if_reset_keeps_state() -> None:
    [finding] = check_env(KeepingThePast, **LIMITED)
    assert finding.startswith("KeepingThePast needs env.renew=true for exact resume: ")
    assert "went apart at step 1" in finding
    assert check_env(KeepingThePast, renew=True, **LIMITED) == []
    [finding] = check_env(KeepingThePast(), **LIMITED)
    assert "given twice, went apart at step 1; it does not honour its seed" in finding


def test_check_env_reports_ignored_seed_despite_renew() -> None:
    class Ignoring(KeepingThePast):
        def step(self, action: Any) -> Any:
            return np.random.normal(size=1), 0.0, False, False, {}

    for renew in (False, True):
        [finding] = check_env(Ignoring, renew=renew, **LIMITED)
        assert "two new ones with the same seed and actions went apart at step 1" in finding


VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Odd(gym.Env[Any, Any]):
    """Shows samples of its observation space, in episodes of seven steps; what is odd is done to them."""

    def __init__(
        self,
        *,
        seen: spaces.Space[Any] = VECTOR,
        done: spaces.Space[Any] | None = None,
        observation: Callable[[Any], Any] = lambda sample: sample,
        reward: Callable[[Any], Any] = float,
        flag: Callable[[Any], Any] = bool,
        info: Callable[[int], Any] = lambda step: {},
    ) -> None:
        self.observation_space = seen
        self.action_space = spaces.Discrete(2) if done is None else done
        self.as_shown, self.as_reward, self.as_flag, self.info = observation, reward, flag, info
        self.steps = self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.as_shown(self.observation_space.sample()), self.info(0)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        is_over = self.steps == 7
        flags = self.as_flag(is_over and self.episodes % 2), self.as_flag(is_over)
        shown = self.as_shown(self.observation_space.sample())
        return shown, self.as_reward(self.steps % 3), *flags, self.info(self.steps)


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spaces.Box(low, high, shape, dtype)


def read_only(sample: Any) -> Any:
    sample.flags.writeable = False
    return sample


PARTS = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)})
NUMBERS = [np.uint8, np.int64, np.float16, np.float64]

ODD: dict[str, dict[str, Any]] = {
    "reward: a truth value": {"reward": bool},
    "reward: array without dimensions": {"reward": np.array},
    "flags: NumPy's": {"flag": np.bool_},
    "flags: whole numbers": {"flag": int},
    "observation: list": {"observation": lambda o: o.tolist()},
    "observation: float64": {"observation": lambda o: o.astype(np.float64)},
    "observation: backwards": {"observation": lambda o: o[::-1]},
    "observation: read only": {"observation": read_only},
    "info: episode is a counter": {"info": lambda step: {"episode": step}},
    "info: final_obs and final_info": {"info": lambda step: {"final_obs": 1, "final_info": 2}},
    "info: a large array, now and then": {"info": lambda n: {"x": np.zeros((50, 50))} if n % 2 else {}},
    "info: of several kinds": {"info": lambda step: {"x": [1, None, "three", np.zeros(1)][step % 4]}},
    "info: keys that are no texts": {"info": lambda step: {1: 2, None: 3}},
    **{f"seen: Box of {np.dtype(dtype)}": {"seen": box(0, 100, (3,), dtype)} for dtype in NUMBERS},
    "seen: Box of truth values": {"seen": box(0, 1, (3,), np.bool_)},
    "seen: Box of ()": {"seen": box(-1, 1, (), np.float32)},
    "seen: Box without bounds": {"seen": box(-np.inf, np.inf, (3,), np.float32)},
    "seen: board": {"seen": box(0, 1, (3, 3), np.uint8)},
    "seen: picture": {"seen": box(0, 255, (12, 12, 3), np.uint8)},
    "seen: Discrete from -1": {"seen": spaces.Discrete(3, start=-1)},
    "seen: MultiDiscrete": {"seen": spaces.MultiDiscrete([2, 3], start=[1, -1])},
    "seen: MultiBinary": {"seen": spaces.MultiBinary(4)},
    "seen: Dict": {"seen": PARTS},
    "seen: nested": {"seen": spaces.Dict({"a": spaces.Tuple((VECTOR, spaces.Dict({"b": VECTOR})))})},
    **{f"done: Box of {np.dtype(dtype)}": {"done": box(0, 3, (2,), dtype)} for dtype in NUMBERS},
    "done: Box of truth values": {"done": box(0, 1, (2,), np.bool_)},
    "done: Box of ()": {"done": box(-1, 1, (), np.float32)},
    "done: Box of two dimensions": {"done": box(-2, 1, (2, 2), np.float64)},
    "done: Box without bounds": {"done": box(-np.inf, np.inf, (2,), np.float32)},
    "done: Discrete from -1": {"done": spaces.Discrete(3, start=-1)},
    "done: MultiDiscrete": {"done": spaces.MultiDiscrete([2, 3], start=[1, -1])},
    "done: MultiBinary": {"done": spaces.MultiBinary(3)},
    "done: Dict": {
        "done": spaces.Dict({"a": box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3, start=1)})
    },
    "done: nested": {"done": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"c": spaces.MultiBinary(2)})))},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_an_odd_env_passes_the_check_and_is_trained_in(name: str) -> None:
    def make() -> Odd:
        return Odd(**ODD[name])

    check_env(make)
    space = make().action_space
    algorithms = ["A2C"]
    if name.startswith("done:") and isinstance(space, spaces.Box) and space.is_bounded():
        algorithms += ["SAC"]
    elif isinstance(space, spaces.Discrete):
        algorithms = ["DQN"] if name.startswith(("reward", "info")) else ["A2C", "DQN"]
    for algorithm in algorithms:
        options: dict[str, Any] = {"seed": 0, "compile": False}
        if algorithm != "A2C":
            options |= {"learning_starts": 100, "train_freq": 50, "gradient_steps": 2, "batch_size": 8}
        policy = {"name": "MlpPolicy", "net_arch": [8]}
        model = getattr(zoo, algorithm)(policy, make_vec_env(make, 2, check=False), **options)
        model.learn(300)
        assert np.isfinite(zoo.evaluate_policy(model, make(), 2)[0])


@pytest.mark.parametrize("algorithm", ["SAC", "TD3", "DDPG", "TQC"])
@pytest.mark.parametrize(
    "space", [box(0, 1, (1,), np.int8), box(0, 3, (1,), np.int64), box(-2, 2, (1,), np.int16)], ids=str
)
def test_random_integer_actions_are_uniform(algorithm: str, space: spaces.Box) -> None:
    taken: list[int] = []

    class Counting(Odd):
        def step(self, action: Any) -> Any:
            taken.append(int(action[0]))
            return super().step(action)

    env = make_vec_env(lambda: Counting(done=space), check=False)
    model = getattr(zoo, algorithm)("MlpPolicy", env, seed=0, compile=False, learning_starts=600)
    with pytest.warns(ZooWarning):
        model.learn(600)  # all of them random
    numbers, counts = np.unique(taken, return_counts=True)
    assert numbers.tolist() == list(range(space.low.item(), space.high.item() + 1))
    assert abs(counts / 600 - 1 / len(numbers)).max() < 0.06


def test_reset_that_takes_no_seed_is_told() -> None:
    class Old(Odd):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    class Adapted(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.env.observation_space.seed(seed)
            return self.env.reset()

    with pytest.raises(ZooError, match="seed=None"):
        check_env(Old())
    check_env(Adapted(Old()))


@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_list_has_a_function_for_each_environment(vectorization: str) -> None:
    functions = [lambda limit=limit: gym.make("CartPole-v1", max_episode_steps=limit) for limit in (3, 5)]
    envs = make_vec_env(functions, seed=0, vectorization=vectorization, start_method="fork")
    envs.reset()
    ends = [np.flatnonzero(envs.step(np.zeros(2, np.int64))[3]).tolist() for _ in range(5)]
    envs.close()
    assert [end for end in ends if end] == [[0], [1]]
    model = PPO2({"net_arch": [8]}, functions, n_steps=16, compile=False).learn(64)
    assert (model.n_envs, {episode.length for episode in model.recent_episodes}) == (2, {3, 5})
    for wrong in ([], ["CartPole-v1"], functions):
        with pytest.raises(ZooError, match="n_envs=3"):
            make_vec_env(wrong, 3)
    with pytest.raises(ZooError, match=r"make_vec_env.*positional"):
        make_vec_env("CartPole-v1", 2, 0, 3)  # type: ignore[call-arg]


def test_vec_normalize_takes_the_names_of_sb3() -> None:
    envs = make_vec_env("Pendulum-v1", 2)
    normalizer = zoo.VecNormalize(envs, norm_obs=True, norm_reward=False, clip_obs=5.0).normalizer
    assert (bool(normalizer.moments), normalizer.rewards, normalizer.clip_obs) == (True, False, 5.0)
    with pytest.raises(ZooError, match=r"`VecNormalize.norm_ob`"):
        zoo.VecNormalize(envs, norm_ob=True)


def test_check_names_a_missing_time_limit() -> None:
    def endless(**_: Any) -> Custom:
        return Custom()

    assert any("env.max_episode_steps" in warning for warning in check_env(endless))
    assert check_env(endless, max_episode_steps=50) == []


def test_one_fixed_action_is_taken() -> None:
    fixed = spaces.Box(np.array([-1.0, 0.5], np.float32), np.array([1.0, 0.5], np.float32))
    seen = []

    class Fixed(Custom):
        def step(self, action: Any) -> Any:
            seen.append(float(action[1]))
            return super().step(action)

    SAC("MlpPolicy", lambda: Fixed(action_space=fixed), learning_starts=10, compile=False).learn(20)
    assert set(seen) == {0.5}
