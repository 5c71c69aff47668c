"""SAC with the settings of its replay and of both networks."""

from zoo import SAC

model = SAC(
    "MlpPolicy",
    "Pendulum-v1",
    3e-4,
    buffer_size=10_000,
    learning_starts=100,
    batch_size=64,
    tau=0.02,
    gamma=0.98,
    train_freq=(1, "step"),
    gradient_steps=1,
    ent_coef="auto",
    policy_kwargs={"net_arch": {"pi": [32, 32], "qf": [64, 64]}, "n_critics": 2},
    verbose=1,
)
model.learn(total_timesteps=400, log_interval=1)
