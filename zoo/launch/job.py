"""One job under Hydra: its config, the user's callbacks, and the function that does the work."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.utils import run_job as run_hydra_job
from hydra.experimental.callback import Callback
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from zoo.config.compose import ConfigLoader
from zoo.config.user_imports import own_class
from zoo.core.printing import one_line


def run_job(loader: ConfigLoader, function: str, overrides: Sequence[str]) -> int:
    """Run one job and return its exit status. Raises what the job raises.

    ``function`` is ``module:name`` of what takes the job's config and returns its exit status, or None for 0.
    """
    config = loader.load_configuration(overrides, RunMode.RUN)

    def job(job_config: DictConfig) -> int | Exception:
        module, _, name = function.partition(":")
        try:
            return getattr(importlib.import_module(module), name)(job_config) or 0
        except Exception as error:  # of one that is raised Hydra would print a line of its own
            return error

    callbacks = Callbacks(config)
    callbacks.on_run_start(config=config, config_name=loader.command)
    done = run_hydra_job(
        job,
        config,
        job_dir_key="hydra.run.dir",
        job_subdir_key=None,
        hydra_context=HydraContext(config_loader=loader.hydra, callbacks=callbacks),  # type: ignore[arg-type]
        configure_logging=False,
    )
    callbacks.on_run_end(config=config, config_name=loader.command, job_return=done)
    result: int | Exception = done.return_value
    if isinstance(result, Exception):
        raise result
    return result


class Callbacks:
    """The callbacks that ``hydra.callbacks`` of a config names; each event of theirs is a method of this.

    One that fails is a warning.
    """

    def __init__(self, config: DictConfig) -> None:
        named: Any = OmegaConf.to_container(
            OmegaConf.create(config.hydra.get("callbacks") or {}), resolve=True
        )
        self._callbacks = [
            own_class(f"hydra.callbacks.{name}", settings.pop("_target_"), Callback)(**settings)
            for name, settings in named.items()
        ]

    def __getattr__(self, event: str) -> Callable[..., None]:
        def call(**arguments: Any) -> None:
            for each in self._callbacks:
                try:
                    getattr(each, event)(**arguments)
                except Exception as error:
                    warnings.warn(f"{type(each).__name__}.{event}: {one_line(error)}", stacklevel=2)

        return call
