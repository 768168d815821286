"""What an imported environment promises: costs, episodes, errors, seeds, saving, training."""

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from statewise.algos import get_algorithm
from statewise.envs.from_gym import NO_LIMIT, GymEnv
from statewise.envs.make import make_env
from statewise.training.collect import Collector
from statewise.training.evaluate import _FRESH

EXAMPLES = Path(__file__).parents[2] / "examples"
NAN = float("nan")
Info = dict[str, Any]


class Walk(gymnasium.Env):
    """A walk on a line: x moves by the action, 0 at the start if there is no noise.

    Rewards the move, reports |x| as its cost, and terminates at |x| >= 3.
    """

    def __init__(
        self,
        noise: float = 0.0,
        info: Callable[[float], Info] = lambda x: {"cost": abs(x)},
        observe: Callable[[float], Any] | None = None,
        space: gymnasium.Space | None = None,
        action_space: gymnasium.Space | None = None,
    ) -> None:
        self.observation_space = space or spaces.Box(-np.inf, np.inf, (1,))
        self.action_space = action_space or spaces.Box(-1.0, 1.0, (1,))
        self.noise, self.info = noise, info
        self.observe = observe or (lambda x: np.array([x], np.float32))
        self.x = 0.0
        self.action: Any = None

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.x = self.noise * float(self.np_random.standard_normal())
        return self.observe(self.x), {}

    def step(self, action: Any) -> Any:
        self.action = action
        self.x += float(np.ravel(action)[0])
        ended = abs(self.x) >= 3
        return self.observe(self.x), float(np.ravel(action)[0]), ended, False, self.info(self.x)


class SixValues(Walk):
    """As Safety-Gymnasium has it: the cost after the reward."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, abs(self.x), terminated, truncated, {"cost_sum": abs(self.x)}


class Kept(Walk):
    """Can save and restore itself."""

    def get_state(self) -> Info:
        return {"x": np.array([self.x])}

    def set_state(self, state: Info) -> None:
        self.x = float(state["x"][0])


gymnasium.register("TestWalk-v0", entry_point=Walk, max_episode_steps=4)
gymnasium.register("TestSixValues-v0", entry_point=SixValues, max_episode_steps=4)
gymnasium.register("TestKept-v0", entry_point=lambda: Kept(noise=0.5), max_episode_steps=7)


def walks(num_envs: int = 2, **settings: Any) -> GymEnv:
    env = GymEnv(lambda: Walk(**settings), num_envs)
    env.reset()
    return env


def push(env: GymEnv, *actions: float) -> Tensor:
    """[B, 1]"""
    return torch.tensor(actions).unsqueeze(1).expand(env.num_envs, env.spec.action_size)


def trajectory(env: GymEnv, steps: int) -> Tensor:
    """[steps, B, n + 1] observations and costs under fixed actions."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(steps):
        step = env.step(2 * torch.rand(env.num_envs, 1, generator=generator) - 1)
        rows.append(torch.cat([step.obs, step.cost], dim=1))
    return torch.stack(rows)


# Costs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "names", "costs"),
    [
        (lambda x: {"cost": abs(x)}, ("cost",), [0.5]),
        (lambda x: {"cost": x > 0.4}, ("cost",), [1.0]),  # a flag
        (lambda x: {"costs": [abs(x), 2 * abs(x)]}, ("cost_0", "cost_1"), [0.5, 1.0]),
        (lambda x: {"costs": np.array([x, 0.0])}, ("cost_0", "cost_1"), [0.5, 0.0]),
        (lambda x: {"costs": {"far": x, "near": 0.1}}, ("far", "near"), [0.5, 0.1]),
        (lambda x: {"costs": [x, 3.0], "cost": 9.0}, ("cost_0", "cost_1"), [0.5, 3.0]),
        (lambda x: {"other": x}, (), []),
    ],
)
def test_costs_come_from_info_one_channel_for_each(
    info: Callable[[float], Info], names: tuple[str, ...], costs: list[float]
) -> None:
    env = walks(info=info)
    assert env.spec.cost_names == names
    step = env.step(push(env, 0.5))
    torch.testing.assert_close(step.cost, torch.tensor([costs, costs]))


def test_cost_keys_choose_the_entries_of_info() -> None:
    def make() -> Walk:
        return Walk(info=lambda x: {"slip": x, "cost": 9.0, "heat": 2.0})

    env = GymEnv(make, 1, cost_keys=["heat", "slip"])
    env.reset()
    assert env.spec.cost_names == ("heat", "slip")
    assert env.step(push(env, 0.5)).cost.tolist() == [[2.0, 0.5]]


