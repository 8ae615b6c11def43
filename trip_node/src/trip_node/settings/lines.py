"""Text in lines that fit the terminal."""

import os
import shutil
import sys
import textwrap
from contextlib import suppress
from typing import Any


def columns() -> int:
    """The width of the terminal that the line is written to; 80 where it does not say."""
    with suppress(OSError, ValueError):
        if width := os.get_terminal_size(sys.stderr.fileno()).columns:
            return width
    return shutil.get_terminal_size().columns


def say(text: str, stream: Any = None) -> None:
    """Print the text; on a terminal, lines that are too long for it are broken at blanks.

    Args:
        stream: where to print it; standard output by default.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        width = columns()
        lines = (one if len(one) <= width else in_lines(one, width) for one in text.split("\n"))
        text = "\n".join(lines)
    print(text, file=stream, flush=True)


def in_lines(text: str, width: int, first: str = "", rest: str = "") -> str:
    """The text in lines of at most this width; a longer word has a line of its own.

    Args:
        first: what the first line begins with.
        rest: what the others begin with.
    """
    return textwrap.fill(
        " ".join(text.split()),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
