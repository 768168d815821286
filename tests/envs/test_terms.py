"""Constraints and tasks: each built-in one measures what it says, and users' own are checked."""

import logging
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import statewise
from statewise import Task, World
from statewise.envs.constraints import CONSTRAINTS
from statewise.envs.registry import Registry
from statewise.envs.tasks import TASKS
from statewise.envs.vec_env import VecEnv

NEW = ("Point-Ghost-4", "Point-Push-Hazard-2", "Point-Chase-Fence-2", "Ant-Run-Speed-2-Tilt-45")


@pytest.fixture
def clean() -> Iterator[None]:
    """Forget what a test registers."""
    stores = (CONSTRAINTS.entries, TASKS.entries, Registry.taken)
    before = [dict(store) for store in stores]  # type: ignore[call-overload]
    yield
    for store, old in zip(stores, before, strict=True):
        store.clear()
        store.update(old)  # type: ignore[arg-type]


def actions(env: VecEnv, count: int, seed: int = 0) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield 2 * torch.rand(env.num_envs, env.spec.action_size, generator=generator) - 1


@pytest.mark.parametrize("suite", NEW)
def test_a_saved_environment_goes_on_bit_for_bit(suite: str) -> None:
    env, other = (VecEnv(suite, 4, seed=s, threads=1) for s in (1, 9))
    env.reset()
    env.set_age(torch.tensor([0, 970, 980, 990]))
    for action in actions(env, 5):
        env.step(action)
    other.load_state_dict(env.state_dict())
    for action in actions(env, 30, seed=1):
        a, b = env.step(action), other.step(action)
        for name in vars(a):
            assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_a_speed_limit_is_charged_by_how_much_it_is_exceeded() -> None:
    env = VecEnv("Point-Speed-0.1", 1)
    env.reset()
    for _ in range(20):
        step = env.step(torch.tensor([[1.0, 0.0]]))
    velocity = env.look(0, env._now.sensors).sensor("velocimeter")[0, :2].norm()
    assert step.clearance.item() == pytest.approx(0.1 - float(velocity), abs=1e-6)
    assert step.cost.item() == pytest.approx(min(float(velocity) - 0.1, 0.1), abs=1e-6)


def test_effort_is_the_torque_at_the_joint_and_a_limit_out_of_reach_is_refused() -> None:
    env = VecEnv("Ant-Effort-20", 1)  # motors of 1 with a gear of 30
    env.reset()
    step = env.step(torch.tensor([[0.5, -0.9, 0, 0, 0, 0, 0, 0]]))
    assert step.clearance.item() == pytest.approx(20 - 27, abs=1e-4)
    with pytest.raises(
        ValueError, match=r"Effort-50 can never be broken by the Ant: .* at most 30 N"
    ):
        VecEnv("Ant-Effort-50", 1)


def test_joint_limits_that_the_start_pose_is_at_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("statewise.envs.constraints.base._TOLD", set())
    with caplog.at_level(logging.WARNING):
        env = VecEnv("Humanoid-Joint-2", 1)
    assert "the upper limit of jointpos_right_knee, the upper limit of jointpos_left_knee" in (
        caplog.text
    )
    # The hips start 5 degrees from a limit, the straight knees do not count.
    assert env.reset().clearance.item() == pytest.approx(3.0, abs=1e-3)
    with pytest.raises(
        ValueError, match=r"Joint-6 is broken at the start: jointpos_right_hip_x .* starts 5 deg"
    ):
        VecEnv("Humanoid-Joint-6", 1)


ARM = """<mujoco><option gravity="0 0 0"/><worldbody><body name="base"><geom size="0.1"/>
  <body pos="0 0 0.2"><joint name="turn" axis="0 0 1" range="-170 170" damping="1"/>
    <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0"/>
    <body pos="0.3 0 0"><joint name="bend" axis="0 0 1" range="-30 30" damping="1"/>
      <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0"/></body></body></body></worldbody>
  <actuator><motor name="a" joint="turn" gear="3" ctrlrange="-1 1"/>
    <motor name="b" joint="bend" gear="3" ctrlrange="-1 1"/></actuator>
  <sensor>{sensors}</sensor></mujoco>"""


