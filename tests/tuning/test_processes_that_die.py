"""Processes of a study that die before they have claimed a trial."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_studies import begun, worker_of

from zoo.errors import ZooError
from zoo.tuning.pool import Pool
from zoo.tuning.study import quiet_optuna

DIES = """
import json, os, signal, sys
from pathlib import Path

job = json.load(open(int(sys.argv[1])))
Path(sys.argv[2], f".try-{job['name']}").mkdir()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_that_die_before_a_trial_are_replaced_three_times_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = begun("n_trials=100")

    def start(pool: Pool, given: int, report: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DIES, str(given), str(found.plan.folder)]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[given, report], start_new_session=True
        )

    monkeypatch.setattr(Pool, "_process", start)
    with pytest.raises(ZooError, match=r"3 processes .* before their first trial; the last one .* SIGKILL"):
        found.run()
    told = capfd.readouterr().err
    assert len(re.findall("a process was killed by SIGKILL", told)) == 3
    assert "trial failed" not in told
    assert not found.plan.folder.exists(), "a study without a trial is forgotten"


def test_small_tries_of_dead_processes_are_removed_by_the_next() -> None:
    found = begun("n_trials=1")
    worker = worker_of(found)
    node = worker.name.rpartition("-")[0]
    left, elsewhere = (found.plan.folder / f".try-{name}" for name in (f"{node}-dead", "other-machine-1"))
    for folder in (left, elsewhere):
        Path(folder, "a2c").mkdir(parents=True)
    with quiet_optuna():
        worker.work()
    assert list(found.plan.folder.glob(".try-*")) == [elsewhere]
