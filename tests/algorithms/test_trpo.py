"""TRPO: its step, and its updates against SB3-Contrib."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from peer_updates import N_OBSERVED, RATE, Nowhere, flat, in_precision, peer_of
from test_on_policy_updates import ACTIONS as SPACES
from torch import Tensor, nn

from zoo import TRPO, make_vec_env
from zoo.algorithms.on_policy import standardized
from zoo.policies.recurrent import unrolled

# -- What TRPO's update promises: its bound, what it leaves alone, and what its options change ------------

N_STEPS, N_ENVS = 32, 2
POLICY = {"net_arch": [6]}


def trpo(actions: spaces.Space[Any] = SPACES[0], policy: Any = POLICY, **hyperparameters: Any) -> TRPO:
    settings = {"n_steps": N_STEPS, "batch_size": 16, "n_critic_updates": 2, **hyperparameters}
    env = make_vec_env(lambda: Logged(actions=actions), N_ENVS, check=False)
    return TRPO(policy, env, seed=1, compile=False, threads=1, **settings)


def collected(model: TRPO) -> dict[str, Any]:
    """Return a rollout, as an update takes it."""
    model.learn(1)
    model.collect()
    return model.finished_rollout()


def split(model: TRPO) -> tuple[Tensor, Tensor]:
    """Return the parameters that actions depend on, and the others."""
    of_critic = torch.zeros(model.updater.parameters.size, dtype=torch.bool)
    for name, part in model.updater.parameters.slices.items():
        of_critic[part] = name.startswith("critic")
    vector = model.runner.state["policy"].clone()
    return vector[~of_critic], vector[of_critic]


def explicit_fisher(model: TRPO, rollout: dict[str, Any]) -> Tensor:
    """Return the Hessian of the mean divergence by the policy's parameters, entry by entry."""
    vector = model.runner.state["policy"].clone()
    head, functional, states = model.policy.head, model.updater.parameters.functional, rollout.get("states")
    old = model.policy(rollout, states)[0].detach()

    def kl(moved: Tensor) -> Tensor:
        return head.kl(old, functional(moved)(rollout, states)[0]).mean()

    return torch.autograd.functional.hessian(kl, vector)


@pytest.mark.parametrize(
    "memory",
    [
        {"recurrent": "lstm", "critic_lstm": "detached"},
        {"recurrent": "lstm", "critic_lstm": "detached", "lstm_layer_norm": True},
        {"recurrent": "gru", "critic_lstm": "detached"},
    ],
    ids=["lstm", "normalised lstm", "gru"],
)
def test_recurrent_fisher_products_match_full_matrix(memory: dict[str, Any]) -> None:
    """The matrix by PyTorch's own derivatives step by step, the products by Zoo's operation."""
    policy = {**memory, "lstm_hidden_size": 3, "net_arch": []}
    model = trpo(policy=policy, n_steps=16, chunk_length=8, cg_damping=0.25)
    rollout = collected(model)
    assert rollout["episode_starts"][:, 1:].any()
    with unrolled():
        fisher = explicit_fisher(model, rollout)
    product = model._damped_product(rollout)
    for vector in torch.randn(3, len(fisher)):
        expected = fisher @ vector + 0.25 * vector
        torch.testing.assert_close(product(vector), expected, rtol=1e-4, atol=1e-6)
    of_memory = [part for name, part in model.updater.parameters.slices.items() if name.startswith("core")]
    assert all(fisher[part].abs().max() > 1e-6 for part in of_memory)


@pytest.mark.parametrize(("actions", "target_kl"), list(zip(SPACES, [0.003, 0.5] * 2, strict=True)), ids=str)
def test_no_step_breaks_its_bound_or_loses(actions: spaces.Space[Any], target_kl: float) -> None:
    model = trpo(actions, target_kl=target_kl)
    accepted = []
    for _ in range(3):
        rollout = collected(model)
        rollout["advantages"] = standardized(rollout["advantages"])
        head, old = model.policy.head, model.policy(rollout)[0].detach()
        before = split(model)
        gained_before = model._objective(old, rollout)[0]
        model.read_metrics()
        model._move_policy(dict(rollout))
        new = model.policy(rollout)[0].detach()
        kl, metrics = head.kl(old, new).mean().item(), model.read_metrics()
        accepted.append(metrics["train/is_line_search_success"])
        assert kl < target_kl
        assert metrics["train/kl_divergence_loss"] == pytest.approx(kl, rel=1e-3, abs=1e-6)
        assert metrics["train/policy_objective"] == pytest.approx(
            model._objective(new, rollout)[0].item(), rel=1e-3, abs=1e-6
        )
        if accepted[-1]:
            assert model._objective(new, rollout)[0] > gained_before
            assert kl > target_kl / 20
        else:
            assert torch.equal(split(model)[0], before[0])
        assert torch.equal(split(model)[1], before[1]), "the critic has no part in it"
    assert sum(accepted) >= 2


