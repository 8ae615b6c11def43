"""Text in lines that fit the terminal."""

import os
import shutil
import sys
import textwrap
from contextlib import suppress


def columns() -> int:
    """The width of the terminal that the line is written to; 80 where it does not say."""
    with suppress(OSError, ValueError):
        if width := os.get_terminal_size(sys.stderr.fileno()).columns:
            return width
    return shutil.get_terminal_size().columns


def in_lines(text: str, width: int, first: str = "", rest: str = "") -> str:
    """The text in lines of at most this width, which end at blanks; a longer word keeps its line.

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
