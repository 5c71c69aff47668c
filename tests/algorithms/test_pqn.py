"""PQN: λ-returns by hand, and whole updates against the same written out plainly."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from torch import Tensor, nn

from zoo import PQN, ZooError, ZooWarning, make_vec_env
from zoo.buffers.rollout import generalized_advantages
from zoo.experiment.evaluation import evaluate

# -- λ-returns --------------------------------------------------------------------------------------------

WORKED = {
    "no ends": (0.5, (False, False, False), (4.4965, 4.77, 5.6)),
    "an end": (0.5, (False, True, False), (2.35, 0.0, 5.6)),
    "one step": (0.0, (False, False, False), (3.7, 4.5, 5.6)),
    "whole return": (1.0, (False, False, False), (1 + 0.81 * 5.6, 0.9 * 5.6, 5.6)),
}


@pytest.mark.parametrize(("q_lambda", "dones", "expected"), WORKED.values(), ids=WORKED)
def test_lambda_returns_by_hand(q_lambda: float, dones: Any, expected: tuple[float, ...]) -> None:
    """The states' values are 9, 3 and 5, that after the last step is 4, rewards are 1, 0 and 2."""
    rewards, values = np.array([[1.0], [0.0], [2.0]]), np.array([[9.0], [3.0], [5.0]])
    advantages = generalized_advantages(
        rewards, values, np.array([4.0]), np.array(dones)[:, None], 0.9, q_lambda
    )
    np.testing.assert_allclose((values + advantages)[:, 0], expected, rtol=1e-6)


# -- Whole updates ----------------------------------------------------------------------------------------

N_STEPS, N_ENVS, BATCH, N_EPOCHS = 16, 2, 8, 3
GAMMA, LAMBDA, RATE = 0.9, 0.7, 0.01
NORM = 7.0
"""A bound of the gradient that some steps exceed: RAdam alone hides a factor of the loss."""


class Masked(Logged):
    """A `Logged` env in which the last action is valid in half of the states."""

    def action_masks(self) -> np.ndarray:
        return valid(self._observation)


def valid(observations: np.ndarray) -> np.ndarray:
    masks = np.ones((*observations.shape[:-1], 3), bool)
    masks[..., 2] = observations[..., 0] > 0
    return masks


def plain_network(network: Any) -> nn.Sequential:
    """Return the network's layers as PyTorch's own, with weights of their own."""
    first, norm, _ = network.trunk
    return copy.deepcopy(nn.Sequential(first, norm, nn.ReLU(), network.head.logits)).double()


def best_values(network: nn.Module, observations: np.ndarray, *, masked: bool) -> np.ndarray:
    with torch.no_grad():
        values = network(torch.from_numpy(observations).double()).numpy()
    return (np.where(valid(observations), values, -np.inf) if masked else values).max(-1)


def slow_lambda_returns(network: nn.Module, log: list[Any], error: str, *, masked: bool) -> list[float]:
    """Return the λ-returns of one environment's steps, the definition read out loud, backwards."""
    returns: list[float] = []
    for index, step in reversed(list(enumerate(log))):
        observed = step.next_observation
        if error == "reset observation" and step.truncated and index + 1 < len(log):
            observed = log[index + 1].observation
        bootstrap = float(best_values(network, observed, masked=masked and error != "masks"))
        mixed = (1 - LAMBDA) * bootstrap + LAMBDA * returns[-1] if returns else bootstrap
        is_end = step.terminated or (step.truncated and error == "truncation ends")
        if is_end and error != "no ends":
            following = 0.0
        elif (step.truncated and error not in ("returns go on", "no ends")) or error == "one step":
            following = bootstrap
        else:
            following = mixed
        returns.append(step.reward + GAMMA * following)
    return returns[::-1]


