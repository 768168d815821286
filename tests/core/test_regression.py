"""The gradient written by hand is that of autograd."""

import pytest
import torch
from torch import nn

from statewise.core.regression import MlpRegression


@pytest.mark.parametrize("positive", [False, True])
def test_errors_and_gradients_are_those_of_autograd(positive: bool) -> None:
    torch.manual_seed(0)
    parts = [nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 2)]
    net = nn.Sequential(*parts, *[nn.Softplus()] * positive).double()
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    regression = MlpRegression([x.weight for x in layers], [x.bias for x in layers], 11, positive)
    for _ in range(2):  # the second call finds nothing left of the first
        x, y, weight = (torch.randn(11, n, dtype=torch.float64) for n in (5, 2, 1))
        loss = (weight * (net(x) - y).square()).mean()
        wanted = torch.autograd.grad(loss, list(net.parameters()))
        torch.testing.assert_close(regression.error(x, y, weight), (net(x) - y).detach())
        for mine, theirs in zip(regression.gradients, wanted, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_weights_are_read_as_they_are_at_the_call() -> None:
    layer = nn.Linear(1, 1)
    regression = MlpRegression([layer.weight], [layer.bias], 1)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(1.0)
    one = torch.ones(1, 1)
    # 2 · 3 + 1 is 5 more than 2: the slope of its square is 2 · 5 in the bias, times 3 in the weight
    assert regression.error(3.0 * one, 2.0 * one, one) == 5.0
    assert [float(g) for g in regression.gradients] == [30.0, 10.0]
