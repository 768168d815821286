"""What holds of the paper's theory and what does not: checks, counter-examples, a step that is kept.

`python -m statewise.theory.bounds` prints them; docs/theory.md explains them.
"""

from __future__ import annotations

import time

import numpy as np

from statewise.theory.bounds import (
    path_pinsker,
    printed_kl_form,
    proposition_2_printed,
    sum_before,
    theorem_1,
    theorem_1_2h,
    theorem_1_span,
    theorem_1_steps,
)
from statewise.theory.tabular import (
    Array,
    Chain,
    Problem,
    augment,
    compare,
    each_step,
    expected_return,
    kl_divergence,
    law,
    mean_over,
    random_pairs,
    random_problem,
    return_variance,
    running_maximum,
    tilt,
    values,
)

# --- counter-examples ----------------------------------------------------------------------------

PROPOSITION_1 = (
    (17, 27, 5e-4, 0.264),
    (12, 60, 0.005, 0.3),
    (20, 52, 4.5e-4, 0.2245),
    (64, 596, 1.5e-4, 0.079),
)
"""(n, N, alpha, beta) of `leave_or_stay` whose excess is above the printed penalty."""

PROPOSITION_2 = ((0.99, 6, 1994, 0.0342, 0.1141), (0.999, 24, 11976, 0.0072, 0.029))
"""(gamma, n, N, alpha, beta) of `leave_or_stay` (sign -1) that lose more than printed."""


def time_free_example(p_a: float = 0.3, p_new: float = 0.301, H: int = 9) -> tuple[float, float]:
    """True change of J_D, and Theorem 1's right-hand side with an advantage that ignores time.

    One state; action a costs 1 and b nothing. The advantage is the literal definition, "start at
    s^ with the full horizon ahead", used at every step.
    """
    C = np.array([1, 0])[None, :, None]
    one = np.ones((1, 2, 1))
    chain, D, _ = augment(Problem(one, C, 0 * one, np.array([0.0, 1.0]), np.ones(1), H))
    pi = np.array([[[p_a, 1 - p_a], [p_a, 1 - p_a]]])  # [1, (M=0, M=1), A]
    new = np.array([[[p_new, 1 - p_new], [p_a, 1 - p_a]]])
    c = compare(chain, D, pi, new)
    drift = (new[0] * values(chain, D, pi).A[0]).sum(-1)  # [n], from step 0 only
    surrogate = float((law(chain, pi)[:-1] * drift).sum())
    return float(c.gap), surrogate + 2 * (H + 1) * float(np.abs(drift).max() * c.tv.sum())


def leave_or_stay(
    n: int, N: int, alpha: float, beta: float, eta: float, sign: float = 1.0
) -> tuple[Chain, Array, Array, Array]:
    """Two states, n early steps in which one may leave the first for good, then N late steps.

    Every step also takes a bad or a good action; a bad one raises the maximum by 1 whatever the
    state (the level reached is part of the state and is dropped: no value depends on it). pi leaves
    with probability beta and errs with 1/2. pi' leaves with alpha and errs with 1/2 + sign * eta
    where it stayed, 1/2 - sign * eta where it left. Returns chain, increments, pi, pi'.
    """
    early = (np.arange(n + N) < n).astype(float)
    T = np.zeros((n + N, 2, 2, 2, 2))  # [t, s, leave, bad, s']
    T[:, 1, :, :, 1] = 1.0
    T[:, 0, 0, :, 0] = 1.0
    T[:, 0, 1, :, 1] = early[:, None]
    T[:, 0, 1, :, 0] = 1 - early[:, None]
    g = np.broadcast_to(np.array([0.0, 1.0])[:, None], (1, 2, 2, 2, 2))

    def policy(leave: float, tilt_bad: float) -> Array:
        out = np.stack([early * leave, 0 * early], -1)  # [t, s]
        bad = np.array([0.5 + tilt_bad, 0.5 - tilt_bad])  # [s]
        both = np.stack([1 - out, out], -1)[..., None] * np.stack([1 - bad, bad], -1)[:, None]
        return both.reshape(n + N, 2, 4)

    chain = Chain(T.reshape(n + N, 2, 4, 2), np.array([1.0, 0.0]), n + N - 1)
    return chain, g.reshape(1, 2, 4, 2), policy(beta, 0.0), policy(alpha, sign * eta)


