"""How long the open round has been open, whatever the wall clock says."""

import time


class RoundClock:
    """Seconds since the open round opened, without those in which no process served it."""

    def __init__(self, seconds: float = 0.0):
        self.start(seconds)

    def start(self, seconds: float = 0.0) -> None:
        """Go on from so many seconds; from zero for a round that opens."""
        self._before, self._since = seconds, time.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Leave out the last so many seconds, in which no process served the round."""
        self._since = min(self._since + seconds, time.monotonic())

    def seconds(self) -> float:
        """Seconds for which the round has been open so far."""
        return self._before + time.monotonic() - self._since
