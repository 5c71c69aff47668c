"""Parts of critics that bear many updates, and the presets made of them: DroQ, REDQ, SimBa, SimbaV2."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo import PPO2, REDQ, SAC, TD3, TQC, CrossQ, DroQ, SimBa, ZooError
from zoo.algorithms.off_policy import chosen_critics, split_by_policy_delay
from zoo.cli import status_of
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.update_runner import LiveState, State
from zoo.policies.config import PolicyConfig
from zoo.policies.networks import (
    ResidualBlock,
    SphereBlock,
    SphereEmbedding,
    keep_unit_norm,
    make_trunk,
)

SMALL: dict[str, Any] = {"net_arch": [8, 8]}
SHORT: dict[str, Any] = {"learning_starts": 40, "buffer_size": 200, "batch_size": 16, "seed": 1}


def pendulum(algorithm: Any, **options: Any) -> Any:
    return algorithm(env="Pendulum-v1", compile=False, **{"policy": SMALL, **SHORT, **options})


# -- parts -------------------------------------------------------------------------------------------


def test_targets_use_drawn_critics_actors_use_all() -> None:
    values = torch.tensor([[1.0], [5.0], [3.0]])
    assert chosen_critics(values, {"target_critics": torch.tensor([1, 2])}).amin(0).item() == 3
    assert chosen_critics(values, {"target_critics": torch.tensor([2, 0])}).amin(0).item() == 1
    assert chosen_critics(values, {}).amin(0).item() == 1
    for algorithm in (SAC, TD3):
        assert pendulum(algorithm, n_critics=3, actor_critics="mean")._actor_values(values).item() == 3
        assert pendulum(algorithm, n_critics=3, actor_critics="min")._actor_values(values).item() == 1
    quantiles = torch.tensor([[[0.0, 2.0]], [[4.0, 6.0]], [[2.0, 4.0]]])
    assert pendulum(TQC, n_critics=3)._actor_values(quantiles).item() == 3
    assert pendulum(TQC, n_critics=3, actor_critics="min")._actor_values(quantiles).item() == 1


@pytest.mark.parametrize("algorithm", [SAC, TD3, TQC, CrossQ])
def test_each_gradient_step_draws_target_critics(algorithm: type[Any]) -> None:
    model = pendulum(algorithm, n_critics=4, n_target_critics=2)
    drawn = model._target_draws(500)["target_critics"]
    assert drawn.shape == (500, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    shares = torch.bincount(drawn.flatten(), minlength=4) / 1_000
    assert (shares - 0.25).abs().max() < 0.06
    assert pendulum(algorithm, n_critics=4)._target_draws(5) == {}


def test_truncation_drops_quantiles_of_drawn_critics() -> None:
    model = pendulum(TQC, n_critics=3, n_target_critics=2, n_quantiles=3, top_quantiles_to_drop_per_net=1)
    values = torch.arange(6.0).reshape(2, 1, 3)
    assert sorted(model._soft_values(values, torch.zeros(1))[0].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0, 20, 20), [(19, 1, False), (1, 1, True)]),
        ((18, 4, 20), [(1, 1, False), (1, 1, True), (2, 1, False)]),
        ((19, 1, 20), [(1, 1, True)]),
        ((0, 5, 20), [(5, 1, False)]),
        ((3, 7, 5), [(1, 1, False), (1, 1, True), (4, 1, False), (1, 1, True)]),
        ((3, 7, 3), [(2, 3, True), (1, 1, False)]),
    ],
    ids=str,
)
def test_long_rounds_have_their_last_step_apart(arguments: tuple[int, int, int], expected: list[Any]) -> None:
    assert split_by_policy_delay(*arguments) == expected


def test_residual_block_adds_to_its_input() -> None:
    block = ResidualBlock(PolicyConfig(norm="layer", expansion=2), 3, "relu")
    rows = torch.randn(5, 3)
    by_hand = (rows - rows.mean(1, keepdim=True)) / (rows.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    hidden = (by_hand @ block.expand.weight.T + block.expand.bias).clamp(min=0.0)
    expected = rows + hidden @ block.contract.weight.T + block.contract.bias
    torch.testing.assert_close(block(rows), expected)
    assert block.expand.weight.shape == (6, 3)
    for parameter in block.contract.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(block(rows), rows, rtol=0, atol=0)
    normalized = block.norm(torch.tensor([[3.0, 4.0, 3.5]]))
    assert normalized[0, 2].abs() < 1e-6


def test_residual_layers_have_one_block_for_each_width() -> None:
    trunk = make_trunk(PolicyConfig(block="residual"), 5, [16, 16], 2, "relu")
    assert [type(layer).__name__ for layer in trunk] == [
        *("Linear", "ResidualBlock", "ResidualBlock", "LayerNorm", "Linear")
    ]
    assert trunk(torch.zeros(3, 5)).shape == (3, 2)
    assert trunk[1].expand.weight.shape == (64, 16)
    without = make_trunk(PolicyConfig(block="residual", norm="none"), 5, [16], None, "tanh")
    assert not any(isinstance(layer, nn.LayerNorm) for layer in without.modules())
    assert isinstance(without[1].activation, nn.Tanh)
    with pytest.raises(ZooError, match=r"net_arch=\[8, 16\]` with block=residual: expected equal widths"):
        make_trunk(PolicyConfig(block="residual"), 5, [8, 16], 2, "relu")


def test_layer_normalisation_by_hand() -> None:
    layer = ResidualBlock(PolicyConfig(norm="layer"), 2, "relu").norm
    torch.testing.assert_close(layer(torch.tensor([3.0, 4.0])), torch.tensor([-1.0, 1.0]) * (1 - 2e-5))


# -- weights of length 1 ------------------------------------------------------------------------------


def lengths_of_units(model: Any) -> Tensor:
    """Return the lengths of the rows of all linear layers of actor and critics."""
    layers = [layer for layer in model.policy.modules() if isinstance(layer, nn.Linear)]
    return torch.cat([layer.weight.detach().norm(dim=-1) for layer in layers])


@pytest.mark.parametrize("algorithm", [SAC, TD3, TQC, CrossQ])
def test_units_keep_length_1(algorithm: type[Any]) -> None:
    model = pendulum(algorithm, policy={**SMALL, "projection": "unit_norm"}, train_freq=1, gradient_steps=1)
    before = vectors(model)["critics"]
    assert (lengths_of_units(model) - 1).abs().max() < 1e-6
    model.learn(90)
    assert (lengths_of_units(model) - 1).abs().max() < 1e-6
    assert not torch.equal(vectors(model)["critics"], before)


def test_projected_steps_written_out() -> None:
    """Adam's step of all parameters, then lengths of 1 by rows, in both forms."""
    layer = nn.Linear(3, 2).double()
    keep_unit_norm(layer)
    updater = Updater(Parameters("layer", layer), Adam())
    theirs = nn.Linear(3, 2).double()
    theirs.load_state_dict(layer.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)
    pure, rows = updater.initial_state(), torch.randn(7, 4, 3, dtype=torch.float64)
    pure = State({name: tensor.clone() for name, tensor in pure.items()})
    live = LiveState(updater.initial_state())
    for row in rows:
        optimizer.zero_grad()
        theirs(row).square().sum().backward()
        optimizer.step()
        theirs.weight.data /= theirs.weight.data.norm(dim=1, keepdim=True)
        for state in (pure, live):
            module = updater.module(state)
            moved, _ = updater.step(state, module, module(row).square().sum(), torch.tensor(0.1))
            pure = moved if state is pure else pure
        expected = torch.cat([theirs.weight.data.flatten(), theirs.bias.data])
        torch.testing.assert_close(pure["layer"], expected)
        torch.testing.assert_close(live["layer"], expected)


