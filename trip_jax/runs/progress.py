"""Progress of a run: a bar on a terminal, one line a round elsewhere."""

import sys

import numpy as np

from trip_jax.history import Timing
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.protocol.messages import Record


class RoundProgress:
    """Reports each round with its mean accuracy, rates and the time left; a context manager."""

    def __init__(self, rounds: int, n_clients: int, done: int = 0):
        self._rounds, self._n_clients, self._done = rounds, n_clients, done
        self._spent = 0.0
        self._bar = None

    def __enter__(self) -> "RoundProgress":
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=self._rounds, initial=self._done, unit="round", dynamic_ncols=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.close()

    def report(self, t: int, record: Record, timing: Timing) -> None:
        """Say what round t, counted from 0, brought."""
        accuracy = np.asarray(record.utility)[:, ACCURACY]
        news = (
            f"accuracy {accuracy.mean():.3f} ± {accuracy.std():.3f}, "
            f"{_rate(self._n_clients / timing.training)} clients/s, "
            f"{_rate(timing.coalitions / timing.evaluation)} coalitions/s"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(news)
            self._bar.update()
        else:
            self._spent += timing.seconds
            left = self._spent / (t + 1 - self._done) * (self._rounds - t - 1)
            print(f"round {t + 1}/{self._rounds}: {news}, {duration(left)} left", flush=True)


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"
