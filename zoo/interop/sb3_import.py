"""Importing an agent of Stable-Baselines3: the same actions for the same observations."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from gymnasium import spaces

from zoo.algorithms.registry import algorithm_class
from zoo.config.fields import build
from zoo.core.printing import one_line
from zoo.core.tensors import Arrays
from zoo.envs.config import EnvConfig
from zoo.envs.spaces import describe, interfaces_differ, is_image, leaf_spaces
from zoo.errors import ZooError, nearest
from zoo.interop.sb3_zip import Sb3Files, is_pickled, read_sb3, read_vecnormalize
from zoo.policies.config import POLICIES, PolicyConfig
from zoo.policies.networks import ACTIVATION_CLASSES, NORM_EPS

Space = spaces.Space[Any]

ON_POLICY = ("a2c", "ppo2", "trpo")

TABLES: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("sb3_names.yaml").read_text(encoding="utf-8")
)
NAMES: dict[str, dict[str, str]] = TABLES["tensors"]
"""For each algorithm SB3's names, as patterns, and ours: see `rename_tensors`."""

_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")


@dataclass(frozen=True)
class ImportedAgent:
    """An imported agent, its card, and the names of hyperparameters that the file does not hold."""

    algorithm: Any
    card: dict[str, Any]
    unknown: list[str]


def import_sb3(
    file: str | Path,
    *,
    algo: str | None = None,
    env: EnvConfig | None = None,
    env_spaces: tuple[Space, Space] | None = None,
    normalize: str | Path | None = None,
    activation: str | None = None,
) -> ImportedAgent:
    """Make an agent of Zoo's out of the zip that SB3's ``save`` wrote; no code that it names is run.

    ``env`` and ``env_spaces`` are those of the environment that it acts in; without them the spaces are those
    of the file. ``normalize`` is the file that `VecNormalize.save` wrote. ``algo`` and
    ``activation`` are for files that don't hold them. Raises `ZooError` for an agent that Zoo can't build.
    """
    files = read_sb3(file)
    try:
        name = _algorithm(files, algo)
        masks_actions = algo == "maskable_ppo" or ".maskable." in files.module
        preset = "recurrent_ppo" if recurrent_options(files.tensors) else {"ppo2": "ppo"}.get(name)
        preset = "maskable_ppo" if masks_actions else preset
        observation_space, action_space = _spaces(files, env_spaces)
        if np.any(np.asarray(getattr(action_space, "start", 0)) != 0):
            raise ZooError(f"its actions, {describe(action_space)}, do not start at 0, where SB3's do")
        _check_images(files, observation_space)
        config, unknown = hyperparameters(name, files, action_space)
        policy = _policy(name, files, observation_space, activation)
        normalizer = None
        if normalize is not None:
            normalizer, settings = read_vecnormalize(normalize, observation_space)
            env = env and dataclasses.replace(env, normalize=dataclasses.asdict(settings))
        both: Any = {"observation_space": observation_space, "action_space": action_space}
        algorithm = algorithm_class(name)(policy, config=config, **both, device="cpu", compile=False)
        tensors = _tensors(name, files, observation_space, action_space, masks_actions=masks_actions)
        algorithm.set_parameters(tensors)
        algorithm.env_config, algorithm.n_envs = env, files.plain("n_envs") or 1
        algorithm.preset, algorithm.masks_actions = preset, masks_actions
        algorithm.num_timesteps = files.plain("num_timesteps") or 0
        algorithm.normalizer = normalizer
        card = {
            "seed": files.plain("seed"),
            "timesteps": algorithm.num_timesteps,
            "imported_from": f"Stable-Baselines3 {files.version or 'of an unknown version'}",
        }
        return ImportedAgent(algorithm, card, unknown)
    except ZooError as error:
        raise ZooError(f"can't import {files.origin}: {error}") from error


# Which algorithm


def _algorithm(files: Sb3Files, algo: str | None) -> str:
    if algo is not None:
        name = "ppo2" if algo in ("ppo", "maskable_ppo", "recurrent_ppo") else algo
        if name not in NAMES:
            raise ZooError(f"unknown algorithm '{algo}'{nearest(name, NAMES)} (known: {', '.join(NAMES)})")
        return name
    algo_name = TABLES["modules"].get(files.module)
    if algo_name is None:
        raise ZooError(
            f"its policy is of an unknown class in {one_line(files.module, 80)};"
            " if it computes as one of SB3's does, name the algorithm: algo=NAME"
        )
    if algo_name == "ppo2" and "clip_range" not in files.data:
        return "trpo" if "cg_max_steps" in files.data else "a2c"
    is_twin = any(name.startswith("critic.qf1.") for name in files.tensors)
    if algo_name == "td3" and not is_twin and (files.plain("policy_delay") or 1) == 1:
        return "ddpg"
    return algo_name


