"""Ten timings, one of each thing that users wait for; by pytest-benchmark, outside the tests.

`python -m experiments.benchmarks.speed_ratios` runs them and compares them with the stored ones.
What is compiled is compiled before a timing begins. Seconds are those of all processors, so that
other processes of the machine disturb little.
"""

import base64
import resource
import subprocess
import sys
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
import pytest

import trip_jax as tj
from trip_node.node import LocalEvaluator, Report
from trip_node.node.admission import Federation
from trip_node.node.signing import Signer
from trip_node.protocol.coordinator import trace
from trip_node.protocol.defences import Defence
from trip_node.protocol.reports import Reports
from trip_node.shapley.tables import game_values

RNG = np.random.default_rng(0)
OTHERS = {name: base64.b64decode(Signer(name.encode() * 32).public) for name in "abcdef"}


def cpu_seconds() -> float:
    """Seconds of processors that this process and those that it started have taken."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


@cache
def simulation(n_clients: int, method: str = "trip") -> tj.Simulation:
    """Three rounds on the embedded digits, on a circle."""
    federation = tj.distribute(tj.load_dataset("digits"), n_clients=n_clients)
    graph = tj.topology.build(nx.cycle_graph(n_clients), federation.data.sizes)
    training, told = tj.Training(rounds=3, local_epochs=1), tj.Contribution(method=method)
    return tj.Simulation(tj.mlp(), federation.data, graph, training=training, contribution=told)


def reports(n_rounds: int, n: int) -> Reports:
    """Reports of random numbers on a circle, stacked over rounds."""
    client = np.repeat(np.arange(n, dtype=np.int32), 3)
    member = ((client + np.tile([0, 1, -1], n)) % n).astype(np.int32)
    lcv = RNG.normal(0.1, 0.02, (n_rounds, 3 * n)).astype(np.float32)
    client, member = (np.broadcast_to(one, lcv.shape) for one in (client, member))
    return Reports(client, member, np.ones_like(lcv), lcv, np.ones(lcv.shape, bool))


def test_start(benchmark: Any) -> None:
    """A new process imports what a simulation needs."""
    start = [sys.executable, "-c", "import trip_jax; trip_jax.Simulation"]
    benchmark.pedantic(subprocess.run, (start,), {"check": True}, rounds=3)


@pytest.mark.parametrize("method", ["trip", "surrogate", "predictions"])
def test_run(benchmark: Any, method: str) -> None:
    """Three rounds of eight clients, with their contributions."""
    run = simulation(8, method).run
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)


def test_truth(benchmark: Any) -> None:
    """The Shapley value of four clients by re-execution."""
    benchmark.pedantic(tj.decentralised_truth, (simulation(4),), rounds=3, warmup_rounds=1)


def test_graph(benchmark: Any) -> None:
    """A small world of 2,000 clients, as padded arrays."""
    graph = nx.watts_strogatz_graph(2000, 4, 0.1, seed=0)
    benchmark.pedantic(tj.topology.build, (graph, np.ones(2000)), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("c2", [False, True])
def test_trace(benchmark: Any, c2: bool) -> None:
    """The coordinator over fifty rounds of 200 clients, without and with C2."""
    defence = Defence(c2=True, penalty=0.02, distance=0.6) if c2 else None
    benchmark.pedantic(trace, (reports(50, 200), 200, defence), rounds=3, warmup_rounds=1)


def test_game(benchmark: Any) -> None:
    """The Shapley values of a game of sixteen players."""
    benchmark.pedantic(game_values, (RNG.random(2**16),), rounds=3, warmup_rounds=1)


def test_node(benchmark: Any) -> None:
    """A node's report on seven members with models of 100,000 numbers, signed and admitted."""
    names = ["me", *"abcdef"]
    models = {name: [RNG.normal(size=100_000)] for name in names}
    signer = Signer(bytes(32))
    federation = Federation("f", {"me": signer_key(signer)} | OTHERS, None, 1)
    evaluator = LocalEvaluator(lambda model: float(model[0][:1000].sum()), "me", "f")

    def report() -> Report:
        told = evaluator.lcv(models, models, dict.fromkeys(names, 1.0), round=1)
        message = told.to_json().encode()
        return federation.admit(message, signer.sign(message))

    benchmark.pedantic(report, rounds=3, warmup_rounds=1)


def signer_key(signer: Signer) -> bytes:
    """The public key of a signer, in the bytes that verification takes."""
    return base64.b64decode(signer.public)
