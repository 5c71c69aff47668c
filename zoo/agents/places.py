"""Where agents go to and come from: a folder, a zip, or a repository on the Hugging Face Hub.

Messages of the Hub are told in words of our own: a library's may hold addresses, headers and tokens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from zoo.agents.card import model_card
from zoo.agents.finding import resolve_agent
from zoo.config.sections import asked_for
from zoo.errors import ZooError, install_command
from zoo.files.atomic import write_bytes
from zoo.files.printing import one_line
from zoo.version import __version__

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


class Hub:
    """The Hub that HF_ENDPOINT names, else the public one. Raises `ZooError` without its library."""

    def __init__(self) -> None:
        try:
            import huggingface_hub
        except ImportError as error:
            raise ZooError(f"the Hugging Face Hub needs: {install_command('hub')}") from error
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        self._library = huggingface_hub
        self._api = huggingface_hub.HfApi(
            endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="zoo", library_version=__version__
        )

    def push(self, repository: str, contents: Mapping[str, bytes], *, private: bool, message: str) -> str:
        """Commit files to a repository, which is made if there is none; return its address.

        Raises `ZooError`.
        """
        if self._library.get_token() is None:
            raise ZooError(f"can't push to {repository}: you are not logged in; {LOGIN}")
        operations = [
            self._library.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in contents.items()
        ]
        with self._explained(f"can't push to {repository}", repository):
            # A repository that is there stays as public as it is.
            made = self._api.create_repo(repository, private=private or None, exist_ok=True)
            if private and self._api.model_info(repository).private is False:
                raise ZooError(f"{repository} is there already and public; private=true is for a new one")
            self._api.create_commit(repository, operations, commit_message=message)
        return one_line(made, 1000)

    def pull(
        self, repository: str, wanted: Sequence[str], folder: Path, *, revision: str | None = None
    ) -> list[str]:
        """Write those of the wanted files that a repository has into ``folder``; return their names.

        Raises `ZooError`.
        """
        with self._explained(f"can't pull {repository}", repository, revision):
            info = self._api.model_info(repository, revision=revision)
            there = {each.rfilename for each in info.siblings or []}
            names = [name for name in wanted if name in there]
            for name in names:
                self._api.hf_hub_download(repository, name, revision=info.sha, local_dir=folder)
        return names

    @contextlib.contextmanager
    def _explained(self, what: str, repository: str, revision: str | None = None) -> Iterator[None]:
        """Say in one line what the library's errors mean."""
        from huggingface_hub import errors

        problems = {
            errors.RevisionNotFoundError: f"it has no revision {one_line(revision, 80)}",
            errors.GatedRepoError: "its owner must let you in first; ask on its page",
            errors.RepositoryNotFoundError: f"there is no such repository, or it is private; {LOGIN}",
            errors.HFValidationError: "the name is not one that a repository can have",
            errors.OfflineModeIsEnabled: "HF_HUB_OFFLINE is set, so nothing is fetched",
        }
        try:
            yield
        except ZooError:
            raise
        except Exception as error:
            problem = next((said for kind, said in problems.items() if isinstance(error, kind)), None)
            if problem is None and isinstance(error, errors.HfHubHTTPError):
                problem = _of_status(error)
            if problem is None and isinstance(error, ValueError):
                problem = one_line(error)
            if problem is None and _is_of_the_network(error):
                problem = f"the Hub can't be reached ({type(error).__name__})"
            if problem is None:
                raise
            raise ZooError(f"{what}: {problem}") from _bare(error)


def _of_status(error: Any) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return f"the Hub does not know you; {LOGIN}"
    if status == 403:
        return "your token does not allow it; it needs the right to write to this repository"
    return f"the Hub answered with status {status}" if status is not None else "the Hub did not answer"


def _is_of_the_network(error: Exception) -> bool:
    """Whether an error is of a connection: the library's own kinds have changed from release to release."""
    modules = {each.__module__.partition(".")[0] for each in type(error).__mro__}
    return isinstance(error, OSError) or bool(
        modules & {"httpx", "httpx2", "httpcore", "httpcore2", "requests"}
    )


def _bare(error: Exception) -> Exception:
    """Return an error without what it came from: `ZOO_DEBUG=1` prints those, with headers in them."""
    return type("HubError", (Exception,), {})(type(error).__name__)


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
