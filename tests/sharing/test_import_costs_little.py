"""What a stranger's zip could make expensive is refused at once: seconds or gigabytes out of kilobytes."""

from __future__ import annotations

import io
import json
import pickle
import struct
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.agents.sb3_spaces import UnknownSpaceError, printed_space
from zoo.files.pickled import read_pickle
from zoo.files.torch_files import read_state_dict

from zoo.errors import ZooError
from zoo.files.opening import DamagedFileError
from zoo.training.sb3_names import Layout, renamed, widths, with_joined_critic

SECONDS = 20
"""A refusal takes less than one; the attacks took from 15 seconds to for ever, or gigabytes."""


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def long(value: int) -> bytes:
    encoded = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8b" + struct.pack("<i", len(encoded)) + encoded


def tensor(key: bytes, shape: bytes) -> bytes:
    """Return the pickle of a tensor of floats."""
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + key + text("cpu") + b"K\x01tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + b"(ttR"


def saved(*items: bytes, **numbers: bytes) -> bytes:
    """Return a file as of ``torch.save`` with these keys and values."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}(" + b"".join(items) + b"u.")
        for name, content in numbers.items():
            archive.writestr(f"a/data/{name}", content)
    return file.getvalue()


def test_names_and_shapes_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    """In a process of its own, with little memory and time: what is expensive would not come to an end."""
    files = {
        "name that doubles": saved(text("w"), tensor(b")" + b"2\x86" * 40, b"(t"), **{"0": bytes(4)}),
        "bytes as a number": saved(
            text("w"),
            tensor(text("0"), b"(B" + struct.pack("<I", 2**20) + b"A" * 2**20 + b"M\xd0\x07t"),
            **{"0": bytes(4)},
        ),
        "long numbers": saved(
            text("w"),
            tensor(text("0"), b"(" + long(1 << 1_600_000) + b"q\x01" + b"h\x01" * 2000 + b"t"),
            **{"0": bytes(4)},
        ),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    code = f"""
        import pathlib, resource
        from zoo.files.opening import DamagedFileError
        from zoo.files.torch_files import read_state_dict
        resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
        resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
        for path in sorted(pathlib.Path({str(tmp_path)!r}).iterdir()):
            try:
                read_state_dict(path.read_bytes(), "policy.pth", 2**30)
            except DamagedFileError as error:
                print(path.name, "|", error.problem)
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert process.stdout.splitlines() == [
        "bytes as a number | a tensor in it can't be read (its shape is not one)",
        "long numbers | a tensor in it can't be read (its shape is not one)",
        "name that doubles | a tensor in it can't be read (its numbers have no name)",
    ], process.stderr


def test_storages_are_unpacked_once() -> None:
    items = [text(str(index)) + tensor(text(str(index % 2)), b"(t") for index in range(2000)]
    numbers = np.random.default_rng(0).bytes(2**21)
    assert len(read_state_dict(saved(*items, **{"0": numbers, "1": numbers}), "x", 2**30)) == 2000


def test_storages_that_unpack_to_much_more_are_refused() -> None:
    items = [text(str(index)) + tensor(text(str(index)), b"(t") for index in range(5)]
    content = saved(*items, **{str(index): bytes(8 * 2**20) for index in range(5)})
    with pytest.raises(DamagedFileError, match="unpack to too many"):
        read_state_dict(content, "x", 2**30)


def test_keys_that_are_long_are_left_out() -> None:
    long_key, number = long(1 << 100_000) + b"N", b"K\x01N"
    assert read_pickle(b"\x80\x02}(" + long_key + number + text("k" * 2000) + b"Nu.") == {1: None}
    assert (
        read_state_dict(saved(long(1 << 20_000) + tensor(text("0"), b"(t"), **{"0": bytes(4)}), "x", 99) == {}
    )


@pytest.mark.parametrize("shapes", [[(4000, 0), (2, 4000)], [(4000, 1), (4000, 1)]])
def test_layers_that_do_not_fit_each_other_are_refused(shapes: list[tuple[int, int]]) -> None:
    tensors = {f"net.{2 * index}.weight": np.zeros(shape, np.float32) for index, shape in enumerate(shapes)}
    with pytest.raises(ZooError, match="do not fit each other"):
        widths(tensors, "net")


def critic_of(*, vf: int, hidden: int = 1, read: int = 4, **others: tuple[int, ...]) -> dict[str, Any]:
    """A policy with a linear layer for the critic's LSTM, of these widths; others replace them."""
    shapes: dict[str, tuple[int, ...]] = {
        "lstm_actor.weight_ih_l0": (4 * hidden, read),
        "lstm_actor.weight_hh_l0": (4 * hidden, hidden),
        "critic.weight": (hidden, read),
        "critic.bias": (hidden,),
        "mlp_extractor.value_net.0.weight": (vf, hidden),
        "mlp_extractor.value_net.0.bias": (vf,),
    }
    shapes |= {name.replace("__", "."): shape for name, shape in others.items()}
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def test_thin_layers_are_not_joined_to_one_of_any_size() -> None:
    joined = with_joined_critic(critic_of(vf=64, hidden=8, read=512))
    assert joined["mlp_extractor.value_net.0.weight"].shape == (64, 512)
    assert with_joined_critic(critic_of(vf=1024, read=1024))["mlp_extractor.value_net.0.weight"].size == 2**20
    wrong = {"critic__weight": (1, 5)}, {"critic__weight": (4,)}, {"lstm_actor__weight_ih_l0": (4,)}
    tracemalloc.start()
    for tensors, problem in [
        (critic_of(vf=1024, read=1025), "more numbers than there are"),
        (critic_of(vf=20_000, read=4, critic__weight=(1, 20_000)), "does not fit its LSTM"),
        *((critic_of(vf=8, **each), "does not fit its LSTM") for each in wrong),
        (critic_of(vf=8, hidden=2, lstm_actor__weight_hh_l0=(8, 3)), "does not fit its LSTM"),
        (critic_of(vf=8, critic__bias=(2,)), "does not fit its LSTM"),
        (critic_of(vf=8, mlp_extractor__value_net__0__bias=()), "does not fit its LSTM"),
    ]:
        tracemalloc.reset_peak()
        with pytest.raises(ZooError, match=problem):
            with_joined_critic(tensors)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_long_name_of_a_tensor_is_refused_at_once() -> None:
    name = "features_extractor." + "encoder.extractors." * 10_000
    started = time.process_time()
    with pytest.raises(ZooError, match="does not have here"):
        renamed("ppo2", {name: None}, Layout("logits", 2, False, []))
    assert time.process_time() - started < 2


def words(kind: str, **values: Any) -> dict[str, Any]:
    return {":type:": f"<class 'gymnasium.spaces.x.{kind}'>", **values}


@pytest.mark.parametrize(
    ("printed", "problem"),
    [
        (words("Dict", spaces="'a': Box(0, 1, (4096, 4096), uint8), 'b': Discrete(2)"), "more than"),
        (words("Dict", spaces="'" + "\\'" * 40_000), "not printed in a known form"),
        (words("Dict", spaces="x" * 100_001), "has 100,001 characters"),
        (words("MultiBinary", n="[4096 4096 4096]"), "too many numbers"),
        (words("MultiDiscrete", nvec="[99999999 9]"), "more than"),
        (words("Discrete", n=str(10**12)), "more than"),
        (words("Box", _shape=[4], dtype="V2000000000", low="0", high="1"), "its type is V2000000000"),
        (words("Box", _shape=[10**4000] * 2000, dtype="float32", low="0", high="1"), "too many numbers"),
    ],
    ids=["Dict", "quotes", "text", "MultiBinary", "MultiDiscrete", "Discrete", "type", "Box"],
)
def test_spaces_that_are_too_large_are_refused(printed: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnknownSpaceError, match=problem):
        printed_space(json.loads(json.dumps(printed)))


def test_statistics_that_name_the_same_numbers_many_times_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.vec_env import VecNormalize

    from zoo.agents.sb3_zip import read_vecnormalize

    shared = RunningMeanStd(shape=(2**20,))
    statistics = VecNormalize.__new__(VecNormalize)
    statistics.__dict__.update(norm_obs=True, ret_rms=RunningMeanStd(shape=()))
    statistics.__dict__.update(venv=None, class_attributes=None, returns=None)
    statistics.__dict__["obs_rms"] = {str(index): shared for index in range(50)}
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(pickle.dumps(statistics))
    with pytest.raises(ZooError, match="too many"):
        read_vecnormalize(path)
