"""Updates of off-policy algorithms against slow references: schedules, large batches, compiled."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from logged_envs import Logged, logged_vector_env
from peer_updates import SETTINGS, Prepared, distance, give, ours, peer_of
from stable_baselines3.common.vec_env import DummyVecEnv
from test_sac_and_tqc import noise as noise_of_sac
from test_td3 import noise as noise_of_td3
from torch import Tensor, distributions, nn

import zoo
from zoo import ACER, ACKTR, DDPG, DQN, PPO2, SAC, TD3, TRPO
from zoo.envs.config import EnvConfig
from zoo.experiment.expert_recording import record_expert
from zoo.policies.continuous import SquashedActor

# -- Gradient steps of SAC against the same written out plainly with PyTorch's own parts -----------------

BOX = spaces.Box(-2.0, 6.0, (2,), np.float32)


def load(network: nn.Module, flat: Tensor) -> nn.Module:
    """Give a network the parameters of a flat tensor."""
    nn.utils.vector_to_parameters(flat.to(next(network.parameters()).dtype), network.parameters())
    return network


def assert_same_parameters(ours: nn.Module, theirs: nn.Module, start: nn.Module) -> None:
    """Compare with a tolerance far below the way that the parameters have gone."""
    initial, expected = dict(start.named_parameters()), dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        moved = (expected[name] - initial[name]).abs().max().item()
        assert moved > 1e-4, name
        assert (parameter - expected[name]).abs().max().item() < 5e-3 * moved, name


def drawn(actor: SquashedActor, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions and log-probabilities by torch's transformed distribution."""
    mean, log_std = actor(observations).chunk(2, dim=-1)
    normal = distributions.Normal(mean, log_std.clamp(-20, 2).exp())
    squashed = distributions.TransformedDistribution(
        distributions.Independent(normal, 1), [distributions.TanhTransform(cache_size=1)]
    )
    unsquashed = mean + log_std.clamp(-20, 2).exp() * noise
    actions = squashed.transforms[0](unsquashed)
    return actions, squashed.log_prob(actions)


OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}


class WatchedSAC(SAC):
    """Takes every gradient step a second time, plainly and in double precision, on copies of its networks."""

    def take_steps(self, step: Any, shared: Any, rows: Any) -> Any:
        if self.n_updates == 0:
            self.start = copy.deepcopy(self.policy)
            self.reference = copy.deepcopy(self.policy).double()
            for part in (self.reference.actor, self.reference.critics):
                part.encoder = nn.Identity()  # the vectors are flat; the encoder would make them single
            self.target = copy.deepcopy(self.reference.critics)
            self.chosen: list[list[int]] = []
            self.losses: list[tuple[float, float, float]] = []
            self.n_plain = 0
            config, networks = self.config, (self.reference.actor, self.reference.critics)
            decay = {} if config.weight_decay is None else {"weight_decay": config.weight_decay}
            optimizer_class = OPTIMIZERS[config.optimizer]
            self.optimizers = [
                optimizer_class(part.parameters(), betas=config.betas, eps=1e-8, **decay) for part in networks
            ]
            self.optimizers.append(torch.optim.Adam(self.reference.temperature.parameters(), eps=1e-8))
        outputs = super().take_steps(step, shared, rows)
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = self.schedules["learning_rate"](self._progress_before)
        if (actor_rate := self.config.actor_learning_rate) is not None:
            self.optimizers[0].param_groups[0]["lr"] = actor_rate
        steps = {name: column.flatten(0, 1) for name, column in rows.items()}
        for step_of_row in range(len(steps["rewards"])):
            plain = {name: column[step_of_row] for name, column in steps.items()}
            whole = {name: plain.pop(name) for name in ("target_critics",) if name in plain}
            self._plain_step({**{name: tensor.double() for name, tensor in plain.items()}, **whole})
        return outputs

    def _plain_step(self, batch: dict[str, Tensor]) -> None:
        actor, critics, temperature = self.reference.actor, self.reference.critics, self.reference.temperature
        actor_optimizer, critics_optimizer, temperature_optimizer = self.optimizers
        noise, next_noise = batch["noise"]
        alpha = temperature.log.exp().item()
        actions, log_prob = drawn(actor, batch["observations"], noise)

        with torch.no_grad():
            next_actions, next_log_prob = drawn(actor, batch["next_observations"], next_noise)
            next_values = self.target(batch["next_observations"], next_actions)
            chosen = batch.get("target_critics", torch.arange(self.config.n_critics)).tolist()
            assert len(set(chosen)) == (self.config.n_target_critics or self.config.n_critics)
            self.chosen.append(chosen)
            next_values = torch.stack([next_values[index] for index in chosen]).min(0).values
            soft = next_values - alpha * next_log_prob
            expected = batch["rewards"] + 0.9 * (1 - batch["terminated"]) * soft
        values = critics(batch["observations"], batch["actions"])
        critic_loss = torch.stack([0.5 * ((value - expected) ** 2).mean() for value in values]).sum()
        critics_optimizer.zero_grad()
        critic_loss.backward()
        critics_optimizer.step()
        with torch.no_grad():
            for target, online in zip(self.target.parameters(), critics.parameters(), strict=True):
                target += batch["tau"] * (online - target)

        self.n_plain += 1
        if self.n_plain % self.config.policy_delay:
            return
        if self.learns_ent_coef:
            temperature_optimizer.zero_grad()
            (-(temperature.log * (log_prob.detach() + self.target_entropy)).mean()).backward()
            temperature_optimizer.step()
        actor_optimizer.zero_grad()
        values_of_actor = critics(batch["observations"], actions)
        best = values_of_actor.mean(0) if self.config.actor_critics == "mean" else values_of_actor.amin(0)
        actor_loss = (alpha * log_prob - best).mean()
        actor_loss.backward()
        actor_optimizer.step()
        self.losses.append((critic_loss.item(), actor_loss.item(), values.mean().item()))


