"""What the project needs is declared, pinned, and named without saying where it comes from."""

from __future__ import annotations

import re
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import zoo

REPOSITORY = Path(__file__).resolve().parents[2]


def pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = [line.split(";")[0].strip().split("==") for line in lines if line and not line.startswith("#")]
    return dict(pinned)


def test_every_declared_dependency_is_pinned_within_its_range() -> None:
    pinned = pins()
    """But for the peers whose speed is compared, which Zoo does not depend on."""
    for text in requires("zoo") or []:
        requirement = Requirement(text)
        if requirement.name != "zoo" and "bench" not in str(requirement.marker):
            assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, text


def test_constraints_name_no_index_and_no_host() -> None:
    assert not re.search(r"://|^-", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)


def test_version_of_package_and_metadata_agree() -> None:
    assert zoo.__version__ == version("zoo")
