"""Loading an agent from a stranger runs none of their code, wherever in its files they hide it."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from stranger import payloads

from zoo.agents.agent_folder import AGENT_FILES, AgentFiles, read_agent, read_card, write_agent
from zoo.errors import ZooError

FORMS = list(payloads(Path("marker")))


def read_every_way(path: Path) -> None:
    for trust in (False, True):
        with contextlib.suppress(ZooError):
            read_agent(path, trust=trust)
    with contextlib.suppress(ZooError):
        read_agent(path, own_env=True)
    with contextlib.suppress(ZooError):
        read_card(path)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "the payload ran"


def test_payload_runs_where_it_is_unpickled(marker: Path) -> None:
    """The other tests here mean something."""
    import torch

    forms = payloads(marker)
    ways = {
        "pickle": lambda content: pickle.loads(content),
        "pickle as text": lambda content: pickle.loads(content),
        "torch.save": lambda content: torch.load(io.BytesIO(content), weights_only=False),
        "torch.save, before its zip": lambda content: torch.load(io.BytesIO(content), weights_only=False),
        "np.save": lambda content: np.load(io.BytesIO(content), allow_pickle=True),
    }
    for form, unpickle in ways.items():
        unpickle(forms[form])
        assert marker.is_dir(), form
        marker.rmdir()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", AGENT_FILES)
def test_payload_in_any_file_of_a_folder_does_not_run(
    tmp_path: Path, agent: AgentFiles, marker: Path, name: str, form: str
) -> None:
    folder = write_agent(tmp_path / "agent", agent)
    payload = payloads(marker)[form]
    whole = (folder / name).read_bytes()
    for content in (payload, payload + whole, whole + payload):
        (folder / name).write_bytes(content)
        read_every_way(folder)
    assert not marker.exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", AGENT_FILES)
def test_payload_in_any_file_of_a_zip_does_not_run(
    tmp_path: Path, agent: AgentFiles, marker: Path, name: str, form: str
) -> None:
    whole = write_agent(tmp_path / "agent", agent)
    path = tmp_path / "agent.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in whole.iterdir():
            archive.writestr(file.name, payloads(marker)[form] if file.name == name else file.read_bytes())
    read_every_way(path)
    assert not marker.exists()


@pytest.mark.parametrize("form", FORMS)
def test_payload_in_place_of_a_zip_does_not_run(tmp_path: Path, marker: Path, form: str) -> None:
    (tmp_path / "agent.zip").write_bytes(payloads(marker)[form])
    read_every_way(tmp_path / "agent.zip")
    assert not marker.exists()


def test_payload_beside_the_agents_files_does_not_run(
    tmp_path: Path, agent: AgentFiles, marker: Path
) -> None:
    folder = write_agent(tmp_path / "agent", agent)
    forms = payloads(marker)
    for name in (
        "data.pkl",
        "policy.pth",
        "normalization.pkl",
        "vecnormalize.pkl",
        "__init__.py",
        "conftest.py",
    ):
        (folder / name).write_bytes(forms["pickle"])
    (folder / "hooks.py").write_text(f"import os\nos.mkdir({str(marker)!r})\n")
    read_every_way(folder)
    assert read_agent(folder).card["seed"] == 3
    assert not marker.exists()


def test_payload_among_tensors_is_bytes(tmp_path: Path, agent: AgentFiles, marker: Path) -> None:
    """A safetensors file may hold any bytes; they stay numbers."""
    folder = write_agent(tmp_path / "agent", agent)
    payload = payloads(marker)["pickle"]
    tensors = {"data.pkl": np.frombuffer(payload, dtype=np.uint8)}
    values = {"values": json.dumps({"state": payload.decode("latin-1")})}
    for name in ("policy.safetensors", "normalization.safetensors"):
        (folder / name).write_bytes(safetensors.numpy.save(tensors, values))
    read = read_agent(folder)
    assert read.tensors["data.pkl"].tobytes() == payload
    assert read.normalization is not None
    assert read.normalization[1]["state"] == payload.decode("latin-1")
    assert not marker.exists()