@pytest.mark.parametrize(
    "hyperparameters",
    [
        {},
        {"ent_coef": 0.2},
        {"ent_coef": "auto_0.1", "target_entropy": -0.5},
        {"n_critics": 1, "learning_rate": "lin_0.01"},
        {"n_critics": 3, "tau": 0.3},
        {"target_update_interval": 3, "tau": 0.5},
        {"policy_delay": 3, "actor_learning_rate": 0.003},
        {"policy_delay": 7, "n_critics": 5, "n_target_critics": 2, "actor_critics": "mean"},
        {"optimizer": "adamw", "weight_decay": 0.1, "betas": [0.5, 0.99]},
        {"optimizer": "adamw"},
        {"optimizer": "radam", "betas": [0.8, 0.9]},
    ],
    ids=str,
)
def test_sac_updates_as_written_out(hyperparameters: dict[str, Any]) -> None:
    env, _ = logged_vector_env("own", BOX)
    settings = {"learning_rate": 0.01, "gamma": 0.9, "learning_starts": 30, "batch_size": 16}
    settings |= {"train_freq": 6, "gradient_steps": 2, **hyperparameters}
    model = WatchedSAC({"net_arch": [8]}, env, seed=1, compile=False, **settings).learn(90)
    assert model.n_updates == 20
    assert_same_parameters(model.policy.actor, model.reference.actor, model.start.actor)
    assert_same_parameters(model.policy.critics, model.reference.critics, model.start.critics)
    target = load(copy.deepcopy(model.policy.critics), model.runner.state["target"])
    assert_same_parameters(target, model.target, model.start.critics)
    metrics = model.read_metrics()
    critic_loss, actor_loss, q_value = np.mean(model.losses, 0)
    assert metrics["train/actor_loss"] == pytest.approx(actor_loss, rel=1e-3)
    if model.config.policy_delay == 1:
        assert metrics["train/critic_loss"] == pytest.approx(critic_loss, rel=1e-3)
        assert metrics["train/q_value"] == pytest.approx(q_value, rel=1e-3, abs=1e-4)
    assert len(model.losses) == 20 // model.config.policy_delay
    if model.config.n_target_critics is not None:
        assert {index for chosen in model.chosen for index in chosen} == set(range(model.config.n_critics))
    if "ent_coef" not in hyperparameters or isinstance(hyperparameters["ent_coef"], str):
        assert_same_parameters(model.policy.temperature, model.reference.temperature, model.start.temperature)
    else:
        assert model.policy.temperature.log.item() == pytest.approx(np.log(0.2))
        assert metrics["train/ent_coef"] == pytest.approx(0.2)
        assert metrics["train/ent_coef_loss"] == 0


