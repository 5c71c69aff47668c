"""The settings of the commands by which agents come and go, and are measured side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.config.agent_choice import AgentChoice, AgentName
from zoo.config.fields import hyperparameter


@dataclass
class ImportSettings:
    """What `zoo import` takes beside the section env."""

    file: str | None = hyperparameter(help="zip that Stable-Baselines3's save() wrote: zoo import FILE.zip")
    normalize: str | None = hyperparameter(help="file that VecNormalize.save() wrote, if there is one")
    algo: str | None = hyperparameter(help="algorithm, where the file does not say it")
    activation: str | None = hyperparameter(
        help="non-linearity of the networks, where the file does not say it"
    )
    out: str | None = hyperparameter(help="folder or zip of the new agent; null: imported/<name of the file>")


@dataclass
class ExportSettings(AgentChoice):
    """What `zoo export` takes."""

    format: str = hyperparameter(help="onnx, torch_export or both", choices=("onnx", "torch_export", "both"))
    out: str | None = hyperparameter(help="folder to write; null: exported/<algo>-<env>")


@dataclass
class BenchmarkSettings:
    """What `zoo benchmark` takes."""

    agents: str | None = hyperparameter(help="folder of agents; null: the collection, trained_agents/")
    algo: str | None = hyperparameter(help="only agents of this algorithm or preset")
    env: str | None = hyperparameter(help="only agents of this environment")
    n_episodes: int = hyperparameter(help="episodes that each agent plays", ge=1)
    n_envs: int = hyperparameter(help="environments stepped side by side for each agent", ge=1)
    n_jobs: int = hyperparameter(help="agents measured side by side; -1: one a core", ge=-1)
    deterministic: bool | None = hyperparameter(
        help="the likeliest action instead of a random one; null: but for Atari games"
    )
    seed: int = hyperparameter(help="of the episodes", ge=0)
    out: str = hyperparameter(help="folder of benchmark.md, .csv and .json; what is there already is kept")
    trust: bool = hyperparameter(help="let agents import classes from outside Zoo")


@dataclass
class PushSettings(AgentName):
    """What `zoo push` takes."""

    to: str | None = hyperparameter(help="USER/NAME on the Hugging Face Hub, a folder, or a FILE.zip")
    private: bool = hyperparameter(help="a new repository on the Hub is seen by you alone")
    video: str | None = hyperparameter(help="video to go with it; null: the newest of the agent's run")
    message: str | None = hyperparameter(help="of the commit on the Hub; null: the agent's name and score")


@dataclass
class PullSettings:
    """What `zoo pull` takes."""

    source: str | None = hyperparameter(
        help="USER/NAME on the Hugging Face Hub, a folder, or a FILE.zip; also spelled from="
    )
    to: str | None = hyperparameter(help="folder of the agent; null: pulled/<name>")
    revision: str | None = hyperparameter(help="branch, tag or commit on the Hub; null: main")


@dataclass
class AgentsSettings:
    """What `zoo agents` takes."""

    algo: str | None = hyperparameter(help="only agents of this algorithm or preset")
    env: str | None = hyperparameter(help="only agents of this environment")
    agent: str | None = hyperparameter(help="folder, zip or run of an agent whose card is shown")
    seed: int | None = hyperparameter(help="only agents that were trained with this seed", ge=0)
    min_return: float | None = hyperparameter(help="only agents whose mean return is at least this")
    where: str | None = hyperparameter(
        help="own: those of your runs, collection: the others", choices=("own", "collection")
    )
    sort: str | None = hyperparameter(
        help="best return, most steps, newest, or by name; null: own runs first, the newest first",
        choices=("return", "steps", "time", "algo", "env"),
    )
    format: str = hyperparameter(help="table, or json for programs", choices=("table", "json"))
    runs_dir: str = hyperparameter(help="folder in which own runs are looked for")


SHARING: dict[str, type[Any]] = {
    "agents": AgentsSettings,
    "import": ImportSettings,
    "export": ExportSettings,
    "benchmark": BenchmarkSettings,
    "push": PushSettings,
    "pull": PullSettings,
}
