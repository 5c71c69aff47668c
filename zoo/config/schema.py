"""Settings of commands, callbacks and loggers; other sections are declared beside the code they configure.

The defaults of commands are in conf/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zoo.config.fields import hyperparameter, setting


def _interval(events: str, share: str) -> Any:
    text = f"steps between {events}; null: {share} of the run"
    return hyperparameter(None, text, unit="environment steps", ge=1)


@dataclass
class NoSettings:
    """Settings of a command without settings."""


@dataclass
class AgentName:
    """Settings of all commands that read an agent's files."""

    algo: str | None = setting("algorithm of the agent")
    env: str | None = setting("its environment")
    agent: str | None = setting("folder, zip or run of the agent, instead of algo and env")
    runs_dir: str = setting("folder in which your runs are searched")


@dataclass
class AgentChoice(AgentName):
    """Settings of all commands that load an agent."""

    env: str | None = setting("its environment; with agent=: another one to play in")
    trust: bool = setting("let the agent import classes from outside Zoo")


@dataclass
class TrainSettings:
    """Settings of `zoo train` beside the sections algo, env, policy, callbacks and logger."""

    n_timesteps: int = setting("environment steps to train for", gt=0)
    n_envs: int = setting("environments stepped side by side", ge=1)
    workers: int = setting("data-parallel processes, each with its own n_envs environments", ge=1)
    seed: int | None = setting("seed of all randomness; null: drawn", ge=0)
    device: str = setting("auto, cpu, cuda or cuda:N")
    compile: bool | str = setting(
        "compile updates to one graph; auto: if that saves time", choices=("auto", True, False)
    )
    threads: int | str = setting("threads of an update; auto: from the size of the work")
    dataset: str | None = setting("expert data of bc and gail: a .npz file; else pretrain.dataset")
    init_from: str | None = setting("agent, or run, whose weights a new run starts with")
    init_with: str = setting(
        "what to load from init_from; optimizer: also its last checkpoint's optimizer; all: its buffer, too",
        choices=("weights", "optimizer", "all"),
    )
    resume: str | None = setting("folder of an interrupted run to resume exactly")
    job: str | None = setting("name of a job, whose unfinished run is resumed; null: a requeued Slurm job's")
    runs_dir: str = setting("folder that gets <algo>/<env>/<time>_s<seed>")
    progress_bar: bool = setting("steps per second, time left and mean return, in a terminal")
    verbose: int = setting("0: only problems, 1: what the run does, 2: more", ge=0, le=2)
    tuned: str | None = setting("file of tuned values; tuned=PATH: another file; tuned=none: no file")


@dataclass
class SearchSettings:
    """Settings of `zoo tune` beside `zoo train`'s and the sections sampler, pruner and space."""

    n_trials: int = setting(
        "trials of the whole study; the same command again continues up to this number", ge=1
    )
    timeout: int | str | None = setting(
        "time after which no trial starts: seconds, or 30min, 2h; null: none", gt=0
    )
    n_jobs: int = setting("trials in parallel, each in a process; -1: one per core", ge=-1)
    n_startup_trials: int = setting(
        "trials before the sampler uses its model and the pruner may end trials", ge=0
    )
    n_evaluations: int = setting("evaluations of a trial; after each it may be pruned", ge=1)
    n_seeds: int = setting("trainings of a trial, each with its own seed", ge=1)
    objective: str = setting("score to maximise", choices=("mean_return", "iqm", "success_rate"))
    study: str = setting("name of the study, and of its folder")
    storage: str | None = setting("where trials are stored: journal, a file or a URL; null: study.db")
    warm_start: bool = setting("start with a trial of the tuned file's values")
    top_k: int = setting("best trials to train again at the end, on fresh seeds", ge=0)
    top_seeds: int = setting("fresh seeds for each of them", ge=1)
    keep: bool = setting("keep the agents of all trials")
    worker: int | str | None = setting("label of one of a multirun's processes on one study")
    fixed: list[str] = setting("hyperparameters of the space that are not searched")


@dataclass
class TuneSettings(SearchSettings, TrainSettings):
    """All settings of `zoo tune` beside sections."""


