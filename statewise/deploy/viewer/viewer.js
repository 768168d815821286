"use strict";
// The page: episodes, playing, keys. What it shows is in the element #data.

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
const state = { episode: 0, constraint: 0, time: 0, length: 1, playing: false, speed: 1, camera: "follow", shown: -1 };
let stage = null, charts = [], sides = [], last = 0, asked = false;

// Reading the data ---------------------------------------------------------------------------------

/** An episode of one policy, with its numbers as arrays: index i belongs to the state after i steps. */
function readSide(side) {
  const series = { reward: unpack(side.reward) };
  for (const name of ["cost", "clearance", "value"]) series[name] = side[name].map(unpack);
  series.cost_max = series.cost.map((cost) => {
    let most = 0;
    return cost.map((c) => (most = Math.max(most, c || 0)));
  });
  let sum = 0;
  series.return = series.reward.map((r) => (sum += r || 0));
  const broken = series.cost.map((cost) => Array.from(cost, (c) => c > 0));
  const any = Array.from(series.reward, (_, i) => broken.some((one) => one[i]));
  return { ...side, series, broken: any, violations: broken.map(intervals), all: intervals(any) };
}

/** The runs of true values as {from, to}. */
function intervals(flags) {
  const found = [];
  flags.forEach((flag, i) => {
    if (flag && !flags[i - 1]) found.push({ from: i, to: i });
    else if (flag) found[found.length - 1].to = i;
  });
  return found;
}

// Building the page --------------------------------------------------------------------------------

function begin() {
  $("speed").value = "1";
  $("camera").value = state.camera;
  data.episodes.forEach((episode, i) => {
    const button = make("button", { "aria-pressed": "false", "data-episode": i }, $("episodes"));
    make("b", {}, button, String(i + 1));
    make("span", {}, button, episode.title);
    button.addEventListener("click", () => choose(i));
  });
  data.constraints.forEach(({ name }, i) => {
    const button = make("button", { "aria-pressed": "false" }, $("constraints"), name);
    button.addEventListener("click", () => { state.constraint = i; fillCharts(); });
  });
  $("constraints").hidden = data.constraints.length < 2;
  data.runs.forEach((run, i) => {
    const box = make("div", { class: `view side-${i}`, "data-side": i }, $("views"));
    make("b", {}, box, run.name);
    make("div", { class: "numbers" }, box);
    make("div", { class: "ending" }, box);
  });
  $("legend").hidden = data.runs.length < 2;
  data.runs.forEach((run, i) => make("span", { class: `key side-${i}` }, $("legend"), run.name));
  document.body.classList.toggle("pair", data.runs.length > 1);
  if (data.model) startStage();
  else showNoPicture("This environment cannot be drawn. The charts show its numbers.");
  makeCharts();
  listen();
  choose(0);
}

function startStage() {
  try {
    stage = new Stage($("canvas"), data.model, request);
  } catch (error) {
    showNoPicture("This browser has no WebGL, so nothing can be drawn. The charts show the numbers.");
    return;
  }
  stage.setCamera(state.camera);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    stage.setTheme();
    stage.setEpisode(sides);
    request();
  });
  new ResizeObserver(request).observe($("canvas"));
}

function showNoPicture(why) {
  document.body.classList.add("flat");
  $("note").textContent = why;
  $("note").hidden = false;
}

function makeCharts() {
  const seek = (share) => goTo(Math.round(share * state.length));
  const add = (key, title, unit, about, zero = false) =>
    charts.push({ key, chart: new Chart($("charts"), { title, unit, about, zero }, seek) });
  add("cost", "Cost", "and its running maximum", "Solid: cost of each step. Dashed: largest cost of the episode so far.");
  add("clearance", "Clearance", "", "Distance to a violation. Below zero the constraint is broken.", true);
  if (data.runs.some((run) => run.value)) {
    const names = [...new Set(data.runs.map((run) => run.value).filter(Boolean))];
    add("value", names.map((name) => `V_${name}`).join(", "), "what the cost critic expects",
      "V_D: expected rise of the largest cost from here on. V_C: expected discounted cost.");
  }
  add("reward", "Reward", "of each step", "Reward of each step. A bonus at the goal may be cut off.");
  charts.at(-1).chart.robust = true;
}

