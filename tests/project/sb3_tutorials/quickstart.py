"""Train, then play in the vector environment that the model learned in."""

from zoo import PPO

model = PPO("MlpPolicy", "CartPole-v1", verbose=1)
model.learn(total_timesteps=2_048)

vec_env = model.get_env()
obs = vec_env.reset()
for _ in range(100):
    action, _states = model.predict(obs, deterministic=True)
    obs, reward, done, info = vec_env.step(action)
