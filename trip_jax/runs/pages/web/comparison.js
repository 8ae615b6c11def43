// Runs side by side.

// Okabe and Ito's colours, and shapes that tell runs apart without them.
const MARKS = [
  ["#0072b2", "M-4.2 0A4.2 4.2 0 1 0 4.2 0A4.2 4.2 0 1 0 -4.2 0Z"],
  ["#d55e00", "M-3.8-3.8H3.8V3.8H-3.8Z"],
  ["#009e73", "M0-4.8L4.6 3.6H-4.6Z"],
  ["#cc79a7", "M0-5.2L5.2 0L0 5.2L-5.2 0Z"],
  ["#e69f00", "M0 4.8L4.6-3.6H-4.6Z"],
  ["#56b4e9", "M-1.5-4.6H1.5V-1.5H4.6V1.5H1.5V4.6H-1.5V1.5H-4.6V-1.5H-1.5Z"],
  ["var(--ink)", "M-4-2.4L-2.4-4L0-1.6L2.4-4L4-2.4L1.6 0L4 2.4L2.4 4L0 1.6L-2.4 4L-4 2.4L-1.6 0Z"],
];
const MANY = ["var(--soft)", "M-2.4 0A2.4 2.4 0 1 0 2.4 0A2.4 2.4 0 1 0 -2.4 0Z"];

class ComparisonPage {
  constructor(data) {
    this.data = data;
    this.scores = data.runs.map((run) => unpack(run.score));
    this.totals = this.scores.map(sum);
    this.liars = data.runs.map((run) => new Set(run.liars));
    this.n = data.n;
    this.owns = data.runs.map((run) => new Map(run.places.map((place, i) => [place, i])));
    this.shares = Boolean(data.notice);
    this.series = data.series;
    byId("title").textContent = data.title;
    byId("finding").textContent = data.finding;
    byId("scores-lead").textContent = data.drawn_anew;
    byId("notice").textContent = data.notice;
    byId("notice").hidden = !data.notice;
    fill("meaning", data.meaning.map((text) => el("p", {}, text)));
    this.showGroups();
    this.showRuns();
    this.buildControls();
    savable("plot", "scores");
    this.showScores();
    this.showCorrelation();
  }

  mark(s) {
    return this.series.length <= MARKS.length ? MARKS[s] : MANY;
  }

  /** The name of client i, or its number. */
  client(i) {
    return this.data.names?.[i] ?? i;
  }

  /** Client i's score in run k, or its share; null where there is none. */
  value(k, i) {
    const score = this.scores[k][this.owns[k].get(i)];
    const value = this.shares ? shareOf(score, this.totals[k]) : score;
    return Number.isFinite(value) ? value : null;
  }

  /** Mean over a series' runs of what client i has in them; null where none has it. */
  mean(series, i) {
    return meanOf(series.runs.map((k) => this.value(k, i)));
  }

  showGroups() {
    const { groups, runs } = this.data;
    const told = (k) => runs[k].truth?.distance ?? null;
    const truths = runs.some((_, k) => told(k) !== null);
    byId("groups-section").hidden = groups.length < 2 || (groups.length === runs.length && !truths);
    byId("groups-lead").textContent = "Runs that differ in the seed alone are one line. ± is the " +
      "standard deviation between them." + (truths ? " The distance is the mean cosine distance " +
        "to the truth, smaller is better; that of equal parts for all clients stands beside it." : "");
    const column = (name, of, decimals, scale = 1) => {
      const all = (g) => groups[g].runs.map(of).filter((one) => one !== null);
      return { name, descending: true, value: (g) => meanOf(all(g)), cell: (g) =>
        withSpread(all(g).map((one) => scale * one), decimals) };
    };
    const columns = [
      { name: "Setting", text: true, value: (g) => sortable(groups[g].label),
        cell: (g) => groups[g].label },
      { name: "Runs", value: (g) => groups[g].runs.length, cell: (g) => groups[g].runs.length },
      column("Final accuracy, %", (k) => runs[k].accuracy.mean, 1, 100),
      ...(truths ? [column("Distance", told, 4),
        column("Equal parts", (k) => runs[k].truth?.distance_of_equal_parts ?? null, 4),
        column("Rank correlation with the truth", (k) => runs[k].truth?.rank_correlation ?? null, 2)]
        : []),
    ];
    fill("groups", sortedTable(range(groups.length), columns, { caption: "settings" }));
  }

