"""Made by scripts/make_stubs.py from the declarations of the hyperparameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces

from zoo.algorithms.a2c import A2C as _A2C
from zoo.algorithms.a2c import A2CConfig
from zoo.algorithms.acer import ACER as _ACER
from zoo.algorithms.acer import ACERConfig
from zoo.algorithms.acktr import ACKTR as _ACKTR
from zoo.algorithms.acktr import ACKTRConfig
from zoo.algorithms.algorithm import Algorithm as Algorithm
from zoo.algorithms.arguments import Policy
from zoo.algorithms.ars import ARS as _ARS
from zoo.algorithms.ars import ARSConfig
from zoo.algorithms.c51 import C51 as _C51
from zoo.algorithms.c51 import C51Config, RainbowConfig
from zoo.algorithms.c51 import Rainbow as _Rainbow
from zoo.algorithms.callback import Callback as Callback
from zoo.algorithms.crossq import CrossQ as _CrossQ
from zoo.algorithms.crossq import CrossQConfig
from zoo.algorithms.ddpg import DDPG as _DDPG
from zoo.algorithms.ddpg import DDPGConfig
from zoo.algorithms.ddpg import HerDDPG as _HerDDPG
from zoo.algorithms.dqn import DQN as _DQN
from zoo.algorithms.dqn import DQNConfig, MunchausenConfig
from zoo.algorithms.dqn import HerDQN as _HerDQN
from zoo.algorithms.iqn import IQN as _IQN
from zoo.algorithms.iqn import IQNConfig
from zoo.algorithms.on_policy import RNDConfig
from zoo.algorithms.ppo import PPO as _PPO
from zoo.algorithms.ppo import PPO1 as _PPO1
from zoo.algorithms.ppo import PPO2 as _PPO2
from zoo.algorithms.ppo import MaskablePPO as _MaskablePPO
from zoo.algorithms.ppo import PPO1Config, PPO2Config, PPOConfig, RecurrentPPOConfig, RslRlPPOConfig
from zoo.algorithms.ppo import RecurrentPPO as _RecurrentPPO
from zoo.algorithms.ppo import RslRlPPO as _RslRlPPO
from zoo.algorithms.pqn import PQN as _PQN
from zoo.algorithms.pqn import PQNConfig
from zoo.algorithms.qrdqn import QRDQN as _QRDQN
from zoo.algorithms.qrdqn import QRDQNConfig
from zoo.algorithms.sac import SAC as _SAC
from zoo.algorithms.sac import HerSAC as _HerSAC
from zoo.algorithms.sac import SACConfig
from zoo.algorithms.sac_presets import REDQ as _REDQ
from zoo.algorithms.sac_presets import DroQ as _DroQ
from zoo.algorithms.sac_presets import DroQConfig, REDQConfig, SimBaConfig, SimBaV2Config
from zoo.algorithms.sac_presets import SimBa as _SimBa
from zoo.algorithms.sac_presets import SimBaV2 as _SimBaV2
from zoo.algorithms.td3 import TD3 as _TD3
from zoo.algorithms.td3 import FastTD3 as _FastTD3
from zoo.algorithms.td3 import FastTD3Config, TD3Config
from zoo.algorithms.td3 import HerTD3 as _HerTD3
from zoo.algorithms.tqc import TQC as _TQC
from zoo.algorithms.tqc import HerTQC as _HerTQC
from zoo.algorithms.tqc import TQCConfig
from zoo.algorithms.trpo import TRPO as _TRPO
from zoo.algorithms.trpo import TRPOConfig
from zoo.buffers.config import ReplayConfig as ReplayConfig
from zoo.commands.compare import compare as compare
from zoo.commands.plot import plot as plot
from zoo.commands.record import record as record
from zoo.config.compose import compose as compose
from zoo.config.fields import ScheduleValue
from zoo.envs.config import EnvConfig as EnvConfig
from zoo.envs.config import NormalizeConfig as NormalizeConfig
from zoo.envs.env_checker import check_env as check_env
from zoo.envs.make_env import make_vec_env as make_vec_env
from zoo.envs.masks import ActionMasker as ActionMasker
from zoo.envs.normalize import VecNormalize as VecNormalize
from zoo.errors import ZooError as ZooError
from zoo.errors import ZooWarning as ZooWarning
from zoo.experiment.callbacks import EvalCallback as EvalCallback
from zoo.experiment.callbacks import KeepAgentsCallback as KeepAgentsCallback
from zoo.experiment.callbacks import StopTrainingOnMaxEpisodes as StopTrainingOnMaxEpisodes
from zoo.experiment.callbacks import StopTrainingOnNoModelImprovement as StopTrainingOnNoModelImprovement
from zoo.experiment.callbacks import StopTrainingOnRewardThreshold as StopTrainingOnRewardThreshold
from zoo.experiment.callbacks import VideoCallback as VideoCallback
from zoo.experiment.checkpoint import CheckpointCallback as CheckpointCallback
from zoo.experiment.evaluation import Evaluation as Evaluation
from zoo.experiment.evaluation import evaluate_policy as evaluate_policy
from zoo.experiment.experiment import Result as Result
from zoo.experiment.experiment import TrainingInterrupted as TrainingInterrupted
from zoo.experiment.experiment import train as train
from zoo.experiment.expert_recording import record_expert as record_expert
from zoo.experiment.loggers import ConsoleLogger as ConsoleLogger
from zoo.experiment.loggers import CsvLogger as CsvLogger
from zoo.experiment.loggers import Logger as Logger
from zoo.experiment.loggers import LoggingCallback as LoggingCallback
from zoo.experiment.progress_bar import ProgressBarCallback as ProgressBarCallback
from zoo.experiment.trackers import TensorBoardLogger as TensorBoardLogger
from zoo.experiment.trackers import WandbLogger as WandbLogger
from zoo.imitation.bc import BC as _BC
from zoo.imitation.bc import BCConfig
from zoo.imitation.expert_data import Dataset
from zoo.imitation.expert_data import ExpertData as ExpertData
from zoo.imitation.expert_data import read_expert as read_expert
from zoo.imitation.expert_data import write_expert as write_expert
from zoo.imitation.gail import GAIL as _GAIL
from zoo.policies.config import PolicyConfig as PolicyConfig
from zoo.policies.encoders import BaseFeaturesExtractor as BaseFeaturesExtractor
from zoo.policies.exploration import ActionNoiseConfig, ParameterNoiseConfig
from zoo.tuning.tune import tune as tune
from zoo.version import __version__ as __version__

class A2C(_A2C):
    """Advantage actor-critic, with n-step returns or GAE, and RMSprop in TensorFlow's form by default.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0007, ≥ 0): step size of the optimizer
        n_steps (int, default 5, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 0.5, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 1.0, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default False): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 0.25, ≥ 0): weight of the value's mean squared error
        use_rms_prop (bool, default True): RMSprop; false: Adam
        rms_prop_decay (float, default 0.99, ≥ 0, < 1): decay of RMSprop's running square
        rms_prop_eps (float, default 1e-05, > 0): epsilon of RMSprop, or of Adam
        rms_prop_tensorflow (bool, default True): RMSprop in TensorFlow's form, with which the published
            scores were made; false: PyTorch's
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = 0.0007,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: A2CConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 5,
        gamma: float = 0.99,
        max_grad_norm: float | None = 0.5,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 1.0,
        normalize_advantage: bool = False,
        ent_coef: float = 0.01,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 0.25,
        use_rms_prop: bool = True,
        rms_prop_decay: float = 0.99,
        rms_prop_eps: float = 1e-05,
        rms_prop_tensorflow: bool = True,
    ) -> None: ...

