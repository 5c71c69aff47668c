"""Two workers learn as one process would from the data of both."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from forked_workers import together

from zoo.algorithms.base import Algorithm
from zoo.algorithms.on_policy import standardized
from zoo.algorithms.registry import algorithm_class
from zoo.envs import NormalizeConfig, Normalizer, make_vec_env
from zoo.optim.runtime import Runtime
from zoo.optim.state import State, leaves, mapped
from zoo.optim.workers import Workers, averaged, averaged_number, count, each_alone

BATCH = 7
"""A size that nothing else has: where arrays are that long, they hold the samples of a batch."""

CASES: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 7, "normalize_advantage": True, "rms_prop_eps": 1.0},
    "ppo2": {"n_steps": 7, "n_epochs": 2, "n_minibatches": 1, "adam_eps": 1.0, "target_kl": 1e-5},
    "ppo1": {"n_steps": 7, "n_epochs": 2, "batch_size": 7, "adam_eps": 1.0},
    "acktr": {"n_steps": 7, "cold_updates": 2, "kfac_update": 1},
    "dqn": {"train_freq": 2, "gradient_steps": 2, "target_update_interval": 4},
    "sac": {"train_freq": 2, "gradient_steps": 2},
    "td3": {"train_freq": 2, "gradient_steps": 3},
    "tqc": {"train_freq": 2, "gradient_steps": 2},
    "ddpg": {
        "train_freq": 2,
        "gradient_steps": 2,
        "parameter_noise": {},
        "normalize_returns": True,
        "enable_popart": True,
    },
}
LED_BY_RESULTS: dict[str, dict[str, Any]] = {
    "trpo": {"n_steps": 14, "batch_size": 7, "n_critic_updates": 2, "sub_sampling_factor": 2},
    "a2c with a memory": {**CASES["a2c"], "policy": {"net_arch": [16], "recurrent": "lstm"}},
}
"""Cases whose updates are more than steps on batches."""

ON_POLICY = ("a2c", "ppo2", "ppo1", "acktr", *LED_BY_RESULTS)


def algorithm(name: str, *, seed: int = 0, n_steps: int | None = None, **options: Any) -> Algorithm[Any]:
    found = algorithm_class(name.split()[0])
    env = "CartPole-v1" if name in (*ON_POLICY, "dqn") else "Pendulum-v1"
    values = {"policy": {"net_arch": [16]}, **(CASES | LED_BY_RESULTS)[name]}
    if name not in ON_POLICY:
        values |= {"batch_size": BATCH, "learning_starts": 20, "buffer_size": 500}
    if n_steps is not None:
        values["n_steps"] = n_steps
    made: Algorithm[Any] = found(
        env=make_vec_env(env, 1, **options),
        seed=seed,
        compile=False,
        threads=1,
        **values,
    )
    return made


def learn(model: Algorithm[Any], workers: Workers, n_steps: int) -> None:
    """Learn as one of them, and do what the first one asks for until it has all that it wants to know."""
    model.join(workers)
    model.learn(n_steps)
    if workers.is_first:
        workers.end()
    else:
        workers.follow(model.team.orders)


def numbers(state: State) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}


def soften(model: Algorithm[Any]) -> None:
    """Let optimizers step in proportion to gradients, so that rounding stays rounding."""
    for descent in vars(model).values():
        if hasattr(getattr(descent, "optimizer", None), "eps"):
            descent.optimizer = dataclasses.replace(descent.optimizer, eps=1.0)


def one_update(name: str, workers: Workers) -> tuple[list[Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what an update's steps were given, and the state before and after it."""
    model = algorithm(name)
    soften(model)
    given: list[Any] = []
    before = numbers(model.program.state)
    take = model._take_steps

    def noted(step: Any, shared: Any, rows: Any) -> Any:
        given.append((step.__name__, mapped(torch.clone, shared), mapped(torch.clone, rows)))
        return take(step, shared, rows)

    model._take_steps = noted  # type: ignore[method-assign]
    n_steps = 14 if name in ON_POLICY else 22
    learn(model, workers, n_steps)
    assert model.num_timesteps == n_steps
    return given, before, numbers(model.program.state)