@dataclass
class PlaySettings(AgentChoice):
    """Settings of all commands that run episodes with a saved agent."""

    env: dict[str, Any] = setting(  # type: ignore[assignment]
        "its environment; with agent=: another one to play in; env.KEY=… changes one of its settings"
    )
    checkpoint: int | Literal["last"] | None = setting(
        "steps of an agent that its run saved (callbacks.agents); last: the final one; null: the best one",
        ge=0,
    )
    device: str = setting("auto, cpu, cuda or cuda:N")
    n_episodes: int = setting("episodes to play", ge=1)
    deterministic: bool | None = setting("most likely action, no sampling; null: not in Atari and MiniGrid")
    seed: int | None = setting("seed of the episodes; null: drawn", ge=0)


@dataclass
class EnjoySettings(PlaySettings):
    record: bool = setting("write a video")
    render: bool | None = setting("open a window; null: if there is a display")


@dataclass
class EvaluateSettings(PlaySettings):
    n_envs: int = setting("environments stepped side by side", ge=1)


@dataclass
class CheckSettings:
    """Settings of `zoo check` beside the section env."""

    seed: int = setting("seed of the test episode", ge=0)


@dataclass
class StatusSettings:
    folder: str | None = setting("folder of the sweep; null: the newest")
    runs_dir: str = setting("runs folder; its multirun/ is searched for the newest sweep")
    watch: bool = setting("refresh the table until all jobs have ended")
    every: float = setting("time between refreshes", unit="seconds", gt=0)


@dataclass
class EvalSettings:
    """Evaluation while training, and saving of the best agent so far."""

    every: int | None = _interval("evaluations", "a twentieth")
    n_episodes: int = hyperparameter(10, "episodes in an evaluation", ge=1)
    n_envs: int = hyperparameter(5, "environments stepped side by side", ge=1)
    deterministic: bool | None = hyperparameter(
        None, "most likely action, no sampling; null: not in Atari and MiniGrid"
    )
    confirm: int = hyperparameter(
        0, "extra episodes on fixed seeds before an agent counts as best; 0: off", ge=0
    )


@dataclass
class AgentsSettings:
    """Agents saved during the run, in its folder ``agents``, each named by its steps."""

    every: int | None = _interval("agents", "a tenth")


@dataclass
class OwnCallbackSettings:
    """Settings of a user's callback besides the arguments of its class."""

    every: int = hyperparameter(help="steps between calls", unit="environment steps", ge=1)


@dataclass
class CheckpointSettings:
    """Checkpoints for `resume=`, written during the run."""

    every: int | None = _interval("checkpoints", "a tenth")
    keep: bool | str = hyperparameter(
        "auto",
        "keep a finished run's last checkpoint, for init_with=all; auto: if it takes up to 32 MiB",
        choices=("auto", True, False),
    )


@dataclass
class StopOnRewardSettings:
    """End the run once an evaluation is good enough."""

    threshold: float = setting("mean return of an evaluation that ends the run")


@dataclass
class StopOnNoImprovementSettings:
    """End the run once evaluations stop improving."""

    max_evaluations: int = setting("evaluations without a new best that end the run", ge=1)
    min_evaluations: int = hyperparameter(0, "evaluations before the run may end", ge=0)


@dataclass
class StopOnEpisodesSettings:
    """End the run after a number of episodes."""

    max_episodes: int = setting("finished episodes, of all environments, that end the run", ge=1)


@dataclass
class WandbSettings:
    """Place and labels of the run in Weights & Biases."""

    project: str | None = hyperparameter(None, "project; null: WANDB_PROJECT, else zoo")
    entity: str | None = hyperparameter(None, "user or team; null: your own")
    group: str | None = hyperparameter(None, "group; null: WANDB_RUN_GROUP, else the run's multirun, if any")
    job_type: str | None = hyperparameter(None, "kind of run; null: WANDB_JOB_TYPE, else train")
    name: str | None = hyperparameter(None, "name of the run; null: WANDB_NAME, else its folder's name")
    tags: list[str] | None = hyperparameter(None, "tags of the run; null: WANDB_TAGS")
    mode: str | None = hyperparameter(
        None, "null: WANDB_MODE, else online", choices=("online", "offline", "disabled")
    )
    agent: bool = hyperparameter(True, "send the best agent too, as an artifact")


