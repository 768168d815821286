"""Check a certificate: its hashes, its arithmetic, and a sample of its episodes run again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from statewise.deploy.certificate import Certificate, model_sha256, plan_of, read_certificate
from statewise.deploy.certify import rerun
from statewise.deploy.claims import add_fixed, add_sequentially, conclude, make_claims
from statewise.deploy.plan import Plan
from statewise.runs.folder import describe_environment
from statewise.runs.verify import Check
from statewise.text import share
from statewise.training.policy import Policy, load_policy, worlds_for

_SAMPLE = 256
"""How many of its episodes are run again"""


def verify_certificate(
    path: Path, run: Path, imports: Sequence[str] = (), trust: bool = False, episodes: int = _SAMPLE
) -> list[Check]:
    """Check `certificate.json` against the run that it is about.

    A certificate that was changed raises CertificateError.
    """
    certificate = read_certificate(path)
    plan = plan_of(certificate)
    checks = [Check("certificate", "as written")]
    checks += _judge_again(certificate, plan)
    policy = load_policy(run, plan.best_safe, imports, trust)
    checks.append(_same("policy", certificate.content["policy"]["sha256"], _policy_sha256(policy)))
    if not checks[-1].good:
        return checks
    with worlds_for(policy, certificate.content["worlds"]) as env:
        checks.append(
            _same("physics model", certificate.content["model_sha256"], model_sha256(env))
        )
        checks.append(_versions(certificate))
        again = rerun(policy, env, plan, min(episodes, certificate.episodes))
    for i, claim in enumerate(certificate.claims):
        before = {number for number in claim["violating"] if number < len(again)}
        other = before ^ set(again[:, i].nonzero()[0].tolist())
        found = f"the first {len(again)} episodes run again: {len(before)} violate, as written"
        if other:
            found = (
                f"{len(other)} of the first {len(again)} episodes ended differently when run again"
            )
        checks.append(Check(f"episodes, {claim['constraint']}", found, not other))
    return checks


def _judge_again(certificate: Certificate, plan: Plan) -> list[Check]:
    """Whether counts, bounds and verdicts follow from the listed episodes."""
    n = certificate.episodes
    claims = make_claims(
        [claim["constraint"] for claim in certificate.claims], plan.max_violation, plan.confidence
    )
    broken = np.zeros((n, len(claims)), dtype=bool)
    for i, claim in enumerate(certificate.claims):
        numbers = claim["violating"]
        if len(set(numbers)) != len(numbers) or any(number >= n for number in numbers):
            return [Check("claims", f"{claim['constraint']} lists episodes that cannot be", False)]
        broken[numbers, i] = True
    if plan.sequential:
        add_sequentially(claims, broken)
    else:
        add_fixed(claims, broken)
    verdict = conclude(claims, plan.sequential)
    checks = []
    for written, again in zip(certificate.claims, claims, strict=True):
        good = written["verdict"] == again.verdict and again.episodes == n
        for name in ("violations", "low", "high"):
            good = good and math.isclose(written[name], getattr(again, name), abs_tol=1e-9)
        found = f"{again.violations} of {n} episodes: {again.verdict}, at most {share(again.high)}"
        checks.append(Check(f"claim, {again.constraint}", found, good))
    checks.append(Check("verdict", verdict, verdict == certificate.verdict))
    return checks


def _policy_sha256(policy: Policy) -> str:
    return policy.source.sha256 if policy.source is not None else ""


def _same(what: str, written: object, found: object) -> Check:
    if written == found:
        return Check(what, f"sha256 {str(found)[:16]}, as written")
    return Check(
        what, f"sha256 {str(found)[:16]}, but the certificate is about {str(written)[:16]}", False
    )


def _versions(certificate: Certificate) -> Check:
    """Name the versions that differ. Other versions may give other episodes, and are no fault."""
    here, there = describe_environment()["packages"], certificate.content["versions"]["packages"]
    other = [
        f"{name} {there[name]}, here {here.get(name)}"
        for name in there
        if here.get(name) != there[name]
    ]
    return Check("versions", "; ".join(other) or "the same")
