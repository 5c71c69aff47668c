"""Signals end a run cleanly."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from zoo.algorithms.callback import PREEMPTED, Callback
from zoo.algorithms.ppo2 import PPO2
from zoo.training.signals import stop_on_signals


class Kill(Callback):
    """Sends signals to this process at the first chance."""

    def __init__(self, *numbers: int) -> None:
        self.every = 64
        self.numbers = numbers

    def on_steps(self, algorithm: Any) -> None:
        for number in self.numbers:
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_learning_after_the_update_under_way(
    ppo2: Callable[..., PPO2], number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    model = ppo2()
    with stop_on_signals(model):
        model.learn(10_000, Kill(number))
    assert model.stop_reason == PREEMPTED
    assert model.num_timesteps == 64
    assert f"zoo: {number.name}: ending after this update" in capfd.readouterr().err


def test_second_interrupt_raises_at_once(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(model):
        model.learn(10_000, Kill(signal.SIGINT, signal.SIGINT))


def test_earlier_handlers_are_back_afterwards(ppo2: Callable[..., PPO2]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(ppo2()):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_in_another_thread_learns_without_handlers(ppo2: Callable[..., PPO2]) -> None:
    model = ppo2()

    def learn() -> None:
        with stop_on_signals(model):
            model.learn(64)

    thread = threading.Thread(target=learn)
    thread.start()
    thread.join()
    assert model.num_timesteps == 64
