"""Environments stepped in worker processes: several in each, arrays in shared memory, the same results.

A worker runs the same `EnvGroup` as `InProcessVectorEnv`, on its rows of the shared arrays. Messages
through its pipe only say that there is something to do or to read; infos and final observations travel
through it where there are any.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import select
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction, util
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import IO, Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from zoo.envs.in_process import EnvGroup
from zoo.envs.same_step import EpisodeEnd, Info, Observations, SameStepVectorEnv, Transition, copied
from zoo.envs.spaces import Space, batch_array, spaces_differ
from zoo.errors import ZooError

Env = gym.Env[Any, Any]

STEP = b""
"""The message for the most frequent command; every other one is pickled."""
NOTHING, RESULT, REFUSED, ERROR = b"\x00", b"\x01", b"\x02", b"\x03"
"""First byte of a reply: no infos and no ends; a pickled result; why a call failed; why all has ended."""

SECONDS_TO_CLOSE = 5.0
"""How long a worker may take to close its environments before it is killed."""


class Worker(NamedTuple):
    """One process, our end of its pipe, and which environments it steps."""

    process: BaseProcess
    connection: Connection
    poller: select.poll
    rows: range


class WorkersVectorEnv(SameStepVectorEnv):
    """Steps its environments in worker processes: for slow environments, where cores are idle.

    Results are bit for bit those of `InProcessVectorEnv`. An environment that raises ends everything with
    its own traceback, a worker that dies with its exit code or signal.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        *,
        n_workers: int | None = None,
        start_method: str = "forkserver",
        seed: int | None = None,
    ) -> None:
        self._owner = os.getpid()
        self._workers: list[Worker] = []
        self._unread: list[Worker] = []
        self._arrays: dict[str, NDArray[Any]] = {}
        self._finalizer = util.Finalize(self, _shut_down, (self._workers, self._owner), exitpriority=10)
        try:
            self._start(make_envs, n_workers or len(os.sched_getaffinity(0)), start_method)
            observation_space, action_space = self._read_spaces()
            super().__init__(len(make_envs), observation_space, action_space, seed=seed)
            self._share_arrays()
        except BaseException:
            self.close_extras()
            raise

    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``."""
        self._arrays["actions"][...] = self.own_actions(actions)
        replies = self._ask_all([STEP] * len(self._workers))
        ends: list[EpisodeEnd] = []
        infos: list[Info] = []
        for worker, reply in zip(self._workers, replies, strict=True):
            own_ends, own_infos = reply if reply is not None else ([], [{} for _ in worker.rows])
            ends.extend(own_ends)
            infos.extend(own_infos)
        return Transition(
            copied(self._observations),
            self._arrays["rewards"].copy(),
            self._arrays["terminated"].copy(),
            self._arrays["truncated"].copy(),
            ends,
            infos,
        )

    def reset_rows(
        self, seeds: Sequence[int | None], options: dict[str, Any] | None, rows: Sequence[int]
    ) -> tuple[Observations, list[Info]]:
        """Reset the environments ``rows``."""
        commands = []
        for worker in self._workers:
            own_seeds = [seeds[i] for i in worker.rows]
            own_rows = [i - worker.rows.start for i in rows if i in worker.rows]
            commands.append(_message("reset", own_seeds, options, own_rows))
        infos = [info for reply in self._ask_all(commands) for info in reply]
        return copied(self._observations), infos

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which actions are valid now, (num_envs, actions), or None."""
        masks = self._ask_all([_message("action_masks")] * len(self._workers))
        return None if masks[0] is None else np.concatenate(masks)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; what comes back must be picklable."""
        replies = self._ask_all([_message("call", name, args, kwargs)] * len(self._workers))
        return tuple(result for reply in replies for result in reply)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{len(each)} values for {self.num_envs} environments")
        self._ask_all(
            [_message("set_attr", name, [each[i] for i in worker.rows]) for worker in self._workers]
        )

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return self.call("render")

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers, by force if they don't end by themselves."""
        if os.getpid() != self._owner:
            return
        self._finalizer()
        self._unread = []

    def _start(self, make_envs: Sequence[Callable[[], Env]], n_workers: int, start_method: str) -> None:
        """Start the workers, each with as many environments as the others, give or take one."""
        context: Any = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(["zoo.envs"])
        for part in np.array_split(np.arange(len(make_envs)), min(n_workers, len(make_envs))):
            rows = range(int(part[0]), int(part[-1]) + 1)
            ours, theirs = context.Pipe()
            makers = [CloudpickleWrapper(make_envs[i]) for i in rows]
            inherited = ours if start_method == "fork" else None
            process = context.Process(
                target=run_worker, args=(makers, rows, theirs, inherited), name=f"zoo env worker {rows.start}"
            )
            try:
                process.start()
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                raise ZooError(
                    f"the environment cannot be sent to a worker process: {error}; "
                    "use env.start_method=fork, or env.vectorization=sync"
                ) from error
            theirs.close()
            poller = select.poll()
            poller.register(ours.fileno(), select.POLLIN)
            self._workers.append(Worker(process, ours, poller, rows))
            self._unread.append(self._workers[-1])

    def _read_spaces(self) -> tuple[Space, Space]:
        """Wait until all environments are made, and return the spaces that they agree on."""
        replies = [self._read(worker) for worker in self._workers]
        first, *others = replies
        for worker, reply in zip(self._workers[1:], others, strict=True):
            for name in ("observation_space", "action_space"):
                difference = spaces_differ(first[name], reply[name])
                if difference is not None:
                    raise ZooError(f"env {worker.rows.start} has another {name} than env 0: {difference}")
        self.metadata, self.render_mode = first["metadata"], first["render_mode"]
        return first["observation_space"], first["action_space"]

    def _share_arrays(self) -> None:
        """Lay the arrays out in one block of shared memory and hand each worker its rows."""
        spaces = (self.single_observation_space, self.single_action_space)
        size = _layout(self.num_envs, *spaces, None)[1]
        with _anonymous_memory(size) as file:
            for worker in self._workers:
                worker.connection.send((size, self.num_envs))
                reduction.send_handle(worker.connection, file.fileno(), worker.process.pid)
                self._unread.append(worker)
            self._arrays, _ = _layout(self.num_envs, *spaces, mmap.mmap(file.fileno(), size))
        self._observations = _observation_arrays(self._arrays)
        for worker in self._workers:
            self._read(worker)

    def _ask_all(self, messages: Sequence[bytes]) -> list[Any]:
        """Send each worker its message, then read all replies."""
        if not self._workers:
            raise ZooError("the environments are closed")
        for worker in list(self._unread):
            with contextlib.suppress(AttributeError):
                self._read(worker)
        for worker, message in zip(self._workers, messages, strict=True):
            try:
                worker.connection.send_bytes(message)
            except OSError:
                raise self._death_of(worker) from None
            self._unread.append(worker)
        return [self._read(worker) for worker in self._workers]

    def _read(self, worker: Worker) -> Any:
        """Return one reply; raise what the environment raised, or how the worker died."""
        while not worker.poller.poll(1000):
            if _is_dead(worker.process):
                raise self._death_of(worker)
        try:
            reply = worker.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._death_of(worker) from None
        self._unread.remove(worker)
        kind = reply[:1]
        if kind == NOTHING:
            return None
        if kind == ERROR:
            self.close()
            raise ZooError(reply[1:].decode())
        if kind == REFUSED:
            raise AttributeError(reply[1:].decode())
        return pickle.loads(reply[1:])

    def _death_of(self, worker: Worker) -> ZooError:
        """End everything and say how a worker died."""
        _wait_for(worker.process, time.monotonic() + 1.0)
        code = worker.process.exitcode
        started = bool(self._arrays)
        self.close()
        first, last = worker.rows.start, worker.rows.stop - 1
        which = f"env {first}" if first == last else f"envs {first} to {last}"
        return ZooError(f"the worker process of {which} died: {_cause(code, started)}")


