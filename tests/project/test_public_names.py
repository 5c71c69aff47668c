"""Public names: the registry, the stub for editors, and parts of a user's own."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pydoc
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import zoo
from zoo.algorithms.registry import MODULES
from zoo.cli import status_of

INIT = Path(zoo.__file__)


def test_package_exports_algorithms_and_stub_all_names() -> None:
    tree = ast.parse(INIT.with_suffix(".pyi").read_text())
    stubbed = {
        alias.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    stubbed |= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert set(zoo.__all__) - stubbed == set()
    for name, module in MODULES.items():
        assert name in zoo.__all__
        assert getattr(zoo, name).__module__ == module


REPOSITORY = Path(__file__).resolve().parents[2]
NAMES = [*MODULES]


@pytest.mark.parametrize("name", NAMES)
def test_help_documents_every_hyperparameter(name: str) -> None:
    found = getattr(zoo, name)
    page = pydoc.render_doc(found, renderer=pydoc.plaintext)
    words = " ".join(re.sub(r"^ \|", "", page, flags=re.MULTILINE).split())
    parameters = inspect.signature(found).parameters
    for field in dataclasses.fields(found.config_class):
        if field.default is not dataclasses.MISSING:
            assert parameters[field.name].default == field.default
            assert f"{field.name} (" in words
            assert f"default {field.default!r}" in words
        assert " ".join(str(field.metadata["help"]).split()) in words
    assert {"policy", "env", "n_envs", "seed", "device"} <= parameters.keys()
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def test_subclass_signature_merges_hyperparameters() -> None:
    class Open(zoo.PPO2):
        """Mine."""

        def __init__(self, mine: int = 3, **others: object) -> None:
            super().__init__(**others)

    class Closed(zoo.PPO2):
        def __init__(self, mine: int = 3) -> None:
            super().__init__("MlpPolicy", "CartPole-v1")

    assert list(inspect.signature(Open).parameters)[:3] == ["mine", "policy", "env"]
    assert "learning_rate" in inspect.signature(Open).parameters
    assert (Open.__doc__ or "").startswith("Mine.")
    assert list(inspect.signature(Closed).parameters) == ["mine"]


def test_stub_is_what_the_code_declares() -> None:
    script = REPOSITORY / "scripts" / "make_stubs.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-parts.md"
SHORT = ["n_timesteps=512", "seed=1", "compile=false", "threads=1", "progress_bar=false"]

SECTIONS = dict(
    re.findall(r"^## An? .*?: `(my_\w+)\.py`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
)


@pytest.fixture(autouse=True)
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy each section's file, its first block of Python, into an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, section in SECTIONS.items():
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0])


@pytest.mark.parametrize("name", SECTIONS)
def test_commands_run(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", SECTIONS[name], re.DOTALL)
        for line in block.splitlines()
    ]
    assert commands
    for command in commands:
        verb, *arguments = shlex.split(command)[1:]
        short = SHORT if verb == "train" else []
        assert status_of([verb, *arguments, *short]) == 0, f"{command}\n{capfd.readouterr().err}"


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "my_wrapper"])
def test_python_runs(name: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", SECTIONS[name], re.DOTALL)[1:]
    names: dict[str, object] = {}
    exec(compile(example.replace("10_000", "512"), "docs/own-parts.md", "exec"), names)
    assert names["model"].num_timesteps >= 512  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("VecFrameStack", r"zoo\.make_vec_env\(env, n_envs, frame_stack=4\)"),
        ("BaseCallback", r"zoo\.Callback"),
        ("HerReplayBuffer", "hindsight"),
        ("SubprocVecEnv", "vectorization='workers'"),
        ("EvalCalback", "did you mean 'EvalCallback'"),
    ],
)
def test_import_error_names_what_is_meant(name: str, meant: str) -> None:
    with pytest.raises(ImportError, match=meant):
        exec(f"from zoo import {name}")
    with pytest.raises(AttributeError, match=meant):
        getattr(zoo, name)
    assert not hasattr(zoo, name)


STOP = """
from zoo.algorithms.callback import PREEMPTED, Callback

class Stop(Callback):
    every = 256

    def on_steps(self, algorithm):
        if algorithm.num_timesteps == 256:
            algorithm.request_stop(PREEMPTED)
"""


def test_resumed_own_algorithm_ends_as_undisturbed() -> None:
    Path("my_stop.py").write_text(STOP)
    settings = {"env": "CartPole-v1", "n_timesteps": 640, "seed": 1, "compile": False, "progress_bar": False}
    settings |= {"algo": {"_target_": "my_algo.Reinforce", "scale": False}, "verbose": 0}
    whole = zoo.train("callbacks=checkpoint", **settings)
    with pytest.raises(zoo.TrainingInterrupted) as stopped:
        zoo.train("callbacks=checkpoint", "+callbacks.stop._target_=my_stop.Stop", **settings)
    resumed = zoo.train(resume=stopped.value.result.run.path)
    weights = [each.algorithm.get_parameters() for each in (whole, resumed)]
    assert resumed.algorithm.num_timesteps == 640
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_own_algorithm_is_loaded_with_trust_alone() -> None:
    from my_algo import Reinforce  # type: ignore[import-not-found]

    model = Reinforce("MlpPolicy", "CartPole-v1", seed=1)
    model.save("agent")
    with pytest.raises(zoo.ZooError, match=r"my_algo\.Reinforce.*trust=true"):
        zoo.load("agent")
    loaded = zoo.load("agent", trust=True)
    assert type(loaded) is Reinforce
    assert (loaded.label, loaded.vf_coef) == ("my_algo.Reinforce", 0.5)


def test_subclass_of_ppo_is_searched_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_ppo.py").write_text("import zoo\n\nclass MyPPO(zoo.PPO):\n    pass\n")
    space = zoo.compose("tune", ["algo=my_ppo.MyPPO", "env=CartPole-v1"]).space
    assert space == zoo.compose("tune", ["algo=ppo2", "env=CartPole-v1"]).space
    own = zoo.compose("tune", ["algo=my_algo.Reinforce", "env=CartPole-v1"]).space
    assert set(own.algo) == {"learning_rate", "n_steps"}


def test_unknown_key_of_an_own_algorithm_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(["train", "algo=my_algo.Reinforce", "env=CartPole-v1", "algo.vf_coeff=1"]) == 2
    assert "did you mean `algo.vf_coef`?" in capfd.readouterr().err
    assert status_of(["train", "algo=my_algo.Reinforced", "env=CartPole-v1"]) == 2
    assert "Reinforce" in capfd.readouterr().err
