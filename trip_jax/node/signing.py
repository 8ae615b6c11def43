"""Signatures of reports: Ed25519, with keys as text in files (the package cryptography).

What is signed says what it is for, so that no signature of something else can pass for it.
"""

import base64
import binascii
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from trip_jax.settings.errors import InvalidSetting

PURPOSE = b"trip_jax signed message\n"


class Signer:
    """A client's private key."""

    def __init__(self, key: bytes):
        """From 32 bytes."""
        self._key = Ed25519PrivateKey.from_private_bytes(key)

    @classmethod
    def at(cls, path: Path | str) -> "Signer":
        """The key in a file, which is made, readable to its owner alone, if there is none.

        Raises:
            InvalidSetting: the file holds no key.
        """
        path = Path(path)
        if not path.exists():
            made = Ed25519PrivateKey.generate().private_bytes_raw()
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                file.write(base64.b64encode(made) + b"\n")
        return cls(decoded(path.read_text(), 32, f"The key in {path}"))

    @property
    def public(self) -> str:
        """The public key as text, for the coordinator's file of keys."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, message: bytes) -> str:
        """The signature as text."""
        return base64.b64encode(self._key.sign(PURPOSE + message)).decode()


def is_signed(message: bytes, signature: bytes, public: bytes) -> bool:
    """Whether the owner of that public key signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, PURPOSE + message)
    except InvalidSignature:
        return False
    return True


def decoded(text: str, length: int, whose: str) -> bytes:
    """Bytes from base64.

    Raises:
        InvalidSetting: they are not so many.
    """
    try:
        found = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != length:
        raise InvalidSetting(f"{whose} must be {length} bytes in base64.")
    return found
