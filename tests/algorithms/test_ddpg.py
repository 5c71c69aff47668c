"""DDPG against a slow reference, and against Stable-Baselines3."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from logged_envs import logged_vector_env
from peer_updates import RATE, Nowhere, largest_distance_after, ours, peer_of
from peer_updates import SETTINGS as PEER_SETTINGS
from torch import Tensor, nn

import zoo
from zoo import DDPG
from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import State, StepResult
from zoo.policies.exploration import ParameterNoiseActor

# -- DDPG with all of its options, written out plainly; its units, its noise, and what is saved of it -----

GAMMA, TAU, BATCH = 0.9, 0.1, 16
BOX = spaces.Box(-2.0, 6.0, (2,), np.float32)
SMALL = {"net_arch": [8]}


class Moments:
    """Mean and deviation of all targets, by their sums, with 0.01 of a standard normal one before them."""

    def __init__(self) -> None:
        self.sum, self.squares, self.count = 0.0, 0.01, 0.01

    def add(self, values: Tensor) -> None:
        self.sum += values.sum().item()
        self.squares += values.square().sum().item()
        self.count += len(values)

    @property
    def mean(self) -> float:
        return self.sum / self.count

    @property
    def std(self) -> float:
        return float(np.sqrt(max(self.squares / self.count - self.mean**2, 0.01)))


class WatchedDDPG(DDPG):
    """Takes every gradient step a second time, plainly and in double precision, on copies of its networks."""

    importance: Tensor | None = None

    def take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
        if self.n_updates == 0:
            self.start = copy.deepcopy(self.policy)
            self.reference = copy.deepcopy(self.policy).double()
            for part in (self.reference.actor, self.reference.critics):
                part.encoder = nn.Identity()  # the vectors are flat; the encoder would make them single
            self.target = copy.deepcopy(self.reference)
            self.actor_optimizer = torch.optim.Adam(self.reference.actor.parameters(), eps=1e-8)
            self.critic_optimizer = torch.optim.Adam(self.reference.critics.parameters(), eps=1e-8)
            self.moments = Moments()
            self.losses: list[tuple[float, float]] = []
        if self.importance is not None:
            rows = {**rows, "weights": self.importance.expand(len(rows["rewards"]), -1)}
        outputs = super().take_steps(step, shared, rows)
        rate = self.schedules["learning_rate"](self._progress_before)
        actor_rate = 0.003 if self.config.actor_learning_rate is not None else rate
        self.critic_optimizer.param_groups[0]["lr"] = rate
        self.actor_optimizer.param_groups[0]["lr"] = actor_rate
        errors = [
            self._plain_step({name: column[row].double() for name, column in rows.items()})
            for row in range(len(rows["rewards"]))
        ]
        if self.importance is not None:
            torch.testing.assert_close(
                outputs["td_errors"].double(), torch.stack(errors), rtol=2e-2, atol=1e-3
            )
        return outputs

    def _plain_step(self, batch: dict[str, Tensor]) -> Tensor:
        config, actor, critics = self.config, self.reference.actor, self.reference.critics
        mean, std = (self.moments.mean, self.moments.std) if config.normalize_returns else (0.0, 1.0)
        with torch.no_grad():
            following = batch["next_observations"]
            next_values = self.target.critics(following, self.target.actor(following))[0] * std + mean
            rewards = config.reward_scale * batch["rewards"]
            targets = rewards + GAMMA * (1 - batch["terminated"]) * next_values
        if config.normalize_returns:
            self.moments.add(targets)
            if config.enable_popart:
                for network in (critics, self.target.critics):
                    self._rescale(network.critics[0][-1], mean, std)
            mean, std = self.moments.mean, self.moments.std
        low, high = config.return_range or (-np.inf, np.inf)
        weights = batch.get("weights", torch.ones(BATCH, dtype=torch.float64))

        values = critics(batch["observations"], batch["actions"])[0]
        wanted = ((targets - mean) / std).clip(low, high)
        decaying = [layer.weight for layer in critics.critics[0] if isinstance(layer, nn.Linear)][:-1]
        decay = 0.5 * config.critic_l2_reg * sum(weight.square().sum() for weight in decaying)
        critic_loss = (weights * (values - wanted) ** 2).mean() + decay
        climbed = critics(batch["observations"], actor(batch["observations"]))[0]
        actor_loss = -(weights * (climbed * std + mean)).mean()
        self.losses.append((critic_loss.item(), actor_loss.item(), (values * std + mean).mean().item()))

        critic_gradients = torch.autograd.grad(critic_loss, list(critics.parameters()))
        actor_gradients = torch.autograd.grad(actor_loss, list(actor.parameters()))
        self._step(self.critic_optimizer, critics, critic_gradients)
        self._step(self.actor_optimizer, actor, actor_gradients)
        with torch.no_grad():
            for ours, online in zip(self.target.parameters(), self.reference.parameters(), strict=True):
                ours += TAU * (online - ours)
        return (values.detach() * std + mean - targets).abs()

    def _step(self, optimizer: Any, network: nn.Module, gradients: Any) -> None:
        for parameter, gradient in zip(network.parameters(), gradients, strict=True):
            parameter.grad = gradient.clone()
        if self.config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(network.parameters(), self.config.max_grad_norm)
        optimizer.step()

    def _rescale(self, layer: Any, old_mean: float, old_std: float) -> None:
        with torch.no_grad():
            layer.weight *= old_std / self.moments.std
            layer.bias.copy_((layer.bias * old_std + old_mean - self.moments.mean) / self.moments.std)


def assert_same(ours: Any, theirs: nn.Module, start: nn.Module) -> None:
    """Compare with a tolerance far below the way that the parameters have gone."""
    initial, expected = dict(start.named_parameters()), dict(theirs.named_parameters())
    for name, parameter in ours.items():
        moved = (expected[name] - initial[name]).abs().max().item()
        assert moved > 1e-4, name
        assert (parameter - expected[name]).abs().max().item() < 1e-2 * moved, name


def watched(**hyperparameters: Any) -> WatchedDDPG:
    env, _ = logged_vector_env("own", BOX)
    settings = {"learning_rate": 0.01, "actor_learning_rate": 0.003, "tau": TAU, "gamma": GAMMA}
    settings |= {"learning_starts": 30, "batch_size": BATCH, "train_freq": 6, "gradient_steps": 2}
    return WatchedDDPG(SMALL, env, seed=1, compile=False, **{**settings, **hyperparameters})


OPTIONS: list[dict[str, Any]] = [
    {},
    {"actor_learning_rate": None, "learning_rate": "lin_0.01"},
    {"critic_l2_reg": 0.1, "max_grad_norm": 0.5},
    {"normalize_returns": True},
    {"normalize_returns": True, "enable_popart": True, "reward_scale": 20.0},
    {"normalize_returns": True, "enable_popart": True, "critic_l2_reg": 0.05, "return_range": [-0.5, 0.5]},
    {"return_range": [-0.1, 0.3], "reward_scale": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_updates_as_written_out(options: dict[str, Any]) -> None:
    model = watched(**options)
    if "critic_l2_reg" in options:
        model.importance = torch.rand(BATCH, generator=torch.Generator().manual_seed(2))
    model.learn(90)
    assert model.n_updates == len(model.losses) == 20
    state = model.runner.state
    for name, target in (("actor", model.target.actor), ("critics", model.target.critics)):
        parameters = getattr(model, f"{name}_updater").parameters
        theirs = model.reference.actor if name == "actor" else model.reference.critics
        start = model.start.actor if name == "actor" else model.start.critics
        assert_same(parameters.named(state[name]), theirs, start)
        assert_same(parameters.named(state[f"target_{name}"]), target, start)
    metrics = model.read_metrics()
    critic_loss, actor_loss, q_value = np.mean(model.losses, 0)
    assert metrics["train/critic_loss"] == pytest.approx(critic_loss, rel=1e-3)
    assert metrics["train/actor_loss"] == pytest.approx(actor_loss, rel=1e-3, abs=1e-5)
    assert metrics["train/q_value"] == pytest.approx(q_value, rel=1e-3, abs=1e-5)
    if "normalize_returns" in options:
        assert state["returns.mean"].item() == pytest.approx(model.moments.mean, rel=1e-3)
        assert model.return_normalizer.std(state).item() == pytest.approx(model.moments.std, rel=1e-3)


# Units of returns
def values_of(model: DDPG, name: str = "critics") -> Tensor:
    """Return what the critic, or its target, says of returns."""
    generator = torch.Generator().manual_seed(7)
    shape = model.observation_space.shape
    observations, actions = torch.randn(50, *shape, generator=generator), torch.zeros(50, 2)  # type: ignore[misc]
    state = model.runner.state
    return model.return_normalizer.denormalize(state, model._outputs(state, name, observations, actions))


def with_units(**options: Any) -> DDPG:
    env, _ = logged_vector_env("own", BOX)
    settings = {"learning_rate": 0.01, "learning_starts": 20, "train_freq": 4, "gradient_steps": 2}
    settings |= {"batch_size": 8, "reward_scale": 50.0, "normalize_returns": True, "enable_popart": True}
    return DDPG(SMALL, env, seed=0, compile=False, **{**settings, **options})


def test_popart_preserves_what_both_critics_say() -> None:
    model = with_units(learning_rate=0.0, actor_learning_rate=0.0)
    expected = {name: values_of(model, name) for name in ("critics", "target_critics")}
    before = model.runner.state["critics"].clone()
    model.learn(100)
    assert model.return_normalizer.std(model.runner.state) > 5
    assert (model.runner.state["critics"] - before).abs().max() > 1e-2
    for name, values in expected.items():
        torch.testing.assert_close(values_of(model, name), values, rtol=1e-4, atol=1e-3)


def test_saved_critic_predicts_unnormalized_returns(tmp_path: Path) -> None:
    model = with_units().learn(200)
    assert model.return_normalizer.std(model.runner.state) > 5
    expected = values_of(model)
    loaded = zoo.load(model.save(tmp_path / "agent"))
    said = loaded.get_parameters()
    plain = zoo.load(tmp_path / "agent", normalize_returns=False, enable_popart=False)
    for name, values in plain.get_parameters().items():
        np.testing.assert_allclose(values, said[name], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(values_of(loaded), expected, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(values_of(loaded, "target_critics"), expected, rtol=1e-4, atol=1e-3)
    model.set_parameters(model.get_parameters())
    torch.testing.assert_close(values_of(model), expected, rtol=1e-4, atol=1e-3)


def test_loaded_critic_keeps_its_return_units(tmp_path: Path) -> None:
    model = with_units(enable_popart=False).learn(200)
    state, units = model.runner.state, model.return_normalizer
    loaded = zoo.load(model.save(tmp_path / "agent"), env=logged_vector_env("own", BOX)[0])
    assert units.moments(loaded.runner.state) == units.moments(state)
    weights = torch.cat([each.reshape(-1) for each in model.policy.critics.parameters()])
    again = torch.cat([each.reshape(-1) for each in loaded.policy.critics.parameters()])
    torch.testing.assert_close(again, weights, rtol=1e-4, atol=1e-4)
    expected = values_of(loaded)
    loaded.config.learning_rate = 0.0
    loaded.schedules["learning_rate"] = lambda _: 0.0
    loaded.learn(40)
    assert loaded.n_updates > 0
    spread = expected.std() + expected.mean().abs()
    assert (values_of(loaded) - expected).abs().max() < 0.5 * spread


# Networks, noise and mistakes
def noisy(**options: Any) -> DDPG:
    settings = {"learning_starts": 0, "batch_size": 8, "train_freq": 10, "gradient_steps": 3, **options}
    return DDPG(SMALL, "Pendulum-v1", n_envs=2, seed=0, compile=False, **settings)


@pytest.mark.parametrize(("desired", "factor"), [(1.0, 1.01), (1e-6, 1 / 1.01)])
def test_parameter_noise_adapts_once_in_an_update(desired: float, factor: float) -> None:
    model = noisy(parameter_noise={"initial_std": 0.2, "desired_action_std": desired})
    assert isinstance(model.exploration, ParameterNoiseActor)
    model.learn(10)
    assert model.n_updates == 3
    assert model.exploration.perturbed.std == (0.2 * 1.01 if factor > 1 else 0.2 / 1.01)
    model.learn(40, reset_num_timesteps=False)
    assert model.exploration.perturbed.std == pytest.approx(0.2 * factor**5)
    assert "train/parameter_noise_distance" in model.read_metrics()


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"enable_popart": True}, "`algo.enable_popart=true` needs `algo.normalize_returns=true`"),
        ({"return_range": [1.0]}, r"`algo.return_range=\[1.0\]`: expected \[low, high\]"),
        ({"actor_lr": 1e-3}, "it is `DDPG.actor_learning_rate` here"),
    ],
)
def test_mistakes_are_told(hyperparameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        DDPG(SMALL, "Pendulum-v1", **hyperparameters)


# -- DDPG's updates against Stable-Baselines3's on the same weights and batches, in double precision ------

ACTOR_RATE = RATE / 2
CALLS = (1, 3, 5)


def step_at_once(peer: Any) -> None:
    """Let the peer's critic step with its actor, by the gradient from before."""
    critic, actor = peer.critic.optimizer, peer.actor.optimizer
    critic_step, actor_step = critic.step, actor.step
    kept: list[Tensor] = []

    def keep() -> None:
        kept[:] = [parameter.grad.clone() for parameter in peer.critic.parameters()]

    def both() -> None:
        actor_step()
        for parameter, gradient in zip(peer.critic.parameters(), kept, strict=True):
            parameter.grad = gradient
        critic_step()

    critic.step, actor.step = keep, both


