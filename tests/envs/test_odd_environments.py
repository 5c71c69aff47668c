"""Fifty kinds of odd environments: the check refuses one, or a training in it ends well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import zoo
from zoo.envs import check_env, make_vec_env
from zoo.errors import ZooError, ZooWarning

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
Transform = Callable[[Any], Any]


class Odd(gym.Env[Any, Any]):
    """Shows samples of its observation space, in episodes of seven steps; what is odd is done to them."""

    def __init__(
        self,
        *,
        seen: spaces.Space[Any] = VECTOR,
        done: spaces.Space[Any] | None = None,
        observation: Transform | None = None,
        reward: Transform = float,
        terminated: Transform = bool,
        truncated: Transform = bool,
        info: Callable[[int], Any] | None = None,
    ) -> None:
        self.observation_space = seen
        self.action_space = spaces.Discrete(2) if done is None else done
        self.as_shown, self.as_reward = observation, reward
        self.as_terminated, self.as_truncated, self.info = terminated, truncated, info
        self.steps = self.episodes = 0
        self.buffer: Any = None

    def _shown(self) -> Any:
        sample = self.observation_space.sample()
        return sample if self.as_shown is None else self.as_shown(sample)

    def _info(self) -> Any:
        return {} if self.info is None else self.info(self.steps)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self._shown(), self._info()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.steps += 1
        is_over = self.steps == 7
        ended, cut = self.as_terminated(is_over and self.episodes % 2), self.as_truncated(is_over)
        return self._shown(), self.as_reward(self.steps % 3), ended, cut, self._info()


class OneBuffer(Odd):
    """Shows the same array each time, with other numbers in it."""

    def _shown(self) -> Any:
        if self.buffer is None:
            self.buffer = np.zeros((2, *VECTOR.shape), np.float32)
        self.buffer[...] = self.np_random.uniform(-1, 1, self.buffer.shape)
        return self.buffer[1]


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> spaces.Box:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spaces.Box(low, high, shape, dtype)


def read_only(sample: Any) -> Any:
    sample.flags.writeable = False
    return sample


def at_the_end(key: str, value: Any) -> Callable[[int], Any]:
    """Return what puts a value into the info of an episode's last step."""
    return lambda steps: {key: value} if steps == 7 else {}


GRID = box(-1.0, 1.0, (2, 3), np.float32)
PARTS = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)})
WHOLE = [np.uint8, np.int64]

RETURNED: dict[str, dict[str, Any]] = {
    "reward: float32": {"reward": np.float32},
    "reward: a truth value": {"reward": bool},
    "reward: array without dimensions": {"reward": np.array},
    "reward: array of one": {"reward": lambda r: np.array([r], np.float32)},
    "reward: None": {"reward": lambda r: None},
    "reward: NaN at times": {"reward": lambda r: float("nan") if r == 2 else 1.0},
    "reward: 1e300": {"reward": lambda r: 1e300},
    "terminated: NumPy's": {"terminated": np.bool_, "truncated": np.bool_},
    "terminated: whole numbers": {"terminated": int, "truncated": int},
    "terminated: arrays without dimensions": {"terminated": np.array, "truncated": np.array},
    "terminated: None": {"terminated": lambda t: None},
    "observation: list": {"observation": lambda o: o.tolist()},
    "observation: float64": {"observation": lambda o: o.astype(np.float64)},
    "observation: int64": {"observation": lambda o: o.astype(np.int64)},
    "observation: objects": {"observation": lambda o: o.astype(object)},
    "observation: None": {"observation": lambda o: None},
    "observation: longer": {"observation": lambda o: np.append(o, 0.0)},
    "observation: Fortran's order": {"seen": GRID, "observation": np.asfortranarray},
    "observation: backwards": {"observation": lambda o: o[::-1]},
    "observation: read only": {"observation": read_only},
    "observation: infinite at times": {"observation": lambda o: o / np.float32(o[0] > -0.9)},
    "observation: a part is missing": {"seen": PARTS, "observation": lambda o: {"a": o["a"]}},
    "observation: another part": {"seen": PARTS, "observation": lambda o: {**o, "c": 1}},
    "observation: no dictionary": {"seen": PARTS, "observation": lambda o: o["a"]},
    "info: episode has r": {"info": at_the_end("episode", {"r": 100.0, "l": 2, "t": 1.0})},
    "info: episode is a counter": {"info": lambda steps: {"episode": steps}},
    "info: episode is an array": {"info": at_the_end("episode", np.arange(3))},
    "info: TimeLimit.truncated": {"info": at_the_end("TimeLimit.truncated", True)},
    "info: final_obs and final_info": {"info": lambda steps: {"final_obs": 1, "final_info": 2}},
    "info: is_success is None": {"info": at_the_end("is_success", None)},
    "info: is_success is an array": {"info": at_the_end("is_success", np.array([True]))},
    "info: a large array, now and then": {"info": lambda n: {"x": np.zeros((50, 50))} if n % 2 else {}},
    "info: of several kinds": {"info": lambda steps: {"x": [1, None, "three", np.zeros(1)][steps % 4]}},
    "info: keys that are no texts": {"info": lambda steps: {1: 2, None: 3}},
    "info: action_mask is None": {"info": lambda steps: {"action_mask": None}},
    "info: None": {"info": lambda steps: None},
}
SEEN: dict[str, spaces.Space[Any]] = {
    **{f"Box of {np.dtype(dtype)}": box(0, 100, (3,), dtype) for dtype in (*WHOLE, np.float16, np.float64)},
    "Box of truth values": box(0, 1, (3,), np.bool_),
    "Box of ()": box(-1, 1, (), np.float32),
    "Box of (0,)": box(-1, 1, (0,), np.float32),
    "Box without bounds": box(-np.inf, np.inf, (3,), np.float32),
    "board": box(0, 1, (3, 3), np.uint8),
    "picture": box(0, 255, (12, 12, 3), np.uint8),
    "picture of floats": box(0, 1, (40, 40, 3), np.float32),
    "Discrete from -1": spaces.Discrete(3, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "MultiBinary": spaces.MultiBinary(4),
    "Dict": PARTS,
    "Dict of none": spaces.Dict({}),
    "Tuple": spaces.Tuple((VECTOR, spaces.Discrete(3))),
    "nested": spaces.Dict({"a": spaces.Tuple((VECTOR, spaces.Dict({"b": spaces.MultiBinary(2)})))}),
    "Text": spaces.Text(3),
    "Graph": spaces.Graph(VECTOR, None),
}
DONE: dict[str, spaces.Space[Any]] = {
    **{f"Box of {np.dtype(dtype)}": box(0, 3, (2,), dtype) for dtype in (*WHOLE, np.float16, np.float64)},
    "Box of truth values": box(0, 1, (2,), np.bool_),
    "Box of ()": box(-1, 1, (), np.float32),
    "Box of (0,)": box(-1, 1, (0,), np.float32),
    "Box of two dimensions": box(-2, 1, (2, 2), np.float64),
    "Box without bounds": box(-np.inf, np.inf, (2,), np.float32),
    "Box without width": box(1, 1, (2,), np.float32),
    "Discrete from -1": spaces.Discrete(3, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict({"a": box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3, start=1)}),
    "nested": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"c": spaces.MultiBinary(2)}))),
    "Text": spaces.Text(3),
}
REFUSED = {
    *("reward: array of one", "reward: None", "reward: NaN at times", "reward: 1e300"),
    *("terminated: None", "terminated: arrays without dimensions", "observation: objects"),
    *("observation: None", "observation: longer", "observation: a part is missing"),
    *("observation: another part", "observation: no dictionary", "observation: infinite at times"),
    *("info: None", "info: action_mask is None", "seen: Box of (0,)", "done: Box of (0,)"),
    *("seen: Dict of none", "seen: Text", "seen: Graph", "done: Box without width", "done: Text"),
}
"""What the check refuses; whatever else there is can be trained in."""

