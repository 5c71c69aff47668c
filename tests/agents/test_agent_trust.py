"""What a stranger's config may not say, and what every agent of Zoo's own may."""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import yaml
from stranger import CONFIG

from zoo.agents.agent_folder import AgentFiles, read_agent, write_agent
from zoo.agents.known_wrappers import OF_GYMNASIUM, OF_ZOO
from zoo.agents.trust import OWN_POLICIES, _could_name_code, refuse_foreign_code, refuse_foreign_environment
from zoo.errors import ZooError


def with_env(**changes: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config["env"].update(changes)
    return config


def with_policy(**changes: Any) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config["policy"].update(changes)
    return config


def masker(function: Any) -> dict[str, Any]:
    return {"_target_": "ActionMasker", "action_mask_fn": function}


HARMLESS = {
    "as training writes it": CONFIG,
    "id with a namespace": with_env(id="ALE/Pong-v5"),
    "Gymnasium's wrapper by class": with_env(wrappers=["gymnasium.wrappers.FlattenObservation"]),
    "Gymnasium's wrapper with arguments": with_env(
        wrappers=[{"_target_": "gymnasium.wrappers.TimeAwareObservation", "flatten": True}]
    ),
    "wrapper by name": with_env(
        wrappers=["FlattenObservation", {"_target_": "TimeLimit", "max_episode_steps": 10**8}]
    ),
    "masks by a method of a usual name": with_env(
        wrappers=[{"_target_": "ActionMasker", "action_mask_fn": "valid_action_mask"}]
    ),
    "wrapper in its module": with_env(wrappers=["gymnasium.wrappers.common.TimeLimit"]),
    "arguments of an environment": with_env(
        kwargs={
            "map_name": "4x4",
            "is_slippery": False,
            "desc": ["SF", "HG"],
            "rate": 1.5,
            "mission": "get the ball",
            "healthy_z_range": [0.7, float("inf")],
        }
    ),
    "stacks as they are": with_env(
        frame_stack=4, history=100, wrappers=[{"_target_": "FrameStackObservation", "stack_size": 16}]
    ),
    "time limit": with_env(max_episode_steps=10**9),
    "nothing about an environment": {**CONFIG, "env": None},
    "an environment without an id": {**CONFIG, "env": {"normalize": True}},
}

HARMFUL = {
    "id of EnvPool": (with_env(id="envpool:Pong-v5"), "env.id"),
    "name of code with a blank after it": (
        with_env(kwargs={"type": "downloads.evil.Car "}),
        "the name of code",
    ),
    "name of code with a sign after it": (
        with_env(kwargs={"type": "downloads.evil.Car!"}),
        "the name of code",
    ),
    "MuJoCo's model": (with_env(id="Ant-v5", kwargs={"xml_file": "ant_evil"}), "env.kwargs.xml_file"),
    "ViZDoom's program": (with_env(kwargs={"vzd_path": "evil"}), "env.kwargs.vzd_path"),
    "folder to write to": (with_env(kwargs={"lmp_save_dir": "evil"}), "env.kwargs.lmp_save_dir"),
    "file in the middle of a name": (with_env(kwargs={"config": {"file_name": "evil"}}), "config.file_name"),
    "program": (with_env(kwargs={"executable": "evil"}), "env.kwargs.executable"),
    "machine": (with_env(kwargs={"server-host": "evil"}), "env.kwargs.server-host"),
    "port": (with_env(kwargs={"port": 22}), "env.kwargs.port"),
    "file in a folder": (with_env(kwargs={"texture": "assets/grass"}), "take it for a file"),
    "window": (with_env(render_mode="human"), "env.render_mode"),
    "window among the arguments": (with_env(kwargs={"render_mode": "human"}), "env.kwargs.render_mode"),
    "window of PyBullet": (with_env(kwargs={"render": True}), "open a window"),
    "window by a wrapper": (with_env(wrappers=["HumanRendering"]), "_target_"),
    "function of a wrapper": (
        with_env(wrappers=[{"_target_": "TransformReward", "func": "f"}]),
        "env.wrappers[0]._target_",
    ),
    "argument that a wrapper does not have": (
        with_env(wrappers=[{"_target_": "TimeLimit", "max_steps": 5}]),
        "the wrapper takes no such argument",
    ),
    "text for a number": (
        with_env(wrappers=[{"_target_": "TimeLimit", "max_episode_steps": "5"}]),
        "none of the usual values",
    ),
    "type of numbers": (
        with_env(wrappers=[{"_target_": "DtypeObservation", "dtype": "object"}]),
        "none of the usual values",
    ),
    "sizes that multiply": (
        with_env(
            frame_stack=1_000,
            wrappers=[{"_target_": "ResizeObservation", "shape": [4_000, 4_000]}],
        ),
        "sizes multiply",
    ),
    "wrapper without a name": (with_env(wrappers=[{"n": 3}]), "env.wrappers[0]._target_"),
    "wrapper of another module": (with_env(wrappers=["gymnasium.wrappers.evil.TimeLimit"]), "_target_"),
    "array module": (with_env(wrappers=["gymnasium.wrappers.array_conversion.ArrayConversion"]), "_target_"),
    "wrappers that are no list": (with_env(wrappers="TimeLimit"), "env.wrappers"),
    "module in the id": (with_env(id="evil:Id-v0"), "env.id: evil:Id-v0"),
    "submodule in the id": (with_env(id="a.b:ns/Id-v0"), "env.id"),
    "several modules in the id": (with_env(id="envpool:evil:Id-v0"), "env.id"),
    "an id that is no text": (with_env(id={"_target_": "os.system"}), "env.id"),
    "an id across lines": (with_env(id="CartPole-v1\nevil:Id"), "env.id"),
    "wrapper of the standard library": (with_env(wrappers=[{"_target_": "os.system"}]), "os.system"),
    "wrapper by class path": (with_env(wrappers=["evil.Wrapper"]), "evil.Wrapper"),
    "wrapper by entry point": (with_env(wrappers=["evil:Wrapper"]), "evil:Wrapper"),
    "function in Gymnasium": (
        with_env(wrappers=[{"_target_": "gymnasium.wrappers.importlib.import_module", "name": "evil"}]),
        "wrappers[0]._target_",
    ),
    "Gymnasium's function": (
        with_env(wrappers=[{"_target_": "gymnasium.make", "id": "evil:Id"}]),
        "_target_",
    ),
    "class that is no wrapper": (with_env(wrappers=["gymnasium.vector.AsyncVectorEnv"]), "_target_"),
    "base class from elsewhere": (with_env(wrappers=["gymnasium.wrappers.common.deque"]), "_target_"),
    "prefix that only looks right": (with_env(wrappers=["gymnasium.wrappers_evil.Wrapper"]), "_target_"),
    "Zoo's command line": (with_env(wrappers=["zoo.cli.main"]), "_target_"),
    "Zoo's module of environments": (with_env(wrappers=["zoo.envs.ids.importlib"]), "_target_"),
    "relative path": (with_env(wrappers=["zoo.envs..os.system"]), "_target_"),
    "private name": (with_env(wrappers=["gymnasium.wrappers.__builtins__.eval"]), "_target_"),
    "wrapper that writes files": (
        with_env(wrappers=[{"_target_": "gymnasium.wrappers.RecordVideo", "video_folder": "/"}]),
        "it writes files",
    ),
    "wrapper that writes files by its name": (with_env(wrappers=["RecordVideo"]), "it writes files"),
    "wrapper that writes files with arguments": (
        with_env(wrappers=[{"_target_": "RecordVideo", "video_folder": "/"}]),
        "it writes files",
    ),
    "wrapper whose package is missing": (with_env(wrappers=["gymnasium.wrappers.JaxToTorch"]), "_target_"),
    "target that is no text": (with_env(wrappers=[{"_target_": ["os", "system"]}]), "_target_"),
    "target within a wrapper's arguments": (
        with_env(
            wrappers=[
                {"_target_": "gymnasium.wrappers.TransformReward", "func": {"_target_": "os.system"}},
            ]
        ),
        "env.wrappers[0]._target_: gymnasium.wrappers.TransformReward",
    ),
    "target deep within a wrapper's arguments": (
        with_env(wrappers=[{"name": "x", "kwargs": {"a": [{"b": {"_target_": "os.system"}}]}}]),
        "env.wrappers[0].kwargs.a[0].b._target_",
    ),
    "partial": (with_env(wrappers=[{"name": "x", "_partial_": True}]), "_partial_"),
    "target in the environment's arguments": (with_env(kwargs={"a": {"_target_": "os.system"}}), "_target_"),
    "entry point in the arguments": (with_env(kwargs={"entry_point": "evil"}), "env.kwargs.entry_point"),
    "vector entry point": (with_env(kwargs={"vector_entry_point": "evil"}), "vector_entry_point"),
    "wrappers of a spec": (
        with_env(kwargs={"spec": {"additional_wrappers": [{"entry_point": "evil:W"}]}}),
        "additional_wrappers",
    ),
    "wrappers of make_vec": (with_env(kwargs={"wrappers": ["evil"]}), "env.kwargs.wrappers"),
    "environment within an environment": (with_env(kwargs={"env_id": "evil:Id-v0"}), "env.kwargs.env_id"),
    "module with a sign in its name": (
        with_env(kwargs={"config": {"other_vehicles_type": "evil-mod.C"}}),
        "the name of code",
    ),
    "module that begins with a number": (with_env(kwargs={"agent": "9x.C"}), "the name of code"),
    "text like an entry point": (with_env(kwargs={"agent": "evil.module:Class"}), "the name of code"),
    "text like a class path": (with_env(kwargs={"config": {"type": "evil.Car"}}), "env.kwargs.config.type"),
    "class path in a wrapper's arguments": (
        with_env(wrappers=[{"_target_": "gymnasium.wrappers.TimeLimit", "x": "evil.Class"}]),
        "env.wrappers[0].x",
    ),
    "text like an id with a module": (with_env(kwargs={"inner": ["evil:ns/Id-v0"]}), "env.kwargs.inner[0]"),
    "module that is a number": (with_env(kwargs={"version": "1.5"}), "the name of code"),
    "module with a blank in its name": (with_env(kwargs={"agent": "evil mod.C"}), "the name of code"),
    "module before nothing": (with_env(kwargs={"agent": "evil."}), "the name of code"),
    "entry point before nothing": (with_env(kwargs={"agent": "evil:"}), "the name of code"),
    "function that gives masks": (with_env(wrappers=[masker("evil.f")]), "env.wrappers[0].action_mask_fn"),
    "masks from a module before nothing": (with_env(wrappers=[masker("evil.")]), "action_mask_fn: evil."),
    "masks from a module with a blank": (with_env(wrappers=[masker("evil mod.f")]), "action_mask_fn"),
    "masks from a module that is a number": (with_env(wrappers=[masker("1.5")]), "action_mask_fn: 1.5"),
    "masks from a method that does more": (with_env(wrappers=[masker("reset")]), "none of the usual names"),
    "masks from what is no text": (with_env(wrappers=[masker(["close"])]), "none of the usual names"),
    "text that is too long": (with_env(kwargs={"note": "a" * 20_000}), "more than 1,000 characters"),
    "name of code with a folder": (with_env(kwargs={"note": "evil:a/b"}), "take it for a file"),
    "file by its key": (with_env(kwargs={"xml_file": "model"}), "env.kwargs.xml_file"),
    "path by its key": (with_env(kwargs={"a": {"model_path": "model"}}), "env.kwargs.a.model_path"),
    "folder by its key": (
        with_env(wrappers=[{"_target_": "TimeLimit", "cache_dir": "model"}]),
        "env.wrappers[0].cache_dir",
    ),
    "path from the root": (with_env(kwargs={"a": ["/etc/passwd"]}), "env.kwargs.a[0]"),
    "path from home": (with_env(kwargs={"a": "~/model"}), "take it for a file"),
    "path from here": (with_env(kwargs={"a": "./model x"}), "take it for a file"),
    "path that leads up": (with_env(kwargs={"a": "a/../../b"}), "take it for a file"),
    "path of Windows": (with_env(kwargs={"a": "C:\\data"}), "take it for a file"),
    "stack of observations": (with_env(frame_stack=10**9), "env.frame_stack: 1000000000"),
    "stack as a fraction": (with_env(frame_stack=1e9), "more than 1,000"),
    "history": (with_env(history=10**9), "env.history: 1000000000"),
    "stack of a wrapper": (
        with_env(wrappers=[{"_target_": "gymnasium.wrappers.FrameStackObservation", "stack_size": 10**9}]),
        "env.wrappers[0].stack_size",
    ),
    "picture": (
        with_env(wrappers=[{"_target_": "gymnasium.wrappers.ResizeObservation", "shape": [60_000, 60_000]}]),
        "env.wrappers[0].shape[0]: 60000",
    ),
    "Atari screen": (with_env(atari={"screen_size": 10**5}), "env.atari.screen_size"),
    "argument that is a large number": (with_env(kwargs={"n_cities": -(10**7)}), "more than 1,000,000"),
    "argument with many values": (with_env(kwargs={"a": {"b": [0] * 1_001}}), "1,001 values"),
    "arguments with long texts": (with_env(kwargs={"desc": ["F" * 900] * 25}), "20,000 characters already"),
    "render mode": (with_env(render_mode="evil:viewer"), "env.render_mode"),
    "environment variable": (with_env(kwargs={"name": "${oc.env:HOME}"}), "interpolation"),
    "interpolation in a key": (with_env(kwargs={"${oc.env:HOME}": 1}), "interpolation"),
    "interpolation in a wrapper": (
        with_env(
            wrappers=[{"_target_": "gymnasium.wrappers.TimeLimit", "max_episode_steps": "${oc.decode:1}"}]
        ),
        "interpolation",
    ),
    "interpolation in a hyperparameter": (
        {**CONFIG, "algo": {"name": "ppo2", "gamma": "x${oc.env:HOME}"}},
        "algo.gamma",
    ),
    "interpolation elsewhere": ({**CONFIG, "extra": {"a": ["${b}"]}}, "extra.a[0]"),
    "policy from elsewhere": (with_policy(_target_="evil.Policy"), "policy._target_"),
    "policy of PyTorch": (with_policy(_target_="torch.hub.load"), "policy._target_"),
    "policy that is no module": (
        with_policy(_target_="zoo.policies.config.policy_preset"),
        "policy._target_",
    ),
    "policy through Zoo": (with_policy(_target_="zoo.policies.networks.torch.nn.Module"), "policy._target_"),
    "policy in a list": (with_policy(_target_=["os.system"]), "policy._target_"),
    "target in the policy's arguments": (
        with_policy(kwargs={"encoder": {"_target_": "os.system"}}),
        "policy.kwargs.encoder._target_",
    ),
    "target in the algorithm": (
        {**CONFIG, "algo": {"name": "ppo2", "schedule": {"_target_": "os.system"}}},
        "algo.schedule._target_",
    ),
    "target in a section of its own": ({**CONFIG, "callbacks": [{"_target_": "os.system"}]}, "callbacks[0]"),
}


@pytest.mark.parametrize("config", HARMLESS.values(), ids=HARMLESS)
def test_harmless_config_is_read(config: dict[str, Any]) -> None:
    refuse_foreign_code(config, "here")


@pytest.mark.parametrize(("config", "named"), HARMFUL.values(), ids=HARMFUL)
def test_harmful_config_is_refused_in_one_line(config: dict[str, Any], named: str) -> None:
    modules = set(sys.modules)
    with pytest.raises(ZooError) as caught:
        refuse_foreign_code(config, "here")
    message = str(caught.value)
    assert message.startswith("the agent in here asks for `")
    assert named in message
    assert message.endswith("load it with trust=true")
    assert "\n" not in message
    assert not [name for name in set(sys.modules) - modules if "evil" in name]


@pytest.mark.parametrize("config", [config for config, _ in HARMFUL.values()], ids=HARMFUL)
def test_trusted_config_is_read_as_plain_text(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = write_agent(tmp_path / "agent", AgentFiles(config, {}))
    assert read_agent(folder, trust=True).config == {"format": 2, **config}
    with pytest.raises(ZooError, match="trust=true"):
        read_agent(folder)


@pytest.mark.parametrize(
    "text", ["a" * 200_000 + " ", "a." * 100_000 + "\\", "a" * 99_999 + "." * 99_999 + " "]
)
def test_time_that_a_text_takes_grows_only_as_its_length(text: str) -> None:
    started = time.process_time()
    _could_name_code(text)
    assert time.process_time() - started < 2


def test_number_that_is_none_is_within_no_limit() -> None:
    stack = {"_target_": "FrameStackObservation", "stack_size": math.nan}
    with pytest.raises(ZooError, match="stack_size: nan"):
        refuse_foreign_code(with_env(wrappers=[stack]), "here")


def test_own_policy_class_is_read() -> None:
    refuse_foreign_code(with_policy(_target_="zoo.policies.actor_critic.ActorCritic"), "here")


def test_callers_own_environment_leaves_the_agents_unchecked(tmp_path: Path) -> None:
    folder = write_agent(tmp_path / "agent", AgentFiles(with_env(id="evil:Id-v0"), {}))
    assert read_agent(folder, own_env=True).config["env"]["id"] == "evil:Id-v0"
    other = write_agent(tmp_path / "other", AgentFiles(with_policy(_target_="evil.Policy"), {}))
    with pytest.raises(ZooError, match=r"evil\.Policy"):
        read_agent(other, own_env=True)


def test_id_that_the_user_typed_may_import_its_module() -> None:
    env = with_env(id="mine:Id-v0")["env"]
    refuse_foreign_environment(env, "here", named_by_user="mine:Id-v0")
    for typed in (None, "mine:Id-v1", "Id-v0"):
        with pytest.raises(ZooError, match=r"env\.id"):
            refuse_foreign_environment(env, "here", named_by_user=typed)
    with pytest.raises(ZooError, match=r"os\.system"):
        refuse_foreign_environment({**env, "wrappers": ["os.system"]}, "here", named_by_user="mine:Id-v0")


def test_module_beside_the_agent_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`zoo` run by ``python -m`` has the working folder on its path: a module there is the stranger's."""
    marker = tmp_path / "ran"
    code = f"import os\nos.mkdir({os.fspath(marker)!r})\n"
    for name in ("evil", "gymnasium_evil", "zoo_evil"):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for config in (
        with_env(id="evil:Id-v0"),
        with_env(wrappers=["evil.Wrapper"]),
        with_env(wrappers=["gymnasium_evil.Wrapper"]),
        with_policy(_target_="zoo_evil.Policy"),
    ):
        with pytest.raises(ZooError, match="trust=true"):
            refuse_foreign_code(config, "here")
    assert not marker.exists()


def test_message_hides_escape_sequences_and_stays_short() -> None:
    with pytest.raises(ZooError) as caught:
        refuse_foreign_code(with_env(id="evil:\x1b]0;owned\x07\n" + "x" * 10_000), "here")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_values_that_only_look_strange_are_kept(tmp_path: Path) -> None:
    config = with_env(kwargs={"price": "$5", "set": "{a}", "ratio": 1.2, "kind": "data a-b"})
    folder = write_agent(tmp_path / "agent", AgentFiles(config, {}))
    assert read_agent(folder).config["env"]["kwargs"] == config["env"]["kwargs"]
    assert yaml.safe_load((folder / "config.yaml").read_text())["env"]["kwargs"] == config["env"]["kwargs"]


def test_nothing_is_imported_to_decide() -> None:
    """Whoever only lists or pulls agents waits for neither torch nor Gymnasium."""
    code = (
        "import sys; from zoo.agents.trust import refuse_foreign_code;"
        "refuse_foreign_code({'policy': {'_target_': 'zoo.policies.actor_critic.ActorCritic'},"
        " 'env': {'id': 'A-v0', 'wrappers': ['gymnasium.wrappers.TimeAwareObservation', 'TimeLimit']}},"
        " 'here');"
        "assert not {'torch', 'gymnasium', 'zoo.policies', 'zoo.envs'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def test_wrappers_and_policies_of_the_lists_are_there() -> None:
    for name, (module, arguments) in OF_GYMNASIUM.items():
        _is_wrapper(f"gymnasium.wrappers.{module}", name, arguments)
    for name, (module, arguments) in OF_ZOO.items():
        _is_wrapper(f"zoo.envs.{module}", name, arguments)
    for module, names in OWN_POLICIES.items():
        for name in names:
            assert isinstance(getattr(importlib.import_module(f"zoo.policies.{module}"), name), type)


def _is_wrapper(module: str, name: str, arguments: Mapping[str, object]) -> None:
    try:
        found = getattr(importlib.import_module(module), name)
    except gymnasium.error.DependencyNotInstalled:
        return
    assert issubclass(found, gymnasium.Wrapper)
    assert arguments.keys() <= inspect.signature(found).parameters.keys(), name
