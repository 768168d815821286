"""The settings that several algorithms share. Each algorithm adds its own in its file."""

import math
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from statewise.core.line_search import RewardTest
from statewise.core.mmdp import Kind
from statewise.settings import asked, check, number, shown
from statewise.text import several

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Shared by all algorithms. The defaults are the paper's where its table has one, except for
    `scale_inputs` and `critic_batch`."""

    hidden: tuple[int, ...] = number((64, 64), least=1)
    """Widths of the hidden layers of every network."""
    scale_inputs: bool = True
    """Normalise observations by their mean and standard deviation over all data so far. The paper does
    not normalise them."""
    log_std: float = number(-0.5, finite=True)
    """Logarithm of the policy's standard deviation at the start."""
    gamma: float = number(0.99, least=0, most=1)
    """Discount of the reward."""
    lam: float = number(0.97, least=0, most=1)
    """Decay of the generalised advantage estimate of the reward."""
    critic_iterations: int = number(80, least=1)
    """Adam steps for each critic in an epoch."""
    critic_lr: float = number(1e-3, above=0)
    """Learning rate of the critics."""
    critic_batch: int = number(4096, least=0)
    """Rows in a critic step, drawn anew each time. 0 uses all rows, as the paper does."""
    least_noise: float = number(0.2, least=0, finite=True)
    """Smallest standard deviation of the policy's actions in training. A trust region moves the actions
    by a share of it, so a policy without noise no longer learns. `final_noise` may ask for less."""
    final_noise: float = number(0.0, least=0, finite=True)
    """Largest standard deviation of the policy's actions at the end of training. Over the last third of
    the epochs a larger one shrinks to it, so that training and mean actions agree. 0 does not limit
    it."""

    def __post_init__(self) -> None:
        check(self)
        if not self.hidden:
            raise ValueError("hidden is (): give at least one width")
        if self.least_noise and math.exp(self.log_std) < self.least_noise:
            raise ValueError(
                f"log_std is {self.log_std}, a standard deviation of {math.exp(self.log_std):.3g} at the "
                f"start: give {asked('least_noise')} of no more than that, now {self.least_noise}"
            )
        if self.critic_batch == 1:
            raise ValueError("critic_batch is 1: give 0 (all rows) or at least 2")