# Spaces


def _spaces(files: Sb3Files, env_spaces: tuple[Space, Space] | None) -> tuple[Space, Space]:
    """Return the environment's spaces, checked against the file's; without an environment the file's.

    Images may have their channels last in the environment: SB3 moves them to the front, Zoo's policies do.
    """
    observed, acted = files.space("observation_space"), files.space("action_space")
    if env_spaces is None:
        if observed is None or acted is None:
            raise ZooError("its spaces can't be read; name its environment: env=ID")
        return observed, acted
    if observed is None or any(is_image(part) for _, part in leaf_spaces(env_spaces[0])):
        observed = env_spaces[0]
    difference = interfaces_differ((observed, acted or env_spaces[1]), env_spaces)
    if difference is not None:
        raise ZooError(f"its {difference[0]} and the environment's differ: {difference[1]}")
    return env_spaces


def _check_images(files: Sb3Files, observation_space: Space) -> None:
    for image in (part for _, part in leaf_spaces(observation_space) if is_image(part)):
        if not any(".cnn." in tensor for tensor in files.tensors):
            raise ZooError(f"it flattens images, {describe(image)}, which SB3 and Zoo do in different orders")
        if files.printed("policy_kwargs").get("normalize_images", True) is not True:
            raise ZooError("it reads images that are not divided by 255 (normalize_images=False)")


# Networks


def _policy(name: str, files: Sb3Files, observation_space: Space, activation: str | None) -> PolicyConfig:
    kwargs, tensors = files.printed("policy_kwargs"), files.tensors
    extractor = _class_name(kwargs.get("features_extractor_class", "FlattenExtractor'>"))
    if extractor not in _EXTRACTORS:
        raise ZooError(
            f"its features come from {one_line(extractor, 80)}, a class of its own;"
            f" Zoo has {', '.join(_EXTRACTORS)}"
        )
    kind = "Cnn" if any(".cnn." in tensor for tensor in tensors) else "Mlp"
    kind = "MultiInput" if isinstance(observation_space, spaces.Dict) else kind
    recurrence = recurrent_options(tensors)
    policy = POLICIES[f"{kind}{'Lstm' if recurrence else ''}Policy"]
    features = [tensor.size for key, tensor in tensors.items() if key.endswith("linear.0.bias")]
    sizes = {net: hidden_sizes(tensors, prefix) for net, prefix in TABLES["layers"][name].items()}
    options: dict[str, Any] = {
        "net_arch": next(iter(sizes.values())) if len(sizes) == 1 else sizes,
        "activation": activation or _activation(name, kwargs),
        "features_dim": features[0] if features else policy.features_dim,
        "flatten_images": True,
        "share_encoder": name not in ON_POLICY or not has_critic_encoder(tensors),
        **recurrence,
    }
    if name == "crossq":
        if (epsilon := kwargs.get("batch_norm_eps", NORM_EPS)) != NORM_EPS:
            raise ZooError(f"its batch_norm_eps is {epsilon}; Zoo's is {NORM_EPS}")
        options["norm"] = "batch_renorm" if kwargs.get("batch_norm", True) else "none"
        options["renorm_warmup_steps"] = kwargs.get("renorm_warmup_steps", policy.renorm_warmup_steps)
    if files.plain("use_sde"):
        sde = ("log_std_init", "full_std", "use_expln", "clip_mean", "squash_output")
        options |= {option: kwargs[option] for option in sde if option in kwargs}
    return build(PolicyConfig, {**dataclasses.asdict(policy), **options}, "policy")


def _class_name(printed: Any) -> str:
    return str(printed).rpartition(".")[2].removesuffix("'>")


def _activation(name: str, kwargs: Mapping[str, Any]) -> str:
    if "activation_fn" not in kwargs:
        return "tanh" if name in ON_POLICY else "relu"
    printed = _class_name(kwargs["activation_fn"])
    activations = {activation_class.__name__: name for name, activation_class in ACTIVATION_CLASSES.items()}
    if printed not in activations:
        raise ZooError(
            f"its non-linearity is {one_line(printed, 80)}; Zoo has {', '.join(ACTIVATION_CLASSES)}"
            " (activation=NAME says which it is, if it is one of them)"
        )
    return activations[printed]


