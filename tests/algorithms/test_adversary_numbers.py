"""What the discriminator counts, how much it looks at, and at what: numbers written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_adversary import expert_of, judge


@pytest.mark.parametrize(("width", "rows"), [(3, 5_592_405), (2**16, 256)])
def test_one_pass_is_of_16_mebi_numbers(width: int, rows: int) -> None:
    space = spaces.Box(-1.0, 1.0, (width,), np.float32)
    adversary = judge(expert_of(observation_space=space, lengths=(1,)), d_net_arch=[1])
    assert adversary._rows_at_once == rows


def test_a_number_that_never_changes_is_divided_by_a_hundredth() -> None:
    """The root of the smallest variance: what differs by a hundredth differs by 1 then."""
    n = 12_000
    data = expert_of(lengths=(n,), observations=np.full((n, 3), 0.5, np.float32))
    shown = judge(data)._shown(np.array([[0.5, 0.51, 0.48]], np.float32))
    np.testing.assert_allclose(shown, [[0.0, 1.0, -2.0]], rtol=1e-3, atol=1e-4)


def test_a_logit_of_zero_is_right_about_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    adversary = judge(d_gradient_penalty=0.0)
    logits = torch.tensor([-2.0, -1.0, 0.0, 1.0, -1.0, 0.0, 0.0, 2.0])
    monkeypatch.setattr(adversary, "logits", lambda network, numbers, shared: logits)
    nothing = {"seen": torch.zeros(4, 3)}
    _, metrics = adversary.loss(None, nothing, nothing, None, {})
    assert metrics["policy_accuracy"].item() == 2 / 4
    assert metrics["expert_accuracy"].item() == 1 / 4


def test_one_step_of_the_policy_may_be_shown_beside_the_state_after_its_end() -> None:
    adversary = judge(absorbing_states=True)
    policy: dict[str, Any] = {"observations": np.ones((1, 3), np.float32), "actions": np.ones(1, np.int64)}
    rng = np.random.default_rng(0)
    rows = adversary.minibatches(policy, 3, (1, 4), rng, lambda vector: vector[None])
    assert sorted(rows["policy"]["absorbing"].reshape(-1).tolist()) == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("d_normalize", [True, False])
def test_state_after_an_end_is_judged_by_its_mark_alone(d_normalize: bool) -> None:
    """All else that the discriminator reads is 0; −log(1 − D) is log(1 + e^logit)."""
    adversary = judge(absorbing_states=True, d_normalize=d_normalize)
    with torch.no_grad():
        for parameter in adversary.discriminator.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(7))
        pair = torch.tensor([[0.0] * 5 + [1.0]])  # three numbers seen, one of two choices, the mark
        logit = adversary.discriminator.layers(pair).item()
    assert adversary.absorbing_reward() == pytest.approx(np.log1p(np.exp(logit)), rel=1e-5)
