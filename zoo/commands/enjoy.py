"""`zoo enjoy`: watch an agent, film it, or read its returns where there is no display."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.settings import EnjoySettings
from zoo.errors import ZooError
from zoo.training.opened_agent import OpenedAgent, open_agent

if TYPE_CHECKING:
    from zoo.envs.monitor import EpisodeRecord
    from zoo.envs.stepper import EnvStepper


def run(config: Mapping[str, Any]) -> None:
    """Play episodes with the agent that the config names."""
    from zoo.training.evaluation import evaluate

    settings = build(EnjoySettings, config, "")
    agent = open_agent(settings)
    print(agent.introduction(), flush=True)
    with _stage(agent, settings) as envs:
        played = _Played()
        with contextlib.suppress(KeyboardInterrupt), _drawing_explained(agent):
            evaluate(
                agent.algorithm,
                envs,
                settings.n_episodes,
                deterministic=settings.deterministic,
                seed=settings.seed,
                on_episode=played.add,
            )
    print(played.summary())


@contextlib.contextmanager
def _stage(agent: OpenedAgent, settings: EnjoySettings) -> Iterator[EnvStepper]:
    """Give one environment, with a window or a camera where they are wanted."""
    from zoo.envs.filming import has_display, render_offscreen

    render_offscreen()
    envs = _make(agent)
    try:
        agent.check_spaces(envs)
        modes = envs.env.metadata.get("render_modes") or []
        frames_per_second = envs.env.metadata.get("render_fps")
    finally:
        envs.close()
    if settings.record:
        with _filmed(agent, modes, frames_per_second) as envs:
            yield envs
        return
    wants_window = has_display() if settings.render is None else settings.render
    if wants_window and not has_display():
        raise ZooError("there is no display here to open a window on; record=true writes a video")
    can_show = "human" in modes or "rgb_array" in modes
    if wants_window and not can_show:
        print(f"no window: {agent.env.id} can't be drawn", flush=True)
    elif settings.render is None and not wants_window:
        print("no window: there is no display here; record=true writes a video", flush=True)
    envs = _make(agent, "human" if wants_window and can_show else None)
    try:
        yield envs
    finally:
        envs.close()


@contextlib.contextmanager
def _drawing_explained(agent: OpenedAgent) -> Iterator[None]:
    """Say in one line what is missing where an environment acts, but can't be drawn."""
    from gymnasium.error import DependencyNotInstalled

    try:
        yield
    except ZooError as error:
        cause = error.__cause__
        if isinstance(cause, DependencyNotInstalled):
            raise ZooError(f"can't draw {agent.env.id}: {cause}") from error
        if type(cause).__module__.startswith("pygame"):
            raise ZooError(f"can't open a window: {cause}; render=false plays without one") from error
        raise


def _make(agent: OpenedAgent, render_mode: str | None = None) -> EnvStepper:
    """Make one environment, in this process: that is where windows are, and one needs no worker."""
    from zoo.envs.config import in_this_process
    from zoo.envs.stepper import EnvStepper
    from zoo.envs.vec_env import make_vec_env

    native = agent.env.vectorization == "native" and render_mode is None
    config = agent.env if native else in_this_process(agent.env)
    return EnvStepper(make_vec_env(replace(config, render_mode=render_mode), 1, training=False))


@contextlib.contextmanager
def _filmed(agent: OpenedAgent, modes: list[str], frames_per_second: float | None) -> Iterator[EnvStepper]:
    from zoo.envs.filming import Filmed, filming
    from zoo.envs.in_process import InProcessVectorEnv
    from zoo.envs.stepper import EnvStepper

    if "rgb_array" not in modes:
        raise ZooError(f"can't film {agent.env.id}: it renders no images (render_mode='rgb_array')")
    path = _video_path(agent)
    with filming(path, frames_per_second) as film:
        bare = _make(agent, "rgb_array").env
        assert isinstance(bare, InProcessVectorEnv)
        envs = EnvStepper(InProcessVectorEnv([lambda: Filmed(bare.envs[0], film)]))
        try:
            yield envs
        finally:
            envs.close()
    print(f"video  {shown(path)}", flush=True)


def _video_path(agent: OpenedAgent) -> Path:
    """Return a new file in the run's folder ``videos``, or in the working folder's for any other agent."""
    from zoo.envs.ids import folder_name

    run = agent.path.parent
    folder = run / "videos" if (run / "run.json").is_file() else Path("videos")
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return folder / f"{agent.algo}-{folder_name(agent.env.id)}-{time}.mp4"


@dataclass
class _Played:
    """The episodes so far, each told as it ends."""

    n_episodes: int = 0
    total_return: float = 0.0
    total_length: int = 0
    n_successes: int | None = None

    def add(self, episode: EpisodeRecord) -> None:
        self.n_episodes += 1
        self.total_return += episode.episode_return
        self.total_length += episode.length
        success = ""
        if "is_success" in episode.info:
            reached = bool(episode.info["is_success"])
            self.n_successes = (self.n_successes or 0) + reached
            success = ", success" if reached else ", no success"
        print(
            f"episode {self.n_episodes}: return {episode.episode_return:,.1f}"
            f" in {episode.length:,} steps{success}",
            flush=True,
        )

    def summary(self) -> str:
        if not self.n_episodes:
            return "no episode was finished"
        mean_return, mean_length = self.total_return / self.n_episodes, self.total_length / self.n_episodes
        success = "" if self.n_successes is None else f", success {self.n_successes / self.n_episodes:.0%}"
        return (
            f"mean return {mean_return:,.1f} in {mean_length:,.1f} steps, {self.n_episodes} episodes{success}"
        )
