"""`zoo enjoy`: watch an agent, film it, or read its returns where there is no display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.schema import EnjoySettings
from zoo.core.printing import show
from zoo.errors import ZooError
from zoo.experiment.evaluation import EpisodeReporter
from zoo.experiment.open_agent import OpenedAgent, open_agent

if TYPE_CHECKING:
    from zoo.envs.adapter import VecEnvAdapter


def run(config: Mapping[str, Any]) -> None:
    """Play episodes with the agent that the config names."""
    settings = build(EnjoySettings, config, "")
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    reporter = EpisodeReporter()
    if settings.record:
        _film(agent, settings, reporter)
    else:
        _play(agent, settings, reporter)
    show(reporter.summary())


def _film(agent: OpenedAgent, settings: EnjoySettings, reporter: EpisodeReporter) -> None:
    from zoo.experiment.recording import record, video_path

    recording = record(
        agent.algorithm,
        agent.env,
        [video_path(agent.path, agent.algo, agent.env.id)],
        n_episodes=settings.n_episodes,
        deterministic=settings.deterministic,
        seed=settings.seed,
        on_episode=reporter.add,
        check=agent.check_spaces,
    )
    for path in recording.paths:
        show(f"video  {shown(path)}", flush=True)


def _play(agent: OpenedAgent, settings: EnjoySettings, reporter: EpisodeReporter) -> None:
    from zoo.experiment.evaluation import evaluate
    from zoo.experiment.recording import explain_render_errors

    with (
        _stage(agent, settings) as envs,
        contextlib.suppress(KeyboardInterrupt),
        explain_render_errors(agent.env.id),
    ):
        evaluate(
            agent.algorithm,
            envs,
            settings.n_episodes,
            deterministic=settings.deterministic,
            seed=settings.seed,
            on_episode=reporter.add,
        )


@contextlib.contextmanager
def _stage(agent: OpenedAgent, settings: EnjoySettings) -> Iterator[VecEnvAdapter]:
    """Give one environment, with a window where one is wanted."""
    from zoo.envs.video import has_display, render_offscreen

    render_offscreen()
    with agent.open_envs() as envs:
        modes = envs.env.metadata.get("render_modes") or []
    wants_window = has_display() if settings.render is None else settings.render
    if wants_window and not has_display():
        raise ZooError("there is no display here to open a window on; record=true writes a video")
    can_show = "human" in modes or "rgb_array" in modes
    if wants_window and not can_show:
        show(f"no window: {agent.env.id} can't be drawn", flush=True)
    elif settings.render is None and not wants_window:
        show("no window: there is no display here; record=true writes a video", flush=True)
    with agent.open_envs(render_mode="human" if wants_window and can_show else None) as envs:
        yield envs
