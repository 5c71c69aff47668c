"""Evaluate while learning, keep the best agent, and stop once it is good enough."""

from zoo import (
    PPO,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
    make_vec_env,
)

vec_env = make_vec_env("CartPole-v1", n_envs=4)
eval_env = make_vec_env("CartPole-v1", n_envs=1)
eval_callback = EvalCallback(
    eval_env,
    callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=100, verbose=1),
    callback_after_eval=StopTrainingOnNoModelImprovement(max_no_improvement_evals=3, min_evals=5, verbose=1),
    eval_freq=max(1_024 // 4, 1),
    best_model_save_path="./logs/",
    log_path="./logs/",
    n_eval_episodes=3,
    deterministic=True,
    render=False,
    verbose=1,
)
checkpoint_callback = CheckpointCallback(
    save_freq=256,
    save_path="./logs/",
    name_prefix="rl_model",
    save_replay_buffer=False,
    save_vecnormalize=True,
)
model = PPO("MlpPolicy", vec_env, n_steps=256, batch_size=64, verbose=0)
model.learn(8_192, callback=[eval_callback, checkpoint_callback])
PPO.load("./logs/best_model", env=eval_env)
PPO.load("./logs/rl_model_1024_steps")
