// A federation's scores as its rounds close, fetched every two seconds.

const EVERY = 2000;

const tile = (value, name) => el("div", { class: "tile" },
  el("b", {}, value.toLocaleString("en")), el("span", {}, name));

// How far the replay of predictions is, while there is one.
const replaying = (replay) => replay
  ? [tile(percent(100 * replay.share), "of the replay under way is done")] : [];

/** The table of scores, which stays where a reader has scrolled, sorted and put the focus. */
class Scores {
  rows = [];

  constructor() {
    const columns = [
      { name: "Client", text: true, value: (row) => row.client, cell: (row) => row.client },
      { name: "Score", descending: true, value: (row) => row.score,
        cell: (row) => el("div", { class: "beside" }, number(row.score, this.decimals),
          cellBar(row.score, this.most)) },
      { name: "Share of all", descending: true, value: (row) => row.share,
        cell: (row) => percent(row.share ?? NaN, this.shareDecimals) },
    ];
    this.table = sortedTable(this.rows, columns, { by: 1, caption: "Scores" });
    fill("scores", this.table);
  }

  draw(rows) {
    const scores = rows.map((row) => row.score);
    this.most = largest(scores);
    this.decimals = decimalsFor(scores);
    this.shareDecimals = Math.max(1, decimalsFor(rows.map((row) => row.share)) - 1);
    this.rows.splice(0, Infinity, ...rows);
    this.table.draw();
  }
}

/** The newest events, the last one first, and how many there are in all. */
function list(id, events, count, caption, sentence) {
  const lines = events.map((one) => [`round ${one.round}`, sentence(one)]).reverse();
  fill(id, count > lines.length &&
      el("p", { class: "quiet" }, `The newest ${lines.length} of ${count.toLocaleString("en")}:`),
    lines.length ? pairs(lines, caption) : el("p", {}, "None."));
}

/** Shows a text, or hides its place; screen readers hear it once. */
function say(id, text) {
  byId(id).hidden = !text;
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

const scores = new Scores();

function draw(state) {
  fill("tiles",
    tile(`${state.reported.toLocaleString("en")} of ${state.clients.toLocaleString("en")}`,
      `clients have reported on round ${state.open_round}`),
    tile(state.closed, "rounds are closed"),
    tile(state.traced, "of them are traced"),
    ...replaying(state.replay),
    tile(state.n_flags, state.told === "reports" ? "reports were replaced"
      : "testimonies refute claims"),
    tile(state.n_disputed, "exchanges are disputed"));
  scores.draw(state.scores);
  list("flags", state.flags, state.n_flags, "Replaced", (one) =>
    `${one.client}, ${number(one.distance)} from ` +
    (one.receiver === undefined ? "the consensus" : `what ${one.receiver} testifies`));
  list("disputed", state.disputed, state.n_disputed, "Disputed", (one) =>
    one.stated_by === "client" ? `${one.client} says that ${one.member} sent it a model`
      : `${one.member} says that it sent ${one.client} a model`);
  list("unconfirmed", state.unconfirmed, state.n_unconfirmed, "Unconfirmed", (one) => one.client);
  const failing = Object.entries(state.tasks).filter(([, task]) => task.state !== "ok");
  say("failing", failing.map(([name, task]) =>
    `The service's task "${name}" has failed since ${task.since}: ${task.why}`).join(" "));
  const refused = Object.entries(state.refused);
  fill("refused", refused.length ? pairs(refused, "Refused") : el("p", {}, "None."));
}

async function follow() {
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
    draw(await answer.json());
    say("notice", "");
  } catch (error) {
    say("notice", `The numbers may be old: ${error.message}.`);
  }
  setTimeout(follow, EVERY);
}

byId("title").textContent = readData().federation;
byId("unit").textContent = readData().unit;
follow();
