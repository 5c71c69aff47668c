"""Expert data: Zoo's files, and Stable-Baselines'."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from zoo.errors import ZooError, ZooWarning
from zoo.imitation.expert_data import ExpertData, read_expert, summary, write_expert

# -- Expert data: what fits together, what is kept on the disk, and what is refused -----------------------

OBSERVATIONS = spaces.Box(-10.0, 10.0, (2,), np.float32)
ACTIONS = spaces.Discrete(3, start=1)


def expert(**changes: Any) -> ExpertData:
    """Return three episodes of 2, 1 and 3 steps, which return 3, 3 and 15."""
    values: dict[str, Any] = {
        "observation_space": OBSERVATIONS,
        "action_space": ACTIONS,
        "observations": np.arange(12, dtype=np.float32).reshape(6, 2) - 5,
        "actions": np.array([1, 2, 3, 1, 2, 3]),
        "rewards": np.arange(1, 7, dtype=np.float32),
        "lengths": np.array([2, 1, 3]),
        "returns": np.array([3.0, 3.0, 15.0]),
        "terminated": np.array([True, False, True]),
        "successes": np.array([False, False, True]),
        "action_masks": np.array([[True, False, True], [False, True, True], [True, False, True]] * 2),
        "card": {"env": "Some-v0", "source": {"expert": "somebody"}},
    }
    return ExpertData(**{**values, **changes})


def assert_equal(one: ExpertData, other: ExpertData) -> None:
    assert one.observation_space == other.observation_space
    assert one.action_space == other.action_space
    for name in ("observations", "actions", "rewards", "lengths", "returns", "terminated", "successes"):
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, dict):
            assert list(first) == list(second)
            pairs = [(first[key], second[key]) for key in first]
        else:
            pairs = [(first, second)]
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, theirs, strict=ours is not None)
    np.testing.assert_array_equal(one.action_masks, other.action_masks)  # type: ignore[arg-type]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = write_expert(tmp_path / "expert.npz", expert())
    data = read_expert(path, (OBSERVATIONS, ACTIONS))
    assert_equal(data, expert())
    assert data.card["env"] == "Some-v0"
    assert data.card["source"] == {"expert": "somebody"}


def test_nested_expert_data_is_read_as_written(tmp_path: Path) -> None:
    observation_space = spaces.Dict(
        {"eye": spaces.Box(0, 255, (4, 4, 1), np.uint8), "../leg": spaces.Box(-1.0, 1.0, (2,), np.float32)}
    )
    action_space = spaces.Tuple(
        [spaces.Discrete(2), spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,), np.float32)})]
    )
    rng = np.random.default_rng(0)
    data = ExpertData(
        observation_space,
        action_space,
        {
            "../leg": rng.uniform(-1, 1, (3, 2)).astype(np.float32),
            "eye": rng.integers(0, 255, (3, 4, 4, 1), np.uint8),
        },
        {"0": np.array([0, 1, 1]), "1/a": rng.uniform(-1, 1, (3, 2)).astype(np.float32)},
        np.ones(3, np.float32),
        np.array([3]),
        np.array([3.0]),
    )
    read = read_expert(write_expert(tmp_path / "expert.npz", data))
    assert_equal(read, data)
    assert (read.terminated, read.successes, read.action_masks) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": np.zeros(0, np.float32), "lengths": np.zeros(0, np.int64)}, "it is empty"),
        ({"lengths": np.array([2, 1, 2])}, "5 steps together, but there are 6 rewards"),
        ({"lengths": np.array([2, 0, 4])}, "6 steps together"),
        ({"returns": np.array([3.0, 18.0])}, r"returns of shape \(2,\)"),
        ({"terminated": np.ones(4, np.bool_)}, "terminated of shape"),
        ({"observations": np.zeros((6, 3), np.float32)}, r"observations of shape \(6, 3\)"),
        ({"observations": np.zeros((6, 2))}, "type float64, expected Box"),
        ({"observations": np.full((6, 2), np.nan, np.float32)}, "at step 0"),
        ({"actions": np.array([1, 2, 3, 4, 1, 1])}, r"4 at step 3 is no value of Discrete\(3, start=1\)"),
        ({"actions": np.array([1, 2, 0, 1, 1, 1])}, "0 at step 2"),
        ({"action_masks": np.ones((6, 2), np.bool_)}, r"expected \(6, 3\)"),
        ({"rewards": np.full(6, np.inf, np.float32)}, "its rewards are not finite"),
        ({"returns": np.array([3.0, np.nan, 15.0])}, "its rewards are not finite"),
        (
            {"action_masks": np.array([[True, True, True]] * 4 + [[True, False, True]] * 2)},
            r"the mask at step 4 forbids the expert's own action",
        ),
        ({"rewards": np.ones((6, 1), np.float32)}, r"rewards of shape \(6, 1\), expected \(6,\)"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        expert(**changes)


def test_other_spaces_are_refused_with_what_differs(tmp_path: Path) -> None:
    path = write_expert(tmp_path / "expert.npz", expert())
    with pytest.raises(
        ZooError, match=r"observations of .*expert\.npz and the environment's differ: Box\(2,\)"
    ):
        read_expert(path, (spaces.Box(-1.0, 1.0, (3,), np.float32), ACTIONS))
    with pytest.raises(ZooError, match=r"the actions of .* and the environment's differ"):
        read_expert(path, (OBSERVATIONS, spaces.Discrete(3)))


def test_filters() -> None:
    data = expert()
    assert data.filtered() is data
    assert data.filtered(min_return=3.0).n_episodes == 3
    assert data.filtered(min_return=3.1).returns.tolist() == [15.0]
    assert data.filtered(successes_only=True).lengths.tolist() == [3]
    assert data.filtered(n_episodes=2).lengths.tolist() == [2, 1]
    with pytest.warns(ZooWarning, match="9 episodes were wanted; 3 of 3"):
        assert data.filtered(n_episodes=9).n_episodes == 3
    with pytest.warns(ZooWarning, match="2 episodes were wanted; 1 of 3"):
        assert data.filtered(n_episodes=2, min_return=15).n_episodes == 1
    with pytest.raises(ZooError, match=r"min_return=16 leaves nothing of 3 episodes, the best .* of 15"):
        data.filtered(min_return=16)
    with pytest.raises(ZooError, match="successes_only leaves nothing"):
        expert(successes=np.zeros(3, np.bool_)).filtered(successes_only=True)
    with pytest.raises(ZooError, match="min_return=16 and successes_only leaves nothing"):
        data.filtered(min_return=16, successes_only=True)
    with pytest.raises(ZooError, match="does not say which episodes succeeded"):
        expert(successes=None).filtered(successes_only=True)


# -- files of strangers -----------------------------------------------------------------------------------
def rewritten(path: Path, **members: bytes | None) -> Path:
    """Write other contents for some members of an archive; None leaves one out."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    for name, content in members.items():
        real = name.replace("__", ".")
        contents.pop(real, None)
        if content is not None:
            contents[real] = content
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in contents.items():
            archive.writestr(name, each)
    return path


def npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


class Boom:
    """Something that runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of a stranger ran",))


def test_pickled_objects_are_not_read(tmp_path: Path) -> None:
    path = write_expert(tmp_path / "expert.npz", expert())
    rewritten(path, actions__npy=npy(np.array([Boom()] * 6, dtype=object), allow_pickle=True))
    with pytest.raises(ZooError, match="Object"):
        read_expert(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"rewards__npy": None}, "damaged.*rewards"),
        ({"obs__npy": None}, "damaged.*obs"),
        ({"episode_starts__npy": npy(np.zeros(6, np.bool_))}, "first step is not the start"),
        ({"rewards__npy": npy(np.zeros(6))[:-8]}, "damaged"),
        ({"card__json": b"[]"}, "it holds no mapping"),
        ({"card__json": b'{"format": 7}'}, "has the format 7, this Zoo reads 1"),
        ({"card__json": b'{"format": 1}'}, "damaged.*observation_space"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, members: dict[str, bytes | None], message: str) -> None:
    path = rewritten(write_expert(tmp_path / "expert.npz", expert()), **members)
    with pytest.raises(ZooError, match=message):
        read_expert(path)


def test_text_file_is_no_expert_data(tmp_path: Path) -> None:
    for name in ("expert.npz", "expert.txt"):
        (tmp_path / name).write_text("obs,actions\n1,2\n")
        with pytest.raises(ZooError, match=f"{name} is damaged, or no .npz file"):
            read_expert(tmp_path / name)


# -- for people -------------------------------------------------------------------------------------------
def test_summary_says_what_there_is() -> None:
    text = summary(expert())
    for part in ("Some-v0", "somebody", "Box(2,) float32", "Discrete(3, start=1), with masks", "3, 6 steps"):
        assert part in text
    assert "successes     33%" in text
    assert "truncated     33%" in text


# -- Expert data of Stable-Baselines, made here as its documentation describes them -----------------------

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def save(path: Path, **changes: Any) -> Path:
    values: dict[str, Any] = {"actions": np.array([[0], [1], [1]]), "rewards": np.array([1.0, 2.0, 3.0])}
    values |= {"obs": np.arange(6.0).reshape(3, 2), "episode_returns": np.array([3.0, 3.0])}
    values |= {"episode_starts": np.array([True, False, True])}
    np.savez(path, **{**values, **changes})
    return path


def test_sb_arrays_are_converted_to_the_envs_spaces(tmp_path: Path) -> None:
    data = read_expert(save(tmp_path / "sb.npz"), (BOX, spaces.Discrete(2)))
    assert data.observations.dtype == np.float32
    assert data.observations.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert data.actions.tolist() == [0, 1, 1]
    assert data.lengths.tolist() == [2, 1]
    assert data.returns.tolist() == [3.0, 3.0]
    assert data.rewards.tolist() == [1.0, 2.0, 3.0]
    assert data.terminated is None
    assert data.card["source"] == {"format": "Stable-Baselines", "file": "sb.npz"}


def test_expert_actions_are_clipped_to_action_space(tmp_path: Path) -> None:
    path = save(tmp_path / "sb.npz", actions=np.array([[0.5], [-3.0], [9.0]]))
    data = read_expert(path, (BOX, spaces.Box(-2.0, 2.0, (1,), np.float32)))
    assert data.actions.tolist() == [[0.5], [-2.0], [2.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.array([[0.0], [0.9], [1.0]])}, r"0\.9 in row 1 is no value of Discrete\(2\)"),
        ({"actions": np.array([[0.0], [np.nan], [1.0]])}, "in row 1"),
        ({"actions": np.array(["a", "b", "c"])}, "in row 0"),
    ],
)
def test_what_is_no_action_is_not_rounded(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        read_expert(save(tmp_path / "sb.npz", **changes), (BOX, spaces.Discrete(2)))
    whole = save(tmp_path / "whole.npz", actions=np.array([[0.0], [1.0], [1.0]]))
    assert read_expert(whole, (BOX, spaces.Discrete(2))).actions.tolist() == [0, 1, 1]


def test_mismatched_expert_data_error_names_difference(tmp_path: Path) -> None:
    path = save(tmp_path / "sb.npz")
    with pytest.raises(ZooError, match=r"observations of shape \(2,\), expected \(3,\)"):
        read_expert(path, (spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(2)))
    with pytest.raises(ZooError, match=r"2.* row 1 is no value of Discrete\(2\)"):
        read_expert(save(path, actions=np.array([[0], [2], [1]])), (BOX, spaces.Discrete(2)))
    empty = {name: np.zeros(0) for name in ("actions", "rewards", "episode_returns", "episode_starts")}
    save(path, obs=np.zeros((0, 2)), **empty)
    with pytest.raises(ZooError, match="first step"):
        read_expert(path, (BOX, spaces.Discrete(2)))
    with pytest.raises(ZooError, match="which has no spaces"):
        read_expert(path)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ZooError, match="is no expert data: it has no actions"):
        read_expert(path)


def test_returns_that_rewards_contradict_are_told(tmp_path: Path) -> None:
    write_expert(tmp_path / "right.npz", expert())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_expert(tmp_path / "right.npz")
    write_expert(tmp_path / "wrong.npz", expert(returns=np.array([3.0, 500.0, 15.0])))
    with pytest.warns(ZooWarning, match="the return of episode 1 is 500, its rewards add up to 3;"):
        read_expert(tmp_path / "wrong.npz")
