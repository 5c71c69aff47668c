"""CrossQ: batch renormalisation by hand, and updates beside SB3-Contrib's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peer_updates import BATCH, RATE, Nowhere, flat, largest_distance_after, ours, peer_of
from sb3_contrib import CrossQ as PeerCrossQ
from torch import Tensor

from zoo import SAC, CrossQ, ZooError
from zoo.optim.optimizers import Adam
from zoo.optim.update_runner import State
from zoo.policies.networks import BatchRenorm

WORKED = {
    "first step": ((0.0, 1.0), 0, (0.998752, 2.997253), (0.02, 1.01)),
    "warm-up": ((0.0, 1.0), 5, (-0.706930, 0.706930), (0.02, 1.01)),
    "bounds": ((10.0, 0.01), 0, (-7.105350, -2.872224), (9.92, 0.0299)),
}


@pytest.mark.parametrize(("running", "warmup_steps", "expected", "after"), WORKED.values(), ids=WORKED)
def test_batch_renormalisation_by_hand(
    running: tuple[float, float], warmup_steps: int, expected: tuple[float, ...], after: tuple[float, float]
) -> None:
    """The rows are 1 and 3, with mean 2 and unbiased variance 2; the layer has seen one batch before."""
    layer = BatchRenorm(1, warmup_steps)
    layer.n_passes.fill_(1)
    layer.running_mean.fill_(running[0])
    layer.running_var.fill_(running[1])
    outputs = layer(torch.tensor([[1.0], [3.0]]))
    torch.testing.assert_close(outputs[:, 0], torch.tensor(expected), atol=2e-6, rtol=0)
    assert layer.running_mean.item() == pytest.approx(after[0])
    assert layer.running_var.item() == pytest.approx(after[1])
    assert layer.n_passes.item() == 2


def test_evaluation_uses_frozen_running_statistics() -> None:
    layer = BatchRenorm(1, 0).eval()
    layer.running_mean.fill_(1.0)
    layer.running_var.fill_(4.0 - 1e-3)
    torch.testing.assert_close(layer(torch.tensor([[3.0]])), torch.tensor([[1.0]]))
    assert layer.n_passes.item() == 0


def test_inactive_unit_has_a_finite_gradient() -> None:
    """Its variance is 0, whose root has an infinite slope."""
    layer, values = BatchRenorm(1, 0), torch.zeros(4, 1, requires_grad=True)
    layer.n_passes.fill_(1)
    layer(values).sum().backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()


# -- updates beside the peer's -----------------------------------------------------------------------------

CALLS = (1, 2, 5, 12)
"""Gradient steps of each call, 20 in all: rounds of three begin and end within them."""

EXACT = {torch.float64: 1e-9, torch.float32: 1e-2}


def largest_distance(dtype: torch.dtype, algorithm: type[CrossQ] = CrossQ, warmup_steps: int = 6) -> float:
    settings: dict[str, Any] = {"gamma": 0.875, "learning_rate": RATE, "batch_size": BATCH}
    architecture = {"net_arch": [8, 8], "norm": "batch_renorm", "renorm_warmup_steps": warmup_steps}
    model = ours(algorithm, dtype, policy_kwargs=architecture, **settings)
    peer = PeerCrossQ(
        "MlpPolicy",
        Nowhere(),
        policy_kwargs={"net_arch": [8, 8], "renorm_warmup_steps": warmup_steps},
        device="cpu",
        **settings,
    )
    peer_of(peer, dtype)
    peer.actor.action_dist.epsilon = 0.0  # what it adds inside a logarithm: see docs/differences.md
    peer.log_ent_coef = peer.log_ent_coef.detach().to(dtype).requires_grad_()
    peer.ent_coef_optimizer = torch.optim.Adam([peer.log_ent_coef], lr=RATE)
    parts = {"actor": (model.policy.actor, peer.actor), "critics": (model.policy.critics, peer.critic)}
    largest = largest_distance_after(CALLS, model, peer, parts, dtype, drawn_by_the_peer(3))
    statistics = [
        (flat_buffers(ours), flat_buffers(theirs))
        for ours, theirs in ((model.policy.actor, peer.actor), (model.policy.critics, peer.critic))
    ]
    largest = max(largest, *((ours - theirs).abs().max().item() for ours, theirs in statistics))
    return max(largest, abs(model.policy.temperature.log.item() / peer.log_ent_coef.item() - 1.0))


def flat_buffers(network: torch.nn.Module) -> Tensor:
    return flat(buffer.double() for buffer in network.buffers())


def drawn_by_the_peer(policy_delay: int) -> Callable[[Tensor, int], Tensor]:
    """Return a function that draws as the peer: for targets, and at the end of a round for the actor."""
    n_updates = 0

    def noise(actions: Tensor, n_steps: int) -> Tensor:
        nonlocal n_updates
        zero, one, steps = torch.zeros_like(actions), torch.ones_like(actions), []
        for _ in range(n_steps):
            n_updates += 1
            for_targets = torch.normal(zero, one)
            for_actor = torch.normal(zero, one) if n_updates % policy_delay == 0 else zero
            steps.append(torch.stack([for_actor, for_targets]))
        return torch.stack(steps)

    return noise


@pytest.mark.parametrize("dtype", EXACT, ids=str)
@pytest.mark.parametrize("warmup_steps", [0, 6, 1_000])
def test_updates_are_the_peers(dtype: torch.dtype, warmup_steps: int) -> None:
    assert largest_distance(dtype, warmup_steps=warmup_steps) < EXACT[dtype]


# What the comparison has to see


class SeparatePasses(CrossQ):
    """Passes the two ends of a step through the critics one after the other."""

    def _make_state(self) -> State:
        state = super()._make_state()
        module = self.critics_updater.module

        def separate(state: State) -> Any:
            critics = module(state)

            def forward(observations: Tensor, actions: Tensor) -> Tensor:
                ends = zip(observations.chunk(2), actions.chunk(2), strict=True)
                return torch.cat([critics(*end) for end in ends], dim=1)

            return Replaced(critics, forward)

        self.critics_updater.module = separate  # type: ignore[method-assign]
        return state


class Replaced:
    """A network with another forward pass."""

    def __init__(self, network: Any, forward: Callable[..., Tensor]) -> None:
        self.network, self.forward = network, forward

    def __call__(self, *arguments: Any) -> Tensor:
        return self.forward(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


class TrainingModeThroughout(CrossQ):
    """Normalises by the batch where the running statistics belong."""

    def _learn_from(self, *arguments: Any) -> Any:
        self.policy_mode._is_relevant = False
        self.policy.train()
        return super()._learn_from(*arguments)


class MovesEarly(CrossQ):
    """Moves the actor after each two steps."""

    def _learn_from(self, *arguments: Any) -> Any:
        self.config.policy_delay = 2
        return super()._learn_from(*arguments)


class UsualMomentum(CrossQ):
    def _make_optimizer(self) -> Adam:
        return Adam()


class NoEntropy(CrossQ):
    def _soft_values(self, next_values: Tensor, weighted_log_prob: Tensor) -> Tensor:
        return super()._soft_values(next_values, 0.0 * weighted_log_prob)


@pytest.mark.parametrize(
    "algorithm", [SeparatePasses, TrainingModeThroughout, MovesEarly, UsualMomentum, NoEntropy]
)
def test_errors_are_seen(algorithm: type[CrossQ]) -> None:
    assert largest_distance(torch.float64, algorithm) > 1e-3


# -- what a user gets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"batch_size": 1}, "algo.batch_size"),
        ({"tau": 0.01}, "tau"),
        ({"policy_delay": 0}, "policy_delay"),
    ],
)
def test_bad_hyperparameter_is_named(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ZooError, match=key):
        CrossQ("MlpPolicy", "Pendulum-v1", **options)


@pytest.mark.parametrize(
    "policy", [{"norm": "batch_renorm"}, {"critic": {"norm": "batch"}}, {"renorm_warmup_steps": 5}]
)
def test_batch_norm_of_another_algorithm_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=r"policy\.(critic\.)?(norm|renorm_warmup_steps)"):
        SAC(policy, "Pendulum-v1")


def test_dropout_critics_learn_from_priorities() -> None:
    policy = {"net_arch": [8], "critic": {"dropout": 0.5}}
    settings: dict[str, Any] = {"learning_starts": 8, "batch_size": 8, "compile": False, "seed": 0}
    models = [
        CrossQ(config, "Pendulum-v1", replay={"prioritized": {}}, **settings).learn(24)
        for config in ({"net_arch": [8]}, policy)
    ]
    first, second = (model.get_parameters()["critics.critics.0.1.weight"] for model in models)
    assert (first != second).any()
    assert torch.isfinite(torch.from_numpy(second)).all()


def test_norm_of_inputs_needs_a_norm() -> None:
    with pytest.raises(ZooError, match=r"policy\.critic\.norm=layer"):
        SAC({"critic": {"norm_input": True}}, Nowhere())
    model = SAC({"critic": {"norm": "layer", "norm_input": True}}, Nowhere())
    assert isinstance(model.policy.critics.critics[0][0], torch.nn.LayerNorm)


def test_policy_fields_choose_the_normalisation() -> None:
    model = CrossQ({"critic": {"layer_norm": True}, "actor": {"norm": "none"}}, Nowhere())
    assert not any(isinstance(layer, BatchRenorm) for layer in model.policy.modules())
    assert sum(isinstance(layer, torch.nn.LayerNorm) for layer in model.policy.critics.modules()) == 4


def test_layer_norm_leaves_the_input_as_it_is() -> None:
    model = CrossQ("DroQPolicy", Nowhere())
    assert isinstance(model.policy.critics.critics[0][0], torch.nn.Linear)
    assert isinstance(model.policy.actor.trunk[0], BatchRenorm)
