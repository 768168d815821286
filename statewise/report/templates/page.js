// Fills the charts that Bokeh draws, and sorts tables. Everything it needs is in the page.
"use strict";
(() => {
  const floats = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const data = JSON.parse(document.getElementById("data").textContent, (_, v) => (v?.f32 === undefined ? v : floats(v.f32)));
  const items = JSON.parse(document.getElementById("items").textContent); // empty charts: linear, log
  const state = { hidden: new Set(), epoch: false, log: false, bands: true, reference: true };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const desktop = matchMedia("(hover: hover)").matches;
  const tip = document.getElementById("tip");
  const figures = [...document.querySelectorAll("figure.chart")];

  // One chart ----------------------------------------------------------------------------------

  const suiteOf = (figure) => data.suites[figure.dataset.suite];
  const isCost = (figure) => figure.dataset.metric !== "episode/return";
  const isLog = (figure) => state.log && isCost(figure);
  const visible = (figure) => suiteOf(figure).lines.filter((line) => !state.hidden.has(line.name));
  const curvesOf = (lines) => lines.flatMap((line) => [line.curve, ...line.parts]);
  const last = (lines) => Math.max(1, ...curvesOf(lines).map((curve) => curve.steps.at(-1) ?? 0));
  const colourOf = (line) => (dark.matches ? line.style.dark : line.style.light);

  // The range of the means of the methods that earn something, and some space for their bands.
  function limits(figure, lines) {
    const final = (line) => line.curve.mean["episode/return"].findLast((v) => !isNaN(v)) ?? -Infinity;
    const best = Math.max(...lines.map(final));
    const means = curvesOf(lines.filter((line) => final(line) >= 0.5 * best)).map((curve) => curve.mean[figure.dataset.metric]);
    const values = means.flatMap((mean) => [...mean]).filter((v) => (isLog(figure) ? v > 0 : !isNaN(v)));
    if (!values.length) return [0.001, 1];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    if (isLog(figure)) return [Math.max(low, high / 1e5) / 1.3, high * 1.3];
    const space = 0.15 * (high - (isCost(figure) ? 0 : low) || Math.abs(high) || 1);
    return [isCost(figure) ? 0 : low - space, high + space];
  }

  // A figure has a `view` while its chart is there; it is null while Bokeh makes it.
  async function draw(figure) {
    if (figure.view !== undefined) return;
    figure.view = null;
    const item = structuredClone(items[+isLog(figure)]);
    const plot = item.doc.roots[0].attributes;
    const count = suiteOf(figure).lines.length;
    plot.renderers = plot.renderers.filter((r) => +r.attributes.name.split(":")[1] < count);
    const [view] = await Bokeh.embed.embed_item(item, figure.querySelector(".plot"));
    if (figure.view !== null) return remove(view); // erased meanwhile
    figure.view = view;
    if (desktop) view.model.toolbar.active_drag = view.model.toolbar.tools[0];
    update(figure);
  }

  function erase(figure) {
    if (figure.view) remove(figure.view);
    figure.view = undefined;
  }

  function remove(view) {
    const { document } = view.model;
    Bokeh.documents.splice(Bokeh.documents.indexOf(document), 1);
    document.views_manager.clear();
  }

  // What a renderer shows of a line, or nothing.
  function columns(kind, line, metric, [low, high], log, end) {
    const place = (v) => (log ? Math.max(v, low) : v); // zeros lie on the axis
    const [mean, std, value] = [line.curve.mean[metric], line.curve.std[metric], line.reference[metric]];
    const x = line.curve.steps.map((s) => s / 1e6);
    if (kind === "line") return { x, y: mean.map(place) };
    if (kind === "band" && std && state.bands) {
      return { x, low: mean.map((m, i) => place(m - std[i])), high: mean.map((m, i) => place(m + std[i])) };
    }
    if (kind === "part" && line.parts.length) {
      const joined = (values) => Float32Array.from(line.parts.flatMap((part) => [...values(part), NaN]));
      return { x: joined((part) => part.steps.map((s) => s / 1e6)), y: joined((part) => part.mean[metric].map(place)) };
    }
    if (kind !== "reference" || value === undefined || !state.reference) return undefined;
    const y = Math.min(Math.max(value, low), high); // an arrow is one beyond the scale
    return { x: [1.04 * end], y: [y], marker: [y === value ? "dash" : value > y ? "triangle" : "inverted_triangle"] };
  }

  function update(figure) {
    if (!figure.view) return;
    const plot = figure.view.model;
    const { metric } = figure.dataset;
    const { lines, settling } = suiteOf(figure);
    const shown = visible(figure);
    const [low, high] = limits(figure, shown);
    const end = last(shown) / 1e6;
    const marks = state.reference && shown.some((line) => metric in line.reference);
    plot.x_range.setv({ start: 0, end: (marks ? 1.08 : 1.02) * end });
    plot.y_range.setv({ start: low, end: high });
    for (const renderer of plot.renderers) {
      const [kind, number] = renderer.name.split(":");
      const line = lines[number];
      const content = shown.includes(line) ? columns(kind, line, metric, [low, high], isLog(figure), end) : undefined;
      renderer.visible = content !== undefined;
      if (content === undefined) continue;
      renderer.glyph.setv({ [kind === "band" ? "fill_color" : "line_color"]: colourOf(line) });
      if (kind === "reference") renderer.glyph.fill_color = colourOf(line);
      if (kind === "line") renderer.glyph.setv({ line_width: line.style.bold ? 2.6 : 1.4, line_dash: line.finished ? line.style.dash : [1, 3] });
      renderer.data_source.data = content;
    }
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const text = { major_label_text_color: colour("--soft"), axis_label_text_color: colour("--soft") };
    for (const axis of [...plot.below, ...plot.left]) axis.setv(text);
    plot.below[0].axis_line_color = colour("--line");
    plot.center.find((item) => item.dimension === 1).grid_line_color = colour("--grid");
    plot.select_one("cross").line_color = colour("--soft");
    const shaded = data.episodic.includes(metric) && settling > 0;
    plot.select_one("settling").setv({ visible: shaded, right: Math.min(settling / 1e6, end), fill_color: colour("--soft") });
  }

  // Reading values -----------------------------------------------------------------------------

  const nearest = (steps, value) => steps.reduce((best, s, i) => (Math.abs(s - value) < Math.abs(steps[best] - value) ? i : best), 0);

  function read(figure, steps) {
    const { metric } = figure.dataset;
    const lines = visible(figure).filter((line) => line.curve.steps.length);
    if (!figure.view || !lines.length) return;
    const longest = lines.map((line) => line.curve.steps).reduce((a, b) => (b.at(-1) > a.at(-1) ? b : a));
    figure.at = longest[nearest(longest, steps)];
    const rows = lines.map((line) => {
      const { steps, mean, std } = line.curve;
      const i = nearest(steps, figure.at);
      const there = Math.abs(steps[i] - figure.at) <= (steps[1] ?? steps[0]) - steps[0] + 1;
      return { line, mean: there ? mean[metric][i] : NaN, std: std[metric]?.[i] ?? NaN };
    });
    rows.sort((a, b) => (isNaN(b.mean) ? -Infinity : b.mean) - (isNaN(a.mean) ? -Infinity : a.mean));
    const [minimumFractionDigits, maximumFractionDigits] = [data.digits[metric], data.digits[metric]];
    const text = (v) => v.toLocaleString("en", { minimumFractionDigits, maximumFractionDigits });
    const table = document.createElement("table");
    for (const { line, mean, std } of rows) {
      const known = isNaN(mean) ? ["–", ""] : [text(mean), isNaN(std) ? "" : `± ${text(std)}`];
      const row = table.insertRow();
      for (const content of ["■", line.name, ...known]) row.insertCell().textContent = content;
      row.cells[0].style.color = colourOf(line);
    }
    table.createCaption().textContent = `${figure.at.toLocaleString("en")} steps`;
    tip.replaceChildren(table);
    figure.view.model.select_one("cross").setv({ location: figure.at / 1e6, visible: true });
    const box = figure.view.el.getBoundingClientRect();
    const x = box.left + figure.view.frame.x_scale.compute(figure.at / 1e6);
    const fits = x + 14 + tip.offsetWidth <= document.documentElement.clientWidth - 8;
    tip.style.left = `${(fits ? x + 14 : Math.max(8, x - tip.offsetWidth - 14)) + scrollX}px`;
    tip.style.top = `${box.top + scrollY + 12}px`;
    tip.style.visibility = "visible";
  }

  function hide(figure) {
    Object.assign(tip.style, { visibility: "hidden", left: "0", top: "0" }); // or it would widen a narrow page
    if (figure.view) figure.view.model.select_one("cross").visible = false;
  }

  function listen(figure) {
    const area = figure.querySelector(".plot");
    area.addEventListener("pointermove", ({ clientX }) => {
      if (figure.view) read(figure, 1e6 * figure.view.frame.x_scale.invert(clientX - area.getBoundingClientRect().left));
    });
    for (const end of ["pointerleave", "blur"]) area.addEventListener(end, () => hide(figure));
    area.addEventListener("dblclick", () => update(figure)); // leaves a zoom
    area.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const end = last(visible(figure));
      read(figure, (figure.at ?? end) + (move * end) / 50);
    });
  }

  // Controls -----------------------------------------------------------------------------------

  function press(button) {
    const { series, all, flip } = button.dataset;
    if (series !== undefined && !state.hidden.delete(series)) state.hidden.add(series);
    if (all !== undefined) state.hidden = new Set(all === "none" ? data.legend.map(([name]) => name) : []);
    if (flip !== undefined) button.ariaPressed = state[flip] = !state[flip];
    for (const key of document.querySelectorAll(".key")) key.ariaPressed = !state.hidden.has(key.dataset.series);
    for (const figure of figures) {
      if (figure.dataset.metric === "cost/rate") figure.hidden = state.epoch;
      if (figure.dataset.metric === "cost/epoch_rate") figure.hidden = !state.epoch;
      if (flip === "log" && isCost(figure) && figure.view !== undefined) {
        erase(figure);
        draw(figure);
      } else update(figure);
    }
  }

  function sortTable(header) {
    const up = header.ariaSort !== "ascending";
    const body = header.closest("table").tBodies[0];
    const value = (row) => row.cells[header.cellIndex].dataset.v;
    const compare = header.dataset.kind === "number" ? (p, q) => p - q : (p, q) => p.localeCompare(q, "en", { numeric: true });
    const rows = [...body.rows].sort((a, b) => {
      const [p, q] = [value(a), value(b)];
      if (p === undefined || q === undefined) return (p === undefined) - (q === undefined); // unknown: last
      return up ? compare(p, q) : -compare(p, q);
    });
    body.append(...rows);
    for (const other of header.parentNode.cells) other.ariaSort = "none";
    header.ariaSort = up ? "ascending" : "descending";
  }

  function download() {
    const plain = (_, value) => (value instanceof Float32Array ? Array.from(value, (v) => +v.toPrecision(6)) : value);
    const href = URL.createObjectURL(new Blob([JSON.stringify(data, plain)], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href, download: "statewise-report.json" }).click();
    URL.revokeObjectURL(href);
  }

  document.addEventListener("click", ({ target }) => {
    const [button, header, fold] = ["[data-series], [data-all], [data-flip]", ".data th", ".fold"].map((s) => target.closest(s));
    if (button) press(button);
    if (header) sortTable(header);
    if (fold) fold.ariaExpanded = fold.previousElementSibling.classList.toggle("open");
    if (target.id === "download") download();
  });
  dark.addEventListener("change", () => figures.forEach(update));

  // A chart is drawn when it comes near the window. Phones have little memory: there it is erased far
  // from it. Elsewhere all others are drawn in idle time, since a browser does not wait when it prints.
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) draw(target);
      else if (!desktop) erase(target);
    }
  }, { rootMargin: "600px" });
  async function drawAll() {
    for (const figure of figures.filter((f) => !f.hidden)) {
      await new Promise((ready) => (window.requestIdleCallback ?? setTimeout)(ready));
      await draw(figure);
    }
    document.body.dataset.drawn = "all";
  }
  for (const figure of figures) {
    listen(figure);
    near.observe(figure);
  }
  if (desktop) drawAll();
})();
