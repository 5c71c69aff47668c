"""What the first of two workers does with what the other says: by numbers written by hand."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from zoo.algorithms.team import EPISODES, METRICS, Team
from zoo.envs.monitor import EpisodeRecord


class Two:
    """Stands for two workers, of which this is the first, and the other says what it is told to."""

    rank, size, n_here, is_first = 0, 2, 2, True

    def __init__(self, totals: tuple[float, ...] = (), value: Any = None) -> None:
        self.other_totals, self.other_value = totals, value
        self.orders: list[str] = []
        self.n_rows = 0

    def totals(self, *numbers: float) -> list[float]:
        return [float(one + other) for one, other in zip(numbers, self.other_totals, strict=True)]

    def rows(self, vector: Any) -> Any:
        self.n_rows += 1
        return np.stack([vector, vector])

    def gathered(self, value: Any) -> list[Any]:
        return [value, self.other_value]

    def order(self, name: str) -> None:
        self.orders.append(name)

    def spread(self, tensors: list[torch.Tensor]) -> None:
        assert all(each.dtype != torch.bool for each in tensors), "these can't be sent"
        for each in tensors:
            each.fill_(1)


class Member:
    """What a team needs of an algorithm, with three environments."""

    def __init__(self) -> None:
        self.n_envs, self.num_timesteps = 3, 0
        self.envs: Any = SimpleNamespace(start=100.0, monitor=None)
        self.normalizer: Any = None
        self.interaction: Any = SimpleNamespace(show_again=lambda: None)
        self.all_tensors = {"weights": torch.full((2,), 0.5), "frozen": torch.tensor([False, True])}
        self.noted: list[EpisodeRecord] = []

    def tensors(self) -> dict[str, torch.Tensor]:
        return self.all_tensors

    def take_note_of(self, episode: EpisodeRecord) -> None:
        self.noted.append(episode)

    def read_own_metrics(self) -> dict[str, float]:
        return {}

    def own_barrier(self) -> None:
        pass


def record(env_index: int, seconds: float) -> EpisodeRecord:
    return EpisodeRecord(env_index, 5.0, 7, seconds)


def test_a_total_is_that_of_all_workers() -> None:
    member = Member()
    assert Team(member).total(4) == 4
    assert Team(member, Two((5,))).total(4) == 9  # type: ignore[arg-type]


def test_all_begin_with_the_tensors_of_the_first_also_with_those_of_bits() -> None:
    member = Member()
    Team(member, Two()).begin()  # type: ignore[arg-type]
    assert member.all_tensors["weights"].tolist() == [1.0, 1.0]
    assert member.all_tensors["frozen"].tolist() == [True, True]


@pytest.mark.parametrize(("own", "other"), [(False, 0), (False, 1), (True, 0), (True, 1)])
def test_a_signal_to_one_is_a_signal_to_all(own: bool, other: int) -> None:
    member = Member()
    assert Team(member, Two((other, 0))).has_collected(own) == (own or other > 0)  # type: ignore[arg-type]


def test_statistics_are_shared_when_steps_come_to_a_power_of_two() -> None:
    member, workers, shared = Member(), Two(), []
    member.normalizer = SimpleNamespace(take_in=lambda rows: None, seen_since=lambda: np.zeros(1))
    team = Team(member, workers)  # type: ignore[arg-type]
    for steps in range(6, 40, 6):
        before, member.num_timesteps = member.num_timesteps, steps
        n_rows = workers.n_rows
        team.has_stepped(before)
        shared += [steps] if workers.n_rows > n_rows else []
    assert shared == [6, 12, 18, 36]


def test_episodes_are_asked_for_once_some_have_ended() -> None:
    member = Member()
    others = [120.0, [asdict(record(1, 4.0))]]
    workers = Two((0, 1), others)
    team = Team(member, workers)  # type: ignore[arg-type]
    team.hear_episodes()
    assert not workers.orders, "nothing has ended yet"
    team.take([record(2, 30.0)])
    team.has_collected(False)
    team.hear_episodes()
    assert workers.orders == [EPISODES]
    assert [(each.env_index, each.seconds) for each in member.noted] == [(2, 30.0), (3 + 1, 4.0 + 20.0)]
    team.hear_episodes()
    assert workers.orders == [EPISODES], "they have told all"


def test_scalars_are_means_over_the_workers_that_have_recorded_them() -> None:
    member = Member()
    workers = Two(value={"loss": 4.0, "its own": 3.0})
    team = Team(member, workers)  # type: ignore[arg-type]
    assert team.hear_metrics({"loss": 1.0, "own": 5.0}) == {"loss": 2.5, "own": 5.0, "its own": 3.0}
    assert workers.orders == [METRICS]
