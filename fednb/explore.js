// Sliders over the outcome of a function: the drawings and the controls behind fednb.widgets.explore.
// One file, no dependency. JupyterLab loads it as an anywidget, and the kernel answers for values off the grid;
// the printed book inlines it beside its data. All above "controls" is pure: data in, numbers or markup out.

// ---- numbers
/** A number as a reader wants it: four significant digits, no trailing zeros, a real minus sign. */
export function format(v) {
  if (typeof v !== "number") return v == null ? "–" : String(v);
  const far = v && (Math.abs(v) >= 1e6 || Math.abs(v) < 1e-3);
  const short = far ? v.toExponential(3).replace(/\.?0*e\+?/, "e") : String(+v.toPrecision(4));
  return short.replace(/-/g, "−");
}

/** Where a combination stands in the list of frames (the last parameter runs fastest); -1 if it is off the grid. */
export function frameIndex(params, at) {
  const places = params.map(({ name, values }) => values.indexOf(at[name]));
  return places.includes(-1) ? -1 : params.reduce((index, p, i) => index * p.values.length + places[i], 0);
}

/** Stops of a live slider: all integers, or some 100 steps through the grid, geometric if it spans 30-fold. */
export function refine(values, integer, parts = 100) {
  const [lo, hi, each] = [values[0], values.at(-1), Math.ceil(parts / (values.length - 1))];
  const linear = integer || lo <= 0 || hi / lo < 30;
  const round = (v) => (integer ? Math.round(v) : +v.toPrecision(3));
  return values.flatMap((b, i) => {
    const a = values[i - 1] ?? b;
    const n = integer ? Math.min(b - a, 1000) : each;
    const value = (t) => (linear ? a + (b - a) * t : a * (b / a) ** t);
    const inner = Array.from({ length: i && n - 1 }, (_, j) => value((j + 1) / n)).map(round);
    return [...new Set(inner)].filter((v) => v > a && v < b).concat(b);
  });
}

/** Indices of the labels to print so that they fit into `room` characters; both ends if an even step allows. */
export function thin(labels, room) {
  const wide = Math.max(...labels.map((s) => String(s).length)) + 1.5;
  const least = Math.ceil((labels.length * wide) / Math.max(room, wide));
  const all = [...labels.keys()];
  const step = all.find((s) => s >= least && s < 2 * least && (labels.length - 1) % s === 0) ?? least;
  return all.filter((i) => i % step === 0);
}

/** Round values inside [lo, hi]; 1-2-5 on a log axis, powers of ten once it spans more than two decades. */
export function ticks([lo, hi], count = 5, log = false) {
  if (!(hi > lo)) return [lo];
  if (log) {
    const decade = (_, i) => (hi / lo > 100 ? [1] : [1, 2, 5]).map((m) => +`${m}e${i - 20}`);
    return Array.from({ length: 41 }, decade).flat().filter((v) => v >= lo && v <= hi);
  }
  const raw = (hi - lo) / Math.max(1, count);
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = base * [1, 2, 5, 10].find((m) => m * base >= raw * 0.8);
  const from = Math.ceil(lo / step - 1e-9);
  return Array.from({ length: hi / step - from + 1 + 1e-9 }, (_, i) => +((from + i) * step).toPrecision(10));
}

/** The map from [lo, hi] to [a, b]; what has no place there is null. */
export function scale([lo, hi], [a, b], log = false) {
  const f = log ? Math.log : (v) => v;
  const width = f(hi) - f(lo) || 1;
  return (v) => (v == null || (log && v <= 0) ? null : a + ((f(v) - f(lo)) / width) * (b - a));
}

// ---- colours: Okabe-Ito for groups, matplotlib's viridis and RdBu_r for values
const GROUPS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b8a800"];
const MAPS = {
  viridis: ["440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725"],
  diverging: ["2166ac", "67a9cf", "d1e5f0", "f7f7f7", "fddbc7", "ef8a62", "b2182b"],
};
/** Colour of the i-th group, told apart by colour-blind readers; the style sheet lightens some in the dark. */
export const hue = (i) => `var(--fx-${i % 8},${GROUPS[i % 8]})`;

