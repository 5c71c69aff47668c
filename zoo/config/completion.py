"""Completion at a TAB: scripts for shells, which ask `zoo --complete` for the words that may follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zoo.errors import ZooError

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
    found = _values(before, key) if equals else _keys(before)
    return sorted(each for each in found if each.startswith(word))


def _values(words: Sequence[str], key: str) -> list[str]:
    from zoo.config.all_keys import choices
    from zoo.config.loading import ConfigLoader

    command = words[0]
    options = ConfigLoader(command).get_group_options(key) if "." not in key else []
    if key == "env":
        import gymnasium

        options = [*options, *gymnasium.registry]
    if key == "algo":
        from zoo.config.source import algorithm_options

        options = algorithm_options()
    options = [*options, *choices(command, key, _algorithms(words))]
    return [f"{key}={option}" for option in options]


def _keys(words: Sequence[str]) -> list[str]:
    from zoo.config.all_keys import all_keys

    generator = [word.partition("=")[2] for word in words if word.startswith("algo.generator=")]
    chosen = {"generator": generator[-1]} if generator and _algorithms(words) == ["gail"] else {}
    return [f"{key}=" for key in all_keys(words[0], _algorithms(words), chosen)]


def _algorithms(words: Sequence[str]) -> list[str]:
    """Return the algorithm that is chosen, that on which a preset builds; none where there is none."""
    from zoo.config import sections
    from zoo.config.loading import ConfigLoader

    chosen = [word.partition("=")[2] for word in words if word.startswith("algo=")]
    source = ConfigLoader(words[0]).source
    return [base for base in map(source.base_of, chosen) if base in sections.algorithm_names()]
