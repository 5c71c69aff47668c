"""Log two trainings for TensorBoard, and look at the first by a function."""

from pathlib import Path

from zoo import A2C


def callback(locals_, globals_):
    return locals_["self"].num_timesteps < 400


model = A2C("MlpPolicy", "CartPole-v1", tensorboard_log="./a2c_cartpole/")
model.learn(800, callback=callback, tb_log_name="first_run")
model.learn(200, tb_log_name="second_run", reset_num_timesteps=False)
assert len(list(Path("a2c_cartpole").iterdir())) == 2
