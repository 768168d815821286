"""The diagonal Gaussian, against torch.distributions and by sampling."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from statewise.core.gaussian import entropy, kl, log_prob


@pytest.fixture
def policies():
    generator = torch.Generator().manual_seed(0)
    mean, other = torch.randn(2, 50, 3, generator=generator, dtype=torch.float64)
    log_std, other_log_std = 0.5 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
    return mean, log_std, other, other_log_std


def distribution(mean, log_std):
    return Independent(Normal(mean, log_std.exp()), 1)


def test_log_prob_and_entropy_agree_with_torch(policies):
    mean, log_std, action, _ = policies
    reference = distribution(mean, log_std)
    torch.testing.assert_close(log_prob(mean, log_std, action), reference.log_prob(action))
    torch.testing.assert_close(entropy(log_std).expand(50), reference.entropy())


def test_log_prob_of_the_standard_normal_at_its_mean():
    zero = torch.zeros(2)
    assert log_prob(zero, zero, zero).item() == pytest.approx(-math.log(2 * math.pi))


def test_kl_takes_the_old_policy_first(policies):
    old, new = policies[:2], policies[2:]
    expected = kl_divergence(distribution(*old), distribution(*new))
    torch.testing.assert_close(kl(*old, *new), expected)
    assert not torch.allclose(kl(*old, *new), kl(*new, *old))


def test_kl_of_a_policy_with_itself_is_exactly_zero(policies):
    mean, log_std = policies[:2]
    assert (kl(mean, log_std, mean, log_std) == 0).all()


def test_small_single_precision_kl_keeps_its_digits():
    # σ' = σ e^{-x}: KL = ½(e^{2x} - 1 - 2x), about x² = 1e-6; the naive sum loses it against ½.
    log_std = torch.zeros(1)
    got = kl(log_std, log_std, log_std, log_std - 1e-3).item()
    assert got == pytest.approx(0.5 * (math.expm1(2e-3) - 2e-3), rel=1e-3)


def test_states_may_have_their_own_spread(policies):
    mean, log_std, other, other_log_std = policies
    wide = log_std.expand_as(mean)
    torch.testing.assert_close(log_prob(mean, wide, other), log_prob(mean, log_std, other))
    torch.testing.assert_close(
        kl(mean, wide, other, other_log_std), kl(mean, log_std, other, other_log_std)
    )
