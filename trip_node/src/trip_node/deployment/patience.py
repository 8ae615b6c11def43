"""How long a request waits while another program locks the ledger."""

import time

PATIENCE = 16.0
"""Seconds that it waits, those before its turn included. With the longest pause after a failure,
`tasks.LONGEST_PAUSE`, it is answered within 20 seconds."""

LAST_PATIENCE = 1.0
"""Seconds that the last transaction waits, when the service ends."""


def left(asked: float | None = None) -> float:
    """The seconds of PATIENCE that are left to a request that came at this time.

    Args:
        asked: in seconds of the monotonic clock; now by default.
    """
    waited = 0.0 if asked is None else time.monotonic() - asked
    return min(max(PATIENCE - waited, 0.0), PATIENCE)
