"""Rules of exchange against theory: averages over changing and directed graphs, and optima.

    python -m experiments.exchange_rates [n_clients=8] [optimum_rounds=200] [learning_rate=0.1]
        [local_steps=4] [n_averaging=16] [rounds=120] [seed=0] [out=DIR]

Three questions, each with what theory says beside. How fast do clients agree on the mean of numbers
where each meets one other in a round (one-peer exponential graphs, random matchings), and on a
ring? Do they agree on it over a directed graph, by push-sum and by a mean of what arrives? Do they
reach the optimum of the mean of quadratic losses that differ, on a ring with gradient tracking and
without, and over a directed graph? All of it by what simulations run. `n_averaging` clients average
numbers, `n_clients` learn.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pandas
from jaxtyping import Float
from matplotlib.figure import Figure

import trip_jax as tj
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.quadratics import Quadratics, rate_of, stays_off, trained
from experiments.harness.report import Report
from trip_jax.protocol.aggregation import PushSum, WeightedMean, aggregate
from trip_jax.results.figure_style import add_legend, plain, titled_figure
from trip_jax.topology import Topology
from trip_jax.topology.push_sum import with_push_sum

SETTINGS = (
    *("n_clients", "optimum_rounds", "learning_rate", "local_steps"),
    *("n_averaging", "rounds", "seed", "out"),
)
DIMENSIONS = 64
"""Numbers that a client has, to be averaged."""

mix = jax.jit(aggregate, static_argnums=0)


def asked(request: Request) -> dict[str, Any]:
    """What a command line asks for."""
    request.refuse_overrides()
    (learning_rate,) = request.reals("learning_rate", 0.1)
    return {
        "n": request.number("n_clients", 8, least=4),
        "n_averaging": request.number("n_averaging", 16, least=4),
        "rounds": request.number("rounds", 120, least=1),
        "optimum_rounds": request.number("optimum_rounds", 200, least=1),
        "seed": request.number("seed", 0),
        "learning_rate": learning_rate,
        "local_steps": request.number("local_steps", 4, least=1),
    }


def exchange_rates(arguments: Sequence[str]) -> None:
    """Measure all that is asked for and write the report."""
    request = Request("exchange_rates", arguments, SETTINGS)
    given = asked(request)
    parts = *_averages(**given), *_optima(**given), *_directed_optima(**given)
    frame = pandas.concat(parts, ignore_index=True)
    title = "{n_averaging} clients average, {n} learn, seed {seed}".format(**given)
    written = Report.of(request, request.folder("outputs/exchange_rates"))
    print(written.write(frame, "Rules of exchange against theory", title, *_sections(frame)))
    written.draw(partial(draw, frame, title))


def _rows(panel: str, rule: str, measured: Any, theory: Any) -> pandas.DataFrame:
    rounds = np.arange(len(measured))
    return pandas.DataFrame(
        {"panel": panel, "rule": rule, "round": rounds, "measured": measured, "theory": theory}
    )


def _averages(n_averaging: int, rounds: int, seed: int, **_: Any) -> Iterator[pandas.DataFrame]:
    """How far numbers are from their mean, over how far they were at first."""
    n, t = n_averaging, np.arange(rounds + 1)
    for kind, theory in (
        ("ring", second_eigenvalue(matrix_of(_drawn("ring", n, 1, seed))) ** t),
        ("random_matchings", np.sqrt(0.5 - 0.5 / (2 * (n // 2) - 1)) ** t),
        ("one_peer_exponential", np.sqrt(np.maximum((2.0**-t - 1 / n) / (1 - 1 / n), 0))),
    ):
        topology = _drawn(kind, n, rounds, seed)
        yield _rows("average", kind, averaged(WeightedMean(), topology, rounds, seed), theory)
    graph = tj.topology.build(directed_graph(n), np.ones(n), weights="uniform")
    pushed, matrix = with_push_sum(graph, rounds), matrix_of(graph)
    columns = (matrix > 0) / (matrix > 0).sum(axis=0)
    found = averaged(PushSum(), pushed, rounds, seed)
    yield _rows("directed", "push_sum", found, second_eigenvalue(columns) ** t)
    stationary = np.linalg.matrix_power(matrix, 10**6)[0]
    start = numbers(n, seed)
    ends = np.sqrt(n) * np.linalg.norm(stationary @ start - start.mean(axis=0))
    ends /= np.linalg.norm(start - start.mean(axis=0))
    found = averaged(WeightedMean(), graph, rounds, seed)
    yield _rows("directed", "weighted_mean", found, np.full(len(t), ends))


def _drawn(kind: str, n: int, rounds: int, seed: int) -> Topology:
    config = tj.TopologyConfig(kind, weights="uniform")
    return tj.topology.from_config(config, np.ones(n), rounds=rounds, seed=seed)


def directed_graph(n: int) -> nx.DiGraph:
    """A circle of one direction, whose first quarter sends to the client opposite as well."""
    circle = [(i, (i + 1) % n) for i in range(n)]
    return nx.DiGraph([*circle, *((i, (i + n // 2) % n) for i in range(n // 4))])


def numbers(n: int, seed: int) -> Float[np.ndarray, "n D"]:
    """The numbers that clients have before the first exchange."""
    return np.random.default_rng([seed, n]).normal(size=(n, DIMENSIONS))


def averaged(rule: Any, topology: Topology, rounds: int, seed: int) -> Float[np.ndarray, " T1"]:
    """The distance of all numbers from their first mean, over that at first, round by round."""
    start = numbers(topology.n_clients, seed)
    mean, now, found = start.mean(axis=0), jnp.asarray(start, jnp.float32), []
    for t in range(rounds + 1):
        found.append(np.linalg.norm(np.asarray(now, float) - mean))
        now = mix(rule, now, topology.at(min(t, rounds - 1)))
    return np.array(found) / found[0]


def matrix_of(topology: Topology, t: int = 0) -> Float[np.ndarray, "n n"]:
    """The mixing matrix of a round."""
    n, nearby = topology.n_clients, jax.tree.map(np.asarray, topology).at(t)
    matrix = np.zeros((n, n))
    np.add.at(matrix, (np.arange(n)[:, None], nearby.members), nearby.weights)
    return matrix / matrix.sum(axis=1, keepdims=True)


def second_eigenvalue(matrix: Float[np.ndarray, "n n"]) -> float:
    """The second largest absolute value of an eigenvalue."""
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


def _optima(
    n: int, optimum_rounds: int, seed: int, learning_rate: float, local_steps: int, **_: Any
) -> Iterator[pandas.DataFrame]:
    losses, t = Quadratics.drawn(n, seed), np.arange(optimum_rounds + 1)
    ring = _drawn("ring", n, 1, seed)
    off = stays_off(losses, matrix_of(ring), learning_rate)
    found = trained(losses, ring, "weighted_mean", optimum_rounds, learning_rate, 1)
    yield _rows("optimum", "weighted_mean, ring, 1 step", found, np.full(len(t), off))
    for kind, steps in (("ring", 1), ("ring", local_steps), ("one_peer_exponential", local_steps)):
        topology = _drawn(kind, n, optimum_rounds, seed)
        matrices = [matrix_of(topology, k) for k in range(len(topology.graphs.members))]
        rate = learning_rate / steps  # so that a round goes as far
        given = optimum_rounds, rate, steps
        found = trained(losses, topology, "gradient_tracking", *given)
        rule = f"gradient_tracking, {kind}, {steps} step{'s' * (steps > 1)}"
        yield _rows("optimum", rule, found, rate_of(losses, matrices, rate, steps) ** t)


def _directed_optima(
    n: int, optimum_rounds: int, seed: int, learning_rate: float, **_: Any
) -> Iterator[pandas.DataFrame]:
    """The same over a directed graph: by push-sum the distance is proportional to the step."""
    losses, t = Quadratics.drawn(n, seed), np.arange(optimum_rounds + 1)
    graph = tj.topology.build(directed_graph(n), np.ones(n), weights="uniform")
    rows = matrix_of(graph)
    columns = (rows > 0) / (rows > 0).sum(axis=0)
    for rule, matrix in (("weighted_mean", rows), ("push_sum", columns)):
        for rate in (learning_rate, learning_rate / 4):
            off = stays_off(losses, matrix, rate, pushes=rule == "push_sum")
            found = trained(losses, graph, rule, optimum_rounds, rate, 1)
            said = f"{rule}, learning rate {rate:g}"
            yield _rows("directed_optimum", said, found, np.full(len(t), off))


def slope(rows: pandas.DataFrame, low: float = 1e-5, high: float = 1e-2) -> float:
    """The factor by which the error falls in a round, measured between two sizes of it."""
    part = rows[(rows.measured < high) & (rows.measured > low)]
    if len(part) < 3:
        return float("nan")
    return float(np.exp(np.polyfit(part["round"], np.log(part.measured), 1)[0]))


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    yield (
        "Errors are distances of all clients from the mean of their numbers, or from the optimum, "
        "over those at first. The rate is what an error is multiplied by in a round, measured "
        "where it is between 1e-2 and 1e-5; by theory it is that of the long run."
    )
    lines = [["error", "rule", "rate", "rate by theory", "last error", "last by theory"]]
    for (panel, rule), rows in frame.groupby(["panel", "rule"], sort=False):
        first, second = rows.theory.iloc[-2:]
        falls = 0 < second < first
        rates = report.number(slope(rows)), report.number(second / first if falls else np.nan)
        last = f"{rows.measured.iloc[-1]:.1e}", f"{second:.1e}"
        lines.append([str(panel), str(rule), *rates, *last])
    yield report.markdown(lines)


PANELS = {
    "average": "from the mean",
    "directed": "from the mean,\ndirected graph",
    "optimum": "from the optimum",
    "directed_optimum": "from the optimum,\ndirected graph",
}
MARKS = 8
"""Markers of a curve; those of several stand beside each other where curves coincide."""


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Errors by round, with theory dashed."""
    what = "Distances over those at first; dashed: by theory"
    figure = titled_figure(what, title, 7.0, 6.6)
    axes = figure.subplots(2, 2)
    for one, (panel, said) in zip(map(plain, axes.flat), PANELS.items(), strict=True):
        of = frame[frame.panel == panel]
        rules = of.groupby("rule", sort=False)
        for k, ((rule, rows), (colour, marker)) in enumerate(
            zip(rules, report.LOOKS, strict=False)
        ):
            look: dict[str, Any] = {"color": colour, "lw": 1}
            step = len(rows) // MARKS or 1
            marks: dict[str, Any] = {"marker": marker, "ms": 4.5}
            marks["markevery"] = (k * step // rules.ngroups, step)
            label = str(rule).replace("_", " ")
            one.plot(rows["round"], rows.measured, "-", label=label, **marks, **look)
            one.plot(rows["round"], rows.theory.where(rows.theory > 0), "--", **look)
        one.set(yscale="log", ylim=(1e-8, 3), xlabel="round", ylabel=f"distance {said}")
        add_legend(one, ncols=1)
    return figure


if __name__ == "__main__":
    run_as_command(exchange_rates)
