"""Write the tables in README.md and docs/, and files in conf/, from the code and what was measured.

    make docs
    .venv/bin/python scripts/make_docs_tables.py --check

A table stands between two comments in a Markdown file, `<!-- fields: MODULE:DATACLASS -->`,
`<!-- algorithms -->`, `<!-- presets -->`, `<!-- old names -->`, `<!-- scores -->`, `<!-- collection -->` or
`<!-- speed: NAME -->`, and `<!-- end -->`. A mean return stands in a line between `<!-- score: ALGO/ENV -->`
and `<!-- end -->`. Scores and speed come from docs/measured/, where `train_collection.py` and
`compare_speed.py` wrote them, and from the cards in trained_agents/. Algorithms, presets and search spaces in
conf/ come from the classes of zoo/algorithms/ and zoo/imitation/, policies from zoo/policies/config.py.
With `--check` nothing is written; the exit status is 1 if a file is not current.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from measure_speed import PEERS, SYSTEMS

import zoo
from zoo.algorithms.arguments import spelled_type
from zoo.algorithms.registry import ALGORITHMS, PRESETS, algorithm_class
from zoo.commands.benchmark import published_scores
from zoo.config.aliases import NAMES
from zoo.config.fields import defaults, variant_of
from zoo.config.keys import declared_keys
from zoo.config.sections import SECTIONS, section_class
from zoo.envs.config import AtariConfig, NormalizeConfig
from zoo.envs.registry import folder_name
from zoo.plots.scores import Methods, normalized_scores
from zoo.plots.tables import aggregate_table
from zoo.policies.config import POLICIES, RECURRENT_FIELDS
from zoo.policies.config import PRESETS as POLICY_PRESETS

REPOSITORY = Path(__file__).resolve().parent.parent
MEASURED = REPOSITORY / "docs" / "measured"
TABLE = re.compile(
    r"<!-- (?P<what>fields|algorithms|presets|old names|scores|collection|speed)"
    r"(?:: (?P<path>[\w.:]+))? -->\n.*?<!-- end -->",
    re.DOTALL,
)
SCORE = re.compile(r"<!-- score: (?P<algo>\w+)/(?P<env>\S+) -->.*?<!-- end -->", re.DOTALL)
IN_README = (
    *("ppo2/CartPole-v1", "a2c/Acrobot-v1", "ppo2/PongNoFrameskip-v4", "sac/Pendulum-v1"),
    *("dqn/LunarLander-v3", "ppo/HalfCheetah-v5", "recurrent_ppo/CartPoleNoVel-v1"),
    *("her_sac/PandaReach-v3", "ars/Swimmer-v5", "a2c/BreakoutNoFrameskip-v4"),
)
"""The scores that README.md shows; docs/collection.md has all."""

BESIDE_SB3 = {
    "ppo": ("ppo2", "CartPole-v1"),
    "a2c": ("a2c", "CartPole-v1"),
    "dqn": ("dqn", "CartPole-v1"),
    "recurrent_ppo": ("recurrent_ppo", "CartPole-v1"),
    "sac": ("sac", "Pendulum-v1"),
    "td3": ("td3", "Pendulum-v1"),
    "trpo": ("trpo", "Pendulum-v1"),
}
"""Works of docs/measured/speed.json, and the trainings of the collection that they are like."""

SUITES = {
    "Atari": r".*NoFrameskip-v\d+",
    "MiniGrid": r"MiniGrid-.*",
    "MinAtar": r"MinAtar/.*",
    "Box2D": r"(LunarLander|BipedalWalker).*",
    "MuJoCo": r".*-v5",
    "PyBullet": r".*BulletEnv-v0",
    "Goals": r"(Zoo/BitFlipping|PandaReach|parking).*",
    "Classic control without velocities": r".*NoVel-v\d+",
    "Classic control": r".*",
}
"""Environments of each table at the top of the collection's page; the first pattern that fits counts."""

