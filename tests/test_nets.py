"""What networks promise beyond their layers."""

import torch

from statewise.nets import Scaler


def scaler_of(*pieces: torch.Tensor) -> Scaler:
    scaler = Scaler(pieces[0].shape[1])
    for piece in pieces:
        scaler.update(piece)
    return scaler


def test_scaled_inputs_have_mean_0_and_spread_1_over_all_pieces_together() -> None:
    x = torch.randn(1000, 3) * torch.tensor([1e-1, 1.0, 300.0]) + torch.tensor([0.0, -4.0, 1e3])
    scaled = scaler_of(x[:10], x[10:700], x[700:])(x)
    assert torch.allclose(scaled.mean(0), torch.zeros(3), atol=1e-4)
    assert torch.allclose(scaled.std(0, correction=0), torch.ones(3), atol=1e-4)


def test_inputs_are_left_as_they_are_until_data_have_been_seen() -> None:
    x = torch.randn(5, 2)
    assert torch.equal(Scaler(2)(x), x)


def test_an_input_that_never_changed_becomes_0_and_may_change_later() -> None:
    gravity = torch.full((50, 1), 9.81)
    scaler = scaler_of(gravity)
    assert scaler(gravity).abs().max() < 1e-3
    assert scaler(gravity + 1.0).abs().max() < 2.0


def test_no_scaled_input_is_larger_than_ten() -> None:
    assert scaler_of(torch.randn(100, 1))(torch.tensor([[1e6], [-1e6]])).tolist() == [
        [10.0],
        [-10.0],
    ]


def test_rows_that_are_not_finite_change_nothing() -> None:
    good, bad = torch.randn(100, 2), torch.randn(100, 2)
    bad[3, 1] = torch.nan
    first, after = scaler_of(good), scaler_of(good, bad)
    assert torch.equal(first(good), after(good))
    assert torch.equal(scaler_of(bad)(good), good)
