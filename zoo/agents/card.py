"""The card of an agent: how well it does and how it was made, for programs, for people and for the Hub."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
from collections.abc import Mapping
from typing import Any, TypeGuard
from urllib.parse import quote

import yaml

from zoo.config.schema import ALGO_LABELS, preset_or_name
from zoo.core.plain_data import to_yaml
from zoo.core.printing import decimal, one_line, printable
from zoo.version import __version__


def complete_card(card: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the card with what its maker left out: names and hyperparameters, versions, date."""
    algorithm = {key: value for key, value in config["algo"].items() if key not in ALGO_LABELS}
    environment = config.get("env")
    defaults = {
        "algo": preset_or_name(config["algo"]),
        "env": environment.get("id") if isinstance(environment, Mapping) else environment,
        "seed": None,
        "timesteps": None,
        "mean_return": None,
        "std_return": None,
        "n_eval_episodes": None,
        "versions": versions(),
        "hyperparameters": algorithm,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    return {**defaults, **card}


def versions() -> dict[str, str]:
    """Return the versions of Python, Zoo and the packages on which an agent depends."""
    packages = {name: importlib.metadata.version(name) for name in ("torch", "gymnasium", "numpy")}
    return {"python": platform.python_version(), "zoo": __version__, **packages}


def score(card: Mapping[str, Any]) -> str:
    """Return ``"487.3 ± 12.1 over 100 episodes, success 96%"``, or ``"not evaluated"``."""
    mean, std, episodes = (card.get(key) for key in ("mean_return", "std_return", "n_eval_episodes"))
    success_rate = card.get("success_rate")
    if not is_number(mean):
        return "not evaluated"
    spread = f" ± {decimal(std)}" if is_number(std) else ""
    count = f" over {episodes:,} episode{'s' * (episodes != 1)}" if is_number(episodes) else ""
    success = f", success {success_rate:.0%}" if is_number(success_rate) else ""
    return f"{decimal(mean)}{spread}{count}{success}"


def steps(card: Mapping[str, Any]) -> str:
    """Return the environment steps of training, as ``"50,000"``."""
    timesteps = card.get("timesteps")
    return f"{timesteps:,}" if is_number(timesteps) else "?"


def readme(card: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the card as Markdown, for readers of the agent's folder."""
    algorithm = markdown_text(preset_or_name(config.get("algo") or {"name": "?"}), 80)
    environment = markdown_text(card.get("env", "?"))
    rows = {
        "Return": score(card),
        "Actions": "drawn" if card.get("deterministic") is False else None,
        "Trained for": f"{steps(card)} environment steps",
        "Seed": card.get("seed"),
        "Policy": (config.get("policy") or {}).get("name", "?"),
        "Created": card.get("created", "?"),
        "Last agent of the run": decimal(last) if is_number(last := card.get("last_mean_return")) else None,
        "Commit": card.get("commit"),
        "Processor": card.get("processor"),
    }
    command = one_line(card.get("command") or "", 1000)
    again = f"\n```bash\n{command}\n```\n" if command.startswith("zoo train ") else ""
    rows = {name: value for name, value in rows.items() if value is not None or name == "Seed"}
    table = "\n".join(f"| {name} | {markdown_text(value)} |" for name, value in rows.items())
    made_with = card.get("versions") or {}
    replay = f"Replay:\n\n{_as_yaml(config['replay'])}\n\n" if config.get("replay") else ""
    return f"""# {algorithm} on {environment}

| | |
| --- | --- |
{table}

## Use it

```bash
zoo enjoy agent=PATH                      # watch it, or print its returns where there is no display
zoo enjoy agent=PATH record=true          # write a video
zoo evaluate agent=PATH n_episodes=100    # mean, spread and interval of its return
```

PATH is this folder, or a zip of it. In Python: `import zoo; model = zoo.load("PATH")`.

## How it was made
{again}
Hyperparameters of {algorithm}:

{_as_yaml(card.get("hyperparameters") or {})}

{replay}Environment:

{_as_yaml(config.get("env") or {})}

Versions: {", ".join(markdown_text(f"{name} {version}") for name, version in made_with.items())}.
"""


def _as_yaml(values: Mapping[str, Any]) -> str:
    """Return the values in a block of code that nothing in them ends."""
    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True).strip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}yaml\n{printable(text)}\n{fence}"


def is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def model_card(card: Mapping[str, Any], config: Mapping[str, Any], video: str | None) -> str:
    """Return the page in Markdown; ``video`` is the name of a file beside it."""
    algo = one_line(preset_or_name(config["algo"]), 80)
    env = one_line(card.get("env") or (config.get("env") or {}).get("id") or "an environment of its own", 200)
    metadata: dict[str, Any] = {
        "library_name": "zoo",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env, algo, "reinforcement-learning", "deep-reinforcement-learning", "zoo"],
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


def markdown_text(value: object, limit: int = 300) -> str:
    """Return a value for a line of Markdown or a cell of its tables, in which nothing becomes an element."""
    text = one_line(value, limit).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)
