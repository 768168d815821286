"""What tasks and constraints read: sensors by name, the robot's frame, objects by kind, the last action.

R rows are any number of worlds. Objects are points `[R, N, 3]`, in the order in which a suite places
them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from statewise.core import lidar
from statewise.envs.robots import Robot
from statewise.envs.terms import Things
from statewise.sim.facts import Gear, JointLimit, gears, joint_limits, robot_radius
from statewise.sim.scene import Scene


class MissingSensor(ValueError):
    """A task or constraint reads a sensor that the robot does not have."""


class Stage:
    """The fixed facts of the worlds of one suite, on one device."""

    def __init__(
        self,
        scene: Scene,
        robot: Robot,
        things: Sequence[Things],
        extent: float,
        max_steps: int,
        device: torch.device,
    ) -> None:
        self.scene, self.robot, self.device = scene, robot, device
        self.extent, self.max_steps = extent, max_steps
        self.kinds: dict[str, slice] = {}
        """Where the objects of each kind are among all objects"""
        bodies: list[int] = []
        start = 0
        for thing in things:
            self.kinds[thing.kind] = slice(start, start + thing.count)
            bodies += range(start, start + thing.count) if thing.body is not None else ()
            start += thing.count
        self.num_objects = start
        self.bodies = slice(bodies[0], bodies[-1] + 1) if _in_a_row(bodies) else bodies
        """Which objects are bodies of the scene"""
        self.point = scene.sensors[f"{robot.point}_pos"]
        self.frame = self.columns([f"{robot.point}_{part}" for part in "xyz"])
        self.ground = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float32, device=device)
        self.capsules = [
            (scene.sensors[start], scene.sensors[end], radius)
            for start, end, radius in robot.capsules
        ]
        self._found: dict[str, slice | Tensor] = {}

    def columns(self, names: Sequence[str]) -> slice | Tensor:
        """Where these sensors lie, one after the other: a slice where they do so in the file too."""
        sensors = self.scene.sensors
        columns = [i for n in names for i in range(sensors[n].start, sensors[n].stop)]
        if _in_a_row(columns):
            return slice(columns[0], columns[-1] + 1)
        return torch.tensor(columns, dtype=torch.long, device=self.device)

    def find(self, pattern: str) -> slice | Tensor:
        """Where the sensors that match are. An unknown one raises MissingSensor."""
        if pattern not in self._found:
            names = self.scene.match([pattern])
            if not names:
                raise MissingSensor(
                    f"{self.robot.name} has no sensor {pattern!r}. Add it to the <sensor> section of "
                    f"{self.robot.file}, or choose one of {', '.join(self.scene.sensors)}"
                )
            self._found[pattern] = self.columns(names)
        return self._found[pattern]

    @cached_property
    def joint_limits(self) -> list[JointLimit]:
        return joint_limits(self.scene)

    @cached_property
    def joint_ranges(self) -> tuple[slice | Tensor, Tensor, Tensor]:
        """Where the angles of limited joints are among the sensors, and their limits `[J]`."""
        limits = self.joint_limits
        columns = self.columns([limit.sensor for limit in limits])
        return columns, self._row([x.low for x in limits]), self._row([x.high for x in limits])

    @cached_property
    def gears(self) -> list[Gear]:
        return gears(self.scene)

    @cached_property
    def gear_row(self) -> tuple[slice | Tensor, Tensor]:
        """Where the forces of actuators are among the sensors, and the gear `[J]` of each."""
        return self.columns([g.sensor for g in self.gears]), self._row([g.gear for g in self.gears])

    def _row(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    @cached_property
    def robot_radius(self) -> float:
        return robot_radius(self.scene, self.robot.point)


class _Seen:
    """What is computed of the objects at most once, for all kinds together."""

    def __init__(self, stage: Stage, sensors: Tensor, objects: Tensor) -> None:
        self._stage, self._sensors, self.objects = stage, sensors, objects
        self._point = sensors[:, None, stage.point]

    def computed(self) -> list[Tensor]:
        """The objects, and all that is computed of them."""
        if not self.objects.shape[1]:
            return [self.objects]
        lidar_of = self.volume if self._stage.robot.spatial else self.planar
        return [self.objects, self.distance, self.local, lidar_of]

    @cached_property
    def _to_local(self) -> Tensor:
        """[R, 3, 3]"""
        return self._sensors[:, self._stage.frame].reshape(-1, 3, 3).transpose(1, 2)

    @cached_property
    def _offset(self) -> Tensor:
        """[R, K, 3] from the robot's point to each object"""
        return self.objects - self._point

    @cached_property
    def distance(self) -> Tensor:
        """[R, K]"""
        x, y, z = self._offset.unbind(-1)
        flat = torch.hypot(x, y)  # several times faster than a norm over so short an axis
        return torch.hypot(flat, z) if self._stage.robot.spatial else flat

    @cached_property
    def local(self) -> Tensor:
        """[R, K, 3]"""
        return torch.bmm(self._offset, self._to_local)

    @cached_property
    def planar(self) -> Tensor:
        """[R, K, 16] a ground lidar sees centres at height 0, through the robot's full rotation"""
        flat = self.objects * self._stage.ground - self._point
        flat = torch.bmm(flat, self._to_local[..., :2])
        return lidar.planar(flat, self._stage.robot.lidar_reach)

    @cached_property
    def volume(self) -> Tensor:
        """[R, K, 60]"""
        return lidar.spatial(self.local, self._stage.robot.lidar_reach)


