"""The coordinator by itself, for deployments that collect reports without the simulator.

    python -m trip_jax.coordinate reports.csv --out DIR [--c2]

The table of reports (CSV or Parquet) has the columns round, client, member, weight and lcv: one
line for each member of each reporter's neighbourhood, the client itself included. In Python:

    reported = read_reports(read_table(path))
    phi, verdict = coordinator.trace(reported.reports, len(reported.names), defence)
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from jax import Array

from trip_jax.cli.command import Parser, command
from trip_jax.cli.report_table import FEWER, LAYOUT, Reported, read_reports, read_table
from trip_jax.config import Defence
from trip_jax.errors import InvalidSetting
from trip_jax.learning.devices import all_devices
from trip_jax.learning.room import require_room
from trip_jax.protocol.coordinator import LARGEST, trace
from trip_jax.protocol.reports import Verdict
from trip_jax.runs.scores import MOST, percent, shares
from trip_jax.settings.declared import path_of
from trip_jax.settings.plurals import counted

FILES = ("phi.csv", "scores.csv", "flagged.csv")
LINES_AT_ONCE = 2**20  # of phi.csv that are in memory as text


def write(out: Path, phi: Array, verdict: Verdict, reported: Reported) -> None:
    """Make the directory `out` with phi.csv, scores.csv (phi [n, n]) and flagged.csv.

    No file takes its name before all are complete; what fails leaves nothing behind.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=out) as unfinished:
            _write_all(Path(unfinished), np.asarray(phi), verdict, reported)
            for file in FILES:
                Path(unfinished, file).replace(out / file)
    except BaseException:
        with suppress(OSError):  # unless something is there by now
            for folder in made:
                folder.rmdir()
        raise


def _write_all(folder: Path, phi: np.ndarray, verdict: Verdict, reported: Reported) -> None:
    of_phi, of_scores, of_flagged = (folder / file for file in FILES)
    name, n = np.array(reported.names, dtype=object), len(reported.names)
    at_once = max(1, LINES_AT_ONCE // n)
    with of_phi.open("w", newline="", encoding="utf-8") as file:
        for first in range(0, n, at_once):
            rows = phi[first : first + at_once]
            pairs = {
                "client": name[first : first + at_once].repeat(n),
                "contributor": np.tile(name, len(rows)),
                "contribution": _decimals(rows),
            }
            pd.DataFrame(pairs).to_csv(file, index=False, header=not first)
    values = scores(phi)
    about = {"client": name, "score": _decimals(values), "share": _decimals(shares(values))}
    pd.DataFrame(about).to_csv(of_scores, index=False)
    t, i = np.nonzero(verdict.flagged)
    distance = np.where(_left_out(reported, n), np.nan, verdict.distance)[t, i]
    flagged = {"round": np.array(reported.rounds)[t], "client": name[i]}
    flagged |= {"distance": _decimals(distance)}
    pd.DataFrame(flagged).to_csv(of_flagged, index=False)


def _left_out(reported: Reported, n: int) -> np.ndarray:
    """Whose reports [T, n] hold what is no number, so that they have no distance."""
    left_out = np.zeros((len(reported.rounds), n), bool)
    t, a = np.nonzero(np.isnan(reported.reports.lcv))
    left_out[t, np.asarray(reported.reports.client)[t, a]] = True
    return left_out


def scores(phi: Array | np.ndarray) -> np.ndarray:
    """What each client contributed to all clients' models on average, [n]."""
    return np.asarray(phi).mean(axis=0, dtype=float)


def _decimals(values: Any) -> np.ndarray:
    """The shortest decimals that are these numbers in float32; empty where there is none."""
    numbers = np.ravel(np.asarray(values, np.float32))
    return np.where(np.isnan(numbers), "", numbers.astype(str))


def describe(out: Path, phi: Array, verdict: Verdict, reported: Reported, c2: bool) -> str:
    """What was written, and who contributed most."""
    values = scores(phi)
    share, highest = shares(values), np.argsort(-values, kind="stable")[:MOST]
    listed = (f"{_plain(reported.names[i])} {values[i]:.4g} ({percent(share[i])})" for i in highest)
    flagged = counted(int(np.sum(verdict.flagged)), "report")
    clients, rounds = counted(len(values), "client"), counted(len(reported.rounds), "round")
    left_out = ", ".join(reported.left_out)
    if left_out:
        left_out = f"left out, as no number or beyond {LARGEST:.0e}: {left_out}\n"
    return (
        f"phi.csv, scores.csv and flagged.csv of {clients} over {rounds} in {out}"
        f"{f'; {flagged} flagged' * (c2 or bool(left_out))}\n"
        f"{left_out}"
        "A score is what a client contributed to all clients' models on average, in the unit of "
        f"lcv.\nhighest scores, with their share of all: {', '.join(listed)}"
    )


def _plain(name: str) -> str:
    return name if name.isprintable() else repr(name)


@command
def main(argv: Sequence[str] | None = None) -> None:
    """The command line; exit code 2 where the input is wrong."""
    parser = Parser("trip-jax coordinate")
    parser.add_argument("reports", type=Path, help=f".csv or .parquet: {LAYOUT}")
    parser.add_argument("--out", required=True, help="directory of the results")
    zero = "refuse a missing report (default), or take an LCV of 0 with self weight 1"
    parser.add_argument("--missing", choices=("refuse", "zero"), default="refuse", help=zero)
    strict = f"refuse a contribution that is no number or beyond {LARGEST:.0e} (default: the "
    strict += "report counts as zero and is flagged)"
    parser.add_argument("--strict", action="store_true", help=strict)
    parser.add_argument("--c2", action="store_true", help="detect and replace outlying reports")
    calibrated = "default: calibrated for accuracy with Eq. 4 as printed"
    parser.add_argument("--penalty", type=float, help=f"lambda of C2 ({calibrated})")
    parser.add_argument("--distance", type=float, help=f"L2 threshold of C2 ({calibrated})")
    parser.add_argument("--thresholding", help=f"soft or hard (default {Defence.thresholding})")
    args = parser.parse_args(argv)
    settings = {name: getattr(args, name) for name in ("penalty", "distance", "thresholding")}
    chosen = {name: value for name, value in settings.items() if value is not None}
    if chosen and not args.c2:
        raise InvalidSetting(f"--{min(chosen)} is a setting of --c2; add --c2 or remove it.")
    out = path_of("--out", args.out)
    all_devices()
    defence = Defence(c2=args.c2, **chosen)
    try:
        table = read_table(args.reports)
        reported = read_reports(table, missing=args.missing, strict=args.strict)
        n = len(reported.names)
        require_room(2 * 4 * n * n, f"phi of {n:,} clients is too large; {FEWER}")  # last and next
    except InvalidSetting as error:
        raise InvalidSetting(f"{args.reports}: {error}") from error
    phi, verdict = trace(reported.reports, n, defence)
    write(out, phi, verdict, reported)
    print(describe(out, phi, verdict, reported, args.c2))
