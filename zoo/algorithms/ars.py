"""Augmented random search (Mania, Guy and Recht 2018, https://arxiv.org/abs/1803.07055).

No gradient is computed: the weights are moved a little along random directions, both ways, each of these
candidates plays whole episodes, and the weights follow the directions by how much better one way was than
the other. Steps are measured in standard deviations of the returns. The paper's variants are settings:
V1 is this, V2 normalises observations (``env.normalize``), and V1-t and V2-t learn from the best directions
alone (``n_top``).

Directions and the seeds of episodes come from the run's seed and the number of the update, so ranks
compute the same and only exchange scores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.collector import Collector, check_collected
from zoo.algorithms.on_policy import PLAIN_ACTIONS
from zoo.algorithms.search_space import choices, ranges, searched
from zoo.buffers.arrays import Arrays
from zoo.config.fields import ScheduleValue, hyperparameter
from zoo.envs.adapter import ReplayableAdapter
from zoo.envs.normalize import SINGLE, Normalizer, is_training
from zoo.envs.replay import LARGEST_SEED
from zoo.envs.transition import EpisodeRecord
from zoo.errors import ZooError
from zoo.optim.optimizers import Parameters
from zoo.optim.update_runner import State, StepResult
from zoo.optim.workers import Workers
from zoo.policies.acting import BatchedPolicy
from zoo.policies.actor_critic import PolicyInput
from zoo.policies.continuous import LinearPolicy

Array = np.ndarray

DIRECTIONS, EPISODES = 2, 3  # the streams from which the directions and the episodes of an update are drawn
LONGEST_EPISODE = 1_000_000  # steps after which an episode without an end is refused


@dataclass
class ARSConfig:
    """Hyperparameters of ARS."""

    n_delta: int = hyperparameter(8, "random directions of an update; each is tried both ways", ge=1)
    n_top: int | None = hyperparameter(
        None, "directions that it learns from, those with the best candidates; null: all", ge=1
    )
    learning_rate: ScheduleValue = hyperparameter(0.02, "step size", ge=0)
    delta_std: ScheduleValue = hyperparameter(0.05, "how far candidates are from the weights", ge=0)
    n_eval_episodes: int = hyperparameter(1, "episodes that each candidate plays", unit="episodes", ge=1)
    alive_bonus_offset: float = hyperparameter(
        0.0, "added to the reward of each step that candidates are compared by, against a bonus for surviving"
    )
    zero_policy: bool | None = hyperparameter(
        None, "begin with all weights 0; null: where there are no hidden layers"
    )
    with_bias: bool | None = hyperparameter(
        None, "linear layers add a bias; null: where there are hidden layers"
    )
    squash_output: bool | None = hyperparameter(
        None, "tanh of Box actions, scaled to their bounds; null: where there are hidden layers"
    )


class PopulationRollout(Collector):
    """A collector that plays whole episodes of given policies.

    Environments that can't be seeded one by one are reset together for the first episodes, and go on by
    themselves; so there the number of environments does make a difference.
    """

    def play(
        self, acting: BatchedPolicy, vectors: Array, episodes: Sequence[tuple[int, int]]
    ) -> tuple[Array, list[EpisodeRecord]]:
        """Play the episodes, a row of ``vectors`` and a seed each, as environments become free.

        Return of each the sum of its rewards, as wrappers changed them, its steps, and the moments of its
        observations (`Normalizer.merge`), (episodes, 2 + …); and their records, as they ended. Raises
        `ZooError` for an episode without end.
        """
        envs, normalizer = self.envs, self.normalizer
        follows = normalizer is not None and normalizer.moments and is_training(envs.given_env)
        moments = RowMoments(normalizer, envs.num_envs) if normalizer is not None and follows else None
        n_seen = 0 if moments is None else len(moments.row_statistics(0))
        results, records = np.zeros((len(episodes), 2 + n_seen)), []
        steps, rewards = np.zeros(envs.num_envs, np.int64), np.zeros(envs.num_envs)
        waiting, playing = deque(range(len(episodes))), dict[int, int]()

        def begin(rows: Iterable[int]) -> None:
            seeds = {}
            for row, episode in zip(rows, [*waiting], strict=False):
                vector, seeds[row] = episodes[waiting.popleft()]
                acting.vectors[row].copy_(torch.from_numpy(vectors[vector]))
                playing[row], steps[row], rewards[row] = episode, 0, 0.0
            if seeds and moments is not None:
                moments.start(list(seeds))
            if seeds and isinstance(envs, ReplayableAdapter):
                envs.begin(seeds)
                self.set_observations(envs.observations)

        if not envs.is_replayable:
            self.reset([episodes[row % len(episodes)][1] for row in range(envs.num_envs)])
        begin(range(envs.num_envs))
        while playing:
            transition = self.step(lambda policy_input: {"actions": acting.act(policy_input)})
            stepped = transition.envs
            steps[stepped] += 1
            rewards[stepped] += transition.rewards[stepped]
            if moments is not None:
                moments.update(transition.observations, stepped)
            ended = [record for record in transition.episodes if record.env_index in playing]
            for record in ended:
                row = record.env_index
                result = results[playing.pop(row)]
                result[:2] = rewards[row], steps[row]
                if moments is not None:
                    result[2:] = moments.row_statistics(row)
            records += ended
            if ended:
                begin([record.env_index for record in ended])
            elif steps[list(playing)].max() > LONGEST_EPISODE:
                raise ZooError(
                    f"environment {max(playing, key=steps.item)} has taken {LONGEST_EPISODE:,} steps without"
                    " an end of its episode; give it a time limit (env.max_episode_steps)"
                )
        return results, records

    def _statistics_follow(self) -> bool:
        return False  # all candidates of an update are shown the same

    def state(self) -> dict[str, Any]:
        """Return nothing: each update begins with new episodes."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> list[int]:
        """Cut nothing."""
        return []


