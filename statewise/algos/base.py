"""What the algorithms share: settings, networks, acting, critics, state. Not how they improve."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from statewise.algos.estimates import Batch, CostSignal, estimate
from statewise.nets import GaussianPolicy, mlp
from statewise.types import Act, EnvSpec, Rollout, Step

Metrics = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Shared by all nine; the defaults are those of the paper's table of hyper-parameters."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of every network."""
    log_std: float = -0.5
    """Logarithm of the policy's standard deviation at the start."""
    gamma: float = 0.99
    """Discount of the reward."""
    lam: float = 0.97
    """Decay of the generalised advantage estimate of the reward."""
    target_kl: float = 0.02
    """Size of the trust region: mean KL divergence of an update."""
    backtrack_steps: int = 100
    """Most candidates of the line search."""
    backtrack_coefficient: float = 0.8
    """Each candidate takes this fraction of the one before."""
    cg_iterations: int = 20
    """Most iterations of the conjugate gradient."""
    cg_damping: float = 0.1
    """Added to the diagonal of the Fisher matrix."""
    fisher_states: int = 8192
    """States, evenly spaced in the batch, that the Fisher matrix averages over; 0 takes all."""
    critic_iterations: int = 80
    """Adam steps for each critic in an epoch."""
    critic_lr: float = 1e-3
    """Learning rate of the critics."""
    critic_batch: int = 4096
    """Rows in a critic step, drawn anew each time; 0 takes all, as the paper does."""

    def __post_init__(self) -> None:
        _require(bool(self.hidden) and min(self.hidden, default=0) > 0, "hidden", self.hidden,
                 "give at least one positive width")  # fmt: skip
        for name in ("gamma", "lam", "backtrack_coefficient"):
            value = getattr(self, name)
            _require(0.0 <= value <= 1.0, name, value, "give a number from 0 to 1")
        for name in ("target_kl", "critic_lr"):
            value = getattr(self, name)
            _require(value > 0.0, name, value, "give a number above 0")
        for name in ("backtrack_steps", "cg_iterations", "critic_iterations"):
            value = getattr(self, name)
            _require(value >= 1, name, value, "give at least 1")
        for name in ("cg_damping", "fisher_states", "critic_batch"):
            value = getattr(self, name)
            _require(value >= 0, name, value, "give 0 or more")