/** Red, green, blue of a colour map at t in [0, 1]. */
export function rgb(t, map = "viridis") {
  const stops = MAPS[map];
  const u = Math.min(1, Math.max(0, t)) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(u));
  const part = (hex, c) => parseInt(hex.slice(2 * c, 2 * c + 2), 16);
  return [0, 1, 2].map((c) => Math.round(part(stops[i], c) * (1 - u + i) + part(stops[i + 1], c) * (u - i)));
}

// ---- drawings: a panel and a width in pixels in, markup out; no ids, so that nothing clashes on a page
const [CHAR, BAR] = [6.5, 58]; // pixels of a character of a label, roughly, and of a colour bar
const SHAPES = ["M-4,0a4,4 0 1,0 8,0a4,4 0 1,0-8,0", "M-3.5-3.5h7v7h-7z", "M0-4.6L4.4,3.4H-4.4z", "M0-5L5,0L0,5L-5,0z"];
const NOUNS = { heatmap: "Heat map", lines: "Line chart", scatter: "Scatter plot", bars: "Bar chart" };
export const esc = (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const logs = (p) => ["x", "y"].map((axis) => Boolean(p.log?.includes(axis)));
const px = (v) => Math.round(v * 10) / 10;
const text = (x, y, s, anchor = "middle", extra = "") =>
  `<text x="${px(x)}" y="${px(y)}" text-anchor="${anchor}" ${extra}>${esc(s)}</text>`;
const rect = (x, y, w, h, fill, tip = "") =>
  `<rect x="${px(x)}" y="${px(y)}" width="${px(w)}" height="${px(h)}" fill="${fill}"><title>${esc(tip)}</title></rect>`;
const line = (d, cls, i = -1) =>
  `<path d="${d}" class="${cls}"${i < 0 ? "" : ` stroke="${hue(i)}"`}${i < 8 ? "" : ' stroke-dasharray="5 3"'}/>`;
const mark = (i, at = "0,0") =>
  `<path transform="translate(${at})" d="${SHAPES[(i + Math.floor(i / 8)) % 4]}" class="fx-dot" fill="${hue(i)}"/>`;
const margin = (p, labels) => px(Math.max(...labels.map((v) => format(v).length)) * CHAR + (p.ylabel ? 28 : 10));

/** An svg path through points; a missing number lifts the pen. */
function path(points) {
  const ok = (q) => q && q[0] != null && q[1] != null;
  return points.map((q, i) => (ok(q) ? `${ok(points[i - 1]) ? "L" : "M"}${px(q[0])},${px(q[1])}` : "")).join("");
}

/** What panels of one kind share, so that axes and colours stay put while a slider moves; the last is to be drawn. */
export function limits(panels) {
  const [{ kind, cmap, xlim, ylim, zlim }, [logx, logy]] = [panels.at(-1), logs(panels.at(-1))];
  const range = (pick, log) => {
    const all = panels.flatMap((p) => pick(p).flat()).filter((v) => v != null && !(log && v <= 0));
    return all.length ? [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))] : [1, 2];
  };
  const pad = ([a, b], log, by = 0.04 * (b - a || 1)) => (log ? [a / 1.1, b * 1.1] : [a - by, b + by]);
  const even = ([a, b]) => (cmap === "diverging" ? [Math.min(a, -b), Math.max(-a, b)] : [a, b]);
  const zero = ([a, b]) => [Math.min(0, a * 1.04), Math.max(0, b * 1.04)];
  const [rows, column] = [(p) => Object.values(p.series), (i) => pad(range((p) => p.xy.map((q) => q[i])))];
  const names = [...new Set(panels.flatMap((p) => p.labels ?? Object.keys(p.series ?? {})))];
  if (kind === "scatter") names.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const found = { names };
  if (kind === "heatmap") found.z = even(range((p) => p.z));
  if (kind === "lines") [found.x, found.y] = [range((p) => p.x, logx), pad(range(rows, logy), logy)];
  if (kind === "scatter") [found.x, found.y] = [column(0), column(1)];
  if (kind === "bars") found.y = zero(range(rows));
  return { ...found, ...(xlim && { x: xlim }), ...(ylim && { y: ylim }), ...(zlim && { z: zlim }) };
}

/** What a drawing shows, in words, for readers who cannot see it. */
export function describe(p) {
  const of = p.zlabel || Object.keys(p.series ?? {}).filter(Boolean).join(", ");
  const over = [p.xlabel, p.ylabel].filter(Boolean).join(" and ");
  return p.alt || [p.title || NOUNS[p.kind], of && `of ${of}`, over && `over ${over}`].filter(Boolean).join(" ");
}

