"""Published MJCF files become robots in one line."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import mujoco
import pytest
import torch
from robot_files import ARM, BALL, DRONE, MUSCLES, ROVER, quadruped, with_mesh_and_include, write

import statewise
from statewise import VecEnv
from statewise.envs import robots


@pytest.fixture(autouse=True)
def no_robot_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "_ROBOTS", dict(robots._ROBOTS))


def own(file: Path, suite: str = "Hazard-2", num_envs: int = 4, **settings: Any) -> VecEnv:
    """An environment of a robot registered from a file, reset."""
    robot = statewise.register_robot("Own", file, replace=True, **settings)
    kind = suite if suite.split("-")[0] in robot.constraints else f"{robot.constraints[0]}-2"
    env = statewise.make_env(f"Own-{kind}", num_envs)
    assert isinstance(env, VecEnv)
    env.reset(seed=0)
    return env


def random_steps(env: VecEnv, steps: int = 40) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        action = 2 * torch.rand(env.num_envs, env.spec.action_size, generator=generator) - 1
        step = env.step(action)
        assert torch.isfinite(step.obs).all()
    assert env.faults == 0


def sensor(env: VecEnv, name: str) -> torch.Tensor:
    return env._now.sensors[:, env.sim.scene.sensors[name]]


FILES = {
    "drone": DRONE,
    "arm": ARM.format(beside=""),
    "arm beside a ball": ARM.format(beside=BALL.replace("0 0 1", "0.4 0 0.05")),
    "rover": ROVER,
    "muscles, tendons, equalities": MUSCLES,
}


@pytest.mark.parametrize("shape", [*FILES, "quadruped", "quadruped beside a ball"])
def test_a_published_file_is_a_robot_in_one_line(shape: str, tmp_path: Path) -> None:
    ball = "ball" in shape
    file = write(tmp_path, FILES[shape]) if shape in FILES else quadruped(tmp_path, ball)
    before = file.read_text()
    random_steps(own(file))
    assert file.read_text() == before


def test_a_quadruped_starts_on_its_feet_in_the_pose_of_its_keyframe(tmp_path: Path) -> None:
    env = own(quadruped(tmp_path))
    angles = sensor(env, "jointpos_fl_hip"), sensor(env, "jointpos_fl_knee")
    torch.testing.assert_close(torch.cat(angles, 1), torch.tensor([[0.6, -1.2]]).expand(4, 2))
    assert env.suite.robot.start_height == pytest.approx(0.3 * 0.8253 + 0.015, abs=2e-3)
    before = env.robot_pos.clone()
    for _ in range(25):
        env.step(torch.zeros(4, 8))
    assert (env.robot_pos - before).abs().max() < 0.05  # it stands


def test_the_keyframe_can_be_chosen(tmp_path: Path) -> None:
    env = own(quadruped(tmp_path), keyframe="lying")
    assert sensor(env, "jointpos_fl_hip").abs().max() == 0
    with pytest.raises(ValueError, match=r"no keyframe 'laying'\. Did you mean lying"):
        own(quadruped(tmp_path), keyframe="laying")


def test_position_actuators_move_around_the_start_pose_by_the_scale(tmp_path: Path) -> None:
    env = own(quadruped(tmp_path), action_scale=0.3)
    controls = env.sim.scene.controls(env.device)
    action = torch.tensor([[-1.0] * 8, [0.0] * 8, [1.0] * 8])
    hip, knee = controls(action)[:, 0], controls(action)[:, 1]
    torch.testing.assert_close(hip, torch.tensor([0.3, 0.6, 0.9]))
    torch.testing.assert_close(knee, torch.tensor([-1.5, -1.2, -0.9]))


def test_a_start_heading_turns_the_robot_and_what_lies_beside_it(tmp_path: Path) -> None:
    env = own(quadruped(tmp_path, ball=True), num_envs=1)
    scene = env.sim.scene
    robot, yaw = torch.tensor([[1.0, -1.0]]), torch.tensor([torch.pi / 2])
    qpos, _, _ = scene.start_state(robot, yaw, torch.zeros(1, 0, 3))
    torch.testing.assert_close(qpos[0, :2], robot[0])
    ball = scene.model.joint("robot/joint9").qposadr[0]  # 0.5 m ahead of the trunk in the file
    torch.testing.assert_close(qpos[0, ball : ball + 3], torch.tensor([1.0, -0.5, 0.05]))


def test_a_drone_hovers_at_the_goals_height_at_action_zero(tmp_path: Path) -> None:
    env = own(write(tmp_path, DRONE))
    robot = env.suite.robot
    assert robot.spatial and robot.constraints == ("3DHazard", "Pillar")
    for _ in range(50):
        env.step(torch.zeros(4, 4))
    assert (env.robot_pos[:, 2] - 1.0).abs().max() < 1e-3
    ctrl = env.sim.scene.controls(env.device)(torch.tensor([[-1.0, 1.0, 0.0, 0.5]]))
    torch.testing.assert_close(ctrl, torch.tensor([[0.0, 13.0, 2.4525, (13 + 2.4525) / 2]]))


def test_an_arm_reaches_with_its_last_body_around_a_fixed_base(tmp_path: Path) -> None:
    env = own(write(tmp_path, FILES["arm"]))
    robot = env.suite.robot
    assert (robot.point, robot.pinned, robot.spatial) == ("hand", True, True)
    assert env.goal.norm(dim=1).max() <= robot.reach
    ranges = env.sim.model.actuator_ctrlrange  # from the joint, from the force, from the file
    assert ranges.tolist() == [[-2, 2], [-8, 8], [0, 0.04]]


def test_a_loose_body_beside_an_arm_falls_and_turns_with_the_mount(tmp_path: Path) -> None:
    ball = BALL.replace("0 0 1", "0.4 0 1")
    env = own(write(tmp_path, ARM.format(beside=ball)), num_envs=1)
    body = env.sim.model.body("robot/ball").id
    x, y, z = env.sim.data(0).xpos[body]
    assert (x**2 + y**2) ** 0.5 == pytest.approx(0.4, abs=1e-6) and z == 1.0
    for _ in range(10):  # 0.2 s of free fall: 0.196 m
        env.step(torch.zeros(1, 3))
    assert env.sim.data(0).xpos[body][2] == pytest.approx(1.0 - 0.196, abs=0.01)


def test_a_base_on_endless_slides_is_driven_at_a_speed(tmp_path: Path) -> None:
    env = own(write(tmp_path, ROVER), num_envs=1)
    assert env.sim.scene.root == "robot/chassis"
    assert [n for n in env.sim.scene.sensors if n.startswith("jointpos")] == ["jointpos_pan"]
    before = env.robot_pos.clone()
    for _ in range(50):
        env.step(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    assert (env.robot_pos - before)[0, :2].norm() == pytest.approx(1.0, abs=0.3)


def test_meshes_and_includes_are_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_mesh_and_include(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    statewise.register_robot("Meshed", "there/scene.xml")
    monkeypatch.chdir(tmp_path / "there" / "assets")
    env = statewise.make_env("Meshed-Pillar-2", 2)
    env.reset(seed=0)
    assert torch.isfinite(env.step(torch.zeros(2, 8)).obs).all()


def test_the_files_own_imu_site_carries_the_sensors_that_are_added(tmp_path: Path) -> None:
    model = own(quadruped(tmp_path)).sim.model
    sites = {model.sensor(n).objid[0] for n in ("robot/gyro", "robot/imu_gyro")}
    assert sites == {model.site("robot/sensor_box").id}
    assert (model.geom_type == 0).sum() == 1  # one floor: ours
    assert model.nlight == 1


def test_substeps_follow_the_control_rate(tmp_path: Path) -> None:
    file = quadruped(tmp_path)
    assert own(file).spec.control_dt == pytest.approx(0.02)
    assert own(file, control_rate=100).spec.control_dt == pytest.approx(0.01)
    assert own(file, substeps=3).spec.control_dt == pytest.approx(0.006)
    with pytest.raises(ValueError, match=r"no whole number of 0\.002 s steps"):
        own(file, control_rate=300)


def test_the_training_budget_belongs_to_the_robot(tmp_path: Path) -> None:
    from statewise.training.config import TrainSettings

    assert TrainSettings(suite="Ant-Hazard-8").resolved().steps == 30_000_000
    assert TrainSettings(suite="Point-Hazard-8").resolved().steps == 6_000_000
    own(quadruped(tmp_path), steps=1_234_000)
    assert TrainSettings(suite="Own-Hazard-2").resolved().steps == 1_234_000


def test_the_base_is_asked_for_where_actuators_move_several(tmp_path: Path) -> None:
    twin = ARM.format(beside="").replace("</worldbody>", '<body name="two"><joint name="t"/><geom '
                                         'size="0.1"/></body></worldbody>')  # fmt: skip
    twin = twin.replace("</actuator>", '<motor joint="t" ctrlrange="-1 1"/></actuator>')
    file = write(tmp_path, twin)
    with pytest.raises(ValueError, match=r"several bodies \(base, two\).*root='base'"):
        own(file)
    random_steps(own(file, root="base"), 5)
    with pytest.raises(ValueError, match=r"no body 'bose'\. Did you mean base"):
        own(file, root="bose")


SLIDER = """
<mujoco>
  <option {option}/>
  <worldbody>
    <body name="sled"><joint name="x" type="slide" axis="1 0 0" damping="1"/><geom size="0.1"/></body>
  </worldbody>
  <actuator>{actuator}</actuator>
  <sensor>{sensor}</sensor>
  {more}
