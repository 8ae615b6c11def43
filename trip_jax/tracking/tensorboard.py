"""TensorBoard, by tensorboardX, which needs neither TensorFlow nor PyTorch.

`tensorboard --logdir DIR` shows the runs beneath a directory.
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.tracking.tracker import TRACKERS, package


@TRACKERS("tensorboard")
class TensorBoard:
    """Event files in the run's folder tensorboard/: scalars, the settings, scores at the end.

    They are written in this thread: tensorboardX's SummaryWriter has one of its own, for whose
    queue a run would wait forever once that thread has died of a full disk.
    """

    def __init__(self, folder: Path):
        self._files = package("tensorboardX.event_file_writer", "tensorboard")
        self._summary = package("tensorboardX.summary", "tensorboard")
        self._events = package("tensorboardX.proto.event_pb2", "tensorboard")
        self._folder = folder / "tensorboard"

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._last = done
        self._folder.mkdir(parents=True, exist_ok=True)
        self._writer = self._files.EventsWriter(str(self._folder / "events"), f".{done}")
        # Readers then forget what an earlier part wrote of rounds that come again.
        session = self._events.SessionLog
        self._write(done + 1, session_log=session(status=session.START))
        self._text("title", title)
        self._text("settings", _table(("setting", "value"), settings.items()))
        self._writer.flush()

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        self._last = t
        for name, number in numbers.items():
            self._write(t, summary=self._summary.scalar(name, number))
        self._writer.flush()

    def end(self, summary: Mapping[str, Any]) -> str:
        self._text("status", f"{summary['status']} {summary.get('message', '')}".strip())
        if scores := summary.get("scores"):
            called = summary.get("names") or range(len(scores))
            rows = ((i, f"{score:.6g}") for i, score in zip(called, scores, strict=True))
            self._text("scores", _table(("client", "score"), rows))
            edges = np.histogram_bin_edges(scores)
            histogram = self._summary.histogram("score", np.array(scores), edges)
            self._write(self._last, summary=histogram)
        self._writer.close()
        return f"look at it with: tensorboard --logdir {self._folder.parent}"

    def close(self) -> None:
        self._writer._py_recordio_writer.close()  # its own close would flush first

    def _text(self, name: str, text: str) -> None:
        self._write(self._last, summary=self._summary.text(name, text))

    def _write(self, step: int, **what: Any) -> None:
        self._writer.write_event(self._events.Event(wall_time=time.time(), step=step, **what))


def _table(head: Iterable[str], rows: Iterable[tuple[Any, Any]]) -> str:
    """A table of two columns in Markdown."""

    def escaped(name: Any) -> str:
        return str(name).replace("|", "\\|")

    lines = [" | ".join(head), "--- | ---"]
    return "\n".join([*lines, *(f"{escaped(name)} | {value}" for name, value in rows)])
