"""All that Zoo uses of Hydra and OmegaConf beyond what they promise to keep.

Hydra's own entry point reads `sys.argv`, looks for configs beside a file, and prints mistakes itself; Zoo
does these things its own way, and so needs parts from inside. When a new release changes one of them, this is
the file to look at; `TRIED_WITH` names the releases that it was written for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.hydra import Hydra
from hydra.core.default_element import ResultDefault
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.errors import OverrideParseException
from hydra.plugins.config_source import ConfigLoadError, ConfigSource
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf, flag_override

from zoo.errors import ZooError
from zoo.files.printing import one_line

__all__ = [
    "TRIED_WITH",
    "JobReturn",
    "ObjectType",
    "Override",
    "PluggedLoader",
    "completed",
    "header_of",
    "hydra_part",
    "hydra_with",
    "launcher_with",
    "parse_overrides",
    "register_launcher",
]

TRIED_WITH = {"hydra-core": "1.3.8", "omegaconf": "2.3.1"}

VERSION_BASE = "1.3"


class PluggedLoader(ConfigLoaderImpl):
    """Hydra's composing of a command's config, from our source.

    Sections are open to keys that no file has: whoever checks the config knows what they may be.
    """

    def __init__(self, source: type[ConfigSource], command: str, choices: Collection[str] = ()) -> None:
        version.setbase(VERSION_BASE)
        setup_globals()
        Plugins.instance().register(source)
        search_path = ConfigSearchPathImpl()
        search_path.append("hydra", "pkg://hydra.conf")
        search_path.append("zoo", f"{source.scheme()}://{command}")
        search_path.append("schema", "structured://")
        super().__init__(search_path)
        self.command = command
        self.choices = choices
        """Groups without a usual option; each job of a multirun may choose another one."""
        self._unchosen: set[str] = set()

    def composed(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *options: bool
    ) -> DictConfig:
        """Return the config, without groups of which nothing is chosen, whatever is set within them.

        ``options`` are the rest of what `load_configuration` takes.
        """
        config = super().load_configuration(config_name, overrides, run_mode, *options)
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for group in self._unchosen:
                del config[group]
        return config

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: Any) -> DictConfig:
        config = super()._compose_config_from_defaults_list(defaults, cast(Any, _WithoutSchemas(repo)))
        self._unchosen = {group for group in self.choices if group not in config}
        for group in self._unchosen:
            config[group] = {}
        for key in config:
            node = config._get_node(key)
            if key != "hydra" and isinstance(node, DictConfig):
                OmegaConf.set_struct(node, False)
        return config


class _WithoutSchemas:
    """A repository in which our files stand alone.

    Hydra would hold those that are called like launchers of its own against what these declare.
    """

    def __init__(self, repository: Any) -> None:
        self._repository = repository

    def __getattr__(self, name: str) -> Any:
        return getattr(self._repository, name)

    def get_schema_source(self) -> ConfigSource:
        raise ConfigLoadError("no schemas")


def register_launcher(launcher: type[Launcher]) -> None:
    """Let configs name a launcher as ``hydra_plugins.zoo.<class>``: Hydra takes none from elsewhere."""
    Plugins.instance().class_name_to_class[f"hydra_plugins.zoo.{launcher.__name__}"] = launcher


def launcher_with(loader: PluggedLoader, config: DictConfig, task_function: Any) -> Any:
    """Return the launcher that the frame of a multirun chooses, ready for jobs of ``task_function``."""
    context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
    return Plugins.instance().instantiate_launcher(
        config=config, hydra_context=context, task_function=task_function
    )


def completed(overrides: Sequence[str], value: Any) -> JobReturn:
    """Return what a launcher hands back for a job that returned ``value``."""
    return JobReturn(overrides=overrides, status=JobStatus.COMPLETED, _return_value=value)


def parse_overrides(overrides: Sequence[str]) -> list[Override]:
    """Return overrides as Hydra reads them. Raises `ZooError` for one that it can't read."""
    try:
        return OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise ZooError(
            f"`{error.override}` can't be read: {one_line(error.message.partition(chr(10))[0])}; expected"
            " key=value, 'key=[a,b]' for a list, and 'key=\"…\"' for a text with special characters"
        ) from error


def header_of(text: str) -> dict[str, str | None]:
    """Return what the comments at the top of a file say to Hydra, such as ``# @package``."""
    return ConfigSource._get_header_dict(text)


def hydra_with(loader: PluggedLoader) -> Hydra:
    """Return what runs one job or many with the configs of this loader."""
    return Hydra(task_name=loader.command, config_loader=loader)


def hydra_part(config: DictConfig) -> Any:
    """Return Hydra's own part of a config, as `--cfg hydra` shows it."""
    return Hydra.get_sanitized_hydra_cfg(config)
