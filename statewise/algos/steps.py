"""The two ways to move the policy inside a trust region: a natural step, and a constrained one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from statewise.algos.base import Algorithm, Metrics
from statewise.algos.estimates import Batch
from statewise.core import gaussian, line_search, trust_region
from statewise.core.fisher import MlpFisher, conjugate_gradient
from statewise.core.line_search import Measurement, RewardTest, Search
from statewise.cuda_graphs import Graphed


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy beside the one that collected the batch."""

    mean: Tensor
    """[N, a]"""
    ratio: Tensor
    """[N] π(a|s) / π_k(a|s)"""


Objective = Callable[[Candidate], Tensor]
"""A scalar function of the policy: a surrogate return or cost."""


class PolicyStep:
    """One update of the policy: gradients, their natural directions, and the search along them."""

    def __init__(
        self,
        algo: Algorithm,
        batch: Batch,
        objectives: Sequence[Objective],
        probes: Sequence[Objective] = (),
    ) -> None:
        """`objectives`: the reward surrogate, to be raised, then any cost surrogates.

        `probes` are functions of which only the products between gradients are wanted.
        """
        self.algo, self.batch, self.objectives = algo, batch, objectives
        policy = algo.policy
        self.theta = policy.flat()
        mean = policy(batch.inputs)
        self.mean, self.log_std = mean.detach(), policy.log_std.detach().clone()
        self.log_prob = gaussian.log_prob(self.mean, self.log_std, batch.action)
        candidate = self._candidate(mean)
        scores = [objective(candidate) for objective in (*objectives, *probes)]
        parameters = list(policy.parameters())
        grads = [torch.autograd.grad(s, parameters, retain_graph=True) for s in scores]
        self.scores = torch.stack([s.detach() for s in scores[: len(objectives)]])
        self.gradients = torch.stack([torch.cat([p.reshape(-1) for p in g]) for g in grads])
        """[k, P]"""
        self.kl = torch.zeros_like(self.log_prob)
        """[N] of the candidate measured last"""
        self.finite = bool(torch.isfinite(self.gradients).all())
        if not self.finite:
            self.gradients = torch.zeros_like(self.gradients)
        self._solve()

    def _solve(self) -> None:
        """Natural directions F⁻¹ of each gradient, and the products between them."""
        inputs, states = self.batch.inputs, self.algo.settings.fisher_states
        stride = math.ceil(len(inputs) / states) if states else 1
        solve = self.algo.graphs.setdefault(("natural",), Graphed(natural_directions(self.algo)))
        natural, residual = solve(self.gradients, inputs[::stride])
        self.natural = natural.clone()
        """[k, P]"""
        self.residual = float(residual.max())
        gram = (self.gradients.double() @ self.natural.double().T).cpu()
        self.gram = 0.5 * (gram + gram.T)
        """[k, k] gᵢᵀF⁻¹gⱼ"""

    def search(self, step: Tensor, test: line_search.Test, steps: int | None = None) -> Search:
        """Backtrack along `step [P]`; the policy is left at the outcome, or as it was."""
        settings = self.algo.settings
        if not self.finite:
            self.algo.skipped += 1
            return Search(False, 0.0, 0, None, {"non-finite": 1})
        return line_search.backtrack_parameters(
            self.theta,
            step,
            self.algo.policy.set_flat,
            self._measure,
            test,
            coefficient=settings.backtrack_coefficient,
            steps=steps or settings.backtrack_steps,
        )

    @torch.no_grad()
    def _measure(self) -> Measurement:
        """The policy as it is now against the one that collected the batch."""
        mean, log_std = self.algo.policy(self.batch.inputs), self.algo.policy.log_std
        self.kl = gaussian.kl(self.mean, self.log_std, mean, log_std)
        candidate = self._candidate(mean)
        change = torch.stack([f(candidate) for f in self.objectives]) - self.scores
        kl_now, reward, *costs = torch.cat([self.kl.mean().reshape(1), change]).tolist()
        return Measurement(kl_now, reward, costs)

    def _candidate(self, mean: Tensor) -> Candidate:
        log_prob = gaussian.log_prob(mean, self.algo.policy.log_std, self.batch.action)
        return Candidate(mean, torch.exp(log_prob - self.log_prob))

    def metrics(self, search: Search) -> Metrics:
        taken = search.measurement if search.accepted else None
        log_std = self.algo.policy.log_std.detach()
        kl = self.kl / self.batch.episodes if taken else torch.zeros_like(self.kl)
        return {
            "policy/kl": taken.kl if taken else 0.0,
            **self.batch.by_age("policy/kl_sum", kl, "sum"),
            "policy/reward_change": taken.reward_change if taken else 0.0,
            "policy/step_fraction": search.fraction,
            "policy/line_search_tries": search.tries,
            "policy/step_accepted": float(search.accepted),
            "policy/cg_residual": self.residual,
            "policy/gradient_norm": float(self.gradients[0].norm()),
            "policy/entropy": float(gaussian.entropy(log_std)),
            **{
                f"policy/rejected/{reason.replace(' ', '_')}": n
                for reason, n in search.rejections.items()
            },
        }