def arm(folder: Path, sensors: str = "", observed: Sequence[str] | None = None) -> None:
    file = folder / "arm.xml"
    file.write_text(ARM.format(sensors=sensors))
    statewise.register_robot("Arm", file, observed)


@pytest.mark.parametrize(
    "sensors",
    [
        '<actuatorfrc actuator="a"/><actuatorfrc actuator="b"/>'
        '<jointpos joint="bend"/><jointpos joint="turn"/>',
        "",
    ],
)
def test_every_joint_and_actuator_is_watched_whatever_the_sensors_are_called(
    sensors: str, tmp_path: Path
) -> None:
    """Sensors without a name are all called alike: one must not be read for another."""
    arm(tmp_path, sensors)
    env = VecEnv("Arm-Joint-1-Effort-2.5", 1)
    step = env.reset()
    assert step.clearance[0].tolist() == pytest.approx([29.0, 2.5], abs=1e-3)
    step = env.step(torch.tensor([[0.2, 1.0]]))
    assert step.clearance[0, 1].item() == pytest.approx(-0.5, abs=1e-4)
    for _ in range(30):
        step = env.step(torch.tensor([[1.0, 0.0]]))  # turn leaves the range that bend has
    turn = env._now.sensors[0, env.sim.scene.sensors["jointpos_turn"]]
    bend = env._now.sensors[0, env.sim.scene.sensors["jointpos_bend"]]
    assert turn.abs().item() > math.radians(31)
    gap = min(170 - math.degrees(abs(turn)), 30 - math.degrees(abs(bend))) - 1
    assert step.clearance[0, 0].item() == pytest.approx(gap, abs=1e-2)


def test_a_robot_that_observes_some_joints_is_watched_at_all_of_them(tmp_path: Path) -> None:
    arm(tmp_path, observed=("gyro", "jointpos_turn", "force_a"))
    stage = VecEnv("Arm-Joint-1-Effort-2.5", 1).rules.stage
    assert [limit.sensor for limit in stage.joint_limits] == ["jointpos_turn", "jointpos_bend"]
    assert [gear.sensor for gear in stage.gears] == ["force_a", "force_b"]


def test_joints_and_actuators_that_cannot_be_watched_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("statewise.envs.constraints.base._TOLD", set())
    named = (
        '<jointpos name="jointpos_turn" joint="turn"/><actuatorfrc name="force_b" actuator="b"/>'
    )
    arm(tmp_path, named)
    with caplog.at_level(logging.WARNING):
        VecEnv("Arm-Joint-1-Effort-2.5", 1)
    assert "Joint does not watch bend of the Arm" in caplog.text
    assert "Effort does not watch a of the Arm" in caplog.text


def test_a_constraint_that_a_robot_cannot_have_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"Point-Joint-1 cannot be made: .* 'jointpos_\*', which Joint reads"
    ):
        VecEnv("Point-Joint-1")


def test_the_limit_opposite_to_one_that_is_left_out_counts(tmp_path: Path) -> None:
    file = tmp_path / "knee.xml"
    file.write_text(
        """<mujoco><compiler angle="degree"/><option gravity="0 0 0"/><worldbody><body name="base">
        <geom size="0.1"/><body pos="0 0 0.2"><joint name="knee" axis="0 0 1" range="0 60"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0"/></body></body></worldbody>
        <actuator><position joint="knee" kp="20" kv="2"/></actuator></mujoco>"""
    )
    statewise.register_robot("Knee", file, replace=True)
    env = VecEnv("Knee-Joint-10", 1)
    assert env.reset().clearance.item() == pytest.approx(50.0, abs=1e-3)
    for _ in range(100):
        step = env.step(torch.ones(1, 1))
    assert step.clearance.item() < 0  # near 60 degrees


