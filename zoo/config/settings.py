"""The settings of each command: types, ranges and meaning; their defaults stand in ``conf/``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.config.agent_choice import ActingAgent
from zoo.config.expert_settings import ExpertSettings
from zoo.config.fields import hyperparameter
from zoo.config.inspecting import DoctorSettings, ReproduceSettings
from zoo.config.plot_settings import CompareSettings, PlotSettings
from zoo.config.recording import RecordSettings, VideoSettings
from zoo.config.sharing_settings import SHARING


@dataclass
class TrainSettings:
    """What `zoo train` takes beside the sections algo, env, policy, callbacks and logger."""

    n_timesteps: int = hyperparameter(help="environment steps to train for", gt=0)
    n_envs: int = hyperparameter(help="environments stepped side by side", ge=1)
    workers: int = hyperparameter(help="processes that learn as one, each in n_envs of its own", ge=1)
    seed: int | None = hyperparameter(
        help="one number for all randomness of a run; null: drawn, and written into the run", ge=0
    )
    device: str = hyperparameter(help="auto, cpu, cuda or cuda:N")
    compile: bool | str = hyperparameter(
        help="updates as one compiled graph; auto: where that wins its time back",
        choices=("auto", True, False),
    )
    threads: int | str = hyperparameter(help="threads of an update; auto: from the size of the work")
    precision: str = hyperparameter(
        help="of matrix products in updates; bf16: factors rounded, TF32 on a GPU, sums in float32",
        choices=("float32", "bf16"),
    )
    dataset: str | None = hyperparameter(
        help="expert data that bc and gail learn from: a .npz file, or minari:ID; for others pretrain.dataset"
    )
    init_from: str | None = hyperparameter(help="agent, or run, whose weights a new run starts with")
    init_with: str = hyperparameter(
        help="what of init_from; optimizer: weights and optimizer of that run's last checkpoint; all: its"
        " replay memory, too",
        choices=("weights", "optimizer", "all"),
    )
    resume: str | None = hyperparameter(
        help="folder of a run to go on with, exactly: an interrupted one, or any with more n_timesteps"
    )
    job: str | None = hyperparameter(
        help="name of a job: its unfinished run with this config goes on; null: a requeued Slurm job's does"
    )
    runs_dir: str = hyperparameter(help="folder that gets <algo>/<env>/<time>_s<seed>")
    progress_bar: bool = hyperparameter(help="steps per second, time left and mean return")
    verbose: int = hyperparameter(help="0: only problems, 1: what the run does, 2: more", ge=0, le=2)
    tuned: str | None = hyperparameter(help="file of tuned values; tuned=PATH takes another, tuned=none none")


@dataclass
class SearchSettings:
    """What `zoo tune` takes beside what `zoo train` takes, and the sections sampler, pruner and space."""

    n_trials: int = hyperparameter(
        help="trials of the whole study; the same command goes on to that many", ge=1
    )
    timeout: int | str | None = hyperparameter(
        help="time after which no trial starts, but those of top_k: seconds, or 30min, 2h; null: none", gt=0
    )
    n_jobs: int = hyperparameter(help="trials at a time, each in a process; -1: one a core", ge=-1)
    n_startup_trials: int = hyperparameter(
        help="trials before the sampler goes by a model and the pruner ends any", ge=0
    )
    n_evaluations: int = hyperparameter(
        help="evaluations of a trial, after each of which it may be ended", ge=1
    )
    n_seeds: int = hyperparameter(help="trainings of a trial, with a seed each", ge=1)
    objective: str | list[str] = hyperparameter(help="what is searched for; several: the best compromises")
    threshold: float | None = hyperparameter(help="mean return that time_to_threshold counts the steps to")
    study: str = hyperparameter(help="name of the study, and of its folder")
    storage: str | None = hyperparameter(
        help="where trials are kept; null: study.db in the study's folder; journal, a file, a database's URL"
    )
    warm_start: bool | str = hyperparameter(
        help="first trial with the tuned file's values; PATH: the best trials of another study"
    )
    top_k: int = hyperparameter(help="best trials that are trained again at the end, on fresh seeds", ge=0)
    top_seeds: int = hyperparameter(help="fresh seeds for each of them", ge=1)
    keep: bool = hyperparameter(help="keep the agents of all trials")
    worker: int | str | None = hyperparameter(help="tells the processes of a multirun on one study apart")
    heartbeat: int = hyperparameter(
        help="seconds between a trial's signs of life in a database; after four without, it is run again",
        ge=1,
    )
    fixed: list[str] = hyperparameter(help="hyperparameters of the space that are not searched")


@dataclass
class TuneSettings(SearchSettings, TrainSettings):
    """All that `zoo tune` takes beside sections."""


@dataclass
class PlaySettings(ActingAgent):
    """What every command takes in which a saved agent plays a number of episodes."""

    n_episodes: int = hyperparameter(help="episodes to play", ge=1)
    deterministic: bool = hyperparameter(help="the likeliest action instead of a random one")
    seed: int | None = hyperparameter(help="of the episodes; null: drawn", ge=0)


@dataclass
class EnjoySettings(PlaySettings):
    """What `zoo enjoy` takes."""

    record: bool = hyperparameter(help="write a video")
    render: bool | None = hyperparameter(help="open a window; null: if there is a display")


@dataclass
class EvaluateSettings(PlaySettings):
    """What `zoo evaluate` takes."""

    n_envs: int = hyperparameter(help="environments stepped side by side", ge=1)


@dataclass
class CheckSettings:
    """What `zoo check` takes beside the section env."""

    seed: int | None = hyperparameter(help="of the episode that is tried; null: drawn", ge=0)


@dataclass
class StatusSettings:
    """What `zoo status` takes."""

    folder: str | None = hyperparameter(help="folder of the sweep; null: the newest")
    runs_dir: str = hyperparameter(help="folder in whose multirun/ the newest sweep is looked for")
    watch: bool = hyperparameter(help="show the table again and again, until all jobs have ended")
    every: float = hyperparameter(help="time between two looks", unit="seconds", gt=0)


SETTINGS: dict[str, type[Any]] = {
    "train": TrainSettings,
    "tune": TuneSettings,
    "enjoy": EnjoySettings,
    "evaluate": EvaluateSettings,
    "check": CheckSettings,
    "expert": ExpertSettings,
    "plot": PlotSettings,
    "compare": CompareSettings,
    **SHARING,
    "record": RecordSettings,
    "reproduce": ReproduceSettings,
    "doctor": DoctorSettings,
    "status": StatusSettings,
}
"""The settings by command."""


@dataclass
class EvalSettings:
    """Evaluation while training, and saving of the best agent so far."""

    every: int | None = hyperparameter(
        None, "steps between evaluations; null: a twentieth of the run", unit="environment steps", ge=1
    )
    n_episodes: int = hyperparameter(10, "episodes in an evaluation", ge=1)
    n_envs: int = hyperparameter(5, "environments in which they are played side by side", ge=1)
    deterministic: bool | None = hyperparameter(
        None, "the likeliest action instead of a random one; null: but for Atari games"
    )


@dataclass
class AgentsSettings:
    """Agents that are kept as the run goes, in its folder ``agents``, each named by its steps."""

    every: int | None = hyperparameter(
        None, "steps between agents; null: a tenth of the run", unit="environment steps", ge=1
    )


@dataclass
class CheckpointSettings:
    """What `resume=` needs, written as the run goes."""

    every: int | str | None = hyperparameter(
        None,
        "environment steps between checkpoints, or a time such as 10min; null: a tenth of the run",
        ge=1,
    )
    keep: bool | str = hyperparameter(
        "auto",
        "keep them when the run has finished, so that it can be made longer; auto: the last, up to 32 MiB",
        choices=("auto", True, False),
    )


@dataclass
class StopOnRewardSettings:
    """End once an evaluation is good enough."""

    threshold: float = hyperparameter(help="mean return of an evaluation that ends the run")


@dataclass
class StopOnNoImprovementSettings:
    """End once evaluations stop getting better."""

    max_evaluations: int = hyperparameter(help="evaluations without a new best that end the run", ge=1)
    min_evaluations: int = hyperparameter(0, "evaluations before which the run never ends so", ge=0)


@dataclass
class StopOnEpisodesSettings:
    """End after a number of episodes."""

    max_episodes: int = hyperparameter(help="finished episodes, of all environments, that end the run", ge=1)


@dataclass
class OwnCallbackSettings:
    """What Zoo gives to a callback of the user's own that does not ask for it itself."""

    every: int = hyperparameter(help="steps between calls of `on_steps`", unit="environment steps", ge=1)


CALLBACKS: dict[str, type[Any]] = {
    "eval": EvalSettings,
    "checkpoint": CheckpointSettings,
    "agents": AgentsSettings,
    "video": VideoSettings,
    "stop_on_reward": StopOnRewardSettings,
    "stop_on_no_improvement": StopOnNoImprovementSettings,
    "stop_on_episodes": StopOnEpisodesSettings,
}
"""The settings of each callback, by its key in the section ``callbacks``; null switches one off."""


@dataclass
class LoggerSettings:
    """Where scalars go."""

    every: int | None = hyperparameter(
        None, "steps between log entries; null: a hundredth of the run", unit="environment steps", ge=1
    )
    console: bool = hyperparameter(False, "a table on the terminal")
    csv: bool = hyperparameter(False, "progress.csv in the run's folder")
    tensorboard: bool | dict[str, Any] | None = hyperparameter(
        None, "TensorBoard's files in the run's folder, in tb/: true, or the values of TensorBoardSettings"
    )
    wandb: dict[str, Any] | None = hyperparameter(None, "Weights & Biases, with the values of WandbSettings")
