"""SIGTERM and SIGINT end work as soon as it can keep its results.

Work ends in bounded time even if the work hangs in compiled code, where Python handles no
signal: a thread hears of signals from the operating system's own handler, through a socket.
"""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from trip_jax.settings.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again

KEPT = "interrupted: what is finished is kept; the same command goes on."

PATIENCE = 60.0
"""Seconds that work may take to end by itself after the first signal."""


class Deadline:
    """A context in which work ends by itself before its time is up.

    Work that asks an `Interruption` after each step ends when a further step of the same length
    would pass the deadline.

    Args:
        seconds: until the deadline, from now on.

    Attributes:
        reached: whether work was told to end.
    """

    entered: "Deadline | None" = None

    def __init__(self, seconds: float):
        self._at = time.monotonic() + seconds
        self.reached = False

    @property
    def left(self) -> float:
        """Seconds that are left until work has to end."""
        return self._at - time.monotonic()

    def __enter__(self) -> Self:
        Deadline.entered = self
        return self

    def __exit__(self, *_: object) -> None:
        Deadline.entered = None


class Interruption:
    """A context that notes the first signal, and the end of the time that a `Deadline` gives.

    A second one, or `PATIENCE` after the first, ends the process where it stands: what is on the
    disk is whole at any moment.

    Args:
        until: what is finished before the wish is heeded, for the message.
    """

    def __init__(self, until: str):
        self._until = until
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        self._looked, self._step = time.monotonic(), 0.0
        if threading.current_thread() is not threading.main_thread():  # it alone gets signals
            return self
        ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)
        self._mouth_before = signal.set_wakeup_fd(self._mouth.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        self._listener = threading.Thread(target=self._listen, args=(ear,), daemon=True)
        self._listener.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._before:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._mouth_before)
        self._mouth.close()
        self._listener.join()

    @property
    def asked(self) -> bool:
        """Whether work is to end now, by a signal or a deadline; to be asked once a step."""
        if Deadline.entered and not self._asked:
            now = time.monotonic()
            took, self._looked = now - self._looked, now
            if took > self._step / 100:  # otherwise the same step asked twice
                self._step = max(took, self._step / 2)  # the first may have compiled programs
            if 1.1 * self._step > Deadline.entered.left:
                self._asked = Deadline.entered.reached = True
        return self._asked

    def heed(self) -> None:
        """Raise Interrupted if work is to end now."""
        if self.asked:
            raise Interrupted(KEPT)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._asked = True

    def _listen(self, ear: socket.socket) -> None:
        """Print a line at the first signal; end the process at a second one or after `PATIENCE`."""
        until = None
        with ear:
            while True:
                ear.settimeout(until and max(until - time.monotonic(), 0.001))
                try:
                    heard = ear.recv(1)
                except TimeoutError:
                    _end(f"{self._until} did not end within {PATIENCE:.0f} s", EXIT_CODE)
                if not heard:
                    return
                if heard[0] not in SIGNALS:
                    continue
                if until:
                    _end("ended at once", 128 + heard[0])
                until = time.monotonic() + PATIENCE
                beneath = "\n" * os.isatty(2)  # a line of progress
                _say(f"{beneath}interrupted: finishing {self._until} ...\n")


def _end(how: str, code: int) -> None:
    """End the process, whatever its threads do."""
    _say(f"interrupted: {how}; go on from what was kept last.\n")
    os._exit(code)


def _say(text: str) -> None:
    """Write to standard error without print, whose lock the interrupted work may hold."""
    with suppress(OSError):
        os.write(2, text.encode())
