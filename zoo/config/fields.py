"""Declaring a value once: type, default, range, unit and one line of meaning, all in a dataclass field.

From the same declaration come the constructor, the check of what a user wrote, the YAML defaults,
the table in the documentation and the bounds of a search space.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from zoo.config.variants import variant_of
from zoo.errors import ZooError
from zoo.files.printing import one_line

Config = TypeVar("Config")

Schedule = float | str | dict[str, Any]
"""A number, ``"lin_3e-4"``, or ``{type: linear, start: 3e-4, end: 0}``: see `zoo.optim.schedules`."""

OLD_NAMES = {
    "lam": "gae_lambda",
    "nminibatches": "n_minibatches",
    "noptepochs": "n_epochs",
    "cliprange": "clip_range",
    "cliprange_vf": "clip_range_vf",
    "lr_schedule": "learning_rate",
    "alpha": "rms_prop_decay",
    "epsilon": "rms_prop_eps",
    "rprop_alpha": "rms_prop_decay",
    "rprop_epsilon": "rms_prop_eps",
    "double_q": "double",
    "target_network_update_freq": "target_update_interval",
    "param_noise": "parameter_noise",
    "timesteps_per_batch": "n_steps",
    "max_kl": "target_kl",
    "entcoeff": "ent_coef",
    "vf_stepsize": "learning_rate",
    "vf_iters": "n_critic_updates",
    "cg_iters": "cg_max_steps",
    "adam_epsilon": "adam_eps",
    "schedule": "learning_rate",
    "optim_stepsize": "learning_rate",
    "optim_batchsize": "batch_size",
    "optim_epochs": "n_epochs",
    "timesteps_per_actorbatch": "n_steps",
    "clip_param": "clip_range",
    "nb_rollout_steps": "train_freq",
    "nb_train_steps": "gradient_steps",
    "prioritized_replay": "memory.prioritized",
    "prioritized_replay_alpha": "memory.prioritized.alpha",
    "prioritized_replay_beta0": "memory.prioritized.beta",
    "prioritized_replay_beta_iters": "memory.prioritized.beta_fraction",
    "prioritized_replay_eps": "memory.prioritized.epsilon",
    "n_steps": "memory.n_step",
    "actor_lr": "actor_learning_rate",
    "critic_lr": "learning_rate",
    "clip_norm": "max_grad_norm",
    "memory_limit": "buffer_size",
    "initial_stddev": "initial_std",
    "desired_action_stddev": "desired_action_std",
    "adoption_coefficient": "adaptation_coefficient",
    "hidden_size_adversary": "d_net_arch",
    "adversary_entcoeff": "d_ent_coef",
    "d_stepsize": "d_learning_rate",
}
"""Stable-Baselines' names and the ones that replaced them, with their section where it is another."""

ELSEWHERE = {
    "normalize_observations": "env.normalize",
    "observation_range": "env.normalize.clip_obs",
    "policy": "policy",
    "policy_kwargs": "policy",
    "net_arch": "policy.net_arch",
    "activation_fn": "policy.activation",
    "features_extractor_class": "policy.encoder",
    "features_extractor_kwargs": "policy.features_dim",
    "features_dim": "policy.features_dim",
    "share_features_extractor": "policy.share_encoder",
    "ortho_init": "policy.ortho_init",
    "log_std_init": "policy.log_std_init",
    "full_std": "policy.full_std",
    "use_expln": "policy.use_expln",
    "squash_output": "policy.squash_output",
    "clip_mean": "policy.clip_mean",
    "n_lstm": "policy.lstm_hidden_size",
    "lstm_hidden_size": "policy.lstm_hidden_size",
    "n_lstm_layers": "policy.n_lstm_layers",
    "replay_buffer_class": "memory",
    "replay_buffer_kwargs": "memory",
    "goal_selection_strategy": "memory.hindsight.goal_selection_strategy",
    "n_sampled_goal": "memory.hindsight.n_sampled_goal",
    "n_step": "memory.n_step",
    "noise_type": "algo.action_noise.type",
    "noise_std": "algo.action_noise.std",
    "env": "env",
    "env_kwargs": "env.kwargs",
    "env_wrapper": "env.wrappers",
    "vec_env_wrapper": "env.wrappers",
    "vec_env_class": "env.vectorization",
    "frame_stack": "env.frame_stack",
    "normalize": "env.normalize",
    "normalize_kwargs": "env.normalize",
    "monitor_kwargs": "env.info_keywords",
    "n_envs": "n_envs",
    "n_timesteps": "n_timesteps",
    "seed": "seed",
    "device": "device",
    "callback": "callbacks",
    "expert_dataset": "dataset",
    "traj_limitation": "algo.n_episodes",
}
"""Names that Stable-Baselines and its Zoo have for what stands in another section here."""

