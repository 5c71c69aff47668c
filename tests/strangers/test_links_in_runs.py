"""Links in a folder of runs lead no list in a circle, and none to what stands elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bounds import within_bounds

import zoo
from zoo.agents.finding import kept_agents, list_agents
from zoo.cli import status_of

RUN = Path("runs/ppo2/CartPole-v1/20260101-000001_s0")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = zoo.PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu", seed=0)
    model.save(folder := tmp_path_factory.mktemp("saved") / "agent")
    return folder


@pytest.fixture(autouse=True)
def private(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one run, and a run of somebody else's beside it."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    other = tmp_path / "private" / "ppo2" / "CartPole-v1" / "20260101-000002_s0"
    for run in (RUN, other):
        shutil.copytree(saved, run / "agent")
        (run / "run.json").write_text(json.dumps({"status": "finished"}))
    return tmp_path / "private"


def listed() -> list[str]:
    return [str(each.path) for each in list_agents() if each.run is not None]


def test_links_in_a_circle_end_no_list(capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        Path(f"runs/l{number}").symlink_to(".")
    with within_bounds():
        assert status_of(["agents", "where=own"]) == 0
        assert listed() == [str(RUN / "agent")]
        assert status_of(["plot", "runs/**"]) == 2
    told = capfd.readouterr().err
    assert "runs/l0 is left out: it is a link, like 11 more beside it" in told


@pytest.mark.parametrize(
    "place", ["runs/other", "runs/ppo2/Other-v1", "runs/ppo2/CartPole-v1/20260101-000003_s0"]
)
def test_runs_elsewhere_are_not_listed(private: Path, place: str) -> None:
    depth = len(Path(place).parts) - 2
    target = [private, private / "ppo2" / "CartPole-v1", private / "ppo2/CartPole-v1/20260101-000002_s0"][
        depth
    ]
    Path(place).symlink_to(target)
    assert listed() == [str(RUN / "agent")]


def test_folder_of_runs_may_be_a_link(private: Path) -> None:
    shutil.rmtree("runs")
    Path("runs").symlink_to(private)
    assert listed() == ["runs/ppo2/CartPole-v1/20260101-000002_s0/agent"]


@pytest.mark.parametrize("name", ["agent", "best_agent"])
def test_agent_of_a_run_that_is_a_link_is_not_played(
    private: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(RUN / "agent")
    (RUN / name).symlink_to(private / "ppo2/CartPole-v1/20260101-000002_s0/agent")
    assert listed() == []
    assert status_of(["evaluate", f"agent={RUN}", "n_episodes=1"]) == 2
    assert f"{name} is a link; name the agent itself" in capfd.readouterr().err


@pytest.mark.parametrize("place", ["agents", "agents/step-000000064"])
def test_kept_agent_is_not_played_through_a_link(
    private: Path, saved: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(saved, private / "agents" / "step-000000064")
    (RUN / place).parent.mkdir(exist_ok=True)
    (RUN / place).symlink_to(private / place)
    assert kept_agents(RUN) == {}
    assert status_of(["evaluate", f"agent={RUN}", "checkpoint=64", "n_episodes=1"]) == 2
    assert "kept no agents as it went" in capfd.readouterr().err


def test_steps_are_written_in_figures(saved: Path) -> None:
    for name in ("step-000000064", "step-٦٤", "step-६४"):
        shutil.copytree(saved, RUN / "agents" / name)
    assert [each.name for each in kept_agents(RUN).values()] == ["step-000000064"]


def test_pattern_finds_runs_but_none_through_links_or_in_hidden_folders(private: Path) -> None:
    from zoo.plots.finding import find_runs

    Path("runs/ppo2/link").symlink_to(private)
    shutil.copytree(RUN, RUN.parent / ".hidden")
    assert find_runs(["runs/**"]) == find_runs(["runs/**/run.json"]) == [RUN]
    assert find_runs([f"{Path.cwd()}/runs/**/20260101*"]) == [RUN.absolute()]
