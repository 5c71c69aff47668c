"""Environments stepped in worker processes: several in each, arrays in shared memory, the same results.

A worker steps a `SyncVecEnv` on its rows of the shared arrays. Commands, infos, final observations and states
travel through its pipe.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from multiprocessing import reduction, util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from zoo.core.free_memory import usable_cores
from zoo.envs.registry import env_error
from zoo.envs.replay import EnvState
from zoo.envs.spaces import Env, Info
from zoo.envs.transition import EpisodeEnd
from zoo.envs.vec_env import StepArrays, StepProgress, SyncVecEnv, VecEnv, check_same_spaces
from zoo.errors import ZooError

Makers = Sequence[Callable[[], Env]]

STEP = NOTHING = b""
"""The most frequent command, and its reply without infos and ends. Other commands are pickles of a name and
arguments, other replies of a result and an error message."""

POLL_SECONDS = 0.5
"""Interval of checks that a silent worker is alive."""

SECONDS_AFTER_SIGNAL = 15
"""Longest step or reset after a stop signal: Slurm kills after 30 s."""

SECONDS_TO_CLOSE = 5
"""How long a worker may take to close its environments before it is killed."""


# -- in a worker process ----------------------------------------------------------------------------------


def run_worker(
    makers: Makers,
    rows: range,
    connection: Connection,
    inherited: Sequence[Connection],
    options: dict[str, Any],
) -> None:
    """Make the environments ``rows`` and serve commands until the pipe closes, then close them.

    ``inherited`` are the parent's ends of pipes, which close with the parent if they are open nowhere else;
    ``options`` are those of `SyncVecEnv`. Ctrl-C and SIGTERM are for the parent to decide about.
    """
    import torch  # already imported by the fork server

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    threading.Thread(target=_end_after_parent, daemon=True).start()
    for pipe in inherited:
        pipe.close()
    env: SyncVecEnv | None = None
    try:
        env = SyncVecEnv(makers, rows.start, **options)
        torch.set_flush_denormal(True)  # as in the training process
        traits = {
            "observation_space": env.single_observation_space,
            "action_space": env.single_action_space,
            "metadata": env.envs[0].metadata,
            "render_mode": env.render_mode,
        }
        connection.send_bytes(_result((traits, env.mask_size)))
        descriptor = reduction.recv_handle(connection)
        records = np.frombuffer(mmap.mmap(descriptor, 0), env.arrays.records.dtype)
        os.close(descriptor)
        env.use_arrays(StepArrays(records[rows.start : rows.stop]))
        connection.send_bytes(NOTHING)
        _serve(env, connection)
    except (ZooError, KeyboardInterrupt) as error:
        # KeyboardInterrupt: raised by an env, or an env that restored the signal handler.
        failure: BaseException = error
        if not isinstance(error, ZooError):
            env_name = None if env is None else StepProgress(env.arrays.progress, rows.start).at_work()
            failure = env_error(error, env_name or "an environment", "in its worker")
        with contextlib.suppress(OSError):
            connection.send_bytes(pickle.dumps((None, str(failure))))
    except (EOFError, OSError):
        pass  # The parent is gone.
    finally:
        if env is not None:
            env.close()
        connection.close()


def _end_after_parent() -> None:
    """End this process soon after its parent, even where an environment never returns."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    signal.alarm(SECONDS_TO_CLOSE)


def _serve(env: SyncVecEnv, connection: Connection) -> None:
    """Answer commands until the parent says ``close``."""
    while True:
        message = connection.recv_bytes()
        if message == STEP:
            ends, infos = env.step_shared()
            connection.send_bytes(_result((ends, infos)) if ends or any(infos) else NOTHING)
            continue
        command, arguments, options = pickle.loads(message)
        if command == "close":
            return
        try:
            result = getattr(env, command)(*arguments, **options)
        except ZooError:
            raise
        except (Exception, SystemExit) as error:
            method = arguments[0] if command == "call" else command
            raise env_error(error, "an environment", f"in {method}") from error
        connection.send_bytes(_result((result, env.mask_size)))


def _result(result: Any) -> bytes:
    try:
        return pickle.dumps((result, None))
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise ZooError(
            f"the environment gave something that cannot be sent between processes: {error}; "
            "use env.vectorization=sync"
        ) from error


# -- in the parent ----------------------------------------------------------------------------------------


class Worker(NamedTuple):
    """One process, the parent's end of its pipe, and which environments it steps."""

    process: BaseProcess
    connection: Connection
    rows: range

    @property
    def name(self) -> str:
        """Which environments it steps, in words."""
        first, last = self.rows.start, self.rows.stop - 1
        return f"env {first}" if first == last else f"envs {first} to {last}"


