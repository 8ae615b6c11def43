"""The command `trip-node rewards DIR`: a budget divided by the scores that `coordinate` wrote."""

import csv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from trip_node.cli.command import Parser, command
from trip_node.node.csv_lines import csv_lines
from trip_node.rewards import DEFAULT, PAYMENTS, in_cents, payments
from trip_node.settings import choice, require
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.lines import say
from trip_node.settings.own_files import is_table, refuse_others

FILE = "rewards.csv"
COLUMNS = ("client", "score", "payment_cents")
SCORES = "scores.csv"
RESULTS = "results.nc"  # of a simulated run, which holds no SCORES
PRINTED = 20
"""Clients that are printed; the file holds all."""


@command
def main(argv: Sequence[str] | None = None, program: str = "trip-node") -> None:
    """The command line; exit code 2 where there is nothing to pay for.

    Args:
        program: the name under which it is started, for messages.
    """
    parser = parser_of(
        program, f"Divides a budget by {SCORES} as coordinate writes it, into {FILE}."
    )
    given = parser.parse_args(argv)
    choice("--rule", given.rule, tuple(PAYMENTS))
    simulated = (given.folder / RESULTS).exists() and not (given.folder / SCORES).exists()
    require(not simulated, f"{given.folder} is a simulated run: pay by it with trip-jax rewards.")
    path = given.folder / FILE
    refuse_others(path, is_table(COLUMNS), "remove it")
    names, scores = read_scores(given.folder / SCORES)
    cents = payments(scores, given.budget, given.rule)
    rows = list(zip(names, scores.tolist(), cents.tolist(), strict=True))
    with TemporaryDirectory(dir=given.folder) as unfinished:
        lines = ((name, f"{score:.6g}", paid) for name, score, paid in rows)
        text = csv_lines([COLUMNS, *lines])
        (Path(unfinished) / FILE).write_text(text, encoding="utf-8", newline="")
        (Path(unfinished) / FILE).replace(path)
    width = max(len("client"), *map(len, names))
    print(f"{'client':>{width}} {'score':>12} {'payment':>16}")
    for name, score, paid in rows[:PRINTED]:
        print(f"{name:>{width}} {score:12.4f} {paid / 100:16,.2f}")
    say_unprinted(len(rows), path)
    say(f"{paid_out(given.budget, given.rule, cents)}; table in {path}")


def parser_of(program: str, description: str) -> Parser:
    """The arguments that the command takes of any directory."""
    parser = Parser(f"{program} rewards", description=description)
    parser.add_argument("folder", type=Path, metavar="DIR", help="directory of the results")
    parser.add_argument("--budget", default="1000", help="to be paid out, to the cent (1000)")
    rules = ", ".join(PAYMENTS)
    parser.add_argument("--rule", default=DEFAULT, help=f"one of {rules} ({DEFAULT})")
    return parser


def paid_out(budget: str, rule: str, cents: np.ndarray) -> str:
    """What is paid out and paid in, in words."""
    said = f"{in_cents(budget) / 100:,.2f} paid out by rule {rule}"
    if (owed := -cents[cents < 0].sum()) > 0:
        said += (
            f", beside {owed / 100:,.2f} that clients of negative payments pay in for the others"
        )
    return said


def say_unprinted(n: int, path: Path) -> None:
    """Say where the clients are, of n, that were not printed; nothing where all were."""
    if n > PRINTED:
        say(f"the first {PRINTED} of {n:,} clients; all are in {path}")


def read_scores(path: Path) -> tuple[list[str], np.ndarray]:
    """The clients' names and scores [n] in a table that `coordinate` wrote.

    Raises:
        InvalidSetting: the file is none.
        OSError: it can't be read.
    """
    with path.open(newline="", encoding="utf-8") as file:
        try:
            rows = list(csv.DictReader(file, strict=True))
            names, scores = [row["client"] for row in rows], [float(row["score"]) for row in rows]
        except (csv.Error, KeyError, TypeError, ValueError) as error:
            raise InvalidSetting(
                f"{path} is no table of scores ({error}): name the --out of coordinate."
            ) from error
    require(bool(names), f"{path} has no scores: name the --out of coordinate.")
    return names, np.array(scores)
