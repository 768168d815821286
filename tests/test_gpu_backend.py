"""What physics on a device promises: the CPU's physics within float32, and the same environment.

Runs on a GPU where there is one, else on Warp's CPU device, which runs the same code.
"""

import dataclasses
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
import warp as wp
from torch import Tensor

import statewise
from statewise import VecEnv
from statewise.algos import get_algorithm
from statewise.envs import layouts
from statewise.envs.building import suite_scene
from statewise.envs.suites import parse_suite
from statewise.sim.backend import GpuError, Simulator, make_simulator
from statewise.sim.gpu import WarpSim, buffer_sizes
from statewise.sim.scene import Scene
from statewise.training.config import TrainSettings
from statewise.training.loop import Training

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "warp-cpu"
WORLDS = 4
FORCES = ("accelerometer", "touch")

wp.config.optimization_level = 3 if GPU else 0  # compiles twice as fast


@dataclasses.dataclass(frozen=True)
class Parity:
    """How far apart the backends may be after one step from the same state.

    |difference| / (1 + |value|), in nine of ten world-steps; about ten times what was measured.
    """

    suite: str
    motion: float
    """Positions, velocities and everything else that does not feel forces."""
    forces: float
    """Accelerometers and touch."""
    elliptic: bool = False
    """With a friction cone instead of the robot's own pyramid. A pyramid has a direction, and where
    a steep capsule stands on the floor the two engines choose another one."""


PARITY = (
    Parity("Point-Hazard-8", 1e-4, 1e-3),  # a yaw servo at its force limit amplifies rounding
    Parity("Point-Pillar-4", 2e-3, 1e-2),  # the same, hitting pillars
    Parity("Swimmer-Hazard-8", 3e-5, 4e-4),
    Parity("Ant-Hazard-8", 1.5e-2, 3e-2, elliptic=True),  # bounces on stiff legs, 0.2 s a step
    Parity("Walker-Hazard-8", 2e-5, 1e-4),
    Parity("Humanoid-Hazard-8", 2e-4, 5e-4),
    Parity("Drone-3DHazard-8", 1e-6, 4e-6),
    Parity("Arm3-Hazard-8", 2e-6, 4.0),  # stiff servos on light links: rounding is felt as force
)


@functools.cache
def scene_of(suite: str, elliptic: bool = False) -> Scene:
    parsed = parse_suite(suite)
    scene = suite_scene(parsed, None)
    if elliptic:
        scene.model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC.value
    return scene


@functools.cache
def device_sim(suite: str, elliptic: bool = False) -> Simulator:
    return make_simulator(scene_of(suite, elliptic), WORLDS, DEVICE, deterministic=GPU)


def start(scene: Scene) -> tuple[Tensor, Tensor, Tensor]:
    """Worlds with another heading each, their pillars close around the robot."""
    around = torch.arange(max(len(scene.bodies), 1)) * (2 * torch.pi / max(len(scene.bodies), 1))
    ring = torch.stack([0.33 * around.cos(), 0.33 * around.sin(), torch.full_like(around, 0.5)], 1)
    pillars = ring[: len(scene.bodies)].expand(WORLDS, len(scene.bodies), 3)
    return scene.start_state(torch.zeros(WORLDS, 2), torch.arange(WORLDS) * 0.7, pillars)


def on_device(rows: tuple[Tensor, ...], sim: Simulator) -> list[Tensor]:
    return [row.to(sim.device) for row in rows]


def all_of(sim: Simulator, worlds: int) -> Tensor:
    """The mask `[B]` of all worlds."""
    return torch.ones(worlds, dtype=torch.bool, device=sim.device)


def controls(scene: Scene, steps: int, worlds: int = WORLDS) -> Tensor:
    """[T, B, nu]"""
    low, high = torch.tensor(scene.model.actuator_ctrlrange, dtype=torch.float32).unbind(1)
    generator = torch.Generator().manual_seed(0)
    return low + (high - low) * torch.rand(steps, worlds, len(low), generator=generator)