def largest_distance(
    algorithm: type[DDPG] = DDPG, rate: float = RATE, actor_rate: float = ACTOR_RATE, *, at_once: bool = True
) -> float:
    settings = {**PEER_SETTINGS, "learning_rate": rate, "actor_learning_rate": actor_rate}
    model = ours(algorithm, torch.float64, **settings)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # so that actions and values are not near zero, as they are at first
        for each in model.policy.parameters():
            each.add_(0.2 * torch.randn(each.shape, generator=generator, dtype=torch.float64))
    model.copy_to_targets()
    theirs = stable_baselines3.DDPG(
        "MlpPolicy", Nowhere(), policy_kwargs={"net_arch": [8, 8]}, **PEER_SETTINGS
    )
    peer = peer_of(theirs, torch.float64)
    peer._update_learning_rate = lambda optimizers: None
    peer.critic.optimizer.param_groups[0]["lr"] = rate
    peer.actor.optimizer.param_groups[0]["lr"] = actor_rate
    if at_once:
        step_at_once(peer)
    parts = {
        "actor": (model.policy.actor, peer.actor),
        "critics": (model.policy.critics, peer.critic),
        "target_actor": (model.policy.actor, peer.actor_target),
        "target_critics": (model.policy.critics, peer.critic_target),
    }
    still = "critics" if rate == 0.0 else "actor" if actor_rate == 0.0 else "none"
    return largest_distance_after(CALLS, model, peer, parts, torch.float64, no_noise, still=still)


