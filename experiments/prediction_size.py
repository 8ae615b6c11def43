"""The method `predictions` by the size of what clients send: bytes against distance to the truth.

    python -m experiments.prediction_size [scale=cpu] [dataset=digits] [model=mlp]
        [seed=10,11,12] [distribution=iid,non_iid,sizes] [topology=regular,star] [samples=128]
        [borders=2] [out=DIR] [SETTING=VALUE ...]

Clients send logits of two models a round on a shared test set. Here they send fewer bits a number
(32, 16, 8, 6 and 4, below 16 with a scale of 16 bits for each example) or tell of fewer examples:
drawn at random, or chosen as those on which the clients' first models differ most. The coordinator
then evaluates the utility on these examples alone; the truth is that of all examples. Beside it
stand TRIP-Shapley and the best null of each cell. Cells and what is kept: as experiments.methods,
whose out=DIR shares its truths.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.paper.attributions import NULLS, Attributed
from experiments.paper.cells import COALITIONS, CellStudy
from experiments.paper.measures import TRIP
from experiments.topologies import BEYOND_THE_PAPER
from trip_jax.attribution import Journal
from trip_jax.attribution.predictions import by_predictions
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.learning.learner import Learner

BITS = 32, 16, 8, 6, 4
EXAMPLES = 500, 250, 100, 50, 25
SCALED = 16
"""Fewer bits than these go with a scale for each example, of as many bits."""

BEST_NULL = "best null"
WAYS = "random", "chosen"
"""How the examples are found of which clients tell."""


@dataclass(frozen=True)
class Predictions:
    """What clients' models predict of all test examples in a run, before any rounding.

    Attributes:
        start: logits of the first model, [D, C].
        logits: of models after training and of next ones, [T, 2, n, D, C].
    """

    journal: Journal
    learner: Learner
    start: np.ndarray
    logits: np.ndarray

    @classmethod
    def of(cls, one: Attributed) -> "Predictions":
        """The predictions of the clients of a cell."""
        settings = replace(one.cell.config.contribution, method="predictions")
        journal, learner = one.trajectory.journal(settings.build()), one.learner
        said = [
            [np.asarray(learner.logits(models)) for models in (learned.trained, learned.models)]
            for _, learned in one.trajectory.rounds
        ]
        start = np.asarray(learner.logits(jnp.asarray(journal.start[None])))[0]
        return cls(journal, learner, start, np.asarray(said))

    def phi(self, bits: int, examples: np.ndarray) -> np.ndarray:
        """Contributions [n, n, 3] from so many bits a logit of some examples."""
        some = self.logits[..., examples, :]
        sent = quantised(some - some.mean(axis=-1, keepdims=True), bits)  # as nodes send them
        n_rounds, _, n = sent.shape[:3]
        reports = np.moveaxis(sent, 1, 2).reshape(n_rounds, n, -1)
        data = self.learner.data
        learner = self.learner.on(
            replace(
                data,
                test_images=data.test_images[examples],
                test_labels=data.test_labels[examples],
            )
        )
        return np.asarray(by_predictions(replace(self.journal, updates=reports), learner).phi)

    def chosen(self, way: str, number: int, seed: int) -> np.ndarray:
        """The numbers of the examples of which clients tell, in order."""
        n_examples = len(self.start)
        if way == "random":
            order = np.random.default_rng(seed).permutation(n_examples)
        else:
            apart = self.logits[0, 0].var(axis=0).sum(axis=-1)  # after the first round's training
            order = np.argsort(-apart, kind="stable")
        return np.sort(order[:number])


def quantised(logits: np.ndarray, bits: int) -> np.ndarray:
    """Logits [..., C] as they are read again from so many bits a number."""
    if bits >= SCALED:
        return np.clip(logits, *_range(bits)).astype(f"float{bits}").astype(np.float32)
    steps = 2 ** (bits - 1) - 1
    scale = (abs(logits).max(axis=-1, keepdims=True) / steps).astype(f"float{SCALED}")
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return np.clip(np.rint(logits / scale), -steps, steps) * scale


def _range(bits: int) -> tuple[float, float]:
    largest = float(np.finfo(f"float{bits}").max)
    return -largest, largest


def n_bytes(bits: int, n_examples: int, n_classes: int) -> int:
    """Bytes that a client sends in a round."""
    of_scale = SCALED if bits < SCALED else 0
    return 2 * n_examples * (n_classes * bits + of_scale) // 8


def prediction_size(arguments: Sequence[str]) -> None:
    """Compute all sizes in all cells, and write the curve."""
    study = CellStudy(
        "prediction_size",
        arguments,
        ("iid", "non_iid", "sizes"),
        ("regular", "star"),
        COALITIONS,
    )
    for dataset, model in study.reports():
        rows: list[dict[str, Any]] = []
        for seed, distribution, topology in product(
            study.seeds, study.distributions, study.topologies
        ):
            print(f"{distribution}, {topology}, seed {seed}", flush=True)
            graph = BEYOND_THE_PAPER.get(topology, [f"topology={topology}"])
            cell = study.cell(dataset, model, seed, f"distribution={distribution}", *graph)
            where = {"distribution": distribution, "topology": topology, "seed": seed}
            rows += [where | row for row in measured(Attributed(cell), seed)]
        frame, title = pandas.DataFrame(rows), study.about(dataset, model)
        written = study.report(dataset, model)
        text = written.write(frame, "Predictions by their size", title, *_sections(frame))
        written.draw(partial(draw, frame, title))
        print(f"{text}\nresults in {study.folder}")


def measured(one: Attributed, seed: int) -> Iterator[dict[str, Any]]:
    """A row for every size and utility, and for what predictions are compared with."""
    truth, predictions = one.cell.decentralised()["values"], Predictions.of(one)
    n_examples, n_classes = predictions.start.shape
    sizes = [(bits, "all", n_examples) for bits in BITS]
    sizes += [(16, way, few) for way in WAYS for few in EXAMPLES if few < n_examples]
    for bits, way, number in sizes:
        examples = predictions.chosen("random" if way == "all" else way, number, seed)
        phi = predictions.phi(bits, examples)
        about = {"bits": bits, "examples": number, "which": way}
        about |= {"bytes": n_bytes(bits, number, n_classes), "method": "predictions"}
        for k, utility in enumerate(UTILITIES[:2]):
            yield about | {"utility": utility} | yardsticks(phi[..., k], truth[..., k])
    for k, utility in enumerate(UTILITIES[:2]):
        others = {name: yardsticks(one.phi(name)[..., k], truth[..., k]) for name in (TRIP, *NULLS)}
        yield {"method": TRIP, "utility": utility} | others[TRIP]
        best = min(NULLS, key=lambda name: others[name]["distance"])
        yield {"method": BEST_NULL, "utility": utility} | others[best]


def _sections(frame: pandas.DataFrame) -> Iterator[str]:
    """A table a utility: sizes downwards, the mean over cells and seeds, and counts of cells."""
    for utility, these in frame.groupby("utility", sort=False):
        null = (
            these[these.method == BEST_NULL]
            .set_index(["distribution", "topology", "seed"])
            .distance
        )
        yield f"## By {utility}"
        lines = [["what is sent", "bytes a client and round", "distance", "ahead of every null"]]
        sent = these[these.method == "predictions"]
        for (bits, which, number), rows in sent.groupby(["bits", "which", "examples"], sort=False):
            by_cell = rows.set_index(["distribution", "topology", "seed"]).distance
            ahead = f"{int((by_cell < null[by_cell.index]).sum())} of {len(by_cell)}"
            which = "" if which == "all" else f", {which}"
            what = f"{int(bits)} bits, {int(number)} examples{which}"
            said = f"{rows.bytes.iloc[0]:,.0f}", report.number(rows.distance.mean(), 4)
            lines.append([what, *said, ahead])
        for name in (TRIP, BEST_NULL):
            rows = these[these.method == name]
            lines.append([name, "–", report.number(rows.distance.mean(), 4), "–"])
        yield report.markdown(lines)


def draw(frame: pandas.DataFrame, title: str) -> Figure:
    """Distance against bytes: fewer bits, and fewer examples at 16 bits."""
    what = "Fewer bytes of predictions: distance to the Shapley value, mean over cells"
    figure, panels = report.panels(what, title, 2.8, 2)
    for axes, (utility, these) in zip(panels, frame.groupby("utility", sort=False), strict=True):
        sent = these[these.method == "predictions"]
        whole = sent[sent.which == "all"]
        curves = {"fewer bits": whole}
        half = whole[whole.bits == 16]
        curves |= {
            f"fewer examples, {way}": pandas.concat([half, sent[sent.which == way]]) for way in WAYS
        }
        for (name, rows), (colour, marker) in zip(curves.items(), report.LOOKS, strict=False):
            mean = rows.groupby("bytes").distance.mean()
            axes.plot(mean.index, mean, marker=marker, color=colour, ms=4, lw=1, label=name)
        for name, style in ((TRIP, ":"), (BEST_NULL, "--")):
            level = these[these.method == name].distance.mean()
            axes.axhline(level, color="black", lw=0.8, ls=style, label=name)
        axes.set(xscale="log", yscale="log", xlabel="bytes a client and round")
        axes.set_title(f"by {utility}", size=8)
    panels[0].set_ylabel("cosine distance to the Shapley value")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    run_as_command(prediction_size)
