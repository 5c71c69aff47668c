"""`zoo import`: an agent of Stable-Baselines3 becomes Zoo's, and rl_zoo3's values tuned files."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from zoo.config.aliases import ALGORITHMS
from zoo.config.compose import ConfigLoader
from zoo.config.fields import build
from zoo.config.overrides import quoted
from zoo.config.schema import ImportSettings
from zoo.config.user_files import shown
from zoo.core.atomic import write_text
from zoo.core.plain_data import to_yaml
from zoo.core.printing import one_line, show
from zoo.envs.config import EnvConfig
from zoo.envs.make_env import make_vec_env
from zoo.envs.registry import folder_name
from zoo.errors import ZooError
from zoo.interop.rl_zoo3 import tuned_file
from zoo.interop.sb3_import import import_sb3
from zoo.interop.sb3_zip import existing, statistics_beside


def run(config: Mapping[str, Any]) -> None:
    """Import the file that the config names, and print which settings it lacks."""
    settings = build(ImportSettings, {key: config[key] for key in config if key != "env"}, "")
    if settings.file is None:
        raise ZooError("which file? for example: zoo import ppo_cartpole.zip env=CartPole-v1")
    file = existing(settings.file)
    if file.suffix in (".yml", ".yaml"):
        import_tuned(file, settings)
        return
    beside = statistics_beside(file) if settings.normalize is None else None
    if beside is not None:
        show(f"note   normalises by {one_line(shown(beside))} beside it (normalize=none: without)")
    normalize = None if settings.normalize == "none" else settings.normalize or beside
    env = build(EnvConfig, config["env"], "env") if config.get("env") else None
    env_spaces = None
    if env is not None:
        envs = make_vec_env(env, 1, training=False, check=False)
        env_spaces = envs.single_observation_space, envs.single_action_space
        envs.close()
    algo, activation = settings.algo, settings.activation
    imported = import_sb3(
        file, algo=algo, env=env, env_spaces=env_spaces, normalize=normalize, activation=activation
    )
    out = Path(settings.out or Path("imported", file.stem))
    if settings.out is None and out.exists():
        raise ZooError(f"{out} is there already; name another folder, or this one to replace it: out=PATH")
    path = imported.algorithm.save(out, card=imported.card)
    place = one_line(shown(path))
    show(f"agent  {place}")
    name = imported.algorithm.label + ("" if env is None else f" on {env.id}")
    steps, source = imported.card["timesteps"], imported.card["imported_from"]
    show(f"       {name}, trained for {steps:,} steps by {source}")
    if imported.unknown:
        show(f"note   not to be read in the file, so Zoo's own values: {', '.join(imported.unknown)}")
    show(f"watch  zoo enjoy {shlex.quote(f'agent={place}')}{' env=ID' if env is None else ''}")


def import_tuned(file: Path, settings: ImportSettings) -> None:
    """Write a tuned file for each environment of a file of rl_zoo3's hyperparameters."""
    try:
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ZooError(f"can't read {one_line(shown(file))}: {one_line(error)}") from error
    if not isinstance(entries, Mapping):
        raise ZooError(f"{one_line(shown(file))} holds no environments with their hyperparameters")
    algo, loader = settings.algo or ALGORITHMS.get(file.stem, file.stem), ConfigLoader("train")
    loader.load_incomplete([f"algo={quoted(algo)}"])  # refuses one that Zoo has not
    folder = Path(settings.out or "hyperparams", algo)
    for env, values in entries.items():
        path = folder / f"{folder_name(env)}.yaml"
        if str(env).endswith(("default", "defaults")) or not isinstance(values, Mapping):
            show(f"skips  {one_line(env)}: no environment")
        elif path.exists():
            show(f"skips  {one_line(env)}: {shown(path)} is there already (out=FOLDER writes elsewhere)")
        else:
            content, left_out = tuned_file(values, algo)
            notes = "".join(f"# Left out: {one_line(key)}\n" for key in left_out)
            write_text(path, f"# From {one_line(file.name)} of rl_zoo3.\n{notes}{to_yaml(content)}")
            try:
                loader.load_incomplete([f"algo={algo}", f"env={quoted(env)}", f"tuned={quoted(str(path))}"])
                show("\n       without ".join([f"tuned  {shown(path)}", *map(one_line, left_out)]))
            except ZooError as error:
                path.unlink()
                show(f"skips  {one_line(env)}: {error}")
    if algo == "trpo":
        show("note   target_kl and cg_damping are of the sum over action dimensions here, there of the mean")
    show(f"train  zoo train algo={algo} env=ID")