// Showing ------------------------------------------------------------------------------------------

function choose(index) {
  state.episode = (index + data.episodes.length) % data.episodes.length;
  const episode = data.episodes[state.episode];
  sides = episode.sides.map(readSide);
  state.constraint = episode.constraint;
  state.length = Math.max(...sides.map((side) => side.steps));
  $("scrubber").max = state.length;
  $("why").textContent = episode.why;
  document.querySelectorAll("#episodes button").forEach((button, i) =>
    button.setAttribute("aria-pressed", String(i === state.episode)));
  if (stage) stage.setEpisode(sides);
  if (stage && state.shown < 0) stage.setCamera(state.camera);
  fillMarks();
  fillCharts();
  goTo(0);
}

function fillMarks() {
  $("marks").replaceChildren();
  sides.forEach((side, k) => side.all.forEach(({ from, to }) => {
    const mark = make("i", { class: `side-${k}`, "data-from": from, "data-to": to }, $("marks"));
    mark.style.left = `${(100 * from) / state.length}%`;
    mark.style.width = `${(100 * Math.max(to - from, 0)) / state.length}%`;
  }));
  const none = sides.every((side) => side.all.length === 0);
  $("next").disabled = $("previous").disabled = none;
}

function fillCharts() {
  document.querySelectorAll("#constraints button").forEach((button, i) =>
    button.setAttribute("aria-pressed", String(i === state.constraint)));
  const at = state.constraint, constraint = data.constraints[at];
  for (const { key, chart } of charts) {
    const lines = [], perConstraint = key !== "reward";
    chart.figure.hidden = perConstraint && !constraint;
    if (chart.figure.hidden) continue;
    sides.forEach((side, k) => {
      const values = perConstraint ? side.series[key][at] : side.series.reward;
      if (values) lines.push({ side: k, values, kind: "plain" });
      if (key === "cost") lines.push({ side: k, values: side.series.cost_max[at], kind: "dashed" });
    });
    if (key === "clearance") chart.title.dataset.unit = constraint.unit;
    const bands = constraint ? sides.flatMap((side) => side.violations[at]) : [];
    chart.setLines(lines, bands, state.length);
  }
  state.shown = -1;
  request();
}

function goTo(time) {
  state.time = Math.min(Math.max(time, 0), state.length);
  request();
}

/** Show the present time in the next frame of the browser. */
function request() {
  if (asked) return;
  asked = true;
  requestAnimationFrame((now) => {
    asked = false;
    advance(now);
    show();
    if (state.playing) request();
  });
}

function advance(now) {
  if (!state.playing) return;
  const passed = Math.min((now - last) / 1000, 0.1);
  last = now;
  state.time += (passed * state.speed) / data.dt;
  if (state.time >= state.length) {
    state.time = state.length;
    play(false);
  }
}

function show() {
  const step = Math.round(state.time);
  if (stage) stage.draw(state.time);
  const visible = charts.filter(({ chart }) => !chart.figure.hidden);
  for (const { chart } of visible) chart.setTime(state.time);
  if (step === state.shown) return;
  state.shown = step;
  for (const { chart } of visible) chart.setStep(step);
  $("scrubber").value = step;
  const seconds = `${(step * data.dt).toFixed(2)} s`;
  $("scrubber").setAttribute("aria-valuetext", `${seconds}, step ${step} of ${state.length}`);
  $("clock").textContent = `${seconds} · step ${step} / ${state.length}`;
  sides.forEach(showSide);
}

