"""Arguments of all algorithms' constructors and of `predict`, and the errors for invalid ones."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import numpy as np
from gymnasium import spaces
from torch import nn

from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.buffers.arrays import Arrays, n_rows, transform
from zoo.buffers.config import HindsightConfig
from zoo.config.aliases import ATTRIBUTES, UnknownKeyError, refuse_unknown_arguments
from zoo.config.fields import build, defaults, hyperparameter, schedules_of
from zoo.config.user_files import check_arguments, named_class, own_class, path_of_class
from zoo.envs.config import EnvConfig
from zoo.envs.masks import flat_mask
from zoo.envs.spaces import choice_sizes, describe, flat_parts, is_image, misfit
from zoo.envs.wrappers import MASK_KEY
from zoo.errors import NotFiniteError, ZooError, ZooWarning, nearest
from zoo.policies.config import POLICIES, PolicyConfig, policy_preset, with_dict_encoder
from zoo.policies.encoders import actor_space, is_board, suits_cnn

if TYPE_CHECKING:
    from zoo.algorithms.agent import Agent

# -- hyperparameters --------------------------------------------------------------------------------------

SECTIONS = {"policy": PolicyConfig, "env": EnvConfig, "replay.hindsight": HindsightConfig}


def built_config(algorithm: type[Agent], hyperparameters: Mapping[str, Any]) -> Any:
    """Return the config of an algorithm. Raises `ZooError`, with the section that has an unknown name."""
    name, label = algorithm.name, algorithm.__name__
    try:
        return build(algorithm.config_class, hyperparameters, name)
    except ZooError as error:
        message = str(error)
        if isinstance(error, UnknownKeyError) and not error.is_sure:
            message = str(UnknownKeyError(error.key, [*inspect.signature(algorithm).parameters], name))
            places = [section for section, kind in SECTIONS.items() if error.key in kind.__annotations__]
            if places:
                message = f"unknown key `{error.path}`: it is `{places[0]}.{error.key}` here"
        raise ZooError(message.replace(f"`{name}.", f"`{label}.")) from None


def checked_attribute(model: Agent, name: str, value: Any) -> tuple[str, Any]:
    """Return a new attribute and its value: the config for a hyperparameter that follows a schedule.

    Such a value counts from the next update on. Raises `ZooError` for a hyperparameter that is read only when
    the model is made, and for a name that nothing reads.
    Private names, and all names of a user's own class, may be set.
    """
    kind, attributes = type(model), vars(model)
    if name in ("policy", "config") or name in ATTRIBUTES:
        raise ZooError(f"{kind.__name__}.{name} is fixed after construction")
    if name in vars(model.config):
        config = build(type(model.config), {**vars(model.config), name: value}, kind.__name__)
        if name in model.schedules and name in (schedules := schedules_of(config)):
            model.schedules = schedules
            return "config", config
        raise ZooError(
            f"{kind.__name__}.{name} is fixed after construction;"
            f" to change it: zoo.load(model.save(PATH), env, {name}=…)"
        )
    is_own = name.startswith("_") or not kind.__module__.startswith("zoo.")
    if not is_own and not hasattr(kind, name):
        declared = {declared for base in kind.__mro__ for declared in inspect.get_annotations(base)}
        if name not in declared:
            hint = nearest(name, {*attributes, *vars(model.config), *declared})
            raise ZooError(f"{kind.__name__} has no attribute '{name}' that could be set{hint}")
    return name, value


def short_description(model: Agent) -> str:
    """Return a model as Python's prompt shows it."""
    env: Any = model.env_config or (model.envs and model.envs.env.spec)
    name = f"on {env.id}" if env is not None else f"of {describe(model.observation_space)}"
    envs = "" if model.envs is None else f", {model.n_envs} env{'s' * (model.n_envs != 1)}"
    counts = f"{model.policy_config.name}{envs}, {model.num_timesteps:,} steps, seed {model.seed}"
    return f"<{type(model).__name__} {name}: {counts}>"


# -- policies ---------------------------------------------------------------------------------------------

Policy = str | PolicyConfig | Mapping[str, Any] | type[nn.Module]
"""A name, fields, all of them, or a class of the user's own."""

Module = TypeVar("Module", bound=nn.Module)


