"""The documentation says what the code says."""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import zoo
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.cli import status_of
from zoo.config.aliases import NAMES, RL_ZOO3
from zoo.config.fields import defaults
from zoo.config.keys import all_keys
from zoo.config.schema import SETTINGS

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

from make_notebooks import TUTORIALS, blocks  # noqa: E402

PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").glob("**/*.md"))]

MY_MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

from zoo.algorithms.callback import Callback

class MyCallback(Callback):
    def __init__(self, every):
        self.every = every

gym.register("MyEnv-v0", CartPoleEnv, max_episode_steps=1000)
"""


def test_tables_are_what_the_code_declares() -> None:
    script = REPOSITORY / "scripts" / "make_docs_tables.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def documented_commands() -> list[str]:
    """Return every `zoo` command line that stands in a block of shell commands."""
    commands = []
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            commands += re.findall(r"^zoo .+$", block, re.MULTILINE)
    return sorted(set(commands))


def test_blocks_for_the_shell_are_what_bash_reads() -> None:
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            checked = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
            assert not checked.stderr, f"{page.name}: {checked.stderr}"


def files_of_tutorials() -> dict[str, str]:
    """Return the files that tutorials let the reader write."""
    texts = [page.read_text() for page in TUTORIALS.glob("*.md")]
    return {block.file: block.text for text in texts for block in blocks(text) if block.file}


@pytest.mark.parametrize("command", documented_commands())
def test_documented_command_composes(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is accepted; ``--cfg job`` shows its config instead of carrying it out."""
    verb, *arguments = shlex.split(command, comments=True)[1:]
    if any(re.match("resume=|experiment=(runs|RUN)/|tuned=runs/", argument) for argument in arguments):
        pytest.skip("names a run that is not there")
    if "envpool:" in command:
        pytest.importorskip("envpool")
    (tmp_path / "my_module.py").write_text(MY_MODULE)
    own_algorithm = (REPOSITORY / "docs" / "own-parts.md").read_text().partition("`my_algo.py`")[2]
    (tmp_path / "my_algo.py").write_text(own_algorithm.partition("```python\n")[2].partition("```")[0])
    for path, text in files_of_tutorials().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    asked = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    shown = [] if {"--cfg", "-i", "--help"} & set(arguments) else ["--cfg", "job"]
    status = status_of([verb, *asked, *shown])
    assert status == 0, capsys.readouterr().err


def command_lines_of_others() -> list[tuple[str, str]]:
    """Return the rows of the table of rl_zoo3's and CleanRL's command lines: theirs, and Zoo's."""
    page = (REPOSITORY / "docs" / "coming-from-stable-baselines.md").read_text()
    return re.findall(
        r"^\| `python (.+)` \| `(zoo .+)` \|$", page.partition("## Command lines")[2], re.MULTILINE
    )


@pytest.mark.parametrize(("theirs", "ours"), command_lines_of_others())
def test_command_line_of_others_is_translated(
    theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(theirs.replace("-m rl_zoo3.", "").replace("ppo.py", "train algo=ppo"))
    assert status_of(words) == 2
    assert capsys.readouterr().err == f"zoo: that is how rl_zoo3 or CleanRL writes it; here: {ours}\n"
    assert status_of([*shlex.split(ours)[1:], "--cfg", "job"]) == 0


def lines_beside_sheeprl() -> list[str]:
    page = (REPOSITORY / "docs" / "coming-from-stable-baselines.md").read_text()
    return re.findall(r"^\| `sheeprl.*` \| `(zoo .+)` \|$", page, re.MULTILINE)


@pytest.mark.parametrize("ours", lines_beside_sheeprl())
def test_line_beside_sheeprl_composes(ours: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in shlex.split(ours)[1:] if word != "-m"]
    shown = [] if "--help" in words else ["--cfg", "job"]
    assert status_of([*words, *shown]) == 0, capsys.readouterr().err


FAULTY = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

class OldReset(CartPoleEnv):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]

class OldSeed(CartPoleEnv):
    def reset(self):
        return super().reset()

class Short(CartPoleEnv):
    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation[:3], info

class Nan(CartPoleEnv):
    def step(self, action):
        observation, _, *ends = super().step(action)
        return observation, float("nan"), *ends

class Unbounded(PendulumEnv):
    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.action_space = gym.spaces.Box(-float("inf"), float("inf"), (1,))

class Raises(CartPoleEnv):
    def step(self, action):
        raise KeyError("wheel")

for fault in (OldReset, OldSeed, Short, Nan, Unbounded, Raises):
    gym.registry.pop(f"{fault.__name__}-v0", None)
    gym.register(f"{fault.__name__}-v0", fault)
"""


def answered_commands() -> list[tuple[str, str]]:
    """Return the commands of the page of errors, each with the line that answers it."""
    page = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
    return re.findall(r"^\$ zoo (.+)\n(zoo: .+)$", page, re.MULTILINE)


@pytest.mark.parametrize(("command", "answer"), answered_commands())
def test_error_is_answered_as_the_page_says(
    command: str,
    answer: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_module.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    agent = str(REPOSITORY / "trained_agents" / "ppo2" / "Acrobot-v1")
    words = shlex.split(command.replace("ACROBOT", agent))
    if words[0] == "train":
        words += ["n_timesteps=4096", "compile=false", "threads=1", "progress_bar=false"]
    if "device=cuda" in words and torch.cuda.is_available():
        pytest.skip("has a GPU")
    assert status_of(words) == 2
    parts = map(re.escape, answer.split("…"))
    assert re.search(f"^{'.*'.join(parts)}$", capsys.readouterr().err, re.MULTILINE)


def test_table_of_old_names_maps_to_existing_keys() -> None:
    keys = {key for command in SETTINGS for key in all_keys(command, ALGORITHMS)} | {
        *inspect.signature(zoo.PPO2.predict).parameters
    }
    assert [new for new in NAMES.values() if " " not in new and new not in keys] == []


def test_docs_list_all_defaults_that_differ_from_sb3() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    page = (REPOSITORY / "docs" / "differences.md").read_text()
    table = page.partition("<!-- differing defaults -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(.+)` \| `(.+)` \|$", table, re.MULTILINE)
    differing = []
    contrib = pytest.importorskip("sb3_contrib")
    peers = {"a2c": sb3.A2C, "dqn": sb3.DQN, "ddpg": sb3.DDPG, "qrdqn": contrib.QRDQN}
    peers |= {"sac": sb3.SAC, "td3": sb3.TD3, "tqc": contrib.TQC, "trpo": contrib.TRPO}
    peers |= {"crossq": contrib.CrossQ}
    for name, peer in peers.items():
        theirs = inspect.signature(peer).parameters
        for key, value in defaults(algorithm_class(name).config_class).items():
            if key in theirs and theirs[key].default != value:
                differing.append((name, key, str(value), str(theirs[key].default)))
    assert rows == differing
    written = {(algo, key) for algo, values in RL_ZOO3["defaults"].items() for key in values}
    assert {(name, key) for name, key, _, _ in differing} <= written  # into imported tuned files


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the Python page run one after the other, with every budget a hundredth."""
    monkeypatch.chdir(tmp_path)
    page = (REPOSITORY / "docs" / "python-api.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    names: dict[str, object] = {}
    exec(compile(re.sub(r"(?<=\d)0_000\b", "00", code), "docs/python-api.md", "exec"), names)
    assert (tmp_path / "agents" / "cartpole" / "policy.safetensors").exists()
    assert (tmp_path / "runs" / "by_hand" / "evaluations.npz").exists()
    assert len(list((tmp_path / "runs").glob("ppo2/CartPole-v1/*_s3*/agent/policy.safetensors"))) == 2


