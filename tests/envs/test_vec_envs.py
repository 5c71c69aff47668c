"""The vector environment that steps in this process: seeds, steps, what is refused."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Counting, Failing, Noisy, assert_same

from zoo import A2C
from zoo.envs.adapter import VecEnvAdapter, make_adapter
from zoo.envs.make_env import make_vec_env
from zoo.envs.replay import derived_seeds, small_seeds, worker_seed
from zoo.envs.subproc_vec_env import SubprocVecEnv
from zoo.errors import ZooError
from zoo.optim.runtime import torch_settings


@pytest.mark.parametrize("make", [Counting, Noisy, lambda: gym.make("FrozenLake-v1")])
def test_steps_are_those_of_gymnasiums_same_step_env(make: Any) -> None:
    ours = make_vec_env(make, 3, check=False)
    theirs = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(0)
    for _ in range(60):
        actions = theirs.action_space.sample()
        for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
            assert_same(one, other)


def test_actions_stay_as_the_caller_gave_them() -> None:
    class Greedy(Noisy):
        def step(self, action: Any) -> Any:
            action *= 2
            return super().step(action)

    env = make_vec_env(Greedy, 2, seed=0, check=False)
    env.reset()
    actions = np.ones((2, 2), dtype=np.int64)
    env.step(actions)
    assert (actions == 1).all()


def test_actions_of_a_wrong_shape_are_refused() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 1\); expected \(2,\)"):
        env.step(np.zeros((2, 1)))


def test_envs_with_different_spaces_are_refused() -> None:
    makers = [lambda: gym.make("CartPole-v1"), lambda: gym.make("Acrobot-v1")]
    with pytest.raises(ZooError, match=r"env 1 has another observation_space than env 0: Box\(4,\) float32"):
        make_vec_env(lambda: makers.pop(0)(), 2, check=False)


def test_options_of_a_reset_reach_the_envs() -> None:
    class Optional(Counting):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.options = options
            return super().reset(seed=seed)

    env = make_vec_env(Optional, 2, check=False)
    env.reset(seed=0, options={"level": 3})
    assert env.get_attr("options") == ({"level": 3},) * 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"seed": -1}, "seed=-1"), ({"seed": "3"}, "seed='3'"), ({"n_envs": 0}, "n_envs=0")],
)
def test_wrong_numbers_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ZooError, match=named):
        make_vec_env("CartPole-v1", **options)


def test_small_seeds_count_up_and_wrap_at_int32_max() -> None:
    assert small_seeds(5, 3) == small_seeds(np.int64(5), 3) == [5, 6, 7]
    assert small_seeds([9, 4], 2) == [9, 4]
    largest = 2**31 - 1
    assert small_seeds(largest - 2, 4) == [largest - 2, largest - 1, 0, 1]


def test_each_worker_of_each_run_has_a_seed_of_its_own() -> None:
    """Also one that no other stream of the run has."""
    seeds = [worker_seed(seed, rank) for seed in range(20) for rank in range(8)]
    others = [each for seed in range(20) for each in derived_seeds(seed, 8)]
    assert len({*seeds, *others}) == 2 * 20 * 8
    assert worker_seed(3, 2) == worker_seed(3, 2)


def workers(make: Any, n: int, start_method: str = "fork", **options: Any) -> Any:
    where = {"vectorization": "workers", "n_workers": 2, "start_method": start_method}
    return make_vec_env(make, n, check=False, **{**where, **options})


class Dying(Counting):
    """Ends its process in its second step."""

    def step(self, action: Any) -> Any:
        if self._observation[1] == 1 and self.np_random_seed == 3:
            if action == 1:
                os._exit(7)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Helped(Dying):
    """Has a process of its own, which outlives it and keeps all that it had open."""

    helpers: Path

    def __init__(self) -> None:
        super().__init__()
        helper = os.fork()
        if helper == 0:
            time.sleep(30.0)
            os._exit(0)
        (self.helpers / str(helper)).touch()


def everything(env: Any, n_steps: int) -> list[Any]:
    stepper = make_adapter(env)
    seen: list[Any] = [stepper.reset(range(20, 20 + env.num_envs))]
    env.action_space.seed(0)
    for _ in range(n_steps):
        step = stepper.step(env.action_space.sample())
        episodes = [(episode.env_index, episode.episode_return, episode.length) for episode in step.episodes]
        masks = stepper.action_masks()
        seen.append(
            (step.new_observations, step.rewards, step.terminated, step.truncated, step.final_observations)
        )
        seen.append((episodes, None if masks is None else masks.tolist(), step.step_infos()))
    env.close()
    return seen


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_worker_results_equal_in_process_results(start_method: str) -> None:
    in_process = everything(make_vec_env(Noisy, 5, check=False), 40)
    assert_same(everything(workers(Noisy, 5, start_method), 40), in_process)


@pytest.mark.parametrize("n_workers", [1, 2, 3, 8])
def test_envs_are_divided_among_workers(n_workers: int) -> None:
    env = workers("CartPole-v1", 3, n_workers=n_workers)
    assert len(env.workers) == min(n_workers, 3)
    assert env.call("get_wrapper_attr", "gravity") == (9.8, 9.8, 9.8)
    env.set_attr("gravity", [1.0, 2.0, 3.0])
    assert env.get_attr("gravity") == (1.0, 2.0, 3.0)
    env.close()


class Obliging(Counting):
    """Has a method that may raise, and an attribute that no pickle holds."""

    def divide(self, by: int) -> float:
        return 1 / by

    @property
    def lock(self) -> Any:
        return threading.Lock()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("divide", 0), r"ZeroDivisionError(.|\n)*return 1 / by"),
        (("lock",), "cannot be sent between processes"),
    ],
)
def test_error_in_worker_method_shows_its_traceback(call: Any, message: str) -> None:
    env = workers(Obliging, 3)
    env.reset(seed=0)
    assert env.call("divide", 2) == (0.5, 0.5, 0.5)
    with pytest.raises(ZooError, match=message):
        env.call(*call)


def test_env_error_names_index_seed_step_and_traceback() -> None:
    stepper = make_adapter(workers(Failing, 4))
    stepper.reset([40, 41, 42, 43])
    stepper.step([0] * 4)
    stepper.step([0] * 4)
    with pytest.raises(ZooError) as caught:
        stepper.step([0] * 4)
    message = str(caught.value)
    assert message.startswith("env 0 (step 3 after seed 40) raised RuntimeError in a step:")
    assert "the simulator lost its licence" in message
    assert "scripted.py" in message
    with pytest.raises(ZooError, match="closed"):
        stepper.step([0] * 4)


@pytest.mark.parametrize(
    ("make", "action", "cause"),
    [(Dying, 1, "exit code 7"), (Dying, 0, "killed by SIGKILL"), (Helped, 0, "killed by SIGKILL")],
)
def test_dead_worker_is_named_with_its_end(make: Any, action: int, cause: str, tmp_path: Path) -> None:
    Helped.helpers = tmp_path
    stepper = make_adapter(workers(make, 4))
    stepper.reset([0, 1, 2, 3])
    stepper.step([action] * 4)
    start = time.monotonic()
    with pytest.raises(ZooError, match=rf"of envs 2 to 3 died in env 3 \(step 2 after seed 3\): {cause}"):
        stepper.step([action] * 4)
    assert time.monotonic() - start < (2.0 if make is Dying else 10.0)  # where it is waited for at its end
    for helper in tmp_path.iterdir():
        os.kill(int(helper.name), signal.SIGKILL)


def test_worker_that_hangs_at_close_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    import zoo.envs.subproc_vec_env

    class Hanging(Counting):
        def close(self) -> None:
            time.sleep(60)

    monkeypatch.setattr(zoo.envs.subproc_vec_env, "SECONDS_TO_CLOSE", 0.5)
    env = workers(Hanging, 2)
    env.reset(seed=0)
    processes = [worker.process for worker in env.workers]
    start = time.monotonic()
    env.close()
    assert time.monotonic() - start < 3.0
    assert not any(process.is_alive() for process in processes)


def run(script: str, tmp_path: Path, **options: Any) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        **options,
    )


STEPPING = """
import signal, sys, time
import numpy as np
from zoo.envs.make_env import make_vec_env

