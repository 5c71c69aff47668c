"""Updates of PPO1, PPO2 and A2C against slow references."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from torch import Tensor, distributions, nn

from zoo import A2C, PPO, PPO1, PPO2, make_vec_env
from zoo.algorithms.on_policy import explained_variance, standardized
from zoo.errors import ZooError
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import Bernoulli, DiagonalGaussian, MultiCategorical

# -- Whole updates of PPO2 and A2C against the same written out plainly with PyTorch's own parts ----------

ACTIONS: list[spaces.Space[Any]] = [
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
    spaces.Box(-1.0, 1.0, (2,), np.float32),
]
N_STEPS, N_ENVS = 16, 2
GAMMA, GAE_LAMBDA = 0.9, 0.8
POLICY = {"net_arch": [8], "activation": "tanh"}


def logged_env(actions: spaces.Space[Any] = ACTIONS[0]) -> Any:
    return make_vec_env(lambda: Logged(actions=actions), N_ENVS, check=False)


def distribution_of(policy: ActorCritic, parameters: Tensor) -> list[distributions.Distribution]:
    """Return torch's distributions of the independent parts of an action."""
    if isinstance(policy.head, DiagonalGaussian):
        mean, log_std = parameters.chunk(2, -1)
        return [distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)]
    if isinstance(policy.head, MultiCategorical):
        return [distributions.Categorical(logits=part) for part in parameters.split([2, 3], -1)]
    if isinstance(policy.head, Bernoulli):
        return [distributions.Independent(distributions.Bernoulli(logits=parameters), 1)]
    return [distributions.Categorical(logits=parameters)]


def log_prob_and_entropy(policy: ActorCritic, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    parts = distribution_of(policy, policy.action_parameters({"observations": observations})[0])
    actions = actions if actions.dtype.is_floating_point else actions.to(torch.float32)
    each = actions.unbind(-1) if len(parts) > 1 else [actions]
    log_prob = sum(part.log_prob(action) for part, action in zip(parts, each, strict=True))
    return log_prob, sum(part.entropy() for part in parts)  # type: ignore[return-value]


def value_of(policy: ActorCritic, observations: np.ndarray | Tensor) -> Tensor:
    return policy.values({"observations": torch.as_tensor(observations)})


def advantages_and_values(policy: ActorCritic, model: Any) -> tuple[Tensor, Tensor]:
    """Return both as tables (n_steps, n_envs), with the discounting written out step by step."""
    memory = model.buffer
    with torch.no_grad():
        values = value_of(policy, memory.columns["observations"].reshape(-1, 3))
        table = values.reshape(N_STEPS, N_ENVS).numpy()
        last = value_of(policy, model.collector.policy_input["observations"]).numpy()
        rewards = memory.rewards.copy()
        for step, env, final in zip(*memory.truncations()[:3], strict=True):
            rewards[step, env] += GAMMA * float(value_of(policy, final[None]))
    advantages = np.zeros_like(table)
    following, next_values = np.zeros(N_ENVS), last
    for step in reversed(range(N_STEPS)):
        goes_on = ~memory.dones[step]
        difference = rewards[step] + GAMMA * goes_on * next_values - table[step]
        following = difference + GAMMA * GAE_LAMBDA * goes_on * following
        advantages[step], next_values = following, table[step]
    return torch.from_numpy(advantages.reshape(-1)), values


def assert_same_parameters(ours: nn.Module, theirs: nn.Module, start: nn.Module) -> None:
    """Compare with a tolerance far below the way that the parameters have gone."""
    initial = dict(start.named_parameters())
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        moved = (expected[name] - initial[name]).abs().max().item()
        assert moved > 1e-5, name
        difference = (parameter - expected[name]).abs().max().item()
        assert difference < 2e-3 * moved + 1e-7, name


def watched(algorithm: Any, actions: spaces.Space[Any], **settings: Any) -> Any:
    """Return an algorithm that does every update a second time, plainly, on a copy of its policy."""

    class Watched(algorithm):  # type: ignore[misc]
        def update(self) -> None:
            if self.n_updates == 0:
                self.start, self.reference = copy.deepcopy(self.policy), copy.deepcopy(self.policy)
                self.optimizer = torch.optim.Adam(self.reference.parameters(), eps=self.config.adam_eps)
            rng = copy.deepcopy(self.rng)
            advantages, old_values = advantages_and_values(self.reference, self)
            super().update()
            update_plainly(self, self.reference, self.optimizer, rng, advantages, old_values)

    options = {"n_steps": N_STEPS, "gamma": GAMMA, "gae_lambda": GAE_LAMBDA, "n_epochs": 3, **settings}
    return Watched(POLICY, logged_env(actions), seed=1, compile=False, **options)


def update_plainly(
    model: Any, policy: Any, optimizer: Any, rng: Any, advantages: Tensor, old_values: Tensor
) -> None:
    """Take the steps of PPO2, or of PPO1, which standardises the advantages of the whole rollout."""
    config, buffer = model.config, model.buffer
    rows = buffer.rows()
    observations, actions = (torch.from_numpy(rows[name]) for name in ("observations", "actions"))
    with torch.no_grad():
        old_log_prob, _ = log_prob_and_entropy(policy, observations, actions)
    returns = advantages + old_values
    whole = isinstance(model, PPO1)
    if config.normalize_advantage and whole:
        advantages = (advantages - advantages.mean()) / advantages.std()
    done = (model.num_timesteps - N_STEPS * N_ENVS) / model.total_timesteps
    optimizer.param_groups[0]["lr"] = model.schedules["learning_rate"](done)
    clip = model.schedules["clip_range"](done)
    clip_vf = model.schedules.get("clip_range_vf", model.schedules["clip_range"])(done)
    for batch in buffer.minibatch_rows(rng, config.n_epochs, *model._minibatches()):
        log_prob, entropy = log_prob_and_entropy(policy, observations[batch], actions[batch])
        ratio, advantage = (log_prob - old_log_prob[batch]).exp(), advantages[batch]
        if config.normalize_advantage and not whole:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        values, old, target = value_of(policy, observations[batch]), old_values[batch], returns[batch]
        value_loss = (values - target) ** 2
        if config.clip_range_vf is not None:
            clipped = old + (values - old).clamp(-clip_vf, clip_vf)
            value_loss = torch.max(value_loss, (clipped - target) ** 2)
        loss = -surrogate.mean() - config.ent_coef * entropy.mean() + config.vf_coef * value_loss.mean()
        optimizer.zero_grad()
        loss.backward()
        if config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm)
        optimizer.step()


