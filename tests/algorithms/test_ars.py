"""ARS against a slow reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from zoo import ARS, make_vec_env
from zoo.envs.replay import seed_spaces
from zoo.errors import ZooError
from zoo.policies.acting import BatchedPolicy

# -- ARS as slowly and plainly as it can be written: one candidate after the other, one number at a time ---


def moved(
    weights: Sequence[float],
    deltas: Sequence[Sequence[float]],
    plus: Sequence[float],
    minus: Sequence[float],
    *,
    learning_rate: float,
    n_top: int,
) -> list[float]:
    """Return the weights after an update by the paper's algorithms 1 and 2, line 7."""
    order = sorted(range(len(deltas)), key=lambda i: max(plus[i], minus[i]), reverse=True)[:n_top]
    used = [plus[i] for i in order] + [minus[i] for i in order]
    mean = math.fsum(used) / len(used)
    deviation = math.sqrt(math.fsum((score - mean) ** 2 for score in used) / (len(used) - 1))
    step = learning_rate / (n_top * deviation + 1e-6)
    return [
        weight + step * math.fsum((plus[i] - minus[i]) * deltas[i][j] for i in order)
        for j, weight in enumerate(weights)
    ]


def episode(env: Any, seed: int, weights: np.ndarray, mean: Any, scale: Any) -> tuple[float, list[Any]]:
    """Play an episode by the sign of W·(o − mean)·scale with two rows; return the score and what was seen."""
    own_seed = seed_spaces(env, seed)
    observation, _ = env.reset(seed=own_seed)
    total, seen, ended = 0.0, [], False
    while not ended:
        seen.append(np.array(observation, np.float64))
        shown = np.clip((observation - mean) * scale, -10, 10).astype(np.float32)
        left, right = (float(np.float64(row) @ np.float64(shown)) for row in weights.reshape(2, -1))
        observation, reward, terminated, truncated, _ = env.step(int(right > left))
        total, ended = total + float(reward), terminated or truncated
    return total, seen


# -- Augmented random search: its update, its candidates, and what makes no difference to them ------------

RUN: dict[str, Any] = {"seed": 3, "compile": False, "threads": 1}


def ars(env: Any = "CartPole-v1", policy: Any = "LinearPolicy", **options: Any) -> ARS:
    return ARS(policy, env, **{**RUN, **options})


def cart_poles(n: int, **options: Any) -> Any:
    return make_vec_env("CartPole-v1", n, **{"max_episode_steps": 60, **options})


def weights(model: ARS) -> np.ndarray:
    return np.concatenate([value.ravel() for value in model.get_parameters().values()])


def updated(model: ARS, deltas: Any, plus: Any, minus: Any) -> np.ndarray:
    """Return the weights after an update by given directions and scores."""
    model._rates = {"learning_rate": torch.tensor(model.config.learning_rate)}
    model.deltas, model.plus, model.minus = np.float32(deltas), np.float64(plus), np.float64(minus)
    model.update()
    return weights(model)


# The update
@pytest.mark.parametrize("n_top", [1, 3, 4, None])
def test_update_is_that_of_a_slow_reference(n_top: int | None) -> None:
    rng = np.random.default_rng(0)
    model = ars(n_delta=4, n_top=n_top, learning_rate=0.3, zero_policy=False)
    before = weights(model)
    deltas, plus, minus = rng.normal(size=(4, 8)), rng.normal(5, 3, 4), rng.normal(5, 3, 4)
    expected = moved(before, np.float32(deltas).tolist(), plus, minus, learning_rate=0.3, n_top=n_top or 4)
    np.testing.assert_allclose(updated(model, deltas, plus, minus), expected, rtol=1e-6, atol=1e-7)
    assert np.abs(weights(model) - before).max() > 0.05


@pytest.mark.parametrize(("n_delta", "n_top"), [(1, 1), (6, 6), (6, 2)])
def test_update_equals_sb3_contrib_on_same_candidates(n_delta: int, n_top: int) -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    peer = sb3_contrib.ARS(
        "LinearPolicy", "CartPole-v1", n_delta=n_delta, n_top=n_top, learning_rate=0.1, delta_std=0.2, seed=0
    )
    returns = torch.from_numpy(np.random.default_rng(1).normal(100, 30, 2 * n_delta)).float()
    tried = {}

    def evaluate(candidates: torch.Tensor, *_: Any) -> torch.Tensor:
        tried["candidates"] = candidates
        return returns

    peer.evaluate_candidates = evaluate
    peer._setup_learn(1)
    peer._do_one_update(None, None)
    deltas = tried["candidates"][:n_delta].numpy() / 0.2
    model = ars(n_delta=n_delta, n_top=n_top, learning_rate=0.1)
    found = updated(model, deltas, returns[:n_delta].numpy(), returns[n_delta:].numpy())
    np.testing.assert_allclose(found, peer.weights.numpy(), rtol=1e-5, atol=1e-6)
    assert np.abs(found).max() > 0.01