def no_noise(actions: Tensor, n_steps: int) -> Tensor:
    return torch.zeros(())


@pytest.mark.parametrize(
    "settings",
    [{}, {"actor_rate": 0.0, "at_once": False}, {"rate": 0.0, "at_once": False}],
    ids=["both at once", "the critic alone", "the actor alone"],
)
def test_updates_are_the_peers(settings: dict[str, Any]) -> None:
    assert largest_distance(**settings) < 1e-9


def test_the_comparison_notices_another_order() -> None:
    assert largest_distance(at_once=False) > 1e-3


def planted(change: Callable[[dict[str, Any]], dict[str, Any]]) -> type[DDPG]:
    """Return an algorithm whose steps see another batch."""

    class Wrong(DDPG):
        def _gradient_step(self, state: State, rates: Any, batch: Any) -> StepResult:
            return super()._gradient_step(state, rates, {**batch, **change(batch)})

    return Wrong


class OnlineActorInTargets(DDPG):
    def targets(self, state: State, batch: Any) -> Tensor:
        return super().targets(State({**state, "target_actor": state["actor"]}), batch)


class OnlineCriticInTargets(DDPG):
    def targets(self, state: State, batch: Any) -> Tensor:
        return super().targets(State({**state, "target_critics": state["critics"]}), batch)


class ActorTargetStays(DDPG):
    def _make_state(self) -> State:
        state = super()._make_state()
        polyak_update = Parameters.polyak_update
        own = self.actor_updater.parameters
        own.polyak_update = lambda state, name, tau: polyak_update(own, state, name, 0.0)  # type: ignore[method-assign]
        return state


ERRORS = {
    "ends of episodes are ignored": planted(lambda batch: {"terminated": 0 * batch["terminated"]}),
    "rewards of others": planted(lambda batch: {"rewards": batch["rewards"].roll(1)}),
    "discounted too little": planted(lambda batch: {"discounts": 0.876 + 0 * batch["rewards"]}),
    "the online actor in targets": OnlineActorInTargets,
    "the online critic in targets": OnlineCriticInTargets,
    "the actor's target stays": ActorTargetStays,
}


@pytest.mark.parametrize("error", ERRORS)
def test_the_comparison_notices_an_error(error: str) -> None:
    assert largest_distance(ERRORS[error]) > 1e-4
