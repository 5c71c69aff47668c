"""Four quick trainings score what they did: the mean return of the last agent over fifty episodes.

`python tests/golden/test_quick_trainings.py` prints the scores of seeds 1, 2 and 3; bounds are set
a little below the worst of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

import zoo

N_EPISODES = 50
COMMON = "compile=false threads=1 verbose=0 progress_bar=false callbacks=none logger=none device=cpu"
TRAININGS = {
    "algo=ppo2 env=CartPole-v1 n_timesteps=50_000": (400.0, 500.0),
    "algo=dqn env=CartPole-v1 n_timesteps=50_000": (200.0, 500.0),
    "algo=sac env=Pendulum-v1 n_timesteps=4_000": (-250.0, -100.0),
    "algo=trpo env=Pendulum-v1 n_timesteps=60_000": (-900.0, -100.0),
}
"""Each training, with the tuned values of its algorithm, and the least and the most that it may score."""


def score(training: str, seed: int, runs: Path) -> float:
    """Train once, and return the mean return of the agent that comes of it."""
    result = zoo.train(*training.split(), *COMMON.split(), f"seed={seed}", f"runs_dir={runs}")
    env = training.split()[1].removeprefix("env=")
    agent = zoo.load(result.agent, device="cpu")
    mean, _ = zoo.evaluate_policy(agent, env, n_eval_episodes=N_EPISODES, seed=1000)
    return float(mean)


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS)
def test_training_scores_what_it_did(training: str, tmp_path: Path) -> None:
    low, high = TRAININGS[training]
    assert low <= score(training, 1, tmp_path) <= high


def main() -> None:
    with tempfile.TemporaryDirectory() as runs:
        for training in TRAININGS:
            print(training, *(score(training, seed, Path(runs)) for seed in (1, 2, 3)), flush=True)


if __name__ == "__main__":
    main()
