"""Pushing and pulling agents: to and from a folder, a zip, or a repository on the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from zoo.agents.agent_folder import (
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
from zoo.agents.find import resolve_agent
from zoo.config.schema import preset_or_name
from zoo.core.atomic import write_bytes
from zoo.core.printing import one_line
from zoo.errors import ZooError, install_command
from zoo.version import __version__

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"

VIDEO_ENDINGS = (".mp4", ".gif")

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


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
        with _explained(f"can't push to {repository}"):
            # A repository that is there stays as public as it is.
            made = self._api.create_repo(repository, private=private or None, exist_ok=True)
            if private and self._api.model_info(repository).private is False:
                raise ZooError(f"{repository} is there already and public; private=true is for a new one")
            self._api.create_commit(repository, operations, commit_message=message)
        return one_line(made, 1000)

    def pull(
        self, repository: str, wanted: Sequence[str], folder: Path, *, revision: str | None
    ) -> list[str]:
        """Write those of the wanted files that a repository has into ``folder``; return their names.

        Raises `ZooError`.
        """
        with _explained(
            f"can't pull {repository}{'' if revision is None else f' at {one_line(revision, 80)}'}"
        ):
            info = self._api.model_info(repository, revision=revision)
            there = {each.rfilename for each in info.siblings or []}
            names = [name for name in wanted if name in there]
            for name in names:
                self._api.hf_hub_download(repository, name, revision=info.sha, local_dir=folder)
        return names


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Say in one line what the library's errors mean; theirs may hold addresses, headers and tokens."""
    from huggingface_hub import errors

    problems = {
        errors.RevisionNotFoundError: "it has no such revision",
        errors.RepositoryNotFoundError: f"there is no such repository, or it is private; {LOGIN}",
        errors.HFValidationError: "the name is not one that a repository can have",
    }
    try:
        yield
    except ZooError:
        raise
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        problem = next((said for kind, said in problems.items() if isinstance(error, kind)), None)
        if problem is None and status in (401, 403):
            problem = f"the Hub does not let you; {LOGIN}, with a token that may write"
        if problem is None and status is not None:
            problem = f"the Hub answered {status}"
        raise ZooError(f"{what}: {problem or f'the Hub is out of reach ({type(error).__name__})'}") from None


def newest_video(agent: Path) -> Path | None:
    """Return the newest video of the run that the agent stands in, None if there is none."""
    videos = [path for path in (agent.parent / "videos").rglob("*") if path.suffix in VIDEO_ENDINGS]
    is_in_run = (agent.parent / "run.json").is_file()
    return max(videos, key=lambda path: path.stat().st_mtime) if videos and is_in_run else None


def is_repository(place: str) -> bool:
    """Whether ``place`` is USER/NAME on the Hub, and neither there as a path nor written as one."""
    path = Path(place).expanduser()
    is_path = place.startswith(("/", ".", "~")) or place.endswith(("/", ".zip")) or path.exists()
    return not is_path and _REPOSITORY.fullmatch(place) is not None


def push(
    agent: Path, to: str, *, private: bool = False, video: Path | None = None, message: str | None = None
) -> str:
    """Copy the agent at ``agent`` to a place, with its page and its video; return its address.

    Raises `ZooError`.
    """
    files = read_as_data(agent)
    if not is_repository(to):
        path = Path(to).expanduser()
        if video is not None and path.suffix == ".zip":
            raise ZooError("a zip of an agent takes no video; push to a folder, or leave video= out")
        return one_line(_written(path, files, video, has_page=video is not None), 1000)
    with tempfile.TemporaryDirectory() as folder:
        staged = _written(Path(folder, "agent"), files, video, has_page=True)
        contents = {each.name: each.read_bytes() for each in staged.iterdir()}
    title = f"{preset_or_name(files.config['algo'])} on {(files.config.get('env') or {}).get('id', '?')}"
    return Hub().push(to, contents, private=private, message=message or f"Agent: {one_line(title)}")


def _written(path: Path, files: AgentFiles, video: Path | None, *, has_page: bool) -> Path:
    """Write an agent, with the Hub's page in the place of its README and a video beside it."""
    written = write_agent(path, files)
    name = None if video is None else f"replay{video.suffix.lower()}"
    if has_page:
        (written / README).write_text(model_card(files.card, files.config, name), encoding="utf-8")
    if video is not None and name is not None:
        write_bytes(written / name, video.read_bytes())
    return written


def pull(source: str, to: str | None = None, *, revision: str | None = None) -> tuple[Path, AgentFiles]:
    """Copy an agent from a place, as data; return its path and its files.

    Only an agent's own files are taken, and nothing in them is run or imported. Raises `ZooError`.
    """
    if not is_repository(source):
        if revision is not None:
            raise ZooError("revision= is for repositories on the Hub")
        found = resolve_agent(source)
        # A run's best_agent, or a zip, is called after what holds it.
        name = found.stem if found.is_file() else Path(source).expanduser().resolve().name
        return _kept(found, name, to)
    with tempfile.TemporaryDirectory() as folder:
        wanted = (CONFIG, POLICY, NORMALIZATION, CARD)
        fetched = Hub().pull(source, wanted, Path(folder), revision=revision)
        for needed in (CONFIG, POLICY):
            if needed not in fetched:
                raise ZooError(f"{source} on the Hub is not an agent of Zoo's: it has no {needed}")
        return _kept(Path(folder), source.rpartition("/")[2], to)


def _kept(found: Path, name: str, to: str | None) -> tuple[Path, AgentFiles]:
    files = read_as_data(found)
    path = Path(to).expanduser() if to is not None else Path("pulled", name)
    return write_agent(path, files), files
