"""Every key of a command by its whole path, such as ``callbacks.eval.every``, and completion at a TAB."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, get_type_hints

from zoo.config import schema
from zoo.config.aliases import NAMES
from zoo.config.fields import variant_of
from zoo.config.schema import CALLBACKS, SETTINGS, LoggerSettings, WandbSettings
from zoo.errors import ZooError

TRAINING = ("train", "tune")
"""Commands whose config has the sections of a training."""

_TRAINING_SECTIONS = ("algo", "env", "policy", "replay", "pretrain", "callbacks", "logger", "experiment")
SECTIONS = {
    "train": _TRAINING_SECTIONS,
    "tune": (*_TRAINING_SECTIONS, "sampler", "pruner", "space"),
    "check": ("env",),
}
"""Sections, and groups, by command."""

SCRIPTS = {
    "bash": """\
# eval "$(zoo --completion bash)", in ~/.bashrc
_zoo() {
    local line="${COMP_LINE:0:COMP_POINT}" words word skip
    read -ra words <<< "$line"
    [[ "$line" == *" " ]] && words+=("")
    word="${words[-1]}"
    COMPREPLY=()
    skip=""
    [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]] && skip="${word%"${word##*=}"}"
    while IFS= read -r each; do
        [[ -n "$each" ]] && COMPREPLY+=("${each#"$skip"}")
    done < <(zoo --complete "${words[@]:1}" 2> /dev/null)
    [[ "${COMPREPLY[0]}" == *= ]] && compopt -o nospace
}
complete -o default -F _zoo zoo""",
    "zsh": """\
# eval "$(zoo --completion zsh)", in ~/.zshrc behind compinit
_zoo() {
    local -a found
    found=("${(@f)$(zoo --complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    compadd -Q -S '' -- $found
}
compdef _zoo zoo""",
    "fish": """\
# zoo --completion fish | source, in ~/.config/fish/config.fish
function __zoo
    set -l words (commandline -opc) (commandline -ct)
    zoo --complete $words[2..-1] 2> /dev/null
end
complete -c zoo -f -a '(__zoo)'""",
}
"""What lets shells ask `zoo --complete` for the words that may follow."""


def all_keys(command: str, algorithms: Iterable[str]) -> list[str]:
    """Return the paths of a command's keys, sections among them; ``algo`` has those of these algorithms."""
    keys = hyperparameters(algorithms) if command in TRAINING else []
    keys += _paths(SETTINGS.get(command), "")
    if command in TRAINING or command == "check":
        keys += _section("env")
    if command in TRAINING:
        keys += [*_section("policy"), *_section("replay"), *_section("pretrain"), *_callbacks(), *_logger()]
    return list(dict.fromkeys([*keys, *SECTIONS.get(command, ())]))


def hyperparameters(algorithms: Iterable[str]) -> list[str]:
    """Return the paths of these algorithms' hyperparameters."""
    classes = (variant_of(schema.algorithm_config_class(name), {}, "algo") for name in algorithms)
    return list(dict.fromkeys(path for each in classes for path in _paths(each, "algo.")))


def algorithms_with_key(key: str) -> list[str]:
    """Return the names of the algorithms with a hyperparameter of this name."""
    return [name for name in schema.algorithm_names() if f"algo.{key}" in hyperparameters([name])]


def other_algorithms_hint(key: str, algorithms: Sequence[str], prefix: str = "algo.") -> str:
    """Return, for the end of a message, which other algorithms have a hyperparameter, and what these have.

    It is "" where no other has it.
    """
    others = [name for name in algorithms_with_key(key) if name not in algorithms]
    if not others:
        return ""
    instead = "".join(NAMES.get(f"{name}.{key}", "") for name in algorithms[:1])
    if instead and " " not in instead:
        instead = f"which has {prefix}{instead.removeprefix('algo.')}"
    whose = f", not of {', '.join(algorithms)}{f', {instead}' if instead else ''}" if algorithms else ""
    return f": `{prefix}{key}` is a hyperparameter of {', '.join(others)}{whose}"


def script(shells: Sequence[str]) -> str:
    """Return what a shell has to run. Raises `ZooError` for one that there is no script for."""
    if len(shells) != 1 or shells[0] not in SCRIPTS:
        raise ZooError(f"zoo --completion takes one of {', '.join(SCRIPTS)}")
    return SCRIPTS[shells[0]]


def candidates(words: Sequence[str], verbs: Iterable[str]) -> list[str]:
    """Return the words that begin like the last of ``words``: verbs, keys, and the options of groups."""
    *before, word = words or [""]
    if not before:
        return [verb for verb in verbs if verb.startswith(word)]
    key, equals, _ = word.partition("=")
    keys = [] if equals else [f"{each}=" for each in all_keys(before[0], _algorithms(before))]
    found = _values(before, key) if equals else keys
    return sorted(each for each in found if each.startswith(word))


def _values(words: Sequence[str], key: str) -> list[str]:
    from zoo.config.compose import ConfigLoader

    options = ConfigLoader(words[0]).hydra.get_group_options(key) if "." not in key else []
    if key == "env":
        import gymnasium

        options = [*options, *gymnasium.registry]
    return [f"{key}={option}" for option in options]


def _algorithms(words: Sequence[str]) -> list[str]:
    """Return the algorithm that is chosen, that on which a preset builds; none where there is none."""
    from zoo.config.compose import ConfigLoader

    chosen = [word.partition("=")[2] for word in words if word.startswith("algo=")]
    source = ConfigLoader(words[0]).source
    return [base for base in map(source.base_of, chosen) if base in schema.algorithm_names()]


def _section(name: str) -> Iterator[str]:
    yield from _paths(schema.section_class(name), f"{name}.")
    for key, part_class in schema.part_classes(name).items():
        yield from _paths(part_class, f"{name}.{key}.")


def _callbacks() -> Iterator[str]:
    for name, settings in CALLBACKS.items():
        yield f"callbacks.{name}"
        yield from _paths(settings, f"callbacks.{name}.")


def _logger() -> Iterator[str]:
    yield from _paths(LoggerSettings, "logger.")
    yield from _paths(WandbSettings, "logger.wandb.")


def _paths(config_class: type[Any] | None, prefix: str) -> Iterator[str]:
    """Return the paths of a dataclass' fields, and of those of the dataclasses that they may hold."""
    if config_class is None:
        return
    hints = get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        yield f"{prefix}{field.name}"
        inner_classes: list[Any] = list(filter(dataclasses.is_dataclass, get_args(hints[field.name])))
        for inner in inner_classes:
            yield from _paths(inner, f"{prefix}{field.name}.")
