"""What clients found without a coordinator, as the terminal, summary.json and results.nc say it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from trip_jax.protocol.broadcast import Outcome


def summarised(outcome: Outcome) -> dict[str, Any]:
    """For summary.json; shares are of honest clients."""
    honest = _honest(outcome)
    return {
        "liars": outcome.liars.tolist(),
        "agree": float(outcome.agreeing.mean()),  # with each other: have the commonest phi
        "complete": float(outcome.right.mean()),  # have the phi that follows from all reports
        "largest_difference": float(outcome.difference.max()),  # from that phi
        "rows_known": float(outcome.known.mean()),  # of phi, whose whole causal past one has
        "reach": float(outcome.reach[:, honest].mean()),  # of honest clients' reports
        "rounds_connected": float(outcome.connected.mean()),
        "equivocations_proved": None if np.isnan(outcome.proved) else outcome.proved,
        "messages": int(outcome.messages.sum()),
        "forged_messages_refused": int(outcome.forged.sum()),
    }


def in_words(summary: Mapping[str, Any]) -> str:
    """What a run says at its end.

    Args:
        summary: as `summarised`.
    """
    return (
        f"without a coordinator {100 * summary['agree']:.0f} % of honest clients have the same "
        f"contributions, and {100 * summary['complete']:.0f} % those of all reports"
    )


def arrays(outcome: Outcome) -> dict[str, tuple[tuple[str, ...], np.ndarray, str]]:
    """For results.nc: by name dimensions, values and what they are."""
    of_client, of_round = ("client",), ("round", "client")
    honest = _honest(outcome)

    def of_honest(values: np.ndarray) -> np.ndarray:
        everyone = np.full(len(honest), np.nan, np.float32)
        everyone[honest] = values
        return everyone

    agrees, complete, known = map(of_honest, (outcome.agreeing, outcome.right, outcome.known))
    phi = "phi by the reports that the client has"
    return {
        "misbehaves": (of_client, ~honest, "liar in the broadcast of reports"),
        "reach": (of_round, outcome.reach, "share of honest clients that the report reached"),
        "report_messages": (of_round, outcome.messages, "times that the report was sent"),
        "forged_messages": (of_round, outcome.forged, "forged reports in its name, refused"),
        "agrees": (of_client, agrees, f"whether {phi} is the commonest; NaN: misbehaves"),
        "complete": (of_client, complete, f"whether {phi} is that of all; NaN: misbehaves"),
        "rows_known": (of_client, known, f"share of {phi} with its causal past; NaN: misbehaves"),
    }


def _honest(outcome: Outcome) -> np.ndarray:
    honest = np.ones(outcome.reach.shape[1], bool)
    honest[outcome.liars] = False
    return honest
