"""What workers write for each other where they meet: signed, where others can reach that place.

The tasks of a job meet at a port of a node, to which whoever reaches the node can connect, and say anything:
which config to run, above all. The tasks have the home folder in common. So each word is signed by the user's
key, for this step of this job and under this key of the store, and no other is heard.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import numpy as np

from zoo.errors import ZooError
from zoo.files.own_key import is_signed, key_file_of_user, signature_of
from zoo.files.printing import one_line

if TYPE_CHECKING:
    from zoo.optim.workers import Store, Workers

PURPOSE = "zoo workers"
"""What the user's key signs here."""

PROOF_BYTES = 32


class Words:
    """The words in a store, by their names; signed for ``job``, or plain in a folder of this user's.

    Raises `ZooError` if they have to be signed, and there is no key.
    """

    def __init__(self, store: Store, job: str | None) -> None:
        self._store, self._job = store, job
        if job is not None:
            self._signature("", "")

    def write(self, name: str, text: str) -> None:
        """Leave a word."""
        self._store.set(name, text if self._job is None else json.dumps([text, self._signature(name, text)]))

    def has(self, name: str) -> bool:
        """Whether this word has been left."""
        there: bool = self._store.check([name])
        return there

    def read(self, name: str) -> str:
        """Return a word once it is there. Raises `ZooError` if it is none of this user's."""
        found: str = self._store.get(name).decode(errors="replace")
        if self._job is None:
            return found
        try:
            text, signature = json.loads(found)
        except (ValueError, TypeError, RecursionError):
            text, signature = None, None
        if not isinstance(text, str) or not is_signed(PURPOSE, self._signed(name, text), signature):
            raise ZooError(
                f"`{one_line(name, 40)}` where the workers of this job meet is not signed by your key: it"
                f" comes from somebody else, or {key_file_of_user()} is not the same for all tasks"
            )
        return text

    def check_members(self, workers: Workers) -> None:
        """See to it that each of the workers has this user's key, by a question that was never asked before.

        Raises `ZooError` in all that have it if one has not.
        """
        if self._job is None:
            return
        question = workers.rows(_numbers(secrets.token_bytes(PROOF_BYTES)))
        asked = question.astype(np.uint8).tobytes().hex()
        own = bytes.fromhex(self._signature(f"member {workers.rank}", asked))
        answers = workers.rows(_numbers(own))
        for rank, answer in enumerate(answers):
            given = answer.astype(np.uint8).tobytes().hex()
            if not is_signed(PURPOSE, self._signed(f"member {rank}", asked), given):
                raise ZooError(f"worker {rank} of this job has not your key: it is somebody else's process")

    def _signature(self, name: str, text: str) -> str:
        signature = signature_of(PURPOSE, self._signed(name, text))
        if signature is None:
            raise ZooError(
                "the tasks of a job know each other by your key, and there is none:"
                f" {key_file_of_user() or 'you have no home folder'} can't be made or read"
            )
        return signature

    def _signed(self, name: str, text: str) -> str:
        return json.dumps([self._job, name, text])


def _numbers(content: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.frombuffer(content, np.uint8).astype(np.float64)
