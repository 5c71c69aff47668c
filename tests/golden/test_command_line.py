"""The documented commands in an empty folder, and a table of mistakes, each in a process of its own.

They are forked from one that has imported Zoo, as that takes longer than most of them; those of `FRESH`, and
with ZOO_COMMAND all, are started as a shell starts them. A command is held to its exit status, the files that
it leaves and its last line; a mistake to exit status 2, three lines at most, and the key or the name that has
to be in them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest
from cells import COMMAND, GOLDEN, SECONDS, environment

SHORT = (
    "tuned=none n_timesteps=512 n_envs=2 policy.net_arch=[16] compile=false threads=1 progress_bar=false"
    " callbacks.eval.n_episodes=1 callbacks.eval.n_envs=1"
)
PPO2 = f"train algo=ppo2 env=CartPole-v1 seed=1 algo.n_steps=64 {SHORT}"
SAC = f"train algo=sac env=Pendulum-v1 seed=1 algo.learning_starts=64 {SHORT} n_timesteps=256"
MINE = "algo=ppo2 env=CartPole-v1"
CARTPOLE = f"train {MINE}"
RUN = "runs/ppo2/CartPole-v1/*_s1"
AGENT = ("config.yaml", "policy.safetensors", "card.json", "README.md")
RUN_FILES = [
    *("config.yaml", "run.json", "progress.csv", "evaluations.npz", "tb/*", "checkpoint/*"),
    *("monitor/0.monitor.csv", "monitor/1.monitor.csv"),
    *(f"{agent}/{name}" for agent in ("agent", "best_agent") for name in AGENT),
]
TUNE = f"tune {MINE} seed=1 n_trials=2 n_timesteps=512 study=mine top_k=1 top_seeds=1 compile=false"
FROM_RUN = f"train experiment={RUN}/config.yaml seed=9 init_from={RUN}"
CLONE = f"train algo=bc env=CartPole-v1 dataset=experts/cartpole.npz {SHORT}"
EXPORT = "export agent=runs/sac/Pendulum-v1/*_s1 out=policies/pendulum"
SCORES = r'^\{"algo": "ppo2", "env": "CartPole-v1", .*"n_episodes": 2, "deterministic": true, "seed": \d+\}$'

STAGES: list[dict[str, str]] = [
    {
        f"{PPO2} callbacks.agents.every=256": "zoo train experiment=runs/ppo2/CartPole-v1/",
        SAC: "zoo train experiment=runs/sac/Pendulum-v1/",
        f"train -m {PPO2.removeprefix('train ')} seed=5,6": "2 jobs: 2 done",
        "check env=Zoo/Masked-v0": "masks .*6",
        "--help": "",
        "--version": r"^zoo \d",
        f"{CARTPOLE} --cfg job": "",
        "train algo=ppo2 --help": "",
        TUNE: "tuned=runs/tune/ppo2/CartPole-v1/mine/best.yaml",
    },
    {
        f"evaluate {MINE} n_episodes=2": SCORES,
        f"evaluate agent={RUN} checkpoint=256 n_episodes=2": SCORES,
        f"enjoy {MINE} n_episodes=1": "^mean return .* 1 episodes$",
        f"record {MINE} length=20": r"^video +.*\.mp4 +20 images$",
        f"expert {MINE} n_episodes=2 out=experts/cartpole.npz": r"^file +experts/cartpole.npz$",
        "agents": "",
        "agents agent=trained_agents/ppo2/CartPole-v1": "",
        "plot runs/ppo2 runs/sac out=curves.png": r"^wrote +curves.png$",
        "plot runs report=true": r"^wrote +plots/report.html$",
        "plot runs figure=scores format=md": r"^wrote +plots/scores.md$",
        "compare runs/ppo2 runs/multirun/*": "",
        EXPORT: "policies/pendulum/README.md$",
        f"push {MINE} to=shared/cartpole.zip": "zoo pull from=shared/cartpole.zip$",
        FROM_RUN: "zoo train experiment=runs/ppo2/CartPole-v1/.*_s9 init_with=all$",
        "status": "",
        "benchmark algo=ppo2 env=CartPole-v1 n_episodes=1": "^table +benchmark/benchmark.md$",
    },
    {
        "expert show=experts/cartpole.npz": "",
        CLONE: "zoo train experiment=runs/bc/CartPole-v1/",
        "pull from=shared/cartpole.zip to=agents/cartpole": "zoo enjoy agent=agents/cartpole$",
        "evaluate agent=shared/cartpole.zip n_episodes=2": SCORES,
    },
]
"""What the last line of each command has in it; a stage rests on what the commands before have left."""

FILES = {
    f"{PPO2} callbacks.agents.every=256": [f"{RUN}/{name}" for name in RUN_FILES],
    SAC: ["runs/sac/Pendulum-v1/*_s1/run.json"],
    f"train -m {PPO2.removeprefix('train ')} seed=5,6": ["runs/multirun/*/sweep.csv"],
    TUNE: ["runs/tune/ppo2/CartPole-v1/mine/best.yaml"],
    f"record {MINE} length=20": ["runs/**/videos/*.mp4"],
    f"expert {MINE} n_episodes=2 out=experts/cartpole.npz": ["experts/cartpole.npz"],
    "plot runs/ppo2 runs/sac out=curves.png": ["curves.png"],
    EXPORT: ["policies/pendulum/*.onnx", "policies/pendulum/README.md"],
    f"push {MINE} to=shared/cartpole.zip": ["shared/cartpole.zip"],
    FROM_RUN: ["runs/ppo2/CartPole-v1/*_s9/run.json"],
    CLONE: ["runs/bc/CartPole-v1/*/run.json"],
    "benchmark algo=ppo2 env=CartPole-v1 n_episodes=1": ["benchmark/benchmark.md"],
    "pull from=shared/cartpole.zip to=agents/cartpole": [f"agents/cartpole/{name}" for name in AGENT],
}
"""What a command leaves."""

MISTAKES = {
    # Nothing, or something that there is not.
    "train": "algo",
    "train algo=ppo2": "env",
    "train env=CartPole-v1": "algo",
    "fly algo=ppo2": "fly",
    "train algo=ppo3 env=CartPole-v1": "ppo2",
    "train algo=ppo2 env=CartPol-v1": "CartPole-v1",
    "train algo=ppo2 env=nowhere:Mine-v0": "nowhere",
    "train algo=ppo2 env=broken:Mine-v0": "broken.py",
    # Keys and values.
    f"{CARTPOLE} algo.learning_rat=1": "algo.learning_rate",
    f"{CARTPOLE} learning_rate=1e-3": "algo.learning_rate",
    f"{CARTPOLE} algo.gamma=3": "algo.gamma",
    f"{CARTPOLE} algo.n_steps=many": "algo.n_steps",
    f"{CARTPOLE} n_envs=0": "n_envs",
    f"{CARTPOLE} env.vectorization=proces": "env.vectorization",
    f"{CARTPOLE} policy=MlpPolic": "MlpPolicy",
    f"{CARTPOLE} logger=cvs": "csv",
    f"{CARTPOLE} device=gpu": "cuda",
    f"{CARTPOLE} tuned=nowhere.yaml": "nowhere.yaml",
    f"{CARTPOLE} experiment=nowhere": "nowhere",
    f"{CARTPOLE} algo.buffer_size=1000": "buffer_size",
    # What does not go together.
    "train algo=td3 env=CartPole-v1": "Discrete",
    "train algo=dqn env=Pendulum-v1": "Box",
    f"{CARTPOLE} algo.batch_size=4096 algo.n_minibatches=7": "n_minibatches",
    f"{CARTPOLE} policy=CnnPolicy": "CnnPolicy",
    "train algo=her_dqn env=CartPole-v1": "goal",
    "train algo=ars env=CartPole-v1 algo.n_top=9": "n_top",
    "train algo=bc env=CartPole-v1": "dataset",
    "train algo=recurrent_ppo env=CartPole-v1 policy=MlpPolicy": "MlpLstmPolicy",
    # Agents, runs and files that are missing or damaged; one that names code.
    "train resume=runs/nothing": "runs/nothing",
    f"{CARTPOLE} init_from=runs/nothing": "runs/nothing",
    "evaluate agent=nowhere": "nowhere",
    "evaluate agent=damaged": "policy.safetensors",
    "evaluate agent=foreign": "trust",
    "evaluate algo=ppo2 env=Taxi-v4 runs_dir=nothing": "Taxi-v4",
    "enjoy agent=empty": "empty",
    "push agent=nowhere to=there.zip": "nowhere",
    "pull from=nowhere.zip": "nowhere.zip",
    "import nowhere.zip env=CartPole-v1": "nowhere.zip",
    "expert show=nowhere.npz": "nowhere.npz",
    "plot nowhere": "nowhere",
    "compare nowhere empty": "nowhere",
    f"tune {MINE} sampler=nothing": "sampler",
    f"tune {MINE} n_trial=3": "n_trials",
    "agents algo=muzero": "muzero",
    "benchmark n_episodes=0": "n_episodes",
    "check env=CartPol-v1": "CartPole-v1",
}
"""Command lines that a user can mend, each with the key or the name that its message has to name."""

FRESH = ("--help", "--version", "agents", "train", "fly algo=ppo2")
"""Command lines that are started as a shell starts them, in any case."""

SERVER = """
import gc, json, os, sys
from zoo.working_folder import forget_working_folder
forget_working_folder()
import zoo.commands.benchmark, zoo.commands.plot, zoo.commands.train, zoo.experiment.recording
import zoo
from zoo.cli import main
zoo.compose("train", ["algo=ppo2", "env=CartPole-v1"])
gc.freeze()
for line in sys.stdin:
    words, folder, out, errors = json.loads(line)
    if os.fork() == 0:
        os.chdir(folder)
        for stream, path in ((0, os.devnull), (1, out), (2, errors)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["zoo", *words]
        try:
            main()
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Forks a process for each command line that comes on its stdin, and prints how that ended."""

LINES = 3
FOLDERS: dict[str, Path] = {}
Ended = dict[str, "subprocess.CompletedProcess[str]"]


class Server:
    """Runs command lines, each in a process of its own, with runs that there are in the place of patterns."""

    def __init__(self, scratch: Path) -> None:
        self.texts = [scratch.with_suffix(end) for end in (".out", ".err")]
        command, pipes = [sys.executable, "-c", SERVER], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment(), text=True, **pipes)

    def run(self, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        words = [fitted(word, folder) for word in shlex.split(line)]
        if line in FRESH or "ZOO_COMMAND" in os.environ:
            options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": SECONDS}
            return subprocess.run([*COMMAND, *words], cwd=folder, env=environment(), check=False, **options)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([words, str(folder), *map(str, self.texts)]), file=self.process.stdin, flush=True)
        status = int(self.process.stdout.readline())
        return subprocess.CompletedProcess(words, status, *(text.read_text() for text in self.texts))


Run = Callable[[Iterable[str], Path], Ended]


@pytest.fixture(scope="module")
def run_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return what runs command lines, two at a time."""
    free: SimpleQueue[Server] = SimpleQueue()
    servers = [Server(tmp_path_factory.mktemp("output") / "text") for _ in range(2)]
    for server in servers:
        free.put(server)

    def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        server = free.get()
        try:
            return server.run(line, folder)
        finally:
            free.put(server)

    with ThreadPoolExecutor(2) as pool:
        yield lambda lines, folder: dict(
            zip(lines, pool.map(lambda line: run(line, folder), lines), strict=True)
        )
    for server in servers:
        server.process.communicate()


def fitted(word: str, folder: Path) -> str:
    key, equals, path = word.rpartition("=")
    found = sorted(folder.glob(path)) if "*" in path else []
    return f"{key}{equals}{found[0].relative_to(folder)}" if found else word


@pytest.fixture(scope="module")
def carried_out(run_all: Run, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return how each command ended, with the folder in which all of them were carried out."""
    folder = tmp_path_factory.mktemp("commands")
    ended: Ended = {}
    for stage in STAGES:
        ended |= run_all(stage, folder)
    FOLDERS["commands"] = folder
    return ended


@pytest.fixture(scope="module")
def refused(run_all: Run, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("mistakes")
    prepare(folder)
    before = files(folder)
    ended = run_all(MISTAKES, folder)
    assert files(folder) == before, "a mistake leaves no files"
    return ended


def prepare(folder: Path) -> None:
    """Write what the mistakes speak of."""
    (folder / "broken.py").write_text("GRAVITY = mass * 9.81\n")
    (folder / "empty").mkdir()
    for name in ("damaged", "foreign"):
        shutil.copytree(GOLDEN / "agents" / "ppo2", folder / name)
    weights = folder / "damaged" / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    config = folder / "foreign" / "config.yaml"
    config.write_text(config.read_text().replace("id: CartPole-v1", "id: broken:CartPole-v1"))


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


@pytest.mark.parametrize("line", [line for stage in STAGES for line in stage])
def test_documented_command_does_what_it_says(line: str, carried_out: Ended) -> None:
    ended, folder = carried_out[line], FOLDERS["commands"]
    last = next(stage[line] for stage in STAGES if line in stage)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert re.search(last, ended.stdout.rstrip().splitlines()[-1]), ended.stdout
    assert [pattern for pattern in FILES.get(line, []) if not list(folder.glob(pattern))] == []


@pytest.mark.parametrize("line", MISTAKES)
def test_mistake_is_told_in_three_lines(line: str, refused: Ended) -> None:
    ended = refused[line]
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert 1 <= len(ended.stderr.splitlines()) <= LINES
    assert MISTAKES[line] in ended.stderr
    assert "Traceback" not in ended.stderr
