"""Classes of the user's own, which a config names by ``_target_``."""

from __future__ import annotations

from typing import Any, TypeVar

from zoo.config.own_modules import import_own
from zoo.errors import ZooError, nearest

Base = TypeVar("Base")


def own_class(where: str, target: str, base: type[Base]) -> type[Base]:
    """Return the class ``module.Class``. Raises `ZooError` if there is none, or it is no subclass of base."""
    module_name, _, class_name = target.rpartition(".")
    try:
        module = import_own(module_name)
    except (ImportError, ValueError) as error:
        raise ZooError(f"`{where}._target_={target}`: can't import `{module_name}`: {error}") from error
    found: Any = getattr(module, class_name, None)
    if found is None:
        hint = nearest(class_name, vars(module))
        raise ZooError(f"`{where}._target_={target}`: {module_name} has no `{class_name}`{hint}")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ZooError(
            f"`{where}._target_={target}` is not a subclass of {base.__module__}.{base.__qualname__}"
        )
    return found