def distance_to_reference(error: str = "", *, masked: bool = False) -> float:
    """Learn for three rollouts in Zoo and by hand; return the largest distance of the action values."""
    envs = [(Masked if masked else Logged)(lengths) for lengths in ((3, 4, 2), (1, 5))]
    waiting = list(envs)

    class Watched(PQN):
        def update(self) -> None:
            if self.n_updates == 0:
                self.reference = plain_network(self.policy)
                optimizer = torch.optim.Adam if error == "adam" else torch.optim.RAdam
                self._optimizer_by_hand = optimizer(self.reference.parameters(), lr=RATE)
            rng = copy.deepcopy(self.rng)
            super().update()
            learn_by_hand(self.reference, self._optimizer_by_hand, rng)

    def learn_by_hand(network: nn.Module, optimizer: Any, rng: np.random.Generator) -> None:
        steps = [env.log[-N_STEPS:] for env in envs]
        observations = torch.tensor(np.array([[s.observation for s in log] for log in steps])).double()
        actions = torch.tensor([[int(s.action) for s in log] for log in steps])
        returns = torch.tensor([slow_lambda_returns(network, log, error, masked=masked) for log in steps])
        # Rows of the rollout go through the environments of each step in turn.
        inputs, chosen, targets = (
            part.transpose(0, 1).flatten(0, 1) for part in (observations, actions, returns)
        )
        orders = rng.permuted(np.tile(np.arange(N_STEPS * N_ENVS), (N_EPOCHS, 1)), axis=1)
        for batch in torch.from_numpy(orders.reshape(-1, BATCH)):
            values = network(inputs[batch]).gather(1, chosen[batch, None])[:, 0]
            loss: Tensor = (values - targets[batch]).square().mean() * (
                1.0 if error == "whole square" else 0.5
            )
            optimizer.zero_grad()
            loss.backward()
            bound = 1e9 if error == "not clipped" else NORM
            nn.utils.clip_grad_norm_(network.parameters(), bound)
            optimizer.step()

    model: Any = Watched(
        {"net_arch": [8]},
        make_vec_env(lambda: waiting.pop(0), N_ENVS, check=False),
        learning_rate=RATE,
        n_steps=N_STEPS,
        batch_size=BATCH,
        n_epochs=N_EPOCHS,
        gamma=GAMMA,
        q_lambda=LAMBDA,
        max_grad_norm=NORM,
        seed=1,
        compile=False,
    ).learn(3 * N_STEPS * N_ENVS)
    seen = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = model.policy({"observations": seen})[0], model.reference(seen.double())
    return float((ours - theirs).abs().max())


@pytest.mark.parametrize("masked", [False, True])
def test_updates_are_those_written_out_plainly(masked: bool) -> None:
    assert distance_to_reference(masked=masked) < 2e-5


ERRORS = (
    *("truncation ends", "returns go on", "reset observation", "no ends", "one step"),
    *("whole square", "not clipped", "adam"),
)


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_seen(error: str) -> None:
    assert distance_to_reference(error) > 2e-3


def test_values_of_masked_actions_are_seen() -> None:
    assert distance_to_reference("masks", masked=True) > 2e-3


# -- Networks and acting ----------------------------------------------------------------------------------


def images() -> Any:
    return make_vec_env("Zoo/IdentityImage-v0", 2)


@pytest.mark.parametrize("kind", [{"encoder": "cnn"}, {"encoder": "cnn", "recurrent": "lstm"}])
def test_layers_of_images_are_normalized(kind: dict[str, Any]) -> None:
    norms = (nn.LayerNorm, nn.GroupNorm)
    policy = PQN({**kind, "features_dim": 8}, images()).policy
    kinds = [type(layer) for layer in policy.modules() if isinstance(layer, (nn.Conv2d, *norms, nn.ReLU))]
    assert kinds == 3 * [nn.Conv2d, nn.GroupNorm, nn.ReLU] + [nn.LayerNorm, nn.ReLU]
    bare = PQN({**kind, "features_dim": 8, "norm": "none"}, images()).policy
    assert not any(isinstance(layer, norms) for layer in bare.modules())


