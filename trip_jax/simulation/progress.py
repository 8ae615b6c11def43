"""Progress of a run: one line that changes on a terminal, one line a round elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.memory import PlannedMemory
from trip_jax.learning.utilities import is_of_numbers
from trip_jax.protocol.state import Record
from trip_jax.results.result import Timing
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.observer import Observer
from trip_node.settings.lines import columns, in_lines, say

__all__ = ["RoundProgress", "bar_format", "columns", "duration", "in_lines"]

SECONDS_A_LINE = 10.0
"""Between lines of what follows the last round."""


class RoundProgress:
    """Reports each round with its mean accuracy, rates and the time left; a context manager.

    In regression R² stands in place of accuracy.

    Args:
        rounds, n_clients: the numbers of rounds and clients of the run.
        done: rounds that an earlier part of the run brought.
        leaves: whether the bar stays when the run is over.
        stream: where lines go if there is no bar; standard output by default.
        utility: in which contributions are measured.
    """

    def __init__(
        self,
        rounds: int,
        n_clients: int,
        done: int = 0,
        leaves: bool = True,
        stream: Any = None,
        utility: str = "accuracy",
    ):
        self._measured = "R²" if is_of_numbers(utility) else "accuracy"
        self._rounds, self._n_clients, self._done = rounds, n_clients, done
        self._leaves, self._stream = leaves, stream
        self._spent = 0.0
        self._concluding: tuple[float, float] | None = None  # when it began, with which share
        self._bar: Any = None

    def __enter__(self) -> "RoundProgress":
        if has_bars():
            from tqdm import tqdm

            # Shown by `begin`, for what is printed before would break the line.
            # A terminal without a size has -1 rows for tqdm, which then shows nothing.
            size: dict[str, Any] = {"ncols": columns(), "nrows": 2, "delay": float("inf")}
            self._bar = tqdm(total=self._rounds, leave=self._leaves, **size)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()

    def compile(self) -> None:
        """Show that programs are being compiled, which comes before the first round."""
        if self._bar is not None:
            self._draw("compiling", (), self._done)

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
            f"{self._measured} {accuracy.mean():.3f} ± {accuracy.std():.3f}",
            f"{duration(left)} left",
            f"{_rate(self._n_clients / timing.training)} clients/s",
            f"{_rate(timing.coalitions / timing.evaluation)} coalitions/s",
        )
        if self._bar is None:
            say(f"round {t + 1}/{self._rounds}: {', '.join(news)}", self._stream)
            return
        self._show(t + 1, news)

    def conclude(self, share: float) -> None:
        """Show how much is done of the contributions that are computed after the last round."""
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
            say(f"{head}: {news[0]}", self._stream)

    def _show(self, done: int, news: Sequence[str]) -> None:
        self._draw(f"round {done}/{self._rounds}", news, done)

    def _draw(self, head: str, news: Sequence[str], done: float) -> None:
        width = columns() - 1  # some terminals wrap after a full line
        self._bar.bar_format = bar_format(head, news, width)
        self._bar.n, self._bar.ncols, self._bar.delay = done, width, 0
        self._bar.refresh()


class Shown(Observer):
    """Shows the progress of a run beside calling another observer."""

    def __init__(self, progress: RoundProgress, observer: Observer):
        self._progress, self._observer = progress, observer

    def on_start(self, planned: PlannedMemory | None) -> None:
        self._progress.begin()
        self._observer.on_start(planned)

    def on_round(self, past: Snapshot) -> bool | None:
        self._progress.report(len(past.records) - 1, past.records[-1], past.timings[-1])
        return self._observer.on_round(past)

    def on_part(self, share: float) -> None:
        self._progress.conclude(share)
        self._observer.on_part(share)


@contextmanager
def shown(
    progress: bool | None, rounds: int, n_clients: int, done: int, utility: str
) -> Iterator[RoundProgress | None]:
    """The progress of a run that is started from Python; None if it is not to be shown.

    Args:
        progress: whether it is; None: where a bar can be drawn.
    """
    if not (has_bars() if progress is None else progress):
        yield None
        return
    given: dict[str, Any] = {"leaves": False, "stream": sys.stderr, "utility": utility}
    with RoundProgress(rounds, n_clients, done, **given) as shows:
        shows.compile()
        yield shows


def has_bars() -> bool:
    """Whether a line on standard error can change: on a terminal, and in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return sys.stderr.isatty() or type(shell).__name__ == "ZMQInteractiveShell"


BAR = 10  # the least length of a bar
NARROW = 60  # columns below which news are worth more than a bar


def bar_format(head: str, news: Sequence[str], width: int) -> str:
    """The format of tqdm's line: as much of the text as fits, then a bar."""
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
    """Seconds as text: in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
