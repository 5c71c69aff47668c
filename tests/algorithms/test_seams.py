"""What comes later fits in: masks, importance weights, natural gradients, other optimizers and workers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo import A2C, DQN, PPO2, QRDQN, SAC, TD3, TQC, make_vec_env
from zoo.memory.columns import transform
from zoo.optim.natural_gradient import conjugate_gradient, fisher_products, line_search
from zoo.optim.optimizers import Adam, Descent
from zoo.optim.parameters import Parameters
from zoo.optim.runtime import Runtime
from zoo.optim.state import State
from zoo.optim.update_runner import Program
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.config import PolicyConfig

SMALL = {"net_arch": [8]}
DAMPING = 0.1

# Masks, from the environment to the loss


def masked_env(n_envs: int = 3, **options: Any) -> Any:
    return make_vec_env("Zoo/Masked-v0", n_envs, **options)


WORKERS = {"vectorization": "workers", "n_workers": 2, "start_method": "fork"}


@pytest.mark.parametrize("options", [{}, WORKERS], ids=["in_process", "workers"])
@pytest.mark.parametrize("make", [PPO2, A2C])
def test_a_rollout_holds_the_masks_under_which_its_actions_were_drawn(make: Any, options: Any) -> None:
    env = masked_env(**options)
    model = make(SMALL, env, seed=0, compile=False, n_steps=64).learn(64 * 3)
    columns = model.memory.columns
    masks, actions = columns["action_masks"], columns["actions"]
    assert masks.shape == (64, 3, 6)
    assert (masks.sum(-1) == 3).all()
    assert np.take_along_axis(masks, actions[..., None], -1).all()
    assert len(np.unique(actions)) == 6
    assert model.memory.rewards.min() > 0, "a forbidden action costs 1"
    env.close()


@pytest.mark.parametrize("options", [{}, WORKERS], ids=["in_process", "workers"])
@pytest.mark.parametrize("optimize", [False, True])
def test_replay_holds_the_masks_before_and_after_each_step(optimize: bool, options: Any) -> None:
    env = masked_env(**options)
    model = DQN(SMALL, env, seed=0, compile=False, learning_starts=30, optimize_memory_usage=optimize)
    model.learn(300)
    batch = model.memory.sample(np.random.default_rng(0), (500,))
    assert np.take_along_axis(batch["action_masks"], batch["actions"][:, None], -1).all()
    assert batch["rewards"].min() > 0
    mask_of = {
        tuple(observation.tolist()): tuple(mask.tolist())
        for observation, mask in zip(batch["observations"], batch["action_masks"], strict=True)
    }
    n_compared = 0
    for observation, mask in zip(batch["next_observations"], batch["next_action_masks"], strict=True):
        known = mask_of.get(tuple(observation.tolist()))
        n_compared += known is not None
        assert known is None or known == tuple(mask.tolist())
    assert n_compared > 100
    env.close()


def test_dqn_values_the_next_state_by_its_best_valid_action() -> None:
    model = DQN(SMALL, masked_env(), seed=0, compile=False, learning_starts=10, double=False, gamma=0.5)
    model.learn(60)
    batch = model._tensors(model.memory.sample(np.random.default_rng(1), (40,)))
    targets = model.targets(model.program.state, batch)
    values = model.descent.parameters.at(model.program.state["target"])(batch["next_observations"])
    best = torch.stack(
        [row[mask].max() for row, mask in zip(values, batch["next_action_masks"], strict=True)]
    )
    expected = batch["rewards"] + 0.5 * (1 - batch["terminated"]) * best
    torch.testing.assert_close(targets, expected)


def test_nothing_has_changed_yet_at_the_first_minibatch_of_masked_actions() -> None:
    settings = {"n_steps": 32, "n_minibatches": 1, "n_epochs": 1, "learning_rate": 0.1}
    metrics = PPO2(SMALL, masked_env(), seed=0, compile=False, **settings).learn(96).read_metrics()
    assert metrics["train/clip_fraction"] == 0
    assert metrics["train/approx_kl"] == pytest.approx(0.0, abs=1e-6)
    assert 0 < -metrics["train/entropy_loss"] <= np.log(3) + 1e-6


# Importance weights


def repeated(batch: dict[str, Any], counts: list[int]) -> dict[str, Any]:
    rows = np.repeat(np.arange(len(counts)), counts)
    return {name: transform(lambda column: column[:, rows], column) for name, column in batch.items()}


@pytest.mark.parametrize("make", [DQN, SAC, TD3, TQC, QRDQN])
def test_a_weight_counts_as_so_many_transitions(make: Any) -> None:
    is_continuous = make not in (DQN, QRDQN)
    env_id = "Pendulum-v1" if is_continuous else "CartPole-v1"
    settings = {} if is_continuous else {"max_grad_norm": None}
    settings = {"learning_starts": 100, "batch_size": 6, "learning_rate": 0.01, **settings}
    settings = {**settings, "buffer_size": 1000}
    is_soft = make in (SAC, TQC)
    counts = [2, 0, 1, 3, 0, 0]

    def after(weighted: bool) -> dict[str, np.ndarray]:
        model = make(SMALL, env_id, seed=0, compile=False, **settings).learn(80)
        batch = model._tensors(model.memory.sample(np.random.default_rng(0), (1, 6)))
        noise = torch.randn((1, 2, 6, 1), generator=torch.Generator().manual_seed(1))
        rows = {**batch, "noise": noise, "tau": torch.tensor([0.1])} if is_soft else dict(batch)
        if make is TD3:
            rows["noise"] = 0.2 * noise[:, 0]
        if weighted:
            rows["weights"] = torch.tensor([counts], dtype=torch.float32)
        else:
            rows = {**rows, **repeated(batch, counts)}
            if is_soft:
                rows["noise"] = noise[:, :, np.repeat(np.arange(6), counts)]
        if make is TD3:  # a round of one step of the critics
            rows = transform(lambda column: column[None], rows)
        model.learns_ent_coef = False  # its loss is no mean over transitions' errors
        step = model._round if make is TD3 else model._gradient_step
        model._take_steps(step, model.rates(0.0), rows)
        return model.get_parameters()

    ours, theirs = after(True), after(False)
    before = make(SMALL, env_id, seed=0, compile=False, **settings).get_parameters()
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, atol=1e-5, err_msg=name)
    assert any(np.abs(theirs[name] - before[name]).max() > 1e-3 for name in before)


# Natural gradients on a policy's parameters


class NaturalPolicy:
    """A small policy, observations, and the functions of its parameters that a natural gradient needs."""

    def __init__(self, env_id: str, *, compile: bool) -> None:
        env = make_vec_env(env_id, 1)
        torch.manual_seed(0)
        spaces = env.single_observation_space, env.single_action_space
        self.policy = ActorCritic(*spaces, PolicyConfig(net_arch=[3])).double()
        self.policy.encoder = nn.Identity()  # type: ignore[assignment]  # the encoder would make them single
        self.parameters = Parameters("policy", self.policy)
        runtime = Runtime(device="cpu", compile=compile, threads=1)
        self.program = Program(State({"policy": self.parameters.flat}), runtime)
        shape = (40, *env.single_observation_space.shape)
        self.observations = torch.randn(shape, dtype=torch.float64)
        self.advantages = torch.randn(40, dtype=torch.float64)
        head = self.policy.head
        with torch.no_grad():
            self.old = self.policy({"observations": self.observations})[0]
            noise = head.noise(np.random.default_rng(0), (40,))
            self.actions = torch.as_tensor(head.sample(self.old.numpy(), noise))

    def kl(self, vector: Tensor) -> Tensor:
        new = self.parameters.at(vector)({"observations": self.observations})[0]
        return self.policy.head.kl(self.old, new).mean()

    def objective(self, vector: Tensor) -> Tensor:
        new = self.parameters.at(vector)({"observations": self.observations})[0]
        head = self.policy.head
        ratio = (head.log_prob(new, self.actions) - head.log_prob(self.old, self.actions)).exp()
        return (ratio * self.advantages).mean()

    def explicit_fisher(self) -> Tensor:
        """Return the mean of E[∇log p ∇log pᵀ] over observations, as the Hessian of the KL at its minimum."""
        vector = self.parameters.flat.detach().clone()
        hessian = torch.autograd.functional.hessian(self.kl, vector)
        assert isinstance(hessian, Tensor)
        return hessian


@pytest.mark.parametrize("compile", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_natural_gradient_of_a_policy_against_its_explicit_fisher_matrix(env_id: str, compile: bool) -> None:
    """Also: parameters that the distribution does not depend on, the critic's, are left alone."""
    natural = NaturalPolicy(env_id, compile=compile)
    fisher = natural.explicit_fisher() + DAMPING * torch.eye(natural.parameters.size, dtype=torch.float64)
    start, bound = natural.parameters.flat.detach().clone(), 0.01

    def product(state: State, vector: Tensor) -> Tensor:
        at = state["policy"].detach().requires_grad_()
        outputs = natural.parameters.at(at)({"observations": natural.observations})[0]
        old, kl = outputs.detach(), natural.policy.head.kl
        return fisher_products(outputs, at, lambda new: kl(old, new).mean())(vector) + DAMPING * vector

    def gradient(state: State) -> Tensor:
        vector = state["policy"].detach().requires_grad_()
        return torch.autograd.grad(natural.objective(vector), vector)[0]

    def accepts(state: State, vector: Tensor) -> Tensor:
        improves = natural.objective(vector) > natural.objective(state["policy"])
        return improves & (natural.kl(vector) <= bound)

    call = natural.program.call
    direction = torch.randn(natural.parameters.size, dtype=torch.float64)
    torch.testing.assert_close(call(product, direction), fisher @ direction, rtol=1e-6, atol=1e-9)

    slope = call(gradient)
    step = conjugate_gradient(lambda vector: call(product, vector), slope, iterations=60, tolerance=1e-20)
    torch.testing.assert_close(step, torch.linalg.solve(fisher, slope), rtol=1e-4, atol=1e-7)
    for name, part in natural.parameters.slices.items():
        assert ("critic" not in name) or not step[part].any(), name

    full_step = step * (2 * bound / (step @ (fisher @ step))).sqrt()
    accepted, found = line_search(lambda vector: call(accepts, vector), start, full_step)
    assert found
    assert natural.kl(accepted) <= bound
    assert natural.objective(accepted) > natural.objective(start) + 1e-4


