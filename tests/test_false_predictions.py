"""The table of what lies bring: gains in mean scores, undefended and defended."""

from itertools import product
from pathlib import Path

import pandas
import pytest

from experiments.false_predictions import LIES, false_predictions, sections


def test_a_table_has_a_row_for_every_lie_of_a_method() -> None:
    rows = [
        {"distribution": "iid", "topology": "star", "seed": seed, "method": "predictions"}
        | {"lie": lie, "defended": defended, "gain": 0.5 * (not defended) + 0.1 * seed}
        | {"honest_change": 0.0, "victim_change": -0.25, "largest_change": 0.125}
        for seed, lie, defended in product((0, 1), ("honest", "D3, praise"), (False, True))
    ]
    text = "\n".join(sections(pandas.DataFrame(rows)))
    assert "## iid, star" in text
    row = next(line for line in text.splitlines() if line.startswith("| predictions | D3, praise"))
    assert "| +0.550 (" in row and "| +0.050 (" in row and "| -0.250 (" in row
    assert row.endswith("| 0.125 |")


def test_the_command_tells_every_lie(tmp_path: Path, thorough: bool) -> None:
    if not thorough:
        pytest.skip("takes a minute: make test-all")
    false_predictions(["scale=smoke", "devices=1", f"out={tmp_path}", "topology=regular"])
    (file,) = tmp_path.glob("false_predictions*.csv")
    frame = pandas.read_csv(file)
    assert len(frame) == 2 * sum(map(len, LIES.values()))
    gain = frame.set_index(["method", "lie", "defended"]).gain
    assert gain["predictions", "D3, praise", False] > 0.1
    assert gain["predictions", "D3, praise", True] < gain["predictions", "D3, praise", False]
