"""A folder of clients' records of predictions.

A file NAME.predictions is a record as `Predictions.to_bytes` gives it, signed or not. Whatever a
file holds, it is read, or refused in one sentence that names it; no link is followed.
"""

import base64
import os
import stat
from pathlib import Path

from trip_node.deployment.recorded import FEWER, Files, RecordedRun, run_of_records
from trip_node.node.admission import Federation, Refused
from trip_node.node.predictions import MOST_BYTES, MOST_HEADER, Predictions, separated
from trip_node.settings import require
from trip_node.settings.capacity import require_capacity
from trip_node.settings.errors import InvalidSetting

SUFFIX = ".predictions"
ALIKE = ("federation", "test_set", "examples", "classes")
"""What all records have to agree in, beside the examples that they tell of."""


def read_predictions(
    folder: Path,
    *,
    federation: Federation | None = None,
    missing: str = "refuse",
    check: bool = True,
) -> RecordedRun:
    """The run that the records in a folder tell of.

    Args:
        federation: whose clients take part and must have signed the records; None: signatures are
            not checked.
        missing: "refuse" a round that lacks a client's record, or take such a client, by "zero",
            to have kept its model. What others mixed of it is then its model of before. A client
            whose record of a round is a closing record lacks one.
        check: whether claims are held against testimonies, where records have any; else all claims
            stand.

    Raises:
        InvalidSetting: a file is no record, or records contradict one another or lack one.
    """
    require(folder.is_dir(), f"--predictions {folder} must be a folder of records.")
    paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    require(bool(paths), f"{folder} has no file that ends in {SUFFIX}: put clients' records there.")
    require_capacity(sum(path.lstat().st_size for path in paths), FEWER)
    files: Files = {}
    for path in paths:
        try:
            record = _read(path, federation)
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}: {error}") from error
        earlier, same = files.setdefault((record.round, record.client), (str(path), record))
        require(
            same == record,
            f"{earlier} and {path} are different records of client {record.client!r} in round "
            f"{record.round}: keep the one that counts.",
        )
        first = next((one for one in files.values() if not one[1].closes), (str(path), record))
        _require_alike(*first, path, record)
    clients = () if federation is None else federation.clients
    return run_of_records(files, clients=clients, missing=missing, check=check)


def _read(path: Path, federation: Federation | None) -> Predictions:
    message, signature = separated(_content(path))
    if federation is None:
        return Predictions.from_bytes(message)
    try:
        text = None if signature is None else base64.b64encode(signature).decode()
        require(text is not None, "It is not signed: write it with to_bytes(signer).")
        return federation.admit_predictions(message, text)
    except Refused as error:
        raise InvalidSetting(error.why) from error


def _content(path: Path) -> bytes:
    """The bytes of a regular file of a record's size."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # nor wait at a pipe
    try:
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            about = os.fstat(file.fileno())
            require(stat.S_ISREG(about.st_mode), "it is no file.")
            most = 64 + MOST_HEADER + MOST_BYTES
            require(about.st_size <= most, f"a record has up to {most:,} bytes.")
            return file.read(most)
    except OSError as error:
        raise InvalidSetting(
            f"it can't be read as a file ({error.strerror}), and links are not followed."
        ) from error


def _require_alike(one: str, first: Predictions, other: Path, record: Predictions) -> None:
    closing = first.closes or record.closes
    for name in ALIKE:
        if name == "examples" and closing:
            continue
        expected, stated = getattr(first, name), getattr(record, name)
        require(
            expected == stated,
            f"{one} has {name} {expected!r} and {other} {stated!r}: "
            "all clients tell of one test set.",
        )
    require(
        closing or bool((first.places == record.places).all()),
        f"{one} and {other} tell of other examples: all clients use one seed or list.",
    )
