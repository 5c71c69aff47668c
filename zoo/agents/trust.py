"""What in a stranger's config could run code of its maker's choice, and is refused unless the user trusts it.

An agent is data, but three things in its config name code: an environment's id (``module:Id`` imports the
module), wrappers by ``_target_``, and a policy by ``_target_``; a run's config names callbacks and trackers
beside them. From an agent or a run of unknown origin Zoo follows these names only where they stand in a list
of its own: nothing is imported to find out. Everything else that another program might read as code (Hydra's
keys, OmegaConf's interpolations, entry points), as a file, or as a program has no place there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zoo.agents.known_wrappers import WRITES_FILES, known_arguments
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

_ARGUMENTS = ("env.kwargs", "env.wrappers")
_ENV_ID = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*")
ENVPOOL_PREFIX = "envpool:"

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

MULTIPLYING = ("frame_stack", "history", "stack_size", "horizon", "delay", "n", "shape", "screen_size")
PRODUCT_LIMIT = 10**8
"""What these together may make of one number of an observation."""

FILE_WORDS = {
    *("file", "files", "filename", "path", "paths", "dir", "directory", "folder", "fname"),
    *("exe", "executable", "binary", "program", "command", "cmd", "shell", "plugin", "library"),
    *("url", "uri", "host", "hostname", "address", "port", "socket", "module", "credentials"),
}
"""Words in the name of an argument that tells an environment what to open, start or connect to."""


class _UntrustedError(Exception):
    """Something that a stranger may not say: where, what, and why."""

    def __init__(self, path: str, value: Any, reason: str) -> None:
        super().__init__(path, value, reason)
        self.path, self.value, self.reason = path, value, reason


def refuse_foreign_code(
    config: Mapping[str, Any], origin: str, *, own_env: bool = False, own_run: bool = False
) -> None:
    """Raise `ZooError` for the first thing in an agent's config that could run code from outside Zoo.

    ``origin`` names the agent in the message. With ``own_env`` the section ``env`` is left unchecked, because
    the caller brings an environment of their own and builds nothing from it; with ``own_run`` ``policy`` is
    too, because both are those of a run of the user's own (`zoo.agents.own_runs`).
    """
    try:
        _check_config(config, own_env=own_env, own_run=own_run)
    except _UntrustedError as error:
        raise _refused(f"the agent in {origin}", error, "load it with trust=true") from error


def refuse_foreign_environment(
    env: Mapping[str, Any] | None, origin: str, *, named_by_user: str | None = None
) -> None:
    """Raise `ZooError` if an agent's environment could run foreign code.

    An id equal to ``named_by_user`` (the user typed it) may import its module.
    """
    try:
        _check_environment(env, named_by_user)
    except _UntrustedError as error:
        raise _refused(f"the agent in {origin}", error, "load it with trust=true") from error


def refuse_foreign_run(config: Mapping[str, Any], origin: str, remedy: str = "add trust=true") -> None:
    """Raise `ZooError` for the first thing in a run's config that a stranger's may not ask for.

    That is what an agent's may not, and to read or write elsewhere, or to send anything.
    """
    try:
        for key in ELSEWHERE:
            if config.get(key) is not None:
                raise _UntrustedError(key, config[key], "it reads what is not in the run")
        if "hydra" in config:
            raise _UntrustedError("hydra", "…", "it could name code to run")
        algo = config.get("algo")
        algo = algo if isinstance(algo, Mapping) else {}
        for key in ("name", "preset"):
            if algo.get(key) is not None and not re.fullmatch(r"[A-Za-z]\w*", str(algo[key])):
                raise _UntrustedError(f"algo.{key}", algo[key], "it is no name")
        _check_config(config)
        _check_networks(config)
        pretrain, logger = config.get("pretrain"), config.get("logger")
        if isinstance(pretrain, Mapping) and pretrain.get("dataset") is not None:
            raise _UntrustedError("pretrain.dataset", pretrain["dataset"], "it reads what is not in the run")
        if isinstance(logger, Mapping) and logger.get("wandb") is not None:
            raise _UntrustedError("logger.wandb", logger["wandb"], "it sends the run to others")
    except _UntrustedError as error:
        raise _refused(origin, error, remedy) from error


WEIGHTS_LIMIT = 10**8
"""Weights that the layers of one network of a stranger's run may have."""
LAYERS_LIMIT = 100
MOST = {"n_critics": 100, "n_quantiles": 10_000, "n_delta": 10_000, "n_top": 10_000, "n_minibatches": 10**6}
ROLLOUT_LIMIT = 10**7
"""Steps of all environments that it may keep before an update."""


