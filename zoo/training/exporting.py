"""Writing an agent's deterministic policy as ONNX and torch.export, once it acts as the agent does."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from zoo.algorithms.agent import Agent
from zoo.envs.normalize import SINGLE
from zoo.envs.spaces import choice_sizes, is_image
from zoo.errors import ZooError, install_command
from zoo.files.atomic import atomic_folder
from zoo.files.plain_data import to_json
from zoo.files.printing import one_line
from zoo.policies.distributions import Bernoulli, CompositeHead, Head, MultiCategorical
from zoo.training.deterministic_policy import DeterministicPolicy

ONNX, TORCH_EXPORT, DESCRIPTION, README = "policy.onnx", "policy.pt2", "policy.json", "README.md"
EXPORTED_FILES = (ONNX, TORCH_EXPORT, DESCRIPTION, README)

TOLERANCE = 1e-5
"""How far an exported action may be from the agent's, absolutely where it is small, else relatively."""

N_CHECKED, N_CHECKED_IMAGES = 1000, 64

Array = np.ndarray[Any, Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]


def export_agent(
    agent: Agent[Any], folder: str | Path, *, formats: Sequence[str], title: str
) -> dict[str, float]:
    """Write the policy in the ``formats`` (``onnx``, ``torch_export``) into ``folder``, whole or not at all.

    Each is first compared with the agent on random observations. Returns the largest difference of each.
    Raises `ZooError` for one above `TOLERANCE`, for what can't be exported and for a missing package.
    """
    destination = Path(folder)
    others = [each.name for each in destination.iterdir()] if destination.is_dir() else []
    if destination.is_file() or any(name not in EXPORTED_FILES for name in others):
        raise ZooError(f"{one_line(destination)} holds something else than an export; choose another out=")
    if "onnx" in formats:
        _check_packages()
    module = DeterministicPolicy(agent).eval()
    examples = _examples(agent, module)
    program = _traced(module, [part[:2] for part in examples.inputs])
    written: dict[str, tuple[bytes, Run]] = {}
    if "onnx" in formats:
        written[ONNX] = _as_onnx(module, program)
    if "torch_export" in formats:
        written[TORCH_EXPORT] = _as_torch_export(program)
    differences = {name: _difference(agent, module, examples, run) for name, (_, run) in written.items()}
    with atomic_folder(destination) as new:
        for name, (content, _) in written.items():
            (new / name).write_bytes(content)
        (new / DESCRIPTION).write_text(to_json(_description(module, list(written))), encoding="utf-8")
        (new / README).write_text(_readme(title, module, list(written)), encoding="utf-8")
    return differences


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
        with _quietly():
            return torch.export.export(module, tensors, dynamic_shapes=(shapes,), strict=False)
    except ZooError:
        raise
    except Exception as error:
        raise ZooError(f"PyTorch can't export this policy: {one_line(error)}") from error


def _as_torch_export(program: torch.export.ExportedProgram) -> tuple[bytes, Run]:
    file = io.BytesIO()
    with _quietly():
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
        with _quietly():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[facts.name for facts in module.inputs],
                output_names=[facts.name for facts in module.outputs],
                verbose=False,
            )
    except Exception as error:
        raise ZooError(f"PyTorch can't write this policy as ONNX: {one_line(error)}") from error
    assert exported is not None
    content: bytes = exported.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [facts.name for facts in module.inputs]

    def run(observations: Sequence[Array]) -> Sequence[Array]:
        found: Sequence[Array] = session.run(None, dict(zip(names, observations, strict=True)))
        return found

    return content, run


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep the exporters' progress and their advice to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


# Comparing


def random_observations(agent: Agent[Any], n: int | None = None, seed: int = 0) -> list[Array]:
    """Return ``n`` random observations, an array (n, …) for each part; such as the agent may have seen."""
    space = agent.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {SINGLE: space}
    if n is None:
        n = N_CHECKED_IMAGES if any(is_image(part) for part in parts.values()) else N_CHECKED
    rng = np.random.default_rng(seed)
    return [_random(part, agent, key, rng, n) for key, part in parts.items()]


def random_masks(agent: Agent[Any], n: int, seed: int = 0) -> Array:
    """Return ``n`` random masks of valid actions, each of which leaves something to choose."""
    rng, sizes = np.random.default_rng(seed), choice_sizes(agent.action_space)
    masks = rng.random((n, sum(sizes))) < 0.5
    starts = np.cumsum([0, *sizes[:-1]])
    masks[np.arange(n)[:, None], starts + rng.integers(sizes, size=(n, len(sizes)))] = True
    return masks


def _random(space: spaces.Space[Any], agent: Agent[Any], key: str, rng: np.random.Generator, n: int) -> Array:
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.start, space.start + space.n, n, dtype=space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return (space.start + (rng.random((n, *space.nvec.shape)) * space.nvec)).astype(space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 2, (n, *space.shape)).astype(space.dtype)
    assert isinstance(space, spaces.Box)
    if space.dtype.kind in "iu":
        return rng.integers(space.low, space.high, (n, *space.shape), endpoint=True).astype(space.dtype)
    centre: Any = np.clip(0.0, space.low, space.high)
    width: Any = np.clip(space.high.astype(np.float64) - space.low, 0.0, 10.0)
    moments = None if agent.normalizer is None else agent.normalizer.moments.get(key)
    if moments is not None:
        centre, width = moments.mean, 2.0 * np.sqrt(moments.var)
    drawn = centre + width * rng.standard_normal((n, *space.shape))
    return np.clip(drawn, space.low, space.high).astype(space.dtype)


