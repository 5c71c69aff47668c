"""PPO on mirrored steps, and with a loss on means that are not symmetric."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from logged_envs import Logged
from torch import Tensor, distributions, nn

import zoo
from zoo import PPO1, PPO2, ZooError, ZooWarning, make_vec_env
from zoo.policies.actor_critic import ActorCritic, PolicyInput

N_STEPS, CLIP, RATE = 16, 0.1, 0.01
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
SIGNS = [1.0, -1.0, -1.0]


def flip(observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Change the signs of two observations, and exchange the actions."""
    return observations * observations.new_tensor(SIGNS), actions.flip(-1)


def narrow(observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    return observations[:, :2], actions


def lonely(observations: Tensor, actions: Tensor) -> Tensor:
    return observations


def flip_in_place(observations: Any, actions: Any) -> Any:
    observations *= -1.0
    actions *= -1.0
    return observations, actions


def opposite(observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    return -observations, -actions


number = 3


def next_choice(observations: Any, actions: Any) -> Any:
    return observations, actions + 1


def symmetry(function: Any = flip, **options: Any) -> dict[str, Any]:
    return {"_target_": function, **options}


def made(algorithm: Any = PPO2, policy: Any = None, actions: Any = BOX, **options: Any) -> Any:
    env = make_vec_env(
        lambda: Logged(actions=actions), 2, check=False, normalize=options.pop("normalize", False)
    )
    settings = {"n_steps": N_STEPS, "n_epochs": 2, "clip_range": CLIP, "learning_rate": RATE, "seed": 1}
    settings |= {"compile": False, "threads": 1, **options}
    return algorithm(policy or {"net_arch": [8]}, env, **settings)


# -- updates written out in double precision -------------------------------------------------------------


class Watched(PPO2):
    error = ""

    def update(self) -> None:
        if self.n_updates == 0:
            self._start, self._twin = copy.deepcopy(self.policy), copy.deepcopy(self.policy).double()
            self._adam = torch.optim.Adam(self._twin.parameters(), lr=RATE, eps=1e-5)
        rng = copy.deepcopy(self.rng)
        super().update()
        update_plainly(self, rng)

    def finished_rollout(self) -> Any:
        self._kept = dict(super().finished_rollout())
        return dict(self._kept)


def distribution(policy: Any, observations: Tensor) -> distributions.Independent:
    mean, log_std = policy.head(policy.actor(observations)).chunk(2, -1)
    return distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)


def update_plainly(model: Any, rng: Any) -> None:
    """Take the update on the rollout that the model had, in the twin; ``error`` is planted."""
    twin, error, options = model._twin, model.error, model.config.symmetry
    rollout = {name: column.double() for name, column in model._kept.items()}
    signs = torch.tensor(SIGNS, dtype=torch.float64)
    for batch in model.buffer.minibatch_rows(rng, model.config.n_epochs, *model._minibatches()):
        columns = {name: column[batch] for name, column in rollout.items()}
        observations, actions = columns["observations"], columns["actions"]
        mirrored, exchanged = observations * signs, actions[:, [1, 0]]
        advantages = columns["advantages"]
        standard = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        symmetry_loss = torch.zeros((), dtype=torch.float64)
        pairs = [(observations, actions, columns["log_prob"])]
        if options.get("mode") == "loss":
            target = distribution(twin, observations).mean[:, [1, 0]]
            target = target if error == "target learns" else target.detach()
            symmetry_loss = ((distribution(twin, mirrored).mean - target) ** 2).mean()
        else:
            exchanged = actions if error == "actions stay" else exchanged
            old = columns["log_prob"]
            if error == "own log-probabilities":
                with torch.no_grad():
                    old = distribution(model._start.double(), mirrored).log_prob(exchanged)
                    model._start.float()
            pairs.append((mirrored, exchanged, old))
        surrogates, value_losses = [], []
        for seen, done, old in pairs:
            ratio = (distribution(twin, seen).log_prob(done) - old).exp()
            surrogates.append(torch.min(ratio * standard, ratio.clamp(1 - CLIP, 1 + CLIP) * standard))
            values = twin.critic(seen).squeeze(-1)
            clipped = columns["values"] + (values - columns["values"]).clamp(-CLIP, CLIP)
            returns = columns["returns"]
            value_losses.append(torch.max((values - returns) ** 2, (clipped - returns) ** 2))
        loss = 0.25 * torch.cat(value_losses).mean() - torch.cat(surrogates).mean()
        loss = loss - 0.01 * distribution(twin, observations).entropy().mean()
        loss = loss + options.get("coef", 0.25) * symmetry_loss
        model._adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        model._adam.step()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ""),
        ({}, "actions stay"),
        ({}, "own log-probabilities"),
        ({"mode": "loss", "coef": 0.5}, ""),
        ({"mode": "loss", "coef": 0.5}, "target learns"),
    ],
    ids=str,
)
def test_update_as_written_out(options: dict[str, Any], error: str) -> None:
    model = made(type("Watched", (Watched,), {"error": error}), symmetry=symmetry(**options)).learn(32)
    triples = zip(*(net.parameters() for net in (model.policy, model._twin, model._start)), strict=True)
    difference = max(((a - b).abs().max() / (b - c).abs().max()).item() for a, b, c in triples)
    assert (difference > 1e-2) if error else (difference < 1e-3)
    assert ("train/symmetry_loss" in model.read_metrics()) == ("mode" in options)


