// A federation's scores as its rounds close, fetched every two seconds.

const EVERY = 2000;

const tile = (value, name) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, name));

// How far the replay of predictions is, while there is one.
const replaying = (replay) => replay
  ? [tile(percent(100 * replay.share), "of the replay under way is done")] : [];

function draw(state) {
  const values = state.scores.map((one) => one.score);
  const [most, decimals] = [largest(values), decimalsFor(values)];
  fill("tiles",
    tile(`${state.reported} of ${state.clients}`, `clients have reported on round ${state.open_round}`),
    tile(String(state.closed), "rounds are closed"),
    tile(String(state.traced), "of them are traced"),
    ...replaying(state.replay),
    tile(String(state.n_flags), state.told === "reports" ? "reports were replaced"
      : "testimonies refute claims"),
    tile(String(state.n_disputed), "exchanges are disputed"));
  const columns = [
    { name: "client", text: true, value: (row) => row.client, cell: (row) => row.client },
    { name: "score", descending: true, value: (row) => row.score,
      cell: (row) => el("div", { class: "beside" }, number(row.score, decimals),
        cellBar(row.score, most)) },
    { name: "share", descending: true, value: (row) => row.share,
      cell: (row) => percent(row.share ?? NaN) },
  ];
  keepFocus(() => fill("scores", sortedTable(state.scores, columns, { by: 1, caption: "Scores" })));
  const flags = state.flags.map((one) =>
    [`round ${one.round}`, one.receiver === undefined
      ? `${one.client}, ${number(one.distance)} from the consensus`
      : `${one.client}, ${number(one.distance)} from what ${one.receiver} testifies`]);
  fill("flags", flags.length ? pairs(flags.reverse(), "Replaced") : el("p", {}, "None."));
  const disputed = state.disputed.map((one) => [`round ${one.round}`,
    one.stated_by === "client" ? `${one.client} says that ${one.member} sent it a model`
      : `${one.member} says that it sent ${one.client} a model`]);
  fill("disputed", disputed.length ? pairs(disputed.reverse(), "Disputed") : el("p", {}, "None."));
  const alone = state.unconfirmed.map((one) => [`round ${one.round}`, one.client]);
  fill("unconfirmed", alone.length ? pairs(alone.reverse(), "Unconfirmed") : el("p", {}, "None."));
  const failing = Object.entries(state.tasks).filter(([, task]) => task.state !== "ok");
  byId("failing").hidden = !failing.length;
  byId("failing").textContent = failing.map(([name, task]) =>
    `The service's task "${name}" has failed since ${task.since}: ${task.why}`).join(" ");
  const refused = Object.entries(state.refused);
  fill("refused", refused.length ? pairs(refused, "Refused") : el("p", {}, "None."));
}

async function follow() {
  const notice = byId("notice");
  try {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
    draw(await answer.json());
    notice.hidden = true;
  } catch (error) {
    notice.textContent = `The numbers may be old: ${error.message}.`;
    notice.hidden = false;
  }
  setTimeout(follow, EVERY);
}

byId("title").textContent = readData().federation;
byId("unit").textContent = readData().unit;
follow();
