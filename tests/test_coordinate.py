"""The coordinator on tables of reports: its numbers against the oracle, and every refusal."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import reference as ref
from trip_jax.config import Defence
from trip_jax.coordinate import main, read_reports, read_table
from trip_jax.node.csv_lines import csv_lines
from trip_jax.protocol.coordinator import trace
from trip_jax.settings.errors import InvalidSetting

NAMES = ["2", "007", "10", "NA", "b, c"]
"""In the order of the outputs: integers by value, then strings; each as it is written."""
N, T = len(NAMES), 4
LIAR, LIE_ROUND = 3, 2
Rows = list[dict[str, Any]]


def reports(seed: int = 0, scale: float = 0.02) -> tuple[list[list[ref.Lcv]], list[list[ref.Lcv]]]:
    """LCVs and weights [T][N] of ragged random neighbourhoods; one report is a lie."""
    rng = np.random.default_rng(seed)
    lcvs, weights = [], []
    for t in range(T):
        # All report on the liar: of two reporters neither would stand out.
        members = [[i, LIAR, *rng.choice(N, 2)] for i in range(N)]
        weights.append([{int(j): float(rng.uniform(0.5, 3)) for j in row} for row in members])
        lcvs.append([{j: float(rng.normal(0.1, scale)) for j in row} for row in weights[t]])
        if t == LIE_ROUND:
            lcvs[t][LIAR][LIAR] += 1.0
    return lcvs, weights


def table(lcvs: list[list[ref.Lcv]], weights: list[list[ref.Lcv]]) -> pd.DataFrame:
    """Rounds are numbered from -1, since any integers will do."""
    rows: Rows = []
    for t, (values, shares) in enumerate(zip(lcvs, weights, strict=True)):
        for i in range(N):
            for j in shares[i]:
                numbers = {"weight": shares[i][j], "lcv": values[i][j]}
                rows.append({"round": t - 1, "client": NAMES[i], "member": NAMES[j]} | numbers)
    return pd.DataFrame(rows)


def oracle(lcvs: list[list[ref.Lcv]], weights: list[list[ref.Lcv]]) -> np.ndarray:
    phi = np.zeros((N, N))
    for values, shares in zip(lcvs, weights, strict=True):
        phi = ref.update_contributions(phi, values, shares)
    return phi


def outputs(out: Path) -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """phi [N, N], scores [N] and the flagged reports; checks names and their order."""
    pairs, scores, flagged = (
        pd.read_csv(out / f"{name}.csv", dtype={"client": str}, keep_default_na=False)
        for name in ("phi", "scores", "flagged")
    )
    assert list(pairs.columns) == ["client", "contributor", "contribution"]
    assert list(scores.columns) == ["client", "score", "share"]
    assert list(flagged.columns) == ["round", "client", "distance"]
    assert list(pairs["client"]) == [i for i in NAMES for _ in NAMES]
    assert list(pairs["contributor"]) == NAMES * N
    assert list(scores["client"]) == NAMES
    assert sorted(path.name for path in out.iterdir()) == ["flagged.csv", "phi.csv", "scores.csv"]
    phi = pairs["contribution"].to_numpy().reshape(N, N)
    return phi, scores["score"].to_numpy(), flagged


def test_contributions_and_scores_follow_the_oracle(tmp_path: Path) -> None:
    lcvs, weights = reports()
    table(lcvs, weights).to_csv(tmp_path / "reports.csv", index=False)
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path / "new" / "out")]) == 0
    phi, scores, flagged = outputs(tmp_path / "new" / "out")
    expected = oracle(lcvs, weights)
    np.testing.assert_allclose(phi, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, expected.mean(axis=0), rtol=1e-5)
    assert flagged.empty


@pytest.mark.parametrize("thresholding", ["soft", "hard"])
@pytest.mark.parametrize(("penalty", "distance"), [(None, None), (0.02, 0.03)])
def test_c2_flags_and_replaces_as_the_oracle_does(
    tmp_path: Path, thresholding: Any, penalty: float | None, distance: float | None
) -> None:
    lcvs, weights = reports()
    table(lcvs, weights).to_csv(tmp_path / "reports.csv", index=False)
    options = ["--c2", "--thresholding", thresholding]
    if penalty is not None:
        options += ["--penalty", str(penalty), "--distance", str(distance)]
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path), *options]) == 0
    (tmp_path / "reports.csv").unlink()
    phi, _, flagged = outputs(tmp_path)

    calibrated = Defence(penalty=penalty, distance=distance).calibrated()
    lam, limit = calibrated.penalty, calibrated.distance
    assert lam is not None and limit is not None
    adopted: list[list[ref.Lcv]] = []
    expected: dict[tuple[int, str], float] = {}
    for t, values in enumerate(lcvs):
        kept, flags, distances = ref.detect_outliers(values, lam, limit, thresholding)
        adopted.append(kept)
        expected |= {(t - 1, NAMES[i]): distances[i] for i in range(N) if flags[i]}
    assert (LIE_ROUND - 1, NAMES[LIAR]) in expected
    assert len(expected) == 1 if penalty is None else len(expected) > 1
    found = dict(
        zip(zip(flagged["round"], flagged["client"], strict=True), flagged["distance"], strict=True)
    )
    assert found == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(phi, oracle(adopted, weights), rtol=1e-4, atol=1e-5)
    assert np.abs(phi - oracle(lcvs, weights)).max() > 0.05


def test_neither_format_nor_order_nor_scale_of_weights_matters(tmp_path: Path) -> None:
    frame = table(*reports())
    shuffled = frame.sample(frac=1, random_state=0)
    # Far outside float32, which must not turn into zeros or infinities.
    rescaled = frame.assign(weight=frame["weight"] * np.where(frame["round"] < 1, 1e-200, 1e200))
    written = []
    for name, one in (("plain", frame), ("shuffled", shuffled), ("rescaled", rescaled)):
        one.to_csv(tmp_path / f"{name}.csv", index=False)
        one.to_parquet(tmp_path / f"{name}.parquet", index=False)
        for suffix in (".csv", ".parquet"):
            out = tmp_path / (name + suffix[1:])
            assert main([str(tmp_path / name) + suffix, "--out", str(out), "--c2"]) == 0
            phi, _, flagged = outputs(out)
            written.append((phi, flagged.to_csv()))
    for phi, flagged_csv in written[1:]:
        np.testing.assert_allclose(phi, written[0][0], rtol=1e-6)
        assert flagged_csv == written[0][1]
    for phi, _ in written[:4]:
        np.testing.assert_array_equal(phi, written[0][0])


def test_integer_names_in_a_table_of_the_users_own() -> None:
    """Client 10 sorts after 2, and a table without line numbers serves as it is."""
    rows = [(5, 10, 10, 1.0, 0.5), (5, 2, 10, 3.0, 0.25), (5, 2, 2, 1.0, 0.125)]
    frame = pd.DataFrame(rows, columns=["round", "client", "member", "weight", "lcv"])
    found = read_reports(frame)
    assert found.names == ["2", "10"] and found.rounds == [5]
    phi, _ = trace(found.reports, 2)
    np.testing.assert_array_equal(phi, [[0.125, 0.25], [0, 0.5]])


def test_a_missing_report_taken_as_zero(tmp_path: Path) -> None:
    lcvs, weights = reports()
    frame = table(lcvs, weights)
    absent = (frame["round"] == 0) & (frame["client"] == NAMES[1])
    skipped = frame["round"] == 1  # a whole round without any report
    frame[~absent & ~skipped].to_csv(tmp_path / "reports.csv", index=False)
    options = ["--out", str(tmp_path / "out"), "--missing", "zero"]
    assert main([str(tmp_path / "reports.csv"), *options]) == 0
    phi, _, _ = outputs(tmp_path / "out")

    lcvs[1][1], weights[1][1] = {1: 0.0}, {1: 1.0}
    lcvs[2], weights[2] = [{i: 0.0} for i in range(N)], [{i: 1.0} for i in range(N)]
    np.testing.assert_allclose(phi, oracle(lcvs, weights), rtol=1e-5, atol=1e-6)


LINES = [
    "round,client,member,weight,lcv",
    "0,a,a,1,0.5",
    "0,a,b,1,0.25",
    "0,b,b,1,0.125",
    "1,a,a,1,0.5",
    "1,b,b,1,0.5",
    "1,b,a,1,0.5",
]


def change(line: int, *new: str) -> list[str]:
    """The good table with other lines in place of one."""
    return [*LINES[: line - 1], *new, *LINES[line:]]


REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "no file": ([], ["No such file", ".csv"]),
    "empty file": ([""], ["its first line is empty", "round, client, member, weight, lcv"]),
    "header only": (LINES[:1], ["empty", "one line for each member"]),
    "missing column": (
        [line.rsplit(",", 1)[0] for line in LINES],
        ["one column lcv", "columns are 'round', 'client', 'member', 'weight'; write"],
    ),
    "blanks in the header": ([LINES[0].replace(",", ", "), *LINES[1:]], ["are 'round', ' client'"]),
    "many columns": ([",".join(f"c{k}" for k in range(20))] * 2, ["'c9', ...; write"]),
    "points beside commas": (
        [*[line.replace(",", ";") for line in LINES[:2]], "0;a;a;1,5;0.25"],
        ["weight '1,5' must be a number", "line 3"],
    ),
    "thousands": ([LINES[0].replace(",", ";"), "0;a;a;1,000;1"], ["'1,000'"]),
    "doubled column": (
        ["round," + LINES[0], *(f"0,{line}" for line in LINES[1:])],
        ["one column round"],
    ),
    "long line": (change(3, "0,a,b,1,0.25,9"), ["line 3", "saw 6"]),
    "open quote": (change(4, '0,b,"b,1,0.125'), ["after line 3"]),
    "word for lcv": (change(3, "0,a,b,1,x"), ["lcv 'x'", "line 3"]),
    "word for weight": (change(3, "0,a,b,x,1"), ["weight 'x'", "line 3"]),
    "infinite weight": (change(4, "0,b,b,inf,1"), ["weight 'inf'", "line 4"]),
    "nan weight": (change(4, "0,b,b,nan,1"), ["weight 'nan'", "line 4"]),
    "negative weight": (change(4, "0,b,b,-1,1"), ["weight '-1'", "from 0 up", "line 4"]),
    "zero weights": (change(6, "1,b,b,0,1")[:6], ["client 'b' in round 1 (line 6)", "all zero"]),
    "own line missing": (change(2), ["client 'a' in round 0 (line 2)", "own line"]),
    "unknown client": (change(3, "0,a,c,1,1"), ["'c' is an unknown client", "line 3"]),
    "no name": (change(3, "0,,b,1,1"), ["client ''", "line 3"]),
    "duplicate": (change(3, LINES[2], LINES[2]), ["duplicate", "lines 3, 4"]),
    "two with duplicates": (
        [LINES[0], *(line for line in LINES[1:4] for _ in range(2))],
        ["client 'a' in round 0 (lines 2, 3, 4, 5)"],
    ),
    "weights disagree": (change(3, LINES[2], "0,a,b,2,0.25"), ["disagree", "lines 3, 4"]),
    "fractional round": (change(3, "0.5,a,b,1,1"), ["round '0.5'", "integer", "line 3"]),
    "infinite round": (change(3, "inf,a,b,1,1"), ["round 'inf'", "integer", "line 3"]),
    "missing report": (change(4), ["round 0", "client 'b'", "--missing zero"]),
    "missing round": (
        [LINES[0], "3,a,a,1,1", "3,b,b,1,1", "5,a,a,1,1"],
        ["round 4", "client 'a'", "--missing zero"],
    ),
    "blank lines count": (change(3, "", ",,,,", "0,a,b,1,x"), ["line 5"]),
    "line breaks count": (
        ["note," + LINES[0], '"a\nb",0,a,a,1,1', ",0,a,a,x,1", ",0,b,b,1,1"],
        ["weight 'x'", "line 4"],
    ),
    "many lines": ([LINES[0], *["0,a,a,x,1"] * 6], ["lines 2, 3, 4, 5, 6, ..."]),
}


def refusal(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line that the command leaves on stderr."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    lines, words = REFUSED[case]
    path = tmp_path / "reports.csv"
    if lines:
        path.write_text("\n".join(lines) if lines != [""] else "")
    message = refusal(capsys, [str(path), "--out", str(tmp_path / "out")])
    assert message.startswith(f"error: {path}: ")
    assert [word for word in words if word not in message] == []
    assert not (tmp_path / "out").exists()


FORMS: dict[str, tuple[str, str, str]] = {
    "semicolons": (";", "", "utf-8"),
    "tabs": ("\t", "", "utf-8"),
    "separator told": (";", "sep=;\r\n", "utf-8"),
    "separator told in quotes": ("|", '"sep=|"\r\n', "utf-8"),
    "comma told": (",", "sep=,\n", "utf-8-sig"),
    "UTF-16": ("\t", "", "utf-16"),
    "UTF-32": (",", "", "utf-32"),
}


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("form", FORMS)
def test_tables_of_spreadsheets_are_read(tmp_path: Path, form: str, decimal: str) -> None:
    """The same table in any of their forms is the same reports, and lines count from its top."""
    separator, before, encoding = FORMS[form]
    if decimal == separator:
        decimal = "."
    lines = [line.split(",") for line in [*LINES, "1,b,ü,1,0.5", "1,ü,ü,1,-2e-3", "0,ü,ü,1,0"]]
    lines = [[*line[:4], line[4].replace(".", decimal)] for line in lines]
    text = before + "".join(separator.join(line) + "\n" for line in lines)
    path = tmp_path / "reports.csv"
    path.write_bytes(text.encode(encoding))
    table = read_table(path)
    assert table.index[0] == 2 + bool(before)
    reported = read_reports(table)
    assert reported.names == ["a", "b", "ü"] and reported.rounds == [0, 1]
    found = sorted(np.asarray(reported.reports.lcv).ravel().tolist())
    expected = sorted([0.5, 0.25, 0.125, 0, 0.5, 0.5, 0.5, 0.5, -2e-3, *[0.0] * (len(found) - 9)])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le"])
def test_a_table_in_another_encoding_says_which_is_wanted(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "reports.csv"
    path.write_bytes("\n".join(change(2, "0,a,ü,1,0.5")).encode(encoding))
    with pytest.raises(InvalidSetting, match=r"UTF-16 .*its mark: save it as UTF-8"):
        read_table(path)


PARQUET: dict[str, tuple[dict[str, list[Any]], list[str]]] = {
    "null name": ({"member": ["1", None]}, ["member", "row 2"]),
    "fractional names": ({"client": [1.0, 2.0]}, ["client '1.0'", "rows 1, 2"]),
    "nested numbers": ({"weight": [[1.0], [2.0]]}, ["weight", "rows 1, 2"]),
    "null among integers": ({"client": [None, 2]}, ["client 'None'", "row 1"]),
}


@pytest.mark.parametrize("case", PARQUET)
def test_a_wrong_parquet_table_is_refused_by_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    columns, words = PARQUET[case]
    good = {"round": [0, 0], "client": [1, 2], "member": [1, 2], "weight": [1, 1], "lcv": [0, 1]}
    path = tmp_path / "reports.parquet"
    pq.write_table(pa.table(good | columns), path)
    message = refusal(capsys, [str(path), "--out", str(tmp_path / "out")])
    assert [word for word in words if word not in message] == []


def test_a_table_of_tabs_may_end_in_tsv(tmp_path: Path) -> None:
    path = tmp_path / "reports.TSV"
    path.write_text("\n".join(LINES).replace(",", "\t"))
    comma = tmp_path / "reports.csv"
    comma.write_text("\n".join(LINES))
    assert read_table(path).equals(read_table(comma))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="POSIX only: there are no named pipes")
def test_a_pipe_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its reading would wait for ever."""
    for name in ("pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / name)
        told = refusal(capsys, [str(tmp_path / name), "--out", str(tmp_path / "out")])
        assert f"{name}: it is no file" in told


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("reports.parquet", ["cannot be read", "Parquet"]),
        ("reports.txt", [".csv, .tsv or .parquet"]),
    ],
)
def test_what_is_no_table_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: list[str]
) -> None:
    (tmp_path / name).write_text("\n".join(LINES))
    message = refusal(capsys, [str(tmp_path / name), "--out", str(tmp_path / "out")])
    assert [word for word in [name, *words] if word not in message] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--penalty", "0.1"], ["--penalty", "add --c2"]),
        (["--distance", "0"], ["--distance", "add --c2"]),
        (["--thresholding", "hard"], ["--thresholding", "add --c2"]),
        (["--c2", "--penalty", "0"], ["penalty must be a number above 0"]),
        (["--c2", "--distance", "nan"], ["distance must be at least 0"]),
        (["--c2", "--thresholding", "firm"], ["thresholding must be one of soft, hard"]),
        (["--out", ""], ["--out must name a directory, not ''"]),
        (["--missing", "bla"], ["error: argument --missing", "trip-jax coordinate --help"]),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    (tmp_path / "reports.csv").write_text("\n".join(LINES))
    arguments = [str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out"), *options]
    message = refusal(capsys, arguments)
    assert [word for word in words if word not in message] == []


@pytest.mark.parametrize("blocked", ["out", "out/phi.csv"])
def test_results_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], blocked: str
) -> None:
    (tmp_path / "reports.csv").write_text("\n".join(LINES))
    if blocked == "out":
        (tmp_path / blocked).write_text("a file where the directory should be")
    else:
        (tmp_path / blocked).mkdir(parents=True)
    message = refusal(capsys, [str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out")])
    said = "can't be read or written (" if blocked == "out" else "is there and does not look like"
    assert message.startswith(f"error: {tmp_path / blocked} {said}")
    if blocked != "out":
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["phi.csv"]


def test_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reports.csv").write_text("\n".join(LINES))
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path)]) == 0
    scores = pd.read_csv(tmp_path / "scores.csv")
    # phi = [[0.5, 0.25], [0, 0.125]], then [[1, 0.25], [0.75, 0.6875]].
    assert scores.to_dict("list") == {
        "client": ["a", "b"],
        "score": [0.875, 0.46875],
        "share": [65.11628, 34.88372],
    }
    where, what, highest = capsys.readouterr().out.splitlines()
    assert where == f"phi.csv, scores.csv and flagged.csv of 2 clients over 2 rounds in {tmp_path}"
    assert "on average, in the unit of lcv" in what
    assert highest.endswith(": a 0.875 (65.1 %), b 0.4688 (34.9 %)")


