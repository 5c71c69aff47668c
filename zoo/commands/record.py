"""`zoo record`: film an agent."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.algorithms.algorithm import Algorithm
from zoo.config.compose import compose
from zoo.config.environment_values import resolved
from zoo.config.fields import build
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


def run(config: Mapping[str, Any]) -> None:
    """Film the agent that the config names, and say where the video is."""
    settings = build(RecordSettings, config, "")
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    show(_filmed(settings, agent, EpisodeReporter().add), flush=True)


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
        named = {} if agent is None else {"agent": str(getattr(agent, "agent", agent))}
        overrides = as_overrides({**named, **with_registered_env(settings)})
        chosen = build(RecordSettings, resolved(compose("record", overrides)), "")
        return _filmed(chosen, open_agent(chosen))


def _filmed(
    settings: RecordSettings, agent: OpenedAgent, on_episode: Callable[[EpisodeRecord], None] | None = None
) -> Video:
    size, paths = parse_size(settings.size), _paths(settings, agent)
    names = ("n_episodes", "length", "deterministic", "seed")
    play: dict[str, Any] = {name: getattr(settings, name) for name in names}
    play |= {"size": size, "frames_per_second": settings.fps, "on_episode": on_episode}
    n_frames = recording.record(agent.algorithm, agent.env, paths, check=agent.check_spaces, **play)
    return Video(paths if n_frames else [], n_frames)


def _paths(settings: RecordSettings, agent: OpenedAgent) -> list[Path]:
    formats = ["mp4", "gif"] if settings.format == "both" else [settings.format]
    if settings.out is None:
        return [video_path(agent.path, agent.algo, agent.env.id, suffix) for suffix in formats]
    out = Path(settings.out).expanduser()
    if out.suffix in (".mp4", ".gif"):
        if settings.format != "both" and out.suffix != f".{settings.format}":
            raise ZooError(f"`out={settings.out}` is no {settings.format}: give format={out.suffix[1:]} too")
        return [out.with_suffix(f".{suffix}") for suffix in formats]
    if out.suffix and not out.is_dir():
        raise ZooError(f"`out={settings.out}` is neither an mp4, a GIF nor a folder")
    return [video_path(None, agent.algo, agent.env.id, suffix, out) for suffix in formats]
