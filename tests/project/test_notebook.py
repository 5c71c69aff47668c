"""A notebook, carried out by a real kernel: what its cells show."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ENV = """
import signal
from functools import partial
import gymnasium as gym
import numpy as np
import zoo

class Guess(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None):
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space, self.render_mode = gym.spaces.Discrete(2), render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side, self.steps = self.np_random.uniform(-1, 1, 1).astype(np.float32), 0
        return self.side, {}

    def step(self, action):
        self.steps += 1
        return self.side, float((self.side[0] > 0) == action), self.steps == 10, False, {}

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)
"""
TRAIN = """
small = {"n_timesteps": 512, "compile": False, "algo": {"n_steps": 64, "batch_size": 64}}
result = zoo.train("algo=ppo", env=Guess, seed=1, **small)
"""
TRAIN_AGAIN = 'other = zoo.train("algo=ppo", env=Guess, seed=2, **small)'
TUNE = """
search = {"n_trials": 1, "n_timesteps": 200, "n_envs": 1, "compile": False, "top_k": 0}
zoo.tune("algo=a2c", "env=CartPole-v1", **search)
"""
INTERRUPT = """
model = zoo.PPO("MlpPolicy", "CartPole-v1", n_steps=64)
model.runtime.compile_clock.on_change = partial(signal.raise_signal, signal.SIGINT)
model.learn(100_000_000)
"""
WRONG = """
steps = 64
zoo.PPO("MlpPolicy", "CartPole-v1", n_step=steps)
"""


def test_cells_show_bars_figures_tables_and_films(tmp_path: Path) -> None:
    plot, compare = "zoo.plot(result, other)", "zoo.compare(result, other)"
    films = "zoo.record(result, length=5)", "zoo.record(other.algorithm, env=Guess, length=5)"
    sources = [ENV, TRAIN, TRAIN_AGAIN, plot, compare, *films, TUNE, INTERRUPT, WRONG]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(notebook, timeout=300, allow_errors=True, resources=resources)
    client.execute(env={**os.environ, "IPYTHONDIR": str(tmp_path)})
    outputs = {cell.source: cell.outputs for cell in notebook.cells}
    assert outputs[ENV] == []
    told, bar, table = outputs[TRAIN]
    assert told.text.count("\n") == 1
    assert "Guess is known in this process alone" in told.text
    assert '<progress value="512" max="512">' in bar.data["text/html"]
    assert "steps/s" in bar.data["text/html"]
    assert "total_timesteps" in table.data["text/html"]
    assert len(outputs[TRAIN_AGAIN]) == 2
    assert outputs[plot][0].data["image/png"]
    assert "| ppo | Guess | 2 |" in outputs[plot][0].data["text/plain"]
    assert "Guess: " in outputs[compare][0].data["text/html"]
    for film in films:
        assert outputs[film][0].data["text/html"].startswith("<video controls")
    assert "1 complete" in outputs[TUNE][-1].data["text/html"]
    (interrupt,) = outputs[INTERRUPT]
    assert len(interrupt.traceback) == 1
    assert "not compiled" in interrupt.traceback[0]
    (error,) = outputs[WRONG]
    line, message = error.traceback
    assert line == '----> 2 zoo.PPO("MlpPolicy", "CartPole-v1", n_step=steps)'
    assert "n_steps" in message
