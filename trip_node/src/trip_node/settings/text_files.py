"""Files that a setting names, and their lines, a client or an event on each."""

import os
from collections.abc import Iterator
from pathlib import Path

from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

LARGEST_FILE = 2**28
"""Bytes of a file that a setting names; of a graph, five million edges of GraphML."""


def lines_of(setting: str, path: str) -> Iterator[tuple[str, str]]:
    """Pairs of a line's place, for messages, and the line, without blank lines and comments (#).

    Raises:
        InvalidSetting: the file can't be read, or is none whose reading would end soon.
    """
    require_file(f"{setting}={path}", Path(path))
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # with its mark, if any
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidSetting(
            f"{setting}={path} can't be read ({reason}): name another file, or mend it."
        ) from error
    for number, line in enumerate(text.split("\n"), start=1):  # other breaks are in a line
        if line.strip() and not line.startswith("#"):
            yield f"Line {number} of {setting}={path}", line


def require_file(where: str, path: Path, largest: int = LARGEST_FILE) -> None:
    """Refuse pipes and devices, whose reading may never end, and files that fill the memory.

    What is not there is left to who opens it.

    Args:
        where: what names the file, as the message's subject.
        largest: bytes that it may have.

    Raises:
        InvalidSetting: it is one of these.
    """
    is_file = os.path.isfile(path)
    strange = os.path.exists(path) and not is_file and not os.path.isdir(path)
    require(not strange, f"{where} is a pipe or a device: name a file.")
    large = is_file and path.stat().st_size > largest
    mib = largest // 2**20
    require(not large, f"{where} is larger than {mib:,} MiB: leave out what is not needed.")
