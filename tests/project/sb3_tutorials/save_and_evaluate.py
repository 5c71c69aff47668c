"""Evaluate, save, load and evaluate again."""

import gymnasium as gym

from zoo import DQN, evaluate_policy

env = gym.make("CartPole-v1")
model = DQN("MlpPolicy", env, learning_starts=100, train_freq=4, target_update_interval=100, verbose=1)
model.learn(total_timesteps=1_000, log_interval=4)
model.save("dqn_cartpole", exclude=["replay_buffer"])
del model

model = DQN.load("dqn_cartpole", env=env)
mean_reward, std_reward = evaluate_policy(
    model, model.get_env(), n_eval_episodes=5, reward_threshold=1.0, warn=False
)
returns, lengths = evaluate_policy(model.policy, env, n_eval_episodes=2, return_episode_rewards=True)
assert len(returns) == len(lengths) == 2