def test_embedding_on_a_sphere_by_hand() -> None:
    embedding = SphereEmbedding(2, 3)
    embedding.linear.weight.data = torch.eye(3)
    torch.testing.assert_close(embedding(torch.tensor([0.0, 4.0])), torch.tensor([0.0, 0.8, 0.6]))
    embedding.scaler.weight.data[1] *= 2
    expected = torch.tensor([0.0, 1.6, 0.6]) / math.hypot(1.6, 0.6)
    torch.testing.assert_close(embedding(torch.tensor([0.0, 4.0])), expected)


def test_hyperspherical_block_by_hand() -> None:
    block = SphereBlock(PolicyConfig(expansion=1), 2, 1, "relu")
    block.expand.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    block.contract.weight.data = torch.eye(2)
    half = math.sqrt(0.5)
    torch.testing.assert_close(block(torch.tensor([1.0, 0.0])), torch.tensor([half, half]))
    block.step.weight.data.zero_()
    torch.testing.assert_close(block(torch.tensor([0.6, 0.8])), torch.tensor([0.6, 0.8]))
    block = SphereBlock(PolicyConfig(), 8, 3, "relu")
    torch.testing.assert_close(block.scaler(torch.ones(32)), torch.full((32,), math.sqrt(2 / 8) / 2))
    torch.testing.assert_close(block.step(torch.ones(8)), torch.full((8,), 0.25))
    torch.testing.assert_close(block.step.weight.data, torch.full((8,), 1 / math.sqrt(8)))