def run_worker(
    makers: Sequence[Callable[[], Env]], rows: range, connection: Connection, inherited: Connection | None
) -> None:
    """Make the environments ``rows`` and do as the pipe says until it is closed.

    Ctrl-C and SIGTERM reach a whole process group; the parent decides what comes of them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if inherited is not None:
        inherited.close()
    group: EnvGroup | None = None
    try:
        group = EnvGroup(makers, rows.start)
        connection.send_bytes(RESULT + pickle.dumps(_facts(group)))
        size, num_envs = connection.recv()
        descriptor = reduction.recv_handle(connection)
        memory = mmap.mmap(descriptor, size)
        os.close(descriptor)
        _serve(group, connection, memory, rows, num_envs)
    except ZooError as error:
        with contextlib.suppress(OSError):
            connection.send_bytes(ERROR + str(error).encode())
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # The parent is gone, or an environment brought Ctrl-C back.
    finally:
        if group is not None:
            with contextlib.suppress(Exception):
                group.close()
        connection.close()


def _facts(group: EnvGroup) -> dict[str, Any]:
    first = group.envs[0]
    return {
        "observation_space": group.observation_space,
        "action_space": group.action_space,
        "metadata": first.metadata,
        "render_mode": first.render_mode,
    }


def _serve(group: EnvGroup, connection: Connection, memory: mmap.mmap, rows: range, num_envs: int) -> None:
    """Answer commands until the parent says ``close``."""
    arrays, _ = _layout(num_envs, group.observation_space, group.action_space, memory)
    own = {name: array[rows.start : rows.stop] for name, array in arrays.items()}
    group.use_arrays(_observation_arrays(own), own["rewards"], own["terminated"], own["truncated"])
    actions = own["actions"]
    commands: dict[str, Callable[..., Any]] = {
        "reset": group.reset,
        "action_masks": group.action_masks,
        "call": lambda name, args, kwargs: group.call(name, *args, **kwargs),
        "set_attr": group.set_attr,
    }
    connection.send_bytes(NOTHING)
    while True:
        message = connection.recv_bytes()
        if message == STEP:
            ends = group.step(actions.copy())
            if not ends and not any(group.last_infos):
                connection.send_bytes(NOTHING)
            else:
                connection.send_bytes(_result((_placed(ends, rows), group.last_infos)))
            continue
        command, *arguments = pickle.loads(message)
        if command == "close":
            return
        try:
            reply = _result(commands[command](*arguments))
        except AttributeError as error:
            reply = REFUSED + str(error).encode()
        connection.send_bytes(reply)


def _result(result: Any) -> bytes:
    try:
        return RESULT + pickle.dumps(result)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ZooError(
            f"the environment gave something that cannot be sent between processes: {error}; "
            "leave it out of the info, or use env.vectorization=sync"
        ) from error


def _placed(ends: Sequence[EpisodeEnd], rows: range) -> list[EpisodeEnd]:
    """Return the ends with the indices that their environments have among all."""
    return [end._replace(env_index=rows.start + end.env_index) for end in ends]


def _message(command: str, *arguments: Any) -> bytes:
    return pickle.dumps((command, *arguments))


def _layout(
    num_envs: int, observation_space: Space, action_space: Space, memory: mmap.mmap | None
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the arrays in ``memory``, or how they would be, and the bytes that they take.

    ``observations`` is one array, or ``observations/<key>`` one a key. Each begins at a cache line.
    """
    observations = batch_array(observation_space, num_envs)
    parts = (
        {f"observations/{key}": array for key, array in observations.items()}
        if isinstance(observations, dict)
        else {"observations": observations}
    )
    like: dict[str, NDArray[Any]] = {
        **parts,
        "actions": batch_array(action_space, num_envs),
        "rewards": np.zeros(num_envs),
        "terminated": np.zeros(num_envs, dtype=np.bool_),
        "truncated": np.zeros(num_envs, dtype=np.bool_),
    }
    arrays: dict[str, NDArray[Any]] = {}
    offset = 0
    for name, array in like.items():
        arrays[name] = (
            array if memory is None else np.ndarray(array.shape, array.dtype, memory, offset=offset)
        )
        offset += -(-array.nbytes // 64) * 64
    return arrays, offset


@contextlib.contextmanager
def _anonymous_memory(size: int) -> Iterator[IO[bytes]]:
    """Give a file without a name that lives in memory for as long as somebody maps it."""
    in_memory = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("zoo-envs"), "r+b") if in_memory else tempfile.TemporaryFile() as file:
        try:
            os.truncate(file.fileno(), size)
        except OSError as error:
            raise ZooError(f"no memory for {size} bytes of observations: {error.strerror}") from error
        yield file


