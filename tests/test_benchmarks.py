"""Benchmarks write what they measured; how fast anything is is not tested."""

import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

from experiments import convolutions as timed
from experiments import step as profile
from experiments.benchmarks import timing
from experiments.benchmarks.timing import OURS, compared
from experiments.convolutions import convolutions
from experiments.divided import divided
from experiments.scaling import scaling
from experiments.step import step
from trip_jax.settings.errors import Interrupted, InvalidSetting


@pytest.mark.thorough
def test_forms_of_the_cnn_are_timed_and_the_one_taken_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SHAPES", {"small": (8, 8, 1)}), ("BATCH_SIZE", 4), ("N_TEST", 6)):
        monkeypatch.setattr(timed, name, value)
    monkeypatch.setattr(timing, "SHORT", 1e-9)
    convolutions(["clients=1", "repeats=2", f"out={tmp_path}"])
    (report,) = tmp_path.glob("convolutions_*.csv")
    table = pandas.read_csv(report)
    assert (table.groupby("work").size() == 2).all()
    assert table[table.taken].form.tolist() == ["direct", "direct"]
    assert report.with_suffix(".md").read_text().count("taken by trip_jax") == 2
    assert ((table.least > 0) & (table.least <= table["median"])).all()


@pytest.mark.thorough
def test_parts_of_a_step_are_timed_beside_the_peaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "SHAPES", {"small": (8, 8, 1)})
    monkeypatch.setattr(profile, "PASSES", 2)
    monkeypatch.setattr(profile, "_peaks", lambda _: (1e12, 1e11))
    monkeypatch.setattr(timing, "SHORT", 1e-9)
    step(["dataset=small", "repeats=1", f"out={tmp_path}"])
    (report,) = tmp_path.glob("step_*.csv")
    whole, *parts = pandas.read_csv(report).to_dict("records")
    assert whole["part"] == "whole step" and len(parts) == 11
    counted = sum(part["mflop"] for part in parts)
    assert counted == pytest.approx(whole["mflop"], rel=0.1)  # nothing of the step is left out
    with pytest.raises(InvalidSetting, match="dataset must be one of small, not large"):
        step(["dataset=large"])


def test_ratios_are_those_of_the_same_turn() -> None:
    ours, loop = compared("w", 1, "u/s", 6, {OURS: [1.0, 2.0, 4.0], "loop": [4.0, 2.0, 2.0]})
    assert ours["median"] == 3 and (ours["least"], ours["most"]) == (1.5, 6)
    assert loop["median"] == 3 and (loop["least"], loop["most"]) == (1.5, 3)
    assert loop["times_as_fast_median"] == 1
    assert (loop["times_as_fast_least"], loop["times_as_fast_most"]) == (0.5, 4)


def test_work_is_timed_in_turn_without_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = 0.0, []

    def working(name: str, *seconds: float) -> Callable[[], None]:
        left = iter(seconds)

        def work() -> None:
            nonlocal now
            now += next(left)
            done.append(name)

        return work

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now)
    ways = {"long": working("long", 9, 3, 5), "short": working("short", 7, 0.15, 0.25, 1)}
    seconds = timing.timed(ways, 2)
    assert seconds == {"long": [3, 5], "short": [pytest.approx(0.2), 1]}
    assert done == ["long", "short", "long", "short", "short", "long", "short"]


def test_scaling_keeps_its_points_and_memory_is_as_planned(tmp_path: Path, thorough: bool) -> None:
    """With models that outweigh the process itself."""
    if not thorough:
        pytest.skip("allocates a gigabyte: make test-all")
    arguments = ["clients=150", "devices=1", "dataset=digits", "model=mlp", "model.hidden=[4000]"]
    arguments += ["examples=8", "dataset.test_size=20", "topology=ring", f"out={tmp_path}"]
    arguments.append("checkpoint.every=1")
    scaling(arguments)
    (report,) = tmp_path.glob("scaling_*.csv")
    (point,) = pandas.read_csv(report).to_dict("records")
    assert point["coalitions"] == 150 * 2**3
    models = 150 * (64 * 4000 + 4000 + 4000 * 10 + 10) * 4
    assert point["memory_planned_GiB"] * 2**30 > 4 * models
    assert point["memory_planned_GiB"] == pytest.approx(point["memory_peak_GiB"], rel=0.2)
    assert point["seconds_a_round"] > 0 and point["seconds_before_first_round"] > 0
    first = report.read_text()
    scaling(arguments)
    assert report.read_text() == first  # timings among it


def test_devices_hold_and_receive_less_where_they_divide_models(tmp_path: Path) -> None:
    settings = ["clients=12", "devices=4", "dataset=digits", "model=mlp", "topology=ring"]
    divided([*settings, f"out={tmp_path}"])
    (written,) = tmp_path.glob("divided_*.csv")
    (planned,) = pandas.read_csv(written).to_dict("records")
    assert planned["received_whole"] == 9
    assert planned["received_divided"] == 2  # a neighbour at each end
    assert planned["GiB_divided"] < planned["GiB_whole"]


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("kill -9 $$", InvalidSetting, "n_clients=6 .* was killed by signal 9, perhaps for want"),
        ("exit 75", Interrupted, "^$"),
        ("echo ValueError: x >&2; exit 1", RuntimeError, "n_clients=6 .* ended in ValueError: x"),
        ("echo memory planned; echo error: No. >&2; exit 2", InvalidSetting, "^No.$"),
    ],
)
def test_a_point_that_ends_early_is_told(
    script: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(error, match=said):
        scaling(["clients=6", "devices=1", f"out={tmp_path}"])


@pytest.mark.thorough
def test_what_a_command_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"There is no setting training\.epochs"):
        scaling(["clients=6", "devices=1", "training.epochs=1", f"out={tmp_path}"])
    with pytest.raises(InvalidSetting, match=r"There is no setting training\.rounds here"):
        convolutions(["training.rounds=1"])
