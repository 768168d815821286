"""Natural-gradient machinery: conjugate gradients and the Fisher product of a tanh Gaussian policy.

Legend: F Fisher matrix, the Hessian H of the mean KL at θ_k in the paper's Algorithm 1; P number of
parameters; k vectors at once (the reward gradient and one for each constraint); N states; h layer
outputs. Everything is exact except for the number of conjugate-gradient iterations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from statewise.core.tanh import tanh

_ROWS_IN_CACHE = 4096
"""States per block on a CPU: a block's activations then stay in the cache from layer to layer."""


@dataclass(frozen=True)
class ConjugateGradient:
    """Solutions and how they were reached; one entry of [k] for each right-hand side."""

    x: Tensor
    """[k, P]"""
    residual: Tensor
    """[k] float64, size of the remaining residual relative to the right-hand side"""
    iterations: Tensor
    """[k] int64, iterations that changed the solution"""
    curvature_failed: Tensor
    """[k] bool, stopped because the matrix showed no positive curvature"""


@torch.no_grad()
def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor],
    rhs: Tensor,
    iterations: int,
    tolerance: float = 1e-10,
) -> ConjugateGradient:
    """Solve A x = b for k right-hand sides at once, [k, P], by k independent recurrences.

    ``matvec`` maps [k, P] to [k, P] with a symmetric positive definite A. A right-hand side freezes
    when its residual falls to ``tolerance`` relative to b, and when rounding shows curvature that
    is not positive; the solution so far is kept. b = 0 gives x = 0. Sums are in float64.

    Nothing is read back from a GPU, so that the loop can be captured in a graph; on a CPU it stops
    as soon as every right-hand side is done.
    """
    x = torch.zeros_like(rhs)
    residual, direction = rhs.clone(), rhs.clone()
    start = _dot(rhs, rhs)
    goal = start * tolerance**2
    squared = start.clone()
    active = squared > goal
    failed = torch.zeros_like(active)
    counts = torch.zeros_like(active, dtype=torch.int64)
    zero = torch.zeros_like(start)

    for _ in range(iterations):
        if rhs.device.type == "cpu" and not bool(active.any()):
            break
        product = matvec(direction)
        curvature = _dot(direction, product)
        usable = (curvature > 0) & torch.isfinite(curvature)
        failed |= active & ~usable
        active &= usable
        length = torch.where(active, squared / torch.where(active, curvature, 1.0), zero)
        # A frozen row has length 0, but its product may be infinite and 0 · inf is NaN.
        product = torch.where(active[:, None], product, torch.zeros_like(product))
        x += _column(length, x) * direction
        residual -= _column(length, x) * product
        counts += active
        following = torch.where(active, _dot(residual, residual), squared)
        ratio = torch.where(active, following / torch.where(active, squared, 1.0), zero)
        # Frozen rows keep the direction that froze them; it is multiplied by nothing from here on.
        direction = torch.where(
            active[:, None], residual + _column(ratio, x) * direction, direction
        )
        squared = following
        active &= squared > goal

    relative = torch.sqrt(squared / torch.where(start > 0, start, torch.ones_like(start)))
    return ConjugateGradient(x, relative, counts, failed)