FLAGS = {
    "eval_freq": ("callbacks", "is `callbacks.eval.every` here"),
    "eval_episodes": ("callbacks", "is `callbacks.eval.n_episodes` here"),
    "n_eval_episodes": ("callbacks", "is `callbacks.eval.n_episodes` here"),
    "save_freq": ("callbacks", "is `callbacks.checkpoint.every` here"),
    "track": ("logger", "is `logger=wandb` here"),
    "trained_agent": ("init_from", "is `init_from` here"),
    "hyperparams": ("tuned", "are keys of `algo` here, such as `algo.gamma=0.98`"),
    "conf_file": ("tuned", "is `tuned` here"),
    "vec_env": ("tuned", "is `env.vectorization` here"),
    "stochastic": ("deterministic", "is `deterministic=false` here"),
    "folder": ("runs_dir", "is `runs_dir` here"),
    "load_best": ("agent", "needs no key here: of a run the best agent is taken anyway"),
}
"""Flags of Stable-Baselines3's Zoo: a key of the commands for which this holds, and what is said."""

_TOLD = "in Python a LoggingCallback"

NOT_CHOSEN = {
    "verbose": f"`verbose` of zoo train says what is printed, {_TOLD}",
    "tensorboard_log": f"`logger.tensorboard=true` of zoo train writes what TensorBoard reads, {_TOLD}",
    "progress_bar": "`progress_bar` of zoo train shows a bar, in Python a ProgressBarCallback",
    "log_interval": f"`logger.every` of zoo train says how often something is logged, {_TOLD}",
    "tb_log_name": f"what TensorBoard reads is called after the run's folder, {_TOLD} says where it is",
    "stats_window_size": "means over episodes are always those of the last 100",
    "handle_timeout_termination": "episodes that are cut short are always told from those that end",
    "copy_info_dict": "compute_reward is always asked with an empty info",
    "online_sampling": "goals are always chosen when a batch is drawn",
    "max_episode_length": "memories need not know how long episodes are; `env.max_episode_steps` limits them",
    "normalize_images": "pictures of bytes are always divided by 255",
    "optimizer_class": "the optimizer is the algorithm's: Adam, or RMSprop (a2c's `algo.use_rms_prop`)",
    "optimizer_kwargs": "the optimizer is the algorithm's; a2c has `rms_prop_eps` and `rms_prop_decay`",
    "async_eigen_decomp": "acktr's inverses are made between updates, after every `kfac_update` of them",
    "n_critics": "this algorithm has one critic, or none; sac, td3 and tqc have several",
    "enable_critic_lstm": "`policy.critic_lstm=separate` gives the critic a memory, `none` gives it none",
    "shared_lstm": "`policy.critic_lstm=detached` lets the critic read the actor's memory",
    "use_masking": "`env.mask_actions=false` leaves masks out; in Python make_vec_env(mask_actions=False)",
    "mask_actions": "it is `env.mask_actions`; in Python make_vec_env(mask_actions=False)",
    "sde_net_arch": "noise is a function of the actor's last features",
    "_init_setup_model": "networks are always made at once",
}
"""What Stable-Baselines lets choose by these names, and what is there instead."""


