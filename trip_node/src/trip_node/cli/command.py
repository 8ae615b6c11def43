"""What commands have in common: one sentence and exit code 2 for what a user can mend."""

import argparse
import sys
import textwrap
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from trip_node.cli.streams import lost, settle
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.lines import in_lines, say

Main = Callable[..., int | None]


def telling(
    in_words: Callable[[BaseException], str | None], settled: Callable[[], None]
) -> Callable[[Main], Callable[..., int]]:
    """A decorator of `main` functions, which makes them return their exit code.

    Args:
        in_words: an error as a sentence for users; None of an error that they can't mend.
        settled: makes the process fit for a command.
    """

    def decorate(main: Main) -> Callable[..., int]:
        @wraps(main)
        def main_as_command(*arguments: Any) -> int:
            settled()
            try:
                code = main(*arguments) or 0
                if failure := lost():
                    return refuse(
                        f"Not all could be printed ({failure.strerror}); files are whole."
                    )
                return code
            except Exception as error:
                sentence = in_words(error)
                if sentence is None:
                    raise
                return refuse(sentence)

        return main_as_command

    return decorate


def in_words(error: BaseException) -> str | None:
    """A wrong setting, a file or a lack of memory in one sentence; None of any other error."""
    if isinstance(error, OSError) and error.strerror:
        path = error.filename2 or error.filename or "A file"  # the second of a replacement
        return f"{path} can't be read or written ({error.strerror}): choose another, or mend it."
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"Memory is not enough: {text or 'lower what is large'}."
    return text if isinstance(error, InvalidSetting | OSError) else None


command = telling(in_words, settle)
"""`main` with its exit code: 2 and one sentence on standard error for what a user can mend."""


def refuse(sentence: str) -> int:
    """Say what is wrong on standard error; returns the exit code."""
    say(f"error: {sentence}", sys.stderr)
    return 2


class Help(argparse.HelpFormatter):
    """Help whose lines end at blanks, not inside names with hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return in_lines(text, width).splitlines()

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(in_lines(text, width - len(indent)), indent)


class Parser(argparse.ArgumentParser):
    """A parser of a command's arguments that tells in one sentence what is wrong with them."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"formatter_class": Help} | kwargs)

    def error(self, message: str) -> NoReturn:
        raise InvalidSetting(f"{message}; {self.prog} --help says more.")
