"""Policies and encoders of a user's own: made from a class path, learned with, saved; their two modes."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from own_policies import ResidualActorCritic, Witness
from torch import Tensor, nn

import zoo
from zoo import A2C, DDPG, DQN, PPO2, SAC, TD3, evaluate_policy
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import make_policy
from zoo.algorithms.off_policy import OffPolicyAlgorithm
from zoo.errors import ZooError
from zoo.policies.acting import ActingPolicy
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig

OBSERVATIONS = spaces.Box(-1.0, 1.0, (4,), np.float32)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"

NOT_A_CLASS = 3


def made(target: str | None = None, **kwargs: Any) -> ActorCritic:
    config = PolicyConfig(_target_=target, net_arch=[8], kwargs=kwargs)
    return make_policy(ActorCritic, OBSERVATIONS, spaces.Discrete(2), config)


def test_the_documented_policy_works() -> None:
    source = re.search(r"```python\n((?:(?!```).)*class MyActorCritic.*?)```", DOCS.read_text(), re.DOTALL)
    assert source is not None
    names: dict[str, Any] = {}
    exec(source[1], names)
    policy = names["MyActorCritic"](OBSERVATIONS, spaces.Discrete(2), PolicyConfig(), width=16)
    assert policy.critic[0].out_features == 16
    seen = {"observations": np.zeros((3, 4), np.float32)}
    assert policy({"observations": torch.zeros(3, 4)})[1].shape == (3,)
    assert ActingPolicy(policy).act(seen, None)[0].shape == (3,)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("test_custom_policies.Missing", "has no `Missing`"),
        ("no_such_module.Policy", "can't import"),
        ("Policy", "can't import"),
        ("test_custom_policies.NOT_A_CLASS", "is not a subclass of zoo.policies.actor_critic.ActorCritic"),
        ("zoo.policies.q_networks.QNetwork", "is not a subclass of zoo.policies.actor_critic.ActorCritic"),
    ],
)
def test_wrong_classes_are_refused(target: str, message: str) -> None:
    with pytest.raises(ZooError, match=message):
        made(target)


class Wide(ActorCritic):
    """Can't be made without its own argument, and takes no others."""

    def __init__(self, observation_space: Any, action_space: Any, config: Any, *, width: int) -> None:
        super().__init__(observation_space, action_space, config)


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [
        ({"widht": 3}, "missing a required argument: 'width'"),
        ({}, "missing a required argument: 'width'"),
        ({"width": 3, "config": 1}, "multiple values for argument 'config'"),
    ],
)
def test_kwargs_that_do_not_fit_are_refused(kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(ZooError) as caught:
        made("test_custom_policies.Wide", **kwargs)
    assert str(caught.value).startswith("`policy.kwargs` don't fit test_custom_policies.Wide: ")
    assert str(caught.value).endswith(problem)


def own(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"_target_": f"own_policies.{name}", "net_arch": [8], "kwargs": kwargs}


def test_an_actor_of_any_form_acts_and_learns() -> None:
    model = A2C(own("ResidualActorCritic"), "CartPole-v1", seed=0, compile=False)
    before = model.get_parameters()
    model.learn(20)
    after = model.get_parameters()
    assert not np.array_equal(after["actor.layers.0.weight"], before["actor.layers.0.weight"])


def test_policy_may_be_a_class(tmp_path: Path) -> None:
    own = zoo.PPO2(ResidualActorCritic, "CartPole-v1", compile=False, threads=1).learn(128)
    assert isinstance(own.policy, ResidualActorCritic)
    own.save(tmp_path / "agent")
    assert isinstance(zoo.load(tmp_path / "agent", trust=True).policy, ResidualActorCritic)

    class Inside(ResidualActorCritic):
        pass

    with pytest.raises(ZooError, match="top of a module"):
        zoo.PPO2(Inside, "CartPole-v1")
    with pytest.raises(ZooError, match="is no policy"):
        zoo.PPO2(Path, "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(ZooError, match="policy is a int"):
        zoo.PPO2(3, "CartPole-v1")  # type: ignore[arg-type]


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
        if not isinstance(space, spaces.Dict):
            model.predict(observations.astype(np.float32))
            assert torch.equal(Width.shown[-1], shown)
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


class Transposed(Width):
    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations).T


def test_encoder_must_return_features_dim_features() -> None:
    with pytest.raises(ZooError, match="features_dim"):
        zoo.PPO2({"encoder": Transposed}, "CartPole-v1", n_envs=2, n_steps=8, compile=False).learn(16)


OFF_POLICY = {"learning_starts": 16, "train_freq": 8, "gradient_steps": 3, "batch_size": 16}

RUNS: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "ppo2": (PPO2, "WitnessedActorCritic", "CartPole-v1", {"n_steps": 32, "n_epochs": 2}),
    "dqn": (DQN, "WitnessedQNetwork", "CartPole-v1", {**OFF_POLICY, "target_update_interval": 20}),
    "ddpg": (DDPG, "WitnessedDDPGPolicy", "Pendulum-v1", {**OFF_POLICY, "parameter_noise": {}}),
    "sac": (SAC, "WitnessedSACPolicy", "Pendulum-v1", OFF_POLICY),
    "td3": (TD3, "WitnessedTD3Policy", "Pendulum-v1", OFF_POLICY),
}


