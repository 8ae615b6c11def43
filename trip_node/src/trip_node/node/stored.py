"""Models in safetensors files, whose arrays are read when they are asked for.

A file has the length of its header in eight bytes, the header as JSON, and the arrays' bytes
(github.com/huggingface/safetensors, "Format"). Arrays follow one another without a gap.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip

LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
MOST_AXES = 64  # of an array of NumPy
MOST_BYTES = 2**62


@dataclass(frozen=True)
class Entry:
    """The type, shape and place of one array, from the header of the file."""

    dtype: str  # among TYPES
    shape: tuple[int, ...]
    begin: int  # of its bytes, counted from the end of the header
    end: int


class Stored(Mapping[str, np.ndarray]):
    """The arrays of a file by name; bfloat16 is read as float32."""

    def __init__(self, path: Path, entries: dict[str, Entry], start: int):
        self._path, self._entries, self._start = path, entries, start

    @classmethod
    def open(cls, path: Path) -> "Stored":
        """Open a safetensors file and read its header.

        Raises:
            InvalidSetting: it is no whole safetensors file.
        """
        try:
            at_once = getattr(os, "O_NONBLOCK", 0)  # without waiting at a pipe
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as f:
                about = os.fstat(f.fileno())
                require(stat.S_ISREG(about.st_mode), "it is no regular file")
                header = _header(f, about.st_size)
                start = f.tell()
                return cls(path, _entries(header, about.st_size - start), start)
        except InvalidSetting as error:
            raise InvalidSetting(f"{path} is no whole safetensors file: {error}.") from error
        except OSError as error:
            raise InvalidSetting(f"{path} cannot be read ({error.strerror}).") from error
        except (ValueError, RecursionError) as error:
            raise InvalidSetting(f"{path} is no safetensors file ({str(error)[:100]}).") from error

    def __getitem__(self, name: str) -> np.ndarray:
        about = self._entries[name]
        if 0 in about.shape:
            dtype = "<f4" if about.dtype == "BF16" else TYPES[about.dtype]
            return np.zeros(about.shape, dtype)
        place = self._start + about.begin
        try:
            raw = np.memmap(self._path, TYPES[about.dtype], "r", place, about.shape)
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"{self._path} was changed while it was read.") from error
        if about.dtype == "BF16":  # the upper half of a float32
            return (raw.astype(np.uint32) << 16).view(np.float32)
        return raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _header(file: BinaryIO, size: int) -> dict[str, Any]:
    length = int.from_bytes(file.read(8), "little")
    require(0 < length <= min(size - 8, LONGEST_HEADER), "its header is cut off")
    text = file.read(length).decode()
    header = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    require(isinstance(header, dict), "its header is no object")
    return dict(header)


def _entries(header: dict[str, Any], size: int) -> dict[str, Entry]:
    """The arrays, which must fill the file's other bytes one after another."""
    metadata = header.pop("__metadata__", {})
    texts = isinstance(metadata, dict) and all(isinstance(one, str) for one in metadata.values())
    require(texts, "its __metadata__ must be texts")
    entries = {name: _entry(name, about) for name, about in header.items()}
    place = 0
    for name, one in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        require(one.begin == place, f"{name[:50]!r} overlaps another array, or leaves a gap")
        place = one.end
    require(place == size, f"its arrays have {place} bytes, and {size} are there")
    return entries


def _entry(name: str, about: Any) -> Entry:
    whose = repr(name[:50])
    fields = isinstance(about, dict) and about.keys() == {"dtype", "shape", "data_offsets"}
    require(fields, f"{whose} must have dtype, shape and data_offsets")
    dtype, shape, offsets = about["dtype"], about["shape"], about["data_offsets"]
    known = isinstance(dtype, str) and dtype in TYPES
    require(known, f"{whose} must be of one of {', '.join(TYPES)}, not {str(dtype)[:30]!r}")
    require(_counts(shape, MOST_AXES), f"the shape of {whose} must be up to {MOST_AXES} counts")
    two = _counts(offsets, 2) and len(offsets) == 2 and offsets[0] <= offsets[1]
    require(two, f"the data_offsets of {whose} must be where its bytes begin and end")
    one = np.dtype(TYPES[dtype]).itemsize
    fits = one * prod(max(axis, 1) for axis in shape) <= MOST_BYTES
    require(fits, f"the shape of {whose} is beyond all memory")
    right = offsets[1] - offsets[0] == one * prod(shape)
    require(right, f"the shape of {whose} and its number of bytes disagree")
    return Entry(dtype, tuple(shape), *offsets)


def _counts(given: Any, most: int) -> bool:
    """Whether it is a list of at most so many integers from 0 up."""
    return (
        isinstance(given, list)
        and len(given) <= most
        and all(type(one) is int and 0 <= one <= MOST_BYTES for one in given)
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is there twice")
    return dict(pairs)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
