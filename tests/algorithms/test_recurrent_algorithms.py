"""Recurrent policies: rollouts, learning, and updates against SB3-Contrib's RecurrentPPO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import KINDS, Transition, logged_vector_env
from peer_updates import RATE, Nowhere, peer_of
from torch import Tensor, nn

from zoo import A2C, PPO2, evaluate_policy
from zoo.algorithms.on_policy import OnPolicyAlgorithm
from zoo.interop.sb3_import import rename_tensors
from zoo.optim.update_runner import UpdateRunner

# -- What recurrent policies learn from: sequences, the states before them, and values that remember ------

N_STEPS, N_ENVS, CHUNK = 12, 3, 4
GAMMA, GAE_LAMBDA = 0.9, 0.7


def policy(core: str = "gru", share_encoder: bool = True) -> dict[str, Any]:
    return {
        "recurrent": core,
        "lstm_hidden_size": 5,
        "net_arch": {"shared": [6], "pi": [5], "vf": [4]},
        "share_encoder": share_encoder,
    }


def collected(
    algorithm: Any = PPO2, kind: str = "own", **options: Any
) -> tuple[OnPolicyAlgorithm, list[list[Transition]], list[int]]:
    """Return an algorithm with its third rollout, all that each env saw, and where that rollout began."""
    vector_env, envs = logged_vector_env(kind)
    chosen = {"policy": policy(), "n_steps": N_STEPS, "chunk_length": CHUNK, "gamma": GAMMA, **options}
    model = algorithm(chosen.pop("policy"), vector_env, seed=0, compile=False, learning_rate=0.0, **chosen)
    model.config.gae_lambda = GAE_LAMBDA
    model.learn(2 * N_STEPS * N_ENVS - 10)
    before = [len(env.log) for env in envs]
    model.collect()
    return model, [env.log for env in envs], before


@torch.no_grad()
def stepped(model: OnPolicyAlgorithm, log: list[Transition]) -> tuple[list[Any], list[float]]:
    """Return the states before each step of a log, and γ·V after each, by remembering from its beginning."""
    network = model.policy
    states, following = [], []
    state: Any = network.initial_state(1)
    start = True
    for step in log:
        states.append(state)
        seen = torch.from_numpy(step.observation[None])
        _, _, state = network({"observations": seen, "episode_starts": torch.tensor([start])}, state)
        next_seen = {"observations": torch.from_numpy(step.next_observation[None])}
        start = step.terminated or step.truncated
        following.append(0.0 if step.terminated else GAMMA * float(network.values(next_seen, state)))
    return states, following


def slow_advantages(model: Any, log: list[Transition], first: int) -> tuple[list[float], list[float]]:
    """Return advantages and values of the steps from ``first`` on, one by one."""
    states, following = stepped(model, log)
    starts = [True, *(step.terminated or step.truncated for step in log[:-1])]
    values, advantages = [], []
    carried = 0.0
    for i in reversed(range(first, len(log))):
        step = log[i]
        observations = torch.from_numpy(step.observation[None])
        seen = {"observations": observations, "episode_starts": torch.tensor([starts[i]])}
        values.append(float(model.policy.values(seen, states[i]).detach()))
        ended = step.terminated or step.truncated
        carried = step.reward + following[i] - values[-1] + GAMMA * GAE_LAMBDA * (0.0 if ended else carried)
        advantages.append(carried)
    return advantages[::-1], values[::-1]


@pytest.mark.parametrize(
    ("algorithm", "share_encoder", "kind"),
    [*((PPO2, True, kind) for kind in KINDS), (A2C, False, "NEXT_STEP")],
)
def test_values_remember_since_the_episode_began(algorithm: Any, share_encoder: bool, kind: str) -> None:
    """Also those of a truncated episode's last observation, and of the observation after the rollout."""
    model, logs, firsts = collected(algorithm, kind, policy=policy("gru", share_encoder))
    rollout = model.finished_rollout()
    torch.testing.assert_close(rollout["returns"], rollout["advantages"] + rollout["values"])
    for env, (log, first) in enumerate(zip(logs, firsts, strict=True)):
        advantages, values = slow_advantages(model, log[: first + N_STEPS], first)
        found = model.buffer.as_steps(rollout["values"].numpy())[:, env]
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5)
        found = model.buffer.as_steps(rollout["advantages"].numpy())[:, env]
        np.testing.assert_allclose(found, advantages, rtol=1e-4, atol=1e-5)
    lengths = {len(log) - first for log, first in zip(logs, firsts, strict=True)}
    assert (lengths == {N_STEPS}) == (kind != "NEXT_STEP")