@pytest.mark.parametrize("robot", ("Point", "Ant", "Humanoid"))
def test_the_box_weighs_a_fifth_of_the_robot(robot: str) -> None:
    model = VecEnv(f"{robot}-Push", 1).sim.scene.model
    box = [i for i in range(model.nbody) if model.body(i).name.startswith("box")]
    mine = [i for i in range(model.nbody) if model.body(i).name.startswith("robot/")]
    weights = [float(model.body_mass[i].sum()) for i in (box, mine)]
    assert weights[0] == pytest.approx(0.2 * weights[1], rel=1e-6)


def test_ghosts_walk_or_follow_at_their_speeds() -> None:
    env = VecEnv("Point-Ghost-2", 8, seed=3)
    env.reset()
    before, robot = env.objects("ghost").clone(), env.robot_pos.clone()
    env.step(torch.zeros(8, 2))
    moved = env.objects("ghost") - before
    dt = env.spec.control_dt
    assert moved[:, 0].norm(dim=-1).tolist() == pytest.approx([0.5 * dt] * 8, rel=1e-3)
    assert moved[:, 1].norm(dim=-1).tolist() == pytest.approx([0.25 * dt] * 8, rel=1e-3)
    gap = (robot - before[:, 1])[:, :2]
    cosine = torch.nn.functional.cosine_similarity(moved[:, 1, :2], gap, dim=1)
    assert float(cosine.min()) > 0.999


def test_a_pushed_box_moves_and_pays_its_progress() -> None:
    env = VecEnv("Point-Push-Hazard-1", 1)
    env.reset_to(
        torch.zeros(1, 2), torch.zeros(1), torch.tensor([[1.7, 0.0, 0.2]]),
        torch.tensor([[[-1.5, -1.5, 0.0]]]), box=torch.tensor([[[0.6, 0.0, 0.15]]]),
    )  # fmt: skip
    total, done = 0.0, False
    for _ in range(300):
        step = env.step(torch.tensor([[1.0, 0.0]]))
        total += step.reward.item()
        done = done or bool(step.success)
        if done:
            break
    assert done and step.terminated.item() and total > 1.5


def test_a_swimmer_pushes_its_box_to_the_goal_with_a_plain_gait() -> None:
    env = VecEnv("Swimmer-Push", 1)
    env.reset_to(
        torch.zeros(1, 2), torch.zeros(1), torch.tensor([[1.5, -0.2, 0.2]]),
        box=torch.tensor([[[0.5, 0.0, 0.15]]]),
    )  # fmt: skip
    for i in range(999):
        phase = torch.tensor(i * env.spec.control_dt * 2 * math.pi / 3.2)
        step = env.step(torch.stack([phase.sin(), (phase + 1.2).sin()]).unsqueeze(0))
        if step.success.item():
            return
    raise AssertionError(f"the box is still at {env.objects('box')[0, 0].tolist()}")


def test_robots_are_paid_to_go_behind_the_box() -> None:
    env = VecEnv("Point-Push", 2)
    robot = torch.tensor([[1.0, 0.0], [0.2, 0.0]])  # in front of the box, and behind it
    env.reset_to(
        robot, torch.zeros(2), torch.tensor([[1.7, 0.0, 0.2]]).expand(2, 3),
        box=torch.tensor([[[0.6, 0.0, 0.15]]]).expand(2, 1, 3),
    )  # fmt: skip
    task, world = env.suite.task, env.look(0, env._now.sensors[:1])
    assert task.remember(world)[0].tolist() == pytest.approx([1.1, 0.7], abs=1e-3)
    world = env.look(1, env._now.sensors[1:])
    assert task.remember(world)[0].tolist() == pytest.approx([1.1, 0.1], abs=1e-3)


