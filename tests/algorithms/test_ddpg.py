"""DDPG against a slow reference, and against Stable-Baselines3."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import logged_vector_env
from torch import Tensor, nn

import zoo
from zoo import DDPG
from zoo.errors import ZooError
from zoo.optim.parameters import Parameters
from zoo.optim.state import State, StepResult
from zoo.policies.parameter_noise import ParameterNoiseActor

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

    def _take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
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
        outputs = super()._take_steps(step, shared, rows)
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
    settings = {"learning_rate": 0.01, "actor_learning_rate": 0.003, "tau": TAU, **hyperparameters}
    return WatchedDDPG(
        SMALL,
        env,
        seed=1,
        compile=False,
        gamma=GAMMA,
        learning_starts=30,
        batch_size=BATCH,
        train_freq=6,
        gradient_steps=2,
        **settings,
    )


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
        assert model.return_normalizer.mean(state).item() == pytest.approx(model.moments.mean, rel=1e-3)
        assert model.return_normalizer.std(state).item() == pytest.approx(model.moments.std, rel=1e-3)


# Units of returns


def values_of(model: DDPG, name: str = "critics") -> Tensor:
    """Return what the critic, or its target, says of returns."""
    generator = torch.Generator().manual_seed(7)
    shape = model.observation_space.shape
    observations, actions = torch.randn(50, *shape, generator=generator), torch.zeros(50, 2)  # type: ignore[misc]
    state = model.runner.state
    return model.return_normalizer.denormalize(state, model._outputs(state[name], observations, actions))


def still(**options: Any) -> DDPG:
    """Return a model whose updates move nothing but its units."""
    env, _ = logged_vector_env("own", BOX)
    settings = {
        "learning_rate": 0.0,
        "actor_learning_rate": 0.0,
        "learning_starts": 20,
        "train_freq": 4,
        "gradient_steps": 2,
    }
    return DDPG(
        *({"net_arch": [8], "ortho_init": True}, env),
        seed=0,
        compile=False,
        reward_scale=30.0,
        normalize_returns=True,
        **settings,
        **options,
    )


def test_popart_preserves_what_both_critics_say() -> None:
    model = still(enable_popart=True)
    expected = {name: values_of(model, name) for name in ("critics", "target_critics")}
    before = model.runner.state["critics"].clone()
    model.learn(100)
    assert model.return_normalizer.std(model.runner.state) > 5
    assert (model.runner.state["critics"] - before).abs().max() > 1e-2
    for name, values in expected.items():
        torch.testing.assert_close(values_of(model, name), values, rtol=1e-4, atol=1e-3)


def with_units(**options: Any) -> DDPG:
    env, _ = logged_vector_env("own", BOX)
    settings = {
        "learning_rate": 0.01,
        "learning_starts": 20,
        "batch_size": 8,
        "train_freq": 4,
        "gradient_steps": 2,
    }
    return DDPG(
        *(SMALL, env),
        seed=0,
        compile=False,
        reward_scale=50.0,
        **{"normalize_returns": True, "enable_popart": True, **settings, **options},
    )


def test_a_saved_critic_says_returns_whatever_units_it_learned_in(tmp_path: Path) -> None:
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


def test_a_saved_critic_goes_on_in_the_units_that_it_learned_in(tmp_path: Path) -> None:
    model = with_units(enable_popart=False).learn(200)
    state, units = model.runner.state, model.return_normalizer
    loaded = zoo.load(model.save(tmp_path / "agent"), env=logged_vector_env("own", BOX)[0])
    for moment in ("mean", "std"):
        assert getattr(loaded.return_normalizer, moment)(loaded.runner.state) == getattr(units, moment)(state)
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
        ({"actor_lr": 1e-3}, "it is `ddpg.actor_learning_rate` here"),
    ],
)
def test_mistakes_are_told(hyperparameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        DDPG(SMALL, "Pendulum-v1", **hyperparameters)


# -- DDPG's updates against Stable-Baselines3's on the same weights and batches, in double precision ------


sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.logger import configure  # noqa: E402
from stable_baselines3.common.type_aliases import ReplayBufferSamples  # noqa: E402

N_STEPS, PEER_BATCH = 25, 32
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
        return torch.randn(N_STEPS, PEER_BATCH, *shape, generator=generator, dtype=torch.float64)

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
        "MlpPolicy",
        Space(),
        policy_kwargs={"net_arch": [16, 12]},
        device="cpu",
        batch_size=PEER_BATCH,
        **SETTINGS,
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
    theirs.train(N_STEPS, PEER_BATCH)
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
    "discounted too little": planted(
        lambda self, batch: {**batch, "discounts": torch.full((PEER_BATCH,), 0.951)}
    ),
    "the online actor in targets": OnlineActorInTargets,
    "the online critic in targets": OnlineCriticInTargets,
    "the actor's target stays": ActorTargetStays,
}


@pytest.mark.parametrize("error", ERRORS)
def test_the_comparison_notices_an_error(error: str) -> None:
    assert max(difference(algorithm=ERRORS[error]).values()) > 1e-4
