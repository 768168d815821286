"""What every algorithm is: networks, acting, estimates, state. How it improves is its own."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from statewise.algos.batch import Batch
from statewise.algos.critics import Critics, cost_critic
from statewise.algos.shared_settings import CostSettings, LimitSettings, Settings
from statewise.core import mmdp, returns
from statewise.core.mmdp import CostSignal, sums_of_costs
from statewise.cuda_graphs import Graphed
from statewise.nets import GaussianPolicy, Scaler, mlp
from statewise.types import Act, EnvSpec, Rollout, Step

Metrics = dict[str, float]


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
        self.progress = 1.0
        """Share of the steps of the run that are done, with those of the present rollout."""
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
            tops = self.cost_signal.ceilings(spec.cost_ceiling)
            first = getattr(self.settings, "first_cost", 0.0)
            critic = cost_critic(self.inputs, hidden, tops, self.sees_maximum, first)
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
        """The costs the method learns from: discounted sums, if it has the settings of a critic."""
        s = self.settings
        if not isinstance(s, CostSettings):
            return None
        return sums_of_costs(self.spec.num_costs, s.cost_gamma, s.cost_lam)

    @property
    def sees_maximum(self) -> bool:
        """Whether inputs end in the running maxima (the Maximum MDP), for the critics and for a policy
        that acts on costs."""
        return self.cost_signal is not None and self.cost_signal.needs_maximum

    @property
    def acts_on_cost(self) -> bool:
        """Whether its actions depend on the costs of the episode, not only on observations."""
        return False

    @property
    def scheduled(self) -> tuple[str, ...]:
        """The settings in use that depend on the number of epochs of the whole run.

        If there are any, an extended run differs from one that was as long from the start.
        """
        return ("final_noise",) if self.settings.final_noise else ()

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
            self._bound_noise()
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

    @property
    def least_log_std(self) -> float:
        """Logarithm of the smallest standard deviation that the policy may have."""
        s = self.settings
        least = min(s.least_noise, s.final_noise) if s.final_noise else s.least_noise
        return math.log(least) if least else -math.inf

    @torch.no_grad()
    def _bound_noise(self) -> None:
        """Keep the standard deviation above `least_noise`, and move it to `final_noise` at the end."""
        log_std = self.policy.log_std
        log_std.clamp_(min=self.least_log_std)
        wanted, left = self.settings.final_noise, self.epochs - self.epoch
        if wanted > 0 and left < self.epochs / 3:
            excess = (log_std - math.log(wanted)).clamp(min=0.0)
            log_std.sub_(excess / max(left + 1, 1))

    @torch.no_grad()
    def estimate(self, rollout: Rollout) -> Batch:
        """The advantages, targets and J of a rollout, as the critics see them now."""
        signal, critic, largest = self.cost_signal, self.cost_value, self.spec.cost_ceiling
        before = self.observe(rollout.obs, rollout.cost_max_before)
        after = self.observe(rollout.next_obs, rollout.cost_max)
        read = signal or sums_of_costs(self.spec.num_costs, 1.0, 1.0)  # costs are always counted
        cost = read.read(rollout.cost, rollout.cost_max_before, rollout.cost_max)
        evaluate = self.cuda_graphs.setdefault("evaluate", Graphed(self._evaluate))
        advantage, target, cost_advantage, cost_target, value, next_value = evaluate(
            before, after, rollout.reward, cost, rollout.terminated, rollout.truncated
        )
        values: dict[str, Tensor | None] = {}
        if critic is not None:
            start = self.start_inputs
            values = {"value": value, "next_value": next_value}
            values["start_value"] = None if start is None else critic(self._scale(start))
        about = mmdp.episode_mean(cost, rollout.ended, rollout.age, **values)
        # No less than what was seen of it, which the errors of a critic can hide, and no more than
        # there can be (or than was seen, in an environment that shows more than it says).
        shown = rollout.cost_max.flatten(0, 1).amax(dim=0).tolist()
        tops = [max(a, b) if a else 0.0 for a, b in zip(largest, shown, strict=True)]
        most = torch.tensor(read.ceilings(tops), dtype=torch.float64)
        true = read.read(rollout.true_cost, rollout.true_cost_max_before, rollout.true_cost_max)
        seen = mmdp.episode_mean(true, rollout.ended, rollout.age).seen.cpu()
        broken = (rollout.true_cost_max > 0.0) & (rollout.true_cost_max_before <= 0.0)
        violating = mmdp.episode_mean(broken, rollout.ended, rollout.age).seen.cpu()
        J, slope = read.values(torch.minimum(about.mean.maximum(about.seen).cpu(), most), largest)
        if critic is not None:
            cost_advantage = cost_advantage @ slope.T.to(cost_advantage)
        return Batch(
            rollout=rollout,
            inputs=before.flatten(0, 1),
            action=rollout.action.flatten(0, 1),
            advantage=advantage.flatten(),
            target=target.flatten(),
            cost_advantage=cost_advantage.flatten(0, 1),
            cost_target=cost_target.flatten(0, 1),
            positive=returns.positive_ahead(cost, rollout.ended).any(-1).flatten(),
            J=J,
            shown=read.values(seen, largest)[0],
            violating=violating.clamp(max=1.0),
            channels=tuple(i for i, _ in signal.channels) if signal else (),
            length=about.length,
            episodes=about.episodes,
        )

    @torch.no_grad()
    def _evaluate(
        self, inputs: Tensor, after: Tensor, reward: Tensor, cost: Tensor, *ends: Tensor
    ) -> tuple[Tensor, ...]:
        """Advantage and target of the reward, advantage and target of the cost signals (without
        columns if there are none), and the cost critic at inputs and the ones after; `[T, B, ...]`."""
        s, signal = self.settings, self.cost_signal
        here, ahead = (self.value(x).squeeze(-1) for x in (inputs, after))
        advantage = returns.advantages(reward, here, ahead, *ends, gamma=s.gamma, lam=s.lam)
        target = returns.returns_to_go(reward, ahead, *ends, gamma=s.gamma)
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        if signal is None or self.cost_value is None:
            return advantage, target, *[cost[..., :0]] * 4
        here, ahead = self.cost_value(inputs), self.cost_value(after)
        gamma, past = self._discounts
        how: dict[str, Any] = {"gamma": gamma, "bootstrap_truncated": past}
        cost_advantage = returns.advantages(cost, here, ahead, *ends, lam=signal.lam, **how)
        cost_advantage = cost_advantage - cost_advantage.mean(dim=(0, 1))
        cost_target = returns.returns_to_go(cost, ahead, *ends, **how)
        return advantage, target, cost_advantage, cost_target, here, ahead

    @cached_property
    def _discounts(self) -> tuple[Tensor, Tensor]:
        """Of each channel of the cost signal; always the same tensors, which CUDA graphs read."""
        assert self.cost_signal is not None
        return self.cost_signal.discounts(self.device)

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
