"""The same federation by other frameworks: how fast they learn, and when their first round is over.

    python -m experiments.peers [peers=flower,fluke,pfl,blazefl] [protocols=fedavg,gossip]
        [clients=8,100] [examples=64] [rounds=4] [turns=3] [dataset=fashion_mnist] [model=cnn]
        [out=DIR] [SETTING=VALUE ...]

All learn alone, without contributions: the same network from the same first model, the same
examples of every client, minibatches of 32, one local epoch, a learning rate of 0.1 and no
momentum. Each run is a process of its own, ours and theirs in turn. Rates, by the clock and by
what processors spent, are those between the ends of the first round and of the last; the first
round ends so many seconds after the process was started, imports, data and compilation among them.
Gossip, on a ring, is measured of those who have it. For one core each: taskset -c 0 python ...

Each framework has a file in experiments/frameworks and an environment of its own, which is made on
the first call under outputs/frameworks and needs the network. Whoever can't be installed, fails,
trains on other amounts than asked or, by FedAvg, ends .1 of accuracy away from ours is left out,
and the report says why. Gossip rates are of what was trained, since a protocol may let clients
wait. Writes CSV and Markdown.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from experiments.benchmarks.timing import OURS, RATIO, compared, rate, spread
from experiments.frameworks.environments import (
    ENVIRONMENTS,
    FRAMEWORKS,
    NotInstalled,
    environment,
)
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import compose_config, write
from experiments.harness.report import Report
from trip_jax.config import Adversary, Aggregation, ChannelConfig, Config, Defence, Privacy, Trust
from trip_jax.runs.prepare import prepare
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.topology import Participation, ScheduleConfig

PEERS = ("flower", "fluke", "pfl", "blazefl")
PROTOCOLS = {"fedavg": PEERS, "gossip": ("fluke",)}
"""The frameworks that implement each protocol."""

APART = 0.1  # of accuracy, beyond which two have not learned the same
LEARNING = ("training.learning_rate=0.1", "training.momentum=0", "topology=ring")

COMPARED = ("peers", "protocols", "clients", "examples", "rounds", "turns")
SETTINGS = (*COMPARED, "dataset", "model", "out")

Answer = dict[str, Any]


class LeftOut(Exception):
    """Why a framework has no figures."""


def peers(arguments: Sequence[str]) -> None:
    """Time this package and its peers on one task, print the table and write it."""
    request = Request("peers", arguments, SETTINGS)
    chosen = request.among("peers", PEERS)
    protocols = request.among("protocols", tuple(PROTOCOLS))
    clients = request.numbers("clients", 8, 100)
    examples = request.number("examples", 64, least=1)
    rounds = request.number("rounds", 4, least=2)
    turns = request.number("turns", 3, least=1)
    dataset, model = request.one("dataset", "fashion_mnist"), request.one("model", "cnn")
    folder = request.folder("outputs/peers")
    tasks: dict[tuple[str, int], dict[str, Any]] = {}
    for protocol, n in product(protocols, clients):
        settings = [f"dataset={dataset}", f"model={model}", *LEARNING, f"n_clients={n}"]
        settings += [f"dataset.train_size={n * examples}", f"training.rounds={rounds}"]
        task = _task(folder, [*settings, *request.overrides]) | {"protocol": protocol}
        tasks[protocol, n] = task
    pythons, left_out = _environments(chosen)  # installed once all settings are right
    answers: dict[tuple[str, int], dict[str, list[Answer]]] = {
        (protocol, n): {name: [] for name in (OURS, *PROTOCOLS[protocol]) if name in pythons}
        for protocol, n in tasks
    }
    written, text = Report.of(request, folder), ""
    title = f"{dataset}, {model}, {counted(examples, 'example')} a client, {rounds} rounds, "
    title += f"{counted(_cores(), 'core')}, medians of "
    for turn in range(1, turns + 1):
        for key, told in answers.items():
            for name in tuple(told):
                try:
                    answer = _run(name, pythons[name], tasks[key], folder)
                    _refuse_other_work(answer, tasks[key], (told[OURS] or [answer])[-1])
                except LeftOut as reason:
                    if name == OURS:
                        raise RuntimeError(str(reason)) from reason
                    left_out.append(f"{name}, {key[0]} of {key[1]}: {reason}")
                    print(left_out[-1], flush=True)
                    del told[name]
                    continue
                told[name].append(answer)
                said = f"{rate(1 / _seconds_a_sample(answer))} samples/s, accuracy"
                print(f"turn {turn}, {key[0]} of {key[1]}, {name}: {said}", end=" ")
                print(f"{answer['accuracy']:.3f}", flush=True)
        rows = [row for key, told in answers.items() for row in _rows(tasks[key], told)]
        text = _write(rows, left_out, title + counted(turn, "turn"), written)
    print(text)


def _cores() -> int:
    """The cores that processes started from here may use."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return affine or 1


