"""State-dependent exploration, in algorithms and against Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from zoo import A2C, DQN, PPO2, SAC, make_vec_env
from zoo.algorithms.algorithm import Algorithm
from zoo.errors import ZooError
from zoo.policies import distributions
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import SquashedActor
from zoo.policies.distributions import SquashedStateDependentGaussian, StateDependentGaussian

# -- State-dependent exploration in whole algorithms: what is collected, learned, asked for, and refused ---

ON_POLICY = pytest.mark.parametrize("algorithm", [A2C, PPO2])
N_ENVS = 3


class Still(gym.Env[Any, Any]):
    """Shows always the same, so that actions change only where the noise does; episodes have five steps."""

    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(np.float32([-1.0, 3.0]), np.float32([1.0, 7.0]))

    def __init__(self) -> None:
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._step = 0
        return np.float32([0.5, -0.5]), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        self._step += 1
        self.taken.append(np.array(action))
        return np.float32([0.5, -0.5]), 0.0, self._step == 5, False, {}


def made(algorithm: type[Algorithm], env: Any = Still, **options: Any) -> Algorithm:
    policy = {"net_arch": [8], **options.pop("policy", {})}
    n_envs = options.pop("n_envs", N_ENVS)
    envs = make_vec_env(env, n_envs, check=False)
    return algorithm(policy, envs, seed=0, compile=False, threads=1, use_sde=True, **options)


def changes(actions: np.ndarray) -> list[int]:
    """Return at which steps the actions (steps, n_envs, n) of all environments are others than before."""
    differ = (actions[1:] != actions[:-1]).any(-1)
    assert (differ.all(1) == differ.any(1)).all()
    return [int(step) + 1 for step in np.flatnonzero(differ.any(1))]


@ON_POLICY
@pytest.mark.parametrize(("every", "expected"), [(-1, []), (4, [4, 8]), (1, list(range(1, 12)))])
def test_noise_of_a_rollout_stays_for_its_steps(algorithm: Any, every: int, expected: list[int]) -> None:
    model = made(algorithm, n_steps=12, sde_sample_freq=every)
    model._reset_envs()
    model.collect()
    first = model.buffer.columns["actions"].copy()
    assert changes(first) == expected
    assert len(np.unique(first[0], axis=0)) == N_ENVS
    model.collect()
    assert not (model.buffer.columns["actions"][0] == first[-1]).any()


@pytest.mark.parametrize(
    ("every", "train_freq", "expected"),
    [(-1, 24, [8, 16]), (4, 24, [4, 8, 12, 16, 20]), (3, 24, [3, 6, 8, 11, 14, 16, 19, 22])],
)
def test_noise_of_a_collection_begins_with_it(every: int, train_freq: int, expected: list[int]) -> None:
    model = made(SAC, sde_sample_freq=every, train_freq=train_freq, learning_starts=0)
    model._reset_envs()
    model.total_timesteps = 1000
    for _ in range(3):
        model.collect()
    actions = model.buffer.columns["actions"][:24]
    assert changes(actions) == expected
    assert len(np.unique(actions[0], axis=0)) == N_ENVS


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [(PPO2, "`algo.use_sde=true` is for Box actions, .*Discrete"), (DQN, "unknown key `DQN.use_sde`")],
)
def test_what_can_not_be_done_is_refused(algorithm: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message) as refused:
        algorithm({}, "CartPole-v1", use_sde=True)
    assert "\n" not in str(refused.value)


# -- State-dependent exploration against Stable-Baselines3's, on the same weights, features and noise -----

their_distributions = pytest.importorskip("stable_baselines3.common.distributions")
their_policies = pytest.importorskip("stable_baselines3.common.policies")
their_sac = pytest.importorskip("stable_baselines3.sac.policies")

N, F, BATCH = 2, 6, 32
ACTIONS = spaces.Box(-1.0, 1.0, (N,), np.float32)
OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
THEIR_EPSILON = 1e-6
"""What Stable-Baselines3 adds to the variance, inside its expln, and to the volume that tanh takes away."""

FORMS = pytest.mark.parametrize(
    ("squash", "full_std", "use_expln"),
    [(squash, full, expln) for squash in (False, True) for full in (True, False) for expln in (False, True)],
)


class Peer:
    """Both heads at the same weights, in double precision, with the same features and the same noise."""

    def __init__(self, squash: bool, full_std: bool, use_expln: bool) -> None:
        torch.manual_seed(0)
        head_class = SquashedStateDependentGaussian if squash else StateDependentGaussian
        config = PolicyConfig(full_std=full_std, use_expln=use_expln, log_std_init=0.0, clip_mean=0.0)
        self.head = head_class(ACTIONS, F, config, off_policy=True).double()
        self.theirs = their_distributions.StateDependentNoiseDistribution(
            N, full_std=full_std, use_expln=use_expln, squash_output=squash, learn_features=True
        )
        self.their_mean, self.their_log_std = self.theirs.proba_distribution_net(F, log_std_init=0.0)
        self.their_mean.double()
        with torch.no_grad():
            self.their_log_std.data = torch.randn(F, N if full_std else 1).double() - 1.0
            self.their_log_std[0] = 0.7
            self.head.log_std.copy_(self.their_log_std)
            self.their_mean.load_state_dict(self.head.mean.state_dict())
        self.features = 0.3 * torch.randn(BATCH, F).double()
        self.features[0] *= 1e-3
        self.theirs.sample_weights(self.their_log_std, batch_size=BATCH)
        self.theirs.proba_distribution(self.their_mean(self.features), self.their_log_std, self.features)
        self.tolerance = 3e-6 if use_expln else 1e-9

    def check(self) -> None:
        """Raise `AssertionError` where one of the two says something else."""
        close: dict[str, Any] = {"rtol": self.tolerance, "atol": self.tolerance}
        parameters, theirs = self.head(self.features), self.theirs
        mean, std = (torch.from_numpy(each) for each in self.head.describe(parameters.detach().numpy()))
        torch.testing.assert_close(mean, theirs.distribution.mean, **close)
        torch.testing.assert_close(std.square(), theirs.distribution.variance, **close)
        noise = theirs.exploration_matrices.detach().numpy().reshape(BATCH, -1)
        actions = torch.from_numpy(self.head.sample(parameters.detach().numpy(), noise))
        torch.testing.assert_close(actions, theirs.sample(), **close)
        torch.testing.assert_close(
            torch.from_numpy(self.head.mode(parameters.detach().numpy())), theirs.mode(), **close
        )
        expected = theirs.log_prob(actions)
        if theirs.bijector is not None:
            left = 1.0 - actions.square()
            expected = expected + (torch.log(left + THEIR_EPSILON) - torch.log(left)).sum(-1)
        torch.testing.assert_close(self.head.log_prob(parameters, actions), expected, rtol=1e-5, atol=1e-5)
        if theirs.bijector is None:
            torch.testing.assert_close(self.head.entropy(parameters), theirs.entropy(), **close)


@FORMS
def test_distribution_is_the_peers(squash: bool, full_std: bool, use_expln: bool) -> None:
    Peer(squash, full_std, use_expln).check()


PLANTED: dict[str, Callable[[Peer, pytest.MonkeyPatch], Any]] = {
    "deviation": lambda peer, patch: peer.head.log_std.data.add_(1e-4),
    "mean": lambda peer, patch: peer.head.mean.bias.data.add_(1e-4),
    "no least variance": lambda peer, patch: patch.setattr(distributions, "LEAST_VARIANCE", 0.0),
    "order of the features": lambda peer, patch: peer.head.register_forward_pre_hook(
        lambda module, inputs: (inputs[0].roll(1, -1),)
    ),
    "order of the weights": lambda peer, patch: patch.setattr(
        peer.head,
        "sample",
        lambda parameters, noise: type(peer.head).sample(peer.head, parameters, noise[:, ::-1]),
    ),
    "clipped mean": lambda peer, patch: patch.setattr(peer.head, "clip_mean", 0.1),
    "expln": lambda peer, patch: patch.setattr(peer.head, "use_expln", not peer.head.use_expln),
}


@pytest.mark.parametrize("planted", PLANTED)
@FORMS
def test_planted_errors_are_noticed(
    squash: bool, full_std: bool, use_expln: bool, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(squash, full_std, use_expln)
    PLANTED[planted](peer, monkeypatch)
    with pytest.raises(AssertionError):
        peer.check()


def theirs_with_our_weights(theirs: torch.nn.Module, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Load our parameters, in their order, into their module; return its parameters by our names."""
    parameters = dict(theirs.named_parameters())
    named = {}
    for name, their_name in NAMES[type(theirs).__name__].items():
        named[name] = parameters.pop(their_name)
        with torch.no_grad():
            named[name].copy_(ours[name])
    assert not parameters
    return named