stopped = []
if __name__ == "__main__":
    env = make_vec_env("CartPole-v1", 4, vectorization="workers", n_workers=2, start_method={method!r})
    env.reset(seed=0)
    {handler}
    print("ready", flush=True)
    for step in range(10**9):
        env.step(np.zeros(4, dtype=np.int64))
        if stopped:
            break
    for _ in range(10):
        env.step(np.zeros(4, dtype=np.int64))
    print("done", flush=True)
"""


def test_interrupt_shows_no_traceback_of_a_worker(tmp_path: Path) -> None:
    process = run(STEPPING.format(method="forkserver", handler=""), tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("method", "sent"),
    [("fork", signal.SIGINT), pytest.param("forkserver", signal.SIGTERM, marks=pytest.mark.slow)],
)
def test_workers_outlive_a_signal_that_is_handled(sent: signal.Signals, method: str, tmp_path: Path) -> None:
    handler = f"signal.signal({int(sent)}, lambda *_: stopped.append(1))"
    process = run(STEPPING.format(method=method, handler=handler), tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, sent)
    output, errors = process.communicate(timeout=20)
    assert (output, errors, process.returncode) == ("done\n", "", 0)


def test_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = """
    from zoo.envs.make_env import make_vec_env
    make_vec_env("CartPole-v1", 2, vectorization="workers")
    """
    _, errors = run(script, tmp_path).communicate(timeout=60)
    assert 'A script needs `if __name__ == "__main__":`' in errors


class Hanging(Counting):
    """Never comes back from a reset or a step of env 3 (that with seed 3); episodes of 2 steps."""

    def __init__(self, at: str) -> None:
        super().__init__(lengths=(2,))
        self.at = at
        self.is_third = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.is_third = seed == 3 if seed is not None else self.is_third
        self._hang(f"reset {self._episode + 1}")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._hang(f"step {int(self._observation[1]) + 1} of episode {self._episode}")
        return super().step(action)

    def _hang(self, here: str) -> None:
        while self.is_third and here == self.at:
            time.sleep(1)


def play(envs: VecEnvAdapter, n_steps: int) -> None:
    envs.reset(range(envs.num_envs))
    for _ in range(n_steps):
        envs.step(np.zeros(envs.num_envs, np.int64))


@pytest.mark.parametrize(
    ("at", "n_steps", "which"),
    [
        ("step 1 of episode 0", 1, r"env 3 \(step 1 after seed 3\)"),
        ("step 2 of episode 1", 4, r"env 3 \(step 4 after seed 3\)"),
    ],
)
def test_hanging_env_is_told_with_its_index_and_step(at: str, n_steps: int, which: str) -> None:
    envs = make_adapter(workers(lambda: Hanging(at), 5, step_timeout=0.4))
    assert isinstance(envs.env, SubprocVecEnv)
    processes = [worker.process for worker in envs.env.workers]
    started = time.monotonic()
    with pytest.raises(ZooError, match=rf"^{which} has not come back for 0\.4 s \(env\.step_timeout\)"):
        play(envs, n_steps)
    assert time.monotonic() - started < 4.0, "a worker that hangs is not asked to close"
    assert not any(process.is_alive() for process in processes)
    with pytest.raises(ZooError, match="closed"):
        envs.step(np.zeros(5, np.int64))


class Interrupting(Counting):
    def step(self, action: Any) -> Any:
        raise KeyboardInterrupt


def test_interrupt_by_an_env_in_a_worker_is_told() -> None:
    with pytest.raises(ZooError, match=r"(?s)^env 0 \(step 1 .* raised KeyboardInterrupt .*in step\n"):
        play(make_adapter(workers(Interrupting, 2)), 1)


@pytest.mark.parametrize("options", [{"step_timeout": 5}, {"n_workers": 2}])
def test_worker_options_need_worker_vectorization(options: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=rf"env\.{next(iter(options))}=.*needs env\.vectorization=workers"):
        make_vec_env("CartPole-v1", 2, **options)


SCRIPT = """
import os, subprocess, sys, time
import gymnasium as gym
import numpy as np
from zoo.envs.make_env import make_vec_env


