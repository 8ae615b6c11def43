"""Seconds a round and bytes against the number of clients and of devices.

    python -m experiments.scaling [clients=100,200,500,1000] [devices=1,2] [examples=50]
        [dataset=fashion_mnist] [model=cnn] [out=DIR] [SETTING=VALUE ...]

Every point is a command of its own, `python -m trip_jax.run +experiment=ws100`, of two rounds and
one local epoch on 50 examples a client and 50 test images, so that its peak of memory and the time
before its first round are those that a user has. Seconds are those of the second round, since the
first is also the first to touch memory. Points that are finished are kept. Writes CSV, Markdown and
a figure.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import pandas
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax import load_run
from trip_jax.results.figure_style import MUTED
from trip_jax.runs.interruption import EXIT_CODE
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.settings.plurals import counted

SETTINGS = ("clients", "devices", "examples", "dataset", "model", "out")
ROUNDS = ("training.rounds=2", "training.local_epochs=1", "dataset.test_size=50")
GIB = 2**30


def scaling(arguments: Sequence[str]) -> None:
    """Time rounds by the number of clients, print, draw and write the result."""
    request = Request("scaling", arguments, SETTINGS)
    examples = request.number("examples", 50, least=1)
    dataset, model = request.one("dataset", "fashion_mnist"), request.one("model", "cnn")
    folder = request.folder("outputs/scaling")
    rows: list[dict[str, Any]] = []
    settings = (f"dataset={dataset}", f"model={model}", *ROUNDS, *request.overrides)
    clients = request.numbers("clients", 100, 200, 500, 1000)
    for n, devices in product(clients, request.numbers("devices", 1, 2)):
        size = (f"n_clients={n}", f"devices={devices}", f"dataset.train_size={n * examples}")
        summary = _run(folder / "runs", *settings, *size)
        rows.append(_row(n, devices, summary))
        print(", ".join(f"{key} {value:,.6g}" for key, value in rows[-1].items()), flush=True)
    frame = pandas.DataFrame(rows)
    chosen = dict(one.split("=", 1) for one in (*ROUNDS, *request.overrides))
    title = f"ws100, {dataset}, {model}, {counted(examples, 'example')} a client, "
    title += ", ".join(f"{name}={value}" for name, value in chosen.items())
    title += f"; {summary['device'].rpartition(',')[0]}, {summary['host']}"
    lines = [[column.replace("_", " ") for column in frame.columns]]
    lines += [[f"{value:,.4g}" for value in row] for row in frame.itertuples(index=False)]
    written = Report.of(request, folder)
    text = written.write(frame, "Scaling", title, report.markdown(lines))
    print(f"{text}\nreport in {folder}")
    written.draw(partial(_draw, frame, title))


def _run(runs: Path, *settings: str) -> dict[str, Any]:
    """summary.json of a command, with its last round and the seconds before its first."""
    folder = runs / hashlib.sha256(" ".join(settings).encode()).hexdigest()[:8]
    kept = folder.with_name(f"{folder.name}.json")
    if not kept.exists():
        command = [sys.executable, "-m", "trip_jax.run", "+experiment=ws100", *settings]
        command.append(f"hydra.run.dir='{folder}'")
        shutil.rmtree(folder, ignore_errors=True)  # begun earlier: what goes on measures less
        began, seconds, line = time.perf_counter(), nan, ""
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout
            for line in process.stdout:
                if line.startswith("memory planned"):  # said when the first round begins
                    seconds = time.perf_counter() - began
        if process.returncode == EXIT_CODE:
            raise Interrupted
        if process.returncode and line.startswith("error: "):
            raise InvalidSetting(line.strip().removeprefix("error: "))
        if process.returncode < 0:
            raise InvalidSetting(
                f"The run with {' '.join(settings)} was killed by signal {-process.returncode}, "
                "perhaps for want of memory: give fewer clients."
            )
        if process.returncode:
            raise RuntimeError(f"The run with {' '.join(settings)} ended in {line.strip()}")
        done = load_run(folder)
        measured = {"last": done.rounds.iloc[-1].to_dict(), "seconds_before": seconds}
        kept.write_text(json.dumps(done.summary | measured))
    return dict(json.loads(kept.read_text()))


def _row(n: int, devices: int, summary: dict[str, Any]) -> dict[str, Any]:
    memory, costs, rounds = summary["memory"], summary["costs"], summary["rounds"]
    names = [f"seconds_{phase}" for phase in ("training", "evaluation", "coordination")]
    phases = {name: summary["last"][name] for name in names}
    return {
        "clients": n,
        "devices": devices,
        "coalitions": costs["coalitions_evaluated"] // rounds,
        "seconds_before_first_round": summary["seconds_before"],
        **phases,
        "seconds_a_round": sum(phases.values()),
        "memory_planned_GiB": memory["planned_bytes"] / GIB,
        "memory_peak_GiB": memory["peak_bytes"] / GIB,
        "models_sent_GiB": 2 * costs["bytes_sent"]["learning"] / rounds / GIB,
    }


def _draw(frame: pandas.DataFrame, title: str) -> Figure:
    figure, (left, right) = report.panels("A round", title, 2.9, 2)
    by_devices = frame.groupby("devices")
    for (devices, rows), (colour, marker) in zip(by_devices, report.LOOKS, strict=False):
        look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "lw": 1}
        label = f"devices: {devices}"
        left.plot(rows.clients, rows.seconds_a_round, label=label, **look)
        right.plot(rows.clients, rows.memory_peak_GiB, label=f"memory, {label}", **look)
    one = frame[frame.devices == frame.devices.min()]
    for phase, style in (("training", "--"), ("evaluation", ":"), ("coordination", "-.")):
        label = f"{phase}, devices: {one.devices.iloc[0]}"
        left.plot(one.clients, one[f"seconds_{phase}"], style, color=MUTED, lw=1, label=label)
    right.plot(one.clients, one.models_sent_GiB, ":", color=MUTED, lw=1, label="models sent")
    clients = frame.clients.unique()
    for axes, label in ((left, "seconds a round"), (right, "GiB")):
        axes.set(xlabel="clients, n", ylabel=label, xscale="log", yscale="log")
        axes.set_xticks(clients, [f"{n:,}" for n in clients])
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
        axes.grid(True, linewidth=0.4, alpha=0.5)
        axes.legend(fontsize=6, frameon=False)
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    return figure


if __name__ == "__main__":
    run_as_command(scaling)
