"""`zoo record`: film an agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config.fields import build
from zoo.config.schema import RecordSettings
from zoo.config.user_files import shown
from zoo.core.printing import show
from zoo.envs.video import parse_size
from zoo.errors import ZooError
from zoo.experiment.evaluation import EpisodeReporter
from zoo.experiment.open_agent import OpenedAgent, open_agent
from zoo.experiment.recording import record, video_path


def run(config: Mapping[str, Any]) -> None:
    """Film the agent that the config names, and say where the video is."""
    settings = build(RecordSettings, config, "")
    size = parse_size(settings.size)
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    paths = _paths(settings, agent)
    n_frames = record(
        agent.algorithm,
        agent.env,
        paths,
        size=size,
        frames_per_second=settings.fps,
        n_episodes=settings.n_episodes,
        length=settings.length,
        deterministic=settings.deterministic,
        seed=settings.seed,
        on_episode=EpisodeReporter().add,
        check=agent.check_spaces,
    )
    if not n_frames:
        show("no video: nothing was played")
    for path in paths if n_frames else []:
        show(f"video  {shown(path)}  {n_frames:,} images", flush=True)


def _paths(settings: RecordSettings, agent: OpenedAgent) -> list[Path]:
    formats = ["mp4", "gif"] if settings.format == "both" else [settings.format]
    if settings.out is None:
        return [video_path(agent.path, agent.algo, agent.env.id, each) for each in formats]
    out = Path(settings.out).expanduser()
    if out.suffix in (".mp4", ".gif"):
        if settings.format != "both" and out.suffix != f".{settings.format}":
            raise ZooError(f"`out={settings.out}` is no {settings.format}: give format={out.suffix[1:]} too")
        return [out.with_suffix(f".{each}") for each in formats]
    if out.suffix and not out.is_dir():
        raise ZooError(f"`out={settings.out}` is neither an mp4, a GIF nor a folder")
    return [video_path(None, agent.algo, agent.env.id, each, out) for each in formats]
