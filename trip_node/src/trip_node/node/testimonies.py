"""What a receiver testifies of a model: how its logits project on random signs.

The receiver draws a seed of its own once it has the model, and tells it a round later. Until then
nobody can make other logits of the same projections. SHAKE-256 of the seed gives the signs, the
same on every machine and in every version of NumPy.

Projections keep distances (W. Johnson and J. Lindenstrauss, 1984): of two sets of logits whose
projections differ by a small part of their length, the difference is about as small a part.
"""

import secrets
from dataclasses import dataclass
from functools import cached_property
from hashlib import shake_256

import numpy as np

from trip_node.settings import require

NUMBERS = 16
"""Projections in a testimony."""

SEED_BYTES = 8
BYTES = SEED_BYTES + 4 * NUMBERS
"""The size of a testimony in a record."""

PURPOSE = b"trip_jax testimony\n"
AT_ONCE = 2**16  # logits that are projected at a time


@dataclass(frozen=True)
class Testimony:
    """Projections of one model's logits, as who received the model computed them.

    Raises:
        InvalidSetting: the content has another size, or a number of it is not finite.
    """

    about: str  # the client whose model it is, after training
    content: bytes  # the seed, and the projections in float32, little-endian

    def __post_init__(self) -> None:
        require(len(self.content) == BYTES, f"A testimony has {BYTES} bytes.")
        require(
            bool(np.isfinite(self.numbers).all()), "A number of a testimony is not a finite number."
        )

    @classmethod
    def of(cls, about: str, logits: np.ndarray | None) -> "Testimony":
        """The testimony on logits as a record holds them, by a fresh seed.

        Args:
            logits: None: what was received gives no logits, and its projections are 0.
        """
        seed = secrets.token_bytes(SEED_BYTES)
        numbers = np.zeros(NUMBERS) if logits is None else projections(logits, seed)
        return cls(about, seed + numbers.astype("<f4").tobytes())

    @cached_property
    def numbers(self) -> np.ndarray:
        """The projections [NUMBERS], float64."""
        return np.frombuffer(self.content, "<f4", offset=SEED_BYTES).astype(float)

    def distance(self, logits: np.ndarray) -> float:
        """How far a claim is from the testimony, as a part of the longer of the two.

        Args:
            logits: the logits that are claimed, finite, as a record holds them.
        """
        claimed = projections(logits, self.content[:SEED_BYTES])
        length = max(np.linalg.norm(claimed), np.linalg.norm(self.numbers))
        return float(np.linalg.norm(claimed - self.numbers) / length) if length > 0 else 0.0


def projections(logits: np.ndarray, seed: bytes) -> np.ndarray:
    """Sums of the logits under 16 random signs each, float64 [NUMBERS].

    Args:
        seed: the bytes from which the signs are drawn.
    """
    flat = np.ravel(logits)
    signs = np.frombuffer(shake_256(PURPOSE + seed).digest(2 * len(flat)), np.uint8)
    found = np.zeros(NUMBERS)
    for first in range(0, len(flat), AT_ONCE):
        some = flat[first : first + AT_ONCE].astype(float)
        bits = np.unpackbits(signs[2 * first : 2 * (first + len(some))]).reshape(-1, NUMBERS)
        found += 2 * (some @ bits) - some.sum()
    return found
