"""`zoo agents`: the agents there are, own runs' and the collection's, and the card of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.agents.agent_folder import read_as_data, read_card
from zoo.agents.card import readme, score, steps
from zoo.agents.find import FoundAgent, list_agents, resolve_agent
from zoo.agents.trust import refuse_foreign_code, stands_in_own_runs
from zoo.config.compose import env_id
from zoo.config.paths import shown
from zoo.config.source import algorithm_options
from zoo.core.plain_data import to_json
from zoo.core.printing import one_line, printable, show
from zoo.envs.registry import folder_name
from zoo.errors import ZooError, nearest


def run(config: Mapping[str, Any]) -> None:
    """List all agents, or those that are wanted; or show the one at ``agent``."""
    if config.get("agent") is not None:
        show(_card(str(config["agent"])))
        return
    folder = None if config.get("env") is None else folder_name(env_id(str(config["env"])))
    found = list_agents(runs=str(config.get("runs_dir") or "runs"))
    agents = [ListedAgent(each, _card_of(each)) for each in found if folder in (None, each.env)]
    agents = [each for each in agents if each.is_wanted(config)]
    order = config.get("sort")
    if order is not None:
        agents.sort(key=ORDERS[order], reverse=order in HIGHEST_FIRST)
    if config.get("format") == "json":
        show(to_json([agent.as_dict() for agent in agents]), end="")
    elif agents:
        show(_table([HEADER, *(agent.as_row() for agent in agents)]))
    elif not found:
        show("there is no agent yet; zoo train algo=ppo2 env=CartPole-v1 makes one")
    else:
        _refuse_unknown(config.get("algo"))
        show("there is no such agent; `zoo agents` lists all")


def _refuse_unknown(algo: str | None) -> None:
    """Raise `ZooError` if nothing could ever be called so."""
    known = algorithm_options()
    if algo is not None and algo not in known:
        raise ZooError(f"unknown algo '{algo}'{nearest(algo, known)} (known: {', '.join(known)})")


def _table(rows: list[tuple[str, ...]]) -> str:
    # The last one is the agent's path, which is there to be copied.
    cells = [[*(one_line(cell, 80) for cell in row[:-1]), one_line(row[-1], 4096)] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _card(path: str) -> str:
    """Return the card as text, made from the agent's data, and what would need trust to be loaded."""
    found = resolve_agent(path)
    files = read_as_data(found)
    text = f"{shown(found)}\n\n{readme(files.card, files.config)}".rstrip()
    try:
        if not stands_in_own_runs(found):
            refuse_foreign_code(files.config, one_line(shown(found)))
    except ZooError as refusal:
        text += f"\n\nCareful: {refusal}"
    return printable(text)


HEADER = ("algo", "env", "return", "steps", "seed", "agent")


@dataclass(frozen=True)
class ListedAgent:
    """An agent and its card; None where that is damaged."""

    found: FoundAgent
    card: dict[str, Any] | None

    @property
    def env(self) -> str:
        return str((self.card or {}).get("env") or self.found.env)

    def is_wanted(self, config: Mapping[str, Any]) -> bool:
        """Tell whether it agrees in whatever is not None."""
        algo, seed, where = (config.get(key) for key in ("algo", "seed", "where"))
        return (
            algo in (None, self.found.algo)
            and (where is None or (self.found.run is None) == (where == "collection"))
            and (seed is None or self.number("seed") == seed)
            and (config.get("min_return") is None or self.number("mean_return") >= config["min_return"])
        )

    def number(self, name: str) -> float:
        """Return a number of the card, −∞ where it has none."""
        value = (self.card or {}).get(name)
        return value if isinstance(value, int | float) else -math.inf

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


def _card_of(agent: FoundAgent) -> dict[str, Any] | None:
    try:
        return read_card(agent.path)
    except ZooError:
        return None


ORDERS: dict[str, Callable[[ListedAgent], Any]] = {
    "return": lambda agent: agent.number("mean_return"),
    "steps": lambda agent: agent.number("timesteps"),
    "time": lambda agent: str((agent.card or {}).get("created") or ""),
    "algo": lambda agent: (agent.found.algo, agent.env),
    "env": lambda agent: (agent.env, agent.found.algo),
}
HIGHEST_FIRST = ("return", "steps", "time")
"""What agents are sorted by; those without one come last."""
