"""Every mistake in a command line is one short message that names the nearest right thing, and status 2."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sb3_contrib
import stable_baselines3

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError

CARTPOLE = "algo=ppo2 env=CartPole-v1"

MISTAKES = {
    "train": "which algo and env? for example: algo=ppo2 env=CartPole-v1",
    "train algo=ppo2": "which env?",
    "train env=CartPole-v1 algo.gamma=0.9": "which algo?",
    f"train {CARTPOLE} eval_freq=10": "Stable-Baselines' `eval_freq` is `callbacks.eval.every` here",
    f"train {CARTPOLE} n_eval_episodes=10": "is `callbacks.eval.n_episodes` here",
    f"train {CARTPOLE} save_freq=10": "is `callbacks.checkpoint.every` here",
    f"train {CARTPOLE} track=true": "is `logger=wandb` here",
    f"train {CARTPOLE} trained_agent=x": "is `init_from` here",
    f"train {CARTPOLE} hyperparams=x": "are keys of `algo` here",
    f"tune {CARTPOLE} conf_file=x": "is `tuned` here",
    f"train {CARTPOLE} vec_env=subproc": "is `env.vectorization` here",
    f"enjoy {CARTPOLE} stochastic=true": "is `deterministic=false` here",
    f"enjoy {CARTPOLE} folder=logs": "is `runs_dir` here",
    f"enjoy {CARTPOLE} load_best=true": "the best agent is taken anyway",
    f"evaluate {CARTPOLE} n_eval_episodes=10": "unknown key `n_eval_episodes`; did you mean `n_episodes`?",
    f"train {CARTPOLE} algo.n_step=64": "did you mean `algo.n_steps`?",
    "train algo=dqn env=CartPole-v1 algo.n_step=3": "is `memory.n_step` here",
    "pull fro=x/y": "unknown key `fro`; did you mean `from`?",
    "pull nothing_near=x/y": "known: from, revision, to",
    "check": "which env?",
    "train algo=ppo_lstm": "unknown algo 'ppo_lstm': it is algo=recurrent_ppo here",
    "train algo=ppo2 policy.enable_critic_lstm=false": "`policy.critic_lstm=separate`",
    "train algo=ppo2 policy.shared_lstm=true": "`policy.critic_lstm=detached`",
    "train algo=ppo2 use_masking=false": "`env.mask_actions=false`",
    "train algo=ppo3": "unknown algo 'ppo3'; did you mean 'ppo' or 'ppo1' or 'ppo2'?",
    "train algo=dnq env=CartPole-v1": "did you mean 'dqn'?",
    f"train {CARTPOLE} algo.learning_rat=1": "`algo.learning_rat`; did you mean `algo.learning_rate`?",
    f"train {CARTPOLE} tuned=null": "to leave tuned values out: tuned=none",
    f"train {CARTPOLE} tuned=ppo2/CartPol-v1": "file ppo2/CartPol-v1; did you mean 'ppo2/CartPole-v1'?",
    f"train {CARTPOLE} tuned=nowhere/mine.yaml": "there is no tuned file nowhere/mine.yaml",
    f"train {CARTPOLE} tuned=nothing": "there is no tuned file nothing (tuned=none leaves tuned values out)",
    "train algo=ddpg env=Pendulum-v1 algo.normalize_observations=true": "is `env.normalize` here",
    f"train {CARTPOLE} algo.noptepochs=4": "Stable-Baselines' `noptepochs` is `algo.n_epochs` here",
    "train algo=td3 env=Pendulum-v1 algo.action_noise={sigma:0.5}": (
        "unknown key `algo.action_noise.sigma`: Stable-Baselines' `sigma` is `algo.action_noise.std` here"
    ),
    "train algo=ddpg env=Pendulum-v1 algo.n_critics=2": "has one critic, or none; sac, td3 and tqc have",
    f"train {CARTPOLE} +algo.foo=1": "unknown key `algo.foo`",
    f"train {CARTPOLE} algo.gamma=2": "`algo.gamma=2` is out of range; expected at least 0 and at most 1",
    f"train {CARTPOLE} algo.gamma=high": "wrong type; expected float",
    f"train {CARTPOLE} algo.learning_rate=lin_-3e-4": "`algo.learning_rate=-0.0003` is out of range",
    f"train {CARTPOLE} algo.clip_range={{start:0.2,end:-0.1}}": "`algo.clip_range=-0.1` is out of range",
    f"train {CARTPOLE} algo.learning_rate=lni_3e-4": "`algo.learning_rate`: unknown schedule 'lni'",
    f"train {CARTPOLE} n_timesteps=abc": "`n_timesteps='abc'` has the wrong type; expected int",
    f"train {CARTPOLE} algo.gamma={10**400}": "`algo.gamma=1000000",
    f"train {CARTPOLE} algo.n_steps=-{10**400}": "`algo.n_steps` is out of range; expected a whole",
    f"train {CARTPOLE} n_timesteps=0": "out of range; expected more than 0",
    f"train {CARTPOLE} n_timestep=5": "unknown key `n_timestep`; did you mean `n_timesteps`?",
    f"train {CARTPOLE} n_envs.foo=3": "`n_envs.foo` can't be set",
    f"train {CARTPOLE} compile=maybe": "`compile=maybe` is not one of auto, true, false",
    f"train {CARTPOLE} env.renew=maybe": "`env.renew=maybe` is not one of auto, true, false",
    f"train {CARTPOLE} env.normalise=true": "did you mean `env.normalize`?",
    f"train {CARTPOLE} env.normalize.gama=1": "did you mean `env.normalize.gamma`?",
    f"train {CARTPOLE} policy=MlpPolicyy": "unknown policy 'MlpPolicyy'; did you mean 'MlpPolicy'?",
    f"train {CARTPOLE} policy.netarch=[64]": "did you mean `policy.net_arch`?",
    f"train {CARTPOLE} policy.net_arch=wide": "wrong type",
    f"train {CARTPOLE} callbacks.foo=1": "unknown key `callbacks.foo`",
    f"train {CARTPOLE} callbacks.evall.every=1": "did you mean `callbacks.eval`?",
    f"train {CARTPOLE} callbacks.eval.evry=1": "did you mean `callbacks.eval.every`?",
    f"train {CARTPOLE} callbacks.eval=5": "neither null nor a mapping",
    f"train {CARTPOLE} callbacks.stop_on_reward.foo=5": "unknown key `callbacks.stop_on_reward.foo`",
    f"train {CARTPOLE} callbacks=nothing": "unknown callbacks 'nothing'",
    f"train {CARTPOLE} logger.tensrboard=true": "did you mean `logger.tensorboard`?",
    f"train {CARTPOLE} experiment=none_such": "unknown experiment 'none_such'",
    f"train {CARTPOLE} hydra/launcher=slrum": "unknown hydra/launcher 'slrum'; did you mean 'slurm'?",
    f"train {CARTPOLE} hydra.foo=1": "unknown key `hydra.foo` in Hydra's own settings",
    f"train {CARTPOLE} seed=1,2": "`seed=1,2` stands for several values: add -m",
    f"train {CARTPOLE} seed=range(3)": "`seed=range(3)` stands for several values: add -m",
    f"train {CARTPOLE} seed": "`seed` has no value; expected seed=...",
    f"train {CARTPOLE} algo.gamma=[1": "`algo.gamma=[1` can't be read: the list has no end",
    "train algo=ppo2, env=CartPole-v1": "it ends with a comma; for several values: -m algo=a,b",
    f"train {CARTPOLE} algo.gamma=${{foo}}": "Interpolation key 'foo' not found",
    f"train {CARTPOLE} resume=nowhere": "resume: there is no folder nowhere",
    f"train {CARTPOLE} init_from=nowhere resume=.": "resume: there is no run in .",
    f"train {CARTPOLE} --mutlirun": "did you mean '--multirun'?",
    "train --algo a2c": "there is no flag --algo: settings have no dashes; what is meant: zoo train algo=a2c",
    "train --n-timesteps=1e5 algo=ppo2": "what is meant: zoo train algo=ppo2 n_timesteps=1e5\n",
    "train --algo --env CartPole-v1": "what is meant: zoo train algo=... env=CartPole-v1\n",
    "train -n 5": "what is meant: zoo train n_timesteps=5\n",
    "train -z 5": "there is no flag -z; settings have no dashes: key=value (see: zoo train --help)",
    "train ppo CartPole-v1": "`ppo` has no key; what is meant: zoo train algo=ppo env=CartPole-v1\n",
    "train CartPole-v1 PPO2 seed=1": "what is meant: zoo train algo=ppo2 env=CartPole-v1 seed=1\n",
    "train algo:ppo2 env:CartPole-v1": "what is meant: zoo train algo=ppo2 env=CartPole-v1\n",
    "train algo = ppo2 env= CartPole-v1": "one without is: zoo train algo=ppo2 env=CartPole-v1\n",
    f"train {CARTPOLE} policy.net_arch=[64, 64]": f"zoo train {CARTPOLE} 'policy.net_arch=[64,64]'\n",
    "train --algo ppo --env X-v0 --track -n 9": "zoo train algo=ppo env=X-v0 logger=wandb n_timesteps=9\n",
    "train -P --algo=ppo --env=X-v0 --uuid": "zoo train algo=ppo env=X-v0 progress_bar=true\n",
    "train --algo ppo --env X-v0 --hyperparams learning_rate:0.1 policy:'MlpPolicy' n_envs:8": (
        "zoo train algo=ppo env=X-v0 algo.learning_rate=0.1 policy=MlpPolicy n_envs=8\n"
    ),
    "train --algo ppo --env X-v0 --env-kwargs g:9.8 --seed 3": (
        "zoo train algo=ppo env=X-v0 env.kwargs.g=9.8 seed=3\n"
    ),
    "train --algo ppo --env X-v0 -i old.zip --vec-env subproc": (
        "zoo train algo=ppo env=X-v0 init_from=old.zip env.vectorization=workers\n"
    ),
    "train --algo ppo --env X-v0 --optimize --n-trials 9 --sampler tpe": (
        "zoo tune algo=ppo env=X-v0 n_trials=9 sampler=tpe\n"
    ),
    "enjoy --algo ppo --env X-v0 -f logs --exp-id 3": (
        "zoo enjoy algo=ppo env=X-v0 runs_dir=logs (--exp-id has no counterpart)\n"
    ),
    "enjoy runs/ppo2/CartPole-v1/x": "what is meant: zoo enjoy agent=runs/ppo2/CartPole-v1/x\n",
    "play algo=ppo2": "unknown verb 'play'; it is `zoo enjoy` here",
    "--algo ppo": "the verb comes first, and settings have no dashes",
    f"train {CARTPOLE} learning_rate=1e-3": "it is `algo.learning_rate` here",
    f"train {CARTPOLE} algo.lr=3": "it is `algo.learning_rate` here",
    f"train {CARTPOLE} pretrain.n_epochs=20 pretrain.n_episodes=3": (
        "`pretrain.n_epochs=20` does nothing by itself: it needs pretrain.dataset=PATH"
    ),
    f"train {CARTPOLE} policy.gae_lambda=1": "it is `algo.gae_lambda` here",
    f"train {CARTPOLE} total_timesteps=1e5": "it is `n_timesteps` here",
    f"train {CARTPOLE} env_kwargs.g=9": "is `env.kwargs.g` here",
    f"train {CARTPOLE} env.g=9": "what the environment itself takes: `env.kwargs.g`",
    f"train {CARTPOLE} eval.every=9": "it is `callbacks.eval.every` here",
    f"train {CARTPOLE} threshold=9": "it is `callbacks.stop_on_reward.threshold` here",
    f"train {CARTPOLE} buffer_size=9": "of acer, ddpg, dqn, qrdqn, sac, td3, tqc, not of ppo2",
    f"train {CARTPOLE} max_episode_step=9": "did you mean `env.max_episode_steps`?",
    f"evaluate {CARTPOLE} learning_rate=9": "unknown key `learning_rate`; known: agent,",
    f"train {CARTPOLE} --cfg yob": "invalid choice: 'yob'",
    f"train -m {CARTPOLE} algo.gamma=0.9,2": "`algo.gamma=2` is out of range",
    "train -m algo=ppo2,ppo3 env=CartPole-v1": "unknown algo 'ppo3'",
    "train +algo=ppo2 env=CartPole-v1": "`algo` is in the config already: set it without the +",
    "train algoo=ppo2": "unknown key `algoo`; did you mean `algo`?",
    "train algo=3": "takes the name of one option",
    "train algo=null env=CartPole-v1": "takes the name of one option",
    "train ~algo env=CartPole-v1": "can't be left out",
    "evaluate n_episode=5": "unknown key `n_episode`; did you mean `n_episodes`?",
    "enjoy record=perhaps": "`record='perhaps'` has the wrong type; expected bool",
    "trian algo=ppo2": "unknown verb 'trian'; did you mean 'train'?",
    "algo=ppo2 env=CartPole-v1": "the verb comes first",
}


PEERS_NAMES = {
    "policy": "it stands alone, `policy=…`",
    "env": "it stands alone, `env=…`",
    "seed": "it stands alone, `seed=…`",
    "device": "it stands alone, `device=…`",
    "n_envs": "it stands alone, `n_envs=…`",
    "n_timesteps": "it stands alone, `n_timesteps=…`",
    "verbose": "`verbose` of zoo train says what is printed",
    "tensorboard_log": "`logger.tensorboard=true` of zoo train",
    "stats_window_size": "always those of the last 100",
    "_init_setup_model": "always made at once",
    "replay_buffer_class": "is `memory` here",
    "replay_buffer_kwargs": "is `memory` here",
    "n_steps": "is `memory.n_step` here",
    "n_sampled_goal": "is `memory.hindsight.n_sampled_goal` here",
    "goal_selection_strategy": "is `memory.hindsight.goal_selection_strategy` here",
    "handle_timeout_termination": "always told from those that end",
    "copy_info_dict": "is `memory.hindsight.copy_info_dict` here",
    "online_sampling": "always chosen when a batch is drawn",
    "max_episode_length": "`env.max_episode_steps`",
    "policy_kwargs": "is `policy` here",
    "net_arch": "is `policy.net_arch` here",
    "activation_fn": "is `policy.activation` here",
    "features_extractor_class": "`policy.encoder=",
    "features_extractor_kwargs": "`policy.encoder=",
    "share_features_extractor": "is `policy.share_encoder` here",
    "normalize_images": "always divided by 255",
    "optimizer_class": "the optimizer is the algorithm's",
    "optimizer_kwargs": "the optimizer is the algorithm's",
    "log_std_init": "is `policy.log_std_init` here",
    "use_expln": "is `policy.use_expln` here",
    "clip_mean": "is `policy.clip_mean` here",
    "full_std": "is `policy.full_std` here",
    "squash_output": "is `policy.squash_output` here",
    "ortho_init": "is `policy.ortho_init` here",
    "sde_net_arch": "a function of the actor's last features",
    "noise_type": "is `{where}.action_noise.type` here",
    "noise_std": "is `{where}.action_noise.std` here",
    "normalize": "is `env.normalize` here",
    "frame_stack": "is `env.frame_stack` here",
    "env_wrapper": "is `env.wrappers` here",
    "env_kwargs": "is `env.kwargs` here",
    "vec_env_wrapper": "is `env.wrappers` here",
    "vec_env_class": "is `env.vectorization` here",
    "monitor_kwargs": "is `env.info_keywords` here",
    "callback": "is `callbacks` here",
}
"""What Stable-Baselines3, SB3-Contrib and their Zoo call by names that no off-policy algorithm has here."""

ARGUMENTS_OF_THE_CONSTRUCTOR = ("policy", "env", "seed", "device", "n_envs")


def test_every_argument_of_the_peers_is_known_or_told_of() -> None:
    peers = {"dqn": (stable_baselines3.DQN, zoo.DQN), "sac": (stable_baselines3.SAC, zoo.SAC)}
    peers |= {"td3": (stable_baselines3.TD3, zoo.TD3), "ddpg": (stable_baselines3.DDPG, zoo.DDPG)}
    peers |= {"tqc": (sb3_contrib.TQC, zoo.TQC), "qrdqn": (sb3_contrib.QRDQN, zoo.QRDQN)}
    for theirs, ours in peers.values():
        policy = theirs.policy_aliases["MlpPolicy"]
        names = [*inspect.signature(theirs).parameters, *inspect.signature(policy).parameters]
        known = {field.name for field in dataclasses.fields(ours.config_class)} | set(PEERS_NAMES)
        known.add("n_critics")
        spaces = {"observation_space", "action_space", "lr_schedule"}
        assert set(names) - known - spaces == set()


@pytest.mark.parametrize("name", PEERS_NAMES)
def test_a_name_of_the_peers_gets_the_place_where_that_stands_here(
    name: str, capsys: pytest.CaptureFixture[str], working_folder: Path
) -> None:
    told = PEERS_NAMES[name].format(where="algo")
    for value in ("1", "lambda", *(["dict(a=[1])"] if name != "n_steps" else [])):
        assert status_of(["train", "algo=td3", "env=Pendulum-v1", f"algo.{name}={value}"]) == 2
        printed = capsys.readouterr().err
        assert told in printed
        assert printed.count("\n") == 1
        assert "known:" not in printed
    if name not in ARGUMENTS_OF_THE_CONSTRUCTOR:
        with pytest.raises(ZooError, match=re.escape(PEERS_NAMES[name].format(where="td3"))):
            zoo.TD3("MlpPolicy", "Pendulum-v1", **{name: None})


@pytest.mark.parametrize("value", ['(1,"episode")', "(1,episode)", "(1, 'episode')"])
def test_a_list_in_parentheses_gets_one_in_brackets_that_can_be_typed(
    value: str, capsys: pytest.CaptureFixture[str], working_folder: Path
) -> None:
    assert status_of(["train", "algo=td3", "env=Pendulum-v1", f"algo.train_freq={value}"]) == 2
    told = re.search("'(algo.train_freq=.*)'\n", capsys.readouterr().err)
    assert told is not None
    config = zoo.compose("train", ["algo=td3", "env=Pendulum-v1", told[1]])
    assert config.algo.train_freq == [1, "episode"]


@pytest.mark.parametrize("command", MISTAKES)
def test_mistake_is_one_message(
    command: str, capsys: pytest.CaptureFixture[str], working_folder: Path
) -> None:
    assert status_of(command.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("zoo: ")
    assert MISTAKES[command] in printed.err
    assert printed.err.count("\n") == 1
    assert len(printed.err) < 400
    assert printed.out == ""
    for hydras_own in ("append", "Traceback", "HYDRA_FULL_ERROR", "override_grammar"):
        assert hydras_own not in printed.err
    assert [
        path for path in working_folder.rglob("*") if path.name != "multirun.yaml" and path.is_file()
    ] == []


@pytest.mark.parametrize("mistake", ["n_timestep=5", "env.normalise=true", "policy.netarch=[64]"])
def test_wrong_name_is_told_before_torch_is_imported(mistake: str) -> None:
    code = (
        "import sys; from zoo.cli import status_of;"
        f"status = status_of(['train', *{CARTPOLE.split()!r}, {mistake!r}]);"
        "print(status, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "did you mean" in done.stderr
    assert done.stdout == "2 False\n"


def test_damaged_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("hyperparams/ppo2/CartPole-v1.yaml")
    file.parent.mkdir(parents=True)
    for text in ("algo: [1", "- a\n- list", "a: 1\na: 2"):
        file.write_text(text)
        assert status_of(["train", *CARTPOLE.split()]) == 2
        message = capsys.readouterr().err
        assert "hyperparams/ppo2/CartPole-v1.yaml" in message
        assert "Traceback" not in message


def test_missing_tuned_file_names_its_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tuned").mkdir()
    Path("tuned/Cartpole.yaml").write_text("n_envs: 3")
    assert status_of(["train", *CARTPOLE.split(), "tuned=tuned/Carpole.yaml"]) == 2
    assert "tuned/Carpole.yaml; did you mean 'tuned/Cartpole.yaml'?" in capsys.readouterr().err


def test_mistake_in_a_tuned_file_names_key_and_file(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("hyperparams/ppo2/CartPole-v1.yaml")
    file.parent.mkdir(parents=True)
    file.write_text("algo: {learning_rat: 1}")
    assert status_of(["train", *CARTPOLE.split()]) == 2
    assert "did you mean `algo.learning_rate`?" in capsys.readouterr().err


def test_debug_variable_shows_where_the_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.errors import ZooError

    monkeypatch.setenv("ZOO_DEBUG", "1")
    with pytest.raises(ZooError, match="which algo"):
        status_of(["train"])


def test_what_peers_learn_takes_beside_is_told() -> None:
    model = zoo.PPO2("MlpPolicy", "CartPole-v1", compile=False, threads=1)
    for name, expected in (
        ("progress_bar", "in Python a ProgressBarCallback"),
        ("log_interval", "`logger.every` of zoo train"),
        ("tb_log_name", "in Python a LoggingCallback"),
        ("calback", "did you mean `learn.callback`?"),
    ):
        with pytest.raises(ZooError, match=f"unknown key `learn.{name}`") as caught:
            model.learn(64, **{name: None})
        assert expected in str(caught.value)


def test_settings_of_pretraining_in_an_experiment_wait_for_data() -> None:
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/mine.yaml").write_text("# @package _global_\npretrain:\n  n_epochs: 3\n")
    mine = ["algo=ppo2", "env=CartPole-v1", "experiment=mine"]
    assert zoo.compose("train", mine).pretrain.n_epochs == 3
    with pytest.raises(
        ZooError, match=r"`pretrain\.patience=2` does nothing .* needs pretrain\.dataset=PATH"
    ):
        zoo.compose("train", [*mine, "pretrain.patience=2"])
    for overrides in (["pretrain.patience=10"], ["pretrain.patience=2", "pretrain.dataset=expert.npz"]):
        zoo.compose("train", [*mine, *overrides])