def _environments(chosen: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """Interpreters of ours and of the peers, and who has none."""
    pythons, left_out = {OURS: Path(sys.executable)}, []
    for name in chosen:
        try:
            pythons[name] = environment(FRAMEWORKS / f"{name}.py", ENVIRONMENTS)
        except NotInstalled as reason:
            left_out.append(f"{name}: {reason}")
    return pythons, left_out


def _task(folder: Path, settings: list[str]) -> dict[str, Any]:
    """What everyone is asked for; the data are written to a file."""
    config = compose_config("vs_shapley", settings)
    simulation, _ = prepare(config)
    _refuse_what_peers_lack(config)
    data, training = simulation.data, config.training
    path = folder.absolute() / f"data_{simulation.n}.npz"  # of all protocols
    arrays: dict[str, Any] = {
        "images": data.images,
        "labels": data.labels,
        "test_images": data.test_images,
        "test_labels": data.test_labels,
        "owned": data.examples,
        "sizes": data.sizes,
    }
    arrays |= {f"start_{i}": array for i, array in enumerate(first_model(simulation))}
    write(path, arrays)
    return {
        "data": str(path),
        "settings": settings,
        "clients": simulation.n,
        "classes": int(np.max(data.labels)) + 1,
        "rounds": training.rounds,
        "epochs": training.local_epochs,
        "batch": training.batch_size,
        "learning_rate": training.learning_rate,
        "seed": config.seed,
        "channels": list(config.model.channels) if config.model.kind == "cnn" else [],
        "hidden": list(config.model.hidden),
    } | _work(simulation, training.local_epochs, training.batch_size)


def first_model(simulation: Simulation) -> list[np.ndarray]:
    """Kernels and biases, layer by layer, as PyTorch lays them out."""
    model = simulation.learner.model
    height, width, channels = simulation.data.images.shape[1:]
    arrays: list[np.ndarray] = []
    for _, layer in sorted(model.unravel(model.theta)["params"].items()):
        kernel = np.asarray(layer["kernel"])
        if kernel.ndim == 4:  # of a convolution, which pooling follows
            height, width, channels = height // 2, width // 2, kernel.shape[-1]
            kernel = kernel.transpose(3, 2, 0, 1)
        else:
            inputs = kernel.reshape(height, width, channels, -1).transpose(3, 2, 0, 1)
            height, width, channels = 1, 1, kernel.shape[-1]
            kernel = inputs.reshape(channels, -1)
        arrays += [np.ascontiguousarray(kernel), np.asarray(layer["bias"])]
    return arrays


def _work(simulation: Simulation, epochs: int, batch: int) -> dict[str, int]:
    """Examples and minibatches that all clients train on in a round."""
    sizes = np.asarray(simulation.data.sizes)
    return {"samples": epochs * int(sizes.sum()), "steps": epochs * int((-(-sizes // batch)).sum())}


def _refuse_what_peers_lack(config: Config) -> None:
    plain = {
        "adversary": Adversary(),
        "defence": Defence(),
        "channel": ChannelConfig(),
        "trust": Trust(),
        "privacy": Privacy(),
        "participation": Participation(),
        "schedule": ScheduleConfig(),
        "precision": "float32",
        "aggregation": Aggregation(),
    }
    training, graph = config.training, config.topology
    other = not training.is_plain or training.momentum or graph.drop or graph.kind != "ring"
    if other or any(getattr(config, name) != value for name, value in plain.items()):
        raise InvalidSetting(
            "Other frameworks learn honestly, undefended and in float32, by SGD over epochs and "
            "plain means, without momentum and, if by gossip, on a ring: leave out other settings "
            "here."
        )


def _run(name: str, python: Path, task: dict[str, Any], folder: Path) -> Answer:
    """What a framework tells after its rounds, in a process of its own."""
    script = FRAMEWORKS / f"{'ours' if name == OURS else name}.py"
    asked, answer = folder.absolute() / "task.json", folder.absolute() / "answer.json"
    answer.unlink(missing_ok=True)
    asked.write_text(json.dumps(task | {"began": time.time(), "answer": str(answer)}))
    # -P: a framework's file here does not hide the package of the same name.
    command = [str(python), "-P", str(script), str(asked)]
    environment = {"PYTHONPATH": str(FRAMEWORKS.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode or not answer.exists():
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise LeftOut(f"its run ended in {said[-1].strip()}")
    return dict(json.loads(answer.read_text()))


def _refuse_other_work(answer: Answer, task: dict[str, Any], ours: Answer) -> None:
    """Raise LeftOut where FedAvg was not the same work."""
    if task["protocol"] != "fedavg":
        return
    _, _, *done = answer["rounds"][-1]
    wanted = [task["rounds"] * task[name] for name in ("samples", "steps")]
    if len(answer["rounds"]) != task["rounds"] or done != wanted:
        raise LeftOut(
            f"it trained on {done[0]} examples in {done[1]} steps and {len(answer['rounds'])} "
            f"rounds, not on {wanted[0]} in {wanted[1]} and {task['rounds']}"
        )
    if abs(answer["accuracy"] - ours["accuracy"]) > APART:
        raise LeftOut(
            f"its accuracy is {answer['accuracy']:.3f}, ours {ours['accuracy']:.3f}, although it "
            "took as many steps"
        )


def _seconds_a_sample(answer: Answer, clock: int = 0) -> float:
    """Between the ends of the first round and the last.

    Args:
        clock: 0 for time that went by, 1 for time that processors spent.
    """
    first, last = answer["rounds"][0], answer["rounds"][-1]
    return float(last[clock] - first[clock]) / (last[2] - first[2])


def _rows(task: dict[str, Any], answers: dict[str, list[Answer]]) -> list[dict[str, Any]]:
    seconds = {name: [_seconds_a_sample(one) for one in told] for name, told in answers.items()}
    rows = compared(task["protocol"], task["clients"], "samples/s", 1, seconds)
    for row in rows:
        told = answers[row["who"]]
        row["clients_a_second"] = row["median"] * task["clients"] / task["samples"]
        spent = [1000 * _seconds_a_sample(one, clock=1) for one in told]
        row |= spread(spent, "cpu_seconds_a_thousand_samples_")
        row |= spread([one["rounds"][0][0] for one in told], "first_round_")
        row["accuracy"] = float(np.median([one["accuracy"] for one in told]))
        done = [one["rounds"][-1][3] / (task["steps"] * task["rounds"]) for one in told]
        row["steps_of_those_asked"] = float(np.median(done))
        row["versions"] = ", ".join(f"{name} {one}" for name, one in told[0]["versions"].items())
    return rows


def _write(rows: list[dict[str, Any]], left_out: list[str], title: str, written: Report) -> str:
    ratio = f"{{{RATIO}median:.2f}} ({{{RATIO}least:.2f}} to {{{RATIO}most:.2f}})"
    cpu = "{{cpu_seconds_a_thousand_samples_{}:.2f}}"
    cpu = f"{cpu.format('median')} ({cpu.format('least')} to {cpu.format('most')})"
    said = [
        row
        | {name: rate(row[name]) for name in ("median", "least", "most", "clients_a_second")}
        | {"ratio": "" if row["who"] == OURS else ratio.format_map(row)}
        for row in rows
    ]
    table = report.table(
        "protocol | clients |  | samples/s (range) | clients/s | ours is faster by (range over "
        "turns) | CPU s a 1,000 samples (range) | s to the end of round 1 (range) | accuracy "
        "| steps of those asked | versions",
        "{work} | {clients} | {who} | {median} ({least} to {most}) | {clients_a_second} | {ratio} "
        f"| {cpu} "
        "| {first_round_median:.1f} ({first_round_least:.1f} to {first_round_most:.1f}) "
        "| {accuracy:.3f} | {steps_of_those_asked:.0%} | {versions}",
        said,
    )
    reasons = "\n".join(f"- {one}" for one in left_out) or "Nobody."
    return written.write(
        pandas.DataFrame(rows), "Other frameworks", title, table, f"Left out:\n\n{reasons}"
    )


if __name__ == "__main__":
    run_as_command(peers)
