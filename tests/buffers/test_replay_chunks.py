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

from zoo.buffers import rings
from zoo.buffers.replay import ReplayBuffer
from zoo.core.tensors import content_files, split


def small_world(seed: int, *, n_envs: int, length: int, **options: bool) -> World:
    """Return a world whose buffer has segments of as few rows as can be: one, of the small observations."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rings, "SMALLEST_SEGMENT", 1)
        return make_world(n_envs, length * n_envs, seed=seed, **options)


def contents(state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return copies of the arrays of each segment by its name."""
    parts = content_files(state).values()
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
    """Also where environments are reset at different steps, and in a buffer that took a state over."""
    world = small_world(**options)
    written: dict[str, dict[str, Any]] = {}
    for each in what:
        if each == "step":
            world.step()
        elif each == "many steps":
            for _ in range(world.buffer.length // 3):
                world.step()
        elif each == "cut":
            world.cut()
        else:
            state = world.buffer.state()
            for name, content in contents(state).items():
                assert are_equal(written.setdefault(name, content), content)
            if each == "resume":
                fresh = small_world(**options).buffer
                fresh.load_state(copy.deepcopy(state))
                world.buffer = fresh
    assert set(world.sampled(50) if len(world.buffer) else []) <= set(world.kept())


def stored_anew(buffer: ReplayBuffer, before: Mapping[str, Any]) -> int:
    """Return how many rows stand in segments that have other names than before."""
    now = contents(buffer.state())
    return sum(len(content["rewards"]) for name, content in now.items() if name not in before)


@pytest.mark.parametrize("next_step", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_what_did_not_change_keeps_its_name(optimize: bool, next_step: bool) -> None:
    world = small_world(0, n_envs=2, length=1000, optimize=optimize, dictionary=False, next_step=next_step)
    n_rows = -(-1000 // rings.MOST_SEGMENTS)
    for _ in range(30):
        before = contents(world.buffer.state())
        assert stored_anew(world.buffer, before) == 0
        for _ in range(100):
            world.step()
        spread = int(np.ptp(world.buffer.state()["heads"]))
        if spread < 100:  # not where one ring has begun anew and the other has not
            assert 60 <= stored_anew(world.buffer, before) <= 100 + spread + 3 * n_rows
    before = contents(world.buffer.state())
    world.cut()
    assert 1 <= stored_anew(world.buffer, before) <= 2 * n_rows


def test_rows_keep_their_names_in_a_memory_that_takes_them_over() -> None:
    world = small_world(0, n_envs=2, length=300, optimize=True, dictionary=True, next_step=False)
    for _ in range(450):
        world.step()
    state = copy.deepcopy(world.buffer.state())
    fresh = small_world(0, n_envs=2, length=300, optimize=True, dictionary=True, next_step=False).buffer
    fresh.load_state(state)
    assert contents(fresh.state()).keys() == contents(state).keys()


def test_rows_that_were_cut_otherwise_get_names_of_their_own() -> None:
    world = small_world(0, n_envs=1, length=300, optimize=False, dictionary=False, next_step=False)
    for _ in range(200):
        world.step()
    state = world.buffer.state()
    other = make_world(1, 300, optimize=False, dictionary=False, next_step=False, seed=0)
    other.buffer.load_state(state)
    world.buffer = other.buffer
    assert set(world.sampled(100)) <= set(world.kept())
    assert contents(other.buffer.state()).keys().isdisjoint(contents(state).keys())