@dataclass
class LoggerSettings:
    """Outputs for scalars."""

    every: int | None = _interval("log entries", "a hundredth")
    console: bool = hyperparameter(False, "a table on the terminal")
    csv: bool = hyperparameter(False, "progress.csv in the run's folder")
    tensorboard: bool | None = hyperparameter(None, "TensorBoard's files in the run's folder, in tb/")
    wandb: WandbSettings | bool | None = hyperparameter(None, "Weights & Biases")

    def __post_init__(self) -> None:
        if isinstance(self.wandb, bool):
            self.wandb = WandbSettings() if self.wandb else None


@dataclass
class ExpertSettings(AgentChoice):
    n_episodes: int | None = setting("episodes to record, null: 50; to show, null: all", ge=1)
    n_envs: int = setting("environments stepped side by side", ge=1)
    min_return: float | None = setting("record or show only episodes with at least this return; null: all")
    successes_only: bool = setting("record or show only episodes that reach their goal")
    deterministic: bool = setting("most likely action instead of sampling")
    seed: int | None = setting("seed of the episodes; null: drawn", ge=0)
    out: str | None = setting("file to write, .npz; null: a new one in ./experts")
    show: str | None = setting("file whose summary to print instead of recording")


@dataclass
class CompareSettings:
    runs: str | list[Any] | None = setting("the two to compare: runs, folders of runs, patterns with *")
    score: str = setting("score of a run in tables and statistics", choices=("final", "best", "train"))
    aggregate: str = setting("average over a group's runs", choices=("mean", "iqm"))
    by: str | list[str] | None = setting("keys that distinguish groups; null: all but the seed")
    reference: str | dict[str, Any] | None = setting(
        "returns that score 0 and 1, or a YAML file; null: the extremes"
    )


@dataclass
class PlotSettings(CompareSettings):
    runs: str | list[str] = setting("run folders, folders of runs, or patterns with *")
    figure: str = setting(
        "auto: run for one run, else curves",
        choices=("auto", "run", "curves", "scores", "aggregates", "profile"),
    )
    x: str = setting("x-axis of curves", choices=("steps", "episodes", "hours"))
    y: str = setting("y-axis of curves: train, eval, length, or a scalar of progress.csv")
    smooth: int | Literal["auto"] = setting("episodes averaged in each point; auto: 100", ge=1)
    interval: str = setting("band around a group's line", choices=("ci", "std", "none"))
    format: str | None = setting(
        "file format; null: by the ending of out", choices=("png", "svg", "pdf", "html", "md", "csv")
    )
    report: bool = setting("one HTML page with everything; the same as format=html")
    title: str | None = setting("heading of the figure or report")
    out: str | None = setting("file to write; null: one in plots/")


@dataclass
class RecordSettings(PlaySettings):
    n_episodes: int | None = setting(  # type: ignore[assignment]
        "episodes to film; null: one, or enough for `length`", ge=1
    )
    length: int | None = setting("images in the video; null: whole episodes", ge=1)
    format: str = setting("mp4, gif or both", choices=("mp4", "gif", "both"))
    fps: float | None = setting("images a second; null: the environment's, else 30", gt=0, le=1000)
    size: str | int | None = setting("WIDTHxHEIGHT in pixels, or a height; null: the environment's")
    out: str | None = setting("file or folder of the video; null: videos/ of the agent's run, else ./videos")


@dataclass
class VideoSettings:
    """Videos of the agent as it learns, in the run's folder ``videos``."""

    every: int | None = _interval("videos", "a tenth")
    length: int | None = hyperparameter(500, "most images in a video; null: a whole episode", ge=1)
    deterministic: bool = hyperparameter(True, "most likely action instead of sampling")
    size: str | int | None = hyperparameter(
        None, "WIDTHxHEIGHT in pixels, or a height; null: the environment's"
    )


@dataclass
class CallbacksSettings:
    """Callbacks by key; null switches one off."""

    eval: EvalSettings | None = None
    checkpoint: CheckpointSettings | None = None
    agents: AgentsSettings | None = None
    video: VideoSettings | None = None
    stop_on_reward: StopOnRewardSettings | None = None
    stop_on_no_improvement: StopOnNoImprovementSettings | None = None
    stop_on_episodes: StopOnEpisodesSettings | None = None


