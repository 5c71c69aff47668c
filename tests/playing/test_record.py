"""`zoo record` and `zoo expert` write what was asked for, where it was asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio_ffmpeg
import pytest
from gymnasium import spaces
from PIL import Image
from playing_agents import MINIGRID, RUN, save_agent

from zoo.cli import status_of
from zoo.commands import record
from zoo.config.compose import ConfigLoader
from zoo.errors import ZooError
from zoo.experiment.expert_recording import record_expert
from zoo.imitation.expert_data import read_expert, write_expert


def film(*overrides: str) -> None:
    record.run(ConfigLoader("record").settings(["seed=1", *overrides]))


def refusal(*overrides: str) -> str:
    with pytest.raises(ZooError) as caught:
        film(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def frames(video: Path) -> int:
    count: int = imageio_ffmpeg.count_frames_and_secs(str(video))[0]
    return count


def test_one_episode_is_filmed_into_the_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film(f"agent={run_folder}")
    out = capsys.readouterr().out
    (video,) = (run_folder / "videos").iterdir()
    (length,) = (int(number) for number in re.findall(r"in (\d+) steps", out))
    assert frames(video) == length + 1
    assert f"video  {video}  {length + 1} images" in out


def test_record_writes_mp4_and_gif_of_given_length(run_folder: Path) -> None:
    film(f"agent={run_folder}", "length=7", "format=both", "size=100", "fps=20", "out=films/first.mp4")
    assert sorted(path.name for path in Path("films").iterdir()) == ["first.gif", "first.mp4"]
    assert frames(Path("films/first.mp4")) == 7
    with Image.open("films/first.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (7, (150, 100), 50)


def test_environment_decides_how_actions_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    save_agent("agent", env=MINIGRID)
    said = {}
    for choice in ("null", "false", "true"):
        film("agent=agent", f"deterministic={choice}", "length=300", "n_episodes=2", "out=film.mp4")
        said[choice] = capsys.readouterr().out
    assert said["null"] == said["false"] != said["true"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("format=avi", "`format=avi` is not one of mp4, gif, both"),
        ("out=film.avi", "`out=film.avi` is neither an mp4, a GIF nor a folder"),
        ("out=film.gif", "`out=film.gif` is no mp4: give format=gif too"),
        ("size=641x480", "the sides of a video are even"),
        ("fps=0", "`fps=0` is out of range"),
        ("length=0", "`length=0` is out of range"),
        ("env=Acrobot-v1", "can't act in Acrobot-v1"),
    ],
)
def test_wrong_choice_is_one_message_and_no_file(run_folder: Path, override: str, message: str) -> None:
    assert message in refusal(f"agent={run_folder}", override)
    assert not list(Path().rglob("*.mp4"))


def test_agent_is_recorded_and_shown(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = ["expert", f"agent={RUN}", "n_episodes=4", "n_envs=2", "seed=1", "out=experts/cartpole.npz"]
    assert status_of(recorded) == 0
    out = capsys.readouterr().out
    assert "episode 4 of 4" in out
    data = read_expert("experts/cartpole.npz")
    assert data.n_episodes == 4
    assert data.card["env"] == "CartPole-v1"
    assert data.card["source"] == {"agent": f"{RUN}/best_agent", "algo": "ppo2", "timesteps": 40_000}
    assert (data.card["seed"], data.card["deterministic"]) == (1, True)
    assert status_of(["expert", "show=experts/cartpole.npz"]) == 0
    shown = capsys.readouterr().out
    for part in ("CartPole-v1", "algo ppo2", "Box(4,) float32", "Discrete(2)", "4, ", "returns", "█"):
        assert part in shown


def test_what_is_shown_is_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    class Growing(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
        n_resets = 0

        def reset(self, **options: Any) -> Any:
            self.n_resets += 1
            return 0, {}

        def step(self, action: Any) -> Any:
            return 0, float(self.n_resets), True, False, {"is_success": self.n_resets != 3}

    write_expert("growing.npz", record_expert(lambda _: 0, Growing, 4, seed=0))

    def shown(*asked: str) -> str:
        assert status_of(["expert", "show=growing.npz", *asked]) == 0
        return capsys.readouterr().out

    assert "growing.npz\n" in shown()
    assert "growing.npz: 2 of its 4 episodes\n" in shown("n_episodes=2")
    for asked, expected in (
        ((), ["1.00", "4.00"]),
        (("min_return=2", "n_episodes=1"), ["2.00"]),
        (("min_return=3", "successes_only=true"), ["4.00"]),
    ):
        data = shown(*asked)
        assert all(each.rstrip("0").rstrip(".") in data.partition("returns")[2] for each in expected)
    assert status_of(["expert", "show=growing.npz", "min_return=9"]) == 2
    assert "min_return=9 leaves nothing of 4 episodes" in capsys.readouterr().err
    assert status_of(["expert", "show=growing.npz", "n_episodes=9"]) == 0
    assert "zoo: 9 episodes were wanted; 4 of 4 are good enough\n" in capsys.readouterr().err
