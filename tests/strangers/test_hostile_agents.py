"""Agents that somebody made to harm: each is answered in one line, at once, and nothing happens."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401  (its import is not what is measured)
import yaml
from bounds import contents, within_bounds

import zoo
from zoo.cli import status_of

HUGE = 10**9
Attack = Callable[[Path], object]


@pytest.fixture(scope="module", autouse=True)
def agent_as_saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "agent"
    model = zoo.PPO2("MlpPolicy", "CartPole-v1", compile=False, device="cpu", seed=0)
    model.save(folder)
    assert zoo.load(folder) is not None
    status_of(["evaluate", f"agent={folder}", "n_episodes=1"])
    return folder


@pytest.fixture
def agent(agent_as_saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "letter.txt").write_text("untouched")
    work = tmp_path / "work"
    shutil.copytree(agent_as_saved, work / "downloads" / "agent")
    (work / "evil.py").write_text(f"open({str(tmp_path / 'private' / 'ran')!r}, 'w').close()\n")
    monkeypatch.chdir(work)
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return Path("downloads/agent")


def config(section: str, **values: Any) -> Attack:
    """Change a section of the agent's config; the section ``""`` is the whole."""

    def attack(agent: Path) -> None:
        whole = yaml.safe_load((agent / "config.yaml").read_text())
        (whole[section] if section else whole).update(values)
        (agent / "config.yaml").write_text(yaml.safe_dump(whole))

    return attack


def text(name: str, content: str | bytes) -> Attack:
    content = content.encode() if isinstance(content, str) else content
    return lambda agent: (agent / name).write_bytes(content)


def in_front(line: str) -> Attack:
    """Put YAML before the agent's config."""
    return lambda agent: (agent / "config.yaml").write_text(f"{line}\n{(agent / 'config.yaml').read_text()}")


def link(name: str, target: str) -> Attack:
    def attack(agent: Path) -> None:
        (agent / name).unlink()
        (agent / name).symlink_to(target)

    return attack


def pipe(name: str) -> Attack:
    def attack(agent: Path) -> None:
        (agent / name).unlink()
        os.mkfifo(agent / name)

    return attack


def sparse(name: str, size: int) -> Attack:
    return lambda agent: os.truncate(agent / name, size)


def tensors(header: Mapping[str, Any] | bytes, n_bytes: int = 0, *, stated: int | None = None) -> Attack:
    """Write a file of tensors whose header says anything; its data are a hole."""
    given = header if isinstance(header, bytes) else json.dumps(header).encode()

    def attack(agent: Path) -> None:
        path = agent / "policy.safetensors"
        path.write_bytes(struct.pack("<Q", len(given) if stated is None else stated) + given)
        os.truncate(path, 8 + len(given) + n_bytes)

    return attack


def zipped(change: Callable[[zipfile.ZipFile, Path], object]) -> Attack:
    """Replace the folder by a zip of it, to which something is added."""

    def attack(agent: Path) -> None:
        kept = agent.rename(agent.with_name("kept"))
        with zipfile.ZipFile(agent, "w", zipfile.ZIP_DEFLATED) as archive:
            change(archive, kept)
        shutil.rmtree(kept)

    return attack


def without(archive: zipfile.ZipFile, kept: Path, *names: str) -> None:
    for file in kept.iterdir():
        if file.name not in names:
            archive.write(file, file.name)