def random_walk(steps: int, kappa: float, eta: float) -> tuple[Chain, Array, Array, Array]:
    """A fair walk on the line with a bad or good action at every step, as in `leave_or_stay`.

    pi moves up with 1/2 and errs with 1/2; pi' moves up with 1/2 + kappa and errs with
    1/2 + eta * sign(position). Returns chain, increments, pi, pi'.
    """
    n = 2 * steps + 1
    x = np.arange(n)
    T = np.zeros((n, 2, 2, n))  # [x, up, bad, x']
    T[x, 0, :, np.maximum(x - 1, 0)] = 1.0
    T[x, 1, :, np.minimum(x + 1, n - 1)] = 1.0
    g = np.broadcast_to(np.array([0.0, 1.0])[:, None], T.shape)

    def policy(up: float, tilt_bad: float) -> Array:
        bad = 0.5 + tilt_bad * np.sign(x - steps)
        both = np.array([1 - up, up])[:, None] * np.stack([1 - bad, bad], -1)[:, None]
        return both.reshape(1, n, 4)

    chain = Chain(T.reshape(1, n, 4, n), np.eye(n)[steps], steps - 1)
    return chain, g.reshape(1, n, 4, n), policy(0.5, 0.0), policy(0.5 + kappa, eta)


def random_walk_ratio(steps: int, kappa: float = 1e-5) -> float:
    """Excess / penalty in `random_walk` (eta << kappa) if the delta of the paper is a MEAN KL.

    Only the law of the position matters, so a thousand steps take no time: the excess is
    eta * sum_t E_{p'_t - p_t}[sign(x_t)], the penalty 2 (H+1) eta sqrt(mean KL / 2).
    """
    p = p_new = np.ones(1)
    excess = 0.0
    for t in range(steps):
        excess += float(((p_new - p) * np.sign(2 * np.arange(t + 1) - t)).sum())
        p = np.convolve(p, [0.5, 0.5])
        p_new = np.convolve(p_new, [0.5 - kappa, 0.5 + kappa])
    mean_kl = float(kl_divergence(np.array([0.5 + kappa, 0.5 - kappa]), np.full(2, 0.5)))
    return excess / (2 * steps * np.sqrt(mean_kl / 2))


# --- a step that keeps its promise ---------------------------------------------------------------


def _scpo_step(
    chain: Chain,
    D: Array,
    R: Array,
    pi: Array,
    w: Array,
    delta: float = 0.5,
    gamma: float = 0.99,
    penalised: bool = True,
) -> Array:
    """One SCPO update of tabular softmax policies pi [B, H+1, n, A] with limits w [B].

    Candidates are pi * exp(x (A - nu A_D)), the solutions of the Lagrangian of the paper's update
    problem (and the natural-gradient steps of a softmax table), over a grid of x and nu. Of those
    with summed KL(old || new) <= delta and J_D + E_dbar[A_D] + path-Pinsker penalty <= w, the one
    with the best reward surrogate is taken; a policy without such a candidate is left unchanged.
    `penalised=False` drops the penalty, as practical implementations do.
    """
    v, v_D = values(chain, R, pi, gamma), values(chain, D, pi)
    p, J_D = law(chain, pi)[..., :-1, :], expected_return(chain, v_D)
    pi = each_step(pi, chain.H)
    discount = gamma ** np.arange(chain.H + 1)
    unit = np.abs(v.A).max((-1, -2, -3), keepdims=True) + 1e-12
    unit_D = np.abs(v_D.A).max((-1, -2, -3), keepdims=True) + 1e-12
    best, best_gain = pi.copy(), np.zeros(pi.shape[0])
    for nu in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
        for x in 4.0 * 0.6 ** np.arange(16):
            new = tilt(pi, x * (v.A / unit - nu * v_D.A / unit_D))
            drift_D = (new * v_D.A).sum(-1)
            gain = (discount * mean_over(p, (new * v.A).sum(-1))).sum(-1)
            kl = mean_over(p, kl_divergence(pi, new))
            bound = J_D + mean_over(p, drift_D).sum(-1)
            if penalised:
                eps = np.where(p > 0, np.abs(drift_D), 0.0).max((-1, -2))
                bound += 2 * eps * np.minimum(1.0, np.sqrt(sum_before(kl) / 2)).sum(-1)
            better = (kl.sum(-1) <= delta) & (bound <= w) & (gain > best_gain)
            best[better], best_gain[better] = new[better], gain[better]
    return best


def scpo_run(
    seed: int, B: int = 100, iterations: int = 10, penalised: bool = True
) -> tuple[Array, Array]:
    """J_D - w after every update [iterations, B], and the total gain in return [B].

    B random problems start from random policies within 10 % below their limit w.
    """
    rng = np.random.default_rng(seed)
    chain, D, R = augment(random_problem(rng, B, S=3, A=3, K=3, H=6))
    n, gamma = chain.mu.shape[-1], 0.99
    pi = each_step(rng.dirichlet(np.ones(3), (B, 1, n)), chain.H)
    w = expected_return(chain, values(chain, D, pi)) * rng.uniform(1.0, 1.1, B)
    start = expected_return(chain, values(chain, R, pi, gamma))
    over = np.zeros((iterations, B))
    for i in range(iterations):
        pi = _scpo_step(chain, D, R, pi, w, gamma=gamma, penalised=penalised)
        over[i] = expected_return(chain, values(chain, D, pi)) - w
    return over, expected_return(chain, values(chain, R, pi, gamma)) - start