def joined(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Put the samples of two batches into one."""
    axes = [axis for axis, length in enumerate(one.shape) if length == BATCH]
    return torch.cat([one, two], axes[0]) if axes else one


def joined_trees(one: Any, two: Any) -> Any:
    others = iter(leaves(two))
    return mapped(lambda tensor: joined(tensor, next(others)), one)


@pytest.mark.parametrize("name", CASES)
def test_update_of_two_workers_is_that_of_one_with_both_batches(name: str) -> None:
    """The reference takes the same steps, alone, on the batches of both, from the same weights."""
    (given, before, after), (theirs, their_before, their_after) = together(lambda w: one_update(name, w))
    reference = algorithm(name)
    soften(reference)
    for key, tensor in before.items():
        assert np.array_equal(tensor, their_before[key]), key
        assert np.array_equal(after[key], their_after[key]), f"{key} differs between the workers"
        reference.program.state[key].copy_(torch.from_numpy(tensor))
    for (step, shared, rows), (_, their_shared, their_rows) in zip(given, theirs, strict=True):
        if name in ("ppo1", "ppo2"):
            rows = torch.cat([rows, their_rows + BATCH], 1)
        elif name != "a2c":
            rows = joined_trees(rows, their_rows)
        shared = joined_trees(shared, their_shared)
        reference.program.run(getattr(reference, step), shared, rows)
    moved = False
    for key, expected in reference.program.state.items():
        np.testing.assert_allclose(after[key], expected.numpy(), rtol=1e-4, atol=2e-6, err_msg=key)
        moved = moved or not np.array_equal(after[key], before[key])
    assert moved


def trained(name: str, workers: Workers, n_steps: int) -> tuple[dict[str, np.ndarray], Any, int, int]:
    model = algorithm(name, seed=3, normalize=True, max_episode_steps=15)
    learn(model, workers, n_steps)
    assert model.normalizer is not None
    return (
        numbers(model.program.state),
        model.normalizer.state()["arrays"],
        model.n_episodes,
        model.num_timesteps,
    )


@pytest.mark.parametrize("name", [*CASES, *LED_BY_RESULTS])
def test_workers_have_the_same_weights_and_statistics_and_so_again(name: str) -> None:
    """With 2 × 1 environments; rewards and observations are normalised by what both have seen."""
    n_steps = 140 if name in ON_POLICY else 60
    one, two = together(lambda workers: trained(name, workers, n_steps))
    again, _ = together(lambda workers: trained(name, workers, n_steps))
    for key, tensor in one[0].items():
        assert np.array_equal(tensor, two[0][key]), key
        assert np.array_equal(tensor, again[0][key]), key
    for key, array in one[1].items():
        if key != "returns":  # those under way are each worker's own
            assert np.array_equal(array, two[1][key]), key
            assert np.array_equal(array, again[1][key]), key
    assert one[1]["observations.count"] == pytest.approx(one[3] + 2, abs=0.01)
    assert one[1]["return.count"] == pytest.approx(one[3], abs=0.01)
    assert one[2] > 0
    assert two[2] == 0, "the first worker counts the episodes of all"
    assert one[3] == two[3] == n_steps


@pytest.mark.parametrize("n_workers", [2, 3])
def test_statistics_of_workers_are_those_of_all_data(n_workers: int) -> None:
    """What one has seen meanwhile, another not at all, counts once; all have equal ones."""
    rng = np.random.default_rng(0)
    data = [[rng.normal(3 * step + rank, 2.0, (4, 3)) for rank in range(n_workers)] for step in range(5)]
    space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def seen(workers: Workers) -> Any:
        ours = Normalizer(space, NormalizeConfig(), num_envs=4)
        ours.share()
        for step, batches in enumerate(data):
            if workers.rank != 1 or step != 2:
                ours.update_observations(batches[workers.rank])
                ours.update_returns(batches[workers.rank][:, 0], np.zeros(4, bool))
            before = ours.normalize_observations(np.ones(3))
            assert np.array_equal(before, ours.normalize_observations(np.ones(3)))
            ours.take_in(workers.rows(ours.seen_since()))
        _goes_on_alone(ours)
        return {name: array for name, array in ours.state()["arrays"].items() if name != "returns"}

    def _goes_on_alone(ours: Normalizer) -> None:
        """What waits is taken in, and from then on all at once; then put back."""
        before = ours.state()
        ours.update_observations(np.full((4, 3), 50.0))
        assert ours.state()["arrays"]["observations.count"] == before["arrays"]["observations.count"]
        for n_more in (4, 8):
            ours.share_no_more()
            count = before["arrays"]["observations.count"] + n_more
            assert ours.state()["arrays"]["observations.count"] == count
            ours.update_observations(np.full((4, 3), 50.0))
        ours.load_state(before)

    first, *others = together(seen, n_workers)
    together_seen = Normalizer(space, NormalizeConfig(), num_envs=4)
    returns = np.zeros((n_workers, 4))
    all_returns = []
    for step, batches in enumerate(data):
        for rank, batch in enumerate(batches):
            if rank != 1 or step != 2:
                together_seen.update_observations(batch)
                returns[rank] = 0.99 * returns[rank] + batch[:, 0]
                all_returns.append(returns[rank].copy())
    expected = together_seen.state()["arrays"]
    for other in others:
        assert all(np.array_equal(first[name], other[name]) for name in first)
    for name in ("mean", "squares", "count"):
        np.testing.assert_allclose(first[f"observations.{name}"], expected[f"observations.{name}"], rtol=1e-9)
    samples = np.concatenate(all_returns)
    assert first["return.count"] == pytest.approx(len(samples), abs=1e-3)
    assert first["return.mean"] == pytest.approx(samples.mean(), rel=1e-4)
    assert first["return.squares"] / first["return.count"] == pytest.approx(samples.var(), rel=1e-3)


def test_what_is_averaged_is_what_all_have_within_an_update_and_ones_own_outside() -> None:
    def work(workers: Workers) -> Any:
        own = torch.tensor([1.0, 10.0]) * (workers.rank + 1)
        alone = averaged(own).tolist(), count(), averaged_number(3.0)
        with workers.in_force():
            shared = averaged(own).tolist(), count(), averaged_number(float(workers.rank))
        return [*alone, *shared], workers.gathered({"rank": workers.rank})

    results = together(work, 3)
    for rank, (values, gathered) in enumerate(results):
        assert values[:3] == [[rank + 1.0, 10.0 * (rank + 1)], 1, 3.0]
        assert values[3:] == [[2.0, 20.0], 3, 1.0]
        assert gathered == [{"rank": 0}, {"rank": 1}, {"rank": 2}]


def test_only_what_the_first_worker_wants_ends_all() -> None:
    def work(workers: Workers) -> Any:
        done: list[Any] = []
        orders = {"note": lambda text: done.append(text)}
        if workers.is_first:
            workers.order("note", text="ö/1")
        first = workers.is_to_stop(not workers.is_first, orders)
        second = workers.is_to_stop(workers.is_first, orders)
        if workers.is_first:
            workers.end()
        else:
            workers.follow(orders)
        return first, second, done

    assert together(work) == [(False, True, []), (False, True, ["ö/1"])]


def test_statistics_are_shared_early_while_there_are_few_and_then_at_each_end_of_a_rollout() -> None:
    """Rollouts end after 48 steps of both; before that there are the powers of two."""

    def work(workers: Workers) -> Any:
        model = algorithm("a2c", n_steps=24, normalize=True)
        assert model.normalizer is not None
        shared, take_in = [], model.normalizer.take_in

        def noted(seen: np.ndarray) -> None:
            shared.append(model.num_timesteps)
            take_in(seen)

        model.normalizer.take_in = noted  # type: ignore[method-assign]
        learn(model, workers, 96)
        return shared

    one, two = together(work)
    assert one == two == [0, 2, 4, 8, 16, 32, 48, 64, 96]


def test_scalars_of_all_reach_the_first_and_what_it_resets_is_reset_everywhere() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c")
        model.join(workers)
        model.learn(28)
        model.read_own_metrics()
        model.record("x", 1.0 + 2.0 * workers.rank)
        if workers.rank:
            model.record("y", 7.0)
        metrics = {}
        if workers.is_first:
            metrics = model.read_metrics()
            model.barrier()
            workers.end()
        else:
            workers.follow(model.team.orders)
        assert model.envs is not None
        unfinished = model.envs.longest_unfinished_episode()
        model.leave()
        model.learn(14)  # alone, each for itself
        return metrics, unfinished, model.runtime.shared_by, model.num_timesteps

    assert together(work) == [({"x": 2.0, "y": 7.0}, 0, 1, 14), ({}, 0, 1, 14)]


def test_episodes_of_all_are_told_with_their_environment_and_by_the_clock_of_the_first() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c", max_episode_steps=5)
        assert model.envs is not None
        model.envs.start += 1000.0 * workers.rank  # whose clocks started then
        learn(model, workers, 70)
        return [(each.env_index, each.seconds) for each in model.recent_episodes], model.n_episodes

    (told, n_told), (others, n_others) = together(work)
    assert {index for index, _ in told} == {0, 1}
    assert n_told == len(told) >= 12
    assert all(abs(seconds) < 600 for _, seconds in told)
    assert not others
    assert not n_others


def test_signal_to_any_worker_is_heard_by_all() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c")
        model.join(workers)
        heard = [model.team.has_collected(False), model.team.has_collected(workers.rank == 1)]
        if workers.is_first:
            workers.end()
        else:
            workers.follow(model.team.orders)
        return heard

    assert together(work) == [[False, True]] * 2


def test_leaving_gives_back_the_cores() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c")
        model.join(workers)
        shared = model.runtime.shared_by
        model.leave()
        return shared, model.runtime.shared_by

    assert together(work) == [(2, 1)] * 2


def test_what_is_seen_at_a_barrier_is_in_the_checkpoint_after_it() -> None:
    """Environments that can't be replayed are reset before a checkpoint; their first observations count."""

    def made() -> Algorithm[Any]:
        return algorithm("a2c", seed=3, n_steps=8, vectorization="native", normalize=True)

    def on(model: Algorithm[Any], workers: Workers, *, barrier: bool = False) -> None:
        model.learn(64, reset_num_timesteps=False)
        if workers.is_first:
            if barrier:
                model.barrier()
            workers.end()
        else:
            workers.follow(model.team.orders)

    def ended(model: Algorithm[Any]) -> Any:
        assert model.normalizer is not None
        return numbers(model.program.state), model.normalizer.state()["arrays"]

    def work(workers: Workers) -> Any:
        model = made()
        model.join(workers)
        on(model, workers, barrier=True)
        state = copy.deepcopy(model.state())
        on(model, workers)
        resumed = made()
        resumed.join(workers)
        resumed.load_state(state)
        on(resumed, workers)
        return [ended(model), ended(resumed)]

    for (weights, statistics), (resumed_weights, resumed_statistics) in together(work):
        assert statistics["observations.count"] == resumed_statistics["observations.count"]
        for name, array in (weights | statistics).items():
            assert np.array_equal(array, (resumed_weights | resumed_statistics)[name]), name


def trpo(n_envs: int) -> Any:
    return algorithm_class("trpo")(
        {"net_arch": [16]},
        make_vec_env("CartPole-v1", n_envs),
        seed=0,
        compile=False,
        threads=1,
        n_steps=16,
        batch_size=16,
    )


def step_of(model: Any, rollout: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the policy before and after its step on a rollout."""
    before = model.program.state["policy"].clone()
    model._move_policy({**rollout, "advantages": standardized(rollout["advantages"], rollout)})
    return before, model.program.state["policy"].clone()


def test_step_of_trpo_with_two_workers_is_that_with_both_rollouts() -> None:
    def work(workers: Workers) -> Any:
        model = trpo(1)
        model.join(workers)
        model._reset_envs()
        model.total_timesteps = 100
        with workers.in_force():
            model.collect()
            rollout = model.finished_rollout()
            return rollout, *step_of(model, rollout)

    (one, before, after), (two, their_before, their_after) = together(work)
    assert torch.equal(before, their_before)
    assert torch.equal(after, their_after)
    alone = trpo(2)
    alone.program.state["policy"].copy_(before)
    _, expected = step_of(alone, {name: torch.cat([one[name], two[name]]) for name in one})
    moved = (after - before).abs().max()
    assert moved > 1e-3
    assert (after - expected).abs().max() < 1e-3 * moved


def test_each_worker_of_ppo1_standardises_its_own_advantages() -> None:
    def work(workers: Workers) -> Any:
        model: Any = algorithm("ppo1")
        advantages = torch.tensor([1.0, 2.0, 6.0]) * 10**workers.rank
        with workers.in_force():
            return model._prepared({"advantages": advantages})["advantages"], advantages

    for found, own in together(work):
        torch.testing.assert_close(found, (own - own.mean()) / own.std())


def test_standardised_is_all_that_counts_of_all_workers_but_in_a_block_of_ones_own() -> None:
    own = [torch.tensor([1.0, 2.0, 1e6]), torch.tensor([4.0, 1e6, 1e6])]
    weights = [torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])]

    def work(workers: Workers) -> Any:
        batch = {"weights": weights[workers.rank]}
        with workers.in_force():
            shared = standardized(own[workers.rank], batch)
            with each_alone():
                alone = standardized(own[workers.rank], {})
            assert count() == 2
        return shared, alone

    results = together(work)
    real = torch.tensor([1.0, 2.0, 4.0])
    expected = (real - real.mean()) / real.std()
    torch.testing.assert_close(results[0][0][:2], expected[:2])
    torch.testing.assert_close(results[1][0][:1], expected[2:])
    for (_, alone), each in zip(results, own, strict=True):
        torch.testing.assert_close(alone, (each - each.mean()) / each.std())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a2c", "trpo"])
def test_compiled_updates_of_two_workers_are_the_eager_ones(name: str) -> None:
    def trained(workers: Workers, compiles: bool) -> Any:
        options: dict[str, Any] = {"policy": {"net_arch": [8]}, "n_steps": 16}
        if name == "trpo":
            options |= {"batch_size": 16, "n_critic_updates": 2}
        model = algorithm_class(name)(
            env=make_vec_env("CartPole-v1", 1), seed=0, compile=compiles, threads=1, **options
        )
        start = numbers(model.program.state)
        learn(model, workers, 96)
        assert model.runtime.compiles == compiles
        return start["policy"], numbers(model.program.state)

    (start, eager), (_, also_eager) = together(lambda workers: trained(workers, False))
    (_, compiled), (_, also_compiled) = together(lambda workers: trained(workers, True))
    moved = np.abs(eager["policy"] - start).max()
    assert moved > 1e-4
    for key, array in eager.items():
        assert np.array_equal(array, also_eager[key]), key
        assert np.array_equal(compiled[key], also_compiled[key]), f"{key} differs between the workers"
    assert np.abs(compiled["policy"] - eager["policy"]).max() < 1e-2 * moved


def test_cores_are_divided_among_the_workers_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    runtime = Runtime(device="cpu", compile=False, threads="auto")
    runtime.expect(gradient_steps=1.0, multiplications=1e12)
    runtime.shared_by = 2
    with runtime.in_force():
        assert torch.get_num_threads() == 2


def test_two_workers_learn_cartpole() -> None:
    def work(workers: Workers) -> float:
        model = algorithm_class("ppo2")(
            "MlpPolicy",
            make_vec_env("CartPole-v1", 4),
            seed=1,
            compile=False,
            threads=1,
            n_steps=64,
            batch_size=64,
            n_epochs=6,
            learning_rate=1e-3,
        )
        learn(model, workers, 24_000)
        return float(
            np.mean([episode.episode_return for episode in list(model.recent_episodes)[-40:]] or [0])
        )

    first, other = together(work)
    assert first > 120
    assert other == 0
