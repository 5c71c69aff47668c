"""Writing an agent's deterministic policy as ONNX and torch.export, once it acts as the agent does.

`DeterministicPolicy` does by tensors what acting does in NumPy: normalisation before the networks, the
likeliest action and its units behind them.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import policy_input
from zoo.core.atomic import atomic_folder
from zoo.core.printing import one_line
from zoo.envs.normalize import SINGLE
from zoo.envs.spaces import choice_sizes, is_image, leaves
from zoo.errors import ZooError, install_command
from zoo.policies.acting import (
    ActionAdapter,
    BoxAdapter,
    CompositeAdapter,
    CountedAdapter,
    ScaledBoxAdapter,
)
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    CompositeDistribution,
    Deterministic,
    Gaussian,
    MultiCategorical,
    TanhGaussian,
)
from zoo.policies.encoders import NatureCnn

ONNX, TORCH_EXPORT, DESCRIPTION, README = "policy.onnx", "policy.pt2", "policy.json", "README.md"
EXPORTED_FILES = (ONNX, TORCH_EXPORT, DESCRIPTION, README)

TOLERANCE = 1e-5
"""How far an exported action may be from the agent's, absolutely where it is small, else relatively."""

N_CHECKED, N_CHECKED_IMAGES = 1000, 64

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]


def export_agent(
    agent: Algorithm, folder: str | Path, *, formats: Sequence[str], title: str
) -> dict[str, float]:
    """Write the policy in the ``formats`` (``onnx``, ``torch_export``) into ``folder``, whole or not at all.

    Each is first compared with the agent on random observations. Returns the largest difference of each.
    Encoders of images compute in float32, which every runtime can. Raises `ZooError` for a difference above
    `TOLERANCE`, for what can't be exported and for a missing package.
    """
    destination = Path(folder)
    others = [each.name for each in destination.iterdir()] if destination.is_dir() else []
    if destination.is_file() or any(name not in EXPORTED_FILES for name in others):
        raise ZooError(f"{one_line(destination)} holds something else than an export; choose another out=")
    if "onnx" in formats:
        _check_packages()
    module = DeterministicPolicy(agent).eval()
    inputs = _random_inputs(agent, module)
    written: dict[str, tuple[bytes, Run]] = {}
    with _in_float32(agent.policy):
        program = _traced(module, [part[:2] for part in inputs])
        if "onnx" in formats:
            written[ONNX] = _as_onnx(module, program)
        if "torch_export" in formats:
            written[TORCH_EXPORT] = _as_torch_export(program)
        differences = {name: _difference(agent, module, inputs, run) for name, (_, run) in written.items()}
    with atomic_folder(destination) as new:
        for name, (content, _) in written.items():
            (new / name).write_bytes(content)
        described = {"files": list(written), "inputs": module.inputs, "outputs": module.outputs}
        (new / DESCRIPTION).write_text(json.dumps(described, default=asdict, indent=2), encoding="utf-8")
        (new / README).write_text(_readme(title, module, list(written)), encoding="utf-8")
    return differences


@contextlib.contextmanager
def _in_float32(policy: nn.Module) -> Iterator[None]:
    """Within the block the policy's encoders of images compute in float32."""
    encoders = [module for module in policy.modules() if isinstance(module, NatureCnn)]
    before = [encoder.precision for encoder in encoders]
    try:
        for encoder in encoders:
            encoder.precision = "float32"
        yield
    finally:
        for encoder, precision in zip(encoders, before, strict=True):
            encoder.precision = precision


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ZooError(f"format=onnx needs: {install_command('export')}") from error


# Writing


