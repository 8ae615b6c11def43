"""Work in the background that goes on after a failure, and says in what state it is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("trip_node.service")

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0  # seconds before work that failed is tried again
MOST_LETTERS = 300  # the longest error in a line of the log


class Task:
    """Work that is repeated step by step, for as long as the service runs.

    A step that fails is tried again after a pause, which doubles up to LONGEST_PAUSE. The first
    failure is logged, then the second, fourth, eighth and so on, and so is the first success.

    Args:
        name: what the state and the log call it.
        step: does a part of the work and returns, or waits until there is some.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[None]]):
        self.name, self._step = name, step
        self._failures, self._since, self._why = 0, "", ""

    async def run(self) -> None:
        """Repeat the step until the task is cancelled."""
        while True:
            try:
                await self._step()
            except Exception as error:
                self.failed(error)
                pause = FIRST_PAUSE * 2 ** min(self._failures - 1, 10)
                await asyncio.sleep(min(pause, LONGEST_PAUSE))
            else:
                self.succeeded()

    def failed(self, error: BaseException) -> None:
        """Count a failure, and write a line to the log at the 1st, 2nd, 4th, 8th and so on."""
        self._failures += 1
        self._why = one_line(error)
        self._since = self._since or datetime.now(UTC).isoformat(timespec="seconds")
        if self._failures & (self._failures - 1) == 0:
            times = "" if self._failures == 1 else f" {self._failures} times since {self._since}"
            log.error("The task %r failed%s, and is tried again: %s", self.name, times, self._why)

    def succeeded(self) -> None:
        """Forget earlier failures; the first success after them is a line in the log."""
        if self._failures:
            log.warning("The task %r works again.", self.name)
        self._failures, self._since, self._why = 0, "", ""

    def state(self) -> dict[str, Any]:
        """`state` is "ok" or "failing"; since when, as a UTC time, and why."""
        if not self._failures:
            return {"state": "ok"}
        return {"state": "failing", "since": self._since, "why": self._why}


def one_line(error: BaseException) -> str:
    """The type and the message of an error in one line, cut where it is long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..."
