"""Recurrent layers on arrays against PyTorch's own layers and derivatives, in double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.policies import recurrence
from zoo.policies.config import PolicyConfig
from zoo.policies.recurrent_cores import GatedCore, make_core

TIME, ROWS, INPUT, HIDDEN = 7, 3, 4, 5
KINDS = pytest.mark.parametrize("kind", list(recurrence.KINDS))


def core_of(kind: str, n_layers: int = 1) -> GatedCore:
    torch.manual_seed(0)
    config = PolicyConfig(
        recurrent="gru" if kind == "gru" else "lstm",
        lstm_layer_norm=kind == "normalized_lstm",
        lstm_hidden_size=HIDDEN,
        n_lstm_layers=n_layers,
    )
    core = make_core(config, INPUT)
    assert core is not None
    core = core.double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return core


def given(seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(ROWS, TIME, INPUT, generator=generator, dtype=torch.float64)
    starts = torch.rand(ROWS, TIME, generator=generator) < 0.25
    starts[0, 0] = True
    assert starts[:, 1:].any()
    return features, starts


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_a_core_is_what_pytorch_calls_so(kind: str, n_layers: int) -> None:
    core, (features, _) = core_of(kind, n_layers), given()
    peer_class: Any = nn.LSTM if kind == "lstm" else nn.GRU
    peer = peer_class(INPUT, HIDDEN, n_layers, batch_first=True).double()
    with torch.no_grad():
        for number, layer in enumerate(core.layers):
            for name, parameter in layer.named_parameters():
                getattr(peer, f"{name}_l{number}").copy_(parameter)
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    parts = state.reshape(ROWS, n_layers, -1, HIDDEN).permute(2, 1, 0, 3).contiguous()
    expected, last = peer(features, tuple(parts) if kind == "lstm" else parts[0])
    found, found_last = core(features, state)
    torch.testing.assert_close(found, expected)
    last_parts = torch.stack(last) if kind == "lstm" else last[None]
    torch.testing.assert_close(found_last, last_parts.permute(2, 1, 0, 3).reshape(ROWS, -1))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_first_weights_are_drawn_as_pytorch_draws_them(kind: str) -> None:
    """Uniformly between ±1/√hidden."""
    torch.manual_seed(0)
    core = make_core(PolicyConfig(recurrent=kind, lstm_hidden_size=64), 8)
    assert core is not None
    for parameter in core.parameters():
        assert 0.9 / 8 < parameter.max() <= 1 / 8
        assert -1 / 8 <= parameter.min() < -0.9 / 8
        assert parameter.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.1)


@KINDS
def test_a_single_step_is_left_to_pytorchs_own_operations(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    core, (features, _) = core_of(kind), given()
    state = torch.zeros(ROWS, core.state_size, dtype=torch.float64)
    expected, _ = core(features, state)
    monkeypatch.delattr(recurrence, "run")
    torch.testing.assert_close(core(features[:, 0], state)[0], expected[:, 0])


def test_layer_normalisation_is_where_the_paper_has_it() -> None:
    """Equations 20 to 22 of Ba et al. 2016, written out for one step."""
    core, (features, _) = core_of("normalized_lstm"), given()
    layer: Any = core.layers[0]
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    hidden, cell = state.chunk(2, -1)
    gates = layer.norm_hh(hidden @ layer.weight_hh.T) + layer.norm_ih(features[:, 0] @ layer.weight_ih.T)
    i, f, g, o = gates.chunk(4, -1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    hidden = torch.sigmoid(o) * torch.tanh(layer.norm_cell(cell))
    found, last = core(features[:, 0], state)
    torch.testing.assert_close(found, hidden)
    torch.testing.assert_close(last, torch.cat([hidden, cell], -1))


def inputs_of(kind: str, dtype: torch.dtype = torch.float64) -> tuple[list[Tensor], Tensor]:
    """Return what is read, the first state and the weights, which take gradients, and where to keep it."""
    core, (features, starts) = core_of(kind), given()
    layer: Any = core.layers[0]
    read = layer.read(features.transpose(0, 1)).detach()
    state = torch.randn(ROWS, core.state_size, dtype=torch.float64)
    tensors = [read, state, *layer.recurrent_weights()]
    keep = 1.0 - starts.T[..., None].to(dtype)
    return [each.detach().to(dtype).requires_grad_() for each in tensors], keep


def loss_of(outputs: Sequence[Tensor]) -> Tensor:
    return sum(
        (output.sin() * torch.arange(output.numel()).reshape(output.shape).cos()).sum() for output in outputs
    )  # type: ignore[return-value]


@KINDS
def test_all_steps_at_once_give_what_single_ones_give(kind: str) -> None:
    (read, state, *weights), keep = inputs_of(kind)
    ours = recurrence.run(kind, read, state, keep, weights)
    theirs = recurrence.step_by_step(kind, read, state, keep, weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@KINDS
def test_gradients_are_those_of_single_steps(kind: str) -> None:
    (read, state, *weights), keep = inputs_of(kind)
    ours = torch.autograd.grad(
        loss_of(recurrence.run(kind, read, state, keep, weights)), [read, state, *weights]
    )
    expected = torch.autograd.grad(
        loss_of(recurrence.step_by_step(kind, read, state, keep, weights)), [read, state, *weights]
    )
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other)


@KINDS
def test_second_derivatives_are_those_of_single_steps(kind: str) -> None:
    """As a Fisher-vector product takes them."""
    (read, state, *weights), keep = inputs_of(kind)
    inputs, products = [read, state, *weights], []
    for run in (recurrence.run, recurrence.step_by_step):
        slopes = torch.autograd.grad(
            loss_of(run(kind, read, state, keep, weights)), inputs, create_graph=True
        )
        products.append(torch.autograd.grad(loss_of(slopes), inputs))
    for one, other in zip(*products, strict=True):
        torch.testing.assert_close(one, other)


class Seen(TorchDispatchMode):
    """Notes the names of all operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@KINDS
