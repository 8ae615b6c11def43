"""The precision of matrix products: where it applies, and what is measured of it."""

import math
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pandas
import pytest

from experiments.precision import busy_seconds, operations_an_image, precision
from tests.conftest import TINY, config_of, tiny
from trip_jax.aggregation import aggregate
from trip_jax.config import PRECISIONS
from trip_jax.data.federation import ClientData
from trip_jax.errors import InvalidSetting
from trip_jax.models import cnn
from trip_jax.prepare import prepare

IN_PROGRAMS = dict(zip(PRECISIONS, ("HIGHEST", "HIGH", "bf16"), strict=True))


def _products(program: jax.stages.Lowered) -> set[str]:
    """The precisions of a program's matrix products."""
    products = [line for line in program.as_text().splitlines() if "dot_general" in line]
    kinds = r"precision = \[(HIGH\w*),|lhs_precision_type = (\w+)"
    found = [re.search(kinds, line) for line in products]
    return {kind[1] or kind[2] if kind else "DEFAULT" for kind in found}


@pytest.mark.parametrize("name", PRECISIONS)
def test_training_and_evaluation_have_the_precision_and_averages_have_all(name: str) -> None:
    simulation = tiny(precision=name)
    state, data = simulation.start(), simulation.data
    clients, keys = np.arange(6), jax.random.split(simulation.root, 6)
    train = jax.jit(simulation.local_training).lower(state.models, clients, keys, data)
    evaluate = jax.jit(simulation.evaluate).lower(state.models, data)
    mix = jax.jit(aggregate).lower(state.models, simulation.topology.at(0))
    assert _products(train) == _products(evaluate) == {IN_PROGRAMS[name]}
    assert _products(mix) == {"HIGHEST"}
    assert _products(jax.jit(simulation.step).lower(state)) == {"HIGHEST", IN_PROGRAMS[name]}


def test_a_cpu_has_float32_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="precision=bfloat16 is for accelerators"):
        prepare(config_of(*TINY, "precision=bfloat16"))
    with pytest.raises(InvalidSetting, match="precision must be one of float32, tensorfloat32"):
        config_of("precision=float16")
    with pytest.raises(InvalidSetting, match="precision=tensorfloat32 is for accelerators"):
        precision([*TINY, "precision=tensorfloat32", f"out={tmp_path}"])


def test_operations_are_those_of_the_papers_network() -> None:
    images = np.zeros((8, 28, 28, 1), np.uint8)
    labels, owned, sizes = np.zeros(8, np.int32), np.arange(8).reshape(2, 4), np.full(2, 4)
    arrays = map(jax.numpy.asarray, (images, labels, owned, sizes, images, labels))
    gradient, forward = operations_an_image(tiny(data=ClientData(*arrays), model=cnn()))
    first, second = 784 * 9 * 32, 196 * 9 * 32 * 64
    dense = 3136 * 128 + 128 * 10
    assert forward == pytest.approx(2 * (first + second + dense), rel=0.02)
    assert gradient == pytest.approx(2 * (2 * first + 3 * second + 3 * dense), rel=0.1)


def test_busy_time_is_what_streams_cover() -> None:
    def line(name: str, *spans: tuple[int, int]) -> SimpleNamespace:
        events = [SimpleNamespace(start_ns=start, end_ns=end) for start, end in spans]
        return SimpleNamespace(name=name, events=events)

    streams = line("Stream #1", (0, 10), (30, 40)), line("Stream #2", (5, 20), (32, 35))
    device = SimpleNamespace(name="/device:GPU:0", lines=[*streams, line("Steps", (0, 100))])
    host = SimpleNamespace(name="/host:CPU", lines=[line("python", (0, 100))])
    assert busy_seconds([host, device]) == pytest.approx(30e-9)
    assert math.isnan(busy_seconds([host]))


def test_the_experiment_writes_what_a_cpu_has(tmp_path: Path) -> None:
    small = [one for one in TINY if not one.startswith(("dataset=", "topology="))]
    precision([*small, "dataset=synthetic", "model=mlp", "topology=star", f"out={tmp_path}"])
    (report,) = tmp_path.glob("precision_synthetic_mlp_*.csv")
    (row,) = pandas.read_csv(report).to_dict("records")
    assert row["precision"] == "float32"
    assert row["phi_distance"] == pytest.approx(0, abs=1e-6)
    assert 0 < row["training_of_ceiling"] < 1 and 0 < row["outside"] < 1
    assert math.isnan(row["idle"])