def env_on(device: str, suite: str, num_envs: int, steps: int = 1000, **settings: object) -> VecEnv:
    """An environment whose episodes have at most so many steps."""
    short = dataclasses.replace(parse_suite(suite), max_episode_steps=steps)
    if device == "cuda":
        settings = {"deterministic": True} | settings
    return VecEnv(short, num_envs, device=device, **settings)  # type: ignore[arg-type]


def actions(env: VecEnv, steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (steps, env.num_envs, env.spec.action_size)
    return (torch.rand(shape, generator=generator) * 2 - 1).to(env.device)


# The same physics ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PARITY, ids=lambda case: case.suite)
def test_a_step_leads_where_it_does_on_the_cpu(case: Parity) -> None:
    scene, steps = scene_of(case.suite, case.elliptic), 30
    cpu, device = make_simulator(scene, WORLDS, "cpu"), device_sim(case.suite, case.elliptic)
    state = start(scene)
    at_rest = cpu.reset(torch.arange(WORLDS), *state)
    same = device.reset(all_of(device, WORLDS), *on_device(state, device))
    force = torch.zeros(at_rest.shape[1], dtype=torch.bool)
    for name, place in scene.sensors.items():
        force[place] = name.startswith(FORCES)
    assert torch.allclose(at_rest[:, ~force], same.cpu()[:, ~force], atol=1e-5)

    motion, forces = [], []
    for ctrl in controls(scene, steps):
        copy_state(cpu, device)
        here, there = cpu.step(ctrl), device.step(ctrl.to(device.device)).cpu()
        assert not cpu.fault.any() and not device.fault.any(), device.messages
        gap = (here - there).abs() / (1 + here.abs())
        motion.append(gap[:, ~force].amax(dim=1))
        forces.append(gap[:, force].amax(dim=1))
    assert torch.stack(motion).quantile(0.9) < case.motion
    assert torch.stack(forces).quantile(0.9) < case.forces


@pytest.mark.parametrize(
    "suite", ["Swimmer-Hazard-8", "Humanoid-Hazard-8", "Drone-3DHazard-8", "Arm3-Hazard-8"]
)
def test_robots_that_do_not_amplify_rounding_stay_together_for_forty_steps(suite: str) -> None:
    """Within 0.1 mm; they were seen within 0.003 mm."""
    scene = scene_of(suite)
    cpu, device = make_simulator(scene, WORLDS, "cpu"), device_sim(suite)
    state = start(scene)
    cpu.reset(torch.arange(WORLDS), *state)
    device.reset(all_of(device, WORLDS), *on_device(state, device))
    for ctrl in controls(scene, 40):
        here, there = cpu.step(ctrl), device.step(ctrl.to(device.device)).cpu()
    point = scene.sensors[f"{parse_suite(suite).robot.point}_pos"]
    assert torch.allclose(here[:, point], there[:, point], atol=1e-4)


def copy_state(cpu: Simulator, device: Simulator) -> None:
    """Both in the CPU's state, rounded to what the device can hold."""
    state = device.state()
    batch = cpu._batch  # type: ignore[attr-defined]
    for name in state.keys() & {"qpos", "qvel", "act", "qacc_warmstart"}:
        rounded = torch.from_numpy(batch.bind(name).copy()).float()
        batch.bind(name)[:] = rounded.numpy()
        state[name] = rounded
    device.load_state(state)


def test_an_ant_on_its_own_friction_pyramid_moves_as_on_the_cpu_on_average() -> None:
    """Single steps differ there (see `Parity.elliptic`); speeds and forces of many do not."""
    scene, worlds = scene_of("Ant-Hazard-8"), 40
    cpu, device = (make_simulator(scene, worlds, name) for name in ("cpu", DEVICE))
    state = scene.start_state(
        torch.zeros(worlds, 2), torch.zeros(worlds), torch.zeros(worlds, 0, 3)
    )
    cpu.reset(torch.arange(worlds), *state)
    device.reset(all_of(device, worlds), *on_device(state, device))
    here, there = [], []
    for ctrl in controls(scene, 20, worlds):
        here.append(cpu.step(ctrl).abs())
        there.append(device.step(ctrl.to(device.device)).cpu().abs())
    for kind in ("root_pos", "velocimeter", "gyro", "accelerometer", "touch_*", "jointvel_*"):
        places = [i for name in scene.match([kind]) for i in range(48)[scene.sensors[name]]]
        mine, theirs = (float(torch.stack(s)[5:, :, places].mean()) for s in (here, there))
        assert theirs == pytest.approx(mine, rel=0.1), kind


def test_a_reset_by_mask_leaves_the_other_worlds_untouched() -> None:
    sim, scene = device_sim("Ant-Hazard-8", True), scene_of("Ant-Hazard-8", True)
    rest, ctrl = on_device(start(scene), sim), controls(scene, 20).to(sim.device)
    sim.reset(all_of(sim, WORLDS), *rest)
    for now in ctrl[:10]:
        sim.step(now)
    before = sim.state()
    undisturbed = [sim.step(now) for now in ctrl[10:]]

    sim.load_state(before)
    mask = torch.tensor([False, True, False, False], device=sim.device)
    sensors = sim.reset(mask, *rest)
    after = sim.state()
    for name in before:
        assert torch.equal(after[name][~mask], before[name][~mask]), name
    assert torch.equal(after["qpos"][1], rest[0][1])
    for name in ("qvel", "qacc_warmstart", "ctrl", "time", "xfrc_applied"):
        assert not after[name][1].any(), name
    speed = scene.sensors["velocimeter"]
    assert sensors[1, speed].abs().max() < 1e-6 < sensors[0, speed].abs().max()
    for now, expected in zip(ctrl[10:], undisturbed, strict=True):
        assert torch.equal(sim.step(now)[~mask], expected[~mask])


def test_one_world_can_be_looked_into_on_the_host() -> None:
    env = env_on(DEVICE, "Point-Pillar-4", 3)
    env.reset()
    for action in actions(env, 5):
        env.step(action)
    for world in range(3):
        data = env.sim.data(world)
        place = env.sim.scene.sensors["root_pos"]
        assert data.time == pytest.approx(0.1, rel=1e-4)
        assert data.sensordata[place] == pytest.approx(env.robot_pos[world].tolist(), abs=1e-5)
        assert data.mocap_pos[1:] == pytest.approx(env.pillars[world].cpu().numpy(), abs=1e-6)


# The same environment --------------------------------------------------------------------------


def test_a_seed_gives_the_same_episodes_as_on_the_cpu() -> None:
    cpu, device = (env_on(d, "Point-Hazard-8", 16, steps=15) for d in ("cpu", DEVICE))
    assert torch.allclose(cpu.reset(seed=5).obs, device.reset(seed=5).obs.cpu(), atol=1e-4)
    for t, action in enumerate(actions(cpu, 40)):
        here, there = cpu.step(action), device.step(action.to(device.device))
        assert torch.equal(here.ended, there.ended.cpu()), t
        assert torch.equal(cpu._now.objects, device._now.objects.cpu()), t
        assert torch.equal(here.ended, cpu._now.time == 0)
        assert torch.allclose(here.reward, there.reward.cpu(), atol=1e-3)
        assert torch.allclose(here.cost, there.cost.cpu(), atol=1e-2)
        began = here.ended
        assert torch.allclose(here.obs[began], there.obs.cpu()[began], atol=1e-4)
        assert torch.equal(there.final_obs[~there.ended], there.obs[~there.ended])
    assert device.faults == 0


def test_layouts_are_the_same_however_late_the_device_tells_what_it_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = []

    class Late(layouts._Count):
        def here(self) -> bool:
            return False

        def read(self) -> int:
            waits.append(super().read())
            return waits[-1]

    env = env_on("cpu", "Point-Hazard-1", 50)
    source, twin = env._layouts, env_on("cpu", "Point-Hazard-1", 50)._layouts
    for count in (layouts._Count, Late):
        monkeypatch.setattr(layouts, "_Count", count)
        stock = layouts.DeviceStock(source, torch.device("cpu"))
        stock.seed(3)
        twin.seed(3)
        generator = torch.Generator().manual_seed(0)
        everyone = torch.ones(50, dtype=torch.bool)
        assert all(map(torch.equal, stock.take(everyone), twin.take(torch.arange(50))))
        for t in range(200):  # the ring of 1174 goes round several times
            mask = torch.rand(50, generator=generator) < (0.9 if t % 10 == 0 else 0.3)
            rows, expected = stock.take(mask), twin.take(mask.nonzero()[:, 0])
            assert all(torch.equal(r[mask], e) for r, e in zip(rows, expected, strict=True)), t
            if t == 100:
                stock.load_state(stock.state())
    assert waits, "it never had to wait"


def test_touching_a_pillar_costs_one_and_being_in_a_hazard_its_depth() -> None:
    env = env_on(DEVICE, "Point-Hazard-8-Pillar-4", 2)
    far = torch.full((2, 8, 3), 50.0)
    hazards, pillars = far.clone(), far[:, :4].clone()
    hazards[0, 3] = torch.tensor([0.1, 0.0, 0.02])  # the robot 0.1 m from its centre, radius 0.3
    pillars[1, 2] = torch.tensor([0.28, 0.0, 0.5])  # radius 0.2, the robot's 0.1
    zero = torch.zeros(2, 2)
    env.reset_to(zero, torch.zeros(2), torch.tensor([[1.5, 0.0, 0.16]] * 2), hazards, pillars)
    step = env.step(torch.zeros(2, 2, device=env.device))
    assert step.cost[0].tolist() == pytest.approx([0.2, 0.0], abs=1e-3)
    assert step.cost[1].tolist() == [0.0, 1.0]


def test_a_continuing_task_moves_the_same_goals_to_the_same_places() -> None:
    cpu, device = (env_on(d, "Point-Hazard-1", 6, continuing=True) for d in ("cpu", DEVICE))
    for env in (cpu, device):
        env.reset(seed=2)
        goal = env.robot_pos.clone()
        goal[3:] = 1.9
        hazards = torch.full((6, 1, 3), 50.0)
        env.reset_to(env.robot_pos[:, :2], torch.zeros(6), goal, hazards)
        step = env.step(torch.zeros(6, 2, device=env.device))
        assert not step.ended.any()
        assert (env.goal[:3] != goal[:3]).any(dim=1).all() and torch.equal(env.goal[3:], goal[3:])
    assert torch.allclose(cpu.goal, device.goal.cpu())


@pytest.mark.parametrize(
    ("suite", "continuing"),
    [("Point-Hazard-8", False), ("Point-Hazard-8", True), ("Point-Pillar-4", False)],
)
def test_save_restore_continue_gives_the_same_bytes(suite: str, continuing: bool) -> None:
    env, other = (
        env_on(DEVICE, suite, 6, steps=7, seed=seed, continuing=continuing) for seed in (1, 2)
    )
    env.reset()
    todo = actions(env, 40)
    for action in todo[:20]:
        env.step(action)
    state = env.state_dict()
    expected = [env.step(action) for action in todo[20:]]
    for again in (env, other):
        again.load_state_dict(state)
        for action, wanted in zip(todo[20:], expected, strict=True):
            step = again.step(action)
            for field in dataclasses.fields(step):
                assert torch.equal(getattr(step, field.name), getattr(wanted, field.name))


def test_saved_physics_of_another_kind_of_device_is_refused() -> None:
    cpu, device = (env_on(d, "Point-Hazard-8", 6) for d in ("cpu", DEVICE))
    cpu.reset(), device.reset()
    with pytest.raises(ValueError, match="kind of device"):
        cpu.load_state_dict(device.state_dict())
    with pytest.raises(ValueError, match="kind of device"):
        device.load_state_dict(cpu.state_dict())


@pytest.mark.skipif(not GPU, reason="needs a GPU: elsewhere nothing can wait for one")
@pytest.mark.parametrize("suite", ["Ant-Hazard-8", "Drone-3DHazard-8", "Arm3-Hazard-8"])
def test_a_step_never_waits_for_the_gpu(suite: str) -> None:
    env = env_on(DEVICE, suite, 64, steps=50)
    env.reset()
    todo = actions(env, 60)
    env.step(todo[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in todo:
            env.step(action)  # an error if anything in it waits
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert env.faults == 0


def test_physics_that_does_not_repeat_though_asked_to_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at, other = (
        env_on(DEVICE, "Point-Hazard-8", 4, deterministic=d).sim.state() for d in (True, False)
    )
    assert all(torch.equal(looked_at[name], other[name]) for name in other)
    assert "part from each other" not in caplog.text
    exact = WarpSim.step

    def shaken(self: WarpSim, ctrl: Tensor) -> Tensor:
        return exact(self, ctrl) + 1e-6 * torch.rand(1).item()

    monkeypatch.setattr(WarpSim, "step", shaken)
    env_on(DEVICE, "Point-Hazard-8", 4, deterministic=True)
    assert "part from each other" in caplog.text


@pytest.mark.skipif(not GPU, reason="the CPU is deterministic without being asked")
def test_deterministic_runs_without_contacts_give_the_same_bytes() -> None:
    runs = []
    for _ in range(2):
        env = env_on(DEVICE, "Point-Hazard-8", 256, steps=30)
        env.reset(seed=0)
        runs.append(torch.stack([env.step(action).obs for action in actions(env, 100)]))
    assert torch.equal(*runs)


# Faults ----------------------------------------------------------------------------------------


@pytest.fixture
def ant() -> Iterator[tuple[VecEnv, VecEnv]]:
    env, twin = (env_on(DEVICE, "Ant-Hazard-8", 3, seed=4) for _ in range(2))
    env.reset(), twin.reset()
    yield env, twin


def spoil_action(env: VecEnv, action: Tensor) -> None:
    action[1, 2] = torch.nan


def blow_up_action(env: VecEnv, action: Tensor) -> None:
    action[1, 2] = torch.inf


def spoil_state(env: VecEnv, action: Tensor) -> None:
    state = env.state_dict()
    state["sim"]["qpos"][1, 1] = torch.nan
    env.load_state_dict(state)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_action, "1 new simulator fault (1 non-finite actions)"),
        (blow_up_action, "1 new simulator fault (1 non-finite actions)"),
        (spoil_state, "1 new simulator fault (non-finite or huge state in world 1)"),
    ],
)
def test_a_fault_ends_the_episode_at_the_highest_cost_and_touches_no_other_world(
    ant: tuple[VecEnv, VecEnv],
    spoil: Callable[[VecEnv, Tensor], None],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, twin = ant
    todo, rest = actions(env, 15), torch.tensor([0, 2])
    for action in todo[:5]:
        last = env.step(action)
        twin.step(action)
    bad = todo[5].clone()
    spoil(env, bad)
    step, other = env.step(bad), twin.step(todo[5])
    assert step.sim_fault.tolist() == step.terminated.tolist() == [False, True, False]
    assert float(step.cost[1]) == pytest.approx(0.3) and float(step.reward[1]) == 0.0
    if spoil is spoil_state:
        assert torch.equal(step.final_obs[1], last.obs[1])  # the last finite observation
    with caplog.at_level(logging.WARNING, logger="statewise"):
        assert env.faults == 1 and reason in caplog.text
    for action in todo[6:]:  # the world that failed starts anew, the others go on as ever
        assert torch.equal(step.obs[rest], other.obs[rest])
        assert torch.isfinite(step.obs).all()
        step, other = env.step(action), twin.step(action)
    assert env.faults == 1 and twin.faults == 0


def test_a_buffer_that_is_too_small_is_a_fault_and_says_what_to_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = env_on(DEVICE, "Swimmer-Hazard-8", 3, contact_room=0.05)
    env.reset()
    step = env.step(torch.zeros(3, 2, device=env.device))
    assert step.sim_fault.all() and step.terminated.all()
    assert torch.equal(step.cost.cpu(), torch.full((3, 1), 0.3))
    with caplog.at_level(logging.WARNING, logger="statewise"):
        assert env.faults == 3 and "larger contact_room" in caplog.text


def test_a_drone_thrown_on_the_floor_has_room_for_its_contacts() -> None:
    # In a random pose it hovers, so that poses alone make too little room.
    model = statewise.make_env("Drone-3DHazard-8").sim.model
    _, room = buffer_sizes(model, pairs=1, num_worlds=1, room=1.0)
    data, generator, most = mujoco.MjData(model), np.random.default_rng(0), 0
    for _ in range(100):
        mujoco.mj_resetData(model, data)
        data.qpos[2], data.qpos[3:6] = -0.8, generator.uniform(-np.pi, np.pi, 3)
        data.qvel[:] = generator.normal(0.0, 2.0, 6)
        for _ in range(100):
            mujoco.mj_step(model, data)
            most = max(most, data.nefc)
    assert 50 < most <= 0.75 * room


# Errors ----------------------------------------------------------------------------------------


def test_an_unknown_device_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"unknown device 'gpu'.*'cpu', 'cuda'"):
        statewise.make_env("Point-Hazard-8", device="gpu")


