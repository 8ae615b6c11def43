// The panel of a client: who taught it, when, and through whom.

const SHOWN = 12; // rows of a table before all are asked for

/** What stands in the panel while no client is chosen: the highest and lowest scores. */
function ranking(page) {
  const { n, state } = page;
  const score = page.scores(state.t);
  const order = descending(score);
  const most = largest(score);
  const total = page.total(score);
  const decimals = decimalsFor(score);
  const ends = n > 14 ? [order.slice(0, 6), order.slice(-6)] : [order];
  const table = (clients) =>
    el("table", {}, el("caption", { class: "hidden" }, "scores"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Client"),
        el("th", { class: "num", scope: "col" }, "Score"),
        el("th", { class: "num", scope: "col" }, "Share"), drawnHead())),
      el("tbody", {}, clients.map((i) =>
        el("tr", { "data-client": i, onclick: () => page.choose(i) },
          el("th", { scope: "row" }, clientLink(page, i)),
          el("td", { class: "num" }, number(score[i], decimals)),
          el("td", { class: "num" }, page.share(score[i], total)),
          el("td", { class: "bar" }, cellBar(score[i], most))))));
  return [
    el("h2", { id: "client-head" }, page.traced ? "Scores" : "Final scores"),
    el("p", { class: "quiet" },
      page.phi
        ? `Choose a client${page.graph ? ", here or in the graph," : ""} to see who taught it` +
          (page.traced ? ", when, and through whom." : ".")
        : "A client's score is its mean contribution to all clients' final models."),
    ends.length > 1
      ? [el("h3", {}, "Highest"), table(ends[0]), el("h3", {}, "Lowest"), table(ends[1])]
      : table(ends[0]),
  ];
}

function clientLink(page, i) {
  const press = (event) => {
    event.stopPropagation();
    page.choose(i);
  };
  return [el("button", { type: "button", class: "link", "data-key": `client ${i}`, onclick: press },
    `${page.client(i)}`),
    page.liars.has(i) ? el("span", { class: "alarm" }, " liar") : null];
}

/** Everything about client i after round t; of one contributor alone where one is chosen. */
function clientPanel(page) {
  const { state, traced } = page;
  const { t, client: i } = state;
  const parts = [clientHead(page, i)];
  if (page.phi) parts.push(taughtBy(page, i, t));
  if (traced) parts.push(earnedWhen(page, i, t), throughWhom(page, i, t), reported(page, i, t));
  return parts;
}

function clientHead(page, i) {
  const { state, data } = page;
  const score = page.scores(state.t);
  const decimals = decimalsFor(score);
  const above = score.filter((other) => other > score[i]).length;
  const rank = above < page.n / 2 ? 1 + above : 1 + above + data.all - page.n;
  const sampled = page.scoreError && state.t === data.rounds
    ? ` ± ${number(page.scoreError[i], decimals + 1)} from sampling`
    : "";
  const said = [
    `${plural(data.examples[i], "example")}`,
    data.level_name === "examples" ? null : `${data.level_name} ${number(page.level[i], 3)}`,
    page.curves.clients &&
      `accuracy ${percent(100 * page.curves.clients[(state.t - 1) * page.n + i])}`,
    `score ${number(score[i], decimals)}${sampled} (${rank} of ${data.all})`,
    page.flagCount[i] ? `report flagged in ${plural(page.flagCount[i], "round")}` : null,
    page.filteredCount[i] ? `model filtered in ${plural(page.filteredCount[i], "round")}` : null,
  ];
  return [
    el("h2", { id: "client-head" }, `Client ${page.client(i)}`,
      page.liars.has(i) ? el("span", { class: "alarm" }, "liar") : null,
      el("button", { type: "button", class: "link close action", onclick: () => page.choose(null) },
        "all scores")),
    el("p", { class: "quiet" }, said.filter(Boolean).join(" · ")),
  ];
}

function taughtBy(page, i, t) {
  const { state, traced } = page;
  const row = page.row(t, i);
  const total = sum(row);
  const decimals = decimalsFor(row);
  const most = largest(row);
  const taught = descending(row).filter((j) => row[j] !== 0);
  const count = state.whole ? taught.length : SHOWN;
  const press = (j) => page.trace(state.contributor === j ? null : j);
  const shown = taught.slice(0, count);
  if (state.contributor !== null && !shown.includes(state.contributor)) {
    shown.push(state.contributor);
  }
  const rows = shown.map((j) => {
    const pick = el("button", { type: "button", class: "link", "aria-pressed":
      String(j === state.contributor), "data-key": `contributor ${j}`, "data-contributor": j,
      onclick: (event) => { event.stopPropagation(); press(j); } },
      j === i ? `${page.client(j)} (itself)` : page.client(j));
    return el("tr", { class: j === state.contributor ? "chosen" : null, "data-client": j,
      onclick: () => press(j) },
      el("th", { scope: "row" }, pick,
        page.liars.has(j) ? el("span", { class: "alarm" }, " liar") : null),
      el("td", { class: "num" }, number(row[j], decimals)),
      el("td", { class: "num" }, page.share(row[j], total)),
      traced ? el("td", { class: "num" }, traced.since(t, i, j) ?? "–") : null,
      el("td", { class: "bar" }, cellBar(row[j], most)));
  });
  const rest = taught.filter((j) => !shown.includes(j)).length;
  return [
    el("h3", {}, "Who taught it"),
    el("table", { id: "taught" },
      el("caption", { class: "hidden" }, `contributions to client ${page.client(i)}`),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Contributor"),
        el("th", { class: "num", scope: "col" }, "Contribution"),
        el("th", { class: "num", scope: "col" }, "Share"),
        traced ? el("th", { class: "num", scope: "col" }, "Since") : null, drawnHead())),
      el("tbody", {}, rows,
        el("tr", {}, el("th", { scope: "row" }, "Together"),
          el("td", { class: "num" }, number(total, decimals)),
          el("td", { class: "num" }, total > 0 ? "100.0 %" : "–"),
          traced ? el("td", {}) : null, el("td", {})))),
    rest > 0 || state.whole
      ? el("button", { type: "button", class: "link action", "data-key": "more",
          onclick: () => page.showAll(!state.whole) },
          state.whole ? "fewer" : `${plural(rest, "more contributor")}`)
      : null,
    traced
      ? el("p", { class: "quiet" }, state.contributor === null
          ? "Since: the round in which its training first reached this model. Choose a " +
            "contributor to follow it alone."
          : `Below and in the graph, contributor ${page.client(state.contributor)} alone. Choose ` +
            "it again for all.")
      : null,
  ];
}

