"""Stable-Baselines3's arguments of constructors and `save`, as the fields that they are here."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from zoo.algorithms.arguments import Policy, policy_config
from zoo.config.aliases import NAMES
from zoo.errors import ZooError, nearest
from zoo.policies.config import ACTIVATIONS, PolicyConfig

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm

NOT_SAVED = (
    *("replay_buffer", "rollout_buffer", "policy.optimizer", "env", "eval_env", "logger", "_logger"),
    *("tensorboard_log", "verbose", "device", "ep_info_buffer", "ep_success_buffer", "_last_obs"),
)
"""What an agent's files do without, so that it need not be excluded."""


def translated(
    algorithm: type[Algorithm],
    policy: Policy,
    positional: Sequence[Any],
    policy_kwargs: Mapping[str, Any] | None,
) -> tuple[Policy, dict[str, Any]]:
    """Return the policy, and by name hyperparameters given by position or in ``policy_kwargs``.

    Raises `ZooError` for more by position, and for what can't be chosen here.
    """
    names = algorithm.positional
    if len(positional) > len(names):
        places = ", ".join(("policy", "env", *names))
        raise ZooError(f"{algorithm.__name__}(…) takes {places} by position; name what follows")
    values = dict(zip(names, positional, strict=False))
    if policy_kwargs is not None:
        policy, others = _with_policy_kwargs(algorithm, policy, policy_kwargs)
        values |= others
    return policy, values


def _with_policy_kwargs(
    algorithm: type[Algorithm], policy: Policy, policy_kwargs: Mapping[str, Any]
) -> tuple[PolicyConfig, dict[str, Any]]:
    where = f"{algorithm.__name__}(policy_kwargs=…)"
    if not isinstance(policy_kwargs, Mapping):
        raise ZooError(f"{where}: expected a dictionary, not a {type(policy_kwargs).__name__}")
    fields, given = dict[str, Any](), dict(policy_kwargs)
    known = {field.name for field in dataclasses.fields(algorithm.config_class)}
    values: dict[str, Any] = {
        key: given.pop(key) for key in ("n_critics", "n_quantiles") if key in known & given.keys()
    }
    if "net_arch" in given:
        fields["net_arch"] = _net_arch(given.pop("net_arch"))
    if "activation_fn" in given:
        fields["activation"] = _activation(given.pop("activation_fn"), where)
    kwargs = dict(given.pop("features_extractor_kwargs", None) or {})
    if (extractor := given.pop("features_extractor_class", None)) is not None:
        fields["encoder"] = {"_target_": extractor, **kwargs}
    elif kwargs:
        given |= {"features_dim" if key == "cnn_output_dim" else key: each for key, each in kwargs.items()}
    if (shares := given.pop("share_features_extractor", None)) is not None:
        if not algorithm.has_replay:
            fields["share_encoder"] = shares
        elif shares:
            raise ZooError(f"{where}: share_features_extractor=True; actor and critics have an encoder each")
    if {"enable_critic_lstm", "shared_lstm"} & given.keys():
        is_shared, is_own = given.pop("shared_lstm", False), given.pop("enable_critic_lstm", True)
        fields["critic_lstm"] = "detached" if is_shared else "separate" if is_own else "none"
    if given.get("normalize_images") is True:
        del given["normalize_images"]
    names = [field.name for field in dataclasses.fields(PolicyConfig)]
    for key in given.keys() - set(names):
        meant = f": {NAMES[key]}" if " " in NAMES.get(key, "") else nearest(key, names)
        raise ZooError(f"{where}: unknown key `{key}`{meant}")
    before = dataclasses.asdict(policy_config(policy, spaces.Discrete(1)))
    return policy_config({**before, **given, **fields}, spaces.Discrete(1)), values


def _net_arch(value: Any) -> Any:
    """Return widths; a list that ends in a dictionary, as before SB3 1.8, begins with those of both."""
    if isinstance(value, list | tuple) and value and isinstance(value[-1], Mapping):
        *shared, by_network = value
        return {**({"shared": shared} if shared else {}), **by_network}
    return value


def _activation(value: Any, where: str) -> str:
    """Return the name of a non-linearity given as a class, as its name, or as here."""
    name = getattr(value, "__name__", str(value)).rpartition(".")[2]
    by_class = {activation.replace("_", ""): activation for activation in ACTIVATIONS}
    if (key := name.lower().replace("_", "")) not in by_class:
        raise ZooError(f"{where}: activation_fn={name} is not one of {', '.join(ACTIVATIONS)}")
    return by_class[key]


def check_exclude(exclude: Iterable[str] | None) -> None:
    """Raise `ZooError` for what `save` can't leave out: all that an agent's files hold."""
    for name in exclude or ():
        if name not in NOT_SAVED:
            raise ZooError(
                f"save(exclude=[{name!r}]): an agent holds its policy and settings, and nothing else"
            )


class PolicyPredict:
    """``model.policy.predict``, which is the model's `predict` as long as there is the model."""

    def __init__(self, model: Algorithm | None) -> None:
        self._model = None if model is None else weakref.ref(model)

    def __call__(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        model = None if self._model is None else self._model()
        if model is None:
            raise ZooError("policy.predict is of the model that the policy belongs to; keep that one")
        return model.predict(*arguments, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicyPredict, (None,)
