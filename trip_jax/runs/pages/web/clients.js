// The table of all clients.

/** What the table of all clients says after the round shown. */
function clientColumns(page) {
  const { data, n } = page;
  let of = null; // scores are asked for once a round
  const score = (i) => {
    if (of?.t !== page.state.t) {
      const values = page.scores(page.state.t);
      of = { t: page.state.t, values, total: page.total(values), decimals: decimalsFor(values) };
    }
    return of.values[i];
  };
  const accuracy = (i) => page.curves.clients?.[(page.state.t - 1) * n + i];
  const columns = [
    { name: "Client", text: true, value: (i) => data.clients?.[i] ?? i, cell: (i) => clientLink(page, i) },
    { name: "Score", descending: true, value: score, cell: (i) => number(score(i), of.decimals) },
    { name: "Share of all", descending: true, value: score,
      cell: (i) => page.share(score(i), of.total) },
    { name: "Examples", descending: true, value: (i) => data.examples[i],
      cell: (i) => data.examples[i].toLocaleString("en") },
  ];
  if (page.trueScore) {
    const truth = (i) => page.trueScore[i];
    columns.splice(3, 0, { name: "Share by the truth", descending: true, value: truth,
      cell: (i) => page.share(truth(i), data.true_total) });
  }
  if (page.scoreError) {
    const error = (i) => page.scoreError[i];
    columns.splice(2, 0, { name: "Standard error", descending: true, value: error,
      cell: (i) => number(page.state.t === data.rounds ? error(i) : NaN, of.decimals + 1) });
  }
  if (data.level_name !== "examples") {
    columns.push({ name: data.level_name, descending: true, value: (i) => page.level[i],
      cell: (i) => number(page.level[i], 3) });
  }
  if (page.curves.clients) {
    columns.push({ name: "Accuracy", descending: true, value: accuracy,
      cell: (i) => percent(100 * accuracy(i)) });
  }
  const counted = (name, counts) => ({ name, descending: true, value: (i) => counts[i],
    cell: (i) => counts[i] });
  if (sum(page.flagCount)) columns.push(counted("Rounds flagged", page.flagCount));
  if (sum(page.filteredCount)) columns.push(counted("Rounds filtered", page.filteredCount));
  return columns;
}
