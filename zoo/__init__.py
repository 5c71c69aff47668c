"""Zoo trains, tunes, replays and compares reinforcement-learning agents."""

from __future__ import annotations

import importlib
import opcode
import os
import sys
from typing import TYPE_CHECKING, Any

from zoo.algorithms.registry import ALGORITHMS, CLASS_NAMES, MODULES, PROVIDED, algorithm_class
from zoo.config.sections import register_algorithms, register_sections
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

PROVIDED["callbacks_of_learn"] = "zoo.experiment.factories:callbacks_of_learn"
PROVIDED["pretrain"] = "zoo.imitation.bc:clone_expert"
register_algorithms(ALGORITHMS, algorithm_class)
register_sections(
    {
        "env": "zoo.envs.config:EnvConfig",
        "policy": "zoo.policies.config:PolicyConfig",
        "replay": "zoo.buffers.config:ReplayConfig",
        "pretrain": "zoo.imitation.bc:PretrainConfig",
        "callbacks": "zoo.config.schema:CallbacksSettings",
        "logger": "zoo.config.schema:LoggerSettings",
    },
    {"sampler": "zoo.tuning.samplers:make_sampler", "pruner": "zoo.tuning.samplers:make_pruner"},
)

_NAMES = {
    "zoo.algorithms.algorithm": "Algorithm",
    "zoo.algorithms.callback": "Callback",
    "zoo.buffers.config": "ReplayConfig",
    "zoo.commands.compare": "compare",
    "zoo.commands.plot": "plot",
    "zoo.commands.record": "record",
    "zoo.config.compose": "compose",
    "zoo.envs.config": "EnvConfig NormalizeConfig",
    "zoo.envs.env_checker": "check_env",
    "zoo.envs.make_env": "make_vec_env",
    "zoo.envs.masks": "ActionMasker",
    "zoo.envs.normalize": "VecNormalize",
    "zoo.errors": "ZooError ZooWarning",
    "zoo.experiment.callbacks": "EvalCallback KeepAgentsCallback StopTrainingOnMaxEpisodes"
    " StopTrainingOnNoModelImprovement StopTrainingOnRewardThreshold VideoCallback",
    "zoo.experiment.checkpoint": "CheckpointCallback",
    "zoo.experiment.evaluation": "Evaluation evaluate_policy",
    "zoo.experiment.experiment": "Result TrainingInterrupted train",
    "zoo.experiment.expert_recording": "record_expert",
    "zoo.experiment.loggers": "ConsoleLogger CsvLogger Logger LoggingCallback",
    "zoo.experiment.progress_bar": "ProgressBarCallback",
    "zoo.experiment.trackers": "TensorBoardLogger WandbLogger",
    "zoo.imitation.expert_data": "ExpertData read_expert write_expert",
    "zoo.policies.config": "PolicyConfig",
    "zoo.policies.encoders": "BaseFeaturesExtractor",
    "zoo.tuning.tune": "tune",
}
_HOMES = {**MODULES, **{name: home for home, names in _NAMES.items() for name in names.split()}}
"""Where each public name is; the algorithms are those of the registry."""

__all__ = ["__version__", "load", *_HOMES]


def load(path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Algorithm:
    """Rebuild an agent from its folder or zip; any algorithm.

    ``options`` are the constructor's (n_envs, seed, device, …), and hyperparameters that shall be others from
    now on. Nothing from the files is executed unless ``trust`` is given. Raises `ZooError` for missing or
    damaged files, for options that there are not, and for spaces that differ from ``env``'s.
    """
    from zoo.agents.agent_folder import read_agent
    from zoo.algorithms.registry import algorithm_class

    files = read_agent(path, trust=trust, own_env=env is not None)
    algo = files.config["algo"]
    return algorithm_class(algo["name"], algo.get("preset")).from_files(files, env, **options)


def __dir__() -> list[str]:
    """List the public names, for completion at a prompt."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use; an algorithm also has its name in ``algo=``.

    For ``from zoo import name`` it raises `ImportError`: Python would replace any other error's message.
    """
    place = CLASS_NAMES.get(name, name)
    if place in _HOMES:
        return getattr(importlib.import_module(_HOMES[place]), place)
    if name.startswith("_"):
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    from zoo.config.aliases import PUBLIC_NAMES
    from zoo.errors import nearest

    meant = f"; here it is {PUBLIC_NAMES[name]}" if name in PUBLIC_NAMES else nearest(name, __all__)
    frame = sys._getframe(1)
    if frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        raise ImportError(f"cannot import name '{name}' from 'zoo'{meant}", name="zoo", path=__file__)
    raise AttributeError(f"module 'zoo' has no attribute '{name}'{meant}")
