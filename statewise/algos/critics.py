"""Critics: networks that are fitted to targets by regression, and how that is done."""

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from statewise.core.regression import MlpRegression
from statewise.cuda_graphs import Graphed, minibatches, side_by_side
from statewise.nets import mlp, start_at

Pair = tuple[nn.Module, torch.optim.Optimizer]

FIRST_SHARE = 1 / 6
"""Most that a cost critic predicts before it has learned, as a share of the largest step cost."""


def cost_critic(
    inputs: int, hidden: Sequence[int], ceilings: Sequence[float], positive: bool, first: float
) -> nn.Sequential:
    """A critic of one cost for each ceiling; `positive`: it ends in a Softplus, and predicts about
    `first` before it has learned, if that is not 0."""
    critic = mlp(inputs, hidden, len(ceilings), positive)
    if positive and first:
        start_at(critic, (FIRST_SHARE * torch.tensor(ceilings)).clamp(max=first))
    return critic


class Critics:
    """Networks by name, each with an Adam optimiser of its own."""

    def __init__(
        self,
        networks: dict[str, nn.Module],
        rates: Mapping[str, float],
        iterations: int,
        batch: int,
        generator: torch.Generator,
    ) -> None:
        """rates: learning rate of each network. iterations: Adam steps of a fit. batch: rows of a
        step, drawn by the generator; 0 takes all."""
        self.networks, self.iterations, self.batch = networks, iterations, batch
        self.generator = generator
        gpu = generator.device.type == "cuda"
        self.optimizers = {
            name: torch.optim.Adam(net.parameters(), rates[name], fused=True, capturable=gpu)
            for name, net in networks.items()
        }
        self.undone = 0
        """Fits that were undone because something was not finite."""
        self.cuda_graphs: dict[tuple[str, ...], Graphed] = {}
        """The fit of networks that are fitted together. A recording holds the tensors of Adam."""

    def fit(
        self,
        inputs: Tensor,
        targets: Mapping[str, Tensor],
        pools: Sequence[Tensor] = (),
        weights: Tensor | None = None,
    ) -> dict[str, float]:
        """Take Adam steps on the (weighted) mean squared error of networks; metrics of their losses.

        targets: `[N, m]` of each network, at inputs `[N, k]`. pools: sets of row numbers, of which
        each step takes equally many (all rows if none is given). A network that turns out not
        finite is put back as it was.
        """
        pairs = [(self.networks[name], self.optimizers[name]) for name in targets]
        before = [[x.clone() for x in memory(*pair)] for pair in pairs]
        sets = pools or [torch.arange(len(inputs), device=inputs.device)]
        most = (self.batch or len(inputs)) // len(sets)
        # Rows of a small pool are drawn repeatedly: a recording needs shapes that do not change.
        share = most if pools else min(most, len(inputs))
        rows = torch.cat([self.draw(r, share, self.iterations) for r in sets], dim=1)
        weights = torch.ones(len(inputs), device=inputs.device) if weights is None else weights
        fit = self.cuda_graphs.setdefault(tuple(targets), Graphed(partial(_regress, pairs)))
        (losses,) = fit(inputs, rows, weights, *targets.values())
        last = losses.tolist()
        for loss, pair, saved in zip(last, pairs, before, strict=True):
            if not (math.isfinite(loss) and all_finite(pair[0])):
                self.undone += 1
                restore(*pair, saved)
        return {f"critic/{name}_loss": loss for name, loss in zip(targets, last, strict=True)}

    def draw(self, rows: Tensor, count: int, times: int = 1) -> Tensor:
        """`[times, count]` of the rows at random (repeats are possible), or all if that many."""
        if len(rows) == count:
            return rows.expand(times, -1)
        size, device = (times, count), rows.device
        return rows[torch.randint(len(rows), size, generator=self.generator, device=device)]

    def state_dict(self) -> dict[str, Any]:
        """What is kept beside the networks and the generator."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"undone": self.undone, "optimizers": optimizers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.undone = state["undone"]
        for name, optimizer in self.optimizers.items():
            # Adam keeps the tensors it is given, and they may be another algorithm's.
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
        self.cuda_graphs.clear()


def _regress(
    pairs: Sequence[Pair], inputs: Tensor, rows: Tensor, weights: Tensor, *targets: Tensor
) -> tuple[Tensor, ...]:
    """Fit networks side by side on the rows `[steps, n]` of the data; their last losses."""
    data = zip(pairs, targets, strict=True)
    tasks = [partial(_descend, pair, inputs, y, weights, rows) for pair, y in data]
    return (torch.stack(side_by_side(inputs.device, tasks)),)


def _descend(pair: Pair, inputs: Tensor, targets: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """Take a step on the weighted mean squared error of each of `rows [steps, n]`; the last error."""
    net, optimizer = pair
    learn = _mlp_gradient(net, rows.shape[1]) if isinstance(net, nn.Sequential) else _gradient(net)
    error, weight = inputs.new_zeros(1, 1), inputs.new_zeros(1, 1)
    for x, y, weight in minibatches(rows, inputs, targets, weights[:, None]):
        error = learn(x, y, weight)
        optimizer.step()
    return (weight * error.square()).mean()


def _mlp_gradient(net: nn.Sequential, rows: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function that finds the gradients of an `mlp` on so many rows, and returns its errors."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    regression = MlpRegression(weights, biases, rows, positive=isinstance(net[-1], nn.Softplus))
    for p, gradient in zip(net.parameters(), regression.gradients, strict=True):
        p.grad = gradient
    return regression.error


def _gradient(net: nn.Module) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The same for any network."""
    parameters = list(net.parameters())

    def find(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        error = net(x) - y
        loss = (weight * error.square()).mean()
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = gradient
        return error.detach()

    return find


def memory(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights of a network, and what its optimiser remembers of them."""
    remembered = [x for p in net.parameters() for x in optimizer.state[p].values()]
    return [*(p.detach() for p in net.parameters()), *remembered]


def restore(net: nn.Module, optimizer: torch.optim.Optimizer, saved: list[Tensor]) -> None:
    """Put back a copy of `memory`, in place."""
    fresh = len(saved) == len(list(net.parameters()))  # saved before the optimiser's first step
    for x, was in itertools.zip_longest(memory(net, optimizer), saved):
        x.zero_() if fresh and was is None else x.copy_(was)


def all_finite(module: nn.Module) -> bool:
    return bool(torch.stack([torch.isfinite(p).all() for p in module.parameters()]).all())
