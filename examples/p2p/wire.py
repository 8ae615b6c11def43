"""What travels between nodes: frames of bounded size, in which all that counts is signed.

A frame has its kind in a byte, its length in four, and so many bytes. Nothing is unpickled: a model
is a line of JSON, which says whose it is and of when, and float32 numbers.
"""

import asyncio
import base64
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trip_node.node.admission import MOST_BYTES, Federation
from trip_node.node.report import SIGNATURE_BYTES
from trip_node.node.signing import Signer, is_signed
from trip_node.node.strict_json import parsed
from trip_node.settings.errors import InvalidSetting

HELLO, MODEL, REPORT, SEEN = b"H", b"M", b"R", b"S"
MOST = SIGNATURE_BYTES + MOST_BYTES
CHALLENGE_BYTES = 32
LONGEST_LINE = 4096
"""Bytes of what is read before its signature is checked."""


class Broken(Exception):
    """A peer sent what is no frame, or not what was its turn."""


@dataclass(frozen=True)
class About:
    """What a signed line says beside its schema."""

    federation: str
    client: str
    round: int = 0
    what: str = ""


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Kind and content; raises Broken or IncompleteReadError."""
    head = await reader.readexactly(5)
    length = int.from_bytes(head[1:])
    if head[:1] not in (HELLO, MODEL, REPORT, SEEN) or length > MOST:
        raise Broken(f"a frame of kind {head[:1]!r} and {length:,} bytes")
    return head[:1], await reader.readexactly(length)


def frame(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4) + content


def sealed(signer: Signer, schema: str, about: About, content: bytes = b"") -> bytes:
    """A signature, a line that says what is signed, and content."""
    line = json.dumps({"schema": schema, **asdict(about)}).encode()
    message = line + b"\n" + content
    return base64.b64decode(signer.sign(message)) + message


def opened(packet: bytes, schema: str, federation: Federation) -> tuple[About, bytes]:
    """What was sealed by a client of the federation; raises Broken for anything else."""
    signature, message = packet[:SIGNATURE_BYTES], packet[SIGNATURE_BYTES:]
    line, _, content = message.partition(b"\n")
    if len(line) > LONGEST_LINE:
        raise Broken(f"a line of {len(line):,} bytes")
    try:
        given: dict[str, Any] = parsed(line, schema)
        about = About(**given)
    except (InvalidSetting, TypeError) as error:
        raise Broken(str(error)) from error
    texts = about.federation, about.client, about.what
    if not all(isinstance(text, str) for text in texts) or type(about.round) is not int:
        raise Broken("a line of other types")
    key = federation.clients.get(about.client)
    if about.federation != federation.name or key is None:
        raise Broken("a message of another federation")
    if not is_signed(message, signature, key):
        raise Broken(f"a signature that is not that of {about.client}")
    return about, content


def to_bytes(theta: np.ndarray) -> bytes:
    return np.asarray(theta, "<f4").tobytes()


def from_bytes(content: bytes, size: int) -> np.ndarray:
    """A model of `size` numbers; raises Broken for anything else."""
    if len(content) != 4 * size:
        raise Broken(f"a model of {len(content):,} bytes, not {4 * size:,}")
    theta = np.frombuffer(content, "<f4").astype(np.float32)
    if not (abs(theta) <= np.finfo(np.float32).max / 2).all():  # a mean of larger ones may overflow
        raise Broken("a model that holds what is no number, or one too large to be mixed")
    return theta
