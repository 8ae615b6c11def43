"""Ways to do the same work, timed in turn, and the table of their rates."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas

from experiments.command_line import beside
from experiments.tables import markdown
from trip_jax.devices import available
from trip_jax.errors import InvalidSetting

Work = Callable[[], Any]

OURS, UNBATCHED = "trip_jax", "trip_jax, one model a call"
LOOP, VMAP = "PyTorch, loop", "PyTorch, vmap"
RATIO = "times_as_fast_"
SHORT = 0.2  # seconds that every sample takes at least


def torch_setup() -> tuple[Callable[[], None], str]:
    """What waits for PyTorch, and what runs on what, for titles.

    Raises:
        InvalidSetting: PyTorch is missing.
    """
    try:
        import torch

        from experiments.torch_federation import DEVICE, wait
    except ImportError as error:
        raise InvalidSetting('PyTorch is missing: pip install -e ".[bench]".') from error
    setup = f"{len(available())} {jax.devices()[0].device_kind} device(s), jax {jax.__version__}, "
    setup += f"PyTorch {torch.__version__} on {DEVICE}, {torch.get_num_threads()} threads"
    return wait, setup


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
    """Median and range, as columns."""
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


def write_comparison(rows: Sequence[dict[str, Any]], heading: str, title: str, stem: Path) -> None:
    """Rows of `compared` as CSV and Markdown, which is printed as well."""
    frame = pandas.DataFrame(rows)
    lines = [["work", "clients", "", "median (range)", "ours is faster by (range over turns)"]]
    for row in frame.itertuples():
        values = f"{rate(row.median)} ({rate(row.least)} to {rate(row.most)}) {row.unit}"
        ratio = f"{row.times_as_fast_median:.2f} "
        ratio += f"({row.times_as_fast_least:.2f} to {row.times_as_fast_most:.2f})"
        ratio = "" if row.who == OURS else ratio
        lines.append([row.work, f"{row.clients:,}", row.who, values, ratio])
    text = f"# {heading}\n\nSetting: {title}.\n\n{markdown(lines)}\n"
    stem.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(beside(stem, ".csv"), index=False)
    beside(stem, ".md").write_text(text)
    print(text)


def rate(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