def layer(ours: str, theirs: str, number: str = "") -> dict[str, str]:
    return {f"{ours}{number}.{part}": f"{theirs}{number}.{part}" for part in ("weight", "bias")}


def layers(ours: str, theirs: str) -> dict[str, str]:
    return {**layer(ours, theirs, ".0"), **layer(ours, theirs, ".2")}


NAMES = {
    "ActorCriticPolicy": {
        **layers("actor", "mlp_extractor.policy_net"),
        **layers("critic", "mlp_extractor.value_net"),
        **layer("critic.4", "value_net"),
        **layer("head.mean", "action_net"),
        "head.log_std": "log_std",
    },
    "Actor": {**layers("trunk", "latent_pi"), **layer("head.mean", "mu.0"), "head.log_std": "log_std"},
}


@pytest.mark.parametrize("full_std", [True, False])
def test_on_policy_losses_have_the_peers_gradients(full_std: bool) -> None:
    torch.manual_seed(0)
    config = PolicyConfig(net_arch=[8, 8], log_std_init=-0.5, full_std=full_std)
    ours = ActorCritic(OBSERVATIONS, ACTIONS, config, use_sde=True).double()
    options = {"net_arch": {"pi": [8, 8], "vf": [8, 8]}, "use_sde": True, "full_std": full_std}
    theirs = their_policies.ActorCriticPolicy(OBSERVATIONS, ACTIONS, lambda progress: 1e-3, **options)
    theirs.double()
    named = theirs_with_our_weights(theirs, dict(ours.named_parameters()))
    observations = torch.rand(BATCH, 3).double()
    ours.encoder = torch.nn.Identity()  # type: ignore[assignment]  # as theirs, it would make them single
    actions, advantages = torch.randn(BATCH, N).double(), torch.randn(BATCH).double()
    parameters, values, _ = ours({"observations": observations})
    log_prob, entropy = ours.head.log_prob_and_entropy(parameters, actions)
    theirs.extract_features = lambda observations: observations
    their_values, their_log_prob, their_entropy = theirs.evaluate_actions(observations, actions)
    torch.testing.assert_close(values, their_values.squeeze(-1))
    torch.testing.assert_close(log_prob, their_log_prob)
    torch.testing.assert_close(entropy, their_entropy)

    def loss(values: Tensor, log_prob: Tensor, entropy: Tensor) -> Tensor:
        return (-(advantages * log_prob) - 0.01 * entropy + 0.5 * (values - 1.0).square()).mean()

    gradients = torch.autograd.grad(loss(values, log_prob, entropy), list(ours.parameters()))
    loss(their_values.squeeze(-1), their_log_prob, their_entropy).backward()
    for (name, _), gradient in zip(ours.named_parameters(), gradients, strict=True):
        assert gradient.any()
        torch.testing.assert_close(gradient, named[name].grad, msg=name)