class MlpFisher:
    """Products with the Fisher matrix of a Gaussian policy whose mean is a tanh MLP.

    F = mean over states of Jᵀ diag(1/σ²) J for the mean network with Jacobian J, and 2 on the
    diagonal for a state-independent log σ. This equals the Hessian of the mean KL at the current
    parameters, at less than half the cost of double back-propagation: activations are computed
    once, a product is one forward and one backward sweep of matrix products, and the k vectors
    share them.

    Flat parameter order: log σ, then for each layer its weight ([out, in], by rows) and its bias.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        log_std: Tensor,
        inputs: Tensor,
        *,
        damping: float = 0.0,
    ) -> None:
        """weights [out, in] and biases [out] of each layer; log_std [act]; inputs [N, n].

        ``damping`` is added to the diagonal. The tensors are used as they are now: make a new one
        after the parameters change.
        """
        if len(weights) != len(biases) or not weights:
            raise ValueError(
                f"{len(weights)} weights and {len(biases)} biases; give one of each for every layer"
            )
        if weights[0].shape[1] != inputs.shape[1]:
            raise ValueError(
                f"inputs have {inputs.shape[1]} columns and the first layer takes "
                f"{weights[0].shape[1]}; give the observations the policy was fed with"
            )
        self.weights = [weight.detach() for weight in weights]
        self.damping = damping
        self.num_actions = log_std.numel()
        self.num_parameters = self.num_actions + sum(
            weight.numel() + bias.numel() for weight, bias in zip(weights, biases, strict=True)
        )
        rows = _ROWS_IN_CACHE if inputs.device.type == "cpu" else len(inputs)
        self._precision = torch.exp(-2.0 * log_std.detach()) / len(inputs)
        details = [bias.detach() for bias in biases]
        self._blocks = [
            _activations(self.weights, details, block) for block in inputs.detach().split(rows)
        ]

    @torch.no_grad()
    def product(self, vectors: Tensor) -> Tensor:
        """F v + damping · v for each row of ``vectors`` [k, P]; returns [k, P]."""
        if vectors.dim() != 2 or vectors.shape[1] != self.num_parameters:
            raise ValueError(
                f"vectors have shape {list(vectors.shape)}; give [k, {self.num_parameters}]"
            )
        tangents = self._split(vectors)
        out = vectors * self.damping
        out[:, : self.num_actions] += 2.0 * vectors[:, : self.num_actions]
        sums = [(torch.zeros_like(weight), torch.zeros_like(bias)) for weight, bias in tangents]
        for layers, slopes in self._blocks:
            self._add_block(layers, slopes, tangents, sums)
        start = self.num_actions
        for weight, bias in sums:
            for part in (weight.reshape(len(vectors), -1), bias.reshape(len(vectors), -1)):
                out[:, start : start + part.shape[1]] += part
                start += part.shape[1]
        return out

    def _split(self, vectors: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The weight [k · out, in] and bias [k · out] parts of each layer."""
        parts, start = [], self.num_actions
        for weight in self.weights:
            size = weight.numel()
            rows = len(vectors) * len(weight)
            tangent = vectors[:, start : start + size].reshape(rows, weight.shape[1])
            bias = vectors[:, start + size : start + size + len(weight)].reshape(rows)
            parts.append((tangent, bias))
            start += size + len(weight)
        return parts

    def _add_block(
        self,
        layers: list[Tensor],
        slopes: list[Tensor],
        tangents: list[tuple[Tensor, Tensor]],
        sums: list[tuple[Tensor, Tensor]],
    ) -> None:
        """Add Jᵀ diag(1/σ²) J v / N of one block of states to ``sums``."""
        rows, k = len(layers[0]), tangents[0][1].numel() // len(self.weights[0])
        moved = None  # how layer outputs move along the tangents, [rows, k · width]
        for i, (tangent, bias) in enumerate(tangents):
            change = torch.addmm(bias, layers[i], tangent.T)
            if moved is not None:
                width, out = self.weights[i].shape[1], self.weights[i].shape[0]
                change.view(rows * k, out).addmm_(moved.view(rows * k, width), self.weights[i].T)
            if i < len(slopes):
                change.view(rows, k, -1).mul_(slopes[i].unsqueeze(1))
            moved = change
        assert moved is not None
        pulled = moved.view(rows, k, -1).mul_(self._precision).view(rows, -1)
        for i in range(len(self.weights) - 1, -1, -1):
            sums[i][0].addmm_(pulled.T, layers[i])
            sums[i][1].add_(pulled.sum(0))
            if i > 0:
                out, width = self.weights[i].shape
                back = pulled.view(rows * k, out) @ self.weights[i]
                back.view(rows, k, width).mul_(slopes[i - 1].unsqueeze(1))
                pulled = back.view(rows, k * width)


def _activations(
    weights: list[Tensor], biases: list[Tensor], inputs: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs of every layer, and the slopes 1 - h² of the tanh outputs."""
    layers, slopes = [inputs], []
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        output = tanh(torch.addmm(bias, layers[-1], weight.T))
        layers.append(output)
        slopes.append(1.0 - output.square())
    return layers, slopes


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() * b.double()).sum(-1)


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.to(like.dtype)[:, None]
