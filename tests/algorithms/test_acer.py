"""ACER: updates and Retrace's targets, against a slow reference in NumPy; recurrent policies."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from acer_reference import (
    ACTIONS,
    OBSERVATIONS,
    expected_gradient,
    gradient_of_update,
    make_batch,
    make_model,
)
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from logged_envs import KINDS as ENV_KINDS
from logged_envs import logged_vector_env
from torch import Tensor

from zoo import ACER, evaluate_policy, make_vec_env
from zoo.algorithms import acer
from zoo.algorithms.acer import Returns, Terms, retrace
from zoo.buffers import replay
from zoo.buffers.sequence import NO_INDEX
from zoo.envs.toys import Masked
from zoo.errors import ZooError
from zoo.optim.optimizers import FunctionalModule
from zoo.policies.actor_critic import StochasticDuelingPolicy
from zoo.policies.config import PolicyConfig

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


@pytest.mark.parametrize("error", [ignoring_ends, of_behaviour, unfollowed])
@pytest.mark.parametrize("kind", KINDS)
def test_comparison_sees_errors_in_batches(kind: str, error: Any) -> None:
    model, expected = make_model(kind), usual_gradient(kind)
    found = gradient_of_update(model, error(make_batch(kind)))
    assert np.abs(found - expected).max() > 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("_next", lambda column: column), ("retrace", lambda errors, weights: errors), ("EPSILON", 1e-2)],
)
def test_comparison_sees_errors_in_terms(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, expected = make_model("discrete"), usual_gradient("discrete")
    monkeypatch.setattr(acer, name, wrong)
    found = gradient_of_update(model, make_batch("discrete"))
    assert np.abs(found - expected).max() > 1e-3 * np.abs(expected).max()


def terms_of(model: ACER, batch: dict[str, Any], average: Tensor | None = None) -> Terms:
    module = FunctionalModule(model.policy, [])
    parameters, _, _ = model.policy(batch)
    next_values = model._next_values(model.policy, batch)
    return model.kind.terms(module, parameters.detach() if average is None else average, next_values, batch)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_made_up_for_where_the_policy_is_that_which_acted(kind: str) -> None:
    """The gradient is then an actor-critic's: log-probabilities weighted by advantages."""
    model, batch = make_model(kind), make_batch(kind)
    parameters, values, _ = model.policy(batch)
    batch["behaviour"] = parameters.detach()
    terms = terms_of(model, batch)
    statistics = terms.statistics.detach().requires_grad_()
    (grad,) = torch.autograd.grad(terms.objective(statistics).sum(), statistics)
    next_values = model._next_values(model.policy, batch)
    if kind == "discrete":
        taken = values.gather(-1, batch["actions"][..., None])[..., 0].detach()
        state_values = model.kind.state_values(parameters, values).detach()
        returns = Returns(0.99, state_values, next_values, taken, batch).corrected()
        log_prob = (statistics + 1e-6).log().gather(-1, batch["actions"][..., None])[..., 0]
    else:
        _, (state_values, taken, _), _ = model.policy(batch, None, batch["actions"], batch["noise"])
        returns = Returns(0.99, state_values.detach(), next_values, taken.detach(), batch).corrected()
        log_prob = model.policy.head.log_prob(statistics, batch["actions"])
    wanted = (log_prob * (returns - state_values).detach()).sum()
    (expected,) = torch.autograd.grad(wanted, statistics)
    torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-4)
    assert terms.divergence(terms.statistics).abs().max() < 1e-9, "it is the average policy, too"


def test_what_a_mask_forbids_counts_nowhere() -> None:
    """All is as if there were no such action: values, slope, and projection."""
    model, batch = (
        make_model("discrete", delta=0.05, ent_coef=0.2, correction_term=1.2),
        make_batch("discrete"),
    )
    generator = torch.Generator().manual_seed(3)
    logits, values, behaviour, average = torch.randn(4, 2, 4, 2, generator=generator, dtype=torch.float64)

    def with_third(columns: Tensor, third: float) -> Tensor:
        return torch.cat([columns, torch.full((2, 4, 1), third, dtype=torch.float64)], -1)

    batch["actions"] %= 2
    following = torch.randn(4, generator=generator, dtype=torch.float64)

    def slope_of(logits: Tensor, values: Tensor, behaviour: Tensor, average: Tensor) -> tuple[Tensor, Tensor]:
        def policy(*_: Any) -> Any:
            return logits, values, None

        terms = model.kind.terms(policy, average, following, {**batch, "behaviour": behaviour})  # type: ignore[arg-type]
        return model._grad(terms)[0], terms.critic_loss

    expected, expected_loss = slope_of(logits, values, behaviour, average)
    rest = with_third(values, 5.0)
    forbidden = [with_third(each, -1e8) for each in (logits, behaviour, average)]
    grad, loss = slope_of(forbidden[0], rest, *forbidden[1:])
    torch.testing.assert_close(grad[..., :2], expected)
    assert (grad[..., 2] == 0).all()
    torch.testing.assert_close(loss, expected_loss)
    allowed = [with_third(each, 0.0) for each in (logits, behaviour, average)]
    assert (slope_of(allowed[0], rest, *allowed[1:])[0][..., 2] != 0).any()


