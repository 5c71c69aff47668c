"""Behaviour cloning, alone and before reinforcement learning."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from zoo.algorithms.callback import Callback
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.core.tensors import join, split
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.bc import BC, Cloning, CloningTerms, Epoch
from zoo.imitation.demonstrations import Demonstrations, validation_episodes
from zoo.imitation.expert_data import ExpertData, write_expert
from zoo.optim.update_runner import LiveState

# -- Behaviour cloning as an algorithm: epochs, early end, exact resume, and what can go on from it -------

LSTM = {"name": "MlpLstmPolicy", "lstm_hidden_size": 8, "net_arch": [8]}


@pytest.fixture(scope="module")
def cartpole() -> ExpertData:
    """Five episodes of a controller that stays up."""
    env = EnvConfig("CartPole-v1", max_episode_steps=100)
    return record_expert(lambda seen: int(seen[2] + seen[3] > 0), env, 5, seed=0)


def clone(data: ExpertData | None, policy: Any = None, *, compile: bool = False, **options: Any) -> BC:
    policy = {"net_arch": [16]} if policy is None else policy
    defaults = {"seed": 1, "threads": 1, "env": "CartPole-v1", "learning_rate": 1e-2}
    return BC(policy, dataset=data, compile=compile, **{**defaults, **options})


def numbers(model: Any) -> dict[str, Any]:
    arrays, values = split(model.state())
    del values["counts"]["timings"]
    values.pop("recent_episodes", None)  # they tell the time
    values["collector"].get("envs", {}).pop("seconds", None)
    return {**{name: array.tobytes() for name, array in arrays.items()}, "values": json.dumps(values)}


def assert_resumes_exactly(make: Any, n_timesteps: int, resumed_from: tuple[int, ...]) -> None:
    """Run once through, then from some steps on in another object, whose seed is restored, too."""
    kept: dict[int, Any] = {}

    class Keep(Callback):
        every = math.gcd(*resumed_from)

        def on_steps(self, algorithm: Any) -> None:
            arrays, values = split(algorithm.state())
            kept[algorithm.num_timesteps] = {k: v.copy() for k, v in arrays.items()}, json.dumps(values)

    model = make().learn(n_timesteps, Keep())
    for steps in resumed_from:
        arrays, values = kept[steps]
        resumed = make(seed=None)
        resumed.load_state(join(arrays, json.loads(values)))
        assert resumed.num_timesteps == steps
        resumed.learn(n_timesteps - steps, Keep(), reset_num_timesteps=False)
        assert numbers(resumed) == numbers(model)


def test_a_step_of_the_run_is_a_step_of_the_expert(cartpole: ExpertData) -> None:
    model = clone(cartpole, validation_fraction=0.2).learn(1000)
    assert model.num_timesteps == 3 * 400  # whole epochs of four episodes
    assert model.n_updates == 3 * 7
    assert model.read_metrics()["train/validation_loss"] > 0
    everything = clone(cartpole, validation_fraction=0.0).learn(1000)
    assert everything.num_timesteps == 2 * 500
    assert "train/validation_loss" not in everything.read_metrics()


@pytest.mark.parametrize(("policy", "normalize"), [(None, True), (LSTM, False)], ids=["mlp", "lstm"])
def test_same_seed_and_exact_resume(cartpole: ExpertData, policy: Any, normalize: bool) -> None:
    env = EnvConfig("CartPole-v1", normalize=normalize)
    assert_resumes_exactly(partial(clone, cartpole, policy, env=env, patience=3), 2000, (400, 1200))


def test_early_stopping_restores_the_best_parameters(cartpole: ExpertData) -> None:
    losses: list[tuple[float, dict[str, np.ndarray]]] = []

    class Watch(Callback):
        every = 1

        def on_steps(self, algorithm: Any) -> None:
            loss = algorithm.cloning.validation_loss(algorithm._demonstrations)
            losses.append((loss, algorithm.get_parameters()))

    model = clone(cartpole, learning_rate=0.5, patience=2).learn(40_000, Watch())
    assert model.stop_reason is not None
    assert model.stop_reason.startswith("no better validation loss than")
    assert model.num_timesteps < 40_000
    best = min(losses, key=lambda each: each[0])[1]
    for name, value in model.get_parameters().items():
        np.testing.assert_array_equal(value, best[name])
    assert clone(cartpole, learning_rate=0.5, patience=None).learn(6_000).stop_reason is None


def test_wrong_input_gets_one_clear_line(cartpole: ExpertData) -> None:
    with pytest.raises(ZooError, match=r"bc learns from expert data: dataset=PATH"):
        clone(None).learn(100)
    with pytest.raises(ZooError, match=r"the observations of .* differ: Box\(4,\)"):
        clone(cartpole, env="Acrobot-v1")
    with pytest.raises(ZooError, match=r"there is no nothing\.npz"):
        BC("MlpPolicy", "CartPole-v1", dataset="nothing.npz")
    assert spaces.Tuple in BC.supported_actions


# -- Behaviour cloning: its terms against explicit computations, its batches, and what it leaves alone ----

BOX = spaces.Box(-3.0, 3.0, (2,), np.float32)
NUMBERS = spaces.Box(-2.0, 2.0, (1,), np.float32)
CHOICES = spaces.Discrete(3, start=1)


def linear_expert(action_space: Any = CHOICES, lengths: Any = (5, 3, 7), **changes: Any) -> ExpertData:
    """Return what an expert did who goes by the sign, or a linear function, of what it sees."""
    lengths = np.array(lengths)
    observations = np.random.default_rng(0).uniform(-1, 1, (lengths.sum(), 2)).astype(np.float32)
    if isinstance(action_space, spaces.Discrete):
        actions: Any = action_space.start + (observations[:, 0] > 0).astype(np.int64)
    else:
        actions = (0.5 * observations[:, :1] + 0.5).astype(np.float32)
    values: dict[str, Any] = {"observation_space": BOX, "action_space": action_space, "actions": actions}
    values |= {"observations": observations, "rewards": np.ones(lengths.sum(), np.float32)}
    values |= {"lengths": lengths, "returns": lengths.astype(np.float64)}
    return ExpertData(**{**values, **changes})


QUIET: dict[str, Any] = {"seed": 0, "compile": False, "threads": 1}


def agent(name: str = "ppo2", policy: Any = "LinearPolicy", actions: Any = CHOICES, **options: Any) -> Any:
    sides = {"observation_space": BOX, "action_space": actions}
    return algorithm_class(name)(policy, **sides, **QUIET, **options)


def one_step(learner: Any, data: ExpertData, **terms: Any) -> tuple[Any, dict[str, float], Any, torch.Tensor]:
    cloning = Cloning(learner.acting.policy, CloningTerms(**terms))
    demonstrations = Demonstrations(data, learner, 0.0, np.random.default_rng(0))
    shared = {"rows": demonstrations.tensors, "learning_rate": torch.tensor(0.0)}
    state = LiveState(cloning.updater.initial_state())
    gradients = []
    cloning.updater.apply_gradient = lambda state, gradient, rate, skip: (
        gradients.append(gradient),
        (state, gradient.norm()),
    )[1]  # type: ignore
    outcome = cloning.step(state, shared, torch.arange(data.n_steps))
    metrics = {name: float(value) for name, value in outcome.metrics.items()}
    return cloning, metrics, demonstrations, gradients[0]


def test_choices_are_learned_by_cross_entropy() -> None:
    learner, data = agent(), linear_expert()
    cloning, metrics, _, gradient = one_step(learner, data)
    head = learner.policy.head.logits
    weight, bias = (each.detach().double().requires_grad_() for each in (head.weight, head.bias))
    logits = torch.from_numpy(data.observations).double() @ weight.T + bias
    log_probs = logits - logits.exp().sum(1, keepdim=True).log()
    chosen = torch.stack([log_probs[i, a - 1].detach() for i, a in enumerate(data.actions.tolist())])
    assert metrics["imitation_loss"] == pytest.approx(-float(chosen.detach().mean()), rel=1e-5)
    picked = log_probs[torch.arange(data.n_steps), torch.from_numpy(data.actions) - 1]
    expected = torch.autograd.grad(-picked.mean(), [weight, bias])
    slices = cloning.parameters.slices
    for name, each in zip(("policy.head.logits.weight", "policy.head.logits.bias"), expected, strict=True):
        torch.testing.assert_close(gradient[slices[name]].double(), each.reshape(-1), rtol=1e-4, atol=1e-6)
    others = [part for name, part in slices.items() if "head" not in name]
    assert others
    assert not any(gradient[part].any() for part in others)  # a critic is taught nothing, nor made smaller


def test_box_actions_are_cloned_by_squared_error() -> None:
    learner, data = agent(actions=NUMBERS), linear_expert(NUMBERS)
    cloning, metrics, _, gradient = one_step(learner, data)
    mean = learner.predict(data.observations)[0]
    assert metrics["imitation_loss"] == pytest.approx(float(np.square(mean - data.actions).mean()), rel=1e-4)
    assert not gradient[cloning.parameters.slices["policy.head.log_std"]].any()


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"ars", "gail", "bc"}))
def test_every_algorithm_can_be_pretrained(name: str) -> None:
    space: Any = NUMBERS if algorithm_class(name).supported_actions == (spaces.Box,) else CHOICES
    learner, data = agent(name, "MlpPolicy", space), linear_expert(space, lengths=(60, 60))
    before = learner.get_parameters()

    def error() -> float:
        return float(np.abs(learner.predict(data.observations)[0] - data.actions).mean())

    untrained = error()
    has_batch_norm = algorithm_class(name).has_batch_norm  # whose running statistics take their time
    length: Any = {"n_epochs": 250, "patience": None} if has_batch_norm else {"n_epochs": 25}
    learner.pretrain(data, learning_rate=3e-3, **length)
    assert error() < 0.35 * untrained + 0.01
    state = learner.runner.state
    for target, online in (("target", "q_network"), ("target_actor", "actor"), ("target_critics", "critics")):
        if target in state and online in state:
            torch.testing.assert_close(state[target], state[online])
    after = learner.get_parameters()
    for part in ("critic", "critics", "head.log_std", "temperature"):
        for key in (key for key in before if key.startswith(part)):
            if not (name == "acer" and part == "critic"):
                np.testing.assert_array_equal(after[key], before[key])


def ends(cloning: Cloning, losses: list[float]) -> list[bool]:
    """Return after each validation loss, whose parameters are its index, whether it was one too many."""
    told = []
    for i, loss in enumerate(losses):
        cloning.parameters.flat.fill_(i)
        cloning.note(loss)
        told.append(cloning.is_over)
    return told


def test_best_parameters_are_taken_and_patience_ends() -> None:
    def patient(patience: int | None) -> Cloning:
        return Cloning(agent(actions=NUMBERS).acting.policy, CloningTerms(patience=patience))

    cloning = patient(2)
    assert ends(cloning, [1.0, 0.5, 0.6, 0.5]) == [False, False, False, True]
    cloning.take_best()
    assert (cloning.parameters.flat == 1.0).all()
    assert not any(ends(patient(None), [1.0, 2.0, 3.0]))
    assert not any(ends(patient(1), [math.nan]))
    learner, epochs = agent(actions=NUMBERS), list[Epoch]()
    terms = {"n_epochs": 60, "learning_rate": 3.0, "patience": 4}
    learner.pretrain(linear_expert(NUMBERS), on_epoch=epochs.append, **terms)
    assert len(epochs) < 60
    best = min(range(len(epochs)), key=lambda i: epochs[i].validation_loss)
    assert len(epochs) - 1 - best == 4


def test_sequences_are_whole_episodes_in_pieces() -> None:
    data = linear_expert(lengths=(40, 3))
    learner = agent("a2c", {"name": "MlpLstmPolicy", "lstm_hidden_size": 8}, n_steps=32)
    demonstrations = Demonstrations(data, learner, 0.0, np.random.default_rng(0))
    tensors = demonstrations.tensors
    assert tensors["observations"].shape == (3, 32, 2)
    assert tensors["weights"].sum(1).tolist() == [32.0, 8.0, 3.0]
    assert tensors["episode_starts"].nonzero().tolist() == [[0, 0], [2, 0]]
    assert demonstrations.n_train == 43
    np.testing.assert_array_equal(tensors["observations"][1, :8], data.observations[32:40])
    demonstrations.update_states(learner.policy)
    state = learner.policy.initial_state(1)
    for step in range(32):
        seen = {"observations": torch.from_numpy(data.observations[step : step + 1])}
        state = learner.policy.action_parameters(seen, state)[1].detach()
    torch.testing.assert_close(tensors["states"][1:2], state)
    assert not tensors["states"][[0, 2]].any()
    learner.pretrain(data, n_epochs=2)


@pytest.mark.parametrize("policy", ["LinearPolicy", {"name": "MlpLstmPolicy", "lstm_hidden_size": 8}])
def test_validation_loss_is_the_mean_over_all_steps(monkeypatch: pytest.MonkeyPatch, policy: Any) -> None:
    monkeypatch.setattr("zoo.imitation.bc.VALIDATED_AT_ONCE", 4)
    data = linear_expert(lengths=(3, 40, 33, 7))
    learner = agent("a2c", policy, n_steps=32)
    cloning = Cloning(learner.acting.policy, CloningTerms())
    demonstrations = Demonstrations(data, learner, 0.6, np.random.default_rng(0))
    assert len(demonstrations.validation) > 2
    found = cloning.validation_loss(demonstrations)
    chosen = demonstrations.validation
    episodes = validation_episodes(4, 0.6, np.random.default_rng(0))
    losses: list[float] = []
    for episode in episodes:
        state = None
        for step in data.starts[episode] + np.arange(data.lengths[episode]):
            seen = {"observations": torch.from_numpy(data.observations[step : step + 1])}
            if state is None and demonstrations.is_recurrent:
                state = learner.policy.initial_state(1)
            with torch.no_grad():
                logits, state = learner.policy.action_parameters(seen, state)
            losses.append(-float(torch.log_softmax(logits.reshape(-1), 0)[data.actions[step] - 1]))
    assert len(chosen) <= len(losses)
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


def test_recurrent_policy_learns_a_delayed_cue() -> None:
    rng = np.random.default_rng(0)
    observations = np.zeros((400, 2), np.float32)
    cues = rng.integers(0, 2, 100)
    observations[::4, 0] = 2 * cues - 1
    observations[3::4, 1] = 1
    actions = 1 + np.repeat(cues, 4)  # the cue is seen at the first of four steps alone
    data = linear_expert(lengths=[4] * 100, observations=observations, actions=actions)
    learner = agent("a2c", {"name": "MlpLstmPolicy", "lstm_hidden_size": 16}, n_steps=32)
    epochs: list[Epoch] = []
    learner.pretrain(data, n_epochs=25, learning_rate=0.02, on_epoch=epochs.append)
    assert epochs[-1].validation_loss < 0.05


def test_fresh_normalizer_is_fitted_to_the_expert() -> None:
    data = record_expert(lambda _: [0.0], "Pendulum-v1", 2, seed=0)
    env = EnvConfig("Pendulum-v1", normalize=True)
    learner = algorithm_class("ppo2")("MlpPolicy", env, **QUIET, n_steps=32)
    learner.pretrain(data, n_epochs=1)
    shown = learner.normalizer.normalize_observations(data.observations)
    np.testing.assert_allclose(shown.std(0), 1.0, atol=0.05)
    learner.learn(64)


def test_wrong_pretraining_gets_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"actions .* differ"):
        agent(actions=NUMBERS).pretrain(linear_expert())
    path = write_expert(tmp_path / "expert.npz", linear_expert())
    with pytest.raises(ZooError, match=r"the actions of .*expert\.npz and the environment's differ"):
        agent(actions=NUMBERS).pretrain(path)
    with pytest.raises(ZooError, match=r"unknown key `pretrain.epochs`; did you mean `pretrain.n_epochs`"):
        agent().pretrain(path, epochs=3)
    with pytest.raises(ZooError, match=r"min_return=99 leaves nothing of 3 episodes"):
        agent().pretrain(path, min_return=99)


def test_masks_make_what_is_forbidden_no_alternative() -> None:
    data = linear_expert()
    masks = np.zeros((15, 3), np.bool_)
    masks[np.arange(15), data.actions - 1] = True
    _, metrics, _, _ = one_step(agent(), linear_expert(action_masks=masks))
    assert metrics["imitation_loss"] == pytest.approx(0.0, abs=1e-6)
