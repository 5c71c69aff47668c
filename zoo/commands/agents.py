"""`zoo agents`: the agents there are, own runs' and the collection's, and the card of one."""

from __future__ import annotations

import math
from typing import Any

from zoo.agents.agent_folder import read_as_data, read_card
from zoo.agents.card import is_number, readme, score, steps
from zoo.agents.find import IN_A_WHEEL, FoundAgent, list_agents, resolve_agent
from zoo.agents.trust import refuse_foreign_code, stands_in_own_runs
from zoo.config.choices import algorithm_options
from zoo.config.compose import env_id
from zoo.config.schema import ListingSettings
from zoo.config.user_files import shown
from zoo.core.plain_data import to_json
from zoo.core.printing import aligned, one_line, printable, show
from zoo.envs.registry import folder_name
from zoo.errors import ZooError, nearest

SCORES = ("mean_return", "std_return", "n_eval_episodes", "success_rate", "timesteps", "seed", "created")


def run(settings: ListingSettings) -> None:
    """List all agents, or those that are wanted, of one environment from the best; or show one."""
    if settings.agent is not None:
        show(_card_text(settings.agent))
        return
    folder = None if settings.env is None else folder_name(env_id(settings.env))
    agents = [
        (agent, _card_of(agent))
        for agent in list_agents(runs=settings.runs_dir)
        if settings.algo in (None, agent.algo) and folder in (None, agent.env)
    ]
    if settings.format == "json":
        show(to_json([_as_data(*entry) for entry in agents]), end="")
    elif agents:
        if folder is not None:
            agents.sort(key=lambda entry: _mean_return(*entry), reverse=True)
        header = ("algo", "env", "return", "steps", "seed", "agent")
        show(aligned([header, *(_row(*entry) for entry in agents)]))
    else:
        algo, env = settings.algo or "ppo2", "CartPole-v1" if settings.env is None else env_id(settings.env)
        if algo not in (options := algorithm_options()):
            raise ZooError(f"unknown algo '{algo}'{nearest(algo, options)} (known: {', '.join(options)})")
        show(f"there is no such agent yet; zoo train algo={algo} env={env} makes one ({IN_A_WHEEL})")


def _card_text(path: str) -> str:
    """Return the card as text, made from the agent's data, and what would need trust to be loaded."""
    agent = resolve_agent(path)
    files = read_as_data(agent)
    text = f"{shown(agent)}\n\n{readme(files.card, files.config)}".rstrip()
    try:
        if not stands_in_own_runs(agent):
            refuse_foreign_code(files.config, one_line(shown(agent)))
    except ZooError as refusal:
        text += f"\n\nCareful: {refusal}"
    return printable(text)


def _card_of(agent: FoundAgent) -> dict[str, Any] | None:
    """Return an agent's card, or None if it is damaged."""
    try:
        return read_card(agent.path)
    except ZooError:
        return None


def _mean_return(_: FoundAgent, card: dict[str, Any] | None) -> float:
    return mean if is_number(mean := (card or {}).get("mean_return")) else -math.inf


def _row(agent: FoundAgent, card: dict[str, Any] | None) -> tuple[str, ...]:
    if card is None:
        return agent.algo, agent.env, "damaged", "?", "?", shown(agent.path)
    seed = "?" if card.get("seed") is None else str(card["seed"])
    return agent.algo, str(card.get("env") or agent.env), score(card), steps(card), seed, shown(agent.path)


def _as_data(agent: FoundAgent, card: dict[str, Any] | None) -> dict[str, Any]:
    """Return an agent's entry for JSON; texts of its card are made printable."""
    scores = {name: (card or {}).get(name) for name in SCORES}
    return {
        "agent": one_line(shown(agent.path), 1000),
        "algo": one_line(agent.algo),
        "env": one_line((card or {}).get("env") or agent.env),
        "where": "collection" if agent.run is None else "own",
        "damaged": card is None,
        **{name: one_line(value) if isinstance(value, str) else value for name, value in scores.items()},
    }
