"""What clients are to be given: `trip-jax rewards RUN --budget 1000 --rule clipped`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray

from trip_jax.cli.command import command
from trip_jax.results.labels import column
from trip_jax.rewards import (
    PAYMENTS,
    Gains,
    alone,
    excluded,
    in_cents,
    model_shares,
    payments,
    reputations,
)
from trip_jax.runs.directory import whole
from trip_jax.runs.reading import Run, load_run
from trip_jax.runs.schema import config_of_run
from trip_jax.settings import choice, require
from trip_jax.settings.errors import InvalidSetting
from trip_node.cli import rewards as of_scores
from trip_node.cli.rewards import (
    COLUMNS,
    FILE,
    PRINTED,
    RESULTS,
    SCORES,
    paid_out,
    parser_of,
    say_unprinted,
)
from trip_node.settings.lines import say
from trip_node.settings.own_files import is_table, refuse_others

MEANINGS = {
    "reputation": "moving average of its part in what each round contributed; below 0 is harm",
    "model_share": "part of the common model's update that it would be given (CGSV); 1 is all",
    "excluded_after_round": "round after which it would be shut out (RFFL); 0 is never",
    "alone": "test accuracy that it reaches by itself",
    "gain": "what taking part adds to that accuracy",
}
"""What a column says of a client, in a line."""


@command
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; exit code 2 where there is nothing to pay for."""
    arguments = sys.argv[1:] if argv is None else argv
    parser = parser_of(
        "trip-jax",
        f"Divides a budget by the scores of a run, says who would be given how much of the common "
        f"model, and writes {FILE} into the run's directory. Of a directory that coordinate wrote "
        f"it divides the budget alone.",
    )
    parser.add_argument(
        "--gains",
        action="store_true",
        help="train every client alone, too, and say what taking part brings",
    )
    given = parser.parse_args(arguments)
    if not (given.folder / RESULTS).exists() and (given.folder / SCORES).is_file():
        require(not given.gains, "--gains trains the clients of a simulated run: leave it out.")
        return of_scores.main(arguments, "trip-jax")
    choice("--rule", given.rule, tuple(PAYMENTS))
    path = given.folder / FILE
    refuse_others(path, is_table(COLUMNS), "remove it")
    in_cents(given.budget)  # which may be refused before the run is read
    run = load_run(given.folder)
    table = rewards(run.data, given.budget, given.rule)
    said = paid_out(given.budget, given.rule, table.payment_cents.to_numpy())
    if given.gains:
        gains = Gains(run.data.accuracy.values[-1].astype(float), _alone(given.folder, run))
        table["alone"], table["gain"] = gains.alone, gains.each
        said += (
            f"; mean gain (MCG) {gains.mean:+.4f}, spread (CGS) {gains.spread:.4f}, "
            f"{gains.rational:.0%} of clients lose nothing"
        )
    with whole(path) as unfinished:
        table.to_csv(unfinished, index=False, float_format="%.6g")
    few = table[:PRINTED]
    shown = few.assign(payment=(few.payment_cents / 100).map("{:,.2f}".format))
    print(shown.drop(columns="payment_cents").to_string(index=False, float_format="%.4f"))
    say_unprinted(len(table), path)
    for name in table.columns.intersection(list(MEANINGS), sort=False):
        say(f"{name}: {MEANINGS[name]}")
    say(f"{said}; table in {path}")
    return 0


def rewards(run: xarray.Dataset, budget: str, rule: str) -> pd.DataFrame:
    """A row a client: its score, payment in cents, reputation, share of the common model (CGSV) and
    the round after which it would be shut out, 0 if it stays (RFFL).

    Raises:
        InvalidSetting: scores that can't be paid by.
    """
    scores = run.score.values.astype(float)
    rounds = contributions_of_rounds(run)
    reputation = reputations(rounds)[-1]
    return pd.DataFrame(
        {
            "client": column(run),
            "score": scores,
            "payment_cents": payments(scores, budget, rule),
            "reputation": reputation,
            "model_share": model_shares(reputation),
            "excluded_after_round": excluded(rounds),
        }
    )


def contributions_of_rounds(run: xarray.Dataset) -> np.ndarray:
    """What the coordinator adopted of each client in each round, mean over clients [T, n]."""
    graphs = run.graph_of_round.values
    t, i, slot = np.nonzero(run["mask"].values[graphs])
    n_rounds, n = run.sizes["round"], run.sizes["client"]
    found = np.zeros((n_rounds, n))
    np.add.at(found, (t, run.members.values[graphs][t, i, slot]), run.adopted.values[t, i, slot])
    return found / n


def _alone(folder: Path, run: Run) -> np.ndarray:
    try:
        return alone(config_of_run(folder, run.summary)).astype(float)
    except InvalidSetting as error:
        raise InvalidSetting(f"--gains trains clients alone, which fails: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
