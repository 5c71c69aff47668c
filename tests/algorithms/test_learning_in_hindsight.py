"""Off-policy algorithms learn from goals that they reached, in whatever form the environments come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo import DQN, SAC, make_vec_env
from zoo.envs.toys import BitFlipping
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate

HINDSIGHT = {"hindsight": {}}
BITS = {"kwargs": {"n_bits": 4}}


def dqn(env: Any, memory: Any = HINDSIGHT, **hyperparameters: Any) -> DQN:
    settings = {"learning_starts": 40, "batch_size": 20, "train_freq": 4, **hyperparameters}
    return DQN({"net_arch": [8]}, env, seed=0, compile=False, threads=1, replay=memory, **settings)


def test_dqn_flips_eight_bits_with_hindsight_and_not_without() -> None:
    kwargs = {"n_bits": 8}
    success = {}
    for name, memory in {"hindsight": HINDSIGHT, "uniform": {}}.items():
        model = DQN(
            {"net_arch": [64]},
            make_vec_env("Zoo/BitFlipping-v0", 4, kwargs=kwargs),
            seed=0,
            compile=False,
            threads=1,
            replay=memory,
            learning_starts=200,
            batch_size=128,
            learning_rate=3e-3,
            gamma=0.95,
            train_freq=4,
            target_update_interval=100,
            exploration_fraction=0.8,
            exploration_final_eps=0.05,
        ).learn(4000 if memory else 1500)
        played = evaluate(model, make_vec_env("Zoo/BitFlipping-v0", 5, kwargs=kwargs), 100, seed=3)
        success[name] = played.success_rate
    assert success["hindsight"] >= 0.95
    assert success["uniform"] <= 0.2


def test_goals_are_compared_raw_and_normalised_afterwards() -> None:
    model = SAC(
        {"net_arch": [8]},
        make_vec_env("Zoo/BitFlippingContinuous-v0", 2, normalize=True, **BITS),
        seed=0,
        compile=False,
        threads=1,
        replay=HINDSIGHT,
        learning_starts=1000,
    ).learn(200)
    normalizer = model.normalizer
    assert normalizer is not None
    batch = model.buffer.sample(np.random.default_rng(4), (3, 40))
    model.buffer.transforms = ()
    raw = model.buffer.sample(np.random.default_rng(4), (3, 40))
    following = raw["next_observations"]
    reached = (following["achieved_goal"] == following["desired_goal"]).all(-1)
    assert reached.any()
    np.testing.assert_array_equal(raw["rewards"], reached - 1.0)
    np.testing.assert_array_equal(raw["terminated"], reached)
    np.testing.assert_array_equal(batch["rewards"], normalizer.normalize_rewards(raw["rewards"]))
    for name in ("observations", "next_observations"):
        expected = normalizer.normalize_observations(raw[name])
        for key, values in expected.items():
            np.testing.assert_array_equal(batch[name][key], values)


class Reversed(BitFlipping):
    """The goal is to have no bit as it was desired."""

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return super().compute_terminated(achieved_goal, 1.0 - np.asarray(desired_goal), info)


def test_another_environment_is_the_one_that_is_asked_from_then_on() -> None:
    almost_all = {"hindsight": {"n_sampled_goal": 1000, "goal_selection_strategy": "random"}}
    model = dqn(make_vec_env("Zoo/BitFlipping-v0", 2, **BITS), replay=almost_all).learn(60)
    model.set_env(make_vec_env(lambda: Reversed(4), 2, check=False))
    assert len(model.buffer) == 60
    batch = model.buffer.sample(np.random.default_rng(0), (1, 400))
    following = batch["next_observations"]
    reached = (following["achieved_goal"] == 1 - following["desired_goal"]).all(-1)
    assert reached.any()
    np.testing.assert_array_equal(batch["rewards"], reached - 1.0)
    np.testing.assert_array_equal(batch["terminated"], reached)


@pytest.mark.parametrize(("algorithm", "image"), [(DQN, True), (SAC, False)])
def test_pictures_and_numbers_are_learned_from_without_naming_a_policy(algorithm: Any, image: bool) -> None:
    continuous = algorithm is not DQN
    envs = make_vec_env(lambda: BitFlipping(4, continuous=continuous, image=image), 2)
    policy = {"net_arch": [8], **({"features_dim": 8} if image else {})}
    settings = {"learning_starts": 20, "batch_size": 10, "train_freq": 4, "gradient_steps": 4}
    model = algorithm(policy, envs, seed=0, compile=False, replay=HINDSIGHT, **settings).learn(30)
    assert model.policy_config.encoder == "multi"
    assert model.n_updates > 0


def test_environments_without_goals_are_refused_in_one_line() -> None:
    with pytest.raises(
        ZooError, match=r"hindsight needs an env with goals: .* but they are Box\(4,\) float32"
    ):
        dqn("CartPole-v1")
