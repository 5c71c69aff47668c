"""What a newcomer types wrong: each ends with its exit status and three lines at most that say what is right.

The table of `tests/config/test_mistakes.py` holds keys and values; this one what files of one's own say, and
what shows only when environments and networks are made.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError, ZooWarning

MINE = "algo=ppo2 env=CartPole-v1"
LINES = 3

MODULES = {
    "broken_syntax": "def reward(:\n",
    "broken_name": "import math\n\nGRAVITY = mass * 9.81\n",
    "broken_import": "from math import gravity\n",
    "needs_more": "import a_library_that_nobody_has\n",
    "mine": """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class NoEnv:
    pass

gym.register("NoEnv-v0", NoEnv)
gym.register("Number-v0", lambda: 3)
gym.register("Mine-v0", CartPoleEnv)
""",
}
FILES = {
    "typo.yaml": "algo: {learning_rat: 1}",
    "range.yaml": "algo: {gamma: 3}",
    "place.yaml": "n_timesteps: 1e5\nalgo: {net_arch: [64]}",
    "settings.yml": "n_timesteps: 1e5",
    "hyperparams/ppo2/Acrobot-v1.yaml": "env: {normalise: true}",
    "conf/experiment/slow.yaml": "n_timestep: 5",
}

WRONG = {
    f"train {MINE} env.frame_stack=1e8": "expected at least 1 and at most 10000",
    "train algo= env=CartPole-v1": "`algo=`",
    "train algo=ppo2 env=": "`env=`",
    f"train {MINE} policy=": "`policy=`",
    "train algo=ppo2 env=cartpole-v1": "'CartPole-v1'",
    # What no config can be, or would do nothing.
    f"train {MINE} ~logger": "logger=none",
    f"train {MINE} ~callbacks": "callbacks=none",
    f"train {MINE} ~policy": "can't be left out",
    f"train {MINE} ~seed": "'seed'",
    f"train {MINE} hydra.run.dir=there": "`runs_dir=`",
    f"train -m {MINE} algo.gamma=interval(0.9,1)": "is continuous",
    f"train {MINE} algo.gamma=interval(0.9,1)": "algo.gamma",
    "train experiment=settings.yml": "settings.yml",
    # What a file of one's own says wrong; the file is named.
    f"train {MINE} tuned=typo.yaml": "`algo.learning_rate`? (in typo.yaml)",
    f"train {MINE} tuned=range.yaml": "(in range.yaml)",
    f"train {MINE} tuned=place.yaml": "`policy.net_arch`",
    "train algo=ppo2 env=Acrobot-v1": "(in hyperparams/ppo2/Acrobot-v1.yaml)",
    f"train {MINE} experiment=slow": "(in conf/experiment/slow.yaml)",
    # What does not go together, or is not there.
    "train algo=dqn env=CartPole-v1 algo.gradient_steps=0": "`algo.gradient_steps=0` would never learn",
    "train algo=sac env=Pendulum-v1 n_timesteps=500 algo.learning_starts=500": "leaves nothing",
    "train algo=dqn env=CartPole-v1 n_timesteps=100": "; tuned=none leaves tuned values out",
    "train algo=ppo2 env=MiniWorld-Hallway-v0": "pip install miniworld",
    "train algo=ppo2 env=CartPole-v1 env.kwargs.gravitation=9": "does not take these env.kwargs",
    "train algo=ppo2 env=CartPole-v1 callbacks=none callbacks.stop_on_reward.threshold=1": "callbacks.eval",
    "train algo=ppo2 env=CartPole-v1 policy._target_=no_such.Thing": "can't import `no_such`",
    "train algo=ppo2 env=CartPole-v1 policy.net_arch={foo:[3]}": "unknown key `policy.net_arch.foo`",
    # Machines, sizes and networks.
    f"train {MINE} device=mps": "auto, cpu, cuda",
    f"train {MINE} threads=999999": "too many",
    f"train {MINE} n_envs=1000000000": "GiB of memory",
    f"train {MINE} algo.n_steps=100000000000": "GiB of memory",
    f"train {MINE} policy.net_arch=[-1]": "a layer of -1 units",
    f"train {MINE} policy.net_arch=[64,0]": "a layer of 0 units",
    # Environments, and code of one's own.
    "train algo=ppo2 env=Pong-v5": "'ALE/Pong-v5'",
    "train algo=ppo2 env=CartPole": "CartPole-v1",
    "train algo=ppo2 env=Nowhere-v0": "unknown environment Nowhere-v0",
    "train algo=ppo2 env=mine:Mine-v3": "mine:Mine-v0",
    "train algo=ppo2 env=needs_more:Mine-v0": "pip install a_library_that_nobody_has",
    "train algo=ppo2 env=broken_syntax:Mine-v0": "broken_syntax.py, line 1: SyntaxError",
    "train algo=ppo2 env=broken_name:Mine-v0": "broken_name.py, line 3: NameError",
    "train algo=ppo2 env=broken_import:Mine-v0": "broken_import.py, line 1: ImportError",
    "train algo=ppo2 env=mine:NoEnv-v0": "expected a subclass of gymnasium.Env",
    "train algo=ppo2 env=mine:Number-v0": "expected a subclass of gymnasium.Env",
    f"train {MINE} env.wrappers=[broken_name.Wrapper]": "broken_name.py, line 3",
    f"train {MINE} policy._target_=broken_name.Policy": "broken_name.py, line 3",
    f"train {MINE} callbacks.own._target_=broken_name.Callback": "broken_name.py, line 3",
    f"train {MINE} callbacks.own._target_=mine.NoEnv": "not a subclass of zoo.algorithms.callback.Callback",
}


@pytest.fixture(autouse=True)
def written(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)  # a module of this name of another test
    for name, code in {**{f"{name}.py": code for name, code in MODULES.items()}, **FILES}.items():
        (working_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (working_folder / name).write_text(code)


@pytest.mark.parametrize("command", WRONG)
def test_wrong_input_is_answered(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = status_of(command.split())
    printed = capsys.readouterr()
    assert status == 2, printed.out
    assert printed.err.startswith("zoo: ")
    assert WRONG[command] in printed.err
    assert printed.err.count("\n") <= LINES
    assert "Traceback" not in printed.err
    assert [path for path in Path("runs").rglob("*") if path.is_file()] == []


def test_error_in_override_does_not_name_tuned_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["train", *MINE.split(), "tuned=range.yaml", "algo.gamma=4"]) == 2
    assert "algo.gamma=4` is out of range" in (told := capsys.readouterr().err)
    assert "range.yaml" not in told


class TestFromPython:
    @pytest.fixture
    def model(self) -> zoo.PPO2:
        return zoo.PPO2("MlpPolicy", "CartPole-v1", compile=False, threads=1)

    def test_negative_number_of_steps(self, model: zoo.PPO2) -> None:
        with pytest.raises(ZooError, match="`total_timesteps=-1` is out of range; expected at least 0"):
            model.learn(-1)

    def test_observations_with_infos(self, model: zoo.PPO2) -> None:
        env = gym.make("CartPole-v1")
        with pytest.raises(ZooError, match="predict takes the first of both"):
            model.predict(env.reset(seed=0))  # type: ignore[arg-type]
        vector_env = zoo.make_vec_env("CartPole-v1", 2)
        with pytest.raises(ZooError, match="predict takes the first of both"):
            model.predict(vector_env.reset(seed=0))  # type: ignore[arg-type]

    def test_observations_of_several_shapes(self, model: zoo.PPO2) -> None:
        with pytest.raises(ZooError, match="parts of several shapes"):
            model.predict([np.zeros(4), np.zeros(3)])

    def test_vectors_of_pixels_are_told_of_and_trained(self) -> None:
        class Images(gym.Env[np.ndarray, int]):
            observation_space = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
            action_space = gym.spaces.Discrete(2)

            def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:
                super().reset(seed=seed)
                return self.observation_space.sample(), {}

            def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
                return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.1), False, {}

        with pytest.warns(ZooWarning, match="policy=CnnPolicy sees what stands beside what"):
            model = zoo.A2C("MlpPolicy", Images, compile=False, threads=1)
        assert model.learn(10).num_timesteps == 10
