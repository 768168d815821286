"""Verdicts: counted in the order of beginning, at the promised confidence."""

import numpy as np
import pytest
from coin_env import LONG, SHORT, CoinEnv, coin_algo

from statewise.core.statistics import rate_interval
from statewise.deploy.claims import add_fixed, add_sequentially, conclude, make_claims
from statewise.deploy.domain import Domain
from statewise.deploy.outcomes import join, run_in_order


def outcomes(env: CoinEnv, count: int, seed: int = 0) -> np.ndarray:
    parts, have = [], 0
    for part in run_in_order(coin_algo(env), env, seed, False, Domain()):
        parts.append(part)
        have += len(part)
        if have >= count:
            break
    return join(parts).first(count).violations(0.0)


def test_outcomes_come_in_the_order_of_beginning_whatever_their_length() -> None:
    """Safe episodes end six times sooner. Counted as they end, the first ones would look safer."""
    env = CoinEnv(0.3)
    found = outcomes(env, 400)
    assert LONG > SHORT and found.tolist() == env.drawn[:400]
    assert found[:16].mean() > 0  # the first round has violations, though they end last


def test_a_simulator_fault_violates_every_constraint() -> None:
    env = CoinEnv(0.3, 0.0, faulty=True)
    found = outcomes(env, 50)
    assert found[:, 0].any() and (found[:, 0] == found[:, 1]).all()


def test_verdicts_do_not_depend_on_how_episodes_are_handed_over() -> None:
    broken = np.random.default_rng(1).random((3000, 2)) < (0.002, 0.004)
    whole, pieces = (make_claims(("a", "b"), (0.01,), 0.95) for _ in range(2))
    assert add_sequentially(whole, broken)
    for start in range(0, 3000, 7):
        if add_sequentially(pieces, broken[start : start + 7]):
            break
    assert conclude(whole, True) == conclude(pieces, True) == "proved"
    assert whole == pieces and whole[0].episodes < 3000


def test_counting_stops_at_the_episode_that_decides() -> None:
    claims = make_claims(("a",), (0.01,), 0.95)
    assert add_sequentially(claims, np.ones((50, 1), dtype=bool))
    assert conclude(claims, True) == "refuted"
    assert claims[0].episodes < 5 and claims[0].low > 0.01
    assert claims[0].violating == list(range(claims[0].episodes))


def test_one_refuted_claim_refutes_them_all_and_an_open_one_leaves_them_open() -> None:
    claims = make_claims(("a", "b"), (0.5,), 0.95)
    add_fixed(claims, np.tile([True, False], (100, 1)))
    assert conclude(claims, False) == "refuted"
    claims = make_claims(("a", "b"), (0.01,), 0.95)
    assert not add_sequentially(claims, np.zeros((100, 2), dtype=bool))
    assert conclude(claims, True) == "undecided"


def test_claims_share_the_confidence() -> None:
    claims = make_claims(("a", "b"), (0.01, 0.02), 0.9)
    assert [claim.alpha for claim in claims] == pytest.approx([0.05, 0.05])
    assert [claim.max_violation for claim in claims] == [0.01, 0.02]


def test_a_fixed_number_has_exact_bounds() -> None:
    claims = make_claims(("a",), (0.05,), 0.95)
    broken = np.zeros((200, 1), dtype=bool)
    broken[:4] = True
    add_fixed(claims, broken)
    assert conclude(claims, False) == "proved"
    exact = rate_interval(4, 200, level=0.9)  # each side is wrong with 5 %
    assert (claims[0].low, claims[0].high) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize(
    ("rates", "confidence"),
    [((0.0,), 0.95), ((1.0,), 0.95), ((-0.1,), 0.95), ((0.01,), 1.0), ((0.01,), 0.0)],
)
def test_claims_that_cannot_be_are_refused(rates: tuple[float, ...], confidence: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        make_claims(("a",), rates, confidence)


def test_a_wrong_number_of_claims_is_refused() -> None:
    with pytest.raises(ValueError, match="one for all, or one for each"):
        make_claims(("a",), (0.1, 0.2), 0.95)
    with pytest.raises(ValueError, match="nothing to certify"):
        make_claims((), (0.1,), 0.95)