def make(name: str, *, compile: bool = False, seed: int = 1, **witness: Any) -> Algorithm:
    algorithm, policy, env_id, settings = RUNS[name]
    config = {"_target_": f"own_policies.{policy}", "net_arch": [8], "kwargs": witness}
    model: Algorithm = algorithm(config, env_id, seed=seed, compile=compile, threads=1, **settings)
    return model


def observations(model: Algorithm, n: int = 5) -> np.ndarray:
    return (
        np.random.default_rng(0).normal(size=(n, *(model.observation_space.shape or ()))).astype(np.float32)
    )


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Return what the witnesses note from now on."""
    seen: list[tuple[bool, bool]] = []
    monkeypatch.setattr(Witness, "modes", seen)
    return seen


@pytest.mark.parametrize("name", RUNS)
def test_only_gradient_steps_use_training_mode(
    name: str, modes: list[tuple[bool, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(name)

    def noted(step: Any) -> Any:
        def noted_step(*arguments: Any) -> Any:
            before = Witness.stepping
            monkeypatch.setattr(Witness, "stepping", True)
            try:
                return step(*arguments)
            finally:
                monkeypatch.setattr(Witness, "stepping", before)

        return noted_step

    for step in ("_round", "_critic_steps") if name in ("sac", "td3") else ("_gradient_step",):
        monkeypatch.setattr(model, step, noted(getattr(model, step)))
    model.learn(64)
    model.predict(observations(model), deterministic=False)
    model.action_probability(observations(model))
    evaluate_policy(model, RUNS[name][2], 1, seed=0)
    acting = [training for training, stepping in modes if not stepping]
    assert acting
    assert not any(acting)
    in_steps = {training for training, stepping in modes if stepping}
    # What an off-policy step learns towards is looked for in evaluation mode, as by target networks in SB3.
    assert in_steps == ({True} if name == "ppo2" else {True, False})


@pytest.mark.parametrize("name", RUNS)
def test_acting_drops_nothing_and_moves_no_statistics(name: str) -> None:
    model = make(name, dropout=0.5, normalize=True).learn(64)
    assert any(value.any() for key, value in model.get_parameters().items() if "running_mean" in key)
    before, batch = model.get_parameters(), observations(model)
    first = model.action_probability(batch)
    model.policy.train()  # as a user's own training step leaves it
    np.testing.assert_array_equal(model.action_probability(batch), first)
    np.testing.assert_array_equal(model.predict(batch)[0], model.predict(batch)[0])
    for key, value in model.get_parameters().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


@pytest.mark.parametrize("name", RUNS)
def test_restored_run_with_dropout_is_exact(name: str) -> None:
    straight = make(name, dropout=0.3, normalize=True).learn(64)
    resumed = make(name, seed=2, dropout=0.3, normalize=True)
    resumed.load_state(copy.deepcopy(straight.state()))
    torch.rand(7)
    for model in (straight, resumed):
        model.learn(64, reset_num_timesteps=False)
    for key, value in straight.get_parameters().items():
        np.testing.assert_array_equal(resumed.get_parameters()[key], value, err_msg=key)
