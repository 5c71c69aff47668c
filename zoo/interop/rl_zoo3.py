"""Settings of rl_zoo3 and CleanRL, from their files and command lines, as settings of Zoo."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from zoo.config import sections
from zoo.config.aliases import ALGORITHMS, NAMES, RL_ZOO3
from zoo.config.choices import algorithm_options, base_of
from zoo.config.keys import all_keys
from zoo.config.overrides import as_hydra_reads
from zoo.errors import ZooError

VALUES, SECTIONS, FLAGS = RL_ZOO3["values"], RL_ZOO3["sections"], RL_ZOO3["flags"]


class Translation:
    """Translates another program's settings into Zoo's; ``left_out`` lists those without a counterpart."""

    def __init__(self, command: str, algo: str | None) -> None:
        algorithms = [base_of(algo)] if algo in algorithm_options() else sections.ALGORITHMS
        self.command, self.keys = command, set(all_keys(command, algorithms))
        self.settings: dict[str, Any] = {}
        self.left_out: list[str] = []

    def add(self, name: str, value: Any, section: str = "algo") -> None:
        """Add one setting, which is looked for in ``section`` first."""
        try:
            value = literal(value)
        except (SyntaxError, ValueError):
            self.left_out.append(f"{name} (no plain data)")
            return
        prefixes = (f"{section}.", "", "algo.", "policy.", "env.")
        places = [*(f"{prefix}{name}" for prefix in prefixes), NAMES.get(name)]
        place = next(filter(self.keys.__contains__, places), None)
        translated = VALUES.get(f"{name}={value}".lower(), VALUES.get(f"{name}=*"))
        if translated is not None:
            key, _, text = translated.partition("=")
            self.settings |= {key: yaml.safe_load(text)} if key else {}
        elif name == "env_kwargs" and isinstance(value, Mapping):
            self.settings |= {f"env.kwargs.{key}": item for key, item in value.items()}
        elif name in SECTIONS and isinstance(value, Mapping):
            for key, item in value.items():
                self.add(key, item, SECTIONS[name])
        elif name.endswith("_wrapper"):
            for wrapper in value if isinstance(value, list) else [value]:
                self._add_wrapper(wrapper)
        elif place is None or (place in sections.SECTIONS and place != name):
            why = NAMES.get(f"{self.command}.{name}") or NAMES.get(name, "")
            self.left_out.append(f"{name} ({why})" if " " in why else name)
        else:
            if name == "net_arch" and isinstance(value, list) and value and isinstance(value[-1], Mapping):
                value = {**({"shared": value[:-1]} if value[:-1] else {}), **value[-1]}
            if place == "algo.n_minibatches":
                self.settings["algo.batch_size"] = None  # which the number of minibatches decides
            is_whole = isinstance(value, float) and value.is_integer()
            self.settings[place] = int(value) if is_whole else value

    def _add_wrapper(self, wrapper: Any) -> None:
        path, options = next(iter(wrapper.items())) if isinstance(wrapper, Mapping) else (str(wrapper), {})
        name = path.rpartition(".")[2]
        if name in RL_ZOO3["wrappers"]:
            key, _, argument = RL_ZOO3["wrappers"][name].partition(" ")
            self.settings |= {key: options.get(argument) if argument else options or True} if key else {}
        elif path.startswith(("stable_baselines3.", "sb3_contrib.", "rl_zoo3.")):
            self.left_out.append(f"{name} (no equivalent wrapper)")
        else:
            target = {"_target_": path, **options} if options else path
            self.settings.setdefault("env.wrappers", []).append(target)


def literal(value: Any) -> Any:
    """Parse a Python literal, such as ``dict(net_arch=[64])``, without running code.

    A name stands for itself, without its module. Raises `ValueError` or `SyntaxError` for all but plain data.
    """
    if not isinstance(value, str) or not re.match(r"\s*(dict\(|[\[({'\"])", value):
        return value
    return _plain(ast.parse(value.strip(), mode="eval").body)


def _plain(node: ast.expr | None) -> Any:
    match node:
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return {str(keyword.arg): _plain(keyword.value) for keyword in node.keywords}
        case ast.Dict():
            return {_plain(key): _plain(item) for key, item in zip(node.keys, node.values, strict=True)}
        case ast.List() | ast.Tuple():
            return [_plain(item) for item in node.elts]
        case ast.Name() | ast.Attribute():
            return ast.unparse(node).rpartition(".")[2]
    return ast.literal_eval(node or "None")


def tuned_file(values: Mapping[str, Any], algo: str) -> tuple[dict[str, Any], list[str]]:
    """Return the content of a tuned file for one entry of rl_zoo3's, and what of the entry it leaves out.

    It has the defaults of Stable-Baselines3 where those of Zoo's algorithm are others.
    """
    translation = Translation("train", algo)
    for name, value in values.items():
        is_number = isinstance(value, str) and re.fullmatch(r"[-+]?\d[\d.]*[eE][-+]?\d+", value)
        translation.add(name, float(value) if is_number else value)  # to YAML, 1e-3 is a text
    defaults = RL_ZOO3["defaults"].get(algo, {})
    settings = {f"algo.{key}": value for key, value in defaults.items()} | translation.settings
    groups = [group for group in ("policy", "replay") if group in settings]
    choices = [{f"override /{group}": settings.pop(group)} for group in groups]
    content: dict[str, Any] = {"defaults": choices} if choices else {}
    for path, value in settings.items():
        *sections, key = path.split(".")
        inner = content
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return content, translation.left_out


def refuse_foreign_line(verb: str, arguments: Sequence[str]) -> None:
    """Raise `ZooError` with Zoo's command for a line in the words of rl_zoo3 or CleanRL; leave all others."""
    zoo_words, foreign = _split_options(arguments)
    if not foreign and verb not in RL_ZOO3["verbs"]:
        return
    if foreign.get("algo"):
        foreign["algo"] = [ALGORITHMS.get(foreign["algo"][0].lower(), foreign["algo"][0])]
    for module in foreign.pop("gym_packages", []):
        foreign["env"] = [f"{module}:{env}" for env in foreign.get("env", [])]
    is_search = foreign.pop("optimize", ["false"])[:1] in ([], ["true"], ["True"])
    written = RL_ZOO3["verbs"].get("optimize" if is_search else verb, verb)
    first = {name: values[0].rstrip("/") for name, values in foreign.items() if values}
    named = {**RL_ZOO3["unnamed"], **first}
    command, *words = written.format_map(named).split()
    translation = Translation(command, named["algo"])
    for name, values in foreign.items():
        if f"{{{name}}}" in written:
            continue
        value: Any = values[0] if len(values) == 1 else values or True
        if name in ("env_kwargs", "hyperparams") and not re.match(r"dict\(|{", values[0] if values else ""):
            value = dict(word.split(":", 1) for word in values if ":" in word)
        translation.add(name, value)
    if not translation.settings and command == verb:
        return
    words += zoo_words + [f"{key}={_typed(value)}" for key, value in translation.settings.items()]
    left_out = f"; without {', '.join(translation.left_out)}" if translation.left_out else ""
    flags = [word for word in arguments if word.startswith("--")]
    if flags and all("=" in flag for flag in flags):
        left_out += "; W&B's sweeps write it so with ${args_no_hyphens}"
    line = shlex.join(["zoo", command, *words])
    raise ZooError(f"that is how rl_zoo3 or CleanRL writes it; here: {line}{left_out}")


def _split_options(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words that are Zoo's or Hydra's, and other programs' settings by whole names."""
    zoo_words: list[str] = []
    foreign: dict[str, list[str]] = {}
    latest = zoo_words
    for index, word in enumerate(arguments):
        flag = re.fullmatch(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", word, re.DOTALL)
        key, equals, value = word.partition("=")
        is_file = word == "-i" and re.search(r"[./]", "".join(arguments[index + 1 : index + 2]))
        if flag and (is_file or not re.fullmatch(RL_ZOO3["flags of hydra"], flag[1])):
            name = flag[1].replace("-", "_")
            values = foreign[FLAGS.get(name, name)] = [] if flag[2] is None else [flag[2]]
            latest = values if flag[2] is None else zoo_words
        elif equals and (key in ("env_kwargs", "optimize") or word.lower() in VALUES):
            foreign[key] = [value]
        elif flag or (equals and ":" not in key):
            zoo_words.append(word)
            latest = zoo_words if flag else latest
        else:
            latest.append(word)
    return zoo_words, foreign


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_typed, value))}]"
    is_plain = isinstance(value, str) and re.fullmatch(r"[\w./:+*-]+", value)
    return str(value) if is_plain else as_hydra_reads(value)
