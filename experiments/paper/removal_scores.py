"""By which scores clients are removed, and the runs that tell them."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.harness.kept_runs import KeptRun
from experiments.paper.small_world import SmallWorldStudy
from trip_jax.protocol.contributions import METHODS, TRIP
from trip_jax.protocol.coordinator import trace
from trip_jax.runs.reports import recorded_reports

LEAVE_ONE_OUT = "leave-one-out"


def runs_by_method(
    study: SmallWorldStudy, which: tuple[str, str], seed: int, methods: Sequence[str]
) -> dict[str, KeptRun]:
    """A federation's runs by method; TRIP-Shapley's, with which removals are kept, first."""
    runs = {TRIP: study.run(*which, seed)}
    for method in methods:
        if method == TRIP:
            runs[LEAVE_ONE_OUT] = study.run(*which, seed, "contribution.semivalue=loo")
        else:
            # Accuracy has no gradients.
            utility = "loss" if METHODS[method].costs.needs_gradients else "accuracy"
            told = f"contribution.method={method}", f"contribution.utility={utility}"
            runs[method] = study.run(*which, seed, *told)
    return runs


def scores_by_criterion(
    runs: Mapping[str, KeptRun], methods: Sequence[str]
) -> dict[str, np.ndarray]:
    """Every client's score [n] by each criterion."""
    scores: dict[str, np.ndarray] = {}
    for method in methods:
        if method == TRIP:
            scores |= _scores_of_trip(runs[TRIP], runs[LEAVE_ONE_OUT])
        else:
            scores[method.replace("_", " ")] = runs[method].trip.score.values
    return scores


def _scores_of_trip(run: KeptRun, leave_one_out: KeptRun) -> dict[str, np.ndarray]:
    n = run.config.n_clients
    reports = recorded_reports(run.trip, "accuracy", "paper")
    real = np.asarray(reports.real)
    summed = np.bincount(
        np.asarray(reports.member)[real], np.asarray(reports.lcv)[real], minlength=n
    )
    alone = recorded_reports(leave_one_out.trip, "accuracy", "paper")
    return {
        "TRIP-Shapley": run.trip_values("accuracy", "paper").mean(axis=0),
        "by loss": run.trip_values("loss", "paper").mean(axis=0),
        "divided by m": run.trip_values("accuracy", "efficient").mean(axis=0),
        LEAVE_ONE_OUT: np.asarray(trace(alone, n)[0]).mean(axis=0),
        "not traced": summed,
    }
