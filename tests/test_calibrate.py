"""Calibration finds thresholds that flag the stated share of honest reports."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from experiments import calibrate
from tests.conftest import SIZES, Once, tiny, tiny_data
from tests.synthetic_runs import EIGHT
from trip_jax import Contribution, Defence, Partition, Training, load_run, save_run
from trip_jax.protocol.coordinator import trace
from trip_jax.runs.reports import recorded_reports
from trip_jax.settings.errors import InvalidSetting

pytestmark = pytest.mark.usefixtures("quick_figures")


@pytest.fixture(scope="module")
def runs(once: Once) -> list[str]:
    """The same honest run, reported in either normalisation."""

    def save(folder: Path) -> None:
        for normalization in ("paper", "efficient"):
            simulation = tiny(
                nx.barabasi_albert_graph(len(SIZES), 2, seed=0),
                training=Training(rounds=6, batch_size=4, learning_rate=0.2),
                contribution=Contribution(normalization=normalization),
            )
            federation = Partition(tiny_data(), np.array(SIZES, float), "examples")
            save_run(folder / normalization, simulation.run(), federation, title="tiny")

    folder = once("honest", save)
    return [str(folder / name) for name in ("paper", "efficient")]


@pytest.mark.thorough
def test_at_most_the_stated_share_is_flagged(runs: list[str]) -> None:
    run = load_run(runs[0]).data
    penalty, distance = calibrate.penalty_and_distance(run, "loss", "paper")
    reports = recorded_reports(run, "loss", "paper")

    def share(distance: float) -> float:
        defence = Defence(c2=True, penalty=penalty, distance=distance)
        return float(np.mean(np.asarray(trace(reports, len(SIZES), defence)[1].flagged)))

    assert share(distance) <= 1 / (6 * len(SIZES)) < share(0.5 * distance)


@pytest.mark.thorough
def test_either_normalisation_is_derived_from_either_run(runs: list[str]) -> None:
    for normalization in ("paper", "efficient"):
        ours, theirs = (
            calibrate.penalty_and_distance(load_run(run).data, "loss", normalization)
            for run in runs
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@pytest.mark.thorough
def test_the_threshold_of_c1_is_a_gap_between_neighbours(runs: list[str]) -> None:
    run = load_run(runs[0]).data
    spread = run.accuracy.values.max(axis=1) - run.accuracy.values.min(axis=1)
    assert 0 < calibrate.v_threshold(run) <= spread[:-1].max()


def test_figures_are_rounded_up() -> None:
    assert calibrate.round_up(0.0612) == 0.062
    assert calibrate.round_up(0.06) == 0.06
    assert calibrate.round_up(1.21) == 1.3
    assert calibrate.round_up(-0.01) == 0


@pytest.mark.thorough
def test_the_command_prints_a_line_a_setting(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate.calibrate(runs)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 1 + 2 * 2 * 3
    for paths, words in (([], "Name run directories"), (["nowhere"], "nowhere")):
        with pytest.raises(InvalidSetting, match=words):
            calibrate.calibrate(paths)


def test_runs_that_tell_nothing_are_refused() -> None:
    run = EIGHT.assign(lcv=(0 * EIGHT.adopted).expand_dims(utility=["loss"]))
    with pytest.raises(InvalidSetting, match="two rounds or more"):
        calibrate.v_threshold(run.isel(round=[0]))
    with pytest.raises(InvalidSetting, match="agree exactly"):
        calibrate.penalty_and_distance(run, "loss", "paper")