/** The svg around a drawing whose inside spans x0..x1 and y1..y0, with the names of its axes. */
function picture(p, [w, h], [x0, x1], [y0, y1], body) {
  const turn = `transform="translate(11,${px((y0 + y1) / 2)})rotate(-90)"`;
  const x = p.xlabel ? text((x0 + x1) / 2, h - 5, p.xlabel, "middle", 'class="fx-name"') : "";
  const y = p.ylabel ? text(0, 0, p.ylabel, "middle", `class="fx-name" ${turn}`) : "";
  const size = `viewBox="0 0 ${px(w)} ${px(h)}" width="${px(w)}" height="${px(h)}"`;
  return `<svg class="fx-svg" role="img" aria-label="${esc(describe(p))}" ${size}>${[...body, x, y].join("")}</svg>`;
}

/** The groups that a panel has, each with its number among those of all panels: that gives its colour. */
const own = (p, { names }) =>
  [...names.entries()].filter(([, name]) => (p.series ? name in p.series : p.labels.includes(name)));

function legend(groups, key) {
  const item = ([i, name]) => name && `<span><svg viewBox="-7 -7 14 14">${key(i)}</svg>${esc(name)}</span>`;
  return `<div class="fx-legend" aria-hidden="true">${groups.map(item).join("")}</div>`;
}

/** Axes around `inside(sx, sy)`. Categories, when given, stand on x in place of numbers. */
function plot(p, width, { x, y }, inside, categories) {
  const [[logx, logy], whole] = [logs(p), p.x?.every(Number.isInteger)]; // rounds have no halves
  const h = Math.round(p.equal ? Math.min(380, width * 0.85) : Math.min(320, Math.max(200, width * 0.62)));
  const [x0, x1, y0, y1] = [margin(p, ticks(y, 5, logy)), width - 12, h - (p.xlabel ? 40 : 24), 8];
  if (p.equal) {
    const unit = Math.max((x[1] - x[0]) / (x1 - x0), (y[1] - y[0]) / (y0 - y1)); // data per pixel, on both axes
    const grow = ([a, b], pixels) => [(a + b - unit * pixels) / 2, (a + b + unit * pixels) / 2];
    [x, y] = [grow(x, x1 - x0), grow(y, y0 - y1)];
  }
  const [sx, sy] = [scale(x, [x0, x1], logx), scale(y, [y0, y1], logy)];
  const row = (v) => line(`M${x0},${px(sy(v))}H${px(x1)}`, "fx-grid") + text(x0 - 6, sy(v) + 4, format(v), "end");
  const column = (v, s) => line(`M${px(sx(v))},${y0}v4`, "fx-axis") + text(sx(v), y0 + 16, s);
  const columns = categories
    ? thin(categories, (x1 - x0) / CHAR).map((i) => column(i, categories[i]))
    : ticks(x, (x1 - x0) / 70, logx).filter((v) => !whole || v % 1 === 0).map((v) => column(v, format(v)));
  const rows = [...ticks(y, 5, logy).map(row), line(`M${x0},${y0}H${px(x1)}`, "fx-axis")];
  const box = [x0, y1 - 2, px(x1 - x0 + 2), y0 - y1 + 4]; // a nested svg clips, and needs no id for it
  const clip = `<svg x="${box[0]}" y="${box[1]}" width="${box[2]}" height="${box[3]}" viewBox="${box.join(" ")}">`;
  return picture(p, [width, h], [x0, x1], [y0, y1], [...rows, ...columns, clip, ...inside(sx, sy), "</svg>"]);
}

function lines(p, width, lim) {
  const curve = (ys, sx, sy) => path(ys.map((v, j) => [sx(p.x[j]), sy(v)]));
  const alone = (ys) => (ys.filter((v) => v != null).length === 1 ? ys.findIndex((v) => v != null) : -1);
  const dot = (ys, j, i, sx, sy) => (j < 0 ? "" : mark(i, [px(sx(p.x[j])), px(sy(ys[j]))])); // a line of one point
  const one = ([i, name], sx, sy, ys = p.series[name]) =>
    line(curve(ys, sx, sy), "fx-line", i) + dot(ys, alone(ys), i, sx, sy);
  const all = (sx, sy) => own(p, lim).map((series) => one(series, sx, sy));
  return legend(own(p, lim), (i) => line("M-7,0h14", "fx-line", i)) + plot(p, width, lim, all);
}

