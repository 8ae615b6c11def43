"""The command `coordinate`: contributions in a federation that collects reports.

    trip-node coordinate reports.csv --out DIR [--c2]
    trip-node coordinate --listen HOST:PORT --state DIR --keys FILE [--c2]
    trip-node coordinate --predictions FOLDER --labels FILE --out DIR
    trip-node coordinate --listen HOST:PORT --predictions --labels FILE --state DIR --keys FILE

The table of reports (.csv, .tsv or .parquet) has the columns round, client, member, weight and
lcv: one line for each member of each reporter's neighbourhood, the client itself included. With a
column `sent`, exchanges count where both ends state them. In Python:

    reported = read_reports(read_table(path))
    phi, verdict = trace(reported.reports, len(reported.names), defence)
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from trip_node.cli.command import Parser, command
from trip_node.cli.predictions import (
    from_predictions,
    is_served,
    of_predictions,
    refuse_without_folder,
    replay_of,
)
from trip_node.deployment.report_table import (
    FEWER,
    KINDS,
    LAYOUT,
    Reported,
    read_reports,
    read_table,
)
from trip_node.deployment.result_tables import refuse_other_files, scores, write
from trip_node.deployment.scores import MOST, percent, shares
from trip_node.node.signing import ed25519
from trip_node.protocol.coordinator import LARGEST, trace
from trip_node.protocol.defences import Defence
from trip_node.protocol.reports import Verdict
from trip_node.settings.capacity import require_capacity
from trip_node.settings.declared import path_of
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.lines import say
from trip_node.settings.plurals import counted


def describe(out: Path, phi: np.ndarray, verdict: Verdict, reported: Reported, c2: bool) -> str:
    """What was written, and who contributed most."""
    values = scores(phi)
    share, highest = shares(values), np.argsort(-values, kind="stable")[:MOST]
    listed = (f"{_plain(reported.names[i])} {values[i]:.4g} ({percent(share[i])})" for i in highest)
    flagged = counted(int(np.sum(verdict.flagged)), "report")
    clients, rounds = counted(len(values), "client"), counted(len(reported.rounds), "round")
    return (
        f"phi.csv, scores.csv and flagged.csv of {clients} over {rounds} in {out}"
        f"{f'; {flagged} flagged' * (c2 or bool(reported.left_out))}\n"
        f"{''.join(_left_out(verdict, reported))}"
        "A score is what a client contributed to all clients' models on average, in the unit of "
        f"lcv.\nhighest scores, with their share of all: {', '.join(listed)}"
    )


def _left_out(verdict: Verdict, reported: Reported) -> Iterator[str]:
    """Lines that say which reports and exchanges did not count, and why."""
    if reported.left_out:
        which = ", ".join(reported.left_out)
        yield f"left out, as no number or beyond {LARGEST:.0e}: {which}\n"
    if reported.disputed is not None and len(reported.disputed):
        which = counted(len(reported.disputed), "exchange")
        yield f"left out, as one end alone states them: {which}, see disputed.csv\n"
    alone = np.argwhere(False if verdict.unconfirmed is None else verdict.unconfirmed)
    if len(alone):
        names = [f"{_plain(reported.names[i])} in round {reported.rounds[t]}" for t, i in alone]
        which = ", ".join(names[:MOST] + ["..."] * (len(names) > MOST))
        yield f"left out, what these say of themselves and nobody else reports on: {which}\n"


def _plain(name: str) -> str:
    return name if name.isprintable() else repr(name)


@command
def main(argv: Sequence[str] | None = None, program: str = "trip-node") -> None:
    """The command line; exit code 2 where the input is wrong.

    Args:
        program: the name under which it is started, for messages.
    """
    parser = Parser(f"{program} coordinate")
    kinds = f"{KINDS}: {LAYOUT}"
    parser.add_argument("reports", type=Path, nargs="?", help=kinds)
    parser.add_argument("--out", help="directory of the results")
    zero = (
        "refuse a missing report (default), or take an LCV of 0 with self weight 1; of records of "
    )
    zero += "predictions: take the client to have kept its model"
    parser.add_argument("--missing", choices=("refuse", "zero"), default="refuse", help=zero)
    strict = f"refuse a contribution that is no number or beyond {LARGEST:.0e} (default: the "
    strict += "report counts as zero and is flagged)"
    parser.add_argument("--strict", action="store_true", help=strict)
    parser.add_argument("--c2", action="store_true", help="detect and replace outlying reports")
    calibrated = "default: calibrated for accuracy with Eq. 4 as printed"
    parser.add_argument("--penalty", type=float, help=f"lambda of C2 ({calibrated})")
    parser.add_argument("--distance", type=float, help=f"L2 threshold of C2 ({calibrated})")
    parser.add_argument("--thresholding", help=f"soft or hard (default {Defence.thresholding})")
    listen = parser.add_argument_group("a service that takes signed reports, in place of a table")
    listen.add_argument("--listen", metavar="HOST:PORT", help="where; port 0 takes a free one")
    listen.add_argument("--state", type=Path, metavar="DIR", help="where it keeps them")
    listen.add_argument("--keys", type=Path, metavar="FILE", help="federation and keys, as JSON")
    closes = "close a round so many seconds after it opened (default: when all reports are there)"
    listen.add_argument("--deadline", type=float, metavar="SECONDS", help=closes)
    known = "a name by which clients ask for the service, such as a proxy's; may be repeated"
    listen.add_argument("--host", action="append", metavar="NAME", help=known)
    of_predictions(parser)
    args = parser.parse_args(argv)
    settings = {name: getattr(args, name) for name in ("penalty", "distance", "thresholding")}
    chosen = {name: value for name, value in settings.items() if value is not None}
    if chosen and not args.c2:
        raise InvalidSetting(f"--{min(chosen)} is a setting of --c2; add --c2 or remove it.")
    defence = Defence(c2=args.c2, **chosen)
    if args.predictions is not None and not is_served(args):
        say(from_predictions(args))
        return
    if args.listen is not None:
        _listen(args, defence, program)
        return
    refuse_without_folder(args)
    of_service = ("state", "keys", "deadline", "host")
    alone = [name for name in of_service if getattr(args, name) is not None]
    if alone:
        raise InvalidSetting(f"--{alone[0]} is of a service: add --listen HOST:PORT or remove it.")
    if args.reports is None or args.out is None:
        raise InvalidSetting(
            "Give a table of reports and --out DIR, or --listen HOST:PORT, or --predictions FOLDER."
        )
    out = path_of("--out", args.out)
    refuse_other_files(out)
    try:
        table = read_table(args.reports)
        reported = read_reports(table, missing=args.missing, strict=args.strict)
        n = len(reported.names)
        require_capacity(
            2 * 4 * n * n, f"phi of {n:,} clients is too large; {FEWER}"
        )  # last and next
    except InvalidSetting as error:
        raise InvalidSetting(f"{args.reports}: {error}") from error
    phi, verdict = trace(reported.reports, n, defence)
    write(out, phi, verdict, reported)
    say(describe(out, phi, verdict, reported, args.c2))


def _listen(args: Namespace, defence: Defence, program: str) -> None:
    """Start the service, which takes reports until a signal ends it."""
    try:
        from trip_node.deployment.listening import serve
    except ImportError as error:
        raise InvalidSetting(
            f"--listen needs the package {error.name}: pip install '{program}[serve]'."
        ) from error
    unused = [name for name in ("reports", "out") if getattr(args, name) is not None]
    if unused or args.strict or args.missing != "refuse":
        raise InvalidSetting(
            "--listen takes no table, --out, --strict or --missing: reports come over the network, "
            "and results go there."
        )
    if args.state is None or args.keys is None:
        raise InvalidSetting("--listen needs --state DIR and --keys FILE.")
    ed25519()
    about = args.deadline, args.host or (), replay_of(args)
    serve(args.listen, args.state, args.keys, defence, *about)
