"""Environments stepped in worker processes: several in each, arrays in shared memory, the same results."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import reduction, util
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from zoo.envs.config import DEFAULT_RESEED_EVERY
from zoo.envs.env_group import EnvState, EpisodeEnd, Info
from zoo.envs.same_step import SameStepVectorEnv, Transition
from zoo.envs.sent_errors import unpacked
from zoo.envs.spaces import Space, spaces_differ
from zoo.envs.step_arrays import Observations, anonymous_memory, copied
from zoo.envs.whereabouts import Whereabouts
from zoo.envs.worker_process import ERROR, NOTHING, REFUSED, STEP, message, run_worker
from zoo.errors import ZooError
from zoo.files.free_memory import usable_cores

Env = gym.Env[Any, Any]

SECONDS_TO_CLOSE = 5.0
"""How long a worker may take to close its environments before it is killed."""

LOOK_EVERY = 100
"""Milliseconds after which somebody looks why a worker has not answered yet."""


class Worker(NamedTuple):
    """One process, our end of its pipe, and which environments it steps.

    ``life`` is our end of another pipe, which is open as long as we are.
    """

    process: BaseProcess
    connection: Connection
    life: Connection
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


class WorkersVectorEnv(SameStepVectorEnv):
    """Steps its environments in worker processes: for slow environments, where cores are idle.

    Results are bit for bit those of `InProcessVectorEnv`. An environment that raises ends everything with
    its own traceback, a worker that dies with its exit code or signal, and so does an environment that is in
    one step or reset for more than ``step_timeout`` seconds.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], Env]],
        *,
        n_workers: int | None = None,
        start_method: str = "forkserver",
        step_timeout: float | None = None,
        seed: int | None = None,
        reseed_every: int = DEFAULT_RESEED_EVERY,
        renew: bool = False,
        mask_actions: bool = True,
    ) -> None:
        self._owner = os.getpid()
        self._workers: list[Worker] = []
        self._unread: list[Worker] = []
        self._started = False
        self._step_timeout = step_timeout
        self._make_example = make_envs[0]
        self._example: Env | None = None
        self._finalizer = util.Finalize(self, _shut_down, (self._workers, self._owner), exitpriority=10)
        try:
            life = {"reseed_every": reseed_every, "renew": renew, "mask_actions": mask_actions}
            self._start(make_envs, n_workers or usable_cores(), start_method, life)
            observation_space, action_space = self._read_spaces()
            super().__init__(len(make_envs), observation_space, action_space, seed=seed)
            self._share_arrays()
        except BaseException:
            self.close_extras()
            raise

    @property
    def example(self) -> Env:
        """One more environment, made in this process when somebody first asks for it, to be asked things."""
        if self._example is None:
            self._example = self._make_example()
            self._example.reset(seed=0)
        return self._example

    def transition(self, actions: Any) -> Transition:
        """Step every environment with its row of ``actions``."""
        self._arrays.actions[...] = self.own_actions(actions)
        replies = self._ask_all([STEP] * len(self._workers), self._step_timeout)
        ends: list[EpisodeEnd] = []
        infos: list[Info] = []
        for worker, reply in zip(self._workers, replies, strict=True):
            own_ends, own_infos = reply if reply is not None else ([], [{} for _ in worker.rows])
            ends.extend(own_ends)
            infos.extend(own_infos)
        return self._transition(ends, infos)

    def reset_rows(
        self,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        rows: Sequence[int],
        *,
        once: bool = False,
    ) -> tuple[Observations, list[Info]]:
        """Reset the environments ``rows``."""
        commands = []
        for worker in self._workers:
            own_seeds = [seeds[i] for i in worker.rows]
            own_rows = [i - worker.rows.start for i in rows if i in worker.rows]
            commands.append(message("reset", own_seeds, options, own_rows, once))
        infos: list[Info] = []
        for own_infos, mask_size in self._ask_all(commands, self._step_timeout):
            infos.extend(own_infos)
            self.mask_size = mask_size
        return copied(self._arrays.observations), infos

    def env_states(self) -> list[EnvState]:
        """Return how each environment comes to be where it is."""
        replies = self._ask_all([message("states")] * len(self._workers))
        return [state for reply in replies for state in reply]

    def load_env_states(self, states: Sequence[EnvState]) -> list[int]:
        """Bring each environment there, or to its next seed; return which came out different."""
        commands = [message("load_states", [states[i] for i in worker.rows]) for worker in self._workers]
        different: list[int] = []
        replies = self._ask_all(commands, self._step_timeout)
        for worker, (own_different, mask_size) in zip(self._workers, replies, strict=True):
            self.mask_size = mask_size
            different.extend(worker.rows.start + i for i in own_different)
        return different

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; what comes back must be picklable.

        What a method raises is raised here, once all have answered.
        """
        self.note_call(name)
        replies = self._ask_all([message("call", name, args, kwargs)] * len(self._workers))
        return tuple(result for reply in replies for result in reply)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to its own value if a list or tuple of them is given."""
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{len(each)} values for {self.num_envs} environments")
        self._ask_all([message("set_attr", name, [each[i] for i in worker.rows]) for worker in self._workers])

    def render(self) -> tuple[Any, ...]:
        """Return one frame an environment."""
        return self.call("render")

    def close_extras(self, **kwargs: Any) -> None:
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
        for part in np.array_split(np.arange(len(make_envs)), min(n_workers, len(make_envs))):
            rows = range(int(part[0]), int(part[-1]) + 1)
            ours, theirs = context.Pipe()
            their_life, our_life = context.Pipe(duplex=False)
            makers = [CloudpickleWrapper(make_envs[i]) for i in rows]
            others = [pipe for worker in self._workers for pipe in (worker.connection, worker.life)]
            inherited = [*others, ours, our_life] if start_method == "fork" else []
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
            their_life.close()
            poller = select.poll()
            poller.register(ours.fileno(), select.POLLIN)
            self._workers.append(Worker(process, ours, our_life, poller, rows))
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
        self.mask_size = first["mask_size"]
        return first["observation_space"], first["action_space"]

    def _share_arrays(self) -> None:
        """Lay the arrays out in one block of shared memory and hand each worker its rows."""
        size = self._arrays.n_bytes
        with anonymous_memory(size) as file:
            for worker in self._workers:
                worker.connection.send((size, self.num_envs))
                reduction.send_handle(worker.connection, file.fileno(), worker.process.pid)
                self._unread.append(worker)
            self._arrays = self._arrays.within(mmap.mmap(file.fileno(), size))
        for worker in self._workers:
            self._read(worker)
        self._started = True

    def _ask_all(self, messages: Sequence[bytes], timeout: float | None = None) -> list[Any]:
        """Send each worker its message, then read all replies.

        Raises `ZooError` for an environment that works on one step for more than ``timeout`` seconds.
        """
        if not self._workers:
            raise ZooError("the environments are closed")
        for worker in list(self._unread):
            self._read(worker, timeout)
        for worker, own_message in zip(self._workers, messages, strict=True):
            try:
                worker.connection.send_bytes(own_message)
            except OSError:
                raise self._death_of(worker) from None
            self._unread.append(worker)
        replies = [self._read(worker, timeout) for worker in self._workers]
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
            return Refusal(unpacked(reply[1:]))
        return pickle.loads(reply[1:])

    def _wait_for_reply(self, worker: Worker, timeout: float | None) -> None:
        """Return as soon as there is a reply; raise if the worker has died, or its environment hangs."""
        place, waited = self._place(worker), 0.0
        while not worker.poller.poll(LOOK_EVERY):
            if _is_dead(worker.process):
                raise self._death_of(worker)
            if place != self._place(worker):
                place, waited = self._place(worker), 0.0
                continue
            waited += LOOK_EVERY / 1000  # by looks, as a clock goes on while everything is suspended
            if timeout is not None and waited > timeout:
                raise self._hang_of(worker, timeout)

    def _hang_of(self, worker: Worker, timeout: float) -> ZooError:
        """End everything, the hanging worker by force, and say in which environment it hangs."""
        env = self._at_work(worker) or f"the worker process of {worker.envs}"
        worker.process.kill()
        self.close()
        return ZooError(f"{env} has not come back for {timeout:g} s (env.step_timeout)")

    def _death_of(self, worker: Worker) -> ZooError:
        """End everything and say how a worker died."""
        _wait_for(worker.process, time.monotonic() + 1.0)
        env = self._at_work(worker)
        cause = _cause(worker.process.exitcode, self._started, env)
        place = "" if env is None else f" in {env}"
        self.close()
        return ZooError(f"the worker process of {worker.envs} died{place}: {cause}")

    def _at_work(self, worker: Worker) -> str | None:
        """Return the name of the environment that a worker is stepping or resetting, or None."""
        return self._whereabouts(worker).at_work() if self._started else None

    def _place(self, worker: Worker) -> list[int]:
        """Return what changes with every step and reset of a worker's environments."""
        return self._whereabouts(worker).now.tolist() if self._started else []

    def _whereabouts(self, worker: Worker) -> Whereabouts:
        return Whereabouts(self._arrays.whereabouts[worker.rows.start :], worker.rows.start)


def _cause(exit_code: int | None, started: bool, env: str | None) -> str:
    """Say in words how a process ended, in which environment if in any."""
    if exit_code is None:
        return "its pipe is closed"
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    if env is not None:
        return f"the environment ended it with exit code {exit_code}, as os._exit() does"
    if started:
        return f"exit code {exit_code}; its output is above"
    return (
        f"exit code {exit_code}; its output is above. "
        'A script needs `if __name__ == "__main__":` around what it runs, or env.start_method=fork'
    )


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
        _wait_for(worker.process, deadline)
        if not _is_dead(worker.process):
            worker.process.kill()
            _wait_for(worker.process, time.monotonic() + 1.0)
        worker.life.close()
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