class Slow(gym.Env):
    '''Owns a process, which ends when the environment is closed.'''

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.simulator = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {{}}

    def step(self, action):
        os.write(1, b"%d %d\\n" % (os.getpid(), self.simulator.pid))  # in one piece, as three write here
        {sleep}
        return np.zeros(1, np.float32), 0.0, False, False, {{}}

    def close(self):
        self.simulator.kill()
        self.simulator.wait()


if __name__ == "__main__":
    env = make_vec_env(Slow, 3, vectorization="workers", n_workers=3, start_method={method!r}, check=False)
    env.reset(seed=0)
    env.step(np.zeros(3, dtype=np.int64))
    print("all are idle", flush=True)
    time.sleep(1000)
"""


@contextlib.contextmanager
def parent(tmp_path: Path, sleep: str, method: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process with three environments in workers; end whatever is left of them."""
    process = run(SCRIPT.format(sleep=sleep, method=method), tmp_path)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def read_processes(process: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """Return a handle of each worker, and one of its environment's own process, once they are in a step."""
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(3)]
    return [(os.pidfd_open(int(worker)), os.pidfd_open(int(simulator))) for worker, simulator in lines]


def has_ended(handle: int, seconds: float = 10.0) -> bool:
    ended = bool(select.select([handle], [], [], seconds)[0])
    os.close(handle)
    return ended


