"""Every metric of a run: its key, its title, what it means, and how it is shown.

Tables, charts, the live view, plots, TensorBoard and the documentation read their names here. To add
a metric of the rollouts, add it to `METRICS` and to `describe`; it then appears everywhere. What an
algorithm reports beside these appears under its key.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor

from statewise.types import Episodes, Rollout

RETURN, EPISODE_COST, MAX_COST = "episode/return", "cost/episode", "cost/max"
COST_RATE, EPOCH_COST_RATE = "cost/rate", "cost/epoch_rate"


@dataclass(frozen=True)
class Metric:
    """How one metric is called and shown."""

    key: str
    """Its name in `metrics.jsonl`. A * stands for the name of a constraint."""
    title: str
    about: str = ""
    """One sentence"""
    digits: int = 3
    """Decimals"""
    less_is_better: bool | None = None
    live: bool = False
    """Whether it is shown while a run trains"""
    chart: bool = False
    """Whether reports and plots draw its curve"""
    column: bool = False
    """Whether tables of runs have a column for it"""
    unit: str = ""
    """What it counts, as the live view says it"""

    @property
    def per_constraint(self) -> bool:
        return "*" in self.key

    def text(self, value: float | None) -> str:
        """A value as people read it; a dash where there is none."""
        if value is None or not math.isfinite(value):
            return "-"
        return f"{value:,.{self.digits}f}"


def _per_cost(name: str, title: str, about: str, digits: int, **shown: Any) -> tuple[Metric, ...]:
    """A cost metric of each constraint, and its sum over all of them."""
    total = {k: v for k, v in shown.items() if k != "live"}
    single = {k: v for k, v in shown.items() if k in ("live", "unit")}
    return (
        Metric(f"cost/{name}", title, f"{about} Summed over constraints.", digits, True, **total),
        Metric(f"cost/*/{name}", title, about, digits, True, **single),
    )


METRICS = (
    Metric("epoch", "epoch", "Epochs done.", 0),
    Metric("steps", "steps", "Environment steps done, all worlds together.", 0, live=True,
           unit="in all"),
    Metric("episode/count", "episodes", "Episodes that ended in the epoch.", 0, live=True,
           unit="ended in this epoch"),
    Metric("episode/running", "running episodes", "Episodes that go on into the next epoch.", 0),
    Metric("episode/timeouts", "timeouts", "Episodes that the time limit ended.", 0),
    Metric(
        RETURN, "return",
        "Sum of the rewards of an episode, not discounted. Mean over the episodes that ended in the "
        "epoch.",
        less_is_better=False, live=True, chart=True, column=True, unit="reward per episode",
    ),
    Metric("episode/return_std", "return, deviation", "Standard deviation over those episodes."),
    Metric("episode/length", "episode length", "Mean number of steps of an episode.", 0, live=True,
           unit="steps"),
    *_per_cost(
        "episode", "episode cost",
        "Sum of the costs of an episode. Mean over the episodes that ended in the epoch.", 3,
        live=True, unit="cost per episode", chart=True, column=True,
    ),
    Metric("cost/*/episode_std", "episode cost, deviation",
           "Standard deviation over those episodes."),
    *_per_cost(
        "max", "maximum cost",
        "Largest cost of any step of an episode, which SCPO bounds. Mean over the episodes that "
        "ended in the epoch.", 4,
        live=True, unit="cost of its worst step", chart=True, column=True,
    ),
    Metric("cost/*/max_p95", "maximum cost, 95 %", "95 % quantile over those episodes.", 4, True),
    Metric("cost/*/violation_rate", "violation rate",
           "Share of the episodes with at least one step of positive cost.", 4, True, live=True,
           unit="of the episodes"),
    *_per_cost(
        "rate", "cost rate",
        "Cost of all steps since training began, divided by their number.", 5,
        live=True, unit="cost per step since the start", chart=True, column=True,
    ),
    *_per_cost("epoch_rate", "cost rate of the epoch",
               "Cost of the epoch's steps, divided by their number.", 5, live=True,
               unit="cost per step", chart=True),
    Metric("sim/faults", "simulator faults", "Episodes that a simulator fault ended, so far.", 0, True),
    Metric("update/skipped", "skipped updates",
           "Updates left out so far because a number was not finite.", 0, True),
    Metric("update/skipped_now", "update skipped",
           "1 if the epoch's whole update was left out. Most keys are then missing.", 0, True),
    Metric("policy/kl", "KL",
           "Mean KL divergence from the old policy to the new one. 0 if no step was taken.", 4,
           live=True, unit="change of the policy"),
    Metric("policy/kl_sum/*", "KL by age",
           "KL divergence summed over the steps of an episode from this age to the next.", 4),
    Metric("policy/reward_change", "reward change",
           "Change of the objective, its penalty included, by the step taken.", 4),
    Metric("policy/step_accepted", "step accepted", "1 if the line search took a step.", 0),
    Metric("policy/step_fraction", "step fraction", "Fraction of the proposed step that was taken."),
    Metric("policy/line_search_tries", "line search tries", "Candidates that were tried.", 0),
    Metric("policy/rejected/*", "rejected candidates", "Candidates refused for this reason.", 0),
    Metric("policy/rescued", "rescued",
           "1 if only the second search, which lowers the cost alone, found a step.", 0),
    Metric("policy/cg_residual", "CG residual",
           "Relative residual of the conjugate gradient, the worst of its right-hand sides.", 4),
    Metric("policy/gradient_norm", "gradient norm", "Norm of the reward gradient g.", 4),
    Metric("policy/entropy", "entropy", "Entropy of the policy after the step."),
    Metric("policy/q", "q", "gᵀF⁻¹g of the reward gradient g.", 4),
    Metric("policy/case", "case",
           "0: no step meets the limits. 1: a limit is violated and within reach. 2: met, and its "
           "boundary crosses the region. 3: the whole region is safe. 4: no constraint matters.", 0),
    Metric("policy/lambda", "λ", "Multiplier of the trust region.", 4),
    Metric("policy/alpha", "α", "The step is F⁻¹(α g - Σ βᵢ bᵢ).", 4),
    Metric("policy/feasible", "feasible", "PCPO: 1 if a step within the region meets the limits.", 0),
    Metric("constraint/*/estimate", "estimated cost",
           "What the constraint bounds, for the current policy: by its kind the expected maximum, sum "
           "or deviation of an episode's costs, or a probability.", 4, True),
    Metric("constraint/*/measured", "cost in the batch",
           "What the feedback compares with the limit: the true cost of the epoch, or at a limit of 0 "
           "the share of violating episodes.", 4, True),
    Metric("constraint/*/limit", "limit of the epoch",
           "What the feedback compares it with. It tightens while a run goes on.", 4),
    Metric("constraint/*/violation", "violation", "Estimated cost minus the limit.", 4, True),
    Metric("constraint/*/share", "share of the step",
           "Share of the trust region's radius that the constraint asks for.", 2),
    Metric("constraint/*/integral", "integral of the feedback",
           "Part of that share which past epochs have built up.", 2),
    Metric("constraint/*/requested", "requested decrease", "Decrease asked of the step.", 4),
    Metric("constraint/*/capped", "request capped",
           "1 if the constraint asked for more than an update can grant.", 0),
    Metric("constraint/*/blocked", "epochs blocked",
           "Epochs in a row in which the constraint was above its limit, asked for all it may, and got "
           "no better.", 0, True),
    Metric("constraint/*/nu", "ν", "Multiplier of the constraint.", 4),
    Metric("constraint/*/price", "price",
           "TRPO-Lagrangian: what a unit of cost weighs against the reward.", 4),
    Metric("constraint/*/beta", "β", "Weight of the cost direction in the step.", 4),
    Metric("constraint/*/r", "r", "gᵀF⁻¹b of the reward gradient g and the cost gradient b.", 4),
    Metric("constraint/*/s", "s", "bᵀF⁻¹b of the cost gradient b.", 4),
    Metric("constraint/*/s/*", "s", "bᵀF⁻¹b' of two cost gradients.", 4),
    Metric("constraint/*/change", "cost change", "Change of the cost surrogate by the step taken.", 4),
    Metric("constraint/*/change_planned", "planned cost change",
           "The same as the quadratic model planned it.", 4),
    Metric("constraint/*/predicted", "predicted cost",
           "SCPO: cost expected of the new policy, to first order.", 4),
    Metric("constraint/*/predicted_corrected", "prediction with the corrected penalty",
           "SCPO: the prediction plus the corrected penalty of the theory. A diagnostic: estimated "
           "advantages make it no bound.", 4),
    Metric("constraint/*/predicted_printed", "prediction with the printed penalty",
           "SCPO: the prediction plus the penalty as the paper prints it. A diagnostic as well.", 4),
    Metric("constraint/*/variance", "variance of the maximum",
           "ASCPO: variance of the largest cost over the episodes that ended.", 6),
    Metric("constraint/*/barrier", "barrier", "TRPO-IPO: value of the barrier.", 4),
    Metric("constraint/*/max_advantage", "largest cost advantage", "Largest absolute value.", 4),
    Metric("constraint/*/max_advantage/*", "largest cost advantage by age",
           "The same among the steps of an episode from this age to the next.", 4),
    Metric("constraint/*/target/*", "cost target",
           "Quantiles and maximum of the cost critic's targets.", 4),
    Metric("multiplier/mean", "mean multiplier", "TRPO-FAC: mean of the state-wise price.", 4),
    Metric("multiplier/max", "largest multiplier", "TRPO-FAC: maximum of the state-wise price.", 4),
    Metric("safety_layer/rate", "corrected actions",
           "TRPO-SL, TRPO-USL: share of actions that the layer changed."),
    Metric("safety_layer/size", "size of corrections",
           "TRPO-SL, TRPO-USL: mean distance of the changed actions."),
    Metric("estimate/length", "estimated length", "Estimated mean length of an episode.", 1),
    Metric("estimate/episodes", "estimated episodes", "Episodes that the rollout is worth.", 1),
    Metric("critic/value_loss", "value loss", "Last loss of the reward critic.", 4),
    Metric("critic/cost_value_loss", "cost value loss", "Last loss of the cost critic.", 4),
    Metric("critic/cost_model_loss", "cost model loss", "TRPO-SL: last loss of its model.", 4),
    Metric("critic/cost_to_go_loss", "cost-to-go loss", "TRPO-USL: last loss of its critic.", 4),
    Metric("critic/multiplier_loss", "multiplier loss", "TRPO-FAC: loss of the price network.", 4),
    Metric("critic/value_target/*", "value target",
           "Mean, quantiles and maximum of the reward critic's targets."),
    Metric("critic/zero_target_share", "zero targets",
           "Share of rows after which no cost, or no rise of a maximum, was seen in their episode."),
    Metric("critic/zero_targets_kept", "zero targets kept",
           "Share of zero targets that sub-sampling keeps. 1 if it is off."),
    Metric("time/collect", "collecting, s", "Seconds of the epoch spent acting and simulating.", 2),
    Metric("time/update", "updating, s", "Seconds of the epoch spent learning.", 2),
    Metric("time/total", "time, s", "Training time so far, without start and checkpoints.", 1),
    Metric("time/steps_per_second", "steps/s", "Environment steps per second of the epoch.", 0,
           less_is_better=False, live=True, column=True),
    Metric("memory/process_mib", "memory, MiB", "Largest memory of the process so far.", 0, True),
    Metric("memory/gpu_mib", "GPU memory, MiB", "Memory in use on the GPU, by all processes.", 0, True),
)  # fmt: skip
"""In the order of tables and views."""

CHARTS = tuple(m.key for m in METRICS if m.chart)
COLUMNS = tuple(m.key for m in METRICS if m.column)

_BY_KEY = {m.key: m for m in METRICS}


@cache
def find(key: str) -> Metric:
    """The metric of a key such as `cost/hazard/episode`; an unknown one is called as its key."""
    if key in _BY_KEY:
        return _BY_KEY[key]
    parts = key.split("/")
    for metric in METRICS:
        wanted = metric.key.split("/")
        if len(wanted) == len(parts) and all(
            w in ("*", p) for w, p in zip(wanted, parts, strict=True)
        ):
            return metric
    return Metric(key, key)


def title(key: str) -> str:
    """What people call the metric of a key: `hazard episode cost` for `cost/hazard/episode`."""
    metric = find(key)
    constraint = key.split("/")[1] if metric.per_constraint else ""
    named = metric.key.split("/")[0] in ("cost", "constraint")
    return f"{constraint} {metric.title}" if constraint and named else metric.title


def text(key: str, value: float | None) -> str:
    """A value of the metric of a key, as people read it."""
    return find(key).text(value)


def live_keys(cost_names: Sequence[str]) -> list[str]:
    """The keys shown while a run trains, those of each constraint together."""
    keys = [m.key for m in METRICS if m.live and not m.per_constraint]
    per_cost = [m.key for m in METRICS if m.live and m.per_constraint]
    after = keys.index("episode/length") + 1
    costs = [key.replace("*", name, 1) for name in cost_names for key in per_cost]
    return [*keys[:after], *costs, *keys[after:]]


def describe(
    rollout: Rollout,
    episodes: Episodes,
    cost_names: Sequence[str],
    cost_so_far: Sequence[float],
    steps: int,
) -> dict[str, Any]:
    """The metrics of a rollout and of the episodes that ended in it.

    cost_so_far: total of each cost since training began, this rollout included; steps: likewise.
    """  # fmt: skip
    metrics: dict[str, Any] = {
        "episode/count": len(episodes),
        "episode/running": int((~rollout.ended[-1]).sum()),
        "episode/timeouts": int((~episodes.terminated).sum()),
        RETURN: _mean(episodes.returns),
        "episode/return_std": _std(episodes.returns),
        "episode/length": _mean(episodes.length.float()),
    }
    for i, name in enumerate(cost_names):
        cost, largest = episodes.cost[:, i], episodes.cost_max[:, i]
        metrics |= {
            f"cost/{name}/episode": _mean(cost),
            f"cost/{name}/episode_std": _std(cost),
            f"cost/{name}/max": _mean(largest),
            f"cost/{name}/max_p95": float(largest.quantile(0.95)) if len(largest) else None,
            f"cost/{name}/violation_rate": _mean((largest > 0).float()),
            f"cost/{name}/rate": cost_so_far[i] / steps,
            f"cost/{name}/epoch_rate": float(rollout.true_cost[..., i].mean()),
        }
    for whole in ("episode", "max", "rate", "epoch_rate"):
        parts = [metrics[f"cost/{name}/{whole}"] for name in cost_names]
        # Without constraints nothing is known of costs, which is not 0.
        metrics[f"cost/{whole}"] = sum(parts) if parts and None not in parts else None
    return metrics


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def _std(values: Tensor) -> float | None:
    return float(values.std(correction=0)) if len(values) else None


def markdown() -> str:
    """The table of all metrics for the documentation."""
    rows = [f"| `{m.key}` | {m.title} | {m.about} |" for m in METRICS]
    return "\n".join(["| key | title | meaning |", "|---|---|---|", *rows])