def _check_networks(config: Mapping[str, Any]) -> None:
    """Refuse networks and rollouts that no memory holds: a run has no weights with which to compare them."""
    policy, algo = (config.get(name) for name in ("policy", "algo"))
    policy, algo = (each if isinstance(each, Mapping) else {} for each in (policy, algo))
    for key, value in policy.items():
        for widths in _lists_of_widths(value):
            pairs = zip([widths[0], *widths], [*widths, widths[-1]], strict=True)
            if len(widths) > LAYERS_LIMIT or sum(a * b for a, b in pairs) > WEIGHTS_LIMIT:
                reason = f"these are more than {LAYERS_LIMIT} layers or {WEIGHTS_LIMIT:,} weights"
                raise _UntrustedError(f"policy.{key}", value, reason)
    for key, most in MOST.items():
        value = algo.get(key)
        if isinstance(value, int) and value > most:
            raise _UntrustedError(f"algo.{key}", value, f"it is more than {most:,}")
    n_steps, n_envs = algo.get("n_steps"), config.get("n_envs")
    sizes = [each if isinstance(each, int) else 1 for each in (n_steps, n_envs)]
    if sizes[0] * sizes[1] > ROLLOUT_LIMIT:
        raise _UntrustedError("algo.n_steps", n_steps, f"with n_envs it is more than {ROLLOUT_LIMIT:,}")


