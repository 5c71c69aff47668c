"""What a config is put together from, which value wins, and how it is shown."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import hydra
import pytest
import yaml
from omegaconf import DictConfig, ListConfig, OmegaConf

import zoo
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.cli import status_of
from zoo.config.environment_values import as_written, resolved
from zoo.config.fields import defaults
from zoo.config.schema import SETTINGS, CallbacksSettings, TrainSettings
from zoo.config.user_files import data_folder, search_folders
from zoo.core.plain_data import value_at
from zoo.errors import ZooError


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


CARTPOLE = ["algo=ppo2", "env=CartPole-v1"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_untuned_hyperparameters_are_class_defaults(name: str) -> None:
    config = zoo.compose("train", [f"algo={name}", "env=Nothing-v7"])
    declared = defaults(algorithm_class(name).config_class)
    assert OmegaConf.to_container(config.algo) == {"name": name, **declared}
    assert config.tuned is None


@pytest.mark.parametrize("word", ["intrinsic=null", "intrinsic=none", "algo.intrinsic=null"])
def test_tuned_intrinsic_rewards_can_be_switched_off(word: str) -> None:
    command = ["algo=ppo2", "env=MiniGrid-Empty-16x16-v0"]
    assert zoo.compose("train", command).algo.intrinsic.kind == "rnd"
    assert zoo.compose("train", [*command, word]).algo.intrinsic is None


OWN_FILES = {
    "hyperparams/ppo2/Acrobot-v1.yaml": "algo: {gamma: 0.5, n_steps: 5, n_epochs: 5, gae_lambda: 0.5}",
    "hyperparams/ppo2/CartPole-v1.yaml": (
        "defaults:\n  - override /policy: LnMlpPolicy\nn_envs: 3\npolicy: {net_arch: [32]}"
    ),
    "hyperparams/ppo2/ALE/Pong-v5.yaml": "n_envs: 3",
    "hyperparams/ppo2/ALE-Boxing-v5.yaml": "n_envs: 3",
    "hyperparams/careful/CartPole-v1.yaml": "n_envs: 2",
    "sub/mine.yaml": "defaults:\n  - override /policy: LnMlpPolicy\nn_envs: 5\npolicy: {net_arch: [7]}",
    "conf/experiment/steps.yaml": "# @package _global_\nalgo: {n_steps: 6, n_epochs: 6}",
    "conf/experiment/choices.yaml": (
        "defaults:\n  - override /algo: a2c\n  - override /env: Pendulum-v1\nseed: 5"
    ),
    "conf/experiment/tuned.yaml": "defaults:\n  - override /tuned: sub/mine.yaml",
    "conf/env/heavy.yaml": "id: CartPole-v1\nkwargs: {gravity: 20}\nmax_episode_steps: 50",
    "conf/env/heavier.yaml": "defaults: [heavy, _self_]\nkwargs: {gravity: 40}",
    "conf/algo/careful.yaml": "defaults: [ppo2, _self_]\nlearning_rate: lin_1e-5",
}
"""The user's own, in the working folder."""

