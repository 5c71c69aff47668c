"""`zoo push`: an agent, with its page, to the Hugging Face Hub, a folder or a zip."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.sharing_settings import PushSettings
from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.training.opened_agent import agent_path

ENDINGS = (".mp4", ".gif")


def run(config: Mapping[str, Any]) -> None:
    """Push the agent that the config names."""
    from zoo.agents.places import push

    settings = build(PushSettings, config, "")
    if settings.to is None:
        raise ZooError("where to? to=USER/NAME (Hugging Face Hub), to=FOLDER or to=FILE.zip")
    path = agent_path(settings)
    video = _newest_video(path) if settings.video is None else Path(settings.video).expanduser()
    if settings.video is None and settings.to.endswith(".zip"):
        video = None
    place = push(path, settings.to, private=settings.private, video=video, message=settings.message)
    print(f"agent   {one_line(shown(path))}")
    if video is not None:
        print(f"video   {one_line(shown(video))}")
    print(f"pushed  {place}")
    print(f"get it  zoo pull {shlex.quote(f'from={one_line(settings.to)}')}")


def _newest_video(agent: Path) -> Path | None:
    """Return the newest video of the run that the agent stands in."""
    folder = agent.parent / "videos"
    if not (agent.parent / "run.json").is_file() or not folder.is_dir():
        return None
    videos = [each for each in folder.rglob("*") if each.suffix in ENDINGS and each.is_file()]
    return max(videos, key=lambda each: each.stat().st_mtime, default=None)
