"""What in a stranger's config could run code of its maker's choice, and is refused unless the user trusts it.

An agent is data, but three things in its config name code: an environment's id (``module:Id`` imports the
module), wrappers by ``_target_``, and a policy by ``_target_``; a run's config names callbacks and trackers
beside them (`zoo.agents.foreign_runs`). From an agent or a run of unknown origin Zoo follows these names only
where they stand in a list of its own: nothing is imported to find out. Everything else that another program
might read as code (Hydra's keys, OmegaConf's interpolations, entry points), as a file, or as a program has no
place there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo.agents.foreign_sizes import ARGUMENTS, check_sizes_of_environment
from zoo.agents.known_wrappers import WRITES_FILES, known_arguments
from zoo.agents.untrusted import UntrustedError, walk

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

WINDOWS = ("render_mode", "render", "renders", "gui")
"""Arguments by which environments open a window."""

MASK_FUNCTION = "action_mask_fn"
MASK_METHODS = (
    *("action_mask", "action_masks", "get_action_mask", "get_action_masks"),
    *("valid_action_mask", "valid_action_masks", "valid_actions", "valid_moves"),
    *("legal_actions", "legal_moves"),
)
"""What a stranger's `ActionMasker` may call before each step: nothing that does more than tell."""

OWN_POLICIES = {
    "action_value_policies": ("ActionValuePolicy", "StochasticDuelingPolicy"),
    "actor_critic": ("ActorCritic",),
    "deterministic_policy": ("DeterministicPolicy",),
    "q_network": ("QNetwork",),
    "quantile_network": ("QuantileNetwork",),
    "searched_policy": ("SearchedPolicy",),
    "squashed_actor": ("SquashedActor",),
}
"""The policies in each module of ``zoo.policies`` that a stranger's agent may name."""

NAMES_CODE = ("env", "policy")
"""Sections of an agent's config that may name code; they are those of its run."""

_ENV_ID = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*")
ENVPOOL_PREFIX = "envpool:"

FILE_WORDS = {
    *("file", "files", "filename", "path", "paths", "dir", "directory", "folder", "fname"),
    *("exe", "executable", "binary", "program", "command", "cmd", "shell", "plugin", "library"),
    *("url", "uri", "host", "hostname", "address", "port", "socket", "module", "credentials"),
}
"""Words in the name of an argument that tells an environment what to open, start or connect to."""


def refuse_foreign_code(
    config: Mapping[str, Any],
    origin: str,
    *,
    own_env: bool = False,
    own_run: Mapping[str, Any] | None = None,
) -> None:
    """Raise `ZooError` for the first thing in an agent's config that could run code from outside Zoo.

    ``origin`` names the agent in the message. With ``own_env`` the section ``env`` is left unchecked, because
    the caller brings an environment of their own and builds nothing from it. ``own_run`` is the config of the
    run of the user's own that the agent stands in (`zoo.agents.own_runs`): what that says, too, may be said.
    """
    try:
        check_code(_beyond(config, own_run or {}), own_env=own_env)
    except UntrustedError as error:
        raise error.told_of(f"the agent in {origin}", "load it with trust=true") from error


def refuse_foreign_environment(
    env: Mapping[str, Any] | None, origin: str, *, named_by_user: str | None = None
) -> None:
    """Raise `ZooError` if an agent's environment could run foreign code.

    An id equal to ``named_by_user`` (the user typed it) may import its module.
    """
    try:
        _check_environment(env, named_by_user)
    except UntrustedError as error:
        raise error.told_of(f"the agent in {origin}", "load it with trust=true") from error


def check_code(config: Mapping[str, Any], *, own_env: bool = False) -> None:
    """Raise `UntrustedError` for the first thing that could run code from outside Zoo."""
    sections = {name: value for name, value in config.items() if name not in ("env", "policy")}
    _check_data(sections, "")
    _check_policy(config.get("policy"))
    if not own_env:
        _check_environment(config.get("env"), None)


