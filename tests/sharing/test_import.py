"""An agent of Stable-Baselines3 acts the same after `zoo import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_agents import CHOICE, CONTINUOUS, IMAGE, PARTS, VECTOR, Still, make, observations, saved
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

import zoo
from zoo.cli import status_of
from zoo.envs.config import EnvConfig
from zoo.errors import ZooError, ZooWarning
from zoo.interop.export import random_masks
from zoo.interop.sb3_import import import_sb3

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

CASES: dict[str, tuple[str, str, spaces.Space, spaces.Space, dict[str, Any]]] = {
    "a2c": ("A2C", "MlpPolicy", VECTOR, CHOICE, {}),
    "a2c of numbers, relu, shared widths": (
        *("A2C", "MlpPolicy", VECTOR, CONTINUOUS),
        {"policy_kwargs": {"activation_fn": nn.ReLU, "net_arch": [16]}},
    ),
    "ppo of numbers": ("PPO", "MlpPolicy", VECTOR, CONTINUOUS, {}),
    "ppo with own nets": (
        *("PPO", "MlpPolicy", VECTOR, CHOICE),
        {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [16, 12, 8]}, "activation_fn": nn.ELU}},
    ),
    "ppo without layers": ("PPO", "MlpPolicy", VECTOR, CHOICE, {"policy_kwargs": {"net_arch": []}}),
    "ppo of boards": ("PPO", "MlpPolicy", spaces.Box(0, 1, (4, 4, 2), np.int8), CHOICE, {}),
    "ppo of several choices": ("PPO", "MlpPolicy", VECTOR, spaces.MultiDiscrete([3, 2, 4]), {}),
    "ppo of bits": ("PPO", "MlpPolicy", VECTOR, spaces.MultiBinary(4), {}),
    "ppo with gSDE": ("PPO", "MlpPolicy", VECTOR, CONTINUOUS, {"use_sde": True}),
    "ppo with squashed gSDE": (
        *("PPO", "MlpPolicy", VECTOR, CONTINUOUS),
        {"use_sde": True, "policy_kwargs": {"squash_output": True, "full_std": False, "use_expln": True}},
    ),
    "trpo": ("TRPO", "MlpPolicy", VECTOR, CHOICE, {}),
    "ppo of images": ("PPO", "CnnPolicy", IMAGE, CHOICE, {}),
    "ppo of images, read twice": (
        *("PPO", "CnnPolicy", IMAGE, CONTINUOUS),
        {
            "policy_kwargs": {
                "share_features_extractor": False,
                "features_extractor_kwargs": {"features_dim": 32},
            }
        },
    ),
    "ppo of dictionaries": ("PPO", "MultiInputPolicy", PARTS, CHOICE, {}),
    "ppo with layers of LSTMs": (
        *("RecurrentPPO", "MlpLstmPolicy", VECTOR, CONTINUOUS),
        {"policy_kwargs": {"lstm_hidden_size": 8, "n_lstm_layers": 2, "net_arch": [16]}},
    ),
    "ppo with an LSTM after dictionaries": (
        *("RecurrentPPO", "MultiInputLstmPolicy", PARTS, CHOICE),
        {"policy_kwargs": {"lstm_hidden_size": 8}},
    ),
    "ars": ("ARS", "LinearPolicy", VECTOR, CHOICE, {}),
    "ars of numbers": ("ARS", "LinearPolicy", VECTOR, CONTINUOUS, {}),
    "ars of numbers with layers": ("ARS", "MlpPolicy", VECTOR, CONTINUOUS, {"zero_policy": False}),
    "ars of numbers as they are": (
        *("ARS", "MlpPolicy", VECTOR, CONTINUOUS),
        {"policy_kwargs": {"with_bias": False, "squash_output": False, "activation_fn": nn.Tanh}},
    ),
    "dqn": ("DQN", "MlpPolicy", VECTOR, CHOICE, {}),
    "dqn of images": ("DQN", "CnnPolicy", IMAGE, CHOICE, {}),
    "qrdqn": ("QRDQN", "MlpPolicy", VECTOR, CHOICE, {"policy_kwargs": {"n_quantiles": 7}}),
    "sac": ("SAC", "MlpPolicy", VECTOR, CONTINUOUS, {}),
    "sac with gSDE": ("SAC", "MlpPolicy", VECTOR, CONTINUOUS, {"use_sde": True}),
    "sac with gSDE and an unbounded mean": (
        *("SAC", "MlpPolicy", VECTOR, CONTINUOUS),
        {"use_sde": True, "policy_kwargs": {"clip_mean": 0.0, "net_arch": {"pi": [16], "qf": [8]}}},
    ),
    "td3": ("TD3", "MlpPolicy", VECTOR, CONTINUOUS, {}),
    "ddpg": ("DDPG", "MlpPolicy", VECTOR, CONTINUOUS, {}),
    "crossq": ("CrossQ", "MlpPolicy", VECTOR, CONTINUOUS, {"policy_kwargs": {"net_arch": [8, 8]}}),
    "crossq without norm": (
        "CrossQ",
        "MlpPolicy",
        VECTOR,
        CONTINUOUS,
        {"policy_kwargs": {"batch_norm": False}},
    ),
    "tqc": ("TQC", "MlpPolicy", VECTOR, CONTINUOUS, {"policy_kwargs": {"n_critics": 3, "n_quantiles": 5}}),
}


@pytest.mark.parametrize("case", CASES)
def test_imported_agent_acts_the_same(case: str, tmp_path: Path) -> None:
    name, policy, observation_space, action_space, options = CASES[case]
    model = make(name, policy, Still(observation_space, action_space), **options)
    spaces_of_env = (observation_space, action_space)
    imported = import_sb3(saved(model, tmp_path), env_spaces=spaces_of_env).algorithm
    assert imported.name == case.split()[0].replace("ppo", "ppo2")
    loaded = zoo.load(imported.save(tmp_path / "imported"))
    seen = observations(observation_space, 16 if observation_space is not VECTOR else 200)
    expected, _ = model.predict(seen, deterministic=True)
    actions, _ = loaded.predict(seen)
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-5)
    assert len(np.unique(np.asarray(expected), axis=0)) > 1


@pytest.mark.parametrize("critic", ["separate", "detached", "none"])
def test_imported_agent_remembers_the_same(critic: str, tmp_path: Path) -> None:
    """Actions of several steps, episodes that start in between, and the critic's values."""
    options = {"enable_critic_lstm": critic == "separate", "shared_lstm": critic == "detached"}
    policy_kwargs = {"lstm_hidden_size": 8, "n_lstm_layers": 2, **options}
    model = make("RecurrentPPO", "MlpLstmPolicy", Still(VECTOR, CONTINUOUS), policy_kwargs=policy_kwargs)
    ours = import_sb3(saved(model, tmp_path)).algorithm
    assert (ours.policy_config.critic_lstm, ours.preset) == (critic, "recurrent_ppo")
    state: Any = None
    their_state: Any = None
    starts = np.array([True, True, True])
    critic_state: Any = ours.acting.initial_state(3)
    their_critic_state = tuple(torch.zeros(2, 3, 8) for _ in range(2))
    for step in range(6):
        seen = np.random.default_rng(step).standard_normal((3, 3)).astype(np.float32)
        actions, state = ours.predict(seen, state, starts)
        expected, their_state = model.predict(seen, their_state, starts, deterministic=True)
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-5)
        starting = torch.from_numpy(starts.astype(np.float32))
        shown = {"observations": seen, "episode_starts": starts}
        values = ours.acting.values(shown, critic_state)
        _, critic_state = ours.acting.parameters(shown, critic_state)
        with torch.no_grad():
            wanted = model.policy.predict_values(torch.from_numpy(seen), their_critic_state, starting)
            lstm = model.policy.lstm_critic or model.policy.lstm_actor
            _, their_critic_state = model.policy._process_sequence(
                torch.from_numpy(seen), their_critic_state, starting, lstm
            )
        np.testing.assert_allclose(values, wanted[:, 0], rtol=1e-4, atol=1e-5)
        starts = np.array([False, step == 2, False])