def _traced(module: DeterministicPolicy, examples: Sequence[Array]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    tensors = tuple(torch.from_numpy(np.array(example)) for example in examples)
    shapes = tuple({0: batch} for _ in tensors)
    try:
        with _silenced():
            return torch.export.export(module, tensors, dynamic_shapes=(shapes,), strict=False)
    except ZooError:
        raise
    except Exception as error:
        raise ZooError(f"PyTorch can't export this policy: {one_line(error)}") from error


def _as_torch_export(program: torch.export.ExportedProgram) -> tuple[bytes, Run]:
    file = io.BytesIO()
    with _silenced():
        torch.export.save(program, file)
        file.seek(0)
        module = torch.export.load(file).module()

    def run(observations: Sequence[Array]) -> Sequence[Array]:
        with torch.inference_mode():
            return [each.numpy() for each in module(*map(torch.from_numpy, observations))]

    return file.getvalue(), run


def _as_onnx(module: DeterministicPolicy, program: torch.export.ExportedProgram) -> tuple[bytes, Run]:
    import onnxruntime

    try:
        with _silenced():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[spec.name for spec in module.inputs],
                output_names=[spec.name for spec in module.outputs],
                verbose=False,
            )
    except Exception as error:
        raise ZooError(f"PyTorch can't write this policy as ONNX: {one_line(error)}") from error
    assert exported is not None
    content: bytes = exported.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [spec.name for spec in module.inputs]

    def run(observations: Sequence[Array]) -> Sequence[Array]:
        found: Sequence[Array] = session.run(None, dict(zip(names, observations, strict=True)))
        return found

    return content, run


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Keep the exporters' progress and their advice to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