ELSEWHERE = ("python-api", "hydra", "own-parts", "installation")
"""Pages whose Python other tests carry out, or that are for Colab."""
WITH_PYTHON = [
    page
    for page in sorted((REPOSITORY / "docs").glob("*.md"))
    if "```python\n" in page.read_text() and page.stem not in ELSEWHERE
]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_of_other_pages_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that are files are imported elsewhere; budgets are small here."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(page.read_text()):
        if block.language == "python" and not block.not_run:
            code = re.sub(
                r"n_trials=\d+", "n_trials=1", block.text.replace("n_timesteps=1e5", "n_timesteps=512")
            )
            exec(compile(code, str(page), "exec"), {"__name__": "__main__"})


def test_examples_of_public_names_show_what_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trained_agents").symlink_to(REPOSITORY / "trained_agents")
    page = REPOSITORY / "docs" / "examples.md"
    assert set(re.findall(r"^## (\w+)$", page.read_text(), re.M)) <= set(zoo.__all__)
    result = doctest.testfile(str(page), module_relative=False, globs={"zoo": zoo, "np": np})
    assert result.attempted > 30
    assert result.failed == 0


def test_program_of_the_page_for_hydra_users_trains(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "hydra.md").read_text().partition("## A program of your own")[2]
    blocks = dict(re.findall(r"```(yaml|python|bash)\n(.*?)```", page, re.DOTALL))
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.yaml").write_text(blocks["yaml"])
    (tmp_path / "my_study.py").write_text(blocks["python"])
    for line in blocks["bash"].replace("5_000", "500").splitlines():
        words = [sys.executable, *shlex.split(line)[1:], "+settings.tuned=none", "++settings.compile=false"]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    assert [len(list((tmp_path / "runs").glob(f"{algo}/*/*/agent"))) for algo in ("ppo2", "a2c")] == [2, 1]
