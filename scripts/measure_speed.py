"""Measure the steps per second of one system at one work, in a process of its own.

    python scripts/measure_speed.py --work ppo --system sb3 --threads 1 --seconds 10

Prints one JSON object; `compare_speed.py` starts it many times. The clock runs over whole evaluation
intervals: each holds the same number of environment steps, updates, log lines and evaluations in every
system. The first interval warms the system up (compilation, caches) and does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

N_EVAL_EPISODES = 5
ENDLESS = 10**9
"""The budget given to every system: the clock ends the run. No schedule is used that would notice."""


@dataclass(frozen=True)
class Work:
    """What is trained: the same values for every system, under the names that all of them know."""

    env: str
    n_envs: int
    interval: int
    """Environment steps between evaluations, a multiple of what one update follows on."""
    log_every: int
    net_arch: list[int]
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    """What peers take for the policy, and Zoo among the hyperparameters."""
    policy_name: str = "MlpPolicy"
    policy_fields: dict[str, Any] = field(default_factory=dict)
    """What all of them take for the policy."""

    vectorization: str = "auto"
    """How Zoo steps its environments; where it is not its own choice, Stable-Baselines3 has workers."""
    has_evaluations: bool = True

    @property
    def has_pictures(self) -> bool:
        """Whether an Atari game is played."""
        return self.policy_name == "CnnPolicy"


DQN_ON_CARTPOLE = Work(
    env="CartPole-v1",
    n_envs=1,
    interval=5_120,
    log_every=1_024,
    net_arch=[256, 256],
    hyperparameters={
        "train_freq": 256, "gradient_steps": 128, "batch_size": 64, "buffer_size": 100_000,
        "learning_starts": 1_000, "learning_rate": 2.3e-3, "gamma": 0.99, "target_update_interval": 10,
        "exploration_initial_eps": 0.04, "exploration_final_eps": 0.04,
    },
)  # fmt: skip

OFF_POLICY_ON_PENDULUM = Work(
    env="Pendulum-v1",
    n_envs=1,
    interval=500,
    log_every=500,
    net_arch=[256, 256],
    hyperparameters={
        "batch_size": 256, "train_freq": 1, "gradient_steps": 1, "learning_starts": 100,
        "buffer_size": 100_000, "learning_rate": 1e-3, "gamma": 0.99,
    },
)  # fmt: skip

ON_POLICY_ON_CARTPOLE = Work(
    env="CartPole-v1",
    n_envs=8,
    interval=10_240,
    log_every=2_048,
    net_arch=[64, 64],
    hyperparameters={
        "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "learning_rate": 1e-3, "clip_range": 0.2, "ent_coef": 0.0,
    },
)  # fmt: skip

WORKS = {
    "ppo": ON_POLICY_ON_CARTPOLE,
    "a2c": replace(
        ON_POLICY_ON_CARTPOLE,
        log_every=2_000,
        hyperparameters={"n_steps": 5, "gamma": 0.99, "learning_rate": 7e-4, "ent_coef": 0.0},
    ),
    "ppo1": replace(
        ON_POLICY_ON_CARTPOLE,
        hyperparameters={
            "n_steps": 256, "batch_size": 64, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.95,
            "learning_rate": 1e-3, "clip_range": 0.2, "ent_coef": 0.01,
        },
    ),
    "acer": replace(
        ON_POLICY_ON_CARTPOLE,
        log_every=2_080,
        hyperparameters={"n_steps": 20, "gamma": 0.99, "learning_rate": 7e-4, "ent_coef": 0.0},
    ),
    "acktr": replace(
        ON_POLICY_ON_CARTPOLE,
        hyperparameters={"n_steps": 20, "gamma": 0.99, "ent_coef": 0.0},
    ),
    "ars": Work(
        env="CartPole-v1",
        n_envs=1,
        interval=10_240,
        log_every=2_048,
        net_arch=[],
        hyperparameters={"n_delta": 8, "learning_rate": 0.02, "delta_std": 0.05},
        policy_name="LinearPolicy",
    ),
    "pqn": replace(
        ON_POLICY_ON_CARTPOLE,
        n_envs=64,
        hyperparameters={
            "n_steps": 32, "batch_size": 256, "n_epochs": 2, "gamma": 0.99, "learning_rate": 1e-3,
            "q_lambda": 0.9, "exploration_initial_eps": 0.05,
        },
        vectorization="native",
        has_evaluations=False,  # this is about collection and updates: an episode of a good policy is long
    ),
    "trpo": Work(
        env="Pendulum-v1",
        n_envs=2,
        interval=10_240,
        log_every=2_048,
        net_arch=[64, 64],
        hyperparameters={
            "n_steps": 1024, "batch_size": 128, "gamma": 0.9, "learning_rate": 1e-3, "n_critic_updates": 15,
        },
    ),
    "dqn": DQN_ON_CARTPOLE,
    "sac": OFF_POLICY_ON_PENDULUM,
    "qrdqn": replace(DQN_ON_CARTPOLE, policy={"n_quantiles": 25}),
    "ddpg": OFF_POLICY_ON_PENDULUM,
    "td3": OFF_POLICY_ON_PENDULUM,
    "tqc": OFF_POLICY_ON_PENDULUM,
    "crossq": OFF_POLICY_ON_PENDULUM,
    "droq": replace(
        OFF_POLICY_ON_PENDULUM,
        interval=50,
        hyperparameters={
            **OFF_POLICY_ON_PENDULUM.hyperparameters,
            "learning_starts": 20,
            "gradient_steps": 20,
            "policy_delay": 20,
        },
        has_evaluations=False,
    ),
}  # fmt: skip
WORKS["recurrent_ppo"] = replace(
    WORKS["ppo"],
    interval=2_048,
    policy_name="MlpLstmPolicy",
    policy_fields={"lstm_hidden_size": 64},
)

WORKS["pong"] = Work(
    env="PongNoFrameskip-v4",
    n_envs=8,
    interval=1_024,
    log_every=1_024,
    net_arch=[],
    hyperparameters={
        "n_steps": 128, "batch_size": 256, "n_epochs": 4, "gamma": 0.99, "gae_lambda": 0.95,
        "learning_rate": 2.5e-4, "clip_range": 0.1, "ent_coef": 0.01,
    },
    policy_name="CnnPolicy",
    has_evaluations=False,  # episodes are long
)  # fmt: skip

WORKS["breakout"] = replace(WORKS["pong"], env="BreakoutNoFrameskip-v4", vectorization="native")
WORKS["breakout_envpool"] = replace(WORKS["breakout"], env="envpool:Breakout-v5")

WORKS["pong_dqn"] = replace(
    WORKS["pong"],
    n_envs=1,
    hyperparameters={
        "train_freq": 4, "gradient_steps": 1, "batch_size": 32, "buffer_size": 10_000,
        "learning_starts": 500, "learning_rate": 1e-4, "target_update_interval": 1_000,
        "exploration_initial_eps": 0.1, "exploration_final_eps": 0.1,
    },
)  # fmt: skip

WORKS["maskable_ppo"] = replace(WORKS["ppo"], env="Zoo/Masked-v0")

WORKS["halfcheetah_ppo"] = replace(
    WORKS["ppo"],
    env="HalfCheetah-v5",
    n_envs=1,
    interval=2_048,
    hyperparameters={
        "n_steps": 2_048, "batch_size": 64, "n_epochs": 10, "gamma": 0.99, "gae_lambda": 0.95,
        "learning_rate": 3e-4, "clip_range": 0.2, "ent_coef": 0.0,
    },
    has_evaluations=False,
)  # fmt: skip

WORKS["halfcheetah_sac"] = WORKS["halfcheetah_td3"] = replace(
    OFF_POLICY_ON_PENDULUM, env="HalfCheetah-v5", has_evaluations=False
)

CONTRIB = {
    "qrdqn": "QRDQN",
    "tqc": "TQC",
    "recurrent_ppo": "RecurrentPPO",
    "maskable_ppo": "MaskablePPO",
    "trpo": "TRPO",
    "ars": "ARS",
    "crossq": "CrossQ",
}
"""Works that SB3-Contrib has, and what it calls them."""

NEAREST_IN_SB3 = {"acer": "A2C", "acktr": "A2C", "ppo1": "PPO"}
"""What of SB3 does the work that is most like that of an algorithm that it does not have."""

ALGORITHMS = {
    "pong": "ppo",
    "pong_dqn": "dqn",
    "breakout": "ppo",
    "breakout_envpool": "ppo",
    **{f"halfcheetah_{name}": name for name in ("ppo", "sac", "td3")},
}
"""What learns in works that are not called after it."""

FOR_GPUS = [work for work in WORKS if work.startswith(("breakout", "halfcheetah"))]
"""Works that are measured only where they are asked for: `--device cuda --work breakout`."""

NAMES_IN_SBX = {"crossq": "CrossQ", "droq": "SAC"}

DROPOUT_OF_PEERS = {"dropout_rate": 0.01, "layer_norm": True}
"""What `droq` is for the policy of SBX."""

PEERS = ("sb3", "sbx")
OF_PICTURES = "zoo-bfloat16"
"""Compiled, with an encoder that computes in bfloat16."""

SYSTEMS = ("zoo-eager", "zoo-compiled", OF_PICTURES, *PEERS)


def main() -> None:
    arguments = parse_arguments()
    system, work = arguments.system, arguments.work
    if system not in systems_for(work):
        raise SystemExit(f"{system} has no {work}")
    limit_threads(system, arguments.threads)
    WORKS[work] = changed(WORKS[work], arguments)
    train = {"sb3": train_sb3, "sbx": train_sbx}.get(system, train_zoo)
    clock = IntervalClock(arguments.seconds)
    with tempfile.TemporaryDirectory() as folder:
        train(work, Path(folder), clock, arguments)
    asked = {name: value for name, value in vars(arguments).items() if value is not None}
    print(json.dumps({**asked, **clock.result()}))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", choices=WORKS, required=True)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument(
        "--threads", type=int, default=0, help="threads of the tensor library; 0: its own choice"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="time to measure, warm-up not counted")
    parser.add_argument("--n-envs", type=int, help="environments, instead of the work's own number")
    parser.add_argument("--width", type=int, help="width of both hidden layers, likewise")
    parser.add_argument("--batch-size", type=int, help="size of a batch, likewise")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where updates run")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def changed(work: Work, arguments: argparse.Namespace) -> Work:
    """Return the work with the sizes that were asked for, and intervals of whole rollouts."""
    hyperparameters, n_envs = dict(work.hyperparameters), arguments.n_envs or work.n_envs
    if arguments.batch_size is not None:
        hyperparameters["batch_size"] = arguments.batch_size
    interval = work.interval
    if "n_steps" in hyperparameters and arguments.n_envs is not None:
        least = -(-hyperparameters.get("batch_size", 1) // n_envs)
        hyperparameters["n_steps"] = max(hyperparameters["n_steps"], least)
        rollout = hyperparameters["n_steps"] * n_envs
        interval = -(-interval // rollout) * rollout
    net_arch = work.net_arch if arguments.width is None else [arguments.width] * 2
    log_every = interval if arguments.n_envs else work.log_every
    sizes: dict[str, Any] = {"n_envs": n_envs, "interval": interval, "log_every": log_every}
    return replace(work, net_arch=net_arch, hyperparameters=hyperparameters, **sizes)


def systems_for(work: str) -> list[str]:
    """Return the systems that have this work's algorithm, or what is nearest to it."""
    without = {"a2c", "pqn", *NEAREST_IN_SB3, *ALGORITHMS, *CONTRIB} - {"tqc", "crossq"}
    lacking = {"sbx"} if work in without else set()
    lacking |= {"sb3"} if work in ("droq", "pqn") else set()
    if WORKS[work].env.startswith("envpool:"):
        lacking.add("sb3")
    if not WORKS[work].has_pictures:
        lacking.add(OF_PICTURES)
    return [system for system in SYSTEMS if system not in lacking]


