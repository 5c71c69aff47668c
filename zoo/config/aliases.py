"""Names that Stable-Baselines and other libraries have, and the answers to names that there are not."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import ZooError

_ENCODER = "`policy.encoder={_target_: my_encoder.Narrow, width: 32}` is a class of yours, with its arguments"

_TOLD = "in Python a LoggingCallback"

NAMES = {
    # Stable-Baselines
    "lam": "algo.gae_lambda",
    "nminibatches": "algo.n_minibatches",
    "noptepochs": "algo.n_epochs",
    "cliprange": "algo.clip_range",
    "cliprange_vf": "algo.clip_range_vf",
    "lr_schedule": "algo.learning_rate",
    "alpha": "algo.rms_prop_decay",
    "epsilon": "algo.rms_prop_eps",
    "rprop_alpha": "algo.rms_prop_decay",
    "rprop_epsilon": "algo.rms_prop_eps",
    "double_q": "algo.double",
    "target_network_update_freq": "algo.target_update_interval",
    "param_noise": "algo.parameter_noise",
    "timesteps_per_batch": "algo.n_steps",
    "max_kl": "algo.target_kl",
    "entcoeff": "algo.ent_coef",
    "vf_stepsize": "algo.learning_rate",
    "vf_iters": "algo.n_critic_updates",
    "cg_iters": "algo.cg_max_steps",
    "adam_epsilon": "algo.adam_eps",
    "schedule": "algo.learning_rate",
    "optim_stepsize": "algo.learning_rate",
    "optim_batchsize": "algo.batch_size",
    "optim_epochs": "algo.n_epochs",
    "timesteps_per_actorbatch": "algo.n_steps",
    "clip_param": "algo.clip_range",
    "nb_rollout_steps": "algo.train_freq",
    "nb_train_steps": "algo.gradient_steps",
    "actor_lr": "algo.actor_learning_rate",
    "critic_lr": "algo.learning_rate",
    "clip_norm": "algo.max_grad_norm",
    "memory_limit": "algo.buffer_size",
    "sigma": "algo.action_noise.std",
    "initial_stddev": "algo.parameter_noise.initial_std",
    "desired_action_stddev": "algo.parameter_noise.desired_action_std",
    "adoption_coefficient": "algo.parameter_noise.adaptation_coefficient",
    "hidden_size_adversary": "algo.d_net_arch",
    "adversary_entcoeff": "algo.d_ent_coef",
    "d_stepsize": "algo.d_learning_rate",
    "traj_limitation": "algo.n_episodes",
    "expert_dataset": "dataset",
    "expert_path": "dataset",
    "prioritized_replay": "memory.prioritized",
    "prioritized_replay_alpha": "memory.prioritized.alpha",
    "prioritized_replay_beta0": "memory.prioritized.beta",
    "prioritized_replay_beta_iters": "memory.prioritized.beta_fraction",
    "prioritized_replay_eps": "memory.prioritized.epsilon",
    "normalize_observations": "env.normalize",
    "observation_range": "env.normalize.clip_obs",
    "n_lstm": "policy.lstm_hidden_size",
    # Stable-Baselines3 and SB3-Contrib
    "policy_kwargs": "policy",
    "activation_fn": "policy.activation",
    "squash_output": "policy.squash_output",
    "share_features_extractor": "policy.share_encoder",
    "n_steps": "memory.n_step",
    "replay_buffer_class": "memory",
    "replay_buffer_kwargs": "memory",
    "callback": "callbacks",
    "total_timesteps": "n_timesteps",
    "eval_freq": "callbacks.eval.every",
    "n_eval_episodes": "callbacks.eval.n_episodes",
    "save_freq": "callbacks.checkpoint.every",
    "reward_threshold": "callbacks.stop_on_reward.threshold",
    "start_index": "seed",
    "monitor_kwargs": "env.info_keywords",
    "wrapper_class": "env.wrappers",
    "wrapper_kwargs": "env.wrappers",
    "vec_env_class": "env.vectorization",
    "vec_env_cls": "env.vectorization",
    "vec_env_kwargs": "env.vectorization",
    # rl_zoo3
    "noise_type": "algo.action_noise.type",
    "noise_std": "algo.action_noise.std",
    "normalize_kwargs": "env.normalize",
    "env_kwargs": "env.kwargs",
    "env_wrapper": "env.wrappers",
    "vec_env_wrapper": "env.wrappers",
    "vec_env": "env.vectorization",
    "eval_episodes": "callbacks.eval.n_episodes",
    "n_eval_envs": "callbacks.eval.n_envs",
    "log_folder": "runs_dir",
    "folder": "runs_dir",
    "trained_agent": "init_from",
    "conf_file": "tuned",
    "hyperparams": "algo",
    "num_threads": "threads",
    "progress": "progress_bar",
    "track": "logger.wandb",
    "wandb_project_name": "logger.wandb.project",
    "wandb_entity": "logger.wandb.entity",
    "study_name": "study",
    "max_total_trials": "n_trials",
    "load_checkpoint": "checkpoint",
    "stochastic": "deterministic",
    "no_render": "render",
    "load_best": "of a run the best agent is taken anyway",
    # Other libraries
    "lr": "algo.learning_rate",
    "discount": "algo.gamma",
    "polyak": "algo.tau",
    "entropy_coef": "algo.ent_coef",
    "value_coef": "algo.vf_coef",
    "clip_coef": "algo.clip_range",
    "clip_ratio": "algo.clip_range",
    "clip_vloss": "algo.clip_range_vf",
    "norm_adv": "algo.normalize_advantage",
    "update_epochs": "algo.n_epochs",
    "num_minibatches": "algo.n_minibatches",
    "num_steps": "algo.n_steps",
    "rollout_length": "algo.n_steps",
    "policy_frequency": "algo.policy_delay",
    "replay_size": "algo.buffer_size",
    "start_steps": "algo.learning_starts",
    "target_network_frequency": "algo.target_update_interval",
    "hidden_sizes": "policy.net_arch",
    "time_limit": "env.max_episode_steps",
    "expert": "dataset",
    "demonstrations": "dataset",
    "num_envs": "n_envs",
    "timesteps": "n_timesteps",
    # One section's, one algorithm's or one function's
    "predict.observation": "observations",
    "predict.mask": "episode_start",
    "trpo.n_epochs": "algo.n_critic_updates",
    "acer.n_epochs": "algo.replay_ratio",
    **{f"{name}.n_epochs": "algo.gradient_steps" for name in ("dqn", "qrdqn", "ddpg", "td3", "sac", "tqc")},
    **{f"{name}.n_epochs": "one step is taken per rollout" for name in ("a2c", "acktr")},
    "bc.n_epochs": "n_timesteps, the observations that it learns from in all",
    "bc.gamma": "it learns no values",
    "ars.gamma": "returns are not discounted",
    "ars.batch_size": "an update has n_delta × n_eval_episodes episodes",
    "ars.n_steps": "an update has n_delta × n_eval_episodes episodes",
    "evaluate_policy.callback": "evaluate(model, env, on_episode=…) calls a function with each episode",
    "evaluate_policy.reward_threshold": "it returns the mean and the deviation: compare the mean",
    **{
        f"EvalCallback.{name}": "it is `EvalCallback.run`, the folder of best_agent and evaluations.npz"
        for name in ("best_model_save_path", "log_path")
    },
    # What is not chosen here
    "tensorboard_log": f"`logger.tensorboard=true` of zoo train writes what TensorBoard reads, {_TOLD}",
    "progress_bar": "`progress_bar` of zoo train shows a bar, in Python a ProgressBarCallback",
    "verbose": f"`verbose` of zoo train says what is printed, {_TOLD}",
    "log_interval": f"`logger.every` of zoo train says how often something is logged, {_TOLD}",
    "tb_log_name": f"what TensorBoard reads is called after the run's folder, {_TOLD} says where it is",
    "stats_window_size": "means over episodes are always those of the last 100",
    "handle_timeout_termination": "episodes that are cut short are always told from those that end",
    "online_sampling": "goals are always chosen when a batch is drawn",
    "max_episode_length": "memories need not know how long episodes are; `env.max_episode_steps` limits them",
    "features_extractor_class": _ENCODER,
    "features_extractor_kwargs": _ENCODER,
    "normalize_images": "pictures of bytes are always divided by 255",
    "optimizer_class": "the optimizer is the algorithm's: Adam, or RMSprop (a2c's `algo.use_rms_prop`)",
    "optimizer_kwargs": "the optimizer is the algorithm's; a2c has `rms_prop_eps` and `rms_prop_decay`",
    "async_eigen_decomp": "acktr's inverses are made between updates, after every `kfac_update` of them",
    "n_critics": "this algorithm has one critic, or none; sac, td3 and tqc have several",
    "enable_critic_lstm": "`policy.critic_lstm=separate` gives the critic a memory, `none` gives it none",
    "shared_lstm": "`policy.critic_lstm=detached` lets the critic read the actor's memory",
    "use_masking": "`env.mask_actions=false` leaves masks out; in Python make_vec_env(mask_actions=False)",
    "mask_actions": "it is `env.mask_actions`; in Python make_vec_env(mask_actions=False)",
    "custom_objects": "nothing of an agent's files is executed; its spaces are those of env=",
    "print_system_info": "zoo doctor says what a bug report needs",
    "force_reset": "environments are reset when an agent begins to learn",
    "sde_net_arch": "noise is a function of the actor's last features",
    "render": "zoo enjoy opens a window; in Python make_vec_env(env, render_mode='human')",
    **dict.fromkeys(
        ("callback_on_new_best", "callback_after_eval"),
        "StopTrainingOnRewardThreshold(evaluation, …) and others stand behind the EvalCallback in one list",
    ),
    "warn": "episodes are always those of the environment as the agent sees it, with their true returns",
    "eval_env": "an EvalCallback has the environments to evaluate in",
    "save_path": "the first argument is the folder",
    "name_prefix": "a checkpoint replaces the one before it",
    "save_replay_buffer": "a checkpoint always holds the memory",
    "save_vecnormalize": "a checkpoint, and an agent, always hold the statistics",
    "_init_setup_model": "networks are always made at once",
}
"""Names of other libraries: each with its path in the config here, or with what there is instead."""

ALGORITHMS = {
    **dict.fromkeys(("ppo_lstm", "ppo-lstm", "lstm_ppo", "recurrentppo"), "recurrent_ppo"),
    **dict.fromkeys(("ppo_mask", "ppo-mask", "mask_ppo", "maskableppo"), "maskable_ppo"),
    **dict.fromkeys(("qr_dqn", "qr-dqn"), "qrdqn"),
}
"""What algorithms are called elsewhere."""

ENV_ATTRIBUTES = {
    "env_method": "env.call(name, *arguments)",
    "seed": "env.reset(seed=…)",
    **dict.fromkeys(("step_async", "step_wait"), "env.step(actions)"),
    "venv": "env.env",
    "get_images": "env.render()",
    **dict.fromkeys(
        ("get_original_obs", "get_original_reward"), "what reset and step of model.get_env() return"
    ),
    "normalize_obs": "model.get_vec_normalize_env().normalize_observations(observations)",
    "normalize_reward": "model.get_vec_normalize_env().normalize_rewards(rewards)",
    "unnormalize_obs": "model.get_vec_normalize_env().unnormalize_obs(observations)",
    "unnormalize_reward": "model.get_vec_normalize_env().unnormalize_reward(rewards)",
    "obs_rms": "model.get_vec_normalize_env().moments",
    "ret_rms": "model.get_vec_normalize_env().return_moments",
    "norm_obs": "normalize={'observations': …} of make_vec_env",
    "norm_reward": "normalize={'rewards': …} of make_vec_env",
    "save": "model.save(path), which holds the statistics",
    "set_venv": "zoo.load(path, env)",
}
"""What environments, and what normalises them, have elsewhere, and what is meant here."""

ATTRIBUTES = {
    "logger": "model.record(name, value); a LoggingCallback writes what is recorded",
    "env": "model.get_env()",
    "rollout_buffer": "model.memory",
    "replay_buffer": "model.memory",
    "ep_info_buffer": "model.recent_episodes",
    "policy_class": "type(model.policy)",
    "policy_kwargs": "model.policy_config",
    "verbose": "verbose= of zoo train; in Python callbacks say what is printed",
    "lr_schedule": "model.schedules['learning_rate']",
    "save_replay_buffer": "write_checkpoint(folder, model), CheckpointCallback, of zoo.training.checkpoint",
    "load_replay_buffer": "restore(read_checkpoint(folder), model) of zoo.training.checkpoint",
    "set_logger": "LoggingCallback(every, [ConsoleLogger(), CsvLogger(path)]) in learn(callback=…)",
    "set_random_seed": "seed= of the constructor",
}
"""What models have elsewhere, and what is meant here."""

CLOSE = 0.6
"""How alike two names are from which one may be meant by the other."""

VERY_CLOSE = 0.8
"""From which a name of the same section is meant, whatever there may be in others."""

MOST_PLACES = 6
"""Places of one name that a message can list."""


class UnknownKeyError(ZooError):
    """A key that its section does not have; `placed` looks for it in others."""

    key: str
    known: Sequence[str]
    section: str
    rest: str
    """What was written behind the key: ``.g`` of ``env_kwargs.g``."""
    is_answered: bool
    """Whether the message names what is meant, so that there is no need to look further."""


def unknown_key(
    key: str, known: Sequence[str], section: str, *, rest: str = "", note: str = ""
) -> UnknownKeyError:
    """Return the error for a key that ``section`` does not have, naming the right one if that is there.

    ``section`` is the path of a config in the whole, "" at the top; ``rest`` is what was written
    behind the key; ``note`` ends a list of known keys.
    """
    hint = _renamed(key, known, section, rest) or _near_here(key, known, section, VERY_CLOSE)
    near = hint or _near_here(key, known, section, CLOSE)
    all_known = f"; known: {', '.join(sorted(known))}{note}"
    found = UnknownKeyError(f"unknown key `{_path(section, key)}`{near or all_known}")
    found.key, found.known, found.section, found.rest = key, known, section, rest
    found.is_answered = bool(hint)
    return found


def refuse_arguments(unknown: Iterable[str], function: str, known: Sequence[str]) -> None:
    """Raise `ZooError` for the first argument that a function does not take."""
    for name in unknown:
        raise unknown_key(name, known, function)


class AnswersNames:
    """Answers attributes that environments have elsewhere with what is meant here."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = f"; here it is {ENV_ATTRIBUTES[name]}" if name in ENV_ATTRIBUTES else ""
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")


