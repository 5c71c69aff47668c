"""The CSV files of finished episodes."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from zoo.core.atomic import append, sync
from zoo.core.printing import csv_lines
from zoo.envs.transition import EpisodeRecord, now
from zoo.errors import ZooError

logger = logging.getLogger(__name__)


class EpisodeMonitor:
    """Writes ``<folder>/<i>.monitor.csv`` for each environment, in Stable-Baselines' format.

    A JSON line with start time and id, then a row ``r,l,t`` an episode: raw return, length, seconds since the
    start; then the values of ``info_keywords``. Existing files are appended to.
    """

    def __init__(
        self, folder: str | Path, num_envs: int, *, env_id: str = "", info_keywords: Sequence[str] = ()
    ) -> None:
        self.folder = Path(folder)
        self.info_keywords = tuple(info_keywords)
        self._has_failed = False
        paths = [self.folder / f"{index}.monitor.csv" for index in range(num_envs)]
        try:
            starts = [start for path in paths if (start := _start_of(path)) is not None]
            self.start = min([*starts, now()])
            self.folder.mkdir(parents=True, exist_ok=True)
            self._files = [open(path, "ab", buffering=0) for path in paths]  # noqa: SIM115
            self._is_new = [file.tell() == 0 for file in self._files]  # no checkpoint knows of these
            header = f"#{json.dumps({'t_start': self.start, 'env_id': env_id})}\n"
            columns = csv_lines([["r", "l", "t", *self.info_keywords]])
            for file, is_new in zip(self._files, self._is_new, strict=True):
                if is_new:
                    append(file, (header + columns).encode())
        except OSError as error:
            raise ZooError(f"cannot write monitor files in {self.folder}: {error.strerror}") from error

    def write(self, episode: EpisodeRecord) -> None:
        """Append one row to the file of the episode's environment; a failure is logged once."""
        total = episode.episode_return
        rounded = float(f"{total:.6g}") if abs(total) < 1e-3 else round(total, 6)  # few digits, never none
        row = [rounded, episode.length, round(episode.seconds, 6)]
        row += [episode.info.get(key, "") for key in self.info_keywords]
        file = self._files[episode.env_index]
        try:
            append(file, csv_lines([row]).encode())
        except OSError as error:
            if not self._has_failed:
                reason = f"can't write {file.name}: {error.strerror}"
                logger.warning("%s; the run goes on, and the monitor lacks episodes until it can", reason)
            self._has_failed = True

    def offsets(self) -> list[int]:
        """Force the files to the disk and return the size of each in bytes, to `truncate` to."""
        for file in self._files:
            os.fsync(file.fileno())
        sync(self.folder)
        self._is_new = [False] * len(self._files)
        return [os.fstat(file.fileno()).st_size for file in self._files]

    def truncate(self, offsets: Sequence[int]) -> None:
        """Drop all rows that were written after `offsets` returned these sizes; log if earlier ones lack."""
        for file, offset, is_new in zip(self._files, offsets, self._is_new, strict=True):
            if os.fstat(file.fileno()).st_size < offset:
                logger.warning("%s is shorter than at the checkpoint; episodes are lost", file.name)
            if not is_new:
                file.truncate(Path(file.name).read_bytes()[:offset].rfind(b"\n") + 1)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _start_of(path: Path) -> float | None:
    """Return the start time in a file's header, None if there is no file, or nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            start, columns = json.loads(file.readline()[1:])["t_start"], file.readline()
        if not columns.endswith("\n"):
            raise ValueError("its header is cut off")
        return float(start)
    except (ValueError, LookupError, TypeError) as error:
        raise ZooError(f"{path} is damaged, so that no rows can be added to it: {error!r}") from error