function scatter(p, width, lim) {
  const trail = (at) => ([g, name]) => line(path(at.filter((_, j) => p.labels[j] === name)), "fx-trail", g);
  const dot = (q, j) => (q.includes(null) ? "" : mark(lim.names.indexOf(p.labels[j]), q.map(px)));
  const all = (sx, sy, at = p.xy.map(([x, y]) => [sx(x), sy(y)])) =>
    [...(p.connect ? own(p, lim).map(trail(at)) : []), ...at.map(dot)];
  return legend(own(p, lim), mark) + plot(p, width, lim, all);
}

function bars(p, width, lim) {
  const [groups, slot] = [own(p, lim), 0.8 / own(p, lim).length]; // the bars of one category fill 80 % of its place
  const bar = (sx, sy, name, i, k) => (v, j) => {
    const [a, b] = [sx(j - 0.4 + k * slot), sx(j - 0.4 + (k + 1) * slot)];
    const [y, h, tip] = [sy(Math.max(v, 0)), Math.abs(sy(v ?? 0) - sy(0)), `${name} ${p.x[j]}: ${format(v)}`];
    return rect(a, y, Math.max(1, b - a - 1), h, hue(i), tip.trim());
  };
  const all = (sx, sy) => groups.flatMap(([i, name], k) => p.series[name].map(bar(sx, sy, name, i, k)));
  const key = legend(groups, (i) => rect(-5, -5, 10, 10, hue(i)));
  return key + plot(p, width, { ...lim, x: [-0.5, p.x.length - 0.5] }, all, p.x.map(format));
}

