"""Acting: NumPy gives what torch gives, and is used only where the arithmetic of every part is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from own_policies import preset, sampled
from torch import Tensor, nn

from zoo.buffers.arrays import transform
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import DeterministicActor, SquashedActor
from zoo.policies.q_networks import QNetwork, QuantileNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
DICT = spaces.Dict({"vector": VECTOR, "image": IMAGE})
ARM = spaces.Tuple((BOX, spaces.Dict({"gear": spaces.Discrete(4), "bits": spaces.MultiBinary(2)})))
N = 6


def on_policy(
    actions: spaces.Space[Any], observations: Any = VECTOR, name: str = "MlpPolicy", **fields: Any
) -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(observations, actions, preset(name, **fields))


def q_network(*, dueling: bool = True, **fields: Any) -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(VECTOR, spaces.Discrete(4), PolicyConfig(**fields), dueling=dueling)


def quantile_network(*, dueling: bool = True, **fields: Any) -> QuantileNetwork:
    torch.manual_seed(0)
    space, config = spaces.Discrete(4), PolicyConfig(**fields)
    return QuantileNetwork(VECTOR, space, config, n_quantiles=5, dueling=dueling)


def squashed(**fields: Any) -> SquashedActor:
    torch.manual_seed(0)
    return SquashedActor(VECTOR, BOX, PolicyConfig(**{"net_arch": [8], **fields}))


def deterministic(**fields: Any) -> DeterministicActor:
    torch.manual_seed(0)
    return DeterministicActor(VECTOR, BOX, PolicyConfig(**{"net_arch": [8], **fields}))


def observed(space: spaces.Space[Any] = VECTOR) -> Any:
    return sampled(space, N)


def by_modules(policy: Any, seen: dict[str, Any]) -> np.ndarray:
    tensors = {name: transform(torch.from_numpy, column) for name, column in seen.items()}
    return policy.action_parameters(tensors)[0].detach().numpy()


def comparable(policy: nn.Module, parameters: np.ndarray) -> np.ndarray:
    """Take off what the values of a Q-network's actions share."""
    if not isinstance(policy, QNetwork):
        return parameters
    return parameters - parameters.max(-1, keepdims=True)


KNOWN: dict[str, Callable[[], nn.Module]] = {
    "categorical": lambda: on_policy(spaces.Discrete(4, start=2)),
    "multi-categorical": lambda: on_policy(spaces.MultiDiscrete([2, 3])),
    "bernoulli": lambda: on_policy(spaces.MultiBinary(3)),
    "gaussian": lambda: on_policy(BOX, log_std_init=-1.0),
    "linear": lambda: on_policy(BOX, net_arch=[]),
    "shared": lambda: on_policy(BOX, net_arch={"shared": [16], "pi": [8], "vf": [8]}),
    "only shared": lambda: on_policy(spaces.Discrete(4), net_arch={"shared": [16]}),
    "layer norm": lambda: on_policy(spaces.Discrete(4), layer_norm=True),
    "relu": lambda: on_policy(spaces.Discrete(4), activation="relu"),
    "two encoders": lambda: on_policy(spaces.Discrete(4), share_encoder=False),
    "q-network": lambda: q_network(dueling=False),
    "dueling": lambda: q_network(layer_norm=True),
    "linear q-network": lambda: q_network(net_arch=[]),
    "quantiles": lambda: quantile_network(dueling=False),
    "dueling quantiles": lambda: quantile_network(layer_norm=True),
    "linear quantiles": lambda: quantile_network(net_arch=[]),
    "squashed": squashed,
    "squashed with tanh": lambda: squashed(activation="tanh", layer_norm=True),
    "residual": lambda: squashed(block="residual", net_arch=[8, 8], expansion=3),
    "residual without norm": lambda: squashed(block="residual", norm="none", norm_input=True),
    "linear squashed": lambda: squashed(net_arch=[]),
    "deterministic": deterministic,
    "deterministic with layer norm": lambda: deterministic(layer_norm=True),
    "linear deterministic": lambda: deterministic(net_arch=[]),
}


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_numpy_gives_what_torch_gives(make: Callable[[], nn.Module]) -> None:
    policy: Any = make()
    acting = ActingPolicy(policy)
    assert acting.uses_numpy
    rng = np.random.default_rng(0)
    for _ in range(2):
        with torch.no_grad():
            for parameter in policy.parameters():
                nn.init.normal_(parameter)
        observations = 3 * rng.normal(size=(N, 3)).astype(np.float32)
        before = observations.copy()
        seen = {"observations": observations}
        parameters, state = acting.parameters(seen)
        assert state is None
        assert parameters.dtype == np.float32
        np.testing.assert_allclose(
            comparable(policy, parameters), comparable(policy, by_modules(policy, seen)), rtol=1e-3, atol=1e-4
        )
        if isinstance(policy, ActorCritic):
            with torch.no_grad():
                expected = policy.values({"observations": torch.from_numpy(observations)}).numpy()
            values = acting.values(seen)
            assert values.shape == (N,)
            np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(observations, before)
        if acting.head.mask_size is not None:
            seen["action_masks"] = np.ones((N, acting.head.mask_size), bool)
            seen["action_masks"][:, 0] = False
            masked, _ = acting.parameters(seen)
            expected = by_modules(policy, seen)
            np.testing.assert_array_equal(masked == -1e8, expected == -1e8)
            np.testing.assert_allclose(
                comparable(policy, masked), comparable(policy, expected), rtol=1e-3, atol=1e-4
            )