ODD: dict[str, tuple[type[Odd], dict[str, Any]]] = {
    **{name: (Odd, options) for name, options in RETURNED.items()},
    **{f"seen: {name}": (Odd, {"seen": space}) for name, space in SEEN.items()},
    **{f"done: {name}": (Odd, {"done": space}) for name, space in DONE.items()},
    "observation: one buffer": (OneBuffer, {}),
}


def trained(algorithm: str, make: Callable[[], Odd], n_envs: int) -> None:
    """Train for 300 steps, evaluate and ask for an action."""
    options: dict[str, Any] = {"seed": 0, "compile": False}
    if algorithm != "A2C":
        options |= {"learning_starts": 100, "train_freq": 50, "gradient_steps": 2, "batch_size": 8}
    policy = {"name": "MlpPolicy", "net_arch": [8]}
    model = getattr(zoo, algorithm)(policy, make_vec_env(make, n_envs, check=False), **options)
    model.learn(300)
    assert model.num_timesteps >= 300
    mean, _ = zoo.evaluate_policy(model, make(), 2)
    assert np.isfinite(mean)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_an_odd_env_is_refused_by_the_check_or_trained_in(name: str) -> None:
    kind, options = ODD[name]

    def make() -> Odd:
        return kind(**options)

    try:
        check_env(make)
    except ZooError:
        assert name in REFUSED
        return
    assert name not in REFUSED
    space = make().action_space
    algorithms = ["A2C"]
    if name.startswith("done:") and isinstance(space, spaces.Box) and space.is_bounded():
        algorithms += ["SAC"]
    elif isinstance(space, spaces.Discrete):
        algorithms = ["DQN"] if name.startswith(("reward", "info")) else ["A2C", "DQN"]
    for algorithm in algorithms:
        trained(algorithm, make, n_envs=2)


@pytest.mark.parametrize("algorithm", ["SAC", "TD3", "DDPG", "TQC"])
@pytest.mark.parametrize(
    "space", [box(0, 1, (1,), np.int8), box(0, 3, (1,), np.int64), box(-2, 2, (1,), np.int16)], ids=str
)
def test_random_actions_reach_every_whole_number_equally_often(algorithm: str, space: spaces.Box) -> None:
    taken: list[int] = []

    class Counting(Odd):
        def step(self, action: Any) -> Any:
            taken.append(int(action[0]))
            return super().step(action)

    env = make_vec_env(lambda: Counting(done=space), check=False)
    model = getattr(zoo, algorithm)("MlpPolicy", env, seed=0, compile=False, learning_starts=600)
    with pytest.warns(ZooWarning):
        model.learn(600)  # all of them random
    numbers, counts = np.unique(taken, return_counts=True)
    assert numbers.tolist() == list(range(space.low.item(), space.high.item() + 1))
    assert abs(counts / 600 - 1 / len(numbers)).max() < 0.06
