"""`zoo agents`: the agents there are, own runs' and the collection's, and the card of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.agents.agent_folder import read_as_data
from zoo.agents.card import readme
from zoo.agents.finding import resolve_agent
from zoo.agents.listing import HEADER, ORDERS, Wanted, list_wanted
from zoo.agents.trust import refuse_foreign_code, stands_in_own_runs
from zoo.config.composing import env_id
from zoo.config.paths import shown
from zoo.config.source import algorithm_options
from zoo.errors import ZooError, nearest
from zoo.files.plain_data import to_json
from zoo.files.printing import one_line, printable, show

PATH_LIMIT = 4096
"""Characters of a path that are shown."""


def run(config: Mapping[str, Any]) -> None:
    """List all agents, or those that are wanted; or show the one at ``agent``."""
    if config.get("agent") is not None:
        show(_card(str(config["agent"])))
        return
    env = None if config.get("env") is None else env_id(str(config["env"]))
    wanted = Wanted(
        algo=config.get("algo"),
        env=env,
        seed=config.get("seed"),
        min_return=config.get("min_return"),
        where=config.get("where"),
    )
    agents = list_wanted(wanted, runs=str(config.get("runs_dir") or "runs"))
    order = config.get("sort")
    if order is not None:
        agents.sort(key=ORDERS[order])
    if config.get("format") == "json":
        show(to_json([agent.as_dict() for agent in agents]), end="")
    elif agents:
        show(_table([HEADER, *(agent.as_row() for agent in agents)]))
    elif wanted == Wanted():
        show("there is no agent yet; zoo train algo=ppo2 env=CartPole-v1 makes one")
    else:
        _refuse_unknown(wanted)
        show("there is no such agent; `zoo agents` lists all")


def _refuse_unknown(wanted: Wanted) -> None:
    """Raise `ZooError` if nothing could ever be called so."""
    if wanted.algo is not None and wanted.algo not in algorithm_options():
        hint = nearest(wanted.algo, algorithm_options())
        raise ZooError(f"unknown algo '{wanted.algo}'{hint} (known: {', '.join(algorithm_options())})")


def _table(rows: list[tuple[str, ...]]) -> str:
    # The last one is the agent's path, which is there to be copied.
    cells = [[*(one_line(cell, 80) for cell in row[:-1]), one_line(row[-1], PATH_LIMIT)] for row in rows]
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
