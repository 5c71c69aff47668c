"""The Hugging Face Hub, through its own library: a commit of an agent's files, and the files of a repository.

Messages say what went wrong in words of our own: a library's may hold addresses, headers and tokens.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import ZooError, install_command
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

        try:
            yield
        except ZooError:
            raise
        except errors.RevisionNotFoundError as error:
            raise ZooError(f"{what}: it has no revision {one_line(revision, 80)}") from _bare(error)
        except errors.GatedRepoError as error:
            raise ZooError(f"{what}: its owner must let you in first; ask on its page") from _bare(error)
        except errors.RepositoryNotFoundError as error:
            raise ZooError(f"{what}: there is no such repository, or it is private; {LOGIN}") from _bare(
                error
            )
        except errors.HFValidationError as error:
            raise ZooError(f"{what}: the name is not one that a repository can have") from _bare(error)
        except errors.OfflineModeIsEnabled as error:
            raise ZooError(f"{what}: HF_HUB_OFFLINE is set, so nothing is fetched") from _bare(error)
        except errors.HfHubHTTPError as error:
            raise ZooError(f"{what}: {_of_status(error)}") from _bare(error)
        except ValueError as error:
            raise ZooError(f"{what}: {one_line(error)}") from _bare(error)
        except Exception as error:
            if not _is_of_the_network(error):
                raise
            raise ZooError(f"{what}: the Hub can't be reached ({type(error).__name__})") from _bare(error)


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
