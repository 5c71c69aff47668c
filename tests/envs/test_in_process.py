"""The vector environment that steps in this process."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from scripted import Counting, Failing, Noisy, assert_same

from zoo.envs import EnvStepper, make_vec_env
from zoo.errors import ZooError


@pytest.mark.parametrize("make", [Counting, Noisy, lambda: gym.make("FrozenLake-v1")])
def test_steps_are_those_of_gymnasiums_same_step_env(make: Any) -> None:
    ours = make_vec_env(make, 3, check=False)
    theirs = SyncVectorEnv([make] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(0)
    for _ in range(60):
        actions = theirs.action_space.sample()
        for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("vectorization", ["sync", "workers"])
def test_what_a_step_gave_stays_as_it_is(vectorization: str) -> None:
    env = make_vec_env(Counting, 2, vectorization=vectorization, check=False)
    try:
        env.reset()
        steps = [env.step(np.zeros(2, np.int64))[:4] for _ in range(3)]
        assert [rewards.tolist() for _, rewards, _, _ in steps] == [[1.0] * 2, [2.0] * 2, [1.0] * 2]
        ended = [terminated.tolist() for _, _, terminated, _ in steps]
        assert ended == [[False] * 2, [True] * 2, [False] * 2]
    finally:
        env.close()


def test_same_seed_gives_the_same_steps() -> None:
    runs = []
    for _ in range(2):
        env = make_vec_env(Noisy, 2, seed=4, check=False)
        observations, _ = env.reset()
        steps = [env.step(np.zeros((2, 2)))[0]["state"] for _ in range(30)]
        runs.append(np.array([observations["state"], *steps]))
    assert np.array_equal(runs[0], runs[1])


def test_each_env_gets_its_own_seed() -> None:
    env = make_vec_env("CartPole-v1", 3, seed=10)
    observations, _ = env.reset()
    singles = [gym.make("CartPole-v1").reset(seed=10 + i)[0] for i in range(3)]
    assert np.array_equal(observations, np.stack(singles))


def test_env_that_samples_from_its_own_space_honours_the_seed() -> None:
    class Sampling(Counting):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

    first, second = (make_vec_env(Sampling, 1, seed=3, check=False).reset()[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_spaces_of_an_env_and_its_own_generator_draw_different_numbers() -> None:
    class Drawing(gym.Env[Any, Any]):
        def __init__(self) -> None:
            self.observation_space = gym.spaces.Discrete(1000)
            self.action_space = gym.spaces.Discrete(1000)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return 0, {}

        def step(self, action: Any) -> Any:
            draws = {
                self.action_space.sample(),
                self.observation_space.sample(),
                self.np_random.integers(1000),
            }
            return 0, float(len(draws)), False, False, {}

    env = make_vec_env(Drawing, 1, seed=0)
    env.reset()
    assert np.mean([env.step([0])[1][0] for _ in range(50)]) > 2.9


def test_no_seed_draws_one() -> None:
    first, second = (make_vec_env("CartPole-v1").reset()[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_actions_stay_as_the_caller_gave_them() -> None:
    class Greedy(Noisy):
        def step(self, action: Any) -> Any:
            action *= 2
            return super().step(action)

    env = make_vec_env(Greedy, 2, seed=0, check=False)
    env.reset()
    actions = np.ones((2, 2), dtype=np.int64)
    env.step(actions)
    assert (actions == 1).all()


def test_actions_of_a_wrong_shape_are_refused() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    env.reset()
    with pytest.raises(ValueError, match=r"shape \(2, 1\); expected \(2,\)"):
        env.step(np.zeros((2, 1)))


def test_raising_env_is_reported_with_its_own_traceback_index_seed_and_step() -> None:
    makers = [lambda: gym.wrappers.TimeLimit(Failing(), 2), Failing]
    env = make_vec_env(lambda: makers.pop(0)(), 2, check=False)
    stepper = EnvStepper(env)
    stepper.reset([40, 41])
    stepper.step([0, 0])
    stepper.step([0, 0])
    with pytest.raises(ZooError) as caught:
        stepper.step([0, 0])
    message = str(caught.value)
    assert message.startswith("env 1 (step 3 after seed 41) raised RuntimeError in a step:")
    assert "the simulator lost its licence" in message
    assert "scripted.py" in message
    assert "in_process.py" not in message


def test_env_that_cannot_be_made_is_reported() -> None:
    def make() -> Any:
        raise OSError("no such level")

    with pytest.raises(ZooError, match=r"env 0 raised OSError while it was made:(.|\n)*no such level"):
        make_vec_env(make, 2, check=False)


def test_envs_with_different_spaces_are_refused() -> None:
    makers = [lambda: gym.make("CartPole-v1"), lambda: gym.make("Acrobot-v1")]
    with pytest.raises(ZooError, match=r"env 1 has another observation_space than env 0: Box\(4,\) float32"):
        make_vec_env(lambda: makers.pop(0)(), 2, check=False)


def test_options_of_a_reset_reach_the_envs_but_for_which_are_reset() -> None:
    class Asked(Counting):
        options: Any = "never reset"

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.options = options
            return super().reset(seed=seed)

    vector_env = make_vec_env(Asked, 2, check=False)

    def seen() -> list[Any]:
        return [env.unwrapped.options for env in vector_env.unwrapped.envs]  # type: ignore[attr-defined]

    vector_env.reset(seed=0, options={"level": 3})
    assert seen() == [{"level": 3}] * 2
    vector_env.reset(options={"reset_mask": np.array([True, False])})
    assert seen() == [None, {"level": 3}]


def test_only_the_masked_envs_are_reset() -> None:
    env = make_vec_env(Counting, 3, check=False)
    env.reset(seed=0)
    env.step(np.zeros(3))
    observations, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert observations.tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]


def test_methods_and_attributes_of_the_envs_can_be_reached() -> None:
    env = make_vec_env("CartPole-v1", 2)
    assert env.get_attr("gravity") == (9.8, 9.8)
    env.set_attr("gravity", [1.0, 2.0])
    assert env.get_attr("gravity") == (1.0, 2.0)
    env.set_attr("gravity", 3.0)
    assert env.get_attr("gravity") == (3.0, 3.0)


def test_frames_are_rendered() -> None:
    pytest.importorskip("pygame")
    env = make_vec_env("CartPole-v1", 2, seed=0, render_mode="rgb_array")
    env.reset()
    frames = env.render()
    assert [frame.shape for frame in frames] == [(400, 600, 3)] * 2
    env.close()


def test_env_that_ends_at_its_first_step_is_stepped_on() -> None:
    stepper = EnvStepper(make_vec_env(lambda: Counting(lengths=(1,)), 2, check=False))
    stepper.reset([0, 1])
    for _ in range(5):
        step = stepper.step([0, 0])
        assert [episode.length for episode in step.episodes] == [1, 1]
        assert step.final_observations[:, 1].tolist() == [1.0, 1.0]


def test_spaces_that_no_array_holds_are_refused() -> None:
    class Worded(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Tuple([gym.spaces.Text(2)])

    with pytest.raises(ZooError, match="type Text is not supported"):
        make_vec_env(Worded, check=False)


def test_one_env_instance_can_be_given() -> None:
    env = make_vec_env(gym.make("CartPole-v1"), seed=0)
    assert env.num_envs == 1
    with pytest.raises(ZooError, match="function that makes one"):
        make_vec_env(gym.make("CartPole-v1"), 2)


@pytest.mark.parametrize("seed", [-1, "3", 0.5])
def test_wrong_seed_is_refused(seed: Any) -> None:
    with pytest.raises(ZooError, match="expected a whole number, 0 or more"):
        make_vec_env("CartPole-v1", seed=seed)


@pytest.mark.parametrize("vectorization", ["sync", "workers", "native"])
def test_large_seeds_are_taken(vectorization: str) -> None:
    stepper = EnvStepper(make_vec_env("CartPole-v1", 2, vectorization=vectorization, start_method="fork"))
    stepper.reset([2**63, 2**32 - 1])
    stepper.close()


def test_unknown_render_mode_is_refused() -> None:
    with pytest.raises(ZooError, match="CartPole-v1 can human, rgb_array; did you mean 'rgb_array'"):
        make_vec_env("CartPole-v1", render_mode="rgb_aray")


def test_zero_envs_are_refused() -> None:
    with pytest.raises(ZooError, match="n_envs=0"):
        make_vec_env("CartPole-v1", 0)


def test_more_envs_than_memory_could_hold_are_refused_beforehand() -> None:
    """Ten million millions of them, of four kibibytes each at least."""
    with pytest.raises(ZooError, match=r"`n_envs=10000000000000` needs at least 38,146,972\.7 GiB of memory"):
        make_vec_env("CartPole-v1", 10**13)
