"""What the algorithms share: settings, networks, acting, critics, state. Not how they improve."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from statewise.algos.estimates import Batch, CostSignal, estimate
from statewise.algos.fitting import all_finite, descend, memory, restore
from statewise.cuda_graphs import Graphed, side_by_side
from statewise.nets import GaussianPolicy, Scaler, mlp, start_at
from statewise.types import Act, EnvSpec, Rollout, Step

Metrics = dict[str, float]

FIRST_COST, FIRST_SHARE = 0.05, 1 / 6
"""What a critic that is never negative says before it has learned: the first, or the second in units
of the largest cost of a step if that is less. Where it has seen nothing it should fear something."""


@dataclass(frozen=True)
class Settings:
    """Shared by all nine; the defaults are the paper's where its table has one (it has none for the
    conjugate gradient), but for `scale_inputs` and `critic_batch`."""

    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of every network."""
    scale_inputs: bool = True
    """Networks read observations less their mean and in units of their spread, both over all data so
    far; off reads them as they are, as the paper does."""
    log_std: float = -0.5
    """Logarithm of the policy's standard deviation at the start."""
    gamma: float = 0.99
    """Discount of the reward."""
    lam: float = 0.97
    """Decay of the generalised advantage estimate of the reward."""
    target_kl: float = 0.02
    """Size of the trust region: mean KL divergence of an update."""
    final_radius: float = 1.0
    """What is left of the trust region's radius, the root of its size, in the last epoch; it shrinks
    evenly. 1 keeps it as it is, as the paper does."""
    backtrack_steps: int = 100
    """Most candidates of the line search."""
    backtrack_coefficient: float = 0.8
    """Each candidate takes this fraction of the one before."""
    cg_iterations: int = 20
    """Most iterations of the conjugate gradient."""
    cg_damping: float = 0.1
    """Added to the diagonal of the Fisher matrix."""
    fisher_states: int = 8192
    """Most states, evenly spaced in the batch, that the Fisher matrix averages over; 0 takes all."""
    critic_iterations: int = 80
    """Adam steps for each critic in an epoch."""
    critic_lr: float = 1e-3
    """Learning rate of the critics."""
    critic_batch: int = 4096
    """Rows in a critic step, drawn anew each time; 0 takes all, as the paper does."""

    def __post_init__(self) -> None:
        _require(bool(self.hidden) and min(self.hidden, default=0) > 0, "hidden", self.hidden,
                 "give at least one positive width")  # fmt: skip
        _require(math.isfinite(self.log_std), "log_std", self.log_std, "give a finite number")
        for name in ("gamma", "lam"):
            value = getattr(self, name)
            _require(0.0 <= value <= 1.0, name, value, "give a number from 0 to 1")
        value = self.backtrack_coefficient
        _require(0.0 < value < 1.0, "backtrack_coefficient", value, "give one between 0 and 1")
        value = self.final_radius
        _require(0.0 < value <= 1.0, "final_radius", value, "give a share above 0, at most 1")
        for name in ("target_kl", "critic_lr"):
            value = getattr(self, name)
            _require(value > 0.0, name, value, "give a number above 0")
        for name in ("backtrack_steps", "cg_iterations", "critic_iterations"):
            value = getattr(self, name)
            _require(value >= 1, name, value, "give at least 1")
        for name in ("cg_damping", "fisher_states", "critic_batch"):
            value = getattr(self, name)
            _require(value >= 0, name, value, "give 0 or more")
        _require(self.critic_batch != 1, "critic_batch", 1, "give 0 (all rows) or at least 2")
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal:
                value, choices = getattr(self, name), get_args(hint)
                _require(value in choices, name, repr(value), f"give one of {', '.join(choices)}")
            elif hint is float:  # a range that is asked about the wrong way round lets nan through
                value = getattr(self, name)
                _require(not math.isnan(value), name, value, "give a number")


