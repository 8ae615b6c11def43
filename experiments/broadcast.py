"""Broadcast: how many clients agree on contributions without a coordinator, and what it costs.

    python -m experiments.broadcast [n_clients=100] [rounds=10] [degree=4,6]
        [drop=0,0.01,0.05,0.1,0.2,0.3] [liars=0,0.05,0.1,0.2,0.3]
        [behaviour=withhold,forge,equivocate] [seeds=10] [draws=200] [out=DIR]

Reports flood a Watts-Strogatz graph of a degree k, either with messages lost by chance and everyone
honest, or with a share of liars and no message lost; see docs/exchange.md. Nobody trains:
contributions are drawn, since whether clients agree does not depend on what they agree on. That
honest clients stay connected is told of as many further draws of graph and liars.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report, number, with_spread
from trip_jax.protocol.adversaries import drawn_liars
from trip_jax.protocol.broadcast import BEHAVIOURS, Broadcast
from trip_jax.protocol.defences import AdoptAll
from trip_jax.protocol.flooding import Links
from trip_jax.runs.agreement import summarised
from trip_jax.runs.costs import packet_bytes
from trip_jax.topology import Topology, TopologyConfig, from_config

SETTINGS = (
    *("n_clients", "rounds", "degree", "drop", "liars", "behaviour", "seeds", "draws", "out"),
)
MODEL_BYTES = 4 * 421_642
"""The bytes of the paper's network for Fashion-MNIST."""

COMPACT_BYTES = 76 + 64
"""The bytes of a signed report if names were numbers and numbers four bytes."""


def broadcast(arguments: Sequence[str]) -> None:
    """Flood all that is asked for and write the report."""
    request = Request("broadcast", arguments, SETTINGS)
    request.refuse_overrides()
    n = request.number("n_clients", 100, least=3)
    rounds = request.number("rounds", 10, least=1)
    seeds, draws = request.number("seeds", 10, least=1), request.number("draws", 200, least=1)
    degrees = request.numbers("degree", 4, 6)
    drops = request.reals("drop", 0, 0.01, 0.05, 0.1, 0.2, 0.3)
    shares = request.reals("liars", 0, 0.05, 0.1, 0.2, 0.3)
    behaviours = request.among("behaviour", tuple(BEHAVIOURS))
    settings: list[dict[str, Any]] = [{"drop": drop} for drop in drops]
    settings += [
        {"behaviour": name, "liars": share} for name in behaviours for share in shares if share
    ]
    rows = []
    for degree in degrees:
        for seed in range(seeds):
            topology = _graph(n, degree, rounds, seed)
            for given in settings:
                what = {"behaviour": "", "liars": 0.0, "drop": 0.0} | given
                where = {"degree": degree, "seed": seed}
                rows.append(where | what | _flooded(topology, rounds, seed, **given))
            print(f"degree {degree}, seed {seed}", flush=True)
    connected = [
        {"degree": degree, "liars": share, "connected": _connected(n, degree, share, draws)}
        for degree in degrees
        for share in shares
    ]
    frame, joined = pandas.DataFrame(rows), pandas.DataFrame(connected)
    title = f"{n} clients, Watts-Strogatz graphs, {rounds} rounds, seeds 0 to {seeds - 1}"
    written = Report.of(request, request.folder("outputs/broadcast"))
    text = written.write(
        frame, "Without a coordinator", title, *_sections(frame, joined, n, rounds, draws)
    )
    written.draw(partial(draw, frame, title))
    print(text)


def _graph(n: int, degree: int, rounds: int, seed: int) -> Topology:
    config = TopologyConfig("watts_strogatz", degree=degree)
    return from_config(config, np.ones(n), rounds=rounds, seed=seed)


def _flooded(
    topology: Topology,
    rounds: int,
    seed: int,
    *,
    drop: float = 0.0,
    liars: float = 0.0,
    behaviour: str = "withhold",
) -> dict[str, Any]:
    nearby = topology.at(0)
    mask = np.asarray(nearby.mask)
    lcv = np.random.default_rng([seed, 6]).normal(0.1, 0.05, (rounds, *mask.shape))
    shares = np.broadcast_to(np.asarray(nearby.shares), lcv.shape)
    protocol = Broadcast(drop, None, liars, BEHAVIOURS[behaviour])
    outcome = protocol(topology, (lcv * mask).astype(np.float32), shares, AdoptAll(), seed)
    sizes = np.array([packet_bytes(m, len(mask)) for m in mask.sum(axis=1).tolist()])
    told = summarised(outcome)
    return {
        **{name: told[name] for name in ("agree", "complete", "rows_known", "reach")},
        "connected": told["rounds_connected"] == 1,
        "proved": told["equivocations_proved"],
        "messages": told["messages"] / rounds,
        "forged": told["forged_messages_refused"] / rounds,
        "bytes": float((outcome.messages * sizes).sum()) / rounds,
        "models": int(mask.sum() - len(mask)),
    }


