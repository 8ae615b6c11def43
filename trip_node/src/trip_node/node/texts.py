"""Names of clients and federations, as they are compared everywhere: in Unicode's form NFC."""

from typing import Any
from unicodedata import category, normalize

from trip_node.settings import require
from trip_node.settings.names import LONGEST_NAME

LONGEST = LONGEST_NAME
"""The most characters that a name may have."""


def nfc(value: Any) -> Any:
    """A text in the form NFC, texts within a list or tuple likewise, and all else as it is."""
    if isinstance(value, list | tuple):
        return tuple(map(nfc, value))
    return normalize("NFC", value) if isinstance(value, str) else value


def is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can hold, of up to LONGEST characters."""
    if not isinstance(value, str) or len(value) > LONGEST:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def require_name(value: Any, which: str) -> None:
    """Refuse what no report, page or table can carry as a name.

    Raises:
        InvalidSetting: it is no text of 1 to LONGEST characters, or has control characters.
    """
    plain = is_text(value) and not any(category(one) in ("Cc", "Zl", "Zp") for one in value)
    require(
        plain and value != "",
        f"{which} must be a name of 1 to {LONGEST} characters without line breaks and other "
        f"control characters, not {str(value)[:50]!r}.",
    )
