"""Optimizers of flat tensors in two forms: pure, for a compiled update, and in place, for an eager one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

Slots = dict[str, Tensor]
"""An optimizer's own tensors."""


class Optimizer(Protocol):
    """What moves a flat parameter vector."""

    def initial(self, parameters: Tensor) -> Slots:
        """Return the slots before the first step."""
        ...

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Return parameters and slots after one step; the arguments stay as they are."""
        ...

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        """Take the same step by overwriting parameters and slots."""
        ...


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015), with epsilon beside the bias-corrected root as in PyTorch."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def initial(self, parameters: Tensor) -> Slots:
        """Start with zero moments. The pure form reads the powers of both betas, the other the count.

        The powers are in double precision: 1 − 0.999ᵗ from single ones is off by 1e-5 for a thousand steps.
        """
        return {
            "mean": torch.zeros_like(parameters),
            "square": torch.zeros_like(parameters),
            "beta_powers": parameters.new_ones(2, dtype=torch.float64),
            "count": parameters.new_zeros(()),
        }

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Apply algorithm 1 of the paper, with the bias corrections moved from vectors to scalars."""
        beta_powers = slots["beta_powers"] * slots["beta_powers"].new_tensor([self.beta1, self.beta2])
        mean = torch.lerp(slots["mean"], gradient, 1 - self.beta1)
        square = torch.addcmul(self.beta2 * slots["square"], gradient, gradient, value=1 - self.beta2)
        mean_correction, square_correction = (1 - beta_powers).to(parameters.dtype)
        correction = square_correction.sqrt()
        step_size = learning_rate * correction / mean_correction
        parameters = torch.addcdiv(parameters, mean * -step_size, square.sqrt() + self.eps * correction)
        count = slots["count"] + 1
        return parameters, {"mean": mean, "square": square, "beta_powers": beta_powers, "count": count}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        """Take the step by PyTorch's fused kernel."""
        slots["beta_powers"].mul_(slots["beta_powers"].new_tensor([self.beta1, self.beta2]))
        adam(
            *([parameters], [gradient], [slots["mean"]], [slots["square"]], [], [slots["count"]]),
            fused=True,
            amsgrad=False,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )


@dataclass(frozen=True)
class RMSprop:
    """RMSprop in TensorFlow's form, with which A2C's and ACER's scores were made.

    The running square starts at one and epsilon stands inside the root, so the first steps are far smaller
    than in PyTorch's form (``tensorflow_form=False``: zeros, and epsilon outside).
    """

    decay: float
    eps: float
    tensorflow_form: bool = True

    def initial(self, parameters: Tensor) -> Slots:
        """Start the running square of the gradient at one, or at zero in PyTorch's form."""
        start = torch.ones_like if self.tensorflow_form else torch.zeros_like
        return {"square": start(parameters)}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Divide the gradient by the root of its running square."""
        square = torch.addcmul(self.decay * slots["square"], gradient, gradient, value=1 - self.decay)
        root = (square + self.eps).sqrt() if self.tensorflow_form else square.sqrt() + self.eps
        return parameters - learning_rate * gradient / root, {"square": square}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        """Take the step with fewer passes over the memory."""
        square = slots["square"].mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
        root = square.add(self.eps).sqrt_() if self.tensorflow_form else square.sqrt().add_(self.eps)
        parameters.addcdiv_(learning_rate * gradient, root, value=-1.0)


@dataclass(frozen=True)
class Momentum:
    """Gradient descent along a sum of all gradients, older ones fading (heavy ball, Polyak 1964)."""

    decay: float

    def initial(self, parameters: Tensor) -> Slots:
        """Start at rest."""
        return {"momentum": torch.zeros_like(parameters)}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Let the sum fade, add the gradient, and go along it."""
        momentum = self.decay * slots["momentum"] + gradient
        return parameters - learning_rate * momentum, {"momentum": momentum}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        """Take the step in place."""
        momentum = slots["momentum"].mul_(self.decay).add_(gradient)
        parameters.sub_(learning_rate * momentum)