@pytest.mark.parametrize(
    ("actions", "hyperparameters"),
    [
        *((space, {}) for space in ACTIONS),
        (ACTIONS[0], {"clip_range_vf": None}),
        (ACTIONS[3], {"clip_range_vf": 0.01, "max_grad_norm": None}),
        (ACTIONS[3], {"normalize_advantage": False, "ent_coef": 0.2, "vf_coef": 1.0}),
        (ACTIONS[1], {"learning_rate": "lin_0.03", "clip_range": "lin_0.2", "clip_range_vf": "lin_0.1"}),
        (ACTIONS[0], {"batch_size": 12, "max_grad_norm": 0.1}),
        (ACTIONS[2], {"n_minibatches": 5}),
    ],
    ids=str,
)
def test_ppo2_updates_as_written_out(actions: spaces.Space[Any], hyperparameters: dict[str, Any]) -> None:
    settings = {"learning_rate": 0.02, "clip_range": 0.1, "ent_coef": 0.01, **hyperparameters}
    model = watched(PPO2, actions, **settings).learn(2 * N_STEPS * N_ENVS)
    assert model.read_metrics()["train/clip_fraction"] > 0.05
    assert_same_parameters(model.policy, model.reference, model.start)


def ppo2(algorithm: Any = PPO2, **hyperparameters: Any) -> PPO2:
    settings = {"n_steps": N_STEPS, "n_minibatches": 4, "n_epochs": 3, **hyperparameters}
    return algorithm(POLICY, logged_env(), seed=1, compile=False, **settings)  # type: ignore[no-any-return]


def update_on_changed_ratios(log_ratio: float, target_kl: float) -> PPO2:
    """Return what has just updated on a rollout whose probability ratios are all e^log_ratio."""

    class Changed(PPO2):
        def finished_rollout(self) -> dict[str, Any]:
            rollout = super().finished_rollout()
            rollout["log_prob"] = rollout["log_prob"] - log_ratio
            return rollout

    return ppo2(Changed, learning_rate=0.0, target_kl=target_kl).learn(N_STEPS * N_ENVS)


@pytest.mark.parametrize(
    ("log_ratio", "kl"), [(-110.0, 109.0), (1e-3, 5e-7), (90.0, np.inf), (np.nan, np.nan)]
)
def test_target_kl_stops_at_extreme_probability_ratios(log_ratio: float, kl: float) -> None:
    """The ratio of 90 is beyond single precision; that of -110 is 0 in it."""
    model = update_on_changed_ratios(log_ratio, target_kl=1e-8)
    assert model.n_updates == 0
    assert model.read_metrics()["train/approx_kl"] == pytest.approx(kl, rel=1e-3, nan_ok=True)


