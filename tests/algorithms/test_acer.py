"""ACER: updates and Retrace's targets, against a slow reference in NumPy; recurrent policies."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from acer_reference import ACTIONS, expected_gradient, gradient_of_update, make_batch, make_model
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_envs import KINDS as ENV_KINDS
from logged_envs import logged_vector_env

from zoo import ACER, evaluate_policy, make_vec_env
from zoo.algorithms import acer
from zoo.algorithms.acer import corrected_returns, retrace
from zoo.buffers.sequence import NO_INDEX
from zoo.errors import ZooError

# -- ACER's update against the paper's formulas, and what it does between updates -------------------------

KINDS = list(ACTIONS)

SETTINGS: dict[str, dict[str, Any]] = {
    "without trust region": {"trust_region": False, "ent_coef": 0.3, "correction_term": 1.2},
    "within": {"delta": 0.02, "ent_coef": 0.1, "correction_term": 1.2, "q_coef": 0.7},
    "as published": {"ent_coef": 0.0, "gamma": 0.9},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_the_paper(kind: str, settings: dict[str, Any]) -> None:
    """By finite differences of the surrogate, whose weights and targets a plain computation gives."""
    model, batch = make_model(kind, **settings), make_batch(kind)
    expected = expected_gradient(model, batch)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(gradient_of_update(model, batch), expected, rtol=1e-6, atol=1e-8)


@cache
def usual_gradient(kind: str) -> Any:
    return expected_gradient(make_model(kind), make_batch(kind))


def ignoring_ends(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "dones": batch["dones"] & False}


def of_behaviour(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "behaviour": batch["behaviour"] + 0.1 * torch.arange(batch["behaviour"].shape[-1])}


def unfollowed(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "next_index": batch["next_index"].clamp(max=1)}


def error_of(kind: str, batch: dict[str, Any]) -> Any:
    expected = usual_gradient(kind)
    return np.abs(gradient_of_update(make_model(kind), batch) - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("error", [ignoring_ends, of_behaviour, unfollowed])
@pytest.mark.parametrize("kind", KINDS)
def test_comparison_sees_errors_in_batches(kind: str, error: Any) -> None:
    assert error_of(kind, error(make_batch(kind))) > 1e-3


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("_later", lambda column, n: column), ("retrace", lambda errors, weights: errors), ("EPSILON", 1e-2)],
)
def test_comparison_sees_errors_in_terms(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual_gradient("discrete")
    monkeypatch.setattr(acer, name, wrong)
    assert error_of("discrete", make_batch("discrete")) > 1e-3


def small(env: Any = "CartPole-v1", **settings: Any) -> ACER:
    settings = {"n_envs": 2, "n_steps": 5, "replay_start": 20, **settings}
    return ACER({"net_arch": [8]}, env, seed=0, compile=False, threads=1, **settings)


def test_replayed_updates_are_poisson_distributed() -> None:
    model = small(replay_ratio=3.0, n_steps=1, replay_start=40)
    assert model.learn(38).n_updates == 19, "nothing is replayed before there are 40 transitions"
    counts = []
    for _ in range(200):
        before = model.n_updates
        counts.append(model.learn(2, reset_num_timesteps=False).n_updates - before - 1)
    assert abs(np.mean(counts) - 3.0) < 4 * np.sqrt(3.0 / len(counts))
    assert abs(np.var(counts) - 3.0) < 4 * np.sqrt((3.0 + 2 * 9.0) / len(counts))
    assert 0 in counts


def test_average_policy_follows_updates_by_its_decay() -> None:
    """It starts as the policy, and goes 1 − α of the way to the new one (section 3.3 of the paper)."""
    model = small(replay_ratio=0.0, alpha=0.75, learning_rate=0.01)
    state = model.runner.state
    assert torch.equal(state["average"], state["policy"])
    for n_updates in range(1, 4):
        before = state["average"].clone()
        assert model.learn(10, reset_num_timesteps=False).n_updates == n_updates
        torch.testing.assert_close(state["average"], 0.75 * before + 0.25 * state["policy"])
        assert not torch.equal(state["average"], before)


@pytest.mark.parametrize(
    ("env", "settings", "told"),
    [
        ("Zoo/IdentityMultiDiscrete-v0", {}, "acer acts in Box or Discrete spaces, but .*a2c.*can take them"),
        (
            "CartPole-v1",
            {"buffer_size": 11, "replay_start": 5},
            "`algo.buffer_size=11` keeps 4 steps .*take 12 or more",
        ),
        ("CartPole-v1", {"buffer_size": 50, "replay_start": 51}, "`algo.replay_start=51` is never reached"),
        ("CartPole-v1", {"rprop_alpha": 0.9}, "rms_prop_decay"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(env: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ZooError, match=told) as caught:
        small(env, **settings)
    assert "\n" not in str(caught.value)


# -- ACER with recurrent policies, and under masks: windows begin with the state that was there -----------

RECURRENT_SETTINGS: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}
QUICK: dict[str, Any] = {**RECURRENT_SETTINGS, "learning_rate": 5e-3, "rms_prop_decay": 0.9}


@torch.no_grad()
def assert_windows_lead_on(model: ACER, n: int = 6) -> int:
    """Assert that windows give what was computed step by step; return how many steps were cut short."""
    rows = model._tensors(model.buffer.windows(model.buffer.sample_starts(model.rng, n)))
    n_cut_short = 0
    for row in range(n):
        batch = {name: column[row] for name, column in rows.items()}
        parameters, _, after = model.policy(batch, batch["states"])
        torch.testing.assert_close(parameters, batch["behaviour"], rtol=1e-4, atol=1e-5)
        places = batch["next_index"]
        assert after is not None
        torch.testing.assert_close(batch["next_states"][places[:, -1]], after, rtol=1e-4, atol=1e-5)
        for env, step in np.argwhere(places.numpy() != NO_INDEX):
            seen = ("observations", "episode_starts")
            cut = {name: batch[name][env : env + 1, : step + 1] for name in seen}
            _, _, state = model.policy(cut, batch["states"][env : env + 1])
            assert state is not None
            after_step = batch["next_states"][places[env, step]]
            torch.testing.assert_close(after_step, state[0], rtol=1e-4, atol=1e-5)
            n_cut_short += int(step) < model.config.n_steps - 1
    return n_cut_short


@pytest.mark.parametrize(("kind", "share_encoder"), [*((kind, True) for kind in ENV_KINDS), ("own", False)])
def test_windows_give_the_outputs_of_single_steps(kind: str, share_encoder: bool) -> None:
    """Also where episodes end in them, are cut short, or reset in a step of their own."""
    vector_env, _ = logged_vector_env(kind)
    policy = {"recurrent": "gru", "lstm_hidden_size": 5, "net_arch": [16], "share_encoder": share_encoder}
    settings = {"n_steps": 6, "buffer_size": 60, "replay_start": 30, "learning_rate": 0.0}
    model = ACER(policy, vector_env, **settings, **RECURRENT_SETTINGS).learn(150)
    assert model.buffer.columns["episode_starts"].any()
    assert assert_windows_lead_on(model) > 0


def test_a_cue_that_is_gone_is_remembered() -> None:
    """No policy without a memory gets more than 0 on average."""
    policy = {"recurrent": "gru", "lstm_hidden_size": 12, "critic_lstm": "shared", "net_arch": []}
    options = {**QUICK, "learning_rate": 2e-2, "n_steps": 12, "replay_start": 200, "gamma": 0.95}
    model = ACER(policy, "Zoo/Memory-v0", n_envs=8, **options).learn(6000)
    mean, _ = evaluate_policy(model, "Zoo/Memory-v0", n_eval_episodes=40)
    assert mean > 0.9


@pytest.mark.parametrize(("masked", "low", "high"), [(True, 0.8, 1.01), (False, -2.0, 0.6)])
def test_invalid_actions_are_never_taken_under_masks(masked: bool, low: float, high: float) -> None:
    """The mean reward of a step shows it: half of the actions are forbidden, and cost 1."""
    settings = {**QUICK, "n_steps": 10, "replay_start": 500, "gamma": 0.5}
    env = make_vec_env("Zoo/Masked-v0", 8, mask_actions=masked)
    model = ACER({"net_arch": [32]}, env, **settings).learn(6000)
    buffer = model.buffer
    masks = buffer.columns.get("action_masks")
    assert (masks is not None) == masked
    if masks is not None:
        assert np.take_along_axis(masks[:500], buffer.columns["actions"][:500, :, None], -1).all()
        assert buffer.columns["behaviour"][:500][~masks[:500]].max() < -1e7
    rows = (buffer.heads[0] - np.arange(1, 100)) % buffer.length
    assert low < buffer.columns["rewards"][rows].mean() < high


# -- Retrace's targets against its recursion, step by step, and against small cases by hand ---------------

each_example = settings(deadline=None, derandomize=True, max_examples=80)
Array = np.ndarray


def recursion(gamma: float, batch: dict[str, Array], next_values: Array, coefficients: Array | None) -> Array:
    """Return Q^ret (sequences, time), backwards; the carry to step t − 1 has the coefficient of step t."""
    targets = np.zeros_like(batch["rewards"])
    for i, rewards in enumerate(batch["rewards"]):
        carry = np.nan
        for t in reversed(range(len(rewards))):
            if batch["terminated"][i, t]:
                carry = 0.0
            elif batch["next_index"][i, t] >= 0:
                carry = next_values[batch["next_index"][i, t]]
            targets[i, t] = rewards[t] + gamma * carry
            coefficient = 1.0 if coefficients is None else coefficients[i, t]
            carry = coefficient * (targets[i, t] - batch["taken"][i, t]) + batch["values"][i, t]
    return targets


def corrected(gamma: float, batch: dict[str, Any], next_values: Any, coefficients: Any) -> Array:
    columns = {name: torch.as_tensor(column) for name, column in batch.items()}
    given_ones = None if coefficients is None else torch.as_tensor(coefficients)
    values, taken = columns["values"], columns["taken"]
    return corrected_returns(gamma, columns, values, torch.as_tensor(next_values), taken, given_ones).numpy()


@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 21),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    truncates=st.booleans(),
)
@each_example
def test_targets_are_those_of_the_recursion(seed: int, length: int, gamma: float, truncates: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = 3, length
    ended = rng.random(shape) < 0.3
    terminated = ended & (rng.random(shape) < 0.5)
    batch = {name: rng.normal(size=shape) for name in ("rewards", "taken", "values")}
    batch |= {"dones": ended, "terminated": terminated}
    next_values = rng.normal(size=3 * length)
    is_apart = ended & ~terminated
    is_apart[:, -1] = True
    batch["next_index"] = np.where(is_apart, rng.permutation(3 * length).reshape(shape), -1)
    coefficients = np.minimum(1.0, rng.exponential(size=shape)) if truncates else None
    expected = recursion(gamma, batch, next_values, coefficients)
    found = corrected(gamma, batch, next_values, coefficients)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 20])
def test_sum_reaches_to_the_end_and_no_further(length: int) -> None:
    errors, weights = torch.ones(2, length), torch.full((2, length), 0.5)
    expected = [2.0 - 0.5**k for k in reversed(range(length))]
    assert retrace(errors, weights)[1].tolist() == pytest.approx(expected)
    weights[0, -1] = float("inf")
    assert retrace(errors, weights)[0].tolist() == pytest.approx(expected), "the last weight is not read"
