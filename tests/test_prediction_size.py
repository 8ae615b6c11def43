"""What the curve of bytes against distance calls a size is what nodes write."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from experiments.prediction_size import _sections as sections
from experiments.prediction_size import n_bytes, prediction_size, quantised
from trip_node.node.encodings import ENCODINGS


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(scale=9, size=(2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize(("bits", "name"), [(16, "float16"), (8, "int8")])
def test_bytes_and_rounding_are_those_of_a_node(logits: np.ndarray, bits: int, name: str) -> None:
    encoding = ENCODINGS[name]
    content = encoding.write(logits)
    assert len(content) == n_bytes(bits, 5, 4)
    np.testing.assert_allclose(
        quantised(logits, bits), encoding.read(content, logits.shape), atol=1e-6
    )


def test_fewer_bits_err_more_and_32_not_at_all(logits: np.ndarray) -> None:
    errors = [abs(quantised(logits, bits) - logits).max() for bits in (32, 16, 8, 6, 4)]
    assert errors[0] == 0 and errors == sorted(errors) and errors[-1] < abs(logits).max() / 7
    np.testing.assert_array_equal(quantised(np.zeros((1, 3)), 4), np.zeros((1, 3)))


def test_a_table_counts_the_cells_that_are_ahead_of_the_best_null() -> None:
    cell = {"distribution": "iid", "topology": "star", "utility": "loss"}
    sent = {"method": "predictions", "bits": 16, "which": "all", "examples": 5, "bytes": 160}
    rows = [
        cell | sent | {"seed": 0, "distance": 0.1},
        cell | sent | {"seed": 1, "distance": 0.3},
        *(cell | {"method": "best null", "seed": seed, "distance": 0.2} for seed in (0, 1)),
        *(cell | {"method": "TRIP-Shapley", "seed": seed, "distance": 0.5} for seed in (0, 1)),
    ]
    text = "\n".join(sections(pandas.DataFrame(rows)))
    assert "| 16 bits, 5 examples | 160 | 0.2000 | 1 of 2 |" in text
    assert "| TRIP-Shapley | – | 0.5000 | – |" in text


def test_the_command_writes_the_curve(tmp_path: Path, thorough: bool) -> None:
    if not thorough:
        pytest.skip("takes half a minute: make test-all")
    prediction_size(
        ["scale=smoke", "devices=1", f"out={tmp_path}", "distribution=iid", "topology=regular"]
    )
    assert list(tmp_path.glob("prediction_size*.csv")) and list(tmp_path.glob("*.png"))
