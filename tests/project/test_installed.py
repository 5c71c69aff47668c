"""The wheel, the documented commands from it, and how long a user waits."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = ("zoo", "conf", "hyperparams", "trained_agents")

CLASSIC_CONTROL = {"Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"}
"""The environments whose agents a wheel carries; all others stand in a checkout."""


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    finished = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as an installer would; nothing is downloaded."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, source / name)
    built = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(source)], built)
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a fresh environment in ``venv``: the wheel, and the libraries of this one."""
    home = tmp_path_factory.mktemp("a folder with spaces")
    environment = home / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(environment)], home)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], home)
    (packages / "libraries_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


def test_wheel_carries_everything_that_users_edit(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = set(archive.namelist())
    users = ["conf/**/*", "hyperparams/**/*", *(f"trained_agents/*/{env}/*" for env in CLASSIC_CONTROL)]
    files = {path for pattern in users for path in REPOSITORY.glob(pattern) if path.is_file()}
    assert {path.relative_to(REPOSITORY).parts[0] for path in files} == {*SHIPPED[1:]}
    assert {f"zoo/{path.relative_to(REPOSITORY)}" for path in files} <= carried
    agents = {Path(name).parts[3] for name in carried if name.startswith("zoo/trained_agents/")}
    assert agents <= CLASSIC_CONTROL


def test_installed_wheel_trains(home: Path) -> None:
    train = ["train", "algo=ppo2", "env=CartPole-v1", "n_timesteps=2048", "seed=1", "compile=false"]
    run([str(home / "venv" / "bin" / "zoo"), *train], home)
    (trained,) = (home / "runs" / "ppo2" / "CartPole-v1").iterdir()
    assert (trained / "best_agent" / "policy.safetensors").exists()


PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

NOT_RUN = {
    "a card": r"device=cuda",
    "a cluster; the tests of sweeps start a real Slurm": r"launcher=slurm|^zoo status watch=true",
    "MLflow, which is not among the extras": r"my_mlflow",
    "the network": r"to=me/|from=somebody/|logger=wandb(?! logger.wandb.mode=offline)",
}

SHORT = {
    "train": "n_timesteps=512 compile=false threads=1 progress_bar=false callbacks.eval.n_episodes=1",
    "tune": "n_trials=1 n_timesteps=256 compile=false threads=1 top_k=1 top_seeds=1 n_evaluations=2",
    "evaluate": "n_episodes=2",
    "enjoy": "n_episodes=1",
    "record": "n_episodes=1 length=20",
    "expert": "n_episodes=3",
    "benchmark": "n_episodes=1",
    "export": "",
}
"""What a verb's commands get besides."""

A_RUN = "zoo train algo=ppo2 env=CartPole-v1 seed=1 callbacks.agents.every=256"
A_SAC = "zoo train algo=sac env=Pendulum-v1 seed=1"
A_SWEEP = "zoo train -m algo=ppo2 env=CartPole-v1 seed=1,2"

BEFORE = {
    "README.md": [],
    "agents.md": [A_RUN, A_SAC],
    "configuration.md": [A_RUN, A_SAC],
    "experts.md": ["zoo expert agent=trained_agents/sac/Pendulum-v1 out=experts/pendulum.npz"],
    "plots.md": [
        A_RUN,
        *(f"zoo train algo=ppo2 env=CartPole-v1 seed=1 runs_dir=runs/{name}" for name in ("before", "after")),
        A_SWEEP,
        "zoo train algo=a2c env=CartPole-v1 seed=1",
    ],
    "resume.md": [
        A_SAC,
        "zoo train algo=ppo2 env=CartPole-v1 seed=1 callbacks.ends._target_=my_module.Interrupts",
    ],
    "sharing.md": [A_RUN],
    "sweeps.md": [A_SWEEP],
    "tracking-and-video.md": [A_RUN],
    "trust.md": [
        "zoo push agent=trained_agents/ppo2/CartPole-v1 to=downloads/mine.zip",
        "zoo train algo=ppo2 env=my_module:MyEnv-v0",
        "zoo push algo=ppo2 env=my_module:MyEnv-v0 to=downloads/somebody.zip",
    ],
}
"""What is there before a page's commands run."""


MY_MODULE = """
import signal
from pathlib import Path

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

from zoo.algorithms.callback import Callback
from zoo.policies.actor_critic import ActorCritic


class MyCallback(Callback):
    def __init__(self, every):
        self.every = every


class Interrupts(Callback):
    # Presses Ctrl-C once: a run that can be resumed.

    every = 256

    def on_steps(self, algorithm):
        if not Path("pressed").exists():
            Path("pressed").touch()
            signal.raise_signal(signal.SIGINT)


class MyEnv(CartPoleEnv):
    pass


class MyActorCritic(ActorCritic):
    def __init__(self, observation_space, action_space, config, width):
        super().__init__(observation_space, action_space, config)


gym.register("MyEnv-v0", MyEnv, max_episode_steps=1000)
"""

SB3_AGENTS = """
import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

PPO("MlpPolicy", "CartPole-v1", n_steps=64).save("ppo_cartpole.zip")
hoppers = VecNormalize(DummyVecEnv([lambda: gym.make("Hopper-v5")]))
PPO("MlpPolicy", hoppers, n_steps=64).save("ppo_hopper.zip")
hoppers.save("hopper_statistics.pkl")
"""

Carry = Callable[[str, Path], tuple[int, str]]


@pytest.fixture(scope="module")
def carry_out(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Carry]:
    """Return what carries a command line out in a folder: its exit status, and what it printed."""
    scratch = tmp_path_factory.mktemp("output")
    server = subprocess.Popen(
        [home / "venv" / "bin" / "python", Path(__file__).with_name("command_server.py")],
        cwd=scratch,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline().startswith("ready")

    def carry_out(command: str, folder: Path) -> tuple[int, str]:
        asked = {
            "arguments": shlex.split(command, comments=True)[1:],
            "folder": str(folder),
            "output": str(scratch / "output.txt"),
        }
        print(json.dumps(asked), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        return status, (scratch / "output.txt").read_text(errors="replace")

    yield carry_out
    server.communicate(timeout=60)


def test_installed_wheel_finds_the_collection(carry_out: Carry, tmp_path: Path) -> None:
    elsewhere = tmp_path / "nothing here"
    elsewhere.mkdir()
    _, played = carry_out("zoo evaluate algo=ppo2 env=CartPole-v1 n_episodes=1 seed=0", elsewhere)
    assert "trained_agents" in played


def commands_of(page: Path) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("zoo ")]


def shortened(command: str) -> str:
    """Return the command with small budgets; what its comment says is left out."""
    command = shlex.join(shlex.split(command, comments=True))
    command = re.sub(r"range\(\d+\)", "range(2)", command)
    command = re.sub(r"(n_trials|n_episodes|n_jobs|n_seeds)=\d+", r"\1=2", command)
    command = re.sub(r"(agents\.every|video\.every|reseed_every|until)=\d+", r"\1=256", command)
    words = command.split()
    if {"--cfg", "-i", "--help"} & set(words):
        return command
    given = {word.partition("=")[0] for word in words} | ({"n_episodes"} if "sort=" in command else set())
    if "n_timesteps" in given:
        command = re.sub(r"n_timesteps=\S+", "n_timesteps=4096", command)
    more = [word for word in SHORT.get(words[1], "").split() if word.partition("=")[0] not in given]
    if words[1] == "train" and re.search(r"resume=", command):
        more = []
    replays = r"algo=(c51|crossq|ddpg|dqn|droq|iqn|qrdqn|rainbow|redq|sac|simba(_v2)?|td3|tqc|her_\w+)\b"
    if re.search(replays, command) and words[1] in ("train", "tune"):
        more += ["algo.learning_starts=64"] if "algo.learning_starts" not in given else []
    return " ".join([command, *more])


def fitted(command: str, folder: Path) -> str:
    """Return the command with the runs that there are instead of the documented ones."""

    def newest(pattern: str) -> str:
        found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        assert found, f"no {pattern} for {command}"
        return str(found[-1].relative_to(folder))

    command = re.sub(
        r"runs/(\w+)/([\w-]+)/20260131-120000_s1", lambda m: newest(f"runs/{m[1]}/{m[2]}/*_s1*"), command
    )
    command = re.sub(r"runs/multirun/20260131-120000-\d+", lambda _: newest("runs/multirun/*"), command)
    if re.search(r"\bRUN\b", command):
        (checkpoint,) = folder.glob("runs/sac/Pendulum-v1/*_s1/checkpoint")
        command = re.sub(r"\bRUN\b", str(checkpoint.parent.relative_to(folder)), command)
    if "checkpoint=20480" in command:
        kept = newest("runs/ppo2/CartPole-v1/*/agents/*")
        command = command.replace("20480", str(int(kept.rpartition("-")[2])))
    return command


def shown(page: Path) -> ParameterSet:
    """Return a page as a parameter: all but one take minutes."""
    marks = () if page.name == "README.md" else pytest.mark.slow
    return pytest.param(page, marks=marks, id=page.name)


@pytest.mark.parametrize("page", [shown(page) for page in PAGES if commands_of(page)])
def test_commands_of_the_page_run(page: Path, tmp_path: Path, carry_out: Carry) -> None:
    prepare(page, tmp_path)
    failed = []
    for number, command in enumerate([*BEFORE.get(page.name, []), *commands_of(page)]):
        if any(re.search(pattern, command) for pattern in NOT_RUN.values()):
            continue
        line = fitted(shortened(command), tmp_path)
        if line.startswith("zoo tune ") and " study=" not in line:
            line += f" study=page_{number}"  # they are alternatives: one study has one way of searching
        expected = 2 if "# refused" in command else 130 if "Interrupts" in command else 0
        status, printed = carry_out(line, tmp_path)
        if status != expected or "Traceback" in printed:
            failed.append(f"{command}\n  as {line}\n  ended with {status}: {printed[-600:]}")
    assert not failed, "\n\n".join(failed)


def prepare(page: Path, folder: Path) -> None:
    """Write the modules that the page names or shows, and what other systems leave."""
    (folder / "my_module.py").write_text(MY_MODULE)
    (folder / "docs").mkdir()
    (folder / "docs/measured").symlink_to(REPOSITORY / "docs/measured")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        first = code.splitlines()[0]
        if (named := re.fullmatch(r"# (\w+\.py)", first)) and named[1] != "my_module.py":
            (folder / named[1]).write_text(code)
    sections = re.findall(
        r"^## An? .*?: `(my_\w+\.py)`\n.*?```python\n(.*?)```", page.read_text(), re.M | re.S
    )
    for name, code in sections:
        (folder / name).write_text(code)
    if page.name == "sharing.md":
        subprocess.run([sys.executable, "-c", SB3_AGENTS], cwd=folder, check=True, capture_output=True)


ZOO = str(Path(sys.executable).with_name("zoo"))

ENDS_AT_FIRST_STEP = """
import os

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv


class EndsAtFirstStep(CartPoleEnv):
    def step(self, action):
        os._exit(77)


gym.register("EndsAtFirstStep-v0", EndsAtFirstStep, max_episode_steps=500)
"""


def seconds(command: list[str], folder: Path, *, status: int = 0) -> float:
    """Return how long a command computes that ends with ``status``; the same on a busy machine."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert time.monotonic() - started < 20, "it waits for something"
    assert ended.returncode == status, f"status {ended.returncode}: {ended.stdout}\n{ended.stderr}"
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_help_is_there_at_once(tmp_path: Path) -> None:
    assert seconds([ZOO, "--help"], tmp_path) < 0.3


def test_train_starts_within_two_imports_of_torch(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(ENDS_AT_FIRST_STEP)
    train = [ZOO, "train", "algo=ppo2", "env=ending:EndsAtFirstStep-v0", "env.check=false"]
    import_torch = seconds([sys.executable, "-c", "import torch"], tmp_path)
    assert seconds(train, tmp_path, status=77) < 2 * import_torch
