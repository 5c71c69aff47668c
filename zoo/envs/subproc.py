"""Environments stepped in worker processes: several in each, arrays in shared memory, the same results.

A worker steps an `EnvGroup` on its rows of the shared arrays, as a pipe commands. A message only says that
there is something to do or to read; infos, final observations and states travel through the pipe.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction, util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from zoo.core.free_memory import usable_cores
from zoo.envs.env_group import EnvGroup, EpisodeEnd, StepArrays, StepProgress, anonymous_memory
from zoo.envs.replay import EnvState
from zoo.envs.spaces import Env, Info, Space, spaces_differ
from zoo.envs.sync_vec_env import VecEnv
from zoo.errors import ZooError

STEP = b""
"""The message for the most frequent command; every other one is a `message`."""
NOTHING, RESULT, REFUSED, ERROR = b"\x00", b"\x01", b"\x02", b"\x03"
"""First byte of a reply: no infos and no ends; a pickled result; what a call raised; why all has ended."""

FACTS = ("observation_space", "action_space", "metadata", "render_mode", "mask_size")
"""What a worker says of its environments once they are made."""

ON_REQUEST = ("call", "set_attr")
"""Commands that run what the user names: what that raises is the caller's affair, and the worker goes on."""

SECONDS_TO_CLOSE = 5
"""How long a worker may take to close its environments before it is killed."""

LOOK_EVERY = 100
"""Milliseconds after which somebody looks why a worker has not answered yet."""


def message(command: str, *arguments: Any) -> bytes:
    """Return what tells a worker to do ``command``."""
    return pickle.dumps((command, *arguments))


# -- in a worker process ----------------------------------------------------------------------------------


def run_worker(
    makers: Sequence[Callable[[], Env]],
    rows: range,
    connection: Connection,
    parents_life: Connection,
    inherited: Sequence[Connection],
    **life: Any,
) -> None:
    """Make the environments ``rows`` and do as the pipe says until it is closed, then close them.

    ``parents_life`` is the end of a pipe that closes with the parent. ``inherited`` are the parent's ends of
    all pipes, which must be open nowhere else; ``life`` are options of `EnvGroup`. Ctrl-C and SIGTERM reach a
    whole process group; the parent decides what comes of them.
    """
    import torch  # which the server that starts workers has loaded before

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    threading.Thread(target=_end_soon_after, args=(parents_life,), daemon=True).start()
    for pipe in inherited:
        pipe.close()
    group: EnvGroup | None = None
    try:
        group = EnvGroup(makers, rows.start, **life)
        torch.set_flush_denormal(True)  # as it is where environments are stepped in the training process
        connection.send_bytes(RESULT + pickle.dumps({name: getattr(group, name) for name in FACTS}))
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
            group.close()
        connection.close()


def _end_soon_after(parents_life: Connection) -> None:
    """Let the system end this process soon after its parent, even where an environment never returns.

    A worker whose environments do return ends by itself before, as the pipe that commands it is closed.
    """
    wait([parents_life])
    signal.alarm(SECONDS_TO_CLOSE)


def _serve(group: EnvGroup, connection: Connection, memory: mmap.mmap, rows: range, num_envs: int) -> None:
    """Answer commands until the parent says ``close``."""
    arrays = StepArrays.allocate(num_envs, group.observation_space, group.action_space).within(memory)
    own = arrays.rows(rows.start, rows.stop)
    group.use_arrays(own)
    commands: dict[str, Callable[..., Any]] = {
        "reset": lambda *given: (
            [_sendable(info) for info in group.reset(*given[:-1], once=given[-1])],
            group.mask_size,
        ),
        "states": group.states,
        "load_states": lambda states: (group.load_states(states), group.mask_size),
        "call": lambda name, args, kwargs: group.call(name, *args, **kwargs),
        "set_attr": group.set_attr,
    }
    connection.send_bytes(NOTHING)
    while True:
        received = connection.recv_bytes()
        if received == STEP:
            ends = group.step(own.actions.copy())
            if not ends and not any(group.last_infos):
                connection.send_bytes(NOTHING)
            else:
                placed = [end._replace(env_index=rows.start + end.env_index) for end in ends]
                connection.send_bytes(_stepped(placed, group.last_infos))
            continue
        command, *arguments = pickle.loads(received)
        if command == "close":
            return
        try:
            reply = _result(commands[command](*arguments))
        except (Exception, SystemExit) as error:
            if command not in ON_REQUEST:
                raise
            reply = REFUSED + pickle.dumps(sendable_error(error))
        connection.send_bytes(reply)