# --- the table -----------------------------------------------------------------------------------


def check_random(seed: int = 0, groups: int = 100) -> list[str]:
    """Lines of the table for `groups` * 100 random problems, costs and rewards (gamma = 0.97)."""
    bounds = (theorem_1, theorem_1_2h, theorem_1_steps, theorem_1_span, path_pinsker)
    forms = {f.__name__: f for f in (*bounds, printed_kl_form)}
    violated = dict.fromkeys(forms, 0)
    ratio: dict[str, list[Array]] = {name: [] for name in forms}
    error = variance = 0.0
    total = jensen = mass_jensen = 0
    for pair in random_pairs(seed, groups):
        c = compare(pair.chain, pair.D, pair.pi, pair.new)
        r = compare(pair.chain, pair.R, pair.pi, pair.new, 0.97)
        total += c.gap.size
        error = max(error, float(np.abs(c.gap - c.identity).max()))
        M, p = running_maximum(pair.problem), law(pair.chain, pair.pi)[:, -1]
        var = (p * M**2).sum(-1) - (p * M).sum(-1) ** 2
        var_error = np.abs(var - return_variance(pair.chain, pair.D, pair.pi)).max()
        variance = max(variance, float(var_error))
        tv, kl = c.tv.sum(-1), c.kl_printed.sum(-1)
        jensen += int((tv > np.sqrt(kl / 2)).sum())
        mass_jensen += int((tv > np.sqrt((pair.chain.H + 1) * kl / 2) + 1e-12).sum())
        for name, form in forms.items():
            for x in (c, r):
                violated[name] += int((x.excess > form(x) + 1e-12).sum())
            moved = c.excess > 1e-12
            ratio[name].append(form(c)[moved] / c.excess[moved])
    lines = [
        f"{total} random problems",
        f"  performance identity, largest error         {error:.1e}",
        f"  variance identity, largest error            {variance:.1e}",
        f"  Jensen step on d-bar fails                  {jensen} of {total}",
        f"  the same with the factor sqrt(H+1) fails    {mass_jensen} of {total}",
        "  penalty form       violated (cost + reward)   median penalty / excess (cost)",
    ]
    for name in forms:
        median = float(np.median(np.concatenate(ratio[name])))
        lines.append(f"    {name:16s} {violated[name]:>6d} of {2 * total:<20d} {median:8.0f}")
    return lines


def check_examples() -> list[str]:
    """Lines of the table for the counter-examples."""
    change, bound = time_free_example()
    lines = [
        "Theorem 1 with an advantage that ignores time (one state, H = 9)",
        f"  true change {change:.3e} > right-hand side {bound:.3e}",
        "Proposition 1 with KL(new || old): excess, printed, corrected, Theorem 1, excess/printed",
    ]
    for n, N, alpha, beta in PROPOSITION_1:
        c = compare(*leave_or_stay(n, N, alpha, beta, 1e-4))
        row = [float(x) for x in (c.excess, printed_kl_form(c), path_pinsker(c), theorem_1(c))]
        numbers = " ".join(f"{x:.5f}" for x in row)
        lines.append(f"  {n + N:4d} steps (n = {n:2d}) {numbers}   {row[0] / row[1]:.3f}")
    c = compare(*leave_or_stay(1, 71, 0.44, 0.62, 1e-4))
    lines.append(
        f"  sharpest corrected case: excess / corrected {float(c.excess / path_pinsker(c)):.3f}"
    )
    walks = ", ".join(f"{random_walk_ratio(n):.2f} ({n} steps)" for n in (6, 10, 100, 1000))
    lines.append(f"Proposition 1 with a mean KL: excess/printed {walks}")
    for gamma, n, N, alpha, beta in PROPOSITION_2:
        c = compare(*leave_or_stay(n, N, alpha, beta, 1e-4, sign=-1.0), gamma)
        loss, printed = -float(c.gap), float(proposition_2_printed(c))
        lines.append(
            f"Proposition 2 with KL(new || old), gamma {gamma}: loss {loss:.5f}, printed"
            f" {printed:.5f} (ratio {loss / printed:.3f}), corrected {float(path_pinsker(c)):.5f}"
        )
    return lines


def main() -> None:
    """Print what holds and what does not."""
    began = time.perf_counter()
    print("\n".join(check_random() + check_examples()))
    for penalised in (True, False):
        over, gain = scpo_run(0, penalised=penalised)
        name = "corrected penalty" if penalised else "no penalty       "
        crossed = int((over.max(0) > 1e-12).sum())
        print(
            f"SCPO step, {name}: limit crossed in {crossed} of {gain.size} problems,"
            f" worst J_D - w {over.max():+.1e}, median gain in return {np.median(gain):.3f}"
        )
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
