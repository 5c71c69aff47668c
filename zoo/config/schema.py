"""The settings of commands, callbacks and loggers; those of other sections stand beside what they configure.

Defaults of commands stand in conf/.
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
    """What every command takes that reads the files of an agent."""

    algo: str | None = setting("algorithm of the agent")
    env: str | None = setting("its environment")
    agent: str | None = setting("folder, zip or run of the agent, instead of algo and env")
    runs_dir: str = setting("folder in which own runs are looked for")


@dataclass
class AgentChoice(AgentName):
    """What every command takes in which a saved agent acts."""

    env: str | None = setting("its environment; with agent=: another one to play in")
    trust: bool = setting("let the agent import classes from outside Zoo")


@dataclass
class TrainSettings:
    """What `zoo train` takes beside the sections algo, env, policy, callbacks and logger."""

    n_timesteps: int = setting("environment steps to train for", gt=0)
    n_envs: int = setting("environments stepped side by side", ge=1)
    workers: int = setting("processes that learn as one, each in n_envs of its own", ge=1)
    seed: int | None = setting("the number that all randomness comes from; null: drawn", ge=0)
    device: str = setting("auto, cpu, cuda or cuda:N")
    compile: bool | str = setting(
        "updates as one compiled graph; auto: if that saves time", choices=("auto", True, False)
    )
    threads: int | str = setting("threads of an update; auto: from the size of the work")
    dataset: str | None = setting("expert data of bc and gail: a .npz file; else pretrain.dataset")
    init_from: str | None = setting("agent, or run, whose weights a new run starts with")
    init_with: str = setting(
        "what of init_from; optimizer: also that of the run's last checkpoint; all: its replay buffer, too",
        choices=("weights", "optimizer", "all"),
    )
    resume: str | None = setting("folder of an interrupted run to go on with, exactly")
    job: str | None = setting("name of a job, whose unfinished run goes on; null: a requeued Slurm job's")
    runs_dir: str = setting("folder that gets <algo>/<env>/<time>_s<seed>")
    progress_bar: bool = setting("steps per second, time left and mean return, in a terminal")
    verbose: int = setting("0: only problems, 1: what the run does, 2: more", ge=0, le=2)
    tuned: str | None = setting("file of tuned values; tuned=PATH takes another, tuned=none none")


@dataclass
class SearchSettings:
    """What `zoo tune` takes beside what `zoo train` takes, and the sections sampler, pruner and space."""

    n_trials: int = setting("trials of the whole study; the same command goes on to that many", ge=1)
    timeout: int | str | None = setting(
        "time after which no trial starts: seconds, or 30min, 2h; null: none", gt=0
    )
    n_jobs: int = setting("trials at a time, each in a process; -1: one a core", ge=-1)
    n_startup_trials: int = setting("trials before the sampler goes by a model and the pruner ends any", ge=0)
    n_evaluations: int = setting("evaluations of a trial, after each of which it may be ended", ge=1)
    n_seeds: int = setting("trainings of a trial, with a seed each", ge=1)
    objective: str = setting("what is searched for", choices=("mean_return", "iqm", "success_rate"))
    study: str = setting("name of the study, and of its folder")
    storage: str | None = setting("where trials are kept: journal, a file or a URL; null: study.db")
    warm_start: bool = setting("first trial with the tuned file's values")
    top_k: int = setting("best trials that are trained again at the end, on fresh seeds", ge=0)
    top_seeds: int = setting("fresh seeds for each of them", ge=1)
    keep: bool = setting("keep the agents of all trials")
    worker: int | str | None = setting("tells the processes of a multirun on one study apart")
    fixed: list[str] = setting("hyperparameters of the space that are not searched")


@dataclass
class TuneSettings(SearchSettings, TrainSettings):
    """All that `zoo tune` takes beside sections."""


@dataclass
class PlaySettings(AgentChoice):
    """What every command takes in which a saved agent plays."""

    env: dict[str, Any] = setting(  # type: ignore[assignment]
        "its environment; with agent=: another one to play in; env.KEY=… changes one of its settings"
    )
    checkpoint: int | Literal["last"] | None = setting(
        "steps of an agent that its run kept (callbacks.agents); last: the last one; null: the best one", ge=0
    )
    device: str = setting("auto, cpu, cuda or cuda:N")
    n_episodes: int = setting("episodes to play", ge=1)
    deterministic: bool = setting("the likeliest action instead of a random one")
    seed: int | None = setting("of the episodes; null: drawn", ge=0)


@dataclass
class EnjoySettings(PlaySettings):
    record: bool = setting("write a video")
    render: bool | None = setting("open a window; null: if there is a display")


@dataclass
class EvaluateSettings(PlaySettings):
    n_envs: int = setting("environments stepped side by side", ge=1)


@dataclass
class CheckSettings:
    """What `zoo check` takes beside the section env."""

    seed: int = setting("of the episode that is tried", ge=0)


@dataclass
class StatusSettings:
    folder: str | None = setting("folder of the sweep; null: the newest")
    runs_dir: str = setting("folder in whose multirun/ the newest sweep is looked for")
    watch: bool = setting("show the table again and again, until all jobs have ended")
    every: float = setting("time between two looks", unit="seconds", gt=0)


@dataclass
class EvalSettings:
    """Evaluation while training, and saving of the best agent so far."""

    every: int | None = _interval("evaluations", "a twentieth")
    n_episodes: int = hyperparameter(10, "episodes in an evaluation", ge=1)
    n_envs: int = hyperparameter(5, "environments in which they are played side by side", ge=1)
    deterministic: bool | None = hyperparameter(
        None, "the likeliest action, not a random one; null: but for Atari"
    )
    confirm: int = hyperparameter(
        0, "episodes more, from the same seeds each time, by which the best agent is chosen; 0: none", ge=0
    )


@dataclass
class AgentsSettings:
    """Agents that are kept as the run goes, in its folder ``agents``, each named by its steps."""

    every: int | None = _interval("agents", "a tenth")


@dataclass
class CheckpointSettings:
    """What `resume=` needs, written as the run goes."""

    every: int | None = _interval("checkpoints", "a tenth")
    keep: bool | str = hyperparameter(
        "auto",
        "keep the last when the run has finished, for init_with=all; auto: if it takes up to 32 MiB",
        choices=("auto", True, False),
    )


@dataclass
class StopOnRewardSettings:
    """End once an evaluation is good enough."""

    threshold: float = setting("mean return of an evaluation that ends the run")


@dataclass
class StopOnNoImprovementSettings:
    """End once evaluations stop getting better."""

    max_evaluations: int = setting("evaluations without a new best that end the run", ge=1)
    min_evaluations: int = hyperparameter(0, "evaluations before which the run never ends so", ge=0)


@dataclass
class StopOnEpisodesSettings:
    """End after a number of episodes."""

    max_episodes: int = setting("finished episodes, of all environments, that end the run", ge=1)


@dataclass
class WandbSettings:
    """Where Weights & Biases keeps the run, and what of it."""

    project: str | None = hyperparameter(None, "project; null: as WANDB_PROJECT says, else zoo")
    entity: str | None = hyperparameter(None, "user or team; null: your own")
    group: str | None = hyperparameter(None, "group; null: WANDB_RUN_GROUP, else the run's multirun, if any")
    job_type: str | None = hyperparameter(None, "kind of run; null: as WANDB_JOB_TYPE says, else train")
    name: str | None = hyperparameter(None, "name of the run; null: WANDB_NAME, else that of its folder")
    tags: list[str] | None = hyperparameter(None, "tags of the run; null: as WANDB_TAGS says")
    mode: str | None = hyperparameter(
        None, "null: as WANDB_MODE says, else online", choices=("online", "offline", "disabled")
    )
    agent: bool = hyperparameter(True, "send the best agent too, as an artifact")


@dataclass
class LoggerSettings:
    """Where scalars go."""

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
    min_return: float | None = setting("record or show only episodes that return so much; null: all")
    successes_only: bool = setting("record or show only episodes that reach their goal")
    deterministic: bool = setting("the likeliest action instead of a random one")
    seed: int | None = setting("of the episodes; null: drawn", ge=0)
    out: str | None = setting("file to write, .npz; null: a new one in ./experts")
    show: str | None = setting("file whose summary to print instead of recording")


@dataclass
class CompareSettings:
    runs: str | list[Any] | None = setting("the two to compare: runs, folders of runs, patterns with *")
    score: str = setting("of a run, in tables and statistics", choices=("final", "best", "train"))
    aggregate: str = setting("of the runs of a group", choices=("mean", "iqm"))
    by: str | list[str] | None = setting("keys that tell groups apart; null: all but the seed")
    reference: str | dict[str, Any] | None = setting(
        "returns that are 0 and 1, or a YAML file; null: the extremes"
    )


@dataclass
class PlotSettings(CompareSettings):
    runs: str | list[str] = setting("run folders, folders of runs, or patterns with *")
    figure: str = setting(
        "auto: run for one run, else curves", choices=("auto", "run", "curves", "scores", "aggregates")
    )
    x: str = setting("of curves", choices=("steps", "episodes", "hours"))
    y: str = setting("of curves: train, eval, length, or a scalar of progress.csv")
    smooth: int | Literal["auto"] = setting("episodes of which each point is the mean; auto: 100", ge=1)
    interval: str = setting("band around a group's line", choices=("ci", "std", "none"))
    format: str | None = setting(
        "null: by the ending of out", choices=("png", "svg", "pdf", "html", "md", "csv")
    )
    report: bool = setting("one HTML page with everything; the same as format=html")
    title: str | None = setting("heading of the figure or report")
    out: str | None = setting("file to write; null: one in plots/")


@dataclass
class RecordSettings(PlaySettings):
    n_episodes: int | None = setting(  # type: ignore[assignment]
        "episodes to film; null: one, or as many as `length` takes", ge=1
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
    deterministic: bool = hyperparameter(True, "the likeliest action instead of a random one")
    size: str | int | None = hyperparameter(
        None, "WIDTHxHEIGHT in pixels, or a height; null: the environment's"
    )


@dataclass
class CallbacksSettings:
    """The callbacks by their keys; null switches one off."""

    eval: EvalSettings | None = None
    checkpoint: CheckpointSettings | None = None
    agents: AgentsSettings | None = None
    video: VideoSettings | None = None
    stop_on_reward: StopOnRewardSettings | None = None
    stop_on_no_improvement: StopOnNoImprovementSettings | None = None
    stop_on_episodes: StopOnEpisodesSettings | None = None


@dataclass
class ImportSettings:
    """What `zoo import` takes beside the section env."""

    file: str | None = setting("zip that Stable-Baselines3's save() wrote: zoo import FILE.zip")
    normalize: str | None = setting("file that VecNormalize.save() wrote, if there is one")
    algo: str | None = setting("algorithm, where the file does not say it")
    activation: str | None = setting("non-linearity of the networks, where the file does not say it")
    out: str | None = setting("folder or zip of the new agent; null: imported/<name of the file>")


@dataclass
class ExportSettings(AgentChoice):
    format: str = setting("onnx, torch_export or both", choices=("onnx", "torch_export", "both"))
    out: str | None = setting("folder to write; null: exported/<algo>-<env>")
    opset: int | None = setting("version of ONNX's operators; null: the exporter's own", ge=1)


@dataclass
class BenchmarkSettings:
    agents: str | None = setting("folder of agents; null: the collection, trained_agents/")
    algo: str | None = setting("only agents of this preset, or of this algorithm and its presets")
    env: str | None = setting("only agents of this environment")
    n_episodes: int = setting("episodes that each agent plays", ge=1)
    n_envs: int = setting("environments stepped side by side for each agent", ge=1)
    n_jobs: int = setting("agents measured side by side; -1: one a core", ge=-1)
    deterministic: bool | None = setting("the likeliest action, not a random one; null: but for Atari")
    seed: int = setting("of the episodes", ge=0)
    out: str = setting("folder of benchmark.md and .json; what is there already is kept")
    trust: bool = setting("let agents import classes from outside Zoo")


@dataclass
class PushSettings(AgentName):
    to: str | None = setting("USER/NAME on the Hugging Face Hub, a folder, or a FILE.zip")
    private: bool = setting("a new repository on the Hub is seen by you alone")
    video: str | None = setting("video to go with it; null: the newest of the agent's run")
    message: str | None = setting("of the commit on the Hub; null: the agent's name and score")


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
    runs_dir: str = setting("folder in which own runs are looked for")


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
"""The settings by command."""

ALGO_LABELS = ("name", "preset")
"""What stands in the section ``algo`` beside hyperparameters: the algorithm, and the preset if it is one."""

PRESET = re.compile(r"\w[\w.+-]{0,99}")
"""A preset is a file's name, and names folders."""


def preset_or_name(algo: Mapping[str, Any]) -> str:
    """Name of the preset, else of the algorithm; names folders, runs and agents in tables and messages."""
    return str(algo.get("preset") or algo["name"])


OPEN_SECTIONS = ("callbacks", "logger")
"""Sections that also take what is the user's own, a mapping with a ``_target_``, under any key."""
