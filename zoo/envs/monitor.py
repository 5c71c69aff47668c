"""Finished episodes: a record of each, and the CSV files that hold them."""

from __future__ import annotations

import csv
import json
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from zoo.errors import ZooError


@dataclass(slots=True)
class EpisodeRecord:
    """One finished episode: the sum of its raw rewards and its length in environment steps."""

    env_index: int
    episode_return: float
    length: int
    seconds: float
    """When it ended, in seconds since the monitor's (or stepper's) start."""
    info: dict[str, Any] = field(default_factory=dict)
    """``is_success`` where the environment gives it, and the values of ``info_keywords``."""


class RecentEpisodes(deque[EpisodeRecord]):
    """The last episodes that finished, as a part of a run's state."""

    def state(self) -> dict[str, Any]:
        """Return the records as plain values."""
        return {"records": [asdict(record) for record in self]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
        self.clear()
        self.extend(EpisodeRecord(**record) for record in state["records"])


class EpisodeMonitor:
    """Writes ``<folder>/<i>.monitor.csv`` for each environment, in Stable-Baselines' format.

    A JSON line with start time and id, then one row ``r,l,t`` an episode: raw return, length, seconds since
    the start; the values of ``info_keywords`` follow as columns of their own. Existing files are appended to.
    """

    def __init__(
        self, folder: str | Path, num_envs: int, *, env_id: str = "", info_keywords: Sequence[str] = ()
    ) -> None:
        self.folder = Path(folder)
        self.info_keywords = tuple(info_keywords)
        self.start = time.time()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._files = [self._open(i, env_id) for i in range(num_envs)]
        except OSError as error:
            raise ZooError(f"cannot write monitor files in {self.folder}: {error.strerror}") from error

    def write(self, episode: EpisodeRecord) -> None:
        """Append one row to the file of the episode's environment."""
        row = [round(episode.episode_return, 6), episode.length, round(episode.seconds, 6)]
        row += [episode.info.get(key, "") for key in self.info_keywords]
        file = self._files[episode.env_index]
        try:
            csv.writer(file, lineterminator="\n").writerow(row)
            file.flush()
        except OSError as error:
            raise ZooError(f"cannot write {file.name}: {error.strerror}") from error

    def offsets(self) -> list[int]:
        """Return the size of each file in bytes, to `truncate` to."""
        return [os.fstat(file.fileno()).st_size for file in self._files]

    def truncate(self, offsets: Sequence[int]) -> None:
        """Drop all rows that were written after `offsets` returned these sizes."""
        if len(offsets) != len(self._files):
            raise ZooError(f"{len(offsets)} monitor files were saved; there are {len(self._files)} now")
        for file, offset in zip(self._files, offsets, strict=True):
            if os.fstat(file.fileno()).st_size < offset:
                raise ZooError(f"{file.name} is shorter than at the checkpoint; was it edited?")
            file.truncate(offset)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _open(self, index: int, env_id: str) -> IO[str]:
        """Open one file at its end; a new one gets its header."""
        path = self.folder / f"{index}.monitor.csv"
        file = path.open("a+", encoding="utf-8", newline="")
        file.seek(0)
        header = file.readline()
        if header.startswith("#"):
            self.start = json.loads(header[1:])["t_start"]
        else:
            file.write(f"#{json.dumps({'t_start': self.start, 'env_id': env_id})}\n")
            csv.writer(file, lineterminator="\n").writerow(["r", "l", "t", *self.info_keywords])
            file.flush()
        file.seek(0, os.SEEK_END)
        return file
