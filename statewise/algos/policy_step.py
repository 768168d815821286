"""Moving the policy inside a trust region: gradients, their natural directions, and the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from statewise.algos.base import Algorithm, Metrics
from statewise.algos.batch import Batch
from statewise.algos.shared_settings import ConstrainedSettings, TrustRegionSettings, spread
from statewise.core import feedback, gaussian, line_search, trust_region
from statewise.core.fisher import MlpFisher, conjugate_gradient
from statewise.core.line_search import Measurement, Search
from statewise.core.mmdp import CostSignal
from statewise.cuda_graphs import Graphed
from statewise.nets import GaussianPolicy


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy beside the one that collected the batch."""

    mean: Tensor
    """[N, a]"""
    ratio: Tensor
    """[N] ρ = π(a|s) / π_k(a|s)"""


Objective = Callable[[Candidate], Tensor]
"""A scalar function of the policy: a surrogate return or cost."""


def surrogate(advantage: Tensor) -> Objective:
    """E[ρ A] for an advantage A `[N]`: what the policy would gain, to first order."""
    return lambda policy: (policy.ratio * advantage).mean()


def surrogates(batch: Batch) -> list[Objective]:
    """The surrogate of the reward, and for each cost Σ ρ A_i / episodes, the change of its J."""
    scale = len(batch.action) / batch.episodes

    def of(advantage: Tensor) -> Objective:
        return lambda policy: (policy.ratio * advantage).mean() * scale

    return [surrogate(batch.advantage), *map(of, batch.cost_advantage.unbind(1))]


class PolicyStep:
    """One update of the policy: gradients, their natural directions, and the search along them."""

    def __init__(
        self,
        policy: GaussianPolicy,
        batch: Batch,
        objectives: Sequence[Objective],
        solve: Callable[..., tuple[Tensor, ...]],
        settings: TrustRegionSettings,
        generator: torch.Generator,
        least_log_std: float = -math.inf,
    ) -> None:
        """objectives: the reward surrogate, which is to rise, then any cost surrogates. solve: finds
        F⁻¹ of gradients `[k, P]` at states `[N, n]`, and its residuals `[k]`. generator: draws the
        states that the Fisher matrix averages over. least_log_std: a log_std that is no larger is held,
        so that a step does not spend the region on it."""
        self.policy, self.batch, self.objectives = policy, batch, objectives
        self.settings, self.theta = settings, policy.flat()
        mean = policy(batch.inputs)
        self.mean, self.log_std = mean.detach(), policy.log_std.detach().clone()
        self.log_prob = gaussian.log_prob(self.mean, self.log_std, batch.action)
        candidate = self._candidate(mean)
        scores = [objective(candidate) for objective in objectives]
        parameters = list(policy.parameters())
        grads = [torch.autograd.grad(s, parameters, retain_graph=True) for s in scores]
        self.scores = torch.stack([s.detach() for s in scores])
        self.gradients = torch.stack([torch.cat([p.reshape(-1) for p in g]) for g in grads])
        """[k, P]"""
        held = self.log_std < least_log_std + 1e-6
        self.gradients[:, : len(held)] *= ~held
        self.kl = torch.zeros_like(self.log_prob)
        """[N] of the candidate measured last"""
        self.finite = bool(torch.isfinite(self.gradients).all())
        if not self.finite:
            self.gradients = torch.zeros_like(self.gradients)
        natural, residual = solve(self.gradients, _draw(batch.inputs, settings, generator))
        self.natural = natural.clone()
        """[k, P] F⁻¹ of each gradient"""
        self.residual = float(residual.max())
        gram = (self.gradients.double() @ self.natural.double().T).cpu()
        gram = 0.5 * (gram + gram.T)
        self.q, self.r, self.S = float(gram[0, 0]), gram[1:, 0], gram[1:, 1:]
        """gᵀF⁻¹g of the reward, of the reward with the costs `[m]`, and of the costs `[m, m]`"""

    def search(self, step: Tensor, test: line_search.Test) -> Search:
        """Backtrack along `step [P]`; the policy is left at the outcome, or as it was."""
        if not self.finite:
            return Search(False, 0.0, 0, None, {"non-finite": 1})
        coefficient, steps = self.settings.backtrack_coefficient, self.settings.backtrack_steps
        return line_search.backtrack_parameters(
            self.theta, step, self.policy.set_flat, self._measure, test,
            coefficient=coefficient, steps=steps,
        )  # fmt: skip

    def follow(self, plan: trust_region.Plan, test: line_search.Test) -> Search:
        """Search along the step of a plan."""
        return self.search(trust_region.step(plan, self.natural[0], self.natural[1:]), test)

    @torch.no_grad()
    def _measure(self) -> Measurement:
        """Compare the policy as it is now with the one that collected the batch."""
        mean, log_std = self.policy(self.batch.inputs), self.policy.log_std
        self.kl = gaussian.kl(self.mean, self.log_std, mean, log_std)
        candidate = self._candidate(mean)
        change = torch.stack([f(candidate) for f in self.objectives]) - self.scores
        kl_now, reward, *costs = torch.cat([self.kl.mean().reshape(1), change]).tolist()
        return Measurement(kl_now, reward, costs)

    def _candidate(self, mean: Tensor) -> Candidate:
        log_prob = gaussian.log_prob(mean, self.policy.log_std, self.batch.action)
        return Candidate(mean, torch.exp(log_prob - self.log_prob))

    def metrics(self, search: Search) -> Metrics:
        taken = search.measurement if search.accepted else None
        kl = self.kl / self.batch.episodes if taken else torch.zeros_like(self.kl)
        rejected = {reason.replace(" ", "_"): n for reason, n in search.rejections.items()}
        return {
            "policy/kl": taken.kl if taken else 0.0,
            **self.batch.by_age("policy/kl_sum", kl, "sum"),
            "policy/reward_change": taken.reward_change if taken else 0.0,
            "policy/step_fraction": search.fraction,
            "policy/line_search_tries": search.tries,
            "policy/step_accepted": float(search.accepted),
            "policy/cg_residual": self.residual,
            "policy/gradient_norm": float(self.gradients[0].norm()),
            "policy/entropy": float(gaussian.entropy(self.policy.log_std.detach())),
            **{f"policy/rejected/{reason}": n for reason, n in rejected.items()},
        }