class _Examples(NamedTuple):
    """Random inputs to try both with: observations, state and episode starts, masks, where there are any."""

    observations: list[Array]
    memory: list[Array]
    masks: Array | None

    @property
    def inputs(self) -> list[Array]:
        """What the exported policy takes."""
        return [*self.observations, *self.memory, *([] if self.masks is None else [self.masks])]


def _examples(agent: Agent[Any], module: DeterministicPolicy) -> _Examples:
    observations = random_observations(agent)
    n = len(observations[0])
    masks = random_masks(agent, n) if agent.masks_actions else None
    return _Examples(observations, module.random_memory(n), masks)


def _difference(agent: Agent[Any], module: DeterministicPolicy, examples: _Examples, run: Run) -> float:
    """Return how far the exported policy's actions are from the agent's. Raises `ZooError` if too far."""
    memory, masks, inputs = examples.memory, examples.masks, examples.inputs
    observations = _as_seen(agent, examples.observations)
    state, starts = (module.state_of_agent(memory[0]), memory[1]) if memory else (None, None)
    actions, after = agent.predict(observations, state, starts, action_masks=masks, deterministic=True)
    expected = _leaves(agent, actions) + ([after[:, : module.memory_size]] if memory else [])
    # One at a time and another number of them: the batch must not be part of what was exported.
    found = [run([part[:1] for part in inputs]), run([part[1:] for part in inputs])]
    worst = 0.0
    ties = _nearly_tied(agent, observations, masks, state, starts)
    for index, wanted in enumerate(expected):
        actions = np.concatenate([each[index] for each in found])
        if actions.shape != wanted.shape or actions.dtype != wanted.dtype:
            raise ZooError(
                f"the exported policy gives {actions.dtype} {actions.shape},"
                f" the agent {wanted.dtype} {wanted.shape}"
            )
        scale = np.maximum(1.0, np.abs(wanted.astype(np.float64)))
        error = np.abs(actions.astype(np.float64) - wanted) / scale
        if wanted.dtype.kind in "iu":
            error = error[~ties]
        worst = max(worst, float(error.max(initial=0.0)))
    if not worst <= TOLERANCE:
        raise ZooError(
            f"the exported policy acts otherwise than the agent: by up to {worst:.2g} on"
            f" {len(inputs[0]):,} random observations; nothing was written"
        )
    return worst


def _as_seen(agent: Agent[Any], observations: list[Array]) -> Any:
    """Return the observations as the agent is shown them."""
    space = agent.observation_space
    if isinstance(space, spaces.Dict):
        return dict(zip(space.spaces, observations, strict=True))
    return observations[0]


def _leaves(agent: Agent[Any], actions: Any) -> list[Array]:
    if isinstance(actions, dict):
        return [leaf for part in actions.values() for leaf in _leaves(agent, part)]
    if isinstance(actions, tuple):
        return [leaf for part in actions for leaf in _leaves(agent, part)]
    return [actions]


def _nearly_tied(
    agent: Agent[Any], observations: Any, masks: Array | None, state: Array | None, starts: Array | None
) -> Array:
    """Return for which rows (n,) rounding decides between two actions."""
    seen, _ = agent._seen(observations, masks)
    if starts is not None:
        seen["episode_starts"] = starts
    parameters, _ = agent.acting.parameters(seen, state)
    return _tied(agent.acting.head, parameters)


def _tied(head: Head, parameters: Array) -> Array:
    if isinstance(head, CompositeHead):
        parts = np.split(parameters, np.cumsum(head.parameter_sizes)[:-1], axis=-1)
        return np.logical_or.reduce(
            [_tied(part, each) for part, each in zip(head.heads.values(), parts, strict=True)]
        )
    if isinstance(head, Bernoulli):
        return np.asarray((np.abs(parameters) < TOLERANCE).any(-1))
    if isinstance(head, MultiCategorical):
        return np.logical_or.reduce([_close(parameters[..., part]) for part in head.slices])
    return _close(parameters)


def _close(values: Array) -> Array:
    """Return where the best two of (n, alternatives) are as good as equal."""
    if values.shape[-1] < 2:
        return np.zeros(len(values), np.bool_)
    best = np.sort(values, axis=-1)[:, -2:]
    return best[:, 1] - best[:, 0] < TOLERANCE * np.maximum(1.0, np.abs(best[:, 1]))


# Telling


def _description(module: DeterministicPolicy, files: list[str]) -> dict[str, Any]:
    return {
        "files": files,
        "inputs": [asdict(facts) for facts in module.inputs],
        "outputs": [asdict(facts) for facts in module.outputs],
    }


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
    rows = [
        f"| {what} | `{one_line(facts.name, 80)}` | {json.dumps(['n', *facts.shape])} | {facts.dtype} |"
        for what, each in (("input", module.inputs), ("output", module.outputs))
        for facts in each
    ]
    parts = [
        f"# {one_line(title)}\n",
        "The deterministic policy: raw observations in (it normalises them itself, if the agent did), actions"
        " as the environment takes them out. `n` is any number of them at a time.\n",
        "\n".join(["| | name | shape | type |", "| --- | --- | --- | --- |", *rows, ""]),
    ]
    if module.memory_size:
        parts.append(
            "It remembers: give back what came out as `next_state` with the next observation, zeros with the"
            " first; where `episode_start` is true, what it remembered does not count.\n"
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
