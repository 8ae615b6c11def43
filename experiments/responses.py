"""How training answers the lack of a client, and what `surrogate` says of it.

    python -m experiments.responses [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2,3,4]
        [distribution=iid,non_iid] [topology=regular,star] [out=DIR] [SETTING=VALUE ...]

A federation runs once with all clients, and once without each of them. Without one, another starts
a round from a model that differs by d, and its update differs, too: training takes K d away. The
surrogate says what K d is from the run with all clients alone, by one K for all rounds
(trip_jax/attribution/surrogate.py); reconstruction says 0. Compared are, round by round, the share
of d that training takes away, <K d, d> / <d, d>, as it is and as the surrogate says; and the
squared error of what the surrogate says, over that of reconstruction. In the end, both replay the
runs without a client, and so does a surrogate whose K is scaled, round by round, to the share that
training took away; their final models and utilities are compared with those that came. No ground
truth is needed: a cell takes n + 1 runs.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, product
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.harness.report import with_spread
from experiments.paper.cells import Cell, CellStudy
from experiments.topologies import BEYOND_THE_PAPER
from trip_jax.attribution import Journal
from trip_jax.attribution.replay import FinalModels, Response, replay
from trip_jax.attribution.surrogate import fitted_response
from trip_jax.judge.trajectory import Trajectory
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.algorithm import learn
from trip_jax.protocol.methods.weights import Weights
from trip_jax.results.figure_style import add_legend

CELL = ["distribution", "topology"]
SUMS = ("moved", "taken", "said", "answer", "error")
REPLAYS = ("surrogate", "reconstruction", "surrogate, scaled to the share taken away")
ENDS = ("models", *UTILITIES)


def responses(arguments: Sequence[str]) -> None:
    """Run what was asked for, or take it as it was kept; one report a data set and model."""
    study = asked(arguments)
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        ends: list[dict[str, Any]] = []
        for seed, kind, graph in product(study.seeds, study.distributions, study.topologies):
            print(f"{kind}, {graph}, seed {seed}", flush=True)
            drawn = BEYOND_THE_PAPER.get(graph, [f"topology={graph}"])
            cell = study.cell(dataset, model, seed, f"distribution={kind}", *drawn)
            where = {"distribution": kind, "topology": graph, "seed": seed}
            rows += [where | row for row in by_round(cell)]
            ends += [where | row for row in in_the_end(cell)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        sections = *_sections(frame), *_of_ends(pandas.DataFrame(ends))
        text = written.write(frame, "Answers to the lack of a client", title, *sections)
        written.draw(partial(draw, frame, title))
        print(f"{text}\nresults in {study.folder}")


def asked(arguments: Sequence[str]) -> CellStudy:
    """The settings of the command: cells and seeds."""
    kinds, graphs = ("iid", "non_iid"), ("regular", "star")
    return CellStudy("responses", arguments, kinds, graphs, names=())


def by_round(cell: Cell) -> Iterator[dict[str, Any]]:
    """A row for each round but the first, in which nothing differs yet."""
    sums = cell.computed("responses", partial(_sums, cell))
    for t in range(1, len(sums["moved"])):
        moved, taken, said, answer, error = (float(sums[name][t]) for name in SUMS)
        yield {
            "round": t + 1,
            "share": taken / moved,
            "share said": said / moved,
            "error": error / answer,
        }


def in_the_end(cell: Cell) -> Iterator[dict[str, Any]]:
    """A row for each replay: squared errors of final models and utilities without a client, over
    the square of what its lack changes."""
    ends = cell.computed("responses", partial(_sums, cell))["ends"]
    for replayed, errors in zip(REPLAYS, ends.tolist(), strict=True):
        yield {"replay": replayed} | dict(zip(ENDS, errors, strict=True))


def _sums(cell: Cell) -> Arrays:
    """Of each round, over runs without a client and over the others: |d|^2, <K d, d> as it is and
    as it is said, |K d|^2 as it is, and the squared error of what is said [T]; and `ends` [3, 4].
    """
    trajectory = Trajectory.of(cell.simulation)
    rounds, learning = trajectory.rounds, cell.simulation.learning
    journal = trajectory.journal(Weights())  # whose updates and mixing alone are looked at
    updates, say = np.asarray(journal.updates), surrogate(journal)
    n = updates.shape[1]
    sums = np.zeros((len(SUMS), len(rounds)))
    *replayed, whole = _replayed(journal)
    lack, missed = np.zeros(len(ENDS)), np.zeros((len(REPLAYS), len(ENDS)))
    for absent in range(n):
        models = scaled = np.asarray(rounds[0][0].models)
        for t, (state, _) in enumerate(rounds):
            others = journal.present[t] & (np.arange(n) != absent)
            learned = learn(*learning, state.with_models(jnp.asarray(models)))
            update = np.asarray(learned.trained) - models
            difference = models - np.asarray(state.models)
            answer, said = updates[t] - update, say(difference)
            pairs = (
                *((difference, difference), (answer, difference), (said, difference)),
                *((answer, answer), (answer - said, answer - said)),
            )
            products = [np.vdot(a[others], b[others]) for a, b in pairs]
            sums[:, t] += products
            _, taken, share, *_ = products
            scale = taken / share if share else 1.0  # nothing differs in the first round
            answered = scale * say(scaled - np.asarray(state.models))
            mix = partial(_mixed, journal.mixing[t], others)
            models, scaled = mix(models, update), mix(scaled, updates[t] - answered)
        squares = partial(_squares, cell.simulation.learner, models)
        lack += squares(whole[:, 0])
        for k, by in enumerate((*(by[:, absent] for by in replayed), scaled)):
            missed[k] += squares(by)
    return dict(zip(SUMS, sums, strict=True)) | {"ends": missed / lack}


def _mixed(
    weights: Float[np.ndarray, "n n"],
    training: Bool[np.ndarray, " n"],
    models: Float[np.ndarray, "n P"],
    update: Float[np.ndarray, "n P"],
) -> Float[np.ndarray, "n P"]:
    """Models after a round in which some train."""
    mixed: np.ndarray = weights @ (models + np.where(training[:, None], update, 0))
    return mixed.astype(np.float32)


def _replayed(journal: Journal) -> list[Float[np.ndarray, "n K P"]]:
    """Final models without each client, by each replay, and with all."""
    n_rounds, n, _ = journal.updates.shape
    none, models_of = Response.none(n_rounds, n), FinalModels(journal)
    without, everyone = ~np.eye(n, dtype=bool), np.ones((1, n), bool)
    played = (fitted_response(journal), without), (none, without), (none, everyone)
    again = partial(replay, journal.mixing, present=journal.present)
    return [models_of(again(inside=inside, response=response)) for response, inside in played]


def _squares(
    learner: Learner, some: Float[np.ndarray, "n P"], others: Float[np.ndarray, "n P"]
) -> Float[np.ndarray, " 4"]:
    """Squared differences of models and of their utilities."""
    a, b = (np.asarray(learner.evaluate(jnp.asarray(models))) for models in (some, others))
    return np.array([((some - others) ** 2).sum(), *((a - b) ** 2).sum(axis=0)])


def surrogate(journal: Journal) -> Callable[[Float[np.ndarray, "n P"]], Float[np.ndarray, "n P"]]:
    """K d of all clients [n, P], with the response of coefficients carried to parameters."""
    response = fitted_response(journal)
    updates = np.asarray(journal.updates)
    directions = np.asarray(response.back) @ updates.reshape(-1, updates.shape[-1])
    base, gain = np.asarray(response.base)[:, None], np.asarray(response.gain)

    def say(difference: Float[np.ndarray, "n P"]) -> Float[np.ndarray, "n P"]:
        along: np.ndarray = base * difference + (difference @ directions.T * gain) @ directions
        return along

    return say


MEASURED = {
    "share": "share taken away",
    "share said": "share by surrogate",
    "error": "its error, reconstruction's = 1",
}


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    yield (
        "Of how a client's model differs where another is missing: the share that a round of "
        "training takes away, the share that the surrogate says, and its squared error over that "
        "of reconstruction, which says that nothing is taken away. All runs without one client "
        "together; mean ± standard deviation over seeds."
    )
    for which, rows in frame.groupby(CELL, sort=False):
        yield f"{', '.join(map(str, which))}:"
        by = rows.groupby("round")
        lines = [["round", *MEASURED.values()]]
        lines += [[str(t), *(with_spread(these[name], 2) for name in MEASURED)] for t, these in by]
        yield report.markdown(lines)


def _of_ends(ends: pandas.DataFrame) -> Iterator[str]:
    yield (
        "Final models without a client, replayed: squared errors over the square of what its lack "
        "changes, of models and of their utilities. 0 is exact, and 1 what one errs who says that "
        "nothing is missing. Mean ± standard deviation over seeds."
    )
    lines = [[*CELL, "replay", *ENDS]]
    for which, rows in ends.groupby([*CELL, "replay"], sort=False):
        lines.append([*map(str, which), *(with_spread(rows[name]) for name in ENDS)])
    yield report.markdown(lines)


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """The share taken away by round, as it is and as the surrogate says (left), and its error."""
    what = "How training answers the lack of a client, and what the surrogate says"
    figure, (left, right) = report.panels(what, title, 3.0, 2)
    cells = frame.groupby(CELL, sort=False)
    for (which, rows), (colour, marker) in zip(cells, cycle(report.LOOKS), strict=False):
        label, means = ", ".join(map(str, which)), rows.groupby("round")[list(MEASURED)].mean()
        look: dict[str, Any] = {"color": colour, "ms": 4, "lw": 1}
        left.plot(means.index, means.share, marker=marker, label=label, **look)
        left.plot(means.index, means["share said"], ls="--", **look)
        right.plot(means.index, means.error, marker=marker, label=label, **look)
    left.set(xlabel="round", ylabel="share of the difference taken away\n(dashed: by surrogate)")
    left.set_ylim(bottom=0)
    right.set(xlabel="round", ylabel="squared error of the surrogate\n(reconstruction = 1)")
    right.axhline(1, color="black", lw=0.6)
    add_legend(left)
    return figure


if __name__ == "__main__":
    run_as_command(responses)
