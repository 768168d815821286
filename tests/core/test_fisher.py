"""Fisher products against double back-propagation; conjugate gradients against direct solves."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import linear

from statewise.core import fisher
from statewise.core.fisher import MlpFisher, conjugate_gradient
from statewise.core.gaussian import kl


def network(sizes, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = [
        torch.randn(out, into, generator=generator, dtype=dtype) / into**0.5
        for into, out in pairwise(sizes)
    ]
    biases = [torch.randn(out, generator=generator, dtype=dtype) for out in sizes[1:]]
    log_std = 0.3 * torch.randn(sizes[-1], generator=generator, dtype=dtype) - 0.5
    inputs = torch.randn(37, sizes[0], generator=generator, dtype=dtype)
    return weights, biases, log_std, inputs


def unflatten(flat, weights, biases, log_std):
    parts, start = [], 0
    like = [log_std]
    for weight, bias in zip(weights, biases, strict=True):
        like += [weight, bias]
    for tensor in like:
        parts.append(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
    return parts[1::2], parts[2::2], parts[0]


def mean_of(weights, biases, inputs):
    hidden = inputs
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        hidden = torch.tanh(linear(hidden, weight, bias))
    return linear(hidden, weights[-1], biases[-1])


def kl_hessian(weights, biases, log_std, inputs):
    """The whole matrix, from two derivatives of the mean KL at the current parameters."""
    old_mean = mean_of(weights, biases, inputs)

    def mean_kl(flat):
        new_weights, new_biases, new_log_std = unflatten(flat, weights, biases, log_std)
        return kl(old_mean, log_std, mean_of(new_weights, new_biases, inputs), new_log_std).mean()

    parts = [log_std]
    for weight, bias in zip(weights, biases, strict=True):
        parts += [weight.reshape(-1), bias]
    flat = torch.cat(parts)
    return torch.autograd.functional.hessian(mean_kl, flat)


@pytest.mark.parametrize("sizes", [(5, 7, 6, 3), (4, 2), (3, 8, 1)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_product_equals_the_hessian_of_the_mean_kl(sizes, k):
    weights, biases, log_std, inputs = network(sizes)
    exact = kl_hessian(weights, biases, log_std, inputs)
    product = MlpFisher(weights, biases, log_std, inputs, damping=0.1)
    vectors = torch.randn(k, product.num_parameters, dtype=torch.float64)
    expected = vectors @ exact + 0.1 * vectors
    torch.testing.assert_close(product.product(vectors), expected, rtol=1e-9, atol=1e-11)


def test_blocks_of_states_give_the_same_product(monkeypatch):
    parts = network((5, 7, 6, 3))
    whole = MlpFisher(*parts)
    vectors = torch.randn(2, whole.num_parameters, dtype=torch.float64)
    expected = whole.product(vectors)
    monkeypatch.setattr(fisher, "_ROWS_IN_CACHE", 10)  # 37 states: the last block is short
    torch.testing.assert_close(MlpFisher(*parts).product(vectors), expected)


def test_product_leaves_its_input_alone_and_can_be_repeated():
    product = MlpFisher(*network((5, 7, 6, 3)))
    vectors = torch.randn(2, product.num_parameters, dtype=torch.float64)
    kept = vectors.clone()
    first = product.product(vectors)
    torch.testing.assert_close(product.product(vectors), first, rtol=0, atol=0)
    torch.testing.assert_close(vectors, kept, rtol=0, atol=0)


def test_product_accepts_parameters_that_require_gradients():
    weights, biases, log_std, inputs = network((5, 7, 3))
    live = [w.requires_grad_() for w in weights]
    product = MlpFisher(live, biases, log_std.requires_grad_(), inputs)
    out = product.product(torch.ones(1, product.num_parameters, dtype=torch.float64))
    assert not out.requires_grad


def test_wrong_widths_are_refused_with_the_right_ones():
    weights, biases, log_std, inputs = network((5, 7, 3))
    with pytest.raises(ValueError, match="inputs have 4 columns and the first layer takes 5"):
        MlpFisher(weights, biases, log_std, inputs[:, :4])
    with pytest.raises(ValueError, match=r"give \[k, 69\]"):
        MlpFisher(weights, biases, log_std, inputs).product(torch.zeros(1, 3))


def positive_definite(size, condition=1e3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    values = torch.logspace(0, -torch.log10(torch.tensor(condition)).item(), size).double()
    return basis @ torch.diag(values) @ basis.T


def test_conjugate_gradient_solves_several_systems_at_once():
    matrix = positive_definite(30)
    rhs = torch.randn(3, 30, dtype=torch.float64)
    result = conjugate_gradient(lambda v: v @ matrix, rhs, iterations=200)
    torch.testing.assert_close(result.x, torch.linalg.solve(matrix, rhs.T).T, rtol=1e-6, atol=1e-6)
    assert (result.residual <= 1e-10).all() and not result.curvature_failed.any()


def test_right_hand_sides_do_not_influence_each_other():
    matrix = positive_definite(30)
    rhs = torch.randn(3, 30, dtype=torch.float64) * torch.tensor([[1e-9], [1.0], [1e9]])
    together = conjugate_gradient(lambda v: v @ matrix, rhs, iterations=12)
    for i in range(3):
        alone = conjugate_gradient(lambda v: v @ matrix, rhs[i : i + 1], iterations=12)
        torch.testing.assert_close(together.x[i], alone.x[0])


def test_a_converged_system_stays_frozen_while_others_go_on():
    # An eigenvector is solved by one iteration; the random one beside it needs many.
    matrix = positive_definite(30)
    _, vectors = torch.linalg.eigh(matrix)
    rhs = torch.stack([vectors[:, 4], torch.randn(30, dtype=torch.float64)])
    result = conjugate_gradient(lambda v: v @ matrix, rhs, iterations=60)
    assert result.iterations[0] <= 2 < result.iterations[1]
    torch.testing.assert_close(result.x, torch.linalg.solve(matrix, rhs.T).T, rtol=1e-6, atol=1e-6)


def test_zero_right_hand_side_gives_zero():
    result = conjugate_gradient(lambda v: 2 * v, torch.zeros(2, 5), iterations=10)
    assert (result.x == 0).all() and (result.residual == 0).all() and (result.iterations == 0).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_curvature_that_is_not_positive_stops_that_system_only(bad):
    scale = torch.tensor([[bad], [2.0]])
    result = conjugate_gradient(lambda v: scale * v, torch.ones(2, 4), iterations=5)
    assert result.curvature_failed.tolist() == [True, False]
    assert (result.x[0] == 0).all()
    torch.testing.assert_close(result.x[1], torch.full((4,), 0.5))


def test_single_precision_natural_gradient_is_accurate():
    weights, biases, log_std, inputs = network((20, 16, 16, 2), dtype=torch.float32)
    product = MlpFisher(weights, biases, log_std, inputs, damping=1e-2)
    rhs = torch.randn(2, product.num_parameters, generator=torch.Generator().manual_seed(1))
    result = conjugate_gradient(product.product, rhs, iterations=100)
    precise = [[t.double() for t in tensors] for tensors in (weights, biases)]
    exact = MlpFisher(*precise, log_std.double(), inputs.double(), damping=1e-2)
    residual = exact.product(result.x.double()) - rhs
    assert (residual.norm(dim=1) < 1e-4 * rhs.norm(dim=1)).all()
