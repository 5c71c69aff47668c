"""Where agents go to and come from: a folder, a zip, or a repository on the Hugging Face Hub."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from zoo.agents.agent_folder import (
    AGENT_FILES,
    CARD,
    CONFIG,
    NORMALIZATION,
    POLICY,
    README,
    AgentFiles,
    read_as_data,
    write_agent,
)
from zoo.agents.finding import resolve_agent
from zoo.agents.hub import Hub
from zoo.agents.model_card import model_card
from zoo.config.algorithm_names import asked_for
from zoo.errors import ZooError
from zoo.files.atomic import write_bytes
from zoo.files.printing import one_line

VIDEO_ENDINGS = (".mp4", ".gif")

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Video:
    """A video that was read, and where it was."""

    path: Path
    content: bytes

    @property
    def name(self) -> str:
        """What it is called beside an agent."""
        return f"replay{self.path.suffix.lower()}"


def chosen_video(path: Path) -> Video:
    """Read the video that the user named. Raises `ZooError`."""
    if path.suffix.lower() not in VIDEO_ENDINGS:
        raise ZooError(f"video={one_line(path)}: expected a file that ends in {' or '.join(VIDEO_ENDINGS)}")
    if not path.is_file():
        raise ZooError(f"there is no video at {one_line(path)}")
    return Video(path, path.read_bytes())


def newest_video(agent: Path) -> Video | None:
    """Read the newest video of the run that the agent stands in, None if there is none."""
    videos = [path for path in (agent.parent / "videos").rglob("*") if path.suffix in VIDEO_ENDINGS]
    if not videos or not (agent.parent / "run.json").is_file():
        return None
    newest = max(videos, key=lambda path: (path.stat().st_mtime, path))
    return Video(newest, newest.read_bytes())


def is_repository(place: str) -> bool:
    """Whether ``place`` is USER/NAME on the Hub, and neither there as a path nor written as one."""
    path = Path(place).expanduser()
    is_path = place.startswith(("/", ".", "~")) or place.endswith(("/", ".zip")) or path.exists()
    return not is_path and _REPOSITORY.fullmatch(place) is not None


def push(
    agent: Path, to: str, *, private: bool = False, video: Video | None = None, message: str | None = None
) -> str:
    """Give the agent at ``agent`` to a place, with its page and its video; return where it is then.

    Raises `ZooError`.
    """
    files = read_as_data(agent)
    if not is_repository(to):
        return _push_to_path(files, Path(to).expanduser(), video)
    with tempfile.TemporaryDirectory() as folder:
        staged = write_agent(Path(folder, "agent"), files)
        name = None if video is None else video.name
        (staged / README).write_text(model_card(files.card, files.config, name), encoding="utf-8")
        contents = {each: (staged / each).read_bytes() for each in AGENT_FILES if (staged / each).is_file()}
        if video is not None:
            contents[video.name] = video.content
        title = f"{asked_for(files.config['algo'])} on {(files.config.get('env') or {}).get('id', '?')}"
        return Hub().push(to, contents, private=private, message=message or f"Agent: {one_line(title)}")


def _push_to_path(files: AgentFiles, path: Path, video: Video | None) -> str:
    if video is not None and path.suffix == ".zip":
        raise ZooError("a zip of an agent takes no video; push to a folder, or leave video= out")
    written = write_agent(path, files)
    if video is not None:
        (written / README).write_text(model_card(files.card, files.config, video.name), encoding="utf-8")
        write_bytes(written / video.name, video.content)
    return one_line(written, 1000)


def pull(source: str, to: str | None = None, *, revision: str | None = None) -> tuple[Path, AgentFiles]:
    """Get an agent from a place, as data; return where it is now, and what it says.

    Only an agent's own files are taken, and nothing in them is run or imported. Raises `ZooError`.
    """
    if is_repository(source):
        with tempfile.TemporaryDirectory() as folder:
            wanted = (CONFIG, POLICY, NORMALIZATION, CARD)
            fetched = Hub().pull(source, wanted, Path(folder), revision=revision)
            for needed in (CONFIG, POLICY):
                if needed not in fetched:
                    raise ZooError(f"{source} on the Hub is not an agent of Zoo's: it has no {needed}")
            return _kept(Path(folder), source.rpartition("/")[2], to)
    if revision is not None:
        raise ZooError("revision= is for repositories on the Hub")
    found = resolve_agent(source)
    # A run's best_agent, or a zip, is called after what holds it.
    name = found.stem if found.is_file() else Path(source).expanduser().resolve().name
    return _kept(found, name, to)


def _kept(found: Path, name: str, to: str | None) -> tuple[Path, AgentFiles]:
    files = read_as_data(found)
    path = Path(to).expanduser() if to is not None else Path("pulled", name)
    return write_agent(path, files), files