def dueling(n_actions: int = 2) -> StochasticDuelingPolicy:
    torch.manual_seed(0)
    space = spaces.Box(-1.0, 1.0, (n_actions,), np.float32)
    config = PolicyConfig(net_arch=[16], ortho_init=False, log_std_init=-0.3)
    policy = StochasticDuelingPolicy(OBSERVATIONS, space, config)
    policy.encoder = torch.nn.Identity()  # type: ignore[assignment]
    return policy.double()


def test_mean_value_of_the_policys_actions_is_the_value_of_the_state() -> None:
    """Exactly over the actions that the mean advantage is taken over, else the nearer the more there are."""
    policy = dueling()
    observations = torch.rand(3, 2, dtype=torch.float64)
    seen = {"observations": observations}
    parameters, values, _ = policy(seen)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4001, 3, 2, generator=generator, dtype=torch.float64)
    drawn = policy.sample_actions(parameters, noise[1:])
    _, judged, _ = policy({"observations": observations}, None, drawn[0], noise)
    torch.testing.assert_close(judged[0], values)
    of_each = torch.stack([policy(seen, None, drawn[i], noise)[1][1] for i in range(0, 4000, 40)])
    assert (of_each.std(0) > 0.05).all()
    few = torch.cat([noise[:1], noise[1:4]])
    means = sum(policy(seen, None, drawn[i], few)[1][1] for i in range(3)) / 3
    torch.testing.assert_close(means, values)
    assert ((of_each.mean(0) - values).abs() < 4 * of_each.std(0) / 10).all()


def small(env: Any = "CartPole-v1", *, policy: Any = None, **settings: Any) -> ACER:
    options: dict[str, Any] = {"n_envs": 2} if isinstance(env, str) else {}
    return ACER(
        {"net_arch": [8]} if policy is None else policy,
        env,
        **{
            "seed": 0,
            "compile": False,
            "threads": 1,
            "n_steps": 5,
            "replay_start": 20,
            **options,
            **settings,
        },
    )


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_average_policy_follows_after_every_step_also_replayed_ones(env: str) -> None:
    model = small(env, alpha=0.7, learning_rate=0.01)
    state = model.runner.state
    np.testing.assert_array_equal(state["average"], state["policy"])
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    step = model._gradient_step

    def watched(state: Any, rates: Any, batch: Any) -> Any:
        before = state["average"].clone()
        outcome = step(state, rates, batch)
        seen.append((before, outcome.state["policy"].clone(), outcome.state["average"].clone()))
        return outcome

    model._gradient_step = watched  # type: ignore[method-assign]
    model.learn(100)
    assert len(seen) == model.n_updates > 30
    for before, policy, average in seen:
        torch.testing.assert_close(average, 0.7 * before + 0.3 * policy)


