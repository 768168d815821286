"""`statewise plot` and `statewise report`: draw and compare runs."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from statewise.console import say
from statewise.extras import need
from statewise.plugins import ImportOptions, import_modules
from statewise.runs.folder import check_folder
from statewise.settings import option

_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Plot(ImportOptions):
    """Draw the learning curves of runs: a colour for each algorithm, a band over its seeds."""

    runs: tuple[Path, ...] = option((), positional=True, metavar="RUN")
    """Run folders."""
    out: Path = Path("curves.png")
    """The picture to write (.png, .svg or .pdf)."""

    def run(self) -> None:
        need("plotting", "report", "matplotlib")
        from statewise.report.curves import draw_curves

        import_modules(self.imports)
        if not self.runs:
            raise ValueError("name at least one run folder to draw")
        if self.out.suffix not in _PICTURES:
            raise ValueError(
                f"--out {str(self.out)!r} names no picture: end it in {', '.join(_PICTURES)}"
            )
        say(f"curves: {draw_curves(self.runs, self.out)}")


@dataclass(frozen=True)
class Report(ImportOptions):
    """Compare all runs in some folders, as a web page and as a Markdown file."""

    runs: tuple[Path, ...] = option((), positional=True, metavar="RUNS")
    """Folders to search for runs."""
    out: Path = Path("report")
    """Where index.html, report.md and pictures/ go."""
    notes: Path | None = None
    """A Markdown file of explanations, with a heading for each suite, as in `# Point-Hazard-8`."""
    baseline: str | None = None
    """Compare the other algorithms with this one (default: trpo, if there are such runs)."""
    export: Path | None = None
    """Also write the runs to this folder, in a small form that gives the same report."""
    open: bool = False
    """Show the page in the browser."""

    def run(self) -> None:
        need("a report", "report")
        from statewise.paper.questions import paper_parts
        from statewise.report.write import write_report
        from statewise.runs.reader import find_runs

        import_modules(self.imports)
        if not self.runs:
            raise ValueError("name at least one folder that holds runs, such as runs")
        for option_name, folder in (("--out", self.out), ("--export", self.export)):
            if folder is not None:
                check_folder(option_name, folder)
        reading = find_runs(self.runs)
        reference, sections = paper_parts(reading, self.runs, self.export)
        default = "trpo" if any(run.algo == "trpo" for run in reading.runs) else None
        page = write_report(
            reading, self.out, self.notes, self.baseline or default, reference, sections,
            self.export,
        )  # fmt: skip
        say(f"report: {page} and {self.out / 'report.md'}")
        if self.export is not None:
            say(f"exported: {len(reading.runs)} runs to {self.export}")
        if self.open:
            webbrowser.open(page.resolve().as_uri())
