"""Hindsight experience replay with SAC."""

import gymnasium as gym

from zoo import SAC, HerReplayBuffer

env = gym.make("FetchReach-v4")
model = SAC(
    "MultiInputPolicy",
    env,
    replay_buffer_class=HerReplayBuffer,
    replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    verbose=1,
)
model.learn(256)
