"""Updates of recurrent PPO against SB3-Contrib's: same weights, states and batches, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from peer_updates import RATE, Nowhere, peer_of
from torch import Tensor, nn

from zoo import PPO2
from zoo.interop.sb3_import import rename_tensors
from zoo.optim.update_runner import UpdateRunner

contrib = pytest.importorskip("sb3_contrib")

N_STEPS, N_ENVS, HIDDEN = 8, 3, 6
ACTIONS: dict[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(3),
    "numbers": spaces.Box(-2.0, 2.0, (2,), np.float32),
}
THEIRS = {"separate": {}, "detached": {"enable_critic_lstm": False, "shared_lstm": True}}
SETTINGS: dict[str, Any] = {"learning_rate": RATE, "n_steps": N_STEPS, "n_epochs": 2, "ent_coef": 0.125}

Rollout = dict[str, Any]


class Pair:
    """Both algorithms at the same weights, and a rollout for both; ``batch_size`` is in sequences."""

    def __init__(self, actions: str, critic: str, n_layers: int, batch_size: int) -> None:
        torch.manual_seed(0)
        self.critic, self.n_layers, self.batch_size = critic, n_layers, batch_size
        space = ACTIONS[actions]
        env = type("Env", (Nowhere,), {"action_space": space})
        widths = {"pi": [7], "vf": [5]}
        self.peer = peer_of(
            contrib.RecurrentPPO(
                "MlpLstmPolicy",
                venv(env),
                batch_size=batch_size * N_STEPS,
                policy_kwargs={
                    "lstm_hidden_size": HIDDEN,
                    "n_lstm_layers": n_layers,
                    "net_arch": widths,
                    **THEIRS[critic],
                },
                device="cpu",
                **SETTINGS,
            ),
            torch.float64,
        )
        self.peer.policy.extract_features = lambda observations: observations
        with torch.no_grad():
            for parameter in self.peer.policy.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        self.ours = PPO2(
            {
                "recurrent": "lstm",
                "lstm_hidden_size": HIDDEN,
                "n_lstm_layers": n_layers,
                "net_arch": widths,
                "critic_lstm": critic,
            },
            observation_space=Nowhere.observation_space,
            action_space=space,
            compile=False,
            clip_range_vf=None,
            vf_coef=0.5,
            **SETTINGS,
        )
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
        shape = (N_ENVS, N_STEPS)

        def normal(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64)

        starts = torch.rand(shape, generator=generator) < 0.25
        starts[0, 0], starts[1, 0] = True, False
        is_choice = isinstance(space, spaces.Discrete)
        actions = torch.randint(3, shape, generator=generator) if is_choice else normal(*shape, 2)
        return {
            "observations": normal(*shape, 3),
            "actions": actions,
            "episode_starts": starts,
            "states": normal(N_ENVS, self.ours.policy.state_size),
            "values": normal(*shape),
            "log_prob": 0.1 * normal(*shape) - 1.2,
            "advantages": normal(*shape),
            "returns": normal(*shape),
        }

    def ours_updated(self) -> None:
        rows = torch.arange(N_ENVS).reshape(-1, self.batch_size).repeat(2, 1)
        rates = {
            name: torch.tensor(RATE if name == "learning_rate" else 0.2)
            for name in ("learning_rate", "clip_range")
        }
        self.ours._take_steps(self.ours._gradient_step, {"rollout": self.rollout, **rates}, rows)

    def theirs_updated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the peer learn from the rollout, in the same order: it shuffles by one random rotation."""
        monkeypatch.setattr(np.random, "randint", lambda *_: 0)
        buffer = self.peer.rollout_buffer
        buffer.reset()
        by_step = {
            name: column.numpy().swapaxes(0, 1) for name, column in self.rollout.items() if name != "states"
        }
        for theirs, name in {"log_probs": "log_prob"}.items():
            setattr(buffer, theirs, by_step[name])
        for name in ("values", "advantages", "returns", "observations"):
            setattr(buffer, name, by_step[name])
        buffer.episode_starts = by_step["episode_starts"].astype(np.float64)
        buffer.actions = by_step["actions"].reshape(N_STEPS, N_ENVS, -1)
        first = self.rollout["states"].numpy().reshape(N_ENVS, -1, self.n_layers, 2, HIDDEN)
        for part, name in enumerate(("pi", "vf")):
            own = first[:, min(part, first.shape[1] - 1)]
            for kind, whole in enumerate(("hidden", "cell")):
                # Only what a sequence begins with is read; it begins at the rollout's start or an episode's.
                states = np.zeros((N_STEPS, self.n_layers, N_ENVS, HIDDEN))
                states[0] = own[:, :, kind].swapaxes(0, 1)
                setattr(buffer, f"{whole}_states_{name}", states)
        buffer.full, buffer.generator_ready = True, False
        self.peer.train()

    def check(
        self, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Pair], Any] = lambda pair: None
    ) -> None:
        """Raise `AssertionError` where the two have learned something else."""
        self.theirs_updated(monkeypatch)
        plant(self)
        self.ours_updated()
        ours, theirs = self.ours.policy.state_dict(), self.peer.policy.state_dict()
        for their_name, name in self.names.items():
            moved = (theirs[their_name] - self.start[name]).abs().max()
            assert moved > 1e-3, name
            torch.testing.assert_close(ours[name], theirs[their_name], rtol=1e-7, atol=1e-8, msg=name)


def venv(env: Any) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([env] * N_ENVS)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("critic", THEIRS)
@pytest.mark.parametrize(("n_layers", "batch_size"), [(1, 3), (1, 1), (2, 3)])
def test_an_update_is_the_peers(
    actions: str, critic: str, n_layers: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pair(actions, critic, n_layers, batch_size).check(monkeypatch)


def _late(pair: Pair) -> None:
    pair.rollout["episode_starts"] = pair.rollout["episode_starts"].roll(1, 1)


def _swapped(pair: Pair) -> None:
    pair.rollout["states"] = pair.rollout["states"].roll(HIDDEN, 1)


PLANTED: dict[str, Callable[[Pair], Any]] = {
    "states are forgotten": lambda pair: pair.rollout["states"].zero_(),
    "h and c change places": _swapped,
    "starts are ignored": lambda pair: pair.rollout["episode_starts"].zero_(),
    "starts come a step late": _late,
    "weight of the values": lambda pair: setattr(pair.ours.config, "vf_coef", 0.501),
    "weight of the entropy": lambda pair: setattr(pair.ours.config, "ent_coef", 0.126),
    "advantages are not standardised": lambda pair: setattr(pair.ours.config, "normalize_advantage", False),
    "critic reads the actor's": lambda pair: setattr(pair.ours.policy, "critic_reads", "detached"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_noticed(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError):
        Pair("choice", "separate", 1, 3).check(monkeypatch, PLANTED[planted])
