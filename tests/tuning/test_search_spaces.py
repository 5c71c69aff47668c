"""Every algorithm has a space that fits it; what a user changes of one is held against the algorithm."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import optuna
import pytest
from omegaconf import OmegaConf

import zoo
from zoo.algorithms.on_policy import OnPolicyAlgorithm, RolloutConfig
from zoo.algorithms.registry import ALGORITHMS, algorithm_class
from zoo.config.fields import build
from zoo.config.validate import ALGO_LABELS
from zoo.core.plain_data import value_at
from zoo.errors import ZooError
from zoo.tuning.space import FloatDimension, Space, put_at
from zoo.tuning.study import Plan

CONF = Path(zoo.__file__).parents[1] / "conf"
PRESETS = [path.stem for path in (CONF / "algo").glob("*.yaml")]


def plan_for(algo: str, *more: str) -> Plan:
    config = zoo.compose("tune", [f"algo={algo}", "env=CartPole-v1", "n_timesteps=1e5", "tuned=none", *more])
    return Plan(cast(dict[str, Any], OmegaConf.to_container(config, resolve=True)))


@pytest.fixture(scope="module")
def ppo2() -> Plan:
    return plan_for("ppo2")


def drawn(plan: Plan, n: int = 1) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    return [plan.space.suggest(study.ask(), plan.base) for _ in range(n)]


def test_every_algorithm_has_a_space_of_its_own() -> None:
    assert {path.stem for path in (CONF / "tune" / "space").glob("*.yaml")} >= set(ALGORITHMS)


@pytest.mark.parametrize("algo", [*ALGORITHMS, *PRESETS])
def test_algorithm_accepts_values_of_its_search_space(algo: str) -> None:
    plan = plan_for(algo)
    plan.check()
    found = algorithm_class(plan.base["algo"]["name"])
    for values in drawn(plan, 5):
        config = plan.config_of_trial(values, 1, Path("runs"))
        hyperparameters = {key: each for key, each in config["algo"].items() if key not in ALGO_LABELS}
        build(found.config_class, hyperparameters, "algo")


def test_preset_has_the_space_of_what_it_builds_on(working_folder: Path) -> None:
    (working_folder / "conf" / "algo").mkdir(parents=True)
    (working_folder / "conf" / "algo" / "mine.yaml").write_text(
        "defaults:\n  - ppo\n  - _self_\nn_steps: 64\n"
    )
    for preset in ("mine", "maskable_ppo"):
        assert plan_for(preset).space.dimensions == plan_for("ppo2").space.dimensions


def test_exploring_noise_replaces_random_actions() -> None:
    searched = plan_for("rainbow").space.dimensions.keys()
    assert "algo.noisy_std" in searched
    assert not {"algo.exploration_fraction", "algo.exploration_final_eps"} & searched


def test_key_on_the_command_line_is_not_searched() -> None:
    plan = plan_for("ppo2", "algo.gamma=0.97", "policy.net_arch.pi=[8]")
    assert plan.space.left_out == ["algo.gamma", "policy.net_arch"]
    assert "algo.gamma" not in plan.space.dimensions
    assert plan.base["algo"]["gamma"] == 0.97


def test_command_line_edits_search_space() -> None:
    new = "space.algo.adam_eps={type: float, low: 1e-8, high: 1e-4, log: true}"
    without = ("~space.algo.vf_coef", "space.algo.ent_coef=null")
    plan = plan_for("ppo2", "space.algo.gamma.low=0.95", new, *without)
    assert plan.space.dimensions["algo.gamma"] == FloatDimension(0.95, 0.9999, log=True, complement=True)
    assert "algo.adam_eps" in plan.space.dimensions
    assert not {"algo.vf_coef", "algo.ent_coef"} & plan.space.dimensions.keys()


def test_plain_value_in_a_space_is_that_of_every_trial() -> None:
    plan = plan_for("ppo2", "space.algo.target_kl=0.03")
    assert drawn(plan)[0]["algo.target_kl"] == 0.03


@pytest.mark.parametrize(
    ("path", "values", "message"),
    [
        ("algo.gamma.high", 1.5, "`space.algo.gamma`: high=1.5, expected less than 1"),
        ("algo.gae_lambda.high", 1.5, "`algo.gae_lambda=1.5` is out of range; expected at least 0"),
        ("algo.learning_rate.low", -1.0, "`space.algo.learning_rate`: `low > 0` must hold"),
        ("algo.n_steps.low", 0, "not both powers of 2"),
        ("algo.n_epochs.low", 0, "`algo.n_epochs=0` is out of range"),
        ("algo.gama", {"type": "float", "low": 0.1, "high": 0.2}, "unknown key `algo.gama`; did you mean"),
        ("algo.gamma.hihg", 1, "unknown key `space.algo.gamma.hihg`; did you mean"),
        ("algo.gamma.type", "flot", "did you mean 'float'"),
        ("algo.gama", {"low": 0.9}, "`space.algo.gama` has no type; did you mean 'algo.gamma'"),
        ("algo.gama", None, "unknown key `space.algo.gama`; did you mean 'gamma'"),
        ("algo.target_kl", {"low": 0.1, "high": 0.2}, "`space.algo.target_kl` has no type"),
        ("algo.vf_coef.low", 3.0, "`space.algo.vf_coef`: .*low"),
        ("algo.vf_coef", {"type": "categorical", "choices": []}, "one or more elements"),
        ("policy.net_arch", {"type": "categorical", "choices": [[8], [16]]}, "needs a name"),
        ("n_timesteps", {"type": "int", "low": 100, "high": 200}, "`space.n_timesteps` can't be searched"),
        ("policy.activation.choices", ["tanh", "rulu"], "did you mean .relu"),
        ("algo.batch_size.at_most", ["algo.n_stepz"], "not a number"),
    ],
)
def test_space_that_the_algorithm_refuses_is_told(ppo2: Plan, path: str, values: Any, message: str) -> None:
    space = copy.deepcopy(ppo2.config["space"])
    put_at(space, path, values)
    with pytest.raises(ZooError, match=message):
        Space(space).check(ppo2.base)


def test_drawn_batch_size_fits_rollout() -> None:
    for values in drawn(plan_for("ppo2", "n_envs=3"), 50):
        assert values["algo.batch_size"] <= 3 * values["algo.n_steps"]


AT_ONCE = "algo.learning_starts"  # 0, which has no logarithm
NOT_DRAWN = {
    "acer/CartPole-v1": "algo.learning_rate",  # falls to another end than 0
    "c51/LunarLander-v3": "algo.buffer_size policy.net_arch",
    "ddpg/HumanoidBulletEnv-v0": "algo.train_freq",  # an episode
    "dqn/Acrobot-v1": AT_ONCE,
    "dqn/LunarLander-v3": AT_ONCE,
    "ppo/CarRacing-v3": "policy.net_arch policy.activation",
    "qrdqn/Acrobot-v1": AT_ONCE,
    "qrdqn/LunarLander-v3": AT_ONCE,
    "rainbow/LunarLander-v3": "algo.buffer_size",  # keeps every step
    "recurrent_ppo/CarRacing-v3": "policy.activation",
    "sac/Acrobot-v1": "algo.learning_starts",  # random steps must meet the goal first
    "sac/MountainCarContinuous-v0": AT_ONCE,
    "tqc/MountainCarContinuous-v0": AT_ONCE,
}
"""What no study begins with though a tuned file has it; the rest of such a file is where it begins."""

OFF_POLICY = [name for name in ALGORITHMS if algorithm_class(name).has_replay and name != "acer"]


def tuned_files(algo: str) -> list[Path]:
    return sorted((CONF.parent / "hyperparams" / algo).glob("*.yaml"))


@pytest.mark.parametrize("algo", [path.name for path in sorted((CONF.parent / "hyperparams").iterdir())])
def test_first_trial_accepts_every_tuned_file(algo: str) -> None:
    """The plan is composed once: the files are laid over it."""
    plan = plan_for(algo)
    is_off_policy = plan.base["algo"]["name"] in OFF_POLICY
    assert tuned_files(algo)
    for path in tuned_files(algo):
        laid_over = OmegaConf.merge(plan.base, OmegaConf.load(path))
        config = cast(dict[str, Any], OmegaConf.to_container(laid_over))
        found, outside = plan.space.parameters_of(config)
        # Off-policy files take some gradient steps after some steps; searched are one, and as many.
        expected = {"algo.gradient_steps"} if is_off_policy else set()
        if algo == "ars":  # its files learn from some of the best directions; searched are all, and the best
            expected.add("algo.n_top")
        if algo == "recurrent_ppo":  # some of its files have no layer after the LSTM, or two wide ones
            expected.add("policy.net_arch")
        expected.update(NOT_DRAWN.get(f"{algo}/{path.stem}", "").split())
        assert set(outside) <= expected, f"{path.stem}: {outside}"
        if outside:
            continue
        study = optuna.create_study()
        study.enqueue_trial(found)
        drawn_again = plan.space.suggest(study.ask(), config)
        for place, value in drawn_again.items():
            if isinstance(value, int) and place != "algo.learning_starts":  # of which a short trial has less
                assert value == value_at(config, place), f"{path.stem}: {place}"


def test_empty_space_is_refused() -> None:
    with pytest.raises(ZooError, match="nothing to search"):
        Space({}).check({})


class CriticFree(OnPolicyAlgorithm):
    config_class = RolloutConfig


def test_inherited_space_fits_a_class_without_critic() -> None:
    plan = plan_for("test_search_spaces.CriticFree")
    plan.check()
    assert {path for path in plan.space.dimensions if path.startswith("algo.")} == {
        "algo.learning_rate",
        "algo.gamma",
    }
