"""What `zoo export` writes acts as the agent does, without Zoo."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import zoo
from zoo.algorithms.registry import algorithm_class
from zoo.envs.config import NormalizeConfig
from zoo.envs.normalize import Normalizer
from zoo.envs.spaces import leaves
from zoo.errors import ZooError
from zoo.interop.export import (
    TOLERANCE,
    DeterministicPolicy,
    TensorSpec,
    export_agent,
    random_masks,
    random_observations,
)

VECTOR = spaces.Box(np.array([-1.0, -2.5, -np.inf], np.float32), np.array([1.0, 2.5, np.inf], np.float32))
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)
PARTS = spaces.Dict(
    {
        "bits": spaces.MultiBinary(3),
        "kind": spaces.Discrete(4, start=2),
        "kinds": spaces.MultiDiscrete([3, 2]),
        "vector": VECTOR,
    }
)
BOARD = spaces.Box(0, 1, (5, 4, 2), bool)
SEEN = spaces.Dict({"picture": IMAGE, "vector": VECTOR})
NUMBERS = spaces.Box(np.array([-2.0, -1.0], np.float32), np.array([2.0, 3.0], np.float32))
ACTIONS = {
    "choice": spaces.Discrete(5, start=1),
    "numbers": NUMBERS,
    "whole numbers": spaces.Box(-3, 3, (2,), np.int8),
    "unbounded numbers": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "choices": spaces.MultiDiscrete([3, 2, 4]),
    "bits": spaces.MultiBinary(4),
}


def agent(algo: str, observation_space: spaces.Space, action_space: spaces.Space, **options: Any) -> Any:
    """Return an agent whose actions differ from one observation to the next."""
    normalize = options.pop("normalize", False)
    if not options.get("use_sde", True):
        del options["use_sde"]
    policy = options.pop("policy", "MlpPolicy")  # dictionaries make of it what reads them
    if observation_space is IMAGE:
        policy = "CnnPolicy"
    options |= {"observation_space": observation_space, "action_space": action_space, "device": "cpu"}
    made = algorithm_class(algo)(policy, seed=0, compile=False, **options)
    rng = np.random.default_rng(0)
    scale = 0.02 if observation_space in (IMAGE, SEEN) else 0.1  # wide layers would magnify rounding
    made.set_parameters(
        {name: value + rng.normal(0, scale, value.shape) for name, value in made.get_parameters().items()}
    )
    if normalize:
        made.normalizer = Normalizer(observation_space, NormalizeConfig(clip_obs=2.0))
        for moments in made.normalizer.moments.values():
            moments.update(rng.normal(1.5, 3.0, (100, *moments.mean.shape)))
    return made


def expected(made: Any, observations: list[np.ndarray]) -> np.ndarray:
    space = made.observation_space
    named = dict(zip(space, observations, strict=True)) if isinstance(space, spaces.Dict) else None
    return made.predict(observations[0] if named is None else named)[0]


CASES = {
    **{
        f"{algo} of numbers": (algo, VECTOR, NUMBERS)
        for algo in ("a2c", "crossq", "ddpg", "sac", "td3", "tqc")
    },
    **{
        f"{algo} of a choice": (algo, VECTOR, ACTIONS["choice"])
        for algo in ("dqn", "qrdqn", "iqn", "ppo2", "acktr")
    },
    **{f"ppo2 of {name}": ("ppo2", VECTOR, space) for name, space in ACTIONS.items()},
    "sac of a choice": ("sac", VECTOR, ACTIONS["choice"]),
    "sac of choices": ("sac", VECTOR, ACTIONS["choices"]),
    "sac of whole numbers": ("sac", VECTOR, ACTIONS["whole numbers"]),
    "acer of a choice": ("acer", VECTOR, ACTIONS["choice"]),
    "acer of numbers": ("acer", VECTOR, NUMBERS),
    "ars of numbers": ("ars", VECTOR, NUMBERS),
    "ars of a choice": ("ars", VECTOR, ACTIONS["choice"]),
    "ppo1 of choices": ("ppo1", VECTOR, ACTIONS["choices"]),
    "bc of numbers": ("bc", VECTOR, NUMBERS),
    "pqn of boards": ("pqn", BOARD, ACTIONS["choice"]),
    "ppo2 of boards and more": ("ppo2", spaces.Dict({"board": BOARD, "vector": VECTOR}), NUMBERS),
    "gail of numbers": ("gail", VECTOR, NUMBERS),
    "trpo of numbers": ("trpo", VECTOR, NUMBERS),
    "ppo2 of images": ("ppo2", IMAGE, NUMBERS),
    "a2c of dictionaries": ("a2c", PARTS, ACTIONS["choice"]),
    "td3 of pictures and numbers": ("td3", SEEN, NUMBERS),
}


def test_an_encoder_in_bfloat16_is_exported_in_float32(tmp_path: Path) -> None:
    made = agent("ppo2", IMAGE, NUMBERS)
    encoder = made.policy.encoder
    encoder.precision = "bfloat16"
    assert export_agent(made, tmp_path / "exported", formats=["onnx"], title="")["policy.onnx"] < 1e-4
    assert encoder.precision == "bfloat16"


@pytest.mark.parametrize("case", CASES)
def test_policy_as_tensors_acts_as_the_agent(case: str) -> None:
    made = agent(*CASES[case], normalize=True, use_sde=case == "sac of numbers")
    observations = random_observations(made, 8 if CASES[case][1] in (IMAGE, SEEN) else 100, seed=1)
    with torch.inference_mode():
        (actions,) = DeterministicPolicy(made).eval()(*map(torch.from_numpy, observations))
    expected_part = expected(made, observations)
    assert actions.numpy().dtype == expected_part.dtype
    np.testing.assert_allclose(actions.numpy(), expected_part, rtol=1e-5, atol=1e-5)
    assert len(np.unique(expected_part, axis=0)) > 1


@pytest.mark.parametrize("memory", ["lstm", "normalised", "gru", "one for both"])
def test_exported_recurrent_policy_acts_as_agent(memory: str) -> None:
    """The state goes in and comes out; what the critic remembers is no part of it."""
    options = {"normalised": {"lstm_layer_norm": True}, "one for both": {"critic_lstm": "shared"}}
    recurrent = "gru" if memory == "gru" else "lstm"
    policy = {"recurrent": recurrent, "lstm_hidden_size": 6, "n_lstm_layers": 2, **options.get(memory, {})}
    made = agent("ppo2", PARTS, NUMBERS, policy=policy, normalize=True)
    module = DeterministicPolicy(made).eval()
    size = (1 if memory == "gru" else 2) * 2 * 6
    assert [(spec.name, spec.shape, spec.dtype) for spec in module.inputs[-2:]] == [
        ("state", (size,), "float32"),
        ("episode_start", (), "bool"),
    ]
    assert (module.outputs[-1].name, module.outputs[-1].shape) == ("next_state", (size,))
    state, their_state = torch.zeros(5, size), None
    for step in range(4):
        observations = random_observations(made, 5, seed=step)
        starts = np.arange(5) == step
        policy_input = dict(zip(PARTS, observations, strict=True))
        expected_part, their_state = made.predict(policy_input, their_state, starts)
        with torch.inference_mode():
            actions, state = module(*map(torch.from_numpy, observations), state, torch.from_numpy(starts))
        np.testing.assert_allclose(actions.numpy(), expected_part, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.numpy(), their_state[:, :size], rtol=1e-5, atol=1e-5)


def test_written_policy_that_remembers(tmp_path: Path) -> None:
    made = agent("ppo2", VECTOR, ACTIONS["choice"], policy={"recurrent": "lstm", "lstm_hidden_size": 8})
    differences = export_agent(made, tmp_path / "out", formats=("onnx", "torch_export"), title="It")
    assert max(differences.values()) <= TOLERANCE
    described = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert [each["name"] for each in described["inputs"]] == ["observation", "state", "episode_start"]
    assert [each["name"] for each in described["outputs"]] == ["action", "next_state"]
    assert "`next_state`" in (tmp_path / "out" / "README.md").read_text()


@pytest.fixture(scope="module")
def onnxruntime() -> Any:
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnxruntime")


def as_in_onnx(onnxruntime: Any, folder: Path, observations: list[np.ndarray]) -> np.ndarray:
    described = json.loads((folder / "policy.json").read_text())
    names = [each["name"] for each in described["inputs"]]
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    (actions,) = session.run(["action"], dict(zip(names, observations, strict=True)))
    return actions


def test_onnx_names_its_batch_and_has_the_opset(onnxruntime: Any, tmp_path: Path) -> None:
    made, onnx = zoo.PPO2("MlpPolicy", "CartPole-v1", seed=0), pytest.importorskip("onnx")
    export_agent(made, tmp_path / "out", formats=["onnx"], title="some", opset=20)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    assert [each.shape for each in (*session.get_inputs(), *session.get_outputs())] == [
        ["batch", 4],
        ["batch"],
    ]
    assert onnx.load(tmp_path / "out" / "policy.onnx").opset_import[0].version == 20
    with pytest.raises(ZooError, match=r"opset=9: PyTorch's exporter writes \d+ instead"):
        export_agent(made, tmp_path / "old", formats=["onnx"], title="some", opset=9)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_onnx_of_every_algorithm_acts_as_the_agent(case: str, onnxruntime: Any, tmp_path: Path) -> None:
    made = agent(*CASES[case], normalize=True)
    export_agent(made, tmp_path / "out", formats=["onnx", "torch_export"], title=case)
    names = {each.name for each in (tmp_path / "out").iterdir()}
    assert names == {"policy.onnx", "policy.pt2", "policy.json", "README.md"}
    observations = random_observations(made, seed=2)
    actions = as_in_onnx(onnxruntime, tmp_path / "out", observations)
    np.testing.assert_allclose(actions, expected(made, observations), rtol=1e-5, atol=1e-5)


def test_exported_actor_has_no_inputs_of_the_critic(onnxruntime: Any, tmp_path: Path) -> None:
    options = {"policy_kwargs": {"critic": {"observations": ["bits", "vector"]}}}
    made = agent("ppo2", PARTS, ACTIONS["choice"], normalize=True, **options)
    export_agent(made, tmp_path, formats=["onnx"], title="")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    assert [each.name for each in session.get_inputs()] == ["kind", "kinds"]
    PARTS.seed(0)
    samples = [PARTS.sample() for _ in range(100)]
    observations = {name: np.stack([sample[name] for sample in samples]) for name in PARTS}
    (actions,) = session.run(None, {name: observations[name] for name in ("kind", "kinds")})
    expected_actions = made.predict(observations)[0]
    np.testing.assert_array_equal(actions, expected_actions)
    assert len(np.unique(expected_actions)) > 1


def test_torch_export_acts_as_the_agent(tmp_path: Path) -> None:
    made = agent("td3", SEEN, NUMBERS, normalize=True)
    export_agent(made, tmp_path / "out", formats=["torch_export"], title="td3")
    policy = torch.export.load(tmp_path / "out" / "policy.pt2").module()
    for size in (1, 30):
        observations = random_observations(made, size, seed=2)
        with torch.inference_mode():
            (actions,) = policy(*map(torch.from_numpy, observations))
        np.testing.assert_allclose(actions.numpy(), expected(made, observations), rtol=1e-5, atol=1e-5)


def test_readme_runs_with_onnxruntime_alone(onnxruntime: Any, tmp_path: Path) -> None:
    space = spaces.Dict({"bits": spaces.MultiBinary(3), "vector": VECTOR})
    made = agent("ppo2", space, ACTIONS["choice"], normalize=True)
    export_agent(made, tmp_path / "out", formats=["onnx"], title="ppo2 on parts")
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 10
    without = "import sys; sys.modules.update(dict.fromkeys(('zoo', 'torch', 'gymnasium')))\n"
    command = [sys.executable, "-c", without + code]
    ran = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    zeros = [np.zeros((1, *part.shape), part.dtype) for part in space.values()]
    assert ran.stdout.replace(", dtype=int64", "") == f"{[expected(made, zeros)]}\n"


NESTED = spaces.Dict(
    {"arm": spaces.Tuple((ACTIONS["choice"], NUMBERS)), "bits": ACTIONS["bits"], "gear": ACTIONS["choices"]}
)


@pytest.mark.parametrize("algo", ["ppo2", "dqn", "qrdqn", "iqn"])
@pytest.mark.parametrize("action_space", [ACTIONS["choice"], ACTIONS["choices"], ACTIONS["bits"], NESTED])
def test_masked_policy_as_tensors_acts_as_the_agent(algo: str, action_space: spaces.Space) -> None:
    """A masked policy has its masks as its last input, one that was learned without them has none."""
    if algo != "ppo2" and action_space is not ACTIONS["choice"]:
        return
    made = agent(algo, PARTS, action_space, normalize=True)
    assert "action_masks" not in [spec.name for spec in DeterministicPolicy(made).inputs]
    made.masks_actions = True
    module = DeterministicPolicy(made).eval()
    observations, masks = random_observations(made, 200), random_masks(made, 200)
    assert module.inputs[-1] == TensorSpec("action_masks", masks.shape[1:], "bool")
    with torch.inference_mode():
        actions = module(*map(torch.from_numpy, [*observations, masks]))
    expected_part, _ = made.predict(dict(zip(PARTS, observations, strict=True)), action_masks=masks)
    unmasked, _ = made.predict(dict(zip(PARTS, observations, strict=True)))
    by_path = dict(leaves(action_space, expected_part))
    for spec, part in zip(module.outputs, actions, strict=True):
        expected_part = by_path["" if spec.name == "action" else spec.name]
        np.testing.assert_allclose(part.numpy(), expected_part, rtol=1e-5, atol=1e-5)
    assert any(not np.array_equal(part, by_path[path]) for path, part in leaves(action_space, unmasked))


def test_policy_that_acts_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = agent("sac", VECTOR, NUMBERS)
    right = DeterministicPolicy.forward
    monkeypatch.setattr(DeterministicPolicy, "forward", lambda *given: (right(*given)[0] + 1e-3,))
    with pytest.raises(ZooError, match="acts otherwise than the agent: by up to"):
        export_agent(made, tmp_path / "out", formats=["torch_export"], title="sac")
    assert not (tmp_path / "out").exists()


def test_export_refuses_policy_that_differs_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = agent("dqn", VECTOR, spaces.Discrete(3))
    right = DeterministicPolicy.forward
    rare = float(np.quantile(random_observations(made)[0][:, 0], 0.99))

    def wrong(module: DeterministicPolicy, *inputs: Any) -> Any:
        (action,) = right(module, *inputs)
        return (torch.where(inputs[0][:, 0] > rare, (action + 1) % 3, action),)

    monkeypatch.setattr(DeterministicPolicy, "forward", wrong)
    with pytest.raises(ZooError, match="acts otherwise"):
        export_agent(made, tmp_path / "out", formats=["torch_export"], title="dqn")


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ZooError, match="onnxscript"):
        export_agent(agent("sac", VECTOR, NUMBERS), tmp_path / "out", formats=["onnx"], title="sac")
