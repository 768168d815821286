"""`statewise certify`: prove or refute a claim about the violations of a policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.status import Status
from rich.table import Table

from statewise import settings
from statewise.console import console, say, styled
from statewise.deploy.certificate import Certificate
from statewise.deploy.certify import certify_policy
from statewise.deploy.claims import Claim, make_claims
from statewise.deploy.domain import read_domain
from statewise.deploy.plan import Plan
from statewise.deploy.rare import check_random, rare_events
from statewise.deploy.stress import stress_test
from statewise.runs.folder import check_folder
from statewise.settings import number, option
from statewise.text import several, share
from statewise.training.policy import load_policy, worlds_for
from statewise.training.recording import WORST_FILE, save_recordings
from statewise.training.worst import WorstEpisodes
from statewise.zoo import PolicyOptions

_COLOURS = {"proved": "green", "refuted": "red", "undecided": "yellow"}
_LOOKS_PER_SECOND = 4.0


@dataclass(frozen=True, kw_only=True)
class Certify(PolicyOptions):
    """Prove or refute that episodes of a policy rarely violate its constraints.

    Fresh episodes are run until the claim is decided. The result goes to certificate.json and to a page
    that can be printed, certificate.html.
    """

    max_violation: tuple[float, ...] = number((0.01,), above=0.0, below=1.0)
    """The claim: an episode violates a constraint with at most this probability. One number for all
    constraints, or one for each."""
    confidence: float = number(0.95, above=0.0, below=1.0)
    """Confidence of all claims together."""
    episodes: int | None = number(None, least=1, most=10**9)
    """Run exactly so many episodes and use exact bounds, instead of stopping at the verdict."""
    budget: int = number(10_000, least=1, most=10**9)
    """Stop undecided after so many episodes."""
    seed: int = number(0, least=0, most=2**32 - 1)
    """Seed of the episodes."""
    sampled: bool = False
    """Judge actions drawn from the policy instead of its mean actions."""
    threshold: float = number(0.0, least=0.0, finite=True)
    """A step violates a constraint if it costs more than this."""
    best_safe: bool = False
    """Judge the policy of the run's safest epoch instead of its last one."""
    vary: tuple[str, ...] = option((), metavar="NAME=LOW..HIGH")
    """What varies beside the layouts, such as friction=0.8..1.2 (docs/certify.md lists all)."""
    domain: Path | None = None
    """A JSON file of what varies, such as {"friction": [0.8, 1.2]}."""
    stress: bool = False
    """Also sweep every variation that the suite has, and show where the claim breaks."""
    stress_episodes: int = number(400, least=10, most=10**7)
    """Episodes for each value of the sweep."""
    rare: bool = False
    """Also estimate very small violation rates by splitting (needs --sampled, noise or push)."""
    worst: int = number(5, least=0, most=100)
    """Keep this many of the worst episodes of each constraint for `statewise replay`, in worst.npz."""
    out: Path | None = None
    """Folder of the certificate, if not the run folder."""

    def __post_init__(self) -> None:
        settings.check(self)

    def _folder(self) -> Path:
        """The folder of the certificate without --out: the run folder, or else the current folder."""
        if self.policy:
            return Path()
        return self.path.parent.parent if self.path.is_file() else self.path

    def run(self) -> None:
        plan = Plan(
            self.max_violation, self.confidence, self.episodes, self.budget, self.seed, self.sampled,
            self.best_safe, self.threshold, read_domain(self.vary, self.domain),
        )  # fmt: skip
        if self.rare:
            check_random(plan)
        out = self.out or self._folder()
        check_folder("--out", out)
        policy = load_policy(self.run_path, self.best_safe, self.imports, self.trust)
        make_claims(policy.spec.cost_names, plan.max_violation, plan.confidence)
        with console(stderr=True).status("certifying") as status:
            with worlds_for(policy, plan.worlds) as env:
                keeper = WorstEpisodes(env, policy.algo, self.worst) if self.worst else None
                progress = _Progress(status, plan.sequential)
                found = certify_policy(policy, env, plan, progress, keeper)
            if self.stress:
                found = found.extended(
                    stress=stress_test(
                        policy, plan, self.stress_episodes,
                        lambda name, value: status.update(styled(f"stress test: {name} = {value:g}", "")),
                    )
                )  # fmt: skip
            if self.rare:
                status.update("rare events: splitting")
                found = found.extended(rare=rare_events(policy, plan))
        show(found)
        data, page = found.save(out)
        say(f"certificate: {data} and {page}")
        if keeper is not None:
            kept, facts = out / WORST_FILE, keeper.facts(found.episodes, self.seed, self.sampled)
            save_recordings(kept, keeper.recordings(), facts)
            say(f"worst episodes: {kept}")


class _Progress:
    """Shows the counts and bounds so far on one line."""

    def __init__(self, status: Status, sequential: bool) -> None:
        self._status, self._sequential, self._last = status, sequential, 0.0

    def __call__(self, claims: Sequence[Claim]) -> None:
        now = time.monotonic()
        if now - self._last < 1 / _LOOKS_PER_SECOND:
            return
        self._last = now
        parts = [several(claims[0].episodes, "episode")]
        for claim in claims:
            low, high = claim.bounds(self._sequential)
            parts.append(
                f"{claim.constraint}: {several(claim.violations, 'violation')}, "
                f"rate from {share(low)} to {share(high)} (claim: at most {share(claim.max_violation)})"
            )
        self._status.update(styled(" · ".join(parts), ""))


def show(found: Certificate) -> None:
    """Print a certificate as a table."""
    content, colour = found.content, _COLOURS[found.verdict]
    screen = console()
    episodes = several(found.episodes, "fresh episode")
    title = f"{content['policy']['algorithm']} on {content['suite']}: {episodes}"
    table = Table(title=title, title_justify="left")
    table.add_column("constraint")
    for name in ("claim", "verdict", "violations", "rate", "bounds", "smallest clearance"):
        table.add_column(name, justify="right")
    for claim in found.claims:
        table.add_row(
            claim["constraint"],
            f"≤ {share(claim['max_violation'])}",
            styled(claim["verdict"], _COLOURS[claim["verdict"]]),
            str(claim["violations"]),
            share(claim["rate"]),
            f"{share(claim['low'])} to {share(claim['high'])}",
            f"{claim['smallest_clearance']:.3g} {claim['clearance_unit']}",
        )
    screen.print(table)
    for line in content.get("stress", {}).get("summary", ()):
        screen.print(f"stress: {line}", soft_wrap=True)
    for row in content.get("rare", {}).get("estimates", ()):
        error = row["relative_error"]
        about = f" ± {share(error)} of it" if error is not None else ""
        screen.print(
            f"rare events: {row['constraint']} {row['probability']:.2g}{about} (an estimate, no bound)",
            soft_wrap=True,
        )
    what = f"the claim is {found.verdict} at confidence {share(content['confidence'])}"
    screen.print(styled(what, f"bold {colour}"))
