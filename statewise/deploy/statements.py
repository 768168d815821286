"""The sentences of a certificate: its claim, what it assumes, and what it does not say."""

from __future__ import annotations

from collections.abc import Sequence

from statewise.deploy.claims import Claim
from statewise.deploy.plan import Plan
from statewise.text import share


def claim_sentence(constraint: str, max_violation: float) -> str:
    """What is claimed about one constraint."""
    return (
        f"In the operating domain, an episode of this policy violates the constraint {constraint!r} "
        f"with probability at most {share(max_violation)}."
    )


def assumptions(plan: Plan, claims: Sequence[Claim]) -> list[str]:
    """What the verdict rests on."""
    found = [
        "Episodes are independent. Each one has its own layout and its own values of whatever varies, "
        "drawn from seeds that neither training nor evaluation uses.",
        "The robot, the layouts and everything that varies are distributed as in the operating domain.",
        "The simulator, the model of the robot and the constraint describe the real system.",
        f"The policy takes its {'sampled' if plan.sampled else 'mean'} actions, one in each control "
        f"step, with the observations that it was trained with.",
        "A simulator fault counts as a violation of every constraint.",
    ]
    if plan.threshold:
        found.append(f"A step violates a constraint if it costs more than {plan.threshold:g}.")
    if plan.sequential:
        found.append(
            "The bounds hold at every number of episodes at once, so stopping at the verdict is "
            "allowed. Episodes are counted in the order in which they began, whatever their length."
        )
    else:
        found.append("The number of episodes was fixed beforehand. The bounds are Clopper-Pearson.")
    if len(claims) > 1:
        found.append(
            f"{len(claims)} claims share the confidence (union bound): each one is tested at "
            f"{share(1 - claims[0].alpha)}."
        )
    if plan.best_safe:
        found.append(
            "The policy was chosen among those of its training run by its measured safety. That "
            "measurement is not used here: all episodes are fresh."
        )
    return found


def limits(plan: Plan) -> list[str]:
    """What a reader must not take from the certificate."""
    return [
        "It says nothing about conditions outside of the operating domain.",
        "It is a statement about simulated episodes. It does not show how well the simulator matches "
        "a real robot.",
        "It bounds how often episodes violate a constraint, not how badly. No single episode is "
        "guaranteed to be safe.",
        f"Its verdict can be wrong with probability up to {share(1 - plan.confidence)}. Testing many "
        f"policies or seeds and keeping the best result raises that probability.",
        "It is no approval under any safety standard.",
    ]
