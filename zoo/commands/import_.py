"""`zoo import`: an agent of Stable-Baselines3 becomes one of Zoo's, and acts the same."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.config.fields import build
from zoo.config.schema import ImportSettings
from zoo.config.user_files import shown
from zoo.core.printing import one_line, show
from zoo.errors import ZooError
from zoo.interop.sb3_zip import existing


def run(config: Mapping[str, Any]) -> None:
    """Import the file that the config names, and say what it could not say."""
    values = {key: value for key, value in config.items() if key != "env"}
    settings = build(ImportSettings, values, "")
    if settings.file is None:
        raise ZooError("which file? for example: zoo import ppo_cartpole.zip env=CartPole-v1")
    file = existing(settings.file)

    from zoo.envs.config import EnvConfig
    from zoo.envs.make_env import make_vec_env
    from zoo.interop.sb3_import import import_sb3

    env = build(EnvConfig, config["env"], "env") if config.get("env") else None
    env_spaces = None
    if env is not None:
        envs = make_vec_env(env, 1, training=False, check=False)
        env_spaces = envs.single_observation_space, envs.single_action_space
        envs.close()
    imported = import_sb3(
        file,
        algo=settings.algo,
        env=env,
        env_spaces=env_spaces,
        normalize=settings.normalize,
        activation=settings.activation,
    )
    out = Path(settings.out or Path("imported", file.stem))
    if settings.out is None and out.exists():
        raise ZooError(f"{out} is there already; name another folder, or this one to replace it: out=PATH")
    path = imported.algorithm.save(out, card=imported.card)
    place = one_line(shown(path))
    where = "" if env is None else f" on {env.id}"
    show(f"agent  {place}")
    steps, source = imported.card["timesteps"], imported.card["imported_from"]
    show(f"       {imported.algorithm.name}{where}, trained for {steps:,} steps by {source}")
    if imported.unknown:
        show(f"note   not to be read in the file, so Zoo's own values: {', '.join(imported.unknown)}")
    where = "" if env is not None else " env=ID"
    show(f"watch  zoo enjoy {shlex.quote(f'agent={place}')}{where}")
