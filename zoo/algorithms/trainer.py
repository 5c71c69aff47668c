"""The training loop: alternates `collect` and `update` until the budget is spent, and calls the callbacks."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.algorithms.callback import PREEMPTED, Callbacks, CallbackSchedule
from zoo.algorithms.registry import provided
from zoo.config.fields import whole_steps
from zoo.errors import NotFiniteError, ZooError
from zoo.optim.runtime import gradients_on
from zoo.optim.update_runner import averaging_over

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm


class Trainer:
    """Trains an algorithm; keeps which callbacks are still due, and why the run is to end."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = weakref.ref(algorithm)  # no cycle: a dropped algorithm closes its environments
        self._ended_by: str | None = None  # the last stop reason that was no signal
        self._restored_stop_reason: str | None = None
        self.callbacks = CallbackSchedule([], 0)
        self._still_due: Mapping[str, Any] = {}

    @property
    def algorithm(self) -> Algorithm:
        algorithm = self._algorithm()
        assert algorithm is not None, "the algorithm is gone"
        return algorithm

    def learn(
        self,
        total_timesteps: int,
        callback: Callbacks,
        log_interval: int | None,
        tb_log_name: str | None,
        is_new: bool,
        progress_bar: bool,
    ) -> None:
        """Train for ``total_timesteps`` more environment steps; see `Algorithm.learn`."""
        model = self.algorithm
        if model.envs is None:
            raise ZooError("this agent has no env to learn in; give it one with set_env()")
        if log_interval is not None and log_interval < 1:
            raise ZooError(f"learn(log_interval={log_interval}): expected at least 1")
        n_steps, batch_size = whole_steps(total_timesteps), model._batch_size()
        if is_new:
            model.num_timesteps = model.n_episodes = 0
            model.recent_episodes.clear()
            model.envs.disturb_if_shared()
        model.total_timesteps = model.num_timesteps + n_steps
        model._check_budget(n_steps)
        model.stop_reason = self._ended_by = self._restored_stop_reason
        self._restored_stop_reason = None
        weights = sum(parameter.numel() for parameter in model.policy.parameters())
        # A step of several ranks learns from what all of them have collected, or replays as often as one.
        own_steps = model.total_timesteps // (1 if model.has_replay else model.distributed.size)
        model.runtime.expect(model.gradient_steps_in(own_steps), float(weights * batch_size))
        if not model.collector.is_under_way:
            model._reset_envs()
            model.distributed.share_statistics()
        others = provided("callbacks_of_learn")(model, log_interval, tb_log_name, is_new, progress_bar)
        callbacks = CallbackSchedule(callback, model.num_timesteps, self._still_due, model.n_envs, others)
        self.callbacks, self._still_due = callbacks, {}
        with callbacks, model.runtime.in_force(), model.generators.torch_of_this_run():
            self._alternate(model)
        if model.stop_reason == PREEMPTED:
            self._still_due, self._restored_stop_reason = callbacks.state(), self._ended_by
        self.callbacks = CallbackSchedule([], 0)

    def _alternate(self, model: Algorithm) -> None:
        callbacks, ranks = self.callbacks, model.distributed
        callbacks.start(model)
        callbacks.call_due(model)
        while model.num_timesteps < model.total_timesteps:
            if ranks.is_to_stop(model.stop_reason is not None):
                break
            with averaging_over(ranks.workers):
                self._collect_and_update(model)
            if callbacks.writes_at(model.num_timesteps):
                ranks.gather_episodes()
            callbacks.call_due(model)
        ranks.gather_episodes()
        model.check_finite()
        callbacks.end(model, preempted=model.stop_reason == PREEMPTED)

    def _collect_and_update(self, model: Algorithm) -> None:
        envs = model.collector.envs
        if envs.was_disturbed:
            model.reset_own_envs()
        try:
            model.acting.refresh()
            model.collect()
        except BaseException as error:
            envs.disturb()  # where they are by now is not known: a step may be lost
            if isinstance(error, ZooError) and not isinstance(error, NotFiniteError):
                model.check_finite()  # the environment may have failed for actions that are not finite
            raise
        if model.distributed.meet_before_update(model.stop_reason == PREEMPTED):
            self.request_stop(PREEMPTED)
        started = time.perf_counter()
        with gradients_on():
            model.update()
            model.after_update()
        model.timings["update"] += time.perf_counter() - started

    def request_stop(self, reason: str) -> None:
        if reason != PREEMPTED:
            self._ended_by = reason
        self.algorithm.stop_reason = reason

    def state(self) -> dict[str, Any]:
        """Return which callbacks are due, and why the run is to end."""
        return {"still_due": {**self._still_due, **self.callbacks.state()}, "ended_by": self._ended_by}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._still_due = state["still_due"]
        self._ended_by = self._restored_stop_reason = state["ended_by"]
