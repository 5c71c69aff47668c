"""A folder that somebody sent, given to `resume=`, `experiment=`, `init_from=` and `zoo reproduce`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bounds import within_bounds

from zoo.cli import status_of

TRAIN = (
    *("algo=a2c", "env=CartPole-v1", "n_timesteps=40", "n_envs=2", "algo.n_steps=5", "policy.net_arch=[4]"),
    *("callbacks.eval=null", "callbacks.checkpoint.keep=true", "compile=false", "seed=1", "verbose=0"),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after its last update; it stands in no folder where anybody works."""
    before, folder = Path.cwd(), tmp_path_factory.mktemp("trained")
    os.chdir(folder)
    try:
        assert status_of(["train", *TRAIN]) == 0
        assert status_of(["train", *TRAIN, "job=first"]) == 0
    finally:
        os.chdir(before)
    run = sorted(folder.glob("runs/a2c/*/*"))[0]
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "preempted"}))
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, unpacked beside other files of the user's."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "letter.txt").write_text("untouched")
    work = tmp_path / "work"
    shutil.copytree(trained, work / "downloads" / "run")
    (work / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + EVIL)
    monkeypatch.chdir(work)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return Path("downloads/run")


EVIL = """
import gymnasium
from zoo.algorithms.callback import Callback
from zoo.training.loggers import Logger
from zoo.policies.actor_critic import ActorCritic as Policy
class Wrapper(gymnasium.Wrapper): pass
class Tracker(Logger): pass
gymnasium.register("Evil-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
"""

NAMING_CODE: dict[str, Callable[[dict[str, Any]], object]] = {
    "environment": lambda config: config["env"].update(id="evil:Evil-v0"),
    "wrapper": lambda config: config["env"].update(wrappers=["evil.Wrapper"]),
    "policy": lambda config: config["policy"].update(_target_="evil.Policy"),
    "callback": lambda config: config["callbacks"].update(mine={"_target_": "evil.Callback"}),
    "tracker": lambda config: config["logger"].update(mine={"_target_": "evil.Tracker"}),
    "shell": lambda config: config["env"].update(
        wrappers=[{"_target_": "pydoc.pipepager", "cmd": "touch ../ran"}]
    ),
    "masks": lambda config: config["env"].update(
        wrappers=[{"_target_": "ActionMasker", "action_mask_fn": "evil.f"}]
    ),
    "callback of Hydra": lambda config: config.update(
        hydra={"callbacks": {"mine": {"_target_": "evil.Callback"}}}
    ),
    "search path of Hydra": lambda config: config.update(hydra={"searchpath": ["file://downloads"]}),
    "environment variable": lambda config: config["env"].update(kwargs={"name": "${oc.env:HOME}"}),
    "variable as a seed": lambda config: config.update(seed="${oc.env:HOME}"),
    "weights from elsewhere": lambda config: config.update(init_from="../private"),
    "data from elsewhere": lambda config: config.update(dataset="../private/letter.txt"),
    "expert from elsewhere": lambda config: config.update(pretrain={"dataset": "../private/letter.txt"}),
    "tracker of others": lambda config: config["logger"].update(wandb={"project": "evil"}),
    "algorithm in a folder": lambda config: config["algo"].update(preset="../../downloads/evil"),
    "environment in a folder": lambda config: config["env"].update(id="../../downloads/evil"),
    "file of an environment": lambda config: config["env"].update(kwargs={"xml_file": "/etc/passwd"}),
    "window": lambda config: config["env"].update(render_mode="human"),
    "widths": lambda config: config["policy"].update(net_arch=[10**6, 10**6]),
    "one width": lambda config: config["policy"].update(net_arch={"pi": [4], "vf": [10**30]}),
    "layers": lambda config: config["policy"].update(net_arch=[1] * 1_000),
    "memory of a policy": lambda config: config["policy"].update(lstm_hidden_size=10**6),
    "rollout": lambda config: config["algo"].update(n_steps=10**9),
    "critics": lambda config: config["algo"].update(n_critics=10**6),
    "environments": lambda config: config.update(n_envs=10**9),
}