def test_explained_variance_subtracts_the_error_share() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(torch.tensor([1.0, 2.0, 3.0, 5.0]), returns) == pytest.approx(0.85)
    assert explained_variance(torch.zeros(4), returns) == 0
    assert np.isnan(explained_variance(returns, torch.ones(4)))


@pytest.mark.parametrize("log_ratio", [-0.5, 0.3])
def test_update_stops_beyond_1_5_times_target_kl(log_ratio: float) -> None:
    kl = np.exp(log_ratio) - 1 - log_ratio
    assert update_on_changed_ratios(log_ratio, target_kl=kl / 1.49).n_updates == 12
    assert update_on_changed_ratios(log_ratio, target_kl=kl / 1.51).n_updates == 0


@pytest.mark.parametrize(
    ("n_steps", "n_minibatches", "size"), [(65, 4, 33), (64, 4, 32), (5, 6, 2), (5, 9, 2), (2, 1, 4)]
)
def test_n_minibatches_need_not_divide_the_rollout(n_steps: int, n_minibatches: int, size: int) -> None:
    """Two environments, so 130 rows are 4 minibatches of 33: as few rows are repeated as can be."""
    model = ppo2(n_steps=n_steps, n_minibatches=n_minibatches, n_epochs=3)
    n_rows = n_steps * N_ENVS
    assert model.gradient_steps_in(5 * n_rows) == pytest.approx(5 * 3 * n_minibatches)
    model.learn(n_rows)
    assert model.n_updates == 3 * n_minibatches
    assert model._minibatches() == (n_minibatches, size)


@pytest.mark.parametrize("hyperparameters", [{"n_minibatches": 32}, {"n_steps": 1, "n_minibatches": 2}])
def test_minibatches_that_cannot_be_made_are_refused(hyperparameters: dict[str, Any]) -> None:
    with pytest.raises(ZooError, match=r"minibatches.* can't be made of n_steps × n_envs = \d+ steps"):
        ppo2(**hyperparameters)


def test_one_step_alone_cannot_be_standardised() -> None:
    with pytest.raises(ZooError, match="needs rollouts of n_steps × n_envs ≥ 2"):
        A2C(POLICY, "CartPole-v1", n_steps=1, normalize_advantage=True)
    model = A2C(POLICY, "CartPole-v1", seed=0, n_steps=1, compile=False).learn(5)
    assert all(np.isfinite(value).all() for value in model.get_parameters().values())


class TensorFlowRMSprop:
    """TensorFlow's RMSprop: a running square that starts at one, and epsilon inside the root."""

    def __init__(self, parameters: list[Tensor], decay: float, eps: float) -> None:
        self.parameters, self.decay, self.eps = parameters, decay, eps
        self.squares = [torch.ones_like(parameter) for parameter in parameters]
        self.param_groups: list[dict[str, float]] = [{"lr": 0.0}]

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter, square in zip(self.parameters, self.squares, strict=True):
            assert parameter.grad is not None
            square.mul_(self.decay).add_((1 - self.decay) * parameter.grad**2)
            parameter.sub_(self.param_groups[0]["lr"] * parameter.grad / (square + self.eps).sqrt())


class WatchedA2C(A2C):
    """Does every update a second time, plainly, on a copy of its policy."""

    make_optimizer: Callable[[list[Tensor]], Any]

    def update(self) -> None:
        if self.n_updates == 0:
            self.start, self.reference = copy.deepcopy(self.policy), copy.deepcopy(self.policy)
            self.optimizer = type(self).make_optimizer(list(self.reference.parameters()))
        advantages, old_values = advantages_and_values(self.reference, self)
        super().update()
        rows, config = self.buffer.rows(), self.config
        observations, actions = (torch.from_numpy(rows[name]) for name in ("observations", "actions"))
        log_prob, entropy = log_prob_and_entropy(self.reference, observations, actions)
        values, weights = value_of(self.reference, observations), advantages
        if config.normalize_advantage:
            weights = (weights - weights.mean()) / (weights.std() + 1e-8)
        loss = (
            -(weights * log_prob).mean()
            - config.ent_coef * entropy.mean()
            + config.vf_coef * ((values - (advantages + old_values)) ** 2).mean()
        )
        done = (self.num_timesteps - N_STEPS * N_ENVS) / self.total_timesteps
        self.optimizer.param_groups[0]["lr"] = self.schedules["learning_rate"](done)
        self.optimizer.zero_grad()
        loss.backward()
        if config.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.reference.parameters(), config.max_grad_norm)
        self.optimizer.step()


