"""A whole search, by its config: begun or gone on with, run by as many processes as asked for, and told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from zoo.config.environment_values import resolved
from zoo.tuning.plan import Plan
from zoo.tuning.report import Result, result_of
from zoo.tuning.study import SharedStudy, open_study
from zoo.tuning.worker import Pool

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class Search:
    """A study that was begun or found, whose storage is closed at the end of a block of it.

    ``remarks`` are what to say of how it begins.
    """

    plan: Plan
    shared: SharedStudy
    remarks: list[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shared.storage.close()

    def run(self) -> bool:
        """Run what is left of it; return False if a signal ended that. Raises `ZooError`."""
        with self.shared.storage.mistakes_told():
            return Pool(self.plan, self.shared).run()

    def result(self) -> Result:
        """Return what came out so far, and write it into the study's folder."""
        with self.shared.storage.mistakes_told():
            return result_of(self.plan, self.shared)


def search(config: Mapping[str, Any]) -> Search:
    """Begin or find the study of a config that `zoo.compose("tune", …)` returned. Raises `ZooError`."""
    plan = Plan(resolved(OmegaConf.create(dict(config))))
    plan.check()
    return Search(plan, *open_study(plan))


def tune(config: Mapping[str, Any]) -> Result:
    """Search as the config says that `zoo.compose("tune", …)` returned; return what came out.

    The same config again goes on with the study. Raises `ZooError` for what does not go together, and for
    what stopped the study.
    """
    with search(config) as started:
        started.run()
        return started.result()
