"""The loss of GAIL's discriminator once more: in NumPy, in double precision, pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
Layers = list[tuple[Array, Array]]
"""Weights (out, in) and biases (out,); tanh between the layers."""


def logit(layers: Layers, pair: Array) -> float:
    hidden = pair
    for weights, biases in layers[:-1]:
        hidden = np.tanh(weights @ hidden + biases)
    weights, biases = layers[-1]
    return float((weights @ hidden + biases)[0])


def grad(layers: Layers, pair: Array) -> Array:
    """Return the gradient of the logit with respect to the pair, by the chain rule."""
    hidden, jacobian = pair, np.eye(len(pair))
    for weights, biases in layers[:-1]:
        hidden = np.tanh(weights @ hidden + biases)
        jacobian = (1 - hidden**2)[:, None] * (weights @ jacobian)
    found: Array = (layers[-1][0] @ jacobian)[0]
    return found


def bernoulli_entropy(probability: float) -> float:
    return -probability * np.log(probability) - (1 - probability) * np.log(1 - probability)


def loss(
    layers: Layers, policy: Array, expert: Array, mix: Array, ent_coef: float, penalty_coef: float
) -> float:
    """Return −log(1 − D) and −log D, less the entropy, plus the penalty; rows are pairs."""
    probabilities = {
        name: [1 / (1 + np.exp(-logit(layers, pair))) for pair in pairs]
        for name, pairs in (("policy", policy), ("expert", expert))
    }
    total = -np.mean(np.log(1 - np.array(probabilities["policy"])))
    total -= np.mean(np.log(probabilities["expert"]))
    entropies = [bernoulli_entropy(p) for each in probabilities.values() for p in each]
    total -= ent_coef * np.mean(entropies)
    mixed = [p + m * (e - p) for p, e, m in zip(policy, expert, mix, strict=True)]
    penalties = [(np.sqrt((grad(layers, pair) ** 2).sum()) - 1) ** 2 for pair in mixed]
    return float(total + penalty_coef * np.mean(penalties))


def normalized(layers: Layers) -> Layers:
    """Return layers whose weights have 1 as their largest singular value."""
    return [(weights / np.linalg.svd(weights)[1][0], biases) for weights, biases in layers]


def differences(function: Any, values: Array, step: float = 1e-6) -> Array:
    """Return the gradient of a function of a vector by central differences."""
    found = np.zeros_like(values)
    for i in range(len(values)):
        ahead, behind = values.copy(), values.copy()
        ahead[i] += step
        behind[i] -= step
        found[i] = (function(ahead) - function(behind)) / (2 * step)
    return found