# -- Whole loops in three environments, against those of Stable-Baselines3 --------------------------------

TARGETS_OF_TD3 = {"target_actor": "actor_target", "target_critics": "critic_target"}
LOOPS: dict[str, tuple[Any, Any, dict[str, str], Any, dict[str, Any]]] = {
    "dqn": (
        *(DQN, stable_baselines3.DQN, {"q_network": "q_net", "target": "q_net_target"}, None),
        {"target_update_interval": 6, "max_grad_norm": 10.0},
    ),
    "td3": (
        *(TD3, stable_baselines3.TD3, {"actor": "actor", "critics": "critic", **TARGETS_OF_TD3}),
        *(noise_of_td3, {"target_policy_noise": 0.25}),
    ),
    "sac": (
        *(SAC, stable_baselines3.SAC, {"actor": "actor", "critics": "critic", "target": "critic_target"}),
        *(noise_of_sac, {"ent_coef": 0.125}),
    ),
}
"""Both classes, their networks by name, what draws the peer's noise, and settings."""


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize(("train_freq", "gradient_steps"), [(1, 1), (4, 3), (2, -1)])
def test_loop_in_three_environments_is_the_peers(name: str, train_freq: int, gradient_steps: int) -> None:
    """Both act at random, in as many steps; the peer learns from the batches that Zoo drew."""
    algorithm, peer_algorithm, parts, noise, settings = LOOPS[name]

    class Noting(algorithm):  # type: ignore[misc]
        def _explore(self, policy_input: Any) -> dict[str, Any]:
            return {"actions": self.exploration.random(policy_input, self.rng)}

        def _learn_from(self, batches: Any, n_steps: int) -> Any:
            rows = {key: rows.double() if key != "actions" else rows for key, rows in batches.items()}
            rows["actions"] = rows["actions"].unsqueeze(-1) if name == "dqn" else rows["actions"].double()
            updates.append((self.num_timesteps, n_steps, rows))
            torch.manual_seed(self.n_updates)
            before = self.rng
            if noise is not None:
                self.rng = Prepared(noise(rows["actions"][0], n_steps))
            outputs = super()._learn_from(
                {**rows, "actions": rows["actions"].reshape(batches["actions"].shape)}, n_steps
            )
            self.rng = before
            return outputs

    updates: list[tuple[int, int, dict[str, Tensor]]] = []
    settings = {**SETTINGS, **settings, "learning_starts": 24, "gradient_steps": gradient_steps}
    env, _ = logged_vector_env("own", actions := spaces.Discrete(3) if name == "dqn" else BOX)
    plain = {"double": False, "dueling": False} if name == "dqn" else {}
    model = ours(Noting, torch.float64, env, train_freq=3 * train_freq, **settings, **plain)

    venv = DummyVecEnv([lambda: Logged(actions=actions)] * 3)
    nets: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "device": "cpu"}
    peer = peer_of(
        peer_algorithm("MlpPolicy", venv, train_freq=train_freq, **nets, **settings), torch.float64
    )
    if name == "sac":
        nn.init.constant_(model.policy.temperature.log, math.log(0.125))  # in double precision
        peer.actor.action_dist.epsilon = 0.0
    model.copy_to_targets()
    state = model.runner.state
    networks = {part: getattr(peer, network) for part, network in parts.items()}
    start = {part: state[part].clone() for part in parts}
    for part, network in networks.items():
        nn.utils.vector_to_parameters(start[part].clone(), network.parameters())

    model.learn(96)
    drawn = {key: torch.cat([rows[key] for _, _, rows in updates]) for key in updates[0][2]}
    memory, train = peer.replay_buffer, peer.train
    give(peer, drawn)
    memory.sample, peer.replay_buffer = peer.replay_buffer.sample, memory
    peer._sample_action = lambda *_: [np.stack([actions.sample() for _ in range(3)])] * 2
    peer_updates: list[tuple[int, int]] = []

    def noted(gradient_steps: int, batch_size: int) -> None:
        peer_updates.append((peer.num_timesteps, gradient_steps))
        torch.manual_seed(peer._n_updates)
        train(gradient_steps, batch_size)

    peer.train = noted
    peer.learn(96, log_interval=None)
    assert [update[:2] for update in updates] == peer_updates
    assert len(updates) == (96 - 24) // (3 * train_freq)
    for part, network in networks.items():
        assert distance(state[part], network, start[part]) < 1e-9, part


