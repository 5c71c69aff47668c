"""`zoo agents`: the agents there are, own runs' and the collection's, and the card of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.agents.agent_folder import read_agent, read_card
from zoo.agents.card import readme, score, steps
from zoo.agents.finding import FoundAgent, list_agents, resolve_agent
from zoo.agents.own_runs import is_own
from zoo.agents.trust import refuse_foreign_code
from zoo.config.composing import env_id
from zoo.config.paths import shown
from zoo.errors import ZooError
from zoo.files.printing import one_line, printable


def run(config: Mapping[str, Any]) -> None:
    """List all agents, or those of one ``algo`` or ``env``; or show the one at ``agent``."""
    if config.get("agent") is not None:
        print(_card(str(config["agent"])))
        return
    env = None if config.get("env") is None else env_id(str(config["env"]))
    agents = [
        agent
        for agent in list_agents(runs=str(config.get("runs_dir") or "runs"))
        if _is_wanted(agent, config.get("algo"), env)
    ]
    if not agents:
        print("there is no agent yet; zoo train algo=ppo2 env=CartPole-v1 makes one")
        return
    print(_table([("algo", "env", "return", "steps", "seed", "agent"), *map(_row, agents)]))


def _is_wanted(agent: FoundAgent, algo: str | None, env: str | None) -> bool:
    from zoo.envs.ids import folder_name

    return (algo is None or agent.algo == algo) and (env is None or agent.env == folder_name(env))


def _row(agent: FoundAgent) -> tuple[str, ...]:
    try:
        card = read_card(agent.path)
    except ZooError:
        return agent.algo, agent.env, "damaged", "?", "?", shown(agent.path)
    seed = "?" if card.get("seed") is None else str(card["seed"])
    env = card.get("env") or agent.env
    return agent.algo, str(env), score(card), steps(card), seed, shown(agent.path)


def _table(rows: list[tuple[str, ...]]) -> str:
    cells = [[one_line(cell, 80) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _card(path: str) -> str:
    """Return the card as text, made from the agent's data: its README may say anything.

    What would need trust to be loaded is read, which is harmless, and named.
    """
    found = resolve_agent(path)
    files = read_agent(found, trust=True)
    text = f"{shown(found)}\n\n{readme(files.card, files.config)}".rstrip()
    try:
        own_run = is_own(found, files.config)
        refuse_foreign_code(files.config, one_line(shown(found)), own_run=own_run)
    except ZooError as refusal:
        text += f"\n\nCareful: {refusal}"
    return printable(text)