def policy_config(policy: Policy, observation_space: spaces.Space[Any]) -> PolicyConfig:
    """Return all fields of a policy. Raises `ZooError` for what is none."""
    if isinstance(policy, PolicyConfig):
        config = policy
    elif isinstance(policy, str):
        config = policy_preset(policy)
    elif isinstance(policy, type):
        path = path_of_class(policy, "policy")
        if not issubclass(policy, nn.Module):
            raise ZooError(f"policy={path} is no policy; one is derived from a class in zoo.policies")
        config = PolicyConfig(name=policy.__name__, _target_=path)
    elif isinstance(policy, Mapping):
        preset = POLICIES.get(policy.get("name", ""))
        values = {**({} if preset is None else dataclasses.asdict(preset)), **policy}
        for network in ("actor", "critic"):
            of_preset = None if preset is None else getattr(preset, network)
            if of_preset is not None and isinstance(given := policy.get(network), Mapping):
                values[network] = {**dataclasses.asdict(of_preset), **given}
        if (encoder := policy.get("encoder")) is not None:
            encoder = {"_target_": encoder} if isinstance(encoder, type) else encoder
            values["encoder"] = named_class(encoder, "policy.encoder")
        config = build(PolicyConfig, values, "policy")
    else:
        raise ZooError(
            f"policy is a {type(policy).__name__}; expected a name such as 'MlpPolicy', a dictionary of"
            " fields, a PolicyConfig or a class of your own"
        )
    if isinstance(observation_space, spaces.Dict):
        config = with_dict_encoder(config)
    elif config.encoder == "mlp" and config._target_ is None and not config.flatten_images:
        config = dataclasses.replace(config, encoder="small_cnn" if is_board(observation_space) else "mlp")
    return config


def make_policy(
    policy_class: type[Module],
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    config: PolicyConfig,
    **options: Any,
) -> Module:
    """Return ``policy_class``, or the subclass of it that ``policy._target_`` names, for these spaces.

    Raises `ZooError` for a class that can't be found, or that can't be made with ``policy.kwargs``.
    """
    if config._target_ is not None:
        policy_class = own_class("policy", config._target_, policy_class)
    elif config.kwargs:
        raise ZooError("`policy.kwargs` are for a policy of your own; name its class in `policy._target_`")
    arguments = observation_space, action_space, config
    check_arguments("policy.kwargs", policy_class, arguments, config.kwargs, options)
    return policy_class(*arguments, **options, **config.kwargs)


def warn_of_unread_images(observation_space: spaces.Space[Any], config: PolicyConfig) -> None:
    """Warn if an MLP policy is used for image observations."""
    if suits_cnn(observation_space) and config.encoder == "mlp":
        message = f"{config.name} reads each pixel by itself; policy=CnnPolicy sees what stands beside what"
        warnings.warn(message, ZooWarning, stacklevel=4)


def check_action_space(
    name: str, action_space: spaces.Space[Any], supported: tuple[type[spaces.Space[Any]], ...]
) -> None:
    """Raise `ZooError`, which names the algorithms that can, where one can't act in an action space."""
    if isinstance(action_space, supported):
        return
    names = " or ".join(space.__name__ for space in supported)
    others = [n for n in ALGORITHMS if isinstance(action_space, algorithm_class(n).supported_actions)]
    hint = f"; {', '.join(others)} can take them" if others else ""
    raise ZooError(f"{name} acts in {names} spaces, but the env's actions are {describe(action_space)}{hint}")


def check_recurrence(name: str, policy: PolicyConfig, *, is_recurrent: bool) -> None:
    """Raise `ZooError` for a recurrent policy of an algorithm that has none."""
    if policy.recurrent is not None and policy._target_ is None and not is_recurrent:
        recurrent_ones = [other for other in ALGORITHMS if algorithm_class(other).has_recurrence]
        raise ZooError(
            f"{name} has no recurrent policies (`policy.recurrent={policy.recurrent}`, {policy.name});"
            f" {', '.join(recurrent_ones)} have"
        )


# -- observations for `predict` ------------------------------------------------------------------------------


