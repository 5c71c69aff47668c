"""`zoo enjoy` plays the agent that was meant, says which, and shows it as well as the place allows."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playing_agents import save_agent

from zoo.commands import agents, enjoy, evaluate
from zoo.config.compose import ConfigLoader
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError

Printed = pytest.CaptureFixture[str]


def play(*overrides: str) -> None:
    enjoy.run(ConfigLoader("enjoy").settings(["n_episodes=1", "seed=1", *overrides]))


def returns(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"return ([-\d,.]+) in", text)]


def refusal(*overrides: str) -> str:
    with pytest.raises(ZooError) as caught:
        play(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def frames(video: Path) -> int:
    import imageio_ffmpeg

    count: int = imageio_ffmpeg.count_frames_and_secs(str(video))[0]
    return count


def test_path_steps_and_score_of_the_agent_are_told(run_folder: Path, capsys: Printed) -> None:
    play("algo=ppo2", "env=CartPole-v1")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == f"agent  {run_folder}/best_agent"
    assert second.strip() == (
        "ppo2 on CartPole-v1, trained for 40,000 steps, seed 0, return 312.5 ± 8.00 over 20 episodes"
    )


def test_returns_are_printed_where_there_is_no_display(run_folder: Path, capsys: Printed) -> None:
    play("algo=ppo2", "env=CartPole-v1", "n_episodes=3")
    out = capsys.readouterr().out
    assert "no window: there is no display here; record=true writes a video" in out
    *episodes, mean = returns(out)
    assert len(episodes) == 3
    assert mean == pytest.approx(sum(episodes) / 3, abs=0.1)


def test_enjoy_depends_on_seed_and_deterministic(run_folder: Path, capsys: Printed) -> None:
    outs = []
    for overrides in ([], [], ["seed=2"], ["deterministic=false"]):
        play(f"agent={run_folder}", "n_episodes=4", *overrides)
        outs.append(returns(capsys.readouterr().out))
    assert outs[0] == outs[1]
    assert outs[0] != outs[2]
    assert outs[0] != outs[3]


def test_window_opens_where_there_is_a_display(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    import pygame

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    drawn = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: (drawn.append(1), flip()))
    play(f"agent={run_folder}")
    out = capsys.readouterr().out
    assert "no window" not in out
    assert len(drawn) > returns(out)[0]

    drawn.clear()
    play(f"agent={run_folder}", "render=false")
    assert not drawn


def test_window_asked_for_without_a_display_is_refused(run_folder: Path) -> None:
    assert "there is no display here" in refusal(f"agent={run_folder}", "render=true")


def test_video_shows_every_step_and_stands_in_the_run(run_folder: Path, capsys: Printed) -> None:
    play(f"agent={run_folder}", "record=true", "n_episodes=2")
    out = capsys.readouterr().out
    (video,) = (run_folder / "videos").iterdir()
    assert f"video  {video}" in out
    assert re.fullmatch(r"ppo2-CartPole-v1-\d{8}-\d{6}\.mp4", video.name)
    *episodes, _ = returns(out)
    assert frames(video) == sum(episodes) + 2  # the resets are seen too


def test_env_without_images_plays_but_cannot_be_filmed(capsys: Printed) -> None:
    save_agent("agent", env="Zoo/Identity-v0")
    assert "can't film Zoo/Identity-v0" in refusal("agent=agent", "record=true")
    play("agent=agent")
    assert returns(capsys.readouterr().out)


def test_ctrl_c_prints_result_and_finishes_video(run_folder: Path) -> None:
    code = (
        "from zoo.cli import main; import sys;"
        f"sys.argv = ['zoo', 'enjoy', 'agent={run_folder}', 'n_episodes=100000', 'record=true']; main()"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, start_new_session=True, **pipes)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("episode 3"):
            break
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: ffmpeg gets it too
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "mean return" in out
    (video,) = (run_folder / "videos").iterdir()
    assert frames(video) > 3


# Which environment
def test_agent_without_env_id_asks_for_env(capsys: Printed) -> None:
    from zoo.envs.make_env import make_vec_env

    save_agent("agent", env=make_vec_env("CartPole-v1"))
    assert "does not say in which environment it was trained; give env=ID" in refusal("agent=agent")
    play("agent=agent", "env=CartPole-v1")
    assert returns(capsys.readouterr().out)


# Whose code

MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from zoo.policies.actor_critic import ActorCritic
print("module imported")
gym.register("Mine-v0", CartPoleEnv, max_episode_steps=5)

class Patient(gym.Wrapper):
    pass


class Own(ActorCritic):
    pass
"""


