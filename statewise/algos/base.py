"""What every algorithm is: settings, networks, acting, state. How it improves is its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from statewise.algos.critics import Critics, cost_critic
from statewise.algos.estimates import Batch, CostSignal, evaluate_critics, make_batch
from statewise.cuda_graphs import Graphed
from statewise.nets import GaussianPolicy, Scaler, mlp
from statewise.settings import check, number
from statewise.types import Act, EnvSpec, Rollout, Step

Metrics = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """Shared by all algorithms. The defaults are the paper's where its table has one, except for
    `scale_inputs` and `critic_batch`."""

    hidden: tuple[int, ...] = number((64, 64), least=1)
    """Widths of the hidden layers of every network."""
    scale_inputs: bool = True
    """Normalise observations by their mean and standard deviation over all data so far; off feeds
    them to the networks as they are, as the paper does."""
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
    """Rows in a critic step, drawn anew each time; 0 takes all, as the paper does."""

    def __post_init__(self) -> None:
        check(self)
        if not self.hidden:
            raise ValueError("hidden is (): give at least one width")
        if self.critic_batch == 1:
            raise ValueError("critic_batch is 1: give 0 (all rows) or at least 2")


@dataclass(frozen=True)
class LimitSettings(Settings):
    """Shared by the methods that keep a cost below a limit."""

    cost_limit: tuple[float, ...] = number((0.0,), finite=True)
    """Limit of each constraint; one number serves all."""
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
                f"cost_limit is {self.cost_limit}: give 0 or more, or set allow_negative_limit; "
                f"no policy has a cost below 0"
            )

    def limits(self, num_costs: int) -> Tensor:
        """[m] float64"""
        given = self.cost_limit * num_costs if len(self.cost_limit) == 1 else self.cost_limit
        if len(given) != num_costs:
            raise ValueError(
                f"cost_limit has {len(given)} numbers for {num_costs} constraints: give one for "
                f"each, or one for all"
            )
        return torch.tensor(given, dtype=torch.float64)

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


class Algorithm:
    """Acts, and improves its policy from rollouts. Knows neither environment nor logger.

    A method fills in `update_networks`, and overrides what else of the first part it does differently.
    """

    name: ClassVar[str]
    """What `--algo` and run folders call it."""
    title: ClassVar[str]
    """What reports call it; its name if it has none."""
    settings_class: ClassVar[type[Settings]] = Settings
    constrained: ClassVar[bool] = True
    """Needs an environment with costs."""
    sees_maximum: ClassVar[bool] = False
    """Inputs end in the running maximum M (the Maximum MDP), for the critics and for a policy that
    acts on costs."""
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
        """Updates of the policy left out because something was not finite."""
        self.inputs = spec.num_live + (spec.num_costs if self.sees_maximum else 0)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        """For everything drawn while updating."""
        self.scaler = Scaler(self.inputs).to(self.device)
        self.start_inputs: Tensor | None = None
        """Unscaled start states of the first reset, for rollouts in which no episode starts."""
        self.cuda_graphs: dict[str, Graphed] = {}
        """What a GPU replays in one launch. A recording holds on to the tensors it was made with."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            networks = self._make_networks()
        rates = {name: self.learning_rate(name) for name in networks}
        self.critics = Critics(
            networks, rates, settings.critic_iterations, settings.critic_batch, self.generator
        )

    def _make_networks(self) -> dict[str, nn.Module]:
        """Make the policy and the critics; returns the networks that are fitted, by name."""
        spec, hidden = self.spec, self.settings.hidden
        inputs = self.inputs if self.acts_on_cost else spec.num_live
        policy = GaussianPolicy(inputs, spec.action_size, hidden, self.settings.log_std)
        self.policy, self.value = policy.to(self.device), mlp(self.inputs, hidden, 1)
        self.cost_value: nn.Module | None = None
        networks: dict[str, nn.Module] = {"value": self.value}
        if self.cost_signal is not None:
            critic = cost_critic(self.inputs, hidden, spec.cost_ceiling, self.positive_costs)
            self.cost_value = networks["cost_value"] = critic
        networks = {name: net.to(self.device) for name, net in (networks | self.build()).items()}
        for network in (policy, *networks.values()):
            # Inputs that are always zero are left out, but count in the scale of the first weights.
            for first in [m for m in network.modules() if isinstance(m, nn.Linear)][:1]:
                scale = math.sqrt(first.in_features / (first.in_features + spec.num_zeros))
                first.weight.data.mul_(scale)
                first.bias.data.mul_(scale)
        return networks

    # What a method fills in ----------------------------------------------------------------------

    def update_networks(self, batch: Batch) -> Metrics:
        """Update policy and critics once from a batch."""
        raise NotImplementedError

    def build(self) -> dict[str, nn.Module]:
        """Make what only this method has; its networks are returned by name, to be fitted and saved."""
        return {}

    @property
    def cost_signal(self) -> CostSignal | None:
        """The cost the method learns from: the discounted sum, if it has the settings of a critic."""
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam) if isinstance(s, CostSettings) else None

    @property
    def acts_on_cost(self) -> bool:
        """Whether its actions depend on the costs of the episode, not only on observations."""
        return False

    def learning_rate(self, name: str) -> float:
        """Learning rate of the Adam optimiser of a network."""
        return self.settings.critic_lr

    def observe_rollout(self, rollout: Rollout) -> None:
        """Read a rollout before it is made a batch."""

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        """What is executed instead of the proposed action `[B, a]`."""
        return action

    def extra_state(self) -> dict[str, Any]:
        """What an exact continuation needs beside networks, optimisers and the generator."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Take back an `extra_state`, from whatever device it was saved on."""

    # Acting and updating -------------------------------------------------------------------------

    def observe(self, obs: Tensor, cost_max: Tensor) -> Tensor:
        """Network inputs `[..., k]` from observations `[..., n]` and maxima `[..., m]`."""
        return self._scale(self._unscaled(obs, cost_max))

    def _scale(self, inputs: Tensor) -> Tensor:
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
        """Learn from a rollout; returns metrics. Data that are not finite never reach the weights.

        With `scale_inputs` the first rollout only measures the inputs. Their scale changes what the
        policy does, so what it did before is no data for it.
        """
        self.epoch += 1
        first = self.settings.scale_inputs and not bool(self.scaler.count)
        self.observe_rollout(rollout)
        batch = self.estimate(rollout)
        if batch.finite():
            metrics = {} if first else self.update_networks(batch)
            self.measure_inputs(rollout)  # only now: the batch was made with the scale of before
            metrics = batch.metrics(self.spec.cost_names) | metrics
        else:
            self.skipped += 1
            metrics = {"update/skipped_now": 1.0}
        return metrics | {"update/skipped": self.skipped + self.critics.undone}

    def measure_inputs(self, rollout: Rollout) -> None:
        """Update the mean and standard deviation of what networks read."""
        if self.settings.scale_inputs:
            self.scaler.update(self._unscaled(rollout.obs, rollout.cost_max_before).flatten(0, 1))

    @torch.no_grad()
    def estimate(self, rollout: Rollout) -> Batch:
        """The advantages, targets and J of a rollout, as the critics see them now."""
        s, signal, critic, start_value = self.settings, self.cost_signal, self.cost_value, None
        evaluate = Graphed(partial(evaluate_critics, self.value, s.gamma, s.lam, critic, signal))
        evaluate = self.cuda_graphs.setdefault("evaluate", evaluate)
        if critic is not None and self.start_inputs is not None:
            start_value = critic(self._scale(self.start_inputs))
        before = self.observe(rollout.obs, rollout.cost_max_before)
        after = self.observe(rollout.next_obs, rollout.cost_max)
        most = self.spec.cost_ceiling
        return make_batch(rollout, before, after, evaluate, signal, most, start_value)

    def fit_value(self, batch: Batch) -> Metrics:
        """Fit V to the returns."""
        return self.critics.fit(batch.inputs, {"value": batch.target.unsqueeze(1)})

    def fit_critics(self, batch: Batch) -> Metrics:
        """Fit V and the cost critic to their returns, in the same steps."""
        targets = {"value": batch.target.unsqueeze(1), "cost_value": batch.cost_target}
        return self.critics.fit(batch.inputs, targets)

    def by_constraint(self, **values: Sequence[float] | np.ndarray | Tensor) -> Metrics:
        """Metrics `constraint/NAME/KEY` from the values `[m]` of each key."""
        names = enumerate(self.spec.cost_names)
        return {f"constraint/{n}/{key}": float(x[i]) for i, n in names for key, x in values.items()}

    # State ---------------------------------------------------------------------------------------

    def modules(self) -> dict[str, nn.Module]:
        """Every network by name."""
        return {"policy": self.policy, **self.critics.networks}

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact continuation needs."""
        return {
            "algo": self.name,
            "epoch": self.epoch,
            "skipped": self.skipped,
            "modules": {name: module.state_dict() for name, module in self.modules().items()},
            "critics": self.critics.state_dict(),
            "generator": self.generator.get_state(),
            "scaler": self.scaler.state_dict(),
            "start_inputs": self.start_inputs,
            "extra": self.extra_state(),
        }

    def load_policy(self, state: dict[str, Any]) -> None:
        """Take what acting needs from a `state_dict`, from whatever device it was saved on."""
        if state["algo"] != self.name:
            raise ValueError(f"the saved state is of {state['algo']!r}, this is {self.name!r}")
        self.epoch, self.skipped = state["epoch"], state["skipped"]
        for name, module in self.modules().items():
            module.load_state_dict(state["modules"][name])
        self.scaler.load_state_dict(state["scaler"])
        self.load_extra_state(state["extra"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from a `state_dict` of the same kind of device."""
        self.load_policy(state)
        self.critics.load_state_dict(state["critics"])
        self.cuda_graphs.clear()
        self.generator.set_state(state["generator"].cpu())
        start = state["start_inputs"]
        self.start_inputs = None if start is None else start.to(self.device)
