"""Which saved agent a command is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zoo.config.fields import hyperparameter


@dataclass
class AgentName:
    """What every command takes that reads the files of an agent."""

    algo: str | None = hyperparameter(help="algorithm of the agent")
    env: str | None = hyperparameter(help="its environment")
    agent: str | None = hyperparameter(help="folder, zip or run of the agent, instead of algo and env")
    runs_dir: str = hyperparameter(help="folder in which own runs are looked for")


@dataclass
class AgentChoice(AgentName):
    """What every command takes in which a saved agent acts."""

    env: str | None = hyperparameter(help="its environment; with agent=: another one to play in")
    trust: bool = hyperparameter(help="let the agent import classes from outside Zoo")


@dataclass
class ActingAgent(AgentChoice):
    """What every command takes that shows how a saved agent acts: which of its run, where, and on what."""

    env: dict[str, Any] = hyperparameter(  # type: ignore[assignment]
        help="its environment; with agent=: another one to play in; env.KEY=… changes one of its settings"
    )
    checkpoint: int | None = hyperparameter(
        help="environment steps of an agent that its run kept (callbacks.agents); null: the best one", ge=0
    )
    device: str = hyperparameter(help="auto, cpu, cuda or cuda:N")