class RefusesNames(AnswersNames):
    """Refuses them, too, where somebody sets them; not for what is set in each step."""

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            if name in ENV_ATTRIBUTES and not hasattr(type(self), name):
                raise ZooError(
                    f"{type(self).__name__}.{name} would do nothing; here it is {ENV_ATTRIBUTES[name]}"
                )
            super().__setattr__(name, value)


def placed(error: UnknownKeyError, keys: Sequence[str], others: Callable[[], str]) -> ZooError:
    """Return the error with a hint at the whole config, whose keys are ``keys``, such as ``algo.gamma``.

    ``others`` returns what to say of a key that is not among them, or "". A hint that is sure stays.
    """
    if error.is_answered:
        return error
    path = _path(error.section, error.key)
    places = [each for each in keys if _last(each) == error.key and each != path]
    is_of_algorithms = error.section == "algo" or places == [f"pretrain.{error.key}"]
    hint = (
        (others() if is_of_algorithms else "")
        or _elsewhere(error, keys, places)
        or _near_here(error.key, error.known, error.section, CLOSE)
        or others()
        or _near_anywhere(error.key, keys)
    )
    return ZooError(f"unknown key `{path}`{hint}") if hint else error


def _path(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _renamed(key: str, known: Sequence[str], section: str, rest: str) -> str:
    """Return the hint for a name of another library whose place is known without looking at all keys."""
    place = NAMES.get(_path(section, key)) or NAMES.get(key, "")
    if " " in place:
        return f": {place}"
    top, _, within = place.partition(".")
    for name in (within, _last(place)):
        if name and name.partition(".")[0] in known and (section or top not in known):
            return f": it is `{_path(section, name)}{rest}` here"
    is_here = top in known if not section else top != "algo" and place != _path(section, key)
    if top == "memory" and known and not {"buffer_size", "memory"} & set(known):
        is_here = False
    return f": it is `{place}{rest}` here" if place and is_here else ""


def _elsewhere(error: UnknownKeyError, keys: Sequence[str], places: Sequence[str]) -> str:
    """Return the hint for a name that is right, but stands elsewhere.

    One that stands at the top is that; at the top a hyperparameter's name is that: others are rarer.
    """
    of_algorithm = [each for each in places if each.startswith("algo.") and not error.section]
    place = NAMES.get(error.key, "")
    if error.key in places:
        return f": `{error.key}` is a setting by itself, as in zoo train {error.key}=…"
    if len(of_algorithm) == 1:
        places = of_algorithm
    elif not places and place in keys:
        places = [place]
    fitting = [each + error.rest for each in places] if len(places) <= MOST_PLACES else []
    return f": it is {_listed(fitting)} here" if fitting else ""


def _near_here(key: str, known: Sequence[str], section: str, cutoff: float) -> str:
    near = _nearest(key, known, cutoff)
    return f"; did you mean `{_path(section, near)}`?" if near else ""


def _near_anywhere(key: str, keys: Sequence[str]) -> str:
    name = _nearest(key, {_last(each) for each in keys}, CLOSE)
    places = [each for each in keys if _last(each) == name]
    return f"; did you mean {_listed(places)}?" if 0 < len(places) <= MOST_PLACES else ""


def _nearest(key: str, names: Collection[str], cutoff: float) -> str:
    by_lower_case = {name.lower(): name for name in sorted(names)}
    found = difflib.get_close_matches(key.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[found[0]] if found else ""


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _listed(places: Sequence[str]) -> str:
    *others, last = (f"`{place}`" for place in places)
    return f"{', '.join(others)} or {last}" if others else last
