"""Write constraints.txt from the environment that runs this script.

    .venv/bin/python scripts/pin_constraints.py

Pins every installed package that Zoo, its extras and their dependencies need, but for the extra of the speed
comparison, whose peers bring nightly builds, and for what exists as a pre-release only: whoever needs such a
one names its version. A version that does not run on the oldest supported Python is pinned from the first
one on which it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
UNPINNED = "bench"
OLDEST_MINOR = 10
NEWEST_MINOR = 14
HEADER = """\
# The versions that Zoo is tested with, on Python 3.11: pip install -c constraints.txt -e ".[all,test]"
# Written by scripts/pin_constraints.py.
"""


def main() -> None:
    packages = [each for each in needed_packages().values() if not Version(each.version).is_prerelease]
    pins = sorted(map(constraint, packages))
    path = REPOSITORY / "constraints.txt"
    path.write_text(HEADER + "\n".join(pins) + "\n")
    print(f"{path.name}: {len(pins)} packages")


def needed_packages() -> dict[str, Distribution]:
    """Return the installed packages that the project and its extras need, directly or through others."""
    found: dict[str, Distribution] = {}
    waiting = list(declared_requirements())
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name == "zoo-rl":
            continue
        package = installed(requirement)
        if package is None:
            continue
        if name not in found:
            found[name] = package
            waiting += requirements_of(package, extras=set())
        if requirement.extras:
            waiting += requirements_of(package, extras=requirement.extras)
    return found


def declared_requirements() -> Iterator[Requirement]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = {name: texts for name, texts in project["optional-dependencies"].items() if name != UNPINNED}
    for texts in [project["dependencies"], *extras.values()]:
        yield from map(Requirement, texts)


def installed(requirement: Requirement) -> Distribution | None:
    try:
        return distribution(requirement.name)
    except PackageNotFoundError:
        if requirement.marker is None:
            raise SystemExit(f"{requirement.name} is not installed; install every extra first") from None
        return None


def requirements_of(package: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for text in package.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None:
            if not extras:
                yield requirement
        elif any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield requirement


def constraint(package: Distribution) -> str:
    name = canonicalize_name(package.metadata["Name"])
    version = package.version.split("+")[0]
    supported = SpecifierSet(package.metadata["Requires-Python"] or "")
    oldest = next(minor for minor in range(OLDEST_MINOR, NEWEST_MINOR) if f"3.{minor}.99" in supported)
    marker = f'; python_version >= "3.{oldest}"' if oldest > OLDEST_MINOR else ""
    return f"{name}=={version}{marker}"


if __name__ == "__main__":
    main()
