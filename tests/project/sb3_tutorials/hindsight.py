"""Hindsight experience replay with SAC."""

import gymnasium as gym
import panda_gym  # noqa: F401

from zoo import SAC, HerReplayBuffer

env = gym.make("PandaReach-v3")
model = SAC(
    "MultiInputPolicy",
    env,
    replay_buffer_class=HerReplayBuffer,
    replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    verbose=1,
)
model.learn(256)
