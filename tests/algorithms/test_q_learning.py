"""DQN and QR-DQN against Stable-Baselines3, SB3-Contrib and slow references."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import Tensor, nn

from zoo import DQN, QRDQN, make_vec_env
from zoo.algorithms.qrdqn import quantile_huber
from zoo.optim.update_runner import UpdateRunner

# -- Gradient steps of DQN and QR-DQN beside those of a peer, from the same weights and on the same batches -

BATCH = 16
STEPS = 5
NET_ARCH = [16, 16]
ENV = "Acrobot-v1"  # three actions
GAMMA = 0.9
LEARNING_RATE = 2.0**-8  # the same number in both precisions
SETTINGS = {"batch_size": BATCH, "buffer_size": 100, "gamma": GAMMA, "learning_rate": LEARNING_RATE}

ROUNDING = {torch.float32: 2e-4, torch.float64: 1e-10}
"""How far two ways of one computation may part, in parts of the way that the parameters have gone."""


def ours_of(algorithm: Any, dtype: torch.dtype, **hyperparameters: Any) -> Any:
    """Return Zoo's algorithm in this precision, with hyperparameters that the peer has too."""
    model = algorithm({"net_arch": NET_ARCH}, ENV, seed=0, compile=False, **SETTINGS, **hyperparameters)
    if dtype == torch.float64:
        model.policy.encoder = nn.Identity()  # the observations are vectors, which it would make single
        model.policy.double()
        model.runner = UpdateRunner(model._make_state(), model.runtime)
    return model


def peer_of(algorithm: Any, network: str, dtype: torch.dtype, **hyperparameters: Any) -> Any:
    """Return the peer's algorithm in this precision; ``network`` is its name for what it trains."""
    nets = {"policy_kwargs": {"net_arch": NET_ARCH, **hyperparameters.pop("policy_kwargs", {})}}
    model = algorithm("MlpPolicy", ENV, seed=0, device="cpu", **SETTINGS, **nets, **hyperparameters)
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
    ours.take_steps(ours._gradient_step, ours.rates(0.0), rows)

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


# -- DQN without its extensions takes the gradient steps of Stable-Baselines3's, to rounding --------------

sb3 = pytest.importorskip("stable_baselines3")

PLAIN = {"double": False, "dueling": False}


def compared(
    dtype: torch.dtype, algorithm: Any = DQN, *, max_grad_norm: float, discounts: bool = False
) -> float:
    ours = ours_of(algorithm, dtype, max_grad_norm=max_grad_norm, **PLAIN)
    theirs = peer_of(sb3.DQN, "q_net", dtype, max_grad_norm=max_grad_norm)
    return difference(ours, theirs, batches(dtype, discounts=discounts))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("max_grad_norm", [10.0, 0.1])
@pytest.mark.parametrize("discounts", [False, True])
def test_gradient_steps_are_the_peers(dtype: torch.dtype, max_grad_norm: float, discounts: bool) -> None:
    assert compared(dtype, max_grad_norm=max_grad_norm, discounts=discounts) < ROUNDING[dtype]


