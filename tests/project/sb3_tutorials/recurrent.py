"""SB3-Contrib's PPO with an LSTM, which is played with its state."""

import gymnasium as gym
import numpy as np

from zoo import RecurrentPPO

env = gym.make("CartPole-v1")
policy_kwargs = {"lstm_hidden_size": 16, "n_lstm_layers": 1}
model = RecurrentPPO("MlpLstmPolicy", env, n_steps=64, policy_kwargs=policy_kwargs, verbose=1)
model.learn(256)

obs, _ = env.reset()
lstm_states, episode_start = None, np.ones((1,), dtype=bool)
for _ in range(20):
    action, lstm_states = model.predict(obs, state=lstm_states, episode_start=episode_start)
    obs, reward, terminated, truncated, info = env.step(action)
    episode_start = np.array([terminated or truncated])
    if episode_start[0]:
        obs, _ = env.reset()
