"""`zoo expert`: record what an agent does, for others to learn from, and show what was recorded."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.config.fields import build
from zoo.config.paths import shown
from zoo.config.schema import ExpertSettings
from zoo.core.printing import decimal, one_line, printable, show
from zoo.errors import ZooError

if TYPE_CHECKING:
    from zoo.envs.monitor import EpisodeRecord
    from zoo.experiment.open_agent import OpenedAgent
    from zoo.imitation.expert_data import ExpertData

DEFAULT_EPISODES = 50


def run(config: Mapping[str, Any]) -> None:
    """Record episodes of the agent that the config names, or show those that a file holds."""
    settings = build(ExpertSettings, config, "")
    if settings.show is not None:
        _show_file(settings, settings.show)
        return
    from zoo.experiment.open_agent import open_agent
    from zoo.imitation.expert_data import summary
    from zoo.imitation.expert_files import read_expert, write_expert

    agent = open_agent(settings)
    path = _output_file(settings, agent)
    show(agent.introduction(), flush=True)
    path = write_expert(path, _record(agent, settings))
    show(f"\n{printable(summary(read_expert(path)))}\n\nfile   {shown(path)}")


def _show_file(settings: ExpertSettings, path: str) -> None:
    """Print what the file at ``path`` holds, of the episodes that are asked for."""
    from zoo.experiment.messages import warnings_as_messages
    from zoo.imitation.expert_data import summary
    from zoo.imitation.expert_files import read_expert

    given = [f"{name}=" for name in ("agent", "algo", "env", "out") if getattr(settings, name)]
    if given:
        raise ZooError(f"show=PATH shows what a file holds; leave out {', '.join(given)}")
    whole = read_expert(path)
    with warnings_as_messages():
        data = whole.filtered(
            min_return=settings.min_return,
            successes_only=settings.successes_only,
            n_episodes=settings.n_episodes,
        )
    part = "" if data is whole else f": {data.n_episodes:,} of its {whole.n_episodes:,} episodes"
    show(f"file          {one_line(path)}{part}\n{summary(data)}")


def _record(agent: OpenedAgent, settings: ExpertSettings) -> ExpertData:
    from zoo.experiment.expert_recording import record_expert
    from zoo.experiment.messages import warnings_as_messages

    n_episodes = settings.n_episodes or DEFAULT_EPISODES
    source = {"agent": shown(agent.path), "algo": agent.algo, "timesteps": agent.files.card.get("timesteps")}
    with (
        agent.open_envs(min(settings.n_envs, n_episodes)) as envs,
        warnings_as_messages(),
        warnings.catch_warnings(),
    ):
        data = record_expert(
            agent.algorithm,
            envs,
            n_episodes,
            deterministic=settings.deterministic,
            seed=settings.seed,
            min_return=settings.min_return,
            successes_only=settings.successes_only,
            source=source,
            on_episode=_EpisodePrinter(n_episodes),
        )
    data.card["env"] = agent.env.id
    return data


class _EpisodePrinter:
    """Prints a line an episode."""

    def __init__(self, n_wanted: int) -> None:
        self.n_wanted, self.n_kept = n_wanted, 0

    def __call__(self, episode: EpisodeRecord, is_kept: bool) -> None:
        self.n_kept += is_kept
        number = f"episode {self.n_kept} of {self.n_wanted}" if is_kept else "left out"
        show(f"{number}: return {decimal(episode.episode_return)} in {episode.length:,} steps", flush=True)


def _output_file(settings: ExpertSettings, agent: OpenedAgent) -> Path:
    """Return the file to write."""
    from zoo.envs.registry import folder_name

    if settings.out is not None:
        out = Path(settings.out).expanduser()
        if out.suffix != ".npz":
            raise ZooError(f"`out={settings.out}` is no .npz file")
        return out
    time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("experts") / f"{agent.algo}-{folder_name(agent.env.id)}-{time}.npz"
