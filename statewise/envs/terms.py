"""What tasks and constraints have in common: things they place, observe, move, remember and draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from statewise.envs.robots import Robot

if TYPE_CHECKING:
    from statewise.envs.world import World
    from statewise.sim.draw import Mark
    from statewise.sim.things import Body

RGB = tuple[float, float, float]


@dataclass(frozen=True)
class Things:
    """Objects of one kind that every episode places."""

    kind: str
    """What `World` calls them, such as "hazard"."""
    count: int
    keepout: float
    """Radius around each that is kept free when objects are placed. Metres."""
    height: float | tuple[float, float] = 0.0
    """Height of the centres, or the range that it is drawn from."""
    body: Body | None = None
    """What collides with the robot. None: nothing does."""

    def __post_init__(self) -> None:
        label = f"Things({self.kind!r})"
        if not isinstance(self.kind, str) or not self.kind:
            raise ValueError(f"{label}: the kind is a name, such as 'crate'")
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"{label}: count is {self.count!r}: give a whole number, at least 1")
        if not _is_length(self.keepout):
            raise ValueError(f"{label}: keepout is {self.keepout!r}: give metres, 0 or more")
        heights = self.height if isinstance(self.height, tuple) else (self.height,)
        if not all(_is_length(height) for height in heights):
            raise ValueError(f"{label}: height is {self.height!r}: give metres, 0 or more")


class Term:
    """A task or a constraint of one suite.

    It keeps nothing between steps. What changes during an episode is in the World.
    """

    kind: ClassVar[str] = ""
    """Its name in a suite, set when it is registered."""
    sensors: ClassVar[tuple[str, ...]] = ()
    """Sensors that it reads, by name or pattern. Those that a robot lacks are added if possible."""
    draws: int = 0
    """How many random numbers an episode draws for it: `World.draws`."""
    colours: ClassVar[dict[str, RGB]] = {}
    """Colour of each of its lidars in pictures, by the name of the block."""

    def __init__(self, robot: Robot) -> None:
        self.robot = robot

    def things(self) -> tuple[Things, ...]:
        """What every episode places. Default: nothing."""
        return ()

    def observe(self, world: World) -> dict[str, Tensor]:
        """Blocks of the observation, `[R, d]` by name. Default: none."""
        return {}

    def move(self, world: World) -> dict[str, Tensor]:
        """New centres `[R, N, 3]` of the objects that move by themselves, by kind. Default: none.

        Called after the robot has moved, before anything is measured.
        """
        return {}

    def remember(self, world: World) -> Tensor | None:
        """What the next step needs of this one, `[R, k]`: it reads it as `World.memory`.

        Called when an episode starts and after every step. Default: nothing.
        """
        return None

    def marks(self, world: World) -> list[Mark]:
        """How it is drawn: of the first row of `world`. Default: not at all."""
        return []


def check_term(term: Term) -> None:
    """Refuse a task or a constraint whose attributes have a wrong form."""
    label, sensors, things = term.kind, term.sensors, term.things()
    if isinstance(sensors, str) or not all(isinstance(name, str) for name in sensors):
        raise ValueError(f"{label}: sensors is {sensors!r}: give names, as in sensors=('gyro',)")
    if isinstance(term.draws, bool) or not isinstance(term.draws, int) or term.draws < 0:
        raise ValueError(f"{label}: draws is {term.draws!r}: give a whole number, 0 or more")
    if not isinstance(things, list | tuple) or not all(isinstance(x, Things) for x in things):
        raise ValueError(f"{label}: things() returned {things!r}: return a tuple of Things")


def _is_length(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < math.inf
    )


def discs(world: World, kind: str, radius: float, rgb: RGB) -> list[Mark]:
    """Objects of a kind as flat discs on the ground, or as spheres for robots in the air."""
    from statewise.sim.draw import Mark

    if world.robot.spatial:
        return [Mark("sphere", at, (radius,), (*rgb, 0.28), 0.1) for at in places(world, kind)]
    return [Mark("cylinder", at, (radius, 0.01), (*rgb, 0.5), 0.2) for at in places(world, kind)]


def places(world: World, kind: str) -> list[tuple[float, float, float]]:
    """Where the objects of a kind are in the first row of `world`."""
    return [(x, y, z) for x, y, z in world.objects(kind)[0].tolist()]
