"""Action masks: from the environment to the update, and against SB3-Contrib's MaskablePPO."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from peer_updates import N_OBSERVED, RATE, Nowhere, copy_weights, distance, flat, ours, peer_of
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.distributions import make_masked_proba_distribution
from torch import Tensor, nn

from zoo import DQN, PPO2, QRDQN, SAC, TD3, TQC, make_vec_env
from zoo.buffers.arrays import transform
from zoo.envs.spaces import choice_sizes
from zoo.envs.toys import BitFlipping
from zoo.experiment.evaluation import evaluate
from zoo.policies import distributions
from zoo.policies.config import PolicyConfig
from zoo.policies.distributions import make_distribution

# -- Masks and actions with parts, as far as learning: what is valid is learned, and nothing else is done ---

SMALL, TINY = {"net_arch": [32]}, {"net_arch": [8]}
PPO2_SETTINGS = {"n_steps": 32, "n_minibatches": 2, "n_epochs": 6, "gamma": 0.0, "ent_coef": 0.0}
QRDQN_SETTINGS = {"train_freq": 64, "gradient_steps": 10, "batch_size": 64, "learning_starts": 200}
QRDQN_SETTINGS |= {"gamma": 0.25, "target_update_interval": 256, "buffer_size": 10_000, "n_quantiles": 5}
SAC_SETTINGS = {"train_freq": 64, "gradient_steps": 16, "batch_size": 64, "learning_starts": 200}
SAC_SETTINGS |= {"gamma": 0.25, "tau": 0.1, "ent_coef": "auto_0.1", "target_entropy": "auto_0.1"}
SETTINGS = {
    PPO2: PPO2_SETTINGS,
    QRDQN: {**QRDQN_SETTINGS, "exploration_fraction": 0.3},
    SAC: SAC_SETTINGS,
}


def score(algorithm: Any, env_id: str, n_steps: int, *, mask_actions: bool = True) -> float:
    """Train, and return the mean return of the best actions."""
    envs, others = (make_vec_env(env_id, 8, seed, mask_actions=mask_actions) for seed in (0, 1))
    settings = {"learning_rate": 5e-3, **SETTINGS[algorithm]}
    model = algorithm(SMALL, envs, seed=0, compile=False, threads=1, **settings)
    return evaluate(model.learn(n_steps), others, 24, seed=1).mean


@pytest.mark.parametrize("algorithm", [PPO2, QRDQN, SAC])
def test_masked_env_is_solved_with_masks_alone(algorithm: Any) -> None:
    """20 steps pay 1 at best; blind to the masks, half of them end it, so hardly more than 1 is collected."""
    assert score(algorithm, "Zoo/Masked-v0", 8_000) > 18.5
    assert score(algorithm, "Zoo/Masked-v0", 2_000, mask_actions=False) < 4.0


def test_masks_and_memory_are_learned_together() -> None:
    """The cue must be remembered, and only masks lead to where it is asked for: without either, 0 at best."""
    policy = {"net_arch": [16], "recurrent": "lstm", "lstm_hidden_size": 32}
    settings: dict[str, Any] = {"n_steps": 24, "n_minibatches": 2, "n_epochs": 6, "learning_rate": 5e-3}

    def learned(policy: Any, n_steps: int, *, mask_actions: bool = True) -> tuple[Any, float]:
        envs, others = (
            make_vec_env("Zoo/MaskedMemory-v0", 8, seed, kwargs={"length": 3}, mask_actions=mask_actions)
            for seed in (0, 1)
        )
        model = PPO2(policy, envs, seed=0, compile=False, threads=1, **settings).learn(n_steps)
        return model, evaluate(model, others, 100, seed=1).mean

    model, mean = learned(policy, 6_000)
    assert mean > 0.9
    rollout = model.finished_rollout()
    assert rollout["action_masks"].shape == (8, 24, 4)
    assert rollout["action_masks"].gather(-1, rollout["actions"][..., None]).all()
    assert learned(SMALL, 2_000)[1] < 0.4
    assert learned(policy, 2_000, mask_actions=False)[1] < 0.4


class MaskedBits(BitFlipping):
    """Only zeros may be flipped, and the last bit; a goal that a mask leaves unreached takes all the time."""

    def action_masks(self) -> Any:
        return allowed({"observation": self._bits})


def allowed(observations: Any) -> Any:
    mask = np.asarray(observations["observation"]) < 0.5
    mask[..., -1] = True
    return mask


@pytest.mark.parametrize(("algorithm", "optimize"), [(DQN, False), (QRDQN, True), (SAC, True)])
def test_masks_match_observations_in_every_buffer(algorithm: Any, optimize: bool) -> None:
    """Also where goals are replaced, steps are summed and drawn by priority, and episodes are cut short."""
    memory = {"n_step": 3, "hindsight": {}, "prioritized": {}}
    settings = {"buffer_size": 240, "learning_starts": 60, "batch_size": 16, "train_freq": 30}
    settings["optimize_memory_usage"] = optimize
    envs = make_vec_env(lambda: MaskedBits(5), 3, seed=0, check=False)
    model = algorithm(TINY, envs, seed=0, compile=False, replay=memory, **settings).learn(600)
    batch = model.buffer.sample(np.random.default_rng(0), (300,))
    for when in ("", "next_"):
        expected = allowed(batch[f"{when}observations"])
        np.testing.assert_array_equal(batch[f"{when}action_masks"], expected)
    assert np.take_along_axis(batch["action_masks"], batch["actions"][:, None], -1).all()
    seen = {key: part[:50] for key, part in batch["observations"].items()}
    masks = np.arange(5) == np.arange(50)[:, None] % 5
    model.config.exploration_final_eps = 0.5
    for deterministic in (True, False):
        actions, _ = model.predict(seen, action_masks=masks, deterministic=deterministic)
        assert (actions == np.arange(50) % 5).all()


# -- Importance weights of replayed transitions -----------------------------------------------------------
def repeated(batch: dict[str, Any], counts: list[int]) -> dict[str, Any]:
    rows = np.repeat(np.arange(len(counts)), counts)
    return {name: transform(lambda column: column[:, rows], column) for name, column in batch.items()}


@pytest.mark.parametrize("make", [DQN, SAC, TD3, TQC, QRDQN])
def test_a_weight_counts_as_so_many_transitions(make: Any) -> None:
    is_continuous = make not in (DQN, QRDQN)
    env_id = "Pendulum-v1" if is_continuous else "CartPole-v1"
    settings = {"learning_starts": 100, "batch_size": 6, "learning_rate": 0.01, "buffer_size": 1000}
    settings |= {} if is_continuous else {"max_grad_norm": None}
    is_soft = make in (SAC, TQC)
    counts = [2, 0, 1, 3, 0, 0]

    has_rounds = make is TD3 or is_soft

    def after(weighted: bool) -> dict[str, np.ndarray]:
        model = make(TINY, env_id, seed=0, compile=False, **settings).learn(80)
        batch = model._tensors(model.buffer.sample(np.random.default_rng(0), (1, 6)))
        noise = torch.randn((1, 2, 6, 1), generator=torch.Generator().manual_seed(1))
        rows = {**batch, "noise": noise, "tau": torch.tensor([0.1])} if is_soft else dict(batch)
        if make is TD3:
            rows["noise"] = 0.2 * noise[:, 0]
        if weighted:
            rows["weights"] = torch.tensor([counts], dtype=torch.float32)
        else:
            rows = {**rows, **repeated(batch, counts)}
            if is_soft:
                rows["noise"] = noise[:, :, np.repeat(np.arange(6), counts)]
        if has_rounds:  # of one step of the critics
            rows = transform(lambda column: column[None], rows)
        if is_soft:
            model.learns_ent_coef = False  # its loss is no mean over transitions' errors
        step = model._round if has_rounds else model._gradient_step
        model.take_steps(step, model.rates(0.0), rows)
        return model.get_parameters()

    weighted, expected_parameters = after(True), after(False)
    before = make(TINY, env_id, seed=0, compile=False, **settings).get_parameters()
    for name, expected in expected_parameters.items():
        np.testing.assert_allclose(weighted[name], expected, atol=1e-5, err_msg=name)
    assert any(np.abs(expected_parameters[name] - before[name]).max() > 1e-3 for name in before)


# -- Masked PPO2 against SB3-Contrib's MaskablePPO: the same gradient steps from the same weights ---------

N_ROWS, N_BATCHES = 24, 4
ACTIONS = [spaces.Discrete(5), spaces.MultiDiscrete([3, 4])]
PEER_SETTINGS = {"learning_rate": RATE, "clip_range": 0.25, "ent_coef": 0.0625, "vf_coef": 0.5}
KIND = pytest.mark.parametrize("space", ACTIONS, ids=str)


class Masking(Nowhere):
    """Has masks, too."""

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def action_masks(self) -> Any:
        return np.ones(sum(choice_sizes(self.action_space)), np.bool_)


def rollout(space: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return random rows whose actions are valid, as a policy near to the one that learns judged them."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*size: int) -> Tensor:
        return torch.randn(N_ROWS, *size, generator=generator, dtype=dtype)

    masks, actions = [], []
    for size in choice_sizes(space):
        action = torch.randint(size, (N_ROWS, 1), generator=generator)
        masks.append((torch.rand(N_ROWS, size, generator=generator) < 0.5).scatter(1, action, True))
        actions.append(action)
    taken = torch.cat(actions, 1) if len(actions) > 1 else actions[0][:, 0]
    rows = {"observations": drawn(N_OBSERVED), "actions": taken, "action_masks": torch.cat(masks, 1)}
    rows |= {"log_prob": 0.1 * drawn() - 1, "advantages": drawn(), "returns": drawn(), "values": drawn()}
    return rows


def give(peer: Any, rows: dict[str, Tensor], batches: Tensor) -> None:
    """Let the peer learn from these batches of the rows."""

    def samples(batch_size: int) -> Any:
        for batch in batches:
            row = {name: column[batch] for name, column in rows.items()}
            yield SimpleNamespace(old_log_prob=row["log_prob"], old_values=row["values"], **row)

    columns = {name: rows[name].numpy() for name in ("values", "returns")}
    peer.rollout_buffer = SimpleNamespace(get=samples, **columns)


def largest_distance(space: Any, dtype: torch.dtype, changed: dict[str, Any] | None = None) -> float:
    """Take the same steps with both; ``changed`` are columns of ours alone."""
    rows, env = rollout(space, dtype), Masking(space)
    model = ours(PPO2, dtype, env, clip_range_vf=None, **PEER_SETTINGS)
    sizes = {"n_steps": N_ROWS, "batch_size": N_ROWS // N_BATCHES, "n_epochs": 1}
    theirs = MaskablePPO("MlpPolicy", env, policy_kwargs={"net_arch": [8, 8]}, **sizes, **PEER_SETTINGS)
    peer = peer_of(theirs, dtype)
    peer.policy.extract_features = lambda observations, extractor=None: observations
    own, networks = model.policy, peer.policy.mlp_extractor
    *hidden, output = [layer for layer in own.critic.children() if isinstance(layer, nn.Linear)]
    pairs = [
        (own.actor, networks.policy_net),
        (own.head, peer.policy.action_net),
        (nn.Sequential(*hidden), networks.value_net),
        (output, peer.policy.value_net),
    ]
    for source, destination in pairs:
        copy_weights(source, destination)
    starts = [flat(destination.parameters()).clone() for _, destination in pairs]
    batches = torch.randperm(N_ROWS, generator=torch.Generator().manual_seed(1)).reshape(N_BATCHES, -1)
    give(peer, rows, batches)
    peer.train()
    rows |= changed or {}
    learned_from = {name: column for name, column in rows.items() if column is not None}
    model.take_steps(model._gradient_step, {"rollout": learned_from, **model.rates(0.0)}, batches)
    return max(
        distance(flat(source.parameters()), destination, start)
        for (source, destination), start in zip(pairs, starts, strict=True)
    )


@KIND
def test_updates_are_the_peers(space: Any) -> None:
    assert largest_distance(space, torch.float64) < 1e-6
    assert largest_distance(space, torch.float32) < 1e-3


@KIND
def test_planted_errors_are_seen(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = rollout(space, torch.float64)["action_masks"]
    everything: Any = {"action_masks": None}
    assert largest_distance(space, torch.float64, everything) > 0.01
    assert largest_distance(space, torch.float64, {"action_masks": masks.roll(1, 0)}) > 0.01
    monkeypatch.setattr(distributions, "INVALID", -3.0)
    assert largest_distance(space, torch.float64) > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("space", [*ACTIONS, spaces.MultiBinary(4), spaces.Discrete(3000)], ids=str)
def test_log_probabilities_and_entropies_are_the_peers(space: Any, dtype: torch.dtype) -> None:
    """Theirs have two logits for each bit, of zero and of one; only their difference counts."""
    torch.manual_seed(0)
    head = make_distribution(space, 3, PolicyConfig()).to(dtype)
    logits = 3 * torch.randn(50, head.parameter_size, dtype=dtype)
    is_bits, sizes = isinstance(space, spaces.MultiBinary), choice_sizes(space)
    actions = torch.stack([torch.randint(size, (50,)) for size in sizes], 1)
    pairs = zip(sizes, actions.T, strict=True)
    drawn = [(torch.rand(50, n) < 0.5).scatter(1, action[:, None], True) for n, action in pairs]
    masks = torch.cat(drawn, 1)
    peer = make_masked_proba_distribution(space)
    their_logits = torch.stack([torch.zeros_like(logits), logits], -1).flatten(1) if is_bits else logits
    peer.proba_distribution(their_logits)
    peer.apply_masking(masks.numpy())
    if len(sizes) == 1:
        actions = actions[:, 0]
    log_prob, entropy = head.log_prob_and_entropy(head.masked(logits, masks), actions)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(log_prob, peer.log_prob(actions), **tolerance)
    torch.testing.assert_close(entropy, peer.entropy(), **tolerance)
