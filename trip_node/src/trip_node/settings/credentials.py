"""Secrets are masked in what is printed or written: passwords in addresses, tokens, keys."""

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

MASK = "***"

_OF_SECRETS = "access|account|api|customer|encryption|private|secret|shared|signing|subscription"
_KEY = rf"(?:{_OF_SECRETS})[_-]?key"
_NAME = rf"[\w.-]*(?:password|passwd|passphrase|token|secret|credential|{_KEY})\w*"
_USER = re.compile(r"(://(?!/))[^\s'\"<>]*@")
_VALUE = r"[^\s&;,'\"<>)]+"
_FIELD = re.compile(rf"(?i)(\b(?:{_NAME}|pwd|[\w.-]+signature)['\"]?\s*[=:]\s*['\"]?){_VALUE}")
_ALONE = "key|code|pat|sas|session|signature"
_LAST = r"(?:[\w.-]*[._-])?(?:sig|auth|jwt|pass|pwd)"  # of a name such as x-sig
_QUERY = re.compile(rf"(?i)([?&;#](?:{_ALONE}|{_LAST})=){_VALUE}")
_HEADER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")


def masked(text: str) -> str:
    """The text without user and password of addresses, and without values named as secrets.

    What the environment holds as a secret is masked wherever it stands.
    """
    for secret in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _USER.sub(rf"\1{MASK}@", text)
    for pattern in (_FIELD, _QUERY, _HEADER):
        text = pattern.sub(rf"\1{MASK}", text)
    return text


def _secrets() -> Iterator[str]:
    """Values of variables that are named as secrets, and passwords in variables' addresses."""
    for name, value in os.environ.items():
        if re.fullmatch(rf"(?i){_NAME}", name) and len(value) >= 8:
            yield value
        for address in {value, *value.split()} if "@" in value else ():
            try:
                password = urlsplit(address).password
            except ValueError:  # no address
                continue
            if password and len(password) >= 4:
                yield from {password, unquote(password)}
