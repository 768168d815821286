"""Regression of a tanh MLP: its squared error and the gradient of it, written out by hand."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from statewise.core.tanh import tanh_


class MlpRegression:
    """Weighted mean squared error of a tanh MLP, and its gradient, always in the same memory.

    Autograd takes new memory at every step, and on a CPU that and its bookkeeping are a third of
    the time.
    """

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor], rows: int, positive: bool = False
    ) -> None:
        """weights [out, in] and biases [out] of each layer, read anew in every call.

        rows: N of every call. positive: the network ends in a Softplus.
        """
        self.weights = [weight.detach() for weight in weights]
        self.biases = [bias.detach() for bias in biases]
        self.positive = positive
        self.gradients = [torch.empty_like(p) for p in _alternating(self.weights, self.biases)]
        """of the last call, for each layer its weight and its bias"""
        self._outputs = [weight.new_empty(rows, len(weight)) for weight in weights]
        self._pulled = [torch.empty_like(output) for output in self._outputs]

    @torch.no_grad()
    def error(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """network(x) - y, [N, m], for x [N, n], y [N, m] and weight [N, 1].

        Leaves the gradients of mean(weight · error²).
        """
        layers = list(zip(self.weights, self.biases, self._outputs, strict=True))
        inputs = [x]
        for W, b, output in layers:
            torch.addmm(b, inputs[-1], W.T, out=output)
            if output is not self._outputs[-1]:
                inputs.append(tanh_(output))
        final, pulled = self._outputs[-1], self._pulled[-1]
        error = (functional.softplus(final) if self.positive else final) - y
        torch.mul(error, weight, out=pulled).mul_(2.0 / error.numel())
        if self.positive:
            pulled.mul_(torch.sigmoid(final))
        for i in range(len(layers) - 1, -1, -1):
            if x.is_cuda:
                torch.mm(pulled.T, inputs[i], out=self.gradients[2 * i])
            else:  # that order is slower on a CPU where the number of inputs is odd
                self.gradients[2 * i].copy_((inputs[i].T @ pulled).T)
            torch.sum(pulled, 0, out=self.gradients[2 * i + 1])
            if i > 0:
                back = torch.mm(pulled, self.weights[i], out=self._pulled[i - 1])
                pulled = torch.ops.aten.tanh_backward.grad_input(back, inputs[i], grad_input=back)
        return error


def _alternating(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
    return [x for pair in zip(a, b, strict=True) for x in pair]
