"""Environments in processes, each made by a function of its own."""

import gymnasium as gym

from zoo import PPO, SubprocVecEnv, set_random_seed


def make_env(env_id, rank, seed=0):
    def _init():
        env = gym.make(env_id)
        env.reset(seed=seed + rank)
        return env

    set_random_seed(seed)
    return _init


if __name__ == "__main__":
    vec_env = SubprocVecEnv([make_env("CartPole-v1", i) for i in range(4)])
    model = PPO("MlpPolicy", vec_env, n_steps=64, verbose=1)
    model.learn(total_timesteps=256)