@pytest.mark.parametrize(
    ("observation_space", "action_space", "policy"),
    [
        (VECTOR, CHOICE, "MlpPolicy"),
        (VECTOR, spaces.MultiDiscrete([3, 2, 4]), "MlpPolicy"),
        (VECTOR, spaces.MultiBinary(4), "MlpPolicy"),
        (PARTS, CHOICE, "MultiInputPolicy"),
        (IMAGE, CHOICE, "CnnPolicy"),
    ],
    ids=["choice", "choices", "bits", "dictionaries", "images"],
)
def test_masked_agent_acts_the_same(
    observation_space: spaces.Space, action_space: spaces.Space, policy: str, tmp_path: Path
) -> None:
    model = make("MaskablePPO", policy, Still(observation_space, action_space))
    spaces_of_env = (observation_space, action_space)
    imported = import_sb3(saved(model, tmp_path), env_spaces=spaces_of_env).algorithm
    assert (imported.name, imported.preset, imported.masks_actions) == ("ppo2", "maskable_ppo", True)
    loaded = zoo.load(imported.save(tmp_path / "imported"))
    assert loaded.masks_actions
    n = 16 if observation_space is not VECTOR else 200
    seen, masks = observations(observation_space, n), random_masks(imported, n)
    for given in (None, masks):
        expected, _ = model.predict(seen, deterministic=True, action_masks=given)
        np.testing.assert_array_equal(loaded.predict(seen, action_masks=given)[0], expected)
        assert len(np.unique(np.asarray(expected), axis=0)) > 1
    as_tensors = model.policy.obs_to_tensor(seen)[0]
    values = model.policy.predict_values(as_tensors).detach().numpy().reshape(-1)
    np.testing.assert_allclose(loaded.acting.values({"observations": seen}), values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["ppo of several choices", "ppo of bits", "sac", "dqn", "ppo of images"])
