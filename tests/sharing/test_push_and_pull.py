"""Agents go to others and come from them, as data, with a page that says how good they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from local_hub import TOKEN, LocalHub, local_hub

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.cli import run
from zoo.errors import ZooError

pytest.importorskip("huggingface_hub")

REPOSITORY = "me/ppo2-CartPole-v1"
CARD = {"timesteps": 40_000, "mean_return": 312.5, "std_return": 8.0, "n_eval_episodes": 20}


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def agent(working_folder: Path) -> Path:
    made = algorithm_class("ppo2")("MlpPolicy", "CartPole-v1", seed=1, compile=False)
    return made.save(working_folder / "agent", card=CARD)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # else files go by a protocol of their own
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with local_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        # The library reads the variable when it is imported, which another test may have done.
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


def error_of(*arguments: str) -> str:
    """Return the one line that a command line is refused with."""
    with pytest.raises(ZooError) as caught:
        run(arguments)
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    return str(caught.value)


def same_actions(first: Path | str, second: Path | str) -> bool:
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    return bool((zoo.load(first).predict(observations)[0] == zoo.load(second).predict(observations)[0]).all())


def test_agent_goes_to_a_hub_and_back(agent: Path, hub: LocalHub, capsys: pytest.CaptureFixture[str]) -> None:
    Path("replay.mp4").write_bytes(b"film")
    assert run(["push", "agent=agent", f"to={REPOSITORY}", "private=true", "video=replay.mp4"]) == 0
    assert hub.private == {REPOSITORY: True}
    assert hub.repositories[REPOSITORY]["replay.mp4"] == b"film"
    assert run(["push", "agent=agent", f"to={REPOSITORY}"]) == 0  # into the one that is there
    hub.repositories[REPOSITORY]["evil.py"] = b"import os"
    assert run(["pull", f"from={REPOSITORY}"]) == 0
    out, err = capsys.readouterr()
    assert "312.5 ± 8.00 over 20 episodes" in out
    assert TOKEN not in out + err
    assert set(hub.fetched) == {"config.yaml", "policy.safetensors", "card.json"}
    assert {each.name for each in Path("pulled/ppo2-CartPole-v1").iterdir()} == {
        *("config.yaml", "policy.safetensors", "card.json", "README.md")
    }
    assert same_actions(agent, "pulled/ppo2-CartPole-v1")


def test_page_tells_the_hub_what_it_is(agent: Path, hub: LocalHub) -> None:
    run(["push", "agent=agent", f"to={REPOSITORY}"])
    page = hub.repositories[REPOSITORY]["README.md"].decode()
    _, metadata, text = page.split("---\n", 2)
    facts = yaml.safe_load(metadata)
    assert facts["library_name"] == "zoo"
    assert {"CartPole-v1", "ppo2", "reinforcement-learning"} <= set(facts["tags"])
    (result,) = facts["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == "312.50 +/- 8.00"
    assert result["dataset"]["name"] == "CartPole-v1"
    assert "zoo enjoy agent=" in text


def test_mistakes_with_the_hub_are_told(agent: Path, hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no such repository" in error_of("pull", "from=me/nothing")
    run(["push", "agent=agent", f"to={REPOSITORY}"])
    message = error_of("push", "agent=agent", f"to={REPOSITORY}", "private=true")
    assert "is there already and public" in message
    assert "v9: it has no such revision" in error_of("pull", f"from={REPOSITORY}", "revision=v9")
    del hub.repositories[REPOSITORY]["config.yaml"]
    assert "is not an agent of Zoo's: it has no config.yaml" in error_of("pull", f"from={REPOSITORY}")
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrongwrong")
    message = error_of("push", "agent=agent", f"to={REPOSITORY}")
    assert "hf auth login" in message
    assert "hf_wrong" not in message
    monkeypatch.delenv("HF_TOKEN")
    assert "hf auth login" in error_of("push", "agent=agent", f"to={REPOSITORY}")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "out of reach" in error_of("pull", f"from={REPOSITORY}")


@pytest.mark.parametrize("place", ["shared/cartpole", "shared/cartpole.zip"])
def test_agent_goes_to_a_path_and_comes_back(place: str, agent: Path) -> None:
    place = f"./{place}"
    assert run(["push", "agent=agent", f"to={place}"]) == 0
    assert run(["pull", f"from={place}"]) == 0
    assert same_actions(agent, "pulled/cartpole")
    assert run(["pull", place, "to=elsewhere"]) == 0
    assert same_actions(agent, "elsewhere")


def test_video_of_the_run_goes_with_its_agent(agent: Path) -> None:
    os.makedirs("runs/one/videos")
    agent.rename("runs/one/best_agent")
    Path("runs/one/run.json").write_text("{}")
    Path("runs/one/videos/step-10.mp4").write_bytes(b"film")
    run(["push", "agent=runs/one", "to=./shared"])
    assert Path("shared/replay.mp4").read_bytes() == b"film"
    assert "![ppo2 playing CartPole-v1](replay.mp4)" in Path("shared/README.md").read_text()


def test_bad_zip_and_missing_names_are_refused(working_folder: Path) -> None:
    Path("text.zip").write_text("no zip")
    assert "is not an agent: no readable zip" in error_of("pull", "from=text.zip")
    assert "there is no agent at nowhere" in error_of("pull", "from=nowhere")
    assert "from where?" in error_of("pull")
    assert "where to?" in error_of("push", "agent=nowhere")