def hyperparameter(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    unit: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[Any] | None = None,
    default_factory: Callable[[], Any] | None = None,
) -> Any:
    """Declare one value of a config dataclass; ``ge``, ``gt``, ``le`` and ``lt`` bound every number in it."""
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    metadata = {
        "help": help,
        "unit": unit,
        "bounds": {name: bound for name, bound in bounds.items() if bound is not None},
        "choices": tuple(choices) if choices is not None else None,
    }
    if default_factory is not None:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def with_defaults(**values: Any) -> Callable[[type[Config]], type[Config]]:
    """Give inherited values of a config other defaults; their type, range and meaning stay declared once.

    Stands below ``@dataclass``.
    """

    def decorate(config_class: type[Config]) -> type[Config]:
        bases = [each for each in config_class.__mro__[1:] if dataclasses.is_dataclass(each)]
        inherited = {field.name: field for base in reversed(bases) for field in dataclasses.fields(base)}
        hints = get_type_hints(config_class)
        own = inspect.get_annotations(config_class)
        for name, value in values.items():
            own[name] = hints[name]
            setattr(config_class, name, dataclasses.field(default=value, metadata=inherited[name].metadata))
        config_class.__annotations__ = own
        return config_class

    return decorate


def takes_schedule(hint: Any) -> bool:
    """Whether a value of this type may be a `Schedule`."""
    return set(get_args(Schedule)) <= set(get_args(hint))


def scheduled(config: Any) -> dict[str, Any]:
    """Return the values of a config that are schedules (also constant ones), by name."""
    hints = get_type_hints(type(config))
    values = {name: getattr(config, name) for name, hint in hints.items() if takes_schedule(hint)}
    words = {name: [word for each in get_args(hints[name]) for word in get_args(each)] for name in values}
    return {name: each for name, each in values.items() if each is not None and each not in words[name]}


def defaults(config_class: type[Any]) -> dict[str, Any]:
    """Return the declared defaults as plain data, ready for YAML; fields without a default are left out."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
    return values


def build(config_class: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Make a config from what a user wrote.

    ``where`` is the path of the config in the whole (``"algo"``; ``""`` at the top), for messages. Raises
    `ZooError` for an unknown key, a wrong type, a value out of its range or a missing value.
    """
    config_class = variant_of(config_class, values, where)
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    for key in values:
        if key not in fields:
            raise ZooError(unknown_key(str(key), list(fields), where))
    hints = get_type_hints(config_class)
    prefix = f"{where}." if where else ""
    arguments = {key: _converted(value, hints[key], f"{prefix}{key}") for key, value in values.items()}
    for key, value in arguments.items():
        check_bounds(value, fields[key].metadata, f"{prefix}{key}")
    for name, field in fields.items():
        has_default = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        if name not in arguments and not has_default:
            raise ZooError(f"`{prefix}{name}` is missing: {field.metadata.get('help', '')}".rstrip(": "))
    return config_class(**arguments)


def unknown_key(key: str, known: Sequence[str], where: str) -> str:
    """Return the message for a key that ``where`` does not have, naming the right one if there is one."""
    path = f"{where}.{key}" if where else key
    new = OLD_NAMES.get(key, "")
    if new in known:
        new = f"{where}.{new}" if where else new
        return f"unknown key `{path}`: Stable-Baselines' `{key}` is `{new}` here"
    if new.startswith("memory.") and "buffer_size" in known:
        return f"unknown key `{path}`: Stable-Baselines' `{key}` is `{new}` here"
    flag_of, said = FLAGS.get(key, ("", ""))
    if not where and flag_of in known:
        return f"unknown key `{path}`: Stable-Baselines' `{key}` {said}"
    place = ELSEWHERE.get(key, path)
    if place.startswith("memory") and known and not {"buffer_size", "memory"} & set(known):
        place = path
    if place == key and place != path:
        return f"unknown key `{path}`: `{key}` is no part of `{where}`; it stands alone, `{key}=…`"
    if place != path:
        place = where + place.removeprefix("algo") if place.startswith("algo.") and where else place
        return f"unknown key `{path}`: Stable-Baselines' `{key}` is `{place}` here"
    if key in NOT_CHOSEN:
        return f"unknown key `{path}`: {NOT_CHOSEN[key]}"
    matches = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if matches:
        return f"unknown key `{path}`; did you mean `{where + '.' if where else ''}{matches[0]}`?"
    return f"unknown key `{path}`; known: {', '.join(sorted(known))}"


