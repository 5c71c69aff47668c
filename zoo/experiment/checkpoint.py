"""Checkpoints: the whole state of a run, from which it goes on exactly.

``checkpoint.json`` holds the plain values of a checkpoint and names the safetensors files with its arrays,
with checksums. Each `ContentFile` part of the state (a chunk of a replay buffer) has a file of its own, which
is written once and serves all later checkpoints. New arrays are on the disk before ``checkpoint.json`` is
replaced, in one step; only then are those of the checkpoint before removed. Each rank writes its share here;
``workers`` in ``checkpoint.json`` names those of the others.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.algorithms.callback import PREEMPTED, Callback, Training, named
from zoo.core import atomic
from zoo.core.plain_data import parse_json, to_json
from zoo.core.printing import one_line, print_message, report_write_errors
from zoo.core.tensors import SEPARATOR, Arrays, content_files, join, read_tensors, split, write_tensors
from zoo.core.zips import UNREADABLE
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

CHECKPOINT = "checkpoint"  # name of the order to the other ranks

FORMAT, RECORD = 6, "checkpoint.json"

KEPT_BYTES = 32 * 2**20  # of a finished run's largest checkpoint that callbacks.checkpoint.keep=auto keeps

_ARRAYS = r"(?:\d+-[0-9a-f]{8}|[0-9a-f]{32})\.safetensors"
_OWN_FILES = re.compile(rf"{_ARRAYS}|\.({_ARRAYS}|checkpoint\.json)\..*partial")  # also unfinished ones

State = dict[str, Any]
Record = dict[str, Any]


class CheckpointCallback(Callback):
    """Writes a checkpoint to ``folder`` every ``every`` environment steps.

    Nothing of the training changes with that, and a signal writes one at once; but environments that can't be
    replayed are reset at each checkpoint, and then not at a signal. ``callbacks`` are the others of the run,
    whose state is part of it. One that can't be written costs one message, and the previous one stays.
    ``keep`` says what becomes of that of a finished run: "auto" keeps a small one.

    As in Stable-Baselines3, every ``save_freq`` calls of the vector environment's step an agent is kept in
    ``save_path``, as ``<name_prefix>_<steps>_steps.zip``. It always holds a normaliser's statistics, whatever
    ``save_vecnormalize``. With ``save_replay_buffer`` there is a checkpoint beside them, otherwise none.
    """

    comes_last = True

    def __init__(
        self,
        folder: str | Path = "checkpoint",
        every: int = 0,
        callbacks: Sequence[Callback] = (),
        *,
        keep: bool | str = True,
        save_freq: int = 0,
        save_path: str | Path | None = None,
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
    ) -> None:
        if not isinstance(folder, str | Path):
            raise ZooError(f"CheckpointCallback({folder!r}): name save_freq=1000 and save_path=FOLDER")
        if save_freq and save_path is None:
            raise ZooError("CheckpointCallback(save_freq=…) needs save_path=FOLDER")
        self.folder = Path(folder if save_path is None else save_path)
        self.every, self.every_calls = every, save_freq
        self.name_prefix, self.verbose = name_prefix, verbose
        self.keeps_agents, self.checkpoints = save_freq > 0, save_replay_buffer or not save_freq
        self.callbacks = callbacks
        self.keep = keep
        self._written_at: int | None = None

    def on_training_start(self, algorithm: Training) -> None:
        if self.checkpoints and not _is_replayable(algorithm):
            print_message(
                f"these environments can't be replayed: every {self.every:,} steps a checkpoint resets them,"
                " and cuts their episodes (callbacks.checkpoint=null leaves it out)"
            )

    def on_steps(self, algorithm: Training) -> None:
        if self.keeps_agents:
            path = self.folder / f"{self.name_prefix}_{algorithm.num_timesteps}_steps.zip"
            with report_write_errors("the run goes on, and keeps no agent of this step"):
                algorithm.save(path)
                if self.verbose:
                    print_message(f"{path} is written")
        if self.checkpoints:
            if not _is_replayable(algorithm):
                algorithm.distributed.reset_all()
            self._write(algorithm)

    def on_preemption(self, algorithm: Training) -> None:
        """Write a checkpoint from which nothing has to be repeated."""
        if self.checkpoints and _is_replayable(algorithm):
            self._write(algorithm)

    def write_last(self, algorithm: Training) -> None:
        """Write a checkpoint of the run's end, if it is wanted and there is none yet."""
        is_wanted = self.keep or algorithm.stop_reason == PREEMPTED
        if is_wanted and self._written_at != algorithm.num_timesteps:
            self.on_preemption(algorithm)

    def drop(self) -> None:
        """Remove the checkpoint of a finished run unless it is kept, and its folder if it is empty then."""
        with contextlib.suppress(OSError):
            n_bytes = sum(path.stat().st_size for path in self.folder.iterdir())
            if not (n_bytes <= KEPT_BYTES if self.keep == "auto" else self.keep):
                (self.folder / RECORD).unlink(missing_ok=True)
                _remove_unused_files(self.folder)
                self.folder.rmdir()

    def _write(self, algorithm: Training) -> None:
        with report_write_errors("the run goes on, and the previous checkpoint, if any, stays"):
            write_checkpoint(self.folder, algorithm, self.callbacks)
            self._written_at = algorithm.num_timesteps