@pytest.mark.parametrize(
    ("sleep", "method"),
    [("pass", "fork"), pytest.param("time.sleep(0.5)", "forkserver", marks=pytest.mark.slow)],
)
def test_envs_are_closed_when_the_parent_is_killed(sleep: str, method: str, tmp_path: Path) -> None:
    with parent(tmp_path, sleep, method) as process:
        handles = read_processes(process)
        if sleep == "pass":
            assert process.stdout is not None
            assert process.stdout.readline() == "all are idle\n"
        process.kill()
        for worker, simulator in handles:
            assert has_ended(simulator), "a process that an environment owns is left behind"
            assert has_ended(worker), "a worker goes on without its parent"


SMALL = np.float32(1e-30)
DENORMAL = np.float32(1e-40)


class Shrinking(gym.Env[Any, Any]):
    """Shows products that are denormal, and whether another number was taken for zero."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        observation = self._observation()
        return observation, float(observation[2]), False, False, {}

    def _observation(self) -> Any:
        factors = np.full(2, SMALL) * np.array([1e-10, 2e-10], np.float32)
        return np.array([*factors, DENORMAL * np.float32(1e38) > 0], np.float32)


def observations(vectorization: str, **options: Any) -> list[Any]:
    envs = make_adapter(make_vec_env(Shrinking, 2, vectorization=vectorization, check=False, **options))
    with torch_settings(threads=1):
        shown = [envs.reset([0, 1]), *(envs.step(np.zeros(2, np.int64)).new_observations for _ in range(3))]
    envs.close()
    return [each.view(np.uint32).tolist() for each in shown]


@pytest.mark.parametrize(
    "start_method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
def test_workers_flush_denormals_like_the_trainer(start_method: str) -> None:
    here = observations("sync")
    assert here == [[[0, 0, 0], [0, 0, 0]]] * 4
    assert observations("workers", start_method=start_method) == here


def test_first_reset_computes_as_all_later_ones() -> None:
    seen = []

    class Watched(Shrinking):
        def reset(self, **options: Any) -> Any:
            observation, info = super().reset(**options)
            seen.append(observation.tolist())
            return observation, info

    A2C("MlpPolicy", make_vec_env(Watched, 1, check=False), seed=0, compile=False, threads=1).learn(10)
    assert seen[-1] == [0, 0, 0]


WHERE: dict[str, dict[str, Any]] = {
    "here": {},
    "workers": {"vectorization": "workers", "n_workers": 2, "start_method": "fork"},
}


def stepper_env(make: Any, n: int, where: str, **options: Any) -> VecEnvAdapter:
    return make_adapter(make_vec_env(make, n, check=False, **{**WHERE[where], **options}))


def message_of(envs: VecEnvAdapter, n_steps: int) -> str:
    """Step until something is raised, which must not be before the last step."""
    actions = np.zeros(envs.num_envs, np.int64)
    for _ in range(n_steps - 1):
        envs.step(actions)
    with pytest.raises(ZooError) as caught:
        envs.step(actions)
    envs.close()
    return str(caught.value)


class Misshapen(Counting):
    """Shows something else than its space in its second step, or at the end of an episode, its third."""

    def __init__(self, space: Any, wrong: Any, at: int = 2) -> None:
        super().__init__(lengths=(3,))
        self.observation_space = space
        self.right, self.wrong, self.at = space.sample(), wrong, at

    def _shown(self) -> Any:
        return self.wrong if self._observation[1] == self.at else self.right


VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
MISSHAPEN = {
    "one number": (VECTOR, 1.0, "()", "(4,)"),
    "one entry": (VECTOR, np.ones(1, np.float32), "(1,)", "(4,)"),
    "a part": (
        spaces.Dict({"a": VECTOR, "b": spaces.Discrete(2)}),
        {"a": np.ones((1, 4), np.float32), "b": 1},
        "(1, 4)",
        "(4,)",
    ),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("space", "wrong", "found", "expected"), MISSHAPEN.values(), ids=MISSHAPEN)
@pytest.mark.parametrize("at", [2, 3])
def test_observation_of_another_shape_is_refused(
    space: Any, wrong: Any, found: str, expected: str, at: int, where: str
) -> None:
    envs = stepper_env(lambda: Misshapen(space, wrong, at), 2, where)
    envs.reset([7, 8])
    message = message_of(envs, at)
    assert message.startswith(f"env 0 (step {at} after seed 7): ")
    assert f"shape {found} instead of {expected}" in message
    assert "\n" not in message


class Exiting(Counting):
    """Ends its process in its second step, as if all were well."""

    def step(self, action: Any) -> Any:
        if self._observation[1] == 1 and self.np_random_seed == 3:
            sys.exit(0)
        return super().step(action)


@pytest.mark.parametrize("where", WHERE)
def test_env_that_calls_exit_is_an_error(where: str) -> None:
    envs = stepper_env(lambda: Exiting((9,)), 4, where)
    envs.reset([0, 1, 2, 3])
    assert message_of(envs, 2).startswith("env 3 (step 2 after seed 3) raised SystemExit in a step:")


BYTES = spaces.Box(0, 9, (2,), np.uint8)
MISFITS = {
    "NaN in bytes": (BYTES, np.zeros(2, np.uint8), np.array([0.0, np.nan]), "nan"),
    "300 in bytes": (BYTES, np.zeros(2, np.uint8), np.array([0, 300]), "300"),
    "-1 in bytes": (BYTES, np.zeros(2, np.uint8), [-1, 0], "-1"),
    "0.7 in bytes": (BYTES, np.zeros(2, np.uint8), [0.7, 0.0], "0.7"),
    "1e12 in 32 bits": (spaces.Box(0, 9, (1,), np.int32), np.zeros(1, np.int32), [10**12], "1000000000000"),
    "2 in bits": (spaces.MultiBinary(2), np.zeros(2, np.int8), np.array([0, 2], np.int8), "2"),
    "beyond a Discrete": (spaces.Discrete(3, start=1), 1, 4, "4"),
    "a fraction in a Discrete": (spaces.Discrete(3), 0, 1.5, "1.5"),
    "beyond a MultiDiscrete": (spaces.MultiDiscrete([2, 3]), np.zeros(2, np.int64), np.array([1, 3]), "3"),
}


class Casting(gym.Env[Any, Any]):
    """Shows ``good`` until step 5, then ``bad``."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, good: Any, bad: Any, *, as_part: bool = False, ends: bool = False) -> None:
        self.observation_space = spaces.Dict(part=space, other=BYTES) if as_part else space
        self.good, self.bad, self.as_part, self.ends = good, bad, as_part, ends

    def shown(self, value: Any) -> Any:
        return {"part": value, "other": np.zeros(2, np.uint8)} if self.as_part else value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n_steps = 0
        return self.shown(self.good), {}

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        is_bad = self.n_steps == 5
        return self.shown(self.bad if is_bad else self.good), 0.0, False, is_bad and self.ends, {}


