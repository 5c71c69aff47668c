"""The settings of videos: those of `zoo record`, and of videos that are made while an agent learns."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.config.agent_choice import ActingAgent
from zoo.config.fields import hyperparameter

FORMATS = ("mp4", "gif", "both")


@dataclass
class RecordSettings(ActingAgent):
    """What `zoo record` takes."""

    n_episodes: int | None = hyperparameter(
        help="episodes to film; null: one, or as many as `length` takes", ge=1
    )
    length: int | None = hyperparameter(help="images in the video; null: whole episodes", ge=1)
    deterministic: bool = hyperparameter(help="the likeliest action instead of a random one")
    seed: int | None = hyperparameter(help="of the episodes; null: drawn", ge=0)
    format: str = hyperparameter(help="mp4, gif or both", choices=FORMATS)
    overlay: bool = hyperparameter(help="write step and return into the images")
    fps: float | None = hyperparameter(
        help="images a second, one a step; null: the environment's own pace, else 30", gt=0, le=1000
    )
    size: str | int | None = hyperparameter(
        help="WIDTHxHEIGHT in pixels, or a height; null: the environment's, small images enlarged"
    )
    out: str | None = hyperparameter(
        help="file or folder of the video; null: videos/ of the agent's run, else ./videos"
    )


@dataclass
class VideoSettings:
    """Videos of the agent as it learns, in the run's folder ``videos``."""

    every: int | None = hyperparameter(
        None, "steps between videos; null: a tenth of the run", unit="environment steps", ge=1
    )
    length: int | None = hyperparameter(500, "most images in a video; null: a whole episode", ge=1)
    deterministic: bool = hyperparameter(True, "the likeliest action instead of a random one")
    overlay: bool = hyperparameter(True, "write step and return into the images")
    size: str | int | None = hyperparameter(
        None, "WIDTHxHEIGHT in pixels, or a height; null: the environment's, small images enlarged"
    )