  showRuns() {
    const { data } = this;
    const names = Object.keys(data.settings);
    const rows = range(data.runs.length);
    const best = this.scores.map((score) => descending(score)[0]);
    const columns = [
      { name: "Run", text: true, value: (k) => k, cell: (k) => `${k + 1}` },
      { name: "Directory", text: true, value: (k) => data.runs[k].folder,
        cell: (k) => el("span", { title: data.runs[k].title }, data.runs[k].folder) },
      ...names.map((name) => ({ name, text: true, value: (k) => sortable(data.settings[name][k]),
        cell: (k) => data.settings[name][k] })),
      { name: "Final accuracy", descending: true, value: (k) => data.runs[k].accuracy.mean,
        cell: (k) => `${percent(100 * data.runs[k].accuracy.mean)} ± ` +
          number(100 * data.runs[k].accuracy.std, 1) },
      { name: "Highest score", descending: true, value: (k) => this.scores[k][best[k]],
        cell: (k) =>
          `client ${this.client(data.runs[k].places[best[k]])}, ${percent(shareOf(this.scores[k][best[k]], this.totals[k]))}` },
    ];
    fill("runs", sortedTable(rows, columns, { caption: "runs" }));
  }

  buildControls() {
    const choice = (shares, name) => el("label", {}, el("input", { type: "radio", name: "unit",
      checked: shares === this.shares, value: shares ? "share" : "score", onchange: () => {
        this.shares = shares;
        this.showScores();
      } }), name);
    fill("controls", el("fieldset", {}, el("legend", { class: "hidden" }, "what is shown"),
      choice(false, this.data.unit ? `score (${this.data.unit})` : "score"),
      choice(true, "share of all scores, %")));
  }

  showScores() {
    const { n, data } = this;
    const { series } = this;
    const same = data.same_clients;
    const alike = same && data.groups.length === 1; // a mean over others would mean little
    const values = (i) => series.map((one) => this.mean(one, i)).filter((value) => value !== null);
    const means = range(n).map((i) => meanOf(values(i)));
    const mean = (i) => means[i];
    const order = same ? descending(means) : range(n);
    const precise = decimalsFor(order.flatMap(values));
    const decimals = this.shares ? Math.max(1, precise - 1) : precise;
    fill("plot", this.plot(order, values, alike ? mean : () => null, decimals));
    const meanMark = el("span", {}, el("svg", { width: 16, height: 8, viewBox: "0 0 16 8",
      "aria-hidden": "true" }, el("rect", { y: 3, width: 16, height: 2, fill: "var(--ink)" })), "mean");
    fill("plot-legend", series.length <= MARKS.length
      ? series.map((one, s) => el("span", {}, el("svg", { width: 12, height: 12,
          viewBox: "-6 -6 12 12", "aria-hidden": "true" },
          el("path", { d: this.mark(s)[1], fill: this.mark(s)[0] })), one.label))
      : `${series.length} of them`, alike ? meanMark : null);
    const over = (i) => spreadOf(values(i));
    const columns = [
      { name: "Client", text: true, value: (i) => i, cell: (i) => `${this.client(i)}` },
      ...(alike ? [
        { name: "Mean", descending: true, value: mean, cell: (i) => number(mean(i), decimals) },
        { name: "s.d.", descending: true, value: over, cell: (i) => number(over(i), decimals) },
      ] : []),
      ...series.map((one) => ({ name: one.label, descending: true,
        value: (i) => this.mean(one, i),
        cell: (i) => [one.runs.some((k) => this.liars[k].has(i))
          ? el("span", { class: "alarm" }, "liar ") : null,
          withSpread(one.runs.map((k) => this.value(k, i)), decimals)] })),
    ];
    fill("scores", sortedTable(range(n), columns,
      { by: same ? 1 : 0, caption: "scores of clients" }));
  }

