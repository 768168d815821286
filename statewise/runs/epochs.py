"""How many epochs a run has, and how long each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from statewise.runs.shapes import check

Earlier = tuple[tuple[int, int], ...]
"""The lengths that an extended run had before: the steps, and the epoch after which they changed."""


@dataclass(frozen=True)
class Plan:
    """The epochs of a run, in order."""

    parts: tuple[tuple[int, int], ...] = ()
    """A number of epochs, and how many times as long as `steps_per_epoch` each of them is"""

    @property
    def epochs(self) -> int:
        return sum(count for count, _ in self.parts)

    @property
    def length(self) -> int:
        """Steps of all epochs together, in units of `steps_per_epoch`."""
        return sum(count * factor for count, factor in self.parts)

    def factor(self, epoch: int) -> int:
        """How many times as long as `steps_per_epoch` an epoch is. The first epoch is 1."""
        for count, factor in self.parts:
            epoch -= count
            if epoch <= 0:
                return factor
        return 1

    def until(self, epoch: int) -> Plan:
        """Return the plan without the epochs after one of them."""
        cut = Plan()
        for count, factor in self.parts:
            cut = cut.then(min(count, epoch - cut.epochs), factor)
        return cut

    def then(self, count: int, factor: int) -> Plan:
        """Return the plan with more epochs at its end."""
        if count <= 0:
            return self
        if self.parts and self.parts[-1][1] == factor:
            return Plan((*self.parts[:-1], (self.parts[-1][0] + count, factor)))
        return Plan((*self.parts, (count, factor)))


def make_plan(
    steps: int, steps_per_epoch: int, final_batch: int = 1, earlier: Earlier = ()
) -> Plan:
    """Plan the epochs of a run of so many steps.

    The second half of the steps is collected in epochs `final_batch` times as long. What an extended
    run has done keeps its epochs. The rest is planned from there, so that it ends at the new length.
    """
    plan = Plan()
    for length, epoch in earlier:
        plan = _continued(plan, length, steps_per_epoch, final_batch).until(epoch)
    return _continued(plan, steps, steps_per_epoch, final_batch)


def _continued(done: Plan, steps: int, per_epoch: int, factor: int) -> Plan:
    """The epochs that are done, followed by those that are left of a run of so many steps."""
    epochs, short = planned_epochs(steps, per_epoch, factor)
    if done.length <= short:  # as in a run that is as long from its start
        return done.then(short - done.length, 1).then(epochs - short, factor)
    left = round(steps / per_epoch) - done.length
    return done.then((2 * left + factor) // (2 * factor), factor)  # rounded


def usual_final_batch(steps: int, steps_per_epoch: int) -> int:
    """The default of `final_batch`: 4 in runs of 100 epochs or more, else 1."""
    return 4 if round(steps / steps_per_epoch) >= 100 else 1


def planned_epochs(steps: int, steps_per_epoch: int, final_batch: int = 1) -> tuple[int, int]:
    """How many epochs a run of so many steps has, and how many of them come before the longer ones."""
    if final_batch <= 1:
        whole = max(1, round(steps / steps_per_epoch))
        return whole, whole
    short = max(1, round(steps / 2 / steps_per_epoch))
    long = max(1, round(steps / 2 / (steps_per_epoch * final_batch)))
    return short + long, short


def earlier_lengths(config: Mapping[str, Any]) -> Earlier:
    """Return what `extended` in a `config.json` says. ValueError if it has a wrong form."""
    found = config.get("extended", [])
    check(found, list[list], "extended in config.json")
    for pair in found:
        check(pair, list[int], "extended in config.json")
        if len(pair) != 2:
            raise ValueError(f"extended in config.json has {pair!r:.40}, not steps and an epoch")
    return tuple((steps, epoch) for steps, epoch in found)


def plan_of(config: Mapping[str, Any]) -> Plan:
    """Return the plan of the run that has this `config.json`. ValueError if it has none."""
    train = {"final_batch": 1} | config["train"]
    names = ("steps", "steps_per_epoch", "final_batch")
    check(train, dict.fromkeys(names, int), "train in config.json")
    if not train["steps_per_epoch"]:
        raise ValueError("config.json has epochs without steps")
    steps, per_epoch, final_batch = (train[name] for name in names)
    return make_plan(steps, per_epoch, final_batch, earlier_lengths(config))
