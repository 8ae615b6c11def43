"""Logits as bytes: 16 bits a number, or 8 beside a scale for each example.

Shapes: k arrays of D examples and C classes. Bytes are little-endian.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LARGEST = float(np.finfo(np.float16).max)
"""The largest logit; larger ones are written as this."""

STEPS = 127
"""The number of steps of an 8-bit integer on either side of 0."""


@dataclass(frozen=True)
class Encoding:
    """How logits [k, D, C] are written, and read again in float32."""

    n_bytes: Callable[[int, int], int]  # by the numbers of rows k D and of classes C
    write: Callable[[np.ndarray], bytes]
    read: Callable[[bytes, tuple[int, int, int]], np.ndarray]
    rounding: float  # the error of usual logits, as a part of their length

    def rounded(self, logits: np.ndarray) -> np.ndarray:
        """Logits [k, D, C] as they are read after they were written."""
        return self.read(self.write(logits), logits.shape)


def _as_float16(logits: np.ndarray) -> bytes:
    return np.clip(logits, -LARGEST, LARGEST).astype("<f2").tobytes()


def _from_float16(content: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    return np.frombuffer(content, "<f2").reshape(shape).astype(np.float32)


def _as_int8(logits: np.ndarray) -> bytes:
    """The scales [k, D] in float16, then the steps [k, D, C]."""
    logits = np.clip(logits, -LARGEST, LARGEST)
    scale = (abs(logits).max(axis=-1) / STEPS).astype("<f2")
    steps = logits / np.where(scale > 0, scale, 1).astype(float)[..., None]
    steps = np.clip(np.rint(steps), -STEPS, STEPS) * (scale > 0)[..., None]
    return scale.tobytes() + steps.astype(np.int8).tobytes()


def _from_int8(content: bytes, shape: tuple[int, int, int]) -> np.ndarray:
    scale = np.frombuffer(content, "<f2", shape[0] * shape[1]).astype(np.float32)
    steps = np.frombuffer(content, np.int8, offset=2 * len(scale)).reshape(shape)
    return steps * scale.reshape(*shape[:2], 1)


ENCODINGS = {
    "float16": Encoding(lambda rows, n: 2 * rows * n, _as_float16, _from_float16, 2**-10),
    "int8": Encoding(lambda rows, n: rows * (n + 2), _as_int8, _from_int8, 2**-6),
}
"""The encodings by name; "int8" errs by up to 1/254 of an example's largest logit."""
