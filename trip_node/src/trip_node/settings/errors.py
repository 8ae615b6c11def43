"""The errors that users see: a wrong setting, a run that diverged or was interrupted."""

from typing import Any


class InvalidSetting(ValueError):
    """A setting is wrong; the message is one sentence that names it and what mends it."""


class Notice(UserWarning):
    """What a user may want to know; commands say it in a line."""


class Diverged(RuntimeError):
    """Training diverged: a client's model is no longer finite.

    Args:
        round: the round, from 0.
        client: its number or name.

    Attributes:
        result: the outcome of the rounds before; None if there were none.
    """

    def __init__(self, round: int, client: int | str, result: Any):
        kept = f"rounds kept: {round}" if round else "no round came before it"
        super().__init__(
            f"The model of client {client} is no longer finite in round {round + 1}; {kept}: lower "
            "training.learning_rate."
        )
        self.result = result


class Interrupted(RuntimeError):
    """A signal asked for an end; what was finished is kept, and the message says how to go on."""
