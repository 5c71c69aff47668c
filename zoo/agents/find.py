"""Finding an agent: at a path, or by algorithm and environment, the user's own newest run first."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.config.user_files import data_folder
from zoo.core.plain_data import parse_json
from zoo.core.printing import one_line
from zoo.core.zips import read_regular
from zoo.envs.registry import folder_name
from zoo.errors import ZooError, nearest

COLLECTION = "trained_agents"
IN_A_WHEEL = "the installed wheel has the agents of classic control, a checkout has all"

RUN_DEPTH = 6  # how deep runs may be: <algo>/<env>/<run>, in a sweep multirun/<sweep>/<algo>/<env>/<run>
KEPT = "agents"  # the folder of a run in which the agents stand that were kept as it went

_KEPT_NAME = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True)
class FoundAgent:
    """Where an agent stands; ``algo``, ``env`` and ``run`` are the names of folders."""

    path: Path
    algo: str
    env: str
    run: str | None


def find_agent(algo: str, env: str, *, runs: str | os.PathLike[str] = "runs") -> Path:
    """Return the folder of the newest own run's agent, else the one of ``./trained_agents``, else Zoo's own.

    Raises `ZooError` that names the nearest environment, and the algorithms with an agent on this one.
    """
    folder, agents = folder_name(env), list_agents(runs=runs)
    for agent in agents:
        if (agent.algo, agent.env) == (algo, folder):
            return agent.path
    environments = sorted({_env_id(agent) for agent in agents if agent.algo == algo})
    algorithms = sorted({agent.algo for agent in agents if agent.env == folder})
    others = f"; on {env} there is: {', '.join(map(one_line, algorithms))}" if algorithms else ""
    raise ZooError(
        f"there is no agent of {algo} on {env} in your runs or in {COLLECTION}{others}; `zoo agents`"
        f" lists all, zoo train algo={algo} env={env} trains one; {IN_A_WHEEL}{nearest(env, environments)}"
    )


def list_agents(*, runs: str | os.PathLike[str] = "runs") -> list[FoundAgent]:
    """Return all agents in the order of preference: own runs from the newest, then the collections.

    Own runs are all below ``runs``, those of sweeps too.
    """
    root = Path(runs).absolute()
    agents = [
        FoundAgent(Path(runs) / agent.relative_to(root), run.parent.parent.name, run.parent.name, run.name)
        for run in _runs(root, RUN_DEPTH)
        if (agent := agent_of_run(run)) is not None
    ]
    agents.sort(key=lambda agent: agent.run or "", reverse=True)
    agents.sort(key=lambda agent: (agent.algo, agent.env))
    shipped, here = data_folder(COLLECTION), Path(COLLECTION)
    for collection in [here] if shipped is None or here.resolve() == shipped.resolve() else [here, shipped]:
        agents += [
            FoundAgent(env, algo.name, env.name, None)
            for algo in _folders(collection)
            for env in _folders(algo)
            if _is_agent(env)
        ]
    return agents


def path_of_agent(path: object) -> Path:
    """Return the path of a folder or zip. Raises `ZooError` for another type, such as an open file."""
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise ZooError(
        f"an agent's path is a {type(path).__name__}; expected a folder's or a zip's (for bytes:"
        " pickle.dumps(model), pickle.loads)"
    )


def resolve_agent(path: str | os.PathLike[str]) -> Path:
    """Return the agent's own folder or zip; the path may also be a zip's without its ending, or a run's.

    Of a folder of runs it is the newest's.

    ``trained_agents/…`` is Zoo's own where the working folder has none. Raises `ZooError` if there is none.
    """
    place = path_of_agent(path).expanduser()
    if place.is_file():
        return place
    collection = data_folder(COLLECTION)
    if not os.path.lexists(place) and place.parts[:1] == (COLLECTION,) and collection is not None:
        place = collection.joinpath(*place.parts[1:])
    if not os.path.lexists(place):
        zipped = place.with_name(f"{place.name}.zip")
        if zipped.is_file():
            return zipped
        folder = place.with_suffix("") if place.suffix == ".zip" else place
        near = [entry.name for entry in place.parent.iterdir()] if place.parent.is_dir() else []
        is_folder = folder.is_dir()
        hint = f"; did you mean the folder {one_line(folder)}?" if is_folder else nearest(place.name, near)
        where = f"; {IN_A_WHEEL}" if collection is not None and place.is_relative_to(collection) else ""
        raise ZooError(
            f"there is no agent at {one_line(path_of_agent(path))}{hint}; `zoo agents` lists those there are"
            + where
        )
    if _is_agent(place):
        return place
    in_run = agent_of_run(place)
    if in_run is not None:
        return in_run
    if (place / "run.json").is_file():
        raise ZooError(f"the run {one_line(place)} has saved no agent yet")
    of_runs = [agent for run in _folders(place) if (agent := agent_of_run(run)) is not None]
    return of_runs[-1] if of_runs else place


def kept_name(timesteps: int) -> str:
    """Name of the agent that a run kept after ``timesteps`` environment steps."""
    return f"step-{timesteps:09}"


def kept_agents(run: Path) -> dict[int, Path]:
    """Return the agents that a run kept as it went, by their environment steps, in their order."""
    agents = {
        int(name[1]): folder
        for folder in _folders(run / KEPT)
        if (name := _KEPT_NAME.fullmatch(folder.name)) and _is_agent(folder)
    }
    return dict(sorted(agents.items()))


def kept_agent(path: str | os.PathLike[str], timesteps: int | str) -> Path:
    """Return the agent saved at step ``timesteps`` by the run at (or containing) ``path``.

    ``last``: the final agent. Raises `ZooError` listing the saved ones.
    """
    agent = Path(path).expanduser()
    run = run_of(agent)
    if run is None:
        raise ZooError(
            f"checkpoint={timesteps} is an agent that a run kept, and {one_line(agent)} is no run's"
        )
    if timesteps == "last":
        return resolve_agent(run / "agent")
    agents = kept_agents(run)
    if timesteps not in agents:
        listed = ", ".join(map(str, agents)) or "none (callbacks.agents.every=STEPS of zoo train keeps some)"
        raise ZooError(f"the run {one_line(run)} has kept no agent of step {timesteps}; it has: {listed}")
    return agents[timesteps]


def run_of(path: Path) -> Path | None:
    """Return the folder of the run at ``path``, or of the run that saved the agent there."""
    run = path.parent.parent if path.parent.name == KEPT else path.parent
    return next((folder for folder in (path, run) if (folder / "run.json").is_file()), None)


def _env_id(agent: FoundAgent) -> str:
    """Return the environment's id, as a user types it: it stands on the agent's card."""
    try:
        env = parse_json(read_regular(agent.path / "card.json")).get("env")
    except (OSError, ValueError):
        return agent.env
    return env if isinstance(env, str) and folder_name(env) == agent.env else agent.env


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    """Give the folders of runs: those with a record, or an agent. There is none inside of another."""
    for entry in _folders(folder):
        if (entry / "run.json").is_file() or agent_of_run(entry) is not None:
            yield entry
        elif depth > 1:
            yield from _runs(entry, depth - 1)


def _folders(parent: Path) -> list[Path]:
    """Return the folders inside, sorted, without hidden ones, as half-written agents are."""
    return sorted(folder for folder in parent.glob("[!.]*") if folder.is_dir())


def agent_of_run(run: Path) -> Path | None:
    """Return a run's best agent, else the one as training left it."""
    return next((run / name for name in ("best_agent", "agent") if _is_agent(run / name)), None)


def _is_agent(folder: Path) -> bool:
    return (folder / "policy.safetensors").is_file()