def test_a_command_is_observed_and_kept_by_standing_robots_never() -> None:
    env = VecEnv("Point-Run", 4, seed=2)
    step = env.reset()
    command = step.obs[:, env.spec.blocks["command"]]
    assert bool((command[:, 0] >= 0.3).all()) and bool((command[:, 0] <= 1.0).all())
    assert len(set(command[:, 0].tolist())) == 4
    env.set_age(torch.full((4,), 999))
    step = env.step(torch.zeros(4, 2))
    assert step.truncated.all() and not step.success.any() and not step.terminated.any()


@pytest.mark.parametrize(
    "suite",
    (
        "Point-Chase-Ghost-3-Speed-1-Tilt-30-Fence-2",
        "Point-Run-Speed-1",
        "Point-Push-Effort-0.01",
        pytest.param("Swimmer-Run-Joint-5", marks=pytest.mark.slow),
    ),
)
def test_terms_give_the_same_numbers_on_warp(suite: str) -> None:
    pytest.importorskip("mujoco_warp")
    cpu, warp = (VecEnv(suite, 4, seed=1, device=d, threads=1) for d in ("cpu", "warp-cpu"))
    a, b = cpu.reset(), warp.reset()
    same = [name for name in cpu.spec.blocks if name != "touch"]  # forces of a solver that iterates
    for at in (cpu.spec.blocks[name] for name in same):
        torch.testing.assert_close(b.obs[:, at], a.obs[:, at], atol=1e-4, rtol=1e-3)
    for action in actions(cpu, 5):
        a, b = cpu.step(action), warp.step(action)
        torch.testing.assert_close(b.clearance, a.clearance, atol=2e-3, rtol=1e-3)
        torch.testing.assert_close(b.reward, a.reward, atol=2e-3, rtol=1e-3)


def test_a_rule_to_stay_near_an_object_starts_near_it(clean: None) -> None:
    @statewise.constraint("Leash")
    class Leash(statewise.Constraint):
        unit, ceiling = "m", 1.0

        def things(self) -> tuple[statewise.Things, ...]:
            return (statewise.Things("post", 1, 0.2),)

        def clearance(self, world: World) -> Tensor:
            return 1.5 - world.distance("post")[:, 0]

    assert bool((VecEnv("Point-Leash", 16).reset().clearance >= 0).all())


def test_a_constraint_is_one_function(clean: None) -> None:
    @statewise.constraint("Height", unit="m")
    def height(world: World, limit: float) -> Tensor:
        """Metres below a height."""
        return limit - world.position[:, 2]

    env = VecEnv("Point-Hazard-2-Height-1.5")
    assert env.spec.cost_names == ("hazard", "height") and env.spec.clearance_units[1] == "m"
    step = env.reset()
    assert step.clearance[0, 1].item() == pytest.approx(1.5 - env.robot_pos[0, 2].item())
    with pytest.raises(ValueError, match="'Height' is taken by a constraint"):
        statewise.constraint("Height")(height)


@pytest.mark.parametrize("device", ("cpu", "warp-cpu"))
def test_a_clearance_that_is_not_finite_ends_the_episode_at_the_ceiling(
    clean: None, caplog: pytest.LogCaptureFixture, device: str
) -> None:
    if device != "cpu":
        pytest.importorskip("mujoco_warp")

    @statewise.constraint("Odd", ceiling=2.0)
    def odd(world: World) -> Tensor:
        late = world.steps >= 3
        return torch.where(late, math.nan, 1.0)

    env = VecEnv("Point-Hazard-1-Odd", 2, device=device)
    env.reset()
    env.set_age(torch.tensor([1, 0]))
    with caplog.at_level(logging.WARNING):
        env.step(torch.zeros(2, 2))
        step = env.step(torch.zeros(2, 2))
        assert env.faults == 1
    assert step.sim_fault.tolist() == step.terminated.tolist() == [True, False]
    assert step.cost[0].tolist() == pytest.approx([0.6, 2.0])
    assert "a clearance that is not finite from odd" in caplog.text


