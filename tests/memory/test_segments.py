"""What did not change keeps its name, and a name never stands for two contents, whatever is stored or cut."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_replay import World, make_world

from zoo.files.tensors import Lasting, lasting_parts, split
from zoo.memory import segments
from zoo.memory.replay import ReplayMemory
from zoo.memory.segments import Segments


def small_world(seed: int, *, n_envs: int, length: int, **options: bool) -> World:
    """Return a world whose memory has segments of as few rows as can be: one, of the small observations."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "SMALLEST_SEGMENT", 1)
        return make_world(n_envs, length * n_envs, seed=seed, **options)


def contents(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return copies of the arrays of each segment by its name."""
    parts = lasting_parts(state).values()
    return {part.name: {key: array.copy() for key, array in split(part)[0].items()} for part in parts}


def are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@given(
    options=st.fixed_dictionaries(
        {name: st.booleans() for name in ("optimize", "dictionary", "next_step")}
        | {"n_envs": st.integers(1, 3), "length": st.integers(1, 300), "seed": st.integers(0, 999)}
    ),
    what=st.lists(
        st.sampled_from(["step"] * 3 + ["many steps", "cut", "save", "save", "resume"]),
        min_size=4,
        max_size=40,
    ),
)
@example(
    options={"optimize": False, "dictionary": False, "next_step": False, "n_envs": 1, "length": 1, "seed": 0},
    what=["step", "save", "step", "save"],
)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_a_name_stands_for_one_content(options: dict[str, Any], what: list[str]) -> None:
    """Also where environments are reset at different steps, and in a memory that took a state over."""
    world = small_world(**options)
    written: dict[str, dict[str, Any]] = {}
    for each in what:
        if each == "step":
            world.step()
        elif each == "many steps":
            for _ in range(world.memory.length // 3):
                world.step()
        elif each == "cut":
            world.cut()
        else:
            state = world.memory.state()
            for name, content in contents(state).items():
                assert are_equal(written.setdefault(name, content), content)
            if each == "resume":
                fresh = small_world(**options).memory
                fresh.load_state(copy.deepcopy(state))
                world.memory = fresh
    assert set(world.sampled(50) if len(world.memory) else []) <= set(world.kept())


def stored_anew(memory: ReplayMemory, before: Mapping[str, Any]) -> int:
    """Return how many rows stand in segments that have other names than before."""
    now = contents(memory.state())
    return sum(len(content["rewards"]) for name, content in now.items() if name not in before)


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_what_did_not_change_keeps_its_name(optimize: bool, next_step: bool) -> None:
    world = small_world(0, n_envs=2, length=1000, optimize=optimize, dictionary=False, next_step=next_step)
    n_rows = -(-1000 // segments.MOST_SEGMENTS)
    for _ in range(30):
        before = contents(world.memory.state())
        assert stored_anew(world.memory, before) == 0
        for _ in range(100):
            world.step()
        spread = int(np.ptp(world.memory.state()["heads"]))
        if spread < 100:  # not where one ring has begun anew and the other has not
            assert 60 <= stored_anew(world.memory, before) <= 100 + spread + 3 * n_rows
    before = contents(world.memory.state())
    world.cut()
    assert 1 <= stored_anew(world.memory, before) <= 2 * n_rows


def test_a_full_segment_keeps_its_name_when_rows_come_behind_it() -> None:
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    before: list[str] = []
    for n_segments in range(1, 30):
        for _ in range(-(-300 // segments.MOST_SEGMENTS)):
            world.step()
        names = list(contents(world.memory.state()))
        assert len(names) == n_segments
        assert names[:-1] == before
        before = names


def test_only_segments_with_rows_that_changed_get_new_names() -> None:
    column = np.zeros((3 * 2**17, 1))  # segments of a mebibyte
    pieces = Segments({"column": column}, len(column))
    names = [part.name for part in pieces.state(len(column)).values()]
    assert len(set(names)) == 3
    pieces.changed(np.array([2**17, 2**18 - 1]))
    after = [part.name for part in pieces.state(len(column)).values()]
    assert [one == other for one, other in zip(names, after, strict=True)] == [True, False, True]


def test_rows_keep_their_names_in_a_memory_that_takes_them_over() -> None:
    world = small_world(0, n_envs=2, length=300, optimize=True, dictionary=True, next_step=False)
    for _ in range(450):
        world.step()
    state = copy.deepcopy(world.memory.state())
    fresh = small_world(0, n_envs=2, length=300, optimize=True, dictionary=True, next_step=False).memory
    fresh.load_state(state)
    assert contents(fresh.state()).keys() == contents(state).keys()


def test_rows_that_were_cut_otherwise_get_names_of_their_own() -> None:
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    for _ in range(200):
        world.step()
    state = world.memory.state()
    other = make_world(1, 300, optimize=False, dictionary=False, next_step=False, seed=0)
    other.memory.load_state(state)
    world.memory = other.memory
    assert set(world.sampled(100)) <= set(world.kept())
    assert contents(other.memory.state()).keys().isdisjoint(contents(state).keys())


def test_rows_without_names_are_taken_over() -> None:
    """As they come from a state that was no checkpoint."""
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    for _ in range(200):
        world.step()
    state = copy.deepcopy(world.memory.state())
    state["segments"] = {first: dict(part) for first, part in state["segments"].items()}
    world.memory.load_state(state)
    assert set(world.sampled(100)) <= set(world.kept())
    assert all(isinstance(part, Lasting) for part in world.memory.state()["segments"].values())


def test_segment_has_at_least_a_mebibyte_and_a_ring_at_most_128_of_them() -> None:
    def sizes(length: int, row_bytes: int) -> list[int]:
        made = segments.Segments({"a": np.zeros((length, row_bytes), np.uint8)}, length)
        return [made.n_rows, len(made._names)]

    assert sizes(4096, 1024) == [1024, 4]
    assert sizes(4097, 1024) == [1024, 5]
    assert sizes(129, 2**20) == [2, 65]
    assert sizes(2**21, 1) == [2**20, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda segments: segments["0"].update(rewards=segments["0"]["rewards"][:1]),
        lambda segments: segments["0"].update(rewards=segments["0"]["rewards"].astype(np.float64)),
        lambda segments: segments["0"].update(rewards=segments["0"]["rewards"][..., None]),
        lambda segments: segments["0"].update(rewards="<array float32 [3, 1]>"),
        lambda segments: segments["0"].pop("rewards"),
        lambda segments: segments.pop("0"),
        lambda segments: segments.update({"1": segments.pop("3")}),
        lambda segments: segments.update({"500": segments.pop("3")}),
        lambda segments: segments.update({"-3": segments.pop("3")}),
    ],
)
def test_rows_of_another_form_are_refused_and_none_is_taken_over(change: Any) -> None:
    """One row is not repeated, and nothing is cast."""
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    for _ in range(6):
        world.step()
    state = copy.deepcopy(world.memory.state())
    assert list(state["segments"]) == ["0", "3"]
    change(state["segments"])
    fresh = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False).memory
    with pytest.raises(ValueError, match="its rows are not those of this memory"):
        fresh.load_state(state)
    assert not fresh.columns["rewards"].any()
    assert len(fresh) == 0