@pytest.mark.parametrize("clip_mean", [None, 0.05])
def test_actor_draws_what_the_peers_does(clip_mean: float | None) -> None:
    """Its noise is a W for the whole batch there; what φ·W comes to in each sample is ours here."""
    torch.manual_seed(0)
    config = PolicyConfig(net_arch=[8, 8], log_std_init=-1.0, clip_mean=clip_mean)
    ours = SquashedActor(OBSERVATIONS, ACTIONS, config, use_sde=True).double()
    options = {"use_sde": True, "clip_mean": 2.0 if clip_mean is None else clip_mean}
    theirs = their_sac.Actor(OBSERVATIONS, ACTIONS, [8, 8], torch.nn.Flatten(), 3, **options).double()
    theirs_with_our_weights(theirs, dict(ours.named_parameters()))
    theirs.reset_noise()
    observations = torch.rand(BATCH, 3).double()
    ours.encoder = torch.nn.Identity()  # type: ignore[assignment]  # as theirs, it would make them single
    parameters = ours(observations)
    noise = parameters[:, 2 * N :] @ theirs.action_dist.exploration_mat / parameters[:, N : 2 * N].exp()
    actions, log_prob = ours.head.rsample(parameters, noise)
    theirs.extract_features = lambda observations, extractor: observations
    their_actions, their_log_prob = theirs.action_log_prob(observations)
    torch.testing.assert_close(actions, their_actions)
    left = 1.0 - actions.square()
    their_volume = (torch.log(left + THEIR_EPSILON) - torch.log(left)).sum(-1)
    torch.testing.assert_close(log_prob, their_log_prob + their_volume, rtol=1e-6, atol=1e-6)
