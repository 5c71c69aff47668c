"""An agent's files: written whole or not at all, read as data, and found by algorithm and environment."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from zoo.agents import find
from zoo.agents.agent_folder import AgentFiles, read_agent, read_card, write_agent
from zoo.agents.find import find_agent, resolve_agent
from zoo.algorithms.saving import check_tensors
from zoo.cli import status_of
from zoo.errors import ZooError

NAMES = {"config.yaml", "policy.safetensors", "normalization.safetensors", "card.json", "README.md"}


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ZooError) as caught:
        read_agent(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


def edit_config(folder: Path, **changes: Any) -> Path:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, **changes}))
    return folder


@pytest.fixture
def folder(tmp_path: Path, agent: AgentFiles) -> Path:
    return write_agent(tmp_path / "agent", agent)


@pytest.mark.parametrize(
    "name", ["agent", "agent.zip", "a folder with spaces/agent", "new/folders/agent.zip"]
)
def test_agent_reads_back_as_written(tmp_path: Path, agent: AgentFiles, name: str) -> None:
    read = read_agent(write_agent(tmp_path / name, agent))

    assert read.config == {"format": 1, **agent.config}
    assert {name: array.dtype for name, array in read.tensors.items()} == {
        name: array.dtype for name, array in agent.tensors.items()
    }
    for name, array in agent.tensors.items():
        np.testing.assert_array_equal(read.tensors[name], array)
        assert read.tensors[name].shape == array.shape
        assert read.tensors[name].flags.writeable
    assert read.normalization is not None
    assert agent.normalization is not None
    for name, array in agent.normalization[0].items():
        np.testing.assert_array_equal(read.normalization[0][name], array)
        assert read.normalization[0][name].dtype == np.float64
    assert read.normalization[1] == agent.normalization[1]
    assert read.card.items() >= agent.card.items()


def test_card_gets_names_hyperparameters_and_versions(folder: Path) -> None:
    card = read_card(folder)
    assert (card["algo"], card["env"]) == ("ppo2", "CartPole-v1")
    assert card["hyperparameters"]["clip_range"] == 0.2
    assert "name" not in card["hyperparameters"]
    assert {"python", "zoo", "torch", "gymnasium", "numpy"} <= set(card["versions"])
    assert card["created"].endswith("+00:00")


def test_readme_shows_score_hyperparameters_commands(folder: Path, agent: AgentFiles) -> None:
    agent.config["replay"] = {"n_step": 3}
    text = (write_agent(folder, agent) / "README.md").read_text()
    score = "487.2 ± 2.50 over 100 episodes"
    for expected in ("# ppo2 on CartPole-v1", score, "50,000", "zoo evaluate", "lin_3e-4", "n_step: 3"):
        assert expected in text


def test_readme_shows_the_command_of_training_alone(folder: Path, agent: AgentFiles) -> None:
    fence = "```bash\n{}\n```"
    for command, is_shown in (("zoo train algo=ppo2 seed=3", True), ("```\n<b>", False), (3, False)):
        agent.card |= {"command": command, "commit": "abc1234", "last_mean_return": 487.25}
        write_agent(folder, agent)
        text = (folder / "README.md").read_text()
        assert (fence.format(command) in text) is is_shown
        assert "| Commit | abc1234 |" in text
        assert "| Last agent of the run | 487.2 |" in text


def test_rewriting_agent_keeps_foreign_files(folder: Path, agent: AgentFiles) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / "videos").mkdir()
    (folder / "videos" / "a.mp4").write_bytes(b"film")
    agent.normalization = None
    agent.card["timesteps"] = 60_000
    write_agent(folder, agent)
    assert read_agent(folder).card["timesteps"] == 60_000
    assert {path.name for path in folder.iterdir()} == NAMES - {"normalization.safetensors"} | {
        "notes.txt",
        "videos",
    }
    assert (folder / "videos" / "a.mp4").read_bytes() == b"film"
    assert [path.name for path in folder.parent.iterdir() if path.name != "work"] == ["agent"]


def test_folder_with_something_else_is_not_overwritten(tmp_path: Path, agent: AgentFiles) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ZooError, match="holds something else than an agent"):
        write_agent(tmp_path, agent)
    (tmp_path / "data.zip").write_text("not a zip")
    with pytest.raises(ZooError, match="something else than an agent"):
        write_agent(tmp_path / "data.zip", agent)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "data.zip").read_text() == "not a zip"


@pytest.mark.parametrize("name", ["agent", "agent.zip"])
def test_full_disk_leaves_the_old_agent_whole(
    tmp_path: Path, agent: AgentFiles, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_agent(tmp_path / name, agent)
    before = sorted(entry.name for entry in tmp_path.iterdir())

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    agent.card["timesteps"] = 60_000
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(ZooError, match="No space left on device"):
            write_agent(path, agent)
    assert read_agent(path).card["timesteps"] == 50_000
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before


# What is missing or damaged
@pytest.mark.parametrize("name", ["config.yaml", "policy.safetensors"])
def test_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert refusal(folder) == f"{folder} is not a whole agent: {name} is missing"


@pytest.mark.parametrize("name", ["policy.safetensors", "normalization.safetensors"])
def test_tensor_file_cut_anywhere_is_refused(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for length in (0, 7, 16, len(whole) // 2, len(whole) - 1):
        (folder / name).write_bytes(whole[:length])
        message = refusal(folder)
        assert f"the agent in {folder} is damaged: {name}: it is truncated or no safetensors file" in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("algo: {", "line"),
        ("a: &a [*a]", "a reference"),
        ("", "no mapping"),
        ("\xff\xfe", "utf-8"),
        ("format: 1\nalgo: {name: !!binary aGk=}", "bytes"),
        ("format: yes", "`format` is missing"),
        ("format: 1\npolicy: {}", "`algo` is missing"),
        ("format: 1\nalgo: ppo2\npolicy: {}", "`algo` is missing"),
        ("{format: 1, algo: {}, policy: {}, observation_space: {}, action_space: {}, env: 3}", "`env`"),
        ("{format: 1, algo: {}, policy: {}, observation_space: {}, action_space: {}}", "`algo.name`"),
    ],
)
def test_config_that_is_no_plain_mapping_is_refused(folder: Path, text: str, problem: str) -> None:
    (folder / "config.yaml").write_bytes(text.encode("latin-1"))
    message = refusal(folder)
    assert "is damaged: config.yaml" in message
    assert problem in message


def test_format_of_the_future_asks_for_an_update(folder: Path) -> None:
    assert "has format 2, but this Zoo reads formats up to 1; update Zoo" in refusal(
        edit_config(folder, format=2)
    )


# Zips that a stranger made
def test_zip_of_the_folder_is_an_agent(folder: Path, tmp_path: Path) -> None:
    inside = shutil.make_archive(os.fspath(tmp_path / "inside"), "zip", folder)
    around = shutil.make_archive(os.fspath(tmp_path / "around"), "zip", folder.parent, folder.name)
    for path in (inside, around, tmp_path / "inside"):
        assert read_agent(path).config == read_agent(folder).config


@pytest.mark.parametrize(
    "name", ["config.yaml", "policy.safetensors", "normalization.safetensors", "card.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device", "text of 1 TB"])
def test_only_regular_files_of_sensible_sizes_are_read(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    else:
        with open(folder / name, "wb") as file:
            file.truncate(10**12)
    assert name in refusal(folder)


@pytest.mark.parametrize("name", ["policy.safetensors", "config.yaml", "film.mp4"])
def test_zip_does_not_fill_the_memory(folder: Path, name: str) -> None:
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in {*folder.iterdir()} - {folder / name}:
            archive.write(file, file.name)
        archive.writestr(name, bytes(70 * 2**20))
    tracemalloc.start()
    if name == "film.mp4":
        read_agent("bomb.zip")
    else:
        assert f"{name} would have 73,400,320 bytes" in refusal(Path("bomb.zip"))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    "card",
    [b'{"seed": ' + 300 * b"[" + 300 * b"]}", b'{"mean_return": 1' + 400 * b"0" + b"}", 100_000 * b"[", None],
)
@pytest.mark.parametrize("shape", ["table", "json"])
def test_damaged_agent_hides_no_other(
    agent: AgentFiles, card: bytes | None, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add(agent, "runs/ppo2/CartPole-v1/1_s1/agent", "runs/ppo2/CartPole-v1/2_s2/agent")
    file = Path("runs/ppo2/CartPole-v1/2_s2/agent/card.json")
    file.unlink()
    os.mkfifo(file) if card is None else file.write_bytes(card)
    assert status_of(["agents", f"format={shape}"]) == 0
    assert "1_s1" in capsys.readouterr().out
    with pytest.raises(ZooError, match="there is no agent of a2c"):
        find_agent("a2c", "CartPole-v1")


# Tensors and policy
def test_error_names_tensors_that_differ_from_policy() -> None:
    tensors = {"a": np.zeros((2, 3)), "b": np.zeros(4), "x": np.zeros(1)}
    check_tensors({"a": (2, 3), "b": (4,), "x": (1,)}, tensors)
    with pytest.raises(ZooError) as caught:
        check_tensors({"a": (2, 4), "b": (4,), "c": (1,), "d": (1,), "e": (1,)}, tensors)
    message = str(caught.value)
    assert "a has shape [2, 3], expected [2, 4]; c is missing; d is missing and 2 more" in message
    with pytest.raises(ZooError, match="x is not part of the policy"):
        check_tensors({"a": (2, 3), "b": (4,)}, tensors)


@pytest.mark.parametrize(("own", "filed"), [("auto", None), (None, 0), (200, 200)])
def test_format_1_keeps_meaning_of_max_episode_steps(
    own: Any, filed: Any, tmp_path: Path, agent: AgentFiles
) -> None:
    agent.config["env"]["max_episode_steps"] = own
    folder = write_agent(tmp_path / "agent", agent)
    assert yaml.safe_load((folder / "config.yaml").read_text())["env"]["max_episode_steps"] == filed
    assert read_agent(folder).config["env"]["max_episode_steps"] == own


@pytest.mark.parametrize("preset", ["../x", "/tmp/x", "a/b"])
def test_preset_that_would_name_a_folder_is_refused(preset: str, folder: Path) -> None:
    edit_config(folder, algo={"name": "ppo2", "preset": preset})
    with pytest.raises(ZooError, match="preset"):
        read_agent(folder)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and an installed Zoo, both without agents."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(find, "data_folder", lambda name: tmp_path / "package" / name)
    return tmp_path / "work"


def add(agent: AgentFiles, *paths: str) -> None:
    for path in paths:
        write_agent(path, agent)


def test_newest_own_run_comes_before_the_collections(agent: AgentFiles, tmp_path: Path) -> None:
    add(agent, str(tmp_path / "package/trained_agents/ppo2/CartPole-v1"))
    assert find_agent("ppo2", "CartPole-v1") == tmp_path / "package/trained_agents/ppo2/CartPole-v1"

    add(agent, "trained_agents/ppo2/CartPole-v1")
    assert find_agent("ppo2", "CartPole-v1") == Path("trained_agents/ppo2/CartPole-v1")

    for run in ("20260101-000000_s7", "20260102-000000_s1", "20251231-235959_s9"):
        add(agent, f"runs/ppo2/CartPole-v1/{run}/agent")
    newest = Path("runs/ppo2/CartPole-v1/20260102-000000_s1")
    assert find_agent("ppo2", "CartPole-v1") == newest / "agent"

    add(agent, f"{newest}/best_agent")
    assert find_agent("ppo2", "CartPole-v1") == newest / "best_agent"


def test_run_without_a_whole_agent_is_passed_over(agent: AgentFiles) -> None:
    add(agent, "runs/ppo2/CartPole-v1/20260101-000000_s7/agent")
    Path("runs/ppo2/CartPole-v1/20260102-000000_s1/best_agent").mkdir(parents=True)
    add(agent, "runs/ppo2/CartPole-v1/20260103-000000_s1/.best_agent.ab12.partial")
    assert find_agent("ppo2", "CartPole-v1").parts[3] == "20260101-000000_s7"


def test_what_there_is_instead_is_named(agent: AgentFiles) -> None:
    add(agent, "trained_agents/ppo2/CartPole-v1", "trained_agents/a2c/Acrobot-v1")
    with pytest.raises(ZooError) as caught:
        find_agent("ppo2", "Acrobot-v1")
    for named in ("on Acrobot-v1 there is: a2c", "zoo train algo=ppo2 env=Acrobot-v1"):
        assert named in str(caught.value)
    with pytest.raises(ZooError, match=r"did you mean 'CartPole-v1'\?"):
        find_agent("ppo2", "CartPol-v1")
    with pytest.raises(ZooError, match=r"zoo train algo=sac env=Pendulum-v1"):
        find_agent("sac", "Pendulum-v1")


def test_path_of_a_run_means_its_best_agent(agent: AgentFiles) -> None:
    add(agent, "run/agent")
    assert resolve_agent("run") == Path("run/agent")
    agent.card["timesteps"] = 40_000
    add(agent, "run/best_agent")
    Path("run/config.yaml").write_text("algo: {name: ppo2}")
    assert resolve_agent("run") == Path("run/best_agent")
    assert resolve_agent("run/agent") == Path("run/agent")
    assert read_agent("run").card["timesteps"] == 40_000


def test_missing_path_names_its_neighbour(agent: AgentFiles) -> None:
    add(agent, "trained/cartpole")
    with pytest.raises(
        ZooError, match=re.escape("there is no agent at trained/cartpol; did you mean 'cartpole'?")
    ):
        resolve_agent("trained/cartpol")
    with pytest.raises(ZooError, match="there is no agent at nowhere/at/all; `zoo agents` lists"):
        resolve_agent("nowhere/at/all")
