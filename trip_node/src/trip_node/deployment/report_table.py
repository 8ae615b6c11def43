"""Tables of reports as a deployment collects them, read into the coordinator's form.

Whatever a table holds, it is read, or refused in one sentence that names the lines.
"""

import os
import re
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow.parquet

from trip_jax.deployment.csv_form import form_of, without_decimal_commas
from trip_jax.deployment.exchanges import stated_by_one, without
from trip_jax.node.names import nfc
from trip_jax.protocol.coordinator import LARGEST
from trip_jax.protocol.reports import Reports
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import order_of
from trip_jax.settings.room import require_room

COLUMNS = ("round", "client", "member", "weight", "lcv")
SENT = "sent"  # a column that a table may have
NUMBERS = ("round", "weight", "lcv")
SUFFIXES = (".csv", ".tsv", ".parquet")
KINDS = ".csv, .tsv or .parquet"
MOST_FOUND = 10  # columns that a message lists
LAYOUT = f"one line for each member of each neighbourhood, in columns {', '.join(COLUMNS)}"
BYTES_A_CELL = 80  # of a string that a cell of a table becomes, at the least
BYTES_AN_ARC = 17  # in `Reports`
FEWER = "give a table of fewer clients or rounds, or a machine with more memory"


def read_table(path: Path) -> pd.DataFrame:
    """The table in a file whose name ends in one of `SUFFIXES`.

    Its index holds the line (row) numbers for messages.
    The header of a CSV file is line 1, the first row of a Parquet file row 1; whatever a CSV file
    holds stays a string. Its encoding and separator are those that `form_of` finds. Raises
    InvalidSetting for a file that can't be read as a table.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidSetting(f"the name of the table must end in {KINDS}.")
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe may never end
        raise InvalidSetting(f"it is no file; give a {suffix} file: {LAYOUT}.")
    try:
        return _read_parquet(path) if suffix == ".parquet" else _read_csv(path)
    except InvalidSetting:
        raise
    except (OSError, ValueError, TypeError, KeyError, pyarrow.ArrowException) as error:
        if isinstance(error, UnicodeError):
            error = ValueError("it is neither UTF-8 nor UTF-16 with its mark: save it as UTF-8")
        cause = getattr(error, "strerror", None) or str(error).split("C error: ")[-1]
        # Rows count from 0 in this one message of pandas, so row k starts after line k.
        cause = " ".join(cause.replace("starting at row", "that starts after line").split())
        raise InvalidSetting(f"cannot be read ({cause}); give a {suffix} file: {LAYOUT}.") from None


def _read_csv(path: Path) -> pd.DataFrame:
    require_room(10 * path.stat().st_size, FEWER)  # cells are short
    how = form_of(path)
    # Read as one more row, the header sets the width of the others, and rows count lines.
    rows = pd.read_csv(
        path,
        header=None,
        dtype=str,
        keep_default_na=False,
        skip_blank_lines=False,
        encoding=how.encoding,
        sep=how.separator,
        skiprows=how.skipped,
    )
    breaks = sum(rows[column].str.count("\n") for column in rows)
    rows.index = pd.Index(
        1 + how.skipped + np.arange(len(rows)) + breaks.cumsum() - breaks, name="line"
    )
    frame = rows.iloc[1:].set_axis(rows.iloc[0].tolist(), axis="columns")
    frame = frame[(frame != "").any(axis="columns")]
    return frame if how.separator == "," else without_decimal_commas(frame, NUMBERS)


def _read_parquet(path: Path) -> pd.DataFrame:
    with pyarrow.parquet.ParquetFile(path) as file:
        require_room(BYTES_A_CELL * len(COLUMNS) * file.metadata.num_rows, FEWER)
        table = file.read([name for name in (*COLUMNS, SENT) if name in file.schema_arrow.names])
    # Integer names next to a null would otherwise turn into floating-point numbers.
    frame = table.to_pandas(ignore_metadata=True, integer_object_nulls=True)
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name="row"), axis="index")


@dataclass(frozen=True)
class Reported:
    """A table of reports in the coordinator's form."""

    reports: Reports  # fields [T, A]
    names: list[str]  # of the n clients: integers by value, then strings
    rounds: list[int]  # their T numbers
    left_out: list[str]  # reports that count as zero, as they hold no number or an absurd one
    # [k, 4] as `stated_by_one` gives it, with numbers of rounds for t; None without a column `sent`
    disputed: np.ndarray | None = None


