"""What a command makes of the process that it is started in: streams that can't break it.

What is printed may get lost without the results: whoever reads it may leave, disks fill up.
"""

import os
import sys
import warnings
from contextlib import suppress
from typing import Any

from trip_node.settings.errors import Notice
from trip_node.settings.lines import say


class Stream:
    """A standard stream that takes whatever is written, and drops it once that fails.

    Attributes:
        failure: why the rest is dropped; a reader who has left is no failure.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self.failure: OSError | None = None
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # of an encoding that lacks a character

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._drop(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        if not isinstance(error, BrokenPipeError):
            self.failure = self.failure or error
        with suppress(OSError):  # what waits in the stream, too
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def settle() -> None:
    """Make this process fit for a command."""
    if not sys.warnoptions:
        warnings.showwarning = _show  # type: ignore[assignment]
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # a stream that is closed, whose number a file of results would get
    os.close(number)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name) or open(os.devnull, "w")  # noqa: SIM115
        if not isinstance(stream, Stream):
            setattr(sys, name, Stream(stream))


def _show(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """Print a warning that is meant for users in one line, and no other warning."""
    if issubclass(category, Notice):
        say(f"warning: {' '.join(str(message).split())}", sys.stderr)


def lost() -> OSError | None:
    """Why something that was printed is lost, if that is an error."""
    sys.stdout.flush()
    return getattr(sys.stdout, "failure", None)
