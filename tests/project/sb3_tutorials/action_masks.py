"""SB3-Contrib's PPO with masks, and its function that asks an environment for them."""

import gymnasium as gym
import numpy as np

from zoo import ActionMasker, MaskablePPO, get_action_masks


def mask_fn(env):
    return np.array([True, env.unwrapped.state[2] > 0])


env = ActionMasker(gym.make("CartPole-v1"), mask_fn)
model = MaskablePPO("MlpPolicy", env, verbose=1)
model.learn(256)

obs, _ = env.reset()
action, _states = model.predict(obs, action_masks=get_action_masks(env))
