"""Natural gradients without a matrix: Fisher-vector products, conjugate gradient, and the line search after.

Pure functions of flat vectors, for eager steps and for what a program compiles alike. Whether to go on is a
mask in a graph; eagerly, what is left is skipped, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from zoo.optim.state import is_concrete


def fisher_product(
    kl: Callable[[Tensor], Tensor], vector_at: Tensor, vector: Tensor, damping: float = 0.0
) -> Tensor:
    """Return (F + damping · I) · ``vector``, where F is the Hessian of ``kl`` at ``vector_at``.

    ``kl`` maps a parameter vector to the mean KL divergence (a scalar) of its distribution to a fixed one,
    that of ``vector_at``: there the Hessian is the Fisher matrix (Pearlmutter 1994 for the product).
    """
    at = vector_at.detach().requires_grad_()
    (slope,) = torch.autograd.grad(kl(at), at, create_graph=True)
    (product,) = torch.autograd.grad(slope @ vector, at)
    return product + damping * vector


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], right_side: Tensor, iterations: int = 10, tolerance: float = 1e-10
) -> Tensor:
    """Return x with ``product(x)`` ≈ ``right_side`` for a symmetric, positive semi-definite product.

    Ends after ``iterations``, or once the squared norm of the residual is at most ``tolerance``
    (Nocedal and Wright, Numerical Optimization, algorithm 5.2).
    """
    solution = torch.zeros_like(right_side)
    residual = direction = right_side
    square = residual @ residual
    for _ in range(iterations):
        unfinished = square > tolerance
        if is_concrete(unfinished) and not unfinished:
            break
        image = product(direction)
        curvature = direction @ image
        unfinished = unfinished & (curvature > 0)
        length = torch.where(unfinished, square / curvature, 0.0)
        solution = solution + length * direction
        residual = residual - length * image
        new_square = residual @ residual
        direction = torch.where(unfinished, residual + new_square / square * direction, direction)
        square = torch.where(unfinished, new_square, 0.0)
    return solution


def line_search(
    accepts: Callable[[Tensor], Tensor],
    start: Tensor,
    step: Tensor,
    shrink: float = 0.8,
    attempts: int = 10,
) -> tuple[Tensor, Tensor]:
    """Return the first of ``start + shrink**k · step``, k = 0, 1, …, that is accepted, and whether one was.

    ``accepts`` maps a vector to a bool scalar. Without any the vector returned is ``start``.
    """
    found = torch.zeros((), dtype=torch.bool, device=start.device)
    result = start
    for k in range(attempts):
        candidate = start + shrink**k * step
        accepted = accepts(candidate)
        result = torch.where(accepted & ~found, candidate, result)
        found = found | accepted
        if is_concrete(found) and found:
            break
    return result, found
