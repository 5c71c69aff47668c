"""What `help` shows of hyperparameters, of a declaration written here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from zoo.algorithms.constructor_help import described, signature_of
from zoo.config.fields import hyperparameter


@dataclass
class Config:
    rate: float = hyperparameter(0.5, "how fast", unit="steps", gt=0, le=1)
    words: int = hyperparameter(1, " ".join("a" * 120))
    kind: str = hyperparameter("one", "which of both", choices=("one", "two"))


class Base:
    def __init__(self, policy: str, *, seed: int | None = None, **hyperparameters: Any) -> None: ...


class Own(Base):
    def __init__(self, own: int, **options: Any) -> None: ...


class Closed(Base):
    def __init__(self, own: int, rate: float = 0.1) -> None: ...


def test_hyperparameters_are_described_one_after_the_other() -> None:
    lines = described(Config).splitlines()
    assert lines[0] == "Hyperparameters:"
    assert lines[1] == "    rate (float, default 0.5, > 0, ≤ 1): how fast [steps]"
    assert lines[-1] == "    kind (str, default 'one', one of 'one', 'two'): which of both"


def test_lines_of_help_have_at_most_a_hundred_characters() -> None:
    """Indented by an even number of them, words of one letter fill 99; another would need 101."""
    lines = [line for line in described(Config).splitlines() if line.endswith("a a")]
    assert [len(line) for line in lines[:2]] == [99, 99]
    assert sum(line.split().count("a") for line in lines) == 120


def test_arguments_of_all_classes_come_before_the_hyperparameters() -> None:
    names = list(signature_of(Own, Config).parameters)
    assert names == ["own", "policy", "seed", "rate", "words", "kind"]
    assert signature_of(Own, Config).parameters["rate"].default == 0.5
    assert signature_of(Own, Config).parameters["rate"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_constructor_that_hands_nothing_on_is_shown_as_it_is() -> None:
    assert list(signature_of(Closed, Config).parameters) == ["own", "rate"]
