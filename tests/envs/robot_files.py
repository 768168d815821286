"""Small MJCF files of the shapes that published robots have."""

from __future__ import annotations

import struct
from pathlib import Path

LEG = """
<body name="{n}_thigh" pos="{x} {y} 0">
  <joint name="{n}_hip" axis="0 1 0" range="-1.5 1.5"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0 0 -0.15"/>
  <body name="{n}_shin" pos="0 0 -0.15">
    <joint name="{n}_knee" axis="0 1 0" range="-2.5 0"/>
    <geom type="capsule" size="0.015" fromto="0 0 0 0 0 -0.15"/>
  </body>
</body>"""
LEGS = "".join(
    LEG.format(n=n, x=x, y=y)
    for n, x, y in (("fl", 0.2, 0.1), ("fr", 0.2, -0.1), ("hl", -0.2, 0.1), ("hr", -0.2, -0.1))
)
SERVOS = "".join(
    f'<position name="{leg}_{joint}" joint="{leg}_{joint}" kp="30" kv="1" ctrlrange="{span}"/>'
    for leg in ("fl", "fr", "hl", "hr")
    for joint, span in (("hip", "-1.5 1.5"), ("knee", "-2.5 0"))
)
BENT = " ".join(["0.6 -1.2"] * 4)

QUADRUPED = f"""
<mujoco model="quadruped">
  <compiler angle="radian"/>
  <default><joint damping="0.5"/></default>
  <asset><texture name="sky" type="skybox" builtin="flat" width="8" height="8"/></asset>
  <worldbody>
    <light name="sun" pos="0 0 3"/>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <camera name="track" pos="0 -2 1"/>
    <body name="trunk" pos="1 2 0.7">
      <freejoint/>
      <geom type="box" size="0.25 0.1 0.05" mass="4"/>
      <site name="sensor_box" pos="0 0 0.05"/>{LEGS}
    </body>
    {{beside}}
  </worldbody>
  <actuator>{SERVOS}</actuator>
  <sensor><gyro name="imu_gyro" site="sensor_box"/></sensor>
  <keyframe>
    <key name="lying" qpos="0 0 0.1 1 0 0 0 {" ".join(["0 0"] * 4)}{{more}}"/>
    <key name="home" qpos="1 2 0.5 1 0 0 0 {BENT}{{more}}" ctrl="{BENT}"/>
  </keyframe>
</mujoco>"""
BALL = '<body name="ball" pos="0 0 1"><freejoint/><geom size="0.05" mass="0.1"/></body>'


def quadruped(folder: Path, ball: bool = False) -> Path:
    """Position actuators, a keyframe, a floor and a sky of its own, perhaps a ball beside it."""
    beside, more = (BALL, " 1.5 2 0.05 1 0 0 0") if ball else ("", "")
    return write(folder, QUADRUPED.format(beside=beside, more=more))


def rotor(i: int, x: float, y: float) -> str:
    return f'<site name="r{i}" pos="{x} {y} 0"/>'


DRONE = f"""
<mujoco model="drone">
  <compiler angle="radian"/>
  <option timestep="0.01"/>
  <worldbody>
    <body name="hub" pos="0 0 0.1">
      <freejoint/>
      <geom type="box" size="0.1 0.1 0.02" mass="1"/>
      {rotor(0, 0.1, 0.1)}{rotor(1, 0.1, -0.1)}{rotor(2, -0.1, 0.1)}{rotor(3, -0.1, -0.1)}
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<motor site="r{i}" gear="0 0 1 0 0 0" ctrlrange="0 13"/>' for i in range(4))}
  </actuator>
  <keyframe><key name="hover" qpos="0 0 0.3 1 0 0 0" ctrl="2.4525 2.4525 2.4525 2.4525"/></keyframe>
</mujoco>"""

