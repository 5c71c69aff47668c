"""Several workers learn as one: gradient algorithms, random search, imitation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from forked_workers import together
from torch import nn

from zoo import ARS, PPO1
from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.expert_data import ExpertData
from zoo.imitation.gail import GAIL
from zoo.optim.update_runner import State, tree_leaves, tree_map
from zoo.optim.workers import Workers

# -- Two workers learn as one process would from the data of both -----------------------------------------

BATCH = 7
"""A size that nothing else has: where arrays are that long, they hold the samples of a batch."""

UNITS = {"normalize_returns": True, "enable_popart": True}
CASES: dict[str, dict[str, Any]] = {
    "a2c": {"n_steps": 7, "normalize_advantage": True, "rms_prop_eps": 1.0},
    "ppo2": {"n_steps": 7, "n_epochs": 2, "n_minibatches": 1, "adam_eps": 1.0, "target_kl": 1e-5},
    "ppo2 desired kl": {"n_steps": 7, "n_epochs": 2, "n_minibatches": 1, "adam_eps": 1.0, "desired_kl": 1e-5},
    "ppo1": {"n_steps": 7, "n_epochs": 2, "batch_size": 7, "adam_eps": 1.0},
    "acktr": {"n_steps": 7, "cold_updates": 2, "kfac_update": 1},
    "dqn": {"train_freq": 2, "gradient_steps": 2, "target_update_interval": 4},
    "sac": {"train_freq": 2, "gradient_steps": 2},
    "td3": {"train_freq": 2, "gradient_steps": 3},
    "tqc": {"train_freq": 2, "gradient_steps": 2},
    "ddpg": {"train_freq": 2, "gradient_steps": 2, "parameter_noise": {}, **UNITS},
}
LED_BY_RESULTS: dict[str, dict[str, Any]] = {
    "crossq": {"train_freq": 2, "gradient_steps": 3},
    "sac batch norm": {**CASES["sac"], "policy": {"_target_": "toy_policies.BatchNormCritics"}},
    "pqn": {"n_steps": 7, "batch_size": 7},
    "ppo2 value normalization": {"n_steps": 7, "n_epochs": 2, "value_normalization": True},
    "trpo": {"n_steps": 14, "batch_size": 7, "n_critic_updates": 2, "sub_sampling_factor": 2},
    "a2c with a memory": {**CASES["a2c"], "policy": {"net_arch": [16], "recurrent": "lstm"}},
}
"""Cases whose updates are more than steps on batches, or whose ranks see statistics of their own."""

ON_POLICY = ("a2c", "ppo2", "ppo2 desired kl", "ppo2 value normalization", "ppo1", "acktr", "trpo", "pqn")
ON_POLICY += ("a2c with a memory",)


def algorithm(name: str, *, seed: int = 0, n_steps: int | None = None, **options: Any) -> Algorithm:
    found = algorithm_class(name.split()[0])
    env = "CartPole-v1" if name in (*ON_POLICY, "dqn") else "Pendulum-v1"
    values = {"policy": {"net_arch": [16]}, **(CASES | LED_BY_RESULTS)[name]}
    if name not in ON_POLICY:
        values |= {"batch_size": BATCH, "learning_starts": 20, "buffer_size": 500}
    if n_steps is not None:
        values["n_steps"] = n_steps
    made: Algorithm = found(
        env=make_vec_env(env, 1, **options), seed=seed, compile=False, threads=1, **values
    )
    return made


def learn(model: Algorithm, workers: Workers, n_steps: int) -> None:
    """Learn as one of them, and do what the first one asks for until it has all that it wants to know."""
    model.join(workers)
    model.learn(n_steps)
    end(model, workers)


def end(model: Algorithm, workers: Workers) -> None:
    if workers.is_first:
        workers.end()
    else:
        workers.follow(model.distributed.orders)


def numbers(state: State) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in state.items()}


def soften(model: Algorithm) -> None:
    """Let optimizers step in proportion to gradients, so that rounding stays rounding."""
    for updater in vars(model).values():
        if hasattr(getattr(updater, "optimizer", None), "eps"):
            updater.optimizer = dataclasses.replace(updater.optimizer, eps=1.0)


def one_update(name: str, workers: Workers) -> tuple[list[Any], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return what an update's steps were given, and the state before and after it."""
    model = algorithm(name)
    soften(model)
    given: list[Any] = []
    before = numbers(model.runner.state)
    take = model.take_steps

    def noted(step: Any, shared: Any, rows: Any) -> Any:
        given.append((step.__name__, tree_map(torch.clone, shared), tree_map(torch.clone, rows)))
        return take(step, shared, rows)

    model.take_steps = noted  # type: ignore[method-assign]
    n_steps = 14 if name in ON_POLICY else 22
    learn(model, workers, n_steps)
    assert model.num_timesteps == n_steps
    return given, before, numbers(model.runner.state)