@pytest.fixture
def module(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (working_folder / "mine_of_enjoy.py").write_text(MODULE)
    monkeypatch.syspath_prepend(working_folder)
    yield "mine_of_enjoy"
    forget("mine_of_enjoy")


def forget(module: str) -> None:
    import gymnasium

    sys.modules.pop(module, None)
    gymnasium.registry.pop("Mine-v0", None)


def test_hint_that_a_run_prints_can_be_followed(module: str, working_folder: Path, capsys: Printed) -> None:
    from zoo.cli import status_of

    short = ["n_timesteps=64", "algo.n_steps=32", "compile=false", "logger=none", "progress_bar=false"]
    target = f"policy._target_={module}.Own"
    assert status_of(["train", "algo=ppo2", f"env={module}:Mine-v0", target, "runs_dir=my runs", *short]) == 0
    hint = shlex.split(re.findall(r"watch   zoo (.*)", capsys.readouterr().out)[0])
    forget(module)
    assert status_of([*hint, "n_episodes=1"]) == 0
    assert max(returns(capsys.readouterr().out)) <= 5


def test_env_is_found_by_config_file_name(module: str, capsys: Printed) -> None:
    Path("conf/env").mkdir(parents=True)
    Path("conf/env/Base-v0.yaml").write_text(f"id: {module}:Mine-v0")
    save_agent("runs/ppo2/mine_of_enjoy-Mine-v0/20260101-120000_s0/agent", env=f"{module}:Mine-v0")
    capsys.readouterr()
    play("algo=ppo2", "env=Base-v0", "trust=true")
    assert max(returns(capsys.readouterr().out)) <= 5
    agents.run(ConfigLoader("agents").settings(["env=Base-v0"]))
    assert "20260101-120000_s0" in capsys.readouterr().out


# What a user can get wrong
def measured(capsys: Printed, *overrides: str) -> tuple[dict[str, Any], str]:
    evaluate.run(ConfigLoader("evaluate").settings(["seed=1", "n_episodes=2", *overrides]))
    out = capsys.readouterr().out
    return json.loads(out.splitlines()[-1]), out


@pytest.fixture
def kept(run_folder: Path) -> Path:
    """A run that has kept agents of two steps."""
    for steps in (1000, 25000):
        save_agent(run_folder / "agents" / f"step-{steps:09}")
    return run_folder


CHOICES_OF_KEPT = ["agent={run}", "agent={run}/best_agent", "agent={run.parent}", "algo=ppo2 env=CartPole-v1"]


@pytest.mark.parametrize("choice", CHOICES_OF_KEPT)
def test_kept_agent_is_played_by_its_steps(choice: str, kept: Path, capsys: Printed) -> None:
    _, out = measured(capsys, *choice.format(run=kept).split(), "checkpoint=25000")
    assert out.startswith(f"agent  {kept}/agents/step-000025000\n")
    enjoy.run(
        ConfigLoader("enjoy").settings([*choice.format(run=kept).split(), "checkpoint=1e3", "n_episodes=1"])
    )
    assert capsys.readouterr().out.startswith(f"agent  {kept}/agents/step-000001000\n")


@pytest.mark.parametrize("choice", CHOICES_OF_KEPT)
def test_last_agent_is_played(choice: str, kept: Path, capsys: Printed) -> None:
    save_agent(kept / "agent")
    _, out = measured(capsys, *choice.format(run=kept).split(), "checkpoint=last")
    assert out.startswith(f"agent  {kept}/agent\n")


def test_newest_of_a_folder_of_runs_is_played(kept: Path, capsys: Printed) -> None:
    newer = kept.with_name("99990101-000000_s1")
    save_agent(newer / "agent")
    _, out = measured(capsys, f"agent={kept.parent}")
    assert out.startswith(f"agent  {newer}/agent\n")


def test_error_for_unknown_checkpoint_lists_kept_steps(kept: Path, capsys: Printed) -> None:
    with pytest.raises(ZooError, match=r"has kept no agent of step 2000; it has: 1000, 25000$"):
        measured(capsys, f"agent={kept}", "checkpoint=2000")
    (kept / "agents").rename("others")
    with pytest.raises(ZooError, match=r"callbacks.agents.every=STEPS"):
        measured(capsys, f"agent={kept}", "checkpoint=2000")
    save_agent("alone")
    with pytest.raises(ZooError, match=r"checkpoint=2000 is an agent that a run kept, and alone is no run's"):
        measured(capsys, "agent=alone", "checkpoint=2000")


def test_env_settings_override_those_of_training(capsys: Printed) -> None:
    save_agent("agent", env=EnvConfig(id="Pendulum-v1", kwargs={"g": 3.0}, max_episode_steps=50))
    result, out = measured(capsys, "agent=agent")
    assert result["mean_length"] == 50
    assert "plays with" not in out
    other, out = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env.kwargs.g=9.5")
    assert other["mean_length"] == 7
    assert "plays with env.max_episode_steps=7, env.kwargs.g=9.5\n" in out
    same_g, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env.kwargs.g=3.0")
    only_shorter, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7")
    assert same_g == only_shorter  # what is not set stays
    assert other["mean_return"] != same_g["mean_return"]
    both, _ = measured(capsys, "agent=agent", "env.max_episode_steps=7", "env=Pendulum-v1")
    assert both == only_shorter  # in whatever order
