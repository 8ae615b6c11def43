// What all pages share: elements, numbers, colours, sortable tables.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set([
  "svg", "g", "path", "circle", "rect", "line", "text", "title", "polygon", "marker",
]);

/** An element with attributes, listeners (onclick: f) and children; texts are never markup. */
function el(tag, attributes = {}, ...children) {
  const node = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  const shown = (child) => child !== null && child !== undefined && child !== false;
  node.append(...children.flat(Infinity).filter(shown));
  return node;
}

const byId = (id) => document.getElementById(id);

const fill = (id, ...children) =>
  byId(id).replaceChildren(...children.flat(Infinity).filter(Boolean));

const readData = () => JSON.parse(byId("data").textContent);

const ARRAYS = { f4: Float32Array, u2: Uint16Array };

/** The numbers of `packed` in document.py. */
function unpack({ type, base64 }) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new ARRAYS[type](bytes.buffer);
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (n) => Array.from({ length: n }, (_, i) => i);

// The ends of a scale that 0 is on; values that are not numbers do not move them.
const largest = (values) =>
  values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0);
const lowest = (values) => values.reduce((low, value) => Math.min(low, value || 0), 0);
const highest = (values) => values.reduce((high, value) => Math.max(high, value || 0), 0);

/** Numbers before texts; null, undefined and NaN before all. */
function compare(one, other) {
  const [a, b] = [one, other].map((value) => (value ?? NaN) !== value ? -Infinity : value);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Where the values stand, from the highest to the lowest. */
const descending = (values) =>
  range(values.length).sort((i, j) => compare(values[j], values[i]));

/** A name or number as text of `most` characters: of a longer one its beginning and its end. */
function shortened(name, most) {
  const letters = [...String(name)];
  const half = Math.floor(most / 2);
  return letters.length <= most ? letters.join("")
    : `${letters.slice(0, half).join("")}…${letters.slice(half + 1 - most).join("")}`;
}

const plural = (count, one, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** As many decimals as three digits of the largest value need. */
function decimalsFor(values) {
  const most = largest(values);
  return most ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(most)))) : 2;
}

