"""Progress of repeated executions: a bar on a terminal, a line now and then elsewhere."""

import sys
from typing import Any

from trip_jax.simulation.progress import columns, duration
from trip_jax.truth.unfinished import Progress

SECONDS_A_LINE = 30.0


class ExecutionProgress:
    """Reports how much has been executed, how fast, and the time left; a context manager."""

    def __init__(self, what: str):
        self._what = what
        self._bar: Any = None
        self._last = 0.0

    def __enter__(self) -> "ExecutionProgress":
        if sys.stderr.isatty():
            from tqdm import tqdm

            # A terminal without a size has -1 rows for tqdm, which then shows nothing.
            size = {"ncols": columns() - 1, "nrows": 2}
            self._bar = tqdm(desc=self._what, unit="sample", unit_scale=True, **size)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def report(self, progress: Progress) -> None:
        """Say how far the executions are."""
        if self._bar is not None:
            self._bar.total = progress.total
            self._bar.update(progress.done - self._bar.n)
        elif progress.done_now and progress.seconds > self._last + SECONDS_A_LINE:
            self._last = progress.seconds
            rate = progress.done_now / progress.seconds
            left = duration((progress.total - progress.done) / rate)
            share = progress.done / progress.total
            print(f"{self._what}: {share:.0%}, {rate:,.0f} samples/s, {left} left", flush=True)
