"""ACER's update against the paper's formulas, and what it does between updates."""

from __future__ import annotations

from functools import cache
from typing import Any

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
from torch import Tensor

from zoo import ACER
from zoo.algorithms import acer
from zoo.algorithms.acer import Returns, Terms
from zoo.buffers import replay
from zoo.errors import ZooError
from zoo.optim.optimizers import FunctionalModule
from zoo.policies.actor_critic import StochasticDuelingPolicy
from zoo.policies.config import PolicyConfig

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
    return {**batch, "ended": batch["ended"] & False}


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
