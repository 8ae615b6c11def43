"""Models in safetensors files, whose arrays are read when they are asked for.

A file has the length of its header in eight bytes, the header as JSON, and the arrays' bytes
(github.com/huggingface/safetensors, "Format").
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip

LONGEST_HEADER = 100_000_000  # bytes, the format's own limit


class Stored(Mapping[str, np.ndarray]):
    """The arrays of a file by name; bfloat16 is read as float32."""

    def __init__(self, path: Path, header: dict[str, Any], start: int):
        self._path, self._header, self._start = path, header, start

    @classmethod
    def open(cls, path: Path) -> "Stored":
        """Read the header.

        Raises:
            InvalidSetting: it is no whole safetensors file.
        """
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                require(length <= min(size - 8, LONGEST_HEADER), f"{path} is no safetensors file.")
                header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            for about in header.values():
                begin, end = about["data_offsets"]
                bytes_of_one = np.dtype(TYPES[about["dtype"]]).itemsize
                whole = end - begin == bytes_of_one * int(np.prod(about["shape"], dtype=np.int64))
                require(
                    whole and begin >= 0 and end <= size - 8 - length,
                    f"{path} is cut off or damaged.",
                )
        except InvalidSetting:
            raise
        except OSError as error:
            raise InvalidSetting(f"{path} cannot be read ({error.strerror}).") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidSetting(f"{path} is no safetensors file of numbers ({error}).") from error
        return cls(path, header, 8 + length)

    def __getitem__(self, name: str) -> np.ndarray:
        about = self._header[name]
        shape, start = tuple(about["shape"]), self._start + about["data_offsets"][0]
        if 0 in shape:
            return np.zeros(shape, TYPES[about["dtype"]])
        raw = np.memmap(self._path, TYPES[about["dtype"]], "r", start, shape)
        if about["dtype"] == "BF16":  # the upper half of a float32
            return (raw.astype(np.uint32) << 16).view(np.float32)
        return raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def __len__(self) -> int:
        return len(self._header)
