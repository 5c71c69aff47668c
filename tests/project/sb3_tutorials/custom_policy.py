"""Networks of other widths, another activation, and a features extractor of one's own."""

import torch as th
from torch import nn

from zoo import PPO, BaseFeaturesExtractor


class Narrow(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=16):
        super().__init__(observation_space, features_dim)
        self.linear = nn.Sequential(nn.Linear(observation_space.shape[0], features_dim), nn.ReLU())

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.linear(observations)


policy_kwargs = {
    "features_extractor_class": Narrow,
    "features_extractor_kwargs": {"features_dim": 24},
    "share_features_extractor": False,
    "activation_fn": th.nn.ReLU,
    "net_arch": {"pi": [32, 32], "vf": [64]},
    "ortho_init": False,
}
model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, n_steps=256, verbose=1)
model.learn(512)
assert sum(layer.in_features == 24 for layer in model.policy.modules() if isinstance(layer, nn.Linear)) == 2