function earnedWhen(page, i, t) {
  const { traced, state } = page;
  const earned = traced.origins(t, i, state.contributor);
  const decimals = decimalsFor(earned);
  const best = earned.reduce((at, value, s) => (value > earned[at] ? s : at), 0);
  const padded = [...earned, ...new Array(page.rounds - t).fill(0)];
  return [
    el("h3", {}, "When it was earned"),
    roundBars(padded, { now: t, decimals, all: 386,
      label: `Credit by the round in which it was earned; most in round ${best + 1}: ` +
        number(earned[best], decimals) }),
  ];
}

function throughWhom(page, i, t) {
  const { traced, state } = page;
  const hops = traced.lastHop(t, i, state.contributor);
  const inherited = hops.filter((hop) => hop.inherited !== 0 || state.contributor === null);
  inherited.sort((a, b) => b.inherited - a.inherited);
  const fresh = sum(hops.map((hop) => hop.fresh));
  const all = [...hops.map((hop) => hop.inherited), fresh];
  const total = sum(all);
  const decimals = decimalsFor(all);
  const most = largest(all);
  const line = (name, weight, value) =>
    el("tr", {}, el("th", { scope: "row" }, name),
      el("td", { class: "num" }, weight),
      el("td", { class: "num" }, number(value, decimals)),
      el("td", { class: "num" }, percent(shareOf(value, total))),
      el("td", { class: "bar" }, cellBar(value, most)));
  const rest = inherited.slice(SHOWN);
  return [
    el("h3", {}, `Through whom it came in round ${t}`),
    el("table", { id: "hops" },
      el("caption", { class: "hidden" }, "credit by the member that passed it on"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Passed on by"),
        el("th", { class: "num", scope: "col" }, "Weight"),
        el("th", { class: "num", scope: "col" }, "Credit"),
        el("th", { class: "num", scope: "col" }, "Share"), drawnHead())),
      el("tbody", {},
        inherited.slice(0, SHOWN).map(({ k, share, inherited: value }) =>
          line(k === i ? "its own model" : `client ${page.client(k)}`, percent(100 * share), value)),
        rest.length
          ? line(`${plural(rest.length, "other")}`, "", sum(rest.map((hop) => hop.inherited)))
          : null,
        line(`new in round ${t}`, "", fresh))),
  ];
}

/** The contribution vectors that client i reported: a row for each member, a column a round. */
function reported(page, i, t) {
  const { traced, rounds, state } = page;
  const series = [...traced.reports(i)].filter(
    ([j]) => state.contributor === null || j === state.contributor);
  if (!series.length) {
    return [el("h3", {}, "What it reported"), el("p", { class: "quiet" },
      `Client ${page.client(i)} never mixed a model of client ` +
      `${page.client(state.contributor)}: what it has from there came through others.`)];
  }
  const weight = ([, values]) => sum(values.map((value) => Math.abs(value ?? 0)));
  series.sort((a, b) => weight(b) - weight(a));
  const shown = series.slice(0, SHOWN).sort(([a], [b]) => a - b);
  const known = shown.flatMap(([, values]) => values.filter((value) => value !== null));
  const most = largest(known);
  const decimals = decimalsFor(known);
  const [left, high, wide] = page.data.names ? [104, 15, 282] : [34, 15, 352];
  const step = wide / rounds;
  const cells = shown.flatMap(([j, values], row) => [
    el("text", { x: left - 7, y: row * high + 11, "text-anchor": "end" },
      shortened(page.client(j), 14)),
    values.map((value, s) =>
      value === null
        ? null
        : el("rect", { x: left + s * step, y: row * high, height: high - 1.5,
            width: Math.max(0.6, step - (step > 5 ? 1 : 0)), fill: colour(value, most).css,
            opacity: s + 1 > t ? 0.3 : null },
          el("title", {}, `round ${s + 1}, member ${page.client(j)}: ${number(value, decimals)}`))),
  ]);
  const some = series.length > SHOWN ? `, the ${SHOWN} largest of ${series.length}` : "";
  const foot = shown.length * high + 12;
  return [
    el("h3", {}, "What it reported"),
    el("p", { class: "quiet" }, "Its local contribution vectors as the coordinator took them: a " +
      `row for each member${some}.`),
    el("svg", { class: "chart", viewBox: `0 0 ${left + wide} ${foot + 2}`, role: "img",
      "aria-label": `local contribution vectors of client ${page.client(i)} over rounds` },
      cells,
      roundTicks(rounds).map((tick) =>
        el("text", { x: left + (tick - 0.5) * step, y: foot, "text-anchor": "middle" },
          String(tick)))),
    el("p", { class: "legend" }, colourBar(lowest(known), highest(known), most,
      (value) => (value ? number(value, decimals) : "0"))),
  ];
}
