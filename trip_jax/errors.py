"""The one error a user is meant to see: a setting that cannot work, and the way out."""

from typing import Any


class InvalidSetting(ValueError):
    """A setting is wrong; the message is one sentence that names it and what mends it."""


class Diverged(RuntimeError):
    """A client's model stopped being finite.

    Attributes:
        result: the outcome of the rounds before; None if there were none.
    """

    def __init__(self, round: int, client: int, result: Any):
        super().__init__(
            f"The model of client {client} is no longer finite in round {round}: lower "
            f"training.learning_rate; the {round} rounds before are kept."
        )
        self.result = result
