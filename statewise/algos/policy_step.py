"""Moving the policy inside a trust region: gradients, their natural directions, and the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from statewise.algos.base import Algorithm, Metrics, Settings
from statewise.algos.estimates import Batch
from statewise.core import gaussian, line_search, trust_region
from statewise.core.fisher import MlpFisher, conjugate_gradient
from statewise.core.line_search import Measurement, Search
from statewise.cuda_graphs import Graphed
from statewise.nets import GaussianPolicy
from statewise.settings import number


@dataclass(frozen=True)
class TrustRegionSettings(Settings):
    """Shared by the methods that bound the KL divergence of an update. The paper does not state the
    settings of its conjugate gradient."""

    target_kl: float = number(0.02, above=0)
    """Size of the trust region: mean KL divergence of an update."""
    final_radius: float = number(1.0, above=0, most=1)
    """Share of the trust region's radius, the root of its size, that is left in the last epoch. The
    radius shrinks evenly. 1 keeps it as it is, as the paper does."""
    backtrack_steps: int = number(100, least=1)
    """Most candidates of the line search."""
    backtrack_coefficient: float = number(0.8, above=0, below=1)
    """Each candidate takes this fraction of the one before."""
    cg_iterations: int = number(20, least=1)
    """Most iterations of the conjugate gradient."""
    cg_damping: float = number(0.1, least=0)
    """Added to the diagonal of the Fisher matrix."""
    fisher_states: int = number(8192, least=0)
    """Most states of the batch, drawn at random, that the Fisher matrix averages over; 0 takes all."""


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
        probes: Sequence[Objective],
        solve: Callable[..., tuple[Tensor, ...]],
        settings: TrustRegionSettings,
        generator: torch.Generator,
    ) -> None:
        """objectives: the reward surrogate, which is to rise, then any cost surrogates. probes:
        functions of which only the products between gradients are wanted. solve: finds F⁻¹ of
        gradients `[k, P]` at states `[N, n]`, and its residuals `[k]`. generator: draws the states
        that the Fisher matrix averages over."""
        self.policy, self.batch, self.objectives = policy, batch, objectives
        self.settings, self.theta = settings, policy.flat()
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
        natural, residual = solve(self.gradients, _draw(batch.inputs, settings, generator))
        self.natural = natural.clone()
        """[k, P] F⁻¹ of each gradient"""
        self.residual = float(residual.max())
        gram = (self.gradients.double() @ self.natural.double().T).cpu()
        self.gram = 0.5 * (gram + gram.T)
        """[k, k] gᵢᵀF⁻¹gⱼ"""
        m = len(objectives)
        self.q, self.r, self.S = float(self.gram[0, 0]), self.gram[1:m, 0], self.gram[1:m, 1:m]
        """The same of the reward, of the reward with the costs `[m]`, and of the costs `[m, m]`"""

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
        reward, costs = self.natural[0], self.natural[1 : len(self.objectives)]
        return self.search(trust_region.step(plan, reward, costs), test)

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

    def policy_step(
        self, batch: Batch, objectives: Sequence[Objective], probes: Sequence[Objective] = ()
    ) -> PolicyStep:
        """The gradients and natural directions of an update, see `PolicyStep`."""
        s = self.settings
        solve = Graphed(partial(_natural_directions, self.policy, s.cg_damping, s.cg_iterations))
        solve = self.cuda_graphs.setdefault("natural", solve)
        step = PolicyStep(self.policy, batch, objectives, probes, solve, s, self.generator)
        self.skipped += not step.finite
        return step

    def natural_step(self, batch: Batch, objective: Objective) -> Metrics:
        """TRPO: raise one objective as far as the trust region allows."""
        step, delta = self.policy_step(batch, [objective]), self.target_kl
        length = math.sqrt(2 * delta / step.q) if step.q > 0 else 0.0
        search = step.search(length * step.natural[0], line_search.trust_region_test(delta))
        return step.metrics(search) | {"policy/q": step.q}
