"""Tables of reports as liars, other programs and damaged disks leave them."""

import datetime
import decimal
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trip_jax.deployment.result_tables
import trip_jax.settings.capacity
from tests.conftest import Outcome
from trip_jax.coordinate import main, read_reports
from trip_jax.settings.capacity import Capacity

COLUMNS = ["round", "client", "member", "weight", "lcv"]
ROWS = [
    (0, "a", "a", 1, 0.5),
    (0, "a", "b", 1, 0.25),
    (0, "b", "b", 1, 0.125),
    (1, "a", "a", 1, 0.5),
    (1, "b", "b", 1, 0.5),
    (1, "b", "a", 1, 0.5),
]
TABLE = pd.DataFrame(ROWS, columns=COLUMNS).astype(object)
Coordinate = Callable[..., Outcome]


@pytest.fixture
def coordinate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Coordinate:
    """The command on a table, or on a file, which it writes to out/put."""

    def run(table: pd.DataFrame | Path, *options: str) -> Outcome:
        path = table if isinstance(table, Path) else tmp_path / "reports.csv"
        if isinstance(table, pd.DataFrame):
            table.to_csv(path, index=False)
        code = main([str(path), "--out", str(tmp_path / "out" / "put"), *options])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "put"


def changed(row: int, column: str, value: Any) -> pd.DataFrame:
    table = TABLE.copy()
    table.loc[row, column] = value
    return table


def phi_of(out: Path) -> list[float]:
    return pd.read_csv(out / "phi.csv")["contribution"].tolist()


@pytest.mark.parametrize("value", ["nan", "-inf", "1e39", "2e38", "-2e15", " NaN", ""])
def test_a_report_of_garbage_is_left_out_flagged_and_told(
    coordinate: Coordinate, out: Path, value: str
) -> None:
    outcome = coordinate(changed(1, "lcv", value))
    assert (outcome.code, outcome.err) == (0, "")
    first, second, *_ = outcome.out.splitlines()
    assert first.endswith("; 1 report flagged")
    assert second == "left out, as no number or beyond 1e+15: client 'a' in round 0 (line 3)"
    assert (out / "flagged.csv").read_text() == "round,client,distance\n0,a,\n"
    # phi = [[0, 0], [0, 0.125]], then [[0.5, 0], [0.5, 0.5625]].
    assert phi_of(out) == [0.5, 0, 0.5, 0.5625]


def test_a_report_of_garbage_is_refused_if_asked_to(coordinate: Coordinate, out: Path) -> None:
    outcome = coordinate(changed(1, "lcv", "inf"), "--strict")
    assert outcome.code == 2 and "lcv 'inf' must be a number up to 1e+15" in outcome.error
    assert "line 3" in outcome.error and not out.parent.exists()
    assert coordinate(TABLE, "--strict").code == 0


def test_a_null_in_parquet_is_no_number(coordinate: Coordinate, tmp_path: Path) -> None:
    path = tmp_path / "reports.parquet"
    changed(4, "lcv", None).astype({"lcv": float, "weight": int, "round": int}).to_parquet(path)
    assert "client 'b' in round 1 (row 5)" in coordinate(path).out


def test_names_that_are_bytes_are_texts(coordinate: Coordinate, tmp_path: Path, out: Path) -> None:
    path = tmp_path / "reports.parquet"
    names = {name: [one.encode() for one in TABLE[name]] for name in ("client", "member")}
    others = {name: TABLE[name].tolist() for name in ("round", "weight", "lcv")}
    pq.write_table(pa.table(others | names), path)
    assert coordinate(path).code == 0
    assert pd.read_csv(out / "scores.csv")["client"].tolist() == ["a", "b"]
    names["client"][0] = b"\xff"
    pq.write_table(pa.table(others | names), path)
    assert "must be a string or an integer (row 1)" in coordinate(path).error


def test_rounds_are_integers_exactly() -> None:
    beyond = 2**53 + 1
    rounds = [beyond - 1] * 3 + [beyond] * 3
    for numbers in (rounds, list(map(str, rounds))):
        assert read_reports(TABLE.assign(round=numbers)).rounds == [beyond - 1, beyond]
    stamps = [1_790_000_000_000_000_000 + 10**9 * (number - beyond) for number in rounds]
    with pytest.raises(ValueError, match=r"round \d{18}1 lacks .*--missing zero"):
        read_reports(TABLE.assign(round=stamps))
    assert read_reports(TABLE.assign(round=stamps), missing="zero").rounds == sorted(set(stamps))


@pytest.mark.parametrize("column", ["round", "weight", "lcv"])
@pytest.mark.parametrize("value", [pd.Timestamp(0), datetime.date(2026, 1, 1), True, 2**70, [1.0]])
def test_dates_and_their_like_are_no_numbers(column: str, value: Any) -> None:
    table = TABLE.assign(**{column: [value] * 6})
    if value == 2**70 and column != "round":  # a number
        assert len(read_reports(table).left_out) == 4 * (column == "lcv")
        return
    with pytest.raises(ValueError, match=rf"{column} .* must be an? (integer|number)"):
        read_reports(table)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trip_jax.settings.capacity, "of_process", lambda: Capacity(2**20, "this machine")
    )


@pytest.mark.usefixtures("little_memory")
def test_a_table_of_too_many_clients_is_refused_with_the_number(coordinate: Coordinate) -> None:
    n = np.arange(600)
    table = pd.DataFrame({"round": 0, "client": n, "member": n, "weight": 1, "lcv": 0.5})
    assert "2.7 MiB are needed, and this machine allows 1.0 MiB: phi of 600" in (
        coordinate(table).error
    )
    rounds = table.assign(round=5 * n)  # a report a round: nearly all are missing
    assert "lacks the report of client '1'" in coordinate(rounds).error
    assert "Memory is not enough" in coordinate(rounds, "--missing", "zero").error