COMPOSED = yaml.safe_load("""
# The command line beats the experiment, the tuned file and the algorithm's defaults, in this order.
algo=ppo2 env=Acrobot-v1 experiment=steps algo.n_epochs=7:
  {algo.gae_lambda: 0.5, algo.n_steps: 6, algo.n_epochs: 7, algo.vf_coef: 0.25}
experiment=choices: {algo.name: a2c, env.id: Pendulum-v1, seed: 5, tuned: hyperparams/a2c/Pendulum-v1.yaml}
experiment=choices algo=ppo2: {algo.name: ppo2}
# Tuned files: the user's own first, any file, another one, or none.
algo=ppo2 env=CartPole-v1: {n_envs: 3, tuned: hyperparams/ppo2/CartPole-v1.yaml, policy.name: LnMlpPolicy}
algo=ppo2 env=CartPole-v1 policy=MlpPolicy:
  {policy.name: MlpPolicy, policy.layer_norm: false, policy.net_arch: [32]}
algo=ppo2 env=CartPole-v1 tuned=none: {n_envs: 1, tuned: none, policy.name: MlpPolicy}
algo=ppo2 env=CartPole-v1 tuned=./sub/mine.yaml:
  {n_envs: 5, tuned: sub/mine.yaml, policy.name: LnMlpPolicy, policy.net_arch: [7]}
algo=ppo2 env=CartPole-v1 tuned=sub/mine.yaml policy=MlpPolicy n_envs=2:
  {n_envs: 2, policy.name: MlpPolicy, policy.net_arch: [7]}
algo=ppo2 env=CartPole-v1 experiment=tuned: {tuned: sub/mine.yaml}
# Atari games share a file and the policy of images.
algo=ppo2 env=ALE/Breakout-v5:
  {env.id: ALE/Breakout-v5, tuned: hyperparams/ppo2/atari.yaml, policy.name: CnnPolicy}
algo=ppo2 env=PongNoFrameskip-v4: {tuned: hyperparams/ppo2/atari.yaml, policy.encoder: cnn}
algo=ppo2 env=ALE/Breakout-v5 tuned=none: {policy.name: CnnPolicy}
algo=ppo2 env=ALE/Pong-v5: {n_envs: 3}
algo=ppo2 env=ALE/Boxing-v5: {n_envs: 3}
# Any id is an environment; a file of that name has the defaults of every environment.
"algo=ppo2 env=my_module:name/Space-v1": {env.id: my_module:name/Space-v1}
algo=ppo2 env=heavier:
  {env.id: CartPole-v1, env.kwargs.gravity: 40, env.max_episode_steps: 50, env.check: true}
# Presets build on an algorithm, and have tuned files of their own.
algo=ppo env=CartPole-v1:
  {algo.name: ppo2, algo.preset: ppo, algo.clip_range_vf: null, tuned: hyperparams/ppo/CartPole-v1.yaml}
algo=ppo env=Nothing-v0:
  {algo.n_steps: 2048, algo.batch_size: 64, algo.n_epochs: 10, algo.learning_rate: 0.0003,
   algo.ent_coef: 0.0, algo.vf_coef: 0.5, policy.name: MlpPolicy}
algo=careful env=CartPole-v1: {algo.name: ppo2, algo.preset: careful, n_envs: 2, algo.learning_rate: lin_1e-5}
# A preset may choose the policy.
algo=recurrent_ppo env=CartPoleNoVel-v1: {policy.name: MlpLstmPolicy, policy.recurrent: lstm}
algo=recurrent_ppo env=ALE/Pong-v5: {policy.name: CnnLstmPolicy, policy.lstm_layer_norm: false}
algo=recurrent_ppo env=CartPole-v1 policy=MlpLnLstmPolicy: {policy.lstm_layer_norm: true}
# Layers of actor and critics replace a tuned file's list, and a list replaces their layers.
"algo=ppo2 env=CartPole-v1 policy.net_arch={pi:[8],vf:[9]}": {policy.net_arch: {pi: [8], vf: [9]}}
algo=crossq env=Pendulum-v1 policy.net_arch=[8]: {policy.net_arch: [8]}
"algo=fast_td3 env=A-v0 algo.action_noise={std:0.2}": {algo.action_noise.std_max: null}
"algo=crossq env=Pendulum-v1 policy.net_arch={pi:[8],qf:[9]}": {policy.net_arch: {pi: [8], qf: [9]}}
# Values come in their declared types; mappings take keys that no file has.
algo=ppo2 env=A-v0 n_timesteps=1e5 algo.gamma=1 algo.clip_range=lin_0.2:
  {n_timesteps: 100000, algo.gamma: 1.0, algo.clip_range: lin_0.2}
algo=ppo2 env=A-v0 env.kwargs.gravity=20 env.normalize.gamma=0.9:
  {env.kwargs: {gravity: 20}, env.normalize: {gamma: 0.9}}
algo=ppo2 env=A-v0 callbacks.stop_on_reward.threshold=475: {callbacks.stop_on_reward: {threshold: 475.0}}
"algo=ppo2 env=A-v0 algo.learning_rate={type:cosine,start:1e-3,end:1e-5}": {algo.learning_rate.start: 0.001}
"algo=ppo2 env=A-v0 callbacks.mine={_target_:my_module.Mine,every:10}": {callbacks.mine.every: 10}
"algo=ppo2 env=A-v0 seed=7 runs_dir=seed_${seed}": {runs_dir: seed_7}
""")
"""Values of the configs that come of overrides."""


