// The graph: nodes in fixed places, edges as the credit that flows along them in a round.

const SIZE = 660;
const MAX_EDGES = 3000; // drawn; the strongest, where there are more
const LABELLED = 100; // clients whose numbers stand in or beside their nodes
const ARROWS = 20; // clients up to which every edge has its arrowhead

class Graph {
  /** `choose(client)` is called for clicks and keys; `arcs` are drawn where no flows are known. */
  constructor(data, arcs, choose) {
    this.n = data.n;
    this.names = data.names;
    this.arcs = arcs;
    this.choose = choose;
    this.liars = new Set(data.liars);
    this.widest = widest(this.n);
    this.radius = Math.max(2.5, Math.min(17, 74 / Math.sqrt(this.n)));
    const margin = this.radius + (this.names ? 90 : 30);
    const places = unpack(data.positions);
    this.at = range(this.n).map((i) => [
      SIZE / 2 + places[2 * i] * (SIZE / 2 - margin),
      SIZE / 2 - places[2 * i + 1] * (SIZE / 2 - margin),
    ]);
    this.edges = el("g", { "aria-hidden": "true" });
    this.nodes = range(this.n).map((i) => this.node(i));
    const nodes = el("g", {}, this.nodes.map((node) => node.group));
    nodes.addEventListener("keydown", (event) => this.key(event));
    this.current = 0;
    this.svg = el("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "group",
      "aria-label": "Clients; arrow keys go from one to the next, Enter chooses, Escape releases" },
      this.edges, nodes);
    this.nodes[0].group.setAttribute("tabindex", "0");
  }

  node(i) {
    const { radius } = this;
    const [x, y] = this.at[i];
    const liar = this.liars.has(i);
    const body = liar
      ? el("polygon", { class: "body", points: diamond(1.22 * radius) })
      : el("circle", { class: "body", r: radius });
    const inside = radius >= 9 && !this.names;
    const right = this.names ? x - SIZE / 2 : 0;
    const side = right > 1 ? " start" : right < -1 ? " end" : "";
    const text = this.n <= LABELLED && el("text", { class: inside ? null : `outside${side}`,
      "font-size": inside ? Math.min(13, radius * 0.95) : 9, ...this.beside(i, inside) },
      shortened(this.client(i), 14));
    const flagged = el("circle", { class: "ring", r: 1.3 * radius + 3, visibility: "hidden" });
    const filtered = el("circle", { class: "ring filtered", r: 1.3 * radius + 6,
      visibility: "hidden" });
    const title = el("title");
    const group = el("g", { class: liar ? "node liar" : "node", role: "button", tabindex: -1,
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "data-client": i,
      onclick: () => this.choose(i) },
      title, el("circle", { class: "focus", r: 1.3 * radius + 9 }), flagged, filtered, body, text);
    return { group, body, text, inside, flagged, filtered, title };
  }

  /** The name of client i, or its number. */
  client(i) {
    return this.names?.[i] ?? i;
  }

  /** Where a number stands that does not fit into its node: away from the middle. */
  beside(i, inside) {
    if (inside) return {};
    const [x, y] = this.at[i].map((place) => place - SIZE / 2);
    const far = Math.hypot(x, y) || 1;
    const away = this.radius + (this.names ? 12 : 17);
    return { x: ((x / far) * away).toFixed(1), y: ((y / far) * away).toFixed(1) };
  }

  key(event) {
    const chosen = Number(event.target.dataset.client);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.choose(chosen);
    } else onArrows(event, chosen, this.n, 1, (next) => this.focus(next));
  }

  focus(i) {
    this.nodes[this.current].group.setAttribute("tabindex", "-1");
    this.current = i;
    this.nodes[i].group.setAttribute("tabindex", "0");
    this.nodes[i].group.focus();
  }

  /**
   * Shows a round: what colours nodes (values up to `most`, spoken as `said`), flows up to
   * `strongest`, who was flagged and filtered, which client is chosen.
   *
   * Returns how many edges it leaves out.
   */
  draw({ values, most, said, flows, strongest, flagged, filtered, chosen }) {
    this.nodes.forEach((node, i) => {
      const shade = colour(values[i], most);
      node.body.setAttribute("fill", shade.css);
      if (node.text && node.inside) node.text.setAttribute("fill", shade.ink);
      node.flagged.setAttribute("visibility", flagged.has(i) ? "visible" : "hidden");
      node.filtered.setAttribute("visibility", filtered.has(i) ? "visible" : "hidden");
      const words = [`client ${this.client(i)}`, said(i)];
      if (this.liars.has(i)) words.push("liar");
      if (flagged.has(i)) words.push("report flagged in this round");
      if (filtered.has(i)) words.push("pre-training model filtered in this round");
      node.title.textContent = words.join(", ");
      node.group.setAttribute("aria-label", words.join(", "));
      node.group.setAttribute("aria-pressed", String(i === chosen));
      node.group.classList.toggle("chosen", i === chosen);
    });
    this.svg.classList.toggle("picked", chosen !== null);
    const known = flows ?? this.arcs;
    const inwards = (flow) => flow.to === chosen;
    const shown = [...known]
      .sort((a, b) => inwards(a) - inwards(b) || Math.abs(a.credit) - Math.abs(b.credit))
      .slice(-MAX_EDGES);
    this.edges.replaceChildren(
      arrowhead("arrow", "var(--edge)"), arrowhead("arrow-in", "var(--accent)"),
      ...shown.map((flow) => this.edge(flow, strongest, inwards(flow))));
    return known.length - shown.length;
  }

  /** A curve to the left of the way from sender to receiver, so that both directions show. */
  edge({ from, to, credit }, strongest, inwards) {
    const [[x, y], [u, v]] = [this.at[from], this.at[to]];
    const far = Math.hypot(u - x, v - y) || 1;
    const bend = Math.min(0.14 * far, 34);
    const [a, b] = [(x + u) / 2 + (bend * (v - y)) / far, (y + v) / 2 - (bend * (u - x)) / far];
    const last = Math.hypot(u - a, v - b) || 1;
    const gap = this.radius + (this.liars.has(to) ? 5 : 3);
    const end = [u - ((u - a) / last) * gap, v - ((v - b) / last) * gap];
    const width = (this.widest * Math.abs(credit)) / strongest || 0;
    const arrow = inwards ? "url(#arrow-in)" : this.n <= ARROWS ? "url(#arrow)" : null;
    const text = (point) => point.map((one) => one.toFixed(1)).join(" ");
    return el("path", {
      class: `edge${inwards ? " in" : ""}${credit < 0 ? " loss" : ""}`,
      d: `M${text([x, y])}Q${text([a, b])} ${text(end)}`,
      "stroke-width": Math.max(inwards ? 1 : 0.5, width).toFixed(2),
      "marker-end": arrow,
    });
  }
}

