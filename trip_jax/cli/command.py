"""What commands have in common: one sentence and exit code 2 for what a user can mend."""

import argparse
import sys
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from trip_jax.cli.environment import lost, settle
from trip_jax.cli.messages import one_line
from trip_jax.runs.progress import columns, in_lines
from trip_jax.settings.errors import Diverged, InvalidSetting

USER_ERRORS = (InvalidSetting, Diverged, HydraException, OmegaConfBaseException, OSError)


def command(main: Callable[..., int | None]) -> Callable[..., int]:
    """`main` with its exit code: 2 and one sentence on standard error for what a user can mend."""

    @wraps(main)
    def told(*arguments: Any) -> int:
        settle()
        try:
            code = main(*arguments) or 0
            if failure := lost():
                return refuse(f"Not all could be printed ({failure.strerror}); files are whole.")
            return code
        except USER_ERRORS as error:
            return refuse(one_line(error))
        except MemoryError as error:
            return refuse(f"Memory is not enough: {one_line(error) or 'lower what is large'}.")
        except ValueError as error:
            if "Config group override must be" not in str(error):  # of Hydra's own groups, too
                raise
            return refuse("A group is given one of its choices, as in topology=star.")

    return told


def refuse(sentence: str) -> int:
    """Say what is wrong, on a terminal in lines that fit it; returns the exit code."""
    said = f"error: {sentence}"
    print(in_lines(said, columns()) if sys.stderr.isatty() else said, file=sys.stderr)
    return 2


class Help(argparse.HelpFormatter):
    """Help whose lines end at blanks, not inside names with hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return in_lines(text, width).splitlines()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(in_lines(text, width - len(indent)), indent)


class Parser(argparse.ArgumentParser):
    """Of a command's arguments; one sentence tells what is wrong with them, too."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"formatter_class": Help} | kwargs)

    def error(self, message: str) -> NoReturn:
        raise InvalidSetting(f"{message}; {self.prog} --help says more.")