def test_spaces_are_read_from_the_file(case: str, tmp_path: Path) -> None:
    name, policy, observation_space, action_space, options = CASES[case]
    model = make(name, policy, Still(observation_space, action_space), **options)
    algorithm = import_sb3(saved(model, tmp_path)).algorithm
    assert algorithm.observation_space == model.observation_space
    assert algorithm.action_space == model.action_space


def test_hyperparameters_come_too_and_others_are_named(tmp_path: Path) -> None:
    model = make("PPO", "MlpPolicy", Still(VECTOR, CHOICE), gamma=0.9, clip_range=0.3, n_steps=64)
    model.num_timesteps = 1234
    imported = import_sb3(saved(model, tmp_path))
    config = imported.algorithm.config
    assert (config.gamma, config.clip_range, config.n_steps) == (0.9, 0.3, 64)
    assert imported.algorithm.num_timesteps == 1234
    options = {"n_delta": 5, "n_top": 3, "delta_std": 0.125, "zero_policy": False, "alive_bonus_offset": -1}
    config = import_sb3(
        saved(make("ARS", "LinearPolicy", Still(VECTOR, CHOICE), **options), tmp_path)
    ).algorithm.config
    assert {name: getattr(config, name) for name in options} == options
    model = make("PPO", "MlpPolicy", Still(VECTOR, CHOICE), learning_rate=lambda left: left * 1e-3)
    assert "learning_rate" in import_sb3(saved(model, tmp_path)).unknown