# -- With a memory the toy that needs one is solved -------------------------------------------------------

SETTINGS: dict[Any, dict[str, Any]] = {
    PPO2: {"n_steps": 24, "n_minibatches": 2, "n_epochs": 6, "ent_coef": 0.01},
    A2C: {"n_steps": 12, "use_rms_prop": False, "normalize_advantage": True},
}


@pytest.mark.parametrize(
    ("algorithm", "n_timesteps", "memory"),
    [(PPO2, 6_000, {"recurrent": "lstm"}), (A2C, 12_000, {"recurrent": "gru", "critic_lstm": "shared"})],
    ids=["ppo2", "a2c"],
)
def test_memory_toy_is_solved(algorithm: Any, n_timesteps: int, memory: dict[str, Any]) -> None:
    policy = {**memory, "lstm_hidden_size": 16, "net_arch": []}
    settings = {"n_envs": 16, "learning_rate": 0.01, "gamma": 0.95, **SETTINGS[algorithm]}
    model = algorithm(policy, "Zoo/Memory-v0", seed=0, compile=False, threads=1, **settings)
    model.learn(n_timesteps)
    assert evaluate_policy(model, "Zoo/Memory-v0", 100, seed=1, n_envs=7)[0] > 0.9


# -- Updates of recurrent PPO against SB3-Contrib's: same weights, states and batches, in double precision --

contrib = pytest.importorskip("sb3_contrib")
DummyVecEnv = pytest.importorskip("stable_baselines3.common.vec_env").DummyVecEnv

PEER_STEPS, PEER_ENVS, HIDDEN = 8, 3, 6
ACTIONS: dict[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(3),
    "numbers": spaces.Box(-2.0, 2.0, (2,), np.float32),
}
THEIRS = {"separate": {}, "detached": {"enable_critic_lstm": False, "shared_lstm": True}}
PEER_SETTINGS = {"learning_rate": RATE, "n_steps": PEER_STEPS, "n_epochs": 2, "ent_coef": 0.125}

Rollout = dict[str, Any]


