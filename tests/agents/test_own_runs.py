"""A run of the user's own is known again, and nothing that only looks like one."""

from __future__ import annotations

import copy
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from stranger import CONFIG
from zoo.agents.own_runs import SIGNATURE, sign
from zoo.files.own_key import is_signed, signature_of

from zoo.agents.agent_folder import AgentFiles, read_agent, write_agent
from zoo.errors import ZooError

ENV = {**CONFIG["env"], "id": "mine:Id-v0", "wrappers": ["mine.Wrapper"]}
POLICY = {**CONFIG["policy"], "_target_": "mine.Policy"}
RUN = Path("runs/ppo2/mine-Id-v0/20260101-120000_s0")


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no key yet, in an empty working folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "config"


def agent_config() -> dict[str, Any]:
    return copy.deepcopy({**CONFIG, "env": ENV, "policy": POLICY})


def make_run() -> Path:
    """Write a run and its agent; the run is not signed yet."""
    RUN.mkdir(parents=True)
    (RUN / "config.yaml").write_text(yaml.safe_dump({"algo": CONFIG["algo"], "env": ENV, "policy": POLICY}))
    return write_agent(RUN / "best_agent", AgentFiles(agent_config(), {}))


@pytest.fixture
def agent() -> Path:
    folder = make_run()
    sign(RUN, (RUN / "config.yaml").read_bytes())
    return folder


def is_refused(path: Path) -> bool:
    try:
        return not read_agent(path).is_trusted
    except ZooError as error:
        return "trust=true" in str(error)


def test_agent_of_a_run_of_ones_own_may_name_code(agent: Path) -> None:
    assert read_agent(agent).config["env"] == ENV
    assert not is_refused(agent)
    assert not is_refused(RUN)
    assert not is_refused(agent.absolute())


def test_run_that_was_not_signed_is_a_strangers() -> None:
    assert is_refused(make_run())


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = yaml.safe_load(path.read_text())
    change(values)
    path.write_text(yaml.safe_dump(values))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "id": lambda values: values["env"].update(id="evil:Id-v0"),
    "wrapper": lambda values: values["env"].update(wrappers=["evil.Wrapper"]),
    "argument": lambda values: values["env"].update(kwargs={"car": "evil.Car"}),
    "policy": lambda values: values["policy"].update(_target_="evil.Policy"),
}


