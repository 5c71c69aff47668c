"""What a config is put together from, and which value wins."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.config.fields import build, defaults
from zoo.config.paths import data_folder
from zoo.config.schema import CALLBACKS, SETTINGS
from zoo.errors import ZooError
from zoo.policies.config import POLICIES, PolicyConfig


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


CARTPOLE = ["algo=ppo2", "env=CartPole-v1"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_without_tuned_values_hyperparameters_are_the_dataclass_defaults(name: str) -> None:
    config = zoo.compose("train", [f"algo={name}", "env=Nothing-v7"])
    declared = defaults(algorithm_class(name).config_class)
    assert OmegaConf.to_container(config.algo) == {"name": name, **declared}
    assert config.tuned is None


def test_command_line_beats_experiment_beats_tuned_file_beats_algorithm() -> None:
    write("hyperparams/ppo2/CartPole-v1.yaml", "algo: {gamma: 0.5, n_steps: 5, n_epochs: 5, gae_lambda: 0.5}")
    write("conf/experiment/mine.yaml", "# @package _global_\nalgo: {n_steps: 6, n_epochs: 6}")
    algo = zoo.compose("train", [*CARTPOLE, "experiment=mine", "algo.n_epochs=7"]).algo
    assert (algo.gae_lambda, algo.n_steps, algo.n_epochs, algo.vf_coef) == (0.5, 6, 7, 0.25)


def test_experiment_chooses_groups_and_needs_no_header() -> None:
    write(
        "conf/experiment/mine.yaml",
        "defaults:\n  - override /algo: a2c\n  - override /env: Pendulum-v1\nseed: 5",
    )
    config = zoo.compose("train", ["experiment=mine"])
    assert (config.algo.name, config.env.id, config.seed) == ("a2c", "Pendulum-v1", 5)
    assert config.tuned.endswith("hyperparams/a2c/Pendulum-v1.yaml")
    assert zoo.compose("train", ["experiment=mine", "algo=ppo2"]).algo.name == "ppo2"


def test_tuned_file_of_the_working_folder_comes_first() -> None:
    assert zoo.compose("train", CARTPOLE).n_envs == 8
    write("hyperparams/ppo2/CartPole-v1.yaml", "n_envs: 3")
    config = zoo.compose("train", CARTPOLE)
    assert (config.n_envs, config.tuned) == (3, "hyperparams/ppo2/CartPole-v1.yaml")


def test_tuned_values_can_be_left_out() -> None:
    config = zoo.compose("train", [*CARTPOLE, "tuned=none"])
    assert (config.tuned, config.n_envs) == ("none", 1)
    assert zoo.compose("train", ["algo=ppo2", "env=ALE/Pong-v5", "tuned=none"]).policy.name == "CnnPolicy"


def test_tuned_values_can_be_taken_from_any_file(tmp_path: Path) -> None:
    write("sub/mine.yaml", "defaults:\n  - override /policy: LnMlpPolicy\nn_envs: 3\npolicy: {net_arch: [7]}")
    for path in ("sub/mine.yaml", "./sub/mine.yaml", str(tmp_path / "sub" / "mine.yaml")):
        config = zoo.compose("train", [*CARTPOLE, f"tuned={path}"])
        assert (config.n_envs, config.policy.name, config.policy.net_arch) == (3, "LnMlpPolicy", [7])
        assert config.tuned == "sub/mine.yaml"
    config = zoo.compose("train", [*CARTPOLE, "tuned=sub/mine.yaml", "policy=MlpPolicy", "n_envs=2"])
    assert (config.n_envs, config.policy.name, config.policy.net_arch) == (2, "MlpPolicy", [7])


def test_experiment_may_choose_its_tuned_file() -> None:
    write("mine.yaml", "n_envs: 3")
    write("conf/experiment/mine.yaml", "defaults:\n  - override /tuned: mine.yaml")
    assert zoo.compose("train", [*CARTPOLE, "experiment=mine"]).tuned == "mine.yaml"


@pytest.mark.parametrize("env", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_atari_ids_share_a_tuned_file(env: str) -> None:
    config = zoo.compose("train", ["algo=ppo2", f"env={env}"])
    assert config.env.id == env
    assert config.tuned.endswith("hyperparams/ppo2/atari.yaml")
    assert config.policy.name == "CnnPolicy"
    assert config.policy.encoder == "cnn"


@pytest.mark.parametrize("file", ["ALE/Pong-v5", "ALE-Pong-v5"])
def test_a_game_with_a_file_of_its_own_uses_that(file: str) -> None:
    write(f"hyperparams/ppo2/{file}.yaml", "n_envs: 3")
    assert zoo.compose("train", ["algo=ppo2", "env=ALE/Pong-v5"]).n_envs == 3


def test_policy_on_the_command_line_beats_that_of_the_tuned_file_and_keeps_its_sizes() -> None:
    write(
        "hyperparams/ppo2/CartPole-v1.yaml",
        "defaults:\n  - override /policy: LnMlpPolicy\npolicy: {net_arch: [32]}",
    )
    assert zoo.compose("train", CARTPOLE).policy.name == "LnMlpPolicy"
    policy = zoo.compose("train", [*CARTPOLE, "policy=MlpPolicy"]).policy
    assert (policy.name, policy.layer_norm, policy.net_arch) == ("MlpPolicy", False, [32])


def test_any_id_is_an_environment() -> None:
    for env in ("NeverSeen-v3", "my_module:MyEnv-v0", "name/space-v1", "my_module:name/Space-v1"):
        assert zoo.compose("train", ["algo=ppo2", f"env={env}"]).env.id == env


def test_own_environment_file_has_the_defaults_of_every_environment() -> None:
    write("conf/env/heavy.yaml", "id: CartPole-v1\nkwargs: {gravity: 20}\nmax_episode_steps: 50")
    write("conf/env/heavier.yaml", "defaults: [heavy, _self_]\nkwargs: {gravity: 40}")
    env = zoo.compose("train", ["algo=ppo2", "env=heavier"]).env
    assert (env.id, env.kwargs.gravity, env.max_episode_steps, env.check) == ("CartPole-v1", 40, 50, True)


def test_preset_builds_on_its_algorithm_and_has_tuned_files_of_its_own() -> None:
    config = zoo.compose("train", ["algo=ppo", "env=CartPole-v1"])
    assert (config.algo.name, config.algo.preset, config.algo.clip_range_vf) == ("ppo2", "ppo", None)
    assert config.tuned.endswith("hyperparams/ppo/CartPole-v1.yaml")
    algo = zoo.compose("train", ["algo=ppo", "env=Nothing-v0"]).algo
    assert (algo.n_steps, algo.batch_size, algo.n_epochs, algo.learning_rate) == (2048, 64, 10, 3e-4)
    assert (algo.ent_coef, algo.vf_coef, algo.gae_lambda, algo.max_grad_norm) == (0.0, 0.5, 0.95, 0.5)


def test_own_preset() -> None:
    write("conf/algo/careful.yaml", "defaults: [ppo2, _self_]\nlearning_rate: lin_1e-5")
    write("hyperparams/careful/CartPole-v1.yaml", "n_envs: 2")
    config = zoo.compose("train", ["algo=careful", "env=CartPole-v1"])
    assert (config.algo.name, config.algo.preset, config.n_envs) == ("ppo2", "careful", 2)
    assert config.algo.learning_rate == "lin_1e-5"


@pytest.mark.parametrize("name", POLICIES)
def test_policy_file_is_the_policy_of_that_name(name: str) -> None:
    config = OmegaConf.to_container(zoo.compose("train", [*CARTPOLE, f"policy={name}"]).policy)
    assert isinstance(config, dict)
    assert build(PolicyConfig, {str(key): value for key, value in config.items()}, "policy") == POLICIES[name]
    conf = data_folder("conf")
    assert conf is not None
    assert (conf / "policy" / f"{name}.yaml").exists()


def test_values_come_in_their_declared_types() -> None:
    config = zoo.compose("train", [*CARTPOLE, "n_timesteps=1e5", "algo.gamma=1", "algo.clip_range=lin_0.2"])
    assert isinstance(config.n_timesteps, int)
    assert isinstance(config.algo.gamma, float)
    assert config.algo.clip_range == "lin_0.2"


def test_mappings_take_keys_that_no_file_has() -> None:
    config = zoo.compose(
        "train",
        [
            *CARTPOLE,
            "env.kwargs.gravity=20",
            "env.normalize.gamma=0.9",
            "callbacks.stop_on_reward.threshold=475",
            "algo.learning_rate={type: cosine, start: 1e-3, end: 1e-5}",
            "callbacks.mine={_target_: my_module.Mine, every: 10}",
        ],
    )
    assert config.env.kwargs == {"gravity": 20}
    assert config.env.normalize == {"gamma": 0.9}
    assert config.callbacks.stop_on_reward == {"threshold": 475.0}
    assert config.algo.learning_rate.start == 1e-3
    assert config.callbacks.mine.every == 10


def test_callbacks_and_loggers_are_chosen_singly_or_together() -> None:
    off = dict.fromkeys(CALLBACKS)
    assert zoo.compose("train", [*CARTPOLE, "callbacks=none"]).callbacks == off
    assert zoo.compose("train", [*CARTPOLE, "callbacks=[checkpoint]"]).callbacks == {
        **off,
        "checkpoint": {"every": None, "keep": "auto"},
    }
    assert zoo.compose("train", [*CARTPOLE, "callbacks.eval=null"]).callbacks.eval is None
    logger = zoo.compose("train", [*CARTPOLE, "logger=[csv,tensorboard]"]).logger
    assert (logger.csv, logger.console, logger.wandb) == (True, False, None)
    assert not logger.tensorboard.histograms
    logger = zoo.compose("train", [*CARTPOLE, "logger=wandb", "logger.wandb.mode=offline"]).logger
    assert (logger.console, logger.wandb.project, logger.wandb.mode) == (True, "zoo", "offline")


@pytest.mark.parametrize("command", SETTINGS)
def test_every_setting_has_its_default_in_conf(command: str) -> None:
    choices = {
        "train": CARTPOLE,
        "tune": CARTPOLE,
        "check": ["env=CartPole-v1"],
        "compare": ["runs=[a,b]"],
    }.get(command, [])
    config = zoo.compose(command, choices)
    conf = data_folder("conf")
    assert conf is not None
    written = yaml.safe_load((conf / f"{command}.yaml").read_text())
    if written["defaults"][0] == "train":  # it has all that train has, and names the rest
        written = {**yaml.safe_load((conf / "train.yaml").read_text()), **written}
    names = {field.name for field in dataclasses.fields(SETTINGS[command])}
    assert names <= set(config)
    assert names == set(written) - {"defaults", "hydra"}


@pytest.mark.parametrize("name", ["eval", "checkpoint"])
def test_callback_file_shows_the_declared_defaults(name: str) -> None:
    conf = data_folder("conf")
    assert conf is not None
    written = yaml.safe_load((conf / "callbacks" / f"{name}.yaml").read_text())
    assert written == {name: defaults(CALLBACKS[name])}


def test_algo_and_env_are_plain_names_where_an_agent_is_looked_for() -> None:
    config = zoo.compose("export", ["algo=ppo2", "env=ALE/Pong-v5"])
    assert (config.algo, config.env) == ("ppo2", "ALE/Pong-v5")
    config = zoo.compose("enjoy", ["algo=ppo2", "env=ALE/Pong-v5", "env.max_episode_steps=9"])
    assert (config.algo, config.env) == ("ppo2", {"id": "ALE/Pong-v5", "max_episode_steps": 9})


def test_interpolations_between_settings_are_resolved() -> None:
    assert zoo.compose("train", [*CARTPOLE, "seed=7", "runs_dir=seed_${seed}"]).runs_dir == "seed_7"


@pytest.mark.usefixtures("working_folder")
def test_commands_of_another_program_are_not_ours() -> None:
    usual = zoo.compose("train", CARTPOLE)
    write("conf/train.yaml", "learning_rate: 0.1\nalgo: theirs")
    write("conf/serve.yaml", "port: 80")
    assert zoo.compose("train", CARTPOLE) == usual
    write("conf/base.yaml", "seed: 7")
    write("conf/experiment/mine.yaml", "# @package _global_\ndefaults: [/base@_global_, _self_]\nn_envs: 3")
    composed = zoo.compose("train", [*CARTPOLE, "experiment=mine"])
    assert (composed.seed, composed.n_envs) == (7, 3)
    with pytest.raises(ZooError, match="unknown command 'serve'"):
        zoo.compose("serve")


def test_yaml_is_data(working_folder: Path) -> None:
    planted = working_folder / "planted"
    write("conf/env/evil.yaml", f"id: !!python/object/apply:os.system ['touch {planted}']")
    with pytest.raises(ZooError, match=r"evil\.yaml"):
        zoo.compose("train", ["algo=ppo2", "env=evil"])
    write("hyperparams/ppo2/Calm-v0.yaml", "algo: {gamma: '__import__(\"os\").getpid() * 0.0'}")
    with pytest.raises(ZooError, match="wrong type"):
        zoo.compose("train", ["algo=ppo2", "env=Calm-v0"])
    assert not planted.exists()


def test_composing_is_the_same_again_and_inside_of_a_hydra_job() -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    conf = Path("other")
    conf.mkdir()
    (conf / "other.yaml").write_text("a: 1")
    alone = zoo.compose("train", CARTPOLE)
    with initialize_config_dir(str(conf.absolute()), version_base="1.3"):
        assert zoo.compose("train", CARTPOLE) == alone
        assert hydra_compose("other").a == 1
        assert zoo.compose("train", CARTPOLE) == alone
    assert zoo.compose("train", CARTPOLE) == alone


def test_config_of_a_run_is_an_experiment() -> None:
    first = zoo.compose(
        "train", ["algo=ppo", "env=CartPole-v1", "callbacks=none", "logger=csv", "algo.gamma=0.5", "seed=3"]
    )
    write("runs/ppo/CartPole-v1/a run/config.yaml", OmegaConf.to_yaml(first))
    again = zoo.compose("train", ["experiment='runs/ppo/CartPole-v1/a run/config.yaml'"])
    assert again == first
    with pytest.raises(ZooError, match="there is no file"):
        zoo.compose("train", ["experiment=runs/config.yaml"])


def test_callbacks_and_logger_of_the_command_line_replace_those_of_a_run_or_leave_them_out() -> None:
    write("run/config.yaml", OmegaConf.to_yaml(zoo.compose("train", [*CARTPOLE, "callbacks=agents"])))
    chosen = [["callbacks=none", "logger=none"], ["callbacks=eval", "logger=csv"]]
    for words in chosen:
        again = zoo.compose("train", ["experiment=run/config.yaml", *words])
        anew = zoo.compose("train", [*CARTPOLE, *words])
        assert (again.callbacks, again.logger) == (anew.callbacks, anew.logger)
    write("conf/experiment/mine.yaml", "callbacks: {stop_on_reward: {threshold: 5}}\nlogger: {csv: true}")
    nothing = zoo.compose("train", [*CARTPOLE, "experiment=mine", *chosen[0]])
    assert not any(nothing.callbacks.values())
    assert not nothing.logger.csv
    more = zoo.compose("train", [*CARTPOLE, "experiment=mine", "callbacks=agents"]).callbacks
    assert more.stop_on_reward is not None
    assert more.agents is not None


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        (["env=CartPoleNoVel-v1"], "MlpLstmPolicy"),
        (["env=Acrobot-v1"], "MlpLstmPolicy"),
        (["env=ALE/Pong-v5"], "CnnLstmPolicy"),
        (["env=CartPole-v1", "policy=MlpLnLstmPolicy"], "MlpLnLstmPolicy"),
    ],
)
def test_a_preset_may_choose_the_policy(words: list[str], policy: str) -> None:
    config = zoo.compose("train", ["algo=recurrent_ppo", *words])
    assert config.policy.name == policy
    assert config.policy.recurrent == "lstm"
    assert config.policy.lstm_layer_norm == ("Ln" in policy)
    assert zoo.compose("train", ["algo=ppo", "env=Acrobot-v1"]).policy.name == "MlpPolicy"


def test_a_dictionary_on_the_command_line_is_blamed_for_what_is_in_it() -> None:
    noise = "algo.action_noise={type: normal, std: -1}"
    with pytest.raises(ZooError, match=r"`algo\.action_noise\.std=-1` is out of range") as caught:
        zoo.compose("train", ["algo=td3", "env=Pendulum-v1", noise])
    assert "(in " not in str(caught.value)
