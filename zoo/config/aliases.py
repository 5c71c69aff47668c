"""The names that Stable-Baselines and other libraries use, and hints for unknown keys."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zoo.errors import ZooError

_TABLES: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("names_elsewhere.yaml").read_text(encoding="utf-8")
)
NAMES = _TABLES["settings"]
"""Settings and arguments elsewhere, with their path in the config here, or a sentence of what to use."""
ALGORITHMS = _TABLES["algorithms"]
ENV_ATTRIBUTES = _TABLES["environments"]
ATTRIBUTES = _TABLES["models"]

CLOSE = 0.6
"""Similarity from which one name may be meant by another."""

VERY_CLOSE = 0.8
"""Similarity from which a name of the same section is preferred to those of other sections."""

MOST_PLACES = 6
"""Places of one name that a message can list."""


class UnknownKeyError(ZooError):
    """A key that its section does not have; `with_hint` looks for it in others.

    ``rest`` is what was written behind the key (``.g`` of ``env_kwargs.g``); ``is_answered`` says that the
    message names what is meant.
    """

    def __init__(
        self, message: str, key: str, known: Sequence[str], section: str, rest: str, *, is_answered: bool
    ) -> None:
        super().__init__(message)
        self.key, self.known, self.section, self.rest = key, known, section, rest
        self.is_answered = is_answered


def unknown_key(
    key: str, known: Sequence[str], section: str, *, rest: str = "", note: str = ""
) -> UnknownKeyError:
    """Return the error for a key that ``section`` does not have, with the right key if that is there.

    ``section`` is the path of a config in the whole, "" at the top; ``note`` ends a list of known keys.
    """
    hint = _other_library_hint(key, known, section, rest)
    hint = hint or _nearest_in_section(key, known, section, VERY_CLOSE)
    near = hint or _nearest_in_section(key, known, section, CLOSE)
    all_known = f"; known: {', '.join(sorted(known))}{note}"
    message = f"unknown key `{_path(section, key)}`{near or all_known}"
    return UnknownKeyError(message, key, known, section, rest, is_answered=bool(hint))


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
                    f"{type(self).__name__}.{name} would do nothing; here it is {ENV_ATTRIBUTES[name]}"
                )
            super().__setattr__(name, value)


def with_hint(error: UnknownKeyError, keys: Sequence[str], others: Callable[[], str]) -> ZooError:
    """Return the error with a hint at the whole config, whose keys are ``keys``, such as ``algo.gamma``.

    ``others`` returns what to say of a key that is not among them, or "". A hint that is sure stays.
    """
    if error.is_answered:
        return error
    path = _path(error.section, error.key)
    places = [each for each in keys if _last(each) == error.key and each != path]
    is_of_algorithms = error.section == "algo" or places == [f"pretrain.{error.key}"]
    hint = (
        (others() if is_of_algorithms else "")
        or _elsewhere(error, keys, places)
        or _nearest_in_section(error.key, error.known, error.section, CLOSE)
        or others()
        or _nearest_anywhere(error.key, keys)
    )
    return ZooError(f"unknown key `{path}`{hint}") if hint else error


def _path(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _other_library_hint(key: str, known: Sequence[str], section: str, rest: str) -> str:
    """Return the hint for a name of another library whose place is known without looking at all keys."""
    place = NAMES.get(_path(section, key)) or NAMES.get(key, "")
    if " " in place:
        return f": {place}"
    top, _, within = place.partition(".")
    for name in (within, _last(place)):
        if name and name.partition(".")[0] in known and (section or top not in known):
            return f": it is `{_path(section, name)}{rest}` here"
    is_here = top in known if not section else top != "algo" and place != _path(section, key)
    if top == "replay" and known and not {"buffer_size", "replay"} & set(known):
        is_here = False
    return f": it is `{place}{rest}` here" if place and is_here else ""


def _elsewhere(error: UnknownKeyError, keys: Sequence[str], places: Sequence[str]) -> str:
    """Return the hint for a name that is right, but stands elsewhere.

    One that stands at the top is that; at the top a hyperparameter's name is that: others are rarer.
    """
    of_algorithm = [each for each in places if each.startswith("algo.") and not error.section]
    place = NAMES.get(error.key, "")
    if error.key in places:
        return f": `{error.key}` is a setting by itself, as in zoo train {error.key}=…"
    if len(of_algorithm) == 1:
        places = of_algorithm
    elif not places and place in keys:
        places = [place]
    fitting = [each + error.rest for each in places] if len(places) <= MOST_PLACES else []
    return f": it is {_join_places(fitting)} here" if fitting else ""


def _nearest_in_section(key: str, known: Sequence[str], section: str, cutoff: float) -> str:
    near = _nearest(key, known, cutoff)
    return f"; did you mean `{_path(section, near)}`?" if near else ""


def _nearest_anywhere(key: str, keys: Sequence[str]) -> str:
    name = _nearest(key, {_last(each) for each in keys}, CLOSE)
    places = [each for each in keys if _last(each) == name]
    return f"; did you mean {_join_places(places)}?" if 0 < len(places) <= MOST_PLACES else ""


def _nearest(key: str, names: Collection[str], cutoff: float) -> str:
    by_lower_case = {name.lower(): name for name in sorted(names)}
    found = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[found[0]] if found else ""


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _join_places(places: Sequence[str]) -> str:
    *others, last = (f"`{place}`" for place in places)
    return f"{', '.join(others)} or {last}" if others else last
