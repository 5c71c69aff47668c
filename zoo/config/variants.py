"""Configs that have other values beside their own, depending on one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Variants:
    """A config with other values beside its own, depending on one of these: its subclasses are the variants.

    A class that lies between this one and the variants declares what all of them have.
    """

    @classmethod
    def variant(cls, values: Mapping[str, Any], where: str) -> type[Any]:
        """Return the class of a config with these values. Raises `ZooError` if there is none."""
        raise NotImplementedError


def variant_of(config_class: type[Any], values: Mapping[str, Any], where: str = "") -> type[Any]:
    """Return the class of a config with these values: of most configs ``config_class`` itself."""
    return config_class.variant(values, where) if issubclass(config_class, Variants) else config_class


def common_class(config_class: type[Any]) -> type[Any]:
    """Return the class that declares what all variants of a config have."""
    return next((each for each in config_class.__mro__ if Variants in each.__bases__), config_class)