/** Black or white, whichever has a contrast of at least 4.5 on a colour: they tie at a luminance of 0.179. */
export function inkOn(colour) {
  const [r, g, b] = colour.map((v) => (v <= 10 ? v / 3295 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

function heatmap(p, width, lim) {
  const [rows, cols, top, left] = [p.z.length, p.z[0].length, 8, margin(p, p.y)];
  const wide = Math.min((width - left - BAR) / cols, rows === cols ? 280 / rows : 80);
  const least = typeof p.y[0] === "string" ? 14 : 3; // so that a name fits beside every row
  const tall = rows === cols ? wide : Math.min(30, Math.max(280 / rows, least));
  const [right, end, gap] = [left + wide * cols, top + tall * rows, wide > 7 && tall > 7 ? 1 : 0];
  const [t, step] = [scale(lim.z, [0, 1]), (end - top) / 24];
  const unit = 10 ** Math.floor(Math.log10(Math.max(...lim.z.map(Math.abs), 1e-9)) - 2); // of the numbers in cells
  const cell = (v, i, j) => {
    const [x, y, c] = [left + j * wide, top + i * tall, rgb(t(v), p.cmap)];
    const box = rect(x, y, wide - gap, tall - gap, `rgb(${c})`, `${p.y[i]}, ${p.x[j]}: ${format(v)}`);
    const ink = `style="fill:${inkOn(c)}"`;
    const number = () => text(x + wide / 2, y + tall / 2 + 4, format(Math.round(v / unit) * unit), "middle", ink);
    return v == null ? "" : wide < 34 || tall < 15 ? box : box + number();
  };
  const shade = (_, i) => rect(right + 10, end - (i + 1) * step, 9, step + 0.6, `rgb(${rgb(i / 23, p.cmap)})`);
  const under = (j) => text(left + (j + 0.5) * wide, end + 15, format(p.x[j]));
  const beside = (i) => text(left - 6, top + (i + 0.5) * tall + 4, format(p.y[i]), "end");
  const value = (v) => text(right + 23, end - t(v) * (end - top) + 4, format(v), "start");
  const all = [
    ...p.z.flatMap((row, i) => row.map((v, j) => cell(v, i, j))),
    ...Array.from({ length: 24 }, shade),
    ...thin(p.x.map(format), (right - left) / CHAR).map(under),
    ...thin(p.y.map(() => ""), (end - top) / 9).map(beside),
    ...ticks(lim.z, Math.min(4, (end - top) / 25)).map(value),
  ];
  const key = p.zlabel ? `<div class="fx-legend">colour: ${esc(p.zlabel)}</div>` : "";
  return key + picture(p, [right + BAR, end + (p.xlabel ? 38 : 20)], [left, right], [end, top], all);
}

function figure(p) {
  const src = esc(p.svg ? `svg+xml,${encodeURIComponent(p.svg)}` : `webp;base64,${p.webp}`);
  return `<img class="fx-img" src="data:image/${src}" alt="${esc(p.alt)}" width="${p.width}" height="${p.height}">`;
}

/** The markup of one panel. */
export function draw(p, width = 480, lim = limits([p])) {
  if (p.kind === "text") return `<p class="fx-text">${esc(p.text)}</p>`;
  const inside = { heatmap, lines, scatter, bars, figure }[p.kind](p, width, lim);
  const wide = p.kind === "figure" ? "" : `style="width:${px(width)}px"`; // a long legend pushes no neighbour away
  return `<div class="fx-panel" ${wide}>${p.title ? `<div class="fx-title">${esc(p.title)}</div>` : ""}${inside}</div>`;
}

// ---- controls
let count = 0; // makes ids and the names of radio groups unique on a page
const make = (tag, cls, props = {}) => Object.assign(document.createElement(tag), { className: cls, ...props });

/** A labelled slider over the stops of a number; `change` is called with every new value. */
function slider(param, live, change) {
  const stops = live ? refine(param.values, param.kind === "int") : param.values;
  const percent = (i) => `${(100 * i) / Math.max(1, stops.length - 1)}%`;
  const [id, labelled] = [`fx-${++count}`, thin(param.values.map(format), 42)];
  const input = make("input", "fx-range", { type: "range", id, min: 0, max: stops.length - 1, step: 1 });
  input.value = stops.indexOf(param.start);
  const [shown, marks] = [make("span", "fx-value"), make("div", "fx-marks")];
  input.oninput = () => {
    shown.textContent = input.ariaValueText = format(stops[+input.value]);
    input.style.setProperty("--fx-done", percent(input.value));
    change(stops[+input.value]);
  };
  for (const [i, value] of param.values.entries()) {
    const dot = marks.appendChild(make("span", "", { textContent: labelled.includes(i) ? format(value) : "" }));
    dot.style.left = percent(stops.indexOf(value));
    dot.onclick = () => ((input.value = stops.indexOf(value)), input.oninput());
  }
  shown.ariaHidden = marks.ariaHidden = "true"; // a screen reader hears the slider's aria-valuetext
  return [[make("label", "fx-label", { htmlFor: id, textContent: param.label }), shown, input, marks], input.oninput];
}

/** A choice between words: radio buttons in a row. */
function choice(param, change) {
  const box = make("div", "fx-choice", { role: "radiogroup", ariaLabel: param.label });
  const name = `fx-${++count}`;
  for (const value of param.values) {
    const button = make("input", "", { type: "radio", name, value, checked: value === param.start });
    box.appendChild(make("label", "")).append(button, value);
  }
  box.onchange = (event) => change(event.target.value);
  return [[make("div", "fx-label", { textContent: param.label }), box], () => change(param.start)];
}

/** Whole pixels across an element: rounded up, as clientWidth may be, two columns would not fit side by side. */
const room = (element) => Math.floor(element.getBoundingClientRect().width) || 480;

/** An explorer inside `el`. `frames` are all frames, or a promise of them; `ask(values)` has the kernel compute one. */
export function mount(el, { spec, first = [], frames, ask }) {
  const [controls, view] = [make("div", "fx-controls"), make("div", "fx-view")];
  const [status, at] = [make("div", "fx-status", { role: "status" }), {}];
  const heard = make("div", "fx-heard", { ariaLive: "polite" }); // the text again, for screen readers
  let [grid, now, turn, busy] = [[], first, 0, null];
  function show(panels) {
    const wide = room(view);
    const pair = panels.filter((p) => p.kind !== "text").length > 1 && wide >= 560;
    const where = spec.params.map((p) => `${p.label} = ${format(at[p.name])}`).join(", ");
    view.innerHTML = panels.map((p, i) => {
      const peers = grid.map((frame) => frame[i]).filter((q) => q?.kind === p.kind);
      const told = { ...p, alt: `${describe(p) || spec.alt}; ${where}` };
      return draw(told, Math.min(700, pair ? (wide - 32) / 2 : wide), limits([...peers, p]));
    }).join("");
    const words = panels.filter((p) => p.kind === "text").map((p) => p.text).join(" ");
    if (heard.textContent !== words) heard.textContent = words;
    now = panels;
  }
  const say = (message, state) => ([status.textContent, el.dataset.state] = [message, state]);
  async function update() {
    const [mine, values, i] = [++turn, { ...at }, frameIndex(spec.params, at)];
    if (grid[i]) return show(grid[i]), say(ask ? "precomputed" : spec.note, "precomputed");
    say(grid.length ? "computing …" : "waiting for the kernel …", "computing");
    await new Promise((done) => setTimeout(done, 150)); // until the slider rests
    await busy; // one question at a time: the kernel never has a queue of stale ones
    if (mine !== turn || i >= 0) return;
    const done = (panels) => mine === turn && (show(panels), say("computed live", "live"));
    busy = ask(values).then(done).catch((error) => mine === turn && say(error.message, "error"));
  }
  const starts = spec.params.map((p) => {
    const change = (value) => ((at[p.name] = value), update());
    const [parts, start] = p.kind === "choice" ? choice(p, change) : slider(p, Boolean(ask), change);
    controls.appendChild(make("div", "fx-control")).append(...parts);
    return start;
  });
  el.append(make("div", "fx-head", { textContent: spec.title }), controls, view, heard, status);
  for (const input of el.querySelectorAll("input")) input.dataset.lmSuppressShortcuts = true; // else Lab takes arrows
  starts.forEach((start) => start());
  Promise.resolve(frames).then((all) => ((grid = all), update())).catch((error) => say(error.message, "error"));
  const watch = new ResizeObserver(() => show(now));
  watch.observe(controls); // as wide as the pictures, but no picture changes its size
  return () => watch.disconnect();
}

/** Drawings that the kernel changes as it likes, without controls. `drawn` tells it which of them have arrived. */
function board({ model, el }) {
  const root = el.appendChild(make("div", "fednb-explore fx-board"));
  const view = root.appendChild(make("div", "fx-view"));
  const show = () => {
    const [panels, wide] = [model.get("panels"), room(view)];
    const columns = Math.max(1, Math.min(model.get("columns"), Math.floor(wide / 260)));
    const width = Math.min(700, (wide - 32 * (columns - 1)) / columns);
    view.innerHTML = panels.map((p) => draw(p, Math.floor(width), limits([p]))).join("");
  };
  const update = () => (show(), setTimeout(() => (model.set("drawn", model.get("number")), model.save_changes())));
  model.on("change:number", update);
  const watch = new ResizeObserver(show);
  watch.observe(root); // calls show for the first time
  return () => (watch.disconnect(), model.off("change:number", update));
}

/** The live widget. A question travels as a message with a ticket, and its answer carries the same ticket. */
function explorer({ model, el }) {
  const open = new Map();
  const hear = (m) => open.get(m.ticket)?.(m.error ? Promise.reject(new Error(m.error)) : m.panels ?? m.frames);
  const ask = (values) => new Promise((answered) => {
    const ticket = Math.random();
    open.set(ticket, answered);
    model.send({ ticket, values });
  });
  model.on("msg:custom", hear);
  const root = el.appendChild(make("div", "fednb-explore"));
  const stop = mount(root, { spec: model.get("spec"), first: model.get("first"), frames: ask(null), ask });
  return () => (stop(), model.off("msg:custom", hear));
}
const render = (context) => (context.model.get("panels") ? board : explorer)(context);
export default { render };

/** What a page carries, base64 of zlib-compressed JSON, as an object. */
export async function unpack(data) {
  const packed = new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

/** Bring every explorer of a printed page to life; the first module on the page does it for all. */
export function boot(page) {
  for (const el of page.querySelectorAll(".fednb-explore[data-frames]")) {
    const start = (found) => (el.querySelector(".fx-first").remove(), mount(el, found));
    unpack(el.dataset.frames).then(start).catch((error) => el.append(`The sliders cannot start: ${error.message}`));
    delete el.dataset.frames;
  }
}