def test_hyperspherical_layers() -> None:
    trunk = make_trunk(PolicyConfig(block="hyperspherical"), 5, [16, 16], 2, "relu")
    assert [type(layer).__name__ for layer in trunk] == [
        *("SphereEmbedding", "SphereBlock", "SphereBlock", "Linear", "Scaler", "Linear")
    ]
    linear = [layer for layer in trunk.modules() if isinstance(layer, nn.Linear)]
    assert [layer for layer in linear if layer.bias is not None] == [trunk[-1]]
    assert trunk(torch.zeros(3, 5)).shape == (3, 2)


# -- resets ------------------------------------------------------------------------------------------


def vectors(model: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.runner.state.items()}


@pytest.mark.parametrize("algorithm", [SAC, TD3, TQC, CrossQ])
def test_reset_redraws_networks_and_keeps_the_buffer(algorithm: type[Any]) -> None:
    model = pendulum(algorithm, critic_reset_every=100, gradient_steps=2, train_freq=1).learn(99)
    before, first = vectors(model), model.buffer.columns["observations"][0].copy()
    model._reset_networks()
    after = vectors(model)
    initial = vectors(pendulum(algorithm))
    for name, tensor in after.items():
        if name.startswith("temperature"):
            assert torch.equal(tensor, before[name]), name
        elif "." in name:
            assert torch.equal(tensor, initial[name]), name
            assert not torch.equal(tensor, before[name]), name
        else:
            assert (tensor != before[name]).float().mean() > 0.5, name
    for target, online in model.targets_of.items():
        assert torch.equal(after[target], after[online])
    assert len(model.buffer) == 99
    assert np.array_equal(model.buffer.columns["observations"][0], first)


@pytest.mark.parametrize(
    ("every", "resets"), [(50, [50, 100, 150]), ([60, 130], [60, 130]), ([130, 60, 1_000], [60, 130])]
)
def test_resets_come_at_their_steps(every: Any, resets: list[int]) -> None:
    class Noting(SAC):
        def _reset_networks(self) -> None:
            steps.append(self.num_timesteps)
            super()._reset_networks()

    steps: list[int] = []
    pendulum(Noting, critic_reset_every=every).learn(190)
    assert steps == resets