def _is_replayable(algorithm: Training) -> bool:
    return algorithm.envs is not None and algorithm.envs.is_replayable


def check_barriers(algorithm: Algorithm, config: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
    """Raise `ZooError` for checkpoints that reset environments at other steps than in the run ``before``."""
    if before is None or algorithm.envs is None or algorithm.envs.is_replayable:
        return
    now, earlier = ((conf["callbacks"].get("checkpoint") or {}).get("every") for conf in (config, before))
    if now != earlier:
        raise ZooError(
            f"callbacks.checkpoint.every={now}; expected {earlier}, as in the run: checkpoints reset"
            " environments that can't be replayed"
        )


# -- of a run ---------------------------------------------------------------------------------------------


@dataclass
class Checkpoint:
    """A checkpoint's content; the arrays in the algorithm's state tree are views of its files."""

    timesteps: int
    algorithm: State
    callbacks: dict[str, State]
    monitor: list[int] | None


def write_checkpoint(folder: str | Path, algorithm: Training, callbacks: Iterable[Callback] = ()) -> None:
    """Write the state of an algorithm between two updates, with all ranks, and of its callbacks.

    Log files are forced to the disk before. Raises `ZooError` or `OSError` if something can't be written.
    """
    folder, workers = Path(folder), algorithm.distributed.workers
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    values = {
        "timesteps": algorithm.num_timesteps,
        "callbacks": {name: saved for name, callback in named(callbacks) if (saved := callback.state())},
        "monitor": None if monitor is None else monitor.offsets(),
    }
    try:
        if workers is not None:
            workers.order(CHECKPOINT, folder=str(folder.absolute()))
        own_share = write_share(folder, algorithm)
        shares = [own_share] if workers is None else workers.gather(own_share)
        for rank, share in enumerate(shares):
            if "error" in share:
                raise ZooError(f"rank {rank}: {share['error']}" if rank else share["error"])
        others = {"workers": shares[1:]} if shares[1:] else {}
        record = {"format": FORMAT, **own_share, **others, **values}
        atomic.write_json(folder / RECORD, {**record, "checksum": zlib.crc32(to_json(record).encode())})
    finally:
        _remove_unused_files(folder)


def restore(checkpoint: Checkpoint, algorithm: Algorithm, callbacks: Iterable[Callback] = ()) -> None:
    """Bring algorithm, callbacks and their files back to where they were at the checkpoint.

    Then ``algorithm.learn(algorithm.total_timesteps - algorithm.num_timesteps, callbacks,
    reset_num_timesteps=False)`` goes on as if nothing had happened.
    """
    by_name = dict(named(callbacks))
    algorithm.load_state(checkpoint.algorithm)
    for name, state in checkpoint.callbacks.items():
        by_name[name].load_state(state)
    monitor = algorithm.envs.monitor if algorithm.envs is not None else None
    if checkpoint.monitor is not None and monitor is not None:
        monitor.truncate(checkpoint.monitor)


def read_share(folder: Path, rank: int) -> State:
    """Return the state of one of the ranks. Raises `ZooError`."""
    return _read_share(folder, _shares(_read_record(folder))[rank])


# -- files ------------------------------------------------------------------------------------------------


def read_checkpoint(folder: str | Path, n_workers: int | None = None) -> Checkpoint:
    """Return the checkpoint in ``folder``, with the state of rank 0.

    Raises `ZooError` if there is none, it is damaged, or it is not of ``n_workers``.
    """
    folder = Path(folder)
    record = _read_record(folder)
    shares = _shares(record)
    if n_workers not in (None, n := len(shares)):
        raise ZooError(f"the checkpoint is of workers={n}, and can't go on with workers={n_workers}")
    state, *_ = [_read_share(folder, share) for share in shares]
    return Checkpoint(record["timesteps"], state, record.get("callbacks", {}), record.get("monitor"))


def checkpoint_step(folder: Path) -> int:
    """Return the environment step of the checkpoint in ``folder``. Raises `ZooError`."""
    return int(_read_record(folder)["timesteps"])


def write_share(folder: Path, algorithm: Training) -> Record:
    """Write a rank's arrays; return the files' names and checksums with the plain values, or the error."""
    written: Record = {}
    parts: Record = {}
    with contextlib.suppress(ZooError):
        for share in _shares(_read_record(folder)):
            written |= {part["name"]: part for part in share["parts"].values()}
    try:
        state = algorithm.state()
        arrays, values = split(state)
        for place, content in content_files(state).items():
            rows = {name: arrays.pop(f"{place}{SEPARATOR}{name}") for name in split(content)[0]}
            path = folder / f"{content.name}.safetensors"
            if content.name in written and path.is_file():
                parts[place] = written[content.name]
            else:
                parts[place] = {"name": content.name, "checksum": write_tensors(path, rows)}
        tensors = f"{algorithm.num_timesteps}-{secrets.token_hex(4)}.safetensors"
        checksum = write_tensors(folder / tensors, arrays)
    except (ZooError, OSError) as error:
        return {"error": str(error)}
    return {"tensors": tensors, "tensors_checksum": checksum, "parts": parts, "algorithm": values}


def _read_share(folder: Path, share: Record) -> State:
    arrays = _read_arrays(folder / share["tensors"], share["tensors_checksum"])
    for place, part in share["parts"].items():
        rows = _read_arrays(folder / f"{part['name']}.safetensors", part["checksum"])
        arrays |= {f"{place}{SEPARATOR}{key}": array for key, array in rows.items()}
    return join(arrays, share["algorithm"], {place: part["name"] for place, part in share["parts"].items()})


def _read_arrays(path: Path, checksum: int) -> Arrays:
    try:
        return read_tensors(path, checksum)
    except FileNotFoundError as error:
        raise _damaged(path, "it is missing") from error
    except ValueError as error:
        raise _damaged(path, one_line(error)) from error


def _read_record(folder: Path) -> Record:
    path = folder / RECORD
    try:
        record = parse_json(path.read_bytes())
        checksum = record.pop("checksum", None)
        if record["format"] != FORMAT:
            formats = f"has checkpoint format {record['format']:d}, this version of Zoo reads {FORMAT}"
            raise ZooError(f"{path} {formats}; resume it with the version that wrote it")
        if checksum != zlib.crc32(to_json(record).encode()):
            raise ValueError("its checksum does not match")
    except FileNotFoundError as error:
        raise ZooError(f"there is no checkpoint in {folder}") from error
    except UNREADABLE as error:
        raise _damaged(path, one_line(error)) from error
    return record


def _damaged(path: Path, problem: object) -> ZooError:
    folder = path.parent
    return ZooError(
        f"{path} is damaged: {problem}. Without {folder} the run starts anew; another run takes over its best"
        f" agent with init_from={folder.parent}"
    )


def _shares(record: Record) -> list[Record]:
    return [record, *record.get("workers", ())]


def _remove_unused_files(folder: Path) -> None:
    """Remove the arrays of earlier checkpoints, and files that a killed process left unfinished."""
    used = set()
    with contextlib.suppress(ZooError, OSError):  # what can't be read or removed now may be later
        for share in _shares(_read_record(folder)) if (folder / RECORD).is_file() else ():
            used |= {share["tensors"], *(f"{part['name']}.safetensors" for part in share["parts"].values())}
        for path in folder.iterdir():
            if _OWN_FILES.fullmatch(path.name) and path.name not in used and path.is_file():
                path.unlink(missing_ok=True)
