"""Random network distillation (Burda et al. 2019, https://arxiv.org/abs/1810.12894).

A predictor learns the outputs of a fixed random target network on the observations that come. Where it still
errs, little was seen, so its error is an intrinsic reward for new observations. A critic of its own values
these rewards as if episodes never ended; its advantages are added to those of the environment's rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from zoo.algorithms.on_policy import RNDConfig
from zoo.algorithms.reward_model import RewardModel, RewardRollout
from zoo.buffers.arrays import Array, Arrays, observation_spec, split_rows, transform
from zoo.buffers.frames import frame_spec
from zoo.buffers.rollout import generalized_advantages
from zoo.envs.normalize import RunningMoments
from zoo.envs.spaces import Space, is_image
from zoo.envs.transition import map_arrays
from zoo.optim.optimizers import Adam, Parameters, Updater
from zoo.optim.runtime import torch_settings
from zoo.optim.update_runner import State, StepResult
from zoo.policies.acting import to_tensors
from zoo.policies.config import PolicyConfig
from zoo.policies.encoders import default_hidden_sizes, make_encoder
from zoo.policies.networks import make_trunk, orthogonal

if TYPE_CHECKING:
    from zoo.algorithms.on_policy import OnPolicyAlgorithm

MOST_DEVIATIONS = 5.0
"""Bound of observations, in standard deviations from their mean."""

SMALLEST_VARIANCE = 1e-8
"""Intrinsic returns that never vary, as in an environment of one state, have none to be divided by."""

TARGET = "intrinsic_target"


class RND(RewardModel):
    """The intrinsic reward of ``algo.intrinsic`` as a reward model of any on-policy algorithm."""

    uses_next_observations = True

    def __init__(self, config: RNDConfig, agent: OnPolicyAlgorithm, n_frames: int) -> None:
        super().__init__(config, agent)
        self.n_frames = n_frames
        space, policy = agent.observation_space, agent.policy_config
        self.frame = frame_spec(observation_spec(space), n_frames)
        if self.frame is not None:
            space = spaces.Box(0, 255, self.frame.shape, np.uint8)
        self.subspaces = dict(space.items()) if isinstance(space, spaces.Dict) else {"": space}
        shapes = {key: part.shape for key, part in self.subspaces.items() if isinstance(part, spaces.Box)}
        self.observation_moments = {key: RunningMoments(shape) for key, shape in shapes.items()}
        self.return_moments = RunningMoments(())
        with agent.generators.torch_of_this_run(), torch_settings(threads=1):
            target = encoder_and_layers(space, policy, config.features_dim)
            self.networks = RNDNetworks(space, policy, config.features_dim).to(agent.device)
        self.target = Parameters(TARGET, target.to(agent.device))
        self.updater = Updater(Parameters("intrinsic", self.networks), Adam())

    def initial_state(self) -> State:
        return State({**self.updater.initial_state(), TARGET: self.target.flat})

    def start(self, n_envs: int) -> None:
        self.returns = np.zeros(n_envs)

    # -- rewards and advantages -------------------------------------------------------------------------

    def rewards(self, rollout: RewardRollout) -> Array:
        """Return the environment's rewards, to which without a value head intrinsic ones are added."""
        newest = self._newest(rollout.next_observations)
        for key, moments in self.observation_moments.items():
            self._update(moments, newest[key] if key else newest)
        self.inputs = {
            "next": self._whitened(newest),
            "now": self._whitened(self._newest(rollout.observations)),
        }
        errors = self._on_pieces(lambda rows: self._errors(rows["next"]), self.inputs)
        errors = errors.reshape(rollout.rewards.shape)
        returns = forward_filtered(errors, self.returns, self.config.gamma)
        self.returns = returns[-1]
        self._update(self.return_moments, returns.ravel())
        deviation = np.sqrt(max(float(self.return_moments.var), SMALLEST_VARIANCE))
        self.intrinsic = (errors / deviation).astype(np.float32)
        self.agent.record("rollout/intrinsic_reward", float(self.intrinsic.mean()))
        extrinsic = self.agent.buffer.rewards
        return extrinsic if self.config.value_head else extrinsic + self.config.coef * self.intrinsic

    def advantages(self, advantages: Array) -> Array:
        """Add the advantages of intrinsic rewards, which go on where episodes end."""
        if not self.config.value_head:
            return advantages
        shape = self.intrinsic.shape
        values = self._on_pieces(lambda rows: self.networks.values(rows["now"]), self.inputs).reshape(shape)
        latest = self._whitened(self._newest(self.agent.collector.raw_observations))
        latest = map_arrays(self._where_ended, latest, self.inputs["next"])
        last_values = self._on_pieces(lambda rows: self.networks.values(rows["now"]), {"now": latest})
        never, gamma, gae_lambda = np.zeros(shape, np.bool_), self.config.gamma, self.agent.config.gae_lambda
        intrinsic = generalized_advantages(self.intrinsic, values, last_values, never, gamma, gae_lambda)
        self.inputs["returns"] = (intrinsic + values).ravel()
        return advantages + self.config.coef * intrinsic

    def _where_ended(self, latest: Array, following: Array) -> Array:
        """Return the observations after the last steps (n_envs, …): the next episode's first where one ended.

        Environments that filled their part early have stepped on, so elsewhere the latest are not those.
        """
        ended = self.agent.buffer.dones[-1]
        rows = following[-len(ended) :].copy()
        rows[ended] = latest[ended]
        return rows

    def _errors(self, observations: Any) -> Tensor:
        predicted: Tensor = self.networks.predictor(observations)
        return (predicted - self.target.module(observations)).square().mean(-1)

    def _on_pieces(self, function: Callable[[Any], Tensor], rows: Mapping[str, Any]) -> Array:
        """Return a function's results (n,) for rows of inputs, which are not all passed at once."""
        pieces = split_rows(rows, self.agent._rows_at_once)
        with torch.no_grad():
            results = [function(to_tensors(piece, self.agent.device)).cpu().numpy() for piece in pieces]
        return np.concatenate(results)

    def _update(self, moments: RunningMoments, batch: Array) -> None:
        """Update by a batch (n, …) of each rank."""
        new = RunningMoments(moments.mean.shape, count=0.0)
        new.update(batch.astype(np.float64))
        vector = np.concatenate([[new.count], np.ravel(new.mean), np.ravel(new.squares)])
        for row in self.agent.distributed.rows(vector):
            moments.merge(row[0], *row[1:].reshape(2, *moments.mean.shape))

    def _newest(self, observations: Any) -> Any:
        """Return observations, of stacked images (n, …) the newest frame alone."""
        if self.frame is None:
            return observations
        is_stacked_first = self.frame.shape[0] != observations.shape[1]
        size = self.frame.shape[0 if is_stacked_first else 2]
        return observations[:, -size:] if is_stacked_first else observations[..., -size:]

    def _whitened(self, observations: Any) -> Any:
        """Return observations (n, …) in standard deviations from their mean, within ±5."""
        whitened = {}
        for key, part in self.subspaces.items():
            values = observations[key] if key else observations
            if (moments := self.observation_moments.get(key)) is not None:
                pieces = [whiten(piece, moments) for piece in split_rows(values, self.agent._rows_at_once)]
                values = np.concatenate(pieces)
                values *= 255.0 if is_image(part) else 1.0  # encoders divide images by it
            whitened[key] = values
        return whitened.get("", whitened)

    # -- learning ---------------------------------------------------------------------------------------

    def update(self, rollout: RewardRollout) -> None:
        """Take gradient steps on the rollout; the predictor learns from a share of its rows."""
        agent, config = self.agent, self.config
        batch_size = min(config.batch_size, rollout.rewards.size)
        n_minibatches = rollout.rewards.size // batch_size
        epochs = [agent.rng.permutation(rollout.rewards.size) for _ in range(config.n_epochs)]
        rows = np.stack(epochs)[:, : n_minibatches * batch_size].reshape(-1, batch_size)
        share = min(1.0, 32 / agent.n_envs) if config.update_share is None else config.update_share
        is_learned = (agent.rng.random(rows.shape, np.float32) < share).astype(np.float32)
        shared = {"inputs": self.inputs, "learning_rate": np.array(config.learning_rate, np.float32)}
        agent.take_steps(
            self.step, agent._tensors(shared), agent._tensors({"rows": rows, "is_learned": is_learned})
        )

    def step(self, state: State, shared: Any, row: Any) -> StepResult:
        batch = transform(lambda column: column[row["rows"]], shared["inputs"])
        networks = self.updater.module(state)
        predicted, values = networks(batch["next"], batch["now"])
        target = self.target.functional(state[TARGET])(batch["next"]).detach()
        errors, is_learned = (predicted - target).square().mean(-1), row["is_learned"]
        loss = predictor_loss = (errors * is_learned).sum() / is_learned.sum().clamp(min=1.0)
        metrics = {"predictor_loss": predictor_loss.detach()}
        if self.config.value_head:
            value_loss = 0.5 * (values - batch["returns"]).square().mean()
            loss, metrics["intrinsic_value_loss"] = loss + value_loss, value_loss.detach()
        state, _ = self.updater.step(state, networks, loss, shared["learning_rate"])
        return StepResult(state, metrics)

    # -- exact resume -----------------------------------------------------------------------------------

    def parts(self) -> dict[str, Any]:
        return {"intrinsic": self}

    def state(self) -> dict[str, Any]:
        moments = self._named_moments().items()
        arrays = {key: {name: np.array(value) for name, value in vars(part).items()} for key, part in moments}
        return {"returns": self.returns, "moments": arrays}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.returns = np.array(state["returns"])
        for key, part in self._named_moments().items():
            vars(part).update({name: np.array(value) for name, value in state["moments"][key].items()})

    def _named_moments(self) -> dict[str, RunningMoments]:
        return {**self.observation_moments, "intrinsic returns": self.return_moments}