def test_agent_whose_policy_reads_dictionaries_is_still_ones_own(agent: Path) -> None:
    """The run says MlpPolicy, and what became of it for dictionaries stands in the agent."""
    multi = {"name": "MultiInputPolicy", "encoder": "multi", "features_dim": 256}
    edit(agent / "config.yaml", lambda values: values["policy"].update(multi))
    assert not is_refused(agent)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_edited_agent_is_refused(agent: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(agent / "config.yaml", change)
    assert is_refused(agent)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_agent_is_refused_in_a_run_that_was_edited_with_it(
    agent: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    edit(agent / "config.yaml", change)
    edit(RUN / "config.yaml", change)
    assert is_refused(agent)


def test_what_else_an_agent_could_hide_is_refused_in_ones_own_run_too(agent: Path) -> None:
    edit(agent / "config.yaml", lambda values: values["algo"].update(schedule={"_target_": "os.system"}))
    assert is_refused(agent)


def test_copied_and_moved_runs_are_refused(agent: Path) -> None:
    shutil.copytree(RUN, "copy")
    assert is_refused(Path("copy/best_agent"))
    shutil.copytree(agent, "agent")
    assert is_refused(Path("agent"))
    RUN.rename("moved")
    assert is_refused(Path("moved/best_agent"))


def test_agent_elsewhere_is_refused_behind_a_link_in_ones_own_run(agent: Path) -> None:
    (RUN / "agent").symlink_to(
        write_agent(Path("elsewhere/agent"), AgentFiles(agent_config(), {})).absolute()
    )
    assert is_refused(RUN / "agent")


def test_modules_of_another_working_folder_are_others(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = agent.absolute()
    Path("unpacked").mkdir()
    monkeypatch.chdir("unpacked")
    assert is_refused(path)


def test_zip_elsewhere_is_refused(agent: Path) -> None:
    write_agent("agent.zip", AgentFiles(agent_config(), {}))
    assert is_refused(Path("agent.zip"))


def test_signature_of_another_user_is_none(agent: Path, config_home: Path) -> None:
    (config_home / "zoo" / "key").unlink()
    assert is_refused(agent)
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert not is_refused(agent)


@pytest.mark.parametrize("signature", ["", "0" * 64, "é", json.dumps({"trust": True})])
def test_invented_signature_is_none(agent: Path, signature: str) -> None:
    (RUN / SIGNATURE).write_text(signature)
    assert is_refused(agent)


def test_key_is_the_users_alone_and_made_once(agent: Path, config_home: Path) -> None:
    key = config_home / "zoo" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in key.parent.iterdir()] == ["key"]
    before = key.read_bytes()
    assert len(before) == 32
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert key.read_bytes() == before
    for file in Path().rglob("*"):
        assert not file.is_file() or before not in file.read_bytes()


def test_key_that_others_can_read_is_none(agent: Path, config_home: Path) -> None:
    (config_home / "zoo" / "key").chmod(0o644)
    assert is_refused(agent)


def test_without_a_config_folder_runs_are_not_signed(
    config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_home.write_text("in the way")
    agent = make_run()
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert not (RUN / SIGNATURE).exists()
    assert is_refused(agent)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", os.devnull)
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert not (RUN / SIGNATURE).exists()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda key: key.chmod(0o644), "other users may read or change it"),
        (lambda key: key.write_bytes(b"short"), "it is not what Zoo wrote"),
        (lambda key: key.symlink_to(key.rename(key.with_name("other"))), "it can't be read"),
    ],
    ids=["permissions", "length", "link"],
)
def test_key_that_is_not_used_is_told_in_one_line(
    spoil: Callable[[Path], Any],
    reason: str,
    agent: Path,
    config_home: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    spoil(config_home / "zoo" / "key")
    assert is_refused(agent)
    (line,) = caplog.messages
    assert str(config_home / "zoo" / "key") in line
    assert reason in line
    caplog.clear()
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert len(caplog.messages) == 1


def test_nothing_is_said_of_a_key_that_an_agent_does_not_ask_for(
    config_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Strangers' agents have no signature."""
    agent = make_run()
    assert is_refused(agent)
    (config_home / "zoo").mkdir(parents=True)
    (config_home / "zoo" / "key").touch(mode=0o644)
    assert is_refused(agent)
    assert not caplog.messages


def test_run_is_signed_by_what_was_written_and_not_by_what_stands_there_then() -> None:
    agent = make_run()
    written = (RUN / "config.yaml").read_bytes()
    edit(RUN / "config.yaml", CHANGES["wrapper"])
    edit(agent / "config.yaml", CHANGES["wrapper"])
    sign(RUN, written)
    assert is_refused(agent)


def test_what_the_run_says_too_may_be_said_in_every_section(agent: Path) -> None:
    for file in (RUN / "config.yaml", agent / "config.yaml"):
        edit(file, lambda values: values["algo"].update(gamma="${oc.env:GAMMA}"))
    sign(RUN, (RUN / "config.yaml").read_bytes())
    assert not is_refused(agent)
    edit(agent / "config.yaml", lambda values: values["algo"].update(gamma="${oc.env:TOKEN}"))
    assert is_refused(agent)


def test_signature_for_one_purpose_is_none_for_another() -> None:
    """A sweep's text may be any, so what the key says of it must say nothing of a run."""
    text = "x"
    signature = signature_of("zoo sweep", text)
    assert is_signed("zoo sweep", text, signature)
    assert not is_signed("zoo run", text, signature)
    assert not is_signed("zoo", f"sweep\0{text}", signature)


def test_agent_is_not_saved_through_a_link_out_of_somebody_elses_run(agent: Path) -> None:
    (RUN / "run.json").write_text("{}")
    Path("private").mkdir()
    (RUN / "agents").symlink_to(Path("private").absolute())
    files = AgentFiles(agent_config(), {})
    write_agent(RUN / "agents" / "step-1", files)
    assert [each.name for each in Path("private").iterdir()] == ["step-1"]
    (RUN / SIGNATURE).unlink()
    with pytest.raises(ZooError, match="agents is a link, which is not followed"):
        write_agent(RUN / "agents" / "step-2", files)
    assert [each.name for each in Path("private").iterdir()] == ["step-1"]
