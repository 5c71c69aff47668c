"""Environment ids: found, explained, made into folder names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import gymnasium as gym
import pytest

from zoo.envs import make_vec_env
from zoo.envs.registry import PACKAGES, folder_name, missing_packages_named, resolve
from zoo.errors import ZooError


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
        ("Identity-v0", "did you mean 'Zoo/Identity-v0'"),
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
        ("NowhereBulletEnv-v0", "pip install pybullet pybullet-envs-gymnasium"),
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
    [("LunarLander-v3", "pip install box2d"), ("Hopper-v5", "pip install mujoco imageio")],
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
