"""Certificates: the claims, the evidence and the assumptions, as JSON and as a web page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from statewise.deploy.claims import Claim, Verdict
from statewise.deploy.domain import Domain, variations_in
from statewise.deploy.outcomes import FRESH, Outcomes
from statewise.deploy.plan import Plan
from statewise.deploy.runtime import facts_digest
from statewise.deploy.statements import assumptions, claim_sentence, limits
from statewise.envs.env import Env
from statewise.runs.files import as_json, read_bytes, write_atomically
from statewise.runs.folder import describe_environment
from statewise.runs.shapes import check, parse_json
from statewise.text import share
from statewise.training.policy import Policy

FORMAT = 1
_MOST_BYTES = 64 * 2**20
_CLAIM = {
    "constraint": str, "max_violation": float, "verdict": str, "violations": int, "low": float,
    "high": float, "alpha": float, "violating": list[int],
}  # fmt: skip
_SHAPE = {
    "format": int, "verdict": str, "claims": [_CLAIM], "episodes": int, "plan": dict,
    "domain": dict[str, list[float]], "policy": dict, "model_sha256": str | None, "worlds": int,
    "versions": dict, "sha256": str,
}  # fmt: skip


class CertificateError(ValueError):
    """A certificate cannot be read, or was changed."""


@dataclass(frozen=True)
class Certificate:
    """The content of `certificate.json`."""

    content: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        """Of all claims together"""
        found: Verdict = self.content["verdict"]
        return found

    @property
    def claims(self) -> list[dict[str, Any]]:
        """Each claim with its verdict, counts and bounds"""
        return list(self.content["claims"])

    @property
    def episodes(self) -> int:
        return int(self.content["episodes"])

    def extended(self, **parts: Any) -> Certificate:
        """The same certificate with further parts, such as a stress test."""
        return _seal(self.content | parts)

    def save(self, folder: str | Path) -> tuple[Path, Path]:
        """Write `certificate.json` and `certificate.html`; the paths of both."""
        data, html = Path(folder) / "certificate.json", Path(folder) / "certificate.html"
        write_atomically(data, as_json(self.content, indent=2))
        write_atomically(html, page(self).encode())
        return data, html


def page(certificate: Certificate) -> str:
    """Return the certificate as one self-contained web page that can be printed."""
    content, several = certificate.content, len(certificate.claims) > 1
    environment = Environment(
        loader=PackageLoader("statewise.deploy"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    domain = {
        name: f"{low:g}" if low == high else f"{low:g} to {high:g}"
        for name, (low, high) in content["domain"].items()
    }
    environment.filters["share"] = share
    return environment.get_template("certificate.html").render(
        c=content, verdict=f"The {'claims are' if several else 'claim is'} {certificate.verdict}",
        domain=domain, claim_sentence=claim_sentence,
    )  # fmt: skip


def _seal(content: dict[str, Any]) -> Certificate:
    """Return a certificate of this content, with a hash that reveals later changes."""
    return Certificate(content | {"sha256": facts_digest(content)})


def read_certificate(path: Path) -> Certificate:
    """Read `certificate.json`. Raises CertificateError if it is damaged or was changed."""
    try:
        content = parse_json(read_bytes(path, _MOST_BYTES))
        check(content, {"format": int}, str(path))
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']}, this version reads {FORMAT}")
        check(content, _SHAPE, path.name)
    except (ValueError, FileNotFoundError) as error:
        raise CertificateError(f"{path} cannot be read as a certificate: {error}") from error
    if content["sha256"] != facts_digest(content):
        raise CertificateError(f"{path} was changed after it was written: its hash does not match")
    return Certificate(content)


def plan_of(certificate: Certificate) -> Plan:
    """The plan that a certificate was made with."""
    given = dict(certificate.content["plan"])
    ranges = {name: (low, high) for name, (low, high) in certificate.content["domain"].items()}
    names = {field.name for field in dataclasses.fields(Plan)} - {"domain"}
    if set(given) != names:
        raise CertificateError(f"the plan has the fields {sorted(given)}, not {sorted(names)}")
    given["max_violation"] = tuple(given["max_violation"])
    return Plan(**given, domain=Domain(ranges))


def write_down(
    verdict: Verdict,
    claims: Sequence[Claim],
    plan: Plan,
    found: Outcomes,
    policy: Policy,
    env: Env,
) -> Certificate:
    """The certificate of what was found."""
    asked = dataclasses.asdict(plan) | {"max_violation": list(plan.max_violation)}
    domain = {name: list(ends) for name, ends in asked.pop("domain")["ranges"].items()}
    environment = describe_environment()
    return _seal({
        "format": FORMAT,
        "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "verdict": verdict,
        "claims": [_claim(claim, i, found, env) for i, claim in enumerate(claims)],
        "confidence": plan.confidence,
        "method": "sequential" if plan.sequential else "exact for a fixed number",
        "episodes": claims[0].episodes,
        "plan": asked,
        "actions": "sampled" if plan.sampled else "mean",
        "domain": domain,
        "domain_meaning": {name: variations_in(env)[name] for name in domain},
        "policy": {
            "algorithm": policy.settings.algo,
            "training_seed": policy.settings.seed,
            "chosen_by": "its measured safety in training" if plan.best_safe else "no measurement",
        } | _policy_facts(policy),
        "suite": env.spec.name,
        "model_sha256": model_sha256(env),
        "worlds": env.num_envs,
        "seeds": {"family": FRESH, "seed": plan.seed},
        "faults": int(found.fault.sum()),
        "success": float(found.success.mean()),
        "mean_length": float(found.length.mean()),
        "versions": {key: environment[key] for key in ("statewise", "commit", "python", "packages")},
        "machine": environment["processor"],
        "assumptions": assumptions(plan, claims),
        "does_not_say": limits(plan),
    })  # fmt: skip


def _policy_facts(policy: Policy) -> dict[str, Any]:
    """Return the run, checkpoint, epoch and hash of a policy."""
    if policy.source is None:
        raise ValueError(
            "this policy was not loaded from a run: load it with statewise.load_policy"
        )
    return dataclasses.asdict(policy.source)


def model_sha256(env: Env) -> str | None:
    """Return the hash of the compiled physics model. None for Gymnasium environments."""
    return None if env.simulated is None else env.simulated.sim.scene.sha256


def _claim(claim: Claim, number: int, found: Outcomes, env: Env) -> dict[str, Any]:
    clearance = found.clearance[:, number]
    return {
        "constraint": claim.constraint,
        "max_violation": claim.max_violation,
        "verdict": claim.verdict,
        "violations": claim.violations,
        "rate": claim.violations / claim.episodes,
        "low": claim.low,
        "high": claim.high,
        "alpha": claim.alpha,
        "smallest_clearance": float(clearance.min()),
        "typical_clearance": float(_median(clearance)),
        "clearance_unit": env.spec.clearance_units[number],
        "violating": claim.violating,
    }


def _median(values: Any) -> float:
    ordered = sorted(values.tolist())
    return ordered[len(ordered) // 2]