@pytest.mark.parametrize("device", ("cpu", "warp-cpu"))
def test_an_observation_that_is_not_finite_ends_the_episode_at_the_ceiling(
    clean: None, caplog: pytest.LogCaptureFixture, device: str
) -> None:
    if device != "cpu":
        pytest.importorskip("mujoco_warp")

    @statewise.constraint("Radar")
    class Radar(statewise.Constraint):
        ceiling = 2.0

        def clearance(self, world: World) -> Tensor:
            return torch.ones(len(world))

        def observe(self, world: World) -> dict[str, Tensor]:
            return {"radar": torch.where(world.steps >= 3, math.nan, 1.0).unsqueeze(1)}

    env = VecEnv("Point-Hazard-1-Radar", 2, device=device)
    env.reset()
    env.set_age(torch.tensor([1, 0]))
    with caplog.at_level(logging.WARNING):
        env.step(torch.zeros(2, 2))
        step = env.step(torch.zeros(2, 2))
        assert env.faults == 1
    assert step.sim_fault.tolist() == step.terminated.tolist() == [True, False]
    assert step.cost[0].tolist() == pytest.approx([0.6, 2.0])
    assert torch.isfinite(step.obs).all() and torch.isfinite(step.final_obs).all()
    assert "1 new simulator fault (" in caplog.text and "Its episode ends" in caplog.text
    assert "an observation that is not finite in 'radar'" in caplog.text


def test_numbers_of_another_precision_or_with_gradients_are_taken_without_them(
    clean: None,
) -> None:
    net = torch.nn.Linear(3, 1)

    @statewise.constraint("Learned")
    def learned(world: World) -> Tensor:
        return net(world.position).abs()[:, 0].double() + 1.0

    @statewise.task("Double")
    class Double(Task):
        def reward(self, world: World) -> Tensor:
            return world.position[:, 0].double()

        def observe(self, world: World) -> dict[str, Tensor]:
            return {"double": net(world.position).double()}

    env = VecEnv("Point-Double-Learned", 2)
    for step in (env.reset(), env.step(torch.zeros(2, 2)), env.step(torch.zeros(2, 2))):
        floats = [x for x in vars(step).values() if x.is_floating_point()]
        assert {x.dtype for x in floats} == {torch.float32}
        assert not any(x.requires_grad for x in floats)


def test_an_observation_that_is_not_finite_after_a_reset_is_refused_by_its_block(
    clean: None,
) -> None:
    @statewise.constraint("Blind")
    class Blind(statewise.Constraint):
        ceiling = 1.0

        def clearance(self, world: World) -> Tensor:
            return torch.ones(len(world))

        def observe(self, world: World) -> dict[str, Tensor]:
            far = world.objects("goal")[:, 0, :1].abs() < 50.0  # no goal is near in the trial
            return {"radar": torch.where(far, math.inf, 0.0)}

    env = VecEnv("Point-Blind", 2)
    with pytest.raises(
        ValueError, match=r"Point-Blind: the observation of world 0 is not finite .* 'radar'"
    ):
        env.reset()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda w: 1.0, "returned a float for 3 worlds"),
        (lambda w: w.position, r"of shape \(3, 3\)"),
        (lambda w: w.position[:, 0] * math.nan, "is nan for a robot at rest in world 0"),
        (lambda w: w.position[:, 0] - 1.0, "is broken at the start"),
        (lambda w: w.sensor("sonar")[:, 0], "Wrong reads .*Point has no sensor 'sonar'. Add it"),
        (lambda w: w.nearest("tree"), "the constraint Wrong of .* of the kind 'tree' .*, line"),
        (
            lambda w: {}["x"],
            r"the constraint Wrong of .* raised KeyError: 'x' \(.*test_terms.py, l",
        ),
        (lambda w: torch.ones(len(w), device="meta"), r"on meta for 3 worlds: .* on cpu"),
        (lambda w: w.position.fill_(1.0)[:, 0], "Wrong of .* writes into what it reads"),
        (lambda w: w.distance("hazard").mul_(2)[:, 0], "Wrong of .* writes into what it reads"),
    ],
)
def test_a_constraint_of_a_wrong_form_is_refused(clean: None, result: object, message: str) -> None:
    def wrong(world: World) -> Tensor:
        return result(world)  # type: ignore[operator,no-any-return]

    statewise.constraint("Wrong")(wrong)
    with pytest.raises(ValueError, match=message):
        VecEnv("Point-Hazard-1-Wrong")


