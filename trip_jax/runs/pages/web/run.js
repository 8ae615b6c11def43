// The report of a run: one state (round, client, contributor), and what shows it.

class Page {
  constructor(data) {
    Object.assign(this, { data, n: data.n, rounds: data.rounds, liars: new Set(data.liars) });
    this.traced = data.detail === "rounds" ? new Propagation(data) : null;
    this.phi = this.traced ?? (data.detail === "last" ? new LastRound(data) : null);
    this.lastScore = [...unpack(data.score)];
    this.scoreError = data.score_error && unpack(data.score_error); // of the last round
    this.trueScore = data.true_score && unpack(data.true_score);
    this.scored = []; // by round
    this.level = unpack(data.level);
    this.curves = Object.fromEntries(
      Object.entries(data.accuracy).map(([name, values]) => [name, unpack(values)]));
    this.flags = roundsOf(data.flagged.single, this.rounds);
    this.filters = roundsOf(data.filtered.single, this.rounds);
    this.flagCount = data.flagged.by_client;
    this.filteredCount = data.filtered.by_client;
    this.state = { t: this.rounds, client: null, contributor: null, whole: false, by: "number",
      shares: false, row: false };
    this.scale();
    this.head();
    this.build();
    addEventListener("hashchange", () => this.recall());
    this.recall();
  }

  /** What the address says: the round, the client chosen and the contributor traced. */
  recall() {
    const said = new URLSearchParams(location.hash.slice(1));
    const client = (name) => {
      const i = range(this.n).findIndex((one) => said.get(name) === String(this.numberOf(one)));
      return i < 0 || !this.phi ? null : i;
    };
    const t = Math.round(Number(said.get("round"))) || this.rounds;
    const chosen = client("client");
    Object.assign(this.state, { t: Math.max(1, Math.min(this.rounds, t)), client: chosen,
      contributor: chosen === null || !this.traced ? null : client("contributor") });
    this.show();
  }

  /** Keeps in the address what is shown, so that it can be sent and found again. */
  remember() {
    const { t, client, contributor } = this.state;
    const said = new URLSearchParams();
    if (t < this.rounds) said.set("round", t);
    if (client !== null) said.set("client", this.numberOf(client));
    if (client !== null && contributor !== null) said.set("contributor", this.numberOf(contributor));
    const hash = String(said) && `#${said}`;
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
  }

  /** The number of the i-th client listed. */
  numberOf(i) {
    return this.data.clients?.[i] ?? i;
  }

  /** The name of the i-th client listed, or its number. */
  client(i) {
    return this.data.names?.[i] ?? this.numberOf(i);
  }

  /** The sum of all clients' scores, listed or not. */
  total(score) {
    return this.data.clients ? this.data.total : sum(score);
  }

  /** Per cent of a sum, as text. */
  share(value, total) {
    return percent(shareOf(value, total), this.n > 100 ? 2 : 1);
  }

  row(t, i) {
    return this.phi.row(t, i);
  }

  /** Mean contributions to all models after round t. */
  scores(t) {
    if (!this.traced) return this.lastScore;
    if (!this.scored[t]) {
      this.scored[t] = new Array(this.n).fill(0);
      this.traced.phi(t).forEach((value, at) => (this.scored[t][at % this.n] += value / this.n));
    }
    return this.scored[t];
  }

  /** The ends of colours and widths, the same in all rounds. */
  scale() {
    const rounds = this.traced ? range(this.rounds).map((t) => t + 1) : [this.rounds];
    const scores = rounds.flatMap((t) => this.scores(t));
    this.mostScore = largest(scores);
    this.lowestScore = lowest(scores);
    this.credits = this.creditsOf(null);
  }

  /** What passes along any edge in any round; of one contributor alone unless it is null. */
  creditsOf(contributor) {
    return this.traced ? range(this.rounds).flatMap((t) =>
      this.traced.flows(t + 1, contributor).map((flow) => flow.credit)) : [];
  }

