"""`zoo record`: film an agent."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.algorithms.algorithm import Algorithm
from zoo.config.compose import ConfigLoader
from zoo.config.overrides import as_overrides
from zoo.config.schema import RecordSettings
from zoo.config.user_files import shown
from zoo.core.notebook import as_html
from zoo.core.printing import show
from zoo.envs.registry import with_registered_env
from zoo.envs.transition import EpisodeRecord
from zoo.envs.video import parse_size
from zoo.errors import ZooError
from zoo.experiment import recording
from zoo.experiment.evaluation import EpisodeReporter
from zoo.experiment.open_agent import OpenedAgent, open_agent
from zoo.experiment.recording import video_path


def run(settings: RecordSettings) -> None:
    """Film the agent that the settings name, and print where the video is."""
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    show(_film(settings, agent, EpisodeReporter().add), flush=True)


@dataclass(frozen=True, repr=False)
class Video:
    """The files of a film, mp4 or GIF, that a notebook plays; none if nothing was played."""

    paths: list[Path]
    n_frames: int

    def __repr__(self) -> str:
        lines = [f"video  {shown(path)}  {self.n_frames:,} images" for path in self.paths]
        return "\n".join(lines) or "no video: nothing was played"

    def _repr_html_(self) -> str:
        if not self.paths:
            return as_html(repr(self))
        content = base64.b64encode(self.paths[0].read_bytes()).decode()
        if self.paths[0].suffix == ".gif":
            return f'<img src="data:image/gif;base64,{content}">'
        return f'<video controls src="data:video/mp4;base64,{content}"></video>'


def record(agent: Any = None, **settings: Any) -> Video:
    """Film an agent as `zoo record` does: a model, its path, or the result of `zoo.train`.

    ``settings`` are those of the command line, as ``length=200``; ``env`` may be a class. Raises `ZooError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(agent, Algorithm):
            agent, settings = agent.save(Path(folder, "agent")), {"trust": True, **settings}
        overrides = as_overrides({"agent": agent, **with_registered_env(settings)})
        chosen: RecordSettings = ConfigLoader("record").settings(overrides)
        return _film(chosen, open_agent(chosen))


def _film(
    settings: RecordSettings, agent: OpenedAgent, on_episode: Callable[[EpisodeRecord], None] | None = None
) -> Video:
    paths = _paths(settings, agent)
    n_frames = recording.record(
        agent.algorithm,
        agent.env,
        paths,
        size=parse_size(settings.size),
        frames_per_second=settings.fps,
        n_episodes=settings.n_episodes,
        length=settings.length,
        deterministic=agent.env.is_greedy(settings.deterministic),
        seed=settings.seed,
        on_episode=on_episode,
        check=agent.check_spaces,
    )
    return Video(paths if n_frames else [], n_frames)


def _paths(settings: RecordSettings, agent: OpenedAgent) -> list[Path]:
    suffixes = ["mp4", "gif"] if settings.format == "both" else [settings.format]
    out = None if settings.out is None else Path(settings.out).expanduser()
    if out is not None and out.suffix in (".mp4", ".gif"):
        if settings.format != "both" and out.suffix != f".{settings.format}":
            raise ZooError(f"`out={settings.out}` is no {settings.format}: give format={out.suffix[1:]} too")
        return [out.with_suffix(f".{suffix}") for suffix in suffixes]
    if out is not None and out.suffix and not out.is_dir():
        raise ZooError(f"`out={settings.out}` is neither an mp4, a GIF nor a folder")
    return [video_path(agent.path, agent.algo, agent.env.id, suffix, out) for suffix in suffixes]
