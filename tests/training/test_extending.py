"""The config of a run that was given more steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zoo.errors import ZooError
from zoo.training.extending import refuse_what_follows_the_length, write_extended
from zoo.training.run_folder import RunFolder


@pytest.mark.parametrize(
    ("compiles", "threads", "expected"),
    [(False, 3, (False, 3)), (True, "auto", (True, "auto")), ("auto", 2, ("auto", 2))],
)
def test_what_was_decided_by_the_length_stays_and_nothing_else_is_decided(
    run: RunFolder, compiles: Any, threads: Any, expected: tuple[Any, Any]
) -> None:
    config = {"n_timesteps": 64, "compile": "auto", "threads": "auto", "verbose": 1}
    run.write_config(config)
    algorithm: Any = SimpleNamespace(runtime=SimpleNamespace(compile=compiles, threads=threads))
    longer = write_extended(run, {**config, "n_timesteps": 640, "verbose": 0}, algorithm)
    assert (longer["compile"], longer["threads"]) == expected
    written = run.read_config()
    assert written == {**longer, "verbose": 1}
    assert (written["n_timesteps"], run.read_record()["status"]) == (640, "preempted")


@pytest.mark.parametrize(
    ("paced", "said"),
    [
        ({"algo.learning_rate": "lin_1e-3"}, "algo.learning_rate=lin_1e-3 follows the number of steps"),
        (
            {"algo.learning_rate": "lin_1e-3", "algo.clip_range": "lin_0.2"},
            "algo.learning_rate=lin_1e-3 and algo.clip_range=lin_0.2 follow the number of steps",
        ),
    ],
)
def test_what_follows_the_length_is_named(run: RunFolder, paced: dict[str, str], said: str) -> None:
    algorithm: Any = SimpleNamespace(paced=lambda: paced, envs=None)
    with pytest.raises(ZooError) as caught:
        refuse_what_follows_the_length(algorithm, run, {"n_timesteps": 640, "callbacks": {}})
    assert f"n_timesteps=640: {said}; " in str(caught.value)


def test_a_run_in_which_nothing_follows_the_length_is_not_refused(run: RunFolder) -> None:
    algorithm: Any = SimpleNamespace(paced=dict, envs=None)
    refuse_what_follows_the_length(algorithm, run, {"n_timesteps": 640, "callbacks": {}})