</mujoco>"""
MOTOR = '<motor name="push" joint="x" ctrlrange="-1 1"/>'


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"option": 'timestep="0"'}, "timestep is 0 s"),
        ({"option": 'timestep="-0.1"'}, "timestep is -0.1 s"),
        ({"option": 'timestep="nan"'}, "timestep is nan s"),
        ({"option": 'gravity="nan nan nan"'}, "gravity=...> is not finite"),
        ({"actuator": ""}, "has no actuators"),
        ({"actuator": '<motor name="push" joint="x"/>'}, "'push' needs a ctrlrange"),
        ({"actuator": MOTOR.replace("-1 1", "2 1")}, "ctrlrange of the actuator 'push' is 2 to 1"),
        ({"sensor": '<jointpos name="contact_pillar_x" joint="x"/>'}, "'contact_pillar_x' is res"),
        ({"sensor": '<jointpos name="root_pos" joint="x"/>'}, "'root_pos' is no framepos"),
        ({"sensor": '<jointpos name="gyro" joint="x"/>'}, "'gyro' is no gyro"),
        ({"more": '<keyframe><key qpos="1 2 3"/></keyframe>'}, "invalid qpos size"),
        ({"more": '<keyframe><key ctrl="1 2"/></keyframe>'}, "invalid ctrl size"),
        ({"more": "<nonsense/>"}, "MuJoCo cannot read"),
    ],
)
def test_a_faulty_file_is_refused_when_it_is_registered(
    parts: dict[str, str], message: str, tmp_path: Path
) -> None:
    whole = {"option": "", "actuator": MOTOR, "sensor": "", "more": ""} | parts
    file = write(tmp_path, SLIDER.format(**whole))
    with pytest.raises(ValueError, match=message) as caught:
        statewise.register_robot("Faulty", file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)
    assert "Faulty" not in statewise.robot_names()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hazard_radius": -1.0}, "hazard_radius is -1"),
        ({"lidar_reach": float("nan")}, "lidar_reach is nan"),
        ({"goal_radius": 0.0}, "goal_radius is 0"),
        ({"goal_height": (2.0, 1.0)}, "give the lower height first"),
        ({"goal_height": (1.0,)}, "give 2 values"),
        ({"keepout": "wide"}, "keepout is 'wide': give a number"),
        ({"reach": float("inf")}, "reach is inf"),
        ({"substeps": 0}, "substeps is 0"),
        ({"control_rate": -1}, "control_rate is -1"),
        ({"control_rate": 50, "substeps": 5}, "both given"),
        ({"capsules": (("sled_pos", "sled_pos", -5.0),)}, "has the radius -5"),
        ({"capsules": (("sled_pos", 1.0),)}, "give 3 values"),
        ({"capsules": (("sled", "sled_pos", 1.0),)}, "write sled_pos for a body"),
        ({"sensors": ("sonar",)}, "lacks the sensor 'sonar'"),
        ({"sensors": 3}, "sensors is 3"),
        ({"point": "hand"}, "lacks the sensor 'hand_pos'"),
        ({"ctrlrange": (1.0, -1.0)}, "two numbers, low and high"),
        ({"steps": 0}, "steps is 0"),
    ],
)
def test_impossible_settings_of_a_robot_are_refused_by_name(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = write(tmp_path, SLIDER.format(option="", actuator=MOTOR, sensor="", more=""))
    with pytest.raises(ValueError, match=message):
        statewise.register_robot("Faulty", file, **settings)


def test_a_keyframe_that_is_too_short_is_refused_unless_another_one_is_chosen(
    tmp_path: Path,
) -> None:
    text = quadruped(tmp_path).read_text().replace("1 2 0.5 1 0 0 0 ", "")
    file = write(tmp_path, text)
    with pytest.raises(ValueError, match="'home' has 8 numbers in qpos, and the model has 15"):
        own(file)
    own(file, keyframe="lying")


def test_an_arm_is_not_asked_to_run_and_its_arena_names_what_does_not_fit(tmp_path: Path) -> None:
    statewise.register_robot("Own", write(tmp_path, FILES["arm"]), extent=0.3, reach=0.3)
    for task in ("Run", "Push"):
        with pytest.raises(ValueError, match=f"{task} is a task for robots that move"):
            statewise.make_env(f"Own-{task}")
    with pytest.raises(ValueError, match="no Pillar fits into the arena of the Own"):
        statewise.make_env("Own-Pillar-1")


def test_a_model_that_explodes_does_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    actuator = MOTOR.replace("-1 1", "-1e12 1e12")
    env = own(write(tmp_path, SLIDER.format(option="", actuator=actuator, sensor="", more="")))
    with caplog.at_level(logging.WARNING, logger="statewise"):
        for _ in range(50):
            env.step(torch.ones(4, 1))
    assert env.faults >= 50
    assert 2 <= caplog.text.count("new simulator fault") <= 9


def test_bad_registrations_are_refused(tmp_path: Path) -> None:
    file = quadruped(tmp_path)
    with pytest.raises(ValueError, match="is a folder"):
        statewise.register_robot("Folder", tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        statewise.register_robot("Missing", tmp_path / "x.xml")
    with pytest.raises(ValueError, match="registered already"):
        statewise.register_robot("Point", file)
    with pytest.raises(ValueError, match="unknown robot setting 'goal_raduis'"):
        statewise.register_robot("New", file, goal_raduis=0.3)
    with pytest.raises(ValueError, match="letters, digits"):
        statewise.register_robot("a-b", file)
    with pytest.raises(ValueError, match="file is 3"):
        statewise.register_robot("New", 3)  # type: ignore[arg-type]


def test_a_range_can_be_given_for_actuators_without_one(tmp_path: Path) -> None:
    bare = SLIDER.format(option="", actuator='<motor joint="x"/>', sensor="", more="")
    env = own(write(tmp_path, bare), ctrlrange=(-3.0, 3.0))
    assert env.sim.model.actuator_ctrlrange.tolist() == [[-3.0, 3.0]]


def test_what_warp_cannot_simulate_is_said_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_warp")
    from statewise.sim.backend import GpuError

    logging.getLogger("statewise").setLevel(logging.WARNING)
    text = SLIDER.format(option='noslip_iterations="3" integrator="discrete"', actuator=MOTOR,
                         sensor="", more="")  # fmt: skip
    statewise.register_robot("Odd", write(tmp_path, text))
    with pytest.raises(GpuError, match=r"cannot simulate this robot.*device 'cpu'") as caught:
        statewise.make_env("Odd-Hazard-2", 2, device="warp-cpu")
    assert "\n" not in str(caught.value)


def test_the_masses_of_a_file_are_kept_where_it_scales_them_to_a_total(tmp_path: Path) -> None:
    text = quadruped(tmp_path).read_text()
    file = write(tmp_path, text.replace("<compiler ", '<compiler settotalmass="12" '))
    alone, model = mujoco.MjModel.from_xml_path(str(file)), own(file, "Pillar-2").sim.model
    assert model.body("robot/trunk").subtreemass[0] == pytest.approx(12.0)
    for i in range(1, alone.nbody):
        here = model.body(f"robot/{alone.body(i).name}").id
        assert model.body_mass[here] == pytest.approx(alone.body_mass[i])
        assert model.body_inertia[here] == pytest.approx(alone.body_inertia[i])
        assert model.body_invweight0[here] == pytest.approx(alone.body_invweight0[i])


@pytest.mark.filterwarnings("error")
def test_sizes_and_looks_of_older_files_are_no_matter(tmp_path: Path) -> None:
    text = quadruped(tmp_path).read_text()
    odd = (
        '<size njmax="500" nconmax="100" nkey="5" nuserdata="3" nuser_geom="1"/>'
        '<visual><map znear="0.1"/><global offwidth="100"/></visual></mujoco>'
    )
    random_steps(own(write(tmp_path, text.replace("</mujoco>", odd))), 5)
    bare = text[: text.index("<keyframe>")] + text[text.index("</keyframe>") + 11 :]
    random_steps(own(write(tmp_path, bare.replace("</mujoco>", odd))), 5)


def test_a_robot_that_is_too_large_for_its_arena_is_told_its_size(tmp_path: Path) -> None:
    statewise.register_robot("Own", quadruped(tmp_path), keepout=6.5)
    message = r"the Own and what its Run task places do not fit .* 4 m wide: .* 6.5 m free.*extent="
    with pytest.raises(ValueError, match=message):
        statewise.make_env("Own-Run-Speed-1")