def _draw(inputs: Tensor, settings: TrustRegionSettings, generator: torch.Generator) -> Tensor:
    """The states that the Fisher matrix averages over, drawn without repeats."""
    if not 0 < settings.fisher_states < len(inputs):
        return inputs
    rows = torch.randperm(len(inputs), generator=generator, device=inputs.device)
    return inputs[rows[: settings.fisher_states]]


def _natural_directions(
    policy: GaussianPolicy, damping: float, iterations: int, gradients: Tensor, states: Tensor
) -> tuple[Tensor, Tensor]:
    """F⁻¹ of each gradient `[k, P]` at states `[N, n]`, and the residuals `[k]`."""
    weights, biases = zip(*((layer.weight, layer.bias) for layer in policy.layers), strict=True)
    seen = states[:, : policy.inputs]
    fisher = MlpFisher(weights, biases, policy.log_std, seen, damping=damping)
    solved = conjugate_gradient(fisher.product, gradients, iterations)
    return solved.x, solved.residual


class TrustRegionAlgorithm(Algorithm):
    """An algorithm that moves its policy by steps inside a trust region."""

    settings_class = TrustRegionSettings
    settings: TrustRegionSettings

    @property
    def target_kl(self) -> float:
        """Size of the trust region in this epoch."""
        gone = min(max(self.epoch - 1, 0) / max(self.epochs - 1, 1), 1.0)
        return self.settings.target_kl * (1.0 - gone * (1.0 - self.settings.final_radius)) ** 2

    @property
    def scheduled(self) -> tuple[str, ...]:
        return super().scheduled + (("final_radius",) if self.settings.final_radius < 1 else ())

    def policy_step(self, batch: Batch, objectives: Sequence[Objective]) -> PolicyStep:
        """The gradients and natural directions of an update, see `PolicyStep`."""
        s = self.settings
        solve = Graphed(partial(_natural_directions, self.policy, s.cg_damping, s.cg_iterations))
        solve = self.cuda_graphs.setdefault("natural", solve)
        step = PolicyStep(
            self.policy, batch, objectives, solve, s, self.generator, self.least_log_std
        )
        self.skipped += not step.finite
        return step

    def natural_step(self, batch: Batch, objective: Objective) -> Metrics:
        """TRPO: raise one objective as far as the trust region allows."""
        step, delta = self.policy_step(batch, [objective]), self.target_kl
        length = math.sqrt(2 * delta / step.q) if step.q > 0 else 0.0
        search = step.search(length * step.natural[0], line_search.trust_region_test(delta))
        return step.metrics(search) | {"policy/q": step.q}


