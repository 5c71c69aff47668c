"""Composing as Hydra does, from Zoo's source, with every value checked and every mistake explained."""

from __future__ import annotations

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins import basic_launcher, basic_sweeper  # noqa: F401  (they register themselves)
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, flag_override

from zoo.config.checking import checked, require_choices
from zoo.config.mistakes import HYDRA_ERRORS, explained
from zoo.config.resuming import ResumedRun
from zoo.config.source import SCHEME, ZooConfigSource, chosen_groups

VERSION_BASE = "1.3"

PLUGIN_GROUPS = ("hydra/launcher/", "hydra/sweeper/")

SOURCES = (ZooConfigSource, FileConfigSource, ImportlibResourcesConfigSource, StructuredConfigSource)


class ConfigLoader(ConfigLoaderImpl):
    """Composes the config of one command, for Hydra and for `zoo.compose`.

    Hydra searches for plug-ins only once a launcher or sweeper is asked for, so that a run starts sooner.
    """

    def __init__(self, command: str) -> None:
        version.setbase(VERSION_BASE)
        setup_globals()
        for source in SOURCES:
            SourcesRegistry.instance().register(source)
        search_path = ConfigSearchPathImpl()
        search_path.append("hydra", "pkg://hydra.conf")
        search_path.append("zoo", f"{SCHEME}://{command}")
        search_path.append("schema", "structured://")
        super().__init__(search_path)
        self.command = command

    @property
    def source(self) -> ZooConfigSource:
        """Zoo's own source of configs."""
        return next(source for source in self.get_sources() if isinstance(source, ZooConfigSource))

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose; for a run (not for the frame of a multirun) also check. Raises `ZooError`."""
        is_run = run_mode == RunMode.RUN
        try:
            resumed = ResumedRun.of(overrides) if is_run else None
            given = overrides if resumed is None else resumed.overrides
            config = self._composed(config_name, given, run_mode, from_shell, validate_sweep_overrides)
            if resumed is not None:
                resumed.put_into(config)
            plain = _plain_job(config)
        except (*HYDRA_ERRORS, ValueError) as error:
            raise explained(error, self.known_keys()) from error
        if is_run:
            require_choices(self.command, plain)
            self._check(config, plain)
        return config

    def _composed(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *options: bool
    ) -> DictConfig:
        try:
            return super().load_configuration(config_name, overrides, run_mode, *options)
        except MissingConfigException as error:
            if not str(error.missing_cfg_file).startswith(PLUGIN_GROUPS):
                raise
            Plugins.instance()
            return super().load_configuration(config_name, overrides, run_mode, *options)

    def load_incomplete(self, overrides: list[str]) -> DictConfig:
        """Compose and check what has been chosen so far; a group that has not been chosen is left out."""
        if ResumedRun.of(overrides) is not None:
            return self.load_configuration(self.command, overrides, RunMode.RUN)
        config = self.load_configuration(self.command, overrides, RunMode.MULTIRUN)
        self._check(config, _plain_job(config))
        return config

    def groups(self) -> list[str]:
        """Return the config groups of the command, as its defaults list names them, and Hydra's launchers."""
        return [*(group for group in self._groups() if not group.startswith("hydra")), "hydra/launcher"]

    def known_keys(self) -> list[str]:
        """Return the names at the top of the command's config: its settings and its groups."""
        names = dict.fromkeys([*map(str, self._command_config()), *self._groups()])
        return [name for name in names if name != "defaults" and not name.startswith("hydra")]

    def _command_config(self) -> DictConfig:
        config = self.source.load_config(self.command).config
        assert isinstance(config, DictConfig)
        return config

    def _groups(self) -> list[str]:
        return chosen_groups(self._command_config())

    def _check(self, config: DictConfig, plain: dict[str, object]) -> None:
        with flag_override(config, ["struct", "readonly"], [False, False]):
            for key, value in checked(self.command, plain).items():
                config[key] = value

    def _compose_config_from_defaults_list(
        self, defaults: list[ResultDefault], repo: IConfigRepository
    ) -> DictConfig:
        """Open the sections for keys that no file has: the check that follows knows what they may be."""
        config = super()._compose_config_from_defaults_list(defaults, repo)
        for key in config:
            node = config._get_node(key)
            if key != "hydra" and isinstance(node, DictConfig):
                OmegaConf.set_struct(node, False)
        return config


def _plain_job(config: DictConfig) -> dict[str, object]:
    """Return everything but Hydra's own part as plain values, with interpolations resolved."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    plain = OmegaConf.to_container(job, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}
