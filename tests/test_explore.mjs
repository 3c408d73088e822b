// The pure parts of fednb/explore.js; its controls are tried in a browser. node --test tests/test_explore.mjs
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

const source = await readFile(new URL("../fednb/explore.js", import.meta.url)); // no package.json: load it as a module
const fx = await import(`data:text/javascript;base64,${source.toString("base64")}`);
const count = (markup, piece) => markup.split(piece).length - 1;

test("numbers are short and keep their meaning", () => {
  const pairs = [[0, "0"], [0.1, "0.1"], [1 / 3, "0.3333"], [12345.6, "12350"], [1e-4, "1e−4"], [-2.5, "−2.5"]];
  for (const [value, text] of [...pairs, [2.5e6, "2.5e6"], [1e6, "1e6"], [100, "100"], ["word", "word"], [null, "–"]])
    assert.equal(fx.format(value), text);
});

test("a combination is found where itertools.product put it", () => {
  const params = [{ name: "a", values: [0.1, 1, 10] }, { name: "b", values: ["x", "y"] }];
  const all = params[0].values.flatMap((a) => params[1].values.map((b) => ({ a, b })));
  assert.deepEqual(all.map((at) => fx.frameIndex(params, at)), [0, 1, 2, 3, 4, 5]);
  assert.equal(fx.frameIndex(params, { a: 0.5, b: "x" }), -1);
  assert.equal(fx.frameIndex(params, { a: 1, b: "z" }), -1);
});

test("live stops contain the grid, rise, and are fine enough", () => {
  assert.deepEqual(fx.refine([2, 4, 8], true), [2, 3, 4, 5, 6, 7, 8]);
  assert.deepEqual(fx.refine([5], true), [5]);
  assert.deepEqual(fx.refine([0.5], false), [0.5]);
  for (const grid of [[0, 0.5, 1], [0.001, 0.1, 10, 1000], [-3, 7], [1, 1.001], [0.1, 0.7, 0.9]]) {
    const stops = fx.refine(grid, false);
    assert.ok(grid.every((v) => stops.includes(v)), `${grid}`);
    assert.ok(stops.every((v, i) => !i || v > stops[i - 1]), `${stops}`);
    assert.ok(stops.length <= 110);
  }
  assert.equal(fx.refine([0, 1], false).length, 101);
  const geometric = fx.refine([0.01, 100], false); // equal steps of the logarithm
  assert.equal(geometric[50], 1);
  const large = fx.refine([0, 1e6], true);
  assert.ok(large.length <= 1001 && large.every(Number.isInteger));
});

test("labels are thinned to the room there is", () => {
  assert.deepEqual(fx.thin(["a", "b", "c"], 100), [0, 1, 2]);
  assert.deepEqual(fx.thin(Array(11).fill("10"), 10), [0, 5, 10]); // both ends, as five divides ten
  assert.deepEqual(fx.thin(Array(12).fill("10"), 20), [0, 3, 6, 9]);
  assert.deepEqual(fx.thin(["very long"], 1), [0]);
  for (const n of [2, 7, 30, 101]) assert.ok(fx.thin(Array(n).fill("1234"), 42).length * 5.5 <= 42 + 5.5);
});

