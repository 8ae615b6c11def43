"""Progress of a run: one line that changes on a terminal, one line a round elsewhere."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.state import Record
from trip_jax.simulation.history import Timing
from trip_node.settings.lines import columns, in_lines, say

__all__ = ["RoundProgress", "bar_format", "columns", "duration", "in_lines"]

SECONDS_A_LINE = 10.0
"""Between lines of what follows the last round."""


class RoundProgress:
    """Reports each round with its mean accuracy, rates and the time left; a context manager."""

    def __init__(self, rounds: int, n_clients: int, done: int = 0):
        self._rounds, self._n_clients, self._done = rounds, n_clients, done
        self._spent = 0.0
        self._concluding: tuple[float, float] | None = None  # when it began, with which share
        self._bar: Any = None

    def __enter__(self) -> "RoundProgress":
        if sys.stderr.isatty():
            from tqdm import tqdm

            # Shown by `begin`, for what is printed before would break the line.
            # A terminal without a size has -1 rows for tqdm, which then shows nothing.
            self._bar = tqdm(total=self._rounds, ncols=columns(), nrows=2, delay=float("inf"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()

    def begin(self) -> None:
        """Show the progress bar before the first round is over."""
        if self._bar is not None:
            self._show(self._done, ())

    def report(self, t: int, record: Record, timing: Timing) -> None:
        """Say what round t, counted from 0, brought."""
        accuracy = np.asarray(record.utility)[:, ACCURACY]
        self._spent += timing.seconds
        left = self._spent / (t + 1 - self._done) * (self._rounds - t - 1)
        news = (  # the most important first
            f"accuracy {accuracy.mean():.3f} ± {accuracy.std():.3f}",
            f"{duration(left)} left",
            f"{_rate(self._n_clients / timing.training)} clients/s",
            f"{_rate(timing.coalitions / timing.evaluation)} coalitions/s",
        )
        if self._bar is None:
            say(f"round {t + 1}/{self._rounds}: {', '.join(news)}")
            return
        self._show(t + 1, news)

    def conclude(self, share: float) -> None:
        """Say how much is done of what waited for the last round."""
        now = time.perf_counter()
        began, before = self._concluding = self._concluding or (now, share)
        if share == before:
            self._said = now
            return
        head, left = f"contributions {share:.0%}", (now - began) / (share - before) * (1 - share)
        news = (f"{duration(left)} left",)
        if self._bar is not None:
            self._bar.total = 1
            self._draw(head, news, share)
        elif now > self._said + SECONDS_A_LINE:
            self._said = now
            say(f"{head}: {news[0]}")

    def _show(self, done: int, news: Sequence[str]) -> None:
        self._draw(f"round {done}/{self._rounds}", news, done)

    def _draw(self, head: str, news: Sequence[str], done: float) -> None:
        width = columns() - 1  # some terminals wrap after a full line
        self._bar.bar_format = bar_format(head, news, width)
        self._bar.n, self._bar.ncols, self._bar.delay = done, width, 0
        self._bar.refresh()


BAR = 10  # the least length of a bar
NARROW = 60  # columns below which news are worth more than a bar


def bar_format(head: str, news: Sequence[str], width: int) -> str:
    """A line for tqdm: as much of the news as there is room for, then a bar."""
    room = width if width < NARROW else width - BAR - len(" ||")
    shown = head
    for one in news:
        longer = f"{shown}{', ' if shown != head else ': '}{one}"
        if len(longer) > room:
            break
        shown = longer
    bar = min(width - len(shown) - len(" ||"), 2 * BAR)
    return shown[:width] if width < NARROW else f"{shown} |{{bar:{bar}}}|"


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