# Other optimizers and other workers


def test_a_second_optimizer_moves_the_same_parameters() -> None:
    """As behaviour cloning does, before or between the algorithm's own updates."""
    model = PPO2(SMALL, "CartPole-v1", n_envs=2, seed=0, compile=False, n_steps=16)
    cloning = Descent(model.descent.parameters, Adam(), name="cloning")
    program = Program(State({**model.program.state, **cloning.initial_state()}), model.runtime)
    assert program.state["policy"] is model.program.state["policy"]
    observations = torch.randn(64, 4)
    actions = (observations[:, 2] > 0).long()

    def step(state: State, shared: Any, learning_rate: Tensor) -> Any:
        from zoo.optim.state import Outcome

        policy = cloning.module(state)
        parameters = policy({"observations": observations})[0]
        loss = model.policy.head.imitation_loss(parameters, actions).mean()
        state, _ = cloning.descend(state, policy, loss, learning_rate)
        return Outcome(state, {"loss": loss.detach()})

    before = {name: tensor.clone() for name, tensor in model.program.state.items()}
    ran = program.run(step, {}, torch.full((300,), 0.01))
    assert ran.metrics.item() < 0.4
    assert (model.predict(observations.numpy())[0] == actions.numpy()).mean() > 0.95
    changed = [name for name, old in before.items() if not torch.equal(old, model.program.state[name])]
    assert changed == ["policy"]
    model.learn(64)


