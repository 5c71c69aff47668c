"""Environments: made, stepped side by side, normalised, watched, checked."""

from zoo.envs import hidden_velocities, toys
from zoo.envs.config import AtariConfig, EnvConfig, NormalizeConfig
from zoo.envs.ids import folder_name
from zoo.envs.monitor import EpisodeMonitor, EpisodeRecord
from zoo.envs.normalize import Normalizer, VecNormalize
from zoo.envs.step import Step
from zoo.envs.stepper import EnvStepper
from zoo.envs.trial import check_env
from zoo.envs.vec_env import make_vec_env

toys.register()
hidden_velocities.register()

__all__ = [
    "AtariConfig",
    "EnvConfig",
    "EnvStepper",
    "EpisodeMonitor",
    "EpisodeRecord",
    "NormalizeConfig",
    "Normalizer",
    "Step",
    "VecNormalize",
    "check_env",
    "folder_name",
    "make_vec_env",
]
