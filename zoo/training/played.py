"""What is told of episodes that are played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.files.printing import decimal, show

if TYPE_CHECKING:
    from zoo.envs.monitor import EpisodeRecord


@dataclass
class Played:
    """The episodes so far, each told as it ends."""

    n_episodes: int = 0
    total_return: float = 0.0
    total_length: int = 0
    n_successes: int | None = None

    def add(self, episode: EpisodeRecord) -> None:
        """Count an episode and print a line about it."""
        self.n_episodes += 1
        self.total_return += episode.episode_return
        self.total_length += episode.length
        success = ""
        if "is_success" in episode.info:
            reached = bool(episode.info["is_success"])
            self.n_successes = (self.n_successes or 0) + reached
            success = ", success" if reached else ", no success"
        show(
            f"episode {self.n_episodes}: return {decimal(episode.episode_return)}"
            f" in {episode.length:,} steps{success}",
            flush=True,
        )

    def summary(self) -> str:
        """Return one line about all of them."""
        if not self.n_episodes:
            return "no episode was finished"
        mean_return, mean_length = self.total_return / self.n_episodes, self.total_length / self.n_episodes
        success = "" if self.n_successes is None else f", success {self.n_successes / self.n_episodes:.0%}"
        episodes = f"{self.n_episodes} episodes{success}"
        return f"mean return {decimal(mean_return)} in {mean_length:,.1f} steps, {episodes}"