def limit_threads(system: str, threads: int) -> None:
    """Set the number of threads before any library starts its pool; numpy's own pool always has one."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if threads:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    if system == "sbx" and threads:
        # XLA sizes its pool by the cores that it may use, and has no setting that holds on CPUs.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


class MeasuredError(Exception):
    """Ends the training of a peer."""


class IntervalClock:
    """Notes the time at the end of every evaluation interval and says when enough was measured."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started = time.perf_counter()
        self.marks: list[tuple[int, float]] = []

    def mark(self, num_timesteps: int) -> bool:
        """Note the end of an interval; return whether the run may end."""
        self.marks.append((num_timesteps, time.perf_counter()))
        return len(self.marks) > 1 and self.marks[-1][1] - self.marks[0][1] >= self.seconds

    def result(self) -> dict[str, float]:
        (first_step, first_time), (last_step, last_time) = self.marks[0], self.marks[-1]
        return {
            "steps_per_second": (last_step - first_step) / (last_time - first_time),
            "steps": last_step - first_step,
            "seconds": last_time - first_time,
            "warm_up_seconds": first_time - self.started,
        }


def train_sb3(work: str, folder: Path, clock: IntervalClock, arguments: argparse.Namespace) -> None:
    import sb3_contrib
    import stable_baselines3
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    package = sb3_contrib if work in CONTRIB else stable_baselines3
    name = NEAREST_IN_SB3.get(work) or CONTRIB.get(work) or ALGORITHMS.get(work, work).upper()
    train_like_sb3(getattr(package, name), work, folder, clock, arguments.seed, device=arguments.device)