class World:
    """R worlds at one moment."""

    starts: bool
    """Whether this is the first moment of the episodes, before any action"""

    def __init__(
        self,
        stage: Stage,
        sensors: Tensor,
        objects: Tensor,
        action: Tensor | None = None,
        steps: Tensor | None = None,
        draws: Tensor | None = None,
        memories: Mapping[str, Tensor] | None = None,
    ) -> None:
        """action, steps: `[R, a]` and `[R]`, None where episodes start. draws: `[R, d]`, the random
        numbers of all terms. memories: by kind, what each term remembered.
        """
        self.stage, self.sensors = stage, sensors
        self._seen = _Seen(stage, sensors, objects)
        self._action, self._steps = action, steps
        self.starts = action is None
        self.memories = memories or {}
        self.draws = sensors.new_zeros(len(sensors), 0) if draws is None else draws
        """[R, d] numbers from 0 to 1 that were drawn for the term when the episode started"""
        self.memory = self.draws[:, :0]
        """[R, k] what the term remembered in the step before"""

    def of_term(self, draws: slice, kind: str) -> World:
        """The same worlds with the numbers of one term. What is computed of objects is shared."""
        world = copy.copy(self)
        world.draws = self.draws[:, draws]
        world.memory = self.memories.get(kind, self.memory)
        return world

    def with_objects(self, objects: Tensor) -> World:
        """The same worlds with other objects `[R, K, 3]`."""
        world = copy.copy(self)
        world._seen = _Seen(self.stage, self.sensors, objects)
        return world

    def __len__(self) -> int:
        return len(self.sensors)

    def writes(self) -> list[int]:
        """How often each tensor that terms share was written to."""
        shared = [self.sensors, self.draws, *self.memories.values(), *self._seen.computed()]
        return [part._version for part in shared if not part.is_inference()]

    # The robot ---------------------------------------------------------------------------------

    @property
    def robot(self) -> Robot:
        return self.stage.robot

    def sensor(self, name: str) -> Tensor:
        """[R, d] a sensor of the robot by its name, or several side by side, such as `jointpos_*`"""
        return self.sensors[:, self.stage.find(name)]

    @property
    def position(self) -> Tensor:
        """[R, 3] the robot's point: what has to reach a goal"""
        return self.sensors[:, self.stage.point]

    @property
    def axes(self) -> Tensor:
        """[R, 3, 3] the x, y and z axis of the robot's frame, one in each row"""
        return self.sensors[:, self.stage.frame].reshape(-1, 3, 3)

    @property
    def robot_radius(self) -> float:
        """Largest horizontal distance from the robot's point to any part of it, at the start"""
        return self.stage.robot_radius

    @property
    def action(self) -> Tensor:
        """[R, a] the last action; zeros where episodes start"""
        if self._action is None:
            return self.sensors.new_zeros(len(self), self.stage.scene.model.nu)
        return self._action.clamp(-1.0, 1.0)

    # Time --------------------------------------------------------------------------------------

    @property
    def dt(self) -> float:
        """Seconds of one step"""
        return self.stage.scene.control_dt

    @property
    def steps(self) -> Tensor:
        """[R] steps since the episode began"""
        if self._steps is None:
            return torch.zeros(len(self), dtype=torch.long, device=self.sensors.device)
        return self._steps

    @property
    def time(self) -> Tensor:
        """[R] seconds since the episode began"""
        return self.steps * self.dt

    @property
    def max_steps(self) -> int:
        """After so many steps an episode is truncated"""
        return self.stage.max_steps

    # Objects -----------------------------------------------------------------------------------

    @property
    def extent(self) -> float:
        """Half the side of the square in which objects are placed"""
        return self.stage.extent

    def _kind(self, kind: str) -> slice:
        if kind not in self.stage.kinds:
            known = ", ".join(self.stage.kinds) or "none"
            raise ValueError(f"there are no objects of the kind {kind!r} here, but: {known}")
        return self.stage.kinds[kind]

    @property
    def all_objects(self) -> Tensor:
        """[R, K, 3] the centres of all objects"""
        return self._seen.objects

    def objects(self, kind: str) -> Tensor:
        """[R, N, 3] the centres of the objects of a kind"""
        return self._seen.objects[:, self._kind(kind)]

    def distance(self, kind: str) -> Tensor:
        """[R, N] distance from the robot's point to each object; on the ground unless it flies"""
        return self._seen.distance[:, self._kind(kind)]

    def nearest(self, kind: str) -> Tensor:
        """[R] distance to the nearest object, from the robot's point or the surface of its capsules"""
        if self.stage.capsules:
            return self._gap(self.objects(kind))
        return self.distance(kind).amin(dim=1)

    def local(self, kind: str) -> Tensor:
        """[R, N, 3] the objects of a kind in the robot's frame"""
        return self._seen.local[:, self._kind(kind)]

    def compass(self, kind: str) -> Tensor:
        """[R, 3] direction of the first object of a kind in the robot's frame"""
        return lidar.compass(self._seen.local[:, self._kind(kind).start])

    def lidar(self, kind: str, ground: bool = False) -> Tensor:
        """[R, 16] what a lidar reads of the objects of a kind, or `[R, 60]` for robots in the air.

        ground: the planar lidar for those too.
        """
        seen = self._seen.volume if self.robot.spatial and not ground else self._seen.planar
        at = self._kind(kind)
        if at.stop - at.start == 1:
            return seen[:, at.start]
        return seen[:, at].amax(dim=1)

    def _gap(self, centres: Tensor) -> Tensor:
        """Least distance `[R]` from any capsule's surface to any of the centres `[R, N, 3]`."""
        gaps = []
        for start, end, radius in self.stage.capsules:
            a, b = self.sensors[:, None, start], self.sensors[:, None, end]
            along, to_centre = b - a, centres - a
            share = (to_centre * along).sum(-1) / (along * along).sum(-1).clamp(min=1e-12)
            nearest = share.clamp(0.0, 1.0).unsqueeze(-1) * along
            gap = torch.linalg.vector_norm(to_centre - nearest, dim=-1).amin(dim=1)
            gaps.append(gap - radius)
        return torch.stack(gaps, dim=1).amin(dim=1)


def _in_a_row(numbers: Sequence[int]) -> bool:
    return bool(numbers) and list(numbers) == list(range(numbers[0], numbers[-1] + 1))
