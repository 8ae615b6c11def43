"""How far clients agree on phi without a coordinator, for the terminal and summary.json."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trip_jax.protocol.broadcast import Outcome


def summarised(outcome: Outcome) -> dict[str, Any]:
    """What summary.json says of a broadcast; its shares are of honest clients."""
    return {
        "liars": outcome.liars.tolist(),
        "agree": float(outcome.agreeing.mean()),  # with each other: have the commonest phi
        "complete": float(outcome.right.mean()),  # have the phi that follows from all reports
        "largest_difference": float(outcome.difference.max()),  # from that phi
        "rows_known": float(outcome.known.mean()),  # of phi, whose whole causal past one has
        "reach": float(outcome.reach[:, outcome.honest].mean()),  # of honest clients' reports
        "rounds_connected": float(outcome.connected.mean()),
        "equivocations_proved": None if np.isnan(outcome.proved) else outcome.proved,
        "messages": int(outcome.messages.sum()),
        "forged_messages_refused": int(outcome.forged.sum()),
    }


def in_words(summary: Mapping[str, Any]) -> str:
    """The agreement of clients in a line of text, for the end of a run.

    Args:
        summary: the result of `summarised`.
    """
    return (
        f"without a coordinator {100 * summary['agree']:.0f} % of honest clients have the same "
        f"contributions, and {100 * summary['complete']:.0f} % those of all reports"
    )
