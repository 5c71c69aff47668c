"""Callbacks of a training run: called at its start, every so many environment steps, and at its end."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.config.aliases import CALLBACK_METHODS, RefusesUnknownArguments, refuse_unknown_arguments
from zoo.errors import ZooError, ZooWarning

if TYPE_CHECKING:  # whoever only asks whether a run was preempted needs none of this
    from zoo.algorithms.algorithm import Algorithm
    from zoo.envs.transition import EpisodeRecord

    Training = Algorithm
else:
    Training = Any

Function = Callable[[dict[str, Any], dict[str, Any]], Any]

PREEMPTED = "preempted"
"""The ``stop_reason`` of a run that a signal ended; callbacks that were due still are when it is resumed."""


class InterruptedCallbackError(Exception):
    """Raised by `Callback.on_steps` when a signal kept it from finishing: it is still due."""


class Callback(RefusesUnknownArguments):
    """Base class of callbacks, with empty hooks. All frequencies count environment steps.

    ``every`` is the number of environment steps between calls of `on_steps` (0: never); calls come at the
    first end of an update at or after each multiple. Those with ``comes_last`` are called last,
    so that checkpoints include the other callbacks' effects.
    """

    every: int = 0
    every_calls: int = 0
    """If not 0: ``every`` is so many calls of the vector environment's step, as Stable-Baselines3 counts."""
    child_callbacks: Sequence[Callback] = ()
    """Callbacks that this one calls; the schedule only lets them start and end."""
    comes_last: bool = False
    looks_often: bool = False
    """Polling callback: `on_steps` is cheap and usually does nothing."""

    def __init__(self, verbose: int = 0) -> None:
        self.verbose = verbose

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise `ZooError` for methods that Stable-Baselines3 calls."""
        super().__init_subclass__(**options)
        for name in CALLBACK_METHODS.keys() & vars(cls).keys():
            raise ZooError(f"{cls.__name__}.{name} is never called; here it is {CALLBACK_METHODS[name]}")

    def on_training_start(self, algorithm: Training) -> None:
        """Before the first step of `Algorithm.learn`."""

    def on_steps(self, algorithm: Training) -> bool | None:
        """Every ``every`` environment steps; the training ends if it returns False."""

    def call(self, algorithm: Training) -> None:
        """Call `on_steps`, and end the training if it returns False."""
        if self.on_steps(algorithm) is False:
            algorithm.request_stop(f"{type(self).__name__} returned False")

    def on_episode(self, algorithm: Training, episode: EpisodeRecord) -> None:
        """After each finished episode, in the midst of a collection; its steps are stored by then.

        With several ranks it is after the update.
        """

    def on_preemption(self, algorithm: Training) -> None:
        """After the update during which a signal ended the run, before `on_training_end`."""

    def on_training_end(self, algorithm: Training) -> None:
        """After the last update, also when the run was stopped."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, values: dict[str, Any]) -> None:
        """Take over what `state` returned."""


class FunctionCallback(Callback):
    """Calls ``function(locals, globals)`` after each update, as Stable-Baselines3 does after each step.

    Among the locals is the algorithm, ``self``. The training ends once it returns False.
    """

    every = 1
    looks_often = True

    def __init__(self, function: Function) -> None:
        self.function = refuse_unknown_arguments(function)

    def on_steps(self, algorithm: Training) -> bool | None:
        return self.function({"self": algorithm}, {})


Callbacks = Callback | Function | Iterable[Callback | Function] | None


