"""Natural gradients against an explicit Fisher matrix, and projected slopes against a numerical optimum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from zoo.optim.natural_gradient import (
    Product,
    conjugate_gradient,
    fisher_vector_product,
    line_search,
    longest_step,
    projected,
)
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.runtime import Runtime
from zoo.optim.update_runner import State, StepResult, UpdateRunner

DAMPING = 0.1


class Policy:
    """Three actions by a small network, beside a critic that the distribution does not depend on."""

    def __init__(self, *, compiled: bool) -> None:
        torch.manual_seed(0)
        actor = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        module = nn.ModuleDict({"actor": actor, "critic": nn.Linear(3, 1)})
        self.parameters = Parameters("policy", _Actor(module))
        self.updater = Updater(self.parameters, Adam())
        self.runner = UpdateRunner(
            self.updater.initial_state(), Runtime(device="cpu", compile=compiled, threads=1)
        )
        self.observations = torch.randn(20, 3)
        self.actions = torch.randint(3, (20,))
        self.advantages = torch.randn(20)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return (old.exp() * (old - new.log_softmax(-1))).sum(-1).mean()

    def old(self, state: State, observations: Tensor) -> Tensor:
        return self.parameters.functional(state["policy"])(observations).log_softmax(-1).detach()

    def products(self, state: State, observations: Tensor) -> Product:
        vector = state["policy"].detach().requires_grad_()
        logits = self.parameters.functional(vector)(observations)
        product = fisher_vector_product(logits, vector, partial(self.kl, self.old(state, observations)))
        return lambda direction: product(direction) + DAMPING * direction

    def product(self, state: State, observations: Tensor, direction: Tensor) -> Tensor:
        return self.products(state, observations)(direction)

    def solution(self, state: State, observations: Tensor, right_side: Tensor) -> Tensor:
        return conjugate_gradient(self.products(state, observations), right_side, 3)

    def surrogate(self, vector: Tensor, batch: dict[str, Tensor]) -> Tensor:
        log_prob = self.parameters.functional(vector)(batch["observations"]).log_softmax(-1)
        return (log_prob.gather(-1, batch["actions"][:, None])[:, 0] * batch["advantages"]).mean()

    def natural_step(self, state: State, shared: Any, target_kl: Tensor) -> StepResult:
        """Take a step of TRPO."""
        observations, start = shared["observations"], state.snapshot("policy")
        old = self.old(state, observations)
        module = self.updater.module(state)
        log_prob = module(observations).log_softmax(-1)
        gain = (log_prob.gather(-1, shared["actions"][:, None])[:, 0] * shared["advantages"]).mean()
        gradient = self.updater.gradient(module, gain)
        product = self.products(state, observations)
        step = longest_step(conjugate_gradient(product, gradient, 2), product, target_kl)

        def accepts(vector: Tensor) -> Tensor:
            is_near = self.kl(old, self.parameters.functional(vector)(observations)) < target_kl
            return is_near & (self.surrogate(vector, shared) > gain.detach())

        vector, found = line_search(accepts, start, step, attempts=2)
        metrics = {
            "gain": gain,
            "found": torch.tensor(float(found)),
            "kl": self.kl(old, self.parameters.functional(vector)(observations)),
        }
        return StepResult(state.replaced({"policy": vector}), metrics, {"old": old})

    def explicit_fisher(self) -> Tensor:
        """Return Σ p(a) ∇log p(a) ∇log p(a)ᵀ, averaged over the observations, row by row."""
        vector = self.parameters.flat.clone().requires_grad_()
        fisher = torch.zeros(len(vector), len(vector))
        for observation in self.observations:
            log_prob = self.parameters.functional(vector)(observation).log_softmax(-1)
            for one in log_prob:
                (score,) = torch.autograd.grad(one, vector, retain_graph=True)
                fisher += one.exp().detach() * torch.outer(score, score)
        return fisher / len(self.observations)


class _Actor(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, observations: Tensor) -> Tensor:
        return self.parts["actor"](observations)


COMPILED = pytest.mark.parametrize("compiled", [False, True])


@COMPILED
def test_fisher_products_match_the_explicit_matrix(compiled: bool) -> None:
    policy = Policy(compiled=compiled)
    fisher = policy.explicit_fisher() + DAMPING * torch.eye(policy.parameters.size)
    for _ in range(3):
        vector = torch.randn(policy.parameters.size)
        found = policy.runner.call(policy.product, policy.observations, vector)
        torch.testing.assert_close(found, fisher @ vector, rtol=1e-4, atol=1e-5)
    assert policy.runner.runtime.compile == compiled
    assert not found.requires_grad


@pytest.mark.parametrize(("compiled", "is_short"), [(False, True), (False, False), (True, False)])
def test_conjugate_gradient_matches_explicit_solution(compiled: bool, is_short: bool) -> None:
    policy = Policy(compiled=compiled)
    fisher = policy.explicit_fisher() + DAMPING * torch.eye(policy.parameters.size)
    right_side = fisher @ torch.randn(policy.parameters.size)
    if is_short:
        found = policy.runner.call(policy.solution, policy.observations, right_side)
        expected = conjugate_gradient(lambda vector: fisher @ vector, right_side, 3)
    else:
        product = partial(policy.runner.call, policy.product, policy.observations)
        found = conjugate_gradient(product, right_side, 40, 1e-12)
        expected = torch.linalg.solve(fisher, right_side)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert policy.runner.runtime.compile == compiled


@pytest.mark.parametrize("bound", [1e-3, 1e-5])
def test_longest_step_reaches_the_kl_bound(bound: float) -> None:
    """Along a direction of full rank, without damping: the shorter the step, the better."""
    policy = Policy(compiled=False)
    old = policy.old(State(policy.runner.state), policy.observations)
    product = policy.products(State(policy.runner.state), policy.observations)
    direction = torch.ones(policy.parameters.size)
    step = longest_step(direction, lambda vector: product(vector) - DAMPING * vector, bound)
    moved = policy.parameters.functional(policy.parameters.flat + step)(policy.observations)
    assert policy.kl(old.double(), moved.double()).item() == pytest.approx(bound, rel=10 * bound**0.5)


def test_natural_steps_gain_within_the_bound() -> None:
    policy = Policy(compiled=False)
    shared = {name: getattr(policy, name) for name in ("observations", "actions", "advantages")}
    gains = []
    for _ in range(3):
        gain, found, kl = policy.runner.run(policy.natural_step, shared, torch.tensor([0.01])).metrics
        gains.append(float(gain))
        assert found == 1
        assert 0.001 < kl < 0.01
    assert gains == sorted(gains)


def test_a_singular_product_gives_finite_numbers() -> None:
    assert _singular(torch.tensor([3.0, 1.0])).isfinite().all()
    # With no curvature at all after the first step, that is where it ends.
    assert torch.equal(_singular(torch.tensor([1.0, 1.0])), torch.tensor([2.0, 2.0]))
    assert torch.equal(_singular(torch.tensor([3.0, 0.0])), torch.tensor([3.0, 0.0]))
    assert torch.equal(_singular(torch.tensor([0.0, 0.0])), torch.zeros(2))


def _singular(right_side: Tensor) -> Tensor:
    return conjugate_gradient(lambda vector: vector * torch.tensor([1.0, 0.0]), right_side, 4)


def test_line_search_takes_the_first_that_is_accepted() -> None:
    asked = []

    def search(start: Tensor, limit: float) -> tuple[Tensor, bool]:
        def accepts(vector: Tensor) -> Tensor:
            asked.append(vector)
            return vector.sum() < limit

        return line_search(accepts, start, torch.tensor([4.0]), shrink=0.5, attempts=4)

    for limit, expected, tries in [(9.0, 5.0, 1), (3.5, 3.0, 2), (2.1, 2.0, 3), (0.5, 1.0, 4)]:
        asked.clear()
        vector, found = search(torch.ones(1), limit)
        assert vector.item() == expected
        assert found == (expected > 1.0)
        assert len(asked) == tries


@pytest.mark.parametrize("bound", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_nearest_that_is_allowed(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    grads, normals = rng.normal(size=(2, 2, 3, 4))
    found = projected(torch.tensor(grads), torch.tensor(normals), bound).numpy()
    for grad, normal, z in zip(*(each.reshape(-1, 4) for each in (grads, normals, found)), strict=True):
        limit = {"type": "ineq", "fun": lambda z, normal=normal: bound - normal @ z}
        options = {"constraints": [limit], "options": {"ftol": 1e-14}}
        best = minimize(lambda z, g=grad: ((g - z) ** 2).sum(), np.zeros(4), (), "SLSQP", **options)
        np.testing.assert_allclose(z, best.x, atol=1e-5)
        if normal @ grad > bound:
            assert normal @ z == pytest.approx(bound)
        else:
            np.testing.assert_array_equal(z, grad)
