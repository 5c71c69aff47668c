"""What an environment raises, told to the user."""

from __future__ import annotations

import traceback

import gymnasium as gym

from zoo.errors import ZooError


def env_error(error: BaseException, who: str, when: str) -> ZooError:
    """Return an environment's own error, with its own traceback, as one for the user."""
    if isinstance(error, ZooError):
        is_named = when == "while it was made" or str(error).startswith(who)
        return error if is_named else ZooError(f"{who}: {error}")
    if isinstance(error, gym.error.DependencyNotInstalled):
        return ZooError(f"{who} needs a package: {error}")
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return ZooError(f"{who} raised {type(error).__name__} {when}:\n{text}")
