"""From a loss to the next state: flat parameters, gradient, clipping, optimizer, weight decay.

Optimizers move flat vectors, in two forms: pure, for a compiled update, and in place, for an eager one.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize
from torch.optim.adam import adam
from torch.utils.weak import WeakTensorKeyDictionary

from zoo.errors import ZooError
from zoo.optim.update_runner import LiveState, State, average, is_concrete

Slots = dict[str, Tensor]  # an optimizer's own tensors


@dataclass(frozen=True)
class FunctionalModule:
    """A module with a state's tensors in place of its own, to be called as the module.

    Losses are differentiated by ``parameters``. ``tensors`` are keyed by their names in the module. Those
    that a state holds under ``prefix`` and the name are running statistics.
    """

    module: nn.Module
    parameters: list[Tensor]
    tensors: dict[str, Tensor]
    prefix: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.tensors:
            return self.module(*args, **kwargs)
        return functional_call(self.module, self.tensors, args, kwargs)

    def moved(self, state: State) -> State:
        """Return the state with the running statistics after all passes so far, averaged over ranks."""
        named = {f"{self.prefix}{key}": tensor for key, tensor in self.tensors.items()}
        moved = {name: tensor for name, tensor in named.items() if name in state}
        return state.replaced({name: average(t) if t.is_floating_point() else t for name, t in moved.items()})


class Parameters:
    """The parameters of ``module`` that take gradients, in one vector, which is ``name`` in the state.

    The module's own parameters become views of ``flat``: whoever uses the module sees each finished update.
    Frozen parameters (``requires_grad=False``) and buffers stay out of the vector. ``slices`` says where in
    the vector each parameter lies. Buffers that are saved are running ``statistics``, here by their names in
    the state: a pass in training mode overwrites copies, which `FunctionalModule.moved` puts into the state.
    """

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module
        self.leaves = {key: value for key, value in module.named_parameters() if value.requires_grad}
        self.flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.leaves.values()])
        self.size = len(self.flat)
        self._shapes = {key: parameter.shape for key, parameter in self.leaves.items()}
        self._sizes = [parameter.numel() for parameter in self.leaves.values()]
        ends = [sum(self._sizes[: i + 1]) for i in range(len(self._sizes))]
        self.slices = {
            key: slice(end - size, end) for key, end, size in zip(self.leaves, ends, self._sizes, strict=True)
        }
        self._prefix, saved = f"{name}.statistics.", module.state_dict()
        self._statistics = [key for key, _ in module.named_buffers() if key in saved]
        self.statistics = {self._prefix + key: module.get_buffer(key) for key in self._statistics}
        self._unit_norms = [
            f"{path}.weight".removeprefix(".")
            for path, layer in module.named_modules()
            if getattr(layer, "has_unit_norm", False)
        ]
        self._copies: MutableMapping[Tensor, dict[bool, nn.Module]] = WeakTensorKeyDictionary()
        for key, view in self.named(self.flat).items():
            self.leaves[key].data = view

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of the vector in the shapes of the parameters."""
        parts = zip(self._shapes.items(), vector.split(self._sizes), strict=True)
        return {key: part.view(shape) for (key, shape), part in parts}

    def functional(self, vector: Tensor, state: State | None = None) -> FunctionalModule:
        """Return the module with the parameters in ``vector``, and the running statistics of ``state``.

        Gradients flow to a vector that requires them; any other is a constant (a target, an average).
        Without a state the statistics are the module's own.
        """
        statistics = {} if state is None else self.statistics_in(state)
        if is_concrete(vector) and not vector.requires_grad and not statistics:
            return FunctionalModule(self.module_at(vector), [vector], {}, self._prefix)
        return FunctionalModule(self.module, [vector], {**self.named(vector), **statistics}, self._prefix)

    def live(self, state: LiveState) -> FunctionalModule:
        """Return the module itself, to be differentiated by its own parameters."""
        leaves: list[Tensor] = list(self.leaves.values())
        return FunctionalModule(self.module, leaves, self.statistics_in(state), self._prefix)

    def statistics_in(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of the running statistics, by their names in the module."""
        return {key: state[self._prefix + key].clone() for key in self._statistics}

    def module_at(self, vector: Tensor) -> nn.Module:
        """Return a copy of the module whose parameters are views of ``vector``; all else is shared.

        For eager use. The copy is kept as long as the vector is there, and follows what is written into it;
        there is one for training mode and one for evaluation mode.
        """
        by_mode = self._copies.setdefault(vector, {})
        if self.module.training not in by_mode:
            by_mode[self.module.training] = self._copy(vector)
        return by_mode[self.module.training]

    def polyak_update(self, state: State, target_name: str, tau: Tensor | float) -> State:
        """Return the state with its vector ``target_name`` moved towards the parameters by ``tau``."""
        if isinstance(state, LiveState):
            state[target_name].lerp_(state[self.name], tau)
            return state
        return state.replaced({target_name: torch.lerp(state[target_name], state[self.name], tau)})

    def projected(self, vector: Tensor) -> Tensor:
        """Return the vector with the weights of layers that have unit norm scaled to length 1, by rows."""
        if not self._unit_norms:
            return vector
        parts = self.named(vector)
        parts |= {key: normalize(parts[key], dim=-1) for key in self._unit_norms}
        return torch.cat([part.reshape(-1) for part in parts.values()])

    def project_(self, vector: Tensor) -> None:
        """Do the same by overwriting the vector."""
        named = self.named(vector) if self._unit_norms else {}
        for key in self._unit_norms:
            named[key].copy_(normalize(named[key], dim=-1))

    def _copy(self, vector: Tensor) -> nn.Module:
        trained = {id(parameter) for parameter in self.leaves.values()}
        tensors = [*self.module.parameters(), *self.module.buffers()]
        module = copy.deepcopy(self.module, {id(t): t for t in tensors if id(t) not in trained})
        parameters = dict(module.named_parameters())
        for key, view in self.named(vector.detach()).items():
            parameters[key].requires_grad_(False).data = view
        return module


def not_fused(scalar: Tensor) -> Tensor:
    """Stop inductor from recomputing this scalar for every parameter: a reduction is never inlined."""
    return scalar if is_concrete(scalar) else scalar.expand(16).amax()


class Optimizer(ABC):
    """What moves a flat parameter vector."""

    @abstractmethod
    def initial(self, parameters: Tensor) -> Slots:
        """Return the slots before the first step."""

    @abstractmethod
    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Return parameters and slots after one step; the arguments stay as they are."""

    @abstractmethod
    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        """Take the same step by overwriting parameters and slots."""


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with epsilon beside the bias-corrected root as in PyTorch.

    With ``weight_decay`` it is AdamW (Loshchilov and Hutter 2019): each step first takes that share, times
    the learning rate, from all parameters.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

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
        slots, mean_correction, square_correction = self._moved(gradient, slots)
        correction = square_correction.sqrt()
        step_size = not_fused((learning_rate * correction / mean_correction).to(parameters.dtype))
        eps = not_fused(self.eps * correction)
        parameters = self._decayed(parameters, learning_rate)
        return torch.addcdiv(parameters, slots["mean"] * -step_size, slots["square"].sqrt() + eps), slots

    def _moved(self, gradient: Tensor, slots: Slots) -> tuple[Slots, Tensor, Tensor]:
        """Return the next slots, and 1 − βᵗ of both, by which the moments are to be divided."""
        beta_powers = slots["beta_powers"] * slots["beta_powers"].new_tensor([self.beta1, self.beta2])
        mean = torch.lerp(slots["mean"], gradient, 1 - self.beta1)
        square = torch.addcmul(self.beta2 * slots["square"], gradient, gradient, value=1 - self.beta2)
        mean_correction, square_correction = (1 - beta_powers).to(gradient.dtype)
        new = {"mean": mean, "square": square, "beta_powers": beta_powers, "count": slots["count"] + 1}
        return new, mean_correction, square_correction

    def _decayed(self, parameters: Tensor, learning_rate: Tensor) -> Tensor:
        if not self.weight_decay:
            return parameters
        return parameters * not_fused(1 - learning_rate * self.weight_decay).to(parameters.dtype)

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        if self.weight_decay:
            parameters.mul_(1 - learning_rate * self.weight_decay)
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
class RAdam(Adam):
    """Rectified Adam (Liu et al. 2020, https://arxiv.org/abs/1908.03265).

    Its first steps are those of momentum alone, until the squares of five gradients, so to say, are known;
    then the step grows with the number of squares.
    """

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        """Apply algorithm 2 of the paper, with epsilon where PyTorch has it."""
        slots, mean_correction, square_correction = self._moved(gradient, slots)
        most = 2 / (1 - self.beta2) - 1
        power = slots["beta_powers"][1]
        length = most - 2 * slots["count"] * power / (1 - power)
        share = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
        rectification = share.clamp(min=0.0).sqrt().to(gradient.dtype)
        scale = rectification * square_correction.sqrt() / (slots["square"].sqrt() + self.eps)
        scale = torch.where(length > 5, scale, torch.ones_like(scale))
        step_size = not_fused((learning_rate / mean_correction).to(parameters.dtype))
        parameters = self._decayed(parameters, learning_rate)
        return parameters - step_size * slots["mean"] * scale, slots

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        moved, new = self.step(parameters, gradient, slots, learning_rate)
        parameters.copy_(moved)
        for name, tensor in new.items():
            slots[name].copy_(tensor)


OPTIMIZERS = ("adam", "adamw", "radam")
ADAMW_DECAY = 0.01


def adam_like(name: str, betas: Sequence[float], weight_decay: float | None) -> Adam:
    """Return the optimizer of this name in `OPTIMIZERS`. Raises `ZooError` for a decay without adamw."""
    if weight_decay and name != "adamw":
        raise ZooError(f"`algo.weight_decay={weight_decay}` needs `algo.optimizer=adamw`, or null")
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ZooError(f"`algo.betas={list(betas)}`: expected two numbers of at least 0 and below 1")
    decay = ADAMW_DECAY if weight_decay is None and name == "adamw" else weight_decay or 0.0
    kind = RAdam if name == "radam" else Adam
    return kind(beta1=betas[0], beta2=betas[1], weight_decay=decay)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop in TensorFlow's form, with which A2C's and ACER's scores were made.

    The running square starts at one and epsilon stands inside the root, so the first steps are far smaller
    than in PyTorch's form (``tensorflow_form=False``: zeros, and epsilon outside).
    """

    decay: float
    eps: float
    tensorflow_form: bool = True

    def initial(self, parameters: Tensor) -> Slots:
        start = torch.ones_like if self.tensorflow_form else torch.zeros_like
        return {"square": start(parameters)}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        square = torch.addcmul(self.decay * slots["square"], gradient, gradient, value=1 - self.decay)
        root = (square + self.eps).sqrt() if self.tensorflow_form else square.sqrt() + self.eps
        return parameters - learning_rate * gradient / root, {"square": square}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        square = slots["square"].mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
        root = square.add(self.eps).sqrt_() if self.tensorflow_form else square.sqrt().add_(self.eps)
        parameters.addcdiv_(learning_rate * gradient, root, value=-1.0)


@dataclass(frozen=True)
class Momentum(Optimizer):
    """Gradient descent along a sum of all gradients, older ones fading (heavy ball, Polyak 1964)."""

    decay: float

    def initial(self, parameters: Tensor) -> Slots:
        return {"momentum": torch.zeros_like(parameters)}

    def step(
        self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor
    ) -> tuple[Tensor, Slots]:
        momentum = self.decay * slots["momentum"] + gradient
        return parameters - learning_rate * momentum, {"momentum": momentum}

    def step_(self, parameters: Tensor, gradient: Tensor, slots: Slots, learning_rate: Tensor) -> None:
        momentum = slots["momentum"].mul_(self.decay).add_(gradient)
        parameters.sub_(learning_rate * momentum)


class Updater:
    """Moves ``parameters`` down the gradients of losses, by ``optimizer``.

    ``max_grad_norm`` bounds the global norm of the gradient, which is averaged over ranks; None leaves it
    as it is. ``name`` goes before the optimizer's tensors in the state, and is the parameters' own unless a
    second updater moves them.
    """

    def __init__(
        self,
        parameters: Parameters,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None = None,
        name: str | None = None,
    ) -> None:
        self.parameters = parameters
        self.optimizer = optimizer
        self.max_grad_norm = max_grad_norm
        slots = optimizer.initial(parameters.flat)
        self._slot_names = {slot: f"{name or parameters.name}.{slot}" for slot in slots}

    def initial_state(self) -> State:
        """Return the live parameters and statistics, the module's own, and the optimizer's tensors."""
        slots = self.initial_slots()
        return State({self.parameters.name: self.parameters.flat, **slots, **self.parameters.statistics})

    def initial_slots(self) -> dict[str, Tensor]:
        """Return the optimizer's tensors before the first step, by their names in the state."""
        slots = self.optimizer.initial(self.parameters.flat)
        return {name: slots[slot] for slot, name in self._slot_names.items()}

    def module(self, state: State) -> FunctionalModule:
        """Return the network with the parameters in ``state``, and the tensors to differentiate by."""
        parameters = self.parameters
        if isinstance(state, LiveState):
            return parameters.live(state)
        return parameters.functional(state[parameters.name].detach().requires_grad_(), state)

    def functional(self, state: State, name: str | None = None) -> FunctionalModule:
        """Return the network with its parameters in ``state``, or those called ``name``, as constants."""
        return self.parameters.functional(state[name or self.parameters.name], state)

    def gradient(self, module: FunctionalModule, loss: Tensor) -> Tensor:
        """Return the flat gradient of ``loss``, averaged over ranks, for the module that made the loss."""
        parts = torch.autograd.grad(loss, module.parameters, allow_unused=True, materialize_grads=True)
        flat = [part.reshape(-1) for part in parts]
        return average(flat[0] if len(flat) == 1 else torch.cat(flat))

    def apply_gradient(
        self, state: State, gradient: Tensor, learning_rate: Tensor, skip: Tensor | None = None
    ) -> tuple[State, Tensor]:
        """Take one optimizer step; return the next state and the unclipped gradient's norm.

        Where the bool scalar ``skip`` is true, the next state is the old one.
        """
        norm = torch.linalg.vector_norm(gradient)
        if self.max_grad_norm is not None:
            gradient = gradient * not_fused((self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        vector = state[self.parameters.name]
        slots = {slot: state[name] for slot, name in self._slot_names.items()}
        if isinstance(state, LiveState):
            if skip is None or not skip:
                self.optimizer.step_(vector, gradient, slots, learning_rate)
                self.parameters.project_(vector)
            return state, norm
        vector, slots = self.optimizer.step(vector, gradient, slots, learning_rate)
        vector = self.parameters.projected(vector)
        new = {self.parameters.name: vector, **{self._slot_names[slot]: slots[slot] for slot in slots}}
        if skip is not None:
            new = {name: torch.where(skip, state[name], tensor) for name, tensor in new.items()}
        return state.replaced(new), norm

    def step(
        self,
        state: State,
        module: FunctionalModule,
        loss: Tensor,
        learning_rate: Tensor,
        skip: Tensor | None = None,
    ) -> tuple[State, Tensor]:
        """Take one step down the gradient of ``loss``, with `moved` statistics; see `apply_gradient`."""
        return self.apply_gradient(module.moved(state), self.gradient(module, loss), learning_rate, skip)


def weight_decay(
    parameters: Parameters, vector: Tensor, coefficient: float, *, spared: Collection[str] = ()
) -> Tensor:
    """Return the gradient of ``coefficient``·½Σw², over the weights of layers, without ``spared`` ones.

    ``vector`` holds the parameters. Biases and normalisation layers have no weights in this sense: only what
    has two dimensions or more counts.
    """
    parts = [
        vector[parameters.slices[name]] * (coefficient * (leaf.dim() > 1 and name not in spared))
        for name, leaf in parameters.leaves.items()
    ]
    return torch.cat(parts)
