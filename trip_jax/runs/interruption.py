"""SIGTERM and SIGINT as a wish that work heeds when it has something whole to keep."""

import os
import signal
from contextlib import suppress
from types import FrameType
from typing import Any

from trip_jax.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again

KEPT = "interrupted: what is finished is kept; the same command goes on."


class Interruption:
    """Notes the signals while it is entered; a second SIGINT interrupts at once.

    Args:
        until: what is finished before the wish is heeded, for the message.
    """

    def __init__(self, until: str):
        self._until = until
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        with suppress(ValueError):  # raised outside the main thread, which alone gets signals
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def heed(self) -> None:
        """End here if asked to; raises Interrupted."""
        if self.asked:
            raise Interrupted(KEPT)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked = True
            # Not by print, which the signal may have interrupted; beneath a line of progress.
            beneath = "\n" * os.isatty(2)
            os.write(2, f"{beneath}interrupted: finishing {self._until} ...\n".encode())