def _beyond(config: Mapping[str, Any], own_run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a config says that its run's does not; sections that name code are the run's own."""
    beyond: dict[str, Any] = {}
    for key, value in config.items():
        said = own_run.get(key)
        if own_run and key in NAMES_CODE:
            continue
        if isinstance(value, Mapping) and isinstance(said, Mapping):
            beyond[key] = {
                name: each for name, each in value.items() if name not in said or said[name] != each
            }
        elif key not in own_run or value != said:
            beyond[key] = value
    return beyond


def _check_environment(env: Any, named_by_user: str | None) -> None:
    if env is None:
        return
    if not isinstance(env, Mapping):
        raise UntrustedError("env", env, "it is no mapping")
    env_id = env.get("id")
    if "id" in env and (env_id is None or env_id != named_by_user):
        if not isinstance(env_id, str):
            raise UntrustedError("env.id", env_id, "it is no name")
        if env_id.startswith(ENVPOOL_PREFIX):
            raise UntrustedError("env.id", env_id, "EnvPool's arguments and files are not known")
        if not _ENV_ID.fullmatch(env_id):
            raise UntrustedError("env.id", env_id, "it would import a module")
    wrappers = env.get("wrappers") or []
    if not isinstance(wrappers, list):
        raise UntrustedError("env.wrappers", wrappers, "it is not a list")
    if env.get("render_mode") is not None:
        raise UntrustedError("env.render_mode", env["render_mode"], "it could open a window")
    check_sizes_of_environment(env)
    for index, wrapper in enumerate(wrappers):
        _check_wrapper(wrapper, f"env.wrappers[{index}]")
    _check_data({key: value for key, value in env.items() if key not in ("id", "wrappers")}, "env")
    _check_files(env)


def _check_policy(policy: Any) -> None:
    if policy is None:
        return
    if not isinstance(policy, Mapping):
        raise UntrustedError("policy", policy, "it is no mapping")
    target = policy.get("_target_")
    if target is not None and not _is_own_policy(target):
        raise UntrustedError("policy._target_", target, "it names no policy of zoo.policies")
    _check_data({key: value for key, value in policy.items() if key != "_target_"}, "policy")


def _check_wrapper(wrapper: Any, where: str) -> None:
    if isinstance(wrapper, str):
        wrapper = {"_target_": wrapper}
    if not isinstance(wrapper, Mapping):
        raise UntrustedError(where, wrapper, "it is neither a name nor a mapping")
    target, arguments = wrapper.get("_target_"), {k: v for k, v in wrapper.items() if k != "_target_"}
    known = known_arguments(target)
    if known is None:
        reason = "it is none of the wrappers of zoo.envs and gymnasium.wrappers that do nothing else"
        if isinstance(target, str) and target.rpartition(".")[2] in WRITES_FILES:
            reason = "it writes files"
        if target is None:
            _check_data(arguments, where)
        raise UntrustedError(f"{where}._target_", target, reason)
    _check_data(arguments, where)
    for key, value in arguments.items():
        if key != MASK_FUNCTION and not known.get(key, _never)(value):
            reason = (
                "the wrapper takes no such argument" if key not in known else "it is none of the usual values"
            )
            raise UntrustedError(f"{where}.{key}", value, reason)


def _never(value: Any) -> bool:
    return False


def _check_data(value: Any, where: str) -> None:
    """Refuse what Hydra, OmegaConf, Gymnasium or an environment would import or resolve."""
    for path, key, item in walk(value, where):
        if key in HYDRA_KEYS or (where.startswith("env") and key in CODE_KEYS):
            raise UntrustedError(path, item, "it could name code to run")
        if key == MASK_FUNCTION and item not in MASK_METHODS:
            raise UntrustedError(path, item, "it is none of the usual names of a method that gives masks")
        if where.startswith("env") and key in WINDOWS and item not in (None, False):
            raise UntrustedError(path, item, "it could open a window")
        for text in (key, item):
            if isinstance(text, str) and "${" in text:
                raise UntrustedError(path, text, "it is an interpolation")
        if path.startswith(ARGUMENTS) and isinstance(item, str):
            if _could_name_file(item):
                raise UntrustedError(path, item, "an environment could take it for a file")
            if _could_name_code(item):
                raise UntrustedError(path, item, "an environment could take it for the name of code")


def _check_files(env: Mapping[str, Any]) -> None:
    """Refuse arguments that name a file, a program or a machine."""
    for path, key, item in walk(env, "env"):
        if isinstance(key, str) and item is not None and FILE_WORDS & set(re.split(r"[^a-z]+", key.lower())):
            raise UntrustedError(path, item, "it names a file, a program or a machine")


def _could_name_file(text: str) -> bool:
    return text.startswith(("~", ".")) or ".." in text or "/" in text or "\\" in text


def _could_name_code(text: str) -> bool:
    """Tell whether a text is like ``module:Name`` or ``module.Name``, whatever a module may be called.

    Some environments import what their arguments name so, and a module's file may have any name: with blanks,
    of digits, before nothing at all.
    """
    return any(separator in text[1:] for separator in ".:")


def _is_own_policy(target: Any) -> bool:
    if not isinstance(target, str):
        return False
    module, _, name = target.rpartition(".")
    return name in OWN_POLICIES.get(module.removeprefix("zoo.policies."), ()) and module.startswith("zoo.")
