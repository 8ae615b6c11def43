"""Text files that a setting names, with a client or an event on each line."""

from collections.abc import Iterator
from pathlib import Path

from trip_jax.settings.errors import InvalidSetting


def lines_of(setting: str, path: str) -> Iterator[tuple[str, str]]:
    """The lines but for blank ones and those that begin with #, after where each stands.

    Raises:
        InvalidSetting: the file can't be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()  # with its mark, if any
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise InvalidSetting(
            f"{setting}={path} can't be read ({reason}): name another file, or mend it."
        ) from error
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            yield f"Line {number} of {setting}={path}", line
