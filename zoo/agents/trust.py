"""What in an agent's config could run code of its maker's choice, and is refused unless the user trusts it.

An agent is data, but three things in its config name code: an environment's id (``module:Id`` imports the
module), wrappers by ``_target_``, and a policy by ``_target_``. From an agent of unknown origin Zoo follows
these names only into its own classes and Gymnasium's wrappers. Everything else that another program might
read as code (Hydra's keys, OmegaConf's interpolations, entry points) has no place in an agent and is refused.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.errors import ZooError
from zoo.files.printing import one_line

HYDRA_KEYS = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")

CODE_KEYS = (
    "entry_point",
    "vector_entry_point",
    "additional_wrappers",
    "env_creator",
    "env_id",
    "env_spec",
    "make_kwargs",
    "vector_kwargs",
    "wrappers",
)
"""Arguments that tell environments and ``gymnasium.make`` which code to import: not from a stranger."""

WRITES_FILES = ("RecordVideo",)
"""Wrappers that write where their arguments say."""

MASK_FUNCTION = "action_mask_fn"
MASK_METHODS = (
    *("action_mask", "action_masks", "get_action_mask", "get_action_masks"),
    *("valid_action_mask", "valid_action_masks", "valid_actions", "valid_moves"),
    *("legal_actions", "legal_moves"),
)
"""What a stranger's `ActionMasker` may call before each step: nothing that does more than tell."""

_ARGUMENTS = ("env.kwargs", "env.wrappers", "env.render_mode")
_ENV_ID = re.compile(r"(envpool:)?[\w.+-]+(/[\w.+-]+)*")
_CLASS_PATH = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")

TEXT_LIMIT = 1_000
"""Characters that a text in the arguments of a stranger's environment may have."""
LIST_LIMIT = 1_000
"""Values that a list or mapping there may have."""
NUMBER_LIMIT = 10**6
"""The largest whole number there: of steps, for instance."""
TEXTS_LIMIT = 20_000
"""Characters that all texts of a stranger's environment may have together: maps, for instance."""

LARGEST = {
    **dict.fromkeys(("frame_stack", "history", "stack_size", "buffer_length"), 1_000),
    **dict.fromkeys(("action_repeat", "frame_skip", "noop_max", "padding_length"), 1_000),
    **dict.fromkeys(("shape", "size", "screen_size", "width", "height"), 4_096),
}
"""The largest number of what is kept, repeated or drawn at once."""

FILE_KEYS = ("xml_file",)
FILE_ENDINGS = ("_path", "_dir", "_folder")
"""Arguments that tell an environment which files to open."""


def refuse_foreign_code(
    config: Mapping[str, Any], origin: str, *, own_env: bool = False, own_run: bool = False
) -> None:
    """Raise `ZooError` for the first thing in an agent's config that could run code from outside Zoo.

    ``origin`` names the agent in the message. With ``own_env`` the section ``env`` is left unchecked, because
    the caller brings an environment of their own and builds nothing from it; with ``own_run`` ``policy`` is
    too, because both are those of a run of the user's own (`zoo.agents.own_runs`).
    """
    sections = {name: value for name, value in config.items() if name not in ("env", "policy")}
    _refuse_code_in_data(sections, "", origin)
    if not own_run:
        _refuse_foreign_policy(config["policy"], origin)
    if not own_run and not own_env:
        refuse_foreign_environment(config.get("env"), origin)


def refuse_foreign_environment(
    env: Mapping[str, Any] | None, origin: str, *, named_by_user: str | None = None
) -> None:
    """Raise `ZooError` if an agent's environment could run foreign code.

    An id equal to ``named_by_user`` (the user typed it) may import its module.
    """
    if env is None:
        return
    env_id = env.get("id")
    if env_id != named_by_user and not (isinstance(env_id, str) and _ENV_ID.fullmatch(env_id)):
        raise _untrusted("env.id", env_id, origin, "it would import a module")
    wrappers = env.get("wrappers") or []
    if not isinstance(wrappers, list):
        raise ZooError(f"the agent in {origin} is damaged: `env.wrappers` in its config.yaml is not a list")
    for index, wrapper in enumerate(wrappers):
        _refuse_foreign_wrapper(wrapper, f"env.wrappers[{index}]", origin)
    others = {key: value for key, value in env.items() if key not in ("id", "wrappers")}
    _refuse_code_in_data(others, "env", origin)
    _refuse_files_and_sizes(env, origin)


def _refuse_foreign_policy(policy: Mapping[str, Any], origin: str) -> None:
    target = policy.get("_target_")
    if target is not None and not _is_own_policy(target):
        raise _untrusted("policy._target_", target, origin, "it names a class outside zoo.policies")
    others = {key: value for key, value in policy.items() if key != "_target_"}
    _refuse_code_in_data(others, "policy", origin)