# -- Schedules stand where the steps began that an update follows, also in the last, short one ------------

OFF_POLICY = {"train_freq": 64, "gradient_steps": -1, "learning_starts": 0, "batch_size": 8}

RUNS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "ppo2": (PPO2, "CartPole-v1", {"n_steps": 32, "n_epochs": 1}),
    "acer": (ACER, "CartPole-v1", {"n_steps": 32}),
    "trpo": (TRPO, "CartPole-v1", {"n_steps": 32, "batch_size": 64, "n_critic_updates": 1}),
    "dqn": (DQN, "CartPole-v1", OFF_POLICY),
    "ddpg": (DDPG, "Pendulum-v1", OFF_POLICY),
    "sac": (SAC, "Pendulum-v1", OFF_POLICY),
}


@pytest.mark.parametrize("name", RUNS)
def test_no_update_stands_at_the_end_of_its_schedule(name: str) -> None:
    """Updates come after 64 steps of two environments; 160 steps are two and a half."""
    algorithm, env_id, settings = RUNS[name]

    class Noting(algorithm):  # type: ignore[misc]
        def rates(self, progress: float) -> dict[str, Tensor]:
            rates: dict[str, Tensor] = super().rates(progress)
            remaining.append(rates["learning_rate"].item() / 1e-3)
            return rates

    remaining: list[float] = []
    model = Noting({"net_arch": [8]}, env_id, n_envs=2, seed=0, learning_rate="lin_1e-3", **settings)
    model.learn(160)
    assert remaining == pytest.approx([1 - begun / 160 for begun in (0, 64, 128)])

    remaining.clear()
    before = model.num_timesteps
    model.learn(160, reset_num_timesteps=False)
    total = before + 160
    assert remaining == pytest.approx([1 - (before + begun) / total for begun in (0, 64, 128)])

    remaining.clear()
    model.learn(64)
    assert remaining == pytest.approx([1.0])


# -- A batch that is larger than what it is drawn from: all of a rollout is one batch, and the user is told -

ENV = "CartPole-v1"
QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


@pytest.mark.parametrize(
    ("algorithm", "policy", "options", "n_updates"),
    [
        (zoo.PPO, "MlpPolicy", {"n_steps": 32}, 10),  # n_epochs, one batch each
        (zoo.RecurrentPPO, "MlpLstmPolicy", {"n_steps": 16, "n_envs": 2}, 10),
        (zoo.PPO1, "MlpPolicy", {"n_steps": 32}, 4),
        (zoo.PPO2, "MlpPolicy", {"n_steps": 32, "batch_size": 33}, 4),
        (zoo.TRPO, "MlpPolicy", {"n_steps": 32}, 11),  # one of the actor, ten of the critic
    ],
)
def test_rollout_is_the_batch(algorithm: Any, policy: str, options: dict[str, Any], n_updates: int) -> None:
    model = algorithm(policy, ENV, **options, **QUIET).learn(32)
    assert model.n_updates == n_updates


# -- Each algorithm's update is one graph that a compiler takes, and learns what the eager one learns -----

LEARNING = {"learning_starts": 16, "train_freq": 8, "gradient_steps": 4, "batch_size": 8}
UNITS = {"normalize_returns": True, "enable_popart": True, "critic_l2_reg": 0.1, "max_grad_norm": 1.0}

