"""Progress of a re-execution: a bar on a terminal, a line now and then elsewhere."""

import sys
from typing import Any

from trip_jax.progress import duration
from trip_jax.retraining import Progress

SECONDS_A_LINE = 30.0


class ReexecutionProgress:
    """Reports how much has been executed, how fast, and the time left; a context manager."""

    def __init__(self, what: str):
        self._what = what
        self._bar: Any = None
        self._last = 0.0

    def __enter__(self) -> "ReexecutionProgress":
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(desc=self._what, unit="pair round", dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def report(self, progress: Progress) -> None:
        """Say how far the re-execution is."""
        rate = f"{progress.samples / progress.seconds:,.0f} samples/s"
        if self._bar is not None:
            self._bar.total = progress.total
            self._bar.set_postfix_str(rate)
            self._bar.update(progress.done - self._bar.n)
        elif progress.seconds > self._last + SECONDS_A_LINE:
            self._last = progress.seconds
            left = progress.seconds / progress.done_now * (progress.total - progress.done)
            share = progress.done / progress.total
            print(f"{self._what}: {share:.0%}, {rate}, {duration(left)} left", flush=True)
