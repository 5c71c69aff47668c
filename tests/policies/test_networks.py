"""Layers and encoders: widths, initial weights, spaces that they read."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from own_policies import preset, sampled
from torch import nn

from zoo.algorithms.arguments import policy_config
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig, policy_preset
from zoo.policies.encoders import SMALLEST_IMAGE, NatureCnn, SmallCnn, VectorEncoder, make_encoder
from zoo.policies.networks import layer_sizes, orthogonal


@pytest.mark.parametrize(("width", "size"), [(64, 4), (4, 64), (16, 16)])
@pytest.mark.parametrize("gain", [math.sqrt(2), 0.01, 1.0])
def test_orthogonal_weights_have_their_gain(width: int, size: int, gain: float) -> None:
    layer = nn.Linear(size, width)
    orthogonal(layer, gain)
    weight = layer.weight.detach() / gain
    product = weight @ weight.T if width <= size else weight.T @ weight
    torch.testing.assert_close(product, torch.eye(min(width, size)), rtol=1e-4, atol=1e-4)
    assert not layer.bias.any()


def test_widths_by_network() -> None:
    names = ("shared", "pi", "vf")
    assert layer_sizes(PolicyConfig(), names, [64]) == {"shared": [], "pi": [64], "vf": [64]}
    assert layer_sizes(PolicyConfig(net_arch=[]), names, [64]) == {"shared": [], "pi": [], "vf": []}
    given = PolicyConfig(net_arch={"shared": [8], "vf": [4, 2]})
    assert layer_sizes(given, names, [64]) == {"shared": [8], "pi": [], "vf": [4, 2]}
    assert layer_sizes(PolicyConfig(net_arch=[3]), ("qf",), [64]) == {"qf": [3]}
    with pytest.raises(ZooError, match=r"unknown key `policy.net_arch.vf`; known: pi, qf"):
        layer_sizes(PolicyConfig(net_arch={"pi": [8], "vf": [8]}), ("pi", "qf"), [64])
    with pytest.raises(ZooError, match="one list of widths"):
        layer_sizes(PolicyConfig(net_arch={"pi": [8]}), ("qf",), [64])


SIDE = SMALLEST_IMAGE
IMAGE = spaces.Box(0, 255, (SIDE, SIDE + 2, 3), np.uint8)


def encoder(space: spaces.Space[Any], name: str = "MlpPolicy", **fields: Any) -> Any:
    torch.manual_seed(0)
    return make_encoder(space, preset(name, **fields), ortho_init=False)


batch = partial(sampled, n=5)


@given(
    shape=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    dtype=st.sampled_from([np.float32, np.float64, np.int16, np.int64]),
    n=st.integers(1, 4),
)
@settings(derandomize=True, max_examples=40)
def test_numbers_are_flattened(shape: tuple[int, ...], dtype: Any, n: int) -> None:
    space = spaces.Box(-3, 3, shape, dtype)
    observations = sampled(space, n)
    network = encoder(space)
    features = network(torch.from_numpy(observations))
    assert features.shape == (n, network.features_dim)
    assert features.dtype == torch.float32
    np.testing.assert_array_equal(features.numpy(), observations.reshape(n, -1).astype(np.float32))


@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (spaces.Box(0, 1, (3, 3), np.uint8), 1.0),
        (spaces.Box(0, 2, (8, 8, 2), np.uint8), 1.0),
        (spaces.Box(1, 255, (3, 3), np.uint8), 1.0),
        (spaces.Box(0, 255, (3,), np.uint8), 1.0),
        (spaces.Box(0, 255, (3, 3), np.int16), 1.0),
        (spaces.Box(0, 255, (3, 3), np.uint8), 255.0),
        (spaces.Box(0, 255, (3, 3, 1), np.uint8), 255.0),
    ],
    ids=str,
)
def test_only_bytes_up_to_255_are_pixels(space: spaces.Box, divisor: float) -> None:
    observations = batch(space)
    expected = observations.reshape(len(observations), -1) / divisor
    for values in (observations, observations.astype(np.float32)):
        np.testing.assert_allclose(encoder(space)(torch.from_numpy(values)).numpy(), expected, rtol=1e-6)


def test_discrete_observations_are_one_hot_from_start() -> None:
    network = encoder(spaces.Discrete(3, start=-1))
    assert network.features_dim == 3
    assert network(torch.tensor([-1, 1, 0])).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("channels", [1, 4])
def test_both_channel_orders_give_the_same_features(channels: int) -> None:
    last = spaces.Box(0, 255, (SIDE, SIDE + 9, channels), np.uint8)
    first = spaces.Box(0, 255, (channels, SIDE, SIDE + 9), np.uint8)
    ours, theirs = encoder(last, "CnnPolicy"), encoder(first, "CnnPolicy")
    images = torch.from_numpy(batch(last))
    features = ours(images)
    assert features.shape == (5, 512)
    torch.testing.assert_close(features, theirs(images.permute(0, 3, 1, 2)))


def test_image_bytes_are_divided_by_255() -> None:
    network, images = encoder(IMAGE, "CnnPolicy", features_dim=16), torch.from_numpy(batch(IMAGE))
    scaled = images.double().div(255).float().permute(0, 3, 1, 2)
    torch.testing.assert_close(network(images), network.layers(scaled))
    torch.testing.assert_close(network(images), network(images.float()))


def test_bfloat16_without_the_cnn_is_refused() -> None:
    with pytest.raises(ZooError, match=r"precision=bfloat16 is of Zoo's CNN for images"):
        encoder(spaces.Box(-1, 1, (3,)), "MlpPolicy", precision="bfloat16")


def test_bfloat16_rounds_only_features_and_gradients() -> None:
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    exact, rounded = encoder(space, "CnnPolicy"), encoder(space, "CnnPolicy", precision="bfloat16")
    rounded.load_state_dict(exact.state_dict())
    images = torch.from_numpy(batch(space))
    features = [network(images) for network in (exact, rounded)]
    gradients = []
    for network, each in zip((exact, rounded), features, strict=True):
        assert each.dtype == torch.float32
        each.square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in network.parameters()]))
    for first, second in (features, gradients):
        error = (first - second).norm() / first.norm()
        assert 1e-4 < error < 3e-2
    assert {parameter.dtype for parameter in rounded.parameters()} == {torch.float32}


def test_the_nature_network_has_its_layers() -> None:
    network = encoder(spaces.Box(0, 255, (84, 84, 4), np.uint8), "CnnPolicy")
    shapes = [tuple(p.shape) for name, p in network.named_parameters() if name.endswith("weight")]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 3136)]
    with_norm = encoder(spaces.Box(0, 255, (84, 84, 4), np.uint8), "LnCnnPolicy")
    assert [type(layer).__name__ for layer in with_norm.layers][-3:] == ["Linear", "LayerNorm", "ReLU"]


BOARD = spaces.Box(0, 1, (5, 6, 2), bool)


def by_hand(board: Any, tensors: dict[str, Any]) -> Any:
    """Return the features (128,) of one board (height, width, channels), in double precision."""
    values = {name: tensor.double().numpy() for name, tensor in tensors.items()}
    height, width, _ = board.shape
    maps = np.empty((16, height - 2, width - 2))
    for row in range(height - 2):
        for column in range(width - 2):
            window = board[row : row + 3, column : column + 3].transpose(2, 0, 1)
            maps[:, row, column] = (values["layers.0.weight"] * window).sum((1, 2, 3)) + values[
                "layers.0.bias"
            ]
    flat = np.maximum(maps, 0).ravel()
    return np.maximum(values["layers.3.weight"] @ flat + values["layers.3.bias"], 0)


@pytest.mark.parametrize(
    ("space", "divisor"),
    [
        (BOARD, 1.0),
        (spaces.Box(0, 1, (5, 6, 2), np.uint8), 1.0),
        (spaces.Box(-1, 1, (5, 6, 2), np.float32), 1.0),
        (spaces.Box(0, 255, (5, 6, 2), np.uint8), 255.0),
    ],
    ids=str,
)
def test_small_cnn_is_that_of_minatars_paper(space: spaces.Box, divisor: float) -> None:
    network, boards = encoder(space, encoder="small_cnn"), batch(space)
    features, tensors = network(torch.from_numpy(boards)).detach().numpy(), network.state_dict()
    expected = np.stack([by_hand(board / divisor, tensors) for board in boards.astype(float)])
    np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-5)
    wrong_scale = by_hand(boards[0].astype(float) / (256.0 - divisor), tensors)
    turned = by_hand(boards[0].astype(float)[::-1] / divisor, tensors)
    for planted in (wrong_scale, turned):
        assert np.abs(planted - expected[0]).max() > 1e-3
    sequence = network(torch.from_numpy(boards)[None].float())
    torch.testing.assert_close(sequence[0], torch.from_numpy(features))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (BOARD, "small_cnn"),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), "small_cnn"),
        (spaces.Box(-1, 1, (2, 4, 4), np.int8), "small_cnn"),
        (spaces.Box(0, 1, (2, 6, 7), bool), "small_cnn"),
        (spaces.Box(0, 1, (2, 6, 2), bool), "mlp"),
        (spaces.Box(0, 1, (5, 6), bool), "mlp"),
        (spaces.Box(0, 1, (5, 6, 2), np.float32), "mlp"),
        (spaces.Box(0, 1, (36, 36, 2), bool), "mlp"),
        (IMAGE, "mlp"),
    ],
    ids=str,
)
def test_boards_choose_small_cnn(space: spaces.Box, expected: str) -> None:
    assert policy_config("MlpPolicy", space).encoder == expected
    assert policy_config({"recurrent": "lstm"}, space).encoder == expected
    assert policy_config({"flatten_images": True}, space).encoder == "mlp"
    assert policy_config("LinearPolicy", space).encoder == "mlp"
    assert policy_config("CnnPolicy", space).encoder == "cnn"


DICT = spaces.Dict(
    {
        "vector": spaces.Box(-1, 1, (2,), np.float32),
        "image": IMAGE,
        "icon": spaces.Box(0, 255, (4, 4, 1), np.uint8),
        "number": spaces.Discrete(3, start=1),
        "bits": spaces.MultiBinary(2),
    }
)


def test_a_dictionary_is_encoded_key_by_key() -> None:
    network = encoder(DICT, "MultiInputPolicy", features_dim=16)
    observations = {key: torch.from_numpy(batch(part)) for key, part in DICT.spaces.items()}
    features = network(observations)
    assert network.features_dim == 2 + 16 + 16 + 3 + 2
    flat = encoder(DICT, "MultiInputPolicy", features_dim=16, flatten_images=True)
    assert isinstance(dict(zip(flat.keys, flat.parts, strict=True))["icon"], VectorEncoder)
    assert features.shape == (5, network.features_dim)
    parts = dict(zip(network.keys, network.parts, strict=True))
    assert isinstance(parts["image"], NatureCnn)
    assert isinstance(parts["icon"], SmallCnn)
    expected = torch.cat([parts[key](observations[key]) for key in network.keys], dim=1)
    torch.testing.assert_close(features, expected)
    shuffled = {key: observations[key] for key in reversed(list(observations))}
    torch.testing.assert_close(network(shuffled), features)


@pytest.mark.parametrize(
    ("name", "space", "message"),
    [
        ("MlpPolicy", DICT, "MlpPolicy can't read dictionary observations; use policy=MultiInputPolicy"),
        ("CnnPolicy", DICT, "CnnPolicy can't read dictionary observations; use policy=MultiInputPolicy"),
        ("MultiInputPolicy", IMAGE, "MultiInputPolicy reads dictionaries.*use MlpPolicy"),
        ("CnnPolicy", spaces.Box(-1, 1, (4,), np.float32), "CnnPolicy reads images.*use policy=MlpPolicy"),
        ("CnnPolicy", spaces.Discrete(4), "CnnPolicy reads images"),
        ("CnnPolicy", spaces.Box(0, 1, (84, 84, 1), np.float32), "CnnPolicy reads images"),
        ("CnnPolicy", spaces.Box(0, 255, (20, 84, 3), np.uint8), "CnnPolicy reads .*at least 36×36 pixels"),
        ("MlpPolicy", spaces.Tuple([spaces.Discrete(2)]), "can't read observations of Tuple"),
        ("MlpPolicy", spaces.Text(5), "can't read observations of Text"),
        ("MlpPolicy", spaces.Sequence(spaces.Discrete(2)), "can't read observations of Sequence"),
        (
            "MultiInputPolicy",
            spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))),
            "can't read observations of Dict",
        ),
    ],
)
def test_a_policy_that_cannot_read_a_space_says_so(name: str, space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        make_encoder(space, policy_preset(name), ortho_init=False)
