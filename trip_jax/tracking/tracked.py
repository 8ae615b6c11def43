"""A tracker whose failures do not end the run."""

import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from trip_jax.settings.credentials import masked
from trip_jax.tracking.tracker import Tracker
from trip_node.settings.lines import say


class Tracked:
    """A tracker that may fail without harm to the run; a context manager, which ends it.

    Args:
        name: the name of the tracker, for messages.

    Attributes:
        summary: what the run came to; to be set before the context is left.
    """

    def __init__(self, tracker: Tracker, name: str):
        self._tracker, self._name = tracker, name
        self._works = False  # before it has started, too
        self.summary: Mapping[str, Any] | None = None

    def __enter__(self) -> "Tracked":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        summary = self.summary or {"status": "failed", "message": str(error or "")}
        if news := self._tell(self._tracker.end, summary):
            say(news)

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._works = True
        self._tell(self._tracker.start, title, settings, done)

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        self._tell(self._tracker.round, t, numbers)

    def _tell(self, method: Callable[..., Any], *news: Any) -> Any:
        """Call one of the tracker's methods, unless one has failed or it has not started."""
        if not self._works:
            return None
        try:
            return method(*news)
        except Exception as error:  # whatever a tracker or its network raises
            self._works = False
            said = masked(str(error))  # addresses of trackers may hold a password
            cause = textwrap.shorten(said, 200, placeholder=" ...") or type(error).__name__
            say(f"track={self._name} failed ({cause}): the run does without it.")
            with suppress(Exception):  # nothing more is expected of it
                getattr(self._tracker, "close", lambda: None)()
            return None