# The policy as a module


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (without the batch) and type of an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class DeterministicPolicy(nn.Module):
    """Takes a tensor for each of ``inputs``, (n, *shape), and returns one for each of ``outputs``.

    A recurrent policy takes its state and where episodes start too, and returns the next state last:
    ``state_size`` numbers. The last input is the masks of valid actions, if the agent has learned with
    masks. Raises `ZooError` for a policy whose head is of a user's own.
    """

    def __init__(self, agent: Algorithm) -> None:
        super().__init__()
        acting, space = agent.acting, agent.observation_space
        self.policy: nn.Module = acting.policy
        self.is_dictionary = isinstance(space, spaces.Dict)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        self.inputs = [
            TensorSpec(name, tuple(part.shape or ()), str(part.dtype)) for name, part in parts.items()
        ]
        whole, policy = acting.initial_state(1), self.policy
        self.agent_state_size: int = 0 if whole is None else whole.shape[1]
        # The critic's recurrent state is no part of acting; what a class of a user's own does is not known.
        self.is_actor_alone = type(policy) is ActorCritic and policy.core is not None
        self.state_size: int = self.agent_state_size
        if isinstance(policy, ActorCritic) and policy.core is not None and self.is_actor_alone:
            self.state_size = policy.core.state_size
        if self.state_size:
            names = ("policy_state", "episode_start") if "state" in parts else ("state", "episode_start")
            self.inputs += [TensorSpec(names[0], (self.state_size,), "float32")]
            self.inputs += [TensorSpec(names[1], (), "bool")]
        self.masks_actions = agent.masks_actions
        if agent.masks_actions:
            self.inputs.append(TensorSpec("action_masks", (acting.head.mask_size or 0,), "bool"))
        moments = {} if agent.normalizer is None else agent.normalizer.moments
        self.normalizers = nn.ModuleList(
            _Normalize(agent, key) if key in moments else nn.Identity()
            for key in (parts if self.is_dictionary else [SINGLE])
        )
        self.heads = _flat_distributions(acting.head)
        adapter = agent.action_adapter
        adapters = adapter.parts if isinstance(adapter, CompositeAdapter) else {"action": adapter}
        self.action_adapters = [_ToEnvAction(each) for each in adapters.values()]
        self.actions = nn.ModuleList(self.action_adapters)
        self.outputs = [
            TensorSpec(path, action.shape, action.dtype)
            for path, action in zip(adapters, self.action_adapters, strict=True)
        ]
        if self.state_size:
            self.outputs.append(TensorSpec("next_state", (self.state_size,), "float32"))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the actions, one tensor (n, …) for each of ``outputs``."""
        n_parts = len(self.normalizers)
        observations, rest = inputs[:n_parts], list(inputs[n_parts:])
        parts = [norm(part) for norm, part in zip(self.normalizers, observations, strict=True)]
        observation: Any = parts[0]
        if self.is_dictionary:
            observation = {spec.name: part for spec, part in zip(self.inputs[:n_parts], parts, strict=True)}
        policy_input: dict[str, Any] = {"observations": observation}
        if self.masks_actions:
            policy_input["action_masks"] = rest.pop()
        state = None
        if self.state_size:
            state, policy_input["episode_starts"] = rest
        policy: Any = self.policy
        act = policy.actor_parameters if self.is_actor_alone else policy.action_parameters
        parameters, next_state = act(policy_input, state)
        sizes = [head.parameter_size for head in self.heads]
        each = parameters.split(sizes, dim=-1) if len(sizes) > 1 else (parameters,)
        actions = tuple(
            action(_mode(head, part))
            for head, part, action in zip(self.heads, each, self.action_adapters, strict=True)
        )
        return (*actions, next_state) if self.state_size else actions


class _Normalize(nn.Module):
    """(o − mean) / sqrt(var + ε), clipped, in the precision of the statistics, as `Normalizer` does."""

    def __init__(self, agent: Algorithm, key: str) -> None:
        super().__init__()
        normalizer = agent.normalizer
        assert normalizer is not None
        moments = normalizer.moments[key]
        self.register_buffer("mean", torch.from_numpy(np.array(moments.mean, np.float64)))
        scale = 1.0 / np.sqrt(moments.var + normalizer.epsilon)
        self.register_buffer("scale", torch.from_numpy(np.array(scale, np.float64)))
        self.clip_obs = float(normalizer.clip_obs)

    def forward(self, observations: Tensor) -> Tensor:
        mean, scale = self.get_buffer("mean"), self.get_buffer("scale")
        normalized = (observations.double() - mean) * scale
        return normalized.clamp(-self.clip_obs, self.clip_obs).float()


def _flat_distributions(head: ActionDistribution) -> list[ActionDistribution]:
    """Return the heads side by side, nested ones too, in their order."""
    if isinstance(head, CompositeDistribution):
        return [part for each in head.heads.values() for part in _flat_distributions(each)]
    return [head]


def _mode(head: ActionDistribution, parameters: Tensor) -> Tensor:
    """Return what `ActionDistribution.mode` does for arrays."""
    if isinstance(head, MultiCategorical):
        return torch.stack([part.argmax(-1) for part in parameters.split([*head.choice_sizes], -1)], dim=-1)
    if isinstance(head, Bernoulli):
        return (parameters > 0).to(torch.int8)
    if isinstance(head, Categorical):
        return parameters.argmax(-1)
    if isinstance(head, TanhGaussian):
        return torch.tanh(parameters[..., : head.n_actions])
    if isinstance(head, Gaussian):
        return parameters[..., : head.n_actions]
    if isinstance(head, Deterministic):
        return parameters
    raise ZooError(f"its actions come from a {type(head).__name__}, which can't be exported")


class _ToEnvAction(nn.Module):
    """From stored actions to the environment's, as `ActionAdapter.to_env` does for arrays."""

    def __init__(self, action_adapter: ActionAdapter) -> None:
        super().__init__()
        self.kind = type(action_adapter)
        if not isinstance(action_adapter, CountedAdapter | BoxAdapter):
            raise ZooError(f"its actions are of a {type(action_adapter).__name__}, which can't be exported")
        if isinstance(action_adapter, CountedAdapter):
            self.shape, self.dtype = action_adapter.shape, str(np.dtype(action_adapter.dtype))
            self.is_shifted = action_adapter.is_shifted
            self.register_buffer("start", torch.from_numpy(action_adapter.start))
        else:
            self.shape, self.dtype = action_adapter.space.shape, str(action_adapter.space.dtype)
            self.is_whole = action_adapter.is_whole
            bounds: list[Any] = [np.array(action_adapter.space.low), np.array(action_adapter.space.high)]
            bounds = [each.astype(np.float64) if action_adapter.is_whole else each for each in bounds]
            if isinstance(action_adapter, ScaledBoxAdapter):
                bounds += [action_adapter.low, action_adapter.width]
            for name, array in zip(("low", "high", "start", "width"), bounds, strict=False):
                self.register_buffer(name, torch.from_numpy(np.array(array)))

    def forward(self, actions: Tensor) -> Tensor:
        shaped = actions.reshape(-1, *self.shape)
        if self.kind is CountedAdapter:
            shaped = shaped + self.get_buffer("start") if self.is_shifted else shaped
        else:
            low, high = self.get_buffer("low"), self.get_buffer("high")
            if self.kind is ScaledBoxAdapter:
                shaped = self.get_buffer("start") + 0.5 * (shaped + 1.0) * self.get_buffer("width")
            if self.is_whole:
                shaped = shaped.floor() if self.kind is ScaledBoxAdapter else shaped.round()
            shaped = torch.minimum(torch.maximum(shaped, low), high)
        return shaped.to(getattr(torch, self.dtype))


