"""What tests of the project share: the wheel, installed."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from installed import REPOSITORY, SHIPPED, run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as an installer would; nothing is downloaded."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, source / name)
    built = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)], built)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="session")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a fresh environment in ``venv``: the wheel, and the libraries of this one."""
    home = tmp_path_factory.mktemp("a folder with spaces")
    environment = home / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], home)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], home)
    (packages / "libraries_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home
