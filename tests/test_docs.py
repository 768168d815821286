"""The documentation says what the code does."""

import dataclasses
import re
from pathlib import Path

import pytest

from statewise import metrics
from statewise.algos import ALGORITHMS, ConstrainedSettings, TrustRegionSettings

DOCS = Path(__file__).parent.parent / "docs"
SHARED = {f.name for f in dataclasses.fields(TrustRegionSettings)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_page_of_an_algorithm_lists_its_settings_with_their_defaults(name: str) -> None:
    page = (DOCS / "algorithms" / f"{name}.md").read_text()
    if issubclass(ALGORITHMS[name].settings_class, ConstrainedSettings):
        page += (DOCS / "algorithms" / "constrained_step.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", page, flags=re.M))
    for field in dataclasses.fields(ALGORITHMS[name].settings_class):
        if field.name in SHARED:
            continue
        assert field.name in listed, f"{name}.md does not list {field.name}"
        said, true = listed[field.name].strip("\"'"), field.default
        number = re.fullmatch(r"[\d./e-]+", said)
        value = eval(said) if number else said
        same = value == true if number else said == str(true)
        assert same, f"{name}.md says {field.name} is {said}, it is {true}"
    stale = set(listed) - {f.name for f in dataclasses.fields(ALGORITHMS[name].settings_class)}
    assert not stale, f"{name}.md lists settings that do not exist: {stale}"


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            generated = target.startswith("reference/")  # by `make docs`, which checks the links
            if not (generated or (page.parent / target).exists()):
                broken.append(f"{page.name}: {target}")
    assert not broken, broken


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert page.endswith(f"\n\n{metrics.markdown()}\n"), (
        "write the table anew: python -c 'from statewise import metrics; print(metrics.markdown())'"
    )