# -- a symmetric policy ----------------------------------------------------------------------------------


class Equivariant(ActorCritic):
    """Acts in mirrored states by mirrored actions, and values them alike: means over both."""

    def forward(self, inputs: PolicyInput, state: Any = None) -> tuple[Tensor, Tensor, Tensor | None]:
        parameters, values, _ = super().forward(inputs, state)
        observations = inputs["observations"]
        mirrored = {**inputs, "observations": observations * observations.new_tensor(SIGNS)}
        others, other_values, _ = super().forward(mirrored, state)
        mean, log_std = (
            (one + other.flip(-1)) / 2
            for one, other in zip(parameters.chunk(2, -1), others.chunk(2, -1), strict=True)
        )
        return torch.cat([mean, log_std], -1), (values + other_values) / 2, None

    def action_parameters(self, inputs: PolicyInput, state: Any = None) -> tuple[Tensor, Tensor | None]:
        return self(inputs, state)[0], None

    def values(self, inputs: PolicyInput, state: Any = None) -> Tensor:
        return self(inputs, state)[1]


@pytest.mark.parametrize("algorithm", [PPO2, PPO1])
def test_symmetric_policy_gains_nothing_by_mirroring(algorithm: Any) -> None:
    policy = {"net_arch": [8], "_target_": f"{__name__}.Equivariant"}
    sizes = {"batch_size": 8, "adam_eps": 1e-2}
    plain = made(algorithm, policy, **sizes).learn(32)
    augmented = made(algorithm, policy, symmetry=symmetry(), **sizes).learn(32)
    penalised = made(algorithm, policy, symmetry=symmetry(mode="loss", coef=10.0), **sizes).learn(32)
    start = made(algorithm, policy, **sizes).get_parameters()
    for name, expected in plain.get_parameters().items():
        assert np.abs(expected - start[name]).max() > 1e-4
        for model in (augmented, penalised):
            np.testing.assert_allclose(model.get_parameters()[name], expected, atol=1e-5)
    assert penalised.read_metrics()["train/symmetry_loss"] < 1e-12
    usual = made(algorithm, symmetry=symmetry(), **sizes).learn(32).get_parameters()
    other = made(algorithm, **sizes).learn(32).get_parameters()
    assert max(np.abs(usual[name] - other[name]).max() for name in usual) > 1e-3


def test_loss_makes_means_symmetric() -> None:
    model = made(symmetry=symmetry(mode="loss", coef=20.0), n_epochs=20, policy={"net_arch": [32]})
    with torch.no_grad():
        model.policy.head.mean.weight.mul_(100)  # means are all near 0 at first
    observations = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))

    def asymmetry() -> float:
        with torch.no_grad():
            means = [
                model.policy({"observations": seen})[0][:, :2]
                for seen in (observations, flip(observations, observations)[0])
            ]
        return float((means[0].flip(-1) - means[1]).square().mean())

    before = asymmetry()
    model.learn(640)
    assert asymmetry() < 0.2 * before


# -- spaces, normalisation, files, errors ----------------------------------------------------------------


