"""TensorBoard, by tensorboardX, which needs neither TensorFlow nor PyTorch.

`tensorboard --logdir DIR` shows the runs beneath a directory.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.tracking.tracker import TRACKERS, package


@TRACKERS("tensorboard")
class TensorBoard:
    """Event files in the run's folder tensorboard/: scalars, the settings, scores at the end."""

    def __init__(self, folder: Path):
        self._package = package("tensorboardX", "tensorboard")
        self._folder = folder / "tensorboard"
        self._last = 0

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._last = done
        # Readers then forget what an earlier part wrote of rounds that come again.
        self._writer = self._package.SummaryWriter(
            str(self._folder), purge_step=done + 1, filename_suffix=f".{done}"
        )
        self._writer.add_text("title", title, done)
        self._writer.add_text("settings", _table(("setting", "value"), settings.items()), done)

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        self._last = t
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, t)
        self._writer.flush()

    def end(self, summary: Mapping[str, Any]) -> str:
        status = f"{summary['status']} {summary.get('message', '')}".strip()
        self._writer.add_text("status", status, self._last)
        if scores := summary.get("scores"):
            rows = ((i, f"{score:.6g}") for i, score in enumerate(scores))
            self._writer.add_text("scores", _table(("client", "score"), rows), self._last)
            self._writer.add_histogram("score", np.array(scores), self._last)
        self._writer.close()
        return f"look at it with: tensorboard --logdir {self._folder.parent}"


def _table(head: Iterable[str], rows: Iterable[tuple[Any, Any]]) -> str:
    """In Markdown."""
    lines = [" | ".join(head), "--- | ---"]
    return "\n".join([*lines, *(f"{name} | {value}" for name, value in rows)])
