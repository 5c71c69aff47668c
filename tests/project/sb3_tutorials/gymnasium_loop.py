"""Train in one environment with a step size that is given by position, then play in it."""

import gymnasium as gym

from zoo import A2C

env = gym.make("CartPole-v1")
model = A2C("MlpPolicy", env, 7e-4, gamma=0.98, verbose=1)
model.learn(1_000, log_interval=50, progress_bar=True)

obs, info = env.reset()
for _ in range(50):
    action, _states = model.policy.predict(obs, deterministic=True)
    obs, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        obs, info = env.reset()
