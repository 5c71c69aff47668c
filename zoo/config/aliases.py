"""The names that Stable-Baselines and other libraries use, and hints for unknown keys."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import yaml

from zoo.errors import ZooError, nearest_name

_TABLES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("names_elsewhere.yaml").read_text(encoding="utf-8")
)
NAMES = _TABLES["settings"]
"""Settings and arguments elsewhere, with their path in the config here, or a sentence of what to use."""
ALGORITHMS = _TABLES["algorithms"]
ENV_ATTRIBUTES = _TABLES["environments"]
ATTRIBUTES = _TABLES["models"]
CALLBACK_METHODS = _TABLES["callbacks"]
PUBLIC_NAMES = _TABLES["imports"]
RL_ZOO3 = _TABLES["rl_zoo3"]
HYDRA = _TABLES["hydra"]

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

CLOSE, VERY_CLOSE = 0.6, 0.8
"""Similarity from which a name may be meant by another, and from which it is preferred to those elsewhere."""

MOST_PLACES = 6
"""Places of one name that a message can list."""


class UnknownKeyError(ZooError):
    """Error for a key that its section does not have; names the key that is meant, or lists the known ones.

    ``section`` is the path of a config in the whole, "" at the top; ``rest`` is what was written behind the
    key (``.g`` of ``env_kwargs.g``). `with_hint` looks for the key in the whole config, unless the hint
    ``is_sure``.
    """

    def __init__(self, key: str, known: Sequence[str], section: str = "", *, rest: str = "") -> None:
        self.key, self.known, self.section, self.rest = key, known, section, rest
        self.path = self._path_of(key)
        hint = self._of_another_library() or self._nearest_in_section(VERY_CLOSE)
        self.is_sure = bool(hint)
        hint = hint or self._nearest_in_section(CLOSE) or f"; known: {', '.join(sorted(set(known)))}"
        super().__init__(f"unknown key `{self.path}`{hint}")

    def with_hint(self, keys: Sequence[str], others: str) -> ZooError:
        """Return the error with a hint at the whole config, whose keys are ``keys``, such as ``algo.gamma``.

        ``others`` is what to say of a key that is not among them, or "".
        """
        places = [path for path in keys if _last(path) == self.key and path != self.path]
        other_places = {f"pretrain.{self.key}", f"algo.intrinsic.{self.key}"}
        is_of_algorithms = self.section == "algo" or (bool(places) and set(places) <= other_places)
        hint = (
            (others if is_of_algorithms else "")
            or self._elsewhere(keys, places)
            or self._nearest_in_section(CLOSE)
            or others
            or _nearest_anywhere(self.key, keys)
        )
        return ZooError(f"unknown key `{self.path}`{hint}") if hint else self

    def _path_of(self, key: str) -> str:
        return f"{self.section}.{key}" if self.section else key

    def _of_another_library(self) -> str:
        """Return the hint for a name of another library whose place is known without looking at all keys."""
        place = NAMES.get(self.path) or NAMES.get(self.key, "")
        if " " in place:
            return f": {place}"
        top, _, within = place.partition(".")
        for name in (within, _last(place)):
            if name and name.partition(".")[0] in self.known and (self.section or top not in self.known):
                return f": it is `{self._path_of(name)}{self.rest}` here"
        # `n_steps` at the top is a key of some algorithms: that is for `with_hint` to say.
        is_here = top != "algo" and place != self.path if self.section else top in {*self.known} - {"replay"}
        if top == "replay" and self.known and not {"buffer_size", "replay"} & set(self.known):
            is_here = False  # an algorithm that does not replay
        return f": it is `{place}{self.rest}` here" if place and is_here else ""

    def _nearest_in_section(self, cutoff: float) -> str:
        near = nearest_name(self.key, self.known, cutoff)
        return f"; did you mean `{self._path_of(near)}`?" if near else ""

    def _elsewhere(self, keys: Sequence[str], places: Sequence[str]) -> str:
        """Return the hint for a name that is right, but stands in one of ``places``."""
        of_algorithm = [place for place in places if place.startswith("algo.") and not self.section]
        if self.key in places:
            return f": `{self.key}` is a setting by itself, as in zoo train {self.key}=…"
        if len(of_algorithm) == 1:
            places = of_algorithm
        elif not places and NAMES.get(self.key) in keys:
            places = [NAMES[self.key]]
        return f": it is {_join_places([place + self.rest for place in places])} here" if places else ""


def refuse_unknown_arguments(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorator: turn a `TypeError` about unknown arguments into a `ZooError` naming call and argument."""

    @functools.wraps(function)
    def checked(*arguments: Arguments.args, **options: Arguments.kwargs) -> Returned:
        try:
            return function(*arguments, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # it comes from within the function
            owner, _, own_name = getattr(function, "__qualname__", type(function).__name__).rpartition(".")
            is_method, parameters = bool(owner), inspect.signature(function).parameters
            takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
            name = type(arguments[0]).__name__ if own_name == "__init__" else own_name
            for key in [key for key in options if key not in parameters and not takes_all]:
                raise UnknownKeyError(key, [*parameters][is_method:], name) from None
            raise ZooError(f"{name}(…) {str(error).partition('() ')[2]}") from None

    return checked


class RefusesUnknownArguments:
    """Lets the constructor of each subclass name arguments that it does not take."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = refuse_unknown_arguments(cls.__init__)  # type: ignore[method-assign]


class AnswersNames:
    """Raises `AttributeError` with the name here for attributes that environments of other libraries have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = f"; here it is {ENV_ATTRIBUTES[name]}" if name in ENV_ATTRIBUTES else ""
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")


class RefusesNames(AnswersNames):
    """Also refuses to set such attributes; slower, so not for objects that set attributes in each step."""

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ENV_ATTRIBUTES and not hasattr(type(self), name):
                raise ZooError(
                    f"setting {type(self).__name__}.{name} has no effect; use {ENV_ATTRIBUTES[name]}"
                )
            super().__setattr__(name, value)


def _nearest_anywhere(key: str, keys: Sequence[str]) -> str:
    name = nearest_name(key, sorted({_last(path) for path in keys}), CLOSE)
    places = [path for path in keys if _last(path) == name]
    return f"; did you mean {_join_places(places)}?" if name and len(places) <= MOST_PLACES else ""


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _join_places(places: Sequence[str]) -> str:
    *others, last = (f"`{place}`" for place in places)
    return f"{', '.join(others)} or {last}" if others else last