def _tensors(
    name: str, files: Sb3Files, observation_space: Space, action_space: Space, *, masks_actions: bool
) -> Arrays:
    tensors = fold_linear_critic(files.tensors)
    prefix = TABLES["before_output"].get(name)
    names = rename_tensors(
        name,
        tensors,
        action={"ars": "action"}.get(name, "mean") if isinstance(action_space, spaces.Box) else "logits",
        output=0 if prefix is None else 2 * len(hidden_sizes(tensors, prefix)),
        has_critic_encoder=name in ON_POLICY and has_critic_encoder(tensors),
        keys=list(observation_space) if isinstance(observation_space, spaces.Dict) else [],
    )
    arrays = {new_name: tensors[sb3_name] for sb3_name, new_name in names.items()}
    if masks_actions and isinstance(action_space, spaces.MultiBinary):
        for logits in ("head.logits.weight", "head.logits.bias"):  # of zero and one, bit by bit
            arrays[logits] = arrays[logits][1::2] - arrays[logits][::2]
    if name in ("sac", "tqc", "crossq"):
        fixed = files.variables.get("ent_coef_tensor", np.ones(1))
        log_ent_coef = files.variables.get("log_ent_coef", np.log(np.where(fixed > 0, fixed, 1.0)))
        arrays["temperature.log"] = log_ent_coef.reshape(1)
    return {
        name: np.asarray(tensor, np.int64 if name.endswith(".n_passes") else np.float32)
        for name, tensor in arrays.items()
    }


_CONSTANT = re.compile(r"(?:FloatSchedule\()?ConstantSchedule\(val=([-+]?\d[\d.]*(?:e[-+]?\d+)?)\)+")


def hyperparameters(name: str, files: Sb3Files, action_space: Space) -> tuple[Any, list[str]]:
    """Return the config by the file, and the names of fields that it does not hold."""
    config_class = algorithm_class(name).config_class
    values = {**TABLES["other_defaults"].get(name, {})}
    values |= _optimizer_options(files) if name == "a2c" else {}
    is_vector, unknown = isinstance(action_space, spaces.Box | spaces.MultiBinary), []
    for option in dataclasses.fields(config_class):
        if option.name in values or option.name not in files.data:
            continue
        value = _value(files.data[option.name])
        if option.name in TABLES["per_dimension"].get(name, ()) and isinstance(value, float):
            value *= math.prod(action_space.shape or ()) if is_vector else 1
        try:
            build(config_class, {option.name: value}, "algo")
        except ZooError:
            unknown.append(option.name)
        else:
            values[option.name] = value
    if name == "ars":
        values |= _ars_options(files, action_space)
    return build(config_class, {**values, **_sizes(name, files, action_space)}, "algo"), unknown


def _ars_options(files: Sb3Files, action_space: Space) -> dict[str, Any]:
    """Return the ARS hyperparameters that SB3 names otherwise or keeps in the policy."""
    kwargs = files.printed("policy_kwargs")
    has_layers = bool(hidden_sizes(files.tensors, "action_net")) or "net_arch" in kwargs  # as MlpPolicy has
    is_box = isinstance(action_space, spaces.Box)
    std = _value(files.data.get("delta_std_schedule"))
    return {
        **({"delta_std": std} if isinstance(std, float) else {}),
        "with_bias": any(tensor.endswith("bias") for tensor in files.tensors),
        "squash_output": is_box and kwargs.get("squash_output", has_layers) is True,
    }


def _value(value: Any) -> Any:
    """Return a plain value or the number of a printed constant schedule; else an object no config accepts."""
    if not is_pickled(value):
        return value
    match = _CONSTANT.fullmatch(str(value.get("value_schedule", "")))
    return object() if match is None else float(match[1])


def _optimizer_options(files: Sb3Files) -> dict[str, Any]:
    """Return the settings of A2C's optimizer, from the class and keyword arguments in the file."""
    kwargs = files.printed("policy_kwargs")
    optimizer, options = str(kwargs.get("optimizer_class", "")), kwargs.get("optimizer_kwargs") or {}
    names = {"alpha": "rms_prop_decay", "eps": "rms_prop_eps"}
    values = {"use_rms_prop": "RMSprop" in optimizer, "rms_prop_tensorflow": "RMSpropTFLike" in optimizer}
    return values | {names[sb3_name]: value for sb3_name, value in options.items() if sb3_name in names}


def _sizes(name: str, files: Sb3Files, action_space: Space) -> dict[str, int]:
    critics = {tensor.split(".")[1] for tensor in files.tensors if tensor.startswith("critic.qf")}
    sizes = {"n_critics": len(critics)} if name in ("sac", "td3", "tqc", "crossq") else {}
    if name == "tqc":
        sizes["n_quantiles"] = layer_sizes(files.tensors, "critic.qf0")[-1]
    if name == "qrdqn":
        n_outputs = layer_sizes(files.tensors, "quantile_net.quantile_net")[-1]
        sizes["n_quantiles"] = n_outputs // spaces.flatdim(action_space)
    return sizes


