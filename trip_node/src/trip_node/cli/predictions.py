"""`trip-node coordinate --predictions`: contributions from what clients' models say."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from trip_node.attribution.predictions import Attribution, by_predictions
from trip_node.attribution.utilities import UTILITIES, Utility, utility_of
from trip_node.cli.receivers import plain, what_receivers_said
from trip_node.deployment.from_predictions import ReplaySettings
from trip_node.deployment.predictions_folder import SUFFIX, read_predictions
from trip_node.deployment.recorded import RecordedRun
from trip_node.deployment.result_tables import (
    DISPUTED,
    FILES,
    exchange_lines,
    objection_lines,
    phi_lines,
    refuse_other_files,
    score_lines,
    scores,
    write_tables,
)
from trip_node.deployment.scores import MOST, percent, shares
from trip_node.node.admission import Federation
from trip_node.node.predictions import MOST_EXAMPLES
from trip_node.settings import count, require
from trip_node.settings.declared import path_of
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.own_code import short_name
from trip_node.settings.plurals import counted

OPTIONS = ("labels", "utility", "budget", "receivers")
SERVED = True
"""The value of --predictions without a folder: the service takes records."""

OF_OTHERS = ("reports", "state", "deadline", "host", "c2", "strict")
UTILITY, BUDGET = "accuracy", 1024

UNITS = {"loss": "nats of test loss", "accuracy": "test accuracy"}


def of_predictions(parser: ArgumentParser) -> None:
    """Add the options of this way to compute contributions."""
    group = parser.add_argument_group(
        "records of predictions, in place of a table",
        "With --keys FILE records must be signed by its clients.",
    )
    folder = f"whose files *{SUFFIX} are clients' records; with --listen none: clients send them"
    add = group.add_argument
    add("--predictions", type=Path, metavar="FOLDER", nargs="?", const=SERVED, help=folder)
    labels = "labels of the test set: .npy, or text with a label a line"
    group.add_argument("--labels", type=Path, metavar="FILE", help=labels)
    named = f"{', '.join(UTILITIES)}, a mixture such as accuracy+margin (default {UTILITY}), or "
    named += "FILE.py:FUNCTION of logits [..., N, C] and labels [N]"
    group.add_argument("--utility", help=named)
    drawn = f"coalitions that are replayed; drawn where there are more (default {BUDGET})"
    group.add_argument("--budget", type=int, metavar="K", help=drawn)
    heard = "hold claims against what receivers of models testify, where records have it (default)"
    heard += ", or ignore it"
    group.add_argument("--receivers", choices=("check", "ignore"), help=heard)


def refuse_without_folder(args: Namespace) -> None:
    """Refuse these options where no folder is given.

    Raises:
        InvalidSetting: one is there.
    """
    for name in OPTIONS:
        require(
            getattr(args, name) is None,
            f"--{name} is of records of predictions: add --predictions FOLDER or remove it.",
        )


def is_served(args: Namespace) -> bool:
    """Whether a service is to take records."""
    return args.predictions is SERVED and args.listen is not None


def replay_of(args: Namespace) -> ReplaySettings | None:
    """How the service replays records; None where it takes reports.

    Raises:
        InvalidSetting: options that do not go together, or labels that can't be.
        OSError: the labels can't be read.
    """
    if not is_served(args):
        refuse_without_folder(args)
        return None
    require(not args.c2, "--c2 replaces reports, and the service takes records: remove it.")
    require(args.labels is not None, "--listen with --predictions needs --labels FILE.")
    utility = short_name(args.utility or UTILITY)
    how, unit = _how(args), UNITS.get(utility, utility)
    return ReplaySettings(read_labels(args.labels), *how, unit, _checks(args))


def _how(args: Namespace) -> tuple[Utility, int]:
    """The utility of predictions, and how many coalitions are replayed."""
    utility = utility_of(UTILITY if args.utility is None else args.utility)
    budget = BUDGET if args.budget is None else args.budget
    count("--budget", budget, 1)
    return utility, budget


def _checks(args: Namespace) -> bool:
    """Whether claims are held against testimonies."""
    return args.receivers != "ignore"


def from_predictions(args: Namespace) -> str:
    """Read, compute and write; returns what was written, and who contributed most.

    Raises:
        InvalidSetting: options that do not go together, records or labels that can't be.
        OSError: a file can't be read or written.
    """
    require(
        args.listen is None,
        f"--listen takes records from clients, not from the folder {args.predictions}: give "
        "--predictions without it, or remove --listen.",
    )
    for name in OF_OTHERS:
        require(
            getattr(args, name) in (None, False),
            f"{'A table of reports' if name == 'reports' else f'--{name}'} is of another way to "
            "compute contributions than --predictions: remove one of the two.",
        )
    require(
        args.predictions is not SERVED,
        "Give --predictions FOLDER, or --listen HOST:PORT --predictions where clients send them.",
    )
    require(
        args.labels is not None and args.out is not None,
        "--predictions needs --labels FILE and --out DIR.",
    )
    utility, budget = _how(args)
    out = path_of("--out", args.out)
    refuse_other_files(out)
    federation = None if args.keys is None else Federation.read(args.keys)
    labels = read_labels(args.labels)
    run = read_predictions(
        args.predictions, federation=federation, missing=args.missing, check=_checks(args)
    )
    require(
        len(labels) == run.test_set,
        f"{args.labels} has {counted(len(labels), 'label')}, but records tell of a test set of "
        f"{counted(run.test_set, 'example')}: give the labels of all of it.",
    )
    found = by_predictions(run.recorded, labels[run.places], utility, budget=budget)
    _write(out, found, run)
    return _described(out, found, run, short_name(args.utility or UTILITY), budget)


def read_labels(path: Path) -> np.ndarray:
    """The labels [N] in a file: integers in .npy, or as text with one in each line.

    Raises:
        InvalidSetting: it holds something else.
        OSError: it can't be read.
    """
    mend = "give a label of the test set a line, or one axis of integers as .npy"
    most = 32 * MOST_EXAMPLES
    require(
        path.is_file() and path.stat().st_size <= most,
        f"--labels {path} is no file of up to {most:,} bytes: {mend}.",
    )
    try:
        if path.suffix == ".npy":
            labels = np.array(np.lib.format.open_memmap(path, mode="r"))
        else:
            labels = np.array([int(line) for line in path.read_text("utf-8-sig").split()])
    except (ValueError, EOFError, OverflowError) as error:
        raise InvalidSetting(f"--labels {path} holds no labels ({error}): {mend}.") from error
    require(
        labels.dtype.kind in "iu" and labels.ndim == 1,
        f"--labels {path} holds {labels.dtype} of shape {labels.shape}: {mend}.",
    )
    return labels


def _write(out: Path, found: Attribution, run: RecordedRun) -> None:
    """phi.csv, scores.csv and flagged.csv; disputed.csv where something is, or where it was."""
    texts = (
        phi_lines(found.phi, run.names, found.phi_error),
        [score_lines(found.phi, run.names, found.score_error)],
        [objection_lines(run.checked)],
    )
    tables: dict[str, Iterable[str]] = dict(zip(FILES, texts, strict=True))
    if run.disputed or (out / DISPUTED).exists():
        tables[DISPUTED] = [exchange_lines(run.disputed)]
    write_tables(out, tables)


def _described(out: Path, found: Attribution, run: RecordedRun, utility: str, budget: int) -> str:
    values = scores(found.phi)
    share, highest = shares(values), np.argsort(-values, kind="stable")[:MOST]

    def one(i: int) -> str:
        name = plain(run.names[i])
        error = "" if found.score_error is None else f" ± {found.score_error[i]:.2g}"
        return f"{name} {values[i]:.4g}{error} ({percent(share[i])})"

    clients, rounds = counted(len(values), "client"), counted(len(run.rounds), "round")
    replayed = "all coalitions" if found.phi_error is None else f"{budget:,} drawn coalitions"
    return (
        f"phi.csv, scores.csv and flagged.csv of {clients} over {rounds} in {out}; {replayed} "
        f"replayed on {counted(len(run.places), 'example')}\n"
        f"{''.join(what_receivers_said(run))}"
        "A score is what a client contributed to all clients' models on average, in "
        f"{UNITS.get(utility, utility)}.\n"
        f"highest scores, with their share of all: {', '.join(map(one, highest))}"
    )
