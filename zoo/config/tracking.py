"""The settings of the trackers that need some: TensorBoard, and Weights & Biases."""

from __future__ import annotations

from dataclasses import dataclass, field

from zoo.config.fields import hyperparameter


@dataclass
class TensorBoardSettings:
    """What TensorBoard gets beside scalars, hyperparameters and videos."""

    histograms: bool = hyperparameter(False, "how the policy's parameters are distributed")
    histograms_every: int | None = hyperparameter(
        None, "steps between histograms; null: a twentieth of the run", unit="environment steps", ge=1
    )


@dataclass
class WandbSettings:
    """Where Weights & Biases keeps the run, and what of it."""

    project: str = hyperparameter("zoo", "project")
    entity: str | None = hyperparameter(None, "user or team; null: your own")
    group: str | None = hyperparameter(
        None, "group of the run; null: its multirun, else one for runs that differ in nothing but the seed"
    )
    job_type: str = hyperparameter("train", "kind of the run within its group")
    name: str | None = hyperparameter(None, "name of the run; null: that of its folder")
    tags: list[str] = field(default_factory=list, metadata={"help": "tags of the run"})
    mode: str | None = hyperparameter(
        None, "null: as WANDB_MODE says, else online", choices=("online", "offline", "disabled")
    )
    agent: bool = hyperparameter(True, "send the best agent too, as an artifact")
