"""Environments: made, stepped side by side, normalised, watched, checked."""

from zoo.envs import toys
from zoo.envs.adapter import VecEnvAdapter
from zoo.envs.config import AtariConfig, EnvConfig, NormalizeConfig
from zoo.envs.env_checker import check_env
from zoo.envs.make_env import make_vec_env
from zoo.envs.masks import ActionMasker
from zoo.envs.monitor import EpisodeMonitor, EpisodeRecord
from zoo.envs.normalize import Normalizer, VecNormalize
from zoo.envs.registry import folder_name
from zoo.envs.transition import Transition

toys.register()

__all__ = [
    "ActionMasker",
    "AtariConfig",
    "EnvConfig",
    "EpisodeMonitor",
    "EpisodeRecord",
    "NormalizeConfig",
    "Normalizer",
    "Transition",
    "VecEnvAdapter",
    "VecNormalize",
    "check_env",
    "folder_name",
    "make_vec_env",
]