WAYS: dict[str, Callable[[Path], list[str]]] = {
    "resume": lambda run: ["train", f"resume={run}", "verbose=0"],
    "experiment": lambda run: ["train", f"experiment={run}/config.yaml", "verbose=0"],
    "many": lambda run: ["train", "-m", f"experiment={run}/config.yaml", "seed=1"],
    "reproduce": lambda run: ["reproduce", str(run)],
}


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    change(config)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("change", NAMING_CODE.values(), ids=NAMING_CODE)
def test_run_that_names_code_is_refused_in_one_line(
    run: Path,
    change: Callable[[dict[str, Any]], object],
    way: Callable[[Path], list[str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    edit(run, change)
    assert status_of(way(run)) == 2
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("zoo: ")]
    assert len(told) == 1
    assert "refused" in told[0]
    assert "trust=true" in told[0]
    assert not Path("../ran").exists()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "defaults",
    [
        ["_self_", {"override /env": "evil:Evil-v0"}],
        ["_self_", {"override /env": "../../downloads/evil"}],
        ["_self_", {"override hydra/launcher": "evil"}],
        ["_self_", {"/callbacks@hydra.callbacks": "eval"}],
        ["_self_", {"override /tuned": "/etc/passwd.yaml"}],
        {"override /env": "evil:Evil-v0"},
        ["../../evil"],
    ],
)
def test_experiment_that_chooses_code_is_refused(
    run: Path, defaults: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("exp.yaml").write_text(yaml.safe_dump({"defaults": defaults, "seed": 1}))
    Path("downloads/evil.yaml").write_text("# @package hydra.callbacks\nmine:\n  _target_: evil.Callback\n")
    assert status_of(["train", "experiment=exp.yaml", "algo=a2c", "env=CartPole-v1"]) == 2
    assert "trust=true" in capfd.readouterr().err
    assert not Path("../ran").exists()


@pytest.mark.parametrize("setting", ["runs_dir: ../private", "runs_dir: /tmp/x", "resume: downloads/run"])
def test_experiment_leads_nowhere_else(run: Path, setting: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("exp.yaml").write_text(f"{setting}\n")
    assert status_of(["train", "experiment=exp.yaml", "algo=a2c", "env=CartPole-v1"]) == 2
    assert "leads elsewhere" in capfd.readouterr().err


def test_file_can_not_say_that_it_is_trusted(run: Path) -> None:
    edit(run, lambda config: config.update(trust=True))
    edit(run, NAMING_CODE["wrapper"])
    for way in WAYS.values():
        assert status_of(way(run)) == 2
    assert not Path("../ran").exists()


def test_harmless_run_of_somebody_else_is_gone_on_with(run: Path) -> None:
    assert status_of(["train", f"resume={run}", "verbose=0"]) == 0
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert status_of(["train", f"experiment={run}/config.yaml", "verbose=0", "runs_dir=mine"]) == 0
    assert "trust" not in yaml.safe_load(next(Path("mine").rglob("config.yaml")).read_text())


def test_trusted_run_does_what_its_config_names(run: Path) -> None:
    edit(run, NAMING_CODE["wrapper"])
    assert (
        status_of(["train", f"experiment={run}/config.yaml", "trust=true", "verbose=0", "runs_dir=mine"]) == 0
    )
    assert Path("../ran").exists()


def test_own_run_does_what_its_config_names(run: Path) -> None:
    assert status_of(["train", *TRAIN, "env.wrappers=[evil.Wrapper]"]) == 0
    Path("../ran").unlink()
    own = next(Path("runs").glob("a2c/*/*"))
    record = json.loads((own / "run.json").read_text())
    (own / "run.json").write_text(json.dumps({**record, "status": "preempted"}))
    for way in ("resume", "experiment"):
        assert status_of(WAYS[way](own)) == 0
    edit(own, lambda config: config.update(seed=2))
    assert status_of(WAYS["experiment"](own)) == 2


PLACES = (".lock", "run.json", "config.yaml", "progress.csv", "evaluations.npz", "checkpoint/checkpoint.json")
FOLDERS = ("checkpoint", "monitor", "videos", "tb", "agent", "best_agent")


def replace(path: Path, make: Callable[[Path], object]) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize("way", [WAYS["resume"], WAYS["reproduce"]], ids=["resume", "reproduce"])
@pytest.mark.parametrize("place", [*PLACES, *FOLDERS, "monitor/0.monitor.csv"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_are_not_followed_and_pipes_not_waited_for(
    run: Path, place: str, kind: str, way: Callable[[Path], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    private = Path("../private").resolve()
    target = private if place in FOLDERS else private / "letter.txt"
    replace(run / place, os.mkfifo if kind == "pipe" else lambda path: path.symlink_to(target))
    assert status_of(way(run)) == 2
    assert capfd.readouterr().err.startswith("zoo: ")
    assert [path.name for path in private.iterdir()] == ["letter.txt"]
    assert (private / "letter.txt").read_text() == "untouched"


@pytest.mark.parametrize("file", ["config.yaml", "policy.safetensors", "normalization.safetensors"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_weights_are_not_read_through_links_nor_pipes(
    run: Path, file: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    real = Path("../private", file).resolve()
    if (run / "agent" / file).exists():
        shutil.copy(run / "agent" / file, real)
    replace(run / "agent" / file, os.mkfifo if kind == "pipe" else lambda path: path.symlink_to(real))
    assert status_of(["train", *TRAIN, f"init_from={run}/agent"]) == 2
    assert capfd.readouterr().err.startswith("zoo: ")


TUNED = {
    "wrapper": {"env": {"wrappers": ["evil.Wrapper"]}},
    "policy": {"policy": {"_target_": "evil.Policy"}},
    "file": {"env": {"kwargs": {"xml_file": "/etc/passwd"}}},
    "widths": {"policy": {"net_arch": [10**6, 10**6]}},
}


@pytest.mark.parametrize("values", TUNED.values(), ids=TUNED)
def test_tuned_file_that_names_code_is_refused(
    run: Path, values: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("downloads/tuned.yaml").write_text(yaml.safe_dump(values))
    assert status_of(["train", *TRAIN, "tuned=downloads/tuned.yaml"]) == 2
    assert "trust=true" in capfd.readouterr().err
    assert not Path("../ran").exists()


def test_tuned_file_of_references_and_a_pipe_are_refused(run: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)]
    Path("tuned.yaml").write_text("\n".join(lines))
    os.mkfifo("pipe.yaml")
    with within_bounds():
        assert status_of(["train", *TRAIN, "tuned=tuned.yaml"]) == 2
        assert status_of(["train", *TRAIN, "tuned=pipe.yaml"]) == 2
        assert status_of(["train", *TRAIN, "experiment=tuned.yaml"]) == 2
        assert status_of(["train", *TRAIN, "experiment=pipe.yaml"]) == 2