const diamond = (r) => `0,${-r} ${r},0 0,${r} ${-r},0`;

function arrowhead(id, fill) {
  return el("marker", { id, viewBox: "0 0 8 8", refX: 6.5, refY: 4, markerWidth: 9,
    markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" },
    el("path", { d: "M0 0.8L8 4L0 7.2Z", fill }));
}

/** The width of the edge along which most credit flows. */
const widest = (n) => Math.min(7, 40 / Math.sqrt(n));

/** What the graph's signs mean. */
function graphLegend(shown) {
  const { n, liars, flags, filters, most, low, text, coloured } = shown;
  const { strongest, losses, decimals } = shown;
  const sign = (...shapes) =>
    el("svg", { width: 20, height: 20, viewBox: "-10 -10 20 20", "aria-hidden": "true" }, shapes);
  const ball = { r: 6, fill: "#d3ecd4", stroke: "var(--outline)" };
  const parts = [el("span", {}, coloured, colourBar(low, most, Math.max(most, -low), text))];
  if (strongest) {
    const line = (kind, width) => el("svg", { width: 30, height: 10, "aria-hidden": "true" },
      el("path", { class: kind, d: "M0 5L30 5", "stroke-width": width }));
    parts.push(el("span", {}, line("edge", widest(n)),
      `${number(strongest, decimals)} along the widest edge`));
    if (losses) parts.push(el("span", {}, line("edge loss", 2), "negative credit"));
  }
  if (liars) {
    parts.push(el("span", {}, sign(el("polygon", { points: diamond(8), fill: "#d3ecd4",
      stroke: "var(--ink)", "stroke-width": 2 })), "liar"));
  }
  if (flags) {
    parts.push(el("span", {}, sign(el("circle", { class: "ring", r: 8.8 }), el("circle",
      { ...ball, r: 5 })), "report flagged"));
  }
  if (filters) {
    parts.push(el("span", {}, sign(el("circle", { class: "ring filtered", r: 8.8 }), el("circle",
      { ...ball, r: 5 })), "model filtered"));
  }
  return parts;
}
