"""An encoder of the user's own: named by its class, for every algorithm and kind of observation; saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from torch import Tensor, nn

import zoo
from zoo.algorithms.off_policy import OffPolicyAlgorithm
from zoo.errors import ZooError

QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


class Width(nn.Module):
    """Reads anything; what it was shown last stands in a list for the tests."""

    shown: list[Any] = []  # noqa: RUF012

    def __init__(self, observation_space: spaces.Space[Any], width: int = 3) -> None:
        super().__init__()
        self.space, self.features_dim = observation_space, width
        self.layer = nn.Linear(1, width)
        nn.init.ones_(self.layer.weight)

    def forward(self, observations: Any) -> Tensor:
        self.shown[:] = [observations]
        parts = observations.values() if isinstance(observations, dict) else [observations]
        features: Tensor = self.layer(
            sum(part.reshape(len(part), -1).float().mean(1, keepdim=True) for part in parts)
        )
        return features


class NoWidth(nn.Module):
    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__()


class Shows(gym.Env[Any, Any]):
    """Shows a sample of some space."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        return self.observation_space.sample(), 1.0, False, False, {}


ALGORITHMS = {
    "CartPole-v1": [zoo.PPO2, zoo.ACKTR, zoo.ACER, zoo.QRDQN, zoo.ARS],
    "Pendulum-v1": [zoo.SAC, zoo.TD3],
}


@pytest.mark.parametrize(
    ("env", "algorithm"), [(env, each) for env, several in ALGORITHMS.items() for each in several]
)
def test_every_algorithm_learns_and_saves_it(env: str, algorithm: type[Any], tmp_path: Path) -> None:
    settings = {"encoder": {"_target_": Width, "width": 5}, "net_arch": [8]}
    options: dict[str, Any] = {"n_delta": 2} if algorithm is zoo.ARS else {}
    if issubclass(algorithm, OffPolicyAlgorithm):
        options = {"learning_starts": 50, "train_freq": 20, "gradient_steps": 2}
    model = algorithm(settings, env, **options, **QUIET)
    weights = [each for name, each in model.get_parameters().items() if name.endswith("module.layer.weight")]
    assert [each.shape for each in weights] == [(5, 1)] * (1 if env == "CartPole-v1" else 2)
    assert model.learn(130).n_updates > 0
    observations = np.random.default_rng(0).normal(size=(4, *model.observation_space.shape)).astype("f4")
    path = model.save(tmp_path / "agent")
    with pytest.raises(ZooError, match=r"policy\.encoder"):
        zoo.load(path)
    again = zoo.load(path, trust=True, **QUIET)
    assert np.array_equal(again.predict(observations)[0], model.predict(observations)[0])
    target = yaml.safe_load((path / "config.yaml").read_text())["policy"]["encoder"]
    assert target == {"_target_": f"{Width.__module__}.Width", "width": 5}


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
@pytest.mark.parametrize("share", [True, False])
def test_it_is_shared_or_not(policy: str, share: bool) -> None:
    settings = {"name": policy, "encoder": Width, "share_encoder": share}
    model = zoo.PPO2(settings, "CartPole-v1", n_steps=16, n_minibatches=1, **QUIET).learn(16)
    weights = [each for name, each in model.get_parameters().items() if name.endswith("layer.weight")]
    assert len([each for each in weights if each.shape == (3, 1)]) == (1 if share else 2)
    assert all((each != 1).any() for each in weights)


PIXELS = spaces.Box(0, 255, (40, 36, 3), np.uint8)
DICTIONARY = spaces.Dict({"a": PIXELS, "b": spaces.MultiBinary(2)})


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (2, 3), np.float64), (2, 3), torch.float32),
        (PIXELS, (3, 40, 36), torch.float32),
        (spaces.Discrete(4), (), torch.int64),
        (DICTIONARY, {"a": (3, 40, 36), "b": (2,)}, torch.float32),
    ],
)
def test_it_is_shown_rows_as_the_docs_say(space: Any, shape: Any, dtype: torch.dtype) -> None:
    model = zoo.PPO2({"encoder": Width, "net_arch": [4]}, Shows(space), n_steps=8, **QUIET)
    encoder = next(each for each in model.policy.modules() if isinstance(each, Width))
    observations = space.sample()
    model.predict(observations)
    (shown,) = Width.shown
    if isinstance(space, spaces.Dict):
        assert {key: tuple(part.shape[1:]) for key, part in shown.items()} == shape
        assert {key: part.shape for key, part in encoder.space.items()} == shape  # type: ignore[attr-defined]
        shown, observations = shown["a"], observations["a"]
    else:
        assert tuple(shown.shape) == (1, *shape)
        assert encoder.space.shape == shape
    assert shown.dtype == dtype
    if 3 in np.shape(observations)[-1:] and dtype == torch.float32 and np.ndim(observations) == 3:
        assert np.allclose(shown[0, 2], observations[:, :, 2] / 255)
    model.learn(8)


@pytest.mark.parametrize(
    ("encoder", "named"),
    [
        ({"width": 3}, "_target_"),
        ({"_target_": "no_such_module.Thing"}, "no_such_module"),
        ({"_target_": f"{__name__}.Wdth"}, "Width"),
        ({"_target_": f"{__name__}.Shows"}, "torch.nn"),
        ({"_target_": Width, "widht": 3}, "widht"),
        (NoWidth, "features_dim"),
        ("mlpp", "mlp"),
    ],
)
def test_what_is_no_encoder_is_named(encoder: Any, named: str) -> None:
    with pytest.raises(ZooError, match=named):
        zoo.PPO2({"encoder": encoder}, "CartPole-v1", **QUIET)


@pytest.mark.parametrize("name", ["features_extractor_class", "features_extractor_kwargs"])
def test_names_of_stable_baselines_are_answered(name: str) -> None:
    with pytest.raises(ZooError, match=rf"{name}.*policy\.encoder=.*_target_"):
        zoo.PPO2({name: Width}, "CartPole-v1", **QUIET)


class Transposed(Width):
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations).T


def test_features_of_another_shape_than_said_are_refused() -> None:
    with pytest.raises(ZooError, match="features_dim"):
        zoo.PPO2({"encoder": Transposed}, "CartPole-v1", n_envs=2, n_steps=8, compile=False).learn(16)
