"""Noise on parameters: whose, when it is drawn, on what, and how it grows and shrinks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo.core.tensors import join, split
from zoo.errors import ZooError
from zoo.optim.parameters import Parameters
from zoo.policies import parameter_noise
from zoo.policies.acting import ActingPolicy
from zoo.policies.actions import make_action_adapter
from zoo.policies.config import PolicyConfig
from zoo.policies.continuous import DeterministicActor
from zoo.policies.exploration import OrnsteinUhlenbeckNoise
from zoo.policies.parameter_noise import (
    ParameterNoiseActor,
    ParameterNoiseConfig,
    ParameterNoiseGreedy,
    PerturbedPolicy,
    action_distance,
    epsilon_greedy_kl,
    make_parameter_noise,
    mean_softmax_kl,
    perturbable,
)
from zoo.policies.q_networks import QNetwork

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)
CHOICES = spaces.Discrete(4)


def perturbed_actor(*, std: float = 0.3, **fields: Any) -> tuple[PerturbedPolicy, Parameters]:
    torch.manual_seed(0)
    actor = DeterministicActor(
        VECTOR, BOX, PolicyConfig(**{"net_arch": [8, 8], "layer_norm": True, **fields})
    )
    parameters = Parameters("actor", actor.eval())
    return PerturbedPolicy(ActingPolicy(actor), parameters, std), parameters


def noisy_actor(noise: Any = None, **settings: Any) -> ParameterNoiseActor:
    perturbed, _ = perturbed_actor()
    return ParameterNoiseActor(
        perturbed, make_action_adapter(BOX, scaled=True), noise, 0.0, ParameterNoiseConfig(**settings)
    )


def noisy_greedy(rate: float, space: Any = VECTOR, **fields: Any) -> tuple[ParameterNoiseGreedy, Parameters]:
    torch.manual_seed(0)
    network = QNetwork(space, CHOICES, PolicyConfig(**{"net_arch": [8], **fields}), dueling=True).eval()
    parameters = Parameters("q_network", network)
    action_adapter = make_action_adapter(CHOICES, scaled=False)
    return ParameterNoiseGreedy(
        ActingPolicy(network), parameters, action_adapter, lambda progress: rate
    ), parameters


def seen(n: int, seed: int = 1) -> dict[str, Any]:
    return {"observations": np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)}


def same(n: int) -> dict[str, Any]:
    """Return the same observation for all."""
    return {"observations": np.tile(np.array([[0.3, -0.7, 0.5]], np.float32), (n, 1))}


def by_modules(parameters: Parameters, vector: Any, observations: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return parameters.functional(torch.as_tensor(vector))(torch.from_numpy(observations)).numpy()


def test_each_environment_acts_with_a_copy_of_its_own() -> None:
    perturbed, parameters = perturbed_actor()
    rng = np.random.default_rng(0)
    perturbed.redraw(rng, 3)
    shown = seen(3)
    actions, _ = perturbed.act(shown, None)
    copies = perturbed.state()["copies"]
    for i in range(3):
        row = shown["observations"][i : i + 1]
        np.testing.assert_allclose(actions[i : i + 1], by_modules(parameters, copies[i], row), atol=1e-6)
    alike, _ = perturbed.act(same(3), None)
    plain = by_modules(parameters, parameters.flat.detach(), same(1)["observations"])
    assert all(
        np.abs(row - other).max() > 1e-3 for row, other in zip(alike, np.roll(alike, 1, 0), strict=True)
    )
    assert np.abs(alike - plain).max(1).min() > 1e-3


def test_what_is_drawn_is_normal_noise_on_all_but_layer_normalisation() -> None:
    perturbed, parameters = perturbed_actor(std=0.3, net_arch=[60, 60])
    perturbed.redraw(np.random.default_rng(0), 20)
    noise = perturbed.state()["copies"] - parameters.flat.detach().numpy()
    for name, part in parameters.slices.items():
        is_norm = name in ("trunk.1.weight", "trunk.1.bias", "trunk.4.weight", "trunk.4.bias")
        assert bool(noise[:, part].any()) is not is_norm, name
        if not is_norm:
            assert noise[:, part].std() == pytest.approx(0.3, rel=0.15), name
            assert noise[:, part].mean() == pytest.approx(0.0, abs=0.1), name
    assert "head.action.bias" in parameters.slices
    drawn = noise[:, np.r_[tuple(perturbable(parameters))]]
    correlation = np.corrcoef(drawn) - np.eye(20)
    assert np.abs(correlation).max() < 0.1


def test_what_reads_images_takes_no_noise_in_a_q_network() -> None:
    part, parameters = noisy_greedy(0.5, IMAGE, encoder="cnn", features_dim=16, layer_norm=True)
    part.perturbed.redraw(np.random.default_rng(0), 2)
    noise = part.perturbed.state()["copies"] - parameters.flat.detach().numpy()
    noisy = {name for name, where in parameters.slices.items() if noise[:, where].any()}
    norms = {"advantages.1.weight", "advantages.1.bias", "state_value.1.weight", "state_value.1.bias"}
    assert noisy == {name for name in parameters.slices if not name.startswith("encoder.")} - norms


def test_copies_are_drawn_anew_only_where_an_episode_ended_and_from_the_parameters_of_then() -> None:
    perturbed, parameters = perturbed_actor()
    rng = np.random.default_rng(0)
    perturbed.redraw(rng, 3)
    first = perturbed.state()["copies"]
    with torch.no_grad():
        parameters.flat.add_(100.0)  # updates go on within the episodes
    perturbed.redraw(rng, 3)
    np.testing.assert_array_equal(perturbed.state()["copies"], first)
    perturbed.reset(np.array([1]))
    np.testing.assert_array_equal(perturbed.state()["copies"], first)
    perturbed.redraw(rng, 3)
    second = perturbed.state()["copies"]
    np.testing.assert_array_equal(second[[0, 2]], first[[0, 2]])
    assert (second[1] > first[1] + 90).all()
    perturbed.reset()
    assert perturbed.state()["copies"] is None
    perturbed.redraw(rng, 2)
    third = perturbed.state()["copies"]
    assert third.shape == (2, parameters.size)
    assert (third > 90).all()


def test_the_parameters_themselves_are_never_touched() -> None:
    perturbed, parameters = perturbed_actor()
    before = parameters.flat.detach().clone()
    rng = np.random.default_rng(0)
    perturbed.redraw(rng, 3)
    without, with_noise = perturbed.with_and_without_noise(seen(5), rng)
    assert torch.equal(parameters.flat, before)
    np.testing.assert_allclose(without, by_modules(parameters, before, seen(5)["observations"]), atol=1e-6)
    assert np.abs(with_noise - without).max() > 1e-3
    again, differently = perturbed.with_and_without_noise(seen(5), rng)
    np.testing.assert_array_equal(again, without)
    assert np.abs(with_noise - differently).max() > 1e-3


def test_noise_grows_and_shrinks_by_exactly_its_coefficient() -> None:
    part, rng = noisy_actor(desired_action_std=1e6), np.random.default_rng(0)
    std = part.perturbed.std
    logged = part.adapt(seen(64), rng)
    assert part.perturbed.std == logged["parameter_noise_std"] == std * 1.01
    part = noisy_actor(desired_action_std=1e-9, adaptation_coefficient=1.5)
    logged = part.adapt(seen(64), rng)
    assert part.perturbed.std == std / 1.5
    assert logged["parameter_noise_distance"] > 1e-9


def test_noise_settles_where_actions_are_as_far_as_wanted() -> None:
    part, rng = noisy_actor(desired_action_std=0.2, adaptation_coefficient=1.05), np.random.default_rng(0)
    part.perturbed.std = 1e-3
    distances = [part.adapt(seen(64), rng)["parameter_noise_distance"] for _ in range(400)]
    assert distances[0] < 0.01
    assert np.mean(distances[200:]) == pytest.approx(0.2, rel=0.25)


def test_distance_of_actions_is_the_root_mean_square_over_rows_and_dimensions() -> None:
    actions, others = np.array([[0.0, 0.0], [1.0, 0.5]], np.float32), np.array([[3.0, 4.0], [1.0, 0.5]])
    assert action_distance(actions, others) == pytest.approx(math.sqrt(25 / 4))


@pytest.mark.parametrize("greedy", [False, True])
def test_state_goes_on_where_it_was(greedy: bool) -> None:
    def fresh() -> Any:
        return noisy_greedy(0.3)[0] if greedy else noisy_actor(OrnsteinUhlenbeckNoise(0.5, 0.15, 0.01, 2))

    def go_on(part: Any) -> list[np.ndarray]:
        actions = []
        for i in range(6):
            actions.append(part.act(seen(3, i), rng, 0.0))
            if not greedy:
                part.adapt(seen(8, i), rng)
            if i == 2:
                part.reset(np.array([1]))
        return actions

    part, rng = fresh(), np.random.default_rng(0)
    go_on(part)
    part.reset(np.array([0, 2]))
    arrays, values = split(part.state())
    position = rng.bit_generator.state
    expected, std = go_on(part), part.perturbed.std
    resumed = fresh()
    resumed.perturbed.redraw(np.random.default_rng(9), 5)
    resumed.load_state(join(arrays, values))
    rng.bit_generator.state = position
    for ours, theirs in zip(go_on(resumed), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert resumed.perturbed.std == std
    unused = fresh()
    unused.load_state(fresh().state())
    assert (
        unused.state()["perturbed" if not greedy else "std"]
        == fresh().state()["perturbed" if not greedy else "std"]
    )


# Q-networks


def test_a_noisy_q_network_acts_greedily_by_its_copies() -> None:
    part, parameters = noisy_greedy(1.0)
    part.perturbed.std = 1.0
    rng = np.random.default_rng(0)
    actions = np.array([part.act(same(40), rng, 0.0) for _ in range(5)])
    assert (actions == actions[0]).all()  # within an episode the same
    assert len(np.unique(actions)) > 1
    copies = part.perturbed.state()["copies"]
    for i in range(40):
        values = by_modules(parameters, copies[i], same(1)["observations"])
        assert actions[0, i] == values.argmax()


@pytest.mark.parametrize(("rate", "factor"), [(1.0, 1.01), (0.0, 1 / 1.01)])
def test_noise_of_a_q_network_grows_as_long_as_it_explores_less_than_its_rate(
    rate: float, factor: float
) -> None:
    part, _ = noisy_greedy(rate)
    assert part.perturbed.std == 0.01
    part.act(seen(2), np.random.default_rng(0), 0.0)
    assert part.perturbed.std == (0.01 * 1.01 if rate else 0.01 / 1.01)
    assert part.perturbed.std == pytest.approx(0.01 * factor)


def test_noise_of_a_q_network_settles_where_it_explores_as_much_as_its_rate() -> None:
    part, _ = noisy_greedy(0.3)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        part.act(seen(8), rng, 0.0)
    distances = [mean_softmax_kl(*part.perturbed.with_and_without_noise(seen(8), rng)) for _ in range(300)]
    assert np.median(distances) == pytest.approx(epsilon_greedy_kl(0.3, np.array(4)), rel=0.35)


def test_desired_distance_is_that_of_epsilon_greedy_in_closed_form() -> None:
    assert epsilon_greedy_kl(1.0, np.array([7, 1, 2])) == pytest.approx([math.log(7), 0.0, math.log(2)])
    assert (epsilon_greedy_kl(0.0, np.array([7, 1])) == 0.0).all()
    greedy, epsilon = np.array([1.0, 0.0, 0.0]), np.array([0.8, 0.1, 0.1])
    assert epsilon_greedy_kl(0.3, np.array(3)) == pytest.approx(greedy[0] * math.log(greedy[0] / epsilon[0]))


def test_divergence_is_that_of_the_softmax_as_torch_has_it() -> None:
    generator = np.random.default_rng(0)
    values, others = (generator.normal(size=(50, 4)).astype(np.float32) * 30 for _ in range(2))
    logs = (torch.log_softmax(torch.from_numpy(each).double(), -1) for each in (others, values))
    expected = torch.nn.functional.kl_div(*logs, log_target=True, reduction="batchmean")
    assert mean_softmax_kl(values, others) == pytest.approx(expected.item(), rel=1e-6)
    shifted = others + generator.normal(size=(50, 1)).astype(np.float32)  # a dueling network's state value
    assert mean_softmax_kl(values, shifted) == pytest.approx(expected.item(), rel=1e-4)
    assert mean_softmax_kl(values, others.astype(np.float64) + 1000) == pytest.approx(expected.item())


def test_masked_actions_are_not_chosen_and_do_not_count() -> None:
    part, _ = noisy_greedy(0.5)
    part.perturbed.std = 5.0
    masks = np.tile([True, False, False, True], (200, 1))
    actions = part.act({**seen(200), "action_masks": masks}, np.random.default_rng(0), 0.0)
    assert set(actions.tolist()) == {0, 3}
    values = np.array([[1.0, -1e8, -1e8, 2.0]])
    assert mean_softmax_kl(values, values[:, [3, 1, 2, 0]]) == pytest.approx(
        mean_softmax_kl(values[:, [0, 3]], values[:, [3, 0]])
    )


MASKS = np.array([[True, False, False, True], [False, True, False, False]])


@pytest.mark.parametrize(("distance", "grows"), [(0.25, True), (0.26, False)])
def test_wanted_distance_is_the_mean_over_what_each_environment_may_choose_among(
    distance: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """−log(0.2 + 0.8 / 2) of two actions is 0.511, of one it is 0; of four it would be 0.916."""
    monkeypatch.setattr(parameter_noise, "mean_softmax_kl", lambda values, others: distance)
    part, _ = noisy_greedy(0.8)
    part.act({**seen(2), "action_masks": MASKS}, np.random.default_rng(0), 0.0)
    assert (part.perturbed.std > 0.01) is grows


def test_noise_stays_as_it_is_where_nobody_has_a_choice() -> None:
    part, _ = noisy_greedy(0.8)
    shown = {**seen(2), "action_masks": MASKS[[1, 1]]}
    assert part.act(shown, np.random.default_rng(0), 0.0).tolist() == [1, 1]
    assert part.perturbed.std == 0.01
    part.act({**shown, "action_masks": MASKS}, np.random.default_rng(0), 0.0)
    assert part.perturbed.std != 0.01


def test_configs_are_checked() -> None:
    assert make_parameter_noise(None) is None
    settings = make_parameter_noise({"initial_std": 0.2})
    assert settings == ParameterNoiseConfig(0.2, 0.1, 1.01)
    assert make_parameter_noise(settings) is settings
    with pytest.raises(ZooError, match=r"unknown key `algo.parameter_noise.std`"):
        make_parameter_noise({"std": 0.2})
    with pytest.raises(ZooError, match=r"`algo.parameter_noise.adaptation_coefficient=1` is out of range"):
        make_parameter_noise({"adaptation_coefficient": 1})