@dataclass(frozen=True)
class LimitSettings(Settings):
    """Shared by the methods that keep a cost below a limit."""

    cost_limit: tuple[float, ...] = (0.0,)
    """Limit of each constraint; one number serves all."""
    allow_negative_limit: bool = False
    """Accept a limit below zero, which no policy can meet (the published SCPO code ran -0.03)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        finite = bool(self.cost_limit) and all(math.isfinite(x) for x in self.cost_limit)
        _require(
            finite, "cost_limit", self.cost_limit, "give one finite number for each constraint"
        )
        if min(self.cost_limit) < 0.0 and not self.allow_negative_limit:
            raise ValueError(
                f"cost_limit is {self.cost_limit}: costs are never negative, so no policy meets it. "
                f"Give 0 or more, or say allow_negative_limit"
            )
        # Settings of the methods that share a name share a range.
        for name in ("warmup", "cost_gamma", "cost_lam", "recovery_fraction", "bound_coefficient"):
            value = getattr(self, name, 0.0)
            _require(0.0 <= value <= 1.0, name, value, "give a number from 0 to 1")
        for name in ("tolerance", "margin", "penalty", "penalty_scale", "cost_reduction",
                     "multiplier_start", "multiplier_lr", "multiplier_cap", "correction_rate",
                     "correction_steps", "multiplier_iterations"):  # fmt: skip
            value = getattr(self, name, 0.0)
            _require(value >= 0.0, name, value, "give 0 or more")

    def limits(self, num_costs: int) -> Tensor:
        """[m] float64"""
        given = self.cost_limit * num_costs if len(self.cost_limit) == 1 else self.cost_limit
        if len(given) != num_costs:
            raise ValueError(
                f"cost_limit has {len(given)} numbers for {num_costs} constraints: give one for "
                f"each, or one for all"
            )
        return torch.tensor(given, dtype=torch.float64)


@dataclass(frozen=True)
class CostSettings(LimitSettings):
    """Shared by the methods that learn a critic of the cost."""

    cost_gamma: float = 0.99
    """Discount of the cost."""
    cost_lam: float = 0.97
    """Decay of the generalised advantage estimate of the cost."""


class Algorithm:
    """Acts, and improves its policy from rollouts. Knows neither environment nor logger.

    A method says which cost it learns from (`cost_signal`) and how it improves (`improve`).
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = Settings
    constrained: ClassVar[bool] = True
    """Needs an environment with costs."""
    sees_maximum: ClassVar[bool] = False
    """Inputs end in the running maximum M (the Maximum MDP); critics read it, the policy if
    `policy_inputs` includes it."""
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
        if isinstance(settings, LimitSettings):
            self.limit = settings.limits(spec.num_costs).float().to(self.device)
            """[m] of each constraint"""
        self.epoch = 0
        self.skipped = 0
        """Updates left out because something was not finite."""
        self.inputs = spec.num_live + (spec.num_costs if self.sees_maximum else 0)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        """For everything drawn while updating."""
        self.scaler = Scaler(self.inputs).to(self.device)
        self.start_inputs: Tensor | None = None
        """Unscaled start states of the first reset: their values stand in where no episode starts."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = GaussianPolicy(
                self.policy_inputs, spec.action_size, settings.hidden, settings.log_std
            ).to(self.device)
            self.value = mlp(self.inputs, settings.hidden, 1).to(self.device)
            self.cost_value: nn.Module | None = None
            if self.cost_signal is not None:
                critic = mlp(self.inputs, settings.hidden, spec.num_costs, self.positive_costs)
                if self.positive_costs:
                    largest = torch.tensor([ceiling or 1.0 for ceiling in spec.cost_ceiling])
                    start_at(critic, (FIRST_SHARE * largest).clamp(max=FIRST_COST))
                self.cost_value = critic.to(self.device)
            self.build()
        self._start_as_if_zeros_were_read()
        gpu = self.device.type == "cuda"
        self.optimizers = {
            name: torch.optim.Adam(
                module.parameters(), self.learning_rate(name), fused=True, capturable=gpu
            )
            for name, module in self.modules().items()
            if name != "policy"
        }
        self.graphs: dict[tuple[str, ...], Graphed] = {}
        """What a GPU replays in one launch. They hold weights and what Adam keeps where it is."""

    # What a method fills in ----------------------------------------------------------------------

    @property
    def cost_signal(self) -> CostSignal | None:
        """The cost the method learns from, if any."""
        return None

    @property
    def policy_inputs(self) -> int:
        """How many inputs, from the first on, the policy reads."""
        return self.inputs

    @property
    def acts_on_cost(self) -> bool:
        """Whether what it does depends on the costs it met, not only on what it sees."""
        return False

    @property
    def target_kl(self) -> float:
        """Size of the trust region in this epoch."""
        gone = min(max(self.epoch - 1, 0) / max(self.epochs - 1, 1), 1.0)
        return self.settings.target_kl * (1.0 - gone * (1.0 - self.settings.final_radius)) ** 2

    def build(self) -> None:
        """Make the networks that only this method has (as attributes named in `extra_modules`)."""

    def learning_rate(self, name: str) -> float:
        """Of the network's Adam."""
        return self.settings.critic_lr

    def extra_modules(self) -> dict[str, nn.Module]:
        return {}

    def look(self, rollout: Rollout) -> None:
        """See a rollout before it is made a batch."""

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
        return self.scale(self._unscaled(obs, cost_max))

    def scale(self, inputs: Tensor) -> Tensor:
        scaled: Tensor = self.scaler(inputs) if self.settings.scale_inputs else inputs
        return scaled

    def _unscaled(self, obs: Tensor, cost_max: Tensor) -> Tensor:
        live = obs[..., : self.spec.num_live]  # a weight on a zero is never used, and never learned
        return torch.cat([live, cost_max], dim=-1) if self.sees_maximum else live

    @torch.no_grad()
    def act(self, step: Step, generator: torch.Generator | None) -> Act:
        """Actions for every world: sampled, or the mean where no generator is given."""
        inputs = self.observe(step.obs, step.obs_cost_max)
        action = self.policy(inputs) if generator is None else self.policy.sample(inputs, generator)
        return Act(action, self.correct(step, inputs, action))

    def remember_starts(self, obs: Tensor) -> None:
        """Keep observations `[B, n]` of worlds that have just been reset, as `start_inputs`."""
        if self.start_inputs is None:
            inputs = self._unscaled(obs, obs.new_zeros(len(obs), self.spec.num_costs))[:4096]
            finite = torch.isfinite(inputs).all(dim=1)
            self.start_inputs = inputs[finite] if bool(finite.any()) else None

    def update(self, rollout: Rollout) -> Metrics:
        """Learn from a rollout; returns metrics. Non-finite data never reach the weights."""
        self.epoch += 1
        first = self.settings.scale_inputs and not bool(self.scaler.count)
        if first:
            self._measure(rollout)  # before anything is learned
        self.look(rollout)
        batch = estimate(self, rollout)
        if not batch.finite():
            self.skipped += 1
            return {"update/skipped": self.skipped, "update/skipped_now": 1.0}
        metrics = self.improve(batch)
        if not first:
            self._measure(rollout)  # now that nothing of it is asked any more
        return {**batch.metrics(self.spec.cost_names), **metrics, "update/skipped": self.skipped}

    def _measure(self, rollout: Rollout) -> None:
        """Mean and spread of what networks read."""
        if self.settings.scale_inputs:
            self.scaler.update(self._unscaled(rollout.obs, rollout.cost_max_before).flatten(0, 1))

    # Critics -------------------------------------------------------------------------------------

    def fit_value(self, batch: Batch) -> Metrics:
        """Regress V on the returns."""
        return self.fit(batch.inputs, {"value": batch.target.unsqueeze(1)})

    def fit_critics(self, batch: Batch) -> Metrics:
        """Regress V and the cost critic on their returns, in the same steps."""
        targets = {"value": batch.target.unsqueeze(1), "cost_value": batch.cost_target}
        return self.fit(batch.inputs, targets)

    def fit(
        self,
        inputs: Tensor,
        targets: Mapping[str, Tensor],
        pools: Sequence[Tensor] = (),
        weights: Tensor | None = None,
    ) -> Metrics:
        """Adam steps on the (weighted) mean squared error of networks; their last losses.

        targets: of each network, by its name. pools: sets of row numbers, of which each step takes
        equally many (all rows if none is given). A network that turns out not finite is put back.
        """
        nets = [self.modules()[name] for name in targets]
        optimizers = [self.optimizers[name] for name in targets]
        before = [[x.clone() for x in memory(*pair)] for pair in zip(nets, optimizers, strict=True)]
        sets = pools or [torch.arange(len(inputs), device=self.device)]
        most = (self.settings.critic_batch or len(inputs)) // len(sets)
        # Of a small pool rows are drawn again and again: what is recorded has to keep its shape.
        share = most if pools else min(most, len(inputs))
        steps = self.settings.critic_iterations
        rows = torch.cat([self.draw(r, share, steps) for r in sets], dim=1)
        weights = torch.ones(len(inputs), device=self.device) if weights is None else weights
        (losses,) = self._regression(tuple(targets))(inputs, rows, weights, *targets.values())
        last = losses.tolist()
        for loss, net, optimizer, saved in zip(last, nets, optimizers, before, strict=True):
            if not (math.isfinite(loss) and all_finite(net)):
                self.skipped += 1
                restore(net, optimizer, saved)
        return {f"critic/{name}_loss": loss for name, loss in zip(targets, last, strict=True)}

    def _regression(self, names: tuple[str, ...]) -> Graphed:
        """Adam steps on the rows `[steps, n]` of the data; returns the last losses `[networks]`."""
        if names in self.graphs:
            return self.graphs[names]
        pairs = [(self.modules()[name], self.optimizers[name]) for name in names]

        def regress(
            inputs: Tensor, rows: Tensor, weights: Tensor, *targets: Tensor
        ) -> tuple[Tensor, ...]:
            def task(i: int) -> Callable[[], Tensor]:
                return lambda: descend(*pairs[i], inputs, targets[i], weights, rows)

            losses = side_by_side(self.device, [task(i) for i in range(len(pairs))])
            return (torch.stack(losses),)

        self.graphs[names] = Graphed(regress)
        return self.graphs[names]

    def draw(self, rows: Tensor, count: int, times: int = 1) -> Tensor:
        """`[times, count]` of the rows at random (repeats are possible), or all if that many."""
        if len(rows) == count:
            return rows.expand(times, -1)
        shape = (times, count)
        return rows[torch.randint(len(rows), shape, generator=self.generator, device=self.device)]

    # State ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def _start_as_if_zeros_were_read(self) -> None:
        """Networks leave out inputs that are always zero; their number still sets the scale of the
        first weights, as in the paper."""
        for module in self.modules().values():
            first = next(m for m in module.modules() if isinstance(m, nn.Linear))
            scale = math.sqrt(first.in_features / (first.in_features + self.spec.num_zeros))
            first.weight.mul_(scale)
            first.bias.mul_(scale)

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
            "scaler": self.scaler.state_dict(),
            "start_inputs": self.start_inputs,
            "extra": self.extra_state(),
        }

    def load_policy(self, state: dict[str, Any]) -> None:
        """What acting needs of a `state_dict`, from whatever device it was saved on."""
        if state["algo"] != self.name:
            raise ValueError(f"the saved state is of {state['algo']!r}, this is {self.name!r}")
        self.epoch, self.skipped = state["epoch"], state["skipped"]
        for name, module in self.modules().items():
            module.load_state_dict(state["modules"][name])
        self.scaler.load_state_dict(state["scaler"])
        self.load_extra_state(state["extra"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly from a `state_dict` of the same kind of device."""
        self.load_policy(state)
        for name, optimizer in self.optimizers.items():
            # Adam keeps the tensors it is given, and they may be another algorithm's.
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
        self.graphs.clear()
        self.generator.set_state(state["generator"].cpu())
        start = state["start_inputs"]
        self.start_inputs = None if start is None else start.to(self.device)


def _require(good: bool, name: str, value: object, advice: str) -> None:
    if not good:
        raise ValueError(f"{name} is {value}: {advice}")
