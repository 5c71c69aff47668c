"""Natural gradients without a matrix: Fisher-vector products, conjugate gradient, line search, trust region.

Pure functions of flat vectors. The products and tries that they ask for may be compiled, each as a graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # what multiplies a vector by a matrix that is never made


def fisher_vector_product(outputs: Tensor, vector: Tensor, kl: Callable[[Tensor], Tensor]) -> Product:
    """Return the product with F = Jᵀ·M·J, the Fisher matrix of a distribution in ``vector``.

    ``outputs`` are the distribution's parameters as functions of ``vector``, by the Jacobian J. ``kl`` maps
    such parameters to the mean KL divergence (a scalar) to the distribution of ``outputs``: there its
    gradient is 0 and its Hessian is M. What all products share is computed once.

    J·v is the derivative of Jᵀ·u by u: two backward passes in place of a forward one.
    """
    weights = torch.zeros_like(outputs, requires_grad=True)
    (weighted,) = torch.autograd.grad(outputs, vector, weights, create_graph=True)
    leaf = outputs.detach().requires_grad_()
    (grad,) = torch.autograd.grad(kl(leaf), leaf, create_graph=True)

    def product(direction: Tensor) -> Tensor:
        (moved,) = torch.autograd.grad(weighted, weights, direction, retain_graph=True)
        (turned,) = torch.autograd.grad(grad, leaf, moved, retain_graph=True)
        (result,) = torch.autograd.grad(outputs, vector, turned, retain_graph=True)
        return result

    return product


def conjugate_gradient(
    product: Product, right_side: Tensor, iterations: int = 10, tolerance: float = 1e-10
) -> Tensor:
    """Return x with ``product(x)`` ≈ ``right_side`` for a symmetric, positive semi-definite product.

    Ends after ``iterations``, or once the squared norm of the residual is at most ``tolerance``
    (Nocedal and Wright, Numerical Optimization, algorithm 5.2).
    """
    solution = torch.zeros_like(right_side)
    residual = direction = right_side
    square = residual @ residual
    for _ in range(iterations):
        if not square > tolerance:
            break
        image = product(direction)
        curvature = direction @ image
        if not curvature > 0:
            break
        length = square / curvature
        solution = solution + length * direction
        residual = residual - length * image
        new_square = residual @ residual
        direction = residual + new_square / square * direction
        square = new_square
    return solution


def longest_step(direction: Tensor, product: Product, bound: float | Tensor) -> Tensor:
    """Return s along ``direction`` with ½·sᵀ·product(s) = ``bound``.

    For damped Fisher products that bounds a quadratic estimate of the KL divergence (Schulman et al. 2015,
    appendix C). Not finite where there is no direction.
    """
    return direction * (2 * bound / (direction @ product(direction))).sqrt()


def line_search(
    accepts: Callable[[Tensor], Tensor], start: Tensor, step: Tensor, shrink: float = 0.8, attempts: int = 10
) -> tuple[Tensor, bool]:
    """Return the first of ``start + shrink**k · step``, k = 0, 1, …, that is accepted, and whether one was.

    ``accepts`` maps a vector to a bool scalar. Without any the vector returned is ``start``.
    """
    for k in range(attempts):
        candidate = start + shrink**k * step
        if accepts(candidate):
            return candidate, True
    return start, False


def projected(grad: Tensor, normal: Tensor, bound: float) -> Tensor:
    """Return the z (…, n) nearest to ``grad`` with normal · z ≤ ``bound`` (Wang et al. 2017, equation 12).

    ``normal`` is the gradient of a divergence to another distribution, by the same statistics as ``grad``.
    """
    excess = torch.relu((normal * grad).sum(-1, keepdim=True) - bound)
    square = normal.square().sum(-1, keepdim=True)
    return grad - excess / square.clamp(min=torch.finfo(square.dtype).tiny) * normal
