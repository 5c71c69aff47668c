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

import jinja2
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from zoo.algorithms.algorithm import Algorithm
from zoo.algorithms.arguments import policy_input
from zoo.core.atomic import atomic_folder
from zoo.core.printing import one_line
from zoo.envs.normalize import SINGLE, Normalizer
from zoo.envs.spaces import choice_sizes, is_image, leaf_spaces, leaves
from zoo.errors import ZooError, install_command
from zoo.policies.acting import ActionAdapter, BoxAdapter, CompositeAdapter, ScaledBoxAdapter
from zoo.policies.actor_critic import ActorCritic
from zoo.policies.distributions import (
    ActionDistribution,
    Bernoulli,
    CompositeDistribution,
    DiscreteDistribution,
    JointCategorical,
    MultiCategorical,
    TanhGaussian,
)
from zoo.policies.encoders import NatureCnn, actor_space

ONNX, TORCH_EXPORT, DESCRIPTION, README = "policy.onnx", "policy.pt2", "policy.json", "README.md"
EXPORTED_FILES = (ONNX, TORCH_EXPORT, DESCRIPTION, README)

TOLERANCE = 1e-5
"""How far an exported action may be from the agent's, absolutely where it is small, else relatively."""

N_CHECKED, N_CHECKED_IMAGES = 1000, 64

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]


def export_agent(
    agent: Algorithm, folder: str | Path, *, formats: Sequence[str], title: str, opset: int | None = None
) -> dict[str, float]:
    """Write the policy in the ``formats`` (``onnx``, ``torch_export``) into ``folder``, whole or not at all.

    ``opset`` is ONNX's; None: the exporter's own. Each is first compared with the agent on random
    observations. Returns the largest difference of each.
    Encoders of images compute in float32, which every runtime can. Raises `ZooError` for a difference above
    `TOLERANCE`, for what can't be exported and for a missing package.
    """
    destination = Path(folder)
    others = [path.name for path in destination.iterdir()] if destination.is_dir() else []
    if destination.is_file() or any(name not in EXPORTED_FILES for name in others):
        raise ZooError(f"{one_line(destination)} holds something else than an export; choose another out=")
    module = DeterministicPolicy(agent).eval()
    inputs = _random_inputs(agent, module)
    written: dict[str, tuple[bytes, Run]] = {}
    with contextlib.ExitStack() as restoring:
        for part in agent.policy.modules():
            if isinstance(part, NatureCnn):
                restoring.callback(setattr, part, "precision", part.precision)
                part.precision = "float32"
        program = _traced(module, [part[:2] for part in inputs])
        if "onnx" in formats:
            written[ONNX] = _as_onnx(module, program, opset)
        if "torch_export" in formats:
            written[TORCH_EXPORT] = _as_torch_export(program)
        differences = {name: _difference(agent, module, inputs, run) for name, (_, run) in written.items()}
    with atomic_folder(destination) as new:
        for name, (content, _) in written.items():
            (new / name).write_bytes(content)
        described = {"files": list(written), "inputs": module.inputs, "outputs": module.outputs}
        (new / DESCRIPTION).write_text(json.dumps(described, default=asdict, indent=2), encoding="utf-8")
        template = Path(__file__).with_name("export_readme.md.j2").read_text(encoding="utf-8")
        readme = jinja2.Template(template, trim_blocks=True, keep_trailing_newline=True).render(
            title=one_line(title), recurrent=module.state_size > 0, masks=module.masks_actions, files=written
        )
        (new / README).write_text(readme, encoding="utf-8")
    return differences


# Writing


def _traced(module: DeterministicPolicy, examples: Sequence[Array]) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    tensors = tuple(torch.from_numpy(np.array(example)) for example in examples)
    shapes = tuple({0: batch} for _ in tensors)
    with _exporting():
        return torch.export.export(module, tensors, dynamic_shapes=(shapes,), strict=False)


def _as_torch_export(program: torch.export.ExportedProgram) -> tuple[bytes, Run]:
    file = io.BytesIO()
    with _exporting():
        torch.export.save(program, file)
        file.seek(0)
        module = torch.export.load(file).module()

    def run(observations: Sequence[Array]) -> Sequence[Array]:
        with torch.inference_mode():
            return [output.numpy() for output in module(*map(torch.from_numpy, observations))]

    return file.getvalue(), run