  head() {
    const { data } = this;
    byId("title").textContent = data.title;
    byId("finding").textContent = data.finding;
    const end = data.status === "finished" ? "" : `This run ${said(data.status)}. ${data.message}`;
    const notice = [end, data.reason].filter(Boolean).join(" ");
    byId("notice").hidden = !notice;
    byId("notice").textContent = notice;
    const last = (name) => this.curves[name][this.rounds - 1];
    const score = this.scores(this.rounds);
    const [best] = descending(score);
    const total = this.total(score);
    const tiles = [
      [`${percent(100 * last("mean"))}`,
        `final accuracy, ± ${number(100 * last("std"), 1)} over clients`],
      [data.all.toLocaleString("en"), `client${data.all === 1 ? "" : "s"}` +
        (data.all_liars ? `, ${plural(data.all_liars, "liar")} among them` : "")],
      [this.rounds.toLocaleString("en"), this.rounds === 1 ? "round" : "rounds"],
      [number(score[best], decimalsFor(score)),
        Number.isFinite(score[best]) ? `highest score: client ${this.client(best)}` +
          (total > 0 ? `, ${this.share(score[best], total)} of all` : "")
          : "no score is a number"],
    ];
    fill("tiles", tiles.map(([value, label]) =>
      el("div", { class: "tile" }, el("b", {}, value), el("span", {}, label))));
    for (const id of ["facts", "usual"]) {
      fill(id, data[id].map(([label, value]) =>
        el("div", {}, el("dt", {}, label), el("dd", {}, value))));
    }
    const [contribution, scale, ...others] = data.meaning;
    fill("meaning", [contribution, ...others].map((text) => el("p", {}, text)));
    byId("scale").textContent = scale;
  }