function showSide(side, k) {
  const box = document.querySelector(`.view[data-side="${k}"]`), s = side.series;
  const at = Math.min(state.shown, side.steps), over = state.shown >= side.steps;
  box.classList.toggle("broken", side.broken[at]);
  const rows = [["return", s.return[at], ""]];
  data.constraints.forEach(({ name, unit }, i) => {
    const prefix = data.constraints.length > 1 ? `${name} ` : "";
    rows.push([`${prefix}cost`, s.cost[i][at] || 0, s.cost[i][at] > 0 ? "bad" : ""]);
    rows.push([`${prefix}max cost`, s.cost_max[i][at], s.cost_max[i][at] > 0 ? "bad" : ""]);
    const clear = s.clearance[i][at];
    if (Number.isFinite(clear)) rows.push([`${prefix}clearance`, clear, clear < 0 ? "bad" : "", unit]);
  });
  const numbers = box.querySelector(".numbers");
  while (numbers.children.length < 2 * rows.length) make("span", {}, numbers);
  rows.forEach(([name, value, mood, unit = ""], i) => {
    const [label, number] = [numbers.children[2 * i], numbers.children[2 * i + 1]];
    label.textContent = name;
    number.textContent = `${digits(value, name === "return" ? 1 : 0.1)}${unit ? ` ${unit}` : ""}`;
    number.className = mood;
  });
  box.querySelector(".ending").textContent = over ? side.ending : "";
}

// Playing ------------------------------------------------------------------------------------------

function play(on) {
  if (on && state.time >= state.length) state.time = 0;
  state.playing = on;
  last = performance.now();
  $("play").textContent = on ? "Pause" : "Play";
  $("play").setAttribute("aria-pressed", String(on));
  request();
}

/** Go to the start of the next violation, or of the one before; from the last on to the first. */
function jump(direction) {
  const starts = [...new Set(sides.flatMap((side) => side.all.map(({ from }) => from)))].sort((a, b) => a - b);
  if (!starts.length) return;
  const here = Math.round(state.time);
  const found = direction > 0 ? starts.find((at) => at > here) : starts.findLast((at) => at < here);
  play(false);
  goTo(found ?? starts.at(direction > 0 ? 0 : -1));
}

function setCamera(name) {
  state.camera = $("camera").value = name;
  if (stage) stage.setCamera(name);
  request();
}

function setSpeed(by) {
  const list = $("speed");
  list.selectedIndex = Math.min(Math.max(list.selectedIndex + by, 0), list.length - 1);
  state.speed = Number(list.value);
}

const KEYS = {
  " ": () => play(!state.playing),
  ArrowLeft: (event) => goTo(Math.round(state.time) - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(Math.round(state.time) + (event.shiftKey ? 10 : 1)),
  Home: () => goTo(0),
  End: () => goTo(state.length),
  n: () => jump(1),
  p: () => jump(-1),
  "]": () => choose(state.episode + 1),
  "[": () => choose(state.episode - 1),
  c: () => setCamera({ follow: "arena", arena: "top", top: "follow" }[state.camera]),
  "+": () => setSpeed(1),
  "-": () => setSpeed(-1),
};

function listen() {
  $("play").addEventListener("click", () => play(!state.playing));
  $("next").addEventListener("click", () => jump(1));
  $("previous").addEventListener("click", () => jump(-1));
  $("scrubber").addEventListener("input", () => { play(false); goTo(Number($("scrubber").value)); });
  $("speed").addEventListener("change", () => setSpeed(0));
  $("camera").addEventListener("change", () => setCamera($("camera").value));
  document.addEventListener("keydown", (event) => {
    const { target } = event, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const native = target.matches("select") || (target.matches("button, summary") && key === " ");
    if (native || event.ctrlKey || event.metaKey || event.altKey || !KEYS[key]) return;
    event.preventDefault();
    KEYS[key](event);
  });
}

begin();
if (!reduced && data.autoplay) play(true);
