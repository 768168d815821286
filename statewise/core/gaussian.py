"""Diagonal Gaussian policies: log-probability, divergence and entropy, summed over the last axis.

Legend: μ mean, σ standard deviation, given as its logarithm because that is what is learned.
``log_std`` broadcasts against ``mean``: [act] for a state-independent one, [..., act] otherwise.
"""

import math

import torch
from torch import Tensor

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_prob(mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
    """Log-density of ``action`` [..., act] under N(mean, exp(log_std)²); returns [...]."""
    standardised = (action - mean) * torch.exp(-log_std)
    return -(0.5 * standardised.square() + log_std + _LOG_SQRT_2PI).sum(-1)


def kl(mean_old: Tensor, log_std_old: Tensor, mean_new: Tensor, log_std_new: Tensor) -> Tensor:
    """KL(old ‖ new) of each state, [...]: how surprising the old policy's actions are to the new.

    Σ_j log(σ'/σ) + (σ² + (μ - μ')²) / (2σ'²) - ½, with the prime for the new policy. Old first is
    the direction for which a bound on it gives the paper's Propositions 1 and 2; both directions
    share the Hessian at old = new.
    """
    shift = (mean_new - mean_old) * torch.exp(-log_std_new)
    log_ratio = log_std_old - log_std_new
    # expm1 keeps small divergences exact: e^{2x} - 1 - 2x is all that is left of them.
    spread = torch.expm1(2.0 * log_ratio) - 2.0 * log_ratio
    return 0.5 * (shift.square() + spread).sum(-1)


def entropy(log_std: Tensor) -> Tensor:
    """Differential entropy Σ_j log σ_j + ½ log(2πe), [...] for ``log_std`` [..., act]."""
    return (log_std + (_LOG_SQRT_2PI + 0.5)).sum(-1)