class ACER(_ACER):
    """Actor-critic with experience replay: Retrace, truncated importance weights, trust region.

    Hyperparameters:
        learning_rate (ScheduleValue, default 'lin_7e-4', ≥ 0): step size of RMSprop
        n_steps (int, default 20, ≥ 1): steps of each environment in a rollout, and in what is replayed
            [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        buffer_size (int, default 50000, ≥ 1): transitions kept for replay [transitions]
        replay_ratio (float, default 4.0, ≥ 0): updates from replay after each rollout: the mean of a
            Poisson distribution
        replay_start (int, default 1000, ≥ 0): transitions in the buffer from which on it is replayed,
            unless replay_ratio is 0 [transitions]
        correction_term (float, default 10.0, > 0): c, the largest importance weight; the rest is
            corrected by the critic
        trust_region (bool, default True): bound how fast the policy leaves its running average
        delta (float, default 1.0, > 0): that bound
        alpha (float, default 0.99, ≥ 0, ≤ 1): decay of the average policy at each update
        q_coef (float, default 0.5, ≥ 0): weight of the critic's loss
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        max_grad_norm (float | None, default 10.0, > 0): bound of the gradient's norm; null: none
        rms_prop_decay (float, default 0.99, ≥ 0, < 1): decay of RMSprop's running square
        rms_prop_eps (float, default 1e-05, > 0): epsilon of RMSprop
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = "lin_7e-4",
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: ACERConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 20,
        gamma: float = 0.99,
        buffer_size: int = 50000,
        replay_ratio: float = 4.0,
        replay_start: int = 1000,
        correction_term: float = 10.0,
        trust_region: bool = True,
        delta: float = 1.0,
        alpha: float = 0.99,
        q_coef: float = 0.5,
        ent_coef: float = 0.01,
        max_grad_norm: float | None = 10.0,
        rms_prop_decay: float = 0.99,
        rms_prop_eps: float = 1e-05,
    ) -> None: ...

class ACKTR(_ACKTR):
    """Actor-critic by natural gradients (K-FAC) within a trust region.

    Hyperparameters:
        learning_rate (ScheduleValue, default 'lin_0.25', ≥ 0): step size of the optimizer
        n_steps (int, default 20, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 0.5, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 1.0, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool | None, default None): standardise the advantages of each rollout;
            null: where actions are Box
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        vf_coef (float, default 0.25, ≥ 0): weight of the value's mean squared error
        kfac_clip (float, default 0.001, > 0): twice the KL divergence, by the quadratic model of it,
            that a step may cause
        kfac_update (int, default 10, ≥ 1): updates after which the inverses are computed anew
        kfac_inverse (Literal['eigen', 'cholesky'], default 'eigen'): eigen: exact damping; cholesky:
            approximate damping, far faster for wide layers
        kfac_damping (float, default 0.01, > 0): added to the diagonal of the curvature
        kfac_decay (float, default 0.99, ≥ 0, < 1): decay of the running averages of the curvature
        cold_updates (int, default 10, ≥ 1): first updates, by plain gradients with momentum, while the
            averages begin
        momentum (float, default 0.9, ≥ 0, < 1): decay of earlier steps; 0: no momentum
        vf_fisher_coef (float, default 1.0, ≥ 0): weight of the critic's curvature
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = "lin_0.25",
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: ACKTRConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 20,
        gamma: float = 0.99,
        max_grad_norm: float | None = 0.5,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 1.0,
        normalize_advantage: bool | None = None,
        ent_coef: float = 0.01,
        value_normalization: bool = False,
        vf_coef: float = 0.25,
        kfac_clip: float = 0.001,
        kfac_update: int = 10,
        kfac_inverse: Literal["eigen", "cholesky"] = "eigen",
        kfac_damping: float = 0.01,
        kfac_decay: float = 0.99,
        cold_updates: int = 10,
        momentum: float = 0.9,
        vf_fisher_coef: float = 1.0,
    ) -> None: ...

class ARS(_ARS):
    """Augmented random search of linear policies, as in the paper, or of networks.

    Hyperparameters:
        n_delta (int, default 8, ≥ 1): random directions of an update; each is tried both ways
        n_top (int | None, default None, ≥ 1): directions that it learns from, those with the best
            candidates; null: all
        learning_rate (ScheduleValue, default 0.02, ≥ 0): step size
        delta_std (ScheduleValue, default 0.05, ≥ 0): how far candidates are from the weights
        n_eval_episodes (int, default 1, ≥ 1): episodes that each candidate plays [episodes]
        alive_bonus_offset (float, default 0.0): added to the reward of each step that candidates are
            compared by, against a bonus for surviving
        zero_policy (bool | None, default None): begin with all weights 0; null: where there are no
            hidden layers
        with_bias (bool | None, default None): linear layers add a bias; null: where there are hidden
            layers
        squash_output (bool | None, default None): tanh of Box actions, scaled to their bounds; null:
            where there are hidden layers
    """
    def __init__(
        self,
        policy: Any = "LinearPolicy",
        env: Any = None,
        *,
        device: str = "auto",
        learning_rate: ScheduleValue = 0.02,
        n_envs: int | None = None,
        seed: int | None = None,
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: ARSConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_delta: int = 8,
        n_top: int | None = None,
        delta_std: ScheduleValue = 0.05,
        n_eval_episodes: int = 1,
        alive_bonus_offset: float = 0.0,
        zero_policy: bool | None = None,
        with_bias: bool | None = None,
        squash_output: bool | None = None,
    ) -> None: ...

