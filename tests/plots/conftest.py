"""Real runs, trained once: PPO2 with two seeds, A2C with one, and one of Stable-Baselines3's PPO."""

from __future__ import annotations

from pathlib import Path

import pytest

import zoo


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three runs of a few thousand steps on CartPole."""
    root = tmp_path_factory.mktemp("real") / "runs"
    quick = ["env=CartPole-v1", "n_timesteps=1500", "compile=false", "threads=1", "progress_bar=false"]
    quick += ["verbose=0", "tuned=none", "callbacks.eval.every=500", "callbacks.eval.n_episodes=3"]
    for algo, seed in (("ppo2", 1), ("ppo2", 2), ("a2c", 1)):
        zoo.train(zoo.compose("train", [f"algo={algo}", f"seed={seed}", f"runs_dir='{root}'", *quick]))
    return root


@pytest.fixture(scope="session")
def peers_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which Stable-Baselines3 has written what it writes of a run."""
    pytest.importorskip("stable_baselines3")
    import gymnasium as gym
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    root = tmp_path_factory.mktemp("logs") / "sb3_ppo"
    folder = root / "seed_0"
    folder.mkdir(parents=True)
    evaluated = Monitor(gym.make("CartPole-v1"))
    callback = EvalCallback(evaluated, eval_freq=200, n_eval_episodes=3, log_path=str(folder), verbose=0)
    env = Monitor(gym.make("CartPole-v1"), str(folder))
    PPO("MlpPolicy", env, n_steps=128, n_epochs=2, device="cpu").learn(600, callback=callback)
    env.close()
    return root
