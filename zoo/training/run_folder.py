"""The folder of one run: where everything that a run leaves behind stands, and what state the run is in."""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.agents.card import versions
from zoo.agents.finding import KEPT
from zoo.algorithms.callback import PREEMPTED, Callback, Training
from zoo.envs.ids import folder_name
from zoo.errors import ZooError
from zoo.files import atomic
from zoo.files.damaged import move_aside
from zoo.files.plain_data import parse_yaml, plain, to_json, to_yaml, with_finite_numbers
from zoo.files.printing import one_line
from zoo.training.checkpoint_files import has_checkpoint
from zoo.training.problems import tell, told
from zoo.training.run_record import git_state, machine, parse_record
from zoo.training.speed import Speed

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

CHECKPOINT_FOLDER = "checkpoint"

PRETRAINING_FOLDER, PRETRAINING_CURVES = "pretraining", "pretrain.csv"

FINISHED = "finished"
"""The status of a run that ended by itself."""


class StillGoingError(ZooError):
    """A run that another process trains."""


class RunFolder:
    """The paths in a run's folder, and its record ``run.json``.

    ``status`` in the record is ``running``, ``finished``, ``failed`` or ``preempted``. A run that was killed
    says ``running`` for ever: whether it still does is told by a lock, which dies with its process.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.record = self.path / "run.json"
        self.lock = self.path / ".lock"
        self.monitor = self.path / "monitor"
        self.progress = self.path / "progress.csv"
        self.tensorboard = self.path / "tb"
        self.evaluations = self.path / "evaluations.npz"
        self.agent = self.path / "agent"
        self.best_agent = self.path / "best_agent"
        self.kept_agents = self.path / KEPT
        self.checkpoint = self.path / CHECKPOINT_FOLDER
        self.pretraining = self.path / PRETRAINING_FOLDER
        """Where a pretraining stands that a signal has ended, until it goes on and ends."""
        self.pretraining_curves = self.path / PRETRAINING_CURVES
        self.videos = self.path / "videos"
        self.status: str | None = None
        """What this process has last written of ``status`` into the record."""
        self._lock: BinaryIO | None = None
        self._written: dict[Path, bytes] = {}

    @classmethod
    def create(cls, root: str | os.PathLike[str], algo: str, env: str, seed: int) -> RunFolder:
        """Make ``root/algo/env/<timestamp>_s<seed>``, another one than every other process makes."""
        parent = Path(root) / algo / folder_name(env)
        name = f"{datetime.datetime.now():%Y%m%d-%H%M%S}_s{seed}"
        try:
            atomic.make_folder(parent)
            run = cls(_made_anew(parent, name))
            atomic.sync(parent)
            run._take_lock()
        except OSError as error:
            raise ZooError(f"can't make a run's folder in {parent}: {error.strerror or error}") from error
        return run

    @classmethod
    def reopen(cls, path: str | os.PathLike[str], *, for_more_steps: bool = False) -> RunFolder:
        """Take up an interrupted run; without a checkpoint it starts anew, with what it logged removed.

        Raises `ZooError` if there is no run, if it is still going on, or if it is finished. One that is taken
        up ``for_more_steps`` than it was to have may be finished, where its checkpoint was kept.
        """
        run = cls(path)
        # A run that was killed before its first record has a config, and nothing else to go on from.
        is_recorded = run.record.exists() or not run.config.is_file() or run.agent.exists()
        try:
            record = run.read_record() if is_recorded else {}
        except ZooError:
            if not run.has_checkpoint:
                raise
            record = {}
        if record.get("status") == FINISHED:
            run._refuse_what_is_done(record, for_more_steps=for_more_steps)
        run._take_lock()
        for agent in (run.agent, run.best_agent):
            atomic.recover_folder(agent)
        for path in (run.agent, run.best_agent, run.config, run.record, run.progress, run.evaluations):
            atomic.remove_unfinished(path)
        atomic.recover_folders(run.kept_agents)
        if not run.has_checkpoint:
            run._remove_logs()
        if run.config.is_file():
            run._written[run.config] = run.config.read_bytes()
        return run

    @property
    def has_checkpoint(self) -> bool:
        """Whether the run has reached its first checkpoint."""
        return has_checkpoint(self.checkpoint)

    @property
    def has_pretraining(self) -> bool:
        """Whether a signal has ended the run's pretraining, which it can go on with."""
        return has_checkpoint(self.pretraining)

    def write_config(self, config: Mapping[str, Any]) -> bytes:
        """Write the whole resolved config, and return what now stands there."""
        self._write(self.config, to_yaml(config))
        return self._written[self.config]

    def read_config(self) -> dict[str, Any]:
        """Return what `write_config` wrote. Raises `ZooError` if it is missing or damaged."""
        try:
            return parse_yaml(self.config.read_bytes())
        except (OSError, ValueError) as error:
            raise ZooError(f"can't read the run's config {self.config}: {error}") from error

    def read_record(self) -> dict[str, Any]:
        """Return ``run.json``. Raises `ZooError` if there is no run here."""
        try:
            return parse_record(self.record.read_bytes())
        except FileNotFoundError as error:
            raise ZooError(f"there is no run in {self.path}: it has no run.json") from error
        except (OSError, ValueError) as error:
            raise ZooError(f"can't read the run's record {self.record}: {one_line(error)}") from error

    def update_record(self, **values: Any) -> None:
        """Write these values into ``run.json`` beside those that stand there."""
        record = with_finite_numbers(plain(self._record_so_far() | values))
        self._write(self.record, to_json(record))

    def close(self) -> None:
        """Let other processes take up the run."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def make_again_if_deleted(self) -> None:
        """Make a folder that was deleted while its run goes on again, with config and record, and say so."""
        if self._lock is None or os.fstat(self._lock.fileno()).st_nlink:
            return
        tell(f"{self.path} was deleted while its run goes on: what it held is lost; it begins again here")
        with told("the run goes on"):
            atomic.make_folder(self.path)
            self.close()
            self._take_lock()
            for path, content in self._written.items():
                atomic.write_bytes(path, content)

    def start(self, *, seed: int, command: Sequence[str] | None = None, job: str | None = None) -> None:
        """Record that the run is going on: who, where, with what. ``command`` is `sys.argv` if not given.

        ``job`` is the job that the run belongs to, by whatever name it will be asked for.
        """
        earlier = self._record_so_far()
        now = _now()
        again = {"resumed": [*earlier.get("resumed", []), now]} if earlier else {}
        self.status = "running"
        self.update_record(
            status=self.status,
            command=shlex.join(sys.argv if command is None else command),
            seed=seed,
            job=job or earlier.get("job"),
            host=platform.node(),
            started=earlier.get("started", now),
            ended=None,
            **again,
            **git_state(),
            versions=versions(),
            machine=machine(),
        )

    def end(self, status: str, **values: Any) -> None:
        """Record how the run ended, with ``values`` such as ``timesteps`` and ``evaluation``."""
        self.update_record(status=status, ended=_now(), **values)
        self.status = status

    def sync_logs(self) -> None:
        """Force what was logged to the disk; nothing is lost then with the checkpoint. Raises `OSError`."""
        for folder in (self.monitor, self.tensorboard):
            for path in [*folder.rglob("*"), folder] if folder.is_dir() else ():
                atomic.sync(path)
        if self.progress.exists():
            atomic.sync(self.progress)
        atomic.sync(self.path)

    @contextlib.contextmanager
    def tracked(
        self, algorithm: Algorithm[Any], *, command: Sequence[str] | None = None, job: str | None = None
    ) -> Iterator[None]:
        """Record the run's start, and its end as the block leaves it.

        The status is ``failed`` if the block raises, ``preempted`` if a signal ended the training, else
        ``finished``. A run that is resumed has been restored before.
        """
        speed = Speed(algorithm)
        try:
            self.start(seed=algorithm.seed, command=command, job=job)
            yield
            status = "preempted" if algorithm.stop_reason == PREEMPTED else FINISHED
            self.end(status, **speed.summary())
        except BaseException as error:
            preempted = isinstance(error, KeyboardInterrupt)
            message = {} if preempted else {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(ZooError):
                self.end("preempted" if preempted else "failed", **message, **speed.summary())
            raise

    def _refuse_what_is_done(self, record: Mapping[str, Any], *, for_more_steps: bool) -> None:
        """Raise `ZooError` for a finished run, unless it can have more steps."""
        anew = f"to train its agent further: zoo train init_from={shlex.quote(str(self.agent))} …"
        if not for_more_steps:
            more = ", or give it more steps: n_timesteps=…" if self.has_checkpoint else ""
            raise ZooError(f"the run in {self.path} is finished; {anew}{more}")
        if not self.has_checkpoint:
            raise ZooError(
                f"the run in {self.path} is finished, and its checkpoint was not kept"
                f" (callbacks.checkpoint.keep=true keeps it); {anew}"
            )
        if record.get("stop_reason") is not None:
            raise ZooError(
                f"the run in {self.path} ended by itself after {record.get('timesteps')} steps:"
                f" {one_line(record['stop_reason'])}; with more n_timesteps it would have, too; {anew}"
            )

    def _write(self, path: Path, text: str) -> None:
        self._written[path] = text.encode()
        atomic.write_bytes(path, self._written[path])

    def _record_so_far(self) -> dict[str, Any]:
        """Return what ``run.json`` says, if there is one; a damaged one is moved aside."""
        try:
            return parse_record(self.record.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ZooError(f"can't read the run's record {self.record}: {error}") from error
        except ValueError as error:
            aside = move_aside(self.record)
            tell(f"{self.record} is damaged ({error}): it is {aside.name} now, and another one begins")
            return {}

    def _remove_logs(self) -> None:
        for folder in (self.monitor, self.tensorboard, self.kept_agents):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.progress, self.evaluations):
            file.unlink(missing_ok=True)

    def _take_lock(self) -> None:
        """Hold a lock for as long as this process lives.

        It is a record lock: worker processes don't inherit it, so one that outlives its parent for a moment
        does not hold it.
        """
        try:
            import fcntl
        except ImportError:
            return
        try:
            flags = os.O_RDWR | os.O_CREAT
            self._lock = os.fdopen(os.open(self.lock, flags, 0o644), "r+b", buffering=0)
        except OSError as error:
            raise ZooError(f"can't write in {self.path}: {error.strerror or error}") from error
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise StillGoingError(f"the run in {self.path} is still going on in another process") from error
        except OSError:
            # A file system without locks.
            return


class FolderWatch(Callback):
    """Sees to it that a run has its folder whenever another callback writes to it."""

    looks_often = True

    def __init__(self, run: RunFolder, others: Sequence[Callback]) -> None:
        self.run = run
        self.every = math.gcd(*(int(each.every) for each in others))

    def on_steps(self, algorithm: Training) -> None:
        """Look whether it is still there."""
        self.run.make_again_if_deleted()

    def on_training_end(self, algorithm: Training) -> None:
        """Look once more."""
        self.run.make_again_if_deleted()


def _made_anew(parent: Path, name: str) -> Path:
    attempt = 1
    while True:
        path = parent / (name if attempt == 1 else f"{name}_{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return path


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
