"""Replay and hindsight in algorithms: relabelled goals, infos, what goes wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from toy_envs import PicturedBits

from zoo import DQN, PPO2, SAC, make_vec_env
from zoo.envs.env_checker import check_env
from zoo.envs.toys import BitFlipping
from zoo.errors import ZooError
from zoo.experiment.evaluation import evaluate

# -- Memories in training: what updates get from them, what they learn of updates, and how they are kept ---


SMALL = {"net_arch": [8]}
PRIORITIZED = {"prioritized": {"alpha": 0.5, "epsilon": 0.01}}


def dqn(**options: Any) -> DQN:
    settings = {"learning_starts": 40, "batch_size": 16, "train_freq": 4, "gamma": 0.9, **options}
    return DQN(SMALL, "CartPole-v1", n_envs=2, seed=0, compile=False, threads=1, **settings)


def test_priorities_are_the_errors_that_the_last_update_found() -> None:
    model = dqn(replay=PRIORITIZED, train_freq=100, gradient_steps=1, learning_rate=0.0)
    model.learn(100)
    before = model.buffer.sampler.tree.numbers.copy()  # type: ignore[attr-defined]
    model.learn(100, reset_num_timesteps=False)
    drawn = model.buffer.sampler._drawn  # type: ignore[attr-defined]
    numbers = model.buffer.sampler.tree.numbers  # type: ignore[attr-defined]
    model.buffer.sampler.sample = lambda *_: (*np.divmod(drawn, 2), None)  # type: ignore[method-assign]
    batch = model._tensors(model.buffer.sample(model.rng, drawn.shape))
    with torch.no_grad():
        values = model.policy(batch["observations"])
        chosen = values[torch.arange(len(drawn)), batch["actions"]]
        errors = (chosen - model.targets(model.runner.state, batch)).abs().numpy()
    np.testing.assert_allclose(numbers[drawn], (errors + 0.01) ** 0.5, rtol=1e-4)
    others = np.setdiff1d(np.flatnonzero(before), drawn)
    assert (numbers[others] == before[others]).all()
    assert len(np.unique(numbers[drawn])) > 3


@pytest.mark.parametrize("n_step", [1, 3])
def test_targets_discount_the_next_value_by_the_steps_that_were_summed_up(n_step: int) -> None:
    model = dqn(replay={"n_step": n_step}, double=False).learn(200)
    batch = model._tensors(model.buffer.sample(model.rng, (300,)))
    with torch.no_grad():
        targets = model.targets(model.runner.state, batch)
        best = model.updater.parameters.functional(model.runner.state["target"])(
            batch["next_observations"]
        ).amax(-1)
    # Each step of CartPole pays 1, so a sum of rewards tells of how many steps it is.
    n = torch.log(1 - batch["rewards"] * (1 - 0.9)) / np.log(0.9)
    assert set(n.round().int().tolist()) <= set(range(1, n_step + 1))
    torch.testing.assert_close(targets, batch["rewards"] + 0.9**n * (1 - batch["terminated"]) * best)


def test_progress_of_training_reaches_the_sampler() -> None:
    model = dqn(replay=PRIORITIZED)
    seen: list[float] = []
    beta = model.buffer.sampler.beta  # type: ignore[attr-defined]

    def watched(progress: float) -> float:
        seen.append(beta(progress))
        return seen[-1]

    model.buffer.sampler.beta = watched  # type: ignore[attr-defined]
    model.learn(400)
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(0.4 + 0.6 * 40 / 400, abs=0.02)
    assert seen[-1] == pytest.approx(1.0, abs=0.02)


def test_memories_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ZooError, match=r"`replay\.n_step=9` is longer than the buffer.* keeps 8 steps"):
        dqn(replay={"n_step": 9}, buffer_size=16)
    with pytest.raises(ZooError, match=r"unknown key `replay\.alpha`"):
        dqn(replay={"alpha": 1.0})
    with pytest.raises(ZooError, match="replay"):
        PPO2(SMALL, "CartPole-v1", replay={"n_step": 2})


# -- Off-policy algorithms learn from goals that they reached, in whatever form the environments come -----


HINDSIGHT = {"hindsight": {}}
BITS = {"kwargs": {"n_bits": 4}}


def hindsight_dqn(env: Any, replay: Any = HINDSIGHT, **hyperparameters: Any) -> DQN:
    settings = {"learning_starts": 40, "batch_size": 20, "train_freq": 4, **hyperparameters}
    return DQN({"net_arch": [8]}, env, seed=0, compile=False, threads=1, replay=replay, **settings)


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
    model = hindsight_dqn(make_vec_env("Zoo/BitFlipping-v0", 2, **BITS), replay=almost_all).learn(60)
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
    envs = make_vec_env(lambda: PicturedBits(4) if image else BitFlipping(4, continuous=True), 2)
    policy = {"net_arch": [8], **({"features_dim": 8} if image else {})}
    settings = {"learning_starts": 20, "batch_size": 10, "train_freq": 4, "gradient_steps": 4}
    model = algorithm(policy, envs, seed=0, compile=False, replay=HINDSIGHT, **settings).learn(30)
    assert model.policy_config.encoder == "multi"
    assert model.n_updates > 0


def test_environments_without_goals_are_refused_in_one_line() -> None:
    with pytest.raises(
        ZooError, match=r"hindsight needs an env with goals: .* but they are Box\(4,\) float32"
    ):
        hindsight_dqn("CartPole-v1")


# -- Rewards that depend on the info of a step, in hindsight replay with `copy_info_dict` -----------------


VECTOR = spaces.Box(-100.0, 100.0, (2,), np.float32)


class Numbered(gym.Env[Any, Any]):
    """Its info numbers its steps, in several types; that number is the reward, whatever goal is desired."""

    observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._n = int(self.np_random.integers(10))
        self._end = self._n + 4
        return self._shown(), {}

    def step(self, action: Any) -> Any:
        self._n += 1
        info = {
            "whole": self._n,
            "single": np.float32(self._n),
            "array": np.array([self._n, 1.0]),
            "nested": {"list": [self._n, "text", None]},
            "unknown": object(),
        }
        shown = self._shown()
        reward = self.compute_reward(shown["achieved_goal"], shown["desired_goal"], info)
        return shown, reward, False, self._n == self._end, info

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        if not isinstance(info, dict):
            return np.array([self.compute_reward(None, None, each) for each in info])
        numbers = {info["whole"], float(info["single"]), info["array"][0], info["nested"]["list"][0]}
        (number,) = numbers
        assert isinstance(info["single"], np.float32)
        return number

    def _shown(self) -> Any:
        number = np.array([self._n, 0.0], np.float32)
        return {"observation": number, "achieved_goal": number + 1, "desired_goal": -number}


class OneAtATime(Numbered):
    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return super().compute_reward(achieved, desired, dict(info))


WAYS: dict[str, Any] = {
    "in_process": lambda: make_vec_env(Numbered, 2),
    "one_at_a_time": lambda: make_vec_env(OneAtATime, 2),
    "nan_check": lambda: make_vec_env(Numbered, 2, nan_check=True),
    "workers": lambda: make_vec_env(Numbered, 2, vectorization="workers", start_method="fork"),
    "next_step": lambda: SyncVectorEnv([Numbered] * 2, autoreset_mode=AutoresetMode.NEXT_STEP),
}


def trained(env: Any, *, n_step: int = 1, **settings: Any) -> DQN:
    memory = {"n_step": n_step, "hindsight": {"copy_info_dict": True}}
    policy = {"name": "MultiInputPolicy", "net_arch": [8]}
    options = {
        "learning_starts": 20,
        "buffer_size": 60,
        "batch_size": 16,
        "gamma": 1.0,
        "seed": 0,
        **settings,
    }
    return DQN(policy, env, replay=memory, compile=False, **options).learn(100)


def assert_rewards_are_those_of_the_infos(model: DQN) -> None:
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    reached = batch["next_observations"]["observation"][:, 0]
    assert (batch["next_observations"]["desired_goal"][:, 0] > 0).any(), "some have another goal"
    assert batch["rewards"].tolist() == reached.tolist()


@pytest.mark.parametrize("way", WAYS)
def test_rewards_of_other_goals_follow_from_the_info_of_the_step(way: str) -> None:
    env = WAYS[way]()
    assert_rewards_are_those_of_the_infos(trained(env))
    env.close()


def test_each_step_of_a_sum_has_its_own_info() -> None:
    model = trained(WAYS["in_process"](), n_step=2)
    batch = model.buffer.sample(np.random.default_rng(0), (64,))
    first = batch["observations"]["observation"][:, 0] + 1
    last = batch["next_observations"]["observation"][:, 0]
    assert batch["rewards"].tolist() == np.where(first == last, first, first + last).tolist()


def test_infos_are_in_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = trained(WAYS["in_process"]()), trained(WAYS["in_process"](), seed=1)
    after.buffer.load_state(copy.deepcopy(before.buffer.state()))
    assert_rewards_are_those_of_the_infos(after)
    samples = [each.buffer.sample(np.random.default_rng(3), (9,)) for each in (before, after)]
    assert samples[0]["rewards"].tolist() == samples[1]["rewards"].tolist()


def test_without_it_the_info_is_empty_and_the_error_names_it() -> None:
    envs = make_vec_env(Numbered, 1, check=False)
    model = DQN("MultiInputPolicy", envs, replay={"hindsight": {}}, learning_starts=20)
    with pytest.raises(ZooError, match=r"replay\.hindsight\.copy_info_dict=true"):
        model.learn(50)
    assert any("copy_info_dict" in finding for finding in check_env(Numbered))


# -- What hindsight needs of an environment is asked for before it learns, and told when it goes wrong ----


BROKEN_HINDSIGHT: dict[str, Any] = {"hindsight": {}}


class Failing(BitFlipping):
    """Answers about goals as long as there are few of them in all, then with ``after``."""

    def __init__(self, after: Any, n_answers: int = 0) -> None:
        super().__init__(4)
        self.after, self.n_answers = after, n_answers

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        self.n_answers -= 1
        if self.n_answers >= 0:
            return super().compute_reward(achieved_goal, desired_goal, info)
        if isinstance(self.after, Exception):
            raise self.after
        return np.full(np.shape(achieved_goal)[:-1], self.after)


def broken_dqn(after: Any, n_answers: int, **options: Any) -> DQN:
    env = make_vec_env(lambda: Failing(after, n_answers), 1, check=False)
    options = {"learning_starts": 40, "batch_size": 8, "replay": BROKEN_HINDSIGHT, **options}
    return DQN(SMALL, env, seed=0, compile=False, **options)


def test_reward_that_cannot_be_asked_for_is_told() -> None:
    model = broken_dqn(RuntimeError("no reward for that"), 0)
    with pytest.raises(
        ZooError, match=r"hindsight asks compute_reward.* raised RuntimeError: no reward for that"
    ):
        model.learn(200)


def test_environment_that_is_refused_takes_the_place_of_none() -> None:
    class Silent(BitFlipping):
        compute_reward = None  # type: ignore[assignment]

    model = SAC(
        SMALL,
        make_vec_env(lambda: BitFlipping(4, continuous=True), 2),
        seed=0,
        compile=False,
        replay=BROKEN_HINDSIGHT,
    ).learn(120)
    with pytest.raises(ZooError, match="compute_reward"):
        model.set_env(make_vec_env(lambda: Silent(4, continuous=True), 1, check=False))
    assert model.n_envs == 2
    model.learn(20, reset_num_timesteps=False)