class SubprocVecEnv(VecEnv):
    """Steps its environments in worker processes: for slow environments, where cores are idle.

    Results are bit for bit those of `SyncVecEnv`, whose options ``options`` are. Closes and raises with the
    traceback of an environment that raises, with the exit code or signal of a worker that dies, and where a
    step or reset takes more than ``step_timeout`` seconds, or goes on for long after a signal.
    """

    stop_requested: ClassVar[bool] = False
    """Whether a signal has asked this process to stop."""

    def __init__(
        self,
        make_envs: Makers,
        *,
        seed: int | None = None,
        n_workers: int | None = None,
        start_method: str = "forkserver",
        step_timeout: float | None = None,
        **options: Any,
    ) -> None:
        self.workers: list[Worker] = []
        self._unread: list[Worker] = []
        self._has_arrays = False
        self._step_timeout = step_timeout
        self._make_example = make_envs[0]
        self._example: Env | None = None
        self._finalizer = util.Finalize(self, _shut_down, (self.workers,), exitpriority=10)
        try:
            self._start(make_envs, n_workers or usable_cores(), start_method, options)
            replies = [self._read(worker) for worker in self.workers]  # once all envs are made
            traits, self.mask_size = replies[0]
            for worker, (worker_traits, _) in zip(self.workers, replies, strict=True):
                check_same_spaces(
                    0, SimpleNamespace(**traits), worker.rows.start, SimpleNamespace(**worker_traits)
                )
            super().__init__(**traits, num_envs=len(make_envs), seed=seed)
            self._share_arrays()
        except BaseException:
            self.close_extras()
            raise

    def example(self) -> Env:
        """Return one more environment, made in this process at the first call."""
        if self._example is None:
            self._example = self._make_example()
            self._example.reset(seed=0)
        return self._example

    def step_envs(self, actions: NDArray[Any]) -> list[EpisodeEnd]:
        self.arrays.actions[...] = actions
        replies = self._ask([STEP] * len(self.workers), self._step_timeout)
        ends: list[EpisodeEnd] = []
        self._infos = []
        for worker, reply in zip(self.workers, replies, strict=True):
            worker_ends, infos = reply or ([], [{} for _ in worker.rows])
            ends += [end._replace(env_index=worker.rows.start + end.env_index) for end in worker_ends]
            self._infos += infos
        return ends

    def reset_envs(
        self, seeds: Sequence[int | None], options: Info | None, rows: Sequence[int], once: bool = False
    ) -> list[Info]:
        def arguments(worker: Worker) -> tuple[Any, ...]:
            local = [i - worker.rows.start for i in rows if i in worker.rows]
            return [seeds[i] for i in worker.rows], options, local, once

        return list(chain(*self._call("reset_envs", arguments, self._step_timeout)))

    def env_states(self) -> list[EnvState]:
        return list(chain(*self._call("env_states", lambda _: ())))

    def load_env_states(self, states: Sequence[EnvState]) -> list[int]:
        replies = self._call(
            "load_env_states", lambda worker: ([states[i] for i in worker.rows],), self._step_timeout
        )
        pairs = zip(self.workers, replies, strict=True)
        return [worker.rows.start + i for worker, different in pairs for i in different]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(chain(*self._call("call", lambda _: (name, *args), **kwargs)))

    def set_attr(self, name: str, values: Any) -> None:
        values = values if isinstance(values, list | tuple) else [values] * self.num_envs
        self._call("set_attr", lambda worker: (name, [values[i] for i in worker.rows]))

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers, by force if they don't end by themselves."""
        self._finalizer()
        self._unread = []
        if self._example is not None:
            self._example.close()
            self._example = None

    # -- starting ---------------------------------------------------------------------------------------

    def _start(self, make_envs: Makers, n_workers: int, start_method: str, options: dict[str, Any]) -> None:
        """Start workers with near-equal shares of the environments."""
        context: Any = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(["zoo.envs.make_env", "zoo.envs.subproc_vec_env", "torch"])
        for indices in np.array_split(np.arange(len(make_envs)), min(n_workers, len(make_envs))):
            rows = range(int(indices[0]), int(indices[-1]) + 1)
            connection, child_connection = context.Pipe()
            is_forked = start_method == "fork"
            inherited = [*(worker.connection for worker in self.workers), connection] if is_forked else []
            makers = [CloudpickleWrapper(make_envs[i]) for i in rows]
            arguments = makers, rows, child_connection, inherited, options
            name = f"zoo env worker {rows.start}"
            process = context.Process(target=run_worker, args=arguments, name=name)
            try:
                process.start()
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                raise ZooError(
                    f"the environment cannot be sent to a worker process: {error}; "
                    "use env.start_method=fork, or env.vectorization=sync"
                ) from error
            child_connection.close()
            self.workers.append(Worker(process, connection, rows))
            self._unread.append(self.workers[-1])

    def _share_arrays(self) -> None:
        """Lay the arrays out in one block of shared memory and hand it to the workers."""
        records = self.arrays.records
        in_memory = hasattr(os, "memfd_create")
        with os.fdopen(os.memfd_create("envs"), "r+b") if in_memory else tempfile.TemporaryFile() as file:
            file.truncate(records.nbytes)
            for worker in self.workers:
                reduction.send_handle(worker.connection, file.fileno(), worker.process.pid)
                self._unread.append(worker)
            self.arrays = StepArrays(np.frombuffer(mmap.mmap(file.fileno(), 0), records.dtype))
            for worker in self.workers:
                self._read(worker)
        self._has_arrays = True

    # -- asking -----------------------------------------------------------------------------------------

    def _call(
        self,
        name: str,
        arguments: Callable[[Worker], tuple[Any, ...]],
        timeout: float | None = None,
        **options: Any,
    ) -> list[Any]:
        """Call a method of each worker's `SyncVecEnv`; return the results, and take over the masks' size."""
        commands = [pickle.dumps((name, arguments(worker), options)) for worker in self.workers]
        results, sizes = zip(*self._ask(commands, timeout), strict=True)
        self.mask_size = sizes[-1]
        return list(results)

    def _ask(self, commands: Sequence[bytes], timeout: float | None) -> list[Any]:
        """Send each worker its command, then read all replies."""
        if not self.workers:
            raise ZooError("the environments are closed")
        for worker in list(self._unread):  # of a command that Ctrl-C interrupted
            self._read(worker, timeout)
        for worker, command in zip(self.workers, commands, strict=True):
            try:
                worker.connection.send_bytes(command)
            except OSError:
                raise self._failure(worker) from None
            self._unread.append(worker)
        return [self._read(worker, timeout) for worker in self.workers]

    def _read(self, worker: Worker, timeout: float | None = None) -> Any:
        """Return one reply; raise how an environment failed or hangs, or how the worker died."""
        poll_interval = POLL_SECONDS if timeout is None else min(POLL_SECONDS, timeout / 2)
        progress: Any = None
        waited = 0.0
        try:
            while not worker.connection.poll(poll_interval):
                if not worker.process.is_alive():
                    raise EOFError  # something that an environment forked keeps the pipe open
                # Count polls, not clock time, which runs on while this process is suspended.
                previous, progress = progress, self._progress_of(worker)
                waited = waited + poll_interval if progress == previous else 0.0
                signal_limit = SECONDS_AFTER_SIGNAL if self.stop_requested else None
                for limit, reason in ((timeout, "env.step_timeout"), (signal_limit, "after a signal")):
                    if limit is not None and waited >= limit:
                        worker.process.kill()
                        raise self._failure(worker, f"has not come back for {limit:g} s ({reason})")
            reply = worker.connection.recv_bytes()
        except (EOFError, OSError):
            raise self._failure(worker) from None
        self._unread.remove(worker)
        result, error = pickle.loads(reply) if reply else (None, None)
        if error is not None:
            self.close_extras()
            raise ZooError(error)
        return result

    def _failure(self, worker: Worker, hang: str | None = None) -> ZooError:
        """End everything and say how a worker died, or how its environment hangs."""
        worker.process.join(1.0)
        env, _ = self._progress_of(worker)
        self.close_extras()
        name, exit_code = f"the worker process of {worker.name}", worker.process.exitcode
        if hang is not None:
            return ZooError(f"{env or name} {hang}")
        cause = "its pipe is closed" if exit_code is None else f"exit code {exit_code}; its output is above"
        if exit_code is not None and exit_code < 0:
            cause = f"killed by {signal.Signals(-exit_code).name}"
            cause += " (out of memory?)" * (exit_code == -signal.SIGKILL)
        elif exit_code is not None and not self._has_arrays:
            cause += (
                '. A script needs `if __name__ == "__main__":` around what it runs, or env.start_method=fork'
            )
        return ZooError(f"{name} died{f' in {env}' if env else ''}: {cause}")

    def _progress_of(self, worker: Worker) -> tuple[str | None, list[int]]:
        """Return the name of the environment at work, and what changes with each one and each step."""
        if not self._has_arrays:
            return None, []
        progress = StepProgress(self.arrays.progress[worker.rows.start :], worker.rows.start)
        return progress.at_work(), progress.now.tolist()


def _shut_down(workers: list[Worker]) -> None:
    """Ask all workers to end, and kill those that don't in time."""
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.connection.send_bytes(pickle.dumps(("close", (), {})))
            worker.connection.close()
    deadline = time.monotonic() + SECONDS_TO_CLOSE
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join(1.0)
    workers.clear()
