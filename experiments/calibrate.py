"""Thresholds of the defences from honest runs: at most 1 % of models and reports flagged.

    python -m experiments.calibrate RUN_DIRECTORY [RUN_DIRECTORY ...]

Prints, for every run and for all of them together, `v_threshold` of C1 and, for each utility and
normalisation, `penalty` and `distance` of C2. `v_threshold` and `distance` are the smallest values
that keep the rate of false flags at or below 1 %. The penalty makes lambda/2 Huber's usual 1.345
standard deviations of honest reports about their member's median: 95 % of the mean's precision
without liars, and little pull for each. conf/defence/none.yaml holds what came of it.
"""

from collections.abc import Sequence
from math import ceil, floor, log10

import numpy as np
import xarray

from experiments.harness.command_line import run_as_command
from trip_jax import load_run
from trip_jax.config import Defence
from trip_jax.protocol.coordinator import trace
from trip_jax.runs.reports import recorded_reports
from trip_jax.settings.errors import InvalidSetting

RATE = 0.01


def penalty_and_distance(
    run: xarray.Dataset, utility: str, normalization: str
) -> tuple[float, float]:
    """C2's lambda and threshold for one run."""
    n = run.sizes["client"]
    reports = recorded_reports(run, utility, normalization)
    deviations = []
    for t in range(run.sizes["round"]):
        real = np.asarray(reports.real[t])
        lcv, member = np.asarray(reports.lcv[t])[real], np.asarray(reports.member[t])[real]
        medians = np.array([np.median(lcv[member == j]) for j in range(n)])
        deviations.append(np.abs(lcv - medians[member]))
    deviation = 1.4826 * float(np.median(np.concatenate(deviations)))  # robust, as for a normal law
    if not deviation:
        raise InvalidSetting(
            f"In {run.attrs['title']} most reports agree exactly: calibrate on runs of more test "
            "images or rounds."
        )
    penalty = 2 * 1.345 * deviation
    defence = Defence(c2=True, penalty=penalty)
    distances = trace(reports, n, defence)[1].distance
    return penalty, float(np.quantile(np.asarray(distances), 1 - RATE))


def v_threshold(run: xarray.Dataset) -> float:
    """C1's threshold: how far a neighbour's pre-training accuracy lies below one's own."""
    if run.sizes["round"] < 2:
        raise InvalidSetting(
            f"{run.attrs['title']} tells nothing about C1, since all start from one model: "
            "calibrate on runs of two rounds or more."
        )
    gaps = []
    for t in range(1, run.sizes["round"]):
        graph = run.graph_of_round.values[t]
        mask, members = run["mask"].values[graph], run.members.values[graph]
        client, slot = np.nonzero(mask)
        accuracy = run.accuracy.values[t - 1]
        others = members[client, slot] != client
        gaps.append((accuracy[client] - accuracy[members[client, slot]])[others])
    return float(np.quantile(np.concatenate(gaps), 1 - RATE))


def round_up(value: float) -> float:
    """The value rounded up to two significant digits; zero if it is not above zero."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (floor(log10(value)) - 1)
    return round(ceil(value / unit) * unit, 10)


def calibrate(paths: Sequence[str]) -> None:
    """Print thresholds for the runs in these directories."""
    if not paths:
        raise InvalidSetting("Name run directories: python -m experiments.calibrate DIR [DIR ...].")
    runs = [load_run(path).data for path in paths]
    if any(run.liar.any() for run in runs):
        raise InvalidSetting("Thresholds come from honest runs: leave out those with liars.")
    if any(run.attrs.get("semivalue", "shapley") != "shapley" for run in runs):
        raise InvalidSetting(
            "Thresholds are for Shapley values: leave out runs of other semivalues."
        )
    for path, run in zip(paths, runs, strict=True):
        print(f"{path}: {run.attrs['title']}")
    columns = [[v_threshold(run) for run in runs]]
    labels = ["v_threshold"]
    for normalization in ("paper", "efficient"):
        for utility in runs[0].utility.values:
            pairs = [penalty_and_distance(run, utility, normalization) for run in runs]
            for k, name in enumerate(("penalty", "distance")):
                labels.append(f"{normalization}.{utility}.{name}")
                columns.append([pair[k] for pair in pairs])
    for label, values in zip(labels, columns, strict=True):
        listed = " ".join(f"{value:8.4f}" for value in values)
        print(f"{label:32} {listed}   all: {round_up(max(values)):g}")


if __name__ == "__main__":
    run_as_command(calibrate)
