"""What Stable-Baselines3's parameters are called here, algorithm by algorithm."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoo.errors import ZooError
from zoo.files.printing import one_line
from zoo.files.tensors import Arrays

_CRITICS = {
    r"critic\.qf(\d+)\.(\d+\.\w+)": r"critics.critics.\1.\2",
    r"critic\.features_extractor\.(.+)": r"critics.encoder.\1",
    r"(?:actor|critic)_target\..+": "",
}
_SQUASHED_ACTOR = {
    r"actor\.latent_pi\.(\d+\.\w+)": r"actor.trunk.\1",
    r"actor\.mu\.(?:0\.)?(weight|bias)": r"actor.head.mean.\1",
    r"actor\.log_std(.*)": r"actor.head.log_std\1",
    r"actor\.features_extractor\.(.+)": r"actor.encoder.\1",
    **_CRITICS,
}
_DETERMINISTIC_ACTOR = {
    r"actor\.mu\.<output>\.(weight|bias)": r"actor.head.action.\1",
    r"actor\.mu\.(\d+\.\w+)": r"actor.trunk.\1",
    r"actor\.features_extractor\.(.+)": r"actor.encoder.\1",
    **_CRITICS,
}
_SEARCHED = {
    r"action_net\.<output>\.(weight|bias)": r"head.<action>.\1",
    r"action_net\.(\d+\.\w+)": r"trunk.\1",
    r"action_net\.(weight|bias)": r"head.<action>.\1",  # linear policies before version 1.7
}
_ACTOR_CRITIC = {
    r"mlp_extractor\.shared_net\.(\d+\.\w+)": r"shared.\1",
    r"mlp_extractor\.policy_net\.(\d+\.\w+)": r"actor.\1",
    r"mlp_extractor\.value_net\.(\d+\.\w+)": r"critic.\1",
    r"action_net\.(weight|bias)": r"head.<action>.\1",
    r"value_net\.(weight|bias)": r"critic.<output>.\1",
    r"log_std": "head.log_std",
    r"features_extractor\.(.+)": r"encoder.\1",
    r"pi_features_extractor\.(.+)": r"encoder.\1",
    r"vf_features_extractor\.(.+)": r"<critic_encoder>\1",
    r"lstm_actor\.(\w+)_l(\d+)": r"core.layers.\2.\1",
    r"lstm_critic\.(\w+)_l(\d+)": r"critic_core.layers.\2.\1",
}

NAMES: dict[str, dict[str, str]] = {
    "a2c": _ACTOR_CRITIC,
    "ars": _SEARCHED,
    "ppo2": _ACTOR_CRITIC,
    "trpo": _ACTOR_CRITIC,
    "dqn": {
        r"q_net\.q_net\.(\d+\.\w+)": r"advantages.\1",
        r"q_net\.features_extractor\.(.+)": r"encoder.\1",
        r"q_net_target\..+": "",
    },
    "qrdqn": {
        r"quantile_net\.quantile_net\.(\d+\.\w+)": r"advantages.\1",
        r"quantile_net\.features_extractor\.(.+)": r"encoder.\1",
        r"quantile_net_target\..+": "",
    },
    "sac": _SQUASHED_ACTOR,
    "tqc": _SQUASHED_ACTOR,
    "td3": _DETERMINISTIC_ACTOR,
    "ddpg": _DETERMINISTIC_ACTOR,
}
"""For each algorithm SB3's names, as patterns, and ours; what becomes "" has no part in acting or learning.

``<action>``, ``<output>`` and ``<critic_encoder>`` depend on the agent: `Layout`.
"""

LAYERS: dict[str, dict[str, tuple[str, ...]]] = {
    "a2c": {
        "shared": ("mlp_extractor.shared_net",),
        "pi": ("mlp_extractor.policy_net",),
        "vf": ("mlp_extractor.value_net",),
    },
    "ars": {"pi": ("action_net",)},
    "dqn": {"qf": ("q_net.q_net",)},
    "qrdqn": {"qf": ("quantile_net.quantile_net",)},
    "sac": {"pi": ("actor.latent_pi",), "qf": ("critic.qf0",)},
    "td3": {"pi": ("actor.mu",), "qf": ("critic.qf0",)},
}
LAYERS |= {"ppo2": LAYERS["a2c"], "trpo": LAYERS["a2c"], "tqc": LAYERS["sac"], "ddpg": LAYERS["td3"]}
"""Where the layers of each of our networks stand."""

WITH_OUTPUT = ("q_net.q_net", "quantile_net.quantile_net", "critic.qf0", "actor.mu", "action_net")
"""Those whose last layer is the network's output, not a hidden one."""