def natural_directions(algo: Algorithm) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A function of gradients `[k, P]` and states `[N, n]`: F⁻¹ of each `[k, P]`, residuals `[k]`."""
    policy, settings = algo.policy, algo.settings

    def solve(gradients: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        fisher = MlpFisher(
            [layer.weight for layer in policy.layers],
            [layer.bias for layer in policy.layers],
            policy.log_std,
            states[:, : policy.inputs],
            damping=settings.cg_damping,
        )
        solved = conjugate_gradient(fisher.product, gradients, settings.cg_iterations)
        return solved.x, solved.residual

    return solve


def natural_step(algo: Algorithm, batch: Batch, objective: Objective) -> Metrics:
    """TRPO: raise one objective as far as the trust region allows."""
    step = PolicyStep(algo, batch, [objective])
    delta, q = algo.target_kl, float(step.gram[0, 0])
    length = math.sqrt(2 * delta / q) if q > 0 else 0.0
    search = step.search(length * step.natural[0], line_search.trust_region_test(delta))
    return step.metrics(search) | {"policy/q": q}


def constrained_step(
    algo: Algorithm,
    batch: Batch,
    objectives: Sequence[Objective],
    violation: Sequence[float],
    *,
    recovery_fraction: float,
    reward_test: RewardTest,
    cost_reduction: float,
    tolerance: float = 0.0,
    reliability: Reliability | None = None,
) -> Metrics:
    """CPO and SCPO: raise the reward objective with every cost objective within its limit.

    `violation` is c, by how much each constraint is violated, in units of its objective;
    `tolerance` is in units of the largest cost of a step.
    """
    m = len(violation)
    worlds = batch.rollout.reward.shape[1]
    due = reliability is not None and worlds > 1 and algo.epoch % Reliability.EVERY == 1
    step = PolicyStep(algo, batch, objectives, contrasts(batch) if due else ())
    delta = algo.target_kl
    q, r, S = float(step.gram[0, 0]), step.gram[1 : m + 1, 0], step.gram[1 : m + 1, 1 : m + 1]
    scale = [ceiling or 1.0 for ceiling in algo.spec.cost_ceiling]
    aim = within(violation, tolerance * np.asarray(scale))
    wanted = aim
    if reliability is not None:
        if due:  # never with a single world: it has no two halves
            reliability.update(S.diagonal(), step.gram.diagonal()[m + 1 :])
        wanted = np.where(aim > 0, aim / reliability.share.numpy(), aim)
    fading = aim / np.maximum(tolerance * np.asarray(scale), 1e-12)
    fraction = recovery_fraction * fading.clip(0.0, 1.0)
    asked = trust_region.limit_request(wanted, S, delta, fraction)
    plan = trust_region.solve(q, r, S, asked, delta, scale)
    direction = trust_region.step(plan, step.natural[0], step.natural[1 : m + 1])
    test = line_search.trust_region_test(
        delta,
        aim.tolist(),
        feasible=plan.feasible,
        reward_test=reward_test,
        cost_reduction=cost_reduction,
    )
    search = step.search(direction, test)
    metrics = step.metrics(search)
    rescued = False
    if not search.accepted and step.finite and max(violation) > 0 and reward_test != "always":
        # No part of the step will do: lower the violated costs, whatever it does to the reward.
        rescue = trust_region.recover(q, r, S, violation, delta, scale)
        direction = trust_region.step(rescue, step.natural[0], step.natural[1 : m + 1])
        test = line_search.trust_region_test(delta, violation, feasible=False)
        search = step.search(direction, test)
        metrics |= {
            k: v for k, v in step.metrics(search).items() if not k.startswith("policy/rejected")
        }
        rescued = search.accepted
    metrics |= {"policy/q": q, "policy/rescued": float(rescued)}
    for i, name in enumerate(algo.spec.cost_names):
        metrics |= {
            f"constraint/{name}/violation": violation[i],
            f"constraint/{name}/requested": float(asked[i]),
        }
        if reliability is not None:
            metrics[f"constraint/{name}/reliability"] = float(reliability.share[i])
    return metrics | _plan_metrics(algo.spec.cost_names, plan, search, r, S)


def _plan_metrics(
    names: Sequence[str], plan: trust_region.Plan, search: Search, r: Tensor, S: Tensor
) -> Metrics:
    """What was planned for each constraint, and what the step that was taken does to it."""
    taken = search.measurement if search.accepted else None
    metrics: Metrics = {
        "policy/case": float(plan.case),
        "policy/lambda": plan.lam,
        "policy/alpha": plan.alpha,
    }
    for i, name in enumerate(names):
        metrics |= {
            f"constraint/{name}/nu": plan.nu[i],
            f"constraint/{name}/beta": plan.beta[i],
            f"constraint/{name}/r": float(r[i]),
            f"constraint/{name}/s": float(S[i, i]),
            f"constraint/{name}/change": taken.cost_change[i] if taken else 0.0,
            f"constraint/{name}/change_planned": plan.cost_change[i],
        }
        for j, other in enumerate(names[:i]):
            metrics[f"constraint/{name}/s/{other}"] = float(S[i, j])
    return metrics


ROOM = 3.0
"""How often the part of a tolerance that is not used up counts as room."""


def within(violation: Sequence[float], tolerance: np.ndarray) -> np.ndarray:
    """c `[m]` as the step sees it: less room where a part of a tolerance `[m]` is not used up.

    At c = tolerance nothing is left of it and c stands; at c = 0 a step may raise the cost by three
    tolerances. Without room a limit of 0 would end learning where it is first met: with no cost in
    the batch the surrogate cost is the critic's error alone, and half of all steps raise that a little.
    """
    c = np.asarray(violation, dtype=np.float64)
    return c - ROOM * (tolerance - c).clip(0.0, tolerance)


class Reliability:
    """Which part of a cost decrease predicted on a batch will hold on fresh data.

    A gradient estimated from a batch is b = truth + noise. A step along F⁻¹b is predicted to lower
    the cost in proportion to bᵀF⁻¹b, which counts the noise as well, and lowers the true cost by
    the share truthᵀF⁻¹truth / bᵀF⁻¹b of that. Two halves of the worlds have independent noise, so
    half their difference d tells its size: E[dᵀF⁻¹d] = E[noiseᵀF⁻¹noise].

    It changes slowly, so it is measured in every fourth epoch and smoothed.
    """

    EVERY = 4
    SMOOTHING = 0.65
    LEAST = 0.2

    def __init__(self, num_costs: int) -> None:
        self.total = torch.zeros(num_costs, dtype=torch.float64)
        self.noise = torch.zeros(num_costs, dtype=torch.float64)

    def update(self, total: Tensor, noise: Tensor) -> None:
        """Take in bᵀF⁻¹b and dᵀF⁻¹d of a batch, `[m]` each."""
        keep = self.SMOOTHING
        self.total = keep * self.total + (1 - keep) * total.double().cpu()
        self.noise = keep * self.noise + (1 - keep) * noise.double().cpu()

    @property
    def share(self) -> Tensor:
        """[m]"""
        share = 1.0 - self.noise / self.total.clamp(min=1e-300)
        return torch.where(self.total > 0, share, 1.0).clamp(self.LEAST, 1.0)


def contrasts(batch: Batch) -> list[Objective]:
    """Half the difference of each cost surrogate between the even and the odd worlds."""
    worlds = batch.rollout.reward.shape[1]
    sign = 1.0 - 2.0 * (torch.arange(worlds, device=batch.action.device) % 2)
    if worlds % 2:
        sign[-1] = 0.0  # two halves of equal size
    weight = sign.repeat(len(batch.action) // worlds) * (len(batch.action) / batch.episodes)

    def of(i: int) -> Objective:
        return lambda policy: (policy.ratio * batch.cost_advantage[:, i] * weight).mean()

    return [of(i) for i in range(batch.cost_advantage.shape[1])]


def reward_surrogate(batch: Batch) -> Objective:
    """E[ρ A]: what the policy would earn, to first order."""
    return lambda policy: (policy.ratio * batch.advantage).mean()


def cost_surrogates(batch: Batch) -> list[Objective]:
    """Σ ρ A_i over the batch / episodes: by how much each J would change, to first order."""
    scale = len(batch.action) / batch.episodes

    def of(i: int) -> Objective:
        return lambda policy: (policy.ratio * batch.cost_advantage[:, i]).mean() * scale

    return [of(i) for i in range(batch.cost_advantage.shape[1])]