class RowMoments:
    """Mean and sum of squared deviations of each environment's observations by itself (Welford 1962)."""

    def __init__(self, normalizer: Normalizer, n_rows: int) -> None:
        self._keys = list(normalizer.moments)
        *self._starts, size = np.cumsum([moments.mean.size for moments in normalizer.moments.values()])
        self.counts = np.zeros((n_rows, 1))
        self.means, self.squares = np.zeros((n_rows, size)), np.zeros((n_rows, size))

    def start(self, rows: Sequence[int]) -> None:
        """Reset the statistics of these rows."""
        self.counts[rows] = self.means[rows] = self.squares[rows] = 0.0

    def update(self, observations: Arrays, rows: Array) -> None:
        """Update these rows by observations, (n_rows, …) or a dict of it."""
        by_key = observations if isinstance(observations, dict) else {SINGLE: observations}
        parts = [np.reshape(by_key[key], (len(self.counts), -1)) for key in self._keys]
        values = np.concatenate(parts, axis=1, dtype=np.float64)[rows]
        self.counts[rows] += 1.0
        deviations = values - self.means[rows]
        self.means[rows] += deviations / self.counts[rows]
        self.squares[rows] += deviations * (values - self.means[rows])

    def row_statistics(self, row: int) -> Array:
        """Return the statistics of a row as `Normalizer.merge` takes them, without any return."""
        means, squares = (np.split(array[row], self._starts) for array in (self.means, self.squares))
        parts = zip(means, squares, strict=True)
        return np.concatenate([*(part for pair in parts for part in (self.counts[row], *pair)), np.zeros(3)])