def test_six_values_are_understood_and_the_time_limit_still_holds() -> None:
    env = make_env("gym:TestSixValues-v0", num_envs=2)
    env.reset()
    steps = [env.step(push(env, 0.5)) for _ in range(4)]
    assert env.spec.cost_names == ("cost",)
    assert [s.cost[0, 0].item() for s in steps] == [0.5, 1.0, 1.5, 2.0]
    assert [s.truncated.tolist() for s in steps] == [[False, False]] * 3 + [[True, True]]


def test_running_maximum_is_told_before_and_after_and_begins_anew() -> None:
    env = make_env("gym:TestWalk-v0", num_envs=1)
    env.reset()
    steps = [env.step(push(env, a)) for a in (1.0, -0.5, 0.75, -0.25, 0.5)]
    # x: 1, 0.5, 1.25, 1 (the time limit of 4), then 0.5 in a new episode
    assert [s.cost.item() for s in steps] == [1.0, 0.5, 1.25, 1.0, 0.5]
    assert [s.cost_max_before.item() for s in steps] == [0.0, 1.0, 1.0, 1.25, 0.0]
    assert [s.cost_max.item() for s in steps] == [1.0, 1.0, 1.25, 1.25, 0.5]
    assert [s.obs_cost_max.item() for s in steps] == [1.0, 1.0, 1.25, 0.0, 0.5]


@pytest.mark.parametrize(
    ("later", "complaint"),
    [
        ({}, "no cost 'far'"),
        ({"costs": None}, "no cost 'far'"),
        ({"costs": {"far": 0.0, "other": 0.0}}, "no cost 'near'"),
        ({"costs": {"far": 0.0}}, "no cost 'near'"),
        ({"costs": {"far": 0.0, "near": 0.0, "other": 0.0}}, "'other', which the trial step did"),
        ({"costs": {"far": 0.0, "near": NAN}}, "cost 'near' as nan"),
        ({"costs": {"far": -0.5, "near": 0.0}}, "cost 'far' as -0.5"),
        ({"costs": {"far": float("inf"), "near": 0.0}}, "cost 'far' as inf"),
        ({"costs": {"far": 1e39, "near": 0.0}}, "cost 'far' as 1e+39: costs are finite, also as"),
        ({"costs": {"far": 10**400, "near": 0.0}}, "cost 'far' as 1000"),
        ({"costs": {"far": "much", "near": 0.0}}, "cost 'far' as 'much'"),
    ],
)
def test_missing_nan_or_negative_cost_is_an_error_naming_world_and_key(
    later: Info, complaint: str
) -> None:
    env = walks(3, info=lambda x: {"costs": {"far": 0.0, "near": 0.0}} if x < 1 else later)
    with pytest.raises(ValueError, match="world 1 of gym:Walk") as caught:
        env.step(torch.tensor([[0.0], [1.0], [0.0]]))
    assert complaint in str(caught.value)
    with pytest.raises(RuntimeError, match="reset"):  # worlds out of step are not gone on with
        env.step(push(env, 0.0))


@pytest.mark.parametrize(
    ("costs", "complaint"),
    [
        ({"speed": 0.0, "far/off": 5.0}, "'far/off': give it a name without slashes"),
        ({1: 0.0, "1": 0.0}, "two constraints of the same name, \\('1', '1'\\)"),
    ],
)
def test_names_whose_metrics_would_overwrite_each_other_are_refused(
    costs: dict[Any, float], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        walks(2, info=lambda x: {"costs": costs})


def test_cost_that_the_trial_step_did_not_show_is_an_error() -> None:
    env = walks(2, info=lambda x: {"cost": 1.0} if x >= 1 else {})
    assert env.spec.num_costs == 0
    with pytest.raises(ValueError, match=r"world 0 .* 'cost', which the trial step did not"):
        env.step(push(env, 1.0))


@pytest.mark.parametrize("costs", [[], 0.5, "high"])
def test_costs_that_are_no_sequence_of_numbers_are_refused_at_once(costs: Any) -> None:
    with pytest.raises(ValueError, match="'costs' as"):
        walks(info=lambda x: {"costs": costs})


def test_a_constraint_with_a_line_break_in_its_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"calls a constraint 'a\\nb': give it a name of one line"):
        walks(info=lambda x: {"costs": {"a\nb": 0.0}})


# Episodes --------------------------------------------------------------------------------------


