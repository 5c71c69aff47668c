"""The page that goes with an agent to others: YAML that the Hugging Face Hub reads, then the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from zoo.agents.card import readme, score
from zoo.config.algorithm_names import asked_for
from zoo.files.cells import markdown_text
from zoo.files.plain_data import to_yaml
from zoo.files.printing import one_line

LIBRARY = "zoo"


def model_card(card: Mapping[str, Any], config: Mapping[str, Any], video: str | None) -> str:
    """Return the page in Markdown; ``video`` is the name of a file beside it."""
    algo = one_line(asked_for(config["algo"]), 80)
    env = one_line(card.get("env") or (config.get("env") or {}).get("id") or "an environment of its own", 200)
    metadata: dict[str, Any] = {
        "library_name": LIBRARY,
        "pipeline_tag": "reinforcement-learning",
        "tags": [env, algo, "reinforcement-learning", "deep-reinforcement-learning", LIBRARY],
    }
    if score(card) != "not evaluated":
        metadata["model-index"] = [{"name": f"{algo} on {env}", "results": [_result(card, env)]}]
    film = "" if video is None else f"\n![{markdown_text(f'{algo} playing {env}')}]({quote(video)})\n"
    return f"---\n{to_yaml(metadata)}---\n\n{readme(card, config)}{film}"


def _result(card: Mapping[str, Any], env: str) -> dict[str, Any]:
    mean, std = float(card["mean_return"]), card.get("std_return")
    value = f"{mean:.2f}" if std is None else f"{mean:.2f} +/- {float(std):.2f}"
    return {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": env, "type": env},
        "metrics": [{"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}],
    }
