"""What commands have in common: one sentence and exit code 2 for what a user can mend."""

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from trip_jax.cli.environment import settle
from trip_jax.cli.messages import one_line
from trip_jax.settings.errors import Diverged, InvalidSetting
from trip_node.cli import command as shared
from trip_node.cli.command import Parser, refuse

__all__ = ["USER_ERRORS", "Parser", "command", "refuse"]

USER_ERRORS = (InvalidSetting, Diverged, HydraException, OmegaConfBaseException, OSError)


def _in_words(error: BaseException) -> str | None:
    """An error that a user can mend in one sentence; None of any other error."""
    if isinstance(error, USER_ERRORS):
        return one_line(error)
    if isinstance(error, ValueError) and "Config group override must be" in str(error):
        return "A group is given one of its choices, as in topology=star."  # Hydra's own, too
    return shared.in_words(error)


command = shared.telling(_in_words, settle)
"""`main` with its exit code: 2 and one sentence on standard error for what a user can mend."""
