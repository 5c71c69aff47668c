"""A critic that reads observations which the actor does not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import zoo
from zoo import A2C, ACER, ACKTR, DQN, PPO2, SAC, TRPO, ZooError, make_vec_env
from zoo.interop.export import DeterministicPolicy

HIDDEN = {"critic": {"observations": ["state", "room"]}, "net_arch": [8]}


class Hidden(gym.Env[Any, Any]):
    """Episodes of one step, whose reward stands in the observation ``state``."""

    def __init__(self, actions: Any = None) -> None:
        parts = {
            "camera": spaces.Box(-np.inf, np.inf, (3,), np.float32),
            "room": spaces.Discrete(4, start=2),
            "state": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        }
        self.observation_space = spaces.Dict(parts)
        self.action_space = actions or spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        draw = self.np_random.normal
        self._state = draw(size=2).astype(np.float32)
        room = self.np_random.integers(2, 6)
        return {"camera": draw(size=3).astype(np.float32), "room": room, "state": self._state}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(self._state[0])
        return self.reset()[0], reward, True, False, {}


def made(algorithm: Any = PPO2, policy: Any = HIDDEN, actions: Any = None, **options: Any) -> Any:
    env = make_vec_env(lambda: Hidden(actions), 2, normalize=options.pop("normalize", False))
    settings = {"n_steps": 16, "seed": 1, "compile": False, "threads": 1, **options}
    return algorithm(policy, env, **settings)


def seen(n: int = 6) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    camera, state = (torch.randn(n, size, generator=generator) for size in (3, 2))
    return {"camera": camera, "room": torch.arange(n) % 4 + 2, "state": state}


def test_networks_by_hand() -> None:
    policy = made().policy
    observations = seen()
    room = nn.functional.one_hot(observations["room"] - 2, 4).float()
    everything = torch.cat([observations["camera"], room, observations["state"]], -1)
    parameters, values, _ = policy({"observations": observations})
    torch.testing.assert_close(parameters, policy.head(policy.actor(observations["camera"])))
    torch.testing.assert_close(values, policy.critic(everything)[:, 0])
    torch.testing.assert_close(policy.values({"observations": observations}), values)
    sizes = {name: tuple(tensor.shape) for name, tensor in policy.state_dict().items()}
    assert (sizes["actor.0.weight"], sizes["critic.0.weight"]) == ((8, 3), (8, 9))


def test_critic_learns_what_only_it_sees() -> None:
    def explained(policy: Any) -> float:
        model = made(policy=policy, n_steps=64, n_epochs=20, learning_rate=0.01, clip_range_vf=None)
        model.learn(1024)
        model.read_metrics()
        return float(model.learn(256).read_metrics()["train/explained_variance"])

    blind = {"critic": {"observations": ["room"]}, "encoder": {"_target_": f"{__name__}.CameraOnly"}}
    assert explained(HIDDEN) > 0.8
    assert explained({**HIDDEN, **blind}) < 0.2


class CameraOnly(nn.Module):
    """Makes features of the camera alone, whatever there is."""

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__()
        self.keys, self.features_dim = list(space), 3

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        assert list(observations) == self.keys
        return observations["camera"]


LSTM = {**HIDDEN, "recurrent": "lstm", "lstm_hidden_size": 4}
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo2": (PPO2, {"normalize": True, "actions": BOX}),
    "ppo2 lstm": (PPO2, {"policy": LSTM, "chunk_length": 4}),
    "ppo2 lstm without critic's": (PPO2, {"policy": {**LSTM, "critic_lstm": "none"}, "chunk_length": 4}),
    "a2c": (A2C, {}),
    "trpo": (TRPO, {"batch_size": 16}),
    "acktr": (ACKTR, {}),
    "acer": (ACER, {"replay_start": 32}),
    "acer box": (ACER, {"replay_start": 32, "actions": BOX}),
}


@pytest.mark.parametrize("case", CASES)
def test_actions_do_not_depend_on_hidden_observations(case: str, tmp_path: Path) -> None:
    algorithm, options = CASES[case]
    model = made(algorithm, **options)
    before = model.get_parameters()
    model.learn(96)
    after = model.get_parameters()
    critics = [name for name in before if "critic" in name and "_hh" not in name]  # states stay 0
    assert critics
    assert all(not np.array_equal(after[name], before[name]) for name in critics)
    loaded = zoo.load(model.save(tmp_path / "agent"))
    everything = {name: values.numpy() for name, values in seen().items()}
    expected, _ = model.predict(everything)
    np.testing.assert_array_equal(loaded.predict({"camera": everything["camera"]})[0], expected)
    single = {"camera": everything["camera"][0]}
    np.testing.assert_allclose(loaded.predict(single)[0], expected[0], rtol=1e-5)
    with pytest.raises(ZooError, match="camera"):
        loaded.predict({"state": everything["state"]})
    exported = DeterministicPolicy(loaded)  # type: ignore[arg-type]
    assert [spec.name for spec in exported.inputs if "state" not in spec.name] == ["camera"] + (
        ["episode_start"] if "lstm" in case else []
    )
    if "lstm" not in case:
        with torch.no_grad():
            np.testing.assert_allclose(exported(seen()["camera"])[0], expected, rtol=1e-5, atol=1e-6)


def policy(*keys: str, **fields: Any) -> dict[str, Any]:
    return {"critic": {"observations": list(keys)}, **fields}


@pytest.mark.parametrize(
    ("algorithm", "chosen", "message"),
    [
        (PPO2, policy("stat"), "no observation 'stat'; did you mean 'state'"),
        (PPO2, policy("camera", "room", "state"), "leave the actor some of"),
        (PPO2, policy("state", net_arch={"shared": [8]}), "net_arch.shared"),
        (PPO2, policy("state", recurrent="lstm", critic_lstm="detached"), "critic_lstm=detached"),
        (DQN, policy("state"), "critics of ppo2"),
    ],
)
def test_errors_name_the_key(algorithm: Any, chosen: Any, message: str) -> None:
    with pytest.raises(ZooError, match=message) as caught:
        algorithm(chosen, Hidden())
    assert "`policy.critic.observations" in str(caught.value)


def test_unsuited_critics_and_spaces_are_refused() -> None:
    for algorithm, env in ((PPO2, "CartPole-v1"), (SAC, "Pendulum-v1"), (SAC, "CartPole-v1")):
        with pytest.raises(ZooError, match=r"policy\.critic\.observations"):
            algorithm(policy("state"), env)


def test_first_part_of_a_tuple_can_be_hidden() -> None:
    policy = {"net_arch": [8], "critic": {"observations": ["0"]}}
    model = PPO2(policy, "Blackjack-v1", n_steps=16, compile=False)
    assert model.predict((5, 3, 0))[0] == model.predict((20, 3, 0))[0]