@pytest.mark.parametrize(
    ("action_space", "n_dimensions"),
    [(spaces.Box(-1.0, 1.0, (2, 3), np.float32), 6), (spaces.MultiBinary(4), 4), (CHOICE, 1)],
    ids=str,
)
def test_trust_region_is_as_large(action_space: spaces.Space, n_dimensions: int, tmp_path: Path) -> None:
    """SB3-Contrib takes the mean divergence of numbers and bits, where here it is their sum."""
    model = make("TRPO", "MlpPolicy", Still(VECTOR, action_space), target_kl=0.02, cg_damping=0.3)
    imported = import_sb3(saved(model, tmp_path))
    config = imported.algorithm.config
    assert imported.unknown == []
    assert config.target_kl == pytest.approx(0.02 * n_dimensions)
    assert config.cg_damping == pytest.approx(0.3 * n_dimensions)


def test_steps_are_those_of_the_same_optimizer(tmp_path: Path) -> None:
    """Here A2C and DDPG have others by default, which the file does not name as hyperparameters."""
    model = make("A2C", "MlpPolicy", Still(VECTOR, CHOICE), rms_prop_eps=1e-3)
    config = import_sb3(saved(model, tmp_path)).algorithm.config
    assert (config.use_rms_prop, config.rms_prop_tensorflow, config.rms_prop_eps) == (True, False, 1e-3)
    assert config.rms_prop_decay == 0.99
    model = make("A2C", "MlpPolicy", Still(VECTOR, CHOICE), use_rms_prop=False)
    assert not import_sb3(saved(model, tmp_path)).algorithm.config.use_rms_prop
    from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

    kwargs = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.9, "eps": 1e-4}}
    model = make("A2C", "MlpPolicy", Still(VECTOR, CHOICE), policy_kwargs=kwargs)
    config = import_sb3(saved(model, tmp_path)).algorithm.config
    assert (config.use_rms_prop, config.rms_prop_tensorflow, config.rms_prop_eps) == (True, True, 1e-4)
    assert config.rms_prop_decay == 0.9
    model = make("DDPG", "MlpPolicy", Still(VECTOR, CONTINUOUS), learning_rate=2e-3)
    config = import_sb3(saved(model, tmp_path)).algorithm.config
    assert (config.learning_rate, config.actor_learning_rate) == (2e-3, None)


@pytest.mark.parametrize("observation_space", [VECTOR, spaces.Dict({"goal": VECTOR, "state": VECTOR})])
def test_vecnormalize_statistics_come_too(observation_space: spaces.Space, tmp_path: Path) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    venv = VecNormalize(DummyVecEnv([lambda: Still(observation_space, CONTINUOUS)]), clip_obs=2.0)
    venv.reset()
    for _ in range(50):
        venv.step(np.zeros((1, 2), np.float32))
    policy = "MlpPolicy" if observation_space is VECTOR else "MultiInputPolicy"
    model = make("PPO", policy, venv)
    venv.save(str(tmp_path / "vecnormalize.pkl"))
    imported = import_sb3(
        saved(model, tmp_path),
        env=EnvConfig(id="Still-v0"),
        env_spaces=(observation_space, CONTINUOUS),
        normalize=tmp_path / "vecnormalize.pkl",
    )
    seen = observations(observation_space, 200)
    expected, _ = model.predict(venv.normalize_obs(seen), deterministic=True)
    loaded = zoo.load(imported.algorithm.save(tmp_path / "imported"))
    np.testing.assert_allclose(loaded.predict(seen)[0], expected, rtol=1e-5, atol=1e-5)
    rewards = np.array([3.0, -1.0])
    np.testing.assert_allclose(
        loaded.normalizer.normalize_rewards(rewards), venv.normalize_reward(rewards), rtol=1e-5
    )


def test_other_environment_is_refused(tmp_path: Path) -> None:
    file = saved(make("PPO", "MlpPolicy", Still(VECTOR, CHOICE)), tmp_path)
    other = spaces.Box(-1.0, 1.0, (4,), np.float32)
    with pytest.raises(
        ZooError, match=r"observations and the environment's differ: Box\(3,\) float32 is not Box\(4,\)"
    ):
        import_sb3(file, env_spaces=(other, CHOICE))


