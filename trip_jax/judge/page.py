"""A verdict as text, page, table and citation."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

from trip_jax.judge.cells import TRACKS, benchmark
from trip_jax.judge.leaderboard import number, with_spread
from trip_jax.judge.table import BY, Table
from trip_jax.judge.verdict import Difference, Judgement
from trip_jax.judge.yardsticks import JUDGED, TOP, by_sampling
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.protocol.methods.facts import Costs
from trip_jax.settings.plurals import counted
from trip_node.pages.document import WEB

COLUMNS = ("method", "cell", "utility", *(name.replace(" ", "_") for name in JUDGED))
"""The columns of table.csv, which has a row for each cell and utility."""

CITATION = "@misc{trip_jax_judge"
"""The first line of the BibTeX entry."""


@dataclass(frozen=True)
class VerdictReport:
    """A verdict with the costs and the comparison that its page and table show.

    Attributes:
        track, seeds: the track and the seeds that were asked for.
        costs, sees, spent: of the method; None where it was computed elsewhere.
    """

    verdict: Judgement
    track: str
    seeds: str
    own: Float[np.ndarray, "C U Y"]
    table: Table
    costs: Costs | None = None
    sees: str = ""
    spent: Float[np.ndarray, " 3"] | None = None

    @property
    def title(self) -> str:
        """What was judged on which cells."""
        one = self.verdict
        cells, seeds = counted(len(one.cells), "cell"), ", ".join(map(str, one.seeds))
        plural = "s" * (len(one.seeds) != 1)
        return (
            f"{one.method} on track {self.track} ({TRACKS[self.track].about}), {self.seeds} "
            f"seed{plural} {seeds}: {cells}, benchmark {benchmark().label}"
        )

    @property
    def about(self) -> str:
        """What is judged, and how sure the truth is, in sentences."""
        if self.verdict.level == "matrix":
            what = "Judged is phi[i, j], what client j contributed to client i's final model."
        else:
            what = "Judged are scores, what a client contributed to all final models on average."
        return f"{what} {self._doubt()}".rstrip()

    def _doubt(self) -> str:
        """How far an estimated truth is from another; nothing where truths are exact."""
        drawn = [
            (one.values, one.standard_error)
            for one in self.verdict.cells
            if one.standard_error is not None
        ]
        if not drawn:
            return ""
        apart = {
            name: np.mean([by_sampling(values[..., k], error[..., k]) for values, error in drawn])
            for name, k in ((one, UTILITIES.index(one)) for one in BY)
        }
        each = " and ".join(f"{distance:.3f} by {name}" for name, distance in apart.items())
        return (
            "The truth is an estimate from drawn coalitions: phi of two such estimates would be "
            f"{each} from each other."
        )

    def cost(self) -> str:
        """What the method costs, in sentences."""
        if self.costs is None or self.spent is None:
            return "What it costs and who sees what is not known of scores computed elsewhere."
        evaluations, gradients, n_bytes = self.spent
        formulas = [
            f"{self.costs.amount(name).formula} {what}"
            for name, what in (
                ("evaluations", "models evaluated"),
                ("gradients", "gradients"),
                ("n_bytes", "bytes"),
            )
        ]
        return (
            f"Whoever computes contributions sees {self.sees}. A client in a round: "
            f"{', '.join(formulas)}. All clients in a run, beside what learning takes: "
            f"{evaluations:,.0f} models evaluated, {gradients:,.0f} gradients, {n_bytes:,.0f} "
            "bytes."
        )

    def yardsticks(self) -> list[list[str]]:
        """A line for each utility, after their head."""
        top = max(1, len(self.verdict.cells[0].values) // TOP)
        head = ["by", *(f"top {top} shared" if name == "top overlap" else name for name in JUDGED)]
        lines = [
            [utility, *map(with_spread, self.verdict.mean[u], self.verdict.spread[u])]
            for u, utility in enumerate(BY)
        ]
        return [head, *lines]

    def against_nulls(self) -> list[list[str]]:
        """A line for each null and utility, after their head."""
        head = ["null", "by", "its distance less the null's", "corrected interval", "outcome"]
        return [head, *map(_line, self.verdict.nulls)]

    def against_methods(self) -> Iterator[str]:
        """For each utility, which methods it is behind, level with, and ahead of."""
        for utility in BY:
            parts = []
            for outcome, words in (
                ("behind", "behind"),
                ("level", "not told apart from"),
                ("ahead", "ahead of"),
                ("one seed", "not compared, for want of a second seed, with"),
            ):
                named = [
                    f"{one.rival} ({one.difference:+.3f})"
                    for one in self.verdict.rivals
                    if (one.outcome, one.utility) == (outcome, utility)
                ]
                if named:
                    parts.append(f"{words} {', '.join(named)}")
            yield f"By {utility}: {'; '.join(parts) or 'no other method was judged here'}."

    def all_methods(self) -> list[list[str]]:
        """The distances of all methods in the same cells, least first, with this one among them."""
        one = self.verdict
        rows = [(one.mean[0, 0], f"{one.method} (this)", one.mean)]
        for name in self.table.judged(one.cells):
            mean = self.table.of(name, one.cells, one.level).mean(axis=0)
            rows.append((mean[0, 0], name, mean))
        head = ["method", *JUDGED, "distance by loss"]
        return [
            head,
            *(
                [name, *(number(value) for value in (*mean[0], mean[1, 0]))]
                for _, name, mean in sorted(rows, key=lambda row: row[0])
            ),
        ]


def _line(one: Difference) -> list[str]:
    interval = "–" if np.isnan(one.low) else f"{one.low:+.3f} to {one.high:+.3f}"
    return [one.rival, one.utility, f"{one.difference:+.3f}", interval, one.outcome]


def text(report: VerdictReport) -> str:
    """The verdict as it is printed."""
    one = report.verdict
    ahead = (f"{a} of {n} nulls by {by}" for by in BY for a, n in (one.ahead_of_nulls(by),))
    parts = [
        report.title,
        report.about,
        _in_columns(report.yardsticks()),
        f"Ahead of {' and '.join(ahead)}; {one.corrected(one.nulls)}:",
        _in_columns(report.against_nulls()),
        f"Beside other methods; {one.corrected(one.rivals)}:",
        "\n".join(report.against_methods()),
        report.cost(),
    ]
    return "\n\n".join(parts)


def _in_columns(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(f"{one:<{width}}" for one, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(f"  {line}".rstrip() for line in padded)


def page(report: VerdictReport) -> str:
    """The verdict as an HTML page that loads nothing from elsewhere."""
    one, style = report.verdict, (WEB / "style.css").read_text(encoding="utf-8")
    ahead = (f"{a} of {n} nulls by {by}" for by in BY for a, n in (one.ahead_of_nulls(by),))
    body = [
        f"<h1>{escape(one.method)}</h1>",
        *(f"<p>{escape(part)}</p>" for part in (f"{report.title}.", report.about)),
        _table(report.yardsticks()),
        f"<h2>Ahead of {escape(' and '.join(ahead))}</h2>",
        f"<p>{escape(one.corrected(one.nulls))}. Below 0 it is closer to the truth.</p>",
        _table(report.against_nulls()),
        "<h2>Beside other methods</h2>",
        f"<p>{escape(one.corrected(one.rivals))}.</p>",
        *(f"<p>{escape(line)}</p>" for line in report.against_methods()),
        _table(report.all_methods(), f"{one.method} (this)"),
        "<h2>What it costs</h2>",
        f"<p>{escape(report.cost())}</p>",
        "<h2>Cite</h2>",
        f"<pre>{escape(bibtex())}</pre>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="generator" content="trip_jax">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(one.method)}</title>\n<style>{style}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _table(lines: Sequence[Sequence[str]], marked: str = "") -> str:
    head, *rows = lines
    columns = "".join(f'<th scope="col">{escape(one)}</th>' for one in head)
    body = []
    for row in rows:
        first, *others = (
            f"<strong>{escape(one)}</strong>" if row[0] == marked else escape(one) for one in row
        )
        cells = "".join(f"<td>{one}</td>" for one in others)
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return f"<table><thead><tr>{columns}</tr></thead>\n<tbody>{chr(10).join(body)}</tbody></table>"


def table(report: VerdictReport) -> str:
    """The yardsticks of every cell as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for cell, rows in zip(report.verdict.cells, report.own, strict=True):
        for utility, row in zip(BY, rows, strict=True):
            writer.writerow([report.verdict.method, cell.name, utility, *(f"{v:.6g}" for v in row)])
    return out.getvalue()


def bibtex() -> str:
    """A BibTeX entry of the benchmark in this version."""
    one = benchmark()
    return (
        f"{CITATION},\n"
        "  author = {{The trip\\_jax developers}},\n"
        "  title = {{trip-jax judge: contribution methods against exact Shapley values}},\n"
        f"  version = {{{one.label}}},\n"
        f"  note = {{{len(one.cells)} cells, SHA-256 {one.sha256}}}\n"
        "}\n"
    )