@dataclass(frozen=True)
class LimitSettings(Settings):
    """Shared by the methods that keep a cost below a limit."""

    cost_limit: tuple[float, ...] = number((0.0,), finite=True)
    """Limit of each constraint. One number applies to all."""
    allow_negative_limit: bool = False
    """Accept a limit below zero, which no policy can meet (the published SCPO code ran -0.03)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cost_limit:
            raise ValueError(
                "cost_limit is (): give one number for each constraint, or one for all"
            )
        if min(self.cost_limit) < 0.0 and not self.allow_negative_limit:
            raise ValueError(
                f"cost_limit is {shown(self.cost_limit)}: give 0 or more, or set allow_negative_limit; "
                f"no policy has a cost below 0"
            )

    def limits(self, num_costs: int) -> Tensor:
        """[m] float64"""
        return torch.tensor(spread("cost_limit", self.cost_limit, num_costs), dtype=torch.float64)

    def violation(self, J: Tensor) -> Tensor:
        """[m] float64: by how much the costs J `[m]` of an episode exceed their limits"""
        return J - self.limits(len(J))


@dataclass(frozen=True)
class CostSettings(LimitSettings):
    """Shared by the methods that learn a critic of the cost."""

    cost_gamma: float = number(0.99, least=0, most=1)
    """Discount of the cost."""
    cost_lam: float = number(0.97, least=0, most=1)
    """Decay of the generalised advantage estimate of the cost."""


@dataclass(frozen=True)
class TrustRegionSettings(Settings):
    """Shared by the methods that bound the KL divergence of an update. The paper does not state the
    settings of its conjugate gradient."""

    target_kl: float = number(0.02, above=0)
    """Size of the trust region: mean KL divergence of an update."""
    final_radius: float = number(1.0, above=0, most=1)
    """Share of the trust region's radius, the root of its size, in the last epoch. The radius shrinks
    linearly. 1 keeps it constant, as the paper does."""
    backtrack_steps: int = number(100, least=1)
    """Most candidates of the line search."""
    backtrack_coefficient: float = number(0.8, above=0, below=1)
    """Each candidate takes this fraction of the one before."""
    cg_iterations: int = number(20, least=1)
    """Most iterations of the conjugate gradient."""
    cg_damping: float = number(0.1, least=0)
    """Added to the diagonal of the Fisher matrix."""
    fisher_states: int = number(8192, least=0)
    """Most states of the batch, drawn at random, that the Fisher matrix averages over. 0 uses all."""


@dataclass(frozen=True)
class ConstrainedSettings(CostSettings, TrustRegionSettings):
    """Shared by the methods that take a constrained step: CPO, PCPO, SCPO and ASCPO."""

    constraint_kind: tuple[Kind, ...] = ("sum",)
    """What each constraint bounds, one for all or one for each. maximum: the largest cost of an episode,
    on average. sum: the sum of its costs, on average. probability: the probability that its largest
    cost exceeds `threshold`. deviation: the mean of its largest cost plus kappa standard deviations."""
    threshold: tuple[float, ...] = number((0.0,), least=0, finite=True)
    """Cost above which an episode counts for the kind `probability`. One for all or one for each."""
    kappa: float = number(3.0, least=0, finite=True)
    """Standard deviations that the kind `deviation` adds to the mean."""
    exceed_probability: float = number(0.0, least=0, below=1)
    """Choose kappa by Cantelli's inequality, such that the largest cost of an episode exceeds the limit
    with at most this probability. 0 uses `kappa`."""
    policy_sees_maximum: bool = True
    """Whether the policy observes the running maxima too, or only the critics do. A policy without them
    needs no measured costs once it is trained."""
    cost_lam: float = number(0.8, least=0, most=1)
    """Decay of the generalised advantage estimate of the cost. Costs are rare. A larger decay
    has more noise, a smaller one relies on the cost critic."""
    cost_critic_lr: float = number(3e-4, above=0)
    """Learning rate of the cost critic. A lower one averages over more epochs and does not overfit the
    few costs of a batch."""
    first_cost: float = number(0.05, least=0, finite=True)
    """What a cost critic with a Softplus predicts at the start, at most a sixth of the largest step cost.
    It should expect a little cost everywhere. 0 keeps the initial value of 0.69, as the paper does."""
    cost_feedback: float = number(0.05, least=0, most=1)
    """Gain of the feedback that sets how much of a step each constraint asks for. The share grows while
    the true cost, without a margin, is above its limit, and shrinks while it is below. 0 asks for
    exactly the violation, as the paper does."""
    tightening: float = number(1.0, least=0, most=4)
    """How late the limit of the feedback tightens: it is the wanted one divided by the share of the steps
    that are done, to this power. The robot learns its task first and safety on the way. 0 applies the
    wanted limit from the start."""
    tolerance: float = number(0.005, least=0, below=1)
    """Share of episodes that may violate a limit of 0. The feedback asks for no more than that. No batch
    shows that a cost never occurs."""
    recovery_fraction: float = number(0.97, above=0, most=1)
    """Most of the trust region's radius that violated constraints may ask for together. The reward keeps
    the rest. 1 is the paper's value. The reward may then not improve."""
    reward_test: RewardTest = "reference"
    """When a step may lower the reward. "paper": only if no step is feasible. "reference", as the
    published code: while a limit is violated. "always" tests every step. "never" tests none."""
    cost_reduction: float = number(0.0, least=0)
    """Decrease of the surrogate cost that a violated constraint must see to accept a step."""
    rescue: bool = True
    """If no part of a step is accepted, try the step that lowers the violated costs alone."""
    subsample: Literal["none", "resample", "once", "weighted"] = "none"
    """How the cost critic is fitted if most targets are zero. "none": to all rows. "resample", as in
    SCPO's paper: to as many zeros as positive targets, drawn in each step. "once": drawn once in an
    epoch. "weighted": to all rows with the same effect. All but "none" predict too much cost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.constraint_kind or not self.threshold:
            raise ValueError(
                "constraint_kind and threshold need one value for all, or one for each"
            )
        if min(self.cost_limit) < 0.0:
            self._without_feedback("cost_limit", shown(self.cost_limit))
        several = {
            name: len(getattr(self, name))
            for name in ("constraint_kind", "threshold", "cost_limit")
            if len(getattr(self, name)) > 1
        }
        if len(set(several.values())) > 1:
            given = ", ".join(f"{n} for {name}" for name, n in several.items())
            raise ValueError(f"{given}: give one value for each constraint, or one for all")
        count = max(several.values(), default=1)
        limits = spread("cost_limit", self.cost_limit, count)
        for kind, limit in zip(self.kinds(count), limits, strict=True):
            if kind == "probability" and not 0.0 < limit < 1.0:
                raise ValueError(
                    f"cost_limit is {limit} for the kind probability: give a probability above 0 and "
                    f"below 1, such as 0.01; no number of episodes can show that something never happens"
                )

    def _without_feedback(self, name: str, value: object) -> None:
        """Refuse a setting that changes the violation if no constraint asks for its violation."""
        if self.cost_feedback:
            raise ValueError(
                f"{name} is {value}, which has no effect with feedback: it changes the violation, and "
                f"the feedback does not look at it. Add {asked('cost_feedback', 0)}"
            )

    def kinds(self, num_costs: int) -> tuple[Kind, ...]:
        """The kind of each constraint."""
        return spread("constraint_kind", self.constraint_kind, num_costs)

    @property
    def deviations(self) -> float:
        """Kappa, or the one that Cantelli's inequality gives for `exceed_probability`."""
        p = self.exceed_probability
        return math.sqrt(1.0 / p - 1.0) if p else self.kappa


def spread(name: str, given: tuple[T, ...], num_costs: int) -> tuple[T, ...]:
    """One value for each constraint, from one for all or one for each."""
    values = given * num_costs if len(given) == 1 else given
    if len(values) != num_costs:
        raise ValueError(
            f"{name} has {several(len(values), 'value')} for {several(num_costs, 'constraint')}: give "
            f"one for each, or one for all"
        )
    return values
