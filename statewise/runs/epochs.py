"""How many epochs a run has."""


def usual_final_batch(steps: int, steps_per_epoch: int) -> int:
    """How many times as long the epochs of the second half are where nobody says: 4 in long runs."""
    return 4 if round(steps / steps_per_epoch) >= 100 else 1


def planned_epochs(steps: int, steps_per_epoch: int, final_batch: int = 1) -> tuple[int, int]:
    """How many epochs a run of so many steps has, and how many of them come before the larger ones.

    The second half of the steps is collected in epochs `final_batch` times as long.
    """
    if final_batch <= 1:
        whole = max(1, round(steps / steps_per_epoch))
        return whole, whole
    short = max(1, round(steps / 2 / steps_per_epoch))
    long = max(1, round(steps / 2 / (steps_per_epoch * final_batch)))
    return short + long, short
