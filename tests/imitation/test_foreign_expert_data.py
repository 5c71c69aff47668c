"""Expert data of Stable-Baselines, made here as its documentation describes them, and Minari's datasets."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.errors import ZooError
from zoo.imitation.expert_files import read_expert

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
IMAGES = spaces.Box(0, 255, (4, 5, 3), np.uint8)


def save(path: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {
        "actions": np.array([[0], [1], [1]]),
        "obs": np.arange(6, dtype=np.float64).reshape(3, 2),
        "rewards": np.array([1.0, 2.0, 3.0]),
        "episode_returns": np.array([3.0, 3.0]),
        "episode_starts": np.array([True, False, True]),
    }
    np.savez(path, **{**values, **changes})
    return path


def save_images(folder: Path, pictures: list[np.ndarray], *, under: str = "recorded_images") -> list[str]:
    image = pytest.importorskip("PIL.Image")
    (folder / "recorded_images").mkdir(exist_ok=True)
    for index, picture in enumerate(pictures):
        image.fromarray(picture.squeeze()).save(folder / "recorded_images" / f"{index}.png")
    return [f"{under}/{index}.png" for index in range(len(pictures))]


def test_arrays_are_read_for_the_spaces_of_the_environment(tmp_path: Path) -> None:
    data = read_expert(save(tmp_path / "sb.npz"), (BOX, spaces.Discrete(2)))
    assert data.observations.dtype == np.float32
    assert data.observations.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert data.actions.tolist() == [0, 1, 1]
    assert data.lengths.tolist() == [2, 1]
    assert data.returns.tolist() == [3.0, 3.0]
    assert data.rewards.tolist() == [1.0, 2.0, 3.0]
    assert data.terminated is None
    assert data.card["source"] == {"format": "Stable-Baselines", "file": "sb.npz"}


def test_numbers_are_clipped_to_what_the_environment_takes(tmp_path: Path) -> None:
    path = save(tmp_path / "sb.npz", actions=np.array([[0.5], [-3.0], [9.0]]))
    data = read_expert(path, (BOX, spaces.Box(-2.0, 2.0, (1,), np.float32)))
    assert data.actions.tolist() == [[0.5], [-2.0], [2.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.array([[0.0], [0.9], [1.0]])}, r"0\.9 at step 1 is no action of Discrete\(2\)"),
        ({"actions": np.array([[0.0], [np.nan], [1.0]])}, "at step 1 is no action"),
        ({"actions": np.array(["a", "b", "c"])}, "at step 0 is no action"),
    ],
)
def test_what_is_no_action_is_not_rounded_to_one(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ZooError, match=message):
        read_expert(save(tmp_path / "sb.npz", **changes), (BOX, spaces.Discrete(2)))
    whole = save(tmp_path / "whole.npz", actions=np.array([[0.0], [1.0], [1.0]]))
    assert read_expert(whole, (BOX, spaces.Discrete(2))).actions.tolist() == [0, 1, 1]


def test_spaces_are_guessed_without_an_environment(tmp_path: Path) -> None:
    data = read_expert(save(tmp_path / "sb.npz"))
    assert data.action_space == spaces.Discrete(2)
    assert data.observation_space.shape == (2,)
    several = read_expert(save(tmp_path / "several.npz", actions=np.array([[0, 4], [2, 1], [1, 1]])))
    assert several.action_space == spaces.MultiDiscrete([3, 5])
    numbers = read_expert(save(tmp_path / "numbers.npz", actions=np.zeros((3, 2))))
    assert isinstance(numbers.action_space, spaces.Box)
    assert numbers.action_space.shape == (2,)


def test_what_does_not_fit_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = save(tmp_path / "sb.npz")
    with pytest.raises(ZooError, match=r"observations of shape \(2,\), expected \(3,\)"):
        read_expert(path, (spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(2)))
    with pytest.raises(ZooError, match=r"2 at step 1 is no action of Discrete\(2\)"):
        read_expert(save(path, actions=np.array([[0], [2], [1]])), (BOX, spaces.Discrete(2)))
    empty = {name: np.zeros(0) for name in ("actions", "rewards", "episode_returns", "episode_starts")}
    save(path, obs=np.zeros((0, 2)), **empty)
    with pytest.raises(ZooError, match="it is empty"):
        read_expert(path, (BOX, spaces.Discrete(2)))
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ZooError, match="is no expert data: it has no actions"):
        read_expert(path)


@pytest.mark.parametrize(
    "under", ["recorded_images", "where/it/was/written/recorded_images", "/tmp/recorded_images"]
)
def test_images_are_read_from_the_folder_beside(tmp_path: Path, under: str) -> None:
    pictures = [np.random.default_rng(i).integers(0, 256, (4, 5, 3), np.uint8) for i in range(3)]
    path = save(tmp_path / "sb.npz", obs=np.array(save_images(tmp_path, pictures, under=under)))
    data = read_expert(path, (IMAGES, spaces.Discrete(2)))
    np.testing.assert_array_equal(data.observations, np.stack(pictures))


def test_four_channels_come_back_in_the_order_of_the_observation(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    (tmp_path / "recorded_images").mkdir()
    pictures = [np.random.default_rng(i).integers(0, 256, (4, 5, 4), np.uint8) for i in range(3)]
    for index, picture in enumerate(pictures):
        cv2.imwrite(str(tmp_path / "recorded_images" / f"{index}.png"), picture)
    names = np.array([f"recorded_images/{index}.png" for index in range(3)])
    data = read_expert(save(tmp_path / "sb.npz", obs=names))
    np.testing.assert_array_equal(data.observations, np.stack(pictures))


def test_path_out_of_the_folder_is_no_link(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    save_images(tmp_path, [np.zeros((4, 5, 3), np.uint8)] * 3)
    path = save(inside / "sb.npz", obs=np.array(["../recorded_images/0.png"] * 3))
    with pytest.raises(ZooError, match=r"the image \.\./recorded_images/0\.png is not in"):
        read_expert(path, (IMAGES, spaces.Discrete(2)))


def test_missing_and_damaged_images_are_named(tmp_path: Path) -> None:
    pictures = [np.zeros((4, 5, 3), np.uint8)] * 3
    path = save(tmp_path / "sb.npz", obs=np.array(save_images(tmp_path, pictures)))
    image = tmp_path / "recorded_images" / "1.png"
    image.write_bytes(image.read_bytes()[:40])
    with pytest.raises(ZooError, match=r"the image recorded_images/1\.png can't be read"):
        read_expert(path, (IMAGES, spaces.Discrete(2)))
    image.unlink()
    with pytest.raises(ZooError, match=r"the image recorded_images/1\.png is not in"):
        read_expert(path, (IMAGES, spaces.Discrete(2)))
    save_images(tmp_path, [pictures[0], np.zeros((4, 6, 3), np.uint8), pictures[0]])
    with pytest.raises(ZooError, match="shapes"):
        read_expert(path, (IMAGES, spaces.Discrete(2)))


def episode(n_steps: int, **infos: Any) -> SimpleNamespace:
    return SimpleNamespace(
        observations=np.arange(2 * (n_steps + 1), dtype=np.float64).reshape(-1, 2),
        actions=np.ones(n_steps, np.int64),
        rewards=np.full(n_steps, 2.0),
        terminations=np.arange(n_steps) == n_steps - 1,
        truncations=np.zeros(n_steps, np.bool_),
        infos=infos,
    )


def dataset(*episodes: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(
        observation_space=spaces.Box(-np.inf, np.inf, (2,), np.float64),
        action_space=spaces.Discrete(2),
        env_spec=SimpleNamespace(id="Some-v0"),
        total_steps=sum(len(each.rewards) for each in episodes),
        iterate_episodes=lambda: iter(episodes),
    )


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("minari")
    monkeypatch.setitem(sys.modules, "minari", module)
    return module


def test_steps_of_all_episodes_are_joined(stand_in: Any) -> None:
    episodes = [episode(3, success=np.array([False, False, False, True])), episode(2, success=np.zeros(3))]
    stand_in.load_dataset = lambda name: {"a/b-v0": dataset(*episodes)}[name]
    data = read_expert("minari:a/b-v0")
    assert data.lengths.tolist() == [3, 2]
    assert data.observations.tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert data.returns.tolist() == [6.0, 4.0]
    assert data.terminated is not None
    assert data.terminated.tolist() == [True, True]
    assert data.successes is not None
    assert data.successes.tolist() == [True, False]
    assert data.card == {"env": "Some-v0", "source": {"format": "Minari", "dataset": "a/b-v0"}}
    with pytest.raises(ZooError, match="the observations of minari:a/b-v0 and the environment's differ"):
        read_expert("minari:a/b-v0", (spaces.Discrete(2), spaces.Discrete(2)))


def test_nested_observations_become_one_dictionary(stand_in: Any) -> None:
    one = episode(2)
    one.observations = ({"b": one.observations}, np.array([3, 1, 2]))
    made = dataset(one)
    parts = spaces.Dict({"b": spaces.Box(-9.0, 9.0, (2,), np.float32)})
    made.observation_space = spaces.Tuple((parts, spaces.Discrete(4)))
    stand_in.load_dataset = lambda name: made
    data = read_expert("minari:x-v0")
    assert data.observations["0/b"].tolist() == [[0, 1], [2, 3]]
    assert data.observations["1"].tolist() == [3, 1]


def test_dictionaries_and_actions_with_parts(stand_in: Any) -> None:
    made = dataset(episode(2))
    made.observation_space = spaces.Dict({"a": spaces.Box(-9.0, 9.0, (2,), np.float32)})
    made.action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), np.float32)])
    one = episode(2)
    one.observations, one.actions = {"a": one.observations}, (np.array([0, 1]), np.zeros((2, 1)))
    made.iterate_episodes = lambda: iter([one])
    stand_in.load_dataset = lambda name: made
    data = read_expert("minari:x-v0")
    assert data.observations["a"].shape == (2, 2)
    assert data.actions["0"].tolist() == [0, 1]
    assert data.successes is None


def test_dataset_that_minari_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("h5py")
    import gymnasium as gym

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("CartPole-v1"))
    for seed in range(2):
        env.reset(seed=seed)
        done = False
        while not done:
            _, _, terminated, truncated, _ = env.step(0)
            done = terminated or truncated
    env.create_dataset("cartpole/left-v0")
    data = read_expert("minari:cartpole/left-v0")
    assert data.card["env"] == "CartPole-v1"
    assert data.n_episodes == 2
    assert data.returns.tolist() == data.lengths.tolist()
    assert data.terminated is not None
    assert data.terminated.all()
    np.testing.assert_array_equal(data.observations[0], gym.make("CartPole-v1").reset(seed=0)[0])
