"""The documentation is written in short sentences. `python tests/test_prose.py` prints the figures."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [p for p in PAGES if not {"_build", "reference"} & set(p.relative_to(ROOT).parts)]
_BLOCKS = re.compile(r"^(```|~~~|:::).*?^\1[^\n]*$|^\$\$.*?\$\$|<!--.*?-->", re.S | re.M)


def prose(text: str) -> list[str]:
    """The paragraphs and list items of a Markdown page, without code, tables and headings."""
    text = _BLOCKS.sub("\n\n", text)
    lines = [
        "" if re.match(r"\s*(\||#|!\[|<|\$\$|\(.*\)=$|-{3,}$)", line) else line
        for line in text.splitlines()
    ]
    lines = [re.sub(r"^\s*([-*]|\d+\.)\s+", "\n\n", line) for line in lines]
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    return [" ".join(p.split()) for p in paragraphs if p.strip()]


def sentences(paragraph: str) -> list[str]:
    text = re.sub(r"`[^`]*`", "code", paragraph)
    text = re.sub(r"\$[^$]*\$", "formula", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\b(e\.g|i\.e|vs|al|Fig|eq)\.", r"\1", text)
    return [s for s in re.split(r"(?<=[.!?])[\"')*]*\s+", text) if re.search(r"\w", s)]


def figures(page: Path) -> tuple[int, float, float]:
    """Number of sentences, mean words in one, share of them with a semicolon."""
    found = [s for p in prose(page.read_text()) for s in sentences(p)]
    words = [len(s.split()) for s in found]
    return len(found), sum(words) / max(len(words), 1), sum(";" in s for s in found)


def test_sentences_are_short_and_have_few_semicolons() -> None:
    rows = [figures(page) for page in PAGES]
    count = sum(n for n, _, _ in rows)
    mean = sum(n * m for n, m, _ in rows) / count
    semicolons = sum(s for _, _, s in rows) / count
    assert mean <= 14, f"{mean:.1f} words a sentence"
    assert semicolons <= 0.03, f"{semicolons:.1%} of the sentences have a semicolon"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_page_is_hard_to_read(page: Path) -> None:
    _, mean, _ = figures(page)
    assert mean <= 17, f"{mean:.1f} words a sentence: split the long ones"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lines_of_prose_fit_120_characters(page: Path) -> None:
    text = _BLOCKS.sub(lambda m: "\n" * m[0].count("\n"), page.read_text())
    long = [
        f"line {n}: {len(line)} characters"
        for n, line in enumerate(text.splitlines(), 1)
        if len(line) > 120 and not line.lstrip().startswith(("|", "!["))
    ]
    assert not long, long


if __name__ == "__main__":
    for page in PAGES:
        n, mean, semicolons = figures(page)
        print(f"{page.relative_to(ROOT)!s:36} {n:5} sentences {mean:5.1f} words {semicolons:4} ;")