class BC(_BC):
    """Behaviour cloning of the expert in ``dataset``: `ExpertData` or the path of its file.

    Hyperparameters:
        n_episodes (int | None, default None, ≥ 1): episodes to use, the first ones; null: all
        min_return (float | None, default None): use only episodes with at least this return; null: all
        batch_size (int, default 64, ≥ 1): steps in a gradient step [steps]
        max_grad_norm (float | None, default None, > 0): maximum norm of the gradient; null: none
        validation_fraction (float, default 0.2, ≥ 0, < 1): share of the episodes to hold out for
            validation, at least one of several
        patience (int | None, default 10, ≥ 1): epochs without a better validation loss before it stops;
            null: no early stopping [epochs]
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of Adam
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        *,
        dataset: Dataset | None = None,
        learning_rate: ScheduleValue = 0.001,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: BCConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_episodes: int | None = None,
        min_return: float | None = None,
        batch_size: int = 64,
        max_grad_norm: float | None = None,
        validation_fraction: float = 0.2,
        patience: int | None = 10,
    ) -> None: ...

class C51(_C51):
    """Categorical DQN, by default neither double nor dueling, as in the paper.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.00025, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 50000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 1.0, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 4, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        double (bool, default False): the online network chooses the next action (double Q-learning)
        dueling (bool, default False): separate branches for state value and advantages
        target_update_interval (int, default 10000, ≥ 1): environment steps between updates of the
            target network [environment steps]
        exploration_fraction (float, default 0.02, > 0, ≤ 1): part of training over which the
            exploration rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.01, ≥ 0, ≤ 1): share of random actions at the end
        parameter_noise (bool, default False): explore by adaptive noise on the network's parameters
            instead of random actions
        max_grad_norm (float | None, default None, > 0): bound of the gradient's norm; null: none
        noisy (bool, default False): explore by layers with learned noise (noisy networks);
            exploration_… have no effect then
        noisy_std (float, default 0.5, ≥ 0): first size of that noise; larger: explores more, for longer
        n_atoms (int, default 51, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-10.0, 10.0]): [low, high] of these returns; scale rewards to
            fit
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.00025,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: C51Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 50000,
        batch_size: int = 32,
        gamma: float = 0.99,
        tau: float = 1.0,
        train_freq: int | list[Any] | dict[str, Any] = 4,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        double: bool = False,
        dueling: bool = False,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.02,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        parameter_noise: bool = False,
        max_grad_norm: float | None = None,
        noisy: bool = False,
        noisy_std: float = 0.5,
        n_atoms: int = 51,
        value_range: list[float] = ...,
    ) -> None: ...

class CrossQ(_CrossQ):
    """Soft actor-critic with batch renormalisation and no targets, with SB3-Contrib's values.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 100, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.5, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 3, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto', ≥ 0): weight of the entropy; auto: learned, auto_0.1:
            learned from that value on
        target_entropy (float | str, default 'auto'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.001,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: CrossQConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 100,
        batch_size: int = 256,
        gamma: float = 0.99,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 3,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto",
        target_entropy: float | str = "auto",
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class DDPG(_DDPG):
    """Deep deterministic policy gradient: noise on actions or parameters, pop-art, each on a switch.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of the optimizer
        buffer_size (int, default 50000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 100, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 128, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.001, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 100, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 50, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default 0.0001, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_l2_reg (float, default 0.0, ≥ 0): weight of half the critic's squared weights, but for
            biases and the last layer
        max_grad_norm (float | None, default None, > 0): bound of the norm of each network's gradient;
            null: none
        reward_scale (float, default 1.0, > 0): factor of the rewards that are learned from
        normalize_returns (bool, default False): the critic learns in units of the running mean and
            standard deviation of its targets
        enable_popart (bool, default False): its last layer changes with the units, so that its values
            don't (with normalize_returns)
        return_range (list[float] | None, default None): [low, high] to which the critic's targets are
            clipped, in its own units; null: none
        parameter_noise (ParameterNoiseConfig | dict[str, Any] | None, default None): adaptive noise on
            the actor's parameters: {initial_std: 0.1, desired_action_std: 0.1, adaptation_coefficient:
            1.01}
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.001,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: DDPGConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 50000,
        learning_starts: int = 100,
        batch_size: int = 128,
        gamma: float = 0.99,
        tau: float = 0.001,
        train_freq: int | list[Any] | dict[str, Any] = 100,
        gradient_steps: int = 50,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = 0.0001,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_l2_reg: float = 0.0,
        max_grad_norm: float | None = None,
        reward_scale: float = 1.0,
        normalize_returns: bool = False,
        enable_popart: bool = False,
        return_range: list[float] | None = None,
        parameter_noise: ParameterNoiseConfig | dict[str, Any] | None = None,
    ) -> None: ...