@pytest.mark.parametrize(("as_part", "ends"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("space", "good", "bad", "named"), MISFITS.values(), ids=MISFITS)
def test_observation_that_a_cast_changes_is_refused(
    space: Any, good: Any, bad: Any, named: str, as_part: bool, ends: bool
) -> None:
    env = make_vec_env(lambda: Casting(space, good, bad, as_part=as_part, ends=ends), 2, seed=3, check=False)
    env.reset()
    for _ in range(4):
        env.step(np.zeros(2, np.int64))
    part = " `part`" if as_part else ""
    with pytest.raises(ZooError, match=rf"env 0 \(step 5 after seed 3\).* an observation{part} has {named}"):
        env.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("kind", ["2 in bits", "beyond a Discrete", "1e12 in 32 bits"])
def test_cast_is_refused_in_foreign_envs_and_workers(kind: str) -> None:
    space, good, bad, named = MISFITS[kind]

    def make() -> Casting:
        return Casting(space, good, bad)

    foreign = make_adapter(SyncVectorEnv([make]))
    # Gymnasium's own buffers cast; a vector environment that hands on what it has does not.
    foreign.env.step = lambda actions: (np.array([bad]), np.zeros(1), *np.zeros((2, 1), bool), {})  # type: ignore[method-assign]
    foreign.reset([0])
    with pytest.raises(ZooError, match=f"gave observations with {named}"):
        foreign.step(np.zeros(1, np.int64))
    workers = SubprocVecEnv([make] * 2, seed=0)
    try:
        workers.reset()
        for _ in range(4):
            workers.step(np.zeros(2, np.int64))
        with pytest.raises(ZooError, match=rf"env 0 \(step 5 after seed 0\).*{named}"):
            workers.step(np.zeros(2, np.int64))
    finally:
        workers.close()
