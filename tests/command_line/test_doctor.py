"""`zoo doctor` says what a bug report needs, nothing secret, and what it could not find out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_bug_report(tmp_path: Path) -> None:
    """A compiler that fails leaves the rest as it is."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "doctor", "format=json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={
            **os.environ,
            "CXX": "no-such-compiler",
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
            "WANDB_API_KEY": "hidden-1",
            "HTTPS_PROXY": "http://me:hidden-2@127.0.0.1:9",
        },
    )
    assert "hidden" not in done.stdout
    found = json.loads(done.stdout)
    assert {"zoo", "python", "torch", "gymnasium", "numpy", "hydra-core"} <= found["versions"].keys()
    assert found["machine"]["cores"] >= 1
    assert found["compiling"].startswith("fails")
    assert {"atari", "hub", "wandb"} < found["extras"].keys()
    assert found["extras"]["plots"].startswith("matplotlib ")
    assert found["torch"]["torch_version"]
    assert found["torch"]["pip_packages"]