class CallbackSchedule:
    """Calls each callback when its number of environment steps has passed.

    ``still_due`` is what `state` returned: callbacks that a signal has delayed come first. ``others`` come
    after the user's. Raises `ZooError` for what is no callback, such as a class.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        num_timesteps: int,
        still_due: Mapping[str, Any] | None = None,
        n_envs: int = 1,
        others: Sequence[Callback] = (),
    ) -> None:
        requested = [] if callbacks is None else callbacks
        several = [*map(as_callback, requested if isinstance(requested, Iterable) else [requested]), *others]
        inner = [callback for outer in several for callback in outer.child_callbacks]
        for callback in several:
            if callback.every_calls:
                callback.every = callback.every_calls * n_envs
            is_called = callback.every or "every" in vars(callback)
            if not is_called and type(callback).on_steps is not Callback.on_steps:
                name = type(callback).__name__
                problem = f"{name}.on_steps is never called: set its `every`, such as 1000 environment steps"
                warnings.warn(problem, ZooWarning, stacklevel=3)
        several += inner
        self._callbacks = dict(named(sorted(several, key=lambda callback: callback.comes_last)))
        self.watching_episodes = [
            callback for callback in several if type(callback).on_episode is not Callback.on_episode
        ]
        self._due = {
            name: float("inf") if callback in inner else _next_multiple(num_timesteps, callback.every)
            for name, callback in self._callbacks.items()
        }
        self._due |= {name: at for name, at in (still_due or {}).items() if name in self._due}
        self._others = others

    def __enter__(self) -> CallbackSchedule:
        return self

    def __exit__(self, *raised: object) -> None:
        """Close ``others``, also where the training failed."""
        for callback in self._others:
            getattr(callback, "close", int)()

    def start(self, algorithm: Training) -> None:
        for callback in self._callbacks.values():
            callback.on_training_start(algorithm)

    def call_due(self, algorithm: Training) -> None:
        """Call `on_steps` of all callbacks that are due; a signal meanwhile leaves the rest due."""
        due = self._due_at(algorithm.num_timesteps)
        if any(not callback.looks_often for callback in due.values()):
            algorithm.check_finite()  # nothing else is written
        for name, callback in due.items():
            if algorithm.stop_reason == PREEMPTED:
                break
            try:
                callback.call(algorithm)
            except InterruptedCallbackError:
                break
            self._due[name] = _next_multiple(algorithm.num_timesteps, callback.every)

    def writes_at(self, num_timesteps: int) -> bool:
        """Return whether a callback is due that does more than look; one with `on_episode` always is."""
        due = self._due_at(num_timesteps).values()
        return bool(self.watching_episodes) or any(not callback.looks_often for callback in due)

    def _due_at(self, num_timesteps: int) -> dict[str, Callback]:
        due = [name for name in self._callbacks if num_timesteps >= self._due[name]]
        return {name: self._callbacks[name] for name in due}

    def state(self) -> dict[str, Any]:
        """Return when each callback is due, by name; those that come last decide anew."""
        return {
            name: due
            for name, due in self._due.items()
            if due != float("inf") and not self._callbacks[name].comes_last
        }

    def end(self, algorithm: Training, *, preempted: bool) -> None:
        """Call `on_training_end` of all callbacks, after `on_preemption` if a signal ended the training."""
        if preempted:
            for callback in self._callbacks.values():
                callback.on_preemption(algorithm)
        for callback in self._callbacks.values():
            callback.on_training_end(algorithm)


def as_callback(callback: Any) -> Callback:
    """Return a function as a callback. Raises `ZooError` for what is neither."""
    if callable(callback) and not isinstance(callback, type):
        return FunctionCallback(callback)
    if not isinstance(callback, Callback):
        name = getattr(callback, "__name__", f"a {type(callback).__name__}")
        expected = "a zoo.Callback, a function of (locals, globals), or a list of such"
        raise ZooError(f"callback is {name}; expected {expected}")
    return callback


def named(callbacks: Iterable[Callback]) -> Iterator[tuple[str, Callback]]:
    """Give each callback a name: that of its class, and a number if it is not the first of its class."""
    counts = Counter[str]()
    for callback in callbacks:
        name = type(callback).__name__
        counts[name] += 1
        yield (name if counts[name] == 1 else f"{name}-{counts[name]}"), callback


def _next_multiple(num_timesteps: int, every: int) -> float:
    return (num_timesteps // every + 1) * every if every > 0 else float("inf")