# Candidates
@pytest.mark.parametrize("normalize", [False, True])
def test_scores_and_statistics_match_single_episodes(normalize: bool) -> None:
    """The second update begins with the statistics of the first one's episodes, which then stand still."""
    settings = {"n_delta": 2, "delta_std": 0.3, "alive_bonus_offset": -0.5, "n_eval_episodes": 2}
    model = ars(cart_poles(3, normalize=normalize), **settings)
    env = make_vec_env("CartPole-v1", 1, max_episode_steps=60).envs[0]  # type: ignore[attr-defined]
    mean, squares, count = np.zeros(4), np.ones(4), 0
    for _ in range(2):
        before, episodes = weights(model), model._own_episodes()
        scale = 1 / np.sqrt(squares / max(count, 1) + 1e-8)
        model._reset_envs()
        model.collect()
        everything, scores = [], []
        candidates = np.concatenate(
            [before + np.float32(0.3) * model.deltas, before - np.float32(0.3) * model.deltas]
        )
        for candidate, seed in episodes:
            shown = (mean, scale) if normalize else (0.0, 1.0)
            total, seen = episode(env, seed, candidates[candidate], *shown)
            scores.append(total - 0.5 * len(seen))
            everything += seen
        expected = np.array(scores).reshape(2, 2, 2).sum(-1)
        np.testing.assert_array_equal([model.plus, model.minus], expected)
        if normalize:
            values = np.array(everything)
            n, own_mean = len(values), values.mean(0)
            between = (own_mean - mean) ** 2 * count * n / (count + n)
            squares = squares * (count > 0) + ((values - own_mean) ** 2).sum(0) + between
            mean, count = (mean * count + values.sum(0)) / (count + n), count + n
            moments = model.normalizer.moments[""]
            np.testing.assert_allclose(moments.mean, mean, rtol=1e-9)
            np.testing.assert_allclose(moments.squares, squares, rtol=1e-9)
            assert moments.count == pytest.approx(count)
        model.update()
    assert len({tuple(delta) for delta in model.deltas}) == 2


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("LinearPolicy", {}),
        ({"net_arch": [7, 5]}, {}),
        ({"net_arch": [6], "activation": "tanh"}, {"with_bias": False, "squash_output": False}),
        ({"net_arch": [6], "activation": "elu", "layer_norm": True}, {}),
    ],
    ids=["linear", "relu", "tanh", "row by row"],
)
@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=1),
        spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
    ],
    ids=lambda space: type(space).__name__,
)
def test_each_row_acts_by_its_own_weights(policy: Any, options: Any, space: Any) -> None:
    sides = {"observation_space": spaces.Box(-1, 1, (2, 2), np.float32), "action_space": space}
    model = ARS(policy, **sides, **{**RUN, **options, "zero_policy": False})
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, model.parameters.size)).astype(np.float32)
    seen = rng.normal(size=(5, 2, 2)).astype(np.float32)
    acting = BatchedPolicy(model.parameters, 5)
    for vector, row in zip(acting.vectors, rows, strict=True):
        vector.copy_(torch.from_numpy(row))
    found = model.action_adapter.to_env(acting.act({"observations": seen}))
    expected = []
    for row, observation in zip(rows, seen, strict=True):
        with torch.no_grad():
            model.runner.state["policy"].copy_(torch.from_numpy(row))
        expected.append(model.predict(observation)[0])
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-5)
    assert len(np.unique(np.stack(expected), axis=0)) > 1


# Environments of others
class NextStep(SyncVectorEnv):
    """Gymnasium's vector environment, which resets in a step of its own."""

    def __init__(self, n: int) -> None:
        super().__init__(
            [lambda: gym.make("CartPole-v1", max_episode_steps=60)] * n,
            autoreset_mode=AutoresetMode.NEXT_STEP,
        )


def test_ars_learns_from_envs_without_single_seeding() -> None:
    """Steps that merely reset count for nothing, neither do those of environments without a candidate."""
    model = ars(NextStep(3), n_delta=2)
    model.learn(1)
    records = list(model.recent_episodes)
    assert len(records) == 4
    assert model.num_timesteps == sum(each.length for each in records)
    assert {each.env_index for each in records} <= {0, 1, 2}
    np.testing.assert_array_equal(
        np.sort(np.concatenate([model.plus, model.minus])), sorted(each.episode_return for each in records)
    )
    more = ars(NextStep(7), n_delta=2).learn(1)
    assert len(more.recent_episodes) == more.n_episodes == 4


# Learning
class Aim(gym.Env[Any, Any]):
    """Ten steps of two numbers: the nearer the action is to twice the first minus the second, the better."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Box(-4.0, 4.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.n = 0
        return self._shown(), {}

    def _shown(self) -> Any:
        self.seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen

    def step(self, action: Any) -> Any:
        self.n += 1
        reward = -float((action[0] - 2 * self.seen[0] + self.seen[1]) ** 2)
        return self._shown(), reward, self.n == 10, False, {}


def test_weights_reach_the_best_linear_policy() -> None:
    model = ars(Aim, n_envs=8, n_delta=8, learning_rate=0.1, delta_std=0.1, n_top=4)
    model.learn(160 * 120)
    np.testing.assert_allclose(weights(model), [2.0, -1.0], atol=0.3)


# Mistakes
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"n_delta": 4, "n_top": 5}, r"`algo.n_top=5` directions can't be the best of `algo.n_delta=4`"),
        ({"policy": "MlpLstmPolicy"}, "ars has no recurrent policies"),
        ({"policy": {"net_arch": {"vf": [8]}}}, "`policy.net_arch` of a single network is one list"),
        ({"env": "Zoo/Composite-v0"}, "ars acts in Box or Discrete"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value)[:40],
)
def test_mistake_gets_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ZooError, match=problem) as raised:
        ars(**options)
    assert "\n" not in str(raised.value)


def test_episode_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.algorithms.ars.LONGEST_EPISODE", 100)
    with pytest.raises(ZooError, match=r"environment 0 has taken 100 steps"):
        ars("Pendulum-v1", n_delta=1).learn(10)