def test_bounds_of_before_gymnasium_1_are_taken(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    old, today = (spaces.Box(-bound, bound, (3,), np.float32) for bound in (largest, np.inf))
    narrow, wide = (spaces.Box(-bound, bound, (2,), np.float32) for bound in (1.0, 2.0))
    file = saved(make("PPO", "MlpPolicy", Still(old, narrow)), tmp_path)
    with pytest.warns(ZooWarning, match="low.* -3.4028235e.38 is not -inf"):
        import_sb3(file, env_spaces=(today, narrow))
    with pytest.raises(ZooError, match=r"actions .* differ: low\[0\] -1.0 is not -2.0"):
        import_sb3(file, env_spaces=(old, wide))


class OwnActivation(nn.Module):
    def forward(self, values: Any) -> Any:
        return values


class OwnPolicy(ActorCriticPolicy):
    pass


@pytest.mark.parametrize(
    ("algorithm", "policy", "options", "problem"),
    [
        (
            "PPO",
            "MlpPolicy",
            {"policy_kwargs": {"activation_fn": OwnActivation}},
            "its non-linearity is OwnActivation",
        ),
        ("PPO", OwnPolicy, {}, f"an unknown class in {__name__}"),
        ("CrossQ", "MlpPolicy", {"policy_kwargs": {"batch_norm_eps": 0.1}}, "its batch_norm_eps is 0.1"),
    ],
)
def test_what_zoo_does_not_have_is_said(
    algorithm: str, policy: Any, options: Any, problem: str, tmp_path: Path
) -> None:
    model = make(algorithm, policy, Still(VECTOR, CONTINUOUS), **options)
    with pytest.raises(ZooError, match=problem):
        import_sb3(saved(model, tmp_path))


def test_agent_of_an_old_version_acts_the_same(tmp_path: Path) -> None:
    """Before 1.8 layers of actor and critic could be shared, and spaces were those of gym."""
    import io
    import zipfile

    import torch

    options = {"policy_kwargs": {"net_arch": [8]}}
    model = make("PPO", "MlpPolicy", Still(VECTOR, CHOICE), **options)
    with zipfile.ZipFile(saved(model, tmp_path)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    tensors = torch.load(io.BytesIO(members["policy.pth"]), weights_only=True)
    shared = {
        name.replace("policy_net", "shared_net"): value
        for name, value in tensors.items()
        if "mlp_extractor.value_net" not in name
    }
    file = io.BytesIO()
    torch.save(shared, file)
    members["policy.pth"] = file.getvalue()
    members["data"] = members["data"].replace(b"gymnasium.spaces", b"gym.spaces")
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    seen = observations(VECTOR, 200)
    expected, _ = model.predict(seen, deterministic=True)
    np.testing.assert_array_equal(import_sb3(tmp_path / "old.zip").algorithm.predict(seen)[0], expected)


def test_imported_agent_plays_and_learns_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from zoo.cli import run

    monkeypatch.chdir(tmp_path)
    venv = VecNormalize(make_vec_env("CartPole-v1", 2))
    venv.reset()
    make("PPO", "MlpPolicy", venv, n_steps=32, batch_size=32).save("it's my agent")
    venv.save("vecnormalize.pkl")
    assert (
        run(["import", "it's my agent.zip", "env=CartPole-v1", "normalize=vecnormalize.pkl", "out=mine"]) == 0
    )
    assert run(["evaluate", "agent=mine", "n_episodes=2"]) == 0
    agent = zoo.load("mine", "CartPole-v1", n_envs=2, compile=False)
    agent.learn(128, reset_num_timesteps=False)
    assert agent.normalizer.moments[""].count > 100


@pytest.mark.parametrize(
    ("agent", "statistics"),
    [
        ("ppo-Pendulum-v1.zip", "vec_normalize.pkl"),
        ("best_model.zip", "Pendulum-v1/vecnormalize.pkl"),
        ("rl_model_8_steps.zip", "rl_model_vecnormalize_8_steps.pkl"),
    ],
)
def test_statistics_beside_an_agent_are_taken(
    agent: str, statistics: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    monkeypatch.chdir(tmp_path)
    venv = VecNormalize(make_vec_env("Pendulum-v1", 1, seed=0))
    model = make("PPO", "MlpPolicy", venv, n_steps=8, batch_size=8).learn(8)
    model.save(Path("logs", agent))
    Path("logs", statistics).parent.mkdir(exist_ok=True)
    venv.save(str(Path("logs", statistics)))
    assert status_of(["import", "logs", "out=mine"]) == 0
    assert status_of(["import", f"logs/{agent}", "normalize=none", "out=raw"]) == 0
    observation = np.array([[0.5, 0.5, 3.0]], np.float32)
    for path, seen in (("mine", venv.normalize_obs(observation)), ("raw", observation)):
        expected = model.predict(seen, deterministic=True)[0]
        np.testing.assert_allclose(zoo.load(path).predict(observation)[0], expected, rtol=1e-4)


HYPERPARAMETERS = """
defaults: &defaults {n_envs: 2, normalize: "{'norm_obs': True, 'norm_reward': False}"}
Pendulum-v1:
  <<: *defaults
  n_timesteps: !!float 1e4
  policy: MlpPolicy
  learning_rate: 1e-3
  noise_type: normal
  noise_std: 0.1
  frame_stack: 2
  replay_buffer_class: HerReplayBuffer
  env_wrapper: [{rl_zoo3.wrappers.FrameSkip: {skip: 3}}, sb3_contrib.common.wrappers.TimeFeatureWrapper,
    rl_zoo3.wrappers.Unheard, {my_module.MyWrapper: {n: 3}}]
  policy_kwargs: "dict(n_critics=1, activation_fn=nn.LeakyReLU, net_arch=[dict(pi=[8], qf=[16])], unheard=3)"
  callback: my_module.MyCallback
Other-v0:
  policy_kwargs: "dict(net_arch=open('opened', 'w'))"
"""


@pytest.mark.parametrize("content", ["", "- Pendulum-v1", "Pendulum-v1"])
def test_file_without_hyperparameters_is_one_error(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "td3.yml").write_text(content)
    assert status_of(["import", str(tmp_path / "td3.yml")]) == 2
    assert "holds no environments with their hyperparameters" in capsys.readouterr().err


def test_hyperparameters_of_rl_zoo3_become_tuned_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("td3.yml").write_text(HYPERPARAMETERS)
    assert status_of(["import", "td3.yml"]) == 0
    printed = capsys.readouterr().out
    for left_out in (
        "defaults: no environment",
        "Unheard",
        "unheard",
        "callback",
        "policy_kwargs (no plain data)",
    ):
        assert left_out in printed
    assert not Path("opened").exists()
    config = zoo.compose("train", ["algo=td3", "env=Pendulum-v1"])
    assert config["tuned"] == "hyperparams/td3/Pendulum-v1.yaml"
    assert (config["n_envs"], config["n_timesteps"]) == (2, 10_000)
    algo, env, policy = (config[section] for section in ("algo", "env", "policy"))
    assert (algo["learning_rate"], algo["n_critics"], algo["train_freq"]) == (1e-3, 1, 1)
    assert (algo["action_noise"]["type"], algo["action_noise"]["std"]) == ("normal", 0.1)
    assert (env["normalize"]["rewards"], env["frame_stack"], env["action_repeat"]) == (False, 2, 3)
    assert (env["time_feature"], env["wrappers"]) == (True, [{"_target_": "my_module.MyWrapper", "n": 3}])
    assert (policy["activation"], policy["net_arch"]) == ("leaky_relu", {"pi": [8], "qf": [16]})
    assert config["replay"]["hindsight"]["n_sampled_goal"] == 4