def _result(result: Any) -> bytes:
    try:
        return RESULT + pickle.dumps(result)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ZooError(
            f"the environment gave something that cannot be sent between processes: {error}; "
            "use env.vectorization=sync"
        ) from error


def _stepped(ends: Sequence[EpisodeEnd], infos: Sequence[Info]) -> bytes:
    """Return the reply to a step, without what infos hold that can't be sent."""
    try:
        return RESULT + pickle.dumps((ends, infos))
    except Exception:
        ends = [end._replace(info=_sendable(end.info)) for end in ends]
        return _result((ends, [_sendable(info) for info in infos]))


def _sendable(info: Info) -> Info:
    sendable: Info = {}
    for key, value in info.items():
        with contextlib.suppress(Exception):
            pickle.dumps((key, value))
            sendable[key] = value
    return sendable


# -- errors on their way to the parent --------------------------------------------------------------------


def sendable_error(error: BaseException) -> Exception:
    """Return an error that can be sent, with its traceback as a note: a `RuntimeError` where it can't be."""
    text = "".join(traceback.format_exception(error))
    sent: Exception = RuntimeError(f"{type(error).__name__}: {error}")
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            sent = pickle.loads(pickle.dumps(error))
    sent.add_note(f"in a worker process\n\n{text}")
    return sent


# -- in the parent ----------------------------------------------------------------------------------------


class Worker(NamedTuple):
    """One process, our end of its pipe, and which environments it steps."""

    process: BaseProcess
    connection: Connection
    poller: select.poll
    rows: range

    @property
    def envs(self) -> str:
        """Which environments it steps, in words."""
        first, last = self.rows.start, self.rows.stop - 1
        return f"env {first}" if first == last else f"envs {first} to {last}"


class Refusal(NamedTuple):
    """The reply of a worker in which a method raised that somebody called."""

    error: Exception