DROPOUT = {"net_arch": [8], "critic": {"layer_norm": True, "dropout": 0.2}}
BATCH_NORM = {"net_arch": [8], "_target_": "toy_policies.BatchNormCritics"}
ON_POLICY = {"n_steps": 8, "normalize_advantage": True}


def imitator(policy: Any, env: str, **options: Any) -> Any:
    data = record_expert(
        lambda seen: int(seen[2] + seen[3] > 0), EnvConfig(env, max_episode_steps=20), 3, seed=0
    )
    return zoo.GAIL(policy, env, data, g_step=1, **options)


COMPILED_RUNS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "a2c": (zoo.A2C, "CartPole-v1", ON_POLICY),
    "acer": (ACER, "CartPole-v1", {"n_steps": 5, "replay_start": 20}),
    "acktr": (ACKTR, "CartPole-v1", {"n_steps": 8, "cold_updates": 2, "kfac_update": 2}),
    "ddpg": (DDPG, "Pendulum-v1", {**LEARNING, **UNITS, "return_range": [-2.0, 2.0]}),
    "dqn": (DQN, "CartPole-v1", {**LEARNING, "target_update_interval": 24}),
    "gail": (
        imitator,
        "CartPole-v1",
        {**ON_POLICY, "generator": "ppo2", "d_step": 2, "d_gradient_penalty": 1.0},
    ),
    "ppo1": (zoo.PPO1, "CartPole-v1", {**ON_POLICY, "batch_size": 8}),
    "ppo2": (PPO2, "Pendulum-v1", {**ON_POLICY, "target_kl": 0.5}),
    "qrdqn": (zoo.QRDQN, "CartPole-v1", {**LEARNING, "target_update_interval": 24, "n_quantiles": 5}),
    "sac": (SAC, "Pendulum-v1", {**LEARNING, "target_update_interval": 3}),
    "sac_choices": (SAC, "CartPole-v1", {**LEARNING, "policy_delay": 2}),
    "sac_dropout": (SAC, "Pendulum-v1", {**LEARNING, "policy": DROPOUT}),
    "sac_batch_norm": (SAC, "Pendulum-v1", {**LEARNING, "policy": BATCH_NORM}),
    "crossq": (
        zoo.CrossQ,
        "Pendulum-v1",
        {**LEARNING, "policy": {"net_arch": [8], "renorm_warmup_steps": 2}},
    ),
    "td3": (TD3, "Pendulum-v1", LEARNING),
    "tqc": (zoo.TQC, "Pendulum-v1", {**LEARNING, "n_quantiles": 5}),
    "trpo": (
        TRPO,
        "CartPole-v1",
        {"n_steps": 16, "batch_size": 16, "n_critic_updates": 2, "cg_max_steps": 3},
    ),
}
"""Every algorithm that takes gradient steps while it acts."""


@pytest.mark.parametrize(
    "name",
    ["acer", *(pytest.param(name, marks=pytest.mark.slow) for name in COMPILED_RUNS if name != "acer")],
)
def test_compiled_run_learns_what_the_eager_one_learns(name: str) -> None:
    algorithm, env, hyperparameters = COMPILED_RUNS[name]
    settings = {"policy": {"net_arch": [8]}, **QUIET, "n_envs": 2, "learning_rate": 0.01, **hyperparameters}
    models = [algorithm(env=env, **{**settings, "compile": each}) for each in (False, True)]
    start = models[0].get_parameters()
    eager, compiled = (model.learn(64) for model in models)
    assert compiled.runtime.compile is True
    assert eager.runtime.compile is False
    assert eager.n_updates == compiled.n_updates > 1
    for key, expected in eager.get_parameters().items():
        moved = np.abs(expected - start[key]).max()
        np.testing.assert_allclose(compiled.get_parameters()[key], expected, atol=0.02 * moved + 1e-6)
    metrics = compiled.read_metrics()
    assert metrics == pytest.approx(eager.read_metrics(), rel=0.02, abs=1e-4, nan_ok=True)