@dataclass(frozen=True)
class CostSettings(Settings):
    """Shared by the methods that keep a cost below a limit."""

    cost_limit: tuple[float, ...] = (0.0,)
    """Limit of each constraint; one number serves all."""
    allow_negative_limit: bool = False
    """Accept a limit below zero, which no policy can meet (the published SCPO code ran -0.03)."""
    cost_gamma: float = 0.99
    """Discount of the cost."""
    cost_lam: float = 0.97
    """Decay of the generalised advantage estimate of the cost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.cost_limit, default=0.0) < 0.0 and not self.allow_negative_limit:
            raise ValueError(
                f"cost_limit is {self.cost_limit}: costs are never negative, so no policy meets it. "
                f"Give 0 or more, or say allow_negative_limit"
            )
        for name in ("cost_gamma", "cost_lam"):
            value = getattr(self, name)
            _require(0.0 <= value <= 1.0, name, value, "give a number from 0 to 1")

    def limits(self, num_costs: int) -> Tensor:
        """[m] float64"""
        given = self.cost_limit * num_costs if len(self.cost_limit) == 1 else self.cost_limit
        if len(given) != num_costs:
            raise ValueError(
                f"cost_limit has {len(given)} numbers for {num_costs} constraints: give one for "
                f"each, or one for all"
            )
        return torch.tensor(given, dtype=torch.float64)


class Algorithm:
    """Acts, and improves its policy from rollouts. Knows neither environment nor logger.

    A method says which cost it learns from (`cost_signal`) and how it improves (`improve`).
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = Settings
    constrained: ClassVar[bool] = True
    """Needs an environment with costs."""
    sees_maximum: ClassVar[bool] = False
    """Networks read the running maximum M beside the observation (the Maximum MDP)."""
    positive_costs: ClassVar[bool] = False
    """The cost critic ends in a Softplus."""

    def __init__(
        self, spec: EnvSpec, settings: Settings, epochs: int, seed: int, device: str = "cpu"
    ) -> None:
        if self.constrained and spec.num_costs == 0:
            raise ValueError(
                f"{self.name} keeps costs below a limit, and {spec.name} has none: use trpo, or an "
                f"environment that reports a cost"
            )
        self.spec, self.settings, self.epochs = spec, settings, epochs
        self.device = torch.device(device)
        self.epoch = 0
        self.skipped = 0
        """Updates left out because something was not finite."""
        self.inputs = spec.obs_size + (spec.num_costs if self.sees_maximum else 0)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        """For everything drawn while updating."""
        self.start_inputs: Tensor | None = None
        """Start states of the first rollout: their values stand in where no episode starts."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = GaussianPolicy(
                self.inputs, spec.action_size, settings.hidden, settings.log_std
            ).to(self.device)
            self.value = mlp(self.inputs, settings.hidden, 1).to(self.device)
            self.cost_value: nn.Module | None = None
            if self.cost_signal is not None:
                self.cost_value = mlp(
                    self.inputs, settings.hidden, spec.num_costs, self.positive_costs
                ).to(self.device)
            self.build()
        self.optimizers = {
            name: torch.optim.Adam(module.parameters(), self.learning_rate(name), fused=True)
            for name, module in self.modules().items()
            if name != "policy"
        }

    # What a method fills in ----------------------------------------------------------------------

    @property
    def cost_signal(self) -> CostSignal | None:
        """The cost the method learns from, if any."""
        return None

    def build(self) -> None:
        """Make the networks that only this method has (as attributes named in `extra_modules`)."""

    def learning_rate(self, name: str) -> float:
        """Of the network's Adam."""
        return self.settings.critic_lr

    def extra_modules(self) -> dict[str, nn.Module]:
        return {}

    def improve(self, batch: Batch) -> Metrics:
        """One update of policy and critics from a batch."""
        raise NotImplementedError

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        """What is executed instead of the proposed action `[B, a]`."""
        return action

    def extra_state(self) -> dict[str, Any]:
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        pass

    # Acting and updating -------------------------------------------------------------------------

    def observe(self, obs: Tensor, cost_max: Tensor) -> Tensor:
        """Network inputs `[..., k]` from observations `[..., n]` and maxima `[..., m]`."""
        return torch.cat([obs, cost_max], dim=-1) if self.sees_maximum else obs

    @torch.no_grad()
    def act(self, step: Step, generator: torch.Generator | None) -> Act:
        """Actions for every world: sampled, or the mean where no generator is given."""
        inputs = self.observe(step.obs, step.obs_cost_max)
        action = self.policy(inputs) if generator is None else self.policy.sample(inputs, generator)
        return Act(action, self.correct(step, inputs, action))

    def update(self, rollout: Rollout) -> Metrics:
        """Learn from a rollout; returns metrics. Non-finite data never reach the weights."""
        if self.start_inputs is None:
            first = rollout.age == 0
            inputs = self.observe(rollout.obs[first], rollout.cost_max_before[first])
            self.start_inputs = inputs[:4096].clone()
        self.epoch += 1
        batch = estimate(self, rollout)
        broken = batch.non_finite()
        if broken:
            self.skipped += 1
            return {"skipped_updates": self.skipped, "update_skipped": 1.0}
        metrics = self.improve(batch)
        return {**batch.metrics(self.spec.cost_names), **metrics, "skipped_updates": self.skipped}

    # Critics -------------------------------------------------------------------------------------

    def fit_value(self, batch: Batch) -> Metrics:
        """Regress V on the returns."""
        loss = self.fit("value", batch.inputs, batch.target.unsqueeze(1))
        return {"value_loss": loss}

    def fit_cost_value(self, batch: Batch) -> Metrics:
        """Regress the cost critic on its returns."""
        return {"cost_value_loss": self.fit("cost_value", batch.inputs, batch.cost_target)}

    def fit(
        self,
        name: str,
        inputs: Tensor,
        targets: Tensor,
        pools: Sequence[Tensor] = (),
        weights: Tensor | None = None,
    ) -> float:
        """Adam steps on the (weighted) mean squared error of a network; the last loss.

        `pools` are sets of row numbers: each step takes equally many from each (all rows if none
        is given). If anything turns out not finite, the network is as before.
        """
        module, optimizer = self.modules()[name], self.optimizers[name]
        before = copy.deepcopy((module.state_dict(), optimizer.state_dict()))
        sets = pools or [torch.arange(len(inputs), device=self.device)]
        most = (self.settings.critic_batch or len(inputs)) // len(sets)
        share = min(most, *(len(rows) for rows in sets))
        loss = torch.zeros(())
        for _ in range(self.settings.critic_iterations):
            rows = torch.cat([self.draw(rows, share) for rows in sets])
            error = (module(inputs[rows]) - targets[rows]).square()
            loss = error.mean() if weights is None else (weights[rows, None] * error).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        last = float(loss.detach())
        if not (math.isfinite(last) and _all_finite(module)):
            self.skipped += 1
            module.load_state_dict(before[0])
            optimizer.load_state_dict(before[1])
        return last

    def draw(self, rows: Tensor, count: int) -> Tensor:
        """`count` of the rows at random (repeats are possible), or all if there are no more."""
        if len(rows) <= count:
            return rows
        picks = torch.randint(len(rows), (count,), generator=self.generator, device=self.device)
        return rows[picks]

    # State ---------------------------------------------------------------------------------------

    def modules(self) -> dict[str, nn.Module]:
        """Every network by name."""
        modules: dict[str, nn.Module] = {"policy": self.policy, "value": self.value}
        if self.cost_value is not None:
            modules["cost_value"] = self.cost_value
        return modules | self.extra_modules()

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact continuation needs."""
        return {
            "algo": self.name,
            "epoch": self.epoch,
            "skipped": self.skipped,
            "modules": {name: module.state_dict() for name, module in self.modules().items()},
            "optimizers": {name: o.state_dict() for name, o in self.optimizers.items()},
            "generator": self.generator.get_state(),
            "start_inputs": self.start_inputs,
            "extra": self.extra_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["algo"] != self.name:
            raise ValueError(f"the saved state is of {state['algo']!r}, this is {self.name!r}")
        self.epoch, self.skipped = state["epoch"], state["skipped"]
        for name, module in self.modules().items():
            module.load_state_dict(state["modules"][name])
        for name, optimizer in self.optimizers.items():
            # Adam keeps the tensors it is given, and they may be another algorithm's.
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
        self.generator.set_state(state["generator"].cpu())
        start = state["start_inputs"]
        self.start_inputs = None if start is None else start.to(self.device)
        self.load_extra_state(state["extra"])


def _all_finite(module: nn.Module) -> bool:
    return bool(torch.stack([torch.isfinite(p).all() for p in module.parameters()]).all())


def _require(good: bool, name: str, value: object, advice: str) -> None:
    if not good:
        raise ValueError(f"{name} is {value}: {advice}")