def test_final_obs_is_the_true_last_one_and_obs_begins_a_new_episode() -> None:
    env = walks(2, noise=0.01)
    last = env.reset(seed=3).obs
    for _ in range(10):
        step = env.step(torch.tensor([[1.0], [0.0]]))
        torch.testing.assert_close(step.final_obs, last + torch.tensor([[1.0], [0.0]]))
        if step.terminated[0]:
            break
        last = step.obs
    assert step.terminated.tolist() == [True, False] and not step.truncated.any()
    assert step.final_obs[0] > 2.9 and abs(step.obs[0]) < 0.1
    assert step.obs[1] == step.final_obs[1]


def test_steps_handed_out_are_never_changed_later() -> None:
    env = make_env("gym:TestWalk-v0", num_envs=2)
    env.reset()
    steps = [env.step(push(env, 0.5))]
    kept = {name: value.clone() for name, value in vars(steps[0]).items()}
    for _ in range(6):
        env.step(push(env, 1.0))
    for name, value in vars(steps[0]).items():
        assert torch.equal(value, kept[name]), name


def test_time_limit_of_the_registered_id_truncates_and_termination_wins() -> None:
    env = make_env("gym:TestWalk-v0", num_envs=2)
    env.reset()
    actions = torch.tensor([[0.8], [0.1]])
    steps = [env.step(actions) for _ in range(4)]  # world 0 reaches 3.2 in the step of the limit
    assert env.spec.max_episode_steps == 4
    assert steps[-1].terminated.tolist() == [True, False]
    assert steps[-1].truncated.tolist() == [False, True]


def test_time_limit_may_be_set_and_is_large_where_there_is_none() -> None:
    assert walks().spec.max_episode_steps == NO_LIMIT
    assert make_env("gym:TestWalk-v0", max_episode_steps=9).spec.max_episode_steps == 9
    wrapped = GymEnv(lambda: gymnasium.wrappers.TimeLimit(Walk(), 5), 1)
    assert wrapped.spec.max_episode_steps == 5


# Actions and observations ----------------------------------------------------------------------


def test_actions_are_stretched_to_the_bounds_of_the_action_space() -> None:
    low, high = np.array([[0.0, -3.0]], np.float32), np.array([[1.0, 5.0]], np.float32)
    made: list[Walk] = []

    def make() -> Walk:
        made.append(Walk(action_space=spaces.Box(low, high)))
        return made[-1]

    env = GymEnv(make, 3)
    env.reset()
    env.step(torch.tensor([[-1.0, 1.0], [0.0, 0.5], [7.0, -7.0]]))  # beyond 1: clipped
    got = [world.action.tolist() for world in made[1:]]
    assert env.spec.action_size == 2
    assert got == [[[0.0, 5.0]], [[0.5, 3.0]], [[1.0, -3.0]]]


@pytest.mark.parametrize(
    ("space", "complaint"),
    [
        (spaces.Box(-np.inf, np.inf, (1,)), "finite"),
        (spaces.Box(0.0, np.inf, (1,)), "finite"),
        (spaces.Discrete(3), "Box of floating point"),
        (spaces.Box(0, 5, (1,), np.int32), "Box of floating point"),
    ],
)
def test_action_space_that_cannot_be_reached_is_refused(
    space: gymnasium.Space, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        walks(action_space=space)


def test_bad_actions_are_refused_before_anything_is_stepped() -> None:
    env = walks(2)
    with pytest.raises(ValueError, match="shape"):
        env.step(torch.zeros(3, 1))
    with pytest.raises(ValueError, match="world 1 is not finite"):
        env.step(torch.tensor([[0.0], [NAN]]))
    with pytest.raises(TypeError, match="floating point"):
        env.step(torch.zeros(2, 1, dtype=torch.long))
    assert env.step(push(env, 0.5)).obs.tolist() == [[0.5], [0.5]]


def test_dict_observations_are_flattened_with_a_block_for_each_entry() -> None:
    space = spaces.Dict({"image": spaces.Box(-9, 9, (2, 2)), "mode": spaces.Discrete(3)})
    env = walks(1, space=space, observe=lambda x: {"image": np.full((2, 2), x), "mode": 2})
    assert env.spec.obs_size == 7
    assert dict(env.spec.blocks) == {"image": slice(0, 4), "mode": slice(4, 7)}
    assert env.step(push(env, 0.5)).obs.tolist() == [[0.5] * 4 + [0.0, 0.0, 1.0]]


def test_observation_space_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="no fixed size"):
        walks(space=spaces.Sequence(spaces.Discrete(2)), observe=lambda x: (0,))


def test_observation_of_another_shape_than_its_space_is_an_error() -> None:
    env = walks(2, observe=lambda x: np.zeros(1 if x < 1 else 2))
    with pytest.raises(ValueError, match=r"world 1 .* shape"):
        env.step(torch.tensor([[0.0], [1.0]]))