class DQN(_DQN):
    """Deep Q-learning, by default double and dueling; both off is Stable-Baselines3's.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0005, ≥ 0): step size of the optimizer
        buffer_size (int, default 50000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 1000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 1.0, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        double (bool, default True): the online network chooses the next action (double Q-learning)
        dueling (bool, default True): separate branches for state value and advantages
        target_update_interval (int, default 500, ≥ 1): environment steps between updates of the target
            network [environment steps]
        exploration_fraction (float, default 0.1, > 0, ≤ 1): part of training over which the exploration
            rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.02, ≥ 0, ≤ 1): share of random actions at the end
        parameter_noise (bool, default False): explore by adaptive noise on the network's parameters
            instead of random actions
        max_grad_norm (float | None, default 10.0, > 0): bound of the gradient's norm; null: none
        noisy (bool, default False): explore by layers with learned noise (noisy networks);
            exploration_… have no effect then
        noisy_std (float, default 0.5, ≥ 0): first size of that noise; larger: explores more, for longer
        munchausen (MunchausenConfig | dict[str, Any] | None, default None): reward the log of a softmax
            policy, which targets value then: {alpha: 0.9, tau: 0.03, floor: -1}; double has no effect
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0005,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: DQNConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 50000,
        learning_starts: int = 1000,
        batch_size: int = 32,
        gamma: float = 0.99,
        tau: float = 1.0,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        double: bool = True,
        dueling: bool = True,
        target_update_interval: int = 500,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.02,
        parameter_noise: bool = False,
        max_grad_norm: float | None = 10.0,
        noisy: bool = False,
        noisy_std: float = 0.5,
        munchausen: MunchausenConfig | dict[str, Any] | None = None,
    ) -> None: ...

class DroQ(_DroQ):
    """SAC with 20 updates a step, by critics with dropout and layer normalisation (Hiraoka et al. 2022).

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 5000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 20, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default 'mean', one of 'min', 'mean'): value that the actor
            maximises: min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 20, ≥ 1): critic updates per update of the actor and ent_coef (td3:
            of the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto', ≥ 0): weight of the entropy; auto: learned, auto_0.1:
            learned from that value on
        target_entropy (float | str, default 'auto'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        policy: Policy | None = None,
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: DroQConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 5000,
        batch_size: int = 256,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 20,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = "mean",
        policy_delay: int = 20,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto",
        target_entropy: float | str = "auto",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class FastTD3(_FastTD3):
    """TD3 with large batches, critics of distributions and many environments (Seo et al. 2025).

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 6553600, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 1280, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32768, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.1, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 128, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 2, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default {'type': 'normal', 'std':
            0.001, 'std_max': 0.4, 'theta': 0.15, 'dt': 0.01}): noise added to the actions while
            learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each episode draws its
            own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adamw', one of 'adam', 'adamw', 'radam'): optimizer of actor and
            critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default 0.1, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'categorical', one of 'mse', 'categorical'): mse: squared error of
            values; categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-250.0, 250.0]): [low, high] of these returns; scale rewards
            to fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default 'min', one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 2, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        target_policy_noise (float, default 0.001, ≥ 0): standard deviation of the noise that smooths
            the actions in targets
        target_noise_clip (float, default 0.5, ≥ 0): largest absolute value of that noise
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: FastTD3Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 6553600,
        learning_starts: int = 1280,
        batch_size: int = 32768,
        gamma: float = 0.99,
        tau: float = 0.1,
        train_freq: int | list[Any] | dict[str, Any] = 128,
        gradient_steps: int = 2,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = ...,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adamw",
        betas: list[float] = ...,
        weight_decay: float | None = 0.1,
        critic_loss: str = "categorical",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = "min",
        policy_delay: int = 2,
        critic_reset_every: int | list[int] | None = None,
        target_policy_noise: float = 0.001,
        target_noise_clip: float = 0.5,
    ) -> None: ...

class GAIL(_GAIL):
    """Generative adversarial imitation of the expert in ``dataset``: `ExpertData` or the path of its file.

    ``generator`` names the algorithm that learns, by default "trpo"; the model is an instance of its class,
    too. `__new__` picks this class since agents of format 1 call a PPO2 with a discriminator ``gail``.
    Hyperparameters are the discriminator's and the generator's. Without a dataset it can act, but not learn.

    Hyperparameters:
        n_episodes (int | None, default None, ≥ 1): episodes to use, the first ones; null: all
        min_return (float | None, default None): use only episodes with at least this return; null: all
        d_step (int, default 1, ≥ 1): gradient steps of the discriminator per training
        d_learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the discriminator's Adam
        d_batch_size (int | None, default None, ≥ 1): policy's pairs per gradient step, and as many of
            the expert's; null: a rollout's size / d_step [steps]
        d_net_arch (list[int], default [100, 100]): hidden layers of the discriminator, after the
            encoder
        d_activation (str, default 'tanh', one of 'tanh', 'relu', 'elu', 'gelu', 'leaky_relu', 'silu'):
            non-linearity of the hidden layers
        d_ent_coef (float, default 0.001, ≥ 0): coefficient of the entropy bonus of its outputs
        d_gradient_penalty (float, default 0.0, ≥ 0): coefficient of (‖∇D‖ − 1)² between pairs of policy
            and expert; often 10, 0: none
        d_spectral_norm (bool, default False): divide its weights by their largest singular value
        generator (str, default 'trpo', one of 'trpo', 'ppo2', 'ppo1', 'a2c', 'acktr'): algorithm that
            learns from the imitation reward; its hyperparameters are in this section, too
        g_step (int, default 3, ≥ 1): generator updates, each on a new rollout, per training of the
            discriminator
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of the critic's optimizer
        n_steps (int, default 2048, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default None, > 0): bound of the norm of the critic's gradient;
            null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.0, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        target_kl (float, default 0.01, > 0): bound of the mean KL divergence to the old policy, summed
            over the parts of an action
        cg_max_steps (int, default 15, ≥ 1): iterations of the conjugate gradient method
        cg_damping (float, default 0.1, ≥ 0): multiple of the identity added to the Fisher matrix
        line_search_max_iter (int, default 10, ≥ 1): lengths of the step that are tried
        line_search_shrinking_factor (float, default 0.8, > 0, < 1): length of each try as a part of the
            one before
        line_search_kl_factor (float, default 1.0, > 0): KL divergence up to which a try is accepted, as
            a multiple of target_kl
        sub_sampling_factor (int, default 1, ≥ 1): Fisher products take one of so many steps, drawn at
            random; 1: all
        n_critic_updates (int, default 10, ≥ 1): passes of the critic over each rollout
        batch_size (int, default 128, ≥ 1): size of the critic's minibatches [steps]
        adam_eps (float, default 1e-05, > 0): epsilon of the critic's Adam
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        dataset: Dataset | None = None,
        *,
        learning_rate: ScheduleValue = 0.001,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: TRPOConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_episodes: int | None = None,
        min_return: float | None = None,
        d_step: int = 1,
        d_learning_rate: ScheduleValue = 0.0003,
        d_batch_size: int | None = None,
        d_net_arch: list[int] = ...,
        d_activation: str = "tanh",
        d_ent_coef: float = 0.001,
        d_gradient_penalty: float = 0.0,
        d_spectral_norm: bool = False,
        generator: str = "trpo",
        g_step: int = 3,
        n_steps: int = 2048,
        gamma: float = 0.99,
        max_grad_norm: float | None = None,
        chunk_length: int | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        target_kl: float = 0.01,
        cg_max_steps: int = 15,
        cg_damping: float = 0.1,
        line_search_max_iter: int = 10,
        line_search_shrinking_factor: float = 0.8,
        line_search_kl_factor: float = 1.0,
        sub_sampling_factor: int = 1,
        n_critic_updates: int = 10,
        batch_size: int = 128,
        adam_eps: float = 1e-05,
    ) -> None: ...

class HerDDPG(_HerDDPG, DDPG):
    """DDPG with hindsight replay."""

class HerDQN(_HerDQN, DQN):
    """DQN with hindsight replay."""

class HerSAC(_HerSAC, SAC):
    """SAC with hindsight replay."""

class HerTD3(_HerTD3, TD3):
    """TD3 with hindsight replay."""

class HerTQC(_HerTQC, TQC):
    """TQC with hindsight replay."""

class IQN(_IQN):
    """Implicit quantile networks, by default neither double nor dueling, as in the paper.

    Hyperparameters:
        learning_rate (ScheduleValue, default 5e-05, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 50000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 1.0, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 4, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        double (bool, default False): the online network chooses the next action (double Q-learning)
        dueling (bool, default False): separate branches for state value and advantages
        target_update_interval (int, default 10000, ≥ 1): environment steps between updates of the
            target network [environment steps]
        exploration_fraction (float, default 0.005, > 0, ≤ 1): part of training over which the
            exploration rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.01, ≥ 0, ≤ 1): share of random actions at the end
        parameter_noise (bool, default False): explore by adaptive noise on the network's parameters
            instead of random actions
        max_grad_norm (float | None, default None, > 0): bound of the gradient's norm; null: none
        noisy (bool, default False): explore by layers with learned noise (noisy networks);
            exploration_… have no effect then
        noisy_std (float, default 0.5, ≥ 0): first size of that noise; larger: explores more, for longer
        munchausen (MunchausenConfig | dict[str, Any] | None, default None): reward the log of a softmax
            policy, which targets value then: {alpha: 0.9, tau: 0.03, floor: -1}; double has no effect
        n_quantiles (int, default 64, ≥ 1, ≤ 100000): quantiles drawn for each transition; more:
            steadier gradients, slower; 8 to 64
        n_target_quantiles (int, default 64, ≥ 1, ≤ 100000): quantiles of the next state drawn for each
            transition; 8 to 64
        n_acting_quantiles (int, default 32, ≥ 1, ≤ 100000): evenly spaced quantiles whose mean chooses
            actions, also in targets
        n_cosines (int, default 64, ≥ 1, ≤ 100000): cosines of a fraction that the network reads; more:
            finer distributions
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 5e-05,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: IQNConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 50000,
        batch_size: int = 32,
        gamma: float = 0.99,
        tau: float = 1.0,
        train_freq: int | list[Any] | dict[str, Any] = 4,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        double: bool = False,
        dueling: bool = False,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.005,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        parameter_noise: bool = False,
        max_grad_norm: float | None = None,
        noisy: bool = False,
        noisy_std: float = 0.5,
        munchausen: MunchausenConfig | dict[str, Any] | None = None,
        n_quantiles: int = 64,
        n_target_quantiles: int = 64,
        n_acting_quantiles: int = 32,
        n_cosines: int = 64,
    ) -> None: ...

class MaskablePPO(_MaskablePPO, PPO):
    """PPO2 with the defaults of SB3-Contrib's MaskablePPO; masks come from the environment."""

class PPO(_PPO):
    """PPO with the defaults of Stable-Baselines3.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        n_steps (int, default 2048, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 0.5, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.0, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 0.5, ≥ 0): weight of the value's mean squared error
        n_epochs (int, default 10, ≥ 1): passes over each rollout
        clip_range (ScheduleValue, default 0.2, > 0): change of an action's probability ratio beyond
            which nothing is gained
        adam_eps (float, default 1e-05, > 0): Adam's epsilon
        desired_kl (float | None, default None, > 0): adapt the learning rate to this KL divergence from
            the old policy, often 0.01; null: off
        rpo_alpha (float, default 0.0, ≥ 0): half width of uniform noise on the means of Box actions, in
            updates only (RPO); more explores longer, often 0.5, 0.01 for MuJoCo; 0: none
        symmetry (dict[str, Any] | None, default None): a symmetry of the task, a function: {_target_:
            module.function, mode: augment | loss}; null: none
        batch_size (int | None, default 64, ≥ 2): size of a minibatch; null: n_minibatches decides
            [steps]
        n_minibatches (int, default 4, ≥ 1): minibatches an epoch, if batch_size is null
        clip_range_vf (ScheduleValue | Literal['same'] | None, default None, > 0): the same for the
            change of a value; same: clip_range, null: no clipping
        target_kl (float | None, default None, > 0): an update ends when the KL divergence to the old
            policy exceeds 1.5 times this
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: PPOConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 2048,
        gamma: float = 0.99,
        max_grad_norm: float | None = 0.5,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 0.5,
        n_epochs: int = 10,
        clip_range: ScheduleValue = 0.2,
        adam_eps: float = 1e-05,
        desired_kl: float | None = None,
        rpo_alpha: float = 0.0,
        symmetry: dict[str, Any] | None = None,
        batch_size: int | None = 64,
        n_minibatches: int = 4,
        clip_range_vf: ScheduleValue | Literal["same"] | None = None,
        target_kl: float | None = None,
    ) -> None: ...

class PPO1(_PPO1):
    """Proximal policy optimisation whose ranks standardise a batch each, as Stable-Baselines' PPO1.

    Hyperparameters:
        learning_rate (ScheduleValue, default 'lin_1e-3', ≥ 0): step size of the optimizer
        n_steps (int, default 256, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default None, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 1.0, ≥ 0): weight of the value's mean squared error
        n_epochs (int, default 4, ≥ 1): passes over each rollout
        clip_range (ScheduleValue, default 'lin_0.2', > 0): change of an action's probability ratio
            beyond which nothing is gained
        adam_eps (float, default 1e-05, > 0): Adam's epsilon
        desired_kl (float | None, default None, > 0): adapt the learning rate to this KL divergence from
            the old policy, often 0.01; null: off
        rpo_alpha (float, default 0.0, ≥ 0): half width of uniform noise on the means of Box actions, in
            updates only (RPO); more explores longer, often 0.5, 0.01 for MuJoCo; 0: none
        symmetry (dict[str, Any] | None, default None): a symmetry of the task, a function: {_target_:
            module.function, mode: augment | loss}; null: none
        batch_size (int, default 64, ≥ 1): size of a minibatch; what does not fill one is left out
            [steps]
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = "lin_1e-3",
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: PPO1Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 256,
        gamma: float = 0.99,
        max_grad_norm: float | None = None,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.01,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 1.0,
        n_epochs: int = 4,
        clip_range: ScheduleValue = "lin_0.2",
        adam_eps: float = 1e-05,
        desired_kl: float | None = None,
        rpo_alpha: float = 0.0,
        symmetry: dict[str, Any] | None = None,
        batch_size: int = 64,
    ) -> None: ...

