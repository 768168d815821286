"""How numbers and names are written for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statewise.core.statistics import Interval


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, without an exponent: 0.00081, 2.56, 12,300."""
    if value == 0 or abs(value) < 1e-9:
        return "0"
    if abs(value) >= 1000:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{_decimals(value, digits)}f}"


def spread(mean: float, std: float | None) -> str:
    """`2.56 ± 0.01`: as many decimals as show the spread, within reason."""
    if std is None or not math.isfinite(std):
        return number(mean)
    decimals = _decimals(mean, 3) if mean else 0
    if std > 0:
        decimals = max(decimals, min(_decimals(std, 1), decimals + 2))
    text = f"{std:.{decimals}f}"
    return f"{mean:.{decimals}f} ± {text if float(text) else '0'}"


def percent(share: float) -> str:
    """Two digits of a share: 0.25 %, 7.7 %, 43 %."""
    value = 100 * share
    if value == 0:
        return "0 %"
    return f"{value:.{1 if value >= 1 else _decimals(value, 2)}f} %"


def share(value: float) -> str:
    """Three digits of a share, an exponent if it is tiny: 0.1 %, 12.3 %, 1e-05 %."""
    return f"{100 * value:.3g} %"


def interval_text(interval: Interval) -> str:
    decimals = min(_decimals(interval.high, 3), 6) if interval.high else 0
    low = f"{interval.low:.{decimals}f}" if interval.low else "0"
    return f"{low} to {interval.high:.{decimals}f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def millions(steps: int) -> str:
    """Millions with two decimals, or two digits of fewer than 100,000 steps: never 0 of some."""
    short = round(steps / 1e6, 2) if steps >= 100_000 else float(f"{steps / 1e6:.2g}")
    return f"{short:.6f}".rstrip("0").rstrip(".")


def several(count: int, what: str) -> str:
    """A number of things in the singular or plural: `1 suite`, `2,000 suites`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def letter(place: int) -> str:
    """A, B, C and so on to Z, then A1, B1, C1."""
    turn, place = divmod(place, 26)
    return chr(ord("A") + place) + (str(turn) if turn else "")


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def _decimals(value: float, digits: int) -> int:
    """Decimals that show so many significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))