_ENCODER = re.compile(
    r"(?P<before>.*encoder\.)(?:extractors\.(?P<key>.+)\.)?(?P<layer>cnn\.[024]|linear\.0)\.(?P<kind>\w+)"
)
_ENCODER_LAYERS = {"cnn.0": "layers.0", "cnn.2": "layers.2", "cnn.4": "layers.4", "linear.0": "layers.7"}


@dataclass(frozen=True)
class Layout:
    """What names depend on beside the algorithm."""

    action: str
    """The head's layer: ``mean``, ``action`` or ``logits``."""
    output: int
    """The place of the output layer among those of its network."""
    has_critic_encoder: bool
    keys: Sequence[str]
    """The keys of dictionary observations, in their order."""

    def filled(self, text: str) -> str:
        """Return a pattern or a name with what it depends on."""
        critic_encoder = "critic_encoder." if self.has_critic_encoder else "<nothing>"
        for name, value in (("action", self.action), ("output", str(self.output))):
            text = text.replace(f"<{name}>", value)
        return text.replace("<critic_encoder>", critic_encoder)


def renamed(algo: str, tensors: Mapping[str, object], layout: Layout) -> dict[str, str]:
    """Return our name of each of SB3's tensors, without those that have no part here.

    Raises `ZooError` for a name that is none of this algorithm's.
    """
    table = {re.compile(layout.filled(theirs)): layout.filled(ours) for theirs, ours in NAMES[algo].items()}
    names = {}
    for name in tensors:
        pattern = next((each for each in table if each.fullmatch(name)), None)
        if pattern is None:
            raise ZooError(f"its policy has `{one_line(name, 80)}`, which {algo} does not have here")
        ours = pattern.sub(table[pattern], name) if table[pattern] else ""
        if ours and not ours.startswith("<nothing>"):
            names[name] = _in_encoder(ours, layout.keys)
    return names


def _in_encoder(name: str, keys: Sequence[str]) -> str:
    match = _ENCODER.fullmatch(name)
    if match is None:
        return name
    part = "" if match["key"] is None else f"parts.{_index(match['key'], keys)}."
    return f"{match['before']}{part}{_ENCODER_LAYERS[match['layer']]}.{match['kind']}"


def _index(key: str, keys: Sequence[str]) -> int:
    if key not in keys:
        raise ZooError(f"its policy reads `{one_line(key, 80)}`, which is no key of its observations")
    return list(keys).index(key)


def widths(tensors: Arrays, prefix: str) -> list[int]:
    """Return the widths of a network's hidden layers. Raises `ZooError` for layers of other kinds."""
    found: dict[int, tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        match = re.fullmatch(rf"{re.escape(prefix)}\.(\d+)\.weight", name)
        if match is not None:
            if tensor.ndim != 2:
                raise ZooError(f"its `{prefix}` has layers that are not linear, such as {match[1]}")
            found[int(match[1])] = tensor.shape
    if sorted(found) != list(range(0, 2 * len(found), 2)):
        raise ZooError(
            f"its `{prefix}` has more than linear layers with a non-linearity between them,"
            f" which Zoo does not build: layers {sorted(found)}"
        )
    sizes = [found[index][0] for index in sorted(found)]
    return sizes[:-1] if prefix in WITH_OUTPUT else sizes


def memory_of(tensors: Arrays) -> dict[str, object]:
    """Return the fields of a policy's config that say how SB3-Contrib's policy remembers, if it does."""
    layers = [name for name in tensors if re.fullmatch(r"lstm_actor\.weight_hh_l\d+", name)]
    if not layers:
        return {}
    own = any(name.startswith("lstm_critic.") for name in tensors)
    return {
        "recurrent": "lstm",
        "lstm_hidden_size": int(tensors[layers[0]].shape[-1]),
        "n_lstm_layers": len(layers),
        "critic_lstm": "separate" if own else "none" if "critic.weight" in tensors else "detached",
    }


def with_joined_critic(tensors: Arrays) -> Arrays:
    """Return the tensors without SB3-Contrib's linear layer in the place of a critic's LSTM.

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
    prefix = "vf_features_extractor."
    own = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    actors = {key: tensors.get(f"features_extractor.{key}", tensor) for key, tensor in own.items()}
    return any(not np.array_equal(tensor, actors[key]) for key, tensor in own.items())
