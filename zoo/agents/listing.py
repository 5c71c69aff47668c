"""The agents there are, with what their cards say: chosen, and put in order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.agents.agent_folder import read_card
from zoo.agents.card import score, steps
from zoo.agents.finding import FoundAgent, list_agents
from zoo.config.paths import shown
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.files.printing import one_line

HEADER = ("algo", "env", "return", "steps", "seed", "agent")


@dataclass(frozen=True)
class Wanted:
    """Which agents are wanted: all that agree in whatever is not None."""

    algo: str | None = None
    env: str | None = None
    seed: int | None = None
    min_return: float | None = None
    where: str | None = None
    """``own`` for those of runs, ``collection`` for the others."""


@dataclass(frozen=True)
class ListedAgent:
    """An agent and its card; None where that is damaged."""

    found: FoundAgent
    card: dict[str, Any] | None

    @property
    def env(self) -> str:
        return str((self.card or {}).get("env") or self.found.env)

    def number(self, name: str) -> float:
        """Return a number of the card, −∞ where it has none."""
        value = (self.card or {}).get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return -math.inf
        return value if abs(value) < 1e300 else -math.inf  # JSON may hold integers that are no floats

    def as_row(self) -> tuple[str, ...]:
        """Return the cells of `HEADER`."""
        place = shown(self.found.path)
        if self.card is None:
            return self.found.algo, self.found.env, "damaged", "?", "?", place
        seed = "?" if self.card.get("seed") is None else str(self.card["seed"])
        return self.found.algo, self.env, score(self.card), steps(self.card), seed, place

    def as_dict(self) -> dict[str, Any]:
        """Return the same for programs; what a stranger wrote as text, made safe to print."""
        card = self.card or {}
        numbers = ("mean_return", "std_return", "n_eval_episodes", "success_rate", "timesteps", "seed")
        created = card.get("created")
        return {
            "agent": one_line(shown(self.found.path), 1000),
            "algo": one_line(self.found.algo),
            "env": one_line(self.env),
            "where": "collection" if self.found.run is None else "own",
            "damaged": self.card is None,
            **{name: None if self.number(name) == -math.inf else card[name] for name in numbers},
            "created": None if created is None else one_line(created),
        }


def list_wanted(wanted: Wanted, *, runs: str | os.PathLike[str] = "runs") -> list[ListedAgent]:
    """Return the agents that are wanted: own runs from the newest, then the collections."""
    found = (
        ListedAgent(agent, _card(agent)) for agent in list_agents(runs=runs) if _is_wanted(agent, wanted)
    )
    return [agent for agent in found if _has_wanted_card(agent, wanted)]


def _is_wanted(agent: FoundAgent, wanted: Wanted) -> bool:
    return (
        wanted.algo in (None, agent.algo)
        and (wanted.env is None or agent.env == folder_name(wanted.env))
        and (wanted.where is None or (agent.run is None) == (wanted.where == "collection"))
    )


def _has_wanted_card(agent: ListedAgent, wanted: Wanted) -> bool:
    return (wanted.seed is None or agent.number("seed") == wanted.seed) and (
        wanted.min_return is None or agent.number("mean_return") >= wanted.min_return
    )


def _card(agent: FoundAgent) -> dict[str, Any] | None:
    try:
        return read_card(agent.path)
    except ZooError:
        return None


def _newest(agent: ListedAgent) -> str:
    """Return a text that sorts the newest first; dates in ISO's form sort as text."""
    created = str((agent.card or {}).get("created") or "")
    return "".join(chr(0x10FFFF - ord(character)) for character in created[:40]) or chr(0x10FFFF)


ORDERS: dict[str, Callable[[ListedAgent], Any]] = {
    "return": lambda agent: (-agent.number("mean_return"), agent.found.algo),
    "steps": lambda agent: (-agent.number("timesteps"), agent.found.algo),
    "time": _newest,
    "algo": lambda agent: (agent.found.algo, agent.env),
    "env": lambda agent: (agent.env, agent.found.algo),
}
"""What agents are sorted by; of returns, steps and times the highest first, those without one last."""