def test_averaged_gradients_of_two_parts_of_a_rollout_are_those_of_the_whole() -> None:
    def fresh() -> A2C:
        model = A2C(SMALL, "CartPole-v1", n_envs=2, seed=0, compile=False, n_steps=8, max_grad_norm=0.1)
        model.total_timesteps = 16
        model._reset_envs()
        model.collect()
        return model

    whole = fresh()
    rollout = whole.finished_rollout()
    rate = torch.tensor([50.0])
    gradients: list[Tensor] = []
    halves = [transform(lambda column, part=part: column[part], rollout) for part in (slice(8), slice(8, 16))]
    for half in halves:
        model = fresh()
        model.descent.average = lambda gradient: gradients.append(gradient) or gradient  # type: ignore[func-returns-value]
        model._take_steps(model._gradient_step, half, rate)
    worker = fresh()
    worker.descent.average = lambda gradient: (gradient + gradients[1]) / 2
    worker._take_steps(worker._gradient_step, halves[0], rate)
    start = copy.deepcopy(whole.get_parameters())
    whole._take_steps(whole._gradient_step, rollout, rate)
    for name, expected in whole.get_parameters().items():
        moved = np.abs(expected - start[name]).max()
        assert moved > 1e-4, name
        np.testing.assert_allclose(worker.get_parameters()[name], expected, atol=0.01 * moved, err_msg=name)
