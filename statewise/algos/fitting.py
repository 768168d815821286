"""Fitting one network: steps of its optimiser on rows of data, and the way back if they fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from statewise.core.regression import MlpRegression
from statewise.cuda_graphs import minibatches


def descend(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    targets: Tensor,
    weights: Tensor,
    rows: Tensor,
) -> Tensor:
    """A step on the weighted mean squared error of each of `rows [steps, n]`; the last of them."""
    learn = _mlp_gradient(net, rows.shape[1]) if isinstance(net, nn.Sequential) else _gradient(net)
    error, weight = inputs.new_zeros(1, 1), inputs.new_zeros(1, 1)
    for x, y, weight in minibatches(rows, inputs, targets, weights[:, None]):
        error = learn(x, y, weight)
        optimizer.step()
    return (weight * error.square()).mean()


def _mlp_gradient(net: nn.Sequential, rows: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function that finds the gradients of an `mlp` on so many rows, and returns its errors."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    regression = MlpRegression(
        [layer.weight for layer in layers],
        [layer.bias for layer in layers],
        rows,
        positive=isinstance(net[-1], nn.Softplus),
    )
    for p, gradient in zip(net.parameters(), regression.gradients, strict=True):
        p.grad = gradient
    return regression.error


def _gradient(net: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same of any network."""
    parameters = list(net.parameters())

    def find(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        error = net(x) - y
        loss = (weight * error.square()).mean()
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = gradient
        return error.detach()

    return find


def memory(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights, and what the optimiser remembers of them."""
    remembered = [x for p in net.parameters() for x in optimizer.state[p].values()]
    return [*(p.detach() for p in net.parameters()), *remembered]


def restore(net: nn.Module, optimizer: torch.optim.Optimizer, saved: list[Tensor]) -> None:
    """Put back a copy of `memory`, in place."""
    fresh = len(saved) == len(list(net.parameters()))  # saved before the optimiser's first step
    for x, was in itertools.zip_longest(memory(net, optimizer), saved):
        x.zero_() if fresh and was is None else x.copy_(was)


def all_finite(module: nn.Module) -> bool:
    return bool(torch.stack([torch.isfinite(p).all() for p in module.parameters()]).all())
