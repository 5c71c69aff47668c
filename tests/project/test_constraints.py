"""What is installed beside Zoo: released versions of what it needs; and nobody is root in a container."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[2]


def test_constraints_hold_released_versions_alone() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert len(pins) > 50
    for pin in pins:
        (version,) = (each.version for each in pin.specifier)
        assert not Version(version).is_prerelease, pin
        assert "nightly" not in pin.name


def test_constraints_leave_the_peers_of_the_speed_comparison_out() -> None:
    text = (REPOSITORY / "constraints.txt").read_text()
    for name in ("sbx-rl", "jax", "flax", "tfp-nightly"):
        assert not re.search(rf"^{name}==", text, re.MULTILINE)


def test_container_has_a_user_and_a_base_of_one_release() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    assert any(
        re.fullmatch(r"ARG BASE=python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", line) for line in lines
    )
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users == ["zoo"]
    assert lines.index("USER zoo") < next(i for i, line in enumerate(lines) if line.startswith("ENTRYPOINT"))
