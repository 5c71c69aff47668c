"""What a user may say of state-dependent exploration (gSDE), and to which algorithm and environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from zoo.config.fields import hyperparameter
from zoo.envs.spaces import describe
from zoo.errors import ZooError
from zoo.policies.config import PolicyConfig


@dataclass
class SdeConfig:
    """Hyperparameters of the algorithms that have state-dependent exploration."""

    use_sde: bool = hyperparameter(False, "state-dependent exploration (gSDE), see below; for Box actions")
    sde_sample_freq: int = hyperparameter(
        -1, "steps after which gSDE draws a new function; -1: when a collection starts", unit="steps", ge=-1
    )


def sde_options(config: Any) -> dict[str, Any]:
    """Return what a policy class is given for gSDE: nothing without it, so that not every class needs it."""
    return {"use_sde": True} if getattr(config, "use_sde", False) else {}


def check_sde_options(
    name: str, config: Any, policy: PolicyConfig, action_space: spaces.Space[Any], *, squashes: bool
) -> None:
    """Raise `ZooError` for an option that would do nothing in the algorithm called ``name``.

    ``squashes``: its actions lie in [−1, 1] in any case.
    """
    if policy.log_std_init is not None and policy._target_ is None and not _has_box(action_space):
        raise ZooError(
            "`policy.log_std_init` is of the deviation of Box actions, but the env's are"
            f" {describe(action_space)}; leave it out"
        )
    if not getattr(config, "use_sde", False):
        _refuse_all(name, config, policy, squashes=squashes)
        return
    if not isinstance(action_space, spaces.Box):
        raise ZooError(f"`algo.use_sde=true` is for Box actions, but the env's are {describe(action_space)}")
    if config.sde_sample_freq == 0:
        raise ZooError("`algo.sde_sample_freq=0`: expected at least 1, or -1 (when a collection starts)")
    if squashes and policy.squash_output is False:
        raise ZooError(f"`policy.squash_output=false`: {name} squashes all its actions; leave it out")


def _has_box(space: spaces.Space[Any]) -> bool:
    """Whether some actions are numbers from a range."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(_has_box(part) for part in parts)
    return isinstance(space, spaces.Box)


def _refuse_all(name: str, config: Any, policy: PolicyConfig, *, squashes: bool) -> None:
    """Raise `ZooError` for whatever is said of gSDE where there is none."""
    asked = {
        f"algo.{option}": getattr(config, option, usual) != usual
        for option, usual in (("sde_sample_freq", -1), ("use_sde_at_warmup", False))
    }
    usual = PolicyConfig()
    options = ["full_std", "use_expln", "squash_output", "clip_mean"]
    if squashes:  # the deviation of their actions is a function of the state
        options.append("log_std_init")
    asked |= {f"policy.{option}": getattr(policy, option) != getattr(usual, option) for option in options}
    for option, is_asked in asked.items():
        if is_asked:
            has = "needs `algo.use_sde=true`" if hasattr(config, "use_sde") else f"is nothing that {name} has"
            raise ZooError(f"`{option}` is of state-dependent exploration, and {has}")