def policy_input(
    model: Agent, observations: Any, state: Any, episode_start: Any, action_masks: Any
) -> tuple[dict[str, Any], bool]:
    """Return a policy's input for raw observations, and whether they were of one environment.

    Raises `ZooError` for a state, masks or observations that do not fit.
    """
    if action_masks is None and model.masks_actions and isinstance(observations, Mapping):
        action_masks = observations.get(MASK_KEY)
    if action_masks is None and model.masks_actions and not model._warned_of_masks:
        model._warned_of_masks = True
        message = "predict() was called without `action_masks`, which this agent needs for valid actions"
        warnings.warn(message, ZooWarning, stacklevel=4)
    space = actor_space(model.observation_space, model.policy_config)
    was_tuple = isinstance(model.observation_space, spaces.Dict) and any(
        key[:2] in ("0", "0/") for key in model.observation_space
    )  # before it was made flat
    batch, is_single = _raw_batch(space, observations, was_tuple=was_tuple)
    if space is not model.observation_space:  # zeros for the critic, which actions do not depend on
        parts, n = model.observation_space.spaces, n_rows(batch)  # type: ignore[attr-defined]
        zeros = {key: np.zeros((n, *part.shape), part.dtype) for key, part in parts.items()}
        first = {key: array + getattr(parts[key], "start", 0) for key, array in zeros.items()}
        batch = {**first, **batch}
    if model.normalizer is not None:
        batch = model.normalizer.normalize_observations(batch)
    inputs: dict[str, Any] = {"observations": batch}
    n, state_size = n_rows(inputs), model.acting.state_size
    if action_masks is not None:
        masks = [action_masks] if is_single else action_masks
        inputs["action_masks"] = _mask_rows(masks, n, model.action_space, model.acting.head.mask_size)
    if episode_start is not None:
        inputs["episode_starts"] = np.atleast_1d(np.asarray(episode_start, np.bool_))
    expected = {"state": (state, (n, state_size)), "episode_start": (inputs.get("episode_starts"), (n,))}
    for name, (array, shape) in expected.items():
        if state_size and array is not None and np.shape(array) != shape:
            raise ZooError(f"`{name}` of shape {np.shape(array)} does not fit: expected {shape}")
    return inputs, is_single


def _raw_batch(space: spaces.Space[Any], observations: Any, *, was_tuple: bool) -> tuple[Arrays, bool]:
    """Return raw observations as a batch (n, …), and whether they were of one environment."""
    if isinstance(observations, tuple) and len(observations) == 2 and isinstance(observations[1], dict):
        raise ZooError("these are observations and infos of reset(); predict takes the first of both")
    by_name: dict[str, tuple[spaces.Space[Any], Any]] = {"observations": (space, observations)}
    if isinstance(space, spaces.Dict):
        if was_tuple or isinstance(observations, Mapping):
            observations = dict(flat_parts(space, observations))
        if not isinstance(observations, Mapping) or space.spaces.keys() - observations.keys():
            raise ZooError(f"expected a dictionary of observations: {describe(space)}")
        observations = {key: observations[key] for key in space.spaces}
        by_name = {key: (part, observations[key]) for key, part in space.spaces.items()}
    sizes = {name: _batch_size(name, part, values) for name, (part, values) in by_name.items()}
    if len(set(sizes.values())) > 1:
        raise ZooError(f"the parts are batches of different sizes (None: one observation): {sizes}")
    is_single = None in sizes.values()
    rows = None if is_single else slice(None)
    return transform(lambda values: np.asarray(values, order="C")[rows], observations), is_single


def _batch_size(name: str, part: spaces.Space[Any], values: Any) -> int | None:
    """Return the length of a batch, None for one observation. Raises `ZooError` for what can't be either."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ZooError(f"`{name}` are parts of several shapes, not one array: {error}") from error
    shape = tuple(part.shape or ())
    if array.dtype.kind not in "biuf":
        raise ZooError(f"`{name}` are {type(values).__name__}, not numbers; expected {describe(part)}")
    if array.shape != shape and array.shape[1:] != shape:
        raise ZooError(f"`{name}` of shape {array.shape} are neither one of shape {shape} nor a batch")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise NotFiniteError(f"`{name}` has {array[~np.isfinite(array)][0]}; a policy needs finite numbers")
    if not isinstance(part, spaces.Box) or is_image(part):
        problem = misfit(array, part, array.shape[: array.ndim - len(shape)])
        if problem is not None:
            raise ZooError(f"`{name}` has {problem}; expected {describe(part)}")
    return None if array.shape == shape else len(array)


def _mask_rows(action_masks: Any, n: int, action_space: spaces.Space[Any], size: int | None) -> np.ndarray:
    """Return ``n`` masks in any form as rows (n, ``size``). Raises `ZooError` for those that don't fit."""
    if size is None:
        raise ZooError(f"`action_masks` can't be taken: {describe(action_space)} has no masks")
    is_one_row = n == 1 and isinstance(action_masks, np.ndarray) and action_masks.ndim == 1
    rows = [flat_mask(mask, action_space) for mask in ([action_masks] if is_one_row else action_masks)]
    if len(rows) != n or any(len(row) != size for row in rows):
        sizes = f"{len(rows)} masks with {sorted({len(row) for row in rows})} entries"
        expected = f"{n} × {size}: a row an observation, an entry for each choice of {describe(action_space)}"
        raise ZooError(f"`action_masks`: {sizes} don't fit, expected {expected}")
    masks = np.stack(rows)
    starts = np.cumsum([0, *choice_sizes(action_space)[:-1]])
    if not np.logical_or.reduceat(masks, starts, axis=-1).all():
        raise ZooError("an action mask forbids every action; each row must leave at least one")
    return masks


