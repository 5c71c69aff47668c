"""`zoo expert`: record what an agent does, for others to learn from, and show what was recorded."""

from __future__ import annotations

import datetime
import itertools
from pathlib import Path

from zoo.config.schema import ExpertSettings
from zoo.config.user_files import shown
from zoo.core.printing import decimal, one_line, printable, show
from zoo.envs.registry import folder_name
from zoo.envs.transition import EpisodeRecord
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.experiment.open_agent import OpenedAgent, open_agent
from zoo.imitation.expert_data import ExpertData, read_expert, summary, write_expert


def run(settings: ExpertSettings) -> None:
    """Record episodes of the agent that the config names, or show those that a file holds."""
    if settings.show is not None:
        _show_file(settings, settings.show)
        return
    if settings.out is not None and Path(settings.out).suffix != ".npz":
        raise ZooError(f"`out={settings.out}` is no .npz file")
    agent = open_agent(settings)
    show(agent.introduction(), flush=True)
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    default = f"experts/{agent.algo}-{folder_name(agent.env.id)}-{time}.npz"
    path = write_expert(Path(settings.out or default).expanduser(), _recorded(agent, settings))
    show(f"\n{printable(summary(read_expert(path)))}\n\nfile   {shown(path)}")


def _show_file(settings: ExpertSettings, path: str) -> None:
    others = [f"{name}=" for name in ("agent", "algo", "env", "out") if getattr(settings, name)]
    if others:
        raise ZooError(f"show=PATH only prints a file; leave out {', '.join(others)}")
    recorded = read_expert(path)
    data = recorded.filtered(
        min_return=settings.min_return, successes_only=settings.successes_only, n_episodes=settings.n_episodes
    )
    part = "" if data is recorded else f": {data.n_episodes:,} of its {recorded.n_episodes:,} episodes"
    show(f"file          {one_line(path)}{part}\n{summary(data)}")


def _recorded(agent: OpenedAgent, settings: ExpertSettings) -> ExpertData:
    """Record episodes, and print a line about each as it ends."""
    n_episodes = settings.n_episodes or 50
    numbers, steps = itertools.count(1), agent.files.card.get("timesteps")

    def print_episode(episode: EpisodeRecord, is_kept: bool) -> None:
        number = f"episode {next(numbers)} of {n_episodes}" if is_kept else "left out"
        show(f"{number}: return {decimal(episode.episode_return)} in {episode.length:,} steps", flush=True)

    with agent.open_envs(min(settings.n_envs, n_episodes)) as envs:
        data = record_expert(
            agent.algorithm,
            envs,
            n_episodes,
            deterministic=settings.deterministic,
            seed=settings.seed,
            min_return=settings.min_return,
            successes_only=settings.successes_only,
            source={"agent": shown(agent.path), "algo": agent.algo, "timesteps": steps},
            on_episode=print_episode,
        )
    data.card["env"] = agent.env.id
    return data