def test_no_reset_before_learning_or_at_the_end(tmp_path: Path) -> None:
    ended = pendulum(SAC, critic_reset_every=100).learn(200)
    assert ended.runner.state["actor.count"] == 101  # of the one reset, at step 100
    pendulum(SAC, critic_reset_every=100).learn(80).save(tmp_path / "agent")
    loaded = SAC.load(tmp_path / "agent", "Pendulum-v1", compile=False)
    before = vectors(loaded)["actor"]
    with pytest.warns(zoo.ZooWarning, match="nothing will be learned"):
        loaded.learn(30, reset_num_timesteps=False)
    assert torch.equal(vectors(loaded)["actor"], before)


def test_resets_depend_on_seed_and_number_only() -> None:
    """So that ranks, whose generators differ, begin anew alike."""
    one, other = pendulum(SAC, critic_reset_every=60), pendulum(SAC, critic_reset_every=60)
    other.rng.random(5)
    ends = []
    for model, steps, torch_seed in ((one, 60, 1), (other, 60, 2), (other, 120, 2)):
        model.num_timesteps = steps
        torch.manual_seed(torch_seed)
        model._reset_networks()
        ends.append(vectors(model))
    assert torch.equal(ends[0]["actor"], ends[1]["actor"])
    assert torch.equal(ends[0]["critics"], ends[1]["critics"])
    assert not torch.equal(ends[1]["actor"], ends[2]["actor"])
    seeded = pendulum(SAC, critic_reset_every=60, seed=2)
    seeded.num_timesteps = 60
    seeded._reset_networks()
    assert not torch.equal(vectors(seeded)["actor"], ends[0]["actor"])


# -- presets -----------------------------------------------------------------------------------------


def test_presets_have_their_values() -> None:
    droq = DroQ(env="Pendulum-v1", compile=False)
    assert (droq.config.gradient_steps, droq.config.policy_delay, droq.config.actor_critics) == (
        20,
        20,
        "mean",
    )
    assert droq.policy.critics.dropout == 0.01
    assert [type(layer).__name__ for layer in [*droq.policy.critics.critics[0]][:3]] == [
        *("Linear", "LayerNorm", "ReLU")
    ]
    assert not any(isinstance(layer, nn.LayerNorm) for layer in droq.policy.actor.modules())
    stronger = DroQ({"critic": {"dropout": 0.2}}, "Pendulum-v1", compile=False)
    assert stronger.policy.critics.dropout == 0.2
    assert isinstance(stronger.policy.critics.critics[0][1], nn.LayerNorm)
    narrow = DroQ({"net_arch": [8]}, "Pendulum-v1", compile=False)
    assert (narrow.policy.critics.dropout, narrow.policy.actor.trunk.hidden) == (0.01, [8])
    redq = REDQ("MlpPolicy", "Pendulum-v1", compile=False)
    assert (redq.config.n_critics, redq.config.n_target_critics, redq.config.gradient_steps) == (10, 2, 20)
    simba = SimBa(env="Pendulum-v1", compile=False)
    parts = [list(network.modules()) for network in (simba.policy.actor, *simba.policy.critics.critics)]
    assert [sum(isinstance(part, ResidualBlock) for part in of_network) for of_network in parts] == [1, 2, 2]
    assert SimBa({"net_arch": [8]}, "Pendulum-v1", compile=False).policy.critics.critics[0].hidden == [8]
    assert simba.target_entropy == -0.5
    assert math.exp(simba.policy.temperature.log.item()) == pytest.approx(0.01)
    assert simba.actor_updater.optimizer.weight_decay == 0.01
    assert simba.normalizer is not None
    assert not simba.normalizer.rewards
    assert simba.normalizer.clip_obs == math.inf


def test_simba_normalises_without_clipping_unless_told() -> None:
    assert zoo.compose("train", ["algo=simba", "env=Pendulum-v1"]).env.normalize["clip_obs"] == math.inf
    without = zoo.compose("train", ["algo=simba", "env=Pendulum-v1", "env.normalize=false"])
    assert without.env.normalize is False
    clipped = zoo.compose("train", ["algo=simba", "env=Pendulum-v1", "env.normalize.clip_obs=5"])
    assert clipped.env.normalize == {"rewards": False, "clip_obs": 5}
    assert zoo.compose("train", ["algo=sac", "env=Pendulum-v1"]).env.normalize is False


