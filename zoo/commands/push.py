"""`zoo push`: an agent, with its page, to the Hugging Face Hub, a folder or a zip."""

from __future__ import annotations

import shlex
from pathlib import Path

from zoo.config.schema import PushSettings
from zoo.config.user_files import shown
from zoo.core.printing import one_line, show
from zoo.errors import ZooError
from zoo.experiment.open_agent import agent_path
from zoo.interop.hub import VIDEO_ENDINGS, newest_video, push


def run(settings: PushSettings) -> None:
    """Push the agent that the config names."""
    if settings.to is None:
        raise ZooError("where to? to=USER/NAME (Hugging Face Hub), to=FOLDER or to=FILE.zip")
    path = agent_path(settings)
    video = None
    if settings.video is not None:
        video = Path(settings.video).expanduser()
        if video.suffix.lower() not in VIDEO_ENDINGS or not video.is_file():
            raise ZooError(f"video={one_line(video)}: there is no such file that ends in .mp4 or .gif")
    elif not settings.to.endswith(".zip"):
        video = newest_video(path)
    place = push(path, settings.to, private=settings.private, video=video, message=settings.message)
    show(f"agent   {one_line(shown(path))}")
    if video is not None:
        show(f"video   {one_line(shown(video))}")
    show(f"pushed  {place}")
    show(f"get it  zoo pull {shlex.quote(f'from={one_line(settings.to)}')}")
