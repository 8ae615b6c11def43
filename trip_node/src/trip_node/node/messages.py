"""A client's message of a round, a report or a record of predictions, as the bytes it signs."""

from trip_node.node.predictions import BEGINNING, Predictions
from trip_node.node.report import Report

Message = Report | Predictions


def bytes_of(message: Message) -> bytes:
    """The bytes of a report or a record of predictions, the same for equal ones."""
    return message.to_bytes() if isinstance(message, Predictions) else message.to_json().encode()


def message_of(content: bytes) -> Message:
    """The report or record of predictions in bytes that `bytes_of` made.

    Raises:
        InvalidSetting: it is neither a report nor a record.
    """
    if content.startswith(BEGINNING):
        return Predictions.from_bytes(content)
    return Report.from_json(content)