class SquaredErrors(DQN):
    def _losses_and_errors(self, values: Tensor, targets: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        return 0.5 * F.mse_loss(values, targets, reduction="none"), values - targets


class BootstrappedAtTheEnd(DQN):
    def _bootstrapped(self, batch: Any, next_values: Tensor) -> Tensor:
        return super()._bootstrapped({**batch, "terminated": 0 * batch["terminated"]}, next_values)


class DecidedByTheOnlineNetwork(DQN):
    def _make_state(self) -> Any:
        self.config.double = True
        return super()._make_state()


class LargerEpsilon(DQN):
    def _adam_eps(self) -> float:
        return 1e-5


class NotClipped(DQN):
    def _make_state(self) -> Any:
        self.config.max_grad_norm = None
        return super()._make_state()


@pytest.mark.parametrize(
    "mistaken", [SquaredErrors, BootstrappedAtTheEnd, DecidedByTheOnlineNetwork, LargerEpsilon, NotClipped]
)
def test_the_comparison_notices(mistaken: Any) -> None:
    assert compared(torch.float64, mistaken, max_grad_norm=0.1) > 1e4 * ROUNDING[torch.float64]


# -- QR-DQN takes the gradient steps of SB3-Contrib's, to rounding ----------------------------------------

sb3_contrib = pytest.importorskip("sb3_contrib")

N = 8
"""Quantiles; the peer keeps their places in single precision, in which those of 8 have no rounding."""


def qrdqn_compared(
    dtype: torch.dtype, algorithm: Any = QRDQN, n_quantiles: int = N, *, discounts: bool = False, **clip: Any
) -> float:
    clip = {"max_grad_norm": None, **clip}
    ours = ours_of(algorithm, dtype, n_quantiles=n_quantiles, **clip)
    quantiles = {"policy_kwargs": {"n_quantiles": n_quantiles}}
    theirs = peer_of(sb3_contrib.QRDQN, "quantile_net", dtype, **clip, **quantiles)
    return difference(ours, theirs, batches(dtype, discounts=discounts))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
@pytest.mark.parametrize("discounts", [False, True])
def test_quantile_steps_are_the_peers(dtype: torch.dtype, max_grad_norm: Any, discounts: bool) -> None:
    assert qrdqn_compared(dtype, max_grad_norm=max_grad_norm, discounts=discounts) < ROUNDING[dtype]


@pytest.mark.parametrize("n_quantiles", [1, 25])
def test_any_n_quantiles_agrees_in_single_precision(n_quantiles: int) -> None:
    assert qrdqn_compared(torch.float32, n_quantiles=n_quantiles) < ROUNDING[torch.float32]


class PlacesOfTargets(QRDQN):
    """Weighs errors by the place of the target instead of that of the quantile."""

    def _losses_and_errors(self, values: Tensor, targets: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        return quantile_huber(targets, values).sum(-2).mean(-1), targets - values


class MeanOverQuantiles(QRDQN):
    def _losses_and_errors(self, values: Tensor, targets: Tensor, batch: Any) -> tuple[Tensor, Tensor]:
        return quantile_huber(values, targets).mean((-2, -1)), targets - values


class QuantilesOfAllActions(QRDQN):
    """Lays out the network's numbers by action, then by quantile."""

    def _values_of_actions(self, estimates: Tensor, actions: Tensor) -> Tensor:
        other = estimates.reshape(BATCH, 3, N).mT
        return super()._values_of_actions(other, actions)


class QuantilesDecidedByTheOnlineNetwork(QRDQN):
    def _make_state(self) -> Any:
        self.config.double = True
        return super()._make_state()


class UsualEpsilon(QRDQN):
    def _adam_eps(self) -> float:
        return 1e-8


MISTAKEN = [PlacesOfTargets, MeanOverQuantiles, QuantilesOfAllActions]


@pytest.mark.parametrize("mistaken", [*MISTAKEN, QuantilesDecidedByTheOnlineNetwork, UsualEpsilon])
def test_the_comparison_of_quantiles_notices(mistaken: Any) -> None:
    assert qrdqn_compared(torch.float64, mistaken) > 1e4 * ROUNDING[torch.float64]


# -- The quantile Huber loss against numbers worked out by hand, loops, and the quantiles that it is to find

each_example = settings(deadline=None, derandomize=True, max_examples=50)


def huber(error: float) -> float:
    return error**2 / 2 if abs(error) <= 1 else abs(error) - 1 / 2


def quantile_loss(error: float, i: int, n: int) -> float:
    place = (i + 0.5) / n
    return (1 - place if error < 0 else place) * huber(error)


def plain_loss(quantiles: np.ndarray, targets: np.ndarray) -> np.ndarray:
    n = len(quantiles)
    return np.array([[quantile_loss(goal - at, i, n) for goal in targets] for i, at in enumerate(quantiles)])


@given(n=st.integers(1, 5), m=st.integers(1, 5), seed=st.integers(0, 2**16))
@each_example
def test_losses_and_gradients_are_those_of_a_loop(n: int, m: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    quantiles = torch.randn(3, 4, n, generator=generator, dtype=torch.float64).mul_(2).requires_grad_()
    targets = torch.randn(4, m, generator=generator, dtype=torch.float64).mul_(2)
    losses = quantile_huber(quantiles, targets)
    weights = torch.rand(losses.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((losses * weights).sum(), quantiles)
    for critic in range(3):
        for row in range(4):
            at, goals = quantiles[critic, row].detach().numpy(), targets[row].numpy()
            np.testing.assert_allclose(losses[critic, row].detach(), plain_loss(at, goals), atol=1e-12)
            step = 1e-6
            for i in range(n):
                moved = at.copy()
                moved[i] += step
                rise = plain_loss(moved, goals) - plain_loss(at, goals)
                grad = (rise * weights[critic, row].numpy()).sum() / step
                assert gradient[critic, row, i].item() == pytest.approx(grad, abs=1e-4)


# -- Gradient steps of DQN and QR-DQN on batches made by hand, against loops over samples and quantiles ---

STEP_BATCH = 12
STEP_GAMMA = 0.8


def make(algorithm: Any, *, double: bool, dueling: bool) -> Any:
    """Return an algorithm whose target network is not the online one, and whose steps move nothing."""
    options = {"double": double, "dueling": dueling, **({"n_quantiles": 5} if algorithm is QRDQN else {})}
    settings = {"seed": 0, "compile": False, "gamma": STEP_GAMMA, "learning_rate": 0.0, **options}
    model = algorithm({"net_arch": [8]}, make_vec_env("Zoo/Masked-v0", 1), **settings)
    generator = torch.Generator().manual_seed(0)
    for name in ("q_network", "target"):
        vector = model.runner.state[name]
        vector.copy_(torch.randn(vector.shape, generator=generator))
    return model


def made_by_hand(model: Any) -> dict[str, Tensor]:
    rng = np.random.default_rng(3)
    model.observation_space.seed(4)
    observations, following = (
        np.stack([model.observation_space.sample() for _ in range(STEP_BATCH)]) for _ in range(2)
    )
    return model._tensors(
        {
            "observations": observations,
            "actions": rng.integers(6, size=STEP_BATCH),
            "rewards": rng.normal(size=STEP_BATCH).astype(np.float32),
            "terminated": (rng.random(STEP_BATCH) < 0.3).astype(np.float32),
            "next_observations": following,
        }
    )


EXTRAS: dict[str, Any] = {
    "weights": torch.linspace(0.1, 1.0, STEP_BATCH),
    "discounts": STEP_GAMMA ** (1 + torch.arange(STEP_BATCH) % 3).float(),
    "next_action_masks": (torch.arange(STEP_BATCH)[:, None] + torch.arange(6)) % 3 == 0,
}


def written_out(model: Any, batch: dict[str, Tensor]) -> tuple[list[list[float]], list[float], list[float]]:
    """Return each sample's targets, loss, and absolute error of the mean; DQN has one quantile, its value."""
    parameters, state = model.updater.parameters, model.runner.state
    is_dqn = type(model) is DQN

    def estimates(network: str, observations: Tensor) -> Any:
        with torch.no_grad():
            given = parameters.functional(state[network])(observations).double()
        return (given[:, None] if is_dqn else given).tolist()

    now = estimates("q_network", batch["observations"])
    valued = estimates("target", batch["next_observations"])
    decided = estimates("q_network", batch["next_observations"]) if model.config.double else valued
    targets, losses, sizes = [], [], []
    for k in range(STEP_BATCH):
        n = len(now[k])
        allowed = range(6)
        if "next_action_masks" in batch:
            allowed = [a for a in range(6) if batch["next_action_masks"][k, a]]  # type: ignore[assignment]
        best = max(allowed, key=lambda a: sum(decided[k][i][a] for i in range(n)))
        discount = batch["discounts"][k].item() if "discounts" in batch else STEP_GAMMA
        if batch["terminated"][k]:
            discount = 0.0
        towards = [batch["rewards"][k].item() + discount * valued[k][i][best] for i in range(n)]
        have = [now[k][i][int(batch["actions"][k])] for i in range(n)]
        loss = 0.0
        for i in range(n):
            for target in towards:
                error = target - have[i]
                loss += huber(error) if is_dqn else quantile_loss(error, i, n) / n
        targets.append(towards)
        losses.append(loss)
        sizes.append(abs(sum(towards) / n - sum(have) / n))
    return targets, losses, sizes


@pytest.mark.parametrize("extra", [(), *[(name,) for name in EXTRAS], tuple(EXTRAS)], ids=str)
@pytest.mark.parametrize(("double", "dueling"), [(False, True), (True, False)])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_step_against_loops(algorithm: Any, double: bool, dueling: bool, extra: tuple[str, ...]) -> None:
    model = make(algorithm, double=double, dueling=dueling)
    batch = {**made_by_hand(model), **{name: EXTRAS[name] for name in extra}}
    targets, losses, sizes = written_out(model, batch)

    ours = model.targets(model.runner.state, batch).reshape(STEP_BATCH, -1)
    np.testing.assert_allclose(ours.numpy(), targets, rtol=1e-5, atol=1e-5)

    rows = {name: column[None] for name, column in batch.items()}
    outputs = model.take_steps(model._gradient_step, model.rates(0.0), rows)
    weights = batch["weights"].tolist() if "weights" in batch else [1.0] * STEP_BATCH
    expected = sum(weight * loss for weight, loss in zip(weights, losses, strict=True)) / STEP_BATCH
    assert model.read_metrics()["train/loss"] == pytest.approx(expected, rel=1e-5)
    if "weights" in extra:
        np.testing.assert_allclose(outputs["td_errors"].numpy(), [sizes], rtol=1e-5, atol=1e-5)
    else:
        assert outputs == {}


# -- What DQN's target network estimates of many batches at once is what it estimates of each -------------
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_targets_are_the_same_with_them_and_without(algorithm: Any, double: bool) -> None:
    settings = {"learning_starts": 20, "train_freq": 4, "gradient_steps": 2, "batch_size": 8}
    settings |= {"learning_rate": 0.01, "double": double}
    envs = make_vec_env("CartPole-v1", 2, 0)
    model = algorithm({"net_arch": [16]}, envs, seed=0, compile=False, **settings)
    model.learn(60)  # so that its target network lags behind
    batches = model._tensors(model.buffer.sample(model.rng, (3, 8)))
    ahead = model._target_values_ahead(batches, 2)
    for i in range(3):
        batch = {name: each[i] for name, each in batches.items()}
        with_them = model.targets(model.runner.state, {**batch, "target_values": ahead[i]})
        torch.testing.assert_close(with_them, model.targets(model.runner.state, batch))
        others = model.targets(model.runner.state, {**batch, "target_values": ahead[i] + 1})
        assert not torch.allclose(others, with_them)
