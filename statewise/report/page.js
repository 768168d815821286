// Charts, legend and sortable tables of the report. No library: the page works from a file.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { hidden: new Set(), rate: "cost/rate", log: false, paper: true, bands: true };
  const MARGIN = { top: 10, right: 8, bottom: 22, left: 46 };
  const GUTTER = 34; // of the paper's final values, right of the curves
  const tip = document.getElementById("tip");
  const figures = [...document.querySelectorAll("figure.chart")];

  // Numbers ------------------------------------------------------------------------------------

  const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  function number(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.floor(Math.log10(Math.abs(value)));
    return size >= 3 ? Math.round(value).toLocaleString("en") : value.toFixed(Math.max(0, 2 - size));
  }

  function tickText(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    return size < 1e-4 ? value.toExponential(0) : String(+value.toPrecision(3));
  }

  function linearTicks(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
    return ticks;
  }

  function logTicks(low, high) {
    const ticks = [];
    const wide = Math.log10(high / low) > 2;
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const n of wide ? [1] : [1, 2, 5]) ticks.push(n * 10 ** e);
    }
    return ticks.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  }

  // One chart ----------------------------------------------------------------------------------

  const metricOf = (figure) => (figure.dataset.metric === "cost/rate" ? state.rate : figure.dataset.metric);
  const visible = (figure) =>
    data.suites[figure.dataset.suite].groups.filter((g) => !state.hidden.has(g.series));
  const paperOf = (group, metric) => (state.paper ? group.paper[metric] : undefined);

  // Methods that hardly earn anything do not set the scale: the others would be one line.
  function earning(groups) {
    const last = (group) => group.mean.return.findLast((v) => v !== null) ?? -Infinity;
    const best = Math.max(...groups.map(last));
    const kept = groups.filter((group) => last(group) >= 0.5 * best);
    return kept.length ? kept : groups;
  }

  function range(visible, metric, log) {
    const groups = earning(visible);
    const means = groups.flatMap((g) => [g, ...g.partial].flatMap((c) => c.mean[metric]));
    const known = means.filter((v) => v !== null && (!log || v > 0));
    if (!known.length) return log ? [0.001, 1] : [0, 1];
    let low = Math.min(...known);
    let high = Math.max(...known);
    const reach = high + 0.3 * (high - Math.min(low, metric === "episode/return" ? low : 0));
    // Bands and the paper's values may widen the scale, but an outlier may not flatten the rest.
    for (const group of groups) {
      const theirs = paperOf(group, metric);
      if (theirs !== undefined && theirs <= reach && (!log || theirs > 0)) {
        high = Math.max(high, theirs);
        low = Math.min(low, theirs);
      }
      if (state.bands && !log && group.std[metric]) {
        const tops = group.mean[metric].map((m, i) => (m === null ? high : m + (group.std[metric][i] ?? 0)));
        high = Math.max(high, Math.min(reach, Math.max(...tops)));
      }
    }
    if (log) return [Math.max(low, high / 1e5) / 1.3, high * 1.3];
    if (metric !== "episode/return") low = 0;
    const pad = 0.05 * (high - low || Math.abs(high) || 1);
    return [metric === "episode/return" ? low - pad : 0, high + pad];
  }

  function scales(figure, groups, metric) {
    const svg = figure.querySelector("svg");
    const width = svg.clientWidth || 300;
    const height = svg.clientHeight || 240;
    const log = state.log && metric !== "episode/return";
    const [low, high] = range(groups, metric, log);
    const gutter = groups.some((g) => paperOf(g, metric) !== undefined) ? GUTTER : 0;
    const right = width - MARGIN.right - gutter;
    const bottom = height - MARGIN.bottom;
    const last = Math.max(1, ...groups.flatMap((g) => [g, ...g.partial].map((c) => c.x[c.x.length - 1])));
    const place = log ? (v) => Math.log(Math.max(v, low) / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
    return {
      svg, width, height, right, bottom, gutter, low, high, log, last,
      x: (v) => MARGIN.left + (v / last) * (right - MARGIN.left),
      y: (v) => bottom - place(v) * (bottom - MARGIN.top),
    };
  }

  function line(xs, ys, s) {
    let path = "";
    let pen = false;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null) { pen = false; continue; } // no episode ended: a gap
      path += `${pen ? "L" : "M"}${s.x(xs[i]).toFixed(1)} ${s.y(ys[i]).toFixed(1)}`;
      pen = true;
    }
    return path;
  }

  function band(group, metric, s) {
    const up = [];
    const down = [];
    group.x.forEach((x, i) => {
      const mean = group.mean[metric][i];
      const std = group.std[metric][i];
      if (mean === null || std === null) return;
      up.push(`${s.x(x).toFixed(1)} ${s.y(mean + std).toFixed(1)}`);
      down.unshift(`${s.x(x).toFixed(1)} ${s.y(mean - std).toFixed(1)}`);
    });
    return up.length > 1 ? `M${up.join("L")}L${down.join("L")}Z` : "";
  }

  function axes(s) {
    const ticks = s.log ? logTicks(s.low, s.high) : linearTicks(s.low, s.high, 5);
    let out = "";
    for (const t of ticks) {
      const y = s.y(t).toFixed(1);
      out += `<line class="grid" x1="${MARGIN.left}" x2="${s.right}" y1="${y}" y2="${y}"/>`;
      out += `<text x="${MARGIN.left - 6}" y="${+y + 4}" text-anchor="end">${tickText(t)}</text>`;
    }
    for (const t of linearTicks(0, s.last, s.width < 280 ? 3 : 4)) {
      const anchor = t === 0 ? "start" : s.x(t) > s.right - 14 ? "end" : "middle";
      out += `<text x="${s.x(t).toFixed(1)}" y="${s.height - 6}" text-anchor="${anchor}">${tickText(t)}</text>`;
    }
    out += `<text x="${MARGIN.left - 6}" y="${s.height - 6}" text-anchor="end">steps</text>`;
    return `${out}<line class="axis" x1="${MARGIN.left}" x2="${s.right}" y1="${s.bottom}" y2="${s.bottom}"/>`;
  }

  function theirs(group, metric, s, colour) {
    const value = paperOf(group, metric);
    if (value === undefined) return "";
    const from = s.right + 6;
    if (value > s.high || value < s.low) {
      const y = value > s.high ? MARGIN.top + 8 : s.bottom;
      return `<text x="${from + 8}" y="${y}" style="fill:${colour}">${value > s.high ? "↑" : "↓"}</text>`;
    }
    const y = s.y(value).toFixed(1);
    return `<line class="theirs" x1="${from}" x2="${s.right + s.gutter - 4}" y1="${y}" y2="${y}" stroke="${colour}"/>`;
  }

  function draw(figure) {
    const metric = metricOf(figure);
    const groups = visible(figure);
    const s = scales(figure, groups, metric);
    const id = `clip-${figure.dataset.suite}-${figure.dataset.metric}`;
    const box = `x="${MARGIN.left}" y="${MARGIN.top - 4}" width="${s.right - MARGIN.left}" height="${s.bottom - MARGIN.top + 5}"`;
    const settled = Math.min(data.suites[figure.dataset.suite].settling, s.last);
    let bands = data.episodic.includes(metric) && settled
      ? `<rect class="unsettled" x="${MARGIN.left}" y="${MARGIN.top}" width="${s.x(settled) - MARGIN.left}" height="${s.bottom - MARGIN.top}"/>`
      : "";
    let lines = "";
    let paper = s.gutter ? `<text x="${s.right + 4}" y="${s.height - 6}">paper</text>` : "";
    // The last drawn lies on top: SCPO comes first in the data.
    for (const group of [...groups].reverse()) {
      const entry = data.series[group.series];
      const colour = `var(--c-${entry.colour})`;
      const kind = entry.bold ? " bold" : "";
      if (state.bands && group.std[metric]) bands += `<path class="band${kind}" d="${band(group, metric, s)}" fill="${colour}"/>`;
      const pattern = group.finished ? entry.dash : "1 3";
      const dash = pattern ? ` stroke-dasharray="${pattern}"` : "";
      lines += `<path class="mean${kind}" data-series="${group.series}" d="${line(group.x, group.mean[metric], s)}" stroke="${colour}"${dash}/>`;
      for (const part of group.partial) lines += `<path class="part" d="${line(part.x, part.mean[metric], s)}" stroke="${colour}"/>`;
      paper += theirs(group, metric, s, colour);
    }
    s.svg.innerHTML = `<clipPath id="${id}"><rect ${box}/></clipPath>${axes(s)}<g clip-path="url(#${id})">${bands}${lines}</g>${paper}<line class="cross" y1="${MARGIN.top}" y2="${s.bottom}" visibility="hidden"/>`;
    figure.scales = s;
    figure.stale = false;
    caption(figure, metric, s.log);
  }

  function caption(figure, metric, log) {
    const [title, unit] = data.captions[metric];
    figure.querySelector(".title").textContent = title + (log ? " (log scale)" : "");
    figure.querySelector("small").textContent = unit;
  }

  // Reading values -----------------------------------------------------------------------------

  function nearest(xs, value) {
    let best = 0;
    for (let i = 1; i < xs.length; i++) if (Math.abs(xs[i] - value) < Math.abs(xs[best] - value)) best = i;
    return best;
  }

  function point(figure, steps) {
    const s = figure.scales;
    const metric = metricOf(figure);
    const groups = visible(figure).filter((g) => g.x.length);
    if (!s || !groups.length) return hide(figure);
    const longest = groups.reduce((a, b) => (b.x[b.x.length - 1] > a.x[a.x.length - 1] ? b : a));
    const at = longest.x[nearest(longest.x, steps)];
    const rows = groups.map((g) => {
      const i = nearest(g.x, at);
      const near = Math.abs(g.x[i] - at) <= (g.x[1] ?? g.x[0]) - (g.x[0] ?? 0) + 1;
      return { entry: data.series[g.series], mean: near ? g.mean[metric][i] : null, std: g.std[metric]?.[i] };
    });
    rows.sort((a, b) => (b.mean ?? -Infinity) - (a.mean ?? -Infinity));
    const cells = rows.map((r) => `<tr><td><i style="background:var(--c-${r.entry.colour})"></i>${escape(r.entry.name)}</td><td>${number(r.mean)}</td><td>${r.std == null ? "" : `± ${number(r.std)}`}</td></tr>`);
    tip.innerHTML = `<b>${at.toLocaleString("en")} steps</b><table>${cells.join("")}</table>`;
    const cross = s.svg.querySelector(".cross");
    cross.setAttribute("x1", s.x(at));
    cross.setAttribute("x2", s.x(at));
    cross.setAttribute("visibility", "visible");
    figure.at = at;
    const box = s.svg.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    let left = box.left + s.x(at) + 14;
    if (left + tip.offsetWidth > room - 8) left = Math.max(8, box.left + s.x(at) - tip.offsetWidth - 14);
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${box.top + window.scrollY + 12}px`;
    tip.style.visibility = "visible";
  }

  function hide(figure) {
    tip.style.visibility = "hidden";
    tip.style.left = tip.style.top = "0"; // or it would widen a narrow page
    figure.querySelector(".cross")?.setAttribute("visibility", "hidden");
  }

  function listen(figure) {
    const svg = figure.querySelector("svg");
    svg.addEventListener("pointermove", (event) => {
      const s = figure.scales;
      if (!s) return;
      const x = event.clientX - svg.getBoundingClientRect().left;
      point(figure, ((x - MARGIN.left) / (s.right - MARGIN.left)) * s.last);
    });
    svg.addEventListener("pointerleave", () => hide(figure));
    svg.addEventListener("blur", () => hide(figure));
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move || !figure.scales) return;
      event.preventDefault();
      point(figure, (figure.at ?? figure.scales.last) + (move * figure.scales.last) / 50);
    });
  }

  // All charts ---------------------------------------------------------------------------------

  const near = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) near.add(target);
      else near.delete(target);
      if (isIntersecting && target.stale) draw(target);
    }
  }, { rootMargin: "900px" });

  function redraw() {
    for (const figure of figures) {
      figure.stale = true;
      if (near.has(figure)) draw(figure);
    }
  }

  // Controls -----------------------------------------------------------------------------------

  function setHidden(hidden) {
    state.hidden = hidden;
    for (const key of document.querySelectorAll(".key")) key.setAttribute("aria-pressed", !hidden.has(+key.dataset.series));
    redraw();
  }

  function control(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const { series, all, rate, flip } = button.dataset;
    if (series !== undefined) {
      const hidden = new Set(state.hidden);
      if (!hidden.delete(+series)) hidden.add(+series);
      setHidden(hidden);
    } else if (all !== undefined) {
      setHidden(new Set(all === "none" ? data.series.keys() : []));
    } else if (rate || flip) {
      if (rate) state.rate = rate;
      else state[flip] = !state[flip];
      for (const other of document.querySelectorAll("[data-rate]")) other.setAttribute("aria-pressed", other.dataset.rate === state.rate);
      if (flip) button.setAttribute("aria-pressed", state[flip]);
      redraw();
    }
  }

  function sortTable(header) {
    const table = header.closest("table");
    const column = header.cellIndex;
    const up = header.getAttribute("aria-sort") !== "ascending";
    const body = table.tBodies[0];
    const value = (row) => row.cells[column].dataset.v;
    const numeric = header.dataset.kind === "number";
    const rows = [...body.rows].sort((a, b) => {
      const [p, q] = [value(a), value(b)];
      if (p === undefined || q === undefined) return (p === undefined) - (q === undefined); // unknown: last
      const order = numeric ? p - q : p.localeCompare(q, "en", { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows);
    for (const other of header.parentNode.cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
  }

  function download() {
    const blob = new Blob([JSON.stringify(data)], { type: "application/json" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "statewise-report.json" });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  document.querySelector(".toolbar").addEventListener("click", control);
  document.getElementById("download").addEventListener("click", download);
  for (const header of document.querySelectorAll("table.data th")) {
    header.querySelector("button").addEventListener("click", () => sortTable(header));
  }
  for (const figure of figures) {
    figure.stale = true;
    listen(figure);
    watcher.observe(figure);
  }
  new ResizeObserver(redraw).observe(document.body);
  window.addEventListener("beforeprint", () => figures.forEach(draw));
})();
