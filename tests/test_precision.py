"""The precision of matrix products: where it applies, and what is measured of it."""

import inspect
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pandas
import pytest

from experiments.benchmarks import ceiling
from experiments.benchmarks.ceiling import operations_an_image
from experiments.benchmarks.idle import busy_seconds
from experiments.precision import precision
from tests.conftest import TINY, config_of, tiny
from trip_jax.data.federation import ClientData
from trip_jax.learning.learner import Learner
from trip_jax.learning.models import cnn
from trip_jax.learning.precision import PRECISIONS, require_precision
from trip_jax.protocol.aggregation import WeightedMean, aggregate, coalition_models
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting
from trip_jax.truth.centralized.fedavg import server_step

IN_PROGRAMS = {"float32": "HIGHEST", "tensorfloat32": "HIGH", "bfloat16": "bf16"}


def _products(function: Callable[..., Any], *inputs: Any) -> set[str]:
    """The precisions of a program's matrix products."""
    lines = jax.jit(function).lower(*inputs).as_text().splitlines()
    kinds = r"precision = \[(HIGH\w*),|lhs_precision_type = (\w+)"
    found = [re.search(kinds, line) for line in lines if "dot_general" in line]
    return {kind[1] or kind[2] if kind else "DEFAULT" for kind in found}


@pytest.mark.parametrize("name", PRECISIONS)
def test_training_and_evaluation_have_the_precision(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("trip_jax.simulation.simulation.require_precision", lambda *_: None)
    simulation = tiny(precision=name)
    models = simulation.start().models
    clients, keys = np.arange(6), jax.random.split(simulation.base_key, 6)
    expected = {IN_PROGRAMS[name]}
    assert _products(Learner.train, simulation.learner, models, clients, keys) == expected
    assert _products(Learner.evaluate, simulation.learner, models) == expected


def test_averages_are_float32_whatever_is_around_them() -> None:
    simulation = tiny()
    models, here = simulation.start().models, simulation.topology.at(0)
    inside, shares = np.ones((4, 3), bool), np.full(3, 1 / 3, np.float32)
    one, keep, sizes = models[:3], np.ones(3, bool), simulation.data.sizes
    with jax.default_matmul_precision("bfloat16"):
        assert _products(partial(aggregate, WeightedMean()), models, here) == {"HIGHEST"}
        mixed = partial(coalition_models, WeightedMean()), inside, shares, one, one, models[0], keep
        assert _products(*mixed) == {"HIGHEST"}
        assert _products(server_step, models[0], models, sizes, np.ones(6, bool)) == {"HIGHEST"}


def test_a_precision_that_a_device_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="precision=bfloat16 is not for cpu"):
        prepare(config_of(*TINY, "precision=bfloat16"))
    with pytest.raises(InvalidSetting, match="precision must be one of float32, tensorfloat32"):
        config_of("precision=float16")
    with pytest.raises(InvalidSetting, match="precision must be one of float32, tensorfloat32"):
        tiny(precision="float16")
    with pytest.raises(InvalidSetting, match="precision=tensorfloat32 is not for cpu"):
        precision([*TINY, "precision=tensorfloat32", f"out={tmp_path}"])
    old, new = (
        SimpleNamespace(platform="gpu", device_kind="Tesla", compute_capability=generation)
        for generation in ("7.5", "8.0")
    )
    require = inspect.unwrap(require_precision)  # without its check of types
    require("bfloat16", new)
    with pytest.raises(InvalidSetting, match="not for Tesla, which computes in float32"):
        require("bfloat16", old)


def test_operations_are_those_of_the_papers_network() -> None:
    images = np.zeros((8, 28, 28, 1), np.uint8)
    labels, owned, sizes = np.arange(8), np.arange(8).reshape(2, 4), np.full(2, 4)
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
    device.lines = [line("Steps", (0, 100))]
    assert math.isnan(busy_seconds([host, device]))


@pytest.mark.thorough
def test_the_experiment_writes_what_a_cpu_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ceiling.SIZES, "cpu", 512)
    small = [one for one in TINY if not one.startswith(("dataset=", "topology="))]
    precision([*small, "dataset=synthetic", "model=mlp", "topology=star", f"out={tmp_path}"])
    (report,) = tmp_path.glob("precision_*.csv")
    (row,) = pandas.read_csv(report).to_dict("records")
    assert row["precision"] == "float32"
    assert row["phi_distance"] == pytest.approx(0, abs=1e-6)
    assert 0 < row["training_of_ceiling"] < 1 and 0 < row["outside"] < 1
    assert math.isnan(row["idle"])
