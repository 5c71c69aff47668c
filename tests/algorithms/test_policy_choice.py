"""What is told of a policy that fits an environment badly."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from zoo.algorithms.arguments import policy_config, tell_of_unread_images
from zoo.errors import ZooError, ZooWarning

IMAGES = spaces.Box(0, 255, (36, 36, 3), np.uint8)
VECTORS = spaces.Box(-1.0, 1.0, (36,), np.float32)


def test_images_that_are_read_pixel_by_pixel_are_told_of() -> None:
    with pytest.warns(ZooWarning, match="MlpPolicy reads each pixel of these images by itself"):
        tell_of_unread_images(IMAGES, policy_config("MlpPolicy", IMAGES))


@pytest.mark.parametrize(
    ("name", "space"), [("CnnPolicy", IMAGES), ("MlpPolicy", VECTORS), ("LinearPolicy", VECTORS)]
)
def test_nothing_is_told_of_what_fits(name: str, space: spaces.Box) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tell_of_unread_images(space, policy_config(name, space))


def test_one_image_is_enough_for_the_width_of_what_reads_images() -> None:
    both = spaces.Dict({"vector": VECTORS, "image": IMAGES})
    assert policy_config({"features_dim": 64}, both).features_dim == 64
    with pytest.raises(ZooError, match=r"`policy\.features_dim=64` is the width of what reads images"):
        policy_config({"features_dim": 64}, spaces.Dict({"one": VECTORS, "other": VECTORS}))