def test_numpy_acts_as_the_network() -> None:
    model = PQN({"net_arch": [8, 8]}, "CartPole-v1", seed=0, compile=False).learn(64)
    assert model.acting.uses_numpy
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    with torch.no_grad():
        expected = model.policy({"observations": torch.from_numpy(observations)})[0]
    np.testing.assert_allclose(
        model.acting.parameters({"observations": observations})[0], expected, atol=1e-5
    )


def test_each_environment_explores_by_itself() -> None:
    """Greedy actions are 0; half of all are drawn at random among three, in every step anew."""
    envs = make_vec_env(Logged, 64, check=False)
    model = PQN(
        {"net_arch": [8]},
        envs,
        seed=0,
        compile=False,
        exploration_initial_eps=0.5,
        exploration_final_eps=0.5,
        learning_rate=0.0,
    )
    with torch.no_grad():
        model.policy.head.logits.bias[0] = 100.0
    model.learn(64 * 32)
    explores = model.buffer.columns["actions"] != 0
    assert explores.mean() == pytest.approx(1 / 3, abs=0.04)
    assert 0.2 < explores.mean(0).min() + 0.2 < explores.mean(0).max() < 0.7
    assert explores.mean(1).min() > 0.1
    assert explores.mean(1).max() < 0.6
    greedy, _ = model.predict(np.zeros((500, 3), np.float32))
    assert (greedy == 0).all()
    drawn, _ = model.predict(np.zeros((500, 3), np.float32), deterministic=False)
    assert (drawn != 0).mean() == pytest.approx(1 / 3, abs=0.07)


def test_exploration_rate_falls_and_stays() -> None:
    model = PQN({"net_arch": [8]}, "CartPole-v1", exploration_fraction=0.2)
    rates = [model.exploration_rate(progress) for progress in (0.0, 0.1, 0.2, 1.0)]
    assert rates == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_recurrent_network_learns_masked_memory_task() -> None:
    """The cue must be remembered, and only masks lead to where it is asked for: without either, 0 at best."""

    def learned(**policy: Any) -> float:
        envs, others = (
            make_vec_env("Zoo/MaskedMemory-v0", 16, seed, kwargs={"length": 3}) for seed in (0, 1)
        )
        model = PQN(
            {"net_arch": [16], **policy},
            envs,
            seed=0,
            compile=False,
            threads=1,
            n_steps=24,
            learning_rate=5e-3,
            batch_size=96,
            n_epochs=4,
            exploration_fraction=0.5,
        )
        return evaluate(model.learn(20_000), others, 100, seed=1).mean

    assert learned(recurrent="lstm", lstm_hidden_size=32) > 0.9
    assert learned() < 0.4


# -- Wrong inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "options", "key"),
    [
        ({}, {"q_lambda": 1.5}, "q_lambda"),
        ({}, {"optimizer": "sgd"}, "optimizer"),
        ({}, {"gae_lambda": 0.9}, "gae_lambda"),
        ({}, {"chunk_length": 4}, "algo.chunk_length"),
        ({"recurrent": "lstm"}, {"batch_size": 20}, "algo.batch_size"),
        ({"recurrent": "lstm", "critic_lstm": "shared"}, {}, "policy.critic_lstm"),
        ({"critic": {"layer_norm": True}}, {}, "policy.critic"),
        ({"norm": "batch_renorm"}, {}, "policy.norm"),
        ({"block": "hyperspherical"}, {}, "policy.block"),
    ],
)
def test_bad_input_is_named(policy: dict[str, Any], options: dict[str, Any], key: str) -> None:
    with pytest.raises(ZooError, match=key):
        PQN(policy, "CartPole-v1", n_envs=2, **options)


def test_few_environments_are_warned_of() -> None:
    with pytest.warns(ZooWarning, match="n_envs=2 may learn nothing"):
        PQN({"net_arch": [8]}, "CartPole-v1", n_envs=2, compile=False, threads=1).learn(64)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]
)
def test_actions_that_are_no_single_choice_are_refused(space: Any) -> None:
    with pytest.raises(ZooError, match="Discrete"):
        PQN("MlpPolicy", make_vec_env(lambda: Logged(actions=space), 2, check=False))
