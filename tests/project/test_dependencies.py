"""What is installed: extras, constraints, private parts of libraries."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_rooms import modules

from zoo.errors import install_command
from zoo.tuning.samplers import NEEDS

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = json.loads(subprocess.check_output([sys.executable, "-m", "hatchling", "metadata"], cwd=REPOSITORY))
EXTRAS = {
    name: [Requirement(each) for each in texts] for name, texts in PROJECT["optional-dependencies"].items()
}


def pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = [line.split(";")[0].strip().split("==") for line in lines if line and not line.startswith("#")]
    return dict(pinned)


def names(extra: str, python: str = "3.11") -> set[str]:
    """Return the packages that an extra brings on a release of Python."""
    return {
        canonicalize_name(each.name)
        for each in EXTRAS[extra]
        if each.marker is None or each.marker.evaluate({"python_version": python})
    }


def test_every_dependency_is_pinned_within_its_range() -> None:
    """But for the peers whose speed is compared, which Zoo does not depend on."""
    pinned = pins()
    declared = [Requirement(text) for text in PROJECT["dependencies"]]
    for requirements in [declared, *(EXTRAS[extra] for extra in EXTRAS if extra != "bench")]:
        for requirement in requirements:
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_citation_and_package_agree() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]


def test_public_workflow_runs_the_ci_script() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "test.yml").read_text())
    assert "bash .ci/run" in [step.get("run") for step in workflow["jobs"]["test"]["steps"]]
    for form in (REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        fields = yaml.safe_load(form.read_text())["body"]
        assert len({field["id"] for field in fields}) == len(fields)


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"all", "bench", "docs", "test"}))
def test_install_command_names_packages_of_extra(extra: str) -> None:
    assert install_command(extra).startswith("pip install ")
    named = {Requirement(each) for each in shlex.split(install_command(extra))[2:]}
    assert {(each.name, frozenset(each.extras)) for each in named} == {
        (each.name, frozenset(each.extras)) for each in EXTRAS[extra]
    }


def test_no_text_installs_zoo_from_the_index() -> None:
    """What the index has as zoo is another project; zoo-rl is installed from its repository."""
    files = [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").glob("*.md"),
        *REPOSITORY.glob("conf/**/*.yaml"),
    ]
    for path in [*files, *REPOSITORY.glob("zoo/**/*.py"), *REPOSITORY.glob("scripts/*.*")]:
        assert not re.search(r"pip install [^\n`;]*[\"' ]zoo(?!-rl(\[[\w,]+\])? @)\b", path.read_text()), path


def test_tune_brings_what_its_samplers_need() -> None:
    assert names("tune") >= set(NEEDS.values())


def test_tuning_without_scipy_refuses_its_samplers() -> None:
    code = """
import sys
sys.modules["scipy"] = None
from zoo.errors import ZooError
from zoo.tuning import report, study_process
from zoo.tuning.samplers import make_sampler
for name in ("RandomSampler", "TPESampler", "CmaEsSampler", "GPSampler", "QMCSampler"):
    try:
        make_sampler({"_target_": f"optuna.samplers.{name}"}, 0, 0)
    except ZooError as error:
        print(name, "scipy" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["GPSampler True", "QMCSampler True"]


def internals(source: str) -> Iterator[str]:
    """Give the private modules and names of Hydra and OmegaConf that a file takes, and calls of such."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name):
            names = [f"omegaconf.{node.attr}"] if node.attr in ("_get_node", "_metadata", "_internal") else []
        for name in names:
            package, *parts = name.split(".")
            if package in ("hydra", "omegaconf") and any(part.startswith("_") for part in parts):
                yield name


def test_no_file_reaches_into_hydra() -> None:
    assert {path: found for path in modules() if (found := list(internals(path.read_text())))} == {}
