"""What a trial is worth: a number for each objective, from the evaluations of its trainings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from zoo.errors import ZooError, nearest
from zoo.training.evaluation import Evaluation
from zoo.training.statistics import iqm

Direction = Literal["minimize", "maximize"]


class NoSuccessError(ZooError):
    """The environment does not say whether an episode was a success: no trial can have a success rate."""


@dataclass
class Training:
    """What one training of a trial has shown so far."""

    n_timesteps: int
    """Steps that it would take to its end."""
    evaluations: list[tuple[int, Evaluation]] = field(default_factory=list)
    """Each evaluation, after so many environment steps."""
    steps_per_second: float = 0.0

    def add(self, steps: int, evaluation: Evaluation) -> None:
        """Take in an evaluation, unless it is the latest once more."""
        if not self.evaluations or self.evaluations[-1][0] != steps:
            self.evaluations.append((steps, evaluation))

    @property
    def last(self) -> Evaluation:
        """The latest evaluation."""
        return self.evaluations[-1][1]


Trainings = Sequence[Training]


def returns_of(trainings: Trainings) -> np.ndarray:
    """Return the returns of the last evaluations of all trainings."""
    return np.concatenate([each.last.returns for each in trainings])


def steps_to(threshold: float, training: Training) -> float:
    """Return the environment steps to the first evaluation whose mean return is at least ``threshold``.

    One that does not come there gets more than all its steps, the more the farther its best stays away, and
    never more than twice as many.
    """
    for steps, evaluation in training.evaluations:
        if evaluation.mean >= threshold:
            return float(steps)
    best = max(evaluation.mean for _, evaluation in training.evaluations)
    missing = (threshold - best) / max(abs(threshold), 1.0)
    return training.n_timesteps * (1 + missing / (1 + missing))


def _success_rate(trainings: Trainings) -> float:
    successes = [each.last.successes for each in trainings]
    if any(each is None for each in successes):
        raise NoSuccessError(
            "objective=success_rate: the environment does not say whether an episode was a success"
            " (`is_success` or `success` in the info of its last step)"
        )
    return float(np.concatenate([each for each in successes if each is not None]).mean())


def _speed(trainings: Trainings) -> float:
    return float(np.mean([each.steps_per_second for each in trainings]))


_SCORES: dict[str, Callable[[Trainings], float]] = {
    "mean_return": lambda trainings: float(returns_of(trainings).mean()),
    "iqm": lambda trainings: float(iqm(returns_of(trainings))),
    "success_rate": _success_rate,
    "steps_per_second": _speed,
}
TO_THRESHOLD = "time_to_threshold"
OBJECTIVES = ("mean_return", "iqm", "success_rate", TO_THRESHOLD, "steps_per_second")


class Objective:
    """One or several objectives by name, and the direction in which each is better."""

    def __init__(self, names: str | Sequence[str], threshold: float | None = None) -> None:
        self.names = [names] if isinstance(names, str) else list(names)
        self.threshold = threshold
        for name in self.names:
            if name not in OBJECTIVES:
                hint = nearest(name, OBJECTIVES)
                raise ZooError(f"`objective={name}` is not one of {', '.join(OBJECTIVES)}{hint}")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ZooError(f"`objective={self.names}`: expected one objective, or several different ones")
        if TO_THRESHOLD in self.names and threshold is None:
            raise ZooError(f"objective={TO_THRESHOLD} needs the mean return to reach: threshold=475")
        if TO_THRESHOLD not in self.names and threshold is not None:
            raise ZooError(f"`threshold` is of use with objective={TO_THRESHOLD} only")

    @property
    def is_single(self) -> bool:
        """Whether there is one objective, by which a trial can be ended early."""
        return len(self.names) == 1

    @property
    def directions(self) -> list[Direction]:
        """Whether more or less is better, for each."""
        return ["minimize" if name == TO_THRESHOLD else "maximize" for name in self.names]

    def values(self, trainings: Trainings) -> list[float]:
        """Return what these trainings are worth. Raises `NoSuccessError`."""
        return [self._value(name, trainings) for name in self.names]

    def samples(self, training: Training) -> list[float]:
        """Return the numbers of one training by whose middle its values are ranked on fresh seeds."""
        name = self.names[0]
        if name == TO_THRESHOLD:
            return [self._value(name, [training])]
        if name == "success_rate":
            _success_rate([training])
            successes: Any = training.last.successes
            return [float(each) for each in successes]
        if name == "steps_per_second":
            return [training.steps_per_second]
        return [float(each) for each in training.last.returns]

    @property
    def ranks_by_mean(self) -> bool:
        """Whether fresh seeds are compared by the mean of their samples, else by the interquartile mean."""
        return self.names[0] in ("success_rate", TO_THRESHOLD, "steps_per_second")

    def _value(self, name: str, trainings: Trainings) -> float:
        if name == TO_THRESHOLD:
            assert self.threshold is not None
            return float(np.mean([steps_to(self.threshold, each) for each in trainings]))
        return _SCORES[name](trainings)
