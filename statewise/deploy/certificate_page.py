"""A certificate as one self-contained web page that can be printed."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader

from statewise.deploy.certificate import Certificate
from statewise.deploy.statements import claim_sentence, share


def page(certificate: Certificate) -> str:
    """The whole HTML document."""
    content = certificate.content
    several = len(certificate.claims) > 1
    title = f"The {'claims are' if several else 'claim is'} {certificate.verdict}"
    return (
        _environment()
        .get_template("certificate.html")
        .render(c=content, verdict=title, domain=_domain(content["domain"]))
    )


def _domain(ranges: dict[str, list[float]]) -> dict[str, str]:
    """Each range as text."""
    return {
        name: f"{low:g}" if low == high else f"{low:g} to {high:g}"
        for name, (low, high) in ranges.items()
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("statewise.deploy"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"share": share}
    environment.globals |= {"claim_sentence": claim_sentence}
    return environment
