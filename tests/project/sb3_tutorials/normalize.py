"""Normalised observations and rewards, whose statistics are saved beside the agent."""

from zoo import PPO, VecNormalize, make_vec_env

vec_env = make_vec_env("Pendulum-v1", n_envs=2, seed=0)
vec_env = VecNormalize(vec_env, norm_obs=True, norm_reward=True, clip_obs=10.0)
model = PPO("MlpPolicy", vec_env, n_steps=64, verbose=1)
model.learn(256)
model.save("ppo_pendulum")
vec_env.save("vec_normalize.pkl")
