"""The report in a real browser: what a reader sees and does."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from synthetic_runs import learning, write_run

from statewise import metrics
from statewise.paper.questions import paper_parts
from statewise.report.write import write_report
from statewise.runs.reader import find_runs

SUITES = ("Point-Hazard-1", "Point-Hazard-8")
ALGOS = ("scpo", "trpo", "cpo", "trpo_sl")
NAMES = ("SCPO", "TRPO", "CPO", "TRPO-SL")
SHOWN = ("episode/return", "cost/episode", "cost/max", "cost/rate")
EPOCHS = 100
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIGHT, DARK = (217, 72, 15), (255, 138, 61)
"""The colours of SCPO"""


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
    reading = find_runs([root / "runs"])
    reference, sections = paper_parts(reading, [root / "runs"])
    return write_report(reading, root / "report", None, "trpo", reference, sections)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        why = "Chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("STATEWISE_REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report, freshly opened; nothing may complain or reach outside while a test uses it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    page, problems = context.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text)
            if said.type in ("error", "warning") else None)  # fmt: skip
    page.on("request", lambda request: problems.append(f"asked for {request.url}")
            if not request.url.startswith(("file:", "data:", "blob:")) else None)  # fmt: skip
    page.goto(report.as_uri())
    drawn(page, "#summary")
    yield page
    context.close()
    assert problems == []


def drawn(page: Page, where: str) -> None:
    """Scroll the charts of a part of the page into view, and wait until they are drawn."""
    charts = f"[...document.querySelectorAll('{where} figure.chart:not([hidden])')]"
    page.evaluate(f"{charts}[0].scrollIntoView({{block: 'start', behavior: 'instant'}})")
    page.wait_for_function(f"{charts}.every((figure) => figure.view)")
    page.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def shown(page: Page, suite: str, kind: str = "line") -> dict[tuple[str, str], int]:
    """Points of what charts of a suite show, by metric and algorithm: line, band, reference, part."""
    drawn(page, f"#{suite}")
    found = page.evaluate(
        """([suite, kind]) => {
      const data = JSON.parse(document.getElementById("data").textContent);
      const figures = [...document.querySelectorAll(`#${suite} figure.chart:not([hidden])`)];
      return figures.flatMap((figure) => figure.view.model.renderers
        .filter((renderer) => renderer.visible && renderer.name.startsWith(kind))
        .map((renderer) => {
          const line = data.suites[figure.dataset.suite].lines[renderer.name.split(":")[1]];
          const points = renderer.data_source.data.x.length;
          return [figure.dataset.metric, line.name, points];
        }));
    }""",
        [suite, kind],
    )
    return {(metric, name): points for metric, name, points in found}


def chart(metric: str, suite: str = SUITES[0]) -> str:
    return f"#{suite} figure.chart[data-metric='{metric}']"


def inside(page: Page, selector: str) -> dict[str, Any]:
    """The box of the first match, in the window."""
    box: dict[str, Any] = page.evaluate(
        "(selector) => document.querySelector(selector).getBoundingClientRect().toJSON()", selector
    )
    return box


def pixels(page: Page, selector: str, colour: tuple[int, int, int]) -> int:
    """How many pixels of a part of the page have about that colour."""
    picture = Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB")
    return sum(
        all(abs(a - b) < 12 for a, b in zip(pixel, colour, strict=True))
        for pixel in picture.get_flattened_data()
    )


def column(page: Page, table: str, index: int) -> list[str]:
    texts: list[str] = page.locator(f"{table} tbody tr").evaluate_all(
        "(rows, index) => rows.map((row) => row.cells[index].innerText)", index
    )
    return texts


# Charts ----------------------------------------------------------------------------------------


def test_every_curve_is_drawn_with_all_its_points(page: Page) -> None:
    whole = {(metric, name): EPOCHS for metric in SHOWN for name in NAMES}
    assert shown(page, SUITES[0]) == whole
    assert shown(page, SUITES[1]) == whole | {(metric, "PCPO"): 40 for metric in SHOWN}
    assert set(shown(page, SUITES[1], "band")) == set(whole)  # PCPO has one seed only
    assert {name for _, name in shown(page, SUITES[0], "reference")} == set(NAMES)


def test_curves_have_the_colours_of_the_legend(page: Page) -> None:
    drawn(page, f"#{SUITES[0]}")
    assert pixels(page, f"{chart('cost/episode')} .plot", LIGHT) > 200
    assert pixels(page, ".toolbar .key", LIGHT) > 20


def test_what_is_said_of_episodes_is_shaded_until_one_can_have_run_out_of_time(page: Page) -> None:
    drawn(page, f"#{SUITES[0]}")
    shaded = page.evaluate(
        """(suite) => [...document.querySelectorAll(`#${suite} figure.chart:not([hidden])`)]
      .filter((figure) => figure.view.model.select_one("settling").visible)
      .map((figure) => [figure.dataset.metric, figure.view.model.select_one("settling").right])""",
        SUITES[0],
    )
    steps = 512 * 1000 / 1e6  # of 512 worlds, in millions
    assert shaded == [[metric, pytest.approx(steps)] for metric in SHOWN[:3]]


def test_on_a_phone_charts_are_gone_when_they_are_far(browser: Browser, report: Path) -> None:
    size = {"width": 390, "height": 844}
    context = browser.new_context(viewport=size, has_touch=True, is_mobile=True)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(report.as_uri())
    drawn(page, "#summary")
    page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    first = "document.querySelector('#summary figure.chart').view"
    page.wait_for_function(f"{first} === undefined")
    assert page.evaluate("Bokeh.documents.length") < 6
    context.close()


def test_a_print_has_all_charts(page: Page) -> None:
    page.wait_for_selector("body[data-drawn=all]")
    shown = page.locator("figure.chart:not([hidden])").count()
    page.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
    content = page.pdf(print_background=True)
    pictures = content.count(b"/Subtype /Image")
    assert shown > 8 and pictures >= 3 * shown  # two canvases each, some with a mask


def test_a_click_in_either_legend_hides_and_shows_in_all_charts(page: Page) -> None:
    page.click("#summary .key[data-series='TRPO']")
    assert page.locator(".key[data-series='TRPO'][aria-pressed='false']").count() == 2
    for suite in SUITES:
        names = {name for _, name in shown(page, suite)}
        assert "TRPO" not in names and "SCPO" in names
        assert "TRPO" not in {name for _, name in shown(page, suite, "band")}
    page.click(".toolbar .key[data-series='TRPO']")
    assert len([name for _, name in shown(page, SUITES[1]) if name == "TRPO"]) == len(SHOWN)
    page.click(".toolbar [data-all='none']")
    assert shown(page, SUITES[1]) == {}
    page.click(".toolbar [data-all='all']")
    assert len(shown(page, SUITES[1])) == 5 * len(SHOWN)


def test_the_legend_works_from_the_keyboard(page: Page) -> None:
    page.focus(".toolbar .key[data-series='CPO']")
    page.keyboard.press("Space")
    assert "CPO" not in {name for _, name in shown(page, SUITES[0])}
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.series") == "PCPO"


def test_hovering_shows_the_values_of_all_visible_algorithms(page: Page) -> None:
    drawn(page, f"#{SUITES[0]}")
    area, tip = page.locator(f"{chart('cost/episode')} .plot"), page.locator("#tip")
    area.hover()
    assert tip.is_visible()
    assert "steps" in tip.inner_text() and "±" in tip.inner_text()
    rows = tip.locator("tr").evaluate_all(
        "(rows) => rows.map((r) => [...r.cells].map((c) => c.innerText))"
    )
    assert {row[1] for row in rows} == set(NAMES)
    values = [float(row[2]) for row in rows]
    assert values == sorted(values, reverse=True)  # as the curves lie, from the top
    decimals = {len(row[2].partition(".")[2]) for row in rows}
    assert decimals == {metrics.find("cost/episode").digits}
    before = tip.inner_text()
    page.mouse.move(2, 2)
    assert not tip.is_visible()
    area.focus()
    page.keyboard.press("ArrowLeft")
    assert tip.is_visible() and tip.inner_text() != before


def test_the_cost_rate_is_the_running_one_or_that_of_each_epoch(page: Page) -> None:
    page.click("[data-flip='epoch']")
    assert {metric for metric, _ in shown(page, SUITES[0])} == {*SHOWN[:3], "cost/epoch_rate"}
    assert page.locator(f"{chart('cost/epoch_rate')} b").inner_text() == "Cost rate of the epoch"
    page.click("[data-flip='epoch']")
    assert {metric for metric, _ in shown(page, SUITES[0])} == set(SHOWN)


def test_costs_may_have_a_log_scale(page: Page) -> None:
    def wait_for(scales: dict[str, str]) -> None:
        drawn(page, f"#{SUITES[0]}")
        page.wait_for_function(
            """([suite, scales]) =>
          [...document.querySelectorAll(`#${suite} figure.chart:not([hidden])`)].every((figure) =>
            figure.view && figure.view.model.y_scale.type === scales[figure.dataset.metric])""",
            arg=[SUITES[0], scales],
        )

    linear = dict.fromkeys(SHOWN, "LinearScale")
    wait_for(linear)
    page.click("[data-flip='log']")
    wait_for(dict.fromkeys(SHOWN, "LogScale") | {"episode/return": "LinearScale"})
    assert len(shown(page, SUITES[0])) == 4 * len(SHOWN)
    page.click("[data-flip='log']")
    wait_for(linear)


def test_bands_and_reference_values_can_be_hidden(page: Page) -> None:
    for flip, kind in (("bands", "band"), ("reference", "reference")):
        assert shown(page, SUITES[0], kind)
        page.click(f"[data-flip='{flip}']")
        assert page.get_attribute(f"[data-flip='{flip}']", "aria-pressed") == "false"
        assert not shown(page, SUITES[0], kind)


def test_the_curves_can_be_downloaded_as_plain_numbers(page: Page) -> None:
    with page.expect_download() as found:
        page.click("#download")
    data = json.loads(Path(found.value.path()).read_text())
    assert [name for name, _ in data["legend"]] == ["SCPO", "TRPO", "CPO", "PCPO", "TRPO-SL"]
    line = data["suites"][0]["lines"][0]
    assert line["curve"]["steps"][0] > 0
    values = [learning("scpo", seed, EPOCHS)(1)["episode/return"] for seed in (0, 1)]
    assert line["curve"]["mean"]["episode/return"][0] == pytest.approx(sum(values) / 2, abs=1e-4)


# Tables and text -------------------------------------------------------------------------------


def test_tables_sort_by_number_up_and_down_with_the_unknown_last(page: Page) -> None:
    table = f"#{SUITES[0]} .scroll:nth-of-type(2) table"
    header = page.locator(f"{table} th", has_text="episode cost").first
    index = header.evaluate("(th) => th.cellIndex")
    header.locator("button").click()
    up = [float(text.split("±")[0]) for text in column(page, table, index)]
    assert up == sorted(up) and len(set(up)) > 1
    assert header.get_attribute("aria-sort") == "ascending"
    header.locator("button").click()
    assert [float(text.split("±")[0]) for text in column(page, table, index)] == up[::-1]
    assert header.get_attribute("aria-sort") == "descending"
    page.click(f"{table} th:nth-child(1) button")
    names = column(page, table, 0)
    assert names == sorted(names, key=str.casefold)
    safety = f"#{SUITES[1]} .scroll:nth-of-type(3) table"
    for _ in ("up", "down"):
        page.click(f"{safety} th:nth-child(4) button")  # one seed has no interval over seeds
        assert column(page, safety, 3)[-1] == "–"


def test_results_come_first_and_caveats_are_folded(page: Page) -> None:
    page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
    assert inside(page, "#summary figure.chart .plot")["bottom"] <= 900
    titles = page.locator("h2").all_inner_texts()
    order = [SUITES[0], "Ranking", "Suites", *SUITES, "About this report"]
    assert [title for title in titles if title in order] == order
    assert page.locator("details[open]").count() == 0
    assert page.locator("summary", has_text="About the input").count() == 1


# Screens ---------------------------------------------------------------------------------------


def overflowing(page: Page) -> list[str]:
    found: list[str] = page.locator(".scroll").evaluate_all(
        "(boxes) => boxes.filter((b) => b.scrollWidth > b.clientWidth).map((b) => b.ariaLabel)"
    )
    return found


def test_nothing_is_cut_off_on_a_laptop(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert overflowing(page) == []


def test_a_phone_needs_no_sideways_scrolling_and_shows_the_legend_with_its_chart(
    page: Page,
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    drawn(page, f"#{SUITES[1]}")
    area = page.locator(f"{chart('cost/max', SUITES[1])} .plot")
    area.scroll_into_view_if_needed()
    area.hover()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert overflowing(page) != []  # wide tables scroll in their own boxes
    legend, tip = inside(page, ".toolbar"), inside(page, "#tip")
    assert legend["top"] >= 0 and legend["bottom"] < 80
    assert tip["left"] >= 0 and tip["right"] <= 390
    assert inside(page, f"{chart('cost/max', SUITES[1])} .plot")["right"] <= 390


def test_dark_mode_is_dark_and_the_charts_follow(page: Page) -> None:
    drawn(page, f"#{SUITES[0]}")
    page.emulate_media(color_scheme="dark")
    drawn(page, f"#{SUITES[0]}")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60
    area = f"{chart('cost/episode')} .plot"
    assert pixels(page, area, DARK) > 200
    assert pixels(page, area, LIGHT) < 20
    assert pixels(page, area, (20, 23, 28)) > 10_000  # the page behind it


def test_nothing_moves_once_the_page_is_open(page: Page) -> None:
    drawn(page, f"#{SUITES[1]}")
    shift = page.evaluate("""new Promise((done) => {
      let sum = 0;
      new PerformanceObserver((list) => list.getEntries().forEach((e) => (sum += e.value)))
        .observe({ type: "layout-shift", buffered: true });
      setTimeout(() => done(sum), 300);
    })""")
    assert shift < 0.01
