"""Running maxima and increments by hand; episode estimates on a process whose answer is known."""

from dataclasses import dataclass

import pytest
import torch

from statewise.core.mmdp import (
    episode_age,
    episode_mean,
    increments,
    running_maximum,
)


def rows(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)[:, None, None]


def flags(*numbers):
    return torch.tensor(numbers, dtype=torch.bool)[:, None]


# --- running maxima ----------------------------------------------------------------------------


def test_maximum_and_increments_by_hand():
    cost, ended = rows(0, 2, 1, 5, 3, 1), flags(0, 0, 0, 1, 0, 0)
    before, after = running_maximum(cost, ended)
    assert before.flatten().tolist() == [0, 0, 2, 2, 0, 3]
    assert after.flatten().tolist() == [0, 2, 2, 5, 3, 3]
    assert increments(cost, before).flatten().tolist() == [0, 2, 0, 3, 3, 0]


def test_increments_of_each_episode_sum_to_its_largest_cost():
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(40, 6, 3, generator=generator, dtype=torch.float64)
    ended = torch.rand(40, 6, generator=generator) < 0.2
    ended[-1] = True
    before, after = running_maximum(cost, ended)
    step = increments(cost, before)
    assert (step >= 0).all()
    torch.testing.assert_close(before + step, after)
    for world in range(6):
        start = 0
        for end in torch.nonzero(ended[:, world]).flatten().tolist():
            episode = slice(start, end + 1)
            largest = cost[episode, world].amax(0)
            torch.testing.assert_close(step[episode, world].sum(0), largest)
            torch.testing.assert_close(after[end, world], largest)
            start = end + 1


@pytest.mark.parametrize("smallest", [-3.0, float("nan")])
def test_costs_that_are_negative_or_not_numbers_are_refused(smallest):
    with pytest.raises(ValueError, match=f"smallest cost is {smallest}: give costs of 0 or more"):
        running_maximum(rows(1, smallest, 0.5), flags(0, 0, 0))


def test_age_counts_steps_within_each_episode():
    ended = flags(0, 1, 0, 0, 1, 0)
    assert episode_age(ended, torch.tensor([3])).flatten().tolist() == [3, 4, 0, 1, 2, 0]


# --- episode estimates -------------------------------------------------------------------------
#
# A process without actions: each step ends the episode with probability END, at the latest after
# CAP steps, and costs one of LEVELS. The value of (age, maximum so far) follows by induction.

END, CAP = 0.05, 60
LEVELS = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
CHANCE = torch.tensor([0.95, 0.03, 0.02], dtype=torch.float64)


def exact_value():
    """[CAP + 1, 3]: expected further increments at each age and level of the maximum."""
    value = torch.zeros(CAP + 1, 3, dtype=torch.float64)
    for age in range(CAP - 1, -1, -1):
        for now in range(3):
            for cost in range(3):
                top = max(now, cost)
                gain = LEVELS[top] - LEVELS[now]
                value[age, now] += CHANCE[cost] * (gain + (1 - END) * value[age + 1, top])
    return value


VALUE = exact_value()
TRUTH = float(VALUE[0, 0])
MEAN_LENGTH = sum((1 - END) ** k for k in range(CAP))


@dataclass
class World:
    """A batch of worlds that keeps running from rollout to rollout."""

    generator: torch.Generator
    age: torch.Tensor
    top: torch.Tensor

    @staticmethod
    def reset(count, seed=0):
        zero = torch.zeros(count, dtype=torch.int64)
        return World(torch.Generator().manual_seed(seed), zero, zero.clone())

    def rollout(self, steps):
        count = len(self.age)
        start = self.age.clone()
        ended = torch.rand(steps, count, generator=self.generator) < END
        cost = torch.multinomial(CHANCE, steps * count, True, generator=self.generator)
        cost = cost.view(steps, count)
        value, after, maximum, signal = (torch.zeros(steps, count, 1).double() for _ in range(4))
        for t in range(steps):
            ended[t] |= self.age == CAP - 1
            value[t, :, 0] = VALUE[self.age, self.top]
            top = torch.maximum(self.top, cost[t])
            signal[t, :, 0] = LEVELS[top] - LEVELS[self.top]
            maximum[t, :, 0] = LEVELS[top]
            after[t, :, 0] = VALUE[self.age + 1, top]
            self.age = (self.age + 1).masked_fill(ended[t], 0)
            self.top = top.masked_fill(ended[t], 0)
        return signal, ended, episode_age(ended, start), value, after, maximum


SHAPES = [(30, 1000), (4096, 7)]


def finished_mean(total, ended):
    """The plain average over the episodes that end in the rollout."""
    return total[ended].sum(0) / ended.sum()


def stationary_rollouts(worlds, steps, count=16):
    world = World.reset(worlds)
    world.rollout(200)
    return [world.rollout(steps) for _ in range(count)]