def whiten(observations: Array, moments: RunningMoments) -> Array:
    """Return observations (n, …) in standard deviations from the mean, within ±5, as float32."""
    values = (observations - moments.mean) / np.sqrt(moments.var + 1e-8)
    return values.clip(-MOST_DEVIATIONS, MOST_DEVIATIONS).astype(np.float32)


def forward_filtered(rewards: Array, before: Array, gamma: float) -> Array:
    """Return R ← γR + r along time (n_steps, n_envs), from ``before`` (n_envs,), over all episode ends."""
    returns = np.empty(rewards.shape)
    for step, row in enumerate(rewards):
        before = returns[step] = gamma * before + row
    return returns


def encoder_and_layers(
    space: Space, policy: PolicyConfig, n_outputs: int, n_more: int = 0, gain: float = 2**0.5
) -> nn.Sequential:
    """Return an encoder as the policy's, hidden layers, ``n_more`` of the outputs' width, and outputs."""
    encoder = make_encoder(space, policy, ortho_init=True)
    hidden = [*default_hidden_sizes(encoder), *[n_outputs] * n_more]
    layers = make_trunk(PolicyConfig(), encoder.features_dim, hidden, n_outputs, "relu")
    orthogonal(layers, output_gain=gain)
    return nn.Sequential(encoder, layers)


class RNDNetworks(nn.Module):
    """The predictor, which is two layers deeper than its target, and the critic of intrinsic rewards."""

    def __init__(self, space: Space, policy: PolicyConfig, features_dim: int) -> None:
        super().__init__()
        self.predictor = encoder_and_layers(space, policy, features_dim, n_more=2)
        self.critic = encoder_and_layers(space, policy, 1, gain=1.0)

    def forward(self, following: Arrays, observations: Arrays) -> tuple[Tensor, Tensor]:
        """Return features (n, ``features_dim``) of observations that follow, and values (n,)."""
        return self.predictor(following), self.values(observations)

    def values(self, observations: Arrays) -> Tensor:
        """Return the values (n,) of intrinsic rewards after these observations."""
        values: Tensor = self.critic(observations)
        return values.squeeze(-1)