@pytest.mark.parametrize("overrides", COMPOSED)
def test_value_that_wins(overrides: str) -> None:
    for path, text in OWN_FILES.items():
        write(path, text)
    config = zoo.compose("train", overrides.split())
    for key, expected in COMPOSED[overrides].items():
        value = OmegaConf.select(config, key)
        if key == "tuned":
            assert value.endswith(expected)
        else:
            assert value == expected
            assert isinstance(value, type(expected) | DictConfig | ListConfig)


def test_callbacks_and_loggers_take_one_name_or_a_list() -> None:
    off = defaults(CallbacksSettings)
    assert zoo.compose("train", [*CARTPOLE, "callbacks=none"]).callbacks == off
    assert zoo.compose("train", [*CARTPOLE, "callbacks=[checkpoint]"]).callbacks == {
        **off,
        "checkpoint": {"every": None, "keep": "auto"},
    }
    assert zoo.compose("train", [*CARTPOLE, "callbacks.eval=null"]).callbacks.eval is None
    logger = zoo.compose("train", [*CARTPOLE, "logger=[csv,tensorboard]"]).logger
    assert (logger.csv, logger.console, logger.wandb) == (True, False, None)
    assert logger.tensorboard is True
    logger = zoo.compose("train", [*CARTPOLE, "logger=wandb", "logger.wandb.mode=offline"]).logger
    assert (logger.console, logger.wandb.project, logger.wandb.mode) == (True, None, "offline")


@pytest.mark.parametrize("command", SETTINGS)
def test_every_setting_has_its_default_in_conf(command: str) -> None:
    choices = {"train": CARTPOLE, "tune": CARTPOLE, "check": ["env=CartPole-v1"], "compare": ["runs=[a,b]"]}
    config = zoo.compose(command, choices.get(command, []))
    conf = data_folder("conf")
    assert conf is not None
    written = yaml.safe_load((conf / f"{command}.yaml").read_text())
    if "train" in written["defaults"]:  # it has all that train has, and names the rest
        written = {**yaml.safe_load((conf / "train.yaml").read_text()), **written}
    names = {field.name for field in dataclasses.fields(SETTINGS[command])}
    assert names <= set(config)
    assert names == set(written) - {"defaults", "hydra"}


def test_agent_commands_take_algo_and_env_as_names() -> None:
    config = zoo.compose("export", ["algo=ppo2", "env=ALE/Pong-v5"])
    assert (config.algo, config.env) == ("ppo2", "ALE/Pong-v5")
    config = zoo.compose("enjoy", ["algo=ppo2", "env=ALE/Pong-v5", "env.max_episode_steps=9"])
    assert (config.algo, config.env) == ("ppo2", {"id": "ALE/Pong-v5", "max_episode_steps": 9})


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


def test_compose_is_repeatable_and_works_in_hydra_job() -> None:
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


def test_callbacks_and_logger_override_those_of_run() -> None:
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


def test_error_names_key_inside_dictionary_override() -> None:
    noise = "algo.action_noise={type: normal, std: -1}"
    with pytest.raises(ZooError, match=r"`algo\.action_noise\.std=-1` is out of range") as caught:
        zoo.compose("train", ["algo=td3", "env=Pendulum-v1", noise])
    assert "(in " not in str(caught.value)


