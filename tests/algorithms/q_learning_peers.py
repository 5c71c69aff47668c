"""Gradient steps of DQN and QR-DQN beside those of a peer, from the same weights and on the same batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor, nn

from zoo.optim.update_runner import UpdateRunner

BATCH = 16
STEPS = 5
NET_ARCH = [16, 16]
ENV = "Acrobot-v1"  # three actions
GAMMA = 0.9
LEARNING_RATE = 2.0**-8  # the same number in both precisions

ROUNDING = {torch.float32: 2e-4, torch.float64: 1e-10}
"""How far two ways of one computation may part, in parts of the way that the parameters have gone."""


def ours_of(algorithm: Any, dtype: torch.dtype, **hyperparameters: Any) -> Any:
    """Return Zoo's algorithm in this precision, with hyperparameters that the peer has too."""
    model = algorithm(
        {"net_arch": NET_ARCH},
        ENV,
        seed=0,
        compile=False,
        batch_size=BATCH,
        buffer_size=100,
        gamma=GAMMA,
        learning_rate=LEARNING_RATE,
        **hyperparameters,
    )
    if dtype == torch.float64:
        model.policy.encoder = nn.Identity()  # the observations are vectors, which it would make single
        model.policy.double()
        model.runner = UpdateRunner(model._make_state(), model.runtime)
    return model


def peer_of(algorithm: Any, network: str, dtype: torch.dtype, **hyperparameters: Any) -> Any:
    """Return the peer's algorithm in this precision; ``network`` is its name for what it trains."""
    policy_kwargs = {"net_arch": NET_ARCH, **hyperparameters.pop("policy_kwargs", {})}
    model = algorithm(
        "MlpPolicy",
        ENV,
        seed=0,
        device="cpu",
        batch_size=BATCH,
        buffer_size=100,
        gamma=GAMMA,
        learning_rate=LEARNING_RATE,
        policy_kwargs=policy_kwargs,
        **hyperparameters,
    )
    model.set_logger(configure(None, []))
    model.policy.to(dtype)
    model.networks = [getattr(model, network), getattr(model, f"{network}_target")]
    torch.manual_seed(1)
    for each in model.networks:
        each.extract_features = lambda observations, extractor: observations  # it would make them single
        for parameter in each.parameters():
            nn.init.normal_(parameter, std=0.5)
    return model


def batches(dtype: torch.dtype, *, discounts: bool = False) -> dict[str, Tensor]:
    """Return columns (STEPS, BATCH, …): errors on both sides of Huber's corner, ends of episodes."""
    generator = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(STEPS, BATCH, *shape, generator=generator)

    rows = {
        "observations": normal(6),
        "next_observations": normal(6),
        "rewards": 2 * normal(),
        "terminated": (normal() > 0.7).float(),
    }
    if discounts:
        rows["discounts"] = GAMMA ** (1 + 3 * torch.rand(STEPS, BATCH, generator=generator)).floor()
    actions = torch.randint(3, (STEPS, BATCH), generator=generator)
    return {**{name: column.to(dtype) for name, column in rows.items()}, "actions": actions}


def difference(ours: Any, theirs: Any, rows: dict[str, Tensor]) -> float:
    """Take the same steps with both; return how far they parted, in parts of the way gone."""
    flat = nn.utils.parameters_to_vector
    online, target = (flat(each.parameters()).detach() for each in theirs.networks)
    assert not torch.equal(online, target)
    ours.runner.state["q_network"].copy_(online)
    ours.runner.state["target"].copy_(target)
    ours._take_steps(ours._gradient_step, ours.rates(0.0), rows)

    samples = iter(_samples({name: column[i] for name, column in rows.items()}) for i in range(STEPS))
    theirs.replay_buffer = SimpleNamespace(sample=lambda *args, **kwargs: next(samples))
    theirs.train(STEPS, BATCH)

    reached = flat(theirs.networks[0].parameters()).detach()
    gone = (reached - online).abs().max()
    assert gone > 0.01
    assert ours.n_updates == STEPS
    return float((ours.runner.state["q_network"] - reached).abs().max() / gone)


def _samples(batch: dict[str, Tensor]) -> ReplayBufferSamples:
    discounts = batch.get("discounts")
    return ReplayBufferSamples(
        observations=batch["observations"],
        actions=batch["actions"][:, None],
        next_observations=batch["next_observations"],
        dones=batch["terminated"][:, None],
        rewards=batch["rewards"][:, None],
        discounts=None if discounts is None else discounts[:, None],
    )