def test_line_search_continues_after_a_losing_step() -> None:
    """Within a bound that nothing reaches: too long a step leaves the good actions behind."""
    for n_tries, is_success in ((1, False), (60, True)):
        bounds = {"target_kl": 50.0, "line_search_kl_factor": 1e9, "line_search_max_iter": n_tries}
        model = trpo(spaces.Box(-2.0, 2.0, (2,), np.float32), **bounds)
        rollout = collected(model)
        rollout["advantages"] = standardized(rollout["advantages"]) + 1.0
        before, old = model.runner.state["policy"].clone(), model.policy(rollout)[0].detach()
        model.read_metrics()
        model._move_policy(dict(rollout))
        assert model.read_metrics()["train/is_line_search_success"] == is_success
        assert torch.equal(model.runner.state["policy"], before) != is_success
        gained = model._objective(model.policy(rollout)[0], rollout)[0] - model._objective(old, rollout)[0]
        assert (gained > 0) == is_success


@pytest.mark.parametrize("advantage", [0.0, torch.nan], ids=["no direction", "not a number"])
def test_failed_line_search_leaves_the_policy_alone(advantage: float) -> None:
    model = trpo()
    rollout = {**collected(model), "advantages": torch.full((N_STEPS * N_ENVS,), advantage)}
    before = model.runner.state["policy"].clone()
    model.read_metrics()
    model._move_policy(rollout)
    assert torch.equal(model.runner.state["policy"], before)
    metrics = model.read_metrics()
    assert metrics["train/is_line_search_success"] == metrics["train/kl_divergence_loss"] == 0
    assert metrics["train/entropy_loss"] < -0.1


@pytest.mark.parametrize("share_encoder", [True, False])
def test_fitting_the_critic_leaves_actions_unchanged(share_encoder: bool) -> None:
    policy = {"net_arch": {"shared": [5], "pi": [4], "vf": [4]}, "share_encoder": share_encoder}
    model = trpo(policy=policy)
    rollout = collected(model)
    before = {name: value.copy() for name, value in model.get_parameters().items()}
    with torch.no_grad():
        actions_before = model.policy(rollout)[0]
    model._fit_critic(rollout)
    after = model.get_parameters()
    moved = {name for name in before if not np.array_equal(after[name], before[name])}
    assert moved == {name for name in before if name.startswith("critic")}
    assert torch.equal(model.policy(rollout)[0].detach(), actions_before)


# -- Whole updates of TRPO against SB3-Contrib's: same weights, same rollouts, same minibatches -----------

contrib = pytest.importorskip("sb3_contrib")

ROWS, BATCH = 48, 16
ACTIONS: dict[str, tuple[spaces.Space[Any], int]] = {
    "choice": (spaces.Discrete(3), 1),
    "choices": (spaces.MultiDiscrete([2, 3]), 1),
    "number": (spaces.Box(-2.0, 2.0, (1,), np.float32), 1),
    "numbers": (spaces.Box(-2.0, 2.0, (3,), np.float32), 3),
}
"""Action spaces, and by how many dimensions SB3-Contrib divides the divergence."""

SETTINGS: dict[str, Any] = {"n_steps": ROWS, "batch_size": BATCH, "learning_rate": RATE}
SETTINGS |= {"n_critic_updates": 2, "cg_max_steps": 5, "cg_damping": 0.0625, "target_kl": 0.0625}


class InPrecision(TRPO):
    def _make_policy(self) -> nn.Module:
        return in_precision(super()._make_policy(), torch.float64)


