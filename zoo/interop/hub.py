"""Pushing and pulling agents: to and from a folder, a zip, or a repository on the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LOGIN = "log in with `hf auth login`, or set HF_TOKEN"

VIDEO_ENDINGS = (".mp4", ".gif")

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@contextlib.contextmanager
def _hub(action: str) -> Iterator[HfApi]:
    """Give the Hub that HF_ENDPOINT names, else the public one; say in one line what its errors mean.

    Those of its library may hold addresses, headers and tokens. Raises `ZooError`.
    """
    try:
        from huggingface_hub import HfApi, errors
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as error:
        raise ZooError(f"the Hugging Face Hub needs: {install_command('hub')}") from error
    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        yield HfApi(endpoint=endpoint, library_name="zoo", library_version=__version__)
    except ZooError:
        raise
    except Exception as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, errors.RevisionNotFoundError):
            problem = "it has no such revision"
        elif isinstance(error, errors.RepositoryNotFoundError):
            problem = f"there is no such repository, or it is private; {LOGIN}"
        elif status in (401, 403):
            problem = f"the Hub does not let you; {LOGIN}, with a token that may write"
        else:
            answer = type(error).__name__ if status is None else f"it answered {status}"
            problem = f"the Hub is out of reach ({answer})"
        raise ZooError(f"{action}: {problem}") from None


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
    """Copy the agent to a place, with its page and its video; return its address. Raises `ZooError`."""
    files = read_as_data(agent)
    if not is_repository(to):
        path = Path(to).expanduser()
        if video is not None and path.suffix == ".zip":
            raise ZooError("a zip of an agent takes no video; push to a folder, or leave video= out")
        return one_line(_written(path, files, video, has_page=video is not None), 1000)
    title = f"{preset_or_name(files.config['algo'])} on {(files.config.get('env') or {}).get('id', '?')}"
    with tempfile.TemporaryDirectory() as folder, _hub(f"can't push to {to}") as hub:
        staged = _written(Path(folder, "agent"), files, video, has_page=True)
        # A repository that is there stays as public as it is.
        address = hub.create_repo(to, private=private or None, exist_ok=True)
        if private and hub.model_info(to).private is False:
            raise ZooError(f"{to} is there already and public; private=true is for a new one")
        message = message or f"Agent: {one_line(title)}"
        hub.upload_folder(repo_id=to, folder_path=staged, commit_message=message)
    return str(address)


def _written(path: Path, files: AgentFiles, video: Path | None, *, has_page: bool) -> Path:
    """Write an agent, optionally with the Hub's page as its README and a video."""
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
    if is_repository(source):
        name = source.rpartition("/")[2]
        at = "" if revision is None else f" at {one_line(revision, 80)}"
        with tempfile.TemporaryDirectory() as folder, _hub(f"can't pull {source}{at}") as hub:
            info = hub.model_info(source, revision=revision)
            there = {file.rfilename for file in info.siblings or []}
            for needed in (CONFIG, POLICY):
                if needed not in there:
                    raise ZooError(f"{source} on the Hub is not an agent of Zoo's: it has no {needed}")
            for wanted in there & {CONFIG, POLICY, NORMALIZATION, CARD}:
                hub.hf_hub_download(source, wanted, revision=info.sha, local_dir=folder)
            files = read_as_data(folder)
    elif revision is not None:
        raise ZooError("revision= is for repositories on the Hub")
    else:
        agent = resolve_agent(source)
        # A run's best_agent, or a zip, is called after what holds it.
        name = agent.stem if agent.is_file() else Path(source).expanduser().resolve().name
        files = read_as_data(agent)
    path = Path(to).expanduser() if to is not None else Path("pulled", name)
    return write_agent(path, files), files