def _converted(value: Any, hint: Any, path: str) -> Any:
    """Return ``value`` as the hinted type, taking an int for a float and ``1e5`` for an int."""
    options = get_args(hint) if _is_union(hint) else (hint,)
    for option in options:
        converted = _try_convert(value, option, path)
        if converted is not _NO_MATCH:
            return converted
    if callable(value) and takes_schedule(hint):
        raise ZooError(
            f"`{path}` can't be a function, which an agent's files couldn't hold; a schedule is written as"
            " text, `lin_3e-4` (from that value to 0), or as {type: linear, start: 3e-4, end: 1e-5}"
        )
    raise ZooError(f"`{path}={one_line(repr(value))}` has the wrong type; expected {_spelled(options)}")


_NO_MATCH = object()


def _try_convert(value: Any, hint: Any, path: str) -> Any:
    origin = get_origin(hint) or hint
    if hint is Any:
        return value
    if hint is None or hint is type(None):
        return None if value is None else _NO_MATCH
    if origin is typing.Literal:
        matches = [choice for choice in get_args(hint) if choice == value and type(choice) is type(value)]
        return matches[0] if matches else _NO_MATCH
    if origin is bool:
        return value if isinstance(value, bool) else _NO_MATCH
    if origin is int:
        if isinstance(value, bool):
            return _NO_MATCH
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if isinstance(value, int) else _NO_MATCH
    if origin is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, int) and value.bit_length() > 1_000:
            return _NO_MATCH  # no float holds it
        return float(value) if is_number else _NO_MATCH
    if origin in (list, tuple):
        if not isinstance(value, Sequence) or isinstance(value, str):
            return _NO_MATCH
        item_hints = get_args(hint) or (Any,)
        return [_converted(item, item_hints[0], f"{path}[{i}]") for i, item in enumerate(value)]
    if origin is dict:
        return dict(value) if isinstance(value, Mapping) else _NO_MATCH
    if isinstance(origin, type) and isinstance(value, origin):
        return value
    if isinstance(origin, type) and dataclasses.is_dataclass(origin) and isinstance(value, Mapping):
        return build(origin, value, path)
    return _NO_MATCH


def check_bounds(value: Any, metadata: Mapping[str, Any], path: str) -> None:
    """Raise `ZooError` if a number is out of the range, or a value none of the choices, of its field."""
    choices = metadata.get("choices")
    if choices is not None and value is not None and value not in choices:
        hint = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1, cutoff=0.6)
        suffix = f"; did you mean `{hint[0]}`?" if hint else ""
        raise ZooError(f"`{path}={value}` is not one of {', '.join(map(_as_yaml, choices))}{suffix}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, float) and math.isnan(value):
        raise ZooError(f"`{path}` is not a number (nan)")
    tests: dict[str, tuple[str, Callable[[float, float], bool]]] = {
        "ge": ("at least", lambda number, bound: number >= bound),
        "gt": ("more than", lambda number, bound: number > bound),
        "le": ("at most", lambda number, bound: number <= bound),
        "lt": ("less than", lambda number, bound: number < bound),
    }
    bounds = metadata.get("bounds", {})
    if not all(tests[name][1](value, bound) for name, bound in bounds.items()):
        expected = " and ".join(f"{tests[name][0]} {bound:g}" for name, bound in bounds.items())
        is_huge = isinstance(value, int) and value.bit_length() > 1_000
        found = f"a number of {int(value).bit_length():,} bits" if is_huge else f"{value:g}"
        raise ZooError(f"`{path}={found}` is out of range; expected {expected}")


def _as_yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) is typing.Union or isinstance(hint, types.UnionType)


def _spelled(options: Sequence[Any]) -> str:
    names = []
    for option in options:
        if option is type(None):
            names.append("null")
        elif get_origin(option) is typing.Literal:
            names.extend(repr(choice) for choice in get_args(option))
        elif dataclasses.is_dataclass(option):
            names.append(f"{{{', '.join(field.name for field in dataclasses.fields(option))}}}")
        else:
            names.append(getattr(option, "__name__", str(option)))
    return " or ".join(dict.fromkeys(names))