# Faults and errors -----------------------------------------------------------------------------


def test_non_finite_observation_is_a_fault_charged_the_largest_cost_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = walks(
        2,
        info=lambda x: {"cost": 2 * abs(x)},
        observe=lambda x: np.array([x if x < 2 else NAN]),
    )
    env.step(push(env, 1.0))
    with caplog.at_level(logging.WARNING, "statewise"):
        step = env.step(torch.tensor([[1.0], [0.5]]))
    assert step.sim_fault.tolist() == step.terminated.tolist() == [True, False]
    assert step.cost.tolist() == [[3.0], [3.0]]  # world 0: the largest of any world so far
    assert step.reward.tolist() == [0.0, 0.5]
    assert step.final_obs.tolist() == [[1.0], [1.5]]  # the last one that was finite
    assert step.obs.tolist() == [[0.0], [1.5]]
    assert env.faults == 1 and "world 0" in caplog.text


def test_fault_before_any_cost_is_charged_the_ceiling() -> None:
    env = walks(1, info=lambda x: {"cost": 0.0}, observe=lambda x: np.array([x if x < 1 else NAN]))
    assert env.spec.cost_ceiling == (1.0,)
    assert env.step(push(env, 1.0)).cost.tolist() == [[1.0]]


@pytest.mark.parametrize("ceiling", [0.0, NAN, float("inf"), 1e39])
def test_a_ceiling_that_no_fault_could_be_charged_is_refused(ceiling: float) -> None:
    with pytest.raises(ValueError, match="cost_ceiling is"):
        GymEnv(Walk, 1, cost_ceiling=ceiling)


def test_non_finite_first_observation_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"trial step .* not finite"):
        GymEnv(lambda: Walk(observe=lambda x: np.array([NAN])), 1)
    env = GymEnv(lambda: Walk(noise=1.0, observe=lambda x: np.array([x if x < 1 else NAN])), 20)
    with pytest.raises(ValueError, match=r"world \d+ of gym:Walk: reset.* not finite"):
        env.reset()


def test_errors_of_an_environment_come_through_with_the_number_of_the_world() -> None:
    def info(x: float) -> Info:
        if x > 1:
            raise KeyError("broken sensor")
        return {"cost": 0.0}

    env = walks(4, info=info)
    env.step(push(env, 0.5))
    with pytest.raises(RuntimeError, match=r"world 2 .* step\(\): KeyError") as caught:
        env.step(torch.tensor([[0.0], [0.0], [1.0], [0.0]]))
    assert isinstance(caught.value.__cause__, KeyError)


def test_wrong_number_of_values_and_shared_instances_are_refused() -> None:
    class Old(Walk):
        def step(self, action: Any) -> Any:
            return super().step(action)[:4]

    with pytest.raises(ValueError, match="4 values"):
        GymEnv(Old, 1)
    shared = Walk()
    with pytest.raises(ValueError, match="same instance"):
        GymEnv(lambda: shared, 2)


def test_unknown_ids_and_modules_are_named_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"'NoSuchWalk-v0'.*imports='my_module'"):
        make_env("gym:NoSuchWalk-v0")
    with pytest.raises(ValueError, match="no module 'no_such_module'"):
        make_env("gym:TestWalk-v0", modules=("no_such_module",))
    with pytest.raises(ValueError, match="no module 'no_such_module'"):
        make_env("gym:no_such_module:TestWalk-v0")


