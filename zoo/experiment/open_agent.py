"""Opening the agent that a command line names: its files, its environment, and the algorithm that acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.agents.agent_folder import AgentFiles, read_agent
from zoo.agents.card import score, steps
from zoo.agents.find import find_agent, kept_agent, list_agents, resolve_agent, run_of
from zoo.agents.trust import refuse_foreign_code, stands_in_own_runs
from zoo.config.choices import algorithm_options
from zoo.config.compose import env_id
from zoo.config.schema import PlaySettings, preset_or_name
from zoo.config.user_files import shown
from zoo.core.plain_data import flat
from zoo.core.printing import one_line
from zoo.errors import ZooError, nearest

if TYPE_CHECKING:
    from zoo.algorithms.algorithm import Algorithm
    from zoo.config.schema import AgentChoice, AgentName
    from zoo.envs.adapter import VecEnvAdapter
    from zoo.envs.config import EnvConfig


@dataclass(frozen=True)
class OpenedAgent:
    """An agent ready to act, and the environment in which it shall."""

    path: Path
    files: AgentFiles
    algorithm: Algorithm
    env: EnvConfig
    changes: Mapping[str, Any] = field(default_factory=dict)  # what the user set of env, beside its id

    @property
    def algo(self) -> str:
        return preset_or_name(self.files.config["algo"])

    def introduction(self) -> str:
        """Return path, steps of training and score, which tell it from other agents."""
        card = self.files.card
        name = f"{self.algo} on {one_line(card.get('env') or self.env.id)}"
        seed = "?" if card.get("seed") is None else card["seed"]
        trained = f"{name}, trained for {steps(card)} steps, seed {seed}, return {score(card)}"
        lines = [f"agent  {one_line(shown(self.path))}", f"       {trained}"]
        if typed := [f"{path}={one_line(value)}" for path, value in flat(dict(self.changes), "env.")]:
            lines.append(f"       plays with {', '.join(typed)}")
        return "\n".join(lines)

    @contextmanager
    def open_envs(self, n_envs: int = 1, render_mode: str | None = None) -> Iterator[VecEnvAdapter]:
        """Give environments that fit the agent, a single one in this process, where windows are."""
        from zoo.envs.adapter import make_adapter
        from zoo.envs.config import without_workers
        from zoo.envs.make_env import make_vec_env

        is_native = self.env.vectorization == "native" and render_mode is None
        env = self.env if n_envs > 1 or is_native else without_workers(self.env)
        envs = make_adapter(make_vec_env(replace(env, render_mode=render_mode), n_envs, training=False))
        try:
            self.check_spaces(envs)
            yield envs
        finally:
            envs.close()

    def check_spaces(self, envs: VecEnvAdapter) -> None:
        """Raise `ZooError` if the environment shows or takes something else than the agent has learned."""
        from zoo.envs.spaces import interfaces_differ

        if difference := interfaces_differ(self.algorithm.spaces, envs.spaces):
            agent = f"the agent in {one_line(shown(self.path))} can't act in {self.env.id}"
            raise ZooError(f"{agent}: its {difference[0]} and the environment's differ: {difference[1]}")


def open_agent(settings: AgentChoice) -> OpenedAgent:
    """Rebuild the agent that ``agent=PATH``, or ``algo=`` and ``env=``, name. Raises `ZooError`."""
    from zoo.algorithms.registry import algorithm_class

    path = agent_path(settings)
    trust = settings.trust or stands_in_own_runs(path, settings.runs_dir)
    files = read_agent(path, trust=trust, own_env=True)
    # A few observations at a time are faster on a CPU, and give the same actions on every machine.
    changes, device = (settings.env, settings.device) if isinstance(settings, PlaySettings) else ({}, "cpu")
    changes = {key: value for key, value in changes.items() if key != "id"}
    env = _env_of(files, settings, changes, one_line(shown(path)))
    algo = files.config["algo"]
    algorithm = algorithm_class(algo["name"], algo.get("preset")).from_files(files, device=device)
    return OpenedAgent(path, files, algorithm, env, changes)


def agent_path(settings: AgentName) -> Path:
    """Return where the agent is, or one that its run kept at ``checkpoint=STEPS``. Raises `ZooError`."""
    checkpoint = settings.checkpoint if isinstance(settings, PlaySettings) else None
    env = _named_env(settings)
    if settings.agent is not None:
        if settings.algo is not None:
            raise ZooError("give either agent=PATH, or algo= and env=, not both")
        if checkpoint is None:
            return resolve_agent(settings.agent)
        path = Path(settings.agent).expanduser()  # a run may have kept agents alone
        return kept_agent(path if run_of(path) else resolve_agent(path), checkpoint)
    if settings.algo is None or env is None:
        missing = "algo" if settings.algo is None else "env"
        raise ZooError(f"which agent? {missing}= is missing: give algo=NAME env=ID, or agent=PATH")
    name, runs = settings.algo, settings.runs_dir
    algos = sorted({*algorithm_options(), *(agent.algo for agent in list_agents(runs=runs))})
    if name not in algos and "." not in name:  # a class of the user's own has a path
        raise ZooError(f"unknown algorithm '{name}'{nearest(name, algos)} (known: {', '.join(algos)})")
    agent = find_agent(name, env_id(env), runs=runs)
    return agent if checkpoint is None else kept_agent(agent, checkpoint)


def _named_env(settings: AgentName) -> str | None:
    """Return the id that the user gave, if one."""
    return settings.env.get("id") if isinstance(settings, PlaySettings) else settings.env


def _env_of(files: AgentFiles, settings: AgentChoice, changes: Mapping[str, Any], origin: str) -> EnvConfig:
    """Return the environment of the training, with the id and the ``changes`` that the user gave, if any."""
    from omegaconf import OmegaConf

    from zoo.algorithms.agent_files import section_of
    from zoo.config.fields import build
    from zoo.envs.config import EnvConfig

    trained_in: Mapping[str, Any] | None = files.config.get("env")
    named = _named_env(settings)
    if trained_in is None and named is None:
        raise ZooError(f"the agent in {origin} does not say in which environment it was trained; give env=ID")
    values = {} if trained_in is None else section_of(files, "env")
    wanted = values.get("id") if named is None else env_id(named)
    if wanted != values.get("id"):
        name, wanted_name = (str(env).rpartition(":")[2] for env in (values.get("id"), wanted))
        values |= {"id": wanted} | (
            {} if name == wanted_name else {"kwargs": {}, "max_episode_steps": "auto"}
        )
    if not files.is_trusted:
        # An id that the user typed may name code.
        unnamed = {key: value for key, value in values.items() if key != "id" or value != named}
        refuse_foreign_code({"env": unnamed}, origin)
    trained = OmegaConf.create(values, flags={"allow_objects": True})  # a text of a variable is one
    merged: Any = OmegaConf.to_container(OmegaConf.merge(trained, changes))
    # Raw: the agent normalises with its own statistics.
    return build(EnvConfig, {**merged, "normalize": False, "render_mode": None}, "env")
