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
from zoo.config import resuming, sections
from zoo.config.composing import compose

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
    "widths as fractions": lambda config: config["policy"].update(net_arch=[1e6, 1e6]),
    "one width as a fraction": lambda config: config["policy"].update(net_arch={"pi": [4], "vf": [1e30]}),
    "memory of a policy as a fraction": lambda config: config["policy"].update(lstm_hidden_size=1e6),
    "rollout as a fraction": lambda config: config["algo"].update(n_steps=1e9),
    "rollout of many environments": lambda config: (
        config["algo"].update(n_steps=1e6),
        config.update(n_envs=100.0),
    ),
    "critics as a fraction": lambda config: config["algo"].update(n_critics=1e6),
    "environments as a fraction": lambda config: config.update(n_envs=1e9),
    "batch": lambda config: config["algo"].update(batch_size=1e9),
    "networks of a discriminator": lambda config: config["algo"].update(d_net_arch=[1e6, 1e6]),
    "gradient steps": lambda config: config["algo"].update(gradient_steps=1e12),
    "steps of a return": lambda config: config.update(memory={"n_step": 1e6}),
    "returns of a batch": lambda config: (
        config.update(memory={"n_step": 20_000}),
        config["algo"].update(batch_size=20_000),
    ),
    "weights of all critics": lambda config: (
        config["algo"].update(n_critics=100),
        config["policy"].update(net_arch=[5_000, 5_000]),
    ),
    "agents kept": lambda config: (
        config.update(n_timesteps=10**6),
        config["callbacks"].update(agents={"every": 1}),
    ),
    "threads": lambda config: config.update(threads=100_000),
    "episodes of an evaluation": lambda config: config["callbacks"].update(eval={"n_episodes": 1e9}),
    "environments of an evaluation": lambda config: config["callbacks"].update(eval={"n_envs": 10**9}),
    "size of a video": lambda config: config["callbacks"].update(video={"size": "100000x100000"}),
    "height of a video": lambda config: config["callbacks"].update(video={"size": 1e6}),
    "length of a video": lambda config: config["callbacks"].update(video={"length": 10**9}),
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


@pytest.mark.parametrize(
    "setting",
    [
        *("runs_dir: ../private", "runs_dir: /tmp/x", "runs_dir: ~/x", "runs_dir: downloads/link"),
        *("runs_dir: downloads/link/x", "runs_dir: downloads/below", "resume: downloads/run", "job: mine"),
    ],
)
def test_experiment_leads_nowhere_else(run: Path, setting: str, capfd: pytest.CaptureFixture[str]) -> None:
    private = Path("../private").resolve()
    Path("downloads/link").symlink_to(private)
    Path("downloads/below/a2c").mkdir(parents=True)
    Path("downloads/below/a2c/CartPole-v1").symlink_to(private)
    Path("exp.yaml").write_text(f"{setting}\n")
    assert status_of(["train", *TRAIN, "experiment=exp.yaml"]) == 2
    key = setting.partition(":")[0]
    assert f"`{setting}`, refused because it " in (told := capfd.readouterr().err)
    assert f"give {key}= on the command line" in told
    assert [path.name for path in private.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    "setting", ["storage: ../private/x.db", "warm_start: ../private/x.db", "study: ../../private/x"]
)
def test_search_of_an_experiment_leads_nowhere_else(
    run: Path, setting: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("exp.yaml").write_text(f"{setting}\n")
    assert status_of(["tune", *TRAIN, "n_trials=1", "experiment=exp.yaml"]) == 2
    assert f"`{setting}`, refused because it leads elsewhere" in capfd.readouterr().err
    assert [path.name for path in Path("../private").iterdir()] == ["letter.txt"]


def test_place_that_the_command_line_gives_is_the_users(run: Path) -> None:
    Path("exp.yaml").write_text("runs_dir: ../private\njob: mine\n")
    assert status_of(["train", *TRAIN, "experiment=exp.yaml", "runs_dir=mine", "job=null"]) == 0
    assert len(list(Path("mine").glob("a2c/*/*/run.json"))) == 1


def test_usual_folder_of_runs_may_be_a_link_of_the_users(run: Path) -> None:
    Path("elsewhere").mkdir()
    Path("runs").symlink_to(Path("elsewhere").absolute())
    assert status_of(["train", f"experiment={run}/config.yaml", "verbose=0"]) == 0


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


def test_harmless_tuned_file_and_experiment_are_taken(run: Path) -> None:
    Path("downloads/tuned.yaml").write_text("env:\n  normalize: true\n")
    assert status_of(["train", *TRAIN, "tuned=downloads/tuned.yaml"]) == 0
    assert status_of(["train", *TRAIN, "experiment=downloads/tuned.yaml"]) == 0


@pytest.mark.parametrize(
    "way", ["hyperparams/../downloads/tuned.yaml", "hyperparams/a2c/../../downloads/tuned.yaml"]
)
def test_tuned_file_is_not_trusted_for_the_way_to_it(
    run: Path, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("hyperparams/a2c").mkdir(parents=True)
    Path("downloads/tuned.yaml").write_text("env:\n  wrappers: [evil.Wrapper]\n")
    assert status_of(["train", *TRAIN, f"tuned={way}"]) == 2
    assert "trust=true" in capfd.readouterr().err
    Path("conf/experiment").mkdir(parents=True)
    assert status_of(["train", *TRAIN, "experiment=../../downloads/tuned"]) == 2
    assert not Path("../ran").exists()


@pytest.mark.parametrize("group", ["policy", "memory"])
def test_tuned_file_chooses_no_file_beside_it(
    run: Path, group: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(f"conf/{group}").mkdir(parents=True)
    Path("downloads/evil.yaml").write_text("_target_: evil.Policy\n")
    Path("downloads/tuned.yaml").write_text(
        yaml.safe_dump({"defaults": ["_self_", {f"override /{group}": "../../downloads/evil"}]})
    )
    train = [each for each in TRAIN if not each.startswith("policy")]
    assert status_of(["train", *train, "tuned=downloads/tuned.yaml"]) == 2
    assert "chooses what is no option" in capfd.readouterr().err
    assert not Path("../ran").exists()


SWAPPED = {
    "resume": (resuming, lambda run: [f"resume={run}"]),
    "experiment": (sections, lambda run: [f"experiment={run}/config.yaml"]),
}


@pytest.mark.parametrize("way", SWAPPED)
def test_config_that_is_another_once_it_was_verified_is_not_used(
    run: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write into the run's folder waits until the signature was looked at."""
    assert status_of(["train", *TRAIN]) == 0
    own = next(Path("runs").glob("a2c/*/*"))
    module, overrides = SWAPPED[way]
    real = module.config_of_own_run

    def verified_and_swapped(folder: Path) -> bytes | None:
        found = real(folder)
        edit(own, NAMING_CODE["wrapper"])
        return found

    monkeypatch.setattr(module, "config_of_own_run", verified_and_swapped)
    assert compose("train", overrides(own))["env"]["wrappers"] == []


def test_trusted_run_with_a_linked_or_large_config_is_reproduced(run: Path) -> None:
    content = (run / "config.yaml").read_text()
    Path("elsewhere.yaml").write_text(content + "# " + "x" * 300_000 + "\n")
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to(Path("elsewhere.yaml").absolute())
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "status": "finished"}))
    assert status_of(["reproduce", str(run)]) == 2
    assert status_of(["reproduce", str(run), "trust=true"]) == 0


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
