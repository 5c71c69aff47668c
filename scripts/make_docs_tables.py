"""Write the tables in README.md and docs/ from the code and from what was measured, and conf/policy/.

    make docs
    .venv/bin/python scripts/make_docs_tables.py --check

A table stands between two comments in a Markdown file, `<!-- fields: MODULE:DATACLASS -->`,
`<!-- old names -->`, `<!-- scores -->` or `<!-- speed -->`, and `<!-- end -->`. Scores and speed come from
docs/measured/scores.csv and speed.json, which are copies of what `train_collection.py` and `compare_speed.py`
wrote. With `--check` nothing is written; the exit status is 1 if a table is not what it should be.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib
import inspect
import itertools
import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measure_speed import PEERS, SYSTEMS

from zoo.config.aliases import NAMES
from zoo.policies.config import MEMORY_FIELDS, POLICIES, PRESETS

REPOSITORY = Path(__file__).resolve().parent.parent
MEASURED = REPOSITORY / "docs" / "measured"
TABLE = re.compile(
    r"<!-- (?P<what>fields|old names|scores|speed)(?:: (?P<path>[\w.:]+))? -->\n.*?<!-- end -->", re.DOTALL
)
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not current")
    check = parser.parse_args().check
    current = {page: with_current_tables(page.read_text()) for page in pages()}
    current |= {REPOSITORY / "conf" / "policy" / f"{name}.yaml": preset_file(name) for name in PRESETS}
    stale = {path: text for path, text in current.items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{path.relative_to(REPOSITORY)}: {'not current; run make docs' if check else 'written'}")
        if not check:
            path.write_text(text)
    raise SystemExit(1 if check and stale else 0)


OVERRIDES = {
    "encoder": "cnn",
    "net_arch": "[64,64], or by network: 'policy.net_arch={pi:[64],vf:[256,256]}'",
    "activation": "relu",
    "layer_norm": "true",
    "features_dim": "128, the width of each image's encoder",
    "recurrent": "gru",
    "lstm_hidden_size": "64",
    "n_lstm_layers": "2",
    "lstm_layer_norm": "true",
    "critic_lstm": "shared, detached or none",
}
"""What a field of conf/policy/ may be set to on the command line, in a comment beside it."""


def preset_file(name: str) -> str:
    """Return the YAML file of a named policy: the fields that people change."""
    config, shown = POLICIES[name], ["encoder", "net_arch", "activation", "layer_norm"]
    shown += [] if config.encoder == "mlp" else ["features_dim"]
    shown += [] if config.recurrent is None else MEMORY_FIELDS
    values = {field: json.dumps(getattr(config, field)).strip('"') for field in shown}
    lines = [
        f"{f'{field}: {value}':<25} # policy.{field}={OVERRIDES[field]}" for field, value in values.items()
    ]
    return "\n".join([f"# {PRESETS[name][0]}", *lines, ""])


def pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def with_current_tables(text: str) -> str:
    """Return the page with every table made anew."""

    def replaced(found: re.Match[str]) -> str:
        opening = found[0].split("\n", 1)[0]
        return f"{opening}\n\n{table_of(found['what'], found['path'])}\n\n<!-- end -->"

    return TABLE.sub(replaced, text)


def table_of(what: str, path: str | None) -> str:
    if what == "fields":
        return fields_table(str(path))
    return {"old names": old_names_table, "scores": scores_table, "speed": speed_table}[what]()


def fields_table(path: str) -> str:
    """Return the fields of a dataclass as a Markdown table."""
    module, _, name = path.partition(":")
    config_class = getattr(importlib.import_module(module), name)
    rows = [
        row_of(field, spelled_type(config_class, field.name)) for field in dataclasses.fields(config_class)
    ]
    return markdown(("name", "type", "default", "range", "meaning"), rows)


def spelled_type(config_class: type[Any], name: str) -> str:
    """Return a field's type as the class that declares it spells it."""
    declared = (inspect.get_annotations(each).get(name) for each in config_class.__mro__)
    return next(kind for kind in declared if isinstance(kind, str))


def row_of(field: dataclasses.Field[Any], declared: str) -> tuple[str, ...]:
    unit = field.metadata.get("unit")
    kind = declared.replace("Schedule", "number or schedule").replace("None", "null")
    kind = re.sub(r'Literal\["(\w+)"\]', r"\1", kind)
    kind = re.sub(r"\b\w+NoiseConfig \| ", "", kind).replace(" | ", " or ")
    kind = re.sub(r"\b\w+Config\b", "mapping", kind)
    kind += f" ({unit})" if unit else ""
    meaning = str(field.metadata.get("help", ""))
    return (f"`{field.name}`", kind, default_of(field), range_of(field.metadata), meaning)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{as_yaml(field.default)}`"
    if field.default_factory is not dataclasses.MISSING:
        return f"`{as_yaml(field.default_factory())}`"
    return ""


def as_yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) and value < 0.01 else str(value)


def range_of(metadata: Mapping[str, Any]) -> str:
    if metadata.get("choices"):
        return ", ".join(as_yaml(choice) for choice in metadata["choices"])
    bounds = metadata.get("bounds", {})
    return ", ".join(f"{BOUNDS[name]} {bound:g}" for name, bound in bounds.items())


def old_names_table() -> str:
    paths = {old: new for old, new in NAMES.items() if "." not in old and " " not in new}
    return markdown(("elsewhere", "Zoo"), [(f"`{old}`", f"`{new}`") for old, new in paths.items()])


def scores_table() -> str:
    """Return the mean over seeds of every agent that `train_collection.py` scored."""
    file = MEASURED / "scores.csv"
    rows = list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []
    by_agent = itertools.groupby(rows, key=lambda row: (row["algo"], row["env"]))
    return markdown(
        ("algorithm", "environment", "steps", "mean return over seeds", "each seed"),
        [(f"`{algo}`", env, *score_columns(list(seeds))) for (algo, env), seeds in by_agent],
    )


def score_columns(seeds: list[dict[str, str]]) -> tuple[str, str, str]:
    returns = [float(seed["mean_return"]) for seed in seeds]
    steps = max(int(seed["timesteps"]) for seed in seeds)
    return f"{steps:,}", f"{statistics.mean(returns):,.1f}", ", ".join(f"{value:,.1f}" for value in returns)


def speed_table() -> str:
    """Return the medians that `compare_speed.py` measured, and their ratios to the peers'."""
    file = MEASURED / "speed.json"
    medians = json.loads(file.read_text())["median_steps_per_second"] if file.exists() else {}
    found = {system for speeds in medians.values() for system in speeds}
    systems = [system for system in SYSTEMS if system in found]
    ratios = [(own, peer) for peer in systems for own in systems if peer in PEERS and own not in PEERS]
    rows = []
    for work, speeds in medians.items():
        columns = [f"{speeds[system]:,.0f}" if system in speeds else "–" for system in systems]
        columns += [f"{speeds[own] / speeds[peer]:.1f}" if peer in speeds else "–" for own, peer in ratios]
        rows.append((f"`{work}`", *columns))
    return markdown(("work", *systems, *(f"{own} / {peer}" for own, peer in ratios)), rows)


def markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return "Not measured yet."
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
