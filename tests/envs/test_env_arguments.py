"""What may be said of environments, by id, class or function: it works, or is refused by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import zoo
from zoo import PPO2
from zoo.envs import EnvConfig, make_vec_env
from zoo.envs.config import env_config
from zoo.envs.registry import PACKAGES, folder_name, missing_packages_named, resolve
from zoo.errors import ZooError

SMALL = {"net_arch": [4]}


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


@pytest.fixture(autouse=True)
def registered() -> Any:
    gym.register("Counter-v0", Counter, max_episode_steps=20)
    yield
    del gym.registry["Counter-v0"]


@pytest.mark.parametrize("env", [Counter, make_counter, lambda **given: Counter(**given), "Counter-v0"])
@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_kwargs_and_render_mode_reach_what_makes_the_env(env: Any, vectorization: str) -> None:
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
        (Counter(), {"render_mode": "rgb_array"}, r"env\.render_mode=rgb_array"),
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


def test_instance_may_have_the_render_mode_that_it_has() -> None:
    envs = make_vec_env(Counter(7, "rgb_array"), render_mode="rgb_array")
    envs.reset()
    assert envs.render()[0].max() == 7


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


@pytest.mark.parametrize("env", ["Counter-v0", EnvConfig("Counter-v0")])
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 20),
        ({"max_episode_steps": "auto"}, 20),
        ({"max_episode_steps": None}, 600),
        ({"max_episode_steps": 7}, 7),
        ({"max_episode_steps": 70}, 70),
    ],
)
def test_time_limit(env: Any, options: dict[str, Any], steps: int) -> None:
    assert longest(env, **options) == steps


@pytest.mark.parametrize(("limit", "steps"), [("auto", 600), (None, 600), (7, 7)])
def test_time_limit_of_a_class(limit: Any, steps: int) -> None:
    assert longest(Counter, max_episode_steps=limit) == steps


def test_time_limit_that_a_vector_form_cannot_lift_is_refused() -> None:
    with pytest.raises(ZooError, match=r"max_episode_steps=null"):
        make_vec_env("CartPole-v1", 1, vectorization="native", max_episode_steps=None)
    with pytest.raises(ZooError, match="max_episode_steps"):
        env_config("CartPole-v1", max_episode_steps="never")


@pytest.mark.parametrize(("override", "limit"), [([], "auto"), (["env.max_episode_steps=null"], None)])
def test_time_limit_on_the_command_line(override: list[str], limit: Any) -> None:
    config = zoo.compose("train", ["algo=ppo2", "env=Pendulum-v1", *override])
    assert config.env.max_episode_steps == limit


@pytest.mark.parametrize("limit", ["auto", None, 9])
def test_agents_keep_the_time_limit(tmp_path: Path, limit: Any) -> None:
    PPO2(SMALL, EnvConfig("CartPole-v1", max_episode_steps=limit), compile=False).save(tmp_path / "agent")
    again = zoo.load(tmp_path / "agent")
    assert again.env_config.max_episode_steps == limit
    again.save(tmp_path / "again")
    assert zoo.load(tmp_path / "again").env_config.max_episode_steps == limit


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
        ("MiniGrid-Empty-5x5-v0", "pip install minigrid"),
    ],
)
def test_missing_package_is_named_with_its_install_command(
    env_id: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {package.module for package in PACKAGES}
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
def test_missing_simulator_is_named_with_its_install_command(env_id: str, command: str) -> None:
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