OPTIMIZERS: dict[str, tuple[dict[str, Any], Callable[[list[Tensor]], Any]]] = {
    "tensorflow": ({"learning_rate": 0.2}, lambda values: TensorFlowRMSprop(values, 0.99, 1e-5)),
    "pytorch": (
        {"rms_prop_tensorflow": False, "rms_prop_decay": 0.95, "rms_prop_eps": 1e-4},
        lambda values: torch.optim.RMSprop(values, alpha=0.95, eps=1e-4),
    ),
    "adam": ({"use_rms_prop": False}, lambda values: torch.optim.Adam(values, eps=1e-5)),
}


@pytest.mark.parametrize(
    ("optimizer", "actions", "hyperparameters"),
    [
        *(("tensorflow", space, {}) for space in ACTIONS),
        ("pytorch", ACTIONS[0], {"normalize_advantage": True, "max_grad_norm": None}),
        ("adam", ACTIONS[3], {"ent_coef": 0.3, "learning_rate": "lin_0.03"}),
    ],
    ids=str,
)
def test_a2c_updates_as_written_out(optimizer: str, actions: Any, hyperparameters: dict[str, Any]) -> None:
    settings, WatchedA2C.make_optimizer = OPTIMIZERS[optimizer]
    discounts = {"gamma": GAMMA, "gae_lambda": GAE_LAMBDA}
    settings = {"n_steps": N_STEPS, "learning_rate": 0.02, **discounts, **settings, **hyperparameters}
    model = WatchedA2C(POLICY, logged_env(actions), seed=1, compile=False, **settings)
    model.learn(4 * N_STEPS * N_ENVS)
    assert model.n_updates == 4 == model.gradient_steps_in(4 * N_STEPS * N_ENVS)
    assert_same_parameters(model.policy, model.reference, model.start)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (PPO2, {"batch_size": 64, "n_minibatches": 8}, "n_minibatches=8`.* beside `algo.batch_size=64"),
        (PPO, {"n_minibatches": 8}, "set `algo.batch_size=null` too, or leave n_minibatches at 4"),
    ],
)
def test_what_would_do_nothing_is_refused(algorithm: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        algorithm(compile=False, observation_space=ACTIONS[3], action_space=ACTIONS[0], **options)


# -- Whole updates of PPO1 against the same written out plainly, and what it does where PPO2 does otherwise -
@pytest.mark.parametrize(
    ("actions", "hyperparameters"),
    [
        *((space, {}) for space in ACTIONS),
        (ACTIONS[0], {"batch_size": 7, "ent_coef": 0.2, "max_grad_norm": 0.1}),
        (ACTIONS[3], {"normalize_advantage": False, "vf_coef": 0.3}),
    ],
    ids=str,
)
def test_ppo1_updates_as_written_out(actions: spaces.Space[Any], hyperparameters: dict[str, Any]) -> None:
    settings = {"batch_size": 16, "learning_rate": "lin_0.02", "clip_range": "lin_0.1", **hyperparameters}
    model = watched(PPO1, actions, **settings).learn(3 * N_STEPS * N_ENVS)
    metrics = model.read_metrics()
    assert metrics["train/clip_fraction"] > 0.05
    assert metrics["train/learning_rate"] == pytest.approx(0.02 * 2 / 3)
    assert metrics["train/clip_range"] == pytest.approx(0.1 * 2 / 3)
    assert_same_parameters(model.policy, model.reference, model.start)


def test_ppo1_drops_the_partial_minibatch_of_an_epoch() -> None:
    settings = {"n_steps": N_STEPS, "batch_size": 12, "n_epochs": 3}
    model = PPO1(POLICY, logged_env(), seed=1, compile=False, **settings).learn(N_STEPS * N_ENVS)
    assert model.n_updates == 3 * 2 == model.gradient_steps_in(N_STEPS * N_ENVS)
    rows = model.buffer.minibatch_rows(model.rng, 3, *model._minibatches())
    assert rows.shape == (6, 12)
    for epoch in rows.reshape(3, 24):
        assert len(set(epoch.tolist())) == 24, "no step twice"
    assert len(set(rows.reshape(-1).tolist())) > 24, "not always the same steps"


# -- Means and sizes that on-policy updates depend on: written out with NumPy, and by hand ----------------
def test_single_rank_standardises_alone() -> None:
    advantages = np.random.default_rng(0).normal(3.0, 2.0, 6)
    expected = (advantages - advantages.mean()) / advantages.std(ddof=1)
    np.testing.assert_allclose(standardized(torch.tensor(advantages)).numpy(), expected, rtol=1e-6)