def _as_onnx(
    module: DeterministicPolicy, program: torch.export.ExportedProgram, opset: int | None
) -> tuple[bytes, Run]:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ZooError(f"format=onnx needs: {install_command('export')}") from error
    names = [spec.name for spec in module.inputs]
    with _exporting():
        exported = torch.onnx.export(
            program,
            dynamo=True,
            input_names=names,
            output_names=[spec.name for spec in module.outputs],
            opset_version=opset,
            verbose=False,
        )
    assert exported is not None
    model = exported.model_proto
    if opset not in (None, written := model.opset_import[0].version):
        raise ZooError(f"opset={opset}: PyTorch's exporter writes {written} instead")
    graph = model.graph
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:  # such as s21, or 4*s21
                size.dim_param = size.dim_param.replace(symbol, "batch")
    content: bytes = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def run(observations: Sequence[Array]) -> Sequence[Array]:
        outputs: Sequence[Array] = session.run(None, dict(zip(names, observations, strict=True)))
        return outputs

    return content, run


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """Hide the progress and advice of PyTorch's exporters. Raises `ZooError` if they fail."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        raise ZooError(f"PyTorch can't export this policy: {one_line(error)}") from error
    finally:
        logging.disable(level)


# The policy as a module


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape (without the batch) and type of an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, name: str, space: spaces.Space[Any]) -> TensorSpec:
        """Return the spec of one (sub)space."""
        return cls(name, tuple(space.shape or ()), str(space.dtype))


class DeterministicPolicy(nn.Module):
    """Takes a tensor for each of ``inputs``, (n, *shape), and returns one for each of ``outputs``.

    A recurrent policy takes its state and where episodes start too, and returns the next state last:
    ``state_size`` numbers. The last input is the masks of valid actions, if the agent has learned with
    masks.
    """

    def __init__(self, agent: Algorithm) -> None:
        super().__init__()
        acting, space = agent.acting, actor_space(agent.observation_space, agent.policy_config)
        self.policy: nn.Module = acting.policy
        self.is_dictionary = isinstance(space, spaces.Dict)
        parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
        self.inputs = [TensorSpec.of(name, part) for name, part in parts.items()]
        self.agent_state_size = acting.state_size
        # The critic's recurrent state is no part of acting; what a class of a user's own does is not known.
        core = self.policy.core if type(self.policy) is ActorCritic else None
        self.is_actor_alone = core is not None
        self.state_size: int = acting.state_size if core is None else core.state_size
        if self.state_size:
            names = ("policy_state", "episode_start") if "state" in parts else ("state", "episode_start")
            self.inputs += [TensorSpec(names[0], (self.state_size,), "float32")]
            self.inputs += [TensorSpec(names[1], (), "bool")]
        self.masks_actions = agent.masks_actions
        if agent.masks_actions:
            self.inputs.append(TensorSpec("action_masks", (acting.head.mask_size or 0,), "bool"))
        keys = parts if self.is_dictionary else [SINGLE]
        self.normalizers = [_normalization(agent.normalizer, key) for key in keys]
        head = acting.head
        self.heads = [*head.heads.values()] if isinstance(head, CompositeDistribution) else [head]
        self.parameter_sizes = [head.parameter_size for head in self.heads]
        adapter, leaf_by_path = agent.action_adapter, dict(leaf_spaces(agent.action_space))
        adapters = adapter.parts if isinstance(adapter, CompositeAdapter) else {"": adapter}
        self.adapters = list(adapters.values())
        self.to_env = [_to_env(adapter, leaf_by_path[path]) for path, adapter in adapters.items()]
        self.outputs = [TensorSpec.of(path or "action", leaf) for path, leaf in leaf_by_path.items()]
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
        split = parameters.split(self.parameter_sizes, dim=-1)
        actions = tuple(
            to_env(_mode(head, part))
            for head, part, to_env in zip(self.heads, split, self.to_env, strict=True)
        )
        return (*actions, next_state) if self.state_size else actions


def _normalization(normalizer: Normalizer | None, key: str) -> Callable[[Tensor], Tensor]:
    """Return (o − mean) / sqrt(var + ε), clipped, in float64, as `Normalizer` does."""
    if normalizer is None or key not in normalizer.moments:
        return nn.Identity()
    moments, limit = normalizer.moments[key], normalizer.clip_obs
    mean = torch.from_numpy(np.array(moments.mean))
    scale = torch.from_numpy(1.0 / np.sqrt(np.array(moments.var) + normalizer.epsilon))
    return lambda observations: ((observations.double() - mean) * scale).clamp(-limit, limit).float()


def _mode(head: ActionDistribution, parameters: Tensor) -> Tensor:
    """`ActionDistribution.mode` in operations that can be exported."""
    if isinstance(head, MultiCategorical):
        return torch.stack([parameters[..., part].argmax(-1) for part in head.slices], dim=-1)
    if isinstance(head, JointCategorical):
        return torch.stack(head.choices(parameters.argmax(-1)), dim=-1)
    if isinstance(head, Bernoulli):
        return (parameters > 0).to(torch.int8)
    if isinstance(head, TanhGaussian):
        return torch.tanh(parameters[..., : head.n_actions])
    mode: Any = head.mode
    return mode(parameters)


def _to_env(adapter: ActionAdapter, space: spaces.Space[Any]) -> Callable[[Tensor], Tensor]:
    """Return `ActionAdapter.to_env` as a function of tensors."""
    shape, dtype = space.shape or (), getattr(torch, str(np.dtype(space.dtype)))
    if not isinstance(space, spaces.Box):
        first = torch.from_numpy(np.array(getattr(space, "start", 0), np.int64))
        return lambda actions: (actions.reshape(-1, *shape) + first).to(dtype)
    assert isinstance(adapter, BoxAdapter)
    is_scaled, kind = isinstance(adapter, ScaledBoxAdapter), np.float64 if adapter.is_whole else space.dtype
    low, high = (torch.from_numpy(bound.astype(kind)) for bound in (space.low, space.high))
    scale = (adapter.low, adapter.width) if isinstance(adapter, ScaledBoxAdapter) else (space.low, space.high)
    start, width = map(torch.from_numpy, scale)

    def to_env(actions: Tensor) -> Tensor:
        actions = actions.reshape(-1, *shape)
        if is_scaled:
            actions = start + 0.5 * (actions + 1.0) * width
        if adapter.is_whole:
            actions = actions.floor() if is_scaled else actions.round()
        return torch.minimum(torch.maximum(actions, low), high).to(dtype)

    return to_env


# Comparing


def random_observations(agent: Algorithm, n: int | None = None, seed: int = 0) -> list[Array]:
    """Return ``n`` random observations, an array (n, …) for each part; such as the actor may have seen."""
    space = actor_space(agent.observation_space, agent.policy_config)
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
            centre, spread = (0.0, 10.0) if moments is None else (moments.mean, 4.0 * np.sqrt(moments.var))
            centre = np.clip(centre, part.low, part.high)
            low, high = (np.clip(centre + end, part.low, part.high) for end in (-spread, spread))
            sample = np.random.default_rng(seed).uniform(low, high, sample.shape).astype(part.dtype)
        drawn.append(sample)
    return drawn


def random_masks(agent: Algorithm, n: int, seed: int = 0) -> Array:
    """Return ``n`` random action masks with at least one valid value for each choice."""
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
    parts = dict(zip(names, inputs[:n_parts], strict=False))
    observations: Any = parts if module.is_dictionary else inputs[0]
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
    batches = [run([part[:1] for part in inputs]), run([part[1:] for part in inputs])]
    policy_inputs, _ = policy_input(agent, observations, state, starts, masks)
    policy_inputs.pop("action_masks", None)
    parameters = torch.from_numpy(agent.acting.parameters(policy_inputs, state)[0])
    parameter_parts = parameters.split(module.parameter_sizes, dim=-1)
    largest = 0.0
    for index, expected_part in enumerate(expected):
        actions = np.concatenate([batch[index] for batch in batches])
        assert (actions.shape, actions.dtype) == (expected_part.shape, expected_part.dtype)
        error = np.abs(actions.astype(np.float64) - expected_part) / np.maximum(1.0, np.abs(expected_part))
        head = module.heads[index] if index < len(module.heads) else None
        if isinstance(head, DiscreteDistribution):  # rounding may decide between two that are equally likely
            stored = (module.adapters[index].from_env(action) for action in (actions, expected_part))
            log_probs = [head.log_prob(parameter_parts[index], torch.from_numpy(action)) for action in stored]
            scale = parameter_parts[index].abs().amax(-1).clamp(min=1.0)
            error = ((log_probs[0] - log_probs[1]).abs() / scale).detach().numpy()
        largest = max(largest, float(error.max(initial=0.0)))
    if not largest <= TOLERANCE:
        raise ZooError(
            f"the exported policy acts otherwise than the agent: by up to {largest:.2g} on"
            f" {len(inputs[0]):,} random observations; nothing was written"
        )
    return largest
