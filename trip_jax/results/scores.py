"""Scores as people read them: with shares, the highest and lowest first."""

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from trip_jax.results.labels import column, labels
from trip_jax.results.meaning import unit
from trip_jax.settings.plurals import counted
from trip_node.deployment.scores import MOST, percent, shares

if TYPE_CHECKING:
    import pandas
    import xarray


def extremes(scores: Sequence[float] | np.ndarray) -> tuple[list[int], list[int]]:
    """The clients of the highest and of the lowest scores, best first; all are in the first list
    where there are few."""
    order = np.argsort(-np.asarray(scores), kind="stable").tolist()
    return (order[:MOST], order[-MOST:]) if len(order) > 2 * MOST else (order, [])


def decimals(scores: Sequence[float] | np.ndarray, least: int) -> int:
    """The decimals that show three digits of the largest score."""
    most = float(np.nanmax(np.abs(scores), initial=0))
    return max(least, 2 - math.floor(math.log10(most))) if 0 < most < math.inf else least


def describe_scores(
    scores: Sequence[float] | np.ndarray, liars: Sequence[int], names: Sequence[str] | None = None
) -> str:
    """The highest and lowest scores, with their shares of all, as a line of text."""
    share, digits = shares(scores), decimals(scores, least=3)
    called = names or range(len(scores))

    def listed(clients: list[int]) -> str:
        return ", ".join(
            f"{called[i]}{' (liar)' * (i in liars)} {scores[i]:.{digits}f} ({percent(share[i])})"
            for i in clients
        )

    highest, lowest = extremes(scores)
    return f"scores by client: {listed(highest)}{', ... ' * bool(lowest)}{listed(lowest)}"


def client_table(run: "xarray.Dataset") -> "pandas.DataFrame":
    """A table of scores with a row for each client.

    Args:
        run: results.nc.

    Returns:
        by client: its `score`, in the unit that results.nc says; its `share` of all scores in per
        cent; `score_error` where coalitions were sampled; how many `examples` it owns; what the
        distribution of data varies, where that is something else; the test `accuracy` of its final
        model; and whether it is a `liar`.
    """
    import pandas

    columns = {"score": run.score.values, "share": shares(run.score.values)}
    if "score_error" in run:
        columns["score_error"] = run.score_error.values
    columns["examples"] = run.examples.values
    if "level" in run and run.level.attrs["long_name"] != "examples":
        columns[run.level.attrs["long_name"]] = run.level.values
    columns["accuracy"] = run.accuracy.values[-1]
    columns["liar"] = run.liar.values.astype(bool)
    return pandas.DataFrame(columns, index=pandas.Index(column(run), name="client"))


def in_a_few_lines(
    accuracy: np.ndarray,
    scores: np.ndarray | None,
    liars: Sequence[int],
    names: Sequence[str] | None,
    measured: str = "test accuracy",
) -> str:
    """What came out of a run: accuracy, and the highest and lowest scores.

    Args:
        accuracy: [T, n] of the clients' models after each round.
        scores: [n]; None: they are left out.
        measured: the name of what is measured in place of accuracy.
    """
    rounds, n = accuracy.shape
    final = f"{measured} {accuracy[-1].mean():.3f} ± {accuracy[-1].std():.3f}"
    text = f"{final} after {counted(rounds, 'round')} with {counted(n, 'client')}"
    return text if scores is None else f"{text}\n{describe_scores(scores, liars, names)}"


def finding(run: "xarray.Dataset") -> str:
    """Who contributed most and least, in a sentence; "" where scores are no numbers.

    Args:
        run: results.nc.
    """
    scores, called = run.score.values, labels(run)
    if len(scores) < 2 or not np.isfinite(scores).all():
        return ""
    share, liar = shares(scores), run.liar.values.astype(bool)
    best, worst = int(scores.argmax()), int(scores.argmin())
    digits, of_shares = decimals(scores, least=3), max(1, decimals(share, least=2) - 1)
    of_best, of_worst = (
        f"a score of {scores[i]:.{digits}f}"
        if math.isnan(share[i])
        else f"{share[i]:.{of_shares}f} %"
        for i in (best, worst)
    )
    of_all = " of all credit" * (not math.isnan(share[best]))
    text = (
        f"Client {called[best]} contributed most: {of_best}{of_all}. "
        f"Client {called[worst]} contributed least: {of_worst}."
    )
    if liar.any() and of_all:
        who = "The liar has" if liar.sum() == 1 else f"The {liar.sum():,} liars together have"
        text += f" {who} {share[liar].sum():.{of_shares}f} %."
    return text


def html_of(run: "xarray.Dataset") -> str:
    """The clients of the highest and lowest scores as a table for notebooks.

    Args:
        run: results.nc.
    """
    table = client_table(run)
    highest, lowest = extremes(run.score.values)
    rows = table.iloc[highest + lowest]
    left_out = f"; {len(table) - len(rows):,} clients are left out" * (len(rows) < len(table))
    says = f"{run.title}; scores in {unit(run.attrs)}{left_out}"
    return f"<p>{escape(says)}</p>{rows.to_html(float_format='{:.3f}'.format)}"


def score_table(run: "xarray.Dataset") -> str:
    """The clients of the highest and lowest scores in lines beneath each other.

    Args:
        run: results.nc.
    """
    import pandas

    scores, levels = run.score.values, run.level.attrs["long_name"]
    digits = decimals(scores, least=4)
    columns = {
        "client": labels(run),
        "score": [f"{score:.{digits}f}" for score in scores],
        "share": [percent(share) for share in shares(scores)],
    }
    if "score_error" in run:  # standard errors, where coalitions are drawn
        columns["std. error"] = [f"{error:.2g}" for error in run.score_error.values]
    columns["examples"] = [f"{examples:,}" for examples in run.examples.values]
    if levels != "examples":
        columns[levels] = [f"{level:.3g}" for level in run.level.values]
    if run.liar.values.any():
        columns[""] = ["liar" if liar else "" for liar in run.liar.values]
    frame = pandas.DataFrame(columns)
    highest, lowest = extremes(scores)
    if not lowest:
        return frame.iloc[highest].to_string(index=False)
    between = pandas.DataFrame({name: ["..."] for name in columns})
    shown = pandas.concat([frame.iloc[highest], between, frame.iloc[lowest]])
    return shown.to_string(index=False)