def test_five_clients_are_told_and_what_was_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [f"0,{i},{i},1,{i / 10}" for i in range(7)]
    (tmp_path / "reports.csv").write_text("\n".join([LINES[0], *own]))
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path), "--c2"]) == 0
    where, alone, _, _ = capsys.readouterr().out.splitlines()
    assert where.endswith(f" of 7 clients over 1 round in {tmp_path}; 0 reports flagged")
    assert alone == (
        "left out, what these say of themselves and nobody else reports on: 1 in round 0, "
        "2 in round 0, 3 in round 0, 4 in round 0, 5 in round 0, ..."
    )
    assert set(pd.read_csv(tmp_path / "scores.csv")["score"]) == {0}
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path)]) == 0
    where, _, highest = capsys.readouterr().out.splitlines()
    assert re.findall(r"(\d) 0\.", highest.split(": ")[1]) == ["6", "5", "4", "3", "2"]


def test_numbers_are_the_shortest_that_float32_needs(tmp_path: Path) -> None:
    (tmp_path / "reports.csv").write_text("\n".join([LINES[0], "0,a,a,1,0.1"]))
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "phi.csv").read_text() == "client,contributor,contribution\na,a,0.1\n"
    assert (tmp_path / "scores.csv").read_text() == "client,score,share\na,0.1,100.0\n"