def test_simba_without_normalisation_says_so() -> None:
    with pytest.warns(zoo.ZooWarning, match=r"simba expects .* 'env.normalize={rewards: false, clip_obs"):
        SimBa(env=zoo.EnvConfig("Pendulum-v1"), compile=False)
    with pytest.warns(zoo.ZooWarning, match=r"simba_v2 expects .* 'env.normalize={rewards: scaled"):
        zoo.SimBaV2({"net_arch": [8]}, zoo.EnvConfig("Pendulum-v1", normalize=True), compile=False)


def test_simba_v2_has_its_values() -> None:
    model = zoo.SimBaV2({"net_arch": [8]}, "Pendulum-v1", compile=False)
    assert isinstance(model.policy.critics.critics[0][1], SphereBlock)
    assert (lengths_of_units(model) - 1).abs().max() < 1e-6
    assert model.policy.critics.critics[0].output_size == 101
    assert (model.config.critic_loss, model.config.value_range) == ("categorical", [-5.0, 5.0])
    assert model.config.learning_rate == {"type": "linear", "start": 1e-4, "end": 5e-5}
    assert model.actor_updater.optimizer.weight_decay == 0
    assert not model.policy.actor.head.mean.bias.any()
    assert model.normalizer is not None
    assert (model.normalizer.rewards, model.normalizer.clip_obs) == ("scaled", math.inf)


def test_fast_td3_has_its_values() -> None:
    model = zoo.FastTD3(env="Pendulum-v1", buffer_size=100, compile=False)
    assert [layer.out_features for layer in model.policy.actor.trunk if hasattr(layer, "out_features")] == [
        *(512, 256, 128)
    ]
    assert model.policy.critics.critics[0].output_size == 101
    assert (model.config.value_range, model.config.batch_size) == ([-250.0, 250.0], 32_768)
    assert model.normalizer is not None
    assert (model.normalizer.rewards, model.normalizer.clip_obs) == (False, math.inf)
    assert model.exploration.noise.range == (0.001, 0.4)
    assert "target_actor" not in model.runner.state


def test_trials_keep_the_ratio_of_updates() -> None:
    assert "train_freq" not in zoo.FastTD3.searched_space()["algo"]
    for algorithm in (DroQ, REDQ, SimBa, zoo.SimBaV2):
        assert not {"train_freq", "gradient_steps"} & algorithm.searched_space()["algo"].keys()


@pytest.mark.parametrize("algorithm", [PPO2, zoo.A2C, zoo.DQN])
def test_residual_layers_of_other_algorithms(algorithm: type[Any]) -> None:
    model = algorithm({"block": "residual", "net_arch": [8]}, "CartPole-v1", compile=False)
    assert any(isinstance(module, ResidualBlock) for module in model.policy.modules())


@pytest.mark.parametrize("algorithm", [DroQ, SimBa, zoo.SimBaV2])
def test_networks_of_sac_are_refused(algorithm: type[Any]) -> None:
    with pytest.raises(ZooError, match="leave the policy out; with MlpPolicy it is sac"):
        algorithm("MlpPolicy", "Pendulum-v1")
    with pytest.raises(ZooError, match="has networks of its own"):
        algorithm("SimbaPolicy" if algorithm is DroQ else "DroQPolicy", "Pendulum-v1")
    name = algorithm.of_preset
    with pytest.raises(ZooError, match=f"{name} has networks of its own, {algorithm.usual_policy}"):
        zoo.compose("train", [f"algo={name}", "env=Pendulum-v1", "policy=MlpPolicy"])


