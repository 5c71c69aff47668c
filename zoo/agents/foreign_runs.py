"""What in the config of a stranger's run, experiment or tuned file is refused unless the user trusts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zoo.agents.foreign_sizes import check_sizes_of_run
from zoo.agents.trust import check_code
from zoo.agents.untrusted import UntrustedError

FILES_ELSEWHERE = ("init_from", "dataset", "experiment")
"""Settings of a run that name files of whoever trains it."""


def refuse_foreign_run(config: Mapping[str, Any], origin: str, remedy: str = "add trust=true") -> None:
    """Raise `ZooError` for the first thing in a run's config that a stranger's may not ask for.

    That is what an agent's may not, and to read or write elsewhere, to send anything, or to take more memory
    and time than there is.
    """
    try:
        _check(config)
    except UntrustedError as error:
        raise error.told_of(origin, remedy) from error


def _check(config: Mapping[str, Any]) -> None:
    for key in FILES_ELSEWHERE:
        if config.get(key) is not None:
            raise UntrustedError(key, config[key], "it reads what is not in the run")
    if "hydra" in config:
        raise UntrustedError("hydra", "…", "it could name code to run")
    algo = config.get("algo")
    algo = algo if isinstance(algo, Mapping) else {}
    for key in ("name", "preset"):
        if algo.get(key) is not None and not re.fullmatch(r"[A-Za-z]\w*", str(algo[key])):
            raise UntrustedError(f"algo.{key}", algo[key], "it is no name")
    check_code(config)
    check_sizes_of_run(config)
    pretrain, logger = config.get("pretrain"), config.get("logger")
    if isinstance(pretrain, Mapping) and pretrain.get("dataset") is not None:
        raise UntrustedError("pretrain.dataset", pretrain["dataset"], "it reads what is not in the run")
    if isinstance(logger, Mapping) and logger.get("wandb") is not None:
        raise UntrustedError("logger.wandb", logger["wandb"], "it sends the run to others")
