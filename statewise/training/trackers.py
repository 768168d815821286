"""TensorBoard and Weights & Biases, beside the run folder's own files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from statewise.console import printable
from statewise.training.loop import Training

Tracker = Callable[[dict[str, Any]], None]


@contextmanager
def trackers(training: Training) -> Iterator[list[Tracker]]:
    """What else an epoch's metrics are sent to. Closed at the end, so that the next run has its own."""
    with ExitStack() as stack:
        wanted: list[Tracker] = []
        if training.settings.tensorboard:
            wanted.append(stack.enter_context(_tensorboard(training)))
        if training.settings.wandb:
            wanted.append(stack.enter_context(_wandb(training)))
        yield wanted


@contextmanager
def _tensorboard(training: Training) -> Iterator[Tracker]:
    from torch.utils.tensorboard import SummaryWriter

    folder = training.folder.path / "tensorboard"
    with SummaryWriter(str(folder), purge_step=training.steps + 1) as writer:

        def write(metrics: dict[str, Any]) -> None:
            for name, value in _scalars(metrics).items():
                writer.add_scalar(name, value, metrics["steps"])
            writer.flush()

        yield write


@contextmanager
def _wandb(training: Training) -> Iterator[Tracker]:
    import wandb

    name = "/".join(training.folder.path.parts[-3:])
    with wandb.init(project="statewise", name=name, config=training.folder.config()) as run:
        yield lambda metrics: run.log(_scalars(metrics), step=metrics["steps"])


def _scalars(metrics: dict[str, Any]) -> dict[str, float]:
    """The numbers of an epoch, under names that every tracker can keep."""
    return {printable(name): float(value) for name, value in metrics.items() if value is not None}