  build() {
    const { data } = this;
    const slider = byId("round");
    Object.assign(slider, { max: this.rounds, value: this.rounds });
    slider.addEventListener("input", () => this.goTo(Number(slider.value)));
    byId("earlier").addEventListener("click", () => this.goTo(this.state.t - 1));
    byId("later").addEventListener("click", () => this.goTo(this.state.t + 1));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.choose(null));
    if (this.n === 1) {
      byId("graph-note").textContent = "Nothing flows: there is one client.";
    } else if (data.positions) {
      const arcs = data.graphs.slice(0, 1).map(arcsOf).flatMap(({ client, member }) =>
        Array.from(client, (to, a) => ({ from: member[a], to, credit: 0 })));
      const others = arcs.filter(({ from, to }) => from !== to);
      this.graph = new Graph(data, others,
        (i) => this.choose(i === this.state.client ? null : i));
      fill("graph", this.graph.svg);
    } else {
      byId("graph-note").textContent = `A graph of ${plural(data.all, "client")} is not drawn.`;
    }
    byId("matrix-section").hidden = !this.phi;
    if (this.phi) this.buildMatrix();
    savable("accuracy", "accuracy");
    if (this.graph) savable("graph", "graph");
    if (this.phi) savable("matrix", "contributions");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    const columns = clientColumns(this);
    this.table = sortedTable(range(this.n), columns, { by: 1,
      caption: data.clients ? "clients listed" : "all clients",
      onrow: (i) => this.choose(i), rowAttributes: (i) => ({ "data-client": i,
        class: i === this.state.client ? "chosen" : null }) });
    fill("clients", this.table);
    fill("costs", data.costs.length ? pairs(data.costs, "costs")
      : el("p", { class: "quiet" }, "The run kept no costs."));
    fill("settings", data.settings.length
      ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table: settings" },
          pairs(data.settings, "settings"))
      : el("p", { class: "quiet" },
          "The run kept no settings: it was not started from a configuration."));
  }

  buildMatrix() {
    this.matrix = new Matrix(this.n, (i, j) => {
      this.state.client = i;
      this.trace(j);
    }, this.data.names);
    this.matrix.canvas.addEventListener("cell", ({ detail }) => this.tell(detail));
    fill("matrix", this.matrix.node);
    const level = this.data.level_name;
    const orders = { number: this.data.names ? "client" : "client number", score: "score", examples: "number of examples" };
    if (level !== "examples") orders.level = level;
    const select = el("select", { id: "order", onchange: () => {
      this.state.by = select.value;
      this.showMatrix();
    } }, Object.entries(orders).map(([value, name]) => el("option", { value }, name)));
    const choice = (value, name) => el("label", {}, el("input", { type: "radio", name: "unit",
      value, checked: value === "contribution", onchange: () => {
        this.state.shares = value === "share";
        this.showMatrix();
      } }), name);
    fill("matrix-controls", el("label", {}, "Order by", select),
      el("fieldset", {}, el("legend", { class: "hidden" }, "what is shown"),
        choice("contribution", "contribution"), choice("share", "share of the row, %")),
      el("span", { id: "matrix-legend" }));
  }

  goTo(t) {
    this.state.t = Math.max(1, Math.min(this.rounds, t));
    this.show();
  }

  choose(i) {
    Object.assign(this.state, { client: i, contributor: null, whole: false });
    this.show();
  }

  trace(j) {
    this.state.contributor = j;
    this.show();
  }

  showAll(whole) {
    this.state.whole = whole;
    this.show();
  }

  show() {
    keepFocus(() => this.draw());
  }

  draw() {
    const { state, rounds } = this;
    byId("round").value = state.t;
    byId("round").disabled = rounds === 1;
    byId("earlier").disabled = state.t === 1;
    byId("later").disabled = state.t === rounds;
    const mean = percent(100 * this.curves.mean[state.t - 1]);
    fill("now", el("b", {}, `${state.t} of ${rounds}`), ` · mean accuracy ${mean}`);
    if (this.graph) this.showGraph();
    if (this.phi) this.showMatrix();
    fill("client", state.client !== null ? clientPanel(this) : ranking(this));
    this.showCharts();
    this.table.draw();
    this.remember();
  }

  /** What colours nodes: scores, the chosen client's row, or the traced contributor's column. */
  shown() {
    const { state, n } = this;
    const { t, client, contributor: j } = state;
    if (!this.phi || client === null) {
      return { values: this.scores(t), most: this.mostScore, low: this.lowestScore,
        name: this.traced ? "Score" : "Final score" };
    }
    if (!this.traced || j === null) {
      const values = [...this.row(t, client)];
      return { values, most: largest(values), low: lowest(values),
        name: `Contribution to client ${this.client(client)}` };
    }
    const columns = this.traced.phis.map((phi) => range(n).map((i) => phi[i * n + j]));
    const all = columns.flat();
    return { values: columns[t], most: largest(all), low: lowest(all),
      name: `Contribution of client ${this.client(j)} to each model` };
  }

  showGraph() {
    const { state, traced } = this;
    const { t, client, contributor } = state;
    const { values, most, low, name } = this.shown();
    const flows = traced && traced.flows(t, contributor);
    const credits = contributor === null ? this.credits : this.creditsOf(contributor);
    const strongest = largest(credits);
    const decimals = decimalsFor([most]);
    const held = contributor === null ? "the sum of k's row"
      : `client ${this.client(contributor)}'s contribution to k's model`;
    byId("graph-lead").textContent = traced
      ? "An edge from k to i is as wide as the credit that i's model inherits through k in this " +
        `round: k's weight in i's average times ${held} before the round.`
      : "An edge from k to i says that k sends its model to i in round " +
        `${this.data.drawn_round}.`;
    const left = this.graph.draw({
      values, most, flows, strongest, chosen: client, flagged: this.flags[t - 1],
      filtered: this.filters[t - 1],
      said: (i) => `${name[0].toLowerCase()}${name.slice(1)} ${number(values[i], decimals)}`,
    });
    fill("graph-legend", graphLegend({
      n: this.n, low, most, strongest, losses: lowest(credits), coloured: name,
      decimals: decimalsFor([strongest]),
      liars: this.liars.size, flags: this.data.flagged.single.length,
      filters: this.data.filtered.single.length,
      text: (value) => (value ? number(value, decimals) : "0"),
    }));
    byId("graph-note").textContent = !this.data.graphs.length
      ? "This graph has too many edges to draw."
      : left ? `The ${MAX_EDGES.toLocaleString("en")} widest edges are drawn; ` +
        `${plural(left, "other")} are not.`
      : this.traced && t === 1 ? "In round 1 no model holds credit yet, so none is passed on." : "";
  }

  showMatrix() {
    const { state, n } = this;
    const phi = this.phi.phi(state.t);
    const totals = range(n).map((i) => sum(this.row(state.t, i)));
    const values = state.shares
      ? (i, j) => shareOf(phi[i * n + j], totals[i])
      : (i, j) => phi[i * n + j];
    const scaled = state.shares
      ? phi.map((value, at) => shareOf(value, totals[Math.floor(at / n)]) ?? 0)
      : this.phi.phi(this.rounds);
    const sizes = Float32Array.from(scaled, Math.abs).filter(Boolean).sort();
    const clipped = n > WRITTEN;
    const most = sizes.length ? sizes[Math.ceil((clipped ? 0.995 : 1) * sizes.length) - 1] : 1;
    const decimals = state.shares ? 1 : decimalsFor([most]);
    const text = (value) => number(value, decimals);
    const keys = { score: this.scores(state.t), level: this.level, examples: this.data.examples };
    const order = state.by === "number" ? range(n) : descending(keys[state.by]);
    fill("matrix-legend", colourBar(Math.max(lowest(scaled), -most), most, most, (value) =>
      state.shares ? percent(value) : value ? text(value) : "0"),
      ` ${state.shares ? "of the row" : this.data.unit}` +
      (clipped && sizes.at(-1) > most ? ", or more" : ""));
    const digits = decimalsFor([largest(phi)]) + 1;
    this.cellText = (i, j) => `To client ${this.client(i)} from client ${this.client(j)}: ` +
      `${number(phi[i * n + j], digits)}, ${this.share(phi[i * n + j], totals[i])} of its row.`;
    this.matrix.draw({ values, most, order, text, chosen: state.client });
  }

  /** Says what a cell of the matrix holds. */
  tell(cell) {
    byId("matrix-cell").textContent = cell ? this.cellText(...cell)
      : "Point at a cell, or go there by arrow keys. The same numbers stand as a table in each " +
        "client's panel.";
  }

  showCharts() {
    const { state, data, rounds } = this;
    const { client, t } = state;
    const own = client !== null && this.curves.clients
      ? range(rounds).map((s) => this.curves.clients[s * this.n + client])
      : null;
    fill("accuracy", accuracyChart({ ...this.curves, initial: data.initial, own, now: t,
      named: `client ${this.client(client)}` }));
    const line = (kind) => el("svg", { class: "chart", width: 24, height: 10, viewBox: "0 0 24 10",
      "aria-hidden": "true" }, el("path", { class: kind, d: "M0 5L24 5" }));
    fill("accuracy-legend", el("span", {}, line("mean"), "mean ± standard deviation"),
      el("span", {}, line("extreme"), "lowest and highest"),
      own ? el("span", {}, line("own"), `client ${this.client(client)}`) : null,
      data.initial === null ? null
        : el("span", {}, `round 0: the initial model, ${percent(100 * data.initial)}`));
    const kinds = [
      ["Reports flagged by the coordinator", data.flagged.by_round],
      ["Pre-training models filtered by receivers", data.filtered_models],
      ["Models that did not arrive", data.unsent.by_round],
    ];
    const some = kinds.filter(([, counts]) => sum(counts));
    fill("flags", some.length
      ? some.map(([name, counts]) => [el("h3", {}, `${name}: ${sum(counts).toLocaleString("en")}`),
          roundBars(counts, { now: t, decimals: 0, label: `${name} over rounds` })])
      : el("p", { class: "quiet" },
          "Nothing: no report was flagged, no pre-training model filtered, all models arrived."));
  }
}

const said = (status) =>
  ({ stopped: "stopped before its last round", interrupted: "was interrupted" })[status] ?? status;

/** Who is named in each round, from [round, client, ...] cells. */
function roundsOf(cells, rounds) {
  const found = range(rounds).map(() => new Set());
  for (const [t, i] of cells) found[t].add(i);
  return found;
}

const page = new Page(readData());
