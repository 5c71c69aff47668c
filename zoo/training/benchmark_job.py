"""The process that measures one agent of a benchmark, which `zoo.training.benchmark` starts."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from zoo.config.settings import PlaySettings
from zoo.errors import ZooError
from zoo.files.printing import one_line


def main(
    path: str, report: int, n_episodes: int, n_envs: int, deterministic: bool | None, seed: int, trust: bool
) -> NoReturn:
    """Measure the agent at ``path``, and write into the open file ``report`` its scores or its problem."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        result = measured(
            path, n_episodes=n_episodes, n_envs=n_envs, deterministic=deterministic, seed=seed, trust=trust
        )
    except ZooError as error:
        result = {"problem": one_line(error)}
    except Exception as error:
        result = {"problem": one_line(f"{type(error).__name__}: {error}")}
    with open(report, "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.exit(0)


def measured(
    path: str | Path, *, n_episodes: int, n_envs: int, deterministic: bool | None, seed: int, trust: bool
) -> dict[str, Any]:
    """Return the scores of an agent over episodes of the environment that it was trained in."""
    from zoo.envs.config import in_this_process, is_atari
    from zoo.envs.stepper import EnvStepper
    from zoo.envs.vec_env import make_vec_env
    from zoo.training.evaluation import evaluate
    from zoo.training.opened_agent import open_agent

    settings = PlaySettings(
        algo=None,
        env={},
        agent=str(path),
        checkpoint=None,
        device="cpu",
        n_episodes=n_episodes,
        deterministic=True,
        seed=seed,
        runs_dir=os.devnull,
        trust=trust,
    )
    agent = open_agent(settings)
    likeliest = not is_atari(agent.env) if deterministic is None else deterministic
    native = agent.env.vectorization == "native"
    config = agent.env if native else in_this_process(agent.env)
    envs = EnvStepper(make_vec_env(config, min(n_envs, n_episodes), training=False))
    try:
        agent.check_spaces(envs)
        evaluation = evaluate(agent.algorithm, envs, n_episodes, deterministic=likeliest, seed=seed)
    finally:
        envs.close()
    return evaluation.summary()


def _end_with_the_starter() -> None:
    """Wait until the starter's end of our standard input closes, which means that it is gone."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
