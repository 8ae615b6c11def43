"""Numbers of pages, filled in from the table of results; missing or stale ones fail a build.

    ```{results} participation
    :where: topology=regular
    + present: {probability .1}
    + TRIP-Shapley: {distance .3 sd} if method=TRIP-Shapley
    - everyone there: probability=1; drop=0
    ```

The argument names runs, :where: which of their rows, :missing: what stands where there are none (a
build fails without it), and :labels: the headings of labels, with | between several. A line that
begins with + is a column: its heading, and what stands in its cells, where {COLUMN@METHOD DIGITS
STATISTIC} is a number, COLUMN/OTHER the ratio of two (their correlation, if the statistic is
`pearson`), and @METHOD may be left out. A line that begins with - is a row of the page: its label,
and which rows of the table it is about. DIGITS is .3, +.3 with a sign, .1% or , for thousands. The
statistic is the mean, if it is not told; `ahead` counts cells in which a method is closer than
every null, `nearest` is the distance of the closest null, and `lead` by how much that is farther.
In conditions ; is "and", / is "or", - is a missing value, and run=NAME* any run whose name begins
so. The run `paper` stands for the numbers of `python -m experiments.paper`.

In a sentence {number}`{distance .3 sd} if run=methods/digits; method=equal; utility=loss` is one.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import SphinxDirective, SphinxRole

from experiments.exchange_rates import slope
from experiments.harness import result_table
from experiments.harness.result_table import FOLDER
from experiments.harness.statistics import bootstrap, interval_over_seeds, pearson
from experiments.methods import RIVALS
from experiments.paper.attributions import NULLS
from experiments.paper.queue.page import NUMBERS
from experiments.paper.verdicts import ROUNDING, differences
from trip_jax.settings.errors import InvalidSetting

NUMBER = re.compile(r"\{(\w+)(?:/(\w+))?(?:@([^ ]+))? ([+\d.,%]+)(?: (\w+))?\}")
CELL = ("run", "distribution", "topology")
"""Columns that tell federations apart, of which a method is ahead of nulls or not."""
PAPER = "paper"
"""What pages call the numbers of the paper's own experiments, which have a table of their own."""
FILES = ("results.parquet", "results.csv", NUMBERS)


def rows(*names: str) -> pandas.DataFrame:
    """The rows of runs, as `result_table.rows` has them."""
    if names == (PAPER,):
        frame = pandas.read_csv(FOLDER / NUMBERS).assign(run=PAPER)
        lie, _, defence = frame.case.fillna("").str.partition(", ").T.to_numpy()
        return frame.assign(lie=lie, defence=defence)
    return result_table.rows(*names)


def require_current(frame: pandas.DataFrame) -> None:
    """Refuse rows of the table of results whose numbers today's code would not give."""
    result_table.require_current(frame[frame.run != PAPER])


def conditions(text: str) -> dict[str, list[str]]:
    """What columns may hold, from COLUMN=VALUE/VALUE; COLUMN=VALUE."""
    pairs = (one.partition("=")[::2] for one in text.split(";") if one.strip())
    return {column.strip(): [v.strip() for v in values.split(" / ")] for column, values in pairs}


def chosen(frame: pandas.DataFrame, where: Mapping[str, list[str]]) -> pandas.DataFrame:
    """The rows of which all conditions hold."""
    for column, values in where.items():
        if column not in frame:
            raise SphinxError(f"Results have no column {column}.")
        of_rows = frame[column]
        if values[0].endswith("*"):
            there = of_rows.str.startswith(values[0][:-1])
        elif of_rows.dtype == "float64":
            there = of_rows.isin([float(one) for one in values if one != "-"])
        else:
            there = of_rows.isin(values)
        frame = frame[there | of_rows.isna() & ("-" in values)]
    return frame


def said(value: float, digits: str) -> str:
    """A number as tables have it: .04, -.3, +.12, 4.1 %, 1,024."""
    if digits.endswith("%"):
        return f"{100 * value:{digits[:-1]}f} %"
    if digits == ",":
        return f"{value:,.0f}"
    text = f"{value:{digits}f}"
    return re.sub(r"^([+-]?)0\.", r"\1.", text)


def _of_seeds(frame: pandas.DataFrame, column: str) -> pandas.Series:
    return frame.groupby("seed")[column].mean().dropna()


def _with_deviation(frame: pandas.DataFrame, column: str, digits: str) -> str:
    values = _of_seeds(frame, column)
    after = f" ± {said(values.std(), digits.lstrip('+'))}" if len(values) > 1 else ""
    return said(values.mean(), digits) + after


def _with_interval(frame: pandas.DataFrame, column: str, digits: str) -> str:
    values = _of_seeds(frame, column).to_numpy()
    return _between(values.mean(), interval_over_seeds(values), digits)


def _between(value: float, interval: tuple[float, float], digits: str) -> str:
    low, high = (said(one, digits.lstrip("+")) for one in interval)
    return f"{said(value, digits)} ({low} to {high})"


def _correlation(frame: pandas.DataFrame, column: str, other: str, digits: str) -> str:
    """Pearson's over clients, mean over seeds; the interval of one seed is by a bootstrap."""
    samples = [(of[column].to_numpy(), of[other].to_numpy()) for _, of in frame.groupby("seed")]
    values = np.array([float(pearson(*sample)) for sample in samples])
    one_seed = len(samples) == 1
    interval = bootstrap(pearson, *samples[0]) if one_seed else interval_over_seeds(values)
    return _between(values.mean(), interval, digits)