# Comparing


def random_observations(agent: Algorithm, n: int | None = None, seed: int = 0) -> list[Array]:
    """Return ``n`` random observations, an array (n, …) for each part; such as the agent may have seen."""
    space = agent.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {SINGLE: space}
    if n is None:
        n = N_CHECKED_IMAGES if any(is_image(part) for part in parts.values()) else N_CHECKED
    drawn = []
    for key, part in parts.items():
        batch: spaces.Space[Any] = batch_space(part, n)
        batch.seed(seed)
        sample = batch.sample()
        moments = None if agent.normalizer is None else agent.normalizer.moments.get(key)
        if isinstance(part, spaces.Box) and part.dtype.kind == "f":
            if moments is None:
                centre = np.clip(0.0, part.low, part.high)
                sample = sample.clip(centre - 10.0, centre + 10.0)
            else:
                noise = np.random.default_rng(seed).standard_normal(sample.shape)
                sample = moments.mean + 2.0 * np.sqrt(moments.var) * noise
            sample = np.clip(sample, part.low, part.high).astype(part.dtype)
        drawn.append(sample)
    return drawn


def random_masks(agent: Algorithm, n: int, seed: int = 0) -> Array:
    """Return ``n`` random masks of valid actions, each of which leaves something to choose."""
    rng, sizes = np.random.default_rng(seed), choice_sizes(agent.action_space)
    masks = rng.random((n, sum(sizes))) < 0.5
    starts = np.cumsum([0, *sizes[:-1]])
    masks[np.arange(n)[:, None], starts + rng.integers(sizes, size=(n, len(sizes)))] = True
    return masks


def _random_inputs(agent: Algorithm, module: DeterministicPolicy) -> list[Array]:
    """Return observations, state and episode starts, and masks, where there are any."""
    inputs = random_observations(agent)
    n, rng = len(inputs[0]), np.random.default_rng(0)
    if module.state_size:
        inputs += [rng.uniform(-1, 1, (n, module.state_size)).astype(np.float32), rng.random(n) < 0.5]
    return [*inputs, random_masks(agent, n)] if agent.masks_actions else inputs


