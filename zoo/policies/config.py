"""Settings of a policy, as plain values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from zoo.config.fields import hyperparameter
from zoo.errors import ZooError, nearest

RECURRENT_FIELDS = ("recurrent", "lstm_hidden_size", "n_lstm_layers", "lstm_layer_norm", "critic_lstm")

ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "leaky_relu", "silu")

BLOCKS = ("plain", "residual", "hyperspherical")

PROJECTIONS = ("none", "unit_norm")

NORMS = ("none", "layer", "batch", "batch_renorm")


@dataclass
class ActorConfig:
    """Fields of one network that override the whole policy's; null: the policy's value."""

    net_arch: list[int] | None = hyperparameter(None, "hidden layers after the encoder")
    block: str | None = hyperparameter(None, "form of the hidden layers", choices=BLOCKS)
    expansion: int | None = hyperparameter(
        None, "hidden width of a block that is not plain, as a multiple of its width", ge=1
    )
    activation: str | None = hyperparameter(None, "non-linearity between hidden layers", choices=ACTIVATIONS)
    layer_norm: bool | None = hyperparameter(None, "layer normalisation before each activation")
    norm: str | None = hyperparameter(None, "normalisation of hidden layers", choices=NORMS)
    norm_input: bool | None = hyperparameter(None, "normalise the input of the hidden layers too")
    projection: str | None = hyperparameter(None, "unit_norm: weights of length 1", choices=PROJECTIONS)
    ortho_init: bool | None = hyperparameter(None, "orthogonal initial weights")


@dataclass
class CriticConfig(ActorConfig):
    """The same of the critic, and what only some critics have."""

    dropout: float = hyperparameter(
        0.0,
        "dropout rate of hidden layers; 0.01 permits more updates per step (DroQ)",
        ge=0,
        lt=1,
    )
    observations: list[str] | None = hyperparameter(
        None,
        "keys of a dictionary observation that only the critic reads, beside all others, by an encoder of"
        " its own; the actor acts without them (on-policy)",
    )


@dataclass
class PolicyConfig:
    """Networks of a policy; a null leaves the choice to the algorithm."""

    name: str = hyperparameter("MlpPolicy", "name of the preset, for cards and messages")
    encoder: str | dict[str, Any] = hyperparameter(
        "mlp",
        "observation encoder: mlp (vectors), cnn (images), small_cnn (boards, and images too small for cnn),"
        " multi (dictionaries), or a class of your own with its arguments,"
        " {_target_: my_encoder.Narrow, width: 32}",
        choices=("mlp", "cnn", "small_cnn", "multi"),
    )
    flatten_images: bool = hyperparameter(
        False, "mlp and multi read boards, and images too small for cnn, as vectors, not by small_cnn"
    )
    net_arch: list[int] | dict[str, list[int]] | None = hyperparameter(
        None, "hidden layers after the encoder, for all networks, or by network: {shared, pi, vf} or {pi, qf}"
    )
    block: str = hyperparameter(
        "plain",
        "hidden layers: plain, or one residual (SimBa) or hyperspherical (SimbaV2) block for each width in"
        " net_arch, all equal",
        choices=BLOCKS,
    )
    expansion: int = hyperparameter(4, "hidden width of such a block, as a multiple of its width", ge=1)
    activation: str | None = hyperparameter(
        None, "non-linearity between hidden layers; null: the algorithm's", choices=ACTIVATIONS
    )
    layer_norm: bool = hyperparameter(False, "layer normalisation before each activation")
    norm: str | None = hyperparameter(
        None,
        "normalisation of hidden layers: layer (before the activation), batch or batch_renorm (after it,"
        " crossq only), none; null: layer if layer_norm is true, otherwise the algorithm's",
        choices=NORMS,
    )
    norm_input: bool | None = hyperparameter(
        None,
        "normalise the input of the hidden layers too, as `norm` does; null: with norms of batches",
    )
    projection: str | None = hyperparameter(
        None,
        "unit_norm: after each gradient step, the weights of each hidden unit and output are scaled to"
        " length 1; null: unit_norm with hyperspherical blocks, otherwise none",
        choices=PROJECTIONS,
    )
    renorm_warmup_steps: int = hyperparameter(
        100_000,
        "training passes through a layer before batch_renorm corrects by running statistics",
        unit="gradient steps",
        ge=0,
    )
    ortho_init: bool | None = hyperparameter(
        None, "orthogonal initial weights; null: on-policy algorithms only"
    )
    log_std_init: float | None = hyperparameter(
        None,
        "initial log standard deviation of Gaussian actions, if state-independent; with"
        " use_sde, of the noise's weights; null: 0, or -3 for off-policy algorithms",
    )
    full_std: bool = hyperparameter(
        True, "with use_sde: a deviation for each weight of the noise; false: for each feature"
    )
    use_expln: bool = hyperparameter(False, "with use_sde: deviations above 1 grow as 1 + log, not as exp")
    squash_output: bool | None = hyperparameter(
        None, "with use_sde: tanh of the actions, scaled to their bounds; null: off-policy algorithms only"
    )
    clip_mean: float | None = hyperparameter(
        None,
        "with use_sde: bound of the mean, before any tanh; 0: none, null: 2 off-policy, otherwise none",
        ge=0,
    )
    actor: ActorConfig | None = hyperparameter(
        None, "fields for the actor alone: {layer_norm: true, …}; not for Q-learning"
    )
    critic: CriticConfig | None = hyperparameter(
        None, "fields for the critic alone: {layer_norm: true, …}; not for Q-learning, ars"
    )
    features_dim: int | None = hyperparameter(
        None, "width of an image encoder's output; null: 512, of small_cnn 128", ge=1
    )
    precision: str = hyperparameter(
        "float32",
        "dtype of the image encoder; bfloat16 is faster on processors that have it"
        " (avx512_bf16, amx_bf16 in /proc/cpuinfo); parameters, losses and all other layers are float32",
        choices=("float32", "bfloat16"),
    )
    share_encoder: bool = hyperparameter(True, "actor and critic share one encoder (on-policy)")
    recurrent: str | None = hyperparameter(
        None,
        "kind of recurrent layers after the encoder and `shared` layers; null: none",
        choices=("lstm", "gru"),
    )
    lstm_hidden_size: int = hyperparameter(256, "size of each recurrent layer's output", ge=1)
    n_lstm_layers: int = hyperparameter(1, "number of recurrent layers", ge=1, le=100)
    lstm_layer_norm: bool = hyperparameter(False, "layer normalisation of an LSTM's gates and cell")
    critic_lstm: str = hyperparameter(
        "separate",
        "the critic's recurrent layers: separate (its own), shared (the actor's, which both train), detached"
        " (the actor's, which only the actor trains), none",
        choices=("separate", "shared", "detached", "none"),
    )
    _target_: str | None = hyperparameter(None, "class path of a policy of your own, see docs/algorithms.md")
    kwargs: dict[str, Any] = hyperparameter(
        default_factory=dict, help="keyword arguments of a policy of your own"
    )

    def __post_init__(self) -> None:
        if self.recurrent is not None or self._target_ is not None:
            return
        for field in dataclasses.fields(self):
            if field.name in RECURRENT_FIELDS and getattr(self, field.name) != field.default:
                raise ZooError(
                    f"`policy.{field.name}` needs a recurrent policy: policy=MlpLstmPolicy, or"
                    " policy.recurrent=lstm"
                )

    def of(self, network: str) -> PolicyConfig:
        """Return the config of the ``"actor"`` or ``"critic"`` with its overrides applied."""
        section = getattr(self, network)
        overrides = {} if section is None else {name: getattr(section, name) for name in NETWORK_FIELDS}
        if overrides.get("layer_norm") is not None and overrides["norm"] is None:
            overrides["norm"] = "layer" if overrides["layer_norm"] else "none"
        return replace(self, **{name: value for name, value in overrides.items() if value is not None})

    @property
    def has_unit_norm(self) -> bool:
        """Whether the weights of each unit have length 1."""
        return self.projection == "unit_norm" or (self.projection is None and self.block == "hyperspherical")

    def networks(self) -> Iterator[tuple[str, PolicyConfig]]:
        """Yield the fields of all networks, then of those that have some of their own, with their section."""
        yield "policy", self
        for name in ("actor", "critic"):
            if getattr(self, name) is not None:
                yield f"policy.{name}", self.of(name)

    def refuse_unit_norm(self, algo: str) -> None:
        """Raise `ZooError` for weights of length 1."""
        for section, config in self.networks():
            is_block = config.block == "hyperspherical"
            if is_block or config.has_unit_norm:
                key = "block=hyperspherical" if is_block else "projection=unit_norm"
                raise ZooError(f"`{section}.{key}` is for td3, sac, tqc and crossq, not for {algo}")

    def refuse_batch_norm(self, algo: str) -> None:
        """Raise `ZooError` for a norm that only crossq has, and for `norm_input` without a norm."""
        for section, config in self.networks():
            is_batched = config.norm in ("batch", "batch_renorm")
            if is_batched or config.renorm_warmup_steps != PolicyConfig.renorm_warmup_steps:
                key = f"norm={config.norm}" if is_batched else "renorm_warmup_steps"
                raise ZooError(f"`{section}.{key}` is for crossq, not for {algo}")
            if config.norm_input and config.hidden_norm == "none":
                raise ZooError(f"`{section}.norm_input` needs a norm: {section}.norm=layer")

    @property
    def hidden_norm(self) -> str:
        """The kind of normalisation of hidden layers, one of `NORMS`."""
        return self.norm or ("layer" if self.layer_norm else "none")

    @property
    def normalizes_input(self) -> bool:
        """Whether the input of the hidden layers is normalised as they are."""
        if self.norm_input is None:
            return self.hidden_norm in ("batch", "batch_renorm")
        return self.norm_input and self.hidden_norm != "none"

    def check_networks(self, *networks: str) -> None:
        """Raise `ZooError` for fields of a network, or of a critic, that the policy does not have.

        These are ``"actor"``, ``"critic"``, ``"dropout"`` and ``"observations"``.
        """
        if self.critic is not None and self.critic.observations and "observations" not in networks:
            key = f"policy.critic.observations={self.critic.observations}"
            raise ZooError(f"`{key}` is for the critics of ppo2, ppo1, a2c, acer, acktr, trpo and gail")
        for network in ("actor", "critic"):
            if network not in networks and getattr(self, network) is not None:
                raise ZooError(f"`policy.{network}`: the networks of this algorithm have no {network}")
        if self.critic_lstm != "separate" and "critic" not in networks:
            raise ZooError(f"`policy.critic_lstm={self.critic_lstm}`: this algorithm has no critic")
        if self.critic is not None and self.critic.dropout and "dropout" not in networks:
            raise ZooError("`policy.critic.dropout` is for the critics of ddpg, td3, sac, tqc and crossq")


NETWORK_FIELDS = [field.name for field in dataclasses.fields(ActorConfig)]

_MULTI, _LSTM = {"encoder": "multi", "features_dim": 256}, {"recurrent": "lstm"}
_LN_LSTM = {**_LSTM, "lstm_layer_norm": True}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "MlpPolicy": ("Fully connected networks, for vectors.", {}),
    "LnMlpPolicy": ("Fully connected networks with layer normalisation.", {"layer_norm": True}),
    "LinearPolicy": (
        "No hidden layers: actions are a linear function of the observation.",
        {"net_arch": [], "flatten_images": True},
    ),
    "CnnPolicy": ("The convolutions of the Nature paper on DQN, for images.", {"encoder": "cnn"}),
    "LnCnnPolicy": (
        "Convolutions, with layer normalisation in the layers after them.",
        {"encoder": "cnn", "layer_norm": True},
    ),
    "MultiInputPolicy": (
        "For dictionaries of vectors and images: one encoder per key, concatenated.",
        _MULTI,
    ),
    "MlpLstmPolicy": (
        "Recurrent networks for vectors, for partially observed tasks.",
        _LSTM,
    ),
    "MlpLnLstmPolicy": ("A layer-normalised LSTM after vectors.", _LN_LSTM),
    "CnnLstmPolicy": (
        "An LSTM after the convolutions of the Nature paper on DQN.",
        {"encoder": "cnn", **_LSTM},
    ),
    "CnnLnLstmPolicy": (
        "A layer-normalised LSTM after the convolutions of the Nature paper on DQN.",
        {"encoder": "cnn", **_LN_LSTM},
    ),
    "DroQPolicy": (
        "Fully connected networks; dropout and layer normalisation in the critics.",
        {"critic": CriticConfig(layer_norm=True, dropout=0.01)},
    ),
    "SimbaPolicy": (
        "Residual networks with layer normalisation, for normalised observations.",
        {"block": "residual"},
    ),
    "SimbaV2Policy": (
        "Hyperspherical networks, whose features and weights have length 1, for normalised observations.",
        {"block": "hyperspherical"},
    ),
    "MultiInputLstmPolicy": ("An LSTM after dictionaries of vectors and images.", {**_MULTI, **_LSTM}),
}
"""The named policies: what each is for, and its fields. `make docs` writes `conf/policy/` from them."""

POLICIES = {name: PolicyConfig(name=name, **fields) for name, (_, fields) in PRESETS.items()}


def policy_preset(name: str) -> PolicyConfig:
    """Return the fields of a named policy. Raises `ZooError` with the nearest name."""
    if name not in POLICIES:
        raise ZooError(f"unknown policy '{name}'{nearest(name, POLICIES)} (known: {', '.join(POLICIES)})")
    return replace(POLICIES[name])


def with_dict_encoder(config: PolicyConfig) -> PolicyConfig:
    """Replace the vector encoder by one per key; other configs are returned unchanged."""
    if config.encoder != "mlp" or config._target_ is not None:
        return config
    defaults, multi = POLICIES["MlpPolicy"], POLICIES["MultiInputPolicy"]
    names = {"MlpPolicy": "MultiInputPolicy", "MlpLstmPolicy": "MultiInputLstmPolicy"}
    name = names.get(config.name, config.name)
    features_dim = multi.features_dim if config.features_dim == defaults.features_dim else config.features_dim
    return replace(config, name=name, encoder=multi.encoder, features_dim=features_dim)
