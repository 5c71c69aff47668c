"""The words in which algorithms declare the search space of `zoo tune`.

``ranges("log falling", learning_rate=(1e-5, 1e-2))`` is a learning rate between these bounds, drawn on a
logarithmic scale, either constant or falling to zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SCALES: dict[str, dict[str, Any]] = {
    "even": {},
    "log": {"log": True},
    "complement": {"complement": True},
    "powers": {"powers_of": 2},
    "falling": {"schedules": ["constant", "linear"]},
}
"""Options of a dimension by the words that `ranges` takes: ``complement`` is of 1 − value."""


def ranges(scale: str, at_most: Sequence[Any] = (), **bounds: tuple[float, float]) -> dict[str, Any]:
    """Return dimensions with bounds; between integers they are integers. ``scale`` has words of `SCALES`.

    No value is larger than the product of ``at_most``, of settings' names and numbers.
    """
    options = {key: value for word in scale.split() for key, value in SCALES[word].items()}
    if at_most:
        options["at_most"] = [*at_most]
    return {
        name: {"type": "int" if isinstance(low, int) else "float", "low": low, "high": high, **options}
        for name, (low, high) in bounds.items()
    }


def choices(**values: Any) -> dict[str, Any]:
    """Return categorical dimensions; lists and mappings among their values have names."""
    return {name: {"type": "categorical", "choices": listed} for name, listed in values.items()}


def searched(base: Mapping[str, Any], *dimensions: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Return ``base`` with these dimensions of ``algo``, without those that are None, with other sections."""
    of_algo = dict(base["algo"])
    for added in dimensions:
        of_algo |= added
    return {**base, "algo": {name: row for name, row in of_algo.items() if row}, **sections}


NET_ARCHS = {"default": None, "small": [64, 64], "medium": [256, 256]}
NETWORKS = choices(net_arch=NET_ARCHS, activation=[None, "tanh", "relu"])
"""Dimensions of most policies."""
