"""TensorBoard and Weights & Biases, beside the run folder's own files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statewise.training.loop import Training

Tracker = Callable[[dict[str, Any]], None]


def trackers(training: Training) -> list[Tracker]:
    """What else an epoch's metrics are sent to."""
    wanted: list[Tracker] = []
    if training.settings.tensorboard:
        wanted.append(_tensorboard(training))
    if training.settings.wandb:
        wanted.append(_wandb(training))
    return wanted


def _tensorboard(training: Training) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    folder = training.folder.path / "tensorboard"
    writer = SummaryWriter(str(folder), purge_step=training.steps + 1)

    def write(metrics: dict[str, Any]) -> None:
        for name, value in _scalars(metrics).items():
            writer.add_scalar(name, value, metrics["steps"])
        writer.flush()

    return write


def _wandb(training: Training) -> Tracker:
    import wandb

    name = "/".join(training.folder.path.parts[-3:])
    run = wandb.init(project="statewise", name=name, config=training.folder.config())
    return lambda metrics: run.log(_scalars(metrics), step=metrics["steps"])


def _scalars(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if value is not None}