def test_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "reports.csv").write_text("\n".join(change(2)))
    command = [sys.executable, "-m", "trip_jax.coordinate", str(tmp_path / "reports.csv")]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "own line" in done.stderr and done.stderr.count("\n") == 1


SENT = ["round,client,member,weight,lcv,sent", "0,a,a,1,0.5,0", "0,a,b,3,0.25,1", "0,b,b,1,0.125,0"]


def test_an_exchange_counts_where_both_ends_state_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """b says in a line of its own whether it sent its model to a, which is no member of b."""
    (tmp_path / "reports.csv").write_text("\n".join([*SENT, "0,b,a,,,1"]))
    arguments = [str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert pd.read_csv(tmp_path / "out" / "phi.csv")["contribution"].tolist() == [
        0.5,
        0.25,
        0,
        0.125,
    ]
    disputed = (tmp_path / "out" / "disputed.csv").read_text()
    assert disputed == "round,client,member,stated_by\n0,b,a,member\n"
    capsys.readouterr()

    (tmp_path / "reports.csv").write_text("\n".join(SENT))
    assert main(arguments) == 0
    assert pd.read_csv(tmp_path / "out" / "phi.csv")["contribution"].tolist() == [0.5, 0, 0, 0.125]
    disputed = (tmp_path / "out" / "disputed.csv").read_text()
    assert disputed == "round,client,member,stated_by\n0,a,b,client\n0,b,a,member\n"
    left_out = "left out, as one end alone states them: 2 exchanges, see disputed.csv"
    assert left_out in capsys.readouterr().out

    (tmp_path / "reports.csv").write_text("\n".join(LINES))  # which does not say who sent what
    assert main(arguments) == 0
    assert (tmp_path / "out" / "disputed.csv").read_text() == "round,client,member,stated_by\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0,b,a,,,", ["sent ''", "must be 1 or 0", "line 5"]),
        ("0,b,a,,,2", ["sent '2'", "must be 1 or 0", "line 5"]),
        ("0,b,a,,0.5,1", ["weight ''", "line 5"]),
        ("0,b,c,,,1", ["'c' is an unknown client", "line 5"]),
        ("0,b,b,,,1", ["duplicate lines", "lines 4, 5"]),
    ],
)
def test_a_wrong_line_on_who_sent_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    (tmp_path / "reports.csv").write_text("\n".join([*SENT, line]))
    message = refusal(capsys, [str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out")])
    assert [word for word in words if word not in message] == []


def test_names_are_read_back_as_they_are_and_compared_in_one_form(tmp_path: Path) -> None:
    names = ["a\rb", "\r", "c\r\nd", 'e, "f"', "\u00e9"]
    rows = [(1, i, j, 1.0, 0.5) for i in names for j in names]
    rows += [(2, i, i.replace("\u00e9", "e\u0301"), 1.0, 0.5) for i in names]
    text = csv_lines([("round", "client", "member", "weight", "lcv"), *rows])
    (tmp_path / "reports.csv").write_text(text, encoding="utf-8", newline="")
    assert main([str(tmp_path / "reports.csv"), "--out", str(tmp_path / "out")]) == 0
    for file, column in (("phi", "contributor"), ("scores", "client")):
        found = pd.read_csv(tmp_path / "out" / f"{file}.csv")
        assert sorted(set(found[column])) == sorted(names), file
    with (tmp_path / "out" / "scores.csv").open(newline="", encoding="utf-8") as file:
        assert sorted(row["client"] for row in csv.DictReader(file)) == sorted(names)


@pytest.mark.parametrize("size", [10**15, 2**63, 2**64, 10**20, 10**299, 10**400])
def test_integers_of_any_size_are_numbers_or_refused(size: int) -> None:
    frame = pd.DataFrame([(0, "a", "a", size, 0.5), (0, "a", "b", 1, 1.0), (0, "b", "b", 1, size)])
    frame = frame.set_axis(["round", "client", "member", "weight", "lcv"], axis="columns")
    if size == 10**400:
        with pytest.raises(InvalidSetting, match=r"weight '10*\.\.\.' must be a number from 0 up"):
            read_reports(frame)
        frame = frame.assign(weight=1)
    found = read_reports(frame)
    assert len(found.left_out) == (size > 10**15)
    other = 1 / size if size < 10**400 else 1
    np.testing.assert_allclose(np.asarray(found.reports.weight)[0, :2], [1, other], atol=1e-40)


@pytest.mark.parametrize("kind", [complex, object])
def test_complex_numbers_are_no_contributions(kind: type) -> None:
    table = pd.DataFrame(
        [(1, "a", "a", 1, 0.5 + 2j)], columns=["round", "client", "member", "weight", "lcv"]
    ).astype({"lcv": kind})
    with pytest.raises(InvalidSetting, match=r"^lcv '\(0\.5\+2j\)' must be a number"):
        read_reports(table)