def early(world: World) -> bool:
    """At the start and in the first step, which the trial before the first episode has too."""
    return bool((world.steps <= 1).all())


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda w: torch.ones(3), r"returned torch.float32 of shape \(3,\) for 4 worlds"),
        (lambda w: torch.ones(len(w)) if w.starts else 1.0, "returned a float for 3 worlds"),
        (lambda w: torch.ones(len(w)) if early(w) else 1.0, "returned a float for 2 worlds"),
        (lambda w: torch.ones(len(w) if early(w) else 1), r"shape \(1,\) for 2 worlds"),
        (lambda w: torch.ones(len(w)) if early(w) else None, "returned None for 2 worlds"),
        (lambda w: torch.ones(len(w)) > (2 if early(w) else 0), r"returned torch.bool of shape"),
        (lambda w: torch.ones(len(w), device="cpu" if early(w) else "meta"), "on meta for 2 wor"),
    ],
)
def test_a_wrong_form_that_shows_late_names_the_constraint(
    clean: None, result: object, message: str
) -> None:
    def late(world: World) -> Tensor:
        return result(world)  # type: ignore[operator,no-any-return]

    statewise.constraint("Late")(late)
    with pytest.raises(ValueError, match=f"the constraint Late of .* {message}"):
        env = VecEnv("Point-Late", 2)
        env.reset()
        env.step(torch.zeros(2, 2))
        env.step(torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"sensors": "gyro"}, r"sensors is 'gyro': give names, as in sensors=\('gyro',\)"),
        ({"draws": -1}, "draws is -1: give a whole number"),
        ({"things": lambda self: ["crate"]}, "return a tuple of Things"),
        ({"things": lambda self: (statewise.Things("crate", 0, 0.2),)}, "count is 0"),
        ({"things": lambda self: (statewise.Things("crate", 1, math.nan),)}, "keepout is nan"),
        ({"observe": lambda self, world: [1.0]}, "return a dict"),
        ({"remember": lambda self, world: 1.0}, r"remember\(\) returned 1.0 for 3 worlds"),
        ({"move": lambda self, world: {"crate": world.position}}, "moves 'crate', but the objects"),
        ({"move": lambda self, world: None}, "it returned None: return a dict of centres"),
        ({"may_start": lambda self, world: None}, "`may_start` returned None for 3 worlds"),
        ({"reward": lambda self, world: world.position[:, :1]}, r"`reward` returned .*\(3, 1\)"),
        (
            {"reward": lambda self, world: world.position[:, 0 if early(world) else slice(0, 1)]},
            r"`reward` returned torch.float32 of shape \(2, 1\) for 2 worlds",
        ),
        (
            {"ended": lambda self, world: world.position[:, 0] > 99 if early(world) else None},
            "`ended` returned None for 2 worlds: return bools",
        ),
        (
            {"remember": lambda self, world: world.position if world.starts else None},
            r"remember\(\) returned None after a step and torch.float32 of shape \(3, 3\)",
        ),
        (
            {"observe": lambda self, world: {"a" if early(world) else "b": world.position}},
            r"observes blocks of the shapes \{'b': \(2, 3\)\}: return \{'a': \(2, 3\)\}",
        ),
        ({"observe": lambda self, world: {"a": world.position > 0}}, "has the type torch.bool"),
        ({"__init__": lambda self, robot: 1 / 0}, r"`__init__` raised Zero.*test_terms.py, line"),
        (
            {"things": lambda self: {}["x"]},
            r"`things` raised KeyError: 'x' \(.*test_terms.py, line",
        ),
        (
            {"move": lambda self, world: {"goal": world.position}},
            r"moves 'goal' .*return \(3, 1, 3",
        ),
    ],
)
def test_a_task_of_a_wrong_form_is_refused_by_name(
    clean: None, parts: dict[str, object], message: str
) -> None:
    body = {
        "reward": lambda self, world: world.position[:, 0],
        "things": lambda self: (statewise.Things("goal", 1, 0.4),),
    }
    statewise.task("Odd")(type("Odd", (Task,), body | parts))
    with pytest.raises(ValueError, match=message):
        env = VecEnv("Point-Odd-Hazard-1", 2)
        env.reset()
        env.step(torch.zeros(2, 2))
        env.step(torch.zeros(2, 2))