test("ticks are round and inside", () => {
  assert.deepEqual(fx.ticks([0, 1]), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(fx.ticks([-0.3, 0.3], 3), [-0.2, 0, 0.2]);
  assert.deepEqual(fx.ticks([3, 3]), [3]);
  assert.deepEqual(fx.ticks([0.01, 1000], 5, true), [0.01, 0.1, 1, 10, 100, 1000]);
  assert.deepEqual(fx.ticks([1, 20], 5, true), [1, 2, 5, 10, 20]);
});

test("scales are straight or logarithmic, and know what has no place", () => {
  assert.equal(fx.scale([0, 10], [100, 200])(5), 150);
  assert.equal(fx.scale([0, 10], [200, 100])(10), 100);
  assert.ok(Math.abs(fx.scale([1, 100], [0, 2], true)(10) - 1) < 1e-12);
  assert.equal(fx.scale([1, 100], [0, 2], true)(0), null);
  assert.equal(fx.scale([0, 1], [0, 1])(null), null);
  assert.equal(fx.scale([3, 3], [0, 1])(3), 0);
});

test("colours: viridis rises in lightness, diverging is light in the middle, groups differ", () => {
  const light = ([r, g, b]) => 0.3 * r + 0.59 * g + 0.11 * b;
  const steps = Array.from({ length: 21 }, (_, i) => light(fx.rgb(i / 20)));
  assert.ok(steps.every((v, i) => !i || v > steps[i - 1]));
  assert.deepEqual(fx.rgb(0), [0x44, 0x01, 0x54]);
  assert.deepEqual(fx.rgb(7), fx.rgb(1));
  assert.deepEqual(fx.rgb(0.5, "diverging"), [0xf7, 0xf7, 0xf7]);
  assert.equal(new Set([...Array(8).keys()].map(fx.hue)).size, 8);
});

const matrix = { kind: "heatmap", z: [[0, 1, null], [2, 3, 4]], x: ["a", "b", "c"], y: [1, 2], zlabel: "share" };
const curves = { kind: "lines", x: [0, 1, 2], series: { one: [0, 1, 4], two: [1, null, 2] }, xlabel: "t", ylabel: "y" };
const points = { kind: "scatter", xy: [[0, 0], [1, 2], [3, null]], labels: ["10", "9", "9"] };
const columns = { kind: "bars", x: ["p", "q"], series: { "": [1, -2] } };

test("panels share their ranges, and what the author fixed wins", () => {
  assert.deepEqual(fx.limits([matrix, { ...matrix, z: [[9]] }]).z, [0, 9]);
  assert.deepEqual(fx.limits([{ ...matrix, zlim: [0, 1] }]).z, [0, 1]);
  assert.deepEqual(fx.limits([{ ...matrix, cmap: "diverging" }]).z, [-4, 4]);
  const { x, y } = fx.limits([curves]);
  assert.deepEqual(x, [0, 2]);
  assert.ok(y[0] < 0 && y[1] > 4 && y[1] < 4.5);
  assert.ok(fx.limits([{ ...curves, log: "y" }]).y[0] > 0);
  assert.deepEqual(fx.limits([{ ...columns, series: { "": [1, 2] } }]).y, [0, 2.08]);
  assert.deepEqual(fx.limits([points]).names, ["9", "10"]);
});

test("a line of one point is drawn as a dot", () => {
  const first = { ...curves, x: [0], series: { one: [1], two: [null] } };
  assert.equal(count(fx.draw(first, 400, fx.limits([first])), "fx-dot"), 1);
  assert.equal(count(fx.draw(curves, 400, fx.limits([curves])), "fx-dot"), 0);
});

test("a group keeps its colour when it is alone", () => {
  const alone = { ...curves, series: { two: [1, 2, 3] } };
  const markup = fx.draw(alone, 400, fx.limits([curves, alone]));
  assert.ok(markup.includes(fx.hue(1)) && !markup.includes(fx.hue(0)));
  assert.ok(markup.includes(">two<") && !markup.includes(">one<"));
});

test("drawings show their data", () => {
  assert.equal(count(fx.draw(matrix), "<rect"), 5 + 24); // five numbers, and the colour bar
  assert.ok(fx.draw(matrix).includes("<title>2, c: 4</title>"));
  const [one, two] = fx.draw(curves).match(/<path d="[^"]*" class="fx-line"/g).slice(-2);
  assert.deepEqual([count(one, "M"), count(one, "L")], [1, 2]);
  assert.deepEqual([count(two, "M"), count(two, "L")], [2, 0]); // the hole lifts the pen
  assert.equal(count(fx.draw(points), 'class="fx-dot"'), 2 + 2); // two points with a place, two in the legend
  assert.ok(fx.draw({ ...points, connect: true }).includes("fx-trail"));
  const height = (rect) => Number(/height="([\d.]+)"/.exec(rect)[1]);
  const [up, down] = fx.draw(columns).match(/<rect[^>]*>/g).map(height);
  assert.ok(Math.abs(down / up - 2) < 0.01);
  assert.equal(fx.draw({ kind: "text", text: "a < b" }), '<p class="fx-text">a &#60; b</p>');
});

test("equal axes give one unit the same length in both directions", () => {
  const square = { kind: "scatter", xy: [[0, 0], [1, 0], [0, 1]], labels: ["", "", ""], equal: true };
  const at = fx.draw(square, 600).match(/translate\(([-\d.,]+)\)/g).map((t) => t.match(/[-\d.]+/g).map(Number));
  assert.ok(Math.abs(at[1][0] - at[0][0] - (at[0][1] - at[2][1])) < 0.3);
});

test("a log axis leaves out what is not positive, and x of whole numbers has no halves", () => {
  const log = fx.draw({ ...curves, series: { one: [0, 1, 100] }, log: "y" });
  assert.ok(!/NaN|Infinity/.test(log) && log.includes(">10<"));
  assert.ok(!fx.draw(curves, 600).includes(">0.5<") && fx.draw({ ...curves, x: [0, 0.3, 2] }, 600).includes(">0.5<"));
});

test("drawings fit their width, say what they show, carry no id, and escape what they are given", () => {
  for (const panel of [matrix, curves, points, columns])
    for (const width of [280, 700]) {
      const evil = { ...panel, title: '<b title="x">&', xlabel: "a<b" };
      const markup = fx.draw(evil, width);
      assert.ok(Number(/class="fx-svg"[^>]* width="([\d.]+)"/.exec(markup)[1]) <= width);
      assert.match(markup, /role="img" aria-label="[^"]+"/);
      assert.ok(!/ id="|NaN|undefined|<b|a<b/.test(markup), markup);
    }
  assert.equal(fx.describe(curves), "Line chart of one, two over t and y");
  assert.equal(fx.describe({ ...curves, alt: "mine" }), "mine");
});

test("figures are pictures with an alternative text", () => {
  const svg = fx.draw({ kind: "figure", svg: "<svg id='a'>#%\"</svg>", alt: 'it says "x"', width: 10, height: 5 });
  assert.ok(svg.includes('alt="it says &#34;x&#34;"') && svg.includes("%23%25%22") && !svg.includes("<svg"));
  assert.ok(fx.draw({ kind: "figure", webp: "AAAA", alt: "" }).includes('src="data:image/webp;base64,AAAA"'));
});

test("a page's data is unpacked", async () => {
  const data = { spec: { title: "α" }, frames: [[{ kind: "text", text: "1" }]] };
  assert.deepEqual(await fx.unpack(deflateSync(JSON.stringify(data)).toString("base64")), data);
  await assert.rejects(fx.unpack("AAAA"));
});

test("the module can stand inside a page", () => {
  assert.ok(!/<\/script|<!--|https?:/i.test(source.toString()));
});

test("numbers in cells can be read on every colour", () => {
  const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  for (const map of ["viridis", "diverging"])
    for (let t = 0; t <= 1; t += 0.005) {
      const colour = fx.rgb(t, map);
      const ink = fx.inkOn(colour) === "#fff" ? 1 : 0;
      const [a, b] = [light(colour), ink].sort((x, y) => y - x);
      assert.ok((a + 0.05) / (b + 0.05) >= 4.5, `${map} at ${t}`);
    }
});