def train_sbx(work: str, folder: Path, clock: IntervalClock, arguments: argparse.Namespace) -> None:
    import sbx
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    train_like_sb3(getattr(sbx, NAMES_IN_SBX.get(work, work.upper())), work, folder, clock, arguments.seed)


def train_like_sb3(
    algorithm: Callable[..., Any], name: str, folder: Path, clock: IntervalClock, seed: int, **options: Any
) -> None:
    """Train with Stable-Baselines3's interface: monitors, loggers and an evaluation callback are on."""
    from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    import zoo.envs  # noqa: F401  # some works are done in its environments

    class Mark(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            if self.num_timesteps % work.interval == 0 and clock.mark(self.num_timesteps):
                raise MeasuredError  # ARS goes on whatever a callback returns
            return True

    if name == "maskable_ppo":
        from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback as EvalCallback
    work = WORKS[name]
    monitors = str(folder / "monitor")
    if work.has_pictures:
        import ale_py  # noqa: F401  # registers the games

        form: dict[str, Any] = {"vec_env_cls": DummyVecEnv}
        if work.vectorization != "auto":  # forked processes know the games
            form = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "fork"}}
        env = VecFrameStack(make_atari_env(work.env, work.n_envs, seed, monitor_dir=monitors, **form), 4)
    else:
        env = make_vec_env(work.env, n_envs=work.n_envs, seed=seed, monitor_dir=monitors)
    model = algorithm(
        work.policy_name,
        env,
        policy_kwargs=None
        if name == "ars"
        else {
            "net_arch": work.net_arch,
            **work.policy,
            **work.policy_fields,
            **(DROPOUT_OF_PEERS if name == "droq" else {}),
        },
        seed=seed,
        **options,
        **work.hyperparameters,
    )
    model.set_logger(configure(str(folder), ["csv", "tensorboard"]))
    callbacks = [Mark()]
    if work.has_evaluations:
        evaluation = EvalCallback(
            make_vec_env(work.env, n_envs=1, seed=seed + 1000),
            n_eval_episodes=N_EVAL_EPISODES,
            eval_freq=work.interval // work.n_envs,
            best_model_save_path=str(folder),
            log_path=str(folder),
            verbose=0,
            warn=False,
        )
        callbacks.insert(0, evaluation)
    # Off-policy peers count their log interval in episodes: their default of four is kept.
    rollout = work.n_envs * work.hyperparameters.get("n_steps", 0)
    log_interval = work.log_every // rollout if rollout else 1 if name == "ars" else 4
    with contextlib.suppress(MeasuredError):
        model.learn(ENDLESS, callback=callbacks, log_interval=log_interval)


