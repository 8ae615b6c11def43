"""Tables of reports without pandas: what is read, and what is refused with its lines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trip_node.deployment.report_table import read_reports, read_table
from trip_node.protocol.coordinator import trace
from trip_node.settings.errors import InvalidSetting

LINES = [
    "round,client,member,weight,lcv",
    "0,a,a,1,0.5",
    "0,a,b,1,0.25",
    "0,b,b,1,0.125",
    "1,a,a,1,0.5",
    "1,b,b,1,0.5",
    "1,b,a,1,0.5",
]
COLUMNS = dict(
    zip(
        LINES[0].split(","), zip(*(line.split(",") for line in LINES[1:]), strict=True), strict=True
    )
)
PHI = [[1, 0.25], [0.75, 0.6875]]  # [[0.5, 0.25], [0, 0.125]] after the first round


def phi_of(table: Any) -> np.ndarray:
    reported = read_reports(table)
    assert reported.names == ["a", "b"] and reported.rounds == [0, 1]
    return trace(reported.reports, 2)[0]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_files_of_many_programs_are_read(tmp_path: Path, separator: str, encoding: str) -> None:
    path = tmp_path / "reports.csv"
    text = "\r\n".join([*LINES[:3], "", *LINES[:0:-1][:4]]).replace(",", separator)
    if separator != ",":
        text = text.replace(".", ",")
    path.write_bytes(text.encode(encoding))
    table = read_table(path)
    assert table.lines.tolist() == [2, 3, 5, 6, 7, 8] and table.unit == "line"
    np.testing.assert_array_equal(phi_of(table), PHI)


@pytest.mark.parametrize("kind", [list, np.array, tuple])
def test_columns_by_name_are_a_table(kind: Any) -> None:
    numbers = {
        "round": [0, 0, 0, 1, 1, 1],
        "weight": [1.0] * 6,
        "lcv": [0.5, 0.25, 0.125, 0.5, 0.5, 0.5],
    }
    table = {name: kind(numbers.get(name, COLUMNS[name])) for name in COLUMNS}
    np.testing.assert_array_equal(phi_of(table), PHI)


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install trip-node[parquet]")
    from pyarrow import parquet

    path = tmp_path / "reports.parquet"
    parquet.write_table(pyarrow.table({name: list(cells) for name, cells in COLUMNS.items()}), path)
    table = read_table(path)
    assert table.lines.tolist() == [1, 2, 3, 4, 5, 6] and table.unit == "row"
    np.testing.assert_array_equal(phi_of(table), PHI)


@pytest.mark.parametrize(
    ("line", "new", "said"),
    [
        (3, "0,a,b,1", ""),
        (3, "0,a,b,x,1", r"^weight 'x' must be a number from 0 up \(line 3\)\.$"),
        (3, "0,a,b,1_0,1", r"^weight '1_0' must be a number from 0 up \(line 3\)\.$"),
        (3, "0,a,b,1,x", r"^lcv 'x' must be a number \(line 3\)\.$"),
        (3, "0.5,a,b,1,1", r"^round '0\.5' must be an integer between .* \(line 3\)\.$"),
        (3, "0,,b,1,1", r"^client '' must be a string or an integer \(line 3\)\.$"),
        (3, "0,a,c,1,1", r"^member 'c' is an unknown client.* \(line 3\)\.$"),
        (3, "0,a,a,2,1", r"client 'a' in round 0 \(lines 2, 3\) has duplicate .* disagree"),
        (2, "0,a,b,0,1", r"client 'a' in round 0 \(lines 2, 3\) has duplicate"),
        (
            4,
            "0,a,b,1,0.25",
            r"client 'a' in round 0 \(lines 3, 4\) has duplicate lines of a member;",
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: int, new: str, said: str) -> None:
    path = tmp_path / "reports.csv"
    path.write_text("\n".join([*LINES[: line - 1], new, *LINES[line:]]))
    if new == "0,a,b,1":  # a cell that is not there is empty, and so no number
        assert read_reports(read_table(path)).left_out == ["client 'a' in round 0 (line 3)"]
        return
    with pytest.raises(InvalidSetting, match=said):
        read_reports(read_table(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its first line is empty"),
        ("\n".join([*LINES, "1,b,a,1,0.5,9"]), r"expected 5 fields in line 8, saw 6"),
        ("\n".join([*LINES, '1,b,"a,1,0.5']), r"in the row that starts after line 7"),
        ("\n".join([*LINES, "1,b,\xfc,1,0.5"]), "neither UTF-8 nor UTF-16"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "reports.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidSetting, match=said):
        read_table(path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({name: COLUMNS[name] for name in ("round", "client")}, "must be one column member"),
        (COLUMNS | {"lcv": (1, 2)}, "must all have a cell for each row"),
        (dict.fromkeys(COLUMNS, ()), "the table is empty"),
        ([1, 2], r"a DataFrame or a mapping of columns, not \[1, 2\]"),
        (COLUMNS | {"weight": [10**400] * 6}, r"weight '10*\.\.\.' must be a number from 0 up"),
        (COLUMNS | {"lcv": [True] * 6}, "lcv 'True' must be a number"),
        (COLUMNS | {"weight": [1 + 2j] * 6}, r"weight '\(1\+2j\)' must be a number from 0 up"),
        (COLUMNS | {"round": [[1]] * 6}, r"round '\[1\]' must be an integer"),
    ],
)
def test_what_is_no_table_of_reports_is_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        read_reports(given)