@pytest.mark.skipif(GPU, reason="there is a GPU")
def test_asking_for_a_gpu_where_there_is_none_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"'cuda:1' needs a CUDA GPU.*use 'cpu'"):
        statewise.make_env("Point-Hazard-8", device="cuda:1")


@pytest.mark.parametrize("package", ["warp", "mujoco_warp"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "statewise.sim.gpu", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install 'statewise\[gpu\]'"):
        statewise.make_env("Point-Hazard-8", device="cuda")


@pytest.mark.parametrize("package", ["warp", "mujoco_warp"])
def test_the_cpu_needs_no_package_of_the_gpu(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "statewise.sim.gpu", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    assert torch.isfinite(statewise.make_env("Point-Hazard-8").reset().obs).all()


def test_worlds_that_do_not_fit_the_memory_are_refused_with_a_number_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from statewise.sim import gpu

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("Failed to allocate 123456789 bytes on device 'cuda:0'")

    class Card:
        total_memory = 80 * 2**30

    monkeypatch.setattr(gpu.WarpSim, "_prepare", full)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    with pytest.raises(GpuError, match=r"64 worlds do not fit the 80 GiB.*about \d{6,} do"):
        make_simulator(scene_of("Point-Hazard-8"), 64, DEVICE)


# Training --------------------------------------------------------------------------------------


def test_a_run_on_the_device_is_saved_resumed_and_evaluated_on_the_cpu(tmp_path: Path) -> None:
    settings = TrainSettings(
        "Point-Hazard-1", steps=960, steps_per_epoch=160, num_envs=8, device=DEVICE,
        out=str(tmp_path), checkpoint_every=2, tensorboard=False,
    )  # fmt: skip
    own = get_algorithm("scpo").settings_class(hidden=(8,), critic_iterations=3)
    whole = Training.start(settings, own)
    for _ in range(4):
        whole.run_epoch()
    again = Training.resume(whole.folder.path)
    assert again.epoch == 4
    mine, other = whole.run_epoch(), again.run_epoch()
    if not GPU:  # there sums are taken in another order each time
        assert (
            mine["episode/return"] == other["episode/return"]
            and mine["policy/kl"] == other["policy/kl"]
        )
    assert statewise.evaluate(whole.folder.path, episodes=4).episodes == 4
