"use strict";
// Charts over the time of an episode, with a cursor on the same time as the 3D view.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, parent = null, text = "") {
  const plain = ["svg", "path", "line", "rect"].includes(tag);
  const element = plain ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

/** A number for people: as many digits as its chart needs. */
function digits(value, span) {
  if (!Number.isFinite(value)) return "–";
  const places = Math.min(5, Math.max(0, 2 - Math.floor(Math.log10(span || 1))));
  return value.toFixed(places).replace(/^-(0(\.0+)?)$/, "$1").replace("-", "−");
}

/** One chart: some lines for each policy over the steps of an episode. */
class Chart {
  constructor(parent, { title, unit, about, zero, robust }, seek) {
    Object.assign(this, { zero, robust, shown: [] });
    this.figure = make("figure", { class: "chart" }, parent);
    const caption = make("figcaption", { title: about }, this.figure);
    this.title = make("b", {}, caption, title);
    if (unit) make("small", {}, caption, unit);
    this.now = make("span", { class: "now" }, caption);
    const box = make("div", { class: "plot" }, this.figure);
    this.high = make("span", { class: "high" }, box);
    this.low = make("span", { class: "low" }, box);
    this.area = make("div", { class: "area" }, box);
    this.svg = make("svg", {
      viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": `${title}. ${about}` }, this.area);
    this.cursor = make("div", { class: "cursor" }, this.area);
    const move = (event) => {
      const area = this.area.getBoundingClientRect();
      seek(Math.min(1, Math.max(0, (event.clientX - area.left) / area.width)));
    };
    box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); move(event); });
    box.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
  }

  /** lines: {side, values, kind} where values[i] belongs to step i; bands: {side, from, to}. */
  setLines(lines, bands, length) {
    this.lines = lines;
    this.length = length;
    this.svg.replaceChildren();
    const { low, high } = this.range(lines);
    this.span = high - low;
    const x = (step) => (1000 * step) / length, y = (value) => 96 - (92 * (value - low)) / this.span;
    for (const { from, to } of bands) {
      const width = Math.max(x(to - from + 1), 3);
      make("rect", { class: "band", x: Math.min(x(from - 0.5), 1000 - width), y: 0, width, height: 100 }, this.svg);
    }
    if (this.zero || low < 0) make("line", { class: "zero", x1: 0, x2: 1000, y1: y(0), y2: y(0) }, this.svg);
    for (const { side, values, kind } of lines) {
      let path = "", pen = "M";
      values.forEach((value, i) => {
        if (!Number.isFinite(value)) return;
        path += `${pen}${x(i).toFixed(1)} ${y(value).toFixed(2)}`;
        pen = "L";
      });
      make("path", { class: `line side-${side} ${kind}`, d: path }, this.svg);
    }
    this.high.textContent = digits(high, this.span);
    this.low.textContent = digits(low, this.span);
    this.now.replaceChildren();
    this.shown = lines.map(({ side, kind }) => make("span", { class: `side-${side} ${kind}` }, this.now, "–"));
  }

  /** The values at both ends of the axis. A robust one leaves out a few outliers, such as a bonus. */
  range(lines) {
    const all = lines.flatMap((line) => Array.from(line.values).filter(Number.isFinite)).sort((a, b) => a - b);
    const at = (share) => all[Math.round(share * (all.length - 1))] ?? 0;
    let low = Math.min(0, at(0)), high = Math.max(0, at(1));
    if (this.robust && high > 4 * at(0.97) && at(0.97) > 0) high = 1.4 * at(0.97);
    if (high - low < 1e-9) high = low + 1;
    return { low, high };
  }

  /** Move the cursor, which is no part of the drawing, so that the lines are not drawn anew. */
  setTime(time) {
    this.cursor.style.transform = `translateX(${(100 * time) / this.length}%)`;
  }

  /** Show the numbers of a step. */
  setStep(step) {
    this.lines.forEach(({ values }, k) => {
      this.shown[k].textContent = digits(values[Math.min(step, values.length - 1)], this.span);
    });
  }
}