def read_reports(frame: pd.DataFrame, *, missing: str = "refuse", strict: bool = False) -> Reported:
    """The reports of T rounds in the coordinator's form, whatever the order of the lines.

    Raises InvalidSetting, naming the lines, where the table is wrong.

    Args:
        frame: has the columns of COLUMNS; messages call its lines by the index. With a column
            `sent` (1 where the client sent its model to the member, else 0) an exchange counts
            where both ends state it; a line without weight and lcv then is of a client that was
            sent the model, but is no member.
        missing: "refuse" a round that lacks a reporter, or take its report as "zero": an LCV of 0
            with self weight 1. A round without any report then changes nothing and is left out.
        strict: refuse a report with a contribution that is NaN or beyond `LARGEST`, which otherwise
            counts as zero: it is NaN in what is returned, and the coordinator flags it.
    """
    both_ends = SENT in frame.columns
    for name in (*COLUMNS, SENT) if both_ends else COLUMNS:
        if list(frame.columns).count(name) != 1:
            found = ", ".join(repr(str(one)) for one in list(frame.columns)[:MOST_FOUND])
            more = ", ..." * (len(frame.columns) > MOST_FOUND)
            raise InvalidSetting(
                f"there must be one column {name}, but the columns are {found}{more}; write "
                f"{LAYOUT}."
            )
    if frame.empty:
        raise InvalidSetting(f"the table is empty; write {LAYOUT}.")
    reporter, about = _names(frame, "client"), _names(frame, "member")
    names = sorted(reporter.unique(), key=order_of)
    n = len(names)
    client, member = (pd.Index(names).get_indexer(column) for column in (reporter, about))
    _refuse(frame, "member", member < 0, "is an unknown client; add its reports or remove it")
    number = _rounds(frame)
    weight, lcv = _numbers(frame["weight"]), _numbers(frame["lcv"])
    empty = _empty(frame["weight"]) & _empty(frame["lcv"]) if both_ends else False
    mixed = ~np.broadcast_to(empty, len(frame))
    wrong = mixed & ~((weight >= 0) & (weight < np.inf))
    _refuse(frame, "weight", wrong, "must be a number from 0 up")
    words = np.isnan(lcv) & frame["lcv"].notna() & ~_texts(frame["lcv"]).str.fullmatch(NAN)
    _refuse(frame, "lcv", words.to_numpy(), "must be a number")
    garbage = mixed & ~(abs(lcv) <= LARGEST)
    if strict:
        _refuse(frame, "lcv", garbage, f"must be a number up to {LARGEST:.0e}; --strict is on")

    rounds, t = np.unique(number, return_inverse=True)
    columns = {"t": t, "client": client, "member": member, "weight": weight, "mixed": mixed}
    columns["lcv"] = np.where(garbage, np.nan, lcv)
    columns["sent"] = _flags(frame) if both_ends else mixed
    cell = ["t", "client", "member"]
    arcs = pd.DataFrame(columns, index=frame.index).sort_values(cell)

    def report_of(t: int, i: int, which: pd.Series) -> str:
        lines = arcs.index[which & (arcs["t"] == t) & (arcs["client"] == i)]
        return f"client {names[i]!r} in round {rounds[t]} ({_at(lines)})"

    def refuse_report(bad: pd.Series, complaint: str) -> None:
        for t, i in arcs.loc[bad.to_numpy(), ["t", "client"]].to_numpy()[:1]:
            whose = report_of(t, i, bad)
            raise InvalidSetting(f"the neighbourhood of {whose} {complaint}.")

    twice = arcs.duplicated(cell, keep=False)
    clash = twice & ~arcs.duplicated([*cell, "weight"], keep=False)
    refuse_report(clash, "has duplicate lines of a member whose weights disagree; keep one")
    refuse_report(twice, "has duplicate lines of a member; keep one")
    own = arcs["mixed"] & (arcs["client"] == arcs["member"])
    by_report = arcs.assign(own=own).groupby(["t", "client"])
    refuse_report(~by_report["own"].transform("any"), "lacks the client's own line; add it")
    all_zero = by_report["weight"].transform("max") == 0
    refuse_report(all_zero, "has weights that are all zero; raise at least one")
    disputed = stated_by_one(arcs, n) if both_ends else None
    if disputed is not None:
        arcs = without(arcs[arcs["mixed"]], disputed, n)
        disputed[:, 0] = rounds[disputed[:, 0]]
    # Eq. 3 takes proportions, which float32 holds at any scale.
    arcs["weight"] /= arcs.groupby(["t", "client"])["weight"].transform("max")
    foul = arcs["lcv"].isna()
    fouled = arcs.loc[foul, ["t", "client"]].drop_duplicates().to_numpy()
    left_out = [report_of(t, i, foul) for t, i in fouled[:SHOWN]]
    left_out += ["..."] * (len(fouled) > SHOWN)

    told = np.unique(t.astype(np.int64) * n + client)  # reports, by round and client
    if len(told) < len(rounds) * n or (np.diff(rounds) > 1).any():
        if missing == "refuse":
            _refuse_missing(rounds, names, told)
        require_room(3 * BYTES_A_CELL * len(rounds) * n, FEWER)
        t, i = np.divmod(np.setdiff1d(np.arange(len(rounds) * n), told), n)
        zero = pd.DataFrame({"t": t, "client": i, "member": i, "weight": 1.0, "lcv": 0.0})
        arcs = pd.concat([arcs, zero])
    arcs["real"] = True
    t, a = arcs["t"].to_numpy(), arcs.groupby("t").cumcount().to_numpy()
    require_room(2 * BYTES_AN_ARC * len(rounds) * (int(a.max()) + 1), FEWER)
    dtypes = {"client": "i4", "member": "i4", "weight": "f4", "lcv": "f4", "real": "?"}
    fields = {}
    for name, dtype in dtypes.items():
        padded = np.zeros((len(rounds), a.max() + 1), dtype)
        padded[t, a] = arcs[name]
        fields[name] = jnp.asarray(padded)
    return Reported(Reports(**fields), names, rounds.tolist(), left_out, disputed)


