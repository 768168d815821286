"""Feedback on a cost: how much of a step its constraint asks for.

A cost gradient is mostly noise once costs are rare, so a step seldom does to the cost what was planned.
A controller corrects this. It compares the cost with its limit after each step, and moves the share of
the trust region that the constraint asks for: up while the cost is above its limit, down while it is
below. This is proportional-integral control, as of a thermostat. The limit itself tightens while a run
goes on. A policy that has to be safe before it knows its task learns to stand still.

Legend: e relative error of a cost, I integral of the errors, u share of the region's radius. With u the
step must lower the cost by u times sqrt(2 δ bᵀF⁻¹b), the most that any step in the region can do. At 1
the step does nothing else, at 0 it leaves the cost as it is, and at -1 the constraint is free.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PROPORTIONAL = 5.0
"""The proportional gain in units of the integral gain. Chosen by hand: a violation of twice the limit
acts at once like five epochs of it."""
FIRST = 0.5
"""The largest limit, as a share of the largest cost or of the episodes. Chosen by hand: every other
episode may violate, which is more than most policies do that only follow the reward."""


def tightened(
    limit: npt.ArrayLike, scale: npt.ArrayLike, progress: float, power: float = 1.0
) -> Array:
    """`[m]` the limit that holds now: the wanted one divided by the progress to a power.

    It is at most `FIRST` of its scale. Half-way through the training it is twice the wanted limit, if
    the power is 1. A power of 0 gives the wanted limit from the start.

    scale: `[m]` the largest that the compared cost can be. progress: share of the training that is
    done, above 0 and at most 1.
    """
    last = np.asarray(limit, dtype=np.float64)
    first = np.maximum(last, FIRST * np.asarray(scale, dtype=np.float64))
    return np.asarray(np.minimum(last / progress**power, first))


def relative_error(excess: npt.ArrayLike, limit: npt.ArrayLike) -> Array:
    """e `[m]`: by what share of its limit a cost is too high, from -1 (no cost) to 1 (twice the limit).

    excess: `[m]` the cost minus its limit. At a limit of 0 any cost is too high, and none is not.
    """
    above, least = np.asarray(excess, dtype=np.float64), np.asarray(limit, dtype=np.float64)
    sign = np.where(above > 0.0, 1.0, -1.0)
    share = np.divide(above, least, out=sign, where=least > 0.0)
    return np.clip(share, -1.0, 1.0)


def control(error: Array, integral: Array, gain: float, most: float) -> tuple[Array, Array]:
    """u `[m]`, from -1 to `most`, and the new integral `[m]` in the same bounds.

    The integral cannot wind up beyond what the region can do.
    """
    integral = np.clip(integral + gain * error, -1.0, most)
    return np.clip(PROPORTIONAL * gain * error + integral, -1.0, most), integral
