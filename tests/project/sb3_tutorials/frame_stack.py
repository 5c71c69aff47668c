"""An Atari game, preprocessed and with four frames in an observation."""

from zoo import PPO, VecFrameStack, make_atari_env

vec_env = make_atari_env("PongNoFrameskip-v4", n_envs=2, seed=0)
vec_env = VecFrameStack(vec_env, n_stack=4)
model = PPO("CnnPolicy", vec_env, n_steps=16, verbose=1)
model.learn(32)
