"""Ways to do the same work, timed in turn, and the table of their rates."""

import time
from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from typing import Any

import jax
import numpy as np
import pandas

from experiments.harness import report
from experiments.harness.report import Report

Work = Callable[[], Any]

OURS = "trip_jax"
RATIO = "times_as_fast_"
SHORT = 0.2  # seconds that every sample takes at least


def timed(
    ways: Mapping[str, Work], repeats: int, wait: Callable[[], None] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of each, taken in turn, after a first call that is not counted.

    Args:
        wait: for what is not JAX's and may be under way when a call returns.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, work in ways.items():
            began, calls, spent = time.perf_counter(), 0, 0.0
            while spent < SHORT:
                jax.block_until_ready(work())
                wait()
                calls, spent = calls + 1, time.perf_counter() - began
            if turn:
                seconds[name].append(spent / calls)
    return seconds


def spread(values: Sequence[float], name: str = "") -> dict[str, float]:
    """The median and the range of values, as columns of a table."""
    return {
        f"{name}median": float(np.median(values)),
        f"{name}least": min(values),
        f"{name}most": max(values),
    }


def compared(
    work: str, clients: int, unit: str, amount: float, seconds: Mapping[str, list[float]]
) -> list[dict[str, Any]]:
    """A row a way: its rate, and how many times as long it took as ours in the same turn, since
    machines change their speed."""
    return [
        {"work": work, "clients": clients, "who": name, "unit": unit}
        | spread([amount / one for one in taken])
        | spread([one / ours for one, ours in zip(taken, seconds[OURS], strict=True)], RATIO)
        for name, taken in seconds.items()
    ]


def write_comparison(
    rows: Sequence[dict[str, Any]], heading: str, title: str, written: Report
) -> str:
    """Rows of `compared`, or of such with a share `of_peak`, as CSV and Markdown.

    Returns:
        the Markdown.
    """
    ratio = f"{{{RATIO}median:.2f}} ({{{RATIO}least:.2f}} to {{{RATIO}most:.2f}})"
    said = [
        row
        | {name: rate(row[name]) for name in ("median", "least", "most")}
        | {"ratio": "" if row["who"] == OURS else ratio.format_map(row)}
        | {"share": "" if isnan(row.get("of_peak", nan)) else f"{row['of_peak']:.0%}"}
        for row in rows
    ]
    head = "work | clients |  | median (range) | ours is faster by (range over turns)"
    line = "{work} | {clients:,} | {who} | {median} ({least} to {most}) {unit} | {ratio}"
    if any(row["share"] for row in said):
        head, line = f"{head} | of the peak", f"{line} | {{share}}"
    lines = report.table(head, line, said)
    return written.write(pandas.DataFrame(rows), heading, title, lines, number=None)


def rate(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
