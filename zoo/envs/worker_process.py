"""What runs in a worker process: an `EnvGroup` on its rows of the shared arrays, which a pipe commands.

A message only says that there is something to do or to read. Infos, final observations and states travel
through the pipe where there are any.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

import gymnasium as gym

from zoo.envs.env_group import EnvGroup, EpisodeEnd, Info
from zoo.envs.sent_errors import packed
from zoo.envs.step_arrays import StepArrays
from zoo.errors import ZooError

Env = gym.Env[Any, Any]

STEP = b""
"""The message for the most frequent command; every other one is a `message`."""
NOTHING, RESULT, REFUSED, ERROR = b"\x00", b"\x01", b"\x02", b"\x03"
"""First byte of a reply: no infos and no ends; a pickled result; what a call raised; why all has ended."""

PARENT_IS_GONE = signal.SIGTRAP
"""The signal that comes then. Its number, 5, is the seconds that a worker has left."""

ON_REQUEST = ("call", "set_attr")
"""Commands that run what the user names: what that raises is the caller's affair, and the worker goes on."""


def message(command: str, *arguments: Any) -> bytes:
    """Return what tells a worker to do ``command``."""
    return pickle.dumps((command, *arguments))


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
    _end_soon_after(parents_life)
    for pipe in inherited:
        pipe.close()
    group: EnvGroup | None = None
    try:
        group = EnvGroup(makers, rows.start, **life)
        torch.set_flush_denormal(True)  # as it is where environments are stepped in the training process
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
            group.close()
        connection.close()


def _end_soon_after(parents_life: Connection) -> None:
    """Let the system end this process soon after its parent, even where an environment never returns.

    A worker comes to its end by itself, once it has something to read or to send: its pipe is closed. For
    one that does not, another pipe, which closes with the parent too, says so by a signal. Its handler is
    C's ``alarm``: it takes the signal's number for seconds, after which SIGALRM ends the process. (A handler
    or a thread of Python would have to wait for the interpreter, which a simulator in C may never let go of.
    Linux's own signal for the death of a parent comes when the thread ends that started the worker.)
    """
    pipe = parents_life.fileno()
    c = ctypes.CDLL(None)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    c.signal(int(PARENT_IS_GONE), ctypes.cast(c.alarm, ctypes.c_void_p))
    fcntl.fcntl(pipe, fcntl.F_SETSIG, PARENT_IS_GONE)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([pipe], timeout=0):
        os._exit(1)  # It was gone before.


def _facts(group: EnvGroup) -> dict[str, Any]:
    first = group.envs[0]
    return {
        "observation_space": group.observation_space,
        "action_space": group.action_space,
        "metadata": first.metadata,
        "render_mode": first.render_mode,
        "mask_size": group.masks.size,
    }


def _serve(group: EnvGroup, connection: Connection, memory: mmap.mmap, rows: range, num_envs: int) -> None:
    """Answer commands until the parent says ``close``."""
    arrays = StepArrays.allocate(num_envs, group.observation_space, group.action_space).within(memory)
    own = arrays.rows(rows.start, rows.stop)
    group.use_arrays(own)
    commands: dict[str, Callable[..., Any]] = {
        "reset": lambda *given: (
            [_sendable(info) for info in group.reset(*given[:-1], once=given[-1])],
            group.masks.size,
        ),
        "states": group.states,
        "load_states": lambda states: (group.load_states(states), group.masks.size),
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
                connection.send_bytes(_stepped(_placed(ends, rows), group.last_infos))
            continue
        command, *arguments = pickle.loads(received)
        if command == "close":
            return
        try:
            reply = _result(commands[command](*arguments))
        except (Exception, SystemExit) as error:
            if command not in ON_REQUEST:
                raise
            reply = REFUSED + packed(error)
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


def _placed(ends: Sequence[EpisodeEnd], rows: range) -> list[EpisodeEnd]:
    """Return the ends with the indices that their environments have among all."""
    return [end._replace(env_index=rows.start + end.env_index) for end in ends]