SHOWN = 5  # lines, and reports, that a message names
NAN = r"\s*([+-]?[nN][aA][nN])?\s*"  # or nothing, as pandas writes it
FARTHEST = 2**62  # of rounds from 0, so that their distance is an int64


def _refuse_missing(rounds: np.ndarray, names: list[str], told: np.ndarray) -> None:
    """Name the first report that is not there."""
    n = len(names)
    gone = np.flatnonzero(told != np.arange(len(told)))
    t, i = divmod(int(gone[0]) if len(gone) else len(told), n)
    lacking = [(int(rounds[t]), names[i])] if t < len(rounds) else []
    lacking += [(int(rounds[t]) + 1, names[0]) for t in np.flatnonzero(np.diff(rounds) > 1)[:1]]
    number, name = min(lacking, key=lambda one: one[0])
    raise InvalidSetting(
        f"round {number} lacks the report of client {name!r}; add it, or take such reports as zero "
        "(--missing zero)."
    )


def _texts(column: pd.Series) -> pd.Series:
    return column.astype(object).map(str).astype("string")


def _empty(column: pd.Series) -> np.ndarray:
    """Which cells of a column are empty."""
    return (column.isna() | (_texts(column).str.strip() == "")).to_numpy(bool)


def _flags(frame: pd.DataFrame) -> np.ndarray:
    """The column `sent` as truth values; refuses all but 0 and 1."""
    column = frame[SENT]
    if pd.api.types.is_bool_dtype(column):
        return column.to_numpy(bool)
    numbers = _numbers(column)
    _refuse(frame, SENT, ~np.isin(numbers, (0, 1)), "must be 1 or 0")
    return np.asarray(numbers == 1)


def _numbers(column: pd.Series) -> np.ndarray:
    """As float64; NaN where there is none."""
    if not (pd.api.types.is_numeric_dtype(column) or column.dtype == object):
        column = _texts(column)  # dates would turn into numbers
    if pd.api.types.is_bool_dtype(column):
        return np.full(len(column), np.nan)
    if column.dtype == object or pd.api.types.is_complex_dtype(column):
        column = column.astype(object).map(_within_floats)
    found = pd.to_numeric(column, errors="coerce")
    return np.asarray(found.to_numpy(float, na_value=np.nan), float)


def _within_floats(value: Any) -> Any:
    """Infinity for an integer that no float can hold; NaN for a complex number."""
    if isinstance(value, complex | np.complexfloating):
        return np.nan
    if isinstance(value, int) and value.bit_length() > 1000:
        return np.copysign(np.inf, 1 if value > 0 else -1)
    return value


def _rounds(frame: pd.DataFrame) -> np.ndarray:
    """The numbers of rounds, int64; exact, which float64 is up to 2^53 alone."""
    code, texts = pd.factorize(_texts(frame["round"]))
    numbers = np.array([_integer(str(text)) for text in texts], np.int64)[code]
    bad = abs(numbers) >= FARTHEST
    _refuse(frame, "round", bad, "must be an integer between -2^62 and 2^62")
    return numbers


def _integer(text: str) -> int:
    """FARTHEST where it is none."""
    if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text):
        return max(-FARTHEST, min(int(text), FARTHEST))
    try:
        value = float(text)
    except ValueError:
        return FARTHEST
    return int(value) if value.is_integer() and abs(value) < 2**53 and "_" not in text else FARTHEST


def _names(frame: pd.DataFrame, column: str) -> pd.Series:
    names = frame[column].astype(object).map(_name)
    _refuse(frame, column, (names == "").to_numpy(), "must be a string or an integer")
    return names


def _name(value: Any) -> str:
    """In Unicode's form NFC; empty where it is no name."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return ""
    if isinstance(value, str):
        return str(nfc(value))
    return str(value) if isinstance(value, Integral) and not isinstance(value, bool) else ""


def _refuse(frame: pd.DataFrame, column: str, bad: np.ndarray, complaint: str) -> None:
    if bad.any():
        value = str(frame[column].to_numpy()[bad][0])
        shown = value if len(value) <= 100 else f"{value[:100]}..."
        raise InvalidSetting(f"{column} {shown!r} {complaint} ({_at(frame.index[bad])}).")


def _at(lines: pd.Index) -> str:
    """Which lines, five of them at most: "line 3", "lines 3, 7"."""
    shown = ", ".join(map(str, sorted(lines)[:SHOWN])) + ", ..." * (len(lines) > SHOWN)
    return f"{lines.name or 'row'}{'s' * (len(lines) > 1)} {shown}"