def test_a_layer_is_one_operation_but_for_whoever_wants_each_product(kind: str) -> None:
    (read, state, *weights), keep = inputs_of(kind)
    with Seen() as at_once:
        recurrence.run(kind, read, state, keep, weights)
    with recurrence.taken_apart(), Seen() as apart:
        recurrence.run(kind, read, state, keep, weights)
    with Seen() as afterwards:
        recurrence.run(kind, read, state, keep, weights)
    assert "zoo::recurrence" in at_once.names
    assert at_once.names == afterwards.names
    assert "zoo::recurrence" not in apart.names
    assert len(apart.names) > TIME > len(at_once.names)


@KINDS
def test_one_step_is_made_of_operations_that_can_be_exported(kind: str) -> None:
    core, features = core_of(kind).float(), given()[0].float()
    with Seen() as one:
        core(features[:, :1])
    with Seen() as all_steps:
        core(features)
    assert "zoo::recurrence" in all_steps.names
    assert not any(name.startswith("zoo::") for name in one.names)


@KINDS
def test_compiled_updates_expect_what_comes_out(kind: str) -> None:
    """The shapes that are told to a compiler are those of the results."""
    inputs, keep = inputs_of(kind)
    read, state, *weights = (each.detach() for each in inputs)
    outputs, last, tape = recurrence._forward(kind, read, state, keep, weights)
    backward = kind, outputs, last, read, state, keep, weights, tape
    twice = kind, [read, state, *weights], [outputs, last], [read, state, *weights], keep
    for operation, arguments in (
        (recurrence._forward, (kind, read, state, keep, weights)),
        (recurrence._backward, backward),
        (recurrence._backward_twice, twice),
    ):
        torch.library.opcheck(operation, arguments, test_utils=("test_schema", "test_faketensor"))


@KINDS
def test_single_precision_stays_single(kind: str) -> None:
    (read, state, *weights), keep = inputs_of(kind, torch.float32)
    outputs, last = recurrence.run(kind, read, state, keep, weights)
    assert outputs.dtype == last.dtype == torch.float32
    for slope in torch.autograd.grad(loss_of((outputs, last)), [read, state, *weights]):
        assert slope.dtype == torch.float32
