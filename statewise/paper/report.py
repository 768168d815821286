"""The paper's part of a report: its numbers, claims and questions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from statewise.paper.claims import claims_section
from statewise.paper.questions import FOLDER, find_answers, keep, questions_section, read_kept
from statewise.paper.reference import reference
from statewise.report.assemble import Sections
from statewise.report.groups import Group
from statewise.report.reference import Reference
from statewise.report.sections import Section
from statewise.runs.reader import Reading

log = logging.getLogger("statewise")


def paper_parts(
    reading: Reading, roots: Sequence[Path], export: Path | None = None
) -> tuple[Reference | None, Sections]:
    """What `write_report` is given for runs of the paper's suites; nothing for others.

    roots: where the runs lie, and perhaps numbers of questions. export: where to write these too.
    """
    if not any(run.suite in reference().steps for run in reading.runs):
        return None, ()

    def sections(groups: Sequence[Group], pictures: Path) -> list[Section]:
        kept, left_out = read_kept(roots)
        for line in left_out:
            log.warning("left out: %s", line)
        answers = find_answers(groups, kept)
        if export is not None:
            keep(answers, export / FOLDER)
        questions = questions_section(groups, answers, pictures, left_out)
        return [claims_section(groups), *questions]

    return reference(), sections
