"""The activation of every network."""

from typing import Any

import torch
from torch import Tensor


def tanh(x: Tensor) -> Tensor:
    """tanh(x), like ``x``.

    On a CPU torch's sigmoid is five times as fast as its tanh, which takes as long as the matrix
    products of a small network; the two differ by rounding (2e-7).
    """
    if x.is_cuda:
        return torch.tanh(x)
    out: Tensor = _Tanh.apply(x)
    return out


class _Tanh(torch.autograd.Function):
    """2 σ(2x) - 1, differentiated as the tanh that it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.sigmoid(2.0 * x).mul_(2.0).sub_(1.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        slope: Tensor = torch.ops.aten.tanh_backward(grad, y)
        return slope