def _difference(agent: Algorithm, module: DeterministicPolicy, inputs: Sequence[Array], run: Run) -> float:
    """Return how far the exported policy's actions are from the agent's. Raises `ZooError` if too far."""
    n_parts, names = len(module.normalizers), [spec.name for spec in module.inputs]
    observations: Any = dict(zip(names, inputs[:n_parts], strict=False))
    if not module.is_dictionary:
        observations = inputs[0]
    masks = inputs[-1] if agent.masks_actions else None
    state = starts = None
    if module.state_size:
        state, starts = inputs[n_parts : n_parts + 2]
        state = np.pad(state, ((0, 0), (0, module.agent_state_size - module.state_size)))
    actions, next_state = agent.predict(observations, state, starts, action_masks=masks, deterministic=True)
    expected = [part for _, part in leaves(agent.action_space, actions)]
    if module.state_size:
        expected.append(next_state[:, : module.state_size])
    # One at a time and another number of them: the batch must not be part of what was exported.
    found = [run([part[:1] for part in inputs]), run([part[1:] for part in inputs])]
    policy_inputs, _ = policy_input(agent, observations, state, starts, masks)
    ties = _tied_rows(agent.acting.head, agent.acting.parameters(policy_inputs, state)[0])
    largest = 0.0
    for index, expected_part in enumerate(expected):
        actions = np.concatenate([each[index] for each in found])
        if actions.shape != expected_part.shape or actions.dtype != expected_part.dtype:
            raise ZooError(
                f"the exported policy gives {actions.dtype} {actions.shape},"
                f" the agent {expected_part.dtype} {expected_part.shape}"
            )
        error = np.abs(actions.astype(np.float64) - expected_part) / np.maximum(1.0, np.abs(expected_part))
        if expected_part.dtype.kind in "iu":
            error = error[~ties]
        largest = max(largest, float(error.max(initial=0.0)))
    if not largest <= TOLERANCE:
        raise ZooError(
            f"the exported policy acts otherwise than the agent: by up to {largest:.2g} on"
            f" {len(inputs[0]):,} random observations; nothing was written"
        )
    return largest


def _tied_rows(head: ActionDistribution, parameters: Array) -> Array:
    """Return for which rows (n,) rounding decides between two choices."""
    if isinstance(head, CompositeDistribution):
        parts = np.split(parameters, np.cumsum(head.parameter_sizes)[:-1], axis=-1)
        return np.logical_or.reduce(
            [_tied_rows(part, each) for part, each in zip(head.heads.values(), parts, strict=True)]
        )
    if isinstance(head, Bernoulli):
        return np.asarray((np.abs(parameters) < TOLERANCE).any(-1))
    if isinstance(head, MultiCategorical):
        return np.logical_or.reduce([_nearly_equal(parameters[..., part]) for part in head.slices])
    return _nearly_equal(parameters)


def _nearly_equal(values: Array) -> Array:
    """Return where the best two of (n, alternatives) are as good as equal."""
    if values.shape[-1] < 2:
        return np.zeros(len(values), np.bool_)
    best = np.sort(values, axis=-1)[:, -2:]
    return best[:, 1] - best[:, 0] < TOLERANCE * np.maximum(1.0, np.abs(best[:, 1]))


# Telling


_WITH_ONNX = """import json

import numpy as np
import onnxruntime

policy = onnxruntime.InferenceSession("policy.onnx")
inputs = json.load(open("policy.json"))["inputs"]
# One observation of zeros: put those of your environment in their place, any number at a time.
observations = {each["name"]: np.zeros((1, *each["shape"]), each["dtype"]) for each in inputs}
print(policy.run(None, observations))
"""

_ALL_ALLOWED = 'observations["action_masks"][:] = True  # where an action is not valid, False\n'

_WITH_TORCH = """import torch

policy = torch.export.load("policy.pt2").module()
"""


def _readme(title: str, module: DeterministicPolicy, files: list[str]) -> str:
    parts = [
        f"# {one_line(title)}\n",
        "The deterministic policy: raw observations in (it normalises them itself, if the agent did), actions"
        " as the environment takes them out, any number at a time. Their names, shapes and types stand in"
        " `policy.json`.\n",
    ]
    if module.state_size:
        parts.append(
            "It is recurrent: `state` is zeros for the first observation, and then the last `next_state`;"
            " where `episode_start` is true it begins at zeros again.\n"
        )
    if ONNX in files:
        code = _WITH_ONNX
        if module.masks_actions:
            code = code.replace("print(", f"{_ALL_ALLOWED}print(")
        parts.append(f"With `pip install onnxruntime`, and nothing else:\n\n```python\n{code}```\n")
    if TORCH_EXPORT in files:
        parts.append(
            f"With PyTorch alone (only from somebody whom you trust):\n\n```python\n{_WITH_TORCH}```\n"
        )
    return "\n".join(parts)
