"""`zoo enjoy`: watch an agent, film it, or read its returns where there is no display."""

from __future__ import annotations

import contextlib

from zoo.config.schema import EnjoySettings
from zoo.config.user_files import shown
from zoo.core.printing import show
from zoo.envs.video import has_display, render_offscreen
from zoo.errors import ZooError
from zoo.experiment.evaluation import EpisodeReporter, evaluate
from zoo.experiment.open_agent import OpenedAgent, open_agent
from zoo.experiment.recording import explain_render_errors, record, video_path


def run(settings: EnjoySettings) -> None:
    """Play episodes with the agent that the config names."""
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    reporter = EpisodeReporter()
    n, seed, is_greedy = settings.n_episodes, settings.seed, agent.env.is_greedy(settings.deterministic)
    if settings.record:
        path = video_path(agent.path, agent.algo, agent.env.id)
        if record(
            agent.algorithm,
            agent.env,
            [path],
            n_episodes=n,
            deterministic=is_greedy,
            seed=seed,
            on_episode=reporter.add,
            check=agent.check_spaces,
        ):
            show(f"video  {shown(path)}", flush=True)
    else:
        with (
            agent.open_envs(render_mode=_render_mode(agent, settings.render)) as envs,
            contextlib.suppress(KeyboardInterrupt),
            explain_render_errors(agent.env.id),
        ):
            evaluate(agent.algorithm, envs, n, deterministic=is_greedy, seed=seed, on_episode=reporter.add)
    show(reporter.summary())


def _render_mode(agent: OpenedAgent, wants_window: bool | None) -> str | None:
    """Return ``human`` where there shall be a window, and say why there is none."""
    render_offscreen()
    if wants_window is False:
        return None
    if not has_display():
        if wants_window:
            raise ZooError("there is no display here to open a window on; record=true writes a video")
        show("no window: there is no display here; record=true writes a video", flush=True)
        return None
    with agent.open_envs() as envs:
        modes = envs.env.metadata.get("render_modes") or []
    if "human" in modes or "rgb_array" in modes:
        return "human"
    show(f"no window: {agent.env.id} can't be drawn", flush=True)
    return None