@dataclass(frozen=True, eq=False)
class Request:
    """What the constraints ask of a step, `[m]` each."""

    decrease: np.ndarray
    """By how much the step must lower each cost. A negative number is room to raise it"""
    violation: np.ndarray
    """The violation that the accepted step must not exceed"""
    capped: np.ndarray
    """Whether a violated constraint asks for all it may"""
    feedback: dict[str, np.ndarray]
    """What the feedback compared and did, by metric; nothing without feedback"""


class ConstrainedAlgorithm(TrustRegionAlgorithm):
    """A trust-region algorithm whose steps raise the reward and keep costs within their limits."""

    settings_class = ConstrainedSettings
    settings: ConstrainedSettings

    def build(self) -> dict[str, nn.Module]:
        self.integral = np.zeros(self.spec.num_costs)
        """[m] of the feedback on each cost"""
        return super().build()

    def extra_state(self) -> dict[str, Any]:
        return {"integral": self.integral.tolist()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.integral = np.array(state["integral"], dtype=np.float64)

    @cached_property
    def cost_signal(self) -> CostSignal:
        """What each constraint bounds, as its kind says."""
        s, m = self.settings, self.spec.num_costs
        threshold = spread("threshold", s.threshold, m)
        return CostSignal(s.kinds(m), s.cost_gamma, s.cost_lam, threshold, s.deviations)

    @property
    def acts_on_cost(self) -> bool:
        return self.settings.policy_sees_maximum and self.sees_maximum

    @cached_property
    def cost_scale(self) -> np.ndarray:
        """[m] the size of what each constraint bounds: its largest step cost, or 1 for a probability"""
        kinds = self.settings.kinds(self.spec.num_costs)
        tops = zip(kinds, self.spec.cost_ceiling, strict=True)
        return np.array([1.0 if kind == "probability" else top or 1.0 for kind, top in tops])

    def learning_rate(self, name: str) -> float:
        return self.settings.cost_critic_lr if name == "cost_value" else self.settings.critic_lr

    @property
    def scheduled(self) -> tuple[str, ...]:
        s = self.settings
        return super().scheduled + (("tightening",) if s.cost_feedback and s.tightening else ())

    def compare(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """What the feedback compares, `[m]` each: a true cost, and the limit that holds in this epoch.

        No batch can show that a cost is always 0. At a limit of 0 the share of violating episodes is
        compared instead, with `tolerance`.
        """
        s, m = self.settings, self.spec.num_costs
        limits, kinds = s.limits(m).numpy(), np.array(s.kinds(m))
        counted = limits <= 0.0
        measured = np.where(counted, batch.violating.numpy(), batch.shown.numpy())
        early = np.where(kinds == "probability", 0.0, np.array(self.spec.margin))
        scale = np.where(counted, 1.0, self.cost_scale - early)
        wanted = np.where(counted, s.tolerance, limits)
        return measured, feedback.tightened(wanted, scale, self.progress, s.tightening)

    def request(self, step: PolicyStep, violation: Tensor) -> Request:
        """What each constraint asks of a step. violation: `[m]` by how much the limits are exceeded.

        With feedback it is a share of what the trust region can do, otherwise the violation itself.
        All constraints together ask for at most `recovery_fraction` of the region.
        """
        s, delta = self.settings, self.target_kl
        if s.cost_feedback == 0.0:
            excess = violation.numpy()
            asked = trust_region.limit_request(excess, step.S, delta, s.recovery_fraction)
            return Request(asked, excess, (excess > 0) & (asked < excess), {})
        measured, limit = self.compare(step.batch)
        error = feedback.relative_error(measured - limit, limit)
        share, self.integral = feedback.control(
            error, self.integral, s.cost_feedback, s.recovery_fraction
        )
        wanted = share * np.sqrt(2 * delta * step.S.diagonal().clamp(min=0.0).numpy())
        asked = trust_region.limit_request(wanted, step.S, delta, s.recovery_fraction)
        capped = (error > 0) & (share >= s.recovery_fraction)
        how = {"measured": measured, "limit": limit, "share": share, "integral": self.integral}
        return Request(asked, asked, capped, how)

    def requested(self, request: Request, violation: Tensor) -> Metrics:
        """Metrics of what the constraints asked for."""
        return self.by_constraint(
            violation=violation,
            requested=request.decrease,
            capped=request.capped,
            **request.feedback,
        )

    def constrained_step(self, step: PolicyStep, violation: Tensor) -> Metrics:
        """Raise the reward objective with every cost objective within its limit.

        violation: `[m]` by how much each constraint is violated, in units of its objective.
        """
        s, q, r, S, delta = self.settings, step.q, step.r, step.S, self.target_kl
        request = self.request(step, violation)
        asked, c = request.decrease, request.violation
        plan = trust_region.solve(q, r, S, asked, delta, self.cost_scale)
        test = line_search.trust_region_test(
            delta, c.tolist(), feasible=plan.feasible,
            reward_test=s.reward_test, cost_reduction=s.cost_reduction,
        )  # fmt: skip
        search = step.follow(plan, test)
        metrics, rescued = step.metrics(search), False
        may_fall = s.rescue and s.reward_test != "always" and max(c) > 0
        if may_fall and not search.accepted and step.finite:
            # No part of the step will do: lower the violated costs, whatever it does to the reward.
            rescue = trust_region.recover(q, r, S, c, delta, self.cost_scale)
            test = line_search.trust_region_test(delta, c.tolist(), feasible=False)
            search = step.follow(rescue, test)
            again = step.metrics(search).items()
            metrics |= {k: v for k, v in again if not k.startswith("policy/rejected")}
            rescued = search.accepted
        metrics |= {"policy/case": float(plan.case), "policy/rescued": float(rescued)}
        metrics |= {"policy/q": q, "policy/lambda": plan.lam, "policy/alpha": plan.alpha}
        taken = search.measurement.cost_change if search.accepted and search.measurement else ()
        for i, name in enumerate(self.spec.cost_names):
            for j, other in enumerate(self.spec.cost_names[:i]):
                metrics[f"constraint/{name}/s/{other}"] = float(S[i, j])
        return metrics | self.requested(request, violation) | self.by_constraint(
            r=r, s=S.diagonal(), nu=plan.nu, beta=plan.beta,
            change=taken or [0.0] * len(c), change_planned=plan.cost_change,
        )  # fmt: skip

    def fit_critics(self, batch: Batch) -> Metrics:
        """Fit V and the cost critic, most of whose targets are zero, as `subsample` says."""
        mode, targets = self.settings.subsample, {"cost_value": batch.cost_target}
        zero, positive = (~batch.positive).nonzero()[:, 0], batch.positive.nonzero()[:, 0]
        few = mode != "none" and 0 < len(positive) < len(zero)
        kept = {"critic/zero_targets_kept": len(positive) / len(zero) if few else 1.0}
        if not few:
            # Also when there is no positive target at all: the critic is then pulled to zero.
            return super().fit_critics(batch) | kept
        if mode == "weighted":
            weights = torch.where(batch.positive, 1.0, len(positive) / len(zero))
            fit = self.critics.fit(batch.inputs, targets, weights=weights / weights.mean())
            return self.fit_value(batch) | fit | kept
        value = self.fit_value(batch)
        zeros = self.critics.draw(zero, len(positive))[0] if mode == "once" else zero
        return value | self.critics.fit(batch.inputs, targets, (positive, zeros)) | kept