@pytest.mark.parametrize("named_by", ["modules", "id"])
def test_modules_of_the_current_folder_are_imported(
    named_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, module = f"Test-{named_by}-v0", f"walk_of_{named_by}"
    (tmp_path / f"{module}.py").write_text(
        f"import gymnasium\ngymnasium.register({id!r}, entry_point={__name__!r} + ':Walk')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # undoes what is added, too
    in_id = named_by == "id"
    env = make_env(f"gym:{module}:{id}") if in_id else make_env(f"gym:{id}", modules=(module,))
    assert env.spec.name == f"gym:{id}"


# Seeds and saving ------------------------------------------------------------------------------


def test_same_seed_gives_the_same_worlds_and_each_world_its_own() -> None:
    first, second = (walks(3, noise=1.0) for _ in range(2))
    a, b = first.reset(seed=5).obs, second.reset(seed=5).obs
    assert torch.equal(a, b) and len(a.unique()) == 3
    assert torch.equal(trajectory(first, 30), trajectory(second, 30))
    assert not torch.equal(first.reset().obs, a)  # goes on with its generators
    assert torch.equal(first.reset(seed=5).obs, a)
    assert not torch.equal(first.reset(seed=6).obs, a)


def test_no_world_of_an_evaluation_begins_like_one_of_the_training() -> None:
    env = walks(300, noise=1.0)
    trained, fresh = (env.reset(seed=seed).obs[:, 0].tolist() for seed in (7, _FRESH + 7))
    assert not set(trained) & set(fresh)


def test_environment_that_saves_itself_goes_on_exactly(tmp_path: Path) -> None:
    env = make_env("gym:TestKept-v0", num_envs=3, seed=2)
    env.reset()
    trajectory(env, 5)
    torch.save(env.state_dict(), tmp_path / "state")
    expected = trajectory(env, 30)  # several episodes: the generators matter, and the time limit

    other = make_env("gym:TestKept-v0", num_envs=3, seed=99)
    fresh = other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    assert other.exact_resume and fresh is None
    assert torch.equal(trajectory(other, 30), expected)
    assert other.state_dict()["resets"] == env.state_dict()["resets"]


def test_environment_that_cannot_save_itself_begins_new_episodes_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = walks(2, noise=0.5)
    first = env.reset(seed=4)
    trajectory(env, 5)
    state = env.state_dict()
    starts = []
    for _ in range(2):
        other = GymEnv(lambda: Walk(noise=0.5), 2)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "statewise"):
            step = other.load_state_dict(state)
        assert not other.exact_resume and step is not None
        assert [r.message.count("cannot be restored exactly") for r in caplog.records] == [1]
        starts.append(step.obs)
    assert torch.equal(*starts)  # a resume can be repeated,
    assert not torch.equal(starts[0], first.obs)  # but is no rerun of the beginning
    torch.testing.assert_close(other.step(push(other, 0.5)).final_obs, starts[1] + 0.5)


def test_wrapper_with_a_memory_of_its_own_makes_a_resume_inexact() -> None:
    def remembering() -> gymnasium.Env:
        return gymnasium.wrappers.FrameStackObservation(Kept(), 2)

    assert not GymEnv(remembering, 1).exact_resume
    assert GymEnv(lambda: gymnasium.wrappers.TimeLimit(Kept(), 5), 1).exact_resume


def test_set_state_of_another_meaning_is_not_called() -> None:
    class Other(Kept):
        def set_state(self, position: float, speed: float) -> None:  # type: ignore[override]
            raise AssertionError

    assert not GymEnv(Other, 1).exact_resume


def test_state_of_other_worlds_is_refused() -> None:
    state = walks(2).state_dict()
    with pytest.raises(ValueError, match="make it alike"):
        walks(3).load_state_dict(state)


# Training --------------------------------------------------------------------------------------


def example() -> type[gymnasium.Env]:
    spec = importlib.util.spec_from_file_location(
        "own_environment", EXAMPLES / "own_environment.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DockingCart


@pytest.mark.parametrize("name", ["scpo", "trpo"])
def test_algorithms_train_on_an_imported_environment(name: str) -> None:
    env = GymEnv(example(), num_envs=4, max_episode_steps=50)
    kind = get_algorithm(name)
    algo = kind(env.spec, kind.settings_class(critic_iterations=3), epochs=2, seed=0)
    collector = Collector(env, algo, seed=0)
    before = [p.detach().clone() for p in algo.policy.parameters()]
    for _ in range(2):
        rollout, episodes = collector.collect(100)
        metrics = algo.update(rollout)
        assert metrics["update/skipped"] == 0
        assert len(episodes) >= 8
    assert env.spec.cost_names == ("speed", "wall") and env.exact_resume
    assert any(not torch.equal(a, b) for a, b in zip(before, algo.policy.parameters(), strict=True))


def test_constrained_method_refuses_an_environment_without_costs() -> None:
    env = walks(2, info=lambda x: {})
    kind = get_algorithm("scpo")
    with pytest.raises(ValueError, match="gym:Walk has none"):
        kind(env.spec, kind.settings_class(), epochs=2, seed=0)


def test_the_example_keeps_its_constraints_apart() -> None:
    env = GymEnv(example(), num_envs=1)
    env.reset(seed=0)
    speeds = [env.step(torch.ones(1, 1)).cost.squeeze(0).tolist() for _ in range(7)]
    # 0.1 m/s more at each step, up to 0.7: 0.2 above the limit; the wall is still far
    np.testing.assert_allclose([s[0] for s in speeds], [0, 0, 0, 0, 0, 0.1, 0.2], atol=1e-6)
    assert all(s[1] == 0.0 for s in speeds)