def test_dropout_rate_of_other_libraries() -> None:
    model = DroQ("DroQPolicy", "Pendulum-v1", policy_kwargs={"dropout_rate": 0.1}, compile=False)
    assert model.policy.critics.dropout == 0.1
    assert isinstance(model.policy.critics.critics[0][1], nn.LayerNorm)


@pytest.mark.parametrize("without", [{"layer_norm": False}, {"norm": "none"}])
def test_norm_of_droq_can_be_taken_away(without: dict[str, Any]) -> None:
    fields = [f"policy.critic.{name}={str(value).lower()}" for name, value in without.items()]
    config = zoo.compose("train", ["algo=droq", "env=Pendulum-v1", *fields]).policy
    model = DroQ(config, "Pendulum-v1", compile=False)
    assert not any(isinstance(layer, nn.LayerNorm) for layer in model.policy.modules())
    assert model.policy.critics.dropout == 0.01


# -- bad input ---------------------------------------------------------------------------------------

WRONG = {
    "algo=sac algo.n_target_critics=3": "algo.n_target_critics=3` is more than `algo.n_critics=2`",
    "algo=sac algo.learning_starts=500 algo.critic_reset_every=400": "algo.critic_reset_every=400`: expected",
    "algo=tqc algo.learning_starts=500 algo.critic_reset_every=[900,400]": "algo.learning_starts=500",
    "algo=td3 algo.weight_decay=0.1": "algo.weight_decay=0.1` needs `algo.optimizer=adamw",
    "algo=ddpg algo.betas=[0.9]": "algo.betas=[0.9]`: expected two numbers",
    "algo=sac algo.betas=[0.9,1]": "expected two numbers of at least 0 and below 1",
    "algo=sac algo.value_range=[5,-5]": "algo.value_range=[5.0, -5.0]`: expected [low, high]",
    "algo=sac algo.n_atoms=5": "algo.n_atoms=5` needs `algo.critic_loss=categorical`",
    "algo=td3 algo.value_range=[0,1]": "needs `algo.critic_loss=categorical`",
    "algo=sac policy.critic.norm=batch_renorm": "`policy.critic.norm=batch_renorm` is for crossq",
    "algo=sac policy.critic.norm_input=true": "`policy.critic.norm_input` needs a norm: policy.critic.norm=",
    "algo=sac policy.expansion=9": "policy.expansion=9` needs policy.block=residual",
    "algo=sac algo.optimizer=adamw algo.weight_decay=.inf": "algo.weight_decay",
    "algo=sac algo.optimizer=sgd": "algo.optimizer",
    "algo=sac algo.actor_critics=max": "algo.actor_critics",
    "algo=sac policy.critic.dropout=1": "policy.critic.dropout",
    "algo=sac algo.target_entropy=half": "algo.target_entropy=half`: expected a number, auto, or",
    "algo=sac policy.critic.block=residual policy.critic.net_arch=[8,16]": "expected equal widths",
    "algo=simba policy.critic.dropout=0.1": "needs plain hidden layers",
    "algo=ppo2 policy.projection=unit_norm": "policy.projection=unit_norm` is for td3, sac",
    "algo=ddpg policy.critic.projection=unit_norm": "policy.critic.projection=unit_norm` is for td3, sac",
    "algo=ppo2 policy.block=hyperspherical policy.projection=none": "policy.block=hyperspherical` is for td3",
    "algo=ppo2 policy.critic.block=hyperspherical": "policy.critic.block=hyperspherical` is for td3, sac",
    "algo=simba_v2 policy.norm=layer": "policy.block=hyperspherical` needs policy.norm=none",
}


@pytest.mark.parametrize("given", WRONG)
def test_wrong_values_name_their_key(
    given: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of(["train", "env=Pendulum-v1", "tuned=none", "n_timesteps=6000", *given.split()]) == 2
    error = capsys.readouterr().err
    assert WRONG[given] in error
    assert error.count("\n") <= 3
