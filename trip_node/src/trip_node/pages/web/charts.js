// Small charts over rounds, as SVG.

const CHART = { width: 560, left: 46, right: 10, top: 8 };

/** Round numbers along an axis. */
function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - first + 1).map((k) => (first + k) * step);
}

const roundTicks = (rounds, first = 1) =>
  [...new Set([first, ...ticks(first, rounds, 8).filter(Number.isInteger)])];

/** Where rounds stand: in the middle of their columns. */
const roundScale = (rounds, { wide = CHART.width, first = 1 } = {}) => {
  const width = (wide - CHART.left - CHART.right) / (rounds - first + 1);
  return { width, x: (round) => CHART.left + (round - first + 0.5) * width };
};

const curve = (points) =>
  points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

/**
 * Mean accuracy with its deviation, the extremes, and the chosen client's.
 *
 * Round 0 is the model that all start from, which older runs do not tell: `initial` is null.
 */
function accuracyChart({ initial, mean, std, min, max, own, now, named }) {
  const height = 320;
  const rounds = mean.length;
  const first = initial === null ? 1 : 0;
  const since = (values, start = initial) => (first ? [...values] : [start, ...values]);
  const [means, least, most] = [mean, min, max].map((values) => since(values));
  const deviation = since(std, 0);
  const { x } = roundScale(rounds, { first });
  const [bottom, top] = [Math.min(...least), Math.max(...most)];
  const step = top - bottom > 0.5 ? 0.2 : 0.05;
  const low = step * Math.floor(bottom / step);
  const high = Math.min(1, step * Math.ceil(top / step + 0.01));
  const base = height - 34;
  const y = (value) => base - ((value - low) / (high - low || 1)) * (base - CHART.top);
  const line = (values) => curve(values.map((value, t) => [x(t + first), y(value)]));
  const edge = (sign) => means.map((value, t) =>
    [x(t + first), y(Math.max(0, Math.min(1, value + sign * deviation[t])))]);
  const dots = rounds <= 30
    ? means.map((value, t) =>
        el("circle", { class: "dot", cx: x(t + first), cy: y(value), r: 2.6 }))
    : [];
  const label = `Accuracy over ${plural(rounds, "round")}: mean ${number(means[0])} ` +
    `${first ? "after" : "before"} round 1, ${number(means.at(-1))} after the last.`;
  return el("svg", { class: "chart", viewBox: `0 0 ${CHART.width} ${height}`, role: "img",
    "aria-label": label },
    ticks(low, high, 5).map((tick) => [
      el("line", { class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: y(tick),
        y2: y(tick) }),
      el("text", { x: CHART.left - 8, y: y(tick) + 4, "text-anchor": "end" }, number(tick, 2)),
    ]),
    roundAxis(rounds, base, { first }),
    el("path", { class: "band", d: `${curve([...edge(1), ...edge(-1).reverse()])}Z` }),
    el("path", { class: "extreme", d: line(least) }),
    el("path", { class: "extreme", d: line(most) }),
    el("path", { class: "mean", d: line(means) }),
    dots,
    own && el("path", { class: "own", d: line(since(own)) }, el("title", {}, named)),
    el("line", { class: "now", x1: x(now), x2: x(now), y1: CHART.top, y2: base }));
}

function roundAxis(rounds, base, { wide = CHART.width, first = 1 } = {}) {
  const { x } = roundScale(rounds, { wide, first });
  return el("g", {},
    el("line", { class: "axis", x1: CHART.left, x2: wide - CHART.right, y1: base, y2: base }),
    roundTicks(rounds, first).map((tick) =>
      el("text", { x: x(tick), y: base + 15, "text-anchor": "middle" }, String(tick))),
    el("text", { x: wide - CHART.right, y: base + 30, "text-anchor": "end" }, "round"));
}

/** Bars over rounds; those after round `now` are pale. */
function roundBars(values, { now, label, decimals, all = CHART.width }) {
  const rounds = values.length;
  const height = 104;
  const { x, width } = roundScale(rounds, { wide: all });
  const high = highest(values);
  const low = lowest(values);
  const base = height - 34;
  const y = (value) => base - ((value - low) / (high - low || 1)) * (base - CHART.top);
  const wide = Math.max(0.8, Math.min(26, width * 0.76));
  const bars = values.map((value, t) => {
    const [from, to] = [y(Math.max(0, value)), y(Math.min(0, value))];
    return value ? el("rect", {
      class: `${value < 0 ? "loss" : "gain"}${t + 1 > now ? " later" : ""}`,
      x: x(t + 1) - wide / 2, y: from, width: wide, height: Math.max(0.8, to - from),
    }, el("title", {}, `round ${t + 1}: ${number(value, decimals)}`)) : null;
  });
  const edges = [0, high, low].filter((edge) => !edge || Math.abs(edge) > 0.25 * (high - low));
  return el("svg", { class: "chart", viewBox: `0 0 ${all} ${height}`, role: "img",
    "aria-label": label },
    [...new Set(edges)].map((edge) =>
      el("text", { x: CHART.left - 8, y: y(edge) + 4, "text-anchor": "end" },
        edge ? number(edge, decimals) : "0")),
    low < 0 && el("line", { class: "grid", x1: CHART.left, x2: all - CHART.right, y1: y(0),
      y2: y(0) }),
    roundAxis(rounds, base, { wide: all }),
    bars);
}

/** A bar in a table's cell. */
function cellBar(value, most) {
  const length = Math.min(78, (78 * Math.abs(value)) / most || 0);
  return el("svg", { class: "chart", viewBox: "0 0 78 9", "aria-hidden": "true" },
    el("rect", { class: value < 0 ? "loss" : "gain", width: length, height: 9, rx: 1 }));
}
