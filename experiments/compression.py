"""Compression: what contributions are worth that were told in fewer bytes.

    python -m experiments.compression [scale=cpu] [dataset=digits] [model=mlp] [seed=0,1,2]
        [distribution=non_iid,noisy_labels] [topology=regular] [lie=d1,d2,d1d2] [out=DIR]
        [SETTING=VALUE ...]

Every channel at several sizes, three ways: what contributions are computed from is compressed, with
and without error feedback; and what is learned from is compressed, too. Each is compared with the
same federation without compression: how far phi is from the uncompressed one and from the Shapley
value by re-execution (mean cosine distance of rows), what models can do in the end, and what liars
gain over their own honest score under the same channel. The truth is that of plain learning, so it
is left out where learning is compressed. Cells and what is kept: as experiments.methods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from jax import Array
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.harness import report
from experiments.harness.command_line import run_as_command
from experiments.harness.kept_runs import Arrays
from experiments.paper.attributions import NULLS
from experiments.paper.cells import Cell, CellStudy
from experiments.paper.measures import yardstick_rows
from experiments.paper.method_figures import draw_yardsticks
from experiments.paper.verdicts import HEADINGS, yardstick_sections
from trip_jax import ChannelConfig, Simulation, State
from trip_jax.config import Adversary, Config, Defence
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import aggregate
from trip_jax.protocol.algorithm import assess, coordinate, learn
from trip_jax.protocol.channels import Channel
from trip_jax.protocol.messages import Messages
from trip_jax.protocol.round import Round, Timetable
from trip_jax.protocol.rules import Rules
from trip_jax.protocol.state import Learned, Memory
from trip_jax.results.figure_style import add_legend
from trip_jax.runs.prepare import lay_out, prepare
from trip_jax.settings.errors import Diverged
from trip_jax.truth.metrics import cosine_distance

LIES = ("d1", "d2", "d1d2")
SIZES: dict[str, tuple[ChannelConfig, ...]] = {
    "top_k": tuple(ChannelConfig("top_k", share=share) for share in (0.0125, 0.05, 0.2)),
    "random_k": tuple(ChannelConfig("random_k", share=share) for share in (0.025, 0.1, 0.4)),
    "quantised": tuple(ChannelConfig("quantised", bits=bits) for bits in (2, 3, 8)),
    "low_rank": tuple(ChannelConfig("low_rank", rank=rank) for rank in (1, 3, 10)),
}
WAYS: dict[str, dict[str, Any]] = {
    "with feedback": {"error_feedback": True},
    "without": {"error_feedback": False},
    "learning, too": {"learning": True},
}
HONEST = Adversary()
TENTH = 0.1  # of the bytes that the plain exchange of pre-training models takes
BYTES_SHOWN = (0.03, 0.1, 0.3)  # on axes
WANTED = 0.01  # distance to the uncompressed phi

FIXED = {
    "channel": "Channels are compared here: leave out channel={value}.",
    "contribution.estimator": "Coalitions are enumerated here: leave out the estimator.",
}


@dataclass(frozen=True)
class Outcome:
    """What a federation leaves that is compared."""

    phi: np.ndarray  # [n, n]
    accuracy: float  # of the final models, mean over clients
    to_learn: int  # bytes of all rounds
    to_tell: int

    @property
    def scores(self) -> np.ndarray:
        return self.phi.mean(axis=0)


@dataclass(frozen=True)
class Received(Channel):
    """What another channel has made of the messages: programs are compiled once for all of them."""

    def __call__(
        self, sent: Messages, this_round: Round, memory: Any, learner: Learner
    ) -> tuple[Messages, Any]:
        everyone = jnp.arange(this_round.n_clients)
        return replace(sent, before=memory[0], trained=memory[1], altered=everyone), memory


@partial(jax.jit, static_argnames="channel")
def _transmitted(
    learner: Learner,
    rules: Rules,
    timetable: Timetable,
    state: State,
    learned: Learned,
    channel: Channel,
    memory: Any,
) -> tuple[tuple[Array, Array], Array, Any]:
    """What is received before and after training, the next models, and what senders remember."""
    here = timetable.at(state.round)
    accuracy, nobody = state.utility[:, ACCURACY], jnp.zeros(0, jnp.int32)
    own = Messages(state.models, learned.trained, accuracy, learned.unsent, nobody)
    sent, memory = channel(rules.adversary.send(own, here, learner), here, memory, learner)
    nearby = here.without(learned.unsent).neighbourhoods
    models = aggregate(rules.aggregate, sent.trained, nearby, learned.trained)
    return (sent.before, sent.trained), models, memory


class Followed:
    """A federation with its liars and defences, under one channel after another."""

    def __init__(self, config: Config):
        self.plain = prepare(config)[0]
        parts = lay_out(config)
        self.received = Simulation(
            parts.model,
            parts.federation.data,
            parts.topology,
            training=config.training,
            contribution=config.contribution,
            adversary=config.adversary,
            defence=config.defence,
            rules={"channel": Received()},
            seed=config.seed,
            devices=list(self.plain.learner.mesh.devices.flat),
        )

    def under(self, channel: Channel) -> Outcome:
        """The contributions of all rounds under a channel.

        Raises:
            Diverged: a model is no longer finite.
        """
        plain, received = self.plain, self.received
        state, memory = plain.start(), channel.start(plain.start().models)
        n_received = 0
        for t in range(plain.training.rounds):
            learned = learn(*plain.learning, state)
            arrays = (*plain.assessing, state, learned)
            arrays_received, models, memory = _transmitted(*arrays, channel, memory)
            told = replace(state, memory=Memory(arrays_received))
            assessed = assess(*received.assessing, told, learned.trained, learned.unsent)
            found = assessed.contributions
            if not np.isfinite(np.asarray(found.utility)).all():
                raise Diverged(t, int(np.argmin(np.isfinite(found.utility).all(axis=1))), None)
            traced = coordinate(*received.coordinating, state.phi, assessed.reports, state.round)
            state = replace(
                state, models=models, utility=found.utility, phi=traced.phi, round=traced.round
            )
            n_received += int(np.asarray(plain.topology.at(t).mask).sum()) - plain.n
        sizes = channel.message_bytes(plain.learner.model)
        accuracy = float(np.asarray(state.utility)[:, ACCURACY].mean())
        return Outcome(np.asarray(state.phi), accuracy, *(n_received * size for size in sizes))


class CompressedCell:
    """A cell whose rounds are assessed under every channel."""

    def __init__(self, cell: Cell):
        self.cell = cell
        self.followed = cache(self._followed)

    def _followed(self, adversary: Adversary, defended: bool) -> Followed:
        defence = replace(self.cell.config.defence, c1=defended, c2=defended)
        return Followed(replace(self.cell.config, adversary=adversary, defence=defence))

    def outcome(
        self, channel: ChannelConfig, adversary: Adversary = HONEST, defended: bool = False
    ) -> Outcome:
        """Computed now, or as it was kept."""

        def compute() -> Arrays:
            found = self.followed(adversary, defended).under(channel.build())
            return {name: np.asarray(value) for name, value in asdict(found).items()}

        how = [channel.kind, f"{channel.share:g}", str(channel.bits), str(channel.rank)]
        how += ["feedback"] * channel.error_feedback + ["learning"] * channel.learning
        how += [adversary.kind] + ["defended"] * defended
        kept = self.cell.computed(f"channel_{'_'.join(how)}", compute)
        whole = {name: kept[name].item() for name in ("accuracy", "to_learn", "to_tell")}
        return Outcome(phi=kept["phi"], **whole)

    def rows(self, lies: Sequence[str]) -> Iterator[dict[str, Any]]:
        """A row for every channel, its size and its way."""
        plain = self.outcome(ChannelConfig())
        truth = self.cell.decentralised()["values"][..., ACCURACY]
        yield self._row("none", "plain", ChannelConfig(), plain, plain, truth, lies)
        for way, settings in WAYS.items():
            for kind, sizes in SIZES.items():
                for size in sizes:
                    channel = replace(size, **settings)
                    found = self.outcome(channel)
                    told = lies if way == "with feedback" else ()
                    yield self._row(kind, way, channel, found, plain, truth, told)

    def _row(
        self,
        kind: str,
        way: str,
        channel: ChannelConfig,
        found: Outcome,
        plain: Outcome,
        truth: np.ndarray,
        lies: Sequence[str],
    ) -> dict[str, Any]:
        far = partial(_distance, found.phi)
        row: dict[str, Any] = {"channel": kind, "way": way}
        row["size"] = {
            "none": "",
            "quantised": f"{channel.bits} bits",
            "low_rank": f"rank {channel.rank}",
        }.get(kind, f"{channel.share:.2%}")
        row |= {"bytes": found.to_tell / plain.to_tell, "learning": found.to_learn / plain.to_learn}
        row |= {"from_plain": far(plain.phi), "accuracy": found.accuracy}
        size = np.linalg.norm(plain.phi)
        row["changed"] = float(np.linalg.norm(found.phi - plain.phi) / size)
        against = {} if channel.learning else yardsticks(found.phi, truth)
        row |= {f"truth {name}": against.get(name, np.nan) for name in HEADINGS}
        for lie, defended in product(lies, (False, True)):
            adversary = replace(self.cell.config.adversary, kind=lie)
            lied = self.outcome(channel, adversary, defended)
            liars = _liars(self.cell, adversary)
            gain = (lied.scores - found.scores)[liars].mean()
            row[f"{lie}{' defended' * defended}"] = float(gain)
        return row


def _liars(cell: Cell, adversary: Adversary) -> np.ndarray:
    return cell.simulation.with_liars(adversary, Defence()).liars


def _distance(phi: np.ndarray, other: np.ndarray) -> float:
    return max(0.0, float(np.nanmean(cosine_distance(phi, other))))  # rounding may leave it below 0


class CompressionStudy(CellStudy):
    """Which cells and lies are asked for."""

    def __init__(self, arguments: Sequence[str]):
        kinds = ("non_iid", "noisy_labels")
        super().__init__("compression", arguments, kinds, names=("lie",), fixed=FIXED)
        self.lies = self.request.among("lie", LIES)


def compression(arguments: Sequence[str]) -> None:
    """Fill the table as far as it was asked for; one report a data set and model."""
    study = CompressionStudy(arguments)
    for dataset, model in study.reports():
        rows, told = [], []
        for seed, kind, graph in product(study.seeds, study.distributions, study.topologies):
            print(f"{kind}, {graph}, seed {seed}", flush=True)
            given = (f"distribution={kind}", f"topology={graph}")
            cell = CompressedCell(study.cell(dataset, model, seed, *given))
            where = {"distribution": kind, "topology": graph, "seed": seed}
            rows += [where | row for row in cell.rows(study.lies)]
            told += [where | row for row in yardstick_rows(cell.cell)]
        frame = pandas.DataFrame(rows)
        title = study.about(dataset, model)
        written = study.report(dataset, model)
        beside, apart = pandas.DataFrame(told), ["distribution", "topology"]
        sections = *_sections(frame, study.lies), *yardstick_sections(beside, apart, NULLS)
        text = written.write(frame, "Compressed exchange", title, *sections, beside=beside)
        written.draw(partial(draw, frame, study.lies, title))
        written.draw(partial(draw_yardsticks, beside, apart, title), "_yardsticks")
        print(f"{text}\nresults in {study.folder}")


KEYS = ["channel", "way", "size"]


def _sections(frame: pandas.DataFrame, lies: Sequence[str]) -> Iterator[str]:
    means = frame.groupby(KEYS, sort=False).mean(numeric_only=True).reset_index()
    worst = frame.groupby(KEYS, sort=False).from_plain.max().reset_index(name="worst")
    table = means.merge(worst, on=KEYS)
    small = table[(table.channel != "none") & (table.way != "learning, too")]
    small = small[small.bytes <= TENTH]
    best = small.loc[small.from_plain.idxmin()]
    there = "is" if best.worst <= WANTED else "is not"
    yield (
        f"Wanted is phi within {WANTED:g} of the uncompressed one at a tenth of the extra bytes of "
        f"the pre-training exchange. The nearest there: {best.channel}, {best['size']}, "
        f"{best.way}: {best.from_plain:.4f} on average, {best.worst:.4f} in the worst cell, at "
        f"{best.bytes:.3f} of the bytes. It {there} within in every cell."
    )
    yield (
        "Bytes as shares of the plain ones. Distances are mean cosine distances of the rows of "
        "phi, by accuracy; changed: the norm of the difference to the uncompressed phi, over that "
        "of the uncompressed one, which also sees the scale. Pearson's coefficient within a row "
        "and relative errors are against the Shapley value; what nulls reach stands below. Means "
        "over cells and seeds."
    )
    yield report.table(
        "channel | size | way | bytes to tell | to learn | from uncompressed | in the worst cell | "
        "changed | from the truth | Pearson | relative error | final accuracy",
        "{channel} | {size} | {way} | {bytes:.3f} | {learning:.3f} | {from_plain:.4f} | "
        "{worst:.4f} | {changed:.3f} | {truth distance:.4f} | {truth centred:.2f} | "
        "{truth relative:.2f} | {accuracy:.3f}",
        table.to_dict("records"),
    )
    told = table[(table.way == "with feedback") | (table.channel == "none")]
    names = [f"{lie}{end}" for lie in lies for end in ("", " defended")]
    yield "What liars gain over their honest score under the same channel, plain learning:"
    yield report.table(
        " | ".join(["channel | size | bytes to tell", *names]),
        " | ".join(["{channel} | {size} | {bytes:.3f}", *(f"{{{name}:+.4f}}" for name in names)]),
        told.to_dict("records"),
    )


def draw(frame: pandas.DataFrame, lies: Sequence[str], title: str) -> Figure:
    """Distance to the uncompressed phi (left), final accuracy (middle) and the liars' gain (right)
    against bytes."""
    what = "Contributions, models and lies against bytes"
    figure, (near, models, gains) = report.panels(what, title, 3.0, 3, width=9.5)
    means = frame.groupby(KEYS, sort=False).mean(numeric_only=True).reset_index()
    styles = {"with feedback": "-", "without": ":", "learning, too": "--"}
    for (kind, (colour, marker)), (way, style) in product(
        zip(SIZES, report.LOOKS, strict=False), styles.items()
    ):
        rows = means[(means.channel == kind) & (means.way == way)].sort_values("bytes")
        look: dict[str, Any] = {"color": colour, "marker": marker, "ls": style, "ms": 3, "lw": 0.9}
        label = kind.replace("_", " ") if way == "with feedback" else None
        near.plot(rows.bytes, rows.from_plain, label=label, **look)
        if way == "learning, too":
            models.plot(rows.learning, rows.accuracy, label=kind.replace("_", " "), **look)
        if way == "with feedback":
            for lie, mark in zip(lies, "os^", strict=False):
                gains.plot(
                    rows.bytes, rows[lie], color=colour, marker=mark, ms=3, lw=0.9, label=None
                )
    plain = means[means.channel == "none"].iloc[0]
    for style, way in ((style, way) for way, style in styles.items()):
        near.plot([], [], color="k", ls=style, lw=0.9, label=way)
    near.axhline(WANTED, color="k", lw=0.5)
    near.axvline(TENTH, color="k", lw=0.5)
    near.set(xscale="log", yscale="log", ylabel="cosine distance to uncompressed phi")
    near.set_xlabel("bytes to compute contributions, plain = 1")
    models.axhline(plain.accuracy, color="k", lw=0.6, ls=":")
    models.set(xscale="log", ylabel="final accuracy, learning compressed")
    models.set_xlabel("bytes to learn, plain = 1")
    for lie, mark in zip(lies, "os^", strict=False):
        gains.axhline(plain[lie], color="k", lw=0.5, ls=":")
        gains.plot([], [], color="k", marker=mark, ms=3, lw=0, label=lie)
    gains.set(xscale="log", ylabel="gain of undefended liars")
    gains.set_xlabel("bytes to compute contributions, plain = 1")
    for axes in (near, models, gains):
        axes.set_xticks(BYTES_SHOWN, [f"{share:g}" for share in BYTES_SHOWN])
        axes.xaxis.set_minor_locator(NullLocator())
        add_legend(axes)
    return figure


if __name__ == "__main__":
    run_as_command(compression)