def _connected(n: int, degree: int, share: float, draws: int) -> float:
    """In how many draws of a graph and of liars all honest clients reach each other."""
    found = []
    for seed in range(draws):
        nearby = _graph(n, degree, 1, seed).at(0)
        honest = np.ones(n, bool)
        honest[drawn_liars("liars", share, n, seed)] = False
        links = Links.of(np.asarray(nearby.members), np.asarray(nearby.mask))
        found.append(links.are_connected(honest))
    return float(np.mean(found))


COLUMNS = {
    "agree": "the same phi",
    "complete": "phi of all reports",
    "rows_known": "rows known",
    "reach": "reach of honest reports",
}


def _sections(
    frame: pandas.DataFrame, joined: pandas.DataFrame, n: int, rounds: int, draws: int
) -> Iterator[str]:
    yield (
        "Shares of honest clients: with the commonest phi, bit for bit; with the phi of all "
        "reports; of phi's rows whose causal past a client knows; that an honest client's report "
        "reaches. Mean ± standard deviation over seeds."
    )
    lines = [["degree", "lost", *COLUMNS.values()]]
    for (degree, drop), rows in frame[frame.liars == 0].groupby(["degree", "drop"], sort=False):
        lines.append([str(degree), f"{drop:g}", *(with_spread(rows[name]) for name in COLUMNS)])
    yield report.markdown(lines)
    lines = [["degree", "liars", "who", *COLUMNS.values(), "equivocations proved"]]
    lying = frame[frame.liars > 0]
    for (degree, name, share), rows in lying.groupby(["degree", "behaviour", "liars"], sort=False):
        each = [with_spread(rows[name]) for name in (*COLUMNS, "proved")]
        lines.append([str(degree), f"{share:g}", name, *each])
    yield report.markdown(lines)
    yield f"Honest clients stay connected, of {draws} draws of graph and liars:"
    shares = joined.pivot(index="degree", columns="liars", values="connected")
    lines = [["degree", *(f"liars {share:g}" for share in shares.columns)]]
    lines += [[str(degree), *(number(value) for value in row)] for degree, row in shares.iterrows()]
    yield report.markdown(lines)
    yield (
        "A round of reports, all honest and nothing lost, beside a round of models of "
        f"{MODEL_BYTES / 1e6:.1f} MB each, sent once over each arc:"
    )
    lines = [["degree", "messages", "MB as JSON", "MB if compact", "MB of models", "share, %"]]
    plain = frame[(frame.liars == 0) & (frame["drop"] == 0)]
    for degree, rows in plain.groupby("degree"):
        messages, size, models = (rows[name].mean() for name in ("messages", "bytes", "models"))
        of_models = models * MODEL_BYTES
        numbers = (size / 1e6, messages * COMPACT_BYTES / 1e6, of_models / 1e6)
        said = [f"{messages:,.0f}", *(f"{value:,.1f}" for value in numbers)]
        lines.append([str(degree), *said, f"{100 * size / of_models:.1f}"])
    yield report.markdown(lines)


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Who agrees, by messages lost (left) and by liars who pass nothing on (right)."""
    what = "Agreement on contributions without a coordinator"
    figure, (left, right) = report.panels(what, title, 2.8, 2)
    nothing = (frame.liars == 0) & (frame["drop"] == 0)
    panels = (
        (left, "drop", frame[frame.liars == 0], "probability that a message is lost"),
        (
            right,
            "liars",
            frame[nothing | (frame.behaviour == "withhold")],
            "share of liars, who pass nothing on",
        ),
    )
    for axes, x, rows, said in panels:
        looks = zip(rows.groupby("degree"), report.LOOKS, strict=False)
        for k, ((degree, of_degree), (colour, marker)) in enumerate(looks):
            size = max(3, 8 - 3 * k)  # curves that coincide show through each other
            by = of_degree.groupby(x)[["agree", "complete"]].mean()
            look: dict[str, Any] = {"color": colour, "marker": marker, "ms": size, "lw": 1}
            axes.plot(by.agree, "-", label=f"{degree:g} neighbours: agree", **look)
            label = f"{degree:g} neighbours: have all reports"
            axes.plot(by.complete, ":", mfc="white", label=label, **look)
        axes.set(xlabel=said, ylim=(-0.05, 1.05))
    left.set_ylabel("share of honest clients")
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    run_as_command(broadcast)