class ARS(Algorithm):
    """Augmented random search of linear policies, as in the paper, or of networks."""

    name = "ars"
    config_class = ARSConfig
    supported_actions = PLAIN_ACTIONS
    policy_class = LinearPolicy
    collector_class = PopulationRollout
    usual_policy = "LinearPolicy"
    search_space = searched(
        Algorithm.search_space,
        ranges("log falling", learning_rate=(1e-3, 0.1)),
        ranges("log", n_delta=(1, 256), delta_std=(5e-3, 0.3)),
        ranges("even", n_eval_episodes=(1, 3)),
        choices(n_top=[None, 1]),
        policy=choices(
            net_arch={"linear": [], "tiny": [16], "narrow": [32], "small": [64, 64], "wide": [128, 64]}
        ),
    )

    config: ARSConfig
    policy: LinearPolicy
    collector: PopulationRollout
    candidates: BatchedPolicy
    deltas: Array
    plus: Array
    minus: Array

    def __init__(
        self, policy: Any = "LinearPolicy", env: Any = None, *, device: str = "auto", **options: Any
    ) -> None:
        # Only large networks would be faster on a GPU.
        super().__init__(policy, env, device="cpu" if device == "auto" else device, **options)

    def _policy_options(self) -> dict[str, Any]:
        config, has_layers = self.config, self._has_hidden_layers()
        return {
            "squash": self._is_scaled(),
            "with_bias": has_layers if config.with_bias is None else config.with_bias,
            "zero": not has_layers if config.zero_policy is None else config.zero_policy,
        }

    def _is_scaled(self) -> bool:
        squashes = self.config.squash_output
        return self._has_hidden_layers() if squashes is None else squashes

    def _has_hidden_layers(self) -> bool:
        has_cnn = self.policy_config.encoder in ("cnn", "small_cnn")
        return has_cnn or self.policy_config.net_arch not in ([], {"pi": []})

    def _make_state(self) -> State:
        self.parameters = Parameters("policy", self.policy)
        return State({"policy": self.parameters.flat})

    def _make_buffer(self) -> None:
        self.candidates = BatchedPolicy(self.parameters, self.n_envs, self.device)

    def _reset_envs(self) -> None:
        """Reset all environments, as action masks may be known only then."""
        with self.runtime.in_force():
            self.collector.reset(self._drawn(EPISODES).integers(LARGEST_SEED, size=self.n_envs).tolist())
        self._note_masks()

    def join(self, workers: Workers | None) -> None:
        super().join(workers)
        self.seed = int(self.distributed.rows(np.array([self.seed], np.float64))[0, 0])

    # -- candidates -------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Have all candidates play, this rank its share of them."""
        config = self.config
        self._rates = self.rates(self.progress)
        self.deltas = self._drawn(DIRECTIONS).standard_normal(
            (config.n_delta, self.parameters.size), dtype=np.float32
        )
        noise = self._rates["delta_std"].cpu().numpy() * self.deltas
        weights = self.runner.state["policy"].cpu().numpy()
        results, records = self.collector.play(
            self.candidates, np.concatenate([weights + noise, weights - noise]), self._own_episodes()
        )
        results = self.distributed.rows(results.reshape(-1)).reshape(-1, results.shape[1])
        self.num_timesteps += int(results[:, 1].sum())
        self.add_episodes(records)
        check_collected(self)
        scores = results[:, 0] + config.alive_bonus_offset * results[:, 1]
        self.plus, self.minus = scores.reshape(2, config.n_delta, config.n_eval_episodes).sum(-1)
        if self.normalizer is not None and results.shape[1] > 2:
            self.normalizer.merge(results[:, 2:])

    def _own_episodes(self) -> list[tuple[int, int]]:
        """Return candidate and seed of each episode that this rank plays."""
        n_episodes = self.config.n_eval_episodes
        seeds = self._drawn(EPISODES).integers(LARGEST_SEED, size=self._batch_size())
        rank = 0 if self.distributed.workers is None else self.distributed.workers.rank
        share = len(seeds) // self.distributed.size
        return [(i // n_episodes, int(seeds[i])) for i in range(rank * share, (rank + 1) * share)]

    def _drawn(self, stream: int) -> np.random.Generator:
        """Return the random generator of the next update; the same on all ranks."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(stream, self.n_updates)))

    # -- updates ----------------------------------------------------------------------------------------

    def update(self) -> None:
        n_top = self.config.n_top or self.config.n_delta
        best = np.argsort(-np.maximum(self.plus, self.minus), kind="stable")[:n_top]
        top = {"plus": self.plus[best], "minus": self.minus[best], "deltas": self.deltas[best]}
        self.record("rollout/return_std", np.concatenate([top["plus"], top["minus"]]).std(ddof=1))
        self.take_steps(
            self._step,
            self._rates["learning_rate"],
            {name: self._tensors(array[None]) for name, array in top.items()},
        )

    def _step(self, state: State, learning_rate: Any, top: Any) -> StepResult:
        """Algorithm 1, line 7: θ + α / (b·σ_R) Σ (r(θ + νδ) − r(θ − νδ)) δ, over the b best directions."""
        plus, minus, deltas = top["plus"], top["minus"], top["deltas"]
        deviation = torch.cat([plus, minus]).std()
        step_size = learning_rate / (len(plus) * deviation + 1e-6)
        followed = ((plus - minus).unsqueeze(-1) * deltas).sum(0)
        moved = state["policy"] + (step_size * followed).to(state["policy"].dtype)
        return StepResult(state.replaced({"policy": moved}), {"step_size": step_size.float()})

    def _act(self, policy_input: PolicyInput, state: Any, *, deterministic: bool) -> tuple[Arrays, Any]:
        return self.acting.act(policy_input, None, state)  # there is nothing random about it

    def gradient_steps_in(self, total_timesteps: int) -> float:
        return 0.0  # none is worth compiling

    def _batch_size(self) -> int:
        """Return the number of episodes in an update."""
        config = self.config
        if (config.n_top or 0) > config.n_delta:
            raise ZooError(
                f"`algo.n_top={config.n_top}` directions can't be the best of `algo.n_delta={config.n_delta}`"
            )
        self.check_workers(config, self.distributed.size)
        return 2 * config.n_delta * config.n_eval_episodes

    @classmethod
    def check_workers(cls, config: ARSConfig, n_workers: int) -> None:
        n_episodes = 2 * config.n_delta * config.n_eval_episodes
        if n_episodes % n_workers:
            raise ZooError(
                f"{n_workers} workers can't share the {n_episodes} episodes of an update (2 × algo.n_delta ×"
                " algo.n_eval_episodes) evenly; change one of them"
            )