AGGREGATED = {
    "Classic control": (
        ("a2c", "acer", "acktr", "ars", "ppo", "ppo1", "ppo2", "trpo"),
        ("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
    ),
}
"""Algorithms and environments of a suite, all with three seeds, that are put into one number and figure."""

T_QUANTILES = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""97.5 % quantiles of Student's t for the mean of so many seeds."""

BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say which files are not current")
    check = parser.parse_args().check
    index = {REPOSITORY / "zoo" / "algorithms" / "index.json": index_file()}
    if not check and written(index):
        os.execv(sys.executable, [sys.executable, *sys.argv])  # what it lists is imported as Zoo begins
    texts = index | {page: with_current_tables(page.read_text()) for page in pages()}
    texts |= {REPOSITORY / "conf" / "algo" / f"{name}.yaml": preset_file(name) for name in PRESETS}
    texts |= {REPOSITORY / "conf" / "algo" / f"{name}.yaml": algorithm_file(name) for name in ALGORITHMS}
    texts |= {
        REPOSITORY / "conf" / "tune" / "space" / f"{name}.yaml": space_file(name)
        for name in [*ALGORITHMS, *PRESETS]
        if name in ALGORITHMS or "search_space" in vars(class_of(name))
    }
    texts[REPOSITORY / "zoo" / "config" / "keys.json"] = keys_file()
    texts |= {REPOSITORY / "conf" / "policy" / f"{name}.yaml": policy_file(name) for name in POLICY_PRESETS}
    raise SystemExit(1 if written(texts, check=check) and check else 0)


def written(texts: Mapping[Path, str], *, check: bool = False) -> list[Path]:
    """Write the texts, unless ``check``, to files that have others; return and print these."""
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        print(f"{path.relative_to(REPOSITORY)}: {'not current; run make docs' if check else 'written'}")
        if not check:
            path.write_text(texts[path])
    return stale


def class_of(name: str) -> Any:
    """Return the class of an algorithm or a preset."""
    return pkgutil.resolve_name((ALGORITHMS | PRESETS)[name])


def summary_of(name: str) -> str:
    """Return the first sentence of what an algorithm or preset says of itself."""
    return str(inspect.getdoc(class_of(name))).splitlines()[0].replace("``", "`")


def space_file(name: str) -> str:
    """Return the search space of an algorithm or preset, whose class declares it."""
    sections = class_of(name).searched_space()
    dimensions = "\n".join(line for name in sections for line in (f"{name}:", *space_lines(sections[name])))
    return f"# {summary_of(name)}\n# From {home_of(name)}, by make docs.\n{dimensions}\n"


def space_lines(entries: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line a dimension of a section, indented."""
    for name, entry in entries.items():
        if {"low", "choices"} & entry.keys():
            text = yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=1000).strip()
            yield f"  {name}: {text}"
        else:
            yield from (f"  {name}:", *(f"  {line}" for line in space_lines(entry)))


def home_of(name: str) -> str:
    """Return the file of an algorithm or preset."""
    return f"{class_of(name).__module__.replace('.', '/')}.py"


KINDS_OF_ACTIONS = 6
"""Gymnasium's spaces that algorithms act in."""


def algorithms_table() -> str:
    """Return a row an algorithm: what its class declares, and its presets."""
    rows: list[tuple[str, ...]] = []
    for name in ALGORITHMS:
        algorithm = class_of(name)
        actions = [space.__name__ for space in algorithm.supported_actions]
        presets = [preset for preset in PRESETS if class_of(preset).name == name]
        yes = {True: "yes", False: "–"}
        rows.append(
            (
                f"`{name}`",
                summary_of(name).rstrip("."),
                "any" if len(actions) == KINDS_OF_ACTIONS else ", ".join(actions),
                yes[algorithm.has_recurrence],
                yes[actions != ["Box"]],
                yes[algorithm.can_share],
                ", ".join(f"`{preset}`" for preset in presets),
            )
        )
    head = ("`algo=`", "what it is", "actions", "recurrent", "masks", "workers", "presets")
    return markdown(head, rows)


def presets_table() -> str:
    rows = [
        (
            f"`{name}`",
            f"`{class_of(name).__name__}`",
            summary_of(name).rstrip("."),
            f"`{class_of(name).name}`",
        )
        for name in PRESETS
    ]
    return markdown(("`algo=`", "in Python", "what it is", "builds on"), [*rows])


def algorithm_file(name: str) -> str:
    """Return the config of an algorithm, whose values are those that its dataclass declares."""
    module = importlib.import_module(ALGORITHMS[name].partition(":")[0])
    meaning = re.split(r" \(|[.\n]", str(module.__doc__))[0]
    return f"# {meaning}.\n# Its values are in {home_of(name)}: zoo train algo={name} --cfg job lists them.\n"


def preset_file(name: str) -> str:
    """Return the config of a preset: what its class has otherwise than its algorithm."""
    preset = class_of(name)
    algorithm = algorithm_class(preset.name)
    usual = defaults(algorithm.config_class)
    new = defaults(preset.config_class)
    own = [each for each in dataclasses.fields(preset.config_class) if new[each.name] != usual[each.name]]
    lines = [f"# {summary_of(name)}", f"# From {home_of(name)}, by make docs.", "defaults:"]
    lines.append(f"  - {preset.name}")
    if preset.usual_policy != algorithm.usual_policy:
        lines.append(f"  - override /policy: {preset.usual_policy}")
    replays = getattr(preset, "usual_replay", ())
    own_replay = (REPOSITORY / "conf" / "replay" / f"{name}.yaml").exists()
    lines += [f"  - override /replay: {replay}" for replay in ([name] if own_replay else replays)]
    lines.append("  - _self_")
    values = [f"{each.name}: {as_yaml(new[each.name])}" for each in own]
    meanings = [each.metadata["help"] for each in own]
    lines += [f"{value:<24}  # {meaning}" for value, meaning in zip(values, meanings, strict=True)]
    return "\n".join(lines) + "\n"


OVERRIDES = {
    "encoder": "cnn",
    "net_arch": "[64,64], or by network: 'policy.net_arch={pi:[64],vf:[256,256]}'",
    "activation": "relu",
    "layer_norm": "true",
    "features_dim": "128, the width of each image's encoder; null: 512, of small_cnn 128",
    "recurrent": "gru",
    "lstm_hidden_size": "64",
    "n_lstm_layers": "2",
    "lstm_layer_norm": "true",
    "critic_lstm": "shared, detached or none",
}
"""What a field of conf/policy/ may be set to on the command line, in a comment beside it."""


def policy_file(name: str) -> str:
    """Return the YAML file of a named policy: the fields that people change."""
    config, shown = POLICIES[name], ["encoder", "net_arch", "activation", "layer_norm"]
    shown += [] if config.encoder == "mlp" else ["features_dim"]
    shown += [] if config.recurrent is None else RECURRENT_FIELDS
    values = {field: json.dumps(getattr(config, field)).strip('"') for field in shown}
    lines = [
        f"{f'{field}: {value}':<25} # policy.{field}={OVERRIDES[field]}" for field, value in values.items()
    ]
    for field in [field for field in POLICY_PRESETS[name][1] if field not in values]:
        value = getattr(config, field)
        if dataclasses.is_dataclass(value):
            value = {key: part for key, part in vars(value).items() if part is not None}
        lines.append(f"{field}: {as_yaml(value)}")
    return "\n".join([f"# {POLICY_PRESETS[name][0]}", *lines, ""])


def index_file() -> str:
    """Return what the registry knows of each algorithm and preset: ``module:class``."""
    index: dict[str, dict[str, str]] = {"algorithms": {}, "presets": {}}
    for package in ("algorithms", "imitation"):
        for path in (REPOSITORY / "zoo" / package).glob("*.py"):
            module = importlib.import_module(f"zoo.{package}.{path.stem}")
            for algorithm in vars(module).values():
                declared = vars(algorithm) if inspect.isclass(algorithm) else {}
                if declared.get("__module__") == module.__name__ and issubclass(algorithm, zoo.Algorithm):
                    place = f"{module.__name__}:{algorithm.__name__}"
                    if (preset := declared.get("of_preset")) is not None:
                        index["presets"][preset] = place
                    elif "name" in declared:
                        index["algorithms"][algorithm.name] = place
    return json.dumps(index, indent=1, sort_keys=True) + "\n"


def keys_file() -> str:
    """Return the keys of sections and algorithms with their choices, for completion and hints."""
    sections: dict[str, list[str]] = {}
    classes = {name: section_class(name) for name in SECTIONS}
    classes |= {"env.normalize": NormalizeConfig, "env.atari": AtariConfig}
    for path, config_class in classes.items():
        sections |= {path: [], **dict(declared_keys(config_class, f"{path}."))}
    configs = {name: algorithm_class(name).config_class for name in ALGORITHMS}
    algorithms = {
        name: dict(declared_keys(variant_of(config_class, {}, "algo"), "algo."))
        for name, config_class in configs.items()
    }
    return json.dumps({"algorithms": algorithms, "sections": sections}, indent=1) + "\n"


def pages() -> list[Path]:
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def with_current_tables(text: str) -> str:
    """Return the page with every table made anew."""

    def replaced(found: re.Match[str]) -> str:
        opening = found[0].split("\n", 1)[0]
        return f"{opening}\n\n{table_of(found['what'], found['path'])}\n\n<!-- end -->"

    return SCORE.sub(score_in_line, TABLE.sub(replaced, text))


def score_in_line(found: re.Match[str]) -> str:
    """Return the mean return over seeds with its interval, and the steps of a seed, between comments."""
    seeds = scores()[found["algo"], found["env"]]
    number = mean_with_interval(found["env"], [float(seed["mean_return"]) for seed in seeds])
    return f"<!-- score: {found['algo']}/{found['env']} -->{number} ({steps_of(seeds)} steps)<!-- end -->"


def table_of(what: str, path: str | None) -> str:
    if what == "fields":
        return fields_table(str(path))
    if what == "speed":
        return speed_table(str(path))
    tables = {"algorithms": algorithms_table, "presets": presets_table, "old names": old_names_table}
    tables |= {"scores": scores_table, "collection": collection_sections}
    return tables[what]()


def fields_table(path: str) -> str:
    """Return the fields of a dataclass as a Markdown table."""
    module, _, name = path.partition(":")
    config_class = getattr(importlib.import_module(module), name)
    rows = [
        row_of(field, spelled_type(config_class, field.name)) for field in dataclasses.fields(config_class)
    ]
    return markdown(("name", "type", "default", "range", "meaning"), rows)


def row_of(field: dataclasses.Field[Any], declared: str) -> tuple[str, ...]:
    unit = field.metadata.get("unit")
    kind = declared.replace("ScheduleValue", "number or schedule").replace("None", "null")
    kind = re.sub(r'Literal\["(\w+)"\]', r"\1", kind)
    kind = re.sub(r"\b\w+NoiseConfig \| ", "", kind).replace(" | ", " or ")
    kind = re.sub(r"\b\w+Config\b", "mapping", kind)
    kind += f" ({unit})" if unit else ""
    meaning = str(field.metadata.get("help", "")).replace("{_target_", r"{\_target_")  # or it is italic
    return (f"`{field.name}`", kind, default_of(field), range_of(field.metadata), meaning)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{as_yaml(field.default)}`" if field.default != "" else ""
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


def scores() -> dict[tuple[str, str], list[dict[str, str]]]:
    """Return the scores that `train_collection.py` measured, a row a seed, by algorithm and environment."""
    rows = csv.DictReader((MEASURED / "scores.csv").read_text().splitlines())
    pairs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        pairs.setdefault((row["algo"], row["env"]), []).append(row)
    return pairs


def scores_table() -> str:
    """Return the mean over seeds of some agents, beside what others have published."""
    headings = ("algorithm", "environment", "steps", "mean return over seeds", "each seed", "published")
    rows = []
    for (algo, env), seeds in scores().items():
        if f"{algo}/{env}" in IN_README:
            mean = statistics.mean(float(seed["mean_return"]) for seed in seeds)
            beside = published(algo, env)
            rows.append((f"`{algo}`", env, steps_of(seeds), f"{mean:,.1f}", each_seed(seeds), beside))
    return markdown(headings, sorted(rows, key=lambda row: row[1]))


def collection_sections() -> str:
    """Return a table a suite, the cost of training, and a section an environment."""
    by_env: dict[str, list[tuple[str, list[dict[str, str]]]]] = {}
    for (algo, env), seeds in scores().items():
        by_env.setdefault(env, []).append((algo, seeds))
    sections = (environment_section(env, rows) for env, rows in sorted(by_env.items()))
    return "\n\n".join([*suite_tables(), training_time(), *sections])


def suite_tables() -> list[str]:
    """Return for each suite a table of algorithms and environments; the best of a column is bold."""
    suites: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in SUITES}
    for (algo, env), seeds in scores().items():
        suite = next(name for name, pattern in SUITES.items() if re.fullmatch(pattern, env))
        returns = [float(seed["mean_return"]) for seed in seeds]
        suites[suite].setdefault(env, {})[algo] = returns
    tables = []
    for suite, by_env in sorted(suites.items()):
        if not by_env:
            continue
        envs = sorted(by_env)
        best = {env: max(map(statistics.mean, by_env[env].values())) for env in envs if len(by_env[env]) > 1}
        rows = [
            (f"`{algo}`", *(suite_cell(env, by_env[env].get(algo), best.get(env)) for env in envs))
            for algo in sorted({algo for returns in by_env.values() for algo in returns})
        ]
        tables.append(f"**{suite}**\n\n{markdown(('algorithm', *envs), rows)}")
        if suite in AGGREGATED:
            tables += aggregate_sections(suite)
    return tables


def aggregate_sections(suite: str) -> list[str]:
    """Return the table of a suite's aggregates and the figure of its profiles."""
    n_envs = len(AGGREGATED[suite][1])
    text = f"{suite}, {n_envs} environments: *best*, with the lowest run as 0 and the highest as 1, and 95 %"
    text += " intervals by stratified bootstrap."
    figure = f"![{suite}: performance profiles](images/collection/{profile_name(suite)})"
    return [text, aggregate_table(scores_of(suite)).text("md").strip(), figure]


def profile_name(suite: str) -> str:
    return f"profile-{suite.lower().replace(' ', '-')}.png"


def scores_of(suite: str) -> Methods:
    """Return the normalised scores of each run's best agent."""
    algorithms, envs = AGGREGATED[suite]
    returns = {
        algo: {env: np.array([float(seed["mean_return"]) for seed in scores()[algo, env]]) for env in envs}
        for algo in algorithms
    }
    return normalized_scores(returns, None)


def suite_cell(env: str, returns: list[float] | None, best: float | None) -> str:
    if returns is None:
        return ""
    mean = statistics.mean(returns)
    number = f"**{rounded(env, mean)}**" if mean == best else rounded(env, mean)
    return number if len(returns) > 1 else f"{number} ¹"


def training_time() -> str:
    """Return what all trainings took, and what some of them take Zoo and Stable-Baselines3."""
    seeds = [seed for pair in scores().values() for seed in pair]
    timed = [float(seed["minutes"]) for seed in seeds if seed["minutes"]]
    total = sum(int(seed["timesteps"]) for seed in seeds) / 1e6
    text = f"{len(seeds)} trainings had {total:,.0f} million steps; the {len(timed)} that were timed took"
    speeds = json.loads((MEASURED / "speed.json").read_text())["median_steps_per_second"]
    rows: list[tuple[str, ...]] = []
    for work, (algo, env) in BESIDE_SB3.items():
        steps = int(scores()[algo, env][0]["timesteps"])
        own, peer = (steps / speeds[work][system] / 60 for system in ("zoo-compiled", "sb3"))
        rows.append((f"`{algo}`", env, f"{steps:,}", f"{own:,.2f}", f"{peer:,.2f}", f"{peer / own:,.1f}"))
    headings = ("algorithm", "environment", "steps", "minutes", "of Stable-Baselines3", "times faster")
    text += f" {sum(timed) / 60:,.0f} hours. By the [speeds](speed.md#beside-its-peers) of such work:"
    return f"{text}\n\n{markdown(headings, rows)}"


def environment_section(env: str, algorithms: list[tuple[str, list[dict[str, str]]]]) -> str:
    figures = [
        f"![{env}: {what}](images/collection/{folder_name(env)}.{kind})"
        for what, kind in (("the best agent plays", "gif"), ("evaluations during training", "png"))
        if (REPOSITORY / f"docs/images/collection/{folder_name(env)}.{kind}").exists()
    ]
    has_older = any(row["env"] != env for algo, _ in algorithms for row in published_rows(algo, env))
    older = ("older version",) if has_older else ()
    headings = ("algorithm", "agent", "best", "last", "published", *older, "difference", "steps", "minutes")
    rows: list[tuple[str, ...]] = []
    remarks = []
    for algo, seeds in algorithms:
        card = REPOSITORY / "trained_agents" / algo / folder_name(env) / "card.json"
        agent = json.loads(card.read_text()) if card.exists() else None
        mean = rounded(env, agent["mean_return"], agent["std_return"]) if agent else "–"
        beside = [published(algo, env, older=each) for each in ((False, True) if has_older else (False,))]
        best = mean_with_interval(env, [float(seed["mean_return"]) for seed in seeds])
        last = last_returns(algo, env, seeds)
        is_scored = all(seed["last_mean_return"] for seed in seeds)
        of_last = mean_with_interval(env, last) + ("" if is_scored else " \\*")
        numbers = (*beside, difference(algo, env, statistics.mean(last)), steps_of(seeds), minutes_of(seeds))
        rows.append((f"`{algo}`", mean, best, of_last, *numbers))
        remarks += [f"`{algo}`: {text}" for text in remark(algo, env)]
    return "\n\n".join([f"## {env}", *figures, markdown(headings, rows), *remarks])


def minutes_of(seeds: list[dict[str, str]]) -> str:
    """Return the minutes of the quickest seed, of those that were timed: others stood beside more work."""
    timed = [float(seed["minutes"]) for seed in seeds if seed["minutes"]]
    return f"{min(timed):,.1f}" if timed else "–"


def remark(algo: str, env: str) -> list[str]:
    """Return what docs/measured/remarks.yaml says of a pair."""
    text = yaml.safe_load((MEASURED / "remarks.yaml").read_text()).get(f"{algo}/{env}")
    return [] if text is None else [text]


def published(algo: str, env: str, *, older: bool | None = None) -> str:
    """Return the published scores, of older versions of the environment, of this one, or (None) of all."""
    return (
        "; ".join(
            f"{rounded(env, float(row['mean_return']))} ({row['source'].rstrip(')').rpartition('(')[2]}"
            f"{', ' + row['trained_timesteps'] if row['trained_timesteps'] else ''}"
            f"{'' if row['env'] == env else ', ' + row['env']})"
            for row in published_rows(algo, env)
            if older in (None, row["env"] != env)
        )
        or "–"
    )


def published_rows(algo: str, env: str) -> list[dict[str, str]]:
    base = "ppo2" if algo == "ppo" else algo.removeprefix("her_")
    return published_scores(algo, base, env)


def difference(algo: str, env: str, ours: float) -> str:
    """Return how far our return is above the best published score that has a standard deviation.

    SLM Lab's have none: they are means during training.
    """
    others = [float(row["mean_return"]) for row in published_rows(algo, env) if row["std_return"]]
    return f"{ours - max(others):+,.{places(env)}f}" if others else "–"


def steps_of(seeds: list[dict[str, str]]) -> str:
    return f"{max(int(seed['timesteps']) for seed in seeds):,}"


def each_seed(seeds: list[dict[str, str]]) -> str:
    return ", ".join(f"{float(seed['mean_return']):,.1f}" for seed in seeds)


def last_returns(algo: str, env: str, seeds: list[dict[str, str]]) -> list[float]:
    """Return the mean returns of the last agents, of a run's last evaluation where none was scored."""
    path = MEASURED / f"curves/{algo}/{folder_name(env)}.csv"
    evaluations = csv.DictReader(path.read_text().splitlines())
    last = {row["seed"]: row["mean_return"] for row in evaluations}
    return [float(seed["last_mean_return"] or last[seed["seed"]]) for seed in seeds]


def mean_with_interval(env: str, returns: list[float]) -> str:
    """Return the mean over seeds with the half width of its 95 % interval; ¹ marks a single seed."""
    n, mean = len(returns), statistics.mean(returns)
    if n == 1:
        return f"{rounded(env, mean)} ¹"
    return rounded(env, mean, T_QUANTILES[n] * statistics.stdev(returns) / n**0.5)


def rounded(env: str, mean: float, spread: float | None = None) -> str:
    return f"{mean:,.{places(env)}f}" + ("" if spread is None else f" ± {spread:,.{places(env)}f}")


def places(env: str) -> int:
    """Return how many decimal places a return has; MiniGrid's are between 0 and 1."""
    return 3 if env.startswith("MiniGrid") else 1


def speed_table(name: str) -> str:
    """Return the medians that `compare_speed.py` wrote as ``name``, and their ratios to the peers'."""
    file = MEASURED / f"{name}.json"
    medians = json.loads(file.read_text())["median_steps_per_second"] if file.exists() else {}
    found = {system for speeds in medians.values() for system in speeds}
    systems = [system for system in SYSTEMS if system in found]
    ratios = [(own, peer) for peer in systems for own in systems if peer in PEERS and own not in PEERS]
    rows = []
    for work, speeds in medians.items():
        columns = [f"{speeds[system]:,.0f}" if system in speeds else "–" for system in systems]
        columns += [
            f"{speeds[own] / speeds[peer]:.1f}" if {own, peer} <= speeds.keys() else "–"
            for own, peer in ratios
        ]
        rows.append((f"`{work}`", *columns))
    return markdown(("work", *systems, *(f"{own} / {peer}" for own, peer in ratios)), rows)


def markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return "Not measured yet."
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
