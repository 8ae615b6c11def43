"""What precision of matrix products costs and brings: speed against the device's ceiling, scores.

    python -m experiments.precision [precision=float32,tensorfloat32,bfloat16]
        [dataset=fashion_mnist] [model=cnn] [out=DIR] [SETTING=VALUE ...]

Runs ws100 once for each precision, and says how many operations a second training and evaluation
achieve beside large matrix products of the same precision; what of a round passed outside its three
programs and, on an accelerator, without any of them computing (from the profile of one more round);
and how far accuracy and scores are from those in float32. Operations are those of the network,
counted by XLA in its unoptimised program, times the images that it sees. A CPU has float32 alone.
Writes CSV and Markdown after each precision; interrupted, it starts anew.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas
from scipy.stats import spearmanr

from experiments.benchmarks.ceiling import matmul_ceiling, operations_an_image
from experiments.benchmarks.idle import idle_share
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import compose_config
from experiments.harness.report import Report
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.devices import available
from trip_jax.learning.precision import PRECISIONS, require_precision
from trip_jax.protocol.algorithm import step
from trip_jax.results.result import Result, Timing
from trip_jax.runs.prepare import describe, prepare
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Clock, Snapshot
from trip_jax.simulation.observer import Observer
from trip_jax.truth.metrics import cosine_distance

TERA = 1e12

HEAD = (
    "precision | devices | products, TFLOP/s | training, s | TFLOP/s | of ceiling | "
    "evaluation, s | TFLOP/s | of ceiling | coordinator, s | whole, s | outside programs | "
    "device idle | compilation, s | accuracy | cosine distance of phi to float32's | of scores | "
    "Spearman"
)
LINE = (
    "{precision} | {devices} | {ceiling:.3g} | {training_seconds:.1f} | {training_teraflops:.3g} | "
    "{training_of_ceiling:.0%} | {evaluation_seconds:.1f} | {evaluation_teraflops:.3g} | "
    "{evaluation_of_ceiling:.0%} | {coordination_seconds:.2f} | {whole_seconds:.1f} | "
    "{outside:.1%} | {said_idle} | {compilation_seconds:.1f} | {accuracy:.4f} | "
    "{phi_distance:.1e} | {scores_distance:.1e} | {scores_spearman:.3f}"
)


def precision(arguments: Sequence[str]) -> None:
    """Compare precisions of matrix products in time and result, print and write."""
    request = Request("precision", arguments, ("precision", "dataset", "model", "out"))
    device = available()[0]
    names = tuple(PRECISIONS)
    asked = request.among("precision", names, *names[:1] if device.platform == "cpu" else names)
    for name in asked:
        require_precision(name, device)
    dataset, model = request.one("dataset", "fashion_mnist"), request.one("model", "cnn")
    written = Report.of(request, request.folder("outputs/precision"))
    overrides = [f"dataset={dataset}", f"model={model}", *request.overrides]
    config = compose_config("ws100", overrides)
    title = f"{describe(config)}, seed {config.seed}; {device.device_kind}, jax {jax.__version__}"
    rows: list[dict[str, Any]] = []
    first: Result | None = None
    for name in dict.fromkeys(("float32", *asked)):
        simulation, _ = prepare(replace(config, precision=name))
        past = Snapshot(simulation.start(), [], [])
        began = time.perf_counter()
        result = simulation.run(_Said(name), past=past, progress=False)
        whole = time.perf_counter() - began - result.compile_seconds
        first = first or result
        ceiling = matmul_ceiling(name, device)
        if device.platform != "cpu":  # where devices are cores that share what is measured
            ceiling *= result.n_devices
        rows.append(
            {"precision": name, "devices": result.n_devices, "ceiling": ceiling / TERA}
            | _speed(simulation, result, whole, ceiling)
            | {"idle": _idle_share(simulation)}
            | _scores(result, first)
        )
        frame = pandas.DataFrame(rows)
        idle = ("" if np.isnan(row["idle"]) else f"{row['idle']:.1%}" for row in rows)
        lines = report.table(HEAD, LINE, frame.assign(said_idle=list(idle)).to_dict("records"))
        heading = "Precision of matrix products"
        text = written.write(frame, heading, title, lines)
        print(f"{text}\nreport in {written.stem.parent}")


def _idle_share(simulation: Simulation) -> float:
    """The share of a round in which the device computes nothing; NaN without a profile."""
    state = simulation.start()
    programs = simulation.compile(state)  # again those of the run
    programs = Clock(simulation.on_its_data(programs)).programs
    step(programs, state)
    return idle_share(lambda: step(programs, state))


def _speed(
    simulation: Simulation, result: Result, whole: float, ceiling: float
) -> dict[str, float]:
    total = Timing.total(result.timings)
    gradient, forward = operations_an_image(simulation)
    images = total.coalitions * len(simulation.data.test_labels)
    speed = {}
    for phase, seconds, operations in (
        ("training", total.training, total.samples * gradient),
        ("evaluation", total.evaluation, images * forward),
    ):
        speed[f"{phase}_seconds"] = seconds
        speed[f"{phase}_teraflops"] = operations / seconds / TERA
        speed[f"{phase}_of_ceiling"] = operations / seconds / ceiling
    return speed | {
        "coordination_seconds": total.coordination,
        "outside": 1 - total.seconds / whole,
        "whole_seconds": whole,
        "compilation_seconds": result.compile_seconds,
    }


def _scores(result: Result, float32: Result) -> dict[str, float]:
    assert result.phi is not None and float32.phi is not None  # for the type checker
    return {
        "accuracy": float(result.accuracy[-1].mean()),
        "phi_distance": yardsticks(result.phi, float32.phi)["distance"],
        "scores_distance": float(cosine_distance(result.scores, float32.scores)),
        "scores_spearman": float(spearmanr(result.scores, float32.scores).statistic),
    }


class _Said(Observer):
    """Prints how long each round took."""

    def __init__(self, name: str):
        self._name = name

    def on_round(self, past: Snapshot) -> None:
        print(f"{self._name}: a round in {past.timings[-1].seconds:.1f} s", flush=True)


if __name__ == "__main__":
    run_as_command(precision)