  plot(order, values, mean, decimals) {
    const { data } = this;
    const [width, height, left, top] = [1100, 300, 54, 10];
    const base = height - 36;
    const all = order.flatMap(values);
    const [low, high] = [lowest(all), highest(all)];
    const step = (width - left - 8) / order.length;
    const x = (at) => left + (at + 0.5) * step;
    const y = (value) => base - ((value - low) / (high - low || 1)) * (base - top);
    const many = this.series.length;
    const apart = many <= MARKS.length ? Math.min(9, (0.7 * step) / many) : 0;
    const small = order.length > 40 ? 0.7 : 1;
    const marks = order.flatMap((i, at) => this.series.map((one, s) => {
      const value = this.mean(one, i);
      const [fill, d] = this.mark(s);
      return value === null ? null : el("path", { d, fill, "fill-opacity": 0.85,
        transform: `translate(${(x(at) + (s - (many - 1) / 2) * apart).toFixed(1)} ` +
          `${y(value).toFixed(1)}) scale(${small})` },
        el("title", {}, `client ${this.client(i)}, ${one.label}: ${number(value, decimals)}`));
    }));
    const means = order.map((i, at) => mean(i) !== null && el("rect", { x: x(at) - step * 0.34,
      y: y(mean(i)) - 0.8, width: step * 0.68, height: 1.6, fill: "var(--ink)" }));
    const letters = data.names ? 0 : String(order.length - 1).length;
    const each = Math.ceil(order.length / Math.min(50, (width - left) / (7 * letters + 6)));
    const levels = ticks(low, high, 5);
    const digits = Math.max(0, -Math.floor(Math.log10(levels[1] - levels[0]) + 1e-9)) || 0;
    const ordered = data.same_clients ? "the highest mean first" : "by number";
    return el("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `scores by client, ${ordered}; the table below holds the numbers` },
      levels.map((tick) => [
        el("line", { class: tick ? "grid" : "axis", x1: left, x2: width - 8, y1: y(tick),
          y2: y(tick) }),
        el("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" },
          number(tick, digits)),
      ]),
      means, marks,
      order.map((i, at) => at % each ? null
        : el("text", { x: x(at), y: height - 18, "text-anchor": "middle" },
          data.names ? shortened(data.names[i], Math.max(3, Math.floor((step * each) / 7)))
            : String(i))),
      el("text", { x: width - 8, y: height - 2, "text-anchor": "end" },
        `client, ${ordered}`));
  }

  showCorrelation() {
    const { correlation } = this.data;
    const pairs = correlation.flatMap((row, a) =>
      row.filter((value, b) => b > a && value !== null));
    byId("correlation-lead").textContent = pairs.length
      ? "Spearman's rank correlation between the scores of runs of the same clients: 1 where they " +
        "rank clients alike, 0 where one ranking tells nothing of the other. Mean of " +
        `${plural(pairs.length, "pair")}: ${number(sum(pairs) / pairs.length, 2)}.`
      : "There is no rank correlation: no two runs are of the same clients, or all scores are equal.";
    byId("correlation").hidden = !pairs.length;
    const cell = (value) => {
      const shade = colour(value, 1);
      const td = el("td", { class: "num" }, number(value, 2));
      Object.assign(td.style, { background: shade.css, color: shade.ink });
      return td;
    };
    const heads = correlation.map((_, k) =>
      el("th", { class: "num", scope: "col" }, `Run ${k + 1}`));
    fill("correlation", el("div", { class: "scroll", tabindex: 0, role: "region",
      "aria-label": "table: rank correlations" }, el("table", { class: "correlation" },
      el("caption", { class: "hidden" }, "rank correlations between runs"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" },
        el("span", { class: "hidden" }, "Run")), heads)),
      el("tbody", {}, correlation.map((row, k) =>
        el("tr", {}, el("th", { scope: "row" }, `Run ${k + 1}`), row.map(cell)))))));
  }
}

const meanOf = (values) => {
  const those = values.filter((value) => value !== null);
  return those.length ? sum(those) / those.length : null;
};

/** The standard deviation; null of fewer than two. */
const spreadOf = (values) => {
  const mean = meanOf(values);
  return values.length < 2 ? null
    : Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / (values.length - 1));
};

/** The mean of values and their standard deviation, where there are several. */
const withSpread = (values, decimals) => {
  const those = values.filter((value) => value !== null);
  const mean = number(meanOf(those), decimals);
  return those.length < 2 ? mean : `${mean} ± ${number(spreadOf(those), decimals)}`;
};

/** Numbers sort as such. */
const sortable = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

const page = new ComparisonPage(readData());