class Both:
    """Zoo's algorithm and SB3-Contrib's, with one set of weights."""

    def __init__(self, actions: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        env = Nowhere()
        env.action_space, dimensions = ACTIONS[actions]
        settings = {**SETTINGS, **theirs}
        nets = {"policy_kwargs": {"net_arch": [8, 8]}}
        peer = contrib.TRPO("MlpPolicy", env, seed=0, device="cpu", **nets, **settings)
        self.peer = peer_of(peer, torch.float64)
        for summed in ("target_kl", "cg_damping"):
            settings[summed] *= dimensions
        settings |= ours
        self.model = InPrecision({"net_arch": [8, 8]}, env, seed=0, compile=False, **settings)
        self.model._progress_before = 0.0
        own, their = self.model.policy, self.peer.policy
        self.own = [*own.actor.parameters(), *own.head.parameters(), *own.critic.parameters()]
        nets, output = their.mlp_extractor, their.action_net.parameters()
        names = [name for name, _ in own.head.named_parameters()]
        head = [their.log_std if name == "log_std" else next(output) for name in names]
        critic = [*nets.value_net.parameters(), *their.value_net.parameters()]
        self.theirs = [*nets.policy_net.parameters(), *head, *critic]
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for ours_, theirs_ in zip(self.own, self.theirs, strict=True):
                ours_.add_(0.3 * torch.randn(ours_.shape, generator=generator, dtype=ours_.dtype))
                assert ours_.shape == theirs_.shape
                theirs_.copy_(ours_)
        self.start = flat(self.theirs)
        self.kls: list[float] = []

    def update(self, seed: int) -> None:
        rollout, minibatches = self._rollout(seed)
        self._give_peer(rollout, minibatches)
        self.peer.train()
        self.model.finished_rollout = lambda: dict(rollout)  # type: ignore[method-assign]
        self.model.buffer.minibatch_rows = lambda *_: minibatches.numpy()  # type: ignore[method-assign]
        self.model.update()
        self.kls.append(self.model.read_metrics()["train/kl_divergence_loss"])

    def distance(self) -> float:
        reached = flat(self.theirs)
        way = (reached - self.start).abs().max()
        assert way > 1e-2
        return ((flat(self.own) - reached).abs().max() / way).item()

    def _rollout(self, seed: int) -> tuple[dict[str, Tensor], Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(ROWS, *shape, generator=generator, dtype=torch.float64)

        space = self.model.action_space
        space.seed(seed)
        actions = torch.as_tensor(np.stack([space.sample() for _ in range(ROWS)]))
        if isinstance(space, spaces.Box):
            actions = actions.double()
        seen = {"observations": drawn(N_OBSERVED)}
        with torch.no_grad():
            parameters, values, _ = self.model.policy(seen)
            log_prob = self.model.policy.head.log_prob(parameters, actions) + 0.1 * drawn()
        rollout = {**seen, "actions": actions, "values": values, "log_prob": log_prob}
        rollout |= {"advantages": drawn() + 0.5, "returns": drawn()}
        passes = [torch.randperm(ROWS, generator=generator).reshape(-1, BATCH) for _ in range(2)]
        return rollout, torch.cat(passes)

    def _give_peer(self, rollout: dict[str, Tensor], minibatches: Tensor) -> None:
        named = {**rollout, "old_log_prob": rollout["log_prob"]}
        if rollout["actions"].dim() == 1:
            named["actions"] = rollout["actions"].unsqueeze(-1)
        waiting = list(minibatches)

        def get(batch_size: int | None) -> Any:
            passes = [slice(None)] if batch_size is None else [waiting.pop(0) for _ in range(ROWS // BATCH)]
            for rows in passes:
                yield SimpleNamespace(**{name: column[rows] for name, column in named.items()})

        columns = {name: rollout[name].numpy() for name in ("values", "returns")}
        self.peer.rollout_buffer = SimpleNamespace(get=get, **columns)


def distance_after_updates(
    monkeypatch: pytest.MonkeyPatch, actions: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> tuple[float, list[float]]:
    from sb3_contrib.trpo.trpo import kl_divergence

    turned = "sb3_contrib.trpo.trpo.kl_divergence"
    monkeypatch.setattr(turned, lambda new, old: kl_divergence(old, new))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr("stable_baselines3.common.policies.preprocess_obs", lambda seen, *_, **__: seen)
    both = Both(actions, ours, theirs)
    for seed in range(3):
        both.update(seed)
    return both.distance(), both.kls


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"target_kl": 1.0}, {"cg_max_steps": 12, "normalize_advantage": False}],
    ids=["usual", "far", "unnormalised"],
)
def test_updates_are_the_peers(monkeypatch: Any, actions: str, settings: dict[str, Any]) -> None:
    distance, kls = distance_after_updates(monkeypatch, actions, {}, settings)
    assert distance < 1e-6
    bound = ACTIONS[actions][1] * {**SETTINGS, **settings}["target_kl"]
    assert all(0 < kl < bound for kl in kls)


@pytest.mark.parametrize(
    "planted",
    [
        {"cg_damping": 0.0625},
        {"target_kl": 0.0625},
        {"cg_max_steps": 4},
        {"line_search_shrinking_factor": 0.5, "target_kl": 3.0},
        {"line_search_kl_factor": 1.5, "target_kl": 3.0},
        {"ent_coef": 0.01},
        {"normalize_advantage": False},
        {"learning_rate": 2 * RATE},
        {"adam_eps": 1e-3},
        {"max_grad_norm": 0.1},
        {"gamma": 0.5, "sub_sampling_factor": 3},
    ],
    ids=str,
)
def test_what_differs_is_seen(monkeypatch: pytest.MonkeyPatch, planted: dict[str, Any]) -> None:
    theirs = {"target_kl": 1.0} if planted.get("target_kl") == 3.0 else {}
    distance, _ = distance_after_updates(monkeypatch, "numbers", planted, theirs)
    assert distance > 1e-3