class Shifted(Logged):
    """The same, with observations whose mean is 5, which are kept."""

    drawn: ClassVar[list[np.ndarray]] = []

    def _drawn(self) -> np.ndarray:
        self.drawn.append(super()._drawn() + np.float32(5.0))
        return self.drawn[-1]


SEEN: list[np.ndarray] = []


def watching(observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    SEEN.extend(observations.numpy().copy())
    return flip(observations, actions)


@pytest.mark.parametrize("normalize", [False, True])
def test_function_sees_observations_of_the_env(normalize: bool) -> None:
    """Also those of the first rollout, whose steps are normalised by statistics of few observations."""
    Shifted.drawn.clear()
    SEEN.clear()
    env = make_vec_env(lambda: Shifted(actions=BOX), 2, check=False, normalize=normalize)
    model = PPO2({"net_arch": [8]}, env, n_steps=N_STEPS, symmetry=symmetry(watching), compile=False).learn(
        32
    )
    assert len(SEEN) == 32
    assert all(any(np.array_equal(row, drawn) for drawn in Shifted.drawn) for row in SEEN)
    rollout: Any = model.collected()
    assert model.mirror is not None
    mirrored = model.mirror.mirrored(rollout)
    expected = np.stack(SEEN[-32:]) * SIGNS
    if model.normalizer is not None:
        expected = model.normalizer.normalize_observations(expected.astype(np.float32))
    np.testing.assert_allclose(mirrored["observations"], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(mirrored["actions"], rollout["actions"].flip(-1))


def swap(observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    return -observations, 2 - actions


OTHERS: dict[str, dict[str, Any]] = {
    "discrete": {"actions": spaces.Discrete(3), "symmetry": symmetry(swap)},
    "all": {
        "desired_kl": 0.01,
        "rpo_alpha": 0.1,
        "value_normalization": True,
        "symmetry": symmetry(),
    },
    "loss with all": {
        "desired_kl": 0.01,
        "rpo_alpha": 0.1,
        "target_kl": 1.0,
        "symmetry": symmetry(mode="loss"),
    },
}


@pytest.mark.parametrize("case", OTHERS)
def test_same_seed_saves_and_loads(case: str, tmp_path: Path) -> None:
    model, again = (made(**OTHERS[case]).learn(64) for _ in range(2))
    path = model.save(tmp_path / "agent")
    with pytest.warns(ZooWarning, match=r"without `algo\.symmetry`.*trust=true"):
        actor: Any = zoo.load(path)
    assert actor.config.symmetry is None
    loaded: Any = zoo.load(path, trust=True)
    assert loaded.config.symmetry["_target_"].startswith("test_symmetry.")
    for name, values in model.get_parameters().items():
        np.testing.assert_array_equal(again.get_parameters()[name], values)
        np.testing.assert_allclose(loaded.get_parameters()[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["augment", "loss"])
def test_function_may_change_its_arguments(mode: str) -> None:
    first, second = (
        made(symmetry=symmetry(function, mode=mode)).learn(64).get_parameters()
        for function in (flip_in_place, opposite)
    )
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"symmetry": {"mode": "loss"}}, "needs the function"),
        ({"symmetry": symmetry("test_symmetry.flop")}, "did you mean 'flip'"),
        ({"symmetry": symmetry(mode="both")}, "mode"),
        ({"symmetry": symmetry(weight=1.0)}, "weight"),
        ({"symmetry": symmetry(coef=7.0)}, "mode=loss"),
        ({"symmetry": symmetry(mode="loss"), "actions": spaces.Discrete(3)}, "is for Box actions"),
        ({"symmetry": symmetry(), "policy": {"recurrent": "lstm"}, "chunk_length": 4}, "recurrent"),
        ({"symmetry": symmetry("test_symmetry.number")}, "no function"),
        ({"symmetry": symmetry(narrow)}, "narrow returned"),
        ({"symmetry": symmetry(lonely)}, "lonely returned"),
        ({"symmetry": symmetry(next_choice), "actions": spaces.Discrete(3)}, "next_choice returned actions"),
    ],
)
def test_errors_name_the_key(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message) as caught:
        made(**options).learn(32)
    assert "`algo.symmetry" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_masks_are_refused() -> None:
    with pytest.raises(ZooError, match=r"`algo\.symmetry`.*masks"):
        PPO2(env="Zoo/Masked-v0", symmetry=symmetry(swap), compile=False).learn(32)
