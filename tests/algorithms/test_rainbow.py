"""Parts of Rainbow and its kin: Munchausen targets, distributions, noisy layers, implicit quantiles."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo import C51, DQN, IQN, QRDQN, Rainbow, make_vec_env
from zoo.algorithms.qrdqn import quantile_huber
from zoo.cli import status_of
from zoo.optim.update_runner import UpdateRunner
from zoo.policies.networks import NoisyLinear, factor_noise
from zoo.policies.q_networks import midpoints

BATCH = 12
GAMMA = 0.8


def make(algorithm: Any, hidden: tuple[int, ...] = (8,), **options: Any) -> Any:
    """Return an algorithm whose target network is not the online one, with masks of six actions."""
    settings = {"seed": 0, "compile": False, "gamma": GAMMA, **options}
    model = algorithm({"net_arch": [*hidden]}, make_vec_env("Zoo/Masked-v0", 1), **settings)
    generator = torch.Generator().manual_seed(0)
    for name in ("q_network", "target"):
        vector = model.runner.state[name]
        vector.copy_(torch.randn(vector.shape, generator=generator))
    return model


def made_by_hand(model: Any, *, masks: bool = True) -> dict[str, Tensor]:
    rng = np.random.default_rng(3)
    model.observation_space.seed(4)
    observations, following = (
        np.stack([model.observation_space.sample() for _ in range(BATCH)]) for _ in range(2)
    )
    rows = {
        "observations": observations,
        "actions": rng.integers(6, size=BATCH),
        "rewards": rng.normal(size=BATCH).astype(np.float32),
        "terminated": (rng.random(BATCH) < 0.3).astype(np.float32),
        "next_observations": following,
    }
    if masks:
        allowed = rng.random((2, BATCH, 6)) < 0.5
        allowed[0, np.arange(BATCH), rows["actions"]] = True
        allowed[1, :, 2] = True
        rows |= {"action_masks": allowed[0], "next_action_masks": allowed[1]}
    return model._tensors(rows)


def estimates(model: Any, network: str, observations: Tensor) -> np.ndarray:
    with torch.no_grad():
        return model.updater.parameters.functional(model.runner.state[network])(observations).double().numpy()


# -- Munchausen ----------------------------------------------------------------------------------------


def log_policy(values: Any, tau: float) -> np.ndarray:
    """Return log π by plain sums in double precision."""
    values = np.array(values, np.float64) / tau
    shifted = values - values.max()
    return shifted - math.log(np.exp(shifted).sum())


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_munchausen_targets_against_loops(algorithm: Any, masks: bool) -> None:
    more = {"n_quantiles": 5} if algorithm is QRDQN else {}
    model = make(algorithm, munchausen={"alpha": 0.7, "tau": 0.5, "floor": -2.0}, **more)
    batch = made_by_hand(model, masks=masks)
    now, following = (estimates(model, "target", batch[f"{when}observations"]) for when in ("", "next_"))
    n = 5 if more else 1
    now, following = now.reshape(BATCH, n, 6), following.reshape(BATCH, n, 6)
    every = np.ones((BATCH, 6), bool)
    clipped = 0
    for k in range(BATCH):
        allowed = [
            np.flatnonzero(batch[f"{when}action_masks"][k].numpy() if masks else every[k])
            for when in ("", "next_")
        ]
        place = list(allowed[0]).index(int(batch["actions"][k]))
        bonus = 0.5 * log_policy(now[k].mean(0)[allowed[0]], 0.5)[place]
        clipped += bonus < -2
        log_pi = log_policy(following[k].mean(0)[allowed[1]], 0.5)
        soft = [
            sum(math.exp(lp) * (row[a] - 0.5 * lp) for lp, a in zip(log_pi, allowed[1], strict=True))
            for row in following[k]
        ]
        discount = GAMMA * (1 - batch["terminated"][k].item())
        expected = [batch["rewards"][k].item() + 0.7 * max(bonus, -2.0) + discount * value for value in soft]
        targets = model.targets(
            model.runner.state, {name: column[k : k + 1] for name, column in batch.items()}
        )
        np.testing.assert_allclose(targets.numpy().reshape(n), expected, rtol=1e-4, atol=1e-4)
    assert clipped


@pytest.mark.parametrize(
    ("values", "logs", "soft"),
    [
        ((1.0, 2.0), (-1.0, 0.0), 2.0),
        ((1.0, 1.02), (-0.032431, -0.012431), 1.032431),
        ((1.0, 1.0), None, 1.020794),
    ],
)
def test_worked_numbers_of_munchausen(values: Any, logs: Any, soft: float) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", munchausen={}, compile=False, gamma=1.0)
    estimates = torch.tensor([values])
    log_pi = model._log_policy(estimates, None)
    if logs:
        torch.testing.assert_close(log_pi.clamp(min=-1.0), torch.tensor([logs]), atol=1e-6, rtol=0)
    value = ((log_pi / 0.03).exp() * (estimates - log_pi)).sum()
    assert value.item() == pytest.approx(soft, abs=1e-6)


def test_large_values_keep_their_differences() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", munchausen={}, compile=False)
    small, large = (model._log_policy(torch.tensor([[0.0, 0.125]]) + more, None) for more in (0, 4096))
    assert torch.equal(small, large)


# -- C51 -----------------------------------------------------------------------------------------------


def project(probabilities: np.ndarray, values: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    """Project by the triangle around each atom, max(0, 1 - |value - atom| / spacing)."""
    distances = np.abs(values.clip(atoms[0], atoms[-1])[:, None] - atoms) / (atoms[1] - atoms[0])
    return probabilities @ (1 - distances).clip(0.0)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(0)


ATOMS = np.linspace(-2, 3, 6)
C51_OPTIONS: dict[str, Any] = {"n_atoms": 6, "value_range": [-2.0, 3.0]}


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_categorical_step_against_loops(double: bool, dueling: bool, masks: bool) -> None:
    model = make(C51, double=double, dueling=dueling, learning_rate=0.0, **C51_OPTIONS)
    batch = made_by_hand(model, masks=masks)
    batch["discounts"] = GAMMA ** (1 + torch.arange(BATCH) % 3).float()
    batch["weights"] = torch.linspace(0.1, 1.0, BATCH)
    now = estimates(model, "q_network", batch["observations"])
    valued = estimates(model, "target", batch["next_observations"])
    decided = estimates(model, "q_network", batch["next_observations"]) if double else valued
    losses, expected = [], []
    by_atom = 0
    for k in range(BATCH):
        allowed = np.flatnonzero(batch["next_action_masks"][k].numpy()) if masks else range(6)
        best = max(allowed, key=lambda a: ATOMS @ softmax(decided[k])[:, a])
        by_atom += best != max(allowed, key=lambda a: decided[k][:, a].max())
        discount = batch["discounts"][k].item() * (1 - batch["terminated"][k].item())
        returns = batch["rewards"][k].item() + discount * ATOMS
        expected.append(project(softmax(valued[k])[:, best], returns, ATOMS))
        losses.append(-expected[-1] @ np.log(softmax(now[k])[:, int(batch["actions"][k])]))
    assert by_atom
    np.testing.assert_allclose(model.targets(model.runner.state, batch).numpy(), expected, atol=1e-5)
    rows = {name: column[None] for name, column in batch.items()}
    outputs = model.take_steps(model._gradient_step, model.rates(0.0), rows)
    loss = (batch["weights"].numpy() * losses).mean()
    assert model.read_metrics()["train/loss"] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(outputs["td_errors"].numpy(), [losses], rtol=1e-4)


@pytest.mark.parametrize(
    ("reward", "terminated", "expected"),
    [
        (0.5, 0.0, [0.08, 0.37, 0.55]),
        (0.5, 1.0, [0, 0.5, 0.5]),
        (1.0, 1.0, [0, 0, 1]),
        (-7, 1.0, [1, 0, 0]),
    ],
)
def test_worked_numbers_of_the_projection(reward: float, terminated: float, expected: list[float]) -> None:
    model = C51("MlpPolicy", "CartPole-v1", n_atoms=3, value_range=[-1.0, 1.0], gamma=0.9, compile=False)
    batch: Any = {"rewards": torch.tensor([reward]), "terminated": torch.tensor([terminated])}
    targets = model._bootstrapped(batch, torch.tensor([[0.2, 0.5, 0.3]]).log())
    torch.testing.assert_close(targets, torch.tensor([expected]).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dueling", [False, True])
def test_numpy_acts_by_the_expected_returns(dueling: bool) -> None:
    model = make(C51, dueling=dueling, **C51_OPTIONS)
    batch = made_by_hand(model)
    assert model.acting.uses_numpy
    values, _ = model.acting.parameters({"observations": batch["observations"].numpy()})
    by_sums = [ATOMS @ softmax(one) for one in estimates(model, "q_network", batch["observations"])]
    np.testing.assert_allclose(values, by_sums, atol=1e-5)


# -- implicit quantiles --------------------------------------------------------------------------------

SIZES = {"n_quantiles": 3, "n_target_quantiles": 2, "n_acting_quantiles": 5, "n_cosines": 4}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [([0.25, 0.75], 4 * [0.375]), ([0.5, 0.5], [0.75, 0.25, 0.25, 0.75]), ([0, 1], [0, 0.5, 0.5, 0])],
)
def test_worked_losses_of_drawn_levels(levels: list[float], expected: list[float]) -> None:
    values, targets = torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, -1.0]])
    batch: Any = {"fractions": torch.tensor([levels])}
    losses = quantile_huber(values, targets, batch["fractions"])
    assert losses.flatten().tolist() == expected
    model = IQN("MlpPolicy", "CartPole-v1", compile=False)
    loss, error = model._losses_and_errors(values, targets, batch)
    assert (loss.item(), error.item()) == (sum(expected) / 2, 0.0)


def test_loss_at_midpoints_is_that_of_qrdqn() -> None:
    values, targets = torch.randn(2, 7, 5).unbind()
    batch: Any = {"fractions": midpoints(5, values).expand(7, 5)}
    losses = [model._losses_and_errors(values, targets, batch)[0] for model in (make(QRDQN), make(IQN))]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], quantile_huber(values, targets).sum(1).mean(1))


def test_worked_cosines_of_a_fraction() -> None:
    network = make(IQN, n_cosines=4).policy
    network.embedding.weight.data = torch.eye(4).repeat(2, 1)
    network.embedding.bias.data.fill_(0.5)
    factors = network.embedded(torch.tensor([0.5, 0.0]))
    expected = torch.tensor([[0.5, 0, 0.5, 1.5, 0.5, 0, 0.5, 1.5], [1.5] * 8])
    torch.testing.assert_close(factors, expected, atol=1e-6, rtol=0)


def test_quantiles_of_zeros_differ() -> None:
    model = make(IQN, dueling=True, noisy=True)
    zeros = torch.zeros(2, *model.observation_space.shape)
    assert model.policy(zeros).std(-2).min() > 0
    noise = torch.randn(model.policy.noise_size)
    for_all, for_each = model.policy(zeros, noise), model.policy(zeros, noise.expand(2, -1))
    torch.testing.assert_close(for_all, for_each)
    assert not torch.allclose(model.policy(zeros), for_all)


def test_fractions_are_drawn_anew_for_each_transition() -> None:
    class Watched(IQN):
        def take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
            drawn.append([rows[name].clone() for name in ("fractions", "target_fractions")])
            return super().take_steps(step, shared, rows)

    drawn: list[list[Tensor]] = []
    settings = {"learning_starts": 20, "train_freq": 4, "gradient_steps": 2, "batch_size": 8, **SIZES}
    Watched({"net_arch": [8]}, "CartPole-v1", seed=0, compile=False, **settings).learn(60)
    for n, columns in zip((3, 2), zip(*drawn, strict=True), strict=True):
        every = torch.cat(columns)
        assert every.shape[1:] == (8, n)
        assert len(every.unique()) == every.numel()
        assert 0 <= every.min() < 0.1 < 0.9 < every.max() < 1


PLANTED = {
    "plain": (
        *("levels", "first cosine", "added", "no relu", "target fractions", "deciding fractions"),
        *("mean of quantiles", "places of targets", "epsilon", "no masks"),
    ),
    "double": ("deciding network", "no advantages' mean", "no masks"),
    "munchausen": ("no bonus", "no floor", "no entropy", "no masks", "log policy of quantiles"),
}
"""Errors of `slow_updates` by the parts that have them, each of which has to be seen."""
PARTS = {"plain": {}, "double": {"double": True, "dueling": True}, "munchausen": {"munchausen": {"tau": 0.5}}}
UPDATES, RATE = 12, 2.0**-7


def in_double_precision(**options: Any) -> Any:
    model = make(IQN, (8, 7), learning_rate=RATE, batch_size=BATCH, **SIZES, **options)
    model.policy.encoder = nn.Identity()  # it would make the observations single
    model.policy.double()
    model.runner = UpdateRunner(model._make_state(), model.runtime)
    generator = torch.Generator().manual_seed(0)
    for name in ("q_network", "target"):
        vector = model.runner.state[name]
        vector.copy_(torch.randn(vector.shape, generator=generator))
    return model


def rows_of_updates(n_inputs: int) -> dict[str, Tensor]:
    rng = np.random.default_rng(5)
    allowed = rng.random((2, UPDATES, BATCH, 6)) < 0.5
    actions = rng.integers(6, size=(UPDATES, BATCH))
    np.put_along_axis(allowed[0], actions[..., None], True, -1)
    allowed[1, ..., 2] = True
    rows = {
        "observations": rng.normal(size=(UPDATES, BATCH, n_inputs)),
        "next_observations": rng.normal(size=(UPDATES, BATCH, n_inputs)),
        "actions": actions,
        "rewards": rng.normal(size=(UPDATES, BATCH)),
        "terminated": (rng.random((UPDATES, BATCH)) < 0.3).astype(np.float64),
        "discounts": GAMMA ** rng.integers(1, 4, size=(UPDATES, BATCH)),
        "weights": rng.random((UPDATES, BATCH)),
        "action_masks": allowed[0],
        "next_action_masks": allowed[1],
        "fractions": rng.random((UPDATES, BATCH, 3)),
        "target_fractions": rng.random((UPDATES, BATCH, 2)),
    }
    return {name: torch.from_numpy(column) for name, column in rows.items()}


def slow_values(layers: dict[str, Tensor], observation: Tensor, fraction: Any, planted: str) -> Tensor:
    """Return the action values (6,) at one fraction of one observation."""

    def linear(name: str, values: Tensor) -> Tensor:
        return layers[f"{name}.weight"] @ values + layers[f"{name}.bias"]

    start = 0 if planted == "first cosine" else 1
    cosines = [math.cos(math.pi * i * float(fraction)) for i in range(start, start + 4)]
    factors = linear("embedding", torch.tensor(cosines, dtype=torch.float64))
    if planted != "no relu":
        factors = factors.relu()
    features = linear("shared.0", observation).relu()
    features = features + factors if planted == "added" else features * factors
    values = linear("advantages.2", linear("advantages.0", features).relu())
    if "state_value.0.weight" in layers:
        state_value = linear("state_value.2", linear("state_value.0", features).relu())
        values = state_value + values - (0 if planted == "no advantages' mean" else values.mean())
    return values


def slow_targets(model: Any, online: Any, target: Any, row: dict[str, Tensor], planted: str) -> list[Tensor]:
    """Return the targets of one transition."""
    config = model.config
    middles = [(k + 0.5) / 5 for k in range(5)]

    def mean(layers: Any, observation: Tensor, fractions: Any = middles) -> Tensor:
        return sum(slow_values(layers, observation, f, planted) for f in fractions) / len(fractions)  # type: ignore

    fractions = [0.25, 0.75] if planted == "target fractions" else row["target_fractions"]
    following = row["next_observations"]
    allowed = list(range(6)) if planted == "no masks" else np.flatnonzero(row["next_action_masks"]).tolist()
    discount = row["discounts"] * (1 - row["terminated"])
    quantiles = [slow_values(target, following, fraction, planted) for fraction in fractions]
    deciding = fractions if planted == "deciding fractions" else middles
    decides = online if config.double and planted != "deciding network" else target
    decided = mean(decides, following, deciding)
    if config.munchausen is None:
        best = max(allowed, key=lambda a: decided[a].item())
        return [row["rewards"] + discount * values[best] for values in quantiles]
    now = np.flatnonzero(row["action_masks"].numpy()).tolist()
    log_pi = log_policy(mean(target, row["observations"])[now].numpy(), 0.5)[now.index(int(row["actions"]))]
    bonus = 0.5 * log_pi if planted == "no floor" else max(0.5 * log_pi, -1.0)
    reward = row["rewards"] + (0.0 if planted == "no bonus" else 0.9) * bonus
    entropy = 0.0 if planted == "no entropy" else 0.5
    soft = []
    for values in quantiles:
        deciding = values if planted == "log policy of quantiles" else decided
        log_pis = log_policy(deciding[allowed].numpy(), 0.5)
        parts = zip(log_pis, allowed, strict=True)
        soft.append(sum(math.exp(log_pi) * (values[a] - entropy * log_pi) for log_pi, a in parts))
    return [reward + discount * value for value in soft]


def slow_loss(at: Tensor, fraction: Any, target: Tensor, target_fraction: Any, planted: str) -> Tensor:
    level = target_fraction if planted == "places of targets" else fraction
    error = target - at
    huber = error**2 / 2 if abs(error) <= 1 else abs(error) - 0.5
    return (1 - level if error < 0 else level) * huber


def slow_updates(model: Any, rows: dict[str, Tensor], planted: str = "") -> tuple[Tensor, Tensor]:
    """Return the weights after all updates, and the |errors| of the last batch: loops over all."""
    slices = model.updater.parameters.slices
    shapes = {name: parameter.shape for name, parameter in model.policy.named_parameters()}

    def layers(vector: Tensor) -> dict[str, Tensor]:
        return {name: vector[part].view(shapes[name]) for name, part in slices.items()}

    flat, target = (model.runner.state[name].clone() for name in ("q_network", "target"))
    first, second = torch.zeros_like(flat), torch.zeros_like(flat)
    for step in range(UPDATES):
        flat.requires_grad_()
        total, sizes = torch.zeros(()).double(), []
        for k in range(BATCH):
            row = {name: column[step, k] for name, column in rows.items()}
            with torch.no_grad():
                aims = slow_targets(model, layers(flat), layers(target), row, planted)
            levels = [1 / 6, 3 / 6, 5 / 6] if planted == "levels" else row["fractions"].tolist()
            action = int(row["actions"])
            have = [
                slow_values(layers(flat), row["observations"], fraction, planted)[action]
                for fraction in row["fractions"]
            ]
            for at, level in zip(have, levels, strict=True):
                for aim, other in zip(aims, row["target_fractions"], strict=True):
                    share = 1 / 6 if planted == "mean of quantiles" else 1 / 2
                    total = total + row["weights"] * share * slow_loss(at, level, aim, other, planted)
            sizes.append(abs(sum(have) / 3 - sum(aims) / 2).detach())  # type: ignore[arg-type]
        (gradient,) = torch.autograd.grad(total / BATCH, flat)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        size = (second / (1 - 0.999 ** (step + 1))).sqrt() + (1e-8 if planted == "epsilon" else 0.01 / BATCH)
        flat = flat.detach() - RATE * first / (1 - 0.9 ** (step + 1)) / size
    return flat, torch.stack(sizes)


def parted(parts: str, planted: str = "") -> float:
    """Return how far both ways of the updates part, in parts of the way that the weights have gone."""
    model = in_double_precision(**PARTS[parts])
    rows = rows_of_updates(model.policy.shared.input_size)
    start = model.runner.state["q_network"].clone()
    expected, sizes = slow_updates(model, rows, planted)
    outputs = model.take_steps(model._gradient_step, model.rates(0.0), rows)
    if not planted:
        torch.testing.assert_close(outputs["td_errors"][-1], sizes)
    gone = (expected - start).abs().max()
    return float((model.runner.state["q_network"] - expected).abs().max() / gone)


@pytest.mark.parametrize("parts", PARTS)
def test_implicit_updates_against_loops(parts: str) -> None:
    assert parted(parts) < 1e-9


@pytest.mark.parametrize(("parts", "planted"), [(part, each) for part in PLANTED for each in PLANTED[part]])
def test_loops_with_an_error_part(parts: str, planted: str) -> None:
    assert parted(parts, planted) > 1e-4


# -- noisy layers --------------------------------------------------------------------------------------


def test_worked_variance_of_a_noisy_layer() -> None:
    layer = NoisyLinear(64, 1, 0.5)
    assert layer.weight_std.unique().item() == layer.bias_std.item() == 0.5 / 8
    assert layer.weight.abs().max() <= 1 / 8
    layer.weight.data.zero_()
    layer.bias.data.zero_()
    noise = torch.from_numpy(factor_noise(np.random.default_rng(0), (200_000, 65)))
    assert noise.square().mean().item() == pytest.approx(0.79788, abs=2e-3)
    outputs = layer(torch.ones(64), noise).detach()
    assert outputs.var().item() == pytest.approx(0.16227, rel=0.02)
    assert outputs.mean().item() == pytest.approx(0, abs=0.01)


def test_noise_of_a_layer_written_out() -> None:
    layer = NoisyLinear(3, 2, 0.5)
    rows, noise = torch.randn(4, 3), torch.randn(4, 5)
    for k in range(4):
        weight = layer.weight + layer.weight_std * noise[k, 3:, None] * noise[k, None, :3]
        expected = weight @ rows[k] + layer.bias + layer.bias_std * noise[k, 3:]
        torch.testing.assert_close(layer(rows, noise)[k], expected)
        torch.testing.assert_close(layer(rows, noise[k])[k], expected)
    torch.testing.assert_close(layer(rows), rows @ layer.weight.T + layer.bias)
    layer.weight_std.data.zero_()
    layer.bias_std.data.zero_()
    torch.testing.assert_close(layer(rows, noise), layer(rows))


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, C51, IQN])
def test_noise_is_of_both_networks_at_each_step(algorithm: Any) -> None:
    class Watched(algorithm):  # type: ignore[misc]
        def take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
            drawn.append(rows["noise"].clone())
            return super().take_steps(step, shared, rows)

    drawn: list[Tensor] = []
    settings = {"learning_starts": 20, "train_freq": 4, "gradient_steps": 2, "batch_size": 8, "dueling": True}
    more = {"n_quantiles": 5} if algorithm is QRDQN else C51_OPTIONS if algorithm is C51 else {}
    model = Watched({"net_arch": [8]}, "CartPole-v1", noisy=True, seed=0, compile=False, **settings, **more)
    before = model.runner.state["q_network"].clone()
    model.learn(60)
    noise = torch.cat(drawn)
    n_estimates = {DQN: 1, QRDQN: 5, C51: 6, IQN: 1}[algorithm]
    n_hidden = 1 if algorithm is IQN else 2  # it shares the layer
    assert noise.shape[1:] == (2, n_hidden * (4 + 8) + 8 + 2 * n_estimates + 8 + n_estimates)
    assert len(noise.unique()) == noise.numel()
    stds = [part for name, part in model.updater.parameters.slices.items() if name.endswith("_std")]
    moved = model.runner.state["q_network"] != before
    assert all(moved[part].any() for part in stds)
    batch = {
        name: column[0] for name, column in model._tensors(model.buffer.sample(model.rng, (1, 8))).items()
    }
    batch["noise"] = noise[0]
    targets = model.targets(model.runner.state, batch)
    other_target = model.targets(
        model.runner.state, {**batch, "noise": torch.stack([noise[0, 0], noise[1, 1]])}
    )
    assert not torch.allclose(targets, other_target)


def test_noisy_exploration_draws_for_each_environment() -> None:
    model = make(DQN, noisy=True)
    observations = np.zeros((400, *model.observation_space.shape), model.observation_space.dtype)
    inputs = {"observations": observations}
    actions, _ = model.exploration.act(inputs, model.rng, 0.0)
    assert len(np.unique(actions)) > 1
    masks = np.zeros((400, 6), bool)
    masks[:, 4] = True
    allowed, _ = model.exploration.act({**inputs, "action_masks": masks}, model.rng, 0.0)
    assert (allowed == 4).all()
    assert len(np.unique(model.acting.act(inputs, None)[0])) == 1
    one = observations[0]
    assert len({int(model.predict(one, deterministic=True)[0]) for _ in range(30)}) == 1
    assert len({int(model.predict(one, deterministic=False)[0]) for _ in range(60)}) > 1
    assert model.exploration.rate(0.0) == 0


def test_rainbow_has_the_papers_values() -> None:
    model = Rainbow("MlpPolicy", "CartPole-v1", compile=False)
    config, replay = model.config, model.replay_config
    assert (config.double, config.dueling, config.noisy, config.noisy_std) == (True, True, True, 0.5)
    assert (config.n_atoms, config.value_range, config.learning_rate) == (51, [-10.0, 10.0], 6.25e-5)
    assert replay.n_step == 3
    assert replay.prioritized is not None
    assert (replay.prioritized.alpha, replay.prioritized.beta) == (0.5, 0.4)
    composed = zoo.compose("train", ["algo=rainbow", "env=CartPole-v1", "tuned=none"])
    assert composed.replay["n_step"] == 3
    assert composed.replay["prioritized"]["alpha"] == 0.5
    assert composed.algo.noisy is True


# -- bad input -----------------------------------------------------------------------------------------

WRONG = {
    "algo=dqn algo.noisy=true algo.parameter_noise=true": "`algo.noisy` explores instead of",
    "algo=dqn algo.noisy_std=0.1": "`algo.noisy_std=0.1` needs `algo.noisy=true`",
    "algo=qrdqn algo.noisy=true policy.block=residual": "`algo.noisy` needs plain hidden layers",
    "algo=c51 algo.value_range=[5,-5]": "algo.value_range=[5.0, -5.0]`: expected [low, high]",
    "algo=c51 algo.munchausen={}": "algo.munchausen",
    "algo=dqn algo.munchausen=true": "{} switches it on",
    "algo=c51 algo.v_max=10": "algo.value_range=[",
    "algo=dqn algo.munchausen.tau=0": "algo.munchausen.tau",
    "algo=rainbow env=Pendulum-v1": "Discrete",
    "algo=iqn env=Pendulum-v1": "Discrete",
    "algo=iqn algo.n_acting_quantiles=0": "algo.n_acting_quantiles",
    "algo=iqn algo.n_target_quantiles=0.5": "algo.n_target_quantiles",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_values_name_their_key(
    given: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["tuned=none", "n_timesteps=60000", "env=CartPole-v1", *given.split()]
    assert status_of(["train", *{one.partition("=")[0]: one for one in settings}.values()]) == 2
    error = capsys.readouterr().err
    assert WRONG[given] in error
    assert error.count("\n") <= 3