def assert_unbiased(estimates, truth):
    estimates = torch.tensor(estimates, dtype=torch.float64)
    error = float(estimates.std() / len(estimates) ** 0.5)
    assert error < 0.03 * truth, "too noisy to say anything"
    assert abs(float(estimates.mean()) - truth) < 4 * error


@pytest.mark.parametrize(("worlds", "steps"), SHAPES)
@pytest.mark.parametrize(
    "scale", [0.0, 1.0, 2.0], ids=["no value", "exact value", "twice the value"]
)
def test_episode_mean_is_right_for_any_value_function_and_number_of_worlds(worlds, steps, scale):
    estimates, seen, lengths = [], [], []
    for signal, ended, age, value, after, _ in stationary_rollouts(worlds, steps):
        values = {} if scale == 0.0 else dict(value=scale * value, next_value=scale * after)
        estimate = episode_mean(signal, ended, age, **values)
        estimates.append(float(estimate.mean))
        lengths.append(estimate.length)
        seen.append(float(estimate.seen))
    assert_unbiased(estimates, TRUTH)
    assert_unbiased(seen, TRUTH)
    assert_unbiased(lengths, MEAN_LENGTH)


def test_right_after_a_reset_finished_episodes_are_the_short_ones():
    finished, estimated = [], []
    for seed in range(16):
        signal, ended, age, value, after, maximum = World.reset(4096, seed).rollout(7)
        finished.append(float(finished_mean(maximum, ended)))
        estimated.append(
            float(episode_mean(signal, ended, age, value=value, next_value=after).mean)
        )
    assert sum(finished) / 16 < 0.5 * TRUTH
    assert_unbiased(estimated, TRUTH)


def test_right_after_a_reset_episode_mean_is_the_mean_of_started_episodes():
    signal, ended, age, value, after, _ = World.reset(256).rollout(12)
    # whatever the value function, as long as it is the same one at every state
    value, after = 3 * value + 0.1, torch.where(ended[..., None], 0.0, 3 * after + 0.1)
    estimate = episode_mean(signal, ended, age, value=value, next_value=after)
    started = (signal.sum((0, 1)) + after[-1].sum(0)) / (age == 0).sum()
    torch.testing.assert_close(estimate.mean, started)


def test_episodes_alive_in_a_short_rollout_are_the_long_ones():
    _, ended, _, _, after, maximum = stationary_rollouts(4096, 7, count=1)[0]
    alive = ~ended[-1]
    # largest cost so far, plus what is expected to come, of the episodes that run at the cut
    expected = float((maximum[-1] + after[-1])[alive].mean())
    assert expected > 1.25 * TRUTH


def test_finished_episodes_are_fair_once_ages_have_spread():
    for worlds, steps in SHAPES:
        rollouts = stationary_rollouts(worlds, steps)
        assert_unbiased([float(finished_mean(r[5], r[1])) for r in rollouts], TRUTH)


def test_second_rollout_after_a_reset_is_not_blown_up_by_the_few_episodes_that_start():
    # Ages are 7..13: dividing the errors of 28 672 rows by the few starts would multiply a wrong
    # value function by the horizon. No episode is older than 14 steps, and that bounds it.
    world = World.reset(4096)
    world.rollout(7)
    signal, ended, age, value, after, _ = world.rollout(7)
    estimate = episode_mean(signal, ended, age, value=1.2 * value, next_value=1.2 * after)
    assert estimate.length <= 14
    assert 0.9 * TRUTH < float(estimate.mean) < 1.25 * TRUTH


def test_rollout_in_which_nothing_starts_or_ends_needs_a_start_value_and_no_division():
    signal = torch.full((3, 4, 2), 0.01)
    ended = torch.zeros(3, 4, dtype=torch.bool)
    age = episode_age(ended, torch.full((4,), 7))
    value = torch.full((3, 4, 2), 0.5)
    with pytest.raises(ValueError, match="none of 12 rows starts an episode"):
        episode_mean(signal, ended, age, value=value, next_value=value)
    estimate = episode_mean(
        signal, ended, age, value=value, next_value=value, start_value=torch.full((5, 2), 0.6)
    )
    # ages reach 9, so an episode is taken to last 10 steps: 0.6 + 10 · 0.01
    assert estimate.length == 10
    torch.testing.assert_close(estimate.mean, torch.full((2,), 0.7, dtype=torch.float64))


def test_mean_of_whole_episodes_is_their_plain_average():
    # two episodes, of sums 3 and 4, that fill the rollout exactly
    signal, ended = rows(1, 2, 0, 4), flags(0, 1, 0, 1)
    age = episode_age(ended, torch.tensor([0]))
    assert episode_mean(signal, ended, age).mean.tolist() == [3.5]


@pytest.mark.parametrize("rows", [57, 69, 113])
def test_rounding_makes_no_episode_longer_than_the_longest(rows: int):
    # 57 / (57 / 100) is more than 100, and a mean above the time limit would end a run.
    age = torch.full((1, rows), 99)
    ended = torch.zeros(1, rows, dtype=torch.bool)
    assert episode_mean(torch.zeros(1, rows, 1), ended, age).length == 100.0