class PPO2(_PPO2):
    """Proximal policy optimisation, with clipped values and the defaults of Stable-Baselines' PPO2.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.00025, ≥ 0): step size of the optimizer
        n_steps (int, default 128, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 0.5, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 0.25, ≥ 0): weight of the value's mean squared error
        n_epochs (int, default 4, ≥ 1): passes over each rollout
        clip_range (ScheduleValue, default 0.2, > 0): change of an action's probability ratio beyond
            which nothing is gained
        adam_eps (float, default 1e-05, > 0): Adam's epsilon
        desired_kl (float | None, default None, > 0): adapt the learning rate to this KL divergence from
            the old policy, often 0.01; null: off
        rpo_alpha (float, default 0.0, ≥ 0): half width of uniform noise on the means of Box actions, in
            updates only (RPO); more explores longer, often 0.5, 0.01 for MuJoCo; 0: none
        symmetry (dict[str, Any] | None, default None): a symmetry of the task, a function: {_target_:
            module.function, mode: augment | loss}; null: none
        batch_size (int | None, default None, ≥ 2): size of a minibatch; null: n_minibatches decides
            [steps]
        n_minibatches (int, default 4, ≥ 1): minibatches an epoch, if batch_size is null
        clip_range_vf (ScheduleValue | Literal['same'] | None, default 'same', > 0): the same for the
            change of a value; same: clip_range, null: no clipping
        target_kl (float | None, default None, > 0): an update ends when the KL divergence to the old
            policy exceeds 1.5 times this
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = 0.00025,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: PPO2Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 128,
        gamma: float = 0.99,
        max_grad_norm: float | None = 0.5,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.01,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 0.25,
        n_epochs: int = 4,
        clip_range: ScheduleValue = 0.2,
        adam_eps: float = 1e-05,
        desired_kl: float | None = None,
        rpo_alpha: float = 0.0,
        symmetry: dict[str, Any] | None = None,
        batch_size: int | None = None,
        n_minibatches: int = 4,
        clip_range_vf: ScheduleValue | Literal["same"] | None = "same",
        target_kl: float | None = None,
    ) -> None: ...

class PQN(_PQN):
    """Q-learning by λ-returns of many environments, without replay and target networks.

    Hyperparameters:
        learning_rate (ScheduleValue, default 'lin_5e-4', ≥ 0): step size of the optimizer
        n_steps (int, default 32, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 10.0, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        q_lambda (float, default 0.65, ≥ 0, ≤ 1): bias (0: one-step targets) against variance (1: n-step
            returns) of the targets
        batch_size (int, default 128, ≥ 1): size of a minibatch [steps]
        n_epochs (int, default 2, ≥ 1): passes over each rollout
        exploration_fraction (float, default 0.1, > 0, ≤ 1): part of training over which the exploration
            rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.05, ≥ 0, ≤ 1): share of random actions at the end
        optimizer (str, default 'radam', one of 'adam', 'adamw', 'radam'): optimizer of the network
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = "lin_5e-4",
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: PQNConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 32,
        gamma: float = 0.99,
        max_grad_norm: float | None = 10.0,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        q_lambda: float = 0.65,
        batch_size: int = 128,
        n_epochs: int = 2,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        optimizer: str = "radam",
    ) -> None: ...