def _observation_arrays(arrays: dict[str, NDArray[Any]]) -> Observations:
    """Return the array of observations, or a dict of them, out of all shared arrays."""
    if "observations" in arrays:
        return arrays["observations"]
    prefix = "observations/"
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _cause(exit_code: int | None, started: bool) -> str:
    """Say in words how a process ended."""
    if exit_code is None:
        return "its pipe is closed"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    hint = (
        ""
        if started
        else '; its output is above. A script needs `if __name__ == "__main__":` around what it runs, '
        "or env.start_method=fork"
    )
    return f"exit code {exit_code}{hint}"


def _shut_down(workers: list[Worker], owner: int) -> None:
    """Ask all workers to end, and kill those that don't in time."""
    if os.getpid() != owner:
        return
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.connection.send_bytes(_message("close"))
            worker.connection.close()
    deadline = time.monotonic() + SECONDS_TO_CLOSE
    for worker in workers:
        _wait_for(worker.process, deadline)
        if not _is_dead(worker.process):
            worker.process.kill()
            _wait_for(worker.process, time.monotonic() + 1.0)
    workers.clear()


def _is_dead(process: BaseProcess) -> bool:
    """Whether a process has ended; without its fork server, `is_alive` alone would call a living one dead."""
    if process.is_alive():
        return False
    try:
        os.kill(process.pid or 0, 0)
    except ProcessLookupError:
        return True
    return False


def _wait_for(process: BaseProcess, deadline: float) -> None:
    """Wait until a process has ended, or until the deadline of the monotonic clock."""
    process.join(max(0.0, deadline - time.monotonic()))
    while not _is_dead(process) and time.monotonic() < deadline:
        time.sleep(0.01)