def counted(model: ACER, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many updates come after each rollout, as they will come; none changes anything."""
    counts: list[int] = []
    update = model.update

    def counting() -> None:
        counts.append(0)
        update()

    def taken(*_: Any) -> dict[str, Tensor]:
        counts[-1] += 1
        return {}

    monkeypatch.setattr(model, "update", counting)
    monkeypatch.setattr(model, "_take_steps", taken)
    return counts


def test_replayed_updates_are_poisson_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(replay_ratio=3.0, n_steps=2, replay_start=40)
    counts = counted(model, monkeypatch)
    model.learn(4 * 300)
    assert counts[:9] == [1] * 9, "nothing is replayed before there are 40 transitions"
    replays = np.array(counts[9:]) - 1
    n = len(replays)
    assert abs(replays.mean() - 3.0) < 4 * np.sqrt(3.0 / n)
    assert abs(replays.var() - 3.0) < 4 * np.sqrt((3.0 + 2 * 9.0) / n)
    assert (replays == 0).any()
    again = small(replay_ratio=3.0, n_steps=2, replay_start=40)
    same = counted(again, monkeypatch)
    again.learn(4 * 300)
    assert same == counts


def test_first_update_is_on_the_newest_rollout_the_others_on_older_windows() -> None:
    model = small(replay_ratio=20.0)
    windows = model.buffer.windows
    rows: list[Any] = []

    def watched(firsts: Any) -> Any:
        rows.append(windows(firsts)["observations"])
        return windows(firsts)

    model.buffer.windows = watched  # type: ignore[method-assign]
    for _ in range(6):
        rows.clear()
        model.learn(10, reset_num_timesteps=False)
        memory = model.buffer
        newest = (memory.heads[0] - np.arange(5, 0, -1)) % memory.length
        expected = memory.columns["observations"][newest].swapaxes(0, 1)
        np.testing.assert_array_equal(rows[0][0], expected)
    assert len(rows) > 5
    assert len({array.tobytes() for array in rows}) > 5


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
        ("CartPole-v1", {"trust_region": False, "delta": 0.1}, "`algo.delta` is of the trust region, which"),
        ("CartPole-v1", {"rprop_alpha": 0.9}, "rms_prop_decay"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(env: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ZooError, match=told) as caught:
        small(env, **settings)
    assert "\n" not in str(caught.value)


def test_memory_that_does_not_fit_is_refused_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "free_bytes", lambda: 2**20)
    with pytest.raises(ZooError, match=r"`algo.buffer_size=50000` needs .* GiB .* algo.buffer_size=\d+ fits"):
        small()
    small(buffer_size=5000)


# -- ACER with recurrent policies, and under masks: windows begin with the state that was there -----------


def gru(policy: str = "ActionValue", **fields: Any) -> dict[str, Any]:
    return {"_target_": f"toy_policies.Gru{policy}Policy", "net_arch": [16], **fields}


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
            cut = {
                name: batch[name][env : env + 1, : step + 1] for name in ("observations", "episode_starts")
            }
            _, _, state = model.policy(cut, batch["states"][env : env + 1])
            assert state is not None
            torch.testing.assert_close(
                batch["next_states"][places[env, step]], state[0], rtol=1e-4, atol=1e-5
            )
            n_cut_short += int(step) < model.config.n_steps - 1
    return n_cut_short


@pytest.mark.parametrize(("kind", "share_encoder"), [*((kind, True) for kind in ENV_KINDS), ("own", False)])
def test_windows_give_the_outputs_of_stepping_one_by_one(kind: str, share_encoder: bool) -> None:
    """Also where episodes end in them, are cut short, or reset in a step of their own."""
    vector_env, _ = logged_vector_env(kind)
    policy = gru(share_encoder=share_encoder)
    model = ACER(
        policy,
        vector_env,
        n_steps=6,
        buffer_size=60,
        replay_start=30,
        learning_rate=0.0,
        **RECURRENT_SETTINGS,
    )
    model.learn(150)
    assert model.buffer.columns["episode_starts"].any()
    assert assert_windows_lead_on(model) > 0


def test_continuous_actions_remember_too() -> None:
    model = ACER(
        gru("StochasticDueling"),
        "Pendulum-v1",
        n_envs=2,
        n_steps=6,
        learning_rate=0.0,
        **RECURRENT_SETTINGS,
    )
    model.learn(300)
    assert_windows_lead_on(model)
    trained = ACER(
        gru("StochasticDueling"),
        "Pendulum-v1",
        n_envs=2,
        n_steps=6,
        replay_start=50,
        **RECURRENT_SETTINGS,
    )
    before = trained.get_parameters()
    trained.learn(200)
    moved = [
        name for name, value in trained.get_parameters().items() if not np.array_equal(before[name], value)
    ]
    assert set(moved) == set(before)


def test_a_cue_that_is_gone_is_remembered() -> None:
    """No policy without a memory gets more than 0 on average."""
    policy = {"recurrent": "gru", "lstm_hidden_size": 12, "critic_lstm": "shared", "net_arch": []}
    options = {**QUICK, "learning_rate": 2e-2, "n_steps": 12, "replay_start": 200, "gamma": 0.95}
    model = ACER(policy, "Zoo/Memory-v0", n_envs=8, **options).learn(6000)
    mean, _ = evaluate_policy(model, "Zoo/Memory-v0", n_eval_episodes=40)
    assert mean > 0.9


class Untold(gym.Env[Any, Any]):
    """Keeps masks to itself."""

    def __init__(self) -> None:
        self.masked = Masked()
        self.observation_space, self.action_space = self.masked.observation_space, self.masked.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.masked.reset(seed=seed)

    def step(self, action: Any) -> Any:
        return self.masked.step(action)


@pytest.mark.parametrize(("env", "low", "high"), [(Masked, 0.8, 1.01), (Untold, -2.0, 0.6)])
def test_invalid_actions_are_never_taken_where_masks_tell(env: Any, low: float, high: float) -> None:
    """The mean reward of a step shows it: half of the actions are forbidden, and cost 1."""
    envs = make_vec_env(lambda: gym.wrappers.TimeLimit(env(), 20), 8, check=False)
    model = ACER({"net_arch": [32]}, envs, n_steps=10, replay_start=500, gamma=0.5, **QUICK)
    model.learn(6000)
    memory = model.buffer
    masks = memory.columns.get("action_masks")
    assert (masks is not None) == (env is Masked)
    if masks is not None:
        assert np.take_along_axis(masks[:500], memory.columns["actions"][:500, :, None], -1).all()
        assert memory.columns["behaviour"][:500][~masks[:500]].max() < -1e7
    rows = (memory.heads[0] - np.arange(1, 100)) % memory.length
    assert low < memory.columns["rewards"][rows].mean() < high


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


def tensors(batch: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.as_tensor(column) for name, column in batch.items()}


def corrected(
    gamma: float,
    batch: dict[str, Any],
    next_values: Any,
    coefficients: Any,
    *,
    sequences: slice = slice(None),
) -> Array:
    columns = tensors(batch)
    returns = Returns(gamma, columns["values"], torch.as_tensor(next_values), columns["taken"], columns)
    given_ones = None if coefficients is None else torch.as_tensor(coefficients)
    return returns.corrected(given_ones).numpy()


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
    batch = {
        "rewards": rng.normal(size=shape),
        "taken": rng.normal(size=shape),
        "values": rng.normal(size=shape),
        "dones": ended,
        "terminated": terminated,
    }
    next_values = rng.normal(size=3 * length)
    is_apart = ended & ~terminated
    is_apart[:, -1] = True
    batch["next_index"] = np.where(is_apart, rng.permutation(3 * length).reshape(shape), -1)
    coefficients = np.minimum(1.0, rng.exponential(size=shape)) if truncates else None
    expected = recursion(gamma, batch, next_values, coefficients)
    found = corrected(gamma, batch, next_values, coefficients)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("ended", "terminated", "targets"),
    [
        ([False, False], [False, False], [2.25, 4.0]),
        ([True, False], [True, False], [1.0, 4.0]),
        ([True, False], [False, False], [1.0 + 0.5 * 6.0, 4.0]),
        ([False, True], [False, True], [1.0 + 0.5 * (0.5 * (2.0 - 1.0) + 1.0), 2.0]),
    ],
    ids=["goes on", "terminal", "cut short", "terminal at the end"],
)
def test_small_cases_by_hand(ended: list[bool], terminated: list[bool], targets: list[float]) -> None:
    batch = {
        "rewards": [[1.0, 2.0]],
        "taken": [[0.5, 1.0]],
        "values": [[0.0, 1.0]],
        "dones": [ended],
        "terminated": [terminated],
        "next_index": [[1 if ended[0] and not terminated[0] else -1, 0]],
    }
    coefficients = torch.tensor([[2.0, 0.5]]).clamp(max=1.0)
    assert corrected(0.5, batch, [4.0, 6.0], coefficients).tolist() == [targets]


@pytest.mark.parametrize("length", [1, 2, 3, 8, 20])
def test_sum_reaches_to_the_end_and_no_further(length: int) -> None:
    errors, weights = torch.ones(2, length), torch.full((2, length), 0.5)
    expected = [2.0 - 0.5**k for k in reversed(range(length))]
    assert retrace(errors, weights)[1].tolist() == pytest.approx(expected)
    weights[0, -1] = float("inf")
    assert retrace(errors, weights)[0].tolist() == pytest.approx(expected), "the last weight is not read"
