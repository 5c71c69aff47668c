"""Zoo trains, tunes, replays and compares reinforcement-learning agents."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from zoo.algorithms.registry import CLASS_NAMES, MODULES
from zoo.version import __version__

# These have to stand before NumPy and torch are imported. OpenBLAS' own threads fight torch's. And torch's
# threads should sleep soon when they have nothing to do: they spin by default, which takes the core from the
# very thread that they wait for as soon as the machine has anything else to run. This is long enough for the
# gaps within an update.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

if TYPE_CHECKING:  # what editors and type checkers read of this module stands in __init__.pyi
    from pathlib import Path

    from zoo.algorithms.algorithm import Algorithm

_HOMES = {
    **MODULES,
    "ExpertData": "zoo.imitation.expert_data",
    "ZooError": "zoo.errors",
    "check_env": "zoo.envs.env_checker",
    "compose": "zoo.config.compose",
    "evaluate_policy": "zoo.experiment.evaluation",
    "make_vec_env": "zoo.envs.make_env",
    "read_expert": "zoo.imitation.expert_data",
    "record_expert": "zoo.experiment.expert_recording",
    "train": "zoo.experiment.experiment",
    "write_expert": "zoo.imitation.expert_data",
}
"""Where each public name is; the algorithms are those of the registry."""

__all__ = ["__version__", "load", *_HOMES]


def load(path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Algorithm:
    """Rebuild an agent from its folder or zip, whatever its algorithm.

    ``options`` are the constructor's (n_envs, seed, device, …), and hyperparameters that shall be others from
    now on. Nothing from the files is executed unless ``trust`` is given. Raises `ZooError` for missing or
    damaged files, for options that there are not, and for spaces that differ from ``env``'s.
    """
    from zoo.agents.agent_folder import read_agent
    from zoo.algorithms.registry import algorithm_class

    files = read_agent(path, trust=trust, own_env=env is not None)
    return algorithm_class(files.config["algo"]["name"]).from_files(files, env, **options)


def __dir__() -> list[str]:
    """Name what there is to use, for whoever completes names at a prompt."""
    return sorted(__all__)


NAMES_ELSEWHERE = {
    **dict.fromkeys(("Monitor", "VecMonitor"), "zoo.make_vec_env(env, n_envs, monitor_dir=DIR), if at all"),
    "VecVideoRecorder": "zoo record agent=PATH, or callbacks=video of zoo train",
    "HerReplayBuffer": "replay={'hindsight': {}} of an off-policy algorithm, or zoo.HerSAC and its like",
    "CallbackList": "a list of callbacks",
    "HER": "replay={'hindsight': {}} of an off-policy algorithm, or zoo.HerSAC and its like",
    "DummyVecEnv": "zoo.make_vec_env(env, n_envs)",
    "SubprocVecEnv": "zoo.make_vec_env(env, n_envs, vectorization='workers')",
    "VecNormalize": "zoo.make_vec_env(env, n_envs, normalize=True)",
    "VecFrameStack": "zoo.make_vec_env(env, n_envs, frame_stack=4)",
    "make_atari_env": "zoo.make_vec_env('PongNoFrameskip-v4', n_envs), stacks of four included",
    "EvalCallback": "zoo.experiment.callbacks.EvalCallback",
    "CheckpointCallback": "zoo.experiment.checkpoint.CheckpointCallback",
    "BaseCallback": "zoo.algorithms.callback.Callback",
    "ActionMasker": "zoo.envs.masks.ActionMasker",
}
"""What others import from the top of their package, and what is meant here."""


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only that; algorithms also answer to what ``algo=`` calls them."""
    place = CLASS_NAMES.get(name, name)
    if place in _HOMES:
        return getattr(importlib.import_module(_HOMES[place]), place)
    if name.startswith("_"):
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    from zoo.errors import nearest

    meant = f"; here it is {NAMES_ELSEWHERE[name]}" if name in NAMES_ELSEWHERE else nearest(name, __all__)
    raise AttributeError(f"module 'zoo' has no attribute '{name}'{meant}")