def _refuse_foreign_wrapper(wrapper: Any, where: str, origin: str) -> None:
    if isinstance(wrapper, str):
        wrapper = {"_target_": wrapper}
    if not isinstance(wrapper, Mapping):
        raise ZooError(f"the agent in {origin} is damaged: `{where}` is neither a name nor a mapping")
    target = wrapper.get("_target_")
    if target is not None and not _is_known_wrapper(target):
        reason = "it names no wrapper of zoo.envs or gymnasium.wrappers"
        if isinstance(target, str) and target.rpartition(".")[2] in WRITES_FILES:
            reason = "it writes files"
        raise _untrusted(f"{where}._target_", target, origin, reason)
    _refuse_code_in_data({key: value for key, value in wrapper.items() if key != "_target_"}, where, origin)


def _refuse_code_in_data(value: Any, where: str, origin: str) -> None:
    """Refuse what Hydra, OmegaConf, Gymnasium or an environment would import or resolve."""
    for path, key, item in _walk(value, where):
        if key in HYDRA_KEYS or (where.startswith("env") and key in CODE_KEYS):
            raise _untrusted(path, item, origin, "it could name code to run")
        if key == MASK_FUNCTION and item not in MASK_METHODS:
            raise _untrusted(path, item, origin, "it is none of the usual names of a method that gives masks")
        for text in (key, item):
            if isinstance(text, str) and "${" in text:
                raise _untrusted(path, text, origin, "it is an interpolation")
        if path.startswith(_ARGUMENTS) and isinstance(item, str):
            if len(item) > TEXT_LIMIT:
                raise _untrusted(path, item, origin, f"it has more than {TEXT_LIMIT:,} characters")
            if item.startswith(("/", "~", ".")) or ".." in item or "\\" in item:
                raise _untrusted(path, item, origin, "an environment could take it for a file")
            if _could_name_code(item):
                raise _untrusted(path, item, origin, "an environment could take it for the name of code")


def _refuse_files_and_sizes(env: Mapping[str, Any], origin: str) -> None:
    """Refuse arguments that name a file, and those that ask for more than any environment needs."""
    n_characters = 0
    for path, key, item in _walk(env, "env"):
        if isinstance(key, str) and (key in FILE_KEYS or key.endswith(FILE_ENDINGS)):
            raise _untrusted(path, item, origin, "it names a file")
        if isinstance(item, Mapping | list) and len(item) > LIST_LIMIT:
            raise _untrusted(path, f"{len(item):,} values", origin, f"these are more than {LIST_LIMIT:,}")
        if isinstance(item, str):
            n_characters += len(item)
        if n_characters > TEXTS_LIMIT:
            raise _untrusted(path, item, origin, f"texts before it have {TEXTS_LIMIT:,} characters already")
        name = path.rpartition(".")[2].partition("[")[0]
        limit = LARGEST.get(name, NUMBER_LIMIT if path.startswith(_ARGUMENTS) else None)
        is_count = isinstance(item, int) or (isinstance(item, float) and name in LARGEST)
        if limit is not None and is_count and not abs(item) <= limit:  # nor is it NaN
            raise _untrusted(path, item, origin, f"it is more than {limit:,}")


def _could_name_code(text: str) -> bool:
    """Tell whether a text is like ``module:Name`` or ``module.Name``, whatever a module may be called.

    Some environments import what their arguments name so, and a module's file may have any name: with blanks,
    of digits, before nothing at all. Only no module has a slash in its name.
    """
    return any(separator in text.partition("/")[0][1:] for separator in ".:")


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Give path, key (None in a list) and value of everything inside ``value``."""
    if isinstance(value, Mapping):
        children = [(f"{path}.{key}" if path else str(key), key, item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        children = [(f"{path}[{index}]", None, item) for index, item in enumerate(value)]
    else:
        return
    for child_path, key, item in children:
        yield child_path, key, item
        yield from _walk(item, child_path)


def _is_known_wrapper(target: Any) -> bool:
    """Tell whether the target is a wrapper of Zoo's or Gymnasium's; a name without a module always is."""
    import gymnasium

    if not isinstance(target, str) or target.rpartition(".")[2] in WRITES_FILES:
        return False
    if target.isidentifier():
        return True
    return any(
        _is_class_of(target, package, base)
        for package in ("zoo.envs", "gymnasium.wrappers")
        for base in (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)
    )


def _is_own_policy(target: Any) -> bool:
    if not isinstance(target, str) or not target.startswith("zoo.policies."):
        return False
    from torch import nn

    return _is_class_of(target, "zoo.policies", nn.Module)


def _is_class_of(target: str, package: str, base: type) -> bool:
    """Tell whether ``package.….Class`` is a subclass of ``base`` that was itself written in ``package``.

    Only modules of ``package`` are imported for the answer.
    """
    if not _CLASS_PATH.fullmatch(target) or not target.startswith(f"{package}."):
        return False
    module_name, _, class_name = target.rpartition(".")
    from gymnasium.error import DependencyNotInstalled

    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except (ImportError, DependencyNotInstalled):
        return False
    return (
        isinstance(found, type)
        and issubclass(found, base)
        and f"{found.__module__}.".startswith(f"{package}.")
    )


def _untrusted(path: str, value: Any, origin: str, reason: str) -> ZooError:
    return ZooError(
        f"the agent in {origin} asks for `{one_line(path)}: {one_line(value, 80)}`, refused because {reason};"
        " if you know where the agent comes from, load it with trust=true"
    )
