"""The activation is tanh, faster."""

import torch

from statewise.core.tanh import tanh


def test_it_is_tanh_to_rounding() -> None:
    x = torch.linspace(-20, 20, 100_001)
    assert (tanh(x) - torch.tanh(x)).abs().max() < 3e-7


def test_its_slope_is_that_of_tanh() -> None:
    x = torch.linspace(-4, 4, 101, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(tanh, (x,))


def test_what_comes_in_is_left_alone() -> None:
    x = torch.ones(3)
    tanh(x)
    assert torch.equal(x, torch.ones(3))
