"""DDPG's updates against Stable-Baselines3's on the same weights and batches, in double precision.

One difference is on purpose: here, as in Stable-Baselines and in the paper's algorithm 1, actor and critic
step from the same weights, while Stable-Baselines3's actor climbs the critic that has just stepped. So the
two agree wherever one of both stands still, and throughout once the peer's critic waits for its actor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo import DDPG
from zoo.optim.parameters import Parameters
from zoo.optim.state import State, StepResult

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

N_STEPS, BATCH = 25, 32
SETTINGS: dict[str, Any] = {"gamma": 0.95, "tau": 0.05}
RATE, ACTOR_RATE = 2.0**-9, 2.0**-10  # single precision holds these exactly


class Space(gym.Env[Any, Any]):
    """Only its spaces matter."""

    observation_space = spaces.Box(-1.0, 1.0, (5,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(5, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(5, np.float32), 0.0, False, False, {}


class Double(DDPG):
    """In double precision; the encoder, which flattens vectors, would make them single."""

    def _make_policy(self) -> nn.Module:
        policy: Any = super()._make_policy()
        policy.actor.encoder = policy.critics.encoder = nn.Identity()
        return policy.double()


def ours(algorithm: type[DDPG] = Double, **hyperparameters: Any) -> DDPG:
    settings = {"learning_rate": RATE, "actor_learning_rate": ACTOR_RATE, **SETTINGS, **hyperparameters}
    model = algorithm({"net_arch": [16, 12]}, Space, seed=0, compile=False, threads=1, **settings)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(3)
        for name in ("actor", "critics"):  # so that targets are others, and actions not near zero
            state = model.runner.state
            noise = torch.randn(state[name].shape, generator=generator, dtype=torch.float64)
            state[name].add_(0.2 * noise)
            state[f"target_{name}"].copy_(0.9 * state[name])
    return model


def batches() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(N_STEPS, BATCH, *shape, generator=generator, dtype=torch.float64)

    return {
        "observations": normal(5),
        "actions": normal(2).clamp(-1, 1),
        "rewards": 3 * normal(),
        "terminated": (normal() > 1).double(),
        "next_observations": normal(5),
    }


def peer(model: DDPG, rate: float, actor_rate: float, *, at_once: bool) -> Any:
    """Return SB3's DDPG with our weights, about to learn from our batches.

    ``at_once``: its critic steps with its actor, by the gradient from before.
    """
    theirs = sb3.DDPG(
        "MlpPolicy", Space(), policy_kwargs={"net_arch": [16, 12]}, device="cpu", batch_size=BATCH, **SETTINGS
    )
    theirs.set_logger(configure(None, []))
    theirs.policy.double()
    state = model.runner.state
    parts = {"actor": theirs.actor, "critics": theirs.critic}
    parts |= {"target_actor": theirs.actor_target, "target_critics": theirs.critic_target}
    for name, module in parts.items():
        nn.utils.vector_to_parameters(state[name].clone(), module.parameters())
        module.extract_features = lambda observations, extractor: observations  # else they become single
    theirs._update_learning_rate = lambda optimizers: None
    theirs.critic.optimizer.param_groups[0]["lr"] = rate
    theirs.actor.optimizer.param_groups[0]["lr"] = actor_rate
    rows = iter_rows()
    theirs.replay_buffer.sample = lambda *arguments, **options: next(rows)
    if at_once:
        step_at_once(theirs)
    return theirs


def iter_rows() -> Iterator[ReplayBufferSamples]:
    rows = batches()
    for i in range(N_STEPS):
        row = {name: column[i] for name, column in rows.items()}
        yield ReplayBufferSamples(
            row["observations"],
            row["actions"],
            row["next_observations"],
            row["terminated"][:, None],
            row["rewards"][:, None],
        )


def step_at_once(theirs: Any) -> None:
    critic, actor = theirs.critic.optimizer, theirs.actor.optimizer
    critic_step, actor_step = critic.step, actor.step
    kept: list[Tensor] = []

    def keep() -> None:
        kept[:] = [parameter.grad.clone() for parameter in theirs.critic.parameters()]

    def both() -> None:
        actor_step()
        for parameter, gradient in zip(theirs.critic.parameters(), kept, strict=True):
            parameter.grad = gradient
        critic_step()

    critic.step, actor.step = keep, both


def difference(
    rate: float = RATE,
    actor_rate: float = ACTOR_RATE,
    *,
    at_once: bool = True,
    algorithm: type[DDPG] = Double,
) -> dict[str, float]:
    """Return the largest differences of all networks after the updates, as part of the way that they went."""
    model = ours(algorithm, learning_rate=rate, actor_learning_rate=actor_rate)
    start = {name: tensor.clone() for name, tensor in model.runner.state.items()}
    theirs = peer(model, rate, actor_rate, at_once=at_once)
    theirs.train(N_STEPS, BATCH)
    rates = model.rates(0.0)
    model._take_steps(model._gradient_step, rates, batches())
    parts = {"actor": theirs.actor, "critics": theirs.critic}
    parts |= {"target_actor": theirs.actor_target, "target_critics": theirs.critic_target}
    found = {}
    for name, module in parts.items():
        expected = nn.utils.parameters_to_vector(module.parameters()).detach()
        moved = (expected - start[name]).abs().max().item()
        found[name] = (model.runner.state[name] - expected).abs().max().item() / max(moved, 1e-6)
    return found


def test_updates_agree_where_the_peers_critic_and_actor_step_at_once() -> None:
    assert max(difference().values()) < 1e-9


def test_critic_updates_agree_with_the_peers_as_it_is_where_the_actor_stands_still() -> None:
    assert max(difference(actor_rate=0.0, at_once=False).values()) < 1e-9


def test_actor_updates_agree_with_the_peers_as_it_is_where_the_critic_stands_still() -> None:
    assert max(difference(rate=0.0, at_once=False).values()) < 1e-9


def test_the_comparison_notices_another_order() -> None:
    assert difference(at_once=False)["actor"] > 1e-3


def planted(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> type[DDPG]:
    """Return an algorithm whose steps see another batch."""

    class Wrong(Double):
        def _gradient_step(self, state: State, rates: Any, batch: Any) -> StepResult:
            return super()._gradient_step(state, rates, change(self, batch))

    return Wrong


class OnlineActorInTargets(Double):
    def targets(self, state: State, batch: Any) -> Tensor:
        return super().targets(State({**state, "target_actor": state["actor"]}), batch)


class OnlineCriticInTargets(Double):
    def targets(self, state: State, batch: Any) -> Tensor:
        return super().targets(State({**state, "target_critics": state["critics"]}), batch)


class ActorTargetStays(Double):
    def _make_state(self) -> State:
        state = super()._make_state()
        polyak_update = Parameters.polyak_update
        own = self.actor_updater.parameters
        own.polyak_update = lambda state, name, tau: polyak_update(own, state, name, 0.0)  # type: ignore[method-assign]
        return state


ERRORS = {
    "ends of episodes are ignored": planted(
        lambda self, batch: {**batch, "terminated": torch.zeros_like(batch["terminated"])}
    ),
    "rewards of others": planted(lambda self, batch: {**batch, "rewards": batch["rewards"].roll(1)}),
    "discounted too little": planted(lambda self, batch: {**batch, "discounts": torch.full((BATCH,), 0.951)}),
    "the online actor in targets": OnlineActorInTargets,
    "the online critic in targets": OnlineCriticInTargets,
    "the actor's target stays": ActorTargetStays,
}


@pytest.mark.parametrize("error", ERRORS)
def test_the_comparison_notices_an_error(error: str) -> None:
    assert max(difference(algorithm=ERRORS[error]).values()) > 1e-4