class Workers:
    """Steps environments in worker processes, as an `EnvGroup` does in this one.

    An environment that raises ends everything with its own traceback, a worker that dies with its exit code
    or signal, and so does an environment that is in one step or reset for more than ``step_timeout`` seconds.
    ``life`` are options of `EnvGroup`.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        *,
        n_workers: int | None = None,
        start_method: str = "forkserver",
        step_timeout: float | None = None,
        **life: Any,
    ) -> None:
        self.observation_space: Space
        self.action_space: Space
        self.metadata: dict[str, Any]
        self.render_mode: str | None
        self.num_envs = len(make_envs)
        self.mask_size: int | None = None
        self.last_infos: list[Info] = [{} for _ in make_envs]
        self._owner = os.getpid()
        self.workers: list[Worker] = []
        self._unread: list[Worker] = []
        self._started = False
        self._step_timeout = step_timeout
        self._make_example = make_envs[0]
        self._example: Env | None = None
        self._finalizer = util.Finalize(self, _shut_down, (self.workers, self._owner), exitpriority=10)
        with self.closed_on_failure():
            self._start(make_envs, n_workers or usable_cores(), start_method, life)
            self._read_spaces()

    @contextlib.contextmanager
    def closed_on_failure(self) -> Iterator[None]:
        """End the workers if anything is raised in the block."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def example(self) -> Env:
        """Return one more environment, made in this process at the first call, to be asked things."""
        if self._example is None:
            self._example = self._make_example()
            self._example.reset(seed=0)
        return self._example

    def use_arrays(self, arrays: StepArrays) -> StepArrays:
        """Lay arrays out in one block of shared memory, hand each worker its rows, and return them."""
        size = arrays.n_bytes
        with anonymous_memory(size) as file:
            for worker in self.workers:
                worker.connection.send((size, self.num_envs))
                reduction.send_handle(worker.connection, file.fileno(), worker.process.pid)
                self._unread.append(worker)
            self._arrays = arrays.within(mmap.mmap(file.fileno(), size))
            for worker in self.workers:
                self._read(worker)
        self._started = True
        return self._arrays

    def step(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        """Step every environment, reset the finished ones, and return how those ended."""
        self._arrays.actions[...] = actions
        replies = self._ask_all([STEP] * len(self.workers), self._step_timeout)
        ends: list[EpisodeEnd] = []
        infos: list[Info] = []
        for worker, reply in zip(self.workers, replies, strict=True):
            own_ends, own_infos = reply if reply is not None else ([], [{} for _ in worker.rows])
            ends.extend(own_ends)
            infos.extend(own_infos)
        self.last_infos = infos
        return ends

    def reset(
        self,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        rows: Sequence[int],
        *,
        once: bool = False,
    ) -> list[Info]:
        """Reset the environments ``rows`` and return the infos of all."""
        commands = []
        for worker in self.workers:
            own_seeds = [seeds[i] for i in worker.rows]
            own_rows = [i - worker.rows.start for i in rows if i in worker.rows]
            commands.append(message("reset", own_seeds, options, own_rows, once))
        infos: list[Info] = []
        for own_infos, mask_size in self._ask_all(commands, self._step_timeout):
            infos.extend(own_infos)
            self.mask_size = mask_size
        return infos

    def states(self) -> list[EnvState]:
        """Return, for each environment, what `load_states` brings it back with."""
        replies = self._ask_all([message("states")] * len(self.workers))
        return [state for reply in replies for state in reply]

    def load_states(self, states: Sequence[EnvState]) -> list[int]:
        """Bring each environment there, or to its next seed; return which came out different."""
        commands = [message("load_states", [states[i] for i in worker.rows]) for worker in self.workers]
        different: list[int] = []
        replies = self._ask_all(commands, self._step_timeout)
        for worker, (own_different, mask_size) in zip(self.workers, replies, strict=True):
            self.mask_size = mask_size
            different.extend(worker.rows.start + i for i in own_different)
        return different

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of each environment, or read an attribute.

        What a method raises is raised here, once all have answered.
        """
        replies = self._ask_all([message("call", name, args, kwargs)] * len(self.workers))
        return [result for reply in replies for result in reply]

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment to its own value."""
        self._ask_all(
            [message("set_attr", name, [values[i] for i in worker.rows]) for worker in self.workers]
        )

    def close(self) -> None:
        """End the workers, by force if they don't end by themselves."""
        if os.getpid() != self._owner:
            return
        self._finalizer()
        self._unread = []
        if self._example is not None:
            self._example.close()
            self._example = None

    def _start(
        self,
        make_envs: Sequence[Callable[[], Env]],
        n_workers: int,
        start_method: str,
        life: dict[str, Any],
    ) -> None:
        """Start the workers, each with as many environments as the others, give or take one."""
        context: Any = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(["zoo.envs", "torch"])
        their_life, self._life = context.Pipe(duplex=False)  # open as long as this process
        for part in np.array_split(np.arange(len(make_envs)), min(n_workers, len(make_envs))):
            rows = range(int(part[0]), int(part[-1]) + 1)
            ours, theirs = context.Pipe()
            makers = [CloudpickleWrapper(make_envs[i]) for i in rows]
            others = [worker.connection for worker in self.workers]
            inherited = [*others, ours, self._life] if start_method == "fork" else []
            process = context.Process(
                target=run_worker,
                args=(makers, rows, theirs, their_life, inherited),
                kwargs=life,
                name=f"zoo env worker {rows.start}",
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
            self.workers.append(Worker(process, ours, poller, rows))
            self._unread.append(self.workers[-1])
        their_life.close()

    def _read_spaces(self) -> None:
        """Wait until all environments are made, and take the spaces that they agree on."""
        replies = [self._read(worker) for worker in self.workers]
        first, *others = replies
        for worker, reply in zip(self.workers[1:], others, strict=True):
            for name in ("observation_space", "action_space"):
                difference = spaces_differ(first[name], reply[name])
                if difference is not None:
                    raise ZooError(f"env {worker.rows.start} has another {name} than env 0: {difference}")
        vars(self).update(first)

    def _ask_all(self, messages: Sequence[bytes], timeout: float | None = None) -> list[Any]:
        """Send each worker its message, then read all replies.

        Raises `ZooError` for an environment that works on one step for more than ``timeout`` seconds.
        """
        if not self.workers:
            raise ZooError("the environments are closed")
        for worker in list(self._unread):
            self._read(worker, timeout)
        for worker, own_message in zip(self.workers, messages, strict=True):
            try:
                worker.connection.send_bytes(own_message)
            except OSError:
                raise self._death_of(worker) from None
            self._unread.append(worker)
        replies = [self._read(worker, timeout) for worker in self.workers]
        for reply in replies:
            if isinstance(reply, Refusal):
                raise reply.error
        return replies

    def _read(self, worker: Worker, timeout: float | None = None) -> Any:
        """Return one reply; raise how an environment failed or hangs, or how the worker died."""
        if not worker.poller.poll(LOOK_EVERY):
            self._wait_for_reply(worker, timeout)
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
            return Refusal(pickle.loads(reply[1:]))
        return pickle.loads(reply[1:])

    def _wait_for_reply(self, worker: Worker, timeout: float | None) -> None:
        """Return as soon as there is a reply; raise if the worker has died, or its environment hangs."""
        place, waited = self._place(worker), 0.0
        while not worker.poller.poll(LOOK_EVERY):
            if not worker.process.is_alive():
                raise self._death_of(worker)
            if place != self._place(worker):
                place, waited = self._place(worker), 0.0
                continue
            waited += LOOK_EVERY / 1000  # by looks, as a clock goes on while everything is suspended
            if timeout is not None and waited > timeout:
                raise self._hang_of(worker, timeout)

    def _hang_of(self, worker: Worker, timeout: float) -> ZooError:
        """End everything, the hanging worker by force, and say in which environment it hangs."""
        env = self._progress(worker).at_work() or f"the worker process of {worker.envs}"
        worker.process.kill()
        self.close()
        return ZooError(f"{env} has not come back for {timeout:g} s (env.step_timeout)")

    def _death_of(self, worker: Worker) -> ZooError:
        """End everything and say how a worker died."""
        worker.process.join(1.0)
        env = self._progress(worker).at_work() if self._started else None
        cause = _cause(worker.process.exitcode, self._started)
        place = "" if env is None else f" in {env}"
        self.close()
        return ZooError(f"the worker process of {worker.envs} died{place}: {cause}")

    def _place(self, worker: Worker) -> list[int]:
        """Return what changes with every step and reset of a worker's environments."""
        return self._progress(worker).now.tolist() if self._started else []

    def _progress(self, worker: Worker) -> StepProgress:
        return StepProgress(self._arrays.progress[worker.rows.start :], worker.rows.start)


def _cause(exit_code: int | None, started: bool) -> str:
    """Say in words how a process ended."""
    if exit_code is None:
        return "its pipe is closed"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    hint = '. A script needs `if __name__ == "__main__":` around what it runs, or env.start_method=fork'
    return f"exit code {exit_code}; its output is above{'' if started else hint}"


def _shut_down(workers: list[Worker], owner: int) -> None:
    """Ask all workers to end, and kill those that don't in time."""
    if os.getpid() != owner:
        return
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.connection.send_bytes(message("close"))
            worker.connection.close()
    deadline = time.monotonic() + SECONDS_TO_CLOSE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join(1.0)
    workers.clear()


class SubprocVecEnv(VecEnv):
    """Steps its environments in worker processes: for slow environments, where cores are idle.

    Results are bit for bit those of `SyncVecEnv`. ``options`` are those of `Workers`.
    """

    def __init__(
        self, make_envs: Sequence[Callable[[], Env]], *, seed: int | None = None, **options: Any
    ) -> None:
        workers = Workers(make_envs, **options)
        with workers.closed_on_failure():
            super().__init__(workers, len(make_envs), seed=seed)
