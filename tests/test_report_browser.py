"""The report in a real browser: what a reader sees and does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, find_chromium
from synthetic_runs import learning, write_run

from statewise.report.build import build_report

SUITES = ("Point-Hazard-1", "Point-Hazard-8")
ALGOS = ("scpo", "trpo", "cpo", "trpo_sl")
EPOCHS = 100
CHART = "figure.chart[data-suite='0'][data-metric='cost/episode'] svg"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    for suite in SUITES:
        for algo in ALGOS:
            for seed in (0, 1):
                epoch = learning(algo, seed, EPOCHS)
                write_run(
                    root / "runs", suite, algo, seed, epochs=EPOCHS, epoch=epoch, longest=1000
                )
    write_run(root / "runs", "Point-Hazard-8", "pcpo", epochs=EPOCHS, done=40,
              epoch=learning("pcpo", 0, EPOCHS))  # fmt: skip
    return build_report([root / "runs"], root / "report")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    found = find_chromium()
    if found is None:
        why = "Chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("STATEWISE_REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    with browser(found) as page:
        yield page


@pytest.fixture
def page(chromium: Page, report: Path) -> Iterator[Page]:
    """The report, freshly opened; nothing may complain or reach outside while a test uses it."""
    chromium.problems.clear()
    chromium.size(1300, 900)
    chromium.open(report)
    yield chromium
    chromium.eval("0")  # what the browser still has to say comes in with an answer
    assert chromium.problems == []


def lines(page: Page, suite: int) -> dict[str, int]:
    """Points of every curve in each chart of a suite, scrolled into view: `metric series`."""
    page.centre(f"figure.chart[data-suite='{suite}'] svg")
    found: dict[str, int] = page.eval(f"""Object.fromEntries(
      [...document.querySelectorAll("figure.chart[data-suite='{suite}'] path.mean")].map((p) =>
        [p.closest("figure").dataset.metric + " " + p.dataset.series,
         p.getAttribute("d").split(/[ML]/).length - 1]))""")
    return found


def column(page: Page, table: str, index: int) -> list[str]:
    texts: list[str] = page.eval(
        f"[...document.querySelectorAll('{table} tbody tr')].map((r) => r.cells[{index}].innerText)"
    )
    return texts


def test_every_curve_is_drawn_with_all_its_points(page: Page) -> None:
    metrics = ("episode/return", "cost/episode", "cost/rate", "cost/max")
    assert lines(page, 0) == {f"{m} {s}": EPOCHS for m in metrics for s in range(4) if s != 3} | {
        f"{m} 4": EPOCHS for m in metrics
    }
    unfinished = {f"{m} 3": 40 for m in metrics}  # PCPO: only in the second suite
    assert unfinished.items() <= lines(page, 1).items()
    bands = page.eval("document.querySelectorAll('path.band').length")
    assert bands == 2 * 4 * 4
    assert page.eval(f'document.querySelectorAll("{CHART} .theirs").length') >= 3


def test_what_is_said_of_episodes_is_shaded_until_one_can_have_run_out_of_time(page: Page) -> None:
    lines(page, 0)
    shaded = page.eval("""[...document.querySelectorAll("figure.chart[data-suite='0'] .unsettled")].map(
      (r) => [r.closest("figure").dataset.metric, r.width.baseVal.value > 4])""")
    assert shaded == [["episode/return", True], ["cost/episode", True], ["cost/max", True]]


def test_a_click_in_the_legend_hides_and_shows_in_all_charts(page: Page) -> None:
    page.click(".key[data-series='1']")
    assert page.eval("document.querySelector(\".key[data-series='1']\").ariaPressed") == "false"
    for suite in (0, 1):
        assert not [name for name in lines(page, suite) if name.endswith(" 1")]
        assert [name for name in lines(page, suite) if name.endswith(" 0")]
    page.click(".key[data-series='1']")
    assert len([name for name in lines(page, 1) if name.endswith(" 1")]) == 4


def test_the_legend_works_from_the_keyboard(page: Page) -> None:
    page.eval("document.querySelector(\".key[data-series='2']\").focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key=" ", text=" ", windowsVirtualKeyCode=32)
    page.call("Input.dispatchKeyEvent", type="keyUp", key=" ", windowsVirtualKeyCode=32)
    page.settle()
    assert not [name for name in lines(page, 0) if name.endswith(" 2")]


def test_hovering_shows_the_values_of_all_visible_algorithms(page: Page) -> None:
    page.hover(CHART)
    assert page.eval("getComputedStyle(document.getElementById('tip')).visibility") == "visible"
    text = page.eval("document.getElementById('tip').innerText")
    assert "steps" in text and "±" in text
    for name in ("SCPO", "TRPO", "CPO", "TRPO-SL"):
        assert name in text
    values: list[Any] = page.eval(
        "[...document.querySelectorAll('#tip tr')].map((r) => parseFloat(r.cells[1].innerText))"
    )
    assert len(values) == 4
    assert values == sorted(values, reverse=True)  # as the curves lie, from the top
    before = text
    page.eval(f'document.querySelector("{CHART}").focus()')
    page.press("ArrowLeft", 37)
    assert page.eval("document.getElementById('tip').innerText") != before


def test_the_switches_change_what_is_drawn(page: Page) -> None:
    chart = "figure.chart[data-suite='0'][data-metric='cost/rate']"
    path = f"document.querySelector(\"{chart} path.mean\").getAttribute('d')"
    title = f'document.querySelector("{chart} .title").innerText'
    page.centre(chart)
    running = page.eval(path)
    page.click("[data-rate='cost/epoch_rate']")
    page.centre(chart)
    per_epoch = page.eval(path)
    assert page.eval(title) == "Cost rate, per epoch"
    page.click("[data-flip='log']")
    page.centre(chart)
    assert len({running, per_epoch, page.eval(path)}) == 3
    assert page.eval(title) == "Cost rate, per epoch (log scale)"
    page.click("[data-flip='paper']")
    page.click("[data-flip='bands']")
    page.centre(chart)
    assert page.eval("document.querySelectorAll('.theirs, path.band').length") == 0


def test_tables_sort_by_number_up_and_down_with_the_unknown_last(page: Page) -> None:
    table = "#Point-Hazard-1 .charts + p + .scroll table"
    header = f"{table} th:nth-child(5) button"  # episode cost
    page.click(header)
    up = [float(text.split("±")[0]) for text in column(page, table, 4)]
    assert up == sorted(up) and len(set(up)) > 1
    assert page.eval(f"document.querySelector('{table} th:nth-child(5)').ariaSort") == "ascending"
    page.click(header)
    down = [float(text.split("±")[0]) for text in column(page, table, 4)]
    assert down == up[::-1]
    assert page.eval(f"document.querySelector('{table} th:nth-child(5)').ariaSort") == "descending"
    page.click(f"{table} th:nth-child(1) button")
    names = column(page, table, 0)
    assert names == sorted(names)
    safety = "#Point-Hazard-8 .charts + p + .scroll + .scroll table"
    for _ in ("up", "down"):
        page.click(f"{safety} th:nth-child(4) button")  # one seed has no interval over seeds
        assert column(page, safety, 3).index("–") == 4


def test_a_phone_needs_no_sideways_scrolling_and_dark_mode_is_dark(page: Page) -> None:
    page.size(390, 800)
    page.hover(CHART)
    assert page.eval("document.documentElement.scrollWidth") <= 390
    page.dark()
    background = page.eval("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60
    page.dark(False)


def test_nothing_moves_once_the_page_is_open(page: Page) -> None:
    page.centre("section.suite:nth-of-type(2) figure.chart")
    shift = page.eval("""new Promise((done) => {
      let sum = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((e) => (sum += e.value)))
        .observe({ type: "layout-shift", buffered: true });
      setTimeout(() => done(sum), 300);
    })""")
    assert shift < 0.01
