"""Safetensors files: honest ones are read as the format's own library does, lying ones refused."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="pip install trip-node[test]")
pytest.importorskip("safetensors", reason="pip install trip-node[test]")

from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from trip_node.node.stored import TYPES, Stored
from trip_node.settings.errors import InvalidSetting


def entry(**changed: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | changed


def write(path: Path, header: Any, content: bytes = bytes(16)) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path


LIES: dict[str, Any] = {
    "negative shape": {"a": entry(shape=[-2, -2])},
    "negative axis of nothing": {"a": entry(shape=[0, -1], data_offsets=[0, 0])},
    "product beyond 64 bits": {"a": entry(shape=[2**33, 2**31], data_offsets=[0, 0])},
    "product of 2^64 + 4": {"a": entry(shape=[2**62 + 1, 4])},
    "axis beyond 64 bits": {"a": entry(shape=[0, 2**70], data_offsets=[0, 0])},
    "huge beside nothing": {"a": entry(shape=[0, 2**62], data_offsets=[0, 0])},
    "65 axes": {"a": entry(dtype="U8", shape=[1] * 65, data_offsets=[0, 1])},
    "fractions as shape": {"a": entry(shape=[4.0])},
    "a truth value as shape": {"a": entry(shape=[True, 4])},
    "text as shape": {"a": entry(shape="4")},
    "a number as shape": {"a": entry(shape=4)},
    "nothing as shape": {"a": entry(shape=None)},
    "nested shape": {"a": entry(shape=[[4]])},
    "NaN as shape": {"a": entry(shape=[float("nan")])},
    "fractions as offsets": {"a": entry(data_offsets=[0.0, 16.0])},
    "truth values as offsets": {"a": entry(dtype="U8", shape=[1], data_offsets=[False, True])},
    "negative offset": {"a": entry(data_offsets=[-16, 0])},
    "offsets the other way": {"a": entry(shape=[0], data_offsets=[16, 0])},
    "offsets beyond 64 bits": {"a": entry(data_offsets=[2**70, 2**70 + 16])},
    "offsets beyond the end": {"a": entry(data_offsets=[16, 32])},
    "one offset": {"a": entry(data_offsets=[16])},
    "three offsets": {"a": entry(data_offsets=[0, 16, 16])},
    "offsets as text": {"a": entry(data_offsets="01")},
    "other size than shape": {"a": entry(shape=[3])},
    "overlap": {"a": entry(), "b": entry()},
    "partial overlap": {
        "a": entry(shape=[3], data_offsets=[0, 12]),
        "b": entry(shape=[2], data_offsets=[8, 16]),
    },
    "gap before": {"a": entry(shape=[3], data_offsets=[4, 16])},
    "gap between": {
        "a": entry(shape=[1], data_offsets=[0, 4]),
        "b": entry(shape=[2], data_offsets=[8, 16]),
    },
    "gap after": {"a": entry(shape=[3], data_offsets=[0, 12])},
    "unknown type": {"a": entry(dtype="F8_E4M3")},
    "a list as type": {"a": entry(dtype=["F32"])},
    "a number as type": {"a": entry(dtype=32)},
    "a field less": {"a": {"dtype": "F32", "shape": [4]}},
    "a field more": {"a": entry(more=1)},
    "an entry that is a list": {"a": [1]},
    "an entry that is nothing": {"a": None},
    "metadata alone": {"__metadata__": {}},
    "metadata of numbers": {"__metadata__": {"a": 1}, "a": entry()},
    "metadata that is a list": {"__metadata__": [], "a": entry()},
    "a list": [1],
    "nothing": None,
    "no JSON": b"{",
    "an array twice": b'{"a": %(0)s, "a": %(0)s}' % {b"0": json.dumps(entry()).encode()},
    "a field twice": b'{"a": {"dtype": "F32", "shape": [4], "shape": [4], "data_offsets": [0,16]}}',
    "nested deeply": b"[" * 100_000,
    "nested deeply in objects": b'{"a":' * 100_000,
    "a number of 5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "UTF-16": json.dumps({"a": entry()}).encode("utf-16"),
    "Latin-1": b'{"\xe4": %s}' % json.dumps(entry()).encode(),
    "a header of nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused_in_a_sentence(tmp_path: Path, lie: str) -> None:
    path = write(tmp_path / "m.safetensors", LIES[lie])
    with pytest.raises(InvalidSetting, match=r"m\.safetensors is no (whole )?safetensors") as error:
        Stored.open(path)
    said = str(error.value)
    assert said.endswith(".") and "\n" not in said and len(said) < 400 + len(str(path))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 7, b"\0" * 8, b"\xff" * 8, b"\1" + bytes(7), (2**40).to_bytes(8, "little")],
)
def test_lengths_that_lie_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(InvalidSetting, match="its header is cut off"):
        Stored.open(tmp_path / "m")


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    places = [tmp_path, tmp_path / "none", Path("/dev/zero")]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        places.append(tmp_path / "pipe")
    for path in places:
        with pytest.raises(InvalidSetting, match=r"cannot be read|is no regular file"):
            Stored.open(path)


def test_every_type_is_read_as_the_formats_own_library_writes_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for name, dtype in TYPES.items():
        if name != "BF16":
            shapes: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 4), (1, 1, 1))
            values = {f"{name}{list(one)}": rng.integers(0, 2, one) for one in shapes}
            arrays |= {key: np.asarray(one).astype(dtype) for key, one in values.items()}
    path = tmp_path / "all.safetensors"
    path.write_bytes(save(arrays, metadata={"format": "np"}))
    stored = Stored.open(path)
    assert set(stored) == set(arrays)
    for name, one in arrays.items():
        assert stored[name].dtype == one.dtype
        np.testing.assert_array_equal(stored[name], one)
    half = {"a": entry(dtype="BF16", shape=[2], data_offsets=[0, 4])}
    half["b"] = entry(dtype="BF16", shape=[0], data_offsets=[4, 4])
    read = Stored.open(write(path, half, b"\x80\x3f\x20\xc0"))  # 1 and -2.5
    assert read["a"].tolist() == [1, -2.5] and read["b"].dtype == np.float32


def test_a_file_that_shrinks_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"a": entry()})
    stored = Stored.open(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidSetting, match=r"m\.safetensors was changed while it was read"):
        stored["a"]
    path.unlink()
    with pytest.raises(InvalidSetting, match="was changed while"):
        stored["a"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*TYPES, "", "F8"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries(
    {"dtype": st.sampled_from([*TYPES]) | JSON, "shape": st.lists(st.integers(-1, 5)) | JSON,
     "data_offsets": st.lists(st.integers(-1, 70), min_size=2, max_size=2) | JSON}
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=3), ENTRY | JSON, max_size=3), st.binary(max_size=70))
def test_any_header_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, header: Any, content: bytes
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "drawn", header, content)
    try:
        stored = Stored.open(path)
    except InvalidSetting:
        return
    assert sum(one.size for one in stored.values()) <= len(content)