class Pair:
    """Both algorithms at the same weights, and a rollout for both; ``batch_size`` is in sequences."""

    def __init__(self, actions: str, critic: str, n_layers: int, batch_size: int) -> None:
        torch.manual_seed(0)
        self.critic, self.n_layers, self.batch_size = critic, n_layers, batch_size
        space = ACTIONS[actions]
        env = type("Env", (Nowhere,), {"action_space": space})
        nets = {"lstm_hidden_size": HIDDEN, "n_lstm_layers": n_layers, "net_arch": {"pi": [7], "vf": [5]}}
        settings = {"batch_size": batch_size * PEER_STEPS, "policy_kwargs": {**nets, **THEIRS[critic]}}
        envs = DummyVecEnv([env] * PEER_ENVS)
        theirs = contrib.RecurrentPPO("MlpLstmPolicy", envs, device="cpu", **settings, **PEER_SETTINGS)
        self.peer = peer_of(theirs, torch.float64)
        self.peer.policy.extract_features = lambda observations: observations
        with torch.no_grad():
            for parameter in self.peer.policy.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        own = {"observation_space": Nowhere.observation_space, "action_space": space, "compile": False}
        own |= {"clip_range_vf": None, "vf_coef": 0.5, **PEER_SETTINGS}
        self.ours = PPO2({"recurrent": "lstm", "critic_lstm": critic, **nets}, **own)
        self.ours.policy.double().encoder = nn.Identity()  # the usual one makes all single
        action = "logits" if actions == "choice" else "mean"
        tensors = self.peer.policy.state_dict()
        self.names = rename_tensors("ppo2", tensors, action=action, output=2)
        self.ours.policy.load_state_dict({name: tensors[theirs] for theirs, name in self.names.items()})
        self.ours.runner = UpdateRunner(self.ours._make_state(), self.ours.runtime)
        self.start = {name: each.clone() for name, each in self.ours.policy.state_dict().items()}
        self.rollout = self.drawn(space)

    def drawn(self, space: spaces.Space[Any]) -> Rollout:
        """Return a random rollout in our form: a sequence of each environment."""
        generator = torch.Generator().manual_seed(1)
        shape = (PEER_ENVS, PEER_STEPS)

        def normal(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64)

        starts = torch.rand(shape, generator=generator) < 0.25
        starts[0, 0], starts[1, 0] = True, False
        is_choice = isinstance(space, spaces.Discrete)
        actions = torch.randint(3, shape, generator=generator) if is_choice else normal(*shape, 2)
        drawn = {name: normal(*shape) for name in ("values", "advantages", "returns")}
        drawn |= {"observations": normal(*shape, 3), "log_prob": 0.1 * normal(*shape) - 1.2}
        states = normal(PEER_ENVS, self.ours.policy.state_size)
        return {**drawn, "actions": actions, "episode_starts": starts, "states": states}

    def ours_updated(self) -> None:
        rows = torch.arange(PEER_ENVS).reshape(-1, self.batch_size).repeat(2, 1)
        rates = {"learning_rate": torch.tensor(RATE), "clip_range": torch.tensor(0.2)}
        self.ours.take_steps(self.ours._gradient_step, {"rollout": self.rollout, **rates}, rows)

    def theirs_updated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the peer learn from the rollout, in the same order: it shuffles by one random rotation."""
        monkeypatch.setattr(np.random, "randint", lambda *_: 0)
        buffer = self.peer.rollout_buffer
        buffer.reset()
        by_step = {
            name: column.numpy().swapaxes(0, 1) for name, column in self.rollout.items() if name != "states"
        }
        buffer.log_probs = by_step["log_prob"]
        for name in ("values", "advantages", "returns", "observations"):
            setattr(buffer, name, by_step[name])
        buffer.episode_starts = by_step["episode_starts"].astype(np.float64)
        buffer.actions = by_step["actions"].reshape(PEER_STEPS, PEER_ENVS, -1)
        first = self.rollout["states"].numpy().reshape(PEER_ENVS, -1, self.n_layers, 2, HIDDEN)
        for part, name in enumerate(("pi", "vf")):
            own = first[:, min(part, first.shape[1] - 1)]
            for kind, whole in enumerate(("hidden", "cell")):
                # Only what a sequence begins with is read; it begins at the rollout's start or an episode's.
                states = np.zeros((PEER_STEPS, self.n_layers, PEER_ENVS, HIDDEN))
                states[0] = own[:, :, kind].swapaxes(0, 1)
                setattr(buffer, f"{whole}_states_{name}", states)
        buffer.full, buffer.generator_ready = True, False
        self.peer.train()

    def check(self, monkeypatch: Any, plant: Callable[[Pair], Any] = lambda pair: None) -> None:
        """Raise `AssertionError` where the two have learned something else."""
        self.theirs_updated(monkeypatch)
        plant(self)
        self.ours_updated()
        ours, theirs = self.ours.policy.state_dict(), self.peer.policy.state_dict()
        for their_name, name in self.names.items():
            moved = (theirs[their_name] - self.start[name]).abs().max()
            assert moved > 1e-3, name
            torch.testing.assert_close(ours[name], theirs[their_name], rtol=1e-7, atol=1e-8, msg=name)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("critic", THEIRS)
@pytest.mark.parametrize(("n_layers", "batch_size"), [(1, 3), (1, 1), (2, 3)])
def test_an_update_is_the_peers(
    actions: str, critic: str, n_layers: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pair(actions, critic, n_layers, batch_size).check(monkeypatch)


def _rolled(pair: Pair, name: str, by: int) -> None:
    pair.rollout[name] = pair.rollout[name].roll(by, 1)


PLANTED: dict[str, Callable[[Pair], Any]] = {
    "states are forgotten": lambda pair: pair.rollout["states"].zero_(),
    "h and c change places": lambda pair: _rolled(pair, "states", HIDDEN),
    "starts are ignored": lambda pair: pair.rollout["episode_starts"].zero_(),
    "starts come a step late": lambda pair: _rolled(pair, "episode_starts", 1),
    "weight of the values": lambda pair: setattr(pair.ours.config, "vf_coef", 0.501),
    "weight of the entropy": lambda pair: setattr(pair.ours.config, "ent_coef", 0.126),
    "advantages are not standardised": lambda pair: setattr(pair.ours.config, "normalize_advantage", False),
    "critic reads the actor's": lambda pair: setattr(pair.ours.policy, "critic_reads", "detached"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_noticed(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        Pair("choice", "separate", 1, 3).check(monkeypatch, PLANTED[planted])