def _of_kinds(frame: pandas.DataFrame, column: str, digits: str) -> str:
    means = frame.groupby("kind")[column].mean()
    return f"{said(means.min(), digits)} to {said(means.max(), digits)}"


def _rate(frame: pandas.DataFrame, column: str, digits: str) -> str:
    return said(slope(frame.assign(measured=frame[column])), digits)


def _last(frame: pandas.DataFrame, column: str, digits: str) -> str:
    return said(frame[column][frame["round"].idxmax()], digits)


STATISTICS: dict[str, Callable[[pandas.DataFrame, str, str], str]] = {
    "mean": lambda frame, column, digits: said(frame[column].mean(), digits),
    "least": lambda frame, column, digits: said(frame[column].min(), digits),
    "most": lambda frame, column, digits: said(frame[column].max(), digits),
    "kinds": _of_kinds,
    "sd": _with_deviation,
    "interval": _with_interval,
    "rate": _rate,
    "last": _last,
}
"""Deviations and intervals are over seeds, of means over all else; `kinds` is a range of means,
`rate` what a value is multiplied by in a round, and `last` what it is in the last round."""


def filled(text: str, frame: pandas.DataFrame, where: Mapping[str, list[str]]) -> str:
    """What stands in a cell.

    Args:
        frame: rows of the column of the page.
        where: which of them the row of the page is about.
    """

    def number(found: re.Match[str]) -> str:
        column, divisor, method, digits, statistic = found.groups()
        method = method and method.replace("_", " ")
        others = {name: values for name, values in where.items() if name != "method"}
        if statistic == "ahead":
            require_current(compared := chosen(frame, others))
            return _ahead(compared, method or where["method"][0])
        if statistic == "lead":
            require_current(compared := chosen(frame, others))
            return _lead(compared, method or where["method"][0], digits)
        if statistic == "nearest":
            require_current(nulls := chosen(frame, others | {"method": list(NULLS)}))
            return said(nulls.groupby("method")[column].mean().min(), digits)
        here = chosen(frame, others | {"method": [method]} if method else where)
        if here.empty or column not in here or here[column].isna().all():
            raise SphinxError(f"There are no results of {column} where {dict(where)}.")
        require_current(here)
        if statistic == "pearson":
            return _correlation(here, column, divisor, digits)
        if divisor:
            return said(here[column].mean() / here[divisor].mean(), digits)
        return STATISTICS[statistic or "mean"](here, column, digits)

    return NUMBER.sub(number, text)


def _ahead(frame: pandas.DataFrame, method: str) -> str:
    """In how many cells a method is closer to the truth than every null."""
    cell = [name for name in CELL if name in frame]
    distances = frame.groupby([*cell, "method"], dropna=False).distance.mean().unstack()
    others = distances.reindex(columns=[one for one in NULLS if one != method]).min(axis=1)
    return str((distances[method] < others - ROUNDING).sum())


def _lead(frame: pandas.DataFrame, method: str, digits: str) -> str:
    """By how much the nearest null of a cell is farther; the interval is that of the report."""
    lead = -differences(frame, list(CELL[1:]), method, NULLS).to_numpy()
    comparisons = frame.method.nunique() * len(RIVALS)
    return _between(lead.mean(), interval_over_seeds(lead, comparisons=comparisons), digits)


def table(
    names: str, where: str, lines: list[str], missing: str | None = None, labels: str | None = None
) -> Iterator[str]:
    """The lines of a table in Markdown; arguments are those of the directive."""
    frame = chosen(rows(*(name.strip() for name in names.split(","))), conditions(where))
    columns, listed = [], []
    for line in lines:
        if line.startswith("+"):
            head, _, what = line[1:].partition(": ")
            text, _, condition = what.partition(" if ")
            columns.append((head.strip(), text, chosen(frame, conditions(condition))))
        else:
            head, _, what = line[1:].rpartition(": ")
            listed.append((head.strip(), conditions(what)))
    first = listed[0][0].count("|") + 1
    heads = labels.split(" | ") if labels else [" "] * first
    yield "| " + " | ".join([*heads, *(head for head, _, _ in columns)]) + " |"
    yield "|---" * (first + len(columns)) + "|"
    for label, about in listed:
        cells = []
        for _, text, of_column in columns:
            try:
                cells.append(filled(text, of_column, about))
            except SphinxError:
                if missing is None:
                    raise
                cells.append(missing)
        yield "| " + " | ".join([label, *cells]) + " |"


def in_a_sentence(text: str) -> str:
    """What stands for the role `number`, from its text."""
    what, _, condition = text.partition(" if ")
    where = conditions(condition)
    return filled(what, rows(*where.pop("run")), where)


class Results(SphinxDirective):
    """The directive `results`, which becomes a table."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar = dict.fromkeys(("where", "missing", "labels"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        for name in FILES:
            self.env.note_dependency(str(Path(FOLDER, name)))
        options = {"where": "", **self.options}
        try:
            lines = list(table(self.arguments[0], lines=list(self.content), **options))
        except (SphinxError, InvalidSetting, KeyError) as reason:
            raise self.error(f"{self.get_source_info()}: {reason}") from reason
        found = nodes.container()
        self.state.nested_parse(StringList(lines, "results"), 0, found)
        return found.children


class Number(SphinxRole):
    """The role `number`, which becomes a number or several of the same rows."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        for name in FILES:
            self.env.note_dependency(str(Path(FOLDER, name)))
        try:
            return [nodes.Text(in_a_sentence(self.text))], []
        except (SphinxError, InvalidSetting, KeyError) as reason:
            raise SphinxError(f"{self.get_source_info()}: {reason}") from reason


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("results", Results)
    app.add_role("number", Number())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