@pytest.mark.usefixtures("little_memory")
def test_a_file_that_swells_is_refused_unread(coordinate: Coordinate, tmp_path: Path) -> None:
    path = tmp_path / "reports.parquet"
    pq.write_table(pa.table({name: np.zeros(10**6, "i4") for name in COLUMNS}), path)
    assert path.stat().st_size < 2**20
    assert "Memory is not enough" in coordinate(path).error
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(2**40)  # of which the disk holds nothing
    assert "10,240.00 GiB are needed" in coordinate(tmp_path / "huge.csv").error


def test_phi_is_written_in_parts(
    coordinate: Coordinate, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinate(TABLE)
    whole = (out / "phi.csv").read_bytes()
    monkeypatch.setattr(trip_jax.deployment.result_tables, "LINES_AT_ONCE", 2)
    assert coordinate(TABLE).code == 0 and (out / "phi.csv").read_bytes() == whole


def test_a_full_disk_leaves_nothing_behind(
    coordinate: Coordinate, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "phi.csv")

    monkeypatch.setattr(trip_jax.deployment.result_tables, "_decimals", full)
    assert "No space left on device" in coordinate(TABLE).error
    assert not out.parent.exists()


WORDS = ["nan", "inf", "-inf", "1e39", "2e38", "", " ", "x", "0", "-0", "-1", "1e400", "1e-320"]
WORDS += ["9007199254740993", "1" * 400, "1_0", "٣", "0x10", "1,5", "None", "True", "2024-01-01"]
WORDS += ["\x00", "a\nb", '"', "'", "\ufeff", "\u202e", "\x1b[31m", "=1+1", "<script>", "b", "a "]
VALUES = [None, b"a", b"\xff", 1.5, float("nan"), 2**62, -(2**63), True, [1.0], {"x": 1}]
VALUES += [decimal.Decimal("0.1"), datetime.date(2026, 1, 1), pd.Timestamp(0), pd.Timedelta(1)]


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """The good one with a few things changed: cells, columns, lines."""
    table = TABLE.copy()
    for _ in range(draw(st.integers(1, 3))):
        column = draw(st.sampled_from(COLUMNS))
        value = draw(st.sampled_from(WORDS) | st.sampled_from(VALUES) | st.integers())
        row = draw(st.integers(0, len(table) - 1))
        what = draw(st.sampled_from(["cell"] * 6 + ["column", "drop", "double", "rename"]))
        if what in ("cell", "column") and list(table).count(column) == 1:
            chosen = [row] if what == "cell" else range(len(table))
            values = table[column].tolist()
            for i in chosen:
                values[i] = value
            table[column] = pd.Series(values, dtype=object)
        elif what == "drop" and len(table) > 1:
            table = table.drop(index=row).reset_index(drop=True)
        elif what == "double":
            table = pd.concat([table, table.loc[[row]]], ignore_index=True)
        elif what == "rename":
            table = table.rename(columns={column: draw(st.sampled_from(COLUMNS + WORDS))})
    return table


def require_one_outcome(outcome: Outcome, folder: Path) -> None:
    """A finished result, or one line and nothing left behind."""
    if outcome.code == 0:
        assert outcome.err == ""
        assert sorted(path.name for path in (folder / "put").iterdir()) == sorted(
            trip_jax.deployment.result_tables.FILES
        )
        assert np.isfinite(phi_of(folder / "put")).all()
    else:
        assert outcome.code == 2 and outcome.out == "" and outcome.error
        assert not folder.exists()


OPTIONS = st.lists(st.sampled_from(["--c2", "--strict", "--missing=zero"]), unique=True)
# What the fixture makes stays what it is from one example to the next.
fuzz = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def nothing_left(out: Path) -> Iterator[None]:
    yield
    shutil.rmtree(out.parent, ignore_errors=True)


@fuzz
@given(table=tables(), options=OPTIONS, parquet=st.booleans())
def test_any_table_is_read_or_refused(
    coordinate: Coordinate, tmp_path: Path, table: pd.DataFrame, options: list[str], parquet: bool
) -> None:
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    if parquet:
        path = tmp_path / "reports.parquet"
        try:
            columns = [pa.array(table.iloc[:, k].tolist()) for k in range(table.shape[1])]
        except (pa.ArrowException, OverflowError):  # of several types, which Parquet does not take
            return
        pq.write_table(pa.table(columns, names=[str(name) for name in table.columns]), path)
        outcome = coordinate(path, *options)
    else:
        outcome = coordinate(table, *options)
    require_one_outcome(outcome, tmp_path / "out")


@fuzz
@given(data=st.data(), suffix=st.sampled_from([".csv", ".parquet"]))
def test_any_file_is_read_or_refused(
    coordinate: Coordinate, tmp_path: Path, data: st.DataObject, suffix: str
) -> None:
    """A good file that is cut short and has bytes changed, or no file of the kind at all."""
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    path = tmp_path / f"reports{suffix}"
    good = TABLE.astype({"round": int, "weight": int, "lcv": float})
    good.to_csv(path, index=False) if suffix == ".csv" else good.to_parquet(path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(whole[: data.draw(st.just(None) | st.integers(0, len(whole)))])
    path.write_bytes(data.draw(st.just(content) | st.binary(max_size=200)))
    require_one_outcome(coordinate(path), tmp_path / "out")