def bomb(name: str, size: int) -> Attack:
    def change(archive: zipfile.ZipFile, kept: Path) -> None:
        without(archive, kept, name)
        with archive.open(name, "w", force_zip64=True) as member:
            for _ in range(size // 2**20):
                member.write(bytes(2**20))

    return zipped(change)


def entry(name: str, *, is_link: bool = False) -> Attack:
    def change(archive: zipfile.ZipFile, kept: Path) -> None:
        without(archive, kept)
        info = zipfile.ZipInfo(name)
        info.external_attr = (0o120777 if is_link else 0o100644) << 16
        archive.writestr(info, "/etc/passwd")

    return zipped(change)


def big_array(shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    n_bytes = 4
    for side in shape:
        n_bytes *= side
    return {"actor.0.weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, n_bytes]}}


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
SEXAGESIMAL = "n: 1" + ":59" * 130_000

ATTACKS: dict[str, Attack] = {
    # names of code
    "module in the id": config("env", id="evil:Car-v0"),
    "two modules in the id": config("env", id="zoo:evil:Car-v0"),
    "folder in the id": config("env", id="../../evil"),
    "EnvPool": config("env", id="envpool:Pong-v5"),
    "id that is a mapping": config("env", id={"_target_": "os.system"}),
    "id that is a number": config("env", id=7),
    "wrapper of a module": config("env", wrappers=["evil.Wrapper"]),
    "wrapper that is a shell": config("env", wrappers=[{"_target_": "pydoc.pipepager", "cmd": "touch x"}]),
    "wrapper that writes": config(
        "env", wrappers=[{"_target_": "RecordVideo", "video_folder": "../private"}]
    ),
    "wrapper that opens a window": config("env", wrappers=["HumanRendering"]),
    "wrapper with a function": config("env", wrappers=[{"_target_": "TransformReward", "func": "evil.f"}]),
    "mask of a module": config("env", wrappers=[{"_target_": "ActionMasker", "action_mask_fn": "evil.f"}]),
    "mask that closes": config("env", wrappers=[{"_target_": "ActionMasker", "action_mask_fn": "close"}]),
    "wrappers that are a text": config("env", wrappers="evil.Wrapper"),
    "wrappers that are a mapping": config("env", wrappers={"_target_": "evil.Wrapper"}),
    "policy of a module": config("policy", _target_="evil.Policy"),
    "policy that loads": config("policy", _target_="torch.hub.load"),
    "policy in a list": config("policy", _target_=["evil.Policy"]),
    "target in the algorithm": config("algo", ent_coef={"_target_": "os.system"}),
    "section that names code": config("", callbacks={"a": {"_target_": "evil.Callback"}}),
    "entry point": config("env", kwargs={"entry_point": "evil:Car"}),
    "class of an argument": config("env", kwargs={"car": "downloads.evil.Car "}),
    "class with a sign": config("env", kwargs={"car": "evil.Car!"}),
    "file of an argument": config("env", id="Ant-v5", kwargs={"xml_file": "evil"}),
    "path of an argument": config("env", kwargs={"vzd_path": "evil"}),
    "folder to write": config("env", kwargs={"lmp_save_dir": "x"}),
    "path by its value": config("env", kwargs={"model": "/etc/passwd"}),
    "path that leads up": config("env", kwargs={"model": "../private/letter"}),
    "machine to connect to": config("env", kwargs={"host": "localhost", "port": 22}),
    "window": config("env", render_mode="human"),
    "window as an argument": config("env", kwargs={"render_mode": "human"}),
    "variable": config("env", kwargs={"name": "${oc.env:HOME}"}),
    "variable in a hyperparameter": config("algo", gamma="${oc.env:HOME}"),
    # sizes
    "stack": config("env", frame_stack=HUGE),
    "history": config("env", history=HUGE),
    "stack of a wrapper": config("env", wrappers=[{"_target_": "FrameStack", "n": HUGE}]),
    "bins": config("env", wrappers=[{"_target_": "DiscretizeObservation", "bins": HUGE}]),
    "picture": config("env", wrappers=[{"_target_": "ResizeObservation", "shape": [HUGE, HUGE]}]),
    "sizes that multiply": config(
        "env", frame_stack=999, history=999, wrappers=[{"_target_": "FrameStack", "n": 999}]
    ),
    "argument": config("env", kwargs={"n": HUGE}),
    "repeats": config("env", action_repeat=HUGE),
    "no-ops": config("env", wrappers=[{"_target_": "RepeatAction", "num_repeats": HUGE}]),
    "widths": config("policy", net_arch=[10**6, 10**6]),
    "widths beyond numbers": config("policy", net_arch=[10**30, 10**30]),
    "layers": config("policy", net_arch=[1] * 15_000),
    "environments": config("", n_envs=10**400),
    "observations": config("observation_space", shape=[HUGE, HUGE], low=0.0, high=1.0),
    "observations of no shape": config("observation_space", shape=[-1]),
    "actions": config("action_space", n=10**18),
    "config of megabytes": in_front("# " + "x" * 2**20),
    "values": in_front("extra: [" + "1," * 100_000 + "]"),
    "values that fit": in_front("extra: [" + "1," * 60_000 + "]"),
    "aliases": in_front(ALIASES),
    "sexagesimal number": in_front(SEXAGESIMAL),
    "number of many digits": in_front("n: 1" + "0" * 200_000),
    "float of many digits": in_front("n: 1." + "0" * 200_000),
    "depth": in_front("n: " + "[" * 5_000 + "]" * 5_000),
    "depth in flow": in_front("n: " + "{a: " * 5_000 + "}" * 5_000),
    "tag": in_front("n: !!python/object/apply:os.system ['touch ../private/ran']"),
    "tag for a tuple": in_front("n: !!python/tuple [1]"),
    "date": in_front("n: 2001-01-01"),
    "binary": in_front("n: !!binary aGVsbG8="),
    "set": in_front("n: !!set {a, b}"),
    "number that is none": in_front("n: !!int ''"),
    "mapping as a key": in_front("? {a: 1}\n: 2"),
    "not UTF-8": text("config.yaml", b"\xff\xfe\x00"),
    "empty config": text("config.yaml", ""),
    "config that is a list": text("config.yaml", "[1, 2]"),
    "two documents": text("config.yaml", "a: 1\n---\nb: 2"),
    "sparse config": sparse("config.yaml", 2**40),
    "sparse card": sparse("card.json", 2**40),
    "card of megabytes": text("card.json", json.dumps({"note": "x" * 2**20})),
    "card with a score of 400 digits": text("card.json", '{"mean_return": 1' + "0" * 400 + "}"),
    "card with steps of 400 digits": text("card.json", '{"timesteps": 1' + "0" * 400 + "}"),
    "card with digits for seconds": text("card.json", '{"timesteps": 1' + "0" * 200_000 + "}"),
    "card of brackets": text("card.json", "[" * 100_000),
    "card that is a list": text("card.json", "[]"),
    "card with a text for a number": text("card.json", '{"mean_return": "high"}'),
    "card with infinite steps": text("card.json", '{"timesteps": Infinity}'),
    "card that is not UTF-8": text("card.json", b"\xff\xfe"),
    "card with half a character": text("card.json", '{"env": "\\ud800"}'),
    # tensors
    "sparse weights": tensors(big_array([2**20, 2**10]), 2**32),
    "sparse weights without a header": sparse("policy.safetensors", 2**40),
    "header of gigabytes": tensors(b"{}", stated=2**40),
    "header of megabytes": tensors(b"{" + b" " * 2**22 + b"}"),
    "header that is a list": tensors(b"[]"),
    "header that is no JSON": tensors(b"{{"),
    "header of brackets": tensors(b"[" * 200_000),
    "header with a negative size": tensors({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}),
    "header with a huge shape": tensors(
        {"a": {"dtype": "F32", "shape": [2**62] * 60, "data_offsets": [0, 0]}}
    ),
    "header that overlaps": tensors(
        {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}, 4
    ),
    "header with a zero in its shape": tensors(
        {"a": {"dtype": "F32", "shape": [0, 2**60], "data_offsets": [0, 0]}}
    ),
    "header with an unknown type": tensors(big_array([1], "OBJECT"), 4),
    "header with many names": tensors(
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(12_000)}
    ),
    "no weights": tensors({}),
    "empty weights": text("policy.safetensors", b""),
    "pickled weights": text("policy.safetensors", b"\x80\x04cos\nsystem\n(S'touch ../private/ran'\ntR."),
    "statistics that are none": text("normalization.safetensors", b"\x00" * 8),
    # links and pipes
    "config that is a link": link("config.yaml", "/etc/passwd"),
    "card that is a link": link("card.json", "../../../private/letter.txt"),
    "weights that are a link": link("policy.safetensors", "/dev/zero"),
    "weights that are random": link("policy.safetensors", "/dev/urandom"),
    "config that is a pipe": pipe("config.yaml"),
    "card that is a pipe": pipe("card.json"),
    "weights that are a pipe": pipe("policy.safetensors"),
    "link in a circle": link("config.yaml", "config.yaml"),
    # zips
    "zip with a bomb": bomb("policy.safetensors", 2**29),
    "zip with a bomb of text": bomb("config.yaml", 2**24),
    "zip that leads out": entry("../../private/ran"),
    "zip from the root": entry("/tmp/ran"),
    "zip of Windows": entry("..\\..\\private\\ran"),
    "zip with a drive": entry("C:/ran"),
    "zip with a link": entry("link", is_link=True),
    "zip with a file twice": entry("config.yaml"),
    "zip of nothing": zipped(lambda archive, kept: None),
    "zip cut short": lambda agent: (shutil.rmtree(agent), agent.write_bytes(b"PK\x03\x04" + bytes(100))),
    "file that is no zip": lambda agent: (shutil.rmtree(agent), agent.write_bytes(os.urandom(1000))),
}

HARMLESS = {
    *("card with a score of 400 digits", "card with steps of 400 digits", "values that fit"),
    "card with half a character",
}
"""What is shown, or can be played, all the same: nothing in it is used as it stands."""

WAYS: dict[str, Callable[[Path], list[str]]] = {
    "play": lambda agent: ["evaluate", f"agent={agent}", "n_episodes=1", "n_envs=1"],
    "show": lambda agent: ["agents", f"agent={agent}"],
    "pull": lambda agent: ["pull", f"from=./{agent}", "to=pulled"],
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", ATTACKS)
def test_hostile_agent_is_answered_and_nothing_happens(
    agent: Path, name: str, way: Callable[[Path], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    ATTACKS[name](agent)
    with within_bounds():
        status = status_of(way(agent))
    told = capfd.readouterr()
    assert contents(Path("../private")) == {"../private/letter.txt": b"untouched"}
    assert "root:" not in told.out + told.err
    if way is WAYS["play"] and name not in HARMLESS:
        assert status == 2
    assert status in (0, 2)
    if status:
        assert told.err.startswith("zoo: ")
        assert len(told.err.splitlines()) == 1
        assert len(told.err) < 2_000
        assert told.err.rstrip("\n").isprintable()
    assert all(each.isprintable() for each in told.out.splitlines())


def test_there_are_many_attacks() -> None:
    assert len(ATTACKS) >= 60
