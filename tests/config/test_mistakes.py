"""Every mistake in a command line is one short message that names the nearest right thing, and status 2."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig

import zoo
from zoo.cli import status_of
from zoo.errors import ZooError

CARTPOLE = "algo=ppo2 env=CartPole-v1"

MISTAKES = {
    f"train {CARTPOLE} pretrain.n_epochs=20 pretrain.n_episodes=3": "pretrain.dataset=PATH",
    # Nothing chosen, or what there is not.
    "check": "which env?",
    "trian algo=ppo2": "did you mean 'train'?",
    "algo=ppo2 env=CartPole-v1": "the verb comes first",
    "--algo ppo": "the verb comes first",
    "train algo=ppo_lstm": "algo=recurrent_ppo",
    "train -m algo=ppo2,ppo3 env=CartPole-v1": "'ppo3'",
    f"train {CARTPOLE} callbacks=nothing": "unknown callbacks 'nothing'",
    f"train {CARTPOLE} hydra/launcher=slrum": "did you mean 'slurm'?",
    f"train {CARTPOLE} tuned=ppo2/CartPol-v1": "did you mean 'ppo2/CartPole-v1'?",
    f"train {CARTPOLE} tuned=null": "tuned=none",
    "train algo=3": "`algo=3`",
    "train algo=null env=CartPole-v1": "`algo=null`",
    "train ~algo env=CartPole-v1": "`~algo`",
    # A key that is nearly right.
    "pull fro=x/y": "`from`",
    "pull nothing_near=x/y": "known: from, revision, to",
    f"train {CARTPOLE} env.normalize.gama=1": "`env.normalize.gamma`",
    f"train {CARTPOLE} callbacks.evall.every=1": "`callbacks.eval`",
    f"train {CARTPOLE} logger.tensrboard=true": "`logger.tensorboard`",
    f"train {CARTPOLE} max_episode_step=9": "`env.max_episode_steps`",
    # A key that there is not, or that stands elsewhere.
    f"train {CARTPOLE} +algo.foo=1": "`algo.foo`",
    f"train {CARTPOLE} callbacks.foo=1": "`callbacks.foo`",
    f"train {CARTPOLE} callbacks.stop_on_reward.foo=5": "`callbacks.stop_on_reward.foo`",
    f"train {CARTPOLE} n_envs.foo=3": "n_envs.foo",
    f"evaluate {CARTPOLE} learning_rate=9": "unknown key `learning_rate`; known: agent,",
    f"train {CARTPOLE} +env@other=x": "device, env, experiment",
    f"train {CARTPOLE} policy.gae_lambda=1": "`algo.gae_lambda`",
    f"train {CARTPOLE} eval.every=9": "`callbacks.eval.every`",
    f"train {CARTPOLE} threshold=9": "`callbacks.stop_on_reward.threshold`",
    f"train {CARTPOLE} env.g=9": "`env.kwargs.g`",
    f"train {CARTPOLE} buffer_size=9": "of acer, c51, crossq, ddpg, dqn",
    # A name of another library.
    f"train {CARTPOLE} eval_freq=10": "`callbacks.eval.every`",
    f"evaluate {CARTPOLE} n_eval_episodes=10": "`n_episodes`",
    f"train {CARTPOLE} save_freq=10": "`callbacks.agents.every`",
    f"train {CARTPOLE} track=true": "env=CartPole-v1 logger=wandb\n",
    f"train {CARTPOLE} trained_agent=x": "`init_from`",
    f"tune {CARTPOLE} conf_file=x": "zoo import FILE.yml",
    f"train {CARTPOLE} vec_env=subproc": "env=CartPole-v1 env.vectorization=workers\n",
    f"enjoy {CARTPOLE} folder=logs": "`runs_dir`",
    f"enjoy {CARTPOLE} stochastic=true": "env=CartPole-v1 deterministic=false\n",
    f"train {CARTPOLE} algo.noptepochs=4": "`algo.n_epochs`",
    f"train {CARTPOLE} algo.lr=3": "`algo.learning_rate`",
    f"train {CARTPOLE} total_timesteps=1e5": "`n_timesteps`",
    f"train {CARTPOLE} env_kwargs.g=9": "`env.kwargs.g`",
    "train algo=dqn env=CartPole-v1 algo.n_step=3": "`replay.n_step`",
    "train algo=ddpg env=Pendulum-v1 algo.normalize_observations=true": "`env.normalize`",
    "train algo=ddpg env=Pendulum-v1 algo.n_critics=2": "`algo.n_critics`",
    "train algo=td3 env=Pendulum-v1 algo.action_noise={sigma:0.5}": "`algo.action_noise.std`",
    "train algo=ppo2 policy.enable_critic_lstm=false": "`policy.critic_lstm=separate`",
    "train algo=ppo2 use_masking=false": "`env.mask_actions=false`",
    # Values.
    f"train {CARTPOLE} algo.gamma=2": "`algo.gamma=2` is out of range; expected at least 0 and at most 1",
    f"train -m {CARTPOLE} algo.gamma=0.9,2": "`algo.gamma=2`",
    f"train {CARTPOLE} algo.learning_rate=lin_-3e-4": "`algo.learning_rate=-0.0003`",
    f"train {CARTPOLE} algo.clip_range={{start:0.2,end:-0.1}}": "`algo.clip_range=-0.1`",
    f"train {CARTPOLE} compile=maybe": "auto, true, false",
    f"train {CARTPOLE} n_timesteps=-1": "`n_timesteps=-1`",
    f"train {CARTPOLE} policy.activation=relo": "policy.activation",
    f"train {CARTPOLE} algo.learning_rate=lin": "algo.learning_rate",
    f"train {CARTPOLE} policy.net_arch=wide": "policy.net_arch",
    f"train {CARTPOLE} callbacks.eval=5": "callbacks.eval",
    "enjoy record=perhaps": "`record='perhaps'`",
    f"train {CARTPOLE} seed=None": "write null",
    f"train {CARTPOLE} n_envs=08": "write 8",
    f"train {CARTPOLE} algo.gamma=${{oc.env:NOPE}}": "`algo.gamma`: ",
    f"train {CARTPOLE} job=${{hydra:job.num}}": "as ${seed}",
    f"train {CARTPOLE} algo.gamma=${{nosuch:1}}": "conf/resolvers.py",
    # Settings of Hydra's that would do nothing.
    f"train {CARTPOLE} hydra.verbose=true": "verbose=2",
    f"train {CARTPOLE} hydra.job.name=x": "job=NAME",
    f"train -m {CARTPOLE} hydra.sweep.subdir=x": "hydra.sweep.dir",
    f"train -m {CARTPOLE} hydra/sweeper=basic": "zoo tune",
    f"train {CARTPOLE} hydra.job.env_set.A=1": "hydra.mode",
    # Flags of Hydra's.
    f"train {CARTPOLE} --config-dir=x": "--config-dir: configs of your own stand in ./conf",
    f"train {CARTPOLE} -cn mine": "experiment=PATH.yaml",
    f"train {CARTPOLE} --config-name mine": "experiment=PATH.yaml",
    f"train {CARTPOLE} --hydra-help": "docs/hydra.md",
    f"train {CARTPOLE} --run": "no flag",
    f"train {CARTPOLE} --experimental-rerun x": "experiment=RUN/config.yaml",
    f"train {CARTPOLE} --info searchpath": "--info defaults",
    f"train {CARTPOLE} -i plugins": "launcher",
    f"train {CARTPOLE} --info all": "--cfg all",
    f"train {CARTPOLE} --resolve": "--cfg job",
    f"train {CARTPOLE} --package algo": "--cfg job",
    f"train {CARTPOLE} --cfg job --package nothing": "no such part",
    f"train {CARTPOLE} --seed=3 --cfg job": "env=CartPole-v1 --cfg job seed=3\n",
    # Slips in the writing.
    f"train {CARTPOLE} seed=1,2": "add -m",
    f"train {CARTPOLE} seed=range(3)": "add -m",
    f"train {CARTPOLE} seed": "`seed`",
    "train ppo CartPole-v1": "`ppo`",
    f"train {CARTPOLE} policy.net_arch=[64, 64]": "`64]`",
    f"train {CARTPOLE} algo.gamma=[1": "`algo.gamma=[1`",
    "train algo=ppo2, env=CartPole-v1": "`algo=ppo2,`",
    f"train {CARTPOLE} algo.gamma=${{foo}}": "'foo'",
    "train +algo=ppo2 env=CartPole-v1": "algo",
    f"train {CARTPOLE} --mutlirun": "did you mean '--multirun'?",
    "train --algorithm a2c": "there is no flag --algorithm; settings have no dashes",
    # Command lines of others; docs/coming-from-stable-baselines.md has more.
    "train --algo a2c": "here: zoo train algo=a2c\n",
    f"train {CARTPOLE} n_steps=64": "`algo.n_steps`",
    "train algo=dqn env=CartPole-v1 n_steps=3": "`replay.n_step`",
    f"train {CARTPOLE} algo.total_steps=64": "`n_timesteps`",
    f"train {CARTPOLE} env_kwargs=g:9.8": "env=CartPole-v1 env.kwargs.g=9.8\n",
    f"train {CARTPOLE} optimize=true": "here: zoo tune algo=ppo2 env=CartPole-v1\n",
    f"enjoy {CARTPOLE} exp_id=3": "agent=runs/ALGO/ENV/RUN",
    f"train {CARTPOLE} --seed=3 --algo.gamma=0.9": "gamma=0.9; W&B's sweeps write it so with ${args_",
    f"train {CARTPOLE} -i x.zip": "env=CartPole-v1 init_from=x.zip\n",
    f"train {CARTPOLE} --seed 3 -uuid": "seed=3; without uuid (the folder of a run has a name of its own)\n",
    "train -z 5": "-z",
    f"train {CARTPOLE} --cfg yob": "'yob'",
}


PEERS_NAMES = {
    **{name: f"`{name}`" for name in ("policy", "env", "seed", "device", "n_envs", "n_timesteps")},
    **{name: name for name in ("stats_window_size", "_init_setup_model", "max_episode_length")},
    **{name: name for name in ("features_extractor_class", "normalize_images", "sde_net_arch")},
    **{name: name for name in ("handle_timeout_termination", "online_sampling")},
    **{
        name: f"`policy.{name}`"
        for name in ("net_arch", "log_std_init", "use_expln", "clip_mean", "full_std")
    },
    **{name: f"`policy.{name}`" for name in ("squash_output", "ortho_init")},
    **{name: f"`replay.hindsight.{name}`" for name in ("n_sampled_goal", "copy_info_dict")},
    **{name: f"`env.{name}`" for name in ("normalize", "frame_stack")},
    "goal_selection_strategy": "`replay.hindsight.goal_selection_strategy`",
    **dict.fromkeys(("replay_buffer_class", "replay_buffer_kwargs"), "replay`"),
    "n_steps": "`replay.n_step`",
    "activation_fn": "`policy.activation`",
    "features_extractor_kwargs": "`policy.encoder",
    "share_features_extractor": "`policy.share_encoder`",
    **dict.fromkeys(("optimizer_class", "optimizer_kwargs"), "the optimizer"),
    "noise_type": "action_noise.type`",
    "noise_std": "action_noise.std`",
    **dict.fromkeys(("env_wrapper", "vec_env_wrapper"), "`env.wrappers`"),
    "env_kwargs": "`env.kwargs`",
    "vec_env_class": "`env.vectorization`",
    "monitor_kwargs": "`env.info_keywords`",
    "callback": "`callbacks`",
}
"""What Stable-Baselines3, SB3-Contrib and their Zoo call by names that no off-policy algorithm has here."""

ARGUMENTS_OF_THE_CONSTRUCTOR = ("policy", "env", "seed", "device", "n_envs")


@pytest.mark.parametrize("name", PEERS_NAMES)
def test_a_name_of_the_peers_gets_its_place_here(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["train", "algo=td3", "env=Pendulum-v1", f"algo.{name}=1"]) == 2
    printed = capsys.readouterr().err
    assert PEERS_NAMES[name] in printed
    assert printed.count("\n") == 1
    if name not in (*ARGUMENTS_OF_THE_CONSTRUCTOR, "n_timesteps"):
        with pytest.raises(ZooError, match=re.escape(PEERS_NAMES[name])):
            zoo.TD3("MlpPolicy", "Pendulum-v1", **{name: None})


@pytest.mark.parametrize("command", MISTAKES)
def test_mistake_is_one_message(
    command: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)  # of a launcher plug-in that another test ran
    assert status_of(command.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("zoo: ")
    assert MISTAKES[command] in printed.err
    assert printed.err.count("\n") == 1
    assert len(printed.err) < 400
    assert printed.out == ""
    for hydras_own in ("append", "Traceback", "HYDRA_FULL_ERROR", "override_grammar"):
        assert hydras_own not in printed.err
    assert [path for path in tmp_path.rglob("*") if path.name != "multirun.yaml" and path.is_file()] == []


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
    for text in ("algo: [1", "- a\n- list", "a: 1\na: 2", "5", "defaults: 3"):
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


ANSWERS = {
    "algo=trpo algo.n_epochs=3": "of ppo1, ppo2, pqn, not of trpo, which has algo.n_critic_updates",
    "algo=trpo n_epochs=3": "of ppo1, ppo2, pqn, not of trpo, which has algo.n_critic_updates",
    "algo=acktr algo.n_epochs=3": "not of acktr, one step is taken per rollout",
    "algo=bc algo.n_epochs=4": "not of bc, n_timesteps",
    "algo=ars algo.batch_size=5": "n_delta × n_eval_episodes",
    "algo=ars algo.gamma=0.9": "not of ars, returns are not discounted",
    "algo=ppo2 algo.learning_starts=9": "of c51, crossq, ddpg, dqn",
    "algo=ppo2 algo.max_episode_steps=9": "it is `env.max_episode_steps` here",
    "algo=bc expert=FILE": "unknown key `expert`: it is `dataset` here",
    "algo=recurrent_ppo policy=MlpPolicy tuned=none": "policy=MlpLstm",
    "algo=recurrent_ppo env=CartPoleNoVel-v1 policy=MlpPolicy": "policy=MlpLstm",
    "algo=ppo2 env=CartPoleNoVel-v1 tuned=recurrent_ppo/CartPoleNoVel-v1 policy=MlpPolicy": "NoVel-v1.yaml)",
}


@pytest.mark.parametrize("given", ANSWERS)
def test_key_of_others_is_answered(given: str) -> None:
    with pytest.raises(ZooError) as raised:
        zoo.compose("train", [*([] if "env=" in given else ["env=CartPole-v1"]), *given.split()])
    assert ANSWERS[given] in str(raised.value)


OTHER_ALGORITHMS = {
    "train algo=gail env=CartPole-v1 algo.generator=sac": "expected one of trpo, ppo2, ppo1, a2c, acktr\n",
    "train algo=acer env=CartPole-v1 workers=2 tuned=none": "as several processes; a2c, acktr, ars",
    "train algo=bc env=CartPole-v1 pretrain.dataset=some.npz tuned=none": "dataset=some.npz",
}


@pytest.mark.parametrize("line", OTHER_ALGORITHMS)
def test_command_of_others_is_answered(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(line.split()) == 2
    assert OTHER_ALGORITHMS[line] in capsys.readouterr().err