ARM = """
<mujoco model="arm">
  <compiler angle="radian"/>
  <worldbody>
    <body name="base">
      <geom type="cylinder" size="0.1 0.05" pos="0 0 0.05"/>
      <body name="upper" pos="0 0 0.1">
        <joint name="shoulder" axis="0 1 0" range="-2 2"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.4"/>
        <body name="lower" pos="0 0 0.4">
          <joint name="elbow" axis="0 1 0" range="-2 2"/>
          <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.4"/>
          <body name="hand" pos="0 0 0.4">
            <joint name="grip" type="slide" axis="1 0 0" range="0 0.04"/>
            <geom size="0.04"/>
          </body>
        </body>
      </body>
    </body>{beside}
  </worldbody>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="100" kv="10"/>
    <motor name="elbow" joint="elbow" forcerange="-8 8"/>
    <position name="grip" joint="grip" kp="50" kv="2" ctrlrange="0 0.04"/>
  </actuator>
</mujoco>"""

ROVER = """
<mujoco model="rover">
  <compiler angle="radian"/>
  <option integrator="implicitfast"/>
  <worldbody>
    <body name="x_rail">
      <joint name="x" type="slide" axis="1 0 0"/><inertial pos="0 0 0" mass="0.1" diaginertia="1 1 1"/>
      <body name="y_rail">
        <joint name="y" type="slide" axis="0 1 0"/>
        <inertial pos="0 0 0" mass="0.1" diaginertia="1 1 1"/>
        <body name="chassis" pos="0 0 0.1">
          <joint name="turn" axis="0 0 1"/>
          <geom type="cylinder" size="0.2 0.08" mass="5"/>
          <body name="mast" pos="0 0 0.1">
            <joint name="pan" axis="0 0 1" range="-1 1"/>
            <geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.3"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="x" joint="x" kp="2000" kv="500"/>
    <position name="y" joint="y" kp="2000" kv="500"/>
    <position name="turn" joint="turn" kp="500" kv="50"/>
    <position name="pan" joint="pan" kp="10" kv="1" inheritrange="1"/>
  </actuator>
</mujoco>"""

MUSCLES = """
<mujoco model="tendons">
  <compiler angle="radian"/>
  <worldbody>
    <body name="torso" pos="0 0 0.2">
      <freejoint/>
      <geom name="torso" type="box" size="0.2 0.1 0.1" mass="2"/>
      <site name="a" pos="0.1 0 0.1"/>
      <body name="arm" pos="0.2 0 0">
        <joint name="swing" axis="0 1 0" range="-1 1"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/>
        <site name="b" pos="0.1 0 0.05"/>
        <body name="flap" pos="0.2 0 0">
          <joint name="flap" axis="0 1 0"/>
          <geom type="capsule" size="0.02" fromto="0 0 0 0.1 0 0"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><spatial name="cord"><site site="a"/><site site="b"/></spatial></tendon>
  <equality><joint joint1="flap" joint2="swing"/></equality>
  <actuator>
    <muscle name="pull" tendon="cord" lengthrange="0.1 0.3"/>
    <general name="lag" joint="swing" dyntype="filterexact" dynprm="0.05" gainprm="1" ctrlrange="-1 1"/>
  </actuator>
</mujoco>"""


def write(folder: Path, text: str, name: str = "robot.xml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    return file


def with_mesh_and_include(folder: Path) -> Path:
    """A quadruped whose trunk is a mesh, in a file that a scene includes from a folder below."""
    text = QUADRUPED.format(beside="", more="")
    text = text.replace("<asset>", '<asset><mesh name="trunk" file="trunk.stl"/>')
    text = text.replace(
        'type="box" size="0.25 0.1 0.05" mass="4"', 'type="mesh" mesh="trunk" mass="4"'
    )
    text = text.replace('angle="radian"', 'angle="radian" meshdir="assets"')
    corners = [(-0.2, -0.1, 0.0), (0.2, -0.1, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.1)]
    faces = [(0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 0, 3)]
    stl = b"\0" * 80 + struct.pack("<I", len(faces))
    for face in faces:
        stl += struct.pack("<12fH", 0, 0, 0, *(v for i in face for v in corners[i]), 0)
    write(folder, text, "quadruped.xml")
    (folder / "assets").mkdir()
    (folder / "assets" / "trunk.stl").write_bytes(stl)
    return write(folder, '<mujoco><include file="quadruped.xml"/></mujoco>', "scene.xml")
