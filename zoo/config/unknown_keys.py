"""A key that there is not: the message, which names the right key wherever that stands."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.config.names_elsewhere import (
    ENV_ATTRIBUTES,
    FLAGS,
    NOT_CHOSEN,
    OF_FUNCTIONS,
    OLD_NAMES,
    OTHER_NAMES,
    OTHER_PLACES,
)
from zoo.errors import ZooError

CLOSE = 0.6
"""How alike two names are from which one may be meant by the other."""

VERY_CLOSE = 0.8
"""From which a name of the same section is meant, whatever there may be in others."""

MOST_PLACES = 6
"""Places of one name that a message can list."""


class UnknownKeyError(ZooError):
    """A key that its section does not have; `hint_of` finds it in others, where these are known."""

    key: str
    known: Sequence[str]
    section: str
    rest: str
    """What was written behind the key: ``.g`` of ``env_kwargs.g``."""
    is_answered: bool
    """Whether the message names what is meant, so that there is no need to look further."""


def unknown_key(
    key: str, known: Sequence[str], section: str, *, rest: str = "", note: str = ""
) -> UnknownKeyError:
    """Return the error for a key that ``section`` does not have, naming the right one if that is there.

    ``section`` is the path of a config in the whole, "" at the top; ``rest`` is what was written
    behind the key; ``note`` ends a list of known keys.
    """
    hint = _renamed(key, known, section, rest) or _near_here(key, known, section, VERY_CLOSE)
    near = hint or _near_here(key, known, section, CLOSE)
    found = UnknownKeyError(f"unknown key `{_path(section, key)}`{near or _all_known(known)}{note}")
    found.key, found.known, found.section, found.rest = key, known, section, rest
    found.is_answered = bool(hint)
    return found


def refuse_arguments(unknown: Iterable[str], function: str, known: Sequence[str]) -> None:
    """Raise `ZooError` for the first argument that a function does not take."""
    for name in unknown:
        raise unknown_key(name, known, function)


def check_call(cls: type[Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise `ZooError` for arguments that a class does not take, or lacks."""
    signature = inspect.signature(cls.__init__)
    _, *parameters = signature.parameters.values()
    names, kinds = [each.name for each in parameters], {each.kind for each in parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        refuse_arguments((each for each in options if each not in names), cls.__name__, names)
    in_order = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    if len(arguments) > len(in_order) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        taken = f"only {', '.join(in_order)}" if in_order else "nothing"
        raise ZooError(f"{cls.__name__} takes {taken} without a name; anything else by name")
    try:
        signature.bind(None, *arguments, **options)
    except TypeError as error:
        raise ZooError(f"{cls.__name__}: {error}; it takes {', '.join(names)}") from error


class AnswersNames:
    """Answers attributes that environments have elsewhere with what is meant here."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = f"; here it is {ENV_ATTRIBUTES[name]}" if name in ENV_ATTRIBUTES else ""
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")


class RefusesNames(AnswersNames):
    """Refuses them, too, where somebody sets them; not for what is set in each step."""

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ENV_ATTRIBUTES and not hasattr(type(self), name):
                raise ZooError(
                    f"{type(self).__name__}.{name} would do nothing; here it is {ENV_ATTRIBUTES[name]}"
                )
            super().__setattr__(name, value)


def placed(error: UnknownKeyError, keys: Sequence[str], others: Callable[[], str]) -> ZooError:
    """Return the error with a hint at the whole config, whose keys are ``keys``, such as ``algo.gamma``.

    ``others`` returns what to say of a key that is not among them, or "". A hint that is sure stays.
    """
    if error.is_answered:
        return error
    path = _path(error.section, error.key)
    is_of_algorithms = error.section == "algo" or set(_places(error.key, path, keys)) == {
        f"pretrain.{error.key}"
    }
    hint = (
        (others() if is_of_algorithms else "")
        or _in_other_sections(error.key, error.section, keys, error.rest)
        or _near_here(error.key, error.known, error.section, CLOSE)
        or others()
        or _near_anywhere(error.key, keys)
    )
    return ZooError(f"unknown key `{path}`{hint}") if hint else error


def _path(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _renamed(key: str, known: Sequence[str], section: str, rest: str) -> str:
    """Return the hint for a name of Stable-Baselines, or another library's name of one that is known."""
    if (section, key) in OF_FUNCTIONS:
        return f": {OF_FUNCTIONS[section, key]}"
    path, new = _path(section, key), OLD_NAMES.get(key, "")
    if new in known:
        return f": Stable-Baselines' `{key}` is `{_path(section, new)}` here"
    if new.startswith("memory.") and "buffer_size" in known:
        return f": Stable-Baselines' `{key}` is `{new}` here"
    other = OTHER_NAMES.get(key, "")
    if other in known:
        return f": it is `{_path(section, other)}` here"
    flag_of, said = FLAGS.get(key, ("", ""))
    if not section and flag_of in known:
        return f": Stable-Baselines' `{key}` {said}"
    place = OTHER_PLACES.get(key, path)
    if place.startswith("memory") and known and not {"buffer_size", "memory"} & set(known):
        place = path
    if place == key and place != path:
        return f": `{key}` is no part of `{section}`; it stands alone, `{key}=…`"
    if place != path:
        place = section + place.removeprefix("algo") if place.startswith("algo.") and section else place
        return f": Stable-Baselines' `{key}` is `{place}{rest}` here"
    return f": {NOT_CHOSEN[key]}" if key in NOT_CHOSEN else ""


def _near_here(key: str, known: Sequence[str], section: str, cutoff: float) -> str:
    nearest = _nearest(key, known, cutoff)
    return f"; did you mean `{_path(section, nearest)}`?" if nearest else ""


def _in_other_sections(key: str, section: str, keys: Sequence[str], rest: str) -> str:
    """Return the hint for a name that is right, but stands elsewhere.

    At the top a name that one hyperparameter has is that: others of that name are rarer.
    """
    path = _path(section, key)
    names = (key, OTHER_NAMES.get(key), OLD_NAMES.get(key))
    for name in filter(None, names):
        places = _places(name, path, keys)
        of_algorithm = [each for each in places if each.startswith("algo.")]
        places = of_algorithm if len(of_algorithm) == 1 and not section else places
        if 0 < len(places) <= MOST_PLACES:
            return f": it is {_listed([place + rest for place in places])} here"
    return ""


def _places(name: str, path: str, keys: Sequence[str]) -> list[str]:
    """Return where else than at ``path`` a name stands."""
    return [each for each in keys if _last(each) == name and each != path]


def _near_anywhere(key: str, keys: Sequence[str]) -> str:
    name = _nearest(key, {_last(each) for each in keys}, CLOSE)
    places = [each for each in keys if _last(each) == name]
    return f"; did you mean {_listed(places)}?" if 0 < len(places) <= MOST_PLACES else ""


def _nearest(key: str, names: Collection[str], cutoff: float) -> str:
    by_lower_case = {name.lower(): name for name in sorted(names)}
    found = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[found[0]] if found else ""


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _listed(places: Sequence[str]) -> str:
    *others, last = (f"`{place}`" for place in places)
    return f"{', '.join(others)} or {last}" if others else last


def _all_known(known: Sequence[str]) -> str:
    return f"; known: {', '.join(sorted(known))}"
