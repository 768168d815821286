"""Each robot moves as what it is. Gaits are open loop: t counts environment steps."""

from collections.abc import Callable
from math import cos, pi, sin
from pathlib import Path

import pytest
import torch

import statewise
from statewise import Step, VecEnv

Put = Callable[..., Step]


def swimmer(t: int) -> list[float]:
    s = sin(2 * pi * t / 6)
    return [s, s]


def ant(t: int) -> list[float]:
    s, c = sin(2 * pi * t / 8), cos(2 * pi * t / 8)
    return [s, c, -s, c, -s, -c, s, -c]


def walker(t: int) -> list[float]:
    s = sin(2 * pi * t / 24)  # hips and knees, the legs opposite
    return [0, 0, s, -s, 0, 0, 0, -s, s, 0]


def humanoid(t: int) -> list[float]:
    s, c = sin(2 * pi * t / 32), cos(2 * pi * t / 32)
    return [0] * 3 + [0, 0, s, c] + [0, 0, -s, -c] + [0] * 6


def run(env: VecEnv, gait: Callable[[int], list[float]], steps: int) -> None:
    for t in range(steps):
        step = env.step(torch.tensor([gait(t)]))
        assert not step.ended.any()


@pytest.mark.parametrize(
    ("robot", "gait", "steps"),
    [("Swimmer", swimmer, 500), ("Ant", ant, 200), ("Walker", walker, 200),
     ("Humanoid", humanoid, 200)],
)  # fmt: skip
def test_robot_travels_with_a_simple_gait(
    robot: str, gait: Callable[[int], list[float]], steps: int, put: Put
) -> None:
    env = statewise.make_env(f"{robot}-Hazard-8", 1)
    put(env, yaw=1.0, goal=(60.0, 0.0))
    start = env.robot_pos.clone()
    run(env, gait, steps)
    assert (env.robot_pos - start)[0, :2].norm() > 2.0


def test_point_reaches_its_terminal_speeds(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 1)
    put(env, goal=(60.0, 0.0))
    run(env, lambda t: [1.0, 0.0], 300)
    step = env.step(torch.tensor([[1.0, 0.0]]))
    assert step.obs[0, env.spec.blocks["velocimeter"]][0] == pytest.approx(1.5, abs=0.01)
    put(env, goal=(60.0, 0.0))
    run(env, lambda t: [0.0, 1.0], 100)
    step = env.step(torch.tensor([[0.0, 1.0]]))
    assert step.obs[0, env.spec.blocks["gyro"]][2] == pytest.approx(3.0, abs=0.02)


def test_the_start_heading_turns_the_robot_and_its_axes(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 1)
    put(env, yaw=pi / 2, goal=(60.0, 0.0))
    run(env, lambda t: [1.0, 0.0], 50)
    x, y, _ = env.robot_pos[0].tolist()
    assert abs(x) < 1e-3 and y > 0.3


def test_drone_hovers_and_climbs(put: Put) -> None:
    env = statewise.make_env("Drone-3DHazard-8", 1)
    put(env, goal=(60.0, 0.0, 1.0))
    run(env, lambda t: [0.0] * 4, 500)
    torch.testing.assert_close(env.robot_pos, torch.tensor([[0.0, 0.0, 1.0]]), atol=1e-4, rtol=0)
    run(env, lambda t: [1.0] * 4, 100)
    climb = env.step(torch.ones(1, 4)).obs[0, env.spec.blocks["velocimeter"]][2]
    assert climb == pytest.approx(2.0, abs=0.01)


def test_a_drone_may_lie_on_its_side(put: Put) -> None:
    """There its axes of roll and yaw are one, and its inertia would be singular."""
    env, generator = statewise.make_env("Drone-3DHazard-1", 16), torch.Generator().manual_seed(0)
    put(env)
    start = env.sim.scene.start_state(torch.zeros(16, 2), torch.zeros(16), torch.zeros(16, 0, 3))
    start[0][:, 2], start[0][:, 4] = -0.9, pi / 2
    env.sim.reset(torch.arange(16), *start)
    for _ in range(100):
        env.step(2 * torch.rand(16, 4, generator=generator) - 1)
    assert env.faults == 0


def test_arm_turns_at_its_rate(put: Put) -> None:
    """0.6 rad/s at full action, so 0.012 rad in a step of 0.02 s."""
    env = statewise.make_env("Arm3-Hazard-8", 1)
    put(env, goal=(1.0, 1.0, 1.0))
    angles = env.spec.blocks["jointpos"]
    before = env.step(torch.ones(1, 3)).obs[0, angles]
    after = env.step(torch.ones(1, 3)).obs[0, angles]
    torch.testing.assert_close(after - before, torch.full((3,), 0.012), atol=1e-4, rtol=0)


def test_ant_falls_and_rests_on_its_feet(put: Put) -> None:
    env = statewise.make_env("Ant-Hazard-8", 1)
    put(env, goal=(60.0, 0.0))
    run(env, lambda t: [0.0] * 8, 50)
    assert float(env.robot_pos[0, 2]) == pytest.approx(0.108, abs=0.01)


@pytest.mark.parametrize("name", statewise.robot_names())
def test_robot_obeys_the_decisions_that_hold_for_all(name: str) -> None:
    """Control range of +-1, instabilities reported rather than reset, contacts of one point."""
    import mujoco

    robot = statewise.get_robot(name)
    model = statewise.make_env(f"{name}-{robot.constraints[0]}-4").sim.model
    assert (model.actuator_ctrlrange == [-1.0, 1.0]).all()
    for bit in (mujoco.mjtDisableBit.mjDSBL_AUTORESET, mujoco.mjtDisableBit.mjDSBL_MULTICCD):
        assert model.opt.disableflags & bit
    assert (model.geom_condim == 6).all()


MINIMAL = """
<mujoco>
  <worldbody>
    <body name="robot">
      <joint name="x" type="slide" axis="1 0 0" damping="1"/>
      <geom size="0.1" mass="1"/>
      <site name="imu"/>
    </body>
  </worldbody>
  <actuator><motor joint="x" ctrlrange="0 4"/></actuator>
  <sensor>
    <accelerometer name="accelerometer" site="imu"/>
  </sensor>
</mujoco>
"""


def test_control_ranges_other_than_one_are_scaled_linearly(tmp_path: Path) -> None:
    file = tmp_path / "robot.xml"
    file.write_text(MINIMAL)
    statewise.register_robot("Pusher", file, sensors=["accelerometer"], replace=True)
    env = statewise.make_env("Pusher-Hazard-2", 3)
    env.reset()
    env.step(torch.tensor([[-1.0], [0.0], [0.5]]))
    assert env.sim.state()["rows"].shape[0] == 3
    ctrl = [float(env.sim.data(i).ctrl[0]) for i in range(3)]
    assert ctrl == [0.0, 2.0, 3.0]