function number(value, decimals = 3) {
  if (!Number.isFinite(value)) return "–";
  const text = value.toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

const percent = (value, decimals = 1) =>
  Number.isFinite(value) ? `${number(value, decimals)}\u00a0%` : "–";

/** Per cent of a sum; none where the sum is not positive. */
const shareOf = (value, total) => (total > 0 ? (100 * value) / total : null);

// Nothing is nearly white; gains run through green to dark blue, losses through orange to brown.
// Lightness falls evenly, so that the order survives without colour vision and in print.
const GAIN = ["#f4f8f1", "#d3ecd4", "#a0d6c9", "#5fb8c6", "#2f8dbb", "#14609f", "#0b3470"];
const LOSS = ["#fbf5ee", "#fddcb3", "#f8ad62", "#e6762a", "#b9480e", "#7a2c08"];

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

const SHADES = [LOSS, GAIN].map((stops) => range(256).map((step) => {
  const at = (step / 255) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const [from, to] = [channels(stops[low]), channels(stops[low + 1])];
  const [red, green, blue] = from.map((part, k) => Math.round(part + (at - low) * (to[k] - part)));
  const light = 0.299 * red + 0.587 * green + 0.114 * blue > 115;
  return { css: `rgb(${red},${green},${blue})`, ink: light ? "#1c2733" : "#ffffff" };
}));

const NONE = { css: "#eceff1", ink: "#1c2733" };

/** What a colour of style.css is now: it differs on dark screens. */
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

/** The colour of a value on a scale from -most to most, and the ink that can be read on it. */
function colour(value, most) {
  if (!Number.isFinite(value)) return NONE;
  const part = most ? Math.min(1, Math.abs(value) / most) : 0;
  return SHADES[value < 0 ? 0 : 1][Math.round(255 * part)];
}

/** Draws anew, and gives the focus to what stands where the focused element stood. */
function keepFocus(draw) {
  const { activeElement: before } = document;
  const place = before?.closest("[data-place]");
  draw();
  if (!place || before.isConnected) return;
  const { key } = before.dataset;
  const after = [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  (after ?? place).focus();
}

/** A legend of the colours between two values, with 0 where it lies. */
function colourBar(low, high, most, text) {
  const steps = 60;
  const cells = range(steps).map((k) => {
    const value = low + ((high - low) * (k + 0.5)) / steps;
    return el("rect", { x: k * 3, y: 0, width: 3.2, height: 10, fill: colour(value, most).css });
  });
  return el(
    "span",
    { class: "colour-bar" },
    el("span", { class: "num" }, text(low)),
    el("svg", { width: 180, height: 10, viewBox: "0 0 180 10", "aria-hidden": "true" }, cells),
    el("span", { class: "num" }, text(high)),
  );
}

/**
 * Calls `change(index)` for arrow keys, Home and End over `count` things in rows of `columns`.
 * Beyond the first and the last there is nowhere to go.
 */
function onArrows(event, at, count, columns, change) {
  const steps = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + columns,
    ArrowUp: at - columns,
    Home: 0,
    End: count - 1,
  };
  if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const next = steps[event.key];
  if (next >= 0 && next < count) change(next);
}

const MAX_ROWS = 300;

/**
 * A table whose columns sort; a long one shows its first rows and has a field that finds others.
 *
 * Columns: {name, value(row), cell(row), text, descending}; rows may be chosen with onrow(row).
 * The element's draw() shows values that have changed.
 */
function sortedTable(rows, columns, { by = 0, caption, onrow, rowAttributes = () => ({}) }) {
  const body = el("tbody");
  const more = el("p", { class: "quiet" });
  const sought = el("input", { type: "search", oninput: () => draw() });
  const find = el("p", { class: "find quiet" }, el("label", {}, "Find ", sought));
  const isSought = (row) => el("td", {}, columns[0].cell(row)).textContent.toLowerCase()
    .includes(sought.value.toLowerCase());
  let column = by;
  let down = Boolean(columns[by].descending);
  const heads = columns.map((one, k) => {
    const press = () => {
      down = k === column ? !down : Boolean(one.descending);
      column = k;
      draw();
    };
    const button = el("button", { type: "button", onclick: press }, one.name);
    return el("th", { scope: "col", class: one.text ? null : "num" }, button);
  });
  function draw() {
    heads.forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const { value } = columns[column];
    const found = sought.value ? rows.filter(isSought) : [...rows];
    const sorted = found.sort((a, b) => (down ? -1 : 1) * compare(value(a), value(b)));
    body.replaceChildren(
      ...sorted.slice(0, MAX_ROWS).map((row) => {
        const cells = columns.map((one, k) =>
          el(k ? "td" : "th", { class: one.text ? null : "num", scope: k ? null : "row" },
            one.cell(row)),
        );
        const tr = el("tr", rowAttributes(row), cells);
        if (onrow) tr.addEventListener("click", () => onrow(row));
        return tr;
      }),
    );
    find.hidden = rows.length <= MAX_ROWS;
    more.textContent = sorted.length > MAX_ROWS
      ? `The first ${MAX_ROWS} of ${sorted.length.toLocaleString("en")} in this order.` : "";
  }
  draw();
  const head = el("thead", {}, el("tr", {}, heads));
  const table = el("table", {}, el("caption", { class: "hidden" }, caption), head, body);
  const region = { class: "scroll", tabindex: 0, role: "region",
    "aria-label": `table: ${caption}` };
  const lines = () => [columns.map(({ name }) => name), ...rows.map((row) => columns.map((one) =>
    one.text ? el("td", {}, one.cell(row)).textContent : one.value(row)))];
  const save = saved("Save as CSV", () => download(caption, ".csv", csv(lines()), "text/csv"));
  return Object.assign(el("div", {}, find, el("div", region, table, more), save), { draw });
}

/** The head of a column of bars, for those who hear the page. */
const drawnHead = () =>
  el("th", { scope: "col" }, el("span", { class: "hidden" }, "as a bar"));

/** A table of two columns. */
const pairs = (rows, caption) =>
  el("table", { class: "pairs" }, el("caption", { class: "hidden" }, caption),
    el("tbody", {}, rows.map(([name, value]) =>
      el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))));