# What makes Zoo's algorithm do the same arithmetic as the peers'.
SAME_AS_PEERS: dict[str, dict[str, Any]] = {
    "ppo": {"clip_range_vf": None},
    "recurrent_ppo": {"clip_range_vf": None, "vf_coef": 0.5},
    "maskable_ppo": {"clip_range_vf": None},
    "ppo1": {"max_grad_norm": 0.5},
    "a2c": {"rms_prop_tensorflow": False},
    "acer": {"replay_start": 1_000},  # replays are in what is measured, and their compilation is not
    "acktr": {"learning_rate": 0.25},
    "dqn": {"double": False, "dueling": False},
}


ZOO_ENVS = {"ars": 16}
"""Environments of Zoo where the peer has one: its candidates play side by side, SB3-Contrib's in turn."""


def train_zoo(work: str, folder: Path, clock: IntervalClock, arguments: argparse.Namespace) -> None:
    """Train with Zoo: monitors, loggers and an evaluation callback are on, as with the peers."""
    from zoo.algorithms.callback import Callback, Training
    from zoo.algorithms.registry import algorithm_class
    from zoo.envs.make_env import make_vec_env
    from zoo.experiment.callbacks import EvalCallback
    from zoo.experiment.loggers import CsvLogger, LoggingCallback
    from zoo.experiment.trackers import TensorBoardLogger

    class Mark(Callback):
        every = WORKS[work].interval

        def on_steps(self, algorithm: Training) -> None:
            if clock.mark(algorithm.num_timesteps):
                algorithm.request_stop("measured")

    chosen, name = WORKS[work], ALGORITHMS.get(work, work)
    is_ppo = name in ("ppo", "recurrent_ppo", "maskable_ppo")
    policy = {"name": chosen.policy_name, "net_arch": chosen.net_arch, **chosen.policy_fields}
    policy |= {"name": "DroQPolicy"} if work == "droq" else {}
    if arguments.system == OF_PICTURES:
        policy["precision"] = "bfloat16"
    model = algorithm_class(*(("sac", name) if name == "droq" else ("ppo2" if is_ppo else name,)))(
        policy,
        make_vec_env(
            *(chosen.env, ZOO_ENVS.get(work, chosen.n_envs), arguments.seed),
            monitor_dir=folder / "monitor",
            vectorization=chosen.vectorization,
        ),
        seed=arguments.seed,
        device=arguments.device,
        compile=arguments.system != "zoo-eager",
        threads=arguments.threads or "auto",
        **chosen.hyperparameters,
        **chosen.policy,
        **SAME_AS_PEERS.get(name, {}),
    )
    loggers = [CsvLogger(folder / "progress.csv"), TensorBoardLogger(folder / "tb")]
    callbacks: list[Callback] = [LoggingCallback(chosen.log_every, loggers), Mark()]
    if chosen.has_evaluations:
        evaluation = EvalCallback(
            chosen.env, every=chosen.interval, n_eval_episodes=N_EVAL_EPISODES, n_envs=1, run=folder
        )
        callbacks.insert(1, evaluation)
    model.learn(ENDLESS, callback=callbacks)


if __name__ == "__main__":
    main()
