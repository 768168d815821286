"""The cost that a policy predicts, which is the third output of an exported policy."""

from __future__ import annotations

import torch
from torch import Tensor

from statewise.algos import Algorithm
from statewise.algos.scpo import Scpo
from statewise.algos.trpo_usl import TrpoUsl
from statewise.types import Step


def predicts_cost(algo: Algorithm) -> bool:
    """Whether the third output is there."""
    return algo.cost_value is not None or isinstance(algo, TrpoUsl)


def cost_value_meaning(algo: Algorithm) -> str:
    """What the third output predicts; empty if there is none."""
    if isinstance(algo, Scpo):
        return "V_D: expected further rise of the largest cost of the episode"
    if isinstance(algo, TrpoUsl):
        return (
            f"Q_C: discounted cost to come after the action (discount {algo.settings.cost_gamma})"
        )
    if algo.cost_value is not None:
        gamma = getattr(algo.settings, "cost_gamma", None)
        return f"V_C: discounted cost to come (discount {gamma})"
    return ""


@torch.no_grad()
def act_and_predict(algo: Algorithm, step: Step) -> tuple[Tensor, Tensor | None]:
    """The actions `[B, a]` and predicted costs `[B, m]` that the graph gives, by torch."""
    action = algo.act(step, None).executed.clamp(-1.0, 1.0)
    inputs = algo.observe(step.obs, step.obs_cost_max)
    if isinstance(algo, TrpoUsl):
        return action, algo.cost_to_go(torch.cat([inputs, action], dim=1))
    return action, None if algo.cost_value is None else algo.cost_value(inputs)