def _lists_of_widths(value: Any) -> Iterator[list[int]]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _lists_of_widths(each)
        return
    values = value if isinstance(value, list) else [value]
    widths = [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
    if widths:
        yield widths


ELSEWHERE = ("init_from", "dataset", "experiment")
"""Settings of a run that name files of whoever trains it."""


def _check_config(config: Mapping[str, Any], *, own_env: bool = False, own_run: bool = False) -> None:
    sections = {name: value for name, value in config.items() if name not in ("env", "policy")}
    _check_data(sections, "")
    if not own_run:
        _check_policy(config.get("policy"))
    if not own_run and not own_env:
        _check_environment(config.get("env"), None)


def _check_environment(env: Any, named_by_user: str | None) -> None:
    if env is None:
        return
    if not isinstance(env, Mapping):
        raise _UntrustedError("env", env, "it is no mapping")
    env_id = env.get("id")
    if env_id is None or env_id != named_by_user:
        if isinstance(env_id, str) and env_id.startswith(ENVPOOL_PREFIX):
            raise _UntrustedError("env.id", env_id, "EnvPool's arguments and files are not known")
        if not (isinstance(env_id, str) and _ENV_ID.fullmatch(env_id)):
            raise _UntrustedError("env.id", env_id, "it would import a module")
    wrappers = env.get("wrappers") or []
    if not isinstance(wrappers, list):
        raise _UntrustedError("env.wrappers", wrappers, "it is not a list")
    if env.get("render_mode") is not None:
        raise _UntrustedError("env.render_mode", env["render_mode"], "it could open a window")
    _check_sizes(env)
    for index, wrapper in enumerate(wrappers):
        _check_wrapper(wrapper, f"env.wrappers[{index}]")
    _check_data({key: value for key, value in env.items() if key not in ("id", "wrappers")}, "env")
    _check_files(env)


def _check_policy(policy: Any) -> None:
    if policy is None:
        return
    if not isinstance(policy, Mapping):
        raise _UntrustedError("policy", policy, "it is no mapping")
    target = policy.get("_target_")
    if target is not None and not _is_own_policy(target):
        raise _UntrustedError("policy._target_", target, "it names no policy of zoo.policies")
    _check_data({key: value for key, value in policy.items() if key != "_target_"}, "policy")


def _check_wrapper(wrapper: Any, where: str) -> None:
    if isinstance(wrapper, str):
        wrapper = {"_target_": wrapper}
    if not isinstance(wrapper, Mapping):
        raise _UntrustedError(where, wrapper, "it is neither a name nor a mapping")
    target, arguments = wrapper.get("_target_"), {k: v for k, v in wrapper.items() if k != "_target_"}
    known = known_arguments(target)
    if known is None:
        reason = "it is none of the wrappers of zoo.envs and gymnasium.wrappers that do nothing else"
        if isinstance(target, str) and target.rpartition(".")[2] in WRITES_FILES:
            reason = "it writes files"
        if target is None:
            _check_data(arguments, where)
        raise _UntrustedError(f"{where}._target_", target, reason)
    _check_data(arguments, where)
    for key, value in arguments.items():
        if key != MASK_FUNCTION and not known.get(key, _never)(value):
            reason = (
                "the wrapper takes no such argument" if key not in known else "it is none of the usual values"
            )
            raise _UntrustedError(f"{where}.{key}", value, reason)


def _never(value: Any) -> bool:
    return False


def _check_data(value: Any, where: str) -> None:
    """Refuse what Hydra, OmegaConf, Gymnasium or an environment would import or resolve."""
    for path, key, item in _walk(value, where):
        if key in HYDRA_KEYS or (where.startswith("env") and key in CODE_KEYS):
            raise _UntrustedError(path, item, "it could name code to run")
        if key == MASK_FUNCTION and item not in MASK_METHODS:
            raise _UntrustedError(path, item, "it is none of the usual names of a method that gives masks")
        if where.startswith("env") and key == "render_mode" and item is not None:
            raise _UntrustedError(path, item, "it could open a window")
        for text in (key, item):
            if isinstance(text, str) and "${" in text:
                raise _UntrustedError(path, text, "it is an interpolation")
        if path.startswith(_ARGUMENTS) and isinstance(item, str):
            if _could_name_file(item):
                raise _UntrustedError(path, item, "an environment could take it for a file")
            if _could_name_code(item):
                raise _UntrustedError(path, item, "an environment could take it for the name of code")


def _check_files(env: Mapping[str, Any]) -> None:
    """Refuse arguments that name a file, a program or a machine."""
    for path, key, item in _walk(env, "env"):
        if isinstance(key, str) and item is not None and FILE_WORDS & set(re.split(r"[^a-z]+", key.lower())):
            raise _UntrustedError(path, item, "it names a file, a program or a machine")


def _check_sizes(env: Mapping[str, Any]) -> None:
    """Refuse arguments that ask for more than any environment needs."""
    n_characters, product = 0, 1.0
    for path, _, item in _walk(env, "env"):
        if isinstance(item, Mapping | list) and len(item) > LIST_LIMIT:
            raise _UntrustedError(path, f"{len(item):,} values", f"these are more than {LIST_LIMIT:,}")
        if isinstance(item, str):
            n_characters += len(item)
            if path.startswith(_ARGUMENTS) and len(item) > TEXT_LIMIT:
                raise _UntrustedError(path, item, f"it has more than {TEXT_LIMIT:,} characters")
        if n_characters > TEXTS_LIMIT:
            raise _UntrustedError(path, item, f"texts before it have {TEXTS_LIMIT:,} characters already")
        name = path.rpartition(".")[2].partition("[")[0]
        limit = LARGEST.get(name, NUMBER_LIMIT if path.startswith(_ARGUMENTS) else None)
        is_steps = path.startswith("env.wrappers") and name == "max_episode_steps"
        is_count = isinstance(item, int) or (isinstance(item, float) and name in LARGEST)
        if limit is not None and not is_steps and is_count and not abs(item) <= limit:  # nor is it NaN
            raise _UntrustedError(path, item, f"it is more than {limit:,}")
        if name in MULTIPLYING and is_count and item:
            product *= abs(item)
        if not product <= PRODUCT_LIMIT:
            raise _UntrustedError(path, item, f"sizes multiply to more than {PRODUCT_LIMIT:,}")


def _could_name_file(text: str) -> bool:
    return text.startswith(("~", ".")) or ".." in text or "/" in text or "\\" in text


def _could_name_code(text: str) -> bool:
    """Tell whether a text is like ``module:Name`` or ``module.Name``, whatever a module may be called.

    Some environments import what their arguments name so, and a module's file may have any name: with blanks,
    of digits, before nothing at all.
    """
    return any(separator in text[1:] for separator in ".:")


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


def _is_own_policy(target: Any) -> bool:
    if not isinstance(target, str):
        return False
    module, _, name = target.rpartition(".")
    return name in OWN_POLICIES.get(module.removeprefix("zoo.policies."), ()) and module.startswith("zoo.")


def _refused(who: str, error: _UntrustedError, remedy: str) -> ZooError:
    return ZooError(
        f"{who} asks for `{one_line(error.path)}: {one_line(error.value, 80)}`, refused because"
        f" {error.reason}; if you know where it comes from, {remedy}"
    )