# -- state-dependent exploration --------------------------------------------------------------------------


@dataclass
class SdeConfig:
    """Hyperparameters of the algorithms that have state-dependent exploration."""

    use_sde: bool = hyperparameter(False, "state-dependent exploration (gSDE), for Box actions")
    sde_sample_freq: int = hyperparameter(
        -1, "steps after which gSDE draws a new function; -1: when a collection starts", unit="steps", ge=-1
    )


def sde_options(use_sde: bool, action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the policy's gSDE arguments: none without gSDE, so that not every class needs to accept them.

    Raises `ZooError` for actions that are not Box.
    """
    if not use_sde:
        return {}
    if not isinstance(action_space, spaces.Box):
        raise ZooError(f"`algo.use_sde=true` is for Box actions, but the env's are {describe(action_space)}")
    return {"use_sde": True}


# -- what `help` shows of a constructor -------------------------------------------------------------------


def signature_of(algorithm: type[Any], config_class: type[Any]) -> inspect.Signature:
    """Return the constructor's arguments, and each hyperparameter by name with its type and default."""
    params: dict[str, inspect.Parameter] = {}
    for owner in algorithm.__mro__:
        if "__init__" not in vars(owner):
            continue
        *named, last = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
        hands_on = last.kind is last.VAR_KEYWORD
        is_by_name = bool(params)  # what a subclass hands on
        for param in named if hands_on else [*named, last]:
            params.setdefault(param.name, param.replace(kind=param.KEYWORD_ONLY) if is_by_name else param)
        if not hands_on:
            return inspect.Signature(list(params.values()))
        if last.name == "hyperparameters":
            break
    for name, default in _defaults(config_class).items():
        param = params.get(name, last).replace(name=name, annotation=spelled_type(config_class, name))
        kind = param.kind if name in params else param.KEYWORD_ONLY
        if name not in params or (name == "learning_rate" and param.default is None):
            params[name] = param.replace(kind=kind, default=default)
    return inspect.Signature(list(params.values()))


def describe_constructor(algorithm: type[Any]) -> None:
    """Put hyperparameters into signature and docstring; let the constructor name wrong arguments."""
    if "__init__" in vars(algorithm):
        algorithm.__init__ = refuse_unknown_arguments(algorithm.__init__)
    if (config_class := getattr(algorithm, "config_class", None)) is not None:
        algorithm.__signature__ = signature_of(algorithm, config_class)
        doc = inspect.cleandoc(algorithm.__doc__ or algorithm.__name__)
        algorithm.__doc__ = f"{doc}\n\n{described(config_class)}"


def described(config_class: type[Any]) -> str:
    """Return a paragraph of lines, one a hyperparameter: type, default, range and meaning."""
    lines, default = ["Hyperparameters:"], _defaults(config_class)
    for field in dataclasses.fields(config_class):
        kind, unit = spelled_type(config_class, field.name), field.metadata.get("unit")
        meaning = f"{field.metadata.get('help', '')}{f' [{unit}]' if unit else ''}"
        text = f"{field.name} ({kind}, default {default[field.name]!r}{_range(field)}): {meaning}"
        lines += textwrap.wrap(text, 100, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def spelled_type(config_class: type[Any], name: str) -> str:
    """Return a field's type as the class that declares it spells it."""
    declared = (inspect.get_annotations(owner).get(name) for owner in config_class.__mro__)
    hint = inspect.formatannotation(get_type_hints(config_class)[name])
    return next((kind for kind in declared if isinstance(kind, str)), hint)


def _defaults(config_class: type[Any]) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(config_class))
    return dict.fromkeys(names, inspect.Parameter.empty) | defaults(config_class)


def _range(field: dataclasses.Field[Any]) -> str:
    if field.metadata.get("choices"):
        return f", one of {', '.join(map(repr, field.metadata['choices']))}"
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return "".join(f", {signs[name]} {bound:g}" for name, bound in field.metadata.get("bounds", {}).items())