# What Stable-Baselines3's parameters are called here, algorithm by algorithm


def rename_tensors(
    algo: str,
    tensors: Iterable[str],
    *,
    action: str,
    output: int = 0,
    has_critic_encoder: bool = False,
    keys: Sequence[str] = (),
) -> dict[str, str]:
    """Return our name of each of SB3's tensors, without those that have no part here.

    ``action`` is the layer that gives actions: ``mean``, ``action`` or ``logits``. ``output`` is the place of
    the output layer in its network. ``keys`` are those of dictionary observations, in their order. Raises
    `ZooError` for a name that is none of this algorithm's.
    """

    def fill_in(text: str) -> str:
        return text.replace("<action>", action).replace("<output>", str(output))

    table = {re.compile(fill_in(regex)): fill_in(new) for regex, new in NAMES[algo].items()}
    names = {}
    for name in tensors:
        pattern = next((regex for regex in table if regex.fullmatch(name)), None)
        if pattern is None:
            raise ZooError(f"its policy has `{one_line(name, 80)}`, which {algo} does not have here")
        new_name = pattern.sub(table[pattern], name) if table[pattern] else ""
        is_copy = new_name.startswith("critic_encoder.") and not has_critic_encoder  # of the actor's encoder
        if not new_name or is_copy:
            continue
        for layer, new_layer in TABLES["encoder"].items():
            new_name = new_name.replace(f".{layer}.", f".{new_layer}.")
        names[name] = re.sub(r"extractors\.([^.]+)", lambda match: f"parts.{keys.index(match[1])}", new_name)
    return names


def layer_sizes(tensors: Arrays, prefix: str) -> list[int]:
    """Return the widths of a network's linear layers. Raises `ZooError` for layers of other kinds."""
    pattern = re.compile(rf"{re.escape(prefix)}\.(\d+)\.weight")
    weights = {int(match[1]): t for name, t in tensors.items() if (match := pattern.fullmatch(name))}
    is_linear = all(weight.ndim == 2 for weight in weights.values())
    first, distance = (1, 3) if f"{prefix}.0.scale" in tensors else (0, 2)  # CrossQ normalises before each
    if not is_linear or sorted(weights) != list(range(first, distance * len(weights), distance)):
        raise ZooError(
            f"its `{prefix}` has more than linear layers with a non-linearity between them,"
            f" which Zoo does not build: layers {sorted(weights)}"
        )
    return [len(weights[index]) for index in sorted(weights)]


def hidden_sizes(tensors: Arrays, prefix: str) -> list[int]:
    """Return the widths of a network's hidden layers; raises as `layer_sizes`."""
    sizes = layer_sizes(tensors, prefix)
    return sizes[:-1] if prefix in TABLES["with_output"] else sizes


def recurrent_options(tensors: Arrays) -> dict[str, object]:
    """Return the recurrent fields of the policy's config; none for a policy without LSTM."""
    layers = [name for name in tensors if re.fullmatch(r"lstm_actor\.weight_hh_l\d+", name)]
    if not layers:
        return {}
    is_separate = any(name.startswith("lstm_critic.") for name in tensors)
    return {
        "recurrent": "lstm",
        "lstm_hidden_size": int(tensors[layers[0]].shape[-1]),
        "n_lstm_layers": len(layers),
        "critic_lstm": "separate" if is_separate else "none" if "critic.weight" in tensors else "detached",
    }


def fold_linear_critic(tensors: Arrays) -> Arrays:
    """Return the tensors with SB3-Contrib's linear layer instead of a critic's LSTM folded into the next.

    No non-linearity follows it, so it and the layer after it are one.
    """
    if "critic.weight" not in tensors or "critic.bias" not in tensors:
        return tensors
    first = "mlp_extractor.value_net.0" if "mlp_extractor.value_net.0.weight" in tensors else "value_net"
    joined = {name: tensor for name, tensor in tensors.items() if not name.startswith("critic.")}
    weight, bias = (tensors[f"{first}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
    joined[f"{first}.weight"] = weight @ tensors["critic.weight"]
    joined[f"{first}.bias"] = bias + weight @ tensors["critic.bias"]
    return joined


def has_critic_encoder(tensors: Arrays) -> bool:
    """Whether the critic of an on-policy agent reads by weights of its own."""
    return any(
        not np.array_equal(tensor, tensors.get(key.removeprefix("vf_"), tensor))
        for key, tensor in tensors.items()
        if key.startswith("vf_features_extractor.")
    )