class QRDQN(_QRDQN):
    """Quantile regression DQN, by default neither double nor dueling, as in SB3-Contrib.

    Hyperparameters:
        learning_rate (ScheduleValue, default 5e-05, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 50000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 1.0, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 4, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        double (bool, default False): the online network chooses the next action (double Q-learning)
        dueling (bool, default False): separate branches for state value and advantages
        target_update_interval (int, default 10000, ≥ 1): environment steps between updates of the
            target network [environment steps]
        exploration_fraction (float, default 0.005, > 0, ≤ 1): part of training over which the
            exploration rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.01, ≥ 0, ≤ 1): share of random actions at the end
        parameter_noise (bool, default False): explore by adaptive noise on the network's parameters
            instead of random actions
        max_grad_norm (float | None, default None, > 0): bound of the gradient's norm; null: none
        noisy (bool, default False): explore by layers with learned noise (noisy networks);
            exploration_… have no effect then
        noisy_std (float, default 0.5, ≥ 0): first size of that noise; larger: explores more, for longer
        munchausen (MunchausenConfig | dict[str, Any] | None, default None): reward the log of a softmax
            policy, which targets value then: {alpha: 0.9, tau: 0.03, floor: -1}; double has no effect
        n_quantiles (int, default 200, ≥ 1, ≤ 100000): quantiles of the return of each action
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 5e-05,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: QRDQNConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 50000,
        batch_size: int = 32,
        gamma: float = 0.99,
        tau: float = 1.0,
        train_freq: int | list[Any] | dict[str, Any] = 4,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        double: bool = False,
        dueling: bool = False,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.005,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        parameter_noise: bool = False,
        max_grad_norm: float | None = None,
        noisy: bool = False,
        noisy_std: float = 0.5,
        munchausen: MunchausenConfig | dict[str, Any] | None = None,
        n_quantiles: int = 200,
    ) -> None: ...

class REDQ(_REDQ):
    """SAC with 20 updates a step, whose targets are of two of ten critics (Chen et al. 2021).

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 5000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 20, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 10, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default 2, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default 'mean', one of 'min', 'mean'): value that the actor
            maximises: min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 20, ≥ 1): critic updates per update of the actor and ent_coef (td3:
            of the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto', ≥ 0): weight of the entropy; auto: learned, auto_0.1:
            learned from that value on
        target_entropy (float | str, default 'auto'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: REDQConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 5000,
        batch_size: int = 256,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 20,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 10,
        n_target_critics: int | None = 2,
        actor_critics: str | None = "mean",
        policy_delay: int = 20,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto",
        target_entropy: float | str = "auto",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class Rainbow(_Rainbow):
    """C51 with double, dueling and noisy networks, prioritised replay and returns of three steps.

    Hyperparameters:
        learning_rate (ScheduleValue, default 6.25e-05, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 20000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 32, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 1.0, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 4, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        double (bool, default True): the online network chooses the next action (double Q-learning)
        dueling (bool, default True): separate branches for state value and advantages
        target_update_interval (int, default 8000, ≥ 1): environment steps between updates of the target
            network [environment steps]
        exploration_fraction (float, default 0.02, > 0, ≤ 1): part of training over which the
            exploration rate falls
        exploration_initial_eps (float, default 1.0, ≥ 0, ≤ 1): share of random actions at the start
        exploration_final_eps (float, default 0.01, ≥ 0, ≤ 1): share of random actions at the end
        parameter_noise (bool, default False): explore by adaptive noise on the network's parameters
            instead of random actions
        max_grad_norm (float | None, default 10.0, > 0): bound of the gradient's norm; null: none
        noisy (bool, default True): explore by layers with learned noise (noisy networks); exploration_…
            have no effect then
        noisy_std (float, default 0.5, ≥ 0): first size of that noise; larger: explores more, for longer
        n_atoms (int, default 51, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-10.0, 10.0]): [low, high] of these returns; scale rewards to
            fit
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 6.25e-05,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: RainbowConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 20000,
        batch_size: int = 32,
        gamma: float = 0.99,
        tau: float = 1.0,
        train_freq: int | list[Any] | dict[str, Any] = 4,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        double: bool = True,
        dueling: bool = True,
        target_update_interval: int = 8000,
        exploration_fraction: float = 0.02,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.01,
        parameter_noise: bool = False,
        max_grad_norm: float | None = 10.0,
        noisy: bool = True,
        noisy_std: float = 0.5,
        n_atoms: int = 51,
        value_range: list[float] = ...,
    ) -> None: ...

class RecurrentPPO(_RecurrentPPO):
    """PPO2 with the defaults of SB3-Contrib's RecurrentPPO, for recurrent policies.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        n_steps (int, default 128, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 0.5, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.0, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 0.5, ≥ 0): weight of the value's mean squared error
        n_epochs (int, default 10, ≥ 1): passes over each rollout
        clip_range (ScheduleValue, default 0.2, > 0): change of an action's probability ratio beyond
            which nothing is gained
        adam_eps (float, default 1e-05, > 0): Adam's epsilon
        desired_kl (float | None, default None, > 0): adapt the learning rate to this KL divergence from
            the old policy, often 0.01; null: off
        rpo_alpha (float, default 0.0, ≥ 0): half width of uniform noise on the means of Box actions, in
            updates only (RPO); more explores longer, often 0.5, 0.01 for MuJoCo; 0: none
        symmetry (dict[str, Any] | None, default None): a symmetry of the task, a function: {_target_:
            module.function, mode: augment | loss}; null: none
        batch_size (int | None, default 128, ≥ 2): size of a minibatch; null: n_minibatches decides
            [steps]
        n_minibatches (int, default 4, ≥ 1): minibatches an epoch, if batch_size is null
        clip_range_vf (ScheduleValue | Literal['same'] | None, default None, > 0): the same for the
            change of a value; same: clip_range, null: no clipping
        target_kl (float | None, default None, > 0): an update ends when the KL divergence to the old
            policy exceeds 1.5 times this
    """
    def __init__(
        self,
        policy: Policy = "MlpLstmPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: RecurrentPPOConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 128,
        gamma: float = 0.99,
        max_grad_norm: float | None = 0.5,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 0.5,
        n_epochs: int = 10,
        clip_range: ScheduleValue = 0.2,
        adam_eps: float = 1e-05,
        desired_kl: float | None = None,
        rpo_alpha: float = 0.0,
        symmetry: dict[str, Any] | None = None,
        batch_size: int | None = 128,
        n_minibatches: int = 4,
        clip_range_vf: ScheduleValue | Literal["same"] | None = None,
        target_kl: float | None = None,
    ) -> None: ...

class RslRlPPO(_RslRlPPO):
    """PPO2 with the values of rsl_rl, for legged robots: a learning rate that follows the KL divergence.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of the optimizer
        n_steps (int, default 24, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default 1.0, > 0): bound of the gradient's norm; null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.01, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        vf_coef (float, default 1.0, ≥ 0): weight of the value's mean squared error
        n_epochs (int, default 5, ≥ 1): passes over each rollout
        clip_range (ScheduleValue, default 0.2, > 0): change of an action's probability ratio beyond
            which nothing is gained
        adam_eps (float, default 1e-08, > 0): Adam's epsilon
        desired_kl (float | None, default 0.01, > 0): adapt the learning rate to this KL divergence from
            the old policy, often 0.01; null: off
        rpo_alpha (float, default 0.0, ≥ 0): half width of uniform noise on the means of Box actions, in
            updates only (RPO); more explores longer, often 0.5, 0.01 for MuJoCo; 0: none
        symmetry (dict[str, Any] | None, default None): a symmetry of the task, a function: {_target_:
            module.function, mode: augment | loss}; null: none
        batch_size (int | None, default None, ≥ 2): size of a minibatch; null: n_minibatches decides
            [steps]
        n_minibatches (int, default 4, ≥ 1): minibatches an epoch, if batch_size is null
        clip_range_vf (ScheduleValue | Literal['same'] | None, default 'same', > 0): the same for the
            change of a value; same: clip_range, null: no clipping
        target_kl (float | None, default None, > 0): an update ends when the KL divergence to the old
            policy exceeds 1.5 times this
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = 0.001,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: RslRlPPOConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 24,
        gamma: float = 0.99,
        max_grad_norm: float | None = 1.0,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.01,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        vf_coef: float = 1.0,
        n_epochs: int = 5,
        clip_range: ScheduleValue = 0.2,
        adam_eps: float = 1e-08,
        desired_kl: float | None = 0.01,
        rpo_alpha: float = 0.0,
        symmetry: dict[str, Any] | None = None,
        batch_size: int | None = None,
        n_minibatches: int = 4,
        clip_range_vf: ScheduleValue | Literal["same"] | None = "same",
        target_kl: float | None = None,
    ) -> None: ...

class SAC(_SAC):
    """Soft actor-critic with a learned entropy coefficient, without a separate state-value network.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 50000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 100, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 64, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 1, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto', ≥ 0): weight of the entropy; auto: learned, auto_0.1:
            learned from that value on
        target_entropy (float | str, default 'auto'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: SACConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 50000,
        learning_starts: int = 100,
        batch_size: int = 64,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 1,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto",
        target_entropy: float | str = "auto",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class SimBa(_SimBa):
    """SAC with residual networks of normalised observations, and two updates a step (Lee et al. 2025).

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0001, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 5000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 2, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adamw', one of 'adam', 'adamw', 'radam'): optimizer of actor and
            critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 1, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto_0.01', ≥ 0): weight of the entropy; auto: learned,
            auto_0.1: learned from that value on
        target_entropy (float | str, default 'auto_0.5'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        arguments: Any = ...,
        *,
        policy: Policy | None = None,
        env: Any = None,
        learning_rate: ScheduleValue = 0.0001,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: SimBaConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 5000,
        batch_size: int = 256,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 2,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adamw",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 1,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto_0.01",
        target_entropy: float | str = "auto_0.5",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class SimBaV2(_SimBaV2):
    """SimBa with features and weights of length 1, and critics of distributions (Lee et al. 2025).

    Hyperparameters:
        learning_rate (ScheduleValue, default {'type': 'linear', 'start': 0.0001, 'end': 5e-05}, ≥ 0):
            step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 5000, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 2, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'categorical', one of 'mse', 'categorical'): mse: squared error of
            values; categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 1, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto_0.01', ≥ 0): weight of the entropy; auto: learned,
            auto_0.1: learned from that value on
        target_entropy (float | str, default 'auto_0.5'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
    """
    def __init__(
        self,
        arguments: Any = ...,
        *,
        policy: Policy | None = None,
        env: Any = None,
        learning_rate: ScheduleValue = ...,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: SimBaV2Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 5000,
        batch_size: int = 256,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 2,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "categorical",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 1,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto_0.01",
        target_entropy: float | str = "auto_0.5",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
    ) -> None: ...

class TD3(_TD3):
    """Twin delayed deep deterministic policy gradient: delayed actor, smoothed targets.

    It updates 100 times after every 100 steps, as Stable-Baselines does. Stable-Baselines3's values are
    `buffer_size=1e6, batch_size=256, learning_rate=1e-3, train_freq=1, gradient_steps=1`. The networks are
    400-300 by default as there, and as in the paper; Stable-Baselines' are 64-64. Without `action_noise`
    nothing explores once `learning_starts` is over, as in both.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 50000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 100, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 128, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 100, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 100, ≥ -1): gradient steps after every train_freq environment
            steps; -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        critic_loss (str, default 'mse', one of 'mse', 'categorical'): mse: squared error of values;
            categorical: cross-entropy of distributions over n_atoms returns
        n_atoms (int, default 101, ≥ 2, ≤ 100000): evenly spaced returns that a distribution covers
        value_range (list[float], default [-5.0, 5.0]): [low, high] of these returns; scale rewards to
            fit
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 2, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        target_policy_noise (float, default 0.2, ≥ 0): standard deviation of the noise that smooths the
            actions in targets
        target_noise_clip (float, default 0.5, ≥ 0): largest absolute value of that noise
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: TD3Config | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 50000,
        learning_starts: int = 100,
        batch_size: int = 128,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 100,
        gradient_steps: int = 100,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        critic_loss: str = "mse",
        n_atoms: int = 101,
        value_range: list[float] = ...,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 2,
        critic_reset_every: int | list[int] | None = None,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
    ) -> None: ...

class TQC(_TQC):
    """Soft actor-critic with truncated quantile critics, with SB3-Contrib's values.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.0003, ≥ 0): step size of the optimizer
        buffer_size (int, default 1000000, ≥ 1): transitions kept for replay [transitions]
        learning_starts (int, default 100, ≥ 0): random steps before the first update [environment
            steps]
        batch_size (int, default 256, ≥ 1): transitions in a gradient step [transitions]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        tau (float, default 0.005, > 0, ≤ 1): share of new weights in a target update; 1: a copy
        train_freq (int | list[Any] | dict[str, Any], default 1, ≥ 1): environment steps between
            updates; [1, episode] counts episodes
        gradient_steps (int, default 1, ≥ -1): gradient steps after every train_freq environment steps;
            -1: as many as steps were taken
        optimize_memory_usage (bool, default False): store each observation once instead of twice, and
            each frame of a stack (worth it for images)
        action_noise (ActionNoiseConfig | dict[str, Any] | None, default None): noise added to the
            actions while learning: {type: normal | ornstein-uhlenbeck, std: 0.1}; with std_max each
            episode draws its own deviation
        random_exploration (float, default 0.0, ≥ 0, ≤ 1): share of steps with a uniformly random action
            while learning
        actor_learning_rate (ScheduleValue | None, default None, ≥ 0): step size of the actor's
            optimizer; null: learning_rate
        optimizer (str, default 'adam', one of 'adam', 'adamw', 'radam'): optimizer of actor and critics
        betas (list[float], default [0.9, 0.999]): decay rates of the optimizer's two moment estimates
        weight_decay (float | None, default None, ≥ 0): decoupled weight decay of adamw; null: 0.01
        n_critics (int, default 2, ≥ 1, ≤ 1000): number of critics; targets take the smallest of their
            values (tqc: the quantiles of all)
        n_target_critics (int | None, default None, ≥ 1): critics that targets use, a random subset for
            each gradient step; null: all
        actor_critics (str | None, default None, one of 'min', 'mean'): value that the actor maximises:
            min or mean of all critics; null: min (td3: first, tqc: mean)
        policy_delay (int, default 1, ≥ 1): critic updates per update of the actor and ent_coef (td3: of
            the actor and all targets) [gradient steps]
        critic_reset_every (int | list[int] | None, default None, ≥ 1): environment steps between resets
            of actor, critics and their optimizers, or a list of steps at which they are reset; the
            buffer and ent_coef are kept; null: never [environment steps]
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        ent_coef (float | str, default 'auto', ≥ 0): weight of the entropy; auto: learned, auto_0.1:
            learned from that value on
        target_entropy (float | str, default 'auto'): entropy that a learned ent_coef aims at; auto:
            minus the action dimensions, auto_0.5: half of that; with discrete actions a share of
            log(allowed actions), auto: auto_0.5
        target_update_interval (int, default 1, ≥ 1): gradient steps between updates of the target
            critics [gradient steps]
        use_sde_at_warmup (bool, default False): gSDE before learning starts too, not random actions
        n_quantiles (int, default 25, ≥ 1, ≤ 100000): quantiles of each critic
        top_quantiles_to_drop_per_net (int, default 2, ≥ 0): highest quantiles of each critic that
            targets leave out; more: lower estimates
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: Any = None,
        learning_rate: ScheduleValue = 0.0003,
        *,
        replay: ReplayConfig | Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: TQCConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        buffer_size: int = 1000000,
        learning_starts: int = 100,
        batch_size: int = 256,
        gamma: float = 0.99,
        tau: float = 0.005,
        train_freq: int | list[Any] | dict[str, Any] = 1,
        gradient_steps: int = 1,
        optimize_memory_usage: bool = False,
        action_noise: ActionNoiseConfig | dict[str, Any] | None = None,
        random_exploration: float = 0.0,
        actor_learning_rate: ScheduleValue | None = None,
        optimizer: str = "adam",
        betas: list[float] = ...,
        weight_decay: float | None = None,
        n_critics: int = 2,
        n_target_critics: int | None = None,
        actor_critics: str | None = None,
        policy_delay: int = 1,
        critic_reset_every: int | list[int] | None = None,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        ent_coef: float | str = "auto",
        target_entropy: float | str = "auto",
        target_update_interval: int = 1,
        use_sde_at_warmup: bool = False,
        n_quantiles: int = 25,
        top_quantiles_to_drop_per_net: int = 2,
    ) -> None: ...

class TRPO(_TRPO):
    """Trust region policy optimisation: conjugate gradient and line search, with SB3-Contrib's defaults.

    Hyperparameters:
        learning_rate (ScheduleValue, default 0.001, ≥ 0): step size of the critic's optimizer
        n_steps (int, default 2048, ≥ 1): steps of each environment in a rollout [steps]
        gamma (float, default 0.99, ≥ 0, ≤ 1): discount factor
        max_grad_norm (float | None, default None, > 0): bound of the norm of the critic's gradient;
            null: none
        chunk_length (int | None, default None, ≥ 1): length of the sequences that a recurrent policy
            learns from, which divides n_steps; null: the longest up to 32 [steps]
        reward_model (dict[str, Any] | None, default None): rewards of your own, a `RewardModel`:
            {_target_: module.Class, …}; null: the environment's
        intrinsic (RNDConfig | None, default None): rewards for exploring; `intrinsic=rnd` sets it
        gae_lambda (float, default 0.95, ≥ 0, ≤ 1): bias (0) against variance (1) of the advantages; 1:
            n-step returns
        normalize_advantage (bool, default True): standardise the advantages of each batch that is
            learned from
        ent_coef (float, default 0.0, ≥ 0): weight of the entropy bonus
        value_normalization (bool, default False): the critic learns in units of the running mean and
            standard deviation of returns (PopArt); for large or changing rewards
        use_sde (bool, default False): state-dependent exploration (gSDE), for Box actions
        sde_sample_freq (int, default -1, ≥ -1): steps after which gSDE draws a new function; -1: when a
            collection starts [steps]
        target_kl (float, default 0.01, > 0): bound of the mean KL divergence to the old policy, summed
            over the parts of an action
        cg_max_steps (int, default 15, ≥ 1): iterations of the conjugate gradient method
        cg_damping (float, default 0.1, ≥ 0): multiple of the identity added to the Fisher matrix
        line_search_max_iter (int, default 10, ≥ 1): lengths of the step that are tried
        line_search_shrinking_factor (float, default 0.8, > 0, < 1): length of each try as a part of the
            one before
        line_search_kl_factor (float, default 1.0, > 0): KL divergence up to which a try is accepted, as
            a multiple of target_kl
        sub_sampling_factor (int, default 1, ≥ 1): Fisher products take one of so many steps, drawn at
            random; 1: all
        n_critic_updates (int, default 10, ≥ 1): passes of the critic over each rollout
        batch_size (int, default 128, ≥ 1): size of the critic's minibatches [steps]
        adam_eps (float, default 1e-05, > 0): epsilon of the critic's Adam
    """
    def __init__(
        self,
        policy: Policy = "MlpPolicy",
        env: str | EnvConfig | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | Any = None,
        learning_rate: ScheduleValue = 0.001,
        *,
        n_envs: int | None = None,
        seed: int | None = None,
        device: str = "auto",
        compile: bool | str = "auto",
        threads: int | str = "auto",
        verbose: int = 0,
        tensorboard_log: str | Path | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        config: TRPOConfig | None = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        n_steps: int = 2048,
        gamma: float = 0.99,
        max_grad_norm: float | None = None,
        chunk_length: int | None = None,
        reward_model: dict[str, Any] | None = None,
        intrinsic: RNDConfig | None = None,
        gae_lambda: float = 0.95,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        value_normalization: bool = False,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        target_kl: float = 0.01,
        cg_max_steps: int = 15,
        cg_damping: float = 0.1,
        line_search_max_iter: int = 10,
        line_search_shrinking_factor: float = 0.8,
        line_search_kl_factor: float = 1.0,
        sub_sampling_factor: int = 1,
        n_critic_updates: int = 10,
        batch_size: int = 128,
        adam_eps: float = 1e-05,
    ) -> None: ...

def load(path: str | Path, env: Any = None, *, trust: bool = False, **options: Any) -> Algorithm:
    """Rebuild an agent from its folder or zip; any algorithm.

    ``options`` are the constructor's (n_envs, seed, device, …), and hyperparameters that shall be others from
    now on. Nothing from the files is executed unless ``trust`` is given. Raises `ZooError` for missing or
    damaged files, for options that there are not, and for spaces that differ from ``env``'s.
    """