@dataclass
class ImportSettings:
    """Settings of `zoo import` beside the section env."""

    file: str | None = setting("zip that Stable-Baselines3's save() wrote: zoo import FILE.zip")
    normalize: str | None = setting("file that VecNormalize.save() wrote, if there is one")
    algo: str | None = setting("algorithm, if the file does not name it")
    activation: str | None = setting("non-linearity of the networks, if the file does not name it")
    out: str | None = setting("folder or zip of the new agent; null: imported/<name of the file>")


@dataclass
class ExportSettings(AgentChoice):
    format: str = setting("onnx, torch_export or both", choices=("onnx", "torch_export", "both"))
    out: str | None = setting("folder to write; null: exported/<algo>-<env>")
    opset: int | None = setting("version of ONNX's operators; null: the exporter's default", ge=1)


@dataclass
class BenchmarkSettings:
    agents: str | None = setting("folder of agents; null: the collection, trained_agents/")
    algo: str | None = setting("only agents of this preset, or of this algorithm and its presets")
    env: str | None = setting("only agents of this environment")
    n_episodes: int = setting("episodes that each agent plays", ge=1)
    n_envs: int = setting("environments stepped side by side for each agent", ge=1)
    n_jobs: int = setting("agents measured side by side; -1: one per core", ge=-1)
    deterministic: bool | None = setting("most likely action, no sampling; null: not in Atari and MiniGrid")
    seed: int = setting("seed of the episodes", ge=0)
    out: str = setting("folder of benchmark.md and .json; what is there already is kept")
    trust: bool = setting("let agents import classes from outside Zoo")


@dataclass
class PushSettings(AgentName):
    to: str | None = setting("USER/NAME on the Hugging Face Hub, a folder, or a FILE.zip")
    private: bool = setting("make a new repository on the Hub private")
    video: str | None = setting("video to go with it; null: the newest of the agent's run")
    message: str | None = setting("commit message on the Hub; null: the agent's name and score")


@dataclass
class PullSettings:
    source: str | None = setting("USER/NAME on the Hugging Face Hub, a folder, or a FILE.zip")
    to: str | None = setting("folder of the agent; null: pulled/<name>")
    revision: str | None = setting("branch, tag or commit on the Hub; null: main")


@dataclass
class ListingSettings:
    algo: str | None = setting("only agents of this algorithm or preset")
    env: str | None = setting("only agents of this environment")
    agent: str | None = setting("folder, zip or run of an agent whose card is shown")
    format: str = setting("table, or json for programs", choices=("table", "json"))
    runs_dir: str = setting("folder in which your runs are searched")


SETTINGS: dict[str, type[Any]] = {
    "train": TrainSettings,
    "tune": TuneSettings,
    "enjoy": EnjoySettings,
    "evaluate": EvaluateSettings,
    "check": CheckSettings,
    "expert": ExpertSettings,
    "plot": PlotSettings,
    "compare": CompareSettings,
    "agents": ListingSettings,
    "import": ImportSettings,
    "export": ExportSettings,
    "benchmark": BenchmarkSettings,
    "push": PushSettings,
    "pull": PullSettings,
    "record": RecordSettings,
    "doctor": NoSettings,
    "status": StatusSettings,
}
"""Settings by command."""

ALGO_LABELS = ("name", "preset")
"""Keys of the section ``algo`` beside hyperparameters: the algorithm, and its preset if any."""

OLDER_POLICY = {"flatten_images": True}
"""Fields of policies without a value for them, which were saved before there was a choice."""

PRESET = re.compile(r"\w[\w.+-]{0,99}")
"""Names that a preset can have: it names a file, and folders."""


def preset_or_name(algo: Mapping[str, Any]) -> str:
    """Return the preset's name, else the algorithm's, for folders, runs, tables and messages."""
    return str(algo.get("preset") or algo["name"])


OPEN_SECTIONS = ("callbacks", "logger")
"""Sections that also take classes of the user's, as a mapping with ``_target_``, under any key."""
