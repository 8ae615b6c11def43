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
from trip_jax.config import Adversary, Config, Contribution, Defence
from trip_jax.errors import InvalidSetting
from trip_jax.simulation import Simulation

Work = Callable[[], Any]

OURS = "trip_jax"
LOOP, VMAP = "PyTorch, loop", "PyTorch, vmap"
RATIO = "times_as_fast_"
SHORT = 0.2  # seconds that every sample takes at least


def torch_wait() -> Callable[[], None]:
    """What waits for PyTorch.

    Raises:
        InvalidSetting: it is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidSetting('PyTorch is missing: pip install -e ".[bench]".') from error
    return torch.cuda.synchronize if torch.cuda.is_available() else lambda: None


def setup(simulation: Simulation) -> str:
    """What runs on what, for titles."""
    import torch

    from experiments.torch_federation import DEVICE

    kind = jax.devices()[0].device_kind
    ours = f"{simulation.mesh.size} {kind} device(s), jax {jax.__version__}"
    return f"{ours}, PyTorch {torch.__version__} on {DEVICE}, {torch.get_num_threads()} threads"


def refuse_what_pytorch_lacks(config: Config, simulation: Simulation) -> None:
    """Raise InvalidSetting where ours would not do the same work as PyTorch."""
    asked = config.adversary, config.defence, config.contribution, config.precision
    if asked != (Adversary(), Defence(), Contribution(), "float32") or simulation.rows.sampled.size:
        raise InvalidSetting(
            "PyTorch's federation is honest and undefended, evaluates all coalitions of a "
            "neighbourhood and computes in float32: leave out adversary, defence, contribution and "
            "precision, and take a graph of ten members at most a neighbourhood."
        )


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


def write_comparison(rows: Sequence[dict[str, Any]], heading: str, title: str, stem: Path) -> str:
    """Rows of `compared` as CSV and Markdown.

    Returns:
        the Markdown.
    """
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
    return text


def rate(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
