"""A callback of one's own, which logs a value and stops."""

from zoo import PPO, BaseCallback


class StopLate(BaseCallback):
    def __init__(self, verbose=0):
        super().__init__(verbose)

    def _on_step(self) -> bool:
        self.logger.record("random_value", 3.0)
        return self.num_timesteps < 500


model = PPO("MlpPolicy", "CartPole-v1", n_steps=256)
model.learn(1_000, callback=StopLate())
