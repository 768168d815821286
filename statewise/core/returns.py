"""Advantages and returns of a rollout whose episodes end, time out or are cut by its last row.

Legend: γ discount, λ decay of the generalised advantage estimate, V value function,
G return-to-go, δ one-step error. A row can be followed by

* a termination: the future is worth nothing;
* a truncation (time limit): the future is worth ``next_value``, or nothing when the horizon is part
  of the task, as for the increments D of the paper's eq. 8 (``bootstrap_truncated=False``);
* the cut, which is the end of the rollout and not of the episode: always worth ``next_value``.

The same V must stand on both sides of δ: clamping ``next_value`` alone biases every small signal.
"""

import torch
from torch import Tensor


@torch.no_grad()
def advantages(
    signal: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float | Tensor,
    lam: float,
    bootstrap_truncated: bool | Tensor = True,
) -> Tensor:
    """Generalised advantage estimate, [T, B, ...] like ``signal``.

    A_t = δ_t + γ λ A_{t+1} with δ_t = signal_t + γ V(successor of t) - V(state of t); the recursion
    stops at every episode end and at the cut. With λ = 0 this is the sample estimate below eq. 14.

    gamma, bootstrap_truncated: one for all, or a tensor that broadcasts against ``signal``.
    signal, value, next_value: [T, B, ...]; ``next_value[t]`` belongs to the true successor of row t
        (the final observation where an episode ended, not the first one of the next episode).
    terminated, truncated: bool [T, B]; where both hold the episode terminated.
    """
    _check_unit("gamma", gamma)
    _check_unit("lam", lam)
    _check_shapes(signal, terminated, truncated, value=value, next_value=next_value)
    tail = _worth_of_successor(next_value, terminated, truncated, bootstrap_truncated)
    errors = signal + gamma * tail - value
    running = _like(~(terminated | truncated), signal).to(signal.dtype)
    return _decayed_sum(errors, gamma * lam * running, torch.zeros_like(errors[0]))


@torch.no_grad()
def returns_to_go(
    signal: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float | Tensor,
    bootstrap_truncated: bool | Tensor = True,
) -> Tensor:
    """Discounted sum of the signal to the end of the episode, [T, B, ...] like ``signal``.

    G_t = signal_t + γ G_{t+1}; past a truncation or the cut ``next_value`` stands for G. This is
    the target of the critics. Arguments as in `advantages`; only ends read ``next_value``.
    """
    _check_unit("gamma", gamma)
    _check_shapes(signal, terminated, truncated, next_value=next_value)
    ended = _like(terminated | truncated, signal)
    tail = _worth_of_successor(next_value, terminated, truncated, bootstrap_truncated)
    at_end = torch.where(ended, signal + gamma * tail, signal)
    return _decayed_sum(at_end, gamma * (~ended).to(signal.dtype), tail[-1])


def positive_ahead(signal: Tensor, ended: Tensor) -> Tensor:
    """Whether the signal is positive at or after each row of its episode, bool [T, B, ...].

    Decides which cost targets count as zero when zeros are sub-sampled (Section 5, "Imbalanced cost
    value targets"). It reads the raw signal because a bootstrapped tail turns a zero target into a
    small positive one. What lies beyond the cut is unknown and counts as not positive.

    signal: [T, B, ...]; ended: bool [T, B], terminated or truncated.
    """
    positive = signal > 0
    running = _like(~ended, signal)
    ahead = torch.empty_like(positive)
    following = torch.zeros_like(positive[0])
    for t in range(len(signal) - 1, -1, -1):
        following = positive[t] | (running[t] & following)
        ahead[t] = following
    return ahead


def _decayed_sum(terms: Tensor, decay: Tensor, last: Tensor) -> Tensor:
    """y_t = terms_t + decay_t · y_{t+1} with y_T = last; [T, B, ...], and [B, ...] for last."""
    out = torch.empty_like(terms)
    decay = decay.expand_as(terms)
    following = last
    for t in range(len(terms) - 1, -1, -1):
        following = torch.addcmul(terms[t], decay[t], following, out=out[t])
    return out


def _worth_of_successor(
    next_value: Tensor, terminated: Tensor, truncated: Tensor, bootstrap_truncated: bool | Tensor
) -> Tensor:
    if isinstance(bootstrap_truncated, bool):
        worthless = _like(terminated if bootstrap_truncated else terminated | truncated, next_value)
    else:
        ran_out = _like(truncated, next_value) & ~bootstrap_truncated
        worthless = _like(terminated, next_value) | ran_out
    # A choice, not a product: the value net may return anything, even NaN, beyond a true end.
    return torch.where(worthless, torch.zeros_like(next_value), next_value)


def _like(flag: Tensor, signal: Tensor) -> Tensor:
    """[T, B] with ones appended, so that it broadcasts over [T, B, ...]."""
    return flag.reshape(flag.shape + (1,) * (signal.dim() - flag.dim()))


def _check_unit(name: str, number: float | Tensor) -> None:
    if isinstance(number, Tensor):  # asking a tensor on a GPU would wait for it
        return
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} is {number}; give a number between 0 and 1")


def _check_shapes(signal: Tensor, terminated: Tensor, truncated: Tensor, **like: Tensor) -> None:
    if signal.dim() < 2 or signal.shape[0] == 0:
        raise ValueError(f"signal has shape {list(signal.shape)}; give [T, B, ...] with T >= 1")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if flag.dtype != torch.bool or flag.shape != signal.shape[:2]:
            raise ValueError(
                f"{name} is {flag.dtype} {list(flag.shape)}; give bool {list(signal.shape[:2])}"
            )
    for name, tensor in like.items():
        if tensor.shape != signal.shape:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}; give {list(signal.shape)} like the signal"
            )