def test_working_folder_comes_first_and_once(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = data_folder("conf")
    assert own is not None
    assert search_folders("conf") == [own]
    (working_folder / "conf").mkdir()
    assert search_folders("conf") == [working_folder / "conf", own]
    monkeypatch.chdir(own.parent)
    assert search_folders("conf") == [own]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert status_of(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_shown_config_has_help_of_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "train", "algo=ppo2", "env=CartPole-v1", "--cfg", "job")
    composed = zoo.compose("train", ["algo=ppo2", "env=CartPole-v1"])
    assert yaml.safe_load(text) == OmegaConf.to_container(composed)
    config_class = algorithm_class("ppo2").config_class
    for field in [*dataclasses.fields(config_class), *dataclasses.fields(TrainSettings)]:
        assert f"# {field.metadata['help']}" in text


def test_incomplete_config_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    config = yaml.safe_load(shown(capsys, "train", "algo=sac", "--cfg", "job"))
    assert config["algo"]["name"] == "sac"
    assert "env" not in config
    assert "algo" not in yaml.safe_load(shown(capsys, "train", "--cfg", "job"))


def test_help_lists_groups_options_settings_examples(capsys: pytest.CaptureFixture[str]) -> None:
    page = shown(capsys, "train", "--help")
    for word in (
        *("zoo train algo=ppo2 env=CartPole-v1", "a2c", "PPO with the defaults of Stable-Baselines3"),
        *("any Gymnasium id", "LnCnnPolicy", "callbacks=NAME", "tensorboard", "cartpole_until_solved"),
        *("joblib", "slurm", "n_envs=1", "seed=null", "--cfg job"),
    ):
        assert word in page
    assert max(map(len, page.splitlines())) <= 120


def test_files_of_a_config_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "hyperparams/ppo2/CartPole-v1.yaml: the whole" in shown(
        capsys, "train", "algo=ppo2", "env=CartPole-v1", "--info", "defaults"
    )


def test_flags_show_the_parts_of_a_config_as_in_hydra(capsys: pytest.CaptureFixture[str]) -> None:
    line = ("train", "algo=ppo2", "env=CartPole-v1", "hydra.launcher.n_jobs=3", "--cfg")
    whole = yaml.safe_load(shown(capsys, *line, "all"))
    assert whole["env"]["id"] == "CartPole-v1"
    assert whole["hydra"] == yaml.safe_load(shown(capsys, *line, "hydra"))["hydra"]
    assert yaml.safe_load(shown(capsys, *line, "job", "--package", "env")) == whole["env"]
    launcher = yaml.safe_load(shown(capsys, *line, "hydra", "-p", "hydra.launcher"))
    assert launcher == whole["hydra"]["launcher"]
    assert launcher["n_jobs"] == 3
    assert whole["hydra"]["help"]["app_name"] == "${hydra.job.name}"
    assert yaml.safe_load(shown(capsys, *line, "all", "--resolve"))["hydra"]["help"]["app_name"] == "train"


@pytest.mark.parametrize("line", [["--version"], ["train", "--version"]])
def test_version_is_that_of_zoo_and_of_hydra(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, *line) == f"zoo {zoo.__version__}, Hydra {hydra.__version__}\n"


def test_own_resolver_is_registered_in_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    code = "from omegaconf import OmegaConf\nOmegaConf.register_new_resolver('tripled', lambda n: 3 * n)\n"
    (tmp_path / "conf" / "resolvers.py").write_text(code)
    config = zoo.compose("train", ["algo=ppo2", "env=CartPole-v1", "seed=${tripled:7}"])
    assert config.seed == 21


@pytest.mark.parametrize("key", ["n_envs", "algo.n_epochs"])
def test_message_says_how_to_decode_number_of_variable(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_NUMBER", "4711")
    line = ["train", "algo=ppo2", "env=CartPole-v1", "--cfg", "job"]
    assert status_of([*line, f"{key}=${{oc.env:MY_NUMBER}}"]) == 2
    (mended,) = shlex.split(capsys.readouterr().err.partition("; write ")[2])
    assert value_at(yaml.safe_load(shown(capsys, *line, mended)), key) == 4711


def test_text_of_a_variable_belongs_to_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_RUNS", "mine")
    named = zoo.compose("train", [*CARTPOLE, "runs_dir=${oc.env:MY_RUNS}"])
    typed = zoo.compose("train", [*CARTPOLE, "runs_dir=mine"])
    assert named.runs_dir == typed.runs_dir == "mine"
    assert as_written(resolved(named))["runs_dir"] == "${oc.env:MY_RUNS}"
    assert as_written(resolved(typed))["runs_dir"] == "mine"
    assert "runs_dir: ${oc.env:MY_RUNS}" in OmegaConf.to_yaml(named)