def joined(one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
    """Put the samples of two batches into one."""
    axes = [axis for axis, length in enumerate(one.shape) if length == BATCH]
    return torch.cat([one, two], axes[0]) if axes else one


def joined_trees(one: Any, two: Any) -> Any:
    others = iter(tree_leaves(two))
    return tree_map(lambda tensor: joined(tensor, next(others)), one)


@pytest.mark.parametrize("name", CASES)
def test_update_of_two_ranks_matches_one_process(name: str) -> None:
    """The reference takes the same steps, alone, on the batches of both, from the same weights."""
    (given, before, after), (theirs, their_before, their_after) = together(lambda w: one_update(name, w))
    reference = algorithm(name)
    soften(reference)
    for key, tensor in before.items():
        assert np.array_equal(tensor, their_before[key]), key
        assert np.array_equal(after[key], their_after[key]), f"{key} differs between the workers"
        reference.runner.state[key].copy_(torch.from_numpy(tensor))
    for (step, shared, rows), (_, their_shared, their_rows) in zip(given, theirs, strict=True):
        if name in ("ppo1", "ppo2"):
            rows = torch.cat([rows, their_rows + BATCH], 1)
        elif name == "ppo2 desired kl":
            rows = {**rows, "rows": torch.cat([rows["rows"], their_rows["rows"] + BATCH], 1)}
        elif name != "a2c":
            rows = joined_trees(rows, their_rows)
        shared = joined_trees(shared, their_shared)
        reference.runner.run(getattr(reference, step), shared, rows)
    moved = False
    for key, expected in reference.runner.state.items():
        np.testing.assert_allclose(after[key], expected.numpy(), rtol=1e-4, atol=2e-6, err_msg=key)
        moved = moved or not np.array_equal(after[key], before[key])
    assert moved


N_ROWS = 12
"""Steps of a rank's rollout: three minibatches of four, twice."""


class Exact(PPO1):
    """Learns in double precision from rollouts and minibatches that it is given."""

    given: list[tuple[dict[str, torch.Tensor], np.ndarray]]

    def _make_policy(self) -> nn.Module:
        policy = super()._make_policy()
        for module in policy.modules():
            if hasattr(module, "encoder"):
                module.encoder = nn.Identity()  # it would make all observations single
        return policy.double()

    def _act_with(self, noise: Any, policy_input: Any) -> dict[str, Any]:
        return {"actions": np.zeros(self.n_envs, np.int64)}

    def finished_rollout(self) -> dict[str, Any]:
        rollout, rows = self.given.pop(0)
        self.buffer.minibatch_rows = lambda *_: rows  # type: ignore[method-assign]
        return dict(rollout)


def exact(given: list[Any], n_envs: int, **options: Any) -> Exact:
    settings = {"n_steps": N_ROWS, "batch_size": 4 * n_envs, "n_epochs": 2, "ent_coef": 0.125, **options}
    env = make_vec_env("CartPole-v1", n_envs)
    model = Exact({"net_arch": [8]}, env, seed=0, compile=False, threads=1, **settings)
    model.given = list(given)
    return model


def rollout_of(rank: int, update: int) -> tuple[dict[str, torch.Tensor], np.ndarray]:
    rng = np.random.default_rng((rank, update))
    names = ("advantages", "returns", "values", "log_prob")
    columns = {name: rng.normal(rank, 1.0 + rank, N_ROWS) - (name == "log_prob") for name in names}
    columns["observations"] = rng.normal(size=(N_ROWS, 4))
    rollout = {name: torch.from_numpy(column) for name, column in columns.items()}
    rows = np.concatenate([rng.permutation(N_ROWS).reshape(3, 4) for _ in range(2)])
    return {**rollout, "actions": torch.from_numpy(rng.integers(2, size=N_ROWS))}, rows


def two_exact_updates(workers: Workers) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    model = exact([rollout_of(workers.rank, update) for update in range(2)], 1)
    model.join(workers)
    model.learn(4 * N_ROWS)
    metrics = model.read_metrics() if workers.is_first else {}
    end(model, workers)
    return numbers(model.runner.state), metrics


def test_ppo1_averages_gradients_across_ranks() -> None:
    """One process takes the same two updates on the rollouts of both, to rounding in double precision."""
    (found, metrics), (theirs, _) = together(two_exact_updates)
    joined_updates = []
    for update in range(2):
        (one, rows), (two, their_rows) = (rollout_of(rank, update) for rank in range(2))
        for rollout in (one, two):
            advantages = rollout["advantages"].numpy()
            deviation = advantages.std(ddof=1) + 1e-8
            rollout["advantages"] = torch.from_numpy((advantages - advantages.mean()) / deviation)
        both = {name: torch.cat([one[name], two[name]]) for name in one}
        joined_updates.append((both, np.concatenate([rows, their_rows + N_ROWS], 1)))
    reference = exact(joined_updates, 2, normalize_advantage=False)
    start = numbers(reference.runner.state)["policy"]
    reference.learn(4 * N_ROWS)
    assert reference.n_updates == 12
    expected = reference.runner.state["policy"].numpy()
    moved = np.abs(expected - start).max()
    assert moved > 1e-3
    for policy in (found["policy"], theirs["policy"]):
        assert policy.dtype == np.float64
        np.testing.assert_allclose(policy, expected, rtol=0, atol=1e-10 * moved)
    apart = ("train/explained_variance", "train/grad_norm")  # means of what is no mean itself
    for name, value in reference.read_metrics().items():
        if name.startswith("train/") and name not in apart:
            assert metrics[name] == pytest.approx(value, rel=1e-6), name


def trained(name: str, workers: Workers, n_steps: int) -> tuple[dict[str, np.ndarray], Any, int, int]:
    model = algorithm(name, seed=3, normalize=True, max_episode_steps=15)
    learn(model, workers, n_steps)
    assert model.normalizer is not None
    statistics = model.normalizer.state()["arrays"]
    return numbers(model.runner.state), statistics, model.n_episodes, model.num_timesteps


@pytest.mark.parametrize("name", [*CASES, *LED_BY_RESULTS])
def test_ranks_share_weights_and_statistics_repeatably(name: str) -> None:
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


def test_rank_0_gets_scalars_and_resets_all_ranks() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c")
        model.join(workers)
        model.learn(28)
        model.scalars.read()
        model.record("x", 1.0 + 2.0 * workers.rank)
        if workers.rank:
            model.record("y", 7.0)
        metrics = {}
        if workers.is_first:
            metrics = model.read_metrics()
            model.distributed.reset_all()
        end(model, workers)
        assert model.envs is not None
        unfinished = model.envs.longest_unfinished_episode()
        model.join(None)
        model.learn(14)  # alone, each for itself
        return metrics, unfinished, model.runtime.shared_by, model.num_timesteps

    assert together(work) == [({"x": 2.0, "y": 7.0}, 0, 1, 14), ({}, 0, 1, 14)]


def test_signal_to_any_worker_is_heard_by_all() -> None:
    def work(workers: Workers) -> Any:
        model = algorithm("a2c")
        model.join(workers)
        meet = model.distributed.meet_before_update
        heard = [meet(False), meet(workers.rank == 1)]
        end(model, workers)
        return heard

    assert together(work) == [[False, True]] * 2


# -- Workers that share the candidates of ARS come to what one alone comes to, to the last bit ------------
def model(n_envs: int = 2, *, seed: int = 0, **options: Any) -> ARS:
    envs = make_vec_env("CartPole-v1", n_envs, normalize=True, max_episode_steps=50)
    return ARS("LinearPolicy", envs, seed=seed, compile=False, threads=1, n_delta=4, n_top=3, **options)


def search_numbers(found: ARS) -> dict[str, np.ndarray]:
    moments = found.normalizer.moments[""]
    return {
        "weights": found.get_parameters()["head.logits.weight"],
        "mean": moments.mean,
        "squares": moments.squares,
        "counts": np.array([moments.count, found.num_timesteps, found.n_updates]),
    }


def learned(workers: Workers, steps: int) -> tuple[dict[str, np.ndarray], int, list[float]]:
    found = model(seed=workers.rank)  # all take the first one's
    learn(found, workers, steps)
    returns = sorted(each.episode_return for each in found.recent_episodes)
    return search_numbers(found), found.n_episodes, returns


def test_four_workers_come_to_the_weights_of_one() -> None:
    alone = model(3).learn(1000)
    (first, n_episodes, returns), *others = together(lambda workers: learned(workers, 1000), 4)
    for found, _, _ in others:
        for name, array in first.items():
            np.testing.assert_array_equal(found[name], array)
    for name, array in search_numbers(alone).items():
        np.testing.assert_array_equal(first[name], array)
    assert n_episodes == alone.n_episodes == 8 * alone.n_updates > 16
    assert returns == sorted(each.episode_return for each in alone.recent_episodes)


def test_ranks_that_cannot_share_episodes_are_refused() -> None:
    def refused(workers: Workers) -> str:
        found = model()
        found.join(workers)
        with pytest.raises(ZooError) as raised:
            found.learn(100)
        return str(raised.value)

    for message in together(refused, 3):
        assert message == (
            "3 workers can't share the 8 episodes of an update (2 × algo.n_delta × algo.n_eval_episodes)"
            " evenly; change one of them"
        )


# -- GAIL's discriminator learns from what all workers did, and is the same for all -----------------------

SHORT = EnvConfig("CartPole-v1", max_episode_steps=20)


@pytest.fixture(scope="module")
def expert() -> ExpertData:
    return record_expert(lambda seen: int(seen[2] + seen[3] > 0), SHORT, 3, seed=0)


def imitator(expert: ExpertData, generator: str) -> GAIL:
    batch = {"batch_size": 16} if generator == "trpo" else {}
    own = {"generator": generator, "n_steps": 16, "seed": 3, "compile": False, "threads": 1, **batch}
    judges = {"g_step": 1, "d_step": 2, "d_gradient_penalty": 1.0, "d_spectral_norm": True, "d_net_arch": [6]}
    return GAIL({"net_arch": [8]}, SHORT, expert, **own, **judges)


def trained_imitator(expert: ExpertData, generator: str, workers: Workers) -> tuple[Any, Any]:
    model = imitator(expert, generator)
    learn(model, workers, 256)
    discriminator = model.discriminator
    assert discriminator is not None
    assert discriminator.statistics is not None
    return numbers(model.runner.state), discriminator.statistics.state()["arrays"]


@pytest.mark.parametrize("generator", ["trpo", "ppo2"])
def test_workers_have_one_discriminator_and_so_again(expert: ExpertData, generator: str) -> None:
    one, two = together(lambda workers: trained_imitator(expert, generator, workers))
    again, _ = together(lambda workers: trained_imitator(expert, generator, workers))
    for first, second, third in zip(one, two, again, strict=True):
        for name, array in first.items():
            assert np.array_equal(array, second[name]), name
            assert np.array_equal(array, third[name]), name


def one_imitation_update(expert: ExpertData, workers: Workers) -> tuple[list[Any], Any, Any]:
    """Return what the discriminator was shown, and the state before and after it."""
    model = imitator(expert, "ppo2")
    given: list[Any] = []
    take = model.take_steps

    def noted(step: Any, shared: Any, rows: Any) -> Any:
        if model.discriminator is None or step != model.discriminator.step:
            return take(step, shared, rows)
        given.extend([tree_map(torch.clone, each) for each in (shared, rows)])
        given.append(numbers(model.runner.state))
        return take(step, shared, rows)

    model.take_steps = noted  # type: ignore[method-assign]
    learn(model, workers, 32)
    return given[:2], given[2], numbers(model.runner.state)


def test_imitation_step_of_two_ranks_matches_one(expert: ExpertData) -> None:
    (given, before, after), (theirs, _, _) = together(lambda workers: one_imitation_update(expert, workers))
    reference = imitator(expert, "ppo2")
    for name, array in before.items():
        reference.runner.state[name].copy_(torch.from_numpy(array))
    others = iter(tree_leaves(theirs[1]))
    rows = tree_map(lambda tensor: torch.cat([tensor, next(others)], 1), given[1])
    assert reference.discriminator is not None
    reference.runner.run(reference.discriminator.step, given[0], rows)
    for name in ("discriminator", "discriminator.mean", "discriminator.count"):
        found = reference.runner.state[name].numpy()
        np.testing.assert_allclose(after[name], found, rtol=1e-4, atol=1e-6, err_msg=name)
    assert not np.array_equal(after["discriminator"], before["discriminator"])
