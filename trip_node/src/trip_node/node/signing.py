"""Signatures of reports: Ed25519, with keys as text in files (the package cryptography).

What is signed says what it is for, so that no signature of something else can pass for it.
"""

import base64
import binascii
import os
import secrets
import shlex
import stat
from pathlib import Path
from types import ModuleType

from trip_node.node.durable import create
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

PURPOSE = b"trip_jax signed message\n"
KEY_BYTES = 32
OPEN_TO_OTHERS = 0o066
"""Bits of a file's mode by which others may read or write it."""


class Signer:
    """The private key of a client or of the operator, which signs its messages.

    Args:
        key: 32 bytes.

    Raises:
        InvalidSetting: it has other bytes, or the package cryptography is not installed.
    """

    def __init__(self, key: bytes):
        require(len(key) == KEY_BYTES, f"A private key has {KEY_BYTES} bytes, not {len(key)}.")
        self._key = ed25519().Ed25519PrivateKey.from_private_bytes(key)

    @classmethod
    def at(cls, path: Path | str) -> "Signer":
        """The key in a file, which is made, for its owner's eyes alone, if there is none.

        A new key is on the disk before it is used, and processes that start at once get one key.

        Raises:
            InvalidSetting: the file can't be made or read, holds no key, or others may read or
                write it.
        """
        path = Path(path)
        ed25519()  # no key is made that could not be used
        try:
            if not path.exists():
                create(path, base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            text = _private(path)
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidSetting):
                raise
            why = getattr(error, "strerror", None) or error
            raise InvalidSetting(
                f"The key {str(path)!r} can't be made or read ({why}): name another file, or mend "
                "its folder."
            ) from error
        try:
            key = decoded(text, KEY_BYTES, "The key")
        except InvalidSetting as error:
            raise InvalidSetting(
                f"{path} is empty or damaged, for a key is {KEY_BYTES} bytes in base64: restore "
                "it, or move it away to have a new one made."
            ) from error
        return cls(key)

    @property
    def public(self) -> str:
        """The public key as text, for the coordinator's file of keys."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, message: bytes) -> str:
        """The signature of a message, in base64."""
        return base64.b64encode(self._key.sign(PURPOSE + message)).decode()


def is_signed(message: bytes, signature: bytes, public: bytes) -> bool:
    """Whether the owner of that public key signed the message."""
    key = ed25519().Ed25519PublicKey.from_public_bytes(public)
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, PURPOSE + message)
    except InvalidSignature:
        return False
    return True


def ed25519() -> ModuleType:
    """The module of the package cryptography that signs and verifies.

    Raises:
        InvalidSetting: it is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InvalidSetting(
            f"Signatures need the package cryptography ({error}): pip install cryptography."
        ) from error
    return ed25519


def decoded(text: str, length: int, whose: str) -> bytes:
    """The bytes that a text in base64 stands for.

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


def _private(path: Path) -> str:
    """What a file of a key holds; raises InvalidSetting if it is not its owner's alone."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        mode = os.fstat(file.fileno()).st_mode
        require(stat.S_ISREG(mode), f"{path} is no file: a key is kept in a file.")
        require(
            os.name == "nt" or not mode & OPEN_TO_OTHERS,
            f"Others may read or write the key {path} (mode {stat.S_IMODE(mode):04o}): run "
            f"chmod 600 {shlex.quote(str(path))}, or make a new key if somebody may have.",
        )
        return file.read(1000).decode("ascii", "replace")


_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # without waiting for the other end of a pipe
