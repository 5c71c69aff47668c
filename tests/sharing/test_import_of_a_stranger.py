"""What stands in the zip of a stranger is not run, however it is packed, and is told in one line."""

from __future__ import annotations

import base64
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from sb3_agents import CHOICE, VECTOR, Still, make, saved

from zoo.agents.sb3_zip import read_vecnormalize
from zoo.errors import ZooError
from zoo.training.importing import import_sb3

pytest.importorskip("stable_baselines3")

MEMBERS = ("data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version")


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.marker, "w")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The members of an agent's zip."""
    path = saved(make("PPO", "MlpPolicy", Still(VECTOR, CHOICE)), tmp_path_factory.mktemp("agent"))
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], folder: Path) -> Path:
    path = folder / "agent.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def torch_saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ZooError) as caught:
        import_sb3(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("form", ["pickle", "torch", "torch of old"])
def test_payload_in_place_of_a_member_does_not_run(
    member: str, form: str, agent: dict[str, bytes], tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    content = {
        "pickle": pickle.dumps(Payload(marker)),
        "torch": torch_saved(Payload(marker)),
        "torch of old": torch_saved(Payload(marker), _use_new_zipfile_serialization=False),
    }[form]
    path = packed({**agent, member: content}, tmp_path)
    if member == "_stable_baselines3_version":
        import_sb3(path)  # a text, whatever it says
    else:
        assert str(path) in refused(path)
    assert not marker.exists()


def test_payload_beside_tensors_does_not_run(agent: dict[str, bytes], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    tensors = torch.load(io.BytesIO(agent["policy.pth"]), weights_only=True)
    hostile = torch_saved({**tensors, "extra": Payload(marker)})
    import_sb3(packed({**agent, "policy.pth": hostile}, tmp_path))
    assert not marker.exists()


def test_payload_in_every_pickled_value_does_not_run(agent: dict[str, bytes], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    data = json.loads(agent["data"])
    payload = base64.b64encode(pickle.dumps(Payload(marker))).decode()
    pickled = [key for key, value in data.items() if isinstance(value, dict) and ":serialized:" in value]
    assert {"policy_class", "observation_space", "clip_range"} <= set(pickled)
    for key in pickled:
        data[key][":serialized:"] = payload
    import_sb3(packed({**agent, "data": json.dumps(data).encode()}, tmp_path))
    assert not marker.exists()


def test_payload_as_statistics_does_not_run(agent: dict[str, bytes], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "vecnormalize.pkl").write_bytes(pickle.dumps(Payload(marker)))
    message = refused(packed(agent, tmp_path), normalize=tmp_path / "vecnormalize.pkl")
    assert "no statistics of a VecNormalize" in message
    assert not marker.exists()


def test_payload_within_statistics_does_not_run(agent: dict[str, bytes], tmp_path: Path) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    marker = tmp_path / "ran"
    venv = VecNormalize(DummyVecEnv([lambda: Still(VECTOR, CHOICE)]))
    venv.extra = Payload(marker)
    venv.save(str(tmp_path / "vecnormalize.pkl"))
    import_sb3(packed(agent, tmp_path), normalize=tmp_path / "vecnormalize.pkl")
    assert not marker.exists()


def test_names_that_lead_out_are_refused(agent: dict[str, bytes], tmp_path: Path) -> None:
    assert "would lie outside" in refused(packed({**agent, "../../policy.pth": b""}, tmp_path))
    assert not (tmp_path.parent / "policy.pth").exists()


def test_links_are_refused(agent: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "agent.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in agent.items():
            entry = zipfile.ZipInfo(name)
            if name == "policy.pth":
                entry.external_attr, content = 0o120777 << 16, b"/etc/passwd"
            archive.writestr(entry, content)
    assert "is a link" in refused(path)


@pytest.mark.parametrize("member", ["data", "policy.pth"])
def test_bomb_is_refused_before_it_is_unpacked(member: str, agent: dict[str, bytes], tmp_path: Path) -> None:
    assert "unpack to" in refused(packed({**agent, member: bytes(50 * 2**20)}, tmp_path))


def test_tensor_larger_than_its_numbers_is_refused(agent: dict[str, bytes], tmp_path: Path) -> None:
    huge = torch.zeros(1).expand(2**40)
    message = refused(packed({**agent, "policy.pth": torch_saved({"value_net.bias": huge})}, tmp_path))
    assert "larger than the numbers that the file holds" in message
    shared = torch.zeros(100_000)
    many = {f"value_net.{index}": shared for index in range(20)}
    message = refused(packed({**agent, "policy.pth": torch_saved(many)}, tmp_path))
    assert "larger than the numbers that the file holds" in message
    beyond = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(torch_saved({"value_net.bias": torch.zeros(4)[2:]}))) as good,
        zipfile.ZipFile(beyond, "w") as bad,
    ):
        for name in good.namelist():  # from the third number on becomes from the fourth on
            bad.writestr(name, good.read(name).replace(b"K\x02K\x02\x85", b"K\x03K\x02\x85"))
    message = refused(packed({**agent, "policy.pth": beyond.getvalue()}, tmp_path))
    assert "4 numbers for the shape [2]" in message


def test_shapes_that_do_not_fit_are_refused(agent: dict[str, bytes], tmp_path: Path) -> None:
    tensors = torch.load(io.BytesIO(agent["policy.pth"]), weights_only=True)
    tensors["action_net.bias"] = torch.zeros(9)
    message = refused(packed({**agent, "policy.pth": torch_saved(tensors)}, tmp_path))
    assert "head.logits.bias has shape [9], expected [5]" in message


def test_tensor_without_dimensions_is_told(agent: dict[str, bytes], tmp_path: Path) -> None:
    tensors = torch.load(io.BytesIO(agent["policy.pth"]), weights_only=True)
    tensors["features_extractor.linear.0.bias"] = torch.tensor(1.0)
    refused(packed({**agent, "policy.pth": torch_saved(tensors)}, tmp_path))


def test_coefficient_of_another_form_is_told(tmp_path: Path) -> None:
    path = saved(make("SAC", "MlpPolicy", Still(VECTOR, spaces.Box(-1, 1, (2,)))), tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["pytorch_variables.pth"] = torch_saved({"log_ent_coef": torch.zeros(3)})
    assert "is of another form" in refused(packed(members, tmp_path))


def test_schedule_of_no_number_is_a_value_that_is_not_known(agent: dict[str, bytes], tmp_path: Path) -> None:
    data = json.loads(agent["data"])
    data["clip_range"]["value_schedule"] = "ConstantSchedule(val=1.2.3)"
    imported = import_sb3(packed({**agent, "data": json.dumps(data).encode()}, tmp_path))
    assert "clip_range" in imported.unknown


@pytest.mark.parametrize(
    "gamma",
    [
        b"\x8a\x0b" + (1 << 80).to_bytes(11, "little"),
        b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n)RC\x01atR",
    ],
    ids=["integer", "dtype"],
)
def test_statistics_of_no_numbers_are_told(gamma: bytes, tmp_path: Path) -> None:
    (tmp_path / "vecnormalize.pkl").write_bytes(
        b"\x80\x03cstable_baselines3.common.vec_env.vec_normalize\nVecNormalize\n)\x81}("
        b"X\x07\x00\x00\x00ret_rmsNX\x05\x00\x00\x00gamma" + gamma + b"ub."
    )
    with pytest.raises(ZooError, match="holds no statistics of a VecNormalize"):
        read_vecnormalize(tmp_path / "vecnormalize.pkl")


def test_files_that_are_none_are_told(agent: dict[str, bytes], tmp_path: Path) -> None:
    assert "there is no file" in refused(tmp_path / "nothing.zip")
    (tmp_path / "text.zip").write_text("no zip")
    assert "not an agent of Stable-Baselines3: no readable zip" in refused(tmp_path / "text.zip")
    assert "it has no data and policy.pth" in refused(packed({"readme": b""}, tmp_path))
    assert "Stable-Baselines 2" in refused(
        packed({"data": b"{}", "parameters": b"", "parameter_list": b""}, tmp_path)
    )
    assert "is a folder" in refused(tmp_path)
    assert "does not say which algorithm" in refused(packed({**agent, "data": b"{}"}, tmp_path))
    assert "unknown algorithm 'ppo7'" in refused(packed(agent, tmp_path), algo="ppo7")
    without = json.loads(agent["data"])
    without["policy_class"]["__module__"] = "my_policies"
    assert "class of somebody's own" in refused(
        packed({**agent, "data": json.dumps(without).encode()}, tmp_path)
    )
    message = refused(packed(agent, tmp_path), normalize=tmp_path / "none.pkl")
    assert "there is no file" in message


def test_space_that_is_not_printed_is_asked_for(agent: dict[str, bytes], tmp_path: Path) -> None:
    data = json.loads(agent["data"])
    data["observation_space"]["low"] = data["observation_space"]["low_repr"] = "[0. 0. ... 0.]"
    path = packed({**agent, "data": json.dumps(data).encode()}, tmp_path)
    assert "name its environment: env=ID" in refused(path)
    import_sb3(path, env_spaces=(VECTOR, CHOICE))


def test_action_space_that_the_algorithm_has_not_is_told(agent: dict[str, bytes], tmp_path: Path) -> None:
    path = packed(agent, tmp_path)
    message = refused(path, algo="sac")
    assert "sac can't act in its action space, Discrete(5)" in message
    data = json.loads(agent["data"])
    data["action_space"]["start"] = "2"
    path = packed({**agent, "data": json.dumps(data).encode()}, tmp_path)
    assert "do not start at 0" in refused(path)
    assert isinstance(CHOICE, spaces.Discrete)


def test_pickle_opcodes_of_all_kinds_run_nothing(agent: dict[str, bytes], tmp_path: Path) -> None:
    """Every way in which a pickle can call: GLOBAL and REDUCE, INST, OBJ, NEWOBJ, BUILD, EXT and PERSID."""
    marker = tmp_path / "ran"
    hostile = [
        f"cos\nmkdir\n(V{marker}\ntR.".encode(),
        f"(V{marker}\nios\nmkdir\n.".encode(),
        b"(cos\nmkdir\nV" + str(marker).encode() + b"\no.",
        b"\x80\x02cos\nmkdir\nV" + str(marker).encode() + b"\n\x85\x81.",
        b"\x80\x02\x82\x01.",
        b"Pos.mkdir\n.",
        b"\x80\x02]" + b"q\x00" + b"h\x00a" * 50 + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
        b"",
    ]
    for content in hostile:
        (tmp_path / "vecnormalize.pkl").write_bytes(content)
        refused(packed(agent, tmp_path), normalize=tmp_path / "vecnormalize.pkl")
        assert not marker.exists()


def test_networks_that_there_are_no_weights_for_are_refused(tmp_path: Path) -> None:
    """The first layer reads what the environment shows: 4 million numbers, for 100,000 units."""
    agent = make("PPO", "MlpPolicy", Still(VECTOR, CHOICE))
    with zipfile.ZipFile(saved(agent, tmp_path)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    data["observation_space"] |= {"_shape": [2**22], "low": "0.0", "high": "1.0"}
    tensors = agent.policy.state_dict()
    for network in ("policy_net", "value_net"):
        tensors[f"mlp_extractor.{network}.0.weight"] = torch.rand(10**5, 1)
        tensors[f"mlp_extractor.{network}.2.weight"] = torch.rand(1, 10**5)
    members |= {"data": json.dumps(data).encode(), "policy.pth": torch_saved(tensors)}
    assert "don't fit the policy" in refused(packed(members, tmp_path))