def test_registrations_that_cannot_work_are_refused(clean: None) -> None:
    def keyword(world: World, *, limit: float) -> Tensor:
        return limit - world.position[:, 0]

    with pytest.raises(TypeError, match="'limit' cannot be given by its place"):
        statewise.constraint("Keyword")(keyword)
    with pytest.raises(ValueError, match="'speed' differs from the constraint 'Speed' in capitals"):
        statewise.constraint("speed")(keyword)
    with pytest.raises(TypeError, match="contact is 'yes': give True or False"):
        statewise.constraint("Touch", contact="yes")(keyword)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="defines no method reward"):
        statewise.task("Nothing")(type("Nothing", (Task,), {}))
    with pytest.raises(TypeError, match="defines no method clearance"):
        statewise.constraint("Void")(type("Void", (statewise.Constraint,), {}))
    for register in (statewise.constraint, statewise.task):
        with pytest.raises(TypeError, match=rf'write @statewise.{register.__name__}\("Name"\)'):
            register(keyword)  # type: ignore[arg-type]
    keyword.__annotations__["limit"] = "Metres"
    with pytest.raises(TypeError, match=r"Keyword: .* 'Metres' is not defined.* Import the name"):
        statewise.constraint("Keyword")(keyword)
    homeless = type("Homeless", (Task,), {"__init__": lambda self: None, "reward": keyword})
    with pytest.raises(TypeError, match=r"__init__ takes \(self, robot, ...\)"):
        statewise.task("Homeless")(homeless)


@pytest.mark.parametrize(
    ("sort", "name", "other"), [("constraint", "Goal", "task"), ("task", "Hazard", "constraint")]
)
def test_built_in_names_are_taken_whichever_is_registered_first(
    sort: str, name: str, other: str
) -> None:
    made = (
        "lambda world: 1" if sort == "constraint" else "type('T', (statewise.Task,), {'reward': 1})"
    )
    program = f"import statewise; statewise.{sort}({name!r})({made})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f"the name '{name}' is taken by a {other}" in done.stderr


def test_a_task_that_never_ends_is_refused(clean: None) -> None:
    @statewise.task("Wander")
    class Wander(Task):
        """Never ends."""

        max_steps = None

        def reward(self, world: World) -> Tensor:
            return world.position[:, 0]

    with pytest.raises(ValueError, match="its episodes would never end"):
        VecEnv("Point-Wander-Hazard-1")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Point-Speed--1", "limit of Speed.*is -1: give a finite number, above 0"),
        ("Point-Tilt-400", "limit of Tilt.*is 400: give a number from 1 to 180"),
        ("Point-Speed", "gives no limit to Speed: write Speed-LIMIT"),
        ("Point-Hazard-300000000", "asks for 300000000 Hazards.*from 1 to 13"),
        ("Point-Speed-nan", "is nan"),
    ],
)
def test_a_parameter_that_cannot_be_is_answered_with_the_range(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VecEnv(name)