@pytest.mark.parametrize("hooked", ["critic", "critic_encoder"])
def test_values_of_hooked_critic_come_from_its_modules(hooked: str) -> None:
    policy = on_policy(BOX, share_encoder=False)
    seen = {"observations": observed()}
    plain = ActingPolicy(policy).values(seen)
    getattr(policy, hooked).register_forward_hook(lambda module, inputs, output: output + 1.0)
    values = ActingPolicy(policy).values(seen)
    assert not np.allclose(values, plain)
    with torch.no_grad():
        expected = policy.values({"observations": torch.from_numpy(seen["observations"])}).numpy()
    np.testing.assert_array_equal(values, expected)


UNKNOWN: dict[str, tuple[Callable[[], nn.Module], spaces.Space[Any]]] = {
    "images": (lambda: on_policy(spaces.Discrete(4), IMAGE, "CnnPolicy"), IMAGE),
    "flat images": (lambda: on_policy(spaces.Discrete(4), IMAGE), IMAGE),
    "dictionaries": (lambda: on_policy(BOX, DICT, "MultiInputPolicy"), DICT),
    "numbers": (lambda: on_policy(BOX, spaces.Discrete(3, start=1)), spaces.Discrete(3, start=1)),
    "other non-linearity": (lambda: on_policy(BOX, activation="gelu"), VECTOR),
    "actions with parts": (lambda: on_policy(ARM), VECTOR),
}


@pytest.mark.parametrize(("make", "space"), UNKNOWN.values(), ids=UNKNOWN)
def test_all_else_goes_through_torch(make: Callable[[], nn.Module], space: spaces.Space[Any]) -> None:
    policy, seen = make(), {"observations": observed(space)}
    acting = ActingPolicy(policy)
    assert not acting.uses_numpy
    parameters, _ = acting.parameters(seen)
    np.testing.assert_allclose(parameters, by_modules(policy, seen), rtol=1e-4, atol=1e-5)


class OwnActorCritic(ActorCritic):
    def _masked(self, features: Tensor, seen: Any) -> Tensor:
        return super()._masked(2.0 * features, seen)


def with_own_class(make: Callable[[], Any], path: str) -> nn.Module:
    """Return a policy of which a part is of a subclass, which may do anything."""
    policy = make()
    part = policy.get_submodule(path)

    def forward(self: Any, values: Any) -> Any:
        return -super(type(part), self).forward(values)

    part.__class__ = type("Own", (type(part),), {"forward": forward})
    return policy


def changed(make: Callable[[], Any], change: Callable[[Any], Any]) -> nn.Module:
    policy = make()
    change(policy)
    return policy


def discrete() -> ActorCritic:
    return on_policy(spaces.Discrete(4))


def own_actor_critic() -> ActorCritic:
    policy = discrete()
    policy.__class__ = OwnActorCritic
    return policy


SOMEBODYS_OWN: dict[str, Callable[[], nn.Module]] = {
    "actor-critic": own_actor_critic,
    "q-network": lambda: with_own_class(q_network, ""),
    "squashed actor": lambda: with_own_class(squashed, ""),
    "encoder": lambda: with_own_class(discrete, "encoder"),
    "head": lambda: with_own_class(discrete, "head"),
    "layers": lambda: with_own_class(discrete, "actor"),
    "layer": lambda: with_own_class(discrete, "actor.0"),
    "layer of a gaussian": lambda: with_own_class(lambda: on_policy(BOX), "head.mean"),
    "layer of a deterministic head": lambda: with_own_class(deterministic, "head.action"),
    "hook": lambda: changed(
        discrete, lambda policy: policy.actor.register_forward_hook(lambda module, args, output: -output)
    ),
    "hook before": lambda: changed(
        discrete, lambda policy: policy.head.register_forward_pre_hook(lambda module, args: (-args[0],))
    ),
    "function in the way": lambda: changed(
        discrete, lambda policy: setattr(policy.encoder, "forward", lambda observations: -observations)
    ),
}


@pytest.mark.parametrize("make", SOMEBODYS_OWN.values(), ids=SOMEBODYS_OWN)
def test_whatever_may_do_anything_goes_through_torch(make: Callable[[], nn.Module]) -> None:
    policy, seen = make(), {"observations": observed()}
    acting = ActingPolicy(policy)
    assert not acting.uses_numpy
    before = seen["observations"].copy()
    parameters, _ = acting.parameters(seen)
    np.testing.assert_allclose(parameters, by_modules(policy, seen), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(seen["observations"], before)


@pytest.mark.parametrize("make", [discrete, own_actor_critic])
def test_masks_hold_while_acting(make: Any) -> None:
    policy = make()
    acting, rng = ActingPolicy(policy), np.random.default_rng(0)
    masks = np.zeros((N, 4), bool)
    masks[np.arange(N), np.arange(N) % 4] = True
    seen = {"observations": observed(), "action_masks": masks}
    for noise in (None, acting.head.noise(rng, (N,))):
        assert acting.act(seen, noise)[0].tolist() == [0, 1, 2, 3, 0, 1]
